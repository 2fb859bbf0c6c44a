"""Compiled chains: parts of a model with both players fixed, and their linear systems."""

from __future__ import annotations

import numpy as np

from rpl_agent.jit import Floats, Ints, njit


@njit(nogil=True, allocates=False)
def row_means(
    values: Floats, gamma: float, row_ptr: Ints, successor: Ints, reward: Floats, p: Floats, q: Floats
) -> None:
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


@njit(nogil=True, allocates=False)
def assemble(
    rows: Ints,
    weights: Floats,
    values: Floats,
    gamma: float,
    offset: float,
    state_ptr: Ints,
    row_ptr: Ints,
    successor: Ints,
    reward: Floats,
    p: Floats,
    indptr: Ints,
    indices: Ints,
    data: Floats,
    rhs: Floats,
) -> int:
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


@njit(nogil=True)
def residual(indptr: Ints, indices: Ints, data: Floats, rhs: Floats, x: Floats) -> Floats:
    """(n,) rhs - A x of an assembled chain."""
    out = rhs.copy()
    for s in range(rhs.shape[0]):
        for e in range(indptr[s], indptr[s + 1]):
            out[s] -= data[e] * x[indices[e]]
    return out


@njit(nogil=True, allocates=False)
def relax_chain(
    indptr: Ints, indices: Ints, data: Floats, rhs: Floats, x: Floats, sweeps: int, tolerance: float
) -> int:
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


@njit(nogil=True)
def extract(
    states: Ints, position: Ints, state_ptr: Ints, row_ptr: Ints, successor: Ints, size: Ints
) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
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
