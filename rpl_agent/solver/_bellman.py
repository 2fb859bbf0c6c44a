"""Compiled Bellman sweeps and chain assembly; every kernel works on a model's arrays or on a local model's."""

from __future__ import annotations

import numpy as np

from rpl_agent.jit import UNIT_ROUNDOFF, njit
from rpl_agent.relaxations._interval_rows import (
    INSERTION_LIMIT,
    insert_row,
    interval_row,
    pair_bound,
    short_row,
    sort_row,
    triple_bound,
)
from rpl_agent.relaxations._region_rows import region_row, region_strategies
from rpl_agent.relaxations._rows import row_expectation
from rpl_agent.relaxations.row_set import ELLIPSOID, INTERVAL, POINT, POLYTOPE

MAX_AGENT, MIN_AGENT, FIXED_AGENT = 1, -1, 0


@njit(cache=True, nogil=True, borrows=True)
def bellman(
    order, values, out, chosen, upward, agent, maximise, gamma, offset, state_ptr, row_ptr, successor, expression,
    reward, weights, cs, scratch,
):  # fmt: skip
    """out[s] = bound of (T values)(s) + offset for s in order; ``out is values`` makes it a Gauss-Seidel sweep.

    Parameters
    ----------
    order : (k,) int64
    values, out : (S,) float64
    chosen : (S,) int64
        Written: the agent's best row (untouched for a fixed policy).
    upward : bool
        Side of the bound: False gives out <= T values, True out >= T values.
    agent : int
        MAX_AGENT, MIN_AGENT, or FIXED_AGENT to play ``weights``.
    maximise : bool
        Direction of nature.
    gamma : float
    offset : float
        Added to every result (a strict margin).
    reward, weights : (R,) float64
    scratch : float64
        A `row_set.workspace`.

    Returns
    -------
    float
        The largest change.
    """
    kind, lower, upper = cs.kind, cs.lower, cs.upper
    constant, coefficients, mass, tightness = cs.constant, cs.weights, cs.mass, cs.tightness
    table, box_lower, box_upper = cs.polytope.table, cs.polytope.lower, cs.polytope.upper
    center, factor, radius = cs.center, cs.factor, cs.radius
    memory = cs.polytope.memory
    last = np.int32(0)
    direction = scratch[2, : coefficients.shape[1]]
    largest = 0.0
    side = 1.0 if upward else -1.0
    sign = -1.0 if maximise else 1.0
    for i in range(order.shape[0]):
        s = order[i]
        best = np.inf if agent == MIN_AGENT else -np.inf
        best_row = state_ptr[s]
        total = 0.0
        base = 0.0
        least = np.inf
        most = -np.inf
        drawn = 0
        for row in range(state_ptr[s], state_ptr[s + 1]):
            if agent == FIXED_AGENT and weights[row] == 0.0:
                continue
            a, b = row_ptr[row], row_ptr[row + 1]
            if b - a == 1:
                q = values[successor[a]]
            else:
                slow = True
                if b - a == 2:
                    x, y = values[successor[a]], values[successor[a + 1]]
                    if x < np.inf and y < np.inf:
                        f, g = expression[a], expression[a + 1]
                        q = pair_bound(x, y, lower[f], upper[f], lower[g], upper[g], maximise, upward)
                        slow = False
                elif b - a == 3 and kind == INTERVAL:
                    f, g, h = expression[a], expression[a + 1], expression[a + 2]
                    q = triple_bound(
                        values[successor[a]], values[successor[a + 1]], values[successor[a + 2]], lower[f], upper[f],
                        lower[g], upper[g], lower[h], upper[h], maximise, upward,
                    )  # fmt: skip
                    slow = q != q
                elif kind == POINT:
                    low = np.inf
                    high = -np.inf
                    for t in range(a, b):
                        if lower[expression[t]] > 0.0:
                            x = values[successor[t]]
                            low = x if x < low else low
                            high = x if x > high else high
                    if high < np.inf:
                        gain = 0.0
                        for t in range(a, b):
                            p = lower[expression[t]]
                            if p > 0.0:
                                gain += p * (values[successor[t]] - low)
                        q = low
                        if gain > 0.0:
                            q = low + gain
                            q += side * 3.0 * UNIT_ROUNDOFF * ((2.0 * (b - a) + 12.0) * (high - low) + 2.0 * abs(q))
                            q = high if q > high else q
                            q = low if q < low else q
                        slow = False
                elif kind == INTERVAL and b - a <= INSERTION_LIMIT:
                    # `_interval_row` again, without its calls: they would cost four times the arithmetic. Its sums are
                    # formed in another order, so its margin is taken three times: a check by the other one passes.
                    n = insert_row(a, b, values, sign, successor, expression, upper, scratch)
                    rest = 1.0
                    for t in range(a, b):
                        rest -= lower[expression[t]]
                    low = scratch[0, 0]
                    high = scratch[0, n - 1]
                    if low > -np.inf and high < np.inf and rest > 1e-9:
                        gain = 0.0
                        for i_row in range(n):
                            f = expression[np.int64(scratch[1, i_row])]
                            share = min(upper[f] - lower[f], rest)
                            rest -= share
                            gain += (lower[f] + share) * (scratch[0, i_row] - low)
                        if high - low > 0.0 and rest < 1e-12:
                            q = low + gain
                            margin = 4.0 * n * (high - low) + (2.0 * n + 12.0) * gain + 2.0 * abs(q)
                            margin = 3.0 * UNIT_ROUNDOFF * margin + 3.0 * rest * (high - low)
                            q = min(q + margin, high) if upward != maximise else max(min(q, high) - margin, low)
                            q *= sign
                            slow = False
                if slow:
                    if kind <= INTERVAL:
                        q = interval_row(
                            a, b, values, maximise, upward, successor, expression, lower, upper, kind == POINT, scratch
                        )
                    else:
                        slot = row % memory.shape[0]
                        q, vertex, _ = region_row(
                            a, b, values, maximise, upward, successor, expression, upper, constant, coefficients, mass,
                            tightness, kind != ELLIPSOID, table, box_lower, box_upper, kind != POLYTOPE, center, factor,
                            radius, direction, memory[slot] if memory[slot] >= 0 else last,
                        )  # fmt: skip
                        memory[slot] = last = max(vertex, 0)
                        if vertex < 0:
                            q = row_expectation(
                                row, values, maximise, upward, row_ptr, successor, expression, cs, scratch
                            )
                        elif kind != POLYTOPE:
                            hull = short_row(
                                a, b, values, maximise, upward, successor, expression, lower, upper, scratch
                            )
                            q = min(q, hull) if maximise else max(q, hull)
            if q < np.inf and (reward[row] != 0.0 or gamma != 1.0):
                q = reward[row] + gamma * q
                q += side * 3.0 * UNIT_ROUNDOFF * (abs(q) + 2.0 * abs(reward[row]))
            if agent == FIXED_AGENT:
                if drawn == 0 or q == np.inf:
                    base = q
                elif q != base and base < np.inf:
                    total += weights[row] * (q - base)
                least = min(least, q)
                most = max(most, q)
                drawn += 1
            elif (agent == MAX_AGENT and q > best) or (agent == MIN_AGENT and q < best):
                best = q
                best_row = row
        if agent == FIXED_AGENT:
            best = base + total
            if most > least and best < np.inf:
                best += side * 3.0 * UNIT_ROUNDOFF * ((2.0 * drawn + 8.0) * (most - least) + 2.0 * abs(best))
        else:
            chosen[s] = best_row
        best += offset
        if offset != 0.0 and best < np.inf:
            best += side * UNIT_ROUNDOFF * abs(best)
        if best != values[s]:
            change = abs(best - values[s])
            largest = change if not change <= largest else largest
        out[s] = best
    return largest


@njit(cache=True, nogil=True)
def row_means(values, gamma, row_ptr, successor, reward, p, q):
    """q[row] = reward + gamma * sum p v under nature's distributions p (T,), as min v + sum p (v - min v).

    Successors without mass do not count.
    """
    for row in range(row_ptr.shape[0] - 1):
        low = np.inf
        for t in range(row_ptr[row], row_ptr[row + 1]):
            if p[t] > 0.0 and values[successor[t]] < low:
                low = values[successor[t]]
        total = 0.0
        for t in range(row_ptr[row], row_ptr[row + 1]):
            if p[t] > 0.0 and values[successor[t]] > low:
                total += p[t] * (values[successor[t]] - low)
        q[row] = reward[row] + gamma * (low + total)


@njit(cache=True, nogil=True, borrows=True)
def row_values(
    values, maximise, gamma, row_ptr, successor, expression, reward, weights, cs, scratch, q, p
):  # fmt: skip
    """Nature's best distribution of every row and the row's value, without rounding margins (to find strategies).

    Successors of value +inf get no mass when nature minimises.

    Parameters
    ----------
    weights : (R,) float64
        Rows with weight 0 are not played: they get some distribution of the hull.
    scratch : float64
        A `row_set.workspace`.
    q : (R,) float64
        Written; until the end what the hull makes of a row.
    p : (T,) float64
        Written.
    """
    kind, lower, upper = cs.kind, cs.lower, cs.upper
    sign = -1.0 if maximise else 1.0
    for row in range(row_ptr.shape[0] - 1):
        a, b = row_ptr[row], row_ptr[row + 1]
        if b - a == 1:
            p[a] = 1.0
            continue
        if kind == POINT:
            for t in range(a, b):
                p[t] = lower[expression[t]]
            continue
        rest = 1.0
        for t in range(a, b):
            p[t] = lower[expression[t]]
            rest -= p[t]
        if weights[row] == 0.0:  # any distribution will do
            for t in range(a, b):
                share = max(min(upper[expression[t]] - p[t], rest), 0.0)
                p[t] += share
                rest -= share
            continue
        if b - a <= INSERTION_LIMIT:
            n = insert_row(a, b, values, sign, successor, expression, upper, scratch)
        else:
            n = sort_row(a, b, values, sign, successor, expression, upper, scratch)
        total = 0.0
        for i in range(n):
            t = np.int64(scratch[1, i])
            share = max(min(upper[expression[t]] - p[t], rest), 0.0)
            p[t] += share
            rest -= share
            total += p[t] * (scratch[0, i] - scratch[0, 0])
        if kind > INTERVAL:
            span = scratch[0, n - 1] - scratch[0, 0]
            q[row] = total if 0.0 < span < np.inf else np.inf
    if kind > INTERVAL:
        region_strategies(
            values, maximise, row_ptr, successor, expression, weights, upper, cs.constant, cs.weights,
            kind != ELLIPSOID, cs.polytope.table, cs.polytope.point, cs.polytope.lower, cs.polytope.upper,
            cs.polytope.memory, kind != POLYTOPE, cs.center, cs.factor, cs.radius, scratch, q, p,
        )  # fmt: skip
    row_means(values, gamma, row_ptr, successor, reward, p, q)


@njit(cache=True, nogil=True)
def assemble(
    rows, weights, values, gamma, offset, state_ptr, row_ptr, successor, reward, p, indptr, indices, data, rhs
):
    """The linear system (I - gamma P) x = rhs of a chain on states 0..n-1; exits enter the right side.

    Entries of one row may repeat (rows mixed by weights). The diagonal is written as the mass that leaves the state,
    which stays accurate for states that almost always loop.

    Parameters
    ----------
    rows : (n,) int64
        Chosen rows; empty: play ``weights``.
    p : (T,) float64
        Nature's distributions.
    indptr : (n+1,), indices, data : capacity T + n; written
    rhs : (n,) float64; written

    Returns
    -------
    int
        Number of entries.
    """
    n = state_ptr.shape[0] - 1
    k = 0
    indptr[0] = 0
    fixed = rows.shape[0] == 0
    for s in range(n):
        diagonal = 1.0 - gamma
        right = offset
        first = state_ptr[s] if fixed else rows[s]
        last = state_ptr[s + 1] if fixed else rows[s] + 1
        for row in range(first, last):
            w = weights[row] if fixed else 1.0
            if w == 0.0:
                continue
            right += w * reward[row]
            for t in range(row_ptr[row], row_ptr[row + 1]):
                j = successor[t]
                if j == s or p[t] <= 0.0:
                    continue
                mass = gamma * w * p[t]
                diagonal += mass
                if j < n:
                    indices[k] = j
                    data[k] = -mass
                    k += 1
                else:
                    right += mass * values[j]
        indices[k] = s
        data[k] = diagonal
        k += 1
        indptr[s + 1] = k
        rhs[s] = right
    return k


@njit(cache=True, nogil=True)
def residual(indptr, indices, data, rhs, x):
    """(n,) rhs - A x of an assembled chain."""
    out = rhs.copy()
    for s in range(rhs.shape[0]):
        for e in range(indptr[s], indptr[s + 1]):
            out[s] -= data[e] * x[indices[e]]
    return out


@njit(cache=True, nogil=True)
def relax_chain(indptr, indices, data, rhs, x, sweeps, tolerance):
    """Gauss-Seidel on an assembled chain, both directions in turn; the number of sweeps used."""
    n = rhs.shape[0]
    for k in range(sweeps):
        change = 0.0
        for i in range(n):
            s = i if k % 2 == 0 else n - 1 - i
            right = rhs[s]
            diagonal = 0.0
            for e in range(indptr[s], indptr[s + 1]):
                if indices[e] == s:
                    diagonal += data[e]
                else:
                    right -= data[e] * x[indices[e]]
            new = right / diagonal
            change = max(change, abs(new - x[s]))
            x[s] = new
        if change <= tolerance:
            return k + 1
    return sweeps


@njit(cache=True, nogil=True)
def extract(states, position, state_ptr, row_ptr, successor, size):
    """Sizes and maps of the local model on ``states``.

    Parameters
    ----------
    states : (n,) int64
    position : (S,) int64
        All -1 on entry; restored on return.
    size : (2,) int64
        Number of rows and transitions of ``states``.

    Returns
    -------
    local_state_ptr, local_row_ptr, local_successor, row_of, transition_of, exits
    """
    n = states.shape[0]
    local_state_ptr = np.zeros(n + 1, np.int64)
    local_row_ptr = np.zeros(size[0] + 1, np.int64)
    local_successor = np.empty(size[1], np.int32)
    row_of = np.empty(size[0], np.int64)
    transition_of = np.empty(size[1], np.int64)
    exits = np.empty(size[1], np.int64)
    for i in range(n):
        position[states[i]] = i
    m = 0
    r = 0
    t = 0
    for i in range(n):
        s = states[i]
        for row in range(state_ptr[s], state_ptr[s + 1]):
            row_of[r] = row
            for e in range(row_ptr[row], row_ptr[row + 1]):
                j = successor[e]
                if position[j] < 0:
                    position[j] = n + m
                    exits[m] = j
                    m += 1
                local_successor[t] = position[j]
                transition_of[t] = e
                t += 1
            r += 1
            local_row_ptr[r] = t
        local_state_ptr[i + 1] = r
    for i in range(n):
        position[states[i]] = -1
    for i in range(m):
        position[exits[i]] = -1
    return local_state_ptr, local_row_ptr, local_successor, row_of, transition_of, exits[:m].copy()
