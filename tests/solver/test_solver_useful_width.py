"""Certificates ask the solver for what the data can use: a hundredth of the gap, not more digits."""

from __future__ import annotations

from fractions import Fraction

import pytest

from rpl_agent.core.model import Objective
from rpl_agent.core.relaxations import Intervals
from rpl_agent.core.solver import proved
from rpl_agent.core.solver.proved import Solutions, checked_solutions
from tests.reference.fuzz import by_sweeps
from tests.solver.test_solver_sweeping import grid

COST = Objective.cost("cost", target="over")


@pytest.fixture
def widths(monkeypatch) -> list[float]:
    found, inner = [], proved.solve_both

    def counted(*given, **options):
        found.append(options["precision"])
        return inner(*given, **options)

    monkeypatch.setattr(proved, "solve_both", counted)
    return found


def bounds(relaxation: Intervals, precision: float, warm: Solutions) -> tuple[float, float, float]:
    with by_sweeps():
        robust, optimistic = checked_solutions(relaxation, COST, None, precision, warm, {}, 0.0)
    assert robust.check([True]) == [] and optimistic.check([False]) == []
    warm.robust, warm.optimistic = robust, optimistic
    return optimistic.lower, robust.upper, robust.gap + optimistic.gap


def test_a_wide_gap_is_found_with_wide_brackets(widths):
    lower, upper, slack = bounds(grid(10, Fraction(1, 5)), 1e-9, Solutions())
    assert widths == [proved.FIRST_WIDTH] and slack <= proved.USEFUL * (upper - lower)


def test_a_narrow_gap_asks_for_more_and_the_next_one_starts_there(widths):
    narrow, warm = grid(10, Fraction(1, 10**6)), Solutions()
    lower, upper, slack = bounds(narrow, 1e-12, warm)
    assert slack <= proved.USEFUL * (upper - lower) * 1.1
    assert len(widths) > 1 and widths == sorted(widths, reverse=True)
    last = len(widths)
    bounds(narrow, 1e-12, warm)
    assert len(widths) == last + 1 and widths[-1] < 1e-6


def test_precision_is_what_is_asked_for_where_nothing_is_uncertain(widths):
    lower, upper, _ = bounds(grid(10, Fraction(0)), 1e-7, Solutions())
    assert widths[-1] == 1e-7 and upper - lower <= 2.1e-7 * upper
    coarse: list[float] = []
    widths.clear()
    lower, upper, _ = bounds(grid(10, Fraction(0)), 1e-2, Solutions())
    coarse += widths
    assert coarse == [1e-2] and upper - lower <= 2.1e-2 * upper
