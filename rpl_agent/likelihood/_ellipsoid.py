"""Compiled: the ellipsoid around a level set of the likelihood, its rounding paid for (see `level_set`).

Symbols: m the centre of the expansion, e_f = f[x]/f[m] − 1, g(x) = g(m) + ∇·(x−m) − Σ K_f (ln(1+e_f) − e_f),
u = 2**-53 the unit roundoff, r the number of coordinates, n of expressions.
"""

from __future__ import annotations

from math import log1p, sqrt

import numpy as np

from rpl_agent.jit import UNIT_ROUNDOFF, Floats, njit
from rpl_agent.likelihood._newton import factor_defect, inverse_factor

#: Bounds on expressions that move by less than this share do not move the ellipsoid.
SETTLED = 1e-4
#: Beyond this the data leave a direction unbounded, up to rounding: no ellipsoid.
MAX_CONDITION, MAX_DEFECT = 1e10, 0.1


@njit(allocates=False)
def curvature(excess: float) -> float:
    """φ(ε) = 2(ε − ln(1+ε))/ε², rounded down; φ(0) = 1."""
    if abs(excess) < 1e-3:
        value = 1.0 - excess * (2.0 / 3.0 - 0.5 * excess * (1.0 - 0.8 * excess))
    else:
        value = 2.0 * (excess - log1p(excess)) / (excess * excess)
    return value * (1.0 - 1e-9)


@njit()
def _lowered_hessian(weights: Floats, scale: Floats, H: Floats) -> None:
    """H (r, r) ≤ Σ scale_f w_f w_f' in the order of symmetric matrices, whatever rounding does to the sum.

    An entry is off by at most (n + 4) u Σ scale |w_i| |w_j|; a matrix of such errors is at most the diagonal of its
    absolute row sums, which is subtracted.
    """
    n, r = weights.shape
    H[:] = 0.0
    lost = np.zeros(r)
    for f in range(n):
        if scale[f] == 0.0:
            continue
        whole = 0.0
        for i in range(r):
            whole += abs(weights[f, i])
        for i in range(r):
            first = scale[f] * weights[f, i]
            lost[i] += abs(first) * whole
            for j in range(i + 1):
                H[i, j] += first * weights[f, j]
    for i in range(r):
        for j in range(i):
            H[j, i] = H[i, j]
        H[i, i] -= (2.0 * n + 16.0) * UNIT_ROUNDOFF * lost[i]


@njit()
def _norm(matrix: Floats) -> float:
    """The Frobenius norm."""
    total = 0.0
    for entry in matrix.ravel():
        total += entry * entry
    return sqrt(total)


@njit(allocates=False)
def _first_order(
    constant: Floats,
    weights: Floats,
    counts: Floats,
    m: Floats,
    values: Floats,
    doubt: Floats,
    upper: Floats,
    gradient: Floats,
) -> float:
    """f[m] into ``values``, relative errors of that into ``doubt``, ∇ (zero on entry); a bound on the error of ∇."""
    n, r = weights.shape
    error = 0.0
    for f in range(n):
        values[f], terms = constant[f], abs(constant[f])
        for c in range(r):
            values[f] += weights[f, c] * m[c]
            terms += abs(weights[f, c] * m[c])
        doubt[f] = (2.0 * r + 8.0) * UNIT_ROUNDOFF * terms / values[f]
        for c in range(r):
            first = counts[f] * weights[f, c] / values[f]
            gradient[c] -= first
            error += abs(first) * ((2.0 * n + 16.0) * UNIT_ROUNDOFF + 2.0 * doubt[f])
        upper[f] = max(upper[f], values[f] * (1.0 + doubt[f]))
    return error


@njit(allocates=False)
def _tighten(
    constant: Floats,
    weights: Floats,
    values: Floats,
    doubt: Floats,
    center: Floats,
    factor: Floats,
    radius: float,
    upper: Floats,
) -> float:
    """Lower ``upper`` (n,) to what the ellipsoid with factor H⁻¹ = factor'factor allows; the largest relative step."""
    n, r = weights.shape
    moved = 0.0
    for f in range(n):
        value, terms, form = constant[f], abs(constant[f]), 0.0
        for i in range(r):
            value += weights[f, i] * center[i]
            terms += abs(weights[f, i] * center[i])
            entry, size = 0.0, 0.0
            for j in range(i + 1):
                entry += factor[i, j] * weights[f, j]
                size += abs(factor[i, j] * weights[f, j])
            form += (abs(entry) + (2.0 * r + 4.0) * UNIT_ROUNDOFF * size) ** 2
        spread = radius * sqrt(form) * (1.0 + 1e-9)
        tighter = max(value + spread + (2.0 * r + 8.0) * UNIT_ROUNDOFF * terms, values[f] * (1.0 + doubt[f]))
        if tighter < upper[f]:
            moved = max(moved, (upper[f] - tighter) / upper[f])
            upper[f] = tighter
    return moved


@njit()
def enclose(
    constant: Floats,
    weights: Floats,
    counts: Floats,
    m: Floats,
    room: float,
    reach: float,
    upper: Floats,
    rounds: int,
    center: Floats,
    H: Floats,
) -> float:
    """Radius² of {(x−c)'H(x−c) ≤ r²}, which holds every x with g(x) ≤ g(m) + room and f[x] ≤ upper; −1 if unbounded.

    Parameters
    ----------
    constant, weights, counts : (n,), (n, r), (n,) with K_f > 0
    m : (r,)
    reach : float
        Bound on |x − m| over the domain, which the rounding of the gradient is paid with.
    upper : (n,)
        Overwritten: the ellipsoid bounds every f, which makes the next one smaller.
    center, H : (r,), (r, r)
        Written.

    With any d and c = m − d, the quadratic ½(x−m)'H(x−m) + ∇·(x−m) ≤ room reads ½ y² − ρ·(x−c) ≤ K, where
    y² = (x−c)'H(x−c), ρ = Hd − ∇ is small if d ≈ H⁻¹∇, and K = room − ½ d'Hd + ∇·d. So y ≤ p + √(p² + 2K) for any
    p ≥ √(ρ'H⁻¹ρ): d need not be exact.
    """
    n, r = weights.shape
    values, doubt, scale = np.empty(n), np.empty(n), np.empty(n)
    gradient = np.zeros(r)
    room += reach * _first_order(constant, weights, counts, m, values, doubt, upper, gradient)
    factor, step, half = np.empty((r, r)), np.empty(r), np.empty(r)
    radius2 = -1.0
    for _ in range(rounds):
        for f in range(n):
            scale[f] = 0.0  # no curvature is sound, and all that is known where rounding is as large as the value
            if doubt[f] < 0.25:
                excess = upper[f] / (values[f] * (1.0 - doubt[f])) - 1.0
                scale[f] = counts[f] * curvature(excess) * (1.0 - 2.0 * doubt[f]) / (values[f] * values[f])
        _lowered_hessian(weights, scale, H)
        if not inverse_factor(H, factor):
            return -1.0
        defect = factor_defect(H, factor)
        if not (defect < MAX_DEFECT and _norm(H) * _norm(factor) ** 2 < MAX_CONDITION):
            return -1.0
        enlarged = 1.0 / sqrt(1.0 - defect)
        for i in range(r):
            half[i] = 0.0
            for j in range(i + 1):
                half[i] += factor[i, j] * gradient[j]
        for i in range(r):
            step[i] = 0.0
            for j in range(i, r):
                step[i] += factor[j, i] * half[j]
            center[i] = m[i] - step[i]
        quadratic, linear, sizes = 0.0, 0.0, 0.0
        for i in range(r):
            rest, terms = -gradient[i], abs(gradient[i])
            for j in range(r):
                rest += H[i, j] * step[j]
                terms += abs(H[i, j] * step[j])
            quadratic += (rest + gradient[i]) * step[i]
            linear += gradient[i] * step[i]
            sizes += terms * abs(step[i])
            # the rounding of the centre moves m − d as a change of d would
            for j in range(r):
                terms += abs(H[i, j]) * abs(m[j])
            half[i] = abs(rest) + (2.0 * r + 8.0) * UNIT_ROUNDOFF * terms
        off = 0.0
        for i in range(r):
            entry = 0.0
            for j in range(i + 1):
                entry += abs(factor[i, j]) * half[j]
            off += entry * entry
        off = sqrt(off) * enlarged * (1.0 + 1e-9)
        constant_term = room - 0.5 * quadratic + linear + (4.0 * r + 16.0) * UNIT_ROUNDOFF * sizes
        radius = (off + sqrt(max(off * off + 2.0 * constant_term, 0.0))) * (1.0 + 1e-12)
        radius2 = radius * radius
        moved = _tighten(constant, weights, values, doubt, center, factor, radius * enlarged, upper)
        if moved < SETTLED:
            break
    return radius2 * (1.0 + 1e-12)
