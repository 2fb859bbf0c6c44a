"""`Solution.check` at its edges: values just right and just wrong, for every condition of the proof."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rpl_agent.core.model import Nature, Objective, Policy, Sense
from rpl_agent.core.relaxations.base import model_rows
from rpl_agent.core.solver import check as checked
from rpl_agent.core.solver import solve
from rpl_agent.core.solver.check import SMALLEST, Witness, is_converged
from tests.reference.random_models import Uncompiled
from tests.solver.test_solver_check import ANY, COST, ONE, REACH, claimed, exactly, relaxation

HALF = exactly("1/2")


def chain(cost=None):
    """0 → 1 → goal 2, for certain."""
    return relaxation([[{1: ONE}], [{2: ONE}], [{2: ONE}]], cost=cost or [[1], [1], [0]])


# ---------------------------------------------------------------------- witnesses of regions
@pytest.mark.parametrize(
    ("first", "second", "good"),
    [
        (0.5, 0.5, True),
        (0.0, 1.0, True),
        (-0.25, 1.25, False),
        (0.5, 0.0, False),
        (1.0, 1.0, False),
        (0.5, 0.501, False),
    ],
)
def test_a_witness_of_a_region_is_a_distribution(first, second, good):
    rows = model_rows(relaxation([[{0: ANY, 1: ANY}], [{1: ONE}]]).pmdp)
    witness = Witness.of(rows, np.array([first, second, 1.0]), np.zeros(0), np.zeros(0), is_region=True)
    assert witness.mass.tolist() == [0.0 if good else np.inf, 0.0]


def test_a_witness_of_a_region_may_miss_one_by_the_tolerance(monkeypatch):
    monkeypatch.setattr(checked, "TOLERANCE", 2.0**-30)
    rows = model_rows(relaxation([[{0: ANY, 1: ANY}], [{1: ONE}]]).pmdp)
    for off, good in ((2.0**-30, True), (-(2.0**-30), True), (2.0**-29, False), (-(2.0**-29), False)):
        witness = Witness.of(rows, np.array([0.5 + off, 0.5, 1.0]), np.zeros(0), np.zeros(0), is_region=True)
        assert np.isfinite(witness.mass[0]) == good


# ---------------------------------------------------------------------- shapes and signs
def test_values_have_one_float_per_state():
    solution = solve(chain(), COST)
    assert solution.check() == []
    for values in (solution.lower_values.astype(np.float32), np.append(solution.lower_values, 0.0)):
        assert "values have shape" in replace(solution, lower_values=values).check()[0]
        assert "values have shape" in replace(solution, upper_values=values).check()[0]


@pytest.mark.parametrize("state", [0, 1, 2])
def test_every_state_is_looked_at(state):
    """Not only the first one."""
    solution = solve(chain(), COST)

    def told(side: str, value: float) -> str:
        values = np.array([2.0, 1.0, 0.0])
        values[state] = value
        changed = {f"{side}_values": values, "lower": -np.inf, "upper": np.inf, "converged": False}
        return " ".join(replace(solution, **changed).check())

    name = f"in state {state} = "
    assert f"lower is NaN {name}" in told("lower", np.nan) and f"upper is NaN {name}" in told("upper", np.nan)
    assert f"upper is -inf {name}" in told("upper", -np.inf)
    assert f"lower exceeds upper {name}" in told("lower", 9.0)
    assert f"upper is too small to bound its rounding error {name}" in told("upper", 1e-300)


def test_a_horizon_is_claimed_at_its_last_step():
    solution = solve(chain(), Objective.reach("goal", horizon=3))
    assert solution.check() == [] and solution.lower > 0.9
    tight = "the bracket at the initial state is tighter than the values"
    assert replace(solution, upper=0.5).check() == [tight]
    assert replace(solution, lower=1.5).check() == [tight]


def test_the_upper_end_belongs_to_the_upper_values():
    wide = relaxation([[{1: ANY, 2: ANY}], [{1: ONE}], [{2: ONE}]], goal={1})
    solution = solve(wide, REACH)
    values = np.array([1.0, 1.0, 0.0])
    lie = replace(solution, lower=0.0, upper=0.0, upper_values=values)
    assert "the bracket at the initial state is tighter than the values" in lie.check()


@pytest.mark.parametrize("side", [False, True])
def test_one_side_of_a_horizon_may_claim_nothing(side):
    solution = solve(chain(), Objective.reach("goal", horizon=3), side=side)
    other = solution.lower_values if side else solution.upper_values
    assert other.strides[0] == 0 and solution.check() == []


def test_numbers_that_rounding_may_swallow_are_named_one_by_one():
    """Zeros and numbers that are large enough are not among them, nor are negative lower bounds of values ≥ 0."""
    solution = replace(solve(chain(), COST), lower=-np.inf, upper=np.inf, converged=False)

    def told(side: str, *values: float) -> list[str]:
        found = replace(solution, **{f"{side}_values": np.array(values)}).check()
        return [issue for issue in found if "too small" in issue]

    words = "is too small to bound its rounding error in state"
    assert told("lower", SMALLEST, 1e-300, 0.0) == [f"lower {words} 1 = s1"]
    assert told("lower", -1e-300, 1e-300, 0.0) == [f"lower {words} 1 = s1"]
    assert told("lower", -1e-300, 1.0, 0.0) == []
    assert told("upper", 0.0, SMALLEST, 1e-300) == [f"upper {words} 2 = s2"]
    assert told("upper", 3.0, -1e-300, 0.0) == [f"upper {words} 1 = s1"]


@pytest.mark.parametrize(
    ("low", "high", "good"),
    [
        (0.0, 1e-6, True),
        (0.0, 1.1e-6, False),
        (0.1, 0.1 + 9e-7, True),
        (10.0, 10.0 + 9e-6, True),
        (10.0, 10.0 + 1.1e-5, False),
        (-10.0, -10.0 + 9e-6, True),
        (np.inf, np.inf, True),
        (0.0, np.inf, False),
    ],
)
def test_brackets_are_narrow_relative_to_values_above_one(low, high, good):
    assert is_converged(low, high, 1e-6) is good


# ---------------------------------------------------------------------- inequalities
def test_trivial_bounds_pass_and_nothing_else_does():
    nan, inf = np.nan, np.inf
    values, images = np.array([inf, -inf, 1.0, 2.0, nan]), np.array([nan, nan, 1.0, 1.0, 1.0])
    assert checked._fails(values, images, True).tolist() == [False, True, False, False, True]
    assert checked._fails(values, images, False).tolist() == [True, False, False, True, True]


def test_negative_lower_bounds_of_rewards_count_as_zero():
    solution = solve(chain(), Objective.reward("cost", target="goal"))
    lower = np.array([1.9, 0.95, -0.5])
    assert replace(solution, lower=1.9, lower_values=lower, converged=False).check() == []


@pytest.mark.parametrize("state", [0, 1])
def test_an_upper_bound_of_zero_needs_a_cost_of_zero(state):
    """Also for costs, where only states with a finite bound are looked at."""
    solution = solve(chain(), COST)
    values = np.array([2.2, 1.1, 0.0])
    true = replace(
        solution, lower=0.0, upper=2.2, lower_values=np.zeros(3), upper_values=values.copy(), converged=False
    )
    assert true.check() == []
    values[state] = 0.0
    lie = replace(true, upper=float(values[0]), upper_values=values)
    assert any("upper >= T upper fails" in issue for issue in lie.check())


@pytest.mark.parametrize("sense", list(Sense))
@pytest.mark.parametrize("side", ["lower", "upper"])
def test_bounds_of_gains_and_costs_are_checked_whatever_their_sign(sense, side):
    model = chain(cost=[[1], [-3], [0]])
    solution = solve(model, Objective.total("cost", target="goal", sense=sense))
    assert solution.check() == [] and solution.lower == pytest.approx(-2.0)
    way = 1.0 if side == "lower" else -1.0
    values = np.array([-2.0, -3.0, 0.0]) + way * np.array([0.5, 0.5, 0.0])
    assert replace(solution, **{side: float(values[0]), f"{side}_values": values}).check() != []


def test_a_negative_upper_bound_of_rewards_is_refused():
    solution = solve(chain(), Objective.reward("cost", target="goal"))
    for least in (-0.5, -1e-6):
        lie = replace(solution, lower_values=np.full(3, -np.inf), lower=-np.inf, upper=2.2, converged=False)
        lie = replace(lie, upper_values=np.array([2.2, 1.1, least]))
        assert lie.check() == ["upper is negative in state 2 = s2"]
    idle = relaxation([[{0: ONE}], [{1: ONE}]], cost=[[0], [0]])
    found = solve(idle, Objective.total("cost"))
    lie = replace(found, lower=-0.5, upper=-0.5, lower_values=np.full(2, -0.5), upper_values=np.full(2, -0.5))
    assert any("upper is negative" in issue for issue in lie.check())


def test_probabilities_are_at_most_one_whatever_rounding_adds():
    for parts in (("1/10", "2/10", "7/10"), ("1/3", "1/3", "1/3"), ("1/7", "2/7", "4/7"), ("1/5", "1/5", "3/5")):
        row = {k + 1: exactly(p) for k, p in enumerate(parts)}
        model = relaxation([[row], [{0: ONE}], [{0: ONE}], [{3: ONE}]])
        for nature in Nature:
            assert claimed(solve(model, REACH, nature), np.ones(4)).check() == []


# ---------------------------------------------------------------------- sets that are only queried
def test_nature_holds_the_play_at_zero_in_a_set_that_is_only_queried():
    """T 0 exceeds 0 by the tightness of the set: the bound rests on the graph."""
    model = Uncompiled(relaxation([[{0: ANY, 1: ANY}], [{1: ONE}]], cost=[[0], [0]]))
    assert claimed(solve(model, REACH), [0.0, 1.0]).check() == []
    either = Uncompiled(relaxation([[{0: ANY, 1: ANY}, {1: ONE}], [{1: ONE}]], cost=[[0, 0], [0]]))
    least = Objective.reach("goal", sense=Sense.MIN)
    assert claimed(solve(either, least, Nature.COOPERATIVE), [0.0, 1.0]).check() == []  # one such row is enough
    assert claimed(solve(either, REACH), [0.0, 1.0]).check() != []  # the agent takes the other one


@pytest.mark.parametrize("wrap", [Uncompiled, lambda model: model])
def test_a_nature_that_helps_holds_nothing_at_zero(wrap):
    """It may stay, and it may as well reach the goal: the least bound of every policy is 1."""
    model = wrap(relaxation([[{0: ANY, 1: ANY}], [{1: ONE}]]))
    solution = solve(model, REACH, Nature.COOPERATIVE)
    nothing = {"lower": -np.inf, "lower_values": np.full(2, -np.inf), "converged": False}
    lie = replace(solution, upper=0.0, upper_values=np.array([0.0, 1.0]), **nothing)
    assert any("upper >= T upper fails" in issue for issue in lie.check())


def test_nothing_is_held_at_zero_by_rows_that_pay():
    total = Objective.total("cost")
    for cost, good in (([[0], [0]], True), ([[1], [0]], False), ([[0.5], [0]], False)):
        model = Uncompiled(relaxation([[{0: ANY, 1: ANY}], [{1: ONE}]], cost=cost))
        lie = replace(
            solve(model, total),
            lower=0.0, upper=0.0, lower_values=np.zeros(2), upper_values=np.zeros(2), converged=True,
        )  # fmt: skip
        assert (lie.check() == []) is good


def test_a_policy_that_also_plays_a_row_that_pays_is_not_held_at_zero():
    table = [[{0: ANY, 1: ANY}, {0: ANY, 1: ANY}], [{1: ONE}]]
    model = Uncompiled(relaxation(table, cost=[[0, 1], [0]]))
    for sense in Sense:
        for weights, good in (([1.0, 0.0, 1.0], True), ([0.5, 0.5, 1.0], False)):
            policy = Policy(weights=np.array(weights))
            nature = Nature.ADVERSARIAL if sense is Sense.MAX else Nature.COOPERATIVE
            found = solve(model, Objective.total("cost", sense=sense), nature, policy=policy)
            lie = replace(
                found, lower=0.0, upper=0.0, lower_values=np.zeros(2), upper_values=np.zeros(2), converged=True
            )
            assert (lie.check() == []) is good


def test_a_witness_proves_nothing_where_nature_is_an_enemy():
    """Nature's best choice for the agent shows nothing about what it may do against it."""
    model = relaxation([[{1: ANY, 2: ANY}], [{1: ONE}], [{2: ONE}]], cost=[[0], [1], [0]])
    nothing = {
        "lower": -np.inf,
        "lower_values": np.full(3, -np.inf),
        "upper": np.inf,
        "upper_values": np.full(3, np.inf),
    }
    for sense, side, kind, values in (
        (Sense.MAX, "lower", [1.0, 0.0], [0.9, 1.9, 0.0]),
        (Sense.MIN, "upper", [0.0, 1.0], [0.1, 2.1, 0.1]),
    ):
        solution = solve(model, Objective.discounted("cost", 0.5, sense=sense))
        lie = nothing | {side: values[0], f"{side}_values": np.array(values)}
        lie |= {"nature_witness": np.array([*kind, 1.0, 1.0]), "converged": False}
        assert any("fails by" in issue for issue in replace(solution, **lie).check())


def test_a_witness_proves_that_a_friend_of_the_agent_ends_the_play():
    model = relaxation([[{0: ANY, 1: ANY}], [{1: ONE}]])
    solution = solve(model, REACH, Nature.COOPERATIVE)
    true = claimed(solution, [1.0, 1.0], nature_witness=np.array([0.0, 1.0, 1.0]))
    assert true.check() == []
    assert any("held" in issue for issue in replace(true, nature_witness=None).check())


def test_a_witness_shows_only_where_it_puts_mass():
    """The claim is true; a nature that never leaves does not show it."""
    model = relaxation([[{0: ANY, 1: ANY}], [{1: ONE}]])
    solution = solve(model, REACH, Nature.COOPERATIVE)
    for staying, good in ((1.0, False), (1.0 - 2.0**-40, True), (0.5, True), (0.0, True)):
        found = claimed(solution, [1.0, 1.0], nature_witness=np.array([staying, 1.0 - staying, 1.0]))
        assert (found.check() == []) is good


@pytest.mark.parametrize("witness", [[0.0, 1.0], [0.0, 1.0, 1.0, 1.0]])
def test_a_witness_has_one_float_per_transition(witness):
    solution = solve(relaxation([[{0: ANY, 1: ANY}], [{1: ONE}]]), REACH, Nature.COOPERATIVE)
    for wrong in (np.array(witness), np.array([0.0, 1.0, 1.0], dtype=np.float32)):
        issues = claimed(solution, [1.0, 1.0], nature_witness=wrong).check()
        assert issues and issues[0].startswith("nature's witness has shape")


def test_a_witness_of_a_set_that_is_only_queried_is_exact_in_rows_of_two():
    """The bounds of a longer row are a hull of what is in the set."""
    for row, witness, good in (
        ({0: ANY, 1: ANY}, [0.5, 0.5, 1.0], True),
        ({0: ANY, 1: ANY, 2: ANY}, [0.5, 0.25, 0.25, 1.0, 1.0], False),
    ):
        table = [[row], *([{s: ONE}] for s in range(1, len(row)))]
        goal = set(range(1, len(row)))
        for wrap in (Uncompiled, lambda model: model):
            model = wrap(relaxation(table, goal=goal))
            found = claimed(solve(model, REACH, Nature.COOPERATIVE), [1.0] * len(table))
            assert (replace(found, nature_witness=np.array(witness)).check() == []) is (good or wrap is not Uncompiled)


def test_mass_that_a_witness_misses_is_charged(monkeypatch):
    """1/2 to either side, of which the witness has m more on the better one: its mean is better than the truth."""
    monkeypatch.setattr(checked, "TOLERANCE", 2.0**-8)
    m, row = 2.0**-12, {1: HALF, 2: HALF}
    reach = solve(relaxation([[row], [{1: ONE}], [{2: ONE}]], goal={1}), REACH, Nature.COOPERATIVE)
    cost = solve(relaxation([[row], [{2: ONE}], [{2: ONE}]], cost=[[0], [8], [0]]), COST, Nature.COOPERATIVE)

    def is_proved(solution, values: list[float], upward: bool, *witness: float) -> bool:
        p = np.array([*witness, 1.0, 1.0])
        return checked.prove_side(solution.problem, np.array(values), upward, solution.policy, p) == []

    for value, good in ((0.5 - m, True), (0.5 + m / 4, False)):
        assert is_proved(reach, [value, 1.0, 0.0], False, 0.5 + m, 0.5 - m) is good
    for value, good in ((4.0 + m, True), (4.0 - 2 * m, False)):
        assert is_proved(cost, [value, 8.0 + 2.0**-30, 0.0], True, 0.5 - m, 0.5 + m) is good


@pytest.mark.parametrize("nature", list(Nature))
def test_a_cost_is_infinite_only_where_nature_can_hold_the_play(nature):
    """A friend stays with 1/4 each time, so that infinity solves the equation; of a hull, an enemy is taken for one."""
    quarter = exactly("1/4")
    model = relaxation([[{0: (quarter[0], ONE[0]), 1: (ANY[0], exactly("3/4")[0])}], [{1: ONE}]], cost=[[1], [0]])
    enemy = nature is Nature.ADVERSARIAL
    for wrap, good in ((lambda model: model, enemy), (Uncompiled, False)):
        claim = claimed(solve(wrap(model), COST, nature), [np.inf, 0.0])
        assert (claim.check(sides=(False,)) == []) is good
    stuck = relaxation([[{0: ONE}], [{1: ONE}]], cost=[[1], [0]])
    assert claimed(solve(stuck, COST, nature), [np.inf, 0.0]).check() == []


def test_who_may_choose_may_stay():
    """To go reaches the goal with 1/2, to stay never: 1/2 solves the equation of the least probability, which is 0."""
    table = [[{0: ONE}, {1: HALF, 2: HALF}], [{1: ONE}], [{2: ONE}]]
    solution = solve(relaxation(table), Objective.reach("goal", sense=Sense.MIN))
    assert solution.check() == [] and solution.upper == 0.0
    go = checked.row_bounds(solution.problem, np.array([0.0, 0.0, 1.0]), False)[1]  # 1/2, rounded down
    assert 0.49 < go < 0.5
    for value in (go, 0.4):
        found = checked.prove_side(solution.problem, np.array([value, 0.0, 1.0]), False, None)
        assert found == ["lower is positive where the play can be held: state 0 = s0"]


def test_one_row_that_holds_the_play_is_enough_for_a_minimiser_who_is_free():
    either = Uncompiled(relaxation([[{0: ANY, 1: ANY}, {1: ONE}], [{1: ONE}]], cost=[[0, 0], [0]]))
    problem = solve(either, Objective.reach("goal", sense=Sense.MIN), Nature.COOPERATIVE).problem
    assert checked.prove_side(problem, np.array([0.0, 1.0]), True, None) == []


def test_a_dead_end_in_a_model_without_other_cycles_is_worth_nothing():
    model = relaxation([[{1: HALF, 2: HALF}], [{1: ONE}], [{2: ONE}]])
    solution = solve(model, REACH)
    assert solution.problem.rank is not None and solution.check() == []
    lie = replace(solution, lower=0.7, lower_values=np.array([0.7, 0.5, 1.0]), upper=1.0, upper_values=np.ones(3))
    assert any("held" in issue for issue in replace(lie, converged=False).check())


# ---------------------------------------------------------------------- horizons
def test_each_step_follows_from_the_one_after_it():
    """A bound that is right with more steps to go is wrong with fewer."""
    slow = relaxation([[{0: HALF, 1: HALF}], [{1: ONE}]])
    solution = solve(slow, Objective.reach("goal", horizon=4))
    assert solution.check() == []
    for k, lie in ((1, 0.6), (2, 0.8), (3, 0.9)):
        lower = solution.lower_values.copy()
        lower[k, 0] = lie  # at most 1 − 2^-(k + 1), the value of one more step
        words = f"lower does not follow from the step after it, {k} steps to go, state 0"
        bold = replace(solution, lower_values=lower, upper=1.0, upper_values=np.ones((5, 2)), converged=False)
        assert bold.check() == [words]
        upper = solution.upper_values.copy()
        upper[k, 0] = 0.4
        words = f"upper does not follow from the step after it, {k} steps to go, state 0"
        meek = replace(solution, upper_values=upper, lower=0.0, lower_values=np.zeros((5, 2)), converged=False)
        assert meek.check() == [words]


def test_bounds_of_a_policy_that_changes_are_those_of_its_step():
    """Row 0 stays, row 1 goes to the goal; the policy goes with three steps to go and stays after that."""
    model = relaxation([[{0: ONE}, {1: ONE}], [{1: ONE}]])
    objective = Objective.reach("goal", horizon=3)
    for going in range(3):  # the step in which it goes
        rows = np.array([[1 if step == going else 0, 2] for step in range(3)])
        policy = Policy(rows=rows)
        solution = solve(model, objective, policy=policy)
        assert solution.check() == []
        for k in (1, 2, 3):
            value = float(k >= 3 - going)
            assert solution.lower_values[k, 0] == pytest.approx(value)
            if value == 0.0:
                lower = solution.lower_values.copy()
                lower[k:, 0] = 1.0
                lie = replace(solution, lower=1.0, upper=1.0, lower_values=lower, upper_values=np.ones((4, 2)))
                assert f"lower does not follow from the step after it, {k} steps to go, state 0" in lie.check()


def test_the_second_look_rests_on_the_step_after_and_on_the_rule_of_its_own(monkeypatch):
    """What is missed at first is looked at again with other vertices of a region."""
    seen = []

    def better(problem, values, upward, q):
        seen.append(values.copy())
        return q

    monkeypatch.setattr(checked, "better_bounds", better)
    model = relaxation([[{0: ONE}, {0: ONE}], [{1: ONE}]], cost=[[0, 1], [0]])
    policy = Policy(rows=np.array([[0, 2], [0, 2], [1, 2]]))  # earns in the last step only
    solution = solve(model, Objective.reward("cost", target="goal", horizon=3), policy=policy)
    assert solution.check() == [] and not seen
    lower = solution.lower_values.copy()
    lower[2:, 0] = 1.9
    lie = replace(
        solution, lower=1.9, lower_values=lower, upper=9.0, upper_values=np.full((4, 2), 9.0), converged=False
    )
    assert "lower does not follow from the step after it, 2 steps to go, state 0" in lie.check()
    assert np.array_equal(seen[0], lower[1])
