"""The least difference of two values over a product of small polytopes, by functions that are judged at vertices.

Any gradients g give a bound (`rows`). With those of the two values at the centre, rows bend; without gradients nature
may choose another parameter in every state. The bound is concave in g, so the best lies between: first in the shares of
the gradients that each block keeps (a model of cuts, in a box around the best shares that shrinks where it fails), then
in all of g, by L-BFGS.
"""

from __future__ import annotations

import numpy as np
import scipy

from rpl_agent.core.coupled.vertices.rows import RowsAtVertices, rows_of_pair
from rpl_agent.core.model import Policy
from rpl_agent.core.regions.lp import LinearProgram
from rpl_agent.core.regions.product import Product
from rpl_agent.core.solver.problem import Problem

Pair = tuple[RowsAtVertices, RowsAtVertices]

#: Shares of the gradients at the centre that are tried without a search.
SHARES = (1.0, 0.7, 0.0)
#: Rounds of the search for shares, the first size of its box, and the share of an expected gain that counts as one.
ROUNDS, BOX, GAINED = 40, 0.5, 0.1
#: Steps of the search for gradients; the least scale of one of them, as a share of the largest.
STEPS, LEAST = 25, 1e-3
#: Bound on values in a linear program, in units of the first.
FAR = 1e3


def least_difference(problem: Problem, region: Product, one: Policy, other: Policy, search_from: float) -> float:
    """A lower bound on V^one − V^other in the initial state over the region; −inf where the argument does not apply.

    search_from : look for better gradients if the bound without a search is no less
    """
    pair = rows_of_pair(problem, region, one, other)
    if pair is None:
        return -np.inf
    tried = [[share * rows.gradient for rows in pair] for share in SHARES]
    found = [_bound(pair, region, gradients) for gradients in tried]
    if max(found) >= search_from:
        gradients = _in_shares(pair, tried[int(np.argmax(found[:-1]))])  # not from 0, which has no multiples
        found += [_bound(pair, region, better) for better in (gradients, _in_all(pair, gradients))]
    return float(np.nextafter(max(found), -np.inf))


def _bound(pair: Pair, region: Product, gradients: list[np.ndarray]) -> float:
    """The least difference by functions of these gradients, with rounding errors."""
    start = pair[0].problem.pmdp.initial_state
    value = sum(float(rows.least(g)[start]) for rows, g in zip(pair, gradients))
    slope = gradients[0][start] + gradients[1][start]
    return pair[0].frame.minimum(region, value, slope) if slope.any() else value


def _slopes(pair: Pair, gradients: list[np.ndarray]) -> tuple[float, list[np.ndarray]]:
    """(nearly `_bound`, its derivatives by both gradients)."""
    start, found = pair[0].problem.pmdp.initial_state, [rows.slopes(g) for rows, g in zip(pair, gradients)]
    value, slope = sum(v for v, _ in found), gradients[0][start] + gradients[1][start]
    for block in pair[0].blocks:
        heights = block.points @ slope[block.columns]
        k = int(heights.argmin())
        value += float(heights[k])
        for _, derivative in found:
            derivative[start, block.columns] += block.points[k]
    return value, [derivative for _, derivative in found]


def _in_shares(pair: Pair, gradients: list[np.ndarray]) -> list[np.ndarray]:
    """The best multiples, one of each block's coordinates in each gradient, that are found from given gradients."""
    blocks = pair[0].blocks
    owner = np.empty(pair[0].frame.dimension, dtype=int)
    for k, block in enumerate(blocks):
        owner[block.columns] = k

    def at(x: np.ndarray) -> tuple[float, np.ndarray]:
        given = [g * part[owner] for g, part in zip(gradients, x.reshape(2, -1))]
        value, slopes = _slopes(pair, given)
        summed = [np.bincount(owner, (slope * g).sum(axis=0), len(blocks)) for slope, g in zip(slopes, gradients)]
        return value, np.concatenate(summed)

    best, size = np.ones(2 * len(blocks)), BOX
    value, slope = at(best)
    rows, ends, far = [np.append(-slope, 1.0)], [value - slope @ best], FAR * (1.0 + abs(value))
    for _ in range(ROUNDS):
        low, high = np.append(best - size, -far), np.append(best + size, far)
        x = LinearProgram(np.array(rows), np.array(ends), low, high).optimum(np.append(np.zeros(len(best)), -1.0))[0]
        reached, slope = at(x[:-1])
        rows.append(np.append(-slope, 1.0))
        ends.append(reached - slope @ x[:-1])
        expected = float(x[-1]) - value
        if reached > value + GAINED * expected:
            best, value = x[:-1], reached
        else:
            size /= 2.0
        if not expected > 1e-3 * (1.0 + abs(value)):
            break
    return [g * part[owner] for g, part in zip(gradients, best.reshape(2, -1))]


def _in_all(pair: Pair, gradients: list[np.ndarray]) -> list[np.ndarray]:
    """The best gradients that some steps find from given ones."""
    size = np.stack([np.abs(rows.gradient) for rows in pair])
    scale, shape, best = np.maximum(size, LEAST * size.max()), size.shape, (-np.inf, np.stack(gradients))

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best
        given = x.reshape(shape) * scale
        value, slopes = _slopes(pair, list(given))
        if value > best[0]:
            best = value, given
        return -value, -(np.stack(slopes) * scale).ravel()

    first = (np.stack(gradients) / scale).ravel()
    scipy.optimize.minimize(loss, first, jac=True, method="L-BFGS-B", options={"maxiter": STEPS, "maxcor": STEPS})
    return list(best[1])
