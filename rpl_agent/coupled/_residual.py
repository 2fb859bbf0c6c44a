"""Compiled residuals of affine value functions: by how much a row can miss its Bellman inequality on the unit ball.

Symbols
-------
U(s, y) = u(s) + g(s)·y     the affine function; ``here`` for the state itself, ``next`` for its successors
p + β·y                     the probability of a transition, up to an error per expression (`Frame.split`)
γ                           the discount

The residual of a row, written with differences because the probabilities of a row sum to 1 for the true parameters:

    (T U − U)(s, y) = reward − (1 − γ) U(s, y) + γ Σ_i (p_i + β_i·y) (U(i, y) − U(s, y)) = a + l·y + y'My,

    a = reward − (1 − γ) u(s) + γ Σ p_i D_i,          D_i = u(i) − u(s)
    l = −(1 − γ) g(s) + γ Σ (D_i β_i + p_i Γ_i),       Γ_i = g(i) − g(s)
    M = γ sym Σ β_i Γ_i'.

On |y| ≤ 1 it is at most a + |l| + max(λ, 0), λ the largest eigenvalue of M. With m = tr M / r and s² = |M|²/r − m²
(Frobenius), λ ≤ m + s √(r − 1) (Wolkowicz and Styan), with equality for r ≤ 2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rpl_agent.jit import FAINT, SAFE_SQUARES, UNIT_ROUNDOFF, Floats, Ints, njit


class Groups(NamedTuple):
    """Rows that are judged together: one row each where the agent is free, a state's rows with their weights where not.

    Attributes
    ----------
    ptr : (n+1,) int64
        Group k has the rows ptr[k]:ptr[k+1].
    state : (n,) int32
    weights : (R,) float64
        Rows of weight 0 are not played.
    """

    ptr: np.ndarray
    state: np.ndarray
    weights: np.ndarray


class Chances(NamedTuple):
    """Transitions, and the affine functions of y that their probabilities are (see `Frame.split`)."""

    row_ptr: np.ndarray
    successor: np.ndarray
    expression: np.ndarray
    p: np.ndarray
    slope: np.ndarray
    error: np.ndarray


class Rule(NamedTuple):
    """The discount; 1.0 for upper functions and −1.0 for lower ones; what is added to a raise, negative: no raise."""

    gamma: float
    sign: float
    margin: float


class Functions(NamedTuple):
    """Affine functions u + g·y of the states themselves and of their successors."""

    u: np.ndarray  # (S,)
    g: np.ndarray  # (S, r)
    next_u: np.ndarray
    next_g: np.ndarray


class ResidualScratch(NamedTuple):
    l: np.ndarray  # (r,)
    M: np.ndarray  # (r, r)


@njit(part=True)
def _largest_eigenvalue(M: Floats) -> float:
    """An upper bound of the largest eigenvalue of M (r, r), symmetric, rounding included."""
    r = M.shape[0]
    trace = 0.0
    square = 0.0
    size = 0.0
    for j in range(r):
        trace += M[j, j]
        for k in range(r):
            square += M[j, k] * M[j, k]
            size += abs(M[j, k])
    if square < SAFE_SQUARES:  # squares underflow: the sum of all sizes is a bound
        return size * (1.0 + 32.0 * r * UNIT_ROUNDOFF)
    mean = trace / r
    spread = square / r - mean * mean + 32.0 * r * UNIT_ROUNDOFF * square
    return mean + np.sqrt(max(spread, 0.0) * (r - 1.0)) + 32.0 * r * UNIT_ROUNDOFF * np.sqrt(square)


@njit(part=True)
def _curvature(k: int, groups: Groups, chances: Chances, scale: float, g: Floats, next_g: Floats, M: Floats) -> None:
    """M = scale · sym Σ β_i Γ_i' of group k."""
    r = M.shape[0]
    M[:, :] = 0.0
    for row in range(groups.ptr[k], groups.ptr[k + 1]):
        weight = groups.weights[row] * scale
        if weight == 0.0:
            continue
        for t in range(chances.row_ptr[row], chances.row_ptr[row + 1]):
            f = chances.expression[t]
            i = chances.successor[t]
            for j in range(r):
                b = 0.5 * weight * chances.slope[f, j]
                for n in range(r):
                    M[j, n] += b * (next_g[i, n] - g[n])
    for j in range(r):
        M[j, j] *= 2.0
        for n in range(j):
            both = M[j, n] + M[n, j]
            M[j, n] = both
            M[n, j] = both


@njit(part=True)
def _residual(
    k: int,
    groups: Groups,
    chances: Chances,
    reward: Floats,
    gamma: float,
    sign: float,
    u: float,
    g: Floats,
    next_u: Floats,
    next_g: Floats,
    l: Floats,
    M: Floats,
) -> float:
    """A number ≥ sign · (T U − U) of group k for all |y| ≤ 1, with U(s, y) = u + g·y; l and M are scratch."""
    r = g.shape[0]
    left = 1.0 - gamma
    a = -left * u
    size = left * abs(u)
    unknown = 0.0
    curve = 0.0
    terms = 0
    for j in range(r):
        l[j] = -left * g[j]
        size += abs(l[j])
    for row in range(groups.ptr[k], groups.ptr[k + 1]):
        weight = groups.weights[row]
        if weight == 0.0:
            continue
        a += weight * reward[row]
        size += abs(weight * reward[row])
        for t in range(chances.row_ptr[row], chances.row_ptr[row + 1]):
            f = chances.expression[t]
            i = chances.successor[t]
            terms += 1
            p = gamma * weight * chances.p[f]
            D = next_u[i] - u
            a += p * D
            slope = 0.0
            turn = 0.0
            for j in range(r):
                b = gamma * weight * chances.slope[f, j]
                G = next_g[i, j] - g[j]
                l[j] += D * b + p * G
                slope += abs(b)
                turn += abs(G)
            unknown += (abs(D) + turn) * chances.error[f] * weight
            size += (abs(D) + turn) * (abs(p) + slope)
            curve += slope * turn
    square = 0.0
    norm = 0.0
    for j in range(r):
        square += l[j] * l[j]
        norm += abs(l[j])
    if square >= SAFE_SQUARES:  # below, squares underflow: the sum of all sizes is a bound
        norm = np.sqrt(square)
    norm *= 1.0 + (r + 4.0) * UNIT_ROUNDOFF
    rounding = (2.0 * terms + 6.0 * r + 24.0) * UNIT_ROUNDOFF * size + 2.0 * unknown
    if size > 0.0:  # products may underflow
        rounding += UNIT_ROUNDOFF * FAINT
    rounding += 4.0 * UNIT_ROUNDOFF * (abs(a) + norm + curve)
    # `curve` bounds the quadratic term well enough for actions that are far from the best.
    if sign * a + norm + rounding + curve > 0.0:
        _curvature(k, groups, chances, gamma * sign, g, next_g, M)
        curve = max(_largest_eigenvalue(M), 0.0)
    return sign * a + norm + curve + rounding


@njit(nogil=True, allocates=False)
def residuals(
    order: Ints,
    first: Ints,
    groups: Groups,
    chances: Chances,
    reward: Floats,
    rule: Rule,
    functions: Functions,
    scratch: ResidualScratch,
    out: Floats,
) -> None:
    """``out[s]`` ≥ sign · (T U − U) of all groups first[s]:first[s + 1] of state s, for all |y| ≤ 1; rounding included.

    A value ≤ 0 proves the inequality of the state. With ``rule.margin`` ≥ 0 a state that misses it is raised on the
    spot, by as much and the margin, and ``out`` is what it was raised by: the least slack where ``order`` has
    successors first and they are functions of one number of steps (γ = 1).

    Parameters
    ----------
    order : (n,) int64
    first : (S+1,) int64
    reward : (R,) float64
    """
    sign = rule.sign
    for s in order:
        worst = -np.inf
        for k in range(first[s], first[s + 1]):
            missed = _residual(
                k, groups, chances, reward, rule.gamma, sign, functions.u[s], functions.g[s], functions.next_u,
                functions.next_g, scratch.l, scratch.M,
            )  # fmt: skip
            worst = max(worst, missed)
        out[s] = worst
        if rule.margin >= 0.0:
            # Raising u(s) lowers the residuals of s by as much, up to rounding, which the margin covers.
            out[s] = worst * (1.0 + 1e-12) + rule.margin if worst > 0.0 else 0.0
            functions.u[s] += sign * out[s]


@njit(nogil=True, allocates=False)
def expand_backward(
    order: Ints,
    state_ptr: Ints,
    groups: Groups,
    chances: Chances,
    reward: Floats,
    sense: float,
    v: Floats,
    g: Floats,
    rows: Ints,
) -> None:
    """Values v (S,) and gradients g (S, r) of states in an order in which successors come first, none of them twice.

    Of the weighted rows of each state, or, with sense ±1.0 (0.0: none), of its best row, which ``rows`` (S,) then gets.
    """
    r = g.shape[1]
    for s in order:
        best = -np.inf
        for row in range(state_ptr[s], state_ptr[s + 1]):
            weight = groups.weights[row]
            if sense != 0.0:
                weight = 1.0
            if weight == 0.0:
                continue
            q = reward[row]
            for t in range(chances.row_ptr[row], chances.row_ptr[row + 1]):
                q += chances.p[chances.expression[t]] * v[chances.successor[t]]
            if sense != 0.0 and sense * q > best:
                best = sense * q
                rows[s] = row
                v[s] = q
            elif sense == 0.0:
                v[s] += weight * q
        for row in range(state_ptr[s], state_ptr[s + 1]):
            weight = groups.weights[row] if sense == 0.0 else 1.0 if row == rows[s] else 0.0
            if weight == 0.0:
                continue
            for t in range(chances.row_ptr[row], chances.row_ptr[row + 1]):
                f = chances.expression[t]
                i = chances.successor[t]
                for j in range(r):
                    g[s, j] += weight * (chances.slope[f, j] * v[i] + chances.p[f] * g[i, j])
