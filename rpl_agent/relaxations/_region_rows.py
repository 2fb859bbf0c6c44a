"""Compiled rows over a region: one support query each, in the direction of the Bellman gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpl_agent.jit import UNIT_ROUNDOFF, Floats, Ints, int64, njit
from rpl_agent.regions._support import plain_simplex, support_box, support_ellipsoid, walk_table
from rpl_agent.relaxations._interval_rows import hull_bound, interval_bound, largest_finite

if TYPE_CHECKING:
    from rpl_agent.relaxations.row_set import RegionRows, RowArrays, Scratch


#: Gradients below this are enlarged, by a power of two.
SMALL, ENLARGE = 1e-120, 2.0**900
#: Masses up to this in a computed distribution are taken for rounding.
TRACE = 1e-12


@njit(part=True)
def query(
    a: int,
    b: int,
    values: Floats,
    cap: float,
    maximise: bool,
    upward: bool,
    successor: Ints,
    expression: Ints,
    region: RegionRows,
    scratch: Scratch,
    start: int,
) -> tuple[float, int, float]:
    """Bound of the extremum of sum_i p_i min(v_i, cap) over a region, for the three or more transitions a..b.

    Computed as low + min over x of sum_i f_i(x) (v_i - low) over the successors that can have probability: terms of
    one sign, exact when all values agree. Rounding adds at most (4 n + 16) u (sum_i mass_i (v_i - low) + span) + 2 u
    (|low| + |result|). Where the region has an ellipsoid, the interval hull may tell more and is asked too.

    Returns
    -------
    bound, vertex, width :
        As of `row_bound`.
    """
    sign = -1.0 if maximise else 1.0
    lower, upper, constant, weights, mass = region.lower, region.upper, region.constant, region.weights, region.mass
    direction = scratch.direction
    n = direction.shape[0]
    low = np.inf
    for t in range(a, b):
        x = values[successor[t]]
        x = sign * (cap if x > cap else x)
        if x < low and upper[expression[t]] > 0.0:
            low = x
    for j in range(n):
        direction[j] = 0.0
    offset = 0.0
    size = 0.0
    span = 0.0
    high = low
    for t in range(a, b):
        f = expression[t]
        x = values[successor[t]]
        x = sign * (cap if x > cap else x)
        d = x - low
        if d > 0.0 and upper[f] > 0.0:
            offset += constant[f] * d
            size += mass[f] * d
            if x > high:
                high = x
                span = d
            for j in range(n):
                direction[j] += weights[f, j] * d
    if span == 0.0:
        return sign * low, start, 0.0
    support = -np.inf
    gap = 0.0
    vertex = start
    if region.use_polytope:
        if region.table.shape[0] == 0:
            support = support_box(region.box_lower, region.box_upper, direction)
        else:
            support, vertex, gap = walk_table(region.table, direction, start)
            if support == -np.inf:
                support = plain_simplex(
                    region.walk, region.table, region.box_lower, region.box_upper, direction, vertex
                )
    if region.use_ellipsoid:
        support = max(support, support_ellipsoid(region.center, region.factor, region.radius, direction))
    result = low + (offset + support)
    if not abs(result) < np.inf:  # overflow on the way: what is left is that a mean lies between its terms
        return sign * (low if upward == maximise else high), vertex, np.inf
    error = (4.0 * (b - a) + 16.0) * UNIT_ROUNDOFF * (size + span) + 2.0 * UNIT_ROUNDOFF * (abs(low) + abs(result))
    error += 2e-300  # underflow, here and in the support
    gap += region.tightness * span
    if upward != maximise:  # bounding max v from above is bounding min -v from below
        result = result + gap + error
    else:
        result = result - error
    bound = sign * min(max(result, low), high)
    width = gap + 2.0 * error
    if region.use_ellipsoid:
        hull = hull_bound(a, b, values, cap, maximise, upward, successor, expression, lower, upper, scratch)
        if (hull < bound) == maximise and hull != bound:
            bound = hull
            width = np.inf
    return bound, vertex, width


@njit(part=True)
def limit_of_row(
    a: int,
    b: int,
    values: Floats,
    maximise: bool,
    upward: bool,
    successor: Ints,
    expression: Ints,
    lower: Floats,
    upper: Floats,
) -> tuple[bool, float]:
    """(infinite, cap): whether the bound of a row is inf, else the value by which infinite ones may be replaced."""
    most = -np.inf
    for t in range(a, b):
        x = values[successor[t]]
        if x > most and upper[expression[t]] > 0.0:
            most = x
    if most < np.inf:
        return False, np.inf
    infinite, cap = largest_finite(a, b, values, maximise, successor, expression, lower, upper)
    if maximise:  # from below, a possibility of the hull proves nothing: the region may not have it
        return infinite and (upward or cap == -np.inf), cap
    return infinite or upward, cap  # from above, a way around that the hull shows proves nothing


@njit(part=True)
def region_bound(
    a: int,
    b: int,
    values: Floats,
    maximise: bool,
    upward: bool,
    successor: Ints,
    expression: Ints,
    region: RegionRows,
    scratch: Scratch,
    start: int,
) -> tuple[float, int, float]:
    """`row_bound` over a region for transitions a..b. Of two, f and 1 - f, the interval hull tells all."""
    lower, upper = region.lower, region.upper
    vertex = start
    width = 0.0
    if b - a <= 2:
        bound = interval_bound(a, b, values, maximise, upward, successor, expression, lower, upper, scratch)
    else:
        infinite, cap = limit_of_row(a, b, values, maximise, upward, successor, expression, lower, upper)
        if infinite:
            bound = np.inf
        else:
            bound, vertex, width = query(
                a, b, values, cap, maximise, upward, successor, expression, region, scratch, start
            )
    return bound, vertex, width


@njit(part=True)
def _direction_of(
    a: int,
    b: int,
    values: Floats,
    sign: float,
    successor: Ints,
    expression: Ints,
    region: RegionRows,
    direction: Floats,
) -> float:
    """c into ``direction``, and the offset, such that a row's mean of sign · values is low + offset + c.x at x."""
    low = np.inf
    for t in range(a, b):
        x = sign * values[successor[t]]
        if x < low and region.upper[expression[t]] > 0.0:
            low = x
    for j in range(direction.shape[0]):
        direction[j] = 0.0
    offset = 0.0
    for t in range(a, b):
        f = expression[t]
        d = sign * values[successor[t]] - low
        if d > 0.0 and region.upper[f] > 0.0:
            offset += region.constant[f] * d
            for j in range(direction.shape[0]):
                direction[j] += region.weights[f, j] * d
    return offset


@njit(part=True)
def _enlarged(direction: Floats) -> float:
    """Multiplies a small gradient, and says by what: the extremum is where it was, but squares no longer underflow."""
    largest = 0.0
    for j in range(direction.shape[0]):
        largest = max(largest, abs(direction[j]))
    scale = ENLARGE if largest < SMALL else 1.0
    for j in range(direction.shape[0]):
        direction[j] *= scale
    return scale


@njit(allocates=False, nogil=True)
def region_strategies(
    values: Floats,
    maximise: bool,
    rows: RowArrays,
    played: Floats,
    region: RegionRows,
    scratch: Scratch,
    totals: Floats,
    p: Floats,
) -> None:
    """Nature's best distributions over a region, without rounding margins.

    Parameters
    ----------
    rows : RowArrays
    played : (R,) float64
        Rows with 0 are left alone.
    region : RegionRows
    totals : (R,) float64
        Mean above the smallest value under the hull's distribution; rows where it is not finite are left alone.
    p : (T,) float64
        The hull's distributions on entry; rows of which the region tells more are overwritten.
    """
    row_ptr, successor, expression = rows.row_ptr, rows.successor, rows.expression
    constant, weights = region.constant, region.weights
    table, memory = region.table, region.memory
    box_lower, box_upper, point = region.box_lower, region.box_upper, region.walk.point
    center, factor, radius = region.center, region.factor, region.radius
    direction, scaled = scratch.direction, scratch.other
    n = direction.shape[0]
    sign = -1.0 if maximise else 1.0
    last = int64(0)
    for row in range(row_ptr.shape[0] - 1):
        a, b = row_ptr[row], row_ptr[row + 1]
        if b - a < 3 or played[row] == 0.0 or not totals[row] < np.inf:  # of two, f and 1 - f, the hull tells all
            continue
        offset = _direction_of(a, b, values, sign, successor, expression, region, direction)
        scale = _enlarged(direction)
        offset, total = scale * offset, scale * totals[row]
        found = 0
        vertex = 0
        if region.use_polytope:
            if table.shape[0] == 0:
                bound = support_box(box_lower, box_upper, direction)
            else:
                slot = row % memory.shape[0]
                bound, vertex, _ = walk_table(table, direction, memory[slot] if memory[slot] >= 0 else last)
                memory[slot] = last = vertex
            if offset + bound > total:
                total = offset + bound
                found = 1
        norm = 0.0
        if region.use_ellipsoid:
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
