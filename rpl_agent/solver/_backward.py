"""The backward pass over acyclic parts: both bounds at once.

Lower and upper values differ by rounding only. Intervals: nature's distribution is found once per row, for the side on
which it must be optimal (the outward one), and used for both: on the other side any distribution of the set gives a
bound. Regions: the query is made once, on the outward side; on the other one its tightness is added, twice because a
check may end at another vertex, and the largest distance between a successor's two values. Where that does not apply,
each side is bounded for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpl_agent.jit import FAINT, UNIT_ROUNDOFF, Floats, Ints, int64, njit
from rpl_agent.relaxations._interval_rows import INSERTION_LIMIT, pair_bound, sort_row
from rpl_agent.relaxations._rows import row_bound
from rpl_agent.solver._bellman import FIXED_AGENT, MAX_AGENT, MIN_AGENT, mixed_in, mixture, paid

if TYPE_CHECKING:
    from rpl_agent.relaxations.row_set import IntervalRows, RegionRows, Scratch
    from rpl_agent.solver._bellman import Game


@njit(part=True)
def _shared(
    a: int,
    b: int,
    low: Floats,
    high: Floats,
    maximise: bool,
    successor: Ints,
    expression: Ints,
    interval: IntervalRows,
    scratch: Scratch,
) -> tuple[bool, float, float]:
    """(found, q_low, q_high) of an interval row by one distribution for both sides."""
    lower, upper = interval.lower, interval.upper
    n = b - a
    keys, order = scratch.keys, scratch.order
    sign = -1.0 if maximise else 1.0
    leading = high if maximise else low
    finite = sort_row(a, b, leading, np.inf, sign, successor, expression, upper, keys, order) == n
    rest = 1.0
    for t in range(a, b):
        finite = finite and high[successor[t]] < np.inf
        rest -= lower[expression[t]]
    if not (finite and rest > 1e-9):
        return False, 0.0, 0.0
    first = successor[order[0]]
    bottom_low, bottom_high = low[first], high[first]
    gain_low, gain_high, span = 0.0, 0.0, 0.0
    equal = True
    for k in range(n):
        t = order[k]
        f = expression[t]
        share = min(upper[f] - lower[f], rest)
        rest -= share
        share += lower[f]
        x, y = low[successor[t]], high[successor[t]]
        span = max(span, abs(x - bottom_low), abs(y - bottom_high))  # of both sides: one may be flat
        gain_low += share * (x - bottom_low)
        gain_high += share * (y - bottom_high)
        equal = equal and x == bottom_low and y == bottom_high
    if not rest < 1e-12:
        return False, 0.0, 0.0
    if equal and gain_low == 0.0 and gain_high == 0.0:  # whatever the distribution, the value is exact
        return True, bottom_low, bottom_high
    # three times the margin of `fill_row`, whose sums are formed in another order
    margin = 3.0 * UNIT_ROUNDOFF * ((6.0 * n + 12.0) * span + FAINT) + 3.0 * rest * span
    q_low = bottom_low + gain_low
    q_high = bottom_high + gain_high
    q_low -= margin + 6.0 * UNIT_ROUNDOFF * abs(q_low)
    q_high += margin + 6.0 * UNIT_ROUNDOFF * abs(q_high)
    return True, q_low, q_high


@njit(part=True)
def _far_side(
    a: int,
    b: int,
    low: Floats,
    high: Floats,
    q: float,
    width: float,
    maximise: bool,
    successor: Ints,
    expression: Ints,
    upper: Floats,
) -> float:
    """The other side of a region's row, from the outward bound q that a query found up to ``width``; inf: unknown."""
    sign = -1.0 if maximise else 1.0
    apart = 0.0
    bottom, top = np.inf, -np.inf
    for t in range(a, b):
        if upper[expression[t]] > 0.0:
            j = successor[t]
            apart = max(apart, high[j] - low[j])
            bottom, top = min(bottom, low[j]), max(top, high[j])
    far = q + sign * (2.0 * width + apart)
    far += sign * 4.0 * UNIT_ROUNDOFF * abs(far)
    far = max(far, bottom) if maximise else min(far, top)
    return far if top < np.inf else np.inf


@njit(allocates=False)
def _in_turn(
    a: int,
    b: int,
    low: Floats,
    high: Floats,
    maximise: bool,
    successor: Ints,
    expression: Ints,
    point: Floats | None,
    interval: IntervalRows | None,
    region: RegionRows | None,
    scratch: Scratch,
    start: int,
) -> tuple[float, float, int]:
    """`both_bounds` of a row that needs a look from each side. A call, not a part: few rows of intervals come here."""
    q_low, q_high = 0.0, 0.0
    vertex = start
    found = False
    for turn in range(2):
        if found:
            break
        upward = maximise if turn == 0 else not maximise  # the outward side first
        values = high if upward else low
        q, vertex, width = row_bound(
            a, b, values, maximise, upward, successor, expression, point, interval, region, scratch, vertex
        )
        far = np.inf
        if region is not None:
            if b - a > 2 and q < np.inf and width < np.inf:
                if turn == 0:
                    far = _far_side(a, b, low, high, q, width, maximise, successor, expression, region.upper)
                else:  # a check may end at another vertex
                    q += width if upward else -width
        found = far < np.inf
        if upward:
            q_high = q
            q_low = far if found else q_low
        else:
            q_low = q
            q_high = far if found else q_high
    return q_low, q_high, vertex


@njit(part=True)
def both_bounds(
    a: int,
    b: int,
    low: Floats,
    high: Floats,
    maximise: bool,
    successor: Ints,
    expression: Ints,
    point: Floats | None,
    interval: IntervalRows | None,
    region: RegionRows | None,
    scratch: Scratch,
    start: int,
) -> tuple[float, float, int]:
    """(q_low, q_high, vertex): a row's bounds from below under ``low`` and from above under ``high``."""
    q_low, q_high = 0.0, 0.0
    vertex = start
    found = False
    if point is not None:
        lower, upper = point, point
    if interval is not None:
        lower, upper = interval.lower, interval.upper
    if region is not None:
        lower, upper = region.lower, region.upper
    if b - a == 1:
        q_low, q_high = low[successor[a]], high[successor[a]]
        found = True
    elif b - a == 2:
        j, k = successor[a], successor[a + 1]
        if high[j] < np.inf and high[k] < np.inf:
            f, g = expression[a], expression[a + 1]
            q_low = pair_bound(low[j], low[k], lower[f], upper[f], lower[g], upper[g], maximise, False)
            q_high = pair_bound(high[j], high[k], lower[f], upper[f], lower[g], upper[g], maximise, True)
            found = True
    elif b - a <= INSERTION_LIMIT:
        if interval is not None:
            found, q_low, q_high = _shared(a, b, low, high, maximise, successor, expression, interval, scratch)
    if not found:
        q_low, q_high, vertex = _in_turn(
            a, b, low, high, maximise, successor, expression, point, interval, region, scratch, start
        )
    return q_low, q_high, vertex


@njit(nogil=True, allocates=False)
def backward(
    order: Ints,
    low: Floats,
    high: Floats,
    low_rows: Ints,
    high_rows: Ints,
    game: Game,
    point: Floats | None,
    interval: IntervalRows | None,
    region: RegionRows | None,
    scratch: Scratch,
) -> None:
    """low[s] <= (T low)(s) and high[s] >= (T high)(s) for s in order, successors first.

    Parameters
    ----------
    order : (k,) int64
    low, high : (S,) float64
        Read at successors, written at the states of ``order``.
    low_rows, high_rows : (S,) int64
        Written: the agent's best row for either side (untouched for a fixed policy).
    game, point, interval, region, scratch : as in `bellman`
    """
    agent, maximise, gamma, state_ptr, row_ptr = game.agent, game.maximise, game.gamma, game.state_ptr, game.row_ptr
    successor, expression, reward, weights = game.successor, game.expression, game.reward, game.weights
    vertex = int64(0)  # a row is asked once: its walk starts where that of the row before it ended
    for i in range(order.shape[0]):
        s = order[i]
        worst = np.inf if agent == MIN_AGENT else -np.inf
        best_low, best_high = worst, worst
        base_low, total_low, least_low, most_low = 0.0, 0.0, np.inf, -np.inf
        base_high, total_high, least_high, most_high = 0.0, 0.0, np.inf, -np.inf
        drawn = 0
        for row in range(state_ptr[s], state_ptr[s + 1]):
            if agent == FIXED_AGENT and weights[row] == 0.0:
                continue
            q_low, q_high, vertex = both_bounds(
                row_ptr[row], row_ptr[row + 1], low, high, maximise, successor, expression, point, interval, region,
                scratch, vertex,
            )  # fmt: skip
            q_low = paid(q_low, reward[row], gamma, -1.0)
            q_high = paid(q_high, reward[row], gamma, 1.0)
            if agent == FIXED_AGENT:
                w = weights[row]
                base_low, total_low, least_low, most_low = mixed_in(
                    q_low, w, drawn, base_low, total_low, least_low, most_low
                )
                base_high, total_high, least_high, most_high = mixed_in(
                    q_high, w, drawn, base_high, total_high, least_high, most_high
                )
                drawn += 1
                continue
            if (agent == MAX_AGENT and q_low > best_low) or (agent == MIN_AGENT and q_low < best_low):
                best_low = q_low
                low_rows[s] = row
            if (agent == MAX_AGENT and q_high > best_high) or (agent == MIN_AGENT and q_high < best_high):
                best_high = q_high
                high_rows[s] = row
        if agent == FIXED_AGENT:
            best_low = mixture(drawn, base_low, total_low, least_low, most_low, -1.0)
            best_high = mixture(drawn, base_high, total_high, least_high, most_high, 1.0)
        low[s], high[s] = best_low, best_high
