"""Compiled second half of the Bellman operator: row expectations to row totals, row totals to states.

Rounding is directed: ``upward`` False gives numbers <= the exact ones, True numbers >= them. Beyond the largest float a
bound from above is inf, one from below the largest float.
"""

from __future__ import annotations

import numpy as np

from rpl_agent.jit import FAINT, UNIT_ROUNDOFF, Bools, Floats, Ints, njit
from rpl_agent.solver._bellman import FIXED_AGENT, MAX_AGENT, paid

LARGEST = np.finfo(np.float64).max


@njit(allocates=False)
def _rounded(value: float, error: float, upward: bool) -> float:
    """value moved by error to the side asked for; overflow stays a bound."""
    if value == np.inf and not upward:
        value = LARGEST
    if value == -np.inf and upward:
        value = -LARGEST
    return value + error if upward else value - error


@njit(nogil=True, allocates=False)
def row_totals(q: Floats, reward: Floats, gamma: float, upward: bool, out: Floats) -> None:
    """out (k,) = bounds of reward + gamma * q, for row expectations q (k,) that may be infinite.

    What is not a number (a sum that overflowed) says nothing: a bound that the agent's choice cannot pass over.
    """
    for i in range(q.shape[0]):
        total = q[i]
        if total != total:
            total = np.inf if upward else -np.inf
        if abs(total) < np.inf and (reward[i] != 0.0 or (gamma != 1.0 and total != 0.0)):
            sum_of_both = reward[i] + gamma * total
            total = paid(total, reward[i], gamma, 1.0 if upward else -1.0)  # to the last bit what a sweep says
            if not abs(total) < np.inf:
                total = _rounded(sum_of_both, 9.0 * UNIT_ROUNDOFF * LARGEST, upward)
        out[i] = total


@njit(allocates=False)
def _drawn(a: int, b: int, totals: Floats, weights: Floats, upward: bool) -> float:
    """Bound of the mean of totals a..b under weights: base + sum of w (total - base), terms of one sign.

    A mean lies between the least and the largest of its terms, whatever rounding says.
    """
    base = np.inf
    most = -np.inf
    count = 0
    for i in range(a, b):
        if weights[i] > 0.0:
            base = min(base, totals[i])
            most = max(most, totals[i])
            count += 1
    if base == most or base == -np.inf:
        return base
    if most == np.inf:
        return most
    extra = 0.0
    for i in range(a, b):
        if weights[i] > 0.0:
            extra += weights[i] * (totals[i] - base)
    extra = min(extra, LARGEST)
    result = base + extra
    size = min(abs(result), LARGEST)
    result = _rounded(result, UNIT_ROUNDOFF * ((2.0 * count + 8.0) * extra + 2.0 * size + FAINT), upward)
    return min(result, most) if upward else max(result, base)


@njit(nogil=True, allocates=False)
def state_images(totals: Floats, state_ptr: Ints, agent: int, weights: Floats, upward: bool, out: Floats) -> None:
    """out (k,) = what the agent makes of the totals of its rows.

    Parameters
    ----------
    totals : (rows,) float64
    state_ptr : (k+1,) int64
        Rows state_ptr[i]..state_ptr[i+1] belong to state i.
    agent : int
        MAX_AGENT, MIN_AGENT, or FIXED_AGENT to draw rows by ``weights`` (rows,), which sum to 1 in every state up to
        a relative error of (rows + 2) u each.
    """
    for i in range(out.shape[0]):
        a, b = state_ptr[i], state_ptr[i + 1]
        if agent == FIXED_AGENT:
            out[i] = _drawn(a, b, totals, weights, upward)
            continue
        best = totals[a]
        for row in range(a + 1, b):
            if (totals[row] > best) == (agent == MAX_AGENT):
                best = totals[row]
        out[i] = best


@njit(nogil=True, allocates=False)
def runs_forward(members: Bools, usable: Ints, state_ptr: Ints, row_ptr: Ints, successor: Ints) -> bool:
    """Whether plays within ``members`` (S,) by rows with usable (R,) == 2 only move to larger numbers: none stays."""
    for s in range(state_ptr.shape[0] - 1):
        if not members[s]:
            continue
        for row in range(state_ptr[s], state_ptr[s + 1]):
            if usable[row] != 2:
                continue
            for t in range(row_ptr[row], row_ptr[row + 1]):
                if successor[t] <= s and members[successor[t]]:
                    return False
    return True
