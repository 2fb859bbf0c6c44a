"""Differences of values over products of small polytopes: against values at vertices and inside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import improvement_worlds as worlds
from rpl_agent.core.coupled.difference import Comparison
from rpl_agent.core.coupled.vertices import rows as at_vertices
from rpl_agent.core.coupled.vertices.gain import least_difference
from rpl_agent.core.coupled.vertices.rows import rows_of_pair
from rpl_agent.core.model import Objective, ParametricMDP, Policy
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.pipeline import Config, uncertainty_from

GAIN = Objective.discounted("gain", worlds.RIVER_DISCOUNT)


def value(pmdp: ParametricMDP, x: np.ndarray, policy: Policy) -> float:
    """At reduced coordinates x."""
    weight, chance = policy.shares(pmdp), (pmdp.table.constant + pmdp.table.reduction.weights @ x)[pmdp.expression]
    states, row = pmdp.row_state[pmdp.transition_row], pmdp.transition_row
    P = np.zeros((pmdp.num_states, pmdp.num_states))
    np.add.at(P, (states, pmdp.successor), GAIN.discount * weight[row] * chance)
    reward = np.bincount(pmdp.row_state, weight * pmdp.row_reward("gain"), pmdp.num_states)
    return float(np.linalg.solve(np.eye(len(P)) - P, reward)[pmdp.initial_state])


@pytest.fixture(scope="module")
def river():
    pmdp, truth = worlds.wet_chicken()
    return pmdp, np.array([truth[name] for name in pmdp.table.parameters])


def compared(pmdp, theta, episodes, used):
    """(the region of a log, the comparison of the best policy with the one in use)."""
    counts = worlds.logged(pmdp, theta, GAIN, used, episodes, 7, worlds.RIVER_STEPS)
    found = uncertainty_from(pmdp, counts, replace(Config(delta=0.1), bets=False), GAIN)
    best = solve_at(pmdp, theta, GAIN).policy
    return found.region, Comparison(found.relaxation, found.region, GAIN, best, used)


def points_of(region, seed, count):
    """Vertices of all blocks together, and mixtures of them."""
    rng, found = np.random.default_rng(seed), np.empty((count, region.dimension))
    blocks = at_vertices._vertices_of(region)
    for k, vertices in enumerate(blocks):
        columns = region.order[region.block_ptr[k] : region.block_ptr[k + 1]]
        share = rng.dirichlet(np.full(len(vertices.points), 0.02), count)
        share[::2] = np.eye(len(vertices.points))[rng.integers(len(vertices.points), size=len(share[::2]))]
        found[:, columns] = share @ vertices.points
    return found


def lowest(pmdp, region, one, other, seed):
    """The least difference that a search over vertices finds: block after block, the best vertex."""
    blocks, (x,) = at_vertices._vertices_of(region), points_of(region, seed, 1)

    def at(x):
        return value(pmdp, x, one) - value(pmdp, x, other)

    least, before = at(x), np.inf
    while least < before - 1e-9:
        before = least
        for k, vertices in enumerate(blocks):
            columns = region.order[region.block_ptr[k] : region.block_ptr[k + 1]]
            tried = np.tile(x, (len(vertices.points), 1))
            tried[:, columns] = vertices.points
            found = [at(point) for point in tried]
            if min(found) < least:
                least, x = min(found), tried[int(np.argmin(found))]
    return least


@pytest.mark.parametrize("episodes", [0, 50, 500, 5000])
def test_differences_hold_at_every_parameter(river, episodes):
    pmdp, theta = river
    used = worlds.softened(pmdp, solve_at(pmdp, theta, GAIN).policy, 0.3)
    region, comparison = compared(pmdp, theta, episodes, used)
    below = least_difference(comparison.problem, region, comparison.one, used, np.inf)
    above = -least_difference(comparison.problem, region, used, comparison.one, np.inf)
    points = points_of(region, episodes, 60)
    found = [value(pmdp, x, comparison.one) - value(pmdp, x, used) for x in points]
    least = min(*found, lowest(pmdp, region, comparison.one, used, 1))
    assert -np.inf < below <= least and max(found) <= above < np.inf
    if episodes == 500:
        assert below < least_difference(comparison.problem, region, comparison.one, used, -np.inf) <= least
    if episodes == 5000:  # a bound that is of use: close to what is attained
        assert below > least - 0.3


def test_five_hundred_trajectories_of_wet_chicken_suffice(river):
    """Functions over boxes prove −22 there."""
    pmdp, theta = river
    used = worlds.halfway(pmdp, theta, GAIN)
    _, comparison = compared(pmdp, theta, 500, used)
    found = comparison.bounds(1, 2)
    assert 2.0 < found.lower < found.center < found.upper


def test_two_hundred_suffice_if_gradients_are_searched(river):
    pmdp, theta = river
    used = worlds.halfway(pmdp, theta, GAIN)
    _, comparison = compared(pmdp, theta, 200, used)
    assert comparison.bounds(1, 1).lower < 0.0 < comparison.bounds(1, 1, search=True).lower


def test_slopes_are_derivatives(river):
    pmdp, theta = river
    used = worlds.halfway(pmdp, theta, GAIN)
    region, comparison = compared(pmdp, theta, 50, used)
    rng = np.random.default_rng(1)
    for rows in rows_of_pair(comparison.problem, region, comparison.one, used):
        size = np.abs(rows.gradient).max()
        turn, off = rng.normal(scale=size, size=(2, *rows.gradient.shape))
        at = 0.7 * rows.gradient + 0.01 * off  # bounds have kinks where gradients are 0
        ends = [rows.slopes(at + step * turn) for step in (-1e-7, 0.0, 1e-7, 0.01)]
        expected = float((ends[1][1] * turn).sum())
        assert abs((ends[2][0] - ends[0][0]) / 2e-7 - expected) < 1e-4 * (1.0 + abs(expected))
        assert ends[3][0] < ends[1][0] + 0.01 * expected  # concave
        assert abs(ends[1][0] - rows.least(at)[pmdp.initial_state]) < 1e-6


@pytest.mark.parametrize("seed", range(3, 7))
def test_single_distributions(seed):
    """Untied: a policy plays one row per state, and each row is a block of intervals."""
    pmdp, theta = worlds.random_mdp(seed, states=5, successors=3)
    one, other = (Policy.deterministic(np.minimum(pmdp.state_ptr[:-1] + k, pmdp.state_ptr[1:] - 1)) for k in (0, 1))
    counts = worlds.logged(pmdp, theta, GAIN, Policy.uniform(pmdp), 200, 3, 100)
    found = uncertainty_from(pmdp, counts, replace(Config(delta=0.1), bets=False), GAIN)
    comparison = Comparison(found.relaxation, found.region, GAIN, one, other)
    below = least_difference(comparison.problem, found.region, one, other, np.inf)
    least = min(value(pmdp, x, one) - value(pmdp, x, other) for x in points_of(found.region, 5, 100))
    assert -1.0 < below <= min(least, lowest(pmdp, found.region, one, other, seed))
    drawn = Policy.uniform(pmdp)  # rows of several blocks in one state
    assert least_difference(comparison.problem, found.region, one, drawn, np.inf) == -np.inf


def test_what_is_not_covered(river):
    pmdp, theta = river
    used = worlds.softened(pmdp, solve_at(pmdp, theta, GAIN).policy, 0.3)
    region, comparison = compared(pmdp, theta, 50, used)
    limited = Comparison(comparison.problem.relaxation, region, replace(GAIN, horizon=5), used, used)
    assert least_difference(limited.problem, region, used, used, np.inf) == -np.inf
