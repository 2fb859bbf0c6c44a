"""Functions whose rows hold over a ball and cuts at once: downhill, tighter, and proved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rpl_envs
from benchmarks import block_worlds
from rpl_agent import Config, RPLAgent
from rpl_agent.core.coupled import bounds
from rpl_agent.core.coupled.affine import AffineProof, Side
from rpl_agent.core.coupled.expansion import expansion_of
from rpl_agent.core.coupled.gradients import cuts, over_cuts
from rpl_agent.core.coupled.gradients.highest import Quadratics
from rpl_agent.core.coupled.gradients.inequalities import Inequalities
from rpl_agent.core.coupled.products import searches
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Nature, Objective, Policy
from rpl_agent.core.regions.frame import frame_of
from rpl_agent.core.solver import solve_at
from rpl_agent.core.solver.problem import Problem
from rpl_agent.guarantee.pipeline import uncertainty_from
from tests.reference.block_models import DISCOUNTED, block_model

STEPS = Objective.reward("gain", horizon=4)


def expanded(objective: Objective, unknowns: int = 12, plays: int = 500):
    """(proof for a region, expansion of the best policy at the centre of the ball, truth)."""
    pmdp, theta = block_model(5, unknowns)
    counts = uniform_counts(pmdp, DISCOUNTED, theta, plays, 50, 300)
    found = uncertainty_from(pmdp, counts, Config(), objective)
    problem = Problem.of(found.relaxation, objective, Nature.ADVERSARIAL, None)
    frame = frame_of(found.region, bounds.varying_directions(problem, found.region))
    expansion = expansion_of(problem, frame, None, Policy.deterministic(pmdp.state_ptr[:-1]))
    return AffineProof(problem, found.region), expansion, theta


@pytest.fixture(scope="module")
def endless():
    return expanded(DISCOUNTED)


@pytest.fixture(scope="module")
def searched(endless):
    """By side, the bound that was found."""
    proof, expansion, _ = endless
    found = {
        side: over_cuts.over_cuts(proof.problem, expansion, side, side is Side.UPPER, *proof.cuts) for side in Side
    }
    return proof, expansion, found


def program(proof, expansion, side):
    A, b = proof.cuts
    chosen = over_cuts._chosen(expansion.frame, A, b)
    given = Inequalities.of(proof.problem, expansion, side, None if side is Side.UPPER else expansion.policy)
    return over_cuts._Search(given, cuts.cut_rooms(expansion.frame, A[chosen], b[chosen]), 0.1)


@pytest.mark.parametrize("lags", [True, False])
@pytest.mark.parametrize("few", [0, 99])
@pytest.mark.parametrize("side", Side)
def test_derivatives_are_those_of_the_bound(endless, side, few, lags, monkeypatch):
    """With the values of a round before, and with those that follow from gradients and multipliers."""
    monkeypatch.setattr(over_cuts, "SMALL", few)
    monkeypatch.setattr(over_cuts, "CLOSE", 1e-6)
    proof, expansion, _ = endless
    search, rng = program(proof, expansion, side), np.random.default_rng(2)
    search.is_lagging = lags
    x = search.start() * rng.uniform(0.5, 1.5, len(search.start()))
    derivative, ends = search.evaluated(x, 0.01)[1], np.cumsum([len(part.ravel()) for part in search.parts(x)])
    for first, last in zip([0, *ends], ends):
        step = np.zeros(len(x))
        step[first:last] = 1e-5 * rng.normal(size=last - first) * np.abs(x[first:last]).mean()
        change = search.evaluated(x + step, 0.01)[0] - search.evaluated(x - step, 0.01)[0]
        assert change == pytest.approx(2.0 * derivative @ step, rel=1e-3, abs=1e-12)


def test_the_highest_of_a_quadratic_over_the_ball():
    """Against many points; touched coordinates first, and M = (A B; B' 0)."""
    rng, (rows, o, r) = np.random.default_rng(3), (4, 2, 5)
    l, A, B = rng.normal(size=(rows, r)), rng.normal(size=(rows, o, o)), rng.normal(size=(rows, o, r))
    touched = np.array([[0, 1], [1, 3], [2, 4], [0, 5]])  # the last one touches one coordinate
    A = A + A.transpose(0, 2, 1)
    A[3, 1] = A[3, :, 1] = B[3, 1] = 0.0
    M = np.zeros((rows, r + 1, r + 1))
    for k, own in enumerate(touched):
        B[k][:, own[own < r]] = 0.0
        M[k][np.ix_(own, own)] += A[k]
        M[k][own, :-1] += B[k]
        M[k][:-1, own] += B[k].T
    found = Quadratics(A, B, touched).highest(l, 1e-9)
    y = rng.normal(size=(200_000, r))
    y /= np.linalg.norm(y, axis=1)[:, None]
    for k in range(rows):
        values = y @ l[k] + np.einsum("ni,ij,nj->n", y, M[k, :-1, :-1], y)
        assert values.max() <= found.most[k] <= values.max() + 0.05 * np.ptp(values)
        assert found.most[k] == pytest.approx(found.y[k] @ l[k] + found.y[k] @ M[k, :-1, :-1] @ found.y[k], rel=1e-3)


def test_rows_over_cuts_are_tighter_and_proved(searched):
    """Each side loses less, both together less than half."""
    proof, expansion, found = searched
    start, lost = proof.problem.pmdp.initial_state, []
    for side, bound in found.items():
        plain = bounds.proved_bound(proof, expansion, side, side is Side.UPPER)
        assert proof.issues(bound) == []
        least = expansion.bound(side, True).at(proof.region, start)  # without slack
        lost.append([side.value * (one.at(proof.region, start) - least) for one in (bound, plain)])
    assert all(cut < 0.7 * plain for cut, plain in lost)
    assert sum(cut for cut, _ in lost) < 0.5 * sum(plain for _, plain in lost)


def test_they_hold_at_the_truth(searched, endless):
    proof, _, found = searched
    pmdp, theta = proof.problem.pmdp, endless[2]
    at = solve_at(pmdp, theta, DISCOUNTED).middle
    ends = [found[side].at(proof.region, pmdp.initial_state) for side in (Side.LOWER, Side.UPPER)]
    assert ends[0] <= at <= ends[1]


def test_what_was_changed_is_not_proved(searched):
    proof, _, found = searched
    bound = found[Side.UPPER]
    rows = bound.rows
    lower = bound.values - 1e-3 * np.abs(bound.values).max()
    level = rows.level.copy()
    level[0] = -1.0
    for forged, said in (
        (replace(bound, rows=None), "may fail"),
        (replace(bound, values=lower), "may fail"),
        (replace(bound, rows=replace(rows, level=0.5 * rows.level)), "may fail"),
        (replace(bound, rows=replace(rows, single=0.0 * rows.single)), "may fail"),
        (replace(bound, rows=replace(rows, double=0.0 * rows.double)), "may fail"),
        (replace(bound, rows=replace(rows, level=level)), "negative"),
        (replace(bound, rows=replace(rows, single=-rows.single)), "negative"),
        (replace(bound, rows=replace(rows, double=rows.double * np.nan)), "not finite"),
        (replace(bound, rows=replace(rows, level=rows.level[1:])), "wrong shape"),
        (replace(bound, rows=replace(rows, double=rows.double[1:])), "wrong shape"),
    ):
        assert said in " ".join(proof.issues(forged))
    boxed = AffineProof(proof.problem, proof.region.product)  # a region that offers no cuts
    assert boxed.cuts is None and boxed.issues(bound)


def test_functions_of_steps(monkeypatch):
    proof, expansion, theta = expanded(STEPS, 9, 50)
    monkeypatch.setattr(over_cuts, "BARRIERS", ((1e-2, 8), (3e-3, 8)))
    start, ends = proof.problem.pmdp.initial_state, []
    for side in (Side.LOWER, Side.UPPER):
        found = over_cuts.over_cuts(proof.problem, expansion, side, side is Side.UPPER, *proof.cuts)
        assert proof.issues(found) == []
        assert "steps to go" in proof.issues(replace(found, rows=None))[0]
        ends.append(found.at(proof.region, start))
        plain = bounds.proved_bound(proof, expansion, side, side is Side.UPPER).at(proof.region, start)
        assert side.value * ends[-1] < side.value * plain
    assert ends[0] <= solve_at(proof.problem.pmdp, theta, STEPS).middle <= ends[1]


def test_cuts_that_reach_into_the_ball(endless):
    proof, expansion, _ = endless
    A, b = proof.cuts
    frame = expansion.frame
    assert len(over_cuts._chosen(frame, np.zeros((2, A.shape[1])), np.ones(2))) == 0
    chosen = over_cuts._chosen(frame, np.vstack([A[:1], A[:1]]), np.array([b[0] + 1e-3, b[0]]))
    assert chosen.tolist() == [1]
    far = over_cuts.over_cuts(proof.problem, expansion, Side.UPPER, True, A[:1], b[:1] + 99.0)
    assert far is None


def test_where_they_are_looked_for(endless, monkeypatch):
    proof, expansion, _ = endless
    assert over_cuts.can_search(proof.problem, expansion)
    monkeypatch.setattr(over_cuts, "NUMBERS", 10)
    assert over_cuts.over_cuts(proof.problem, expansion, Side.UPPER, True, *proof.cuts) is None
    monkeypatch.setattr(over_cuts, "STATES", 29)
    assert not over_cuts.can_search(proof.problem, expansion)


def test_only_the_last_certificate_of_a_run_looks_for_them(monkeypatch):
    """At log points they would take seconds each."""
    asked, world = [], block_worlds.bridges()
    monkeypatch.setattr(searches, "over_cuts", lambda problem, expansion, side, *rest: asked.append(side))
    env = rpl_envs.make_own(world.pmdp, world.objective, world.theta, max_episode_steps=world.steps)
    agent = RPLAgent(seed=3).learn(env, 60)
    assert 1 <= len(asked) == len(set(asked)) and agent.certificate.samples == agent.session.samples
