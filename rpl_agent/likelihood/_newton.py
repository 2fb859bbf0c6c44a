"""Compiled Newton iterations for `fit`: arrays in, ``out`` arrays written.

A chart is given by ``exponents`` (m, k) and ``matrix`` (r, m): x = matrix @ Π_j z_j ** exponents[:, j]; with
m = 0 it is the identity. ``A`` (rows, k), ``b`` are the domain's rows.
"""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np

from rpl_agent.jit import UNIT_ROUNDOFF, Floats, Ints, njit
from rpl_agent.likelihood._sums import half_form, taylor

#: steps on a ray towards the boundary of a set that is almost an ellipsoid
RAY_STEPS = 5


@njit(allocates=False)
def coordinates(z: Floats, exponents: Ints, matrix: Floats, out: Floats) -> None:
    """out (r,) = x(z)."""
    if len(exponents) == 0:
        for c in range(len(out)):
            out[c] = z[c]
        return
    for c in range(len(out)):
        out[c] = 0.0
    for i in range(len(exponents)):
        monomial = 1.0
        for j in range(len(z)):
            for _ in range(exponents[i, j]):
                monomial *= z[j]
        for c in range(len(out)):
            out[c] += matrix[c, i] * monomial


@njit(allocates=False)
def coordinates_many(z: Floats, exponents: Ints, matrix: Floats, out: Floats) -> None:
    """out (n, r) = x(z) for each of the points (n, k)."""
    for i in range(len(z)):
        coordinates(z[i], exponents, matrix, out[i])


@njit(allocates=False)
def jacobian(z: Floats, exponents: Ints, matrix: Floats, out: Floats) -> None:
    """out (r, k) = ∂x/∂z."""
    out[:] = 0.0
    if len(exponents) == 0:
        for j in range(len(z)):
            out[j, j] = 1.0
        return
    for i in range(len(exponents)):
        for j in range(len(z)):
            if exponents[i, j] == 0:
                continue
            slope = float(exponents[i, j])
            for l in range(len(z)):
                for _ in range(exponents[i, l] - (1 if l == j else 0)):
                    slope *= z[l]
            for c in range(len(out)):
                out[c, j] += matrix[c, i] * slope


@njit()
def velocities(z: Floats, t: Floats, rays: Floats, exponents: Ints, matrix: Floats, out: Floats) -> None:
    """out (n, r) = d/dt x(z + t·ray) for each ray (n, k) at its t (n,)."""
    slopes, place = np.empty((out.shape[1], len(z))), np.empty(len(z))
    for i in range(len(rays)):
        for j in range(len(z)):
            place[j] = z[j] + t[i] * rays[i, j]
        jacobian(place, exponents, matrix, slopes)
        for c in range(out.shape[1]):
            out[i, c] = 0.0
            for j in range(len(z)):
                out[i, c] += slopes[c, j] * rays[i, j]


@njit(allocates=False)
def penalised(
    z: Floats,
    A: Floats,
    b: Floats,
    barrier: float,
    exponents: Ints,
    matrix: Floats,
    constant: Floats,
    weights: Floats,
    counts: Floats,
    x: Floats,
) -> float:
    """−Σ K_f ln f[x(z)] − barrier Σ ln(b − A z), inf outside; x (r,) is written."""
    value = 0.0
    for i in range(len(b)):
        slack = b[i]
        for j in range(len(z)):
            slack -= A[i, j] * z[j]
        if slack <= 0.0:
            return np.inf
        value -= barrier * log(slack)
    coordinates(z, exponents, matrix, x)
    for f in range(len(constant)):
        probability = constant[f]
        for c in range(len(x)):
            probability += weights[f, c] * x[c]
        if probability <= 0.0:
            return np.inf
        value -= counts[f] * log(probability)
    return value


@njit()
def derivatives(
    z: Floats,
    A: Floats,
    b: Floats,
    barrier: float,
    exponents: Ints,
    matrix: Floats,
    constant: Floats,
    weights: Floats,
    counts: Floats,
    x: Floats,
    gradient: Floats,
    information: Floats,
    precision: Floats,
) -> None:
    """Gradient (k,) of `penalised`, likelihood curvature (k, k) and curvature with the barrier at an interior z."""
    k, r = len(z), len(x)
    in_x, curvature = np.zeros(r), np.zeros((r, r))
    for f in range(len(constant)):
        probability = constant[f]
        for c in range(r):
            probability += weights[f, c] * x[c]
        first = counts[f] / probability
        second = first / probability
        for c in range(r):
            in_x[c] -= first * weights[f, c]
            for d in range(c + 1):
                curvature[c, d] += second * weights[f, c] * weights[f, d]
    for c in range(r):
        for d in range(c):
            curvature[d, c] = curvature[c, d]
    if len(exponents) == 0:
        for i in range(k):
            gradient[i] = in_x[i]
            for j in range(k):
                information[i, j] = curvature[i, j]
    else:
        slopes = np.empty((r, k))
        jacobian(z, exponents, matrix, slopes)
        gradient[:] = 0.0
        information[:] = 0.0
        for i in range(k):
            for c in range(r):
                gradient[i] += slopes[c, i] * in_x[c]
            for j in range(k):
                for c in range(r):
                    for d in range(r):
                        information[i, j] += slopes[c, i] * curvature[c, d] * slopes[d, j]
    for i in range(k):
        for j in range(k):
            precision[i, j] = information[i, j]
    for i in range(len(b)):
        slack = b[i]
        for j in range(k):
            slack -= A[i, j] * z[j]
        for j in range(k):
            gradient[j] += barrier * A[i, j] / slack
            for l in range(k):
                precision[j, l] += barrier * A[i, j] * A[i, l] / slack**2


@njit(allocates=False)
def cholesky(matrix: Floats, factor: Floats) -> bool:
    """Lower triangle of ``factor`` (k, k) with factor factor' = matrix; False where the matrix is not positive.

    Plain loops: for a handful of coordinates the threads of a linear algebra library cost more than the work.
    """
    positive = True
    for i in range(len(matrix)):
        for j in range(i + 1):
            total = matrix[i, j]
            for l in range(j):
                total -= factor[i, l] * factor[j, l]
            if i == j:
                positive = positive and 0.0 < total < np.inf
                factor[i, i] = sqrt(max(total, 1e-300))
            else:
                factor[i, j] = total / factor[j, j]
    return positive


@njit()
def inverse_factor(matrix: Floats, out: Floats) -> bool:
    """out (k, k) = the inverse of the Cholesky factor, zeros above its diagonal; False where there is none."""
    k = len(matrix)
    factor = np.empty((k, k))
    positive = cholesky(matrix, factor)
    for j in range(k):
        for i in range(k):
            total = 1.0 if i == j else 0.0
            for l in range(j, i):
                total -= factor[i, l] * out[l, j]
            out[i, j] = total / factor[i, i] if i >= j else 0.0
    return positive


@njit()
def factor_defect(matrix: Floats, factor: Floats) -> float:
    """e ≥ |F M F' − I| for an inverse factor F of a matrix M, so that M⁻¹ ≤ F'F / (1 − e), whatever its condition."""
    r = len(matrix)
    row, sizes = np.empty(r), np.empty(r)
    total, size = 0.0, 0.0
    for i in range(r):
        for j in range(r):
            row[j], sizes[j] = 0.0, 0.0
            for k in range(i + 1):
                row[j] += factor[i, k] * matrix[k, j]
                sizes[j] += abs(factor[i, k] * matrix[k, j])
        for j in range(r):
            entry = -1.0 if i == j else 0.0
            for k in range(j + 1):
                entry += row[k] * factor[j, k]
                size += sizes[k] * abs(factor[j, k])
            total += entry * entry
    return sqrt(total) * (1.0 + 1e-9) + (2.0 * r + 16.0) * UNIT_ROUNDOFF * (size + r)


@njit(allocates=False)
def solve_positive(matrix: Floats, right: Floats, factor: Floats, out: Floats) -> None:
    """out = matrix⁻¹ right for a positive definite matrix, by Cholesky in ``factor`` (scratch, k × k)."""
    k = len(right)
    cholesky(matrix, factor)
    for i in range(k):
        total = right[i]
        for l in range(i):
            total -= factor[i, l] * out[l]
        out[i] = total / factor[i, i]
    for i in range(k - 1, -1, -1):
        total = out[i]
        for l in range(i + 1, k):
            total -= factor[l, i] * out[l]
        out[i] = total / factor[i, i]


@njit()
def newton(
    z: Floats,
    A: Floats,
    b: Floats,
    barrier: float,
    exponents: Ints,
    matrix: Floats,
    constant: Floats,
    weights: Floats,
    counts: Floats,
    steps: int,
    tolerance: float,
    x: Floats,
    information: Floats,
    precision: Floats,
) -> float:
    """Damped Newton from an interior z, which is overwritten; returns the last predicted decrease."""
    k = len(z)
    gradient, step, candidate, factor = np.empty(k), np.empty(k), np.empty(k), np.empty((k, k))
    value = penalised(z, A, b, barrier, exponents, matrix, constant, weights, counts, x)
    derivatives(z, A, b, barrier, exponents, matrix, constant, weights, counts, x, gradient, information, precision)
    decrease = np.inf
    for _ in range(steps):
        solve_positive(precision, gradient, factor, step)
        decrease = 0.0
        for i in range(k):
            decrease += gradient[i] * step[i]
        if decrease < tolerance:
            break
        length = 1.0
        moved = False
        while length > 1e-12:
            for i in range(k):
                candidate[i] = z[i] - length * step[i]
            trial = penalised(candidate, A, b, barrier, exponents, matrix, constant, weights, counts, x)
            if trial <= value - 1e-4 * length * decrease:
                moved = True
                break
            length *= 0.5
        if not moved:  # rounding: no further decrease can be resolved
            break
        for i in range(k):
            z[i] = candidate[i]
        value = trial
        derivatives(z, A, b, barrier, exponents, matrix, constant, weights, counts, x, gradient, information, precision)
    coordinates(z, exponents, matrix, x)
    return decrease


@njit()
def likelihood_bounds(
    points: Floats,
    center: Floats,
    near: Floats,
    exponents: Ints,
    matrix: Floats,
    x: Floats,
    j: int,
    value: Floats,
    linear: Floats,
    quadratic: Floats,
    cubic: Floats,
    metric: Floats,
    ratio: float,
    reach: float,
    rounding: Floats,
    out: Floats,
) -> None:
    """out[i] ≥ g_j(x(z_i)) for points z (k, ·), from the Taylor coefficients (J, …) at x; inf beyond ``reach``.

    With e_f = b_f·(x(z) − x): −ln(1+e) ≤ −e + e²/2 − e³/3 + e⁴/(4(1−ε)) for |e| ≤ ε < 1, and ε² = ratio · step'
    metric step bounds every e_f², ε ≤ ½ within reach. ``rounding`` (r,) per unit of |step|. Points that the metric
    in z, ``near`` (k, k) at ``center`` (k,), puts well beyond reach are left out unseen.
    """
    step, aside = np.empty(len(x)), np.empty(len(center))
    for i in range(len(points)):
        out[i] = np.inf
        if len(exponents) == 0:
            for c in range(len(x)):
                step[c] = points[i, c] - x[c]
        else:
            for l in range(len(center)):
                aside[l] = points[i, l] - center[l]
            if half_form(near, aside) > 1.5 * reach:
                continue
            # `coordinates`, without its calls: they would cost more than the arithmetic
            for c in range(len(x)):
                step[c] = -x[c]
            for m in range(len(exponents)):
                monomial = 1.0
                for l in range(len(center)):
                    for _ in range(exponents[m, l]):
                        monomial *= points[i, l]
                for c in range(len(x)):
                    step[c] += matrix[c, m] * monomial
        distance = half_form(metric, step)
        if distance <= reach:
            error = 0.0
            for c in range(len(x)):
                error += rounding[c] * abs(step[c])
            largest = sqrt(max(ratio * distance, 0.0))
            third, form = taylor(step, j, value, linear, quadratic, cubic)
            out[i] = third + form * largest * largest / (4.0 * (1.0 - largest)) + error


@njit()
def ray_lengths(
    z: Floats,
    rays: Floats,
    longest: Floats,
    base: float,
    exponents: Ints,
    matrix: Floats,
    x: Floats,
    offsets: Floats,
    level: float,
    value: Floats,
    linear: Floats,
    quadratic: Floats,
    cubic: Floats,
    out: Floats,
    shares: Floats,
) -> None:
    """Move out[i] ≤ longest[i] to where the third-order model of G reaches the level on the ray z + t·ray.

    A guess for points near the boundary, nothing more; the model is that of all windows, arrays (J, …) at x, with
    value ``base`` < level there. It rises almost as t² does, which makes scaling t the right step. ``shares`` (k, J)
    are those of the windows there.
    """
    moved, place, step = np.empty(len(z)), np.empty(len(x)), np.empty(len(x))
    for i in range(len(rays)):
        for _ in range(RAY_STEPS):
            for c in range(len(z)):
                moved[c] = z[c] + out[i] * rays[i, c]
            coordinates(moved, exponents, matrix, place)
            for c in range(len(x)):
                step[c] = place[c] - x[c]
            total = 0.0
            for j in range(len(offsets)):
                third, form = taylor(step, j, value, linear, quadratic, cubic)
                # far away the cubic term bends the model down; half the square is a floor of what is sensible
                third = max(third, value[j] + 0.25 * form)
                shares[i, j] = exp(min(offsets[j] + third - level, 50.0))
                total += shares[i, j]
            rise = level + log(total) - base
            out[i] = min(out[i] * sqrt((level - base) / rise) if rise > 0.0 else 2.0 * out[i], longest[i])
            for j in range(len(offsets)):
                shares[i, j] /= total
