"""The joint set of models in blocks: the checker's bound against quadrature, the search's against the checker's."""

from __future__ import annotations

import copy
import math
from fractions import Fraction

import numpy as np
import pytest

from rpl_agent import Config, Counts, certify
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.regions.sliced import Sliced
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.likelihood.block_set import block_set
from rpl_agent.guarantee.likelihood.checked_model import joint_coordinates, model_content
from rpl_agent.guarantee.likelihood.region import learned, likelihood_region
from rpl_agent.guarantee.proof import prove
from rpl_agent.guarantee.proof.content import data_content
from tests.likelihood import coverage
from tests.reference.block_models import DISCOUNTED, block_model

pytestmark = pytest.mark.short_runs

ALPHA = 0.01


def _data(seed: int, unknowns: int = 8, episodes: int = 60, states: int = 8, actions: int = 2):
    pmdp, theta = block_model(seed, unknowns, states, actions)
    counts = uniform_counts(pmdp, DISCOUNTED, theta, episodes, 20, seed)
    model = checker.Model(model_content(pmdp, DISCOUNTED, graph=False))
    return pmdp, theta, counts, checker.Data(model, data_content(counts, graph=False))


def _log_integral(line: checker.Coordinates, block: list[int], K: np.ndarray, x0: np.ndarray, L: np.ndarray) -> float:
    """ln ∫ Π f^K dN(x0, (LL')⁻¹) over the points of a block where all f > 0, by a fine grid."""
    own = L[np.ix_(block, block)]
    spread = np.linalg.inv(own.T)
    size = {1: 20001, 2: 401, 3: 91}[len(block)]
    axis = np.linspace(-9.0, 9.0, size)
    z = np.stack(np.meshgrid(*[axis] * len(block), indexing="ij"), axis=-1).reshape(-1, len(block))
    points = np.tile(x0, (len(z), 1))
    points[:, block] += z @ spread.T
    terms = np.array(line.floats)
    mine = np.abs(terms[:, 1:][:, block]).sum(axis=1) > 0
    f = terms[mine, 0] + points @ terms[mine, 1:].T
    density = (
        -0.5 * (z**2).sum(axis=1) - len(block) / 2 * math.log(2 * math.pi) + len(block) * math.log(18 / (size - 1))
    )
    inside = (f > 0.0).all(axis=1)
    logs = np.log(f[inside]) @ K[mine] + density[inside]
    return float(logs.max() + math.log(np.exp(logs - logs.max()).sum()))


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(k, marks=pytest.mark.nightly) for k in range(3, 6))])
def test_the_bound_is_below_the_integral_and_close(seed):
    """The theorem's inequality, for every block at once; any ellipsoids are valid, those of the search nearly best."""
    pmdp, _, counts, data = _data(seed)
    found, line = block_set(joint_coordinates(pmdp), counts, ALPHA), data.model.coordinates
    assert line is not None and line.is_product
    exact = checker.Likelihood(line, data, Fraction(ALPHA), found.parts)
    mark = found.parts["mark"]
    weight, _, before, _ = data.marks[mark]
    x0 = data.fits(line)[mark]
    L = np.tril(line.spread(before, x0))  # the rest of it is no part of it
    K = np.array(exact.K, float)[line.free]
    integral = sum(_log_integral(line, block, K, np.array(x0), L) for block in line.blocks)
    true = math.log(1 / ALPHA) - math.log(float(weight)) - integral
    assert true <= float(exact.bound) <= true + 0.5 * len(line.blocks) + 0.5
    for factor in (0.3, 0.8):
        changed = copy.deepcopy(found.parts)
        changed["factors"] = [[[factor * y for y in row] for row in T] for T in changed["factors"]]
        other = checker.Likelihood(line, data, Fraction(ALPHA), changed)
        assert true <= float(other.bound)


@pytest.mark.parametrize("seed", range(4))
def test_the_search_is_outside_of_the_checker(seed):
    pmdp, _, counts, data = _data(seed, unknowns=12, episodes=300)
    found, line = block_set(joint_coordinates(pmdp), counts, ALPHA), data.model.coordinates
    exact = checker.Likelihood(line, data, Fraction(ALPHA), found.parts)
    assert float(exact.bound) <= found.bound <= float(exact.bound) + 1e-6
    ball = found.ball()
    exact.check_ball(checker.Ball(line, {"center": ball.center.tolist(), "factor": ball.factor.tolist()}), [])
    with pytest.raises(checker.Refused, match="does not enclose"):
        small = {"center": ball.center.tolist(), "factor": (0.97 * ball.factor).tolist()}
        exact.check_ball(checker.Ball(line, small), [])


FORGED = {
    "no window of the likelihood begins there": lambda part: part | {"mark": 99},
    "is not positive on an ellipsoid": lambda part: (
        part | {"factors": [[[40.0 * y for y in r] for r in T] for T in part["factors"]]}
    ),
    "an ellipsoid of a wrong size": lambda part: (
        part | {"factors": [[[*row, 0.0] for row in T] for T in part["factors"]]}
    ),
    "not positive": lambda part: part | {"factors": [[[-y for y in row] for row in T] for T in part["factors"]]},
}


@pytest.mark.parametrize("reason", FORGED)
def test_forged_ellipsoids_are_refused(reason):
    pmdp, _, counts, data = _data(1)
    line = data.model.coordinates
    part = FORGED[reason](block_set(joint_coordinates(pmdp), counts, ALPHA).parts)
    with pytest.raises(checker.Refused, match=reason):
        checker.Likelihood(line, data, Fraction(ALPHA), part)


def test_blocks_that_expressions_do_not_keep_to_are_refused():
    """Blocks are the model's; one that cuts a die in two would make the product of ellipsoids no set of its own."""
    pmdp, _, counts, data = _data(1)
    line, part = data.model.coordinates, block_set(joint_coordinates(pmdp), counts, ALPHA).parts
    k = next(k for k, block in enumerate(line.blocks) if len(block) > 1)
    cut = copy.copy(line)
    cut.blocks = [*line.blocks[:k], line.blocks[k][:1], line.blocks[k][1:], *line.blocks[k + 1 :]]
    T = part["factors"][k]
    factors = [*part["factors"][:k], T[:1], [row[1:] for row in T[1:]], *part["factors"][k + 1 :]]
    with pytest.raises(checker.Refused, match="several blocks"):
        checker.Likelihood(cut, data, Fraction(ALPHA), part | {"factors": factors})


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.nightly) for k in (1, 2))])
def test_certificates_are_tighter_than_intervals_and_proved(seed):
    """Bets across blocks: much narrower, true, and proved to the number that was computed."""
    pmdp, theta = block_model(seed, 9, 10, 2)
    counts = uniform_counts(pmdp, DISCOUNTED, theta, 2_000, 20, seed)
    found = certify(pmdp, counts, DISCOUNTED, Config(delta=0.01))
    plain = certify(pmdp, counts, DISCOUNTED, Config(delta=0.01, bets=False))
    best = solve_at(pmdp, theta, DISCOUNTED).middle
    assert found.basis == "bets" and found.lower <= best <= found.upper
    assert found.gap < 0.7 * plain.gap
    proof = prove(pmdp, counts, found)
    checker.check(proof)
    assert proof["claim"]["upper"] - proof["claim"]["lower"] <= 1.05 * found.gap
    moved = copy.deepcopy(proof)
    moved["claim"]["upper"] -= 0.02 * found.gap
    with pytest.raises(checker.Refused, match="upper bound"):
        checker.check(moved)


def test_the_region_holds_the_truth_and_all_of_its_parts():
    pmdp, theta, counts, _ = _data(3, unknowns=12, episodes=300)
    region = likelihood_region(pmdp, counts, 0.05, objective=DISCOUNTED)
    assert isinstance(region, Sliced) and region.around is not None and len(region.b)
    assert region.contains(theta[None])[0]
    known = learned(pmdp, counts, 0.05, DISCOUNTED)
    low, _ = region.box()
    assert (low >= known.ball.center - np.linalg.norm(known.ball.factor, axis=1) - 1e-9).all()
    assert not region.contains(known.ball.center[None] + 1.5 * known.ball.factor[:, 0])[0]


@pytest.mark.parametrize("seed, episodes", [(0, 10), (3, 3), (10, 30)])
def test_outcomes_without_an_observation_leave_a_joint_set(seed, episodes):
    """They drove the search to a probability of 0, and with the joint set all bets were lost."""
    pmdp, theta, counts, data = _data(seed, unknowns=12, episodes=episodes)
    line = joint_coordinates(pmdp)
    assert not counts.successes[line.free].all()
    found = block_set(line, counts, ALPHA)
    exact = checker.Likelihood(data.model.coordinates, data, Fraction(ALPHA), found.parts)
    assert float(exact.bound) <= found.bound <= float(exact.bound) + 1e-6
    region = likelihood_region(pmdp, counts, 0.05, objective=DISCOUNTED)
    assert isinstance(region, Sliced) and len(region.b) and region.contains(theta[None])[0]


def test_bets_need_no_joint_set(monkeypatch):
    monkeypatch.setattr("rpl_agent.guarantee.likelihood.region.block_set", lambda *_: None)
    pmdp, theta = block_model(0, 9, 10, 2)
    counts = uniform_counts(pmdp, DISCOUNTED, theta, 2_000, 20, 0)
    found = certify(pmdp, counts, DISCOUNTED, Config(delta=0.01))
    plain = certify(pmdp, counts, DISCOUNTED, Config(delta=0.01, bets=False))
    assert found.basis == "bets" and found.gap < 0.9 * plain.gap
    assert found.lower <= solve_at(pmdp, theta, DISCOUNTED).middle <= found.upper
    proof = prove(pmdp, counts, found)
    checker.check(proof)
    assert proof["claim"]["upper"] - proof["claim"]["lower"] <= 1.05 * found.gap


def test_without_data_or_a_plan_there_are_intervals_only():
    pmdp, _ = block_model(2, 8, 8, 2)
    assert not isinstance(likelihood_region(pmdp, Counts(pmdp), 0.05, objective=DISCOUNTED), Sliced)
    found = certify(pmdp, Counts(pmdp), DISCOUNTED, Config(delta=0.01))
    checker.check(prove(pmdp, Counts(pmdp), found))


def test_more_coordinates_than_the_checker_takes_have_intervals_only():
    assert joint_coordinates(block_model(0, 64, 40, 2)[0]) is not None
    assert joint_coordinates(block_model(0, 65, 40, 2)[0]) is None


def test_one_block_of_more_coordinates_than_particles_fill_has_bets_too():
    pmdp, theta = coverage.die(16, np.random.default_rng(0).dirichlet(np.full(16, 5.0)))
    counts = uniform_counts(pmdp, DISCOUNTED, theta, 400, 20, 3)
    found = certify(pmdp, counts, DISCOUNTED, delta=0.01)
    alone = certify(pmdp, counts, DISCOUNTED, delta=0.01, bets=False)
    best = solve_at(pmdp, theta, DISCOUNTED).middle
    assert joint_coordinates(pmdp).blocks == [list(range(15))]
    assert found.basis == "bets" and found.lower <= best <= found.upper
    assert found.gap < 0.6 * alone.gap
    proof = prove(pmdp, counts, found)
    checker.check(proof)
    assert proof["claim"]["upper"] - proof["claim"]["lower"] <= 1.001 * found.gap


@pytest.mark.parametrize("number", range(4))
def test_whole_runs_hold(number):
    """A few of the runs of `tests.likelihood.coverage`, at an error at which none of them should miss."""
    assert not coverage.run(number, seed=7, delta=0.001)


@pytest.mark.parametrize("number", [0, 3])
def test_sets_hold_the_truth_and_the_count_of_misses_sees_another_one(number):
    """`--set-only`, at an error at which no run should miss."""
    assert not coverage.run(number, 8, 0.001, coverage.set_look)
    pmdp, theta = coverage.drawn_model(number, np.random.default_rng(number))
    counts = uniform_counts(pmdp, DISCOUNTED, theta, 400, 20, number)
    other = theta + np.where(np.arange(len(theta)) == 0, 0.2 if theta[0] < 0.5 else -0.2, 0.0)
    assert [coverage.set_look(pmdp, counts, at, 0.001)[1] for at in (theta, other)] == [False, True]
