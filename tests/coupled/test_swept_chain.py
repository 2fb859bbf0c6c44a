"""Chains of large models are swept: the same values, gradients and payments as by factors."""

from __future__ import annotations

import numpy as np
import pytest

from rpl_agent.core.coupled import expansion as expansions
from rpl_agent.core.coupled.bounds import find_bound
from rpl_agent.core.coupled.expansion import expand, improved, swept_expansion, value_at
from rpl_agent.core.coupled.gradients.swept_chain import SweptChain, swept_chain
from rpl_agent.core.model import Nature, Objective, Policy, Sense
from rpl_agent.core.regions.frame import frame_of
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.core.solver import solve_at
from rpl_agent.core.solver.problem import Problem
from tests.coupled.test_coupled import region_around
from tests.reference.coupled import objectives, random_model


@pytest.fixture
def everything_swept(monkeypatch):
    monkeypatch.setattr(expansions, "SWEPT_STATES", 0)


def _case(seed: int, objective: Objective):
    pmdp = random_model(seed, polynomial=False, loops=True)
    region = region_around(pmdp, 0.05)
    problem = Problem.of(Rectangular(pmdp, region), objective, Nature.ADVERSARIAL, None)
    frame = frame_of(region, pmdp.table.reduction.weights)
    best = solve_at(pmdp, np.array([0.5, 0.5]), objective).policy
    policy = best if seed % 2 == 0 else best.mixed(pmdp, 0.7)
    return problem, frame, policy


@pytest.mark.parametrize("objective", objectives(horizon=False), ids=lambda o: o.describe())
@pytest.mark.parametrize("seed", range(4))
def test_sweeps_find_what_factors_find(seed, objective, monkeypatch):
    problem, frame, policy = _case(seed, objective)
    wanted = expand(problem, frame, policy)
    monkeypatch.setattr(expansions, "SWEPT_STATES", 0)
    found = swept_expansion(problem, frame, policy)
    assert wanted is not None and not isinstance(wanted.factors, SweptChain)
    if found is None:  # a total that some plays collect forever, or none at all
        assert objective.criterion.pays
        return
    assert sorted(found.solved) == sorted(wanted.solved)
    np.testing.assert_allclose(found.values, wanted.values, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(found.gradient, wanted.gradient, rtol=1e-10, atol=1e-11)
    assert np.array_equal(found.reached, wanted.reached)
    extra = np.random.default_rng(seed).random(problem.pmdp.num_states)
    np.testing.assert_allclose(found.spread(extra), wanted.spread(extra), rtol=1e-11, atol=1e-12)


@pytest.mark.usefixtures("everything_swept")
@pytest.mark.parametrize("sense", Sense)
def test_bounds_are_found_from_a_swept_chain(sense):
    problem, frame, policy = _case(0, Objective.reach("goal", sense=sense))
    expansion = expand(problem, frame, policy)
    assert isinstance(expansion.factors, SweptChain)
    assert improved(problem, expansion) is None  # noise of sweeps does not change the best policy
    for side in expansions.Side:
        bound = find_bound(problem, expansion, side, every_policy=False)
        assert bound is not None and bound.slack.max() < 0.05
    exact = solve_at(problem.pmdp, np.array([0.5, 0.5]), problem.objective, policy=policy)
    at = problem.pmdp.table.at(np.array([0.5, 0.5]))
    assert value_at(problem, policy, at) == pytest.approx(exact.middle, abs=1e-6)


def test_states_stand_in_the_order_of_their_distance_from_the_end():
    problem, frame, _ = _case(1, Objective.reward("cost", target="end", sense=Sense.MIN))
    first = Policy.deterministic(np.array(problem.pmdp.state_ptr[:-1]))
    chances = expansions.chances_of(problem, frame)
    chain = swept_chain(problem, first, chances, np.flatnonzero(~problem.task.decided))
    dense = np.zeros((len(chain.solved), len(chain.solved)))
    for i in range(len(dense)):
        for e in range(chain.indptr[i], chain.indptr[i + 1]):
            dense[i, chain.indices[e]] += chain.data[e]
    leaves = np.abs(dense.sum(axis=1)) > 1e-12
    assert leaves[0]
    assert (np.diff(leaves.astype(int)) <= 0).all()  # those that end at once come first
    right = np.arange(1.0, len(dense) + 1)
    np.testing.assert_allclose(chain.solve(right), np.linalg.solve(dense, right), rtol=1e-11)
