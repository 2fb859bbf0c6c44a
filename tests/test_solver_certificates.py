"""`Solution.check` accepts what is proven and rejects what only looks like a fixpoint."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from rpl_agent.model import Nature, Objective, Policy, Sense
from rpl_agent.relaxations import Intervals
from rpl_agent.solver import solve
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
    # Nature may keep the play in 0 and 1 for ever: sum of lower bounds outside is 0, upper bounds inside reach 1.
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
    assert any("avoided for ever" in issue for issue in lie.check())


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
