"""Other gradients for bounds on every policy: downhill, tighter where actions are nearly equal, and proved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rpl_agent import Config
from rpl_agent.core.coupled import bounds
from rpl_agent.core.coupled.affine import AffineProof, Side
from rpl_agent.core.coupled.expansion import expansion_of
from rpl_agent.core.coupled.gradients import easing
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Nature, Policy
from rpl_agent.core.regions.frame import frame_of
from rpl_agent.core.solver import solve_at
from rpl_agent.core.solver.problem import Problem
from rpl_agent.guarantee.checker import check
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import uncertainty_from
from rpl_agent.guarantee.proof import functions, prove
from tests.reference.block_models import DISCOUNTED, block_model


@pytest.fixture(scope="module")
def world():
    pmdp, theta = block_model(5, 24)
    return pmdp, theta, uniform_counts(pmdp, DISCOUNTED, theta, 2_000, 50, 300)


@pytest.fixture(scope="module")
def expanded(world):
    """(problem, region, expansion of the best policy at the centre of the ball)."""
    pmdp, _, counts = world
    found = uncertainty_from(pmdp, counts, Config(), DISCOUNTED)
    problem = Problem.of(found.relaxation, DISCOUNTED, Nature.ADVERSARIAL, None)
    frame = frame_of(found.region, bounds.varying_directions(problem, found.region))
    return problem, found.region, expansion_of(problem, frame, None, Policy.deterministic(pmdp.state_ptr[:-1]))


@pytest.mark.parametrize("side", Side)
def test_derivatives_are_those_of_the_bound(expanded, side):
    problem, region, expansion = expanded
    slope = side.value * expansion.gradient[problem.pmdp.initial_state]
    unit, slab = easing._cut_off(expansion.frame, region.A, region.b, slope)
    search, rng = easing._Search(problem, expansion, side, slab, 0.1 * unit), np.random.default_rng(2)
    x = search.start() * rng.uniform(0.9, 1.1, len(search.start()))
    derivative = search.bound(x)[1]
    for _ in range(3):
        step = 1e-5 * rng.normal(size=len(x)) * np.abs(x).mean()
        change = search.bound(x + step)[0] - search.bound(x - step)[0]
        assert change == pytest.approx(2.0 * derivative @ step, rel=1e-3, abs=1e-9)


def test_the_half_space_that_cuts_off_most(expanded):
    """Against a search over multipliers: |slope − m a| + m b, least over m and rows."""
    _, region, expansion = expanded
    frame, slope = expansion.frame, expansion.gradient[0]
    most, (a, _) = easing._cut_off(frame, region.A, region.b, slope)
    normals, room = region.A @ (frame.radius * frame.factor), region.b - region.A @ frame.center
    m = np.geomspace(1e-6, 1e3, 2000) * np.linalg.norm(slope) / np.linalg.norm(normals, axis=1).max()
    tried = [np.linalg.norm(slope - m[:, None] * n, axis=1) + m * r for n, r in zip(normals, room)]
    assert most == pytest.approx(np.min(tried), rel=1e-3)
    assert (a @ slope) > 0.0 and most < 0.9 * np.linalg.norm(slope)


def test_half_spaces_that_cut_nothing_off(expanded):
    """Bets without payoffs have a row of zeros."""
    problem, region, expansion = expanded
    far = np.zeros((2, region.dimension)), np.array([1.0, 2.0])
    slope = expansion.gradient[problem.pmdp.initial_state]
    most, (a, b) = easing._cut_off(expansion.frame, *far, slope)
    assert most == pytest.approx(np.linalg.norm(slope)) and not a.any() and b == 0.0
    found = easing.eased(problem, expansion, Side.UPPER, *far)
    assert np.isfinite(found.gradient).all()


def test_gradients_between_those_of_actions_give_a_tighter_bound(expanded):
    problem, region, expansion = expanded
    start, proof = problem.pmdp.initial_state, AffineProof(problem, region)
    plain = bounds.proved_bound(proof, expansion, Side.UPPER, every_policy=True)
    found = easing.eased(problem, expansion, Side.UPPER, region.A, region.b)
    bound = bounds.proved_bound(proof, found, Side.UPPER, every_policy=True)
    least = expansion.bound(Side.UPPER, True).at(region, start)  # without slack
    assert bound.at(region, start) - least < 0.8 * (plain.at(region, start) - least)


def test_certificates_and_proofs_have_them(world, monkeypatch):
    pmdp, theta, counts = world
    found = certify(pmdp, counts, DISCOUNTED, Config())
    proof = prove(pmdp, counts, found)
    check(proof)
    optimum = solve_at(pmdp, theta, DISCOUNTED).middle
    assert found.lower <= optimum <= found.upper
    assert proof["claim"]["upper"] - proof["claim"]["lower"] < 1.02 * found.gap
    for module in (bounds, functions):
        monkeypatch.setattr(module, "can_ease", lambda problem, expansion: False)
    plain = certify(pmdp, counts, DISCOUNTED, Config())
    assert plain.lower == found.lower and found.upper - optimum < 0.9 * (plain.upper - optimum)


def test_where_they_are_looked_for(expanded, monkeypatch):
    problem, _, expansion = expanded
    assert easing.can_ease(problem, expansion)
    assert not easing.can_ease(problem, replace(expansion, order=np.arange(30)))
    monkeypatch.setattr(easing, "STATES", 29)
    assert not easing.can_ease(problem, expansion)
