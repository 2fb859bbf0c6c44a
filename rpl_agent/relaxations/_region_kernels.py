"""Compiled rows over a complete vertex table, on bare arrays: the fast path of the rectangular relaxation.

A compiled call pays for every array in the tuples it is handed (reference counts), which at a few hundred nanoseconds
per row is more than the query itself. `polytope_row` therefore takes only what it reads.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from rpl_agent.regions._kernels import UNIT_ROUNDOFF, walk_table


@njit(cache=True)
def polytope_row(
    a, b, values, maximise, upward, successor, expression, constant, weights, mass, tightness, table, direction, start
):  # fmt: skip
    """Bound of the extremum of sum_i p_i v_i over the region, for transitions a..b with finite values.

    Computed as low + min over x of sum_i f_i(x) (v_i - low): terms of one sign, exact when all values agree. Rounding
    adds at most (4 n + 16) u (sum_i mass_i (v_i - low) + span) + 2 u |low|.

    Parameters
    ----------
    values : (S,) float64
        Finite at the successors of the row.
    maximise, upward : bool
        Direction of nature; side of the bound (as in `row_expectation`).
    constant, mass : (F,) float64
        mass = |constant| + |weights| reach.
    weights : (F, n) float64
    tightness : float
        Relative to the span of the values: how far the safe bound may be from the exact extremum.
    table : float64
        Of a complete `PolytopeData` with at least one vertex.
    direction : (n,) float64
        Scratch.
    start : int
        A vertex of the table, best the one where a similar row ended.

    Returns
    -------
    bound : float
    vertex : int
        Where the walk ended; -1 where it left the table (the bound is then the trivial one).
    """
    sign = -1.0 if maximise else 1.0
    n = direction.shape[0]
    low = np.inf
    for t in range(a, b):
        x = sign * values[successor[t]]
        if x < low:
            low = x
    for j in range(n):
        direction[j] = 0.0
    offset = 0.0
    size = 0.0
    span = 0.0
    for t in range(a, b):
        d = sign * values[successor[t]] - low
        if d > 0.0:
            f = expression[t]
            offset += constant[f] * d
            size += mass[f] * d
            if d > span:
                span = d
            for j in range(n):
                direction[j] += weights[f, j] * d
    if span == 0.0:
        return sign * low, start
    bound, vertex = walk_table(table, direction, start)
    if bound == -np.inf:
        return sign * (low + span if upward != maximise else low), -1
    result = low + (offset + bound)
    error = (4.0 * (b - a) + 16.0) * UNIT_ROUNDOFF * (size + span) + 2.0 * UNIT_ROUNDOFF * (abs(low) + abs(result))
    if upward != maximise:  # bounding max v from above is bounding min -v from below
        result = min(result + tightness * span + error, low + span * (1.0 + 2.0 * UNIT_ROUNDOFF))
    else:
        result = max(result - error, low)
    return sign * result, vertex
