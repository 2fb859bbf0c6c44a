"""Balls around what likelihood and slabs leave: small where the ball of few data is larger than the domain."""

import copy
import json

import numpy as np
import pytest

import rpl_envs
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.likelihood.region import learned, parallel_walls
from rpl_agent.guarantee.proof import prove
from tests.certify.proved import OBJECTIVES, model, sampled
from tests.small_worlds import SIZES

pytestmark = pytest.mark.usefixtures("shared_particles")


@pytest.fixture(scope="module")
def engagement():
    world = rpl_envs.benchmark("rpl/Engagement-50-v0", **SIZES["Engagement-50"])
    theta = np.asarray(world.theta)
    return world, uniform_counts(world.pmdp, world.objective, theta, 100, world.max_episode_steps, 1)


@pytest.fixture(scope="module")
def few():
    """Few data of a small model: (certificate, its proof)."""
    pmdp = model()
    counts = sampled(pmdp, 40, 1)
    certificate = certify(pmdp, counts, OBJECTIVES["Pmin"])
    return certificate, json.loads(json.dumps(prove(pmdp, counts, certificate)))


def ball_of(proof: dict) -> dict:
    return proof["regions"][0]["likelihood"]["ball"]


def test_a_ball_in_slabs_is_much_smaller_and_holds_all_that_they_leave(engagement):
    world, counts = engagement
    found = learned(world.pmdp, counts, 0.95e-3, world.objective)
    joint, ball, own = found.joint, found.ball, found.joint.ball()
    assert ball.slabs and (np.linalg.norm(ball.factor, axis=1) < 0.5 * np.linalg.norm(own.factor, axis=1)).all()
    inverse, slabs = np.linalg.inv(ball.factor), found._strips()
    draw = np.random.default_rng(0)
    points = draw.dirichlet(np.ones(5), 200_000)[:, :4]  # the domain is a simplex
    points = points[joint.contains(points)]
    spans = points @ slabs.A.T
    points = points[((spans >= slabs.low) & (spans <= slabs.high)).all(axis=1)]
    distance = np.linalg.norm((points - ball.center) @ inverse.T, axis=1)
    assert len(points) > 100 and 0.3 < distance.max() <= 1.0


def test_few_data_give_narrower_bounds_and_the_proof_has_the_same(engagement):
    """The upper bound was 74.7 with the ball of the likelihood alone."""
    world, counts = engagement
    certificate = certify(world.pmdp, counts, world.objective)
    proof = prove(world.pmdp, counts, certificate)
    found = checker.check(json.loads(json.dumps(proof)))
    assert ball_of(proof)["slabs"] and certificate.upper < 65.0
    assert (found["lower"], found["upper"]) == (certificate.lower, certificate.upper)


def test_a_ball_needs_its_slabs(few):
    certificate, proof = few
    found = checker.check(proof)
    assert (found["lower"], found["upper"]) == (certificate.lower, certificate.upper) and ball_of(proof)["slabs"]
    for change, said in (
        (lambda ball: ball.pop("slabs"), "does not enclose"),
        (lambda ball: ball["slabs"].pop(), "does not enclose|centre of the ball"),
        (lambda ball: ball["slabs"][0].__setitem__(0, -1e-9), "negative multiple"),
        (lambda ball: ball["slabs"][0][1].pop(), "wrong size"),
        (lambda ball: ball["slabs"][0].__setitem__(0, 1e6), "does not enclose"),  # one slab alone bounds one direction
        (lambda ball: ball["slabs"].extend(ball["slabs"] * checker.MOST_SLABS), "more than 200 slabs"),
        (lambda ball: ball["slabs"][0][2][0].__setitem__(0, 10**6), "belongs to no cut"),
    ):
        forged = copy.deepcopy(proof)
        change(ball_of(forged))
        with pytest.raises(checker.Refused, match=said):
            checker.check(forged)


def test_walls_are_parallel_if_they_are_opposite():
    walls = np.array([[0.0, 1.0, 0.0], [1.0, -1.0, 0.0], [1.0, -1.0, -1.0], [0.0, 0.0, 1.0], [2.0, 0.0, -1.0]])
    assert parallel_walls(walls) == [(0, 1), (3, 4)]
