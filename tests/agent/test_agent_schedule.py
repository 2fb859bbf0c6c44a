"""Schedules: when they are due, and that they survive JSON."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rpl_agent.agent.schedule import (
    NEVER,
    Doubling,
    EveryN,
    Limits,
    Never,
    Progress,
    Schedule,
    Target,
    next_log,
    schedule_from_dict,
    schedule_to_dict,
)
from rpl_agent.core.errors import ModelError


def progress(rows, expressions, episodes=0, unknown_rows=None):
    rows, expressions = np.array(rows), np.array(expressions)
    known = np.ones(len(rows), bool) if unknown_rows is None else np.array(unknown_rows)
    return Progress(episodes, 0, 0, rows, expressions, known, np.ones(len(expressions), bool))


def test_doubling_of_state_action_is_ucrl2s_rule():
    limits = Doubling().limits(progress([0, 1, 5], [3], unknown_rows=[True, True, True]))
    assert limits.rows.tolist() == [1, 2, 10] and limits.expressions is None
    assert not limits.reached(np.array([0, 1, 9]), np.array([100]), 5)
    assert limits.reached(np.array([1, 1, 9]), np.array([3]), 5)


def test_known_rows_are_not_watched():
    limits = Doubling().limits(progress([4, 4], [8], unknown_rows=[True, False]))
    assert limits.rows.tolist() == [8, NEVER]
    assert not limits.reached(np.array([4, 10**9]), np.array([8]), 0)


def test_doubling_of_expressions_and_options():
    limits = Doubling(of="expression", first=8).limits(progress([1], [0, 3, 9]))
    assert limits.rows is None and limits.expressions.tolist() == [8, 8, 18]
    spaced = Doubling(spacing=0.5).limits(progress([1], [1], episodes=100))
    assert spaced.not_before == 150
    assert not spaced.reached(np.array([2]), np.array([2]), 149) and spaced.reached(np.array([2]), np.array([2]), 150)


def test_every_n_and_never():
    assert EveryN(7).limits(progress([1], [1], episodes=10)) == Limits(episodes=17)
    assert not Never().limits(progress([1], [1])).reached(np.array([10**12]), np.array([10**12]), 10**12)


@pytest.mark.parametrize("schedule", [Doubling(), Doubling("expression", 4, 0.1), EveryN(3), Never()])
def test_json_round_trip(schedule):
    assert schedule_from_dict(schedule_to_dict(schedule)) == schedule


def test_own_schedules_need_to_be_given_again():
    class Squares:
        def limits(self, progress):
            return Limits(episodes=(progress.updates + 1) ** 2)

    assert isinstance(Squares(), Schedule)
    with pytest.raises(ModelError, match=r"custom schedule \(Squares\): pass schedule"):
        schedule_from_dict(schedule_to_dict(Squares()))
    for bad in ({"kind": "no"}, {"kind": "every-n", "m": 3}):
        with pytest.raises(ModelError):
            schedule_from_dict(bad)


@pytest.mark.parametrize(
    "make", [lambda: Doubling("x"), lambda: Doubling(first=0), lambda: EveryN(0), lambda: Doubling(spacing=-1)]
)
def test_senseless_schedules_are_refused(make):
    with pytest.raises(ModelError):
        make()


def test_log_points_depend_on_episodes_only():
    points, n = [], 0
    while n < 1000:
        n = next_log(n, None)
        points.append(n)
    assert points[0] == 10 and all(b > a for a, b in itertools.pairwise(points))
    for k in range(1000):
        assert next_log(k, None) == min(p for p in points if p > k)
    assert [next_log(k, 5) for k in (0, 4, 5)] == [5, 5, 10]


@pytest.mark.parametrize("budget", [0, -3, 1.5, "many", None, True])
def test_budgets_are_whole_and_positive(budget):
    with pytest.raises(ModelError, match="budget"):
        Target.after(0, budget, "episodes", None, None)


def test_targets():
    assert Target.after(10, 5, "episodes", None, None).left(12, 99) == (3, NEVER)
    assert Target.after(10, 5, "steps", None, None).is_done(0, 15)
    with pytest.raises(ModelError, match="unit"):
        Target.after(0, 5, "hours", None, None)
