"""Compiled one-row bounds: the only code that knows what nature may do in a row.

``row_expectation`` bounds the extremum over nature's set of sum_i p_i v_i for one row, from the side that is asked
for: ``upward`` False gives a number <= the exact extremum, True a number >= it, rounding included. Everything is
computed as ``min v + sum_i p_i (v_i - min v)``: terms of one sign, exact when all values agree, and the result is
clipped to [min v, max v], which is a true bound because rows are distributions. Maximisation is minimisation of -v.
"""

from __future__ import annotations

import numpy as np

from rpl_agent.jit import UNIT_ROUNDOFF, njit
from rpl_agent.regions._support import support_ellipsoid, support_polytope
from rpl_agent.relaxations._interval_rows import (
    _interval_row,
    interval_row,
    pair_bound,
    short_row,
    triple_bound,
    without_infinity,
)  # fmt: skip
from rpl_agent.relaxations._region_rows import region_row
from rpl_agent.relaxations.row_set import BEST, ELLIPSOID, INTERVAL, POINT, POLYTOPE


@njit(cache=True)
def scratch_size(row_ptr):
    """Length of the scratch columns that the row kernels need: the longest row."""
    longest = 1
    for row in range(row_ptr.shape[0] - 1):
        longest = max(longest, row_ptr[row + 1] - row_ptr[row])
    return longest


@njit(cache=True)
def _gradient(a, b, values, sign, low, successor, expression, cs, direction):
    """The row as a linear function of x: direction @ x + constant; returns (constant, size of rounding terms)."""
    r = direction.shape[0]
    constant = 0.0
    size = 0.0
    for j in range(r):
        direction[j] = 0.0
    for t in range(a, b):
        f = expression[t]
        if cs.upper[f] == 0.0:
            continue
        d = sign * values[successor[t]] - low
        constant += cs.constant[f] * d
        size += abs(cs.constant[f]) * d
        for j in range(r):
            direction[j] += cs.weights[f, j] * d
    return constant, size


@njit(cache=True)
def _region_row(a, b, values, sign, upward, successor, expression, cs, scratch):
    """Bound of the minimum over a region of x; the interval hull is always among the candidates."""
    n = b - a
    low = np.inf
    high = -np.inf
    for t in range(a, b):
        if cs.upper[expression[t]] > 0.0:
            x = sign * values[successor[t]]
            low = min(low, x)
            high = max(high, x)
    span = high - low
    if span == 0.0:
        return low
    hull = _interval_row(a, b, values, sign, False, successor, expression, cs.lower, cs.upper, scratch)
    best = hull
    if n > 2:  # with two successors f and 1 - f the region is the interval
        direction = np.empty(cs.weights.shape[1])
        constant, size = _gradient(a, b, values, sign, low, successor, expression, cs, direction)
        # Rounding of the direction itself: each entry is a sum of n products, |x| is bounded through the rows.
        for j in range(direction.shape[0]):
            reach = 0.0
            if cs.kind != ELLIPSOID:
                reach = max(abs(cs.polytope.lower[j]), abs(cs.polytope.upper[j]))
            if cs.kind != POLYTOPE:
                extent = 0.0
                for k in range(direction.shape[0]):
                    extent += cs.factor[j, k] * cs.factor[j, k]
                other = abs(cs.center[j]) + cs.radius * np.sqrt(extent)
                reach = max(reach, other)
            weight = 0.0
            for t in range(a, b):
                weight = max(weight, abs(cs.weights[expression[t], j]))
            size += n * span * weight * reach
        error = (4.0 * n + 16.0) * UNIT_ROUNDOFF * (size + span) + 2.0 * UNIT_ROUNDOFF * abs(low)
        if cs.kind == POLYTOPE or cs.kind == BEST:
            bound, _ = support_polytope(cs.polytope, direction, 0)
            best = max(best, low + (constant + bound) - error)
        if cs.kind == ELLIPSOID or cs.kind == BEST:
            bound = support_ellipsoid(cs.center, cs.factor, cs.radius, direction)
            best = max(best, low + (constant + bound) - error)
    if upward:
        best += cs.tightness * span + (8.0 * n + 32.0) * UNIT_ROUNDOFF * (span + abs(best))
        return min(best, high)
    return min(best, high)


@njit(cache=True)
def row_expectation(row, values, maximise, upward, row_ptr, successor, expression, cs, scratch):
    """A bound of the extremum over nature's set of sum_i p_i values[successor_i].

    Parameters
    ----------
    row : int
    values : (S,) float64
        May be +inf. Nature minimising: inf if the hull forces mass there, else the minimum over distributions that
        avoid it (bounded with the inf replaced by the largest finite value: exact for intervals, a lower bound for
        regions). Nature maximising: inf if mass may go there.
    maximise, upward : bool
        Direction of nature; side of the bound. ``upward == maximise`` is the outward bound.
    row_ptr : (R+1,) int64
    successor, expression : (T,) integer
    cs : CompiledSet
    scratch : (2 or more, longest row) float64
    """
    a, b = row_ptr[row], row_ptr[row + 1]
    if cs.kind <= INTERVAL or b - a <= 2:
        return interval_row(
            a, b, values, maximise, upward, successor, expression, cs.lower, cs.upper, cs.kind == POINT, scratch
        )
    sign = -1.0 if maximise else 1.0
    up = upward != maximise
    for t in range(a, b):
        if values[successor[t]] == np.inf:
            infinite, capped = without_infinity(
                a, b, values, maximise, upward, successor, expression, cs.lower, cs.upper, False
            )
            if infinite:
                return np.inf
            index = np.arange(b - a)
            return sign * _region_row(0, b - a, capped, sign, up, index, expression[a:b], cs, scratch)
    return sign * _region_row(a, b, values, sign, up, successor, expression, cs, scratch)


@njit(cache=True, nogil=True, borrows=True)
def row_range(first, last, values, maximise, upward, row_ptr, successor, expression, cs, scratch, rows, out):
    """out[i] = row_expectation(rows[i]) for first <= i < last; row i itself when ``rows`` is empty.

    Parameters
    ----------
    scratch : float64
        A `row_set.workspace`.
    rows : (k,) int64
    out : (k,) or (R,) float64
    """
    everything = rows.shape[0] == 0
    kind, lower, upper = cs.kind, cs.lower, cs.upper
    constant, weights, mass, tightness = cs.constant, cs.weights, cs.mass, cs.tightness
    table, box_lower, box_upper = cs.polytope.table, cs.polytope.lower, cs.polytope.upper
    center, factor, radius = cs.center, cs.factor, cs.radius
    memory = cs.polytope.memory
    before = np.int32(0)  # where the walk of the row before ended
    direction = scratch[2, : weights.shape[1]]
    for i in range(first, last):
        row = i if everything else rows[i]
        a, b = row_ptr[row], row_ptr[row + 1]
        if b - a == 2:
            x, y = values[successor[a]], values[successor[a + 1]]
            if x < np.inf and y < np.inf:
                f, g = expression[a], expression[a + 1]
                out[i] = pair_bound(x, y, lower[f], upper[f], lower[g], upper[g], maximise, upward)
                continue
        elif b - a == 3 and kind == INTERVAL:
            f, g, h = expression[a], expression[a + 1], expression[a + 2]
            out[i] = triple_bound(
                values[successor[a]], values[successor[a + 1]], values[successor[a + 2]], lower[f], upper[f], lower[g],
                upper[g], lower[h], upper[h], maximise, upward,
            )  # fmt: skip
            if out[i] == out[i]:
                continue
        if b - a == 1:
            out[i] = values[successor[a]]
        elif kind <= INTERVAL:
            out[i] = interval_row(
                a, b, values, maximise, upward, successor, expression, lower, upper, kind == POINT, scratch
            )
        else:
            slot = row % memory.shape[0]
            bound, vertex, _ = region_row(
                a, b, values, maximise, upward, successor, expression, upper, constant, weights, mass, tightness,
                kind != ELLIPSOID, table, box_lower, box_upper, kind != POLYTOPE, center, factor, radius, direction,
                memory[slot] if memory[slot] >= 0 else before,
            )  # fmt: skip
            out[i] = bound
            memory[slot] = before = max(vertex, 0)
            if vertex < 0:
                out[i] = row_expectation(row, values, maximise, upward, row_ptr, successor, expression, cs, scratch)
            elif kind != POLYTOPE:
                hull = short_row(a, b, values, maximise, upward, successor, expression, lower, upper, scratch)
                out[i] = min(out[i], hull) if maximise else max(out[i], hull)
