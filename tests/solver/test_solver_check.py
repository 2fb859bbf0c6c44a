"""`Solution.check` accepts what is proven and rejects what only looks like a fixpoint."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.model import Nature, Objective, Policy, Sense
from rpl_agent.core.relaxations import Intervals
from rpl_agent.core.solver import solve
from tests.reference.random_models import Uncompiled
from tests.reference.solver import interval_model

ONE = (Fraction(1), Fraction(1))
REACH = Objective.reach("goal")


def relaxation(table, cost=None, goal=None):
    pmdp, lower, upper = interval_model(table, labels={"goal": goal or {len(table) - 1}}, cost=cost)
    return Intervals(pmdp, lower, upper)


def exactly(p) -> tuple[Fraction, Fraction]:
    return Fraction(p), Fraction(p)


def test_a_self_loop_supports_any_lower_bound_as_a_fixpoint_and_is_rejected():
    # Staying is allowed; going wins with 3/10: the value is .3, yet .9 <= T .9 through the loop.
    loop = relaxation([[{0: ONE}, {1: exactly("3/10"), 2: exactly("7/10")}], [{1: ONE}], [{2: ONE}]], goal={1})
    solution = solve(loop, REACH)
    assert solution.lower == pytest.approx(0.3) and solution.check() == []
    stay = Policy.deterministic(np.array([0, 2, 3]))
    lie = replace(
        solution,
        lower=0.9,
        upper=0.9,
        policy=stay,
        lower_values=np.array([0.9, 1, 0]),
        upper_values=np.array([0.9, 1, 0]),
    )
    assert any("held" in issue for issue in lie.check())


def test_nature_holding_the_play_is_seen():
    # Nature may keep the play in 0 and 1 forever: sum of lower bounds outside is 0, upper bounds inside reach 1.
    free = (Fraction(0), Fraction(1))
    table = [[{0: (Fraction(0), Fraction(1, 2)), 1: (Fraction(0), Fraction(1, 2)), 2: free}], [{0: ONE}], [{2: ONE}]]
    held = relaxation(table, cost=[[1], [1], [0]])
    solution = solve(held, REACH)
    assert solution.upper == 0.0 and solution.check() == []
    lie = replace(
        solution, lower=0.4, upper=0.4, lower_values=np.array([0.4, 0.4, 1]), upper_values=np.array([0.4, 0.4, 1])
    )
    assert any("held" in issue for issue in lie.check())
    cost = solve(held, Objective.cost("cost", target="goal"))
    assert cost.lower == cost.upper == np.inf and cost.check() == []
    lie = replace(cost, lower=5.0, upper=5.0, lower_values=np.array([5.0, 5, 0]), upper_values=np.array([5.0, 5, 0]))
    assert any("fails by 1" in issue for issue in lie.check())  # every turn costs 1, which no finite bound survives
    free_of_charge = relaxation(table, cost=[[0], [0], [0]])
    cost = solve(free_of_charge, Objective.cost("cost", target="goal"))
    assert cost.lower == cost.upper == np.inf and cost.check() == []
    lie = replace(cost, lower=5.0, upper=5.0, lower_values=np.array([5.0, 5, 0]), upper_values=np.array([5.0, 5, 0]))
    assert any("avoided forever" in issue for issue in lie.check())


def test_an_infinite_claim_needs_the_graph():
    table = [[{0: exactly("1/2"), 1: exactly("1/2")}], [{1: ONE}]]
    solution = solve(relaxation(table, cost=[[1], [0]]), Objective.cost("cost", target="goal"))
    assert solution.lower <= 2 <= solution.upper and solution.check() == []
    lie = replace(
        solution, lower=np.inf, upper=np.inf, lower_values=np.array([np.inf, 0]), upper_values=np.array([np.inf, 0])
    )
    assert any("finite" in issue for issue in lie.check())


@pytest.mark.parametrize("side", ["lower", "upper"])
@pytest.mark.parametrize("nature", list(Nature))
@pytest.mark.parametrize("sense", list(Sense))
@pytest.mark.parametrize(
    "make", [lambda s: Objective.reach("goal", sense=s), lambda s: Objective.reward("cost", target="goal", sense=s)]
)
def test_bounds_moved_inward_are_rejected(make, sense, nature, side):
    wide = (Fraction(1, 8), Fraction(5, 8))
    table = [[{0: wide, 1: wide, 3: wide}, {1: ONE}], [{0: wide, 2: wide, 3: wide}], [{2: ONE}], [{3: ONE}]]
    interval = relaxation(
        table, cost=[[1, 2], [1], [1], [0]], goal={2, 3} if make(sense).kind.value == "reward" else {3}
    )
    solution = solve(interval, make(sense), nature)
    assert solution.check() == []
    values = getattr(solution, f"{side}_values").copy()
    values[0] += 1e-4 if side == "lower" else -1e-4
    moved = replace(solution, **{f"{side}_values": values, side: float(values[0])})
    assert moved.check() != []


def test_a_worse_policy_is_rejected():
    table = [[{1: exactly("1/4"), 2: exactly("3/4")}, {1: exactly("3/4"), 2: exactly("1/4")}], [{1: ONE}], [{2: ONE}]]
    solution = solve(relaxation(table, goal={1}), REACH)
    assert solution.policy.rows[0] == 1
    assert replace(solution, policy=Policy.deterministic(np.array([0, 2, 3]))).check() != []


def test_a_bracket_tighter_than_the_values_is_rejected():
    table = [[{0: exactly("1/2"), 1: exactly("1/2")}], [{1: ONE}]]
    solution = solve(relaxation(table, cost=[[1], [0]]), Objective.discounted("cost", 0.5, sense=Sense.MIN))
    assert solution.check() == []
    assert replace(solution, lower=solution.lower + 1e-3).check() != []
    assert replace(solution, upper_values=solution.upper_values * np.nan).check() != []


# ---------------------------------------------------------------------- false solutions that look like proofs
ANY = (Fraction(0), Fraction(1))
NEVER = (Fraction(0), Fraction(0))
COST = Objective.cost("cost", target="goal")


def claimed(solution, values, **changes):
    """The solution with both bounds replaced by values (S,)."""
    values = np.array(values, dtype=float)
    start = float(values[solution.problem.pmdp.initial_state])
    return replace(
        solution, lower=start, upper=start, lower_values=values, upper_values=values.copy(), converged=True, **changes
    )


def test_a_dead_end_reaches_nothing_whatever_nature_wishes():
    # 0 -> dead end 1 or goal 2, then 1 loops forever: claimed to be as good as the goal.
    model = relaxation([[{0: exactly("1/2"), 1: exactly("1/2")}], [{1: ONE}], [{2: ONE}]])
    solution = solve(model, REACH, Nature.COOPERATIVE)
    assert solution.check() == [] and 0.0 <= solution.upper < 1e-200
    for witness in (solution.nature_witness, np.zeros(4), None, np.ones(4), np.full(4, np.nan)):
        assert claimed(solution, [1.0, 1.0, 1.0], nature_witness=witness).check() != []


def test_without_a_witness_nature_may_hold():
    # Reach-avoid: nature may stay in 0 forever; leaving hits the goal or the avoided state with 1/2 each.
    half = exactly("1/2")
    table = [[{0: ANY, 1: ANY}], [{2: half, 3: half}], [{2: ONE}], [{3: ONE}]]
    pmdp, lower, upper = interval_model(table, labels={"goal": {2}, "bad": {3}})
    solution = solve(Intervals(pmdp, lower, upper), Objective.reach("goal", avoid="bad"), Nature.COOPERATIVE)
    assert solution.check() == [] and solution.lower == pytest.approx(0.5)
    for witness in (None, solution.nature_witness, np.ones(6), np.zeros(6)):
        lie = claimed(solution, [1.0, 0.5 + 1e-9, 1.0, 0.0], nature_witness=witness)
        assert replace(lie, lower_values=np.array([1.0, 0.5 - 1e-9, 1.0, 0.0])).check() != []


def test_a_witness_cannot_use_a_successor_with_upper_bound_zero():
    # Nature must stay in 0: the way to the goal has probability 0 exactly.
    model = relaxation([[{0: ONE, 1: NEVER}], [{1: ONE}]])
    solution = solve(model, REACH, Nature.COOPERATIVE)
    assert solution.upper == 0.0 and solution.check() == []
    for leak in (1e-10, 1e-300, 0.5):
        assert claimed(solution, [1.0, 1.0], nature_witness=np.array([1.0 - leak, leak, 1.0])).check() != []
    # The same where lower bounds leave it nothing.
    half = exactly("1/2")
    model = relaxation([[{0: half, 1: half, 2: ANY}], [{0: ONE}], [{2: ONE}]])
    solution = solve(model, REACH, Nature.COOPERATIVE)
    assert solution.upper == 0.0 and solution.check() == []
    witness = np.array([0.5, 0.5, 1e-10, 1.0, 1.0])
    assert claimed(solution, [1.0, 1.0, 1.0], nature_witness=witness).check() != []


@pytest.mark.parametrize("sense", list(Sense))
def test_a_discounted_value_is_never_infinite(sense):
    model = relaxation([[{0: ONE}], [{1: ONE}]], cost=[[1], [0]])
    solution = solve(model, Objective.discounted("cost", 0.9, sense=sense))
    assert solution.lower <= 10 <= solution.upper and solution.check() == []
    assert claimed(solution, [np.inf, 0.0]).check() != []
    assert claimed(solution, [-np.inf, 0.0]).check() != []
    # Saying nothing is right.
    nothing = replace(
        solution, lower=-np.inf, upper=np.inf, lower_values=np.full(2, -np.inf), upper_values=np.full(2, np.inf),
        converged=False,
    )  # fmt: skip
    assert nothing.check() == []


@pytest.mark.parametrize("nature", list(Nature))
def test_the_target_absorbs_even_if_the_model_goes_on_to_a_dead_end(nature):
    # 0 -> goal 1 -> dead end 2: the cost is 1, because the play ends in 1.
    model = relaxation([[{1: ONE}], [{2: ONE}], [{2: ONE}]], cost=[[1], [1], [1]], goal={1})
    solution = solve(model, COST, nature)
    assert solution.lower <= 1 <= solution.upper < 1.1 and solution.check() == []
    assert replace(solution, lower=np.inf, lower_values=np.array([np.inf, 0, np.inf])).check() != []
    assert claimed(solution, [np.inf, 0.0, np.inf]).check() != []


@pytest.mark.parametrize("field", ["lower", "upper", "lower_values", "upper_values"])
@pytest.mark.parametrize(
    "objective", [REACH, COST, Objective.discounted("cost", 0.9), Objective.reach("goal", horizon=2)]
)
def test_not_a_number_proves_nothing(objective, field):
    model = relaxation([[{0: exactly("1/2"), 1: exactly("1/2")}], [{1: ONE}]], cost=[[1], [0]])
    solution = solve(model, objective)
    assert solution.check() == []
    assert replace(solution, **{field: getattr(solution, field) * np.nan}).check() != []


def test_weights_that_sum_to_more_than_one_gain_nothing():
    # Two rows lead back to 0 almost surely; what they lack per turn, weights of 1 + 9e-10 would make up.
    back, on = exactly(1 - Fraction(1, 2**30)), exactly(Fraction(1, 2**31))
    table = [[{0: back, 1: on, 2: on}, {0: back, 1: on, 2: on}], [{1: ONE}], [{2: ONE}]]
    model = relaxation(table, goal={1})
    solution = solve(model, REACH, precision=1e-5)
    assert solution.check() == [] and solution.lower == pytest.approx(0.5, abs=1e-5)
    for excess in (9e-10, 5e-10, 0.0):
        weights = np.array([0.5, 0.5 + excess, 1.0, 1.0])
        lie = replace(
            claimed(solution, [0.999, 1.0, 0.0], policy=Policy.randomised(weights)), upper=1.0,
            upper_values=np.array([1.0, 1.0, 0.0]), converged=False,
        )  # fmt: skip
        assert lie.check() != []


def test_a_policy_that_was_not_asked_about_is_rejected():
    table = [[{1: exactly("1/4"), 2: exactly("3/4")}, {1: exactly("3/4"), 2: exactly("1/4")}], [{1: ONE}], [{2: ONE}]]
    model = relaxation(table, goal={1})
    solution = solve(model, REACH, policy=Policy.deterministic(np.array([1, 2, 3])))
    assert solution.check() == []
    assert replace(solution, policy=Policy.deterministic(np.array([0, 2, 3]))).check() != []


def test_numbers_beyond_the_largest_float_say_nothing_and_pass():
    model = relaxation([[{1: ONE}], [{2: ONE}], [{2: ONE}]], cost=[[1.7e308], [1.7e308], [0]])
    for objective in (COST, Objective.discounted("cost", 0.99, target="goal", sense=Sense.MIN),
                      Objective.cost("cost", target="goal", horizon=5)):  # fmt: skip
        for nature in Nature:
            with pytest.warns(RPLWarning) if objective is COST else nullcontext():
                solution = solve(model, objective, nature)
            exact = Fraction(1.7e308) * (1 + Fraction(objective.discount))
            assert solution.lower == -np.inf or Fraction(solution.lower) <= exact
            assert solution.upper == np.inf or exact <= Fraction(solution.upper)
            assert solution.check() == []


@pytest.mark.parametrize("sense", list(Sense))
@pytest.mark.parametrize("nature", list(Nature))
def test_equal_rows_with_different_rewards_in_a_horizon(nature, sense):
    # Both rows of 1 cost 4 in two steps; their roundings differ, and the policy must take the one that is reported.
    half = exactly("1/2")
    table = [[{0: half, 1: half}], [{1: half, 2: half}, {2: ONE}], [{2: ONE}]]
    model = relaxation(table, cost=[[3], [2, 1], [3]])
    for horizon in (2, 3, 5, 9):
        solution = solve(model, Objective.reward("cost", target=None, sense=sense, horizon=horizon), nature)
        assert solution.check() == []


@pytest.mark.parametrize("nature", list(Nature))
@pytest.mark.parametrize("sense", list(Sense))
def test_the_second_engine_ends_plays_in_the_target(sense, nature):
    # 0 loops or goes to the goal 1, which leads on to a dead end: the bracket holds the exact value.
    some = (Fraction(1, 4), Fraction(3, 4))
    model = relaxation([[{0: some, 1: some}], [{2: ONE}], [{2: ONE}]], cost=[[1], [1], [1]], goal={1})
    for objective in (Objective.reward("cost", target="goal", sense=sense), Objective.reach("goal", sense=sense)):
        first, second = solve(model, objective, nature), solve(Uncompiled(model), objective, nature)
        for solution in (first, second):
            assert solution.lower <= solution.upper and solution.check() == []
        assert second.lower <= first.upper and first.lower <= second.upper
        assert second.gap < 1e-6 and first.gap < 1e-6


@pytest.mark.parametrize("nature", list(Nature))
def test_a_minimiser_that_may_loop_for_nothing_pays_nothing(nature):
    # State 0 can only loop, at a price of 1 or 0; nothing forces it to a target.
    model = relaxation([[{0: ONE}, {0: ONE}], [{1: ONE}]], cost=[[1, 0], [0]])
    solution = solve(model, Objective.total("cost", target="goal", sense=Sense.MIN), nature)
    assert solution.lower == solution.upper == 0.0 and solution.check() == []
    assert solution.policy.rows[0] == 1
    solution = solve(model, Objective.total("cost", target="goal", sense=Sense.MAX), nature)
    assert solution.lower == np.inf and solution.check() == []
