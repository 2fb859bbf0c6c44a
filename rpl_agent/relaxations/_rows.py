"""Compiled row bounds: `row_bound` is the only code that knows what nature may do in a row, and part of every sweep.

It bounds the extremum over nature's set of sum_i p_i v_i from the side that is asked for: ``upward`` False gives a
number <= the exact extremum, True a number >= it, rounding included. Everything is computed as
``min v + sum_i p_i (v_i - min v)``: terms of one sign, exact when all values agree, and the result is clipped to
[min v, max v], which is a true bound because rows are distributions. Maximisation is minimisation of -v.

Values may be +inf. Nature minimising: inf if the hull forces mass there, else the minimum over distributions that avoid
it (bounded with the inf replaced by the largest finite value: exact for intervals, a lower bound for regions). Nature
maximising: inf if mass may go there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpl_agent.jit import Floats, Ints, int64, njit
from rpl_agent.relaxations._interval_rows import interval_bound, point_bound, sort_row
from rpl_agent.relaxations._region_rows import region_bound

if TYPE_CHECKING:
    from rpl_agent.relaxations.row_set import IntervalRows, RegionRows, RowArrays, Scratch


@njit(allocates=False)
def scratch_size(row_ptr: Ints) -> int:
    """Length of the scratch columns that the row kernels need: the longest row."""
    longest = 1
    for row in range(row_ptr.shape[0] - 1):
        longest = max(longest, row_ptr[row + 1] - row_ptr[row])
    return longest


@njit(part=True)
def row_bound(
    a: int,
    b: int,
    values: Floats,
    maximise: bool,
    upward: bool,
    successor: Ints,
    expression: Ints,
    point: Floats | None,
    interval: IntervalRows | None,
    region: RegionRows | None,
    scratch: Scratch,
    start: int,
) -> tuple[float, int, float]:
    """The bound for the transitions a..b of a row; see the module.

    Parameters
    ----------
    values : (S,) float64
    maximise, upward : bool
        Direction of nature; side of the bound. ``upward == maximise`` is the outward bound.
    successor, expression : (T,) integer
    point, interval, region : `CompiledSet.arguments`
    scratch : Scratch
    start : int
        Of a region: the vertex where the walk starts.

    Returns
    -------
    bound : float
    vertex : int
        Where the walk of a region ended.
    width : float
        Of a region: how far the bounds from the two sides are apart; inf where the query does not say.
    """
    vertex = start
    width = 0.0
    bound = 0.0
    if point is not None:
        bound = point_bound(a, b, values, maximise, upward, successor, expression, point)
    if interval is not None:
        bound = interval_bound(
            a, b, values, maximise, upward, successor, expression, interval.lower, interval.upper, scratch
        )
    if region is not None:
        bound, vertex, width = region_bound(
            a, b, values, maximise, upward, successor, expression, region, scratch, start
        )
    return bound, vertex, width


@njit(part=True)
def remembered(row: int, region: RegionRows | None, before: int) -> int:
    """The vertex where the last walk of a row ended; where the row before it ended if there was none."""
    start = before
    if region is not None:
        found = region.memory[row % region.memory.shape[0]]
        start = found if found >= 0 else before
    return start


@njit(nogil=True, allocates=False)
def row_range(
    first: int,
    last: int,
    values: Floats,
    maximise: bool,
    upward: bool,
    model: RowArrays,
    point: Floats | None,
    interval: IntervalRows | None,
    region: RegionRows | None,
    scratch: Scratch,
    rows: Ints,
    out: Floats,
) -> None:
    """out[i] = bound of row rows[i] for first <= i < last; of row i itself when ``rows`` is empty.

    Parameters
    ----------
    model : RowArrays
    rows : (k,) int64
    out : (k,) or (R,) float64
    """
    everything = rows.shape[0] == 0
    row_ptr, successor, expression = model.row_ptr, model.successor, model.expression
    vertex = int64(0)
    for i in range(first, last):
        row = i if everything else rows[i]
        start = remembered(row, region, vertex)
        bound, vertex, _ = row_bound(
            row_ptr[row], row_ptr[row + 1], values, maximise, upward, successor, expression, point, interval, region,
            scratch, start,
        )  # fmt: skip
        out[i] = bound
        if region is not None:
            region.memory[row % region.memory.shape[0]] = vertex


@njit(nogil=True, allocates=False)
def hull_strategies(
    values: Floats,
    maximise: bool,
    model: RowArrays,
    played: Floats,
    lower: Floats,
    upper: Floats,
    scratch: Scratch,
    totals: Floats,
    p: Floats,
) -> None:
    """Nature's best distribution of every row within intervals, without rounding margins (to find strategies).

    Successors of value +inf get no mass when nature minimises.

    Parameters
    ----------
    model : RowArrays
    played : (R,) float64
        Rows with 0 are not played: they get some distribution.
    totals : (R,) float64
        Written: the mean above the smallest value; inf where no set of distributions can do better.
    p : (T,) float64
        Written.
    """
    row_ptr, successor, expression = model.row_ptr, model.successor, model.expression
    keys, order = scratch.keys, scratch.order
    sign = -1.0 if maximise else 1.0
    for row in range(row_ptr.shape[0] - 1):
        a, b = row_ptr[row], row_ptr[row + 1]
        totals[row] = np.inf
        if b - a == 1:
            p[a] = 1.0
            continue
        rest = 1.0
        for t in range(a, b):
            p[t] = lower[expression[t]]
            rest -= p[t]
        if played[row] == 0.0:  # any distribution will do
            for t in range(a, b):
                share = max(min(upper[expression[t]] - p[t], rest), 0.0)
                p[t] += share
                rest -= share
            continue
        n = sort_row(a, b, values, np.inf, sign, successor, expression, upper, keys, order)
        total = 0.0
        for i in range(n):
            t = order[i]
            share = max(min(upper[expression[t]] - p[t], rest), 0.0)
            p[t] += share
            rest -= share
            total += p[t] * (keys[i] - keys[0])
        if 0.0 < keys[n - 1] - keys[0] < np.inf:
            totals[row] = total
