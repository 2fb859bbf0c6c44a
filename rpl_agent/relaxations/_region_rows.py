"""Compiled rows over a region, on bare arrays: the fast path of the rectangular relaxation.

A compiled call pays for every array in the tuples it is handed (reference counts), which at some hundred nanoseconds
per row is more than the query itself. `region_row` therefore takes only what it reads, allocates nothing, and becomes
part of the sweep that calls it.
"""

from __future__ import annotations

import numpy as np

from rpl_agent.jit import UNIT_ROUNDOFF, njit
from rpl_agent.regions._support import support_box, support_ellipsoid, walk_table

#: Masses up to this in a computed distribution are taken for rounding.
TRACE = 1e-12


@njit(cache=True, inline="always")
def region_row(
    a, b, values, maximise, upward, successor, expression, upper, constant, weights, mass, tightness,
    use_polytope, table, box_lower, box_upper, use_ellipsoid, center, factor, radius, direction, start,
):  # fmt: skip
    """Bound of the extremum of sum_i p_i v_i over a region, for transitions a..b; the hull is the caller's.

    Computed as low + min over x of sum_i f_i(x) (v_i - low) over the successors that can have probability: terms of
    one sign, exact when all values agree. Rounding adds at most (4 n + 16) u (sum_i mass_i (v_i - low) + span) + 2 u
    (|low| + |result|).

    Parameters
    ----------
    values : (S,) float64
    maximise, upward : bool
        Direction of nature; side of the bound (as in `row_expectation`).
    upper, constant, mass : (F,) float64
        mass = |constant| + |weights| max |x|.
    weights : (F, n) float64
    tightness : float
        Relative to the span of the values: how far the safe bound may be from the exact extremum.
    use_polytope, use_ellipsoid : bool
    table : float64
        Of a `PolytopeData`; empty: the box [box_lower, box_upper].
    center, factor, radius : the ellipsoid
    direction : (n,) float64
        Scratch.
    start : int
        A vertex of the table, best the one where a similar row ended.

    Returns
    -------
    bound : float
    vertex : int
        Where the walk ended. -1: no bound; the walk left the table, or a value is infinite.
    width : float
        How far the bounds from the two sides are apart.
    """
    sign = -1.0 if maximise else 1.0
    n = direction.shape[0]
    low = np.inf
    for t in range(a, b):
        x = sign * values[successor[t]]
        if abs(x) == np.inf:
            return 0.0, -1, 0.0
        if x < low and upper[expression[t]] > 0.0:
            low = x
    for j in range(n):
        direction[j] = 0.0
    offset = 0.0
    size = 0.0
    span = 0.0
    for t in range(a, b):
        f = expression[t]
        d = sign * values[successor[t]] - low
        if d > 0.0 and upper[f] > 0.0:
            offset += constant[f] * d
            size += mass[f] * d
            if d > span:
                span = d
            for j in range(n):
                direction[j] += weights[f, j] * d
    if span == 0.0:
        return sign * low, start, 0.0
    bound = -np.inf
    vertex = start
    if use_polytope:
        if table.shape[0] == 0:
            bound = support_box(box_lower, box_upper, direction)
        else:
            bound, vertex = walk_table(table, direction, start)
            if bound == -np.inf:
                return 0.0, -1, 0.0
    if use_ellipsoid:
        bound = max(bound, support_ellipsoid(center, factor, radius, direction))
    result = low + (offset + bound)
    error = (4.0 * (b - a) + 16.0) * UNIT_ROUNDOFF * (size + span) + 2.0 * UNIT_ROUNDOFF * (abs(low) + abs(result))
    if upward != maximise:  # bounding max v from above is bounding min -v from below
        result = result + tightness * span + error
    else:
        result = result - error
    return sign * min(max(result, low), low + span), vertex, tightness * span + 2.0 * error


@njit(cache=True, borrows=True)
def region_strategies(
    values, maximise, row_ptr, successor, expression, played, upper, constant, weights, use_polytope, table, point,
    box_lower, box_upper, memory, use_ellipsoid, center, factor, radius, scratch, totals, p,
):  # fmt: skip
    """Nature's best distributions over a region, all rows in one loop: calls per row would cost three times as much.

    No rounding margins. Other parameters as in `region_row`.

    Parameters
    ----------
    played : (R,) float64
        Rows with 0 are left alone.
    point : (V, n) float64
        The table's vertices.
    memory : (k,) integer
        Where the walks of row % k ended, -1 before the first.
    scratch : float64
        A `row_set.workspace`.
    totals : (R,) float64
        Mean above the smallest value under the hull's distribution; rows where it is not finite are left alone.
    p : (T,) float64
        The hull's distributions on entry; rows of which the region tells more are overwritten.
    """
    n = weights.shape[1]
    direction, scaled = scratch[2, :n], scratch[3, :n]
    sign = -1.0 if maximise else 1.0
    last = np.int32(0)
    for row in range(row_ptr.shape[0] - 1):
        a, b = row_ptr[row], row_ptr[row + 1]
        if b - a < 3 or played[row] == 0.0 or not totals[row] < np.inf:  # of two, f and 1 - f, the hull tells all
            continue
        low = np.inf
        for t in range(a, b):
            x = sign * values[successor[t]]
            if x < low and upper[expression[t]] > 0.0:
                low = x
        for j in range(n):
            direction[j] = 0.0
        offset = 0.0
        for t in range(a, b):
            f = expression[t]
            d = sign * values[successor[t]] - low
            if d > 0.0 and upper[f] > 0.0:
                offset += constant[f] * d
                for j in range(n):
                    direction[j] += weights[f, j] * d
        total = totals[row]
        found = 0
        vertex = 0
        if use_polytope:
            if table.shape[0] == 0:
                bound = support_box(box_lower, box_upper, direction)
            else:
                slot = row % memory.shape[0]
                bound, vertex = walk_table(table, direction, memory[slot] if memory[slot] >= 0 else last)
                memory[slot] = last = vertex
            if offset + bound > total:
                total = offset + bound
                found = 1
        norm = 0.0
        if use_ellipsoid:
            middle = 0.0
            for k in range(n):
                entry = 0.0
                for j in range(n):
                    entry += factor[j, k] * direction[j]
                scaled[k] = entry
                norm += entry * entry
                middle += center[k] * direction[k]
            norm = np.sqrt(norm)
            if offset + middle - radius * norm > total:
                found = 2
        if found == 0:
            continue
        step = radius / norm if norm > 0.0 else 0.0
        for j in range(n):  # from here on the point where the extremum is
            if found == 2:
                moved = 0.0
                for k in range(n):
                    moved += factor[j, k] * scaled[k]
                direction[j] = center[j] - step * moved
            elif table.shape[0] == 0:
                direction[j] = box_lower[j] if direction[j] >= 0.0 else box_upper[j]
            else:
                direction[j] = point[vertex, j]
        whole = 0.0
        for t in range(a, b):
            f = expression[t]
            mass = constant[f]
            for j in range(n):
                mass += weights[f, j] * direction[j]
            p[t] = mass if mass > TRACE else 0.0  # cleaned of rounding
            whole += p[t]
        for t in range(a, b):
            p[t] /= whole
