"""Where nature can hold a play is a question to the region: its hull may allow what no point of it does."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rpl_agent import build
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Nature, Objective, Sense
from rpl_agent.core.regions import Polytope
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.core.solver import solve
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import Config
from tests.reference.random_models import Uncompiled

#: A coin decides which parameter is played: half of the mass leaves {a, b}, but in the hull of a's row a and b may have
#: all of it (each in [0, 1/2]).
ROWS = {
    "a": {"a": ".5*q", "b": ".5-.5*q", "c": ".5*p", "d": ".5-.5*p"},
    "b": {"a": 1},
    "c": {"goal": 1},
    "d": {"goal": 1},
    "goal": {"goal": 1},
}


@pytest.fixture(scope="module")
def pmdp():
    return build(
        "a", lambda s: {"go": ROWS[s]}, domain=["p", "q"], labels={"goal": lambda s: s == "goal"},
        rewards={"time": lambda s, a: 1.0 * (s != "goal")},
    )  # fmt: skip


@pytest.fixture(scope="module", params=[lambda r: r, Uncompiled], ids=["compiled", "protocol"])
def relaxation(request, pmdp):
    square = Polytope(np.zeros((0, 2)), np.zeros(0), np.zeros(2), np.ones(2))
    return request.param(Rectangular(pmdp, square))


@pytest.mark.parametrize("sense", Sense)
@pytest.mark.parametrize("nature", Nature)
def test_the_goal_is_reached_whatever_nature_does(relaxation, sense, nature):
    """Exact value 1; where nature minimises, [0, 0] was given, converged and checked."""
    found = solve(relaxation, Objective.reach("goal", sense=sense), nature)
    assert found.check() == [] and found.lower <= 1.0 <= found.upper
    assert found.lower >= 1.0 - 1e-6


@pytest.mark.parametrize("sense", Sense)
def test_a_false_zero_does_not_pass_the_check(relaxation, sense):
    nature = Nature.ADVERSARIAL if sense is Sense.MAX else Nature.COOPERATIVE
    right = solve(relaxation, Objective.reach("goal", sense=sense), nature)
    zero = np.where(right.problem.task.decided, 1.0, 0.0)
    wrong = np.where(np.arange(5) < 2, 0.0, right.upper_values)
    for values in (zero, wrong):
        false = dataclasses.replace(right, lower_values=values, upper_values=values, lower=0.0, upper=0.0)
        assert false.check() != []


@pytest.mark.parametrize("nature", Nature)
def test_costs_are_finite_where_the_play_ends(pmdp, nature):
    """By the hull nature could keep the play from ending, and nothing was known from above."""
    square = Polytope(np.zeros((0, 2)), np.zeros(0), np.zeros(2), np.ones(2))
    found = solve(Rectangular(pmdp, square), Objective.cost("time", target="goal"), nature)
    exact = 4.0 if nature is Nature.ADVERSARIAL else 3.0  # q = 0: half of the visits to a are followed by one to b
    assert found.check() == [] and found.lower <= exact <= found.upper and found.converged


def test_certificates_know_it_without_data(pmdp):
    for relaxation in ("rectangular", "coupled"):
        found = certify(pmdp, Counts(pmdp), Objective.reach("goal"), Config(relaxation=relaxation))
        assert found.checked and found.lower >= 1.0 - 1e-6
