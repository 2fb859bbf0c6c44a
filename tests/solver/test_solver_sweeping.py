"""Sweeps before factors, precision that is meant, and probabilities 0 and 1 that the graph decides."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.cyclic_models import drone, pursuit
from rpl_agent.core.model import Nature, Objective, Sense
from rpl_agent.core.relaxations import Intervals
from rpl_agent.core.solver import solve
from rpl_agent.core.solver.cyclic import component
from rpl_agent.formats import prism
from tests.reference.fuzz import by_sweeps
from tests.reference.solver import interval_model

ONE = (Fraction(1), Fraction(1))


def around(p: Fraction, width: Fraction) -> tuple[Fraction, Fraction]:
    return max(Fraction(0), p - width), min(Fraction(1), p + width)


def grid(side: int, width: Fraction = Fraction(1, 50)) -> Intervals:
    """Cells with four moves that may slip to any side; a goal in one corner, a trap in every fifth cell of a row."""
    moves = ((1, 0), (-1, 0), (0, 1), (0, -1))
    trap, goal = side * side, side * side - 1
    table, cost = [], []
    for s in range(side * side):
        x, y = divmod(s, side)
        if s == goal:
            table.append([{s: ONE}])
            cost.append([0.0])
            continue
        choices = []
        for chosen in range(4):
            mass: dict[int, Fraction] = {}
            for k, (dx, dy) in enumerate(moves):
                to = min(max(x + dx, 0), side - 1) * side + min(max(y + dy, 0), side - 1)
                mass[to] = mass.get(to, Fraction(0)) + (Fraction(7, 10) if k == chosen else Fraction(1, 10))
            if s % 5 == 3:
                mass = {to: p * Fraction(19, 20) for to, p in mass.items()} | {trap: Fraction(1, 20)}
            choices.append({to: around(p, width * p) for to, p in sorted(mass.items())})
        table.append(choices)
        cost.append([1.0, 1.5, 2.0, 1.0])
    table.append([{trap: ONE}])
    cost.append([0.0])
    return Intervals(*interval_model(table, labels={"goal": {goal}, "over": {goal, trap}}, cost=cost))


QUESTIONS = [
    *(Objective.reach("goal", sense=sense) for sense in Sense),
    *(Objective.reward("cost", target="over", sense=sense) for sense in Sense),
    *(Objective.discounted("cost", 0.99, target="over", sense=sense) for sense in Sense),
]


@pytest.mark.parametrize("objective", QUESTIONS, ids=Objective.describe)
@pytest.mark.parametrize("nature", Nature)
def test_sweeps_and_factors_agree(objective, nature, monkeypatch):
    relaxation = grid(14)
    monkeypatch.setattr(component, "SWEPT_FROM", 10**9)
    exact = solve(relaxation, objective, nature)
    monkeypatch.setattr(component, "iterate_strategies", None)  # nothing is factorised
    with by_sweeps():
        swept = solve(relaxation, objective, nature, precision=1e-7)
    assert swept.check() == [] and swept.converged
    assert (swept.lower_values <= exact.upper_values).all() and (exact.lower_values <= swept.upper_values).all()


@pytest.mark.parametrize("nature", Nature)
def test_less_precision_takes_fewer_sweeps(nature):
    relaxation, steps = grid(14), []
    for precision in (1e-2, 1e-4, 1e-6, 1e-8):
        with by_sweeps():
            found = solve(relaxation, QUESTIONS[2], nature, precision=precision)
        assert found.converged and found.check() == []
        assert found.gap > 1e-3 * precision, "more was computed than asked for"
        steps.append(found.iterations)
    assert steps == sorted(set(steps))


@pytest.mark.parametrize("case", [drone(8), pursuit(3)], ids=lambda case: case.name)
@pytest.mark.parametrize("nature", Nature)
def test_coarse_answers_take_no_more_sweeps_than_fine_ones(case, nature):
    """Steps were counted for rows that still changed, and bounds that fail were tried with ever more digits."""
    for question in case.properties[:2]:
        pmdp, objective = prism.loads(case.text, case.constants).objective(question)
        chances, steps = pmdp.table.at(np.zeros(0)), []
        slack = 0.02 * np.minimum(chances, 1 - chances)
        for precision in (1e-1, 1e-2, 1e-3, 1e-6):
            found = solve(Intervals(pmdp, chances - slack, chances + slack), objective, nature, precision=precision)
            assert found.converged and found.check() == []
            steps.append(found.iterations)
        assert max(steps) == steps[-1]


def test_sweeps_that_stall_leave_narrow_parts_to_factors(monkeypatch):
    monkeypatch.setattr(component, "FEW_SUCCESSORS", 0)
    half = (Fraction(1, 2), Fraction(1, 2))
    size = 1201
    inner = [[{s - 1: half, s + 1: half}] for s in range(1, size - 1)]
    pmdp, lower, upper = interval_model([[{0: ONE}], *inner, [{size - 1: ONE}]], labels={"goal": {size - 1}})
    found = solve(Intervals(pmdp, lower, upper), Objective.reach("goal"))
    assert found.check() == [] and found.lower_values[600] <= 0.5 <= found.upper_values[600]
    assert found.upper_values[600] - found.lower_values[600] <= 1e-9 and found.iterations < 1000


def test_sweeps_that_stall_are_accelerated_where_factors_would_fill(monkeypatch):
    monkeypatch.setattr(component, "iterate_strategies", None)  # nothing is factorised
    side = 24
    inside = {(x, y): x * side + y for x in range(side) for y in range(side)}
    quarter = Fraction(1, 4)
    table = []
    for (x, y), s in inside.items():
        if (x, y) in ((0, 0), (side - 1, side - 1)):
            table.append([{s: ONE}])
            continue
        mass: dict[int, Fraction] = {}
        for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            to = inside.get((x + dx, y + dy), s)
            mass[to] = mass.get(to, Fraction(0)) + quarter
        table.append([{to: (p, p) for to, p in sorted(mass.items())}])
    pmdp, lower, upper = interval_model(table, labels={"goal": {side * side - 1}})
    with by_sweeps():
        found = solve(Intervals(pmdp, lower, upper), Objective.reach("goal"), precision=1e-8)
    middle = inside[side // 2, side // 2 - 1]  # on the other diagonal, half way
    assert found.check() == [] and found.converged
    assert found.lower_values[inside[0, side - 1]] <= 0.5 <= found.upper_values[inside[0, side - 1]]
    assert found.lower_values[middle] > 0.4


# ---------------------------------------------------------------------- 0 and 1
def retry(loop: tuple[Fraction, Fraction], out: tuple[Fraction, Fraction]) -> Intervals:
    """Try again from 0 until 1 is reached (then the goal follows), or stay in 0 by the other action; 3 is a trap."""
    table = [[{0: loop, 1: out}, {0: ONE}], [{0: loop, 2: out}], [{2: ONE}], [{3: ONE}]]
    return Intervals(*interval_model(table, labels={"goal": {2}}))


@pytest.mark.parametrize("nature", Nature)
def test_what_is_certain_is_exactly_one_and_what_is_impossible_exactly_zero(nature):
    relaxation = retry((Fraction(1, 3), Fraction(2, 3)), (Fraction(1, 3), Fraction(2, 3)))
    for sense, value in ((Sense.MAX, 1.0), (Sense.MIN, 0.0)):
        found = solve(relaxation, Objective.reach("goal", sense=sense), nature)
        assert (found.lower, found.upper) == (value, value)
        assert found.lower_values[0] == found.upper_values[0] == value
        assert found.check() == []


def test_nature_may_prevent_or_grant_what_its_bounds_allow():
    relaxation = retry((Fraction(1, 3), Fraction(1)), (Fraction(0), Fraction(2, 3)))  # a way out of probability 0
    for nature, value in ((Nature.ADVERSARIAL, 0.0), (Nature.COOPERATIVE, 1.0)):
        found = solve(relaxation, Objective.reach("goal"), nature)
        assert (found.lower, found.upper) == (value, value) and found.check() == []


def test_a_lower_bound_of_one_needs_a_policy_that_arrives():
    """The other action stays for sure: a policy that plays it proves nothing, and the check says so."""
    relaxation = retry((Fraction(1, 3), Fraction(2, 3)), (Fraction(1, 3), Fraction(2, 3)))
    found = solve(relaxation, Objective.reach("goal"))
    rows = np.array(found.policy.rows)
    assert rows[0] == 0
    rows[0] = 1
    assert "held" in " ".join(type(found)(**{**vars(found), "policy": type(found.policy)(rows=rows)}).check())
