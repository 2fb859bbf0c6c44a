"""Bad input is refused before any iteration, with the place named; limits give honest brackets."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from rpl_agent.core.errors import ModelError, RPLWarning
from rpl_agent.core.model import Nature, Objective, Policy
from rpl_agent.core.model.pmdp import MDP
from rpl_agent.core.relaxations import Intervals, Point
from rpl_agent.core.solver import solve
from tests.reference.solver import interval_model

HALF = (Fraction(1, 2), Fraction(1, 2))
ONE = (Fraction(1), Fraction(1))
TABLE = [[{0: HALF, 1: HALF}, {1: ONE}], [{1: ONE}]]


@pytest.fixture
def model():
    return interval_model(TABLE, labels={"goal": {1}, "nowhere": set()}, cost=[[1, 2], [0]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda low, high: (low * np.nan, high), "not finite"),
        (lambda low, high: (low + [0.2, 0, 0, 0], high), "exceeds the upper"),
        (lambda low, high: (low, high + 0.1), r"leave \[0, 1\]"),
        (lambda low, high: (low + [0.2, 0, 0, 0], high + [0.2, 0, 0, 0]), "sum to more than 1"),
        (lambda low, high: (low * 0, high - [0.1, 0, 0, 0]), "sum to less than 1"),
    ],
)  # fmt: skip
def test_inconsistent_bounds_name_the_place(model, change, message):
    pmdp, lower, upper = model
    with pytest.raises(ModelError, match=message) as error:
        Intervals(pmdp, *change(lower, upper))
    assert "action" in str(error.value) and "state" in str(error.value)


def test_shapes_and_probabilities(model):
    pmdp, lower, upper = model
    with pytest.raises(ModelError, match="4 expressions"):
        Intervals(pmdp, lower[:2], upper)
    with pytest.raises(ModelError, match="sum to"):
        Point(MDP(pmdp, np.array([0.5, 0.4, 1, 1]), np.zeros(4)))
    with pytest.raises(ModelError, match="probability"):
        Point(MDP(pmdp, np.array([-0.5, 1.5, 1, 1]), np.zeros(4)))


def test_objectives_and_policies(model):
    pmdp, lower, upper = model
    relaxation = Intervals(pmdp, lower, upper)
    with pytest.warns(RPLWarning, match="'nowhere' holds in no state"):
        assert solve(relaxation, Objective.reach("nowhere")).upper <= 1e-200
    with pytest.raises(ModelError, match="anywhere"):
        solve(relaxation, Objective.reach("anywhere"))
    with pytest.raises(ModelError, match="not enabled in state 1"):
        solve(relaxation, Objective.reach("goal"), policy=Policy.deterministic(np.array([0, 0])))
    with pytest.raises(ModelError, match="horizon"):
        solve(relaxation, Objective.reach("goal"), policy=Policy.deterministic(np.array([[0, 2], [1, 2]])))
    with pytest.raises(ModelError, match="precision"):
        solve(relaxation, Objective.reach("goal"), precision=0)
    with pytest.raises(ModelError, match="max_iterations"):
        solve(relaxation, Objective.reach("goal"), max_iterations=0)
    one = (Fraction(1), Fraction(1))
    pmdp, lower, upper = interval_model([[{0: one}, {1: one}], [{1: one}]], labels={"goal": {1}}, cost=[[-1, 2], [0]])
    with pytest.raises(ModelError, match=r"negative .* needs a certain end, but from s0 on plays can last forever"):
        solve(Intervals(pmdp, lower, upper), Objective.cost("cost", target="goal"))


def test_an_iteration_limit_gives_a_wide_honest_bracket():
    p = (Fraction(1, 4), Fraction(3, 8))
    rest = (Fraction(5, 8), Fraction(3, 4))
    certain = [[{0: rest, 1: p}], [{0: rest, 2: p}], [{2: ONE}], [{3: ONE}]]
    risky = [[{0: rest, 1: p}], [{0: (Fraction(1, 4), Fraction(1, 2)), 2: p, 3: p}], [{2: ONE}], [{3: ONE}]]
    for table, objective in ((risky, Objective.reach("goal")), (certain, Objective.cost("cost", target="goal"))):
        pmdp, lower, upper = interval_model(table, labels={"goal": {2}}, cost=[[1], [1], [0], [0]])
        relaxation = Intervals(pmdp, lower, upper)
        exact = solve(relaxation, objective, Nature.ADVERSARIAL)
        with pytest.warns(RPLWarning, match="wider than the requested precision"):
            cut = solve(relaxation, objective, Nature.ADVERSARIAL, max_iterations=2)
        assert not cut.converged and cut.gap > 1e-3
        assert cut.lower <= exact.lower and cut.upper >= exact.upper
        assert cut.check() == []
