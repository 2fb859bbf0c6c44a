"""Bounds by products of cuts: against values inside the region, another solver, and the polynomials themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy

from benchmarks import improvement_worlds as worlds
from rpl_agent.core.coupled.affine import BoxFrame
from rpl_agent.core.coupled.products import gain, interior
from rpl_agent.core.coupled.products.gain import least_sum, rooms_of
from rpl_agent.core.coupled.products.rooms import Rooms
from rpl_agent.core.highs import minimiser
from rpl_agent.core.model import Policy
from rpl_agent.core.solver import solve_at
from tests.reference.river import GAIN, compared, river_log, small_river


def value(pmdp, x, policy, objective=GAIN):
    """At reduced coordinates x."""
    weight, chance = policy.shares(pmdp), (pmdp.table.constant + pmdp.table.reduction.weights @ x)[pmdp.expression]
    states, row = pmdp.row_state[pmdp.transition_row], pmdp.transition_row
    P = np.zeros((pmdp.num_states, pmdp.num_states))
    np.add.at(P, (states, pmdp.successor), objective.discount * weight[row] * chance)
    reward = np.bincount(pmdp.row_state, weight * pmdp.row_reward("gain"), pmdp.num_states)
    return float(np.linalg.solve(np.eye(len(P)) - P, reward)[pmdp.initial_state])


@pytest.fixture(scope="module")
def river():
    pmdp, theta = small_river()
    return pmdp, theta, solve_at(pmdp, theta, GAIN).policy, worlds.halfway(pmdp, theta, GAIN)


def corner(rooms, slope):
    """(r,) the y with the least slope·y."""
    return minimiser(slope, -rooms.forms[:, 1:], rooms.forms[:, 0])


def points_of(rooms, seed, count):
    """x of corners of the region, and of mixtures."""
    rng = np.random.default_rng(seed)
    corners = np.array([corner(rooms, rng.normal(size=rooms.frame.dimension)) for _ in range(count)])
    share = rng.dirichlet(np.full(count, 0.05), count)
    return rooms.frame.center + rooms.frame.half * np.vstack([corners, share @ corners])


def lowest(rooms, height, seed):
    """The least of a function that a search over corners finds, in the direction of its gradient."""
    x, least = points_of(rooms, seed, 1)[0], np.inf
    while height(x) < least - 1e-9:
        least, steps = height(x), 1e-6 * np.eye(len(x))
        slope = np.array([height(x + step) - least for step in steps]) * rooms.frame.half
        x = min((rooms.frame.center + rooms.frame.half * corner(rooms, slope), x), key=height)
    return least


@pytest.mark.parametrize("episodes", [0, 30, 300, 30_000])
def test_differences_hold_at_every_parameter(river, episodes):
    pmdp, theta, best, used = river
    comparison = compared(pmdp, river_log(pmdp, theta, used, episodes), GAIN, best, used)
    rooms = rooms_of(comparison.problem, comparison.region)
    found = [least_sum(comparison.problem, rooms, [(s, best), (-s, used)]).bound for s in (1.0, -1.0)]
    heights = [value(pmdp, x, best) - value(pmdp, x, used) for x in points_of(rooms, episodes, 30)]
    least = min(*heights, *(lowest(rooms, lambda x: value(pmdp, x, best) - value(pmdp, x, used), k) for k in range(3)))
    assert -np.inf < found[0] <= least and max(heights) <= -found[1] < np.inf
    if episodes == 300:  # of use: near to what is attained
        assert found[0] > least - 0.2
    if episodes == 30_000:
        assert found[0] > least - 0.01


def test_a_value_alone(river):
    pmdp, theta, _, used = river
    comparison = compared(pmdp, river_log(pmdp, theta, used, 100), GAIN, used, used)
    rooms = rooms_of(comparison.problem, comparison.region)
    ends = [sign * least_sum(comparison.problem, rooms, [(sign, used)]).bound for sign in (1.0, -1.0)]
    heights = [value(pmdp, x, used) for x in points_of(rooms, 1, 30)]
    least, most = (sign * lowest(rooms, lambda x, s=sign: s * value(pmdp, x, used), 2) for sign in (1.0, -1.0))
    assert least - 0.5 < ends[0] <= min(least, *heights) and max(most, *heights) <= ends[1] < most + 0.5


@pytest.mark.parametrize("seed", range(3, 6))
def test_single_distributions(seed):
    """Untied: each row is a block of intervals; a policy may play rows of several in a state."""
    pmdp, theta = worlds.random_mdp(seed, states=4, successors=3)
    one = Policy.deterministic(pmdp.state_ptr[:-1])
    other = Policy.deterministic(pmdp.state_ptr[1:] - 1)
    goal = replace(GAIN, discount=0.95)
    counts = worlds.logged(pmdp, theta, goal, Policy.uniform(pmdp), 200, 3, 100)
    comparison = compared(pmdp, counts, goal, one, other)
    rooms = rooms_of(comparison.problem, comparison.region)
    drawn = Policy.randomised((one.as_weights(pmdp) + other.as_weights(pmdp)) / 2)
    for pair in ((one, other), (one, drawn)):
        below = least_sum(comparison.problem, rooms, list(zip((1.0, -1.0), pair))).bound

        def height(x, pair=pair):
            return value(pmdp, x, pair[0], goal) - value(pmdp, x, pair[1], goal)

        least = min(height(x) for x in points_of(rooms, seed, 20))
        assert least - 0.2 < below <= min(least, lowest(rooms, height, seed))


def test_rows_are_products_of_cuts(river):
    """q(y) − Σ μ c(y) c'(y) is not negative anywhere in the box, and small: at random y."""
    pmdp, theta, best, used = river
    comparison = compared(pmdp, river_log(pmdp, theta, used, 300), GAIN, best, used)
    rooms, problem = rooms_of(comparison.problem, comparison.region), comparison.problem
    found = least_sum(problem, rooms, [(1.0, best), (-1.0, used)])
    rng = np.random.default_rng(1)
    weights, row = pmdp.table.reduction.weights, pmdp.transition_row
    for policy, sign, U, rows in zip((best, used), (1.0, -1.0), found.functions, found.rows):
        share = policy.shares(pmdp)
        said = np.nan_to_num(U)
        for y in rng.uniform(-1.0, 1.0, (20, rooms.frame.dimension)):
            c = np.append(rooms.forms @ np.append(1.0, y), 1.0)
            chance = (pmdp.table.constant + weights @ (rooms.frame.center + rooms.frame.half * y))[pmdp.expression]
            after = sign * pmdp.row_reward("gain") + GAIN.discount * np.bincount(
                row, chance * (said @ np.append(1.0, y))[pmdp.successor], pmdp.num_rows
            )
            q = np.bincount(pmdp.row_state, share * after, pmdp.num_states) - said @ np.append(1.0, y)
            for one in rows:
                left = q[one.state] - float(one.multipliers @ (c[one.pairs[0]] * c[one.pairs[1]]))
                assert (one.multipliers >= 0.0).all() and -1e-9 <= left < 0.02


def test_the_optimum_is_that_of_another_solver(river, monkeypatch):
    pmdp, theta, best, used = river
    comparison = compared(pmdp, river_log(pmdp, theta, used, 300), GAIN, best, used)
    rooms, seen = rooms_of(comparison.problem, comparison.region), []

    class Spied(interior.InteriorPoint):
        def best(self, U, moments, beyond):
            found = super().best(U, moments, beyond)
            seen.append((self, U.copy(), float(found[0][-1, 0])))
            return found

    monkeypatch.setattr(gain, "InteriorPoint", Spied)
    bound = least_sum(comparison.problem, rooms, [(1.0, best), (-1.0, used)]).bound
    program, U, top = seen[0]
    places, blocks, ends = np.flatnonzero(program.free), [], []
    for row in program.rows:
        known, derivative = row.left(np.where(program.free, 0.0, U), np.zeros(len(row.products.sizes))), []
        for place in places:
            unit = np.zeros(U.size)
            unit[place] = 1.0
            derivative.append(row.products.summed(row.ahead @ unit.reshape(U.shape)[row.span]))
        blocks.append([row.products.matrix, -np.array(derivative).T])
        ends.append(known)
    matrix = scipy.sparse.hstack(
        [scipy.sparse.block_diag([left for left, _ in blocks]), np.vstack([right for _, right in blocks])]
    )
    cost = np.zeros(matrix.shape[1])
    cost[-1] = -1.0  # T is the last free entry
    limits = [(0.0, None)] * (len(cost) - len(places)) + [(None, None)] * len(places)
    other = scipy.optimize.linprog(cost, A_eq=matrix, b_eq=np.concatenate(ends), bounds=limits)
    assert abs(-other.fun - top) < 1e-3 and -other.fun - 0.01 < bound <= -other.fun


def test_a_search_starts_where_two_certificates_and_boxes_fail(river):
    pmdp, theta, best, used = river
    comparison = compared(pmdp, river_log(pmdp, theta, used, 300), GAIN, best, used)
    plain, found = comparison.bounds(1, 1), comparison.bounds(1, 1, 0.0)
    assert plain.lower < 0.0 < found.lower < found.center < comparison.upper() < plain.upper
    assert comparison.bounds(1, 1, found.lower + 0.01).lower == plain.lower  # and what cannot exceed it ends early
    assert abs(plain.hope - found.lower) < 0.5


def test_what_is_not_covered(river, monkeypatch):
    pmdp, theta, best, used = river
    comparison = compared(pmdp, river_log(pmdp, theta, used, 30), GAIN, best, used)
    problem, region, pair = comparison.problem, comparison.region, [(1.0, best), (-1.0, used)]
    limited = compared(pmdp, river_log(pmdp, theta, used, 30), replace(GAIN, horizon=5), best, used)
    assert (
        rooms_of(limited.problem, region) is None and limited.bounds(1, 1).hope == -np.inf < np.inf == limited.upper()
    )
    rooms = rooms_of(problem, region)
    for name in ("MOST_PRODUCTS", "MOST_UNKNOWN", "MOST_NUMBERS"):
        with monkeypatch.context() as patch:
            patch.setattr(gain, name, 10)
            assert least_sum(problem, rooms, pair) is None
    monkeypatch.setattr(interior, "STEPS", 3)
    assert least_sum(problem, rooms, pair) is None


def test_rooms_are_facets():
    """A square with a corner cut off, and an interval: implied cuts are left out."""
    frame = BoxFrame(np.zeros(3), np.array([1.0, 2.0, 1.0]), None, True)
    A = np.array([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [1, 1, 0], [1, 1, 0], [0, 0, 1], [0, 0, -1]])
    b = np.array([1.0, 1, 2, 2, 2.5, 3.0, 1, 1])
    blocks = [np.array([0, 1]), np.array([2])]
    rooms = Rooms.of(frame, blocks, A, b)
    assert rooms.number.tolist() == [0, 1, 2, 3, 4, 6, 7] and rooms.owner.tolist() == [0] * 5 + [1] * 2
    assert np.allclose(rooms.forms[:, 1:], -A[rooms.number] * frame.half) and np.allclose(
        rooms.forms[:, 0], b[rooms.number]
    )
    assert (rooms.forms @ rooms.middle > 0.0).all()
    across = np.vstack([A, [0.0, 1.0, 1.0]])
    assert Rooms.of(frame, blocks, across, np.append(b, 9.0)) is None  # a cut of two blocks
    assert Rooms.of(frame, blocks, A, np.where(np.arange(8) == 7, -1.0, b)) is None  # a block without room
