"""Bounds that miss 1 by an ulp: which plays never end must not hang on rounding."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpl_agent.core.model import Nature, Objective, Sense
from rpl_agent.core.native import core, read_only
from rpl_agent.core.relaxations import Intervals
from rpl_agent.core.relaxations.base import row_arrays
from rpl_agent.core.solver import solve
from rpl_agent.core.solver.graph import graph_bounds
from tests.reference.solver import exact_values, interval_model
from tests.solver.test_solver_exact import OBJECTIVES

#: a bracket may be wide here, with a warning; it may not be wrong
pytestmark = pytest.mark.filterwarnings("ignore")
ONE = (Fraction(1), Fraction(1))
#: roundings that go wrong are rare: more examples than elsewhere
MORE, MANY = (settings(max_examples=times * settings().max_examples) for times in (4, 8))
#: numbers whose sums come close to 1 without meeting it
AWKWARD = [0.1, 0.2, 0.3, 1 / 3, 0.5, 0.7, 0.9, 2**-53, 1e-17, 1e-13, 1e-30]


def nearly(x: float, steps: int) -> float:
    """x moved by a few units in the last place, within [0, 1]."""
    for _ in range(abs(steps)):
        x = float(np.nextafter(x, math.copysign(2.0, steps)))
    return min(max(x, 0.0), 1.0)


def as_number(bound: float) -> Fraction | float:
    return Fraction(bound) if math.isfinite(bound) else bound


@st.composite
def rows(draw, states: int):
    """Bounds around a distribution that sums to 1 up to rounding; as floats they must still admit one."""
    successors = draw(st.lists(st.integers(0, states - 1), min_size=1, max_size=3, unique=True))
    if len(successors) == 1:
        return {successors[0]: ONE}
    masses = [draw(st.sampled_from(AWKWARD)) for _ in successors[1:]]
    masses.append(max(0.0, 1.0 - sum(masses)))
    row = {}
    for successor, mass in zip(successors, masses):
        low, high = draw(
            st.sampled_from(
                [
                    (mass, mass),
                    (nearly(mass, -1), nearly(mass, 1)),
                    (0.0, nearly(mass, -1)),
                    (0.0, nearly(mass, 1)),
                    (max(0.0, mass - 0.2), min(1.0, mass + 0.2)),
                    (0.0, 1e-17),
                ]
            )
        )
        row[successor] = (Fraction(low), Fraction(max(low, high)))
    lows, highs = zip(*row.values())
    if sum(lows) <= 1 <= sum(highs):
        return row
    return {successors[0]: ONE}


@st.composite
def models(draw):
    states = draw(st.integers(2, 4))
    table = [draw(st.lists(rows(states), min_size=1, max_size=2)) for _ in range(states)]
    cost = [[draw(st.sampled_from([0.0, 0.0, 1.0, 0.5])) for _ in choices] for choices in table]
    return table, cost, {states - 1}


@MORE
@given(models(), st.sampled_from(OBJECTIVES), st.sampled_from(list(Nature)))
def test_brackets_hold_where_bounds_miss_one_by_an_ulp(model, objective, nature):
    table, cost, target = model
    pmdp, lower, upper = interval_model(table, labels={"goal": target}, cost=cost)
    solution = solve(Intervals(pmdp, lower, upper), objective, nature)
    for state, value in enumerate(exact_values(table, cost, target, set(), objective, nature)):
        assert as_number(float(solution.lower_values[state])) <= value, state
        assert value <= as_number(float(solution.upper_values[state])), state
    chosen = (solution.policy.rows - pmdp.state_ptr[:-1]).tolist()
    for state, value in enumerate(exact_values(table, cost, target, set(), objective, nature, chosen)):
        if objective.sense is Sense.MAX:
            assert as_number(float(solution.lower_values[state])) <= value, state
        else:
            assert value <= as_number(float(solution.upper_values[state])), state
    assert solution.check() == []


def almost_closed():
    """Nature can keep all but 2**-53 of the mass in state 0, forever a hair too little."""
    table = [[{0: (Fraction(0), 1 - Fraction(1, 2**53)), 1: (Fraction(0), Fraction(1))}], [{1: ONE}]]
    pmdp, lower, upper = interval_model(table, labels={"goal": {1}}, cost=[[1], [0]])
    return Intervals(pmdp, lower, upper)


@pytest.mark.parametrize("sense", list(Sense))
def test_a_set_that_is_closed_up_to_rounding_is_left_almost_surely(sense):
    nature = Nature.ADVERSARIAL if sense is Sense.MAX else Nature.COOPERATIVE  # the side that would stay
    solution = solve(almost_closed(), Objective.reach("goal", sense=sense), nature)
    assert solution.lower <= 1.0 <= solution.upper and solution.check() == []


def test_a_cost_of_many_steps_is_not_infinite():
    solution = solve(almost_closed(), Objective.cost("cost", target="goal"), Nature.ADVERSARIAL)
    assert solution.lower <= 2.0**53 <= solution.upper and solution.check() == []


def test_a_set_that_is_closed_exactly_can_be_held():
    table = [[{0: (Fraction(0), Fraction(1)), 1: (Fraction(0), Fraction(1, 2**60))}], [{1: ONE}]]
    pmdp, lower, upper = interval_model(table, labels={"goal": {1}}, cost=[[1], [0]])
    relaxation = Intervals(pmdp, lower, upper)
    reach = solve(relaxation, Objective.reach("goal"), Nature.ADVERSARIAL)
    cost = solve(relaxation, Objective.cost("cost", target="goal"), Nature.ADVERSARIAL)
    assert (reach.lower, reach.upper) == (0.0, 0.0) and reach.check() == []
    assert (cost.lower, cost.upper) == (math.inf, math.inf) and cost.check() == []


FLOATS = st.one_of(
    st.floats(0.0, 1.0), st.sampled_from([*AWKWARD, 1.0, 0.0, 5e-324, 1e-300, 1.0 - 2**-53]),
    st.integers(0, 16).map(lambda k: k / 16),
)  # fmt: skip


@MANY
@given(st.lists(FLOATS, max_size=8), st.integers(-2, 2))
def test_at_least_one_is_exact(terms, steps):
    if terms:  # make the sum come close to 1
        terms[-1] = nearly(max(0.0, 1.0 - math.fsum(terms[:-1])), steps)
    assert core.at_least_one(len(terms), np.array(terms, dtype=float)) == (sum(map(Fraction, terms)) >= 1)


@MANY
@given(rows(4))
def test_attainable_bounds_are_zero_exactly_where_they_must_be(row):
    bounds = list(row.values())
    lower, upper = (read_only([float(b[side]) for b in bounds]) for side in (0, 1))
    expression, row_ptr = read_only(np.arange(len(bounds)), np.int32), read_only([0, len(bounds)], np.int64)
    lo, hi = graph_bounds(False, lower, upper, row_arrays(row_ptr, expression, expression))
    for t, (low, high) in enumerate(bounds):
        others = [b for k, b in enumerate(bounds) if k != t]
        least = max(low, 1 - sum(b[1] for b in others))
        most = min(high, 1 - sum(b[0] for b in others))
        assert (lo[t] > 0) == (least > 0) and (hi[t] > 0) == (most > 0)


@pytest.mark.parametrize("nature", list(Nature))
def test_nothing_to_gain_is_bracketed_without_underflow(nature):
    anything, some = (Fraction(0), Fraction(1)), (Fraction(0), Fraction(3, 16))
    table = [
        [{1: ONE}, {1: (Fraction(0), Fraction(7, 16)), 2: anything, 3: (Fraction(1, 16), Fraction(1, 16))}],
        [{1: ONE}], [{1: anything, 2: some, 3: anything}], [{0: ONE}],
    ]  # fmt: skip
    pmdp, lower, upper = interval_model(table, labels={"goal": {3}}, cost=[[0, 0], [0], [0], [0]])
    solution = solve(Intervals(pmdp, lower, upper), Objective.discounted("cost", 0.9, target="goal"), nature)
    assert solution.lower <= 0.0 <= solution.upper < 1e-200 and solution.check() == []


@pytest.mark.parametrize("others", [1, 2, 3, 4])
@pytest.mark.parametrize("nature", list(Nature))
@pytest.mark.parametrize("horizon", [None, 3])
@pytest.mark.parametrize("sense", list(Sense))
def test_a_chance_too_small_for_a_float_is_not_taken_for_none(others, nature, horizon, sense):
    # Three steps of probability 1e-200 each lead from 0 to the goal 3; all other mass goes to dead ends.
    tiny = (Fraction(1e-200), Fraction(1e-200))
    rest = (Fraction(0), Fraction(1))
    ends = range(4, 4 + others)
    model = [[{s + 1: tiny, **dict.fromkeys(ends, rest)}] for s in range(3)]
    model += [[{s: ONE}] for s in range(3, 4 + others)]
    pmdp, lower, upper = interval_model(model, labels={"goal": {3}})
    found = solve(Intervals(pmdp, lower, upper), Objective.reach("goal", sense=sense, horizon=horizon), nature)
    high = np.atleast_2d(found.upper_values)[-1]
    assert (high[:4] > 0.0).all() and (high[4:] == 0.0).all()
    assert (np.atleast_2d(found.lower_values)[-1][:2] <= 0.0).all()
    assert found.check() == []
