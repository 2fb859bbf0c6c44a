"""The solver against exact rational answers on small models: every bracket must hold, rounding included."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpl_agent.core.model import Nature, Objective, Policy, Sense
from rpl_agent.core.relaxations import Intervals
from rpl_agent.core.solver import solve
from tests.reference.solver import exact_randomised, exact_values, interval_model, row_extremum

SIXTEENTHS = 16
OBJECTIVES = [
    *(Objective.reach("goal", sense=sense) for sense in Sense),
    *(Objective.reward("cost", target="goal", sense=sense) for sense in Sense),
    *(Objective.discounted("cost", 0.9, target="goal", sense=sense) for sense in Sense),
]


@st.composite
def rows(draw, states: int, longest: int = 3):
    """Bounds around a distribution in sixteenths; lower bounds 0 and upper bounds 1 are common."""
    successors = draw(st.lists(st.integers(0, states - 1), min_size=1, max_size=longest, unique=True))
    cuts = sorted(
        draw(st.lists(st.integers(0, SIXTEENTHS), min_size=len(successors) - 1, max_size=len(successors) - 1))
    )
    masses = np.diff([0, *cuts, SIXTEENTHS]).tolist()
    row = {}
    for successor, mass in zip(successors, masses):
        low = draw(st.sampled_from([0, max(0, mass - 2), mass, mass]))
        high = draw(st.sampled_from([SIXTEENTHS, min(SIXTEENTHS, mass + 3), mass, mass]))
        row[successor] = (Fraction(low, SIXTEENTHS), Fraction(high, SIXTEENTHS))
    return row


@st.composite
def models(draw):
    """Two to four states, one or two actions, costs with zeros, the last state is the goal (perhaps unreachable)."""
    states = draw(st.integers(2, 4))
    table = [draw(st.lists(rows(states), min_size=1, max_size=2)) for _ in range(states)]
    cost = [[draw(st.sampled_from([0, 0, 1, 2])) for _ in choices] for choices in table]
    return table, cost, {states - 1}


def assert_bracket(solution, exact, width: float = 1e-9) -> None:
    for state, value in enumerate(exact):
        low, high = float(solution.lower_values[state]), float(solution.upper_values[state])
        if math.isinf(value):
            assert low == high == math.inf, (state, low, high)
            continue
        assert math.isfinite(low) and Fraction(low) <= value, (state, low, float(value))
        assert math.isfinite(high) and value <= Fraction(high), (state, float(value), high)
        assert high - low <= width * max(1.0, high), (state, low, high)


@given(models(), st.sampled_from(OBJECTIVES), st.sampled_from(list(Nature)))
def test_values_and_policies_are_exact_to_rounding(model, objective, nature):
    table, cost, target = model
    pmdp, lower, upper = interval_model(table, labels={"goal": target}, cost=cost)
    solution = solve(Intervals(pmdp, lower, upper), objective, nature)
    assert_bracket(solution, exact_values(table, cost, target, set(), objective, nature))
    assert solution.check() == []
    # The returned policy attains the bound on the agent's side.
    chosen = (solution.policy.rows - pmdp.state_ptr[:-1]).tolist()
    own = exact_values(table, cost, target, set(), objective, nature, chosen)
    for state, value in enumerate(own):
        bound = float((solution.lower_values if objective.sense is Sense.MAX else solution.upper_values)[state])
        bound = Fraction(bound) if math.isfinite(bound) else bound
        assert bound <= value if objective.sense is Sense.MAX else value <= bound


@given(models(), st.sampled_from(OBJECTIVES), st.sampled_from(list(Nature)), st.randoms(use_true_random=False))
def test_fixed_policies(model, objective, nature, random):
    table, cost, target = model
    pmdp, lower, upper = interval_model(table, labels={"goal": target}, cost=cost)
    chosen = [random.randrange(len(choices)) for choices in table]
    policy = Policy.deterministic(pmdp.state_ptr[:-1] + np.array(chosen))
    solution = solve(Intervals(pmdp, lower, upper), objective, nature, policy=policy)
    assert_bracket(solution, exact_values(table, cost, target, set(), objective, nature, chosen))
    assert solution.check() == []


@given(models(), st.sampled_from(OBJECTIVES), st.sampled_from(list(Nature)))
def test_randomised_policies_are_bracketed(model, objective, nature):
    table, cost, target = model
    pmdp, lower, upper = interval_model(table, labels={"goal": target}, cost=cost)
    weights = [[Fraction(1)] if len(choices) == 1 else [Fraction(1, 4), Fraction(3, 4)] for choices in table]
    policy = Policy.randomised(np.array([float(w) for choice in weights for w in choice]))
    solution = solve(Intervals(pmdp, lower, upper), objective, nature, policy=policy)
    for state, value in enumerate(exact_randomised(table, cost, target, objective, nature, weights)):
        low, high = float(solution.lower_values[state]), float(solution.upper_values[state])
        assert (Fraction(low) if math.isfinite(low) else low) <= value
        assert value <= (Fraction(high) if math.isfinite(high) else high)
    assert solution.check() == []


def test_rows_that_are_mixed_and_share_successors_get_sharp_bounds():
    anything, one = (Fraction(0), Fraction(1)), (Fraction(1), Fraction(1))
    table = [
        [{0: anything, 1: anything}], [{0: one}, {0: anything, 1: anything, 2: anything}],
        [{0: anything, 1: anything, 2: one}], [{3: one}],
    ]  # fmt: skip
    pmdp, lower, upper = interval_model(table, labels={"goal": {3}}, cost=[[0], [0, 0], [1], [0]])
    policy = Policy.randomised(np.array([1.0, 0.25, 0.75, 1.0, 1.0]))
    objective = Objective.discounted("cost", 0.9, target="goal")
    solution = solve(Intervals(pmdp, lower, upper), objective, Nature.ADVERSARIAL, policy=policy)
    assert solution.check() == []
    assert solution.lower_values == pytest.approx([0, 0, 10, 0], abs=1e-9)
    assert solution.upper_values == pytest.approx([0, 0, 10, 0], abs=1e-9)


def test_avoid_states_are_lost():
    half = (Fraction(1, 2), Fraction(1, 2))
    one = (Fraction(1), Fraction(1))
    table = [[{1: half, 2: half}], [{2: one}], [{2: one}]]
    pmdp, lower, upper = interval_model(table, labels={"goal": {2}, "bad": {1}})
    solution = solve(Intervals(pmdp, lower, upper), Objective.reach("goal", avoid="bad"), Nature.ADVERSARIAL)
    assert solution.lower <= 0.5 <= solution.upper and solution.gap < 1e-14 and solution.check() == []


def test_a_pair_never_sampled_gives_nature_everything():
    anything = (Fraction(0), Fraction(1))
    table = [[{0: anything, 1: anything}], [{1: (Fraction(1), Fraction(1))}]]
    pmdp, lower, upper = interval_model(table, labels={"goal": {1}}, cost=[[1], [0]])
    relaxation = Intervals(pmdp, lower, upper)
    reach, cost = Objective.reach("goal"), Objective.cost("cost", target="goal")
    for objective, nature, value in (
        (reach, Nature.ADVERSARIAL, 0.0), (reach, Nature.COOPERATIVE, 1.0),
        (cost, Nature.ADVERSARIAL, math.inf), (cost, Nature.COOPERATIVE, 1.0),
    ):  # fmt: skip
        solution = solve(relaxation, objective, nature)
        assert solution.lower <= value <= solution.upper and solution.gap <= 1e-12
        assert solution.check() == []


def test_zero_cost_loops_do_not_hide_the_way_to_the_target():
    one = (Fraction(1), Fraction(1))
    # Two states may pass the play between them for nothing; leaving costs 3, and leave it must.
    table = [[{1: one}, {2: one}], [{0: one}], [{2: one}]]
    pmdp, lower, upper = interval_model(table, labels={"goal": {2}}, cost=[[0, 3], [0], [0]])
    solution = solve(Intervals(pmdp, lower, upper), Objective.cost("cost", target="goal"), Nature.ADVERSARIAL)
    assert solution.lower_values[0] == pytest.approx(3, abs=1e-12) and solution.upper_values[1] == pytest.approx(
        3, abs=1e-12
    )
    assert solution.policy.rows[0] == 1
    assert solution.check() == []


def test_horizons_step_by_step():
    up, down = (Fraction(1, 4), Fraction(1, 2)), (Fraction(1, 2), Fraction(3, 4))
    table = [[{0: down, 1: up}], [{1: (Fraction(1), Fraction(1))}]]
    pmdp, lower, upper = interval_model(table, labels={"goal": {1}}, cost=[[1], [0]])
    relaxation = Intervals(pmdp, lower, upper)
    for nature, p in ((Nature.ADVERSARIAL, 0.25), (Nature.COOPERATIVE, 0.5)):
        reach = solve(relaxation, Objective.reach("goal", horizon=3), nature)
        assert reach.lower <= 1 - (1 - p) ** 3 <= reach.upper and reach.gap < 1e-14
        assert reach.lower_values.shape == (4, 2) and reach.policy.rows.shape == (3, 2)
        assert reach.check() == []
        # expected cost of three steps that stop at the goal: 1 + (1-p) + (1-p)^2; a cost minimiser's friend hurries
        cost = solve(relaxation, Objective.cost("cost", target="goal", horizon=3), nature)
        stay = 1 - (p if nature is Nature.COOPERATIVE else 0.25)
        assert cost.lower <= 1 + stay + stay**2 <= cost.upper and cost.check() == []


@pytest.mark.parametrize("sense", Sense)
def test_horizons_longer_than_the_play(sense):
    """Values that no longer change are kept, whatever is played: every step is what its successors say."""
    third, two = (Fraction(1, 4), Fraction(1, 2)), (Fraction(1, 2), Fraction(3, 4))
    one = (Fraction(1), Fraction(1))
    table = [
        [{1: third, 2: two}, {3: one}],
        [{2: third, 3: two}],
        [{3: one}, {3: one}],
        [{3: one}],
        [{4: third, 3: two}],
    ]
    pmdp, lower, upper = interval_model(table, labels={"goal": {3}}, cost=[[1, 2], [3], [5, 4], [0], [1]])
    relaxation, horizon = Intervals(pmdp, lower, upper), 9
    objective = Objective.reward("cost", target="goal", sense=sense, horizon=horizon)
    rules = np.tile(pmdp.state_ptr[:-1], (horizon, 1))
    rules[::2, 2] += 1
    rules[3, 0] += 1
    for policy in (None, Policy.deterministic(rules), Policy.deterministic(rules[0])):
        found = solve(relaxation, objective, Nature.ADVERSARIAL, policy=policy)
        assert found.check() == []
        for k in range(1, horizon + 1):
            shorter = Objective.reward("cost", target="goal", sense=sense, horizon=k)
            left = policy if policy is None or policy.rows.ndim == 1 else Policy.deterministic(rules[horizon - k :])
            alone = solve(relaxation, shorter, Nature.ADVERSARIAL, policy=left)
            for state in range(5):
                now = solve_from(found, k, state)
                assert now == pytest.approx(solve_from(alone, k, state), abs=1e-14)
                played = range(pmdp.state_ptr[state], pmdp.state_ptr[state + 1])
                if policy is not None:
                    played = [int(policy.at(horizon - k).rows[state])]
                after = {i: Fraction(solve_from(found, k - 1, i)) for i in range(5)}
                nature = Sense.MIN if sense is Sense.MAX else Sense.MAX
                cost = [[1, 2], [3], [5, 4], [0], [1]][state]
                wanted = [
                    cost[row - pmdp.state_ptr[state]]
                    + row_extremum(table[state][row - pmdp.state_ptr[state]], after, nature)
                    for row in played
                ]
                exact = 0 if state == 3 else float((max if sense is Sense.MAX else min)(wanted))
                assert now == pytest.approx(exact, abs=1e-13)


def solve_from(solution, k: int, state: int) -> float:
    """The value of a state with k steps to go."""
    return float(solution.lower_values[k, state])
