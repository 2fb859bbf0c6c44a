"""The backward pass over acyclic parts: both bounds at once.

Lower and upper values differ by rounding only. Intervals: nature's distribution is found once per row, for the side on
which it must be optimal (the outward one), and used for both: on the other side any distribution of the set gives a
bound. Regions: the query is made once, on the outward side; on the other one its tightness is added, twice because a
check may end at another vertex, and the largest distance between a successor's two values.
"""

from __future__ import annotations

import numpy as np

from rpl_agent.jit import UNIT_ROUNDOFF, njit
from rpl_agent.relaxations._interval_rows import (
    INSERTION_LIMIT,
    insert_row,
    interval_row,
    pair_bound,
    short_row,
)
from rpl_agent.relaxations._region_rows import region_row
from rpl_agent.relaxations._rows import row_expectation
from rpl_agent.relaxations.row_set import ELLIPSOID, INTERVAL, POLYTOPE
from rpl_agent.solver._bellman import FIXED_AGENT, MAX_AGENT, MIN_AGENT


@njit(cache=True, nogil=True, borrows=True)
def backward(
    order, low, high, low_rows, high_rows, agent, maximise, gamma, state_ptr, row_ptr, successor, expression, reward,
    weights, cs, scratch,
):  # fmt: skip
    """low[s] <= (T low)(s) and high[s] >= (T high)(s) for s in order, successors first.

    Parameters
    ----------
    order : (k,) int64
    low, high : (S,) float64
        Read at successors, written at the states of ``order``.
    low_rows, high_rows : (S,) int64
        Written: the agent's best row for either side (untouched for a fixed policy).
    agent, maximise, gamma, reward, weights, scratch :
        As in `bellman`.
    cs : CompiledSet
    """
    kind, lower, upper = cs.kind, cs.lower, cs.upper
    constant, coefficients, mass, tightness = cs.constant, cs.weights, cs.mass, cs.tightness
    table, box_lower, box_upper = cs.polytope.table, cs.polytope.lower, cs.polytope.upper
    center, factor, radius = cs.center, cs.factor, cs.radius
    last = 0  # a row is asked once: its walk starts where that of the row before it ended
    direction = scratch[2, : coefficients.shape[1]]
    sign = -1.0 if maximise else 1.0
    leading = high if maximise else low
    for i in range(order.shape[0]):
        s = order[i]
        worst = np.inf if agent == MIN_AGENT else -np.inf
        best_low, best_high = worst, worst
        base_low, base_high = 0.0, 0.0
        total_low, total_high = 0.0, 0.0
        least_low, most_low, least_high, most_high = np.inf, -np.inf, np.inf, -np.inf
        drawn = 0
        for row in range(state_ptr[s], state_ptr[s + 1]):
            if agent == FIXED_AGENT and weights[row] == 0.0:
                continue
            a, b = row_ptr[row], row_ptr[row + 1]
            n = b - a
            slow = True
            q_low, q_high = 0.0, 0.0
            if n == 1:
                q_low, q_high = low[successor[a]], high[successor[a]]
                slow = False
            elif n == 2:
                j, k = successor[a], successor[a + 1]
                if high[j] < np.inf and high[k] < np.inf:
                    f, g = expression[a], expression[a + 1]
                    q_low = pair_bound(low[j], low[k], lower[f], upper[f], lower[g], upper[g], maximise, False)
                    q_high = pair_bound(high[j], high[k], lower[f], upper[f], lower[g], upper[g], maximise, True)
                    slow = False
            elif kind == INTERVAL and n <= INSERTION_LIMIT:
                finite = insert_row(a, b, leading, sign, successor, expression, upper, scratch) == n
                rest = 1.0
                for t in range(a, b):
                    finite = finite and high[successor[t]] < np.inf
                    rest -= lower[expression[t]]
                if finite and rest > 1e-9:
                    span = scratch[0, n - 1] - scratch[0, 0]
                    first = successor[np.int64(scratch[1, 0])]
                    bottom_low, bottom_high = low[first], high[first]
                    gain_low, gain_high = 0.0, 0.0
                    for k in range(n):
                        t = np.int64(scratch[1, k])
                        f = expression[t]
                        share = min(upper[f] - lower[f], rest)
                        rest -= share
                        share += lower[f]
                        gain_low += share * (low[successor[t]] - bottom_low)
                        gain_high += share * (high[successor[t]] - bottom_high)
                    if rest < 1e-12:
                        # three times the margin of `interval_row`, whose sums are formed in another order
                        span = abs(span) + abs(high[first] - low[first])
                        margin = 3.0 * UNIT_ROUNDOFF * (6.0 * n + 12.0) * span + 3.0 * rest * span
                        q_low = bottom_low + gain_low
                        q_high = bottom_high + gain_high
                        q_low -= margin + 6.0 * UNIT_ROUNDOFF * abs(q_low)
                        q_high += margin + 6.0 * UNIT_ROUNDOFF * abs(q_high)
                        slow = False
                        if gain_low == 0.0 and gain_high == 0.0:
                            equal = True
                            for t in range(a, b):
                                j = successor[t]
                                equal = equal and low[j] == bottom_low and high[j] == bottom_high
                            if equal:  # whatever the distribution, the value is exact
                                q_low, q_high = bottom_low, bottom_high
            elif kind > INTERVAL:
                q, vertex, width = region_row(
                    a, b, leading, maximise, maximise, successor, expression, upper, constant, coefficients, mass,
                    tightness, kind != ELLIPSOID, table, box_lower, box_upper, kind != POLYTOPE, center, factor,
                    radius, direction, last,
                )  # fmt: skip
                last = max(vertex, 0)
                apart = 0.0
                bottom, top = np.inf, -np.inf
                for t in range(a, b):
                    if upper[expression[t]] > 0.0:
                        j = successor[t]
                        apart = max(apart, high[j] - low[j])
                        bottom, top = min(bottom, low[j]), max(top, high[j])
                if vertex >= 0 and top < np.inf:
                    far = q + sign * (2.0 * width + apart)
                    if kind != POLYTOPE:
                        hull = short_row(
                            a, b, leading, maximise, maximise, successor, expression, lower, upper, scratch
                        )
                        if (hull < q) == maximise and hull != q:  # the hull tells more than the region
                            q = hull
                            other = low if maximise else high
                            hull = short_row(
                                a, b, other, maximise, not maximise, successor, expression, lower, upper, scratch
                            )
                            far = min(far, hull) if maximise else max(far, hull)
                    far += sign * 4.0 * UNIT_ROUNDOFF * abs(far)
                    q_low, q_high = (max(far, bottom), q) if maximise else (q, min(far, top))
                    slow = False
                else:
                    q_low = row_expectation(row, low, maximise, False, row_ptr, successor, expression, cs, scratch)
                    q_high = row_expectation(row, high, maximise, True, row_ptr, successor, expression, cs, scratch)
                    slow = False
            if slow and kind == INTERVAL:  # as a check does it: both round alike
                q_low = short_row(a, b, low, maximise, False, successor, expression, lower, upper, scratch)
                q_high = short_row(a, b, high, maximise, True, successor, expression, lower, upper, scratch)
            elif slow:
                q_low = interval_row(a, b, low, maximise, False, successor, expression, lower, upper, True, scratch)
                q_high = interval_row(a, b, high, maximise, True, successor, expression, lower, upper, True, scratch)
            if reward[row] != 0.0 or gamma != 1.0:
                if q_low < np.inf:
                    q_low = reward[row] + gamma * q_low
                    q_low -= 3.0 * UNIT_ROUNDOFF * (abs(q_low) + 2.0 * abs(reward[row]))
                if q_high < np.inf:
                    q_high = reward[row] + gamma * q_high
                    q_high += 3.0 * UNIT_ROUNDOFF * (abs(q_high) + 2.0 * abs(reward[row]))
            if agent == FIXED_AGENT:
                if drawn == 0:
                    base_low, base_high = q_low, q_high
                if q_low == np.inf:
                    base_low = np.inf
                if q_high == np.inf:
                    base_high = np.inf
                if base_low < np.inf:
                    total_low += weights[row] * (q_low - base_low)
                if base_high < np.inf:
                    total_high += weights[row] * (q_high - base_high)
                least_low, most_low = min(least_low, q_low), max(most_low, q_low)
                least_high, most_high = min(least_high, q_high), max(most_high, q_high)
                drawn += 1
            else:
                if (agent == MAX_AGENT and q_low > best_low) or (agent == MIN_AGENT and q_low < best_low):
                    best_low = q_low
                    low_rows[s] = row
                if (agent == MAX_AGENT and q_high > best_high) or (agent == MIN_AGENT and q_high < best_high):
                    best_high = q_high
                    high_rows[s] = row
        if agent == FIXED_AGENT:
            best_low, best_high = base_low, base_high
            if best_low < np.inf and most_low > least_low:
                best_low += total_low
                best_low -= 3.0 * UNIT_ROUNDOFF * ((2.0 * drawn + 8.0) * (most_low - least_low) + 2.0 * abs(best_low))
            if best_high < np.inf and most_high > least_high:
                best_high += total_high
                best_high += (
                    3.0 * UNIT_ROUNDOFF * ((2.0 * drawn + 8.0) * (most_high - least_high) + 2.0 * abs(best_high))
                )
        low[s], high[s] = best_low, best_high
