"""Compiled sums over observed expressions: likelihoods, their tangents and Taylor forms, and particles.

``constant`` (n,), ``weights`` (n, r) and ``counts`` (n,) or (J, n) are the fields of `Observations`.
"""

from __future__ import annotations

from math import exp, lgamma, log

import numpy as np

from rpl_agent.jit import Floats, Ints, njit


@njit()
def log_likelihoods(constant: Floats, weights: Floats, counts: Floats, points: Floats, out: Floats) -> None:
    """out[i, j] = g_j(x_i) = −Σ_f counts[j, f] ln(constant_f + weights_f·x_i), or inf outside its domain.

    ``constant`` (n,), ``weights`` (n, r), ``counts`` (J, n), ``points`` (k, r), ``out`` (k, J). Sums are
    plain: their rounding, bounded by `expansion.rounding`, is far below what moves a region.
    """
    columns = np.ascontiguousarray(weights.T)
    values, logarithms = np.empty(len(constant)), np.empty(len(constant))
    for i in range(points.shape[0]):
        _log_likelihoods_at(constant, columns, counts, points[i], values, logarithms, out[i])


@njit(allocates=False)
def _log_likelihoods_at(
    constant: Floats, columns: Floats, counts: Floats, point: Floats, values: Floats, logarithms: Floats, out: Floats
) -> None:
    """g_j at one point, and ``values`` (n,) of the expressions there and their logarithms (0 where there is none).

    ``columns`` (r, n) are the weights: loops over the expressions take several at a time.
    """
    n = len(constant)
    for f in range(n):
        values[f] = constant[f]
    for c in range(len(columns)):
        for f in range(n):
            values[f] += columns[c, f] * point[c]
    impossible = False
    for f in range(n):
        if values[f] > 0.0:
            logarithms[f] = log(values[f])
        else:
            logarithms[f] = 0.0
            impossible = True
    for j in range(len(counts)):
        out[j] = -np.dot(counts[j], logarithms)
        if impossible:
            for f in range(n):
                if values[f] <= 0.0 and counts[j, f] > 0.0:
                    out[j] = np.inf


@njit()
def tangents(
    constant: Floats,
    weights: Floats,
    counts: Floats,
    offsets: Floats,
    points: Floats,
    values: Floats,
    gradients: Floats,
    shares: Floats,
) -> None:
    """G = ln Σ_j e^{offsets_j + g_j} (k,), its gradient (k, r) and the share of each window (k, J) at points (k, r).

    Where G is infinite the gradient and the shares are 0.
    """
    windows, n = counts.shape
    columns = np.ascontiguousarray(weights.T)
    f_values, logarithms, mixed, terms = np.empty(n), np.empty(n), np.empty(n), np.empty(windows)
    for i in range(points.shape[0]):
        _log_likelihoods_at(constant, columns, counts, points[i], f_values, logarithms, terms)
        largest = -np.inf
        for j in range(windows):
            terms[j] += offsets[j]
            largest = max(largest, terms[j])
        gradients[i] = 0.0
        shares[i] = 0.0
        values[i] = largest
        if largest == np.inf:
            continue
        total = 0.0
        for j in range(windows):
            shares[i, j] = exp(terms[j] - largest)
            total += shares[i, j]
        values[i] += log(total)
        mixed[:] = 0.0
        for j in range(windows):
            shares[i, j] /= total
            for f in range(n):
                mixed[f] += shares[i, j] * counts[j, f]
        for f in range(n):
            mixed[f] = mixed[f] / f_values[f] if mixed[f] > 0.0 else 0.0
        for c in range(len(columns)):
            gradients[i, c] = -np.dot(columns[c], mixed)


@njit(allocates=False)
def rounding_size(constant: Floats, weights: Floats, counts: Floats, x: Floats) -> float:
    """Σ_f K_f (1 + |ln f[x]| + (2 + r) (|constant_f| + |weights_f|·|x|) / f[x])."""
    r = weights.shape[1]
    total = 0.0
    for f in range(len(constant)):
        value, terms = constant[f], abs(constant[f])
        for c in range(r):
            value += weights[f, c] * x[c]
            terms += abs(weights[f, c] * x[c])
        value = max(value, 1e-300)
        total += counts[f] * (1.0 + abs(log(value)) + (2.0 + r) * terms / value)
    return total


@njit()
def expand(
    constant: Floats,
    weights: Floats,
    counts: Floats,
    x: Floats,
    value: Floats,
    linear: Floats,
    quadratic: Floats,
    cubic: Floats,
    size: Floats,
) -> None:
    """Taylor coefficients of g_j, j = 0..J-1, at a point x where all expressions are positive.

    With b_f = weights_f / f[x]: ``value`` (J,) g_j, ``linear`` (J, r) −Σ K b, ``quadratic`` (J, r, r) Σ K b b',
    ``cubic`` (J, r, r, r) Σ K b b b, where only entries with c ≥ d ≥ e count and stand for all their permutations.
    ``size`` (r,) Σ K |b| of all windows, for rounding.
    """
    windows, r = counts.shape[0], weights.shape[1]
    slope, carry = np.empty(r), np.zeros(windows)
    value[:] = 0.0
    linear[:] = 0.0
    quadratic[:] = 0.0
    cubic[:] = 0.0
    size[:] = 0.0
    for f in range(len(constant)):
        probability = constant[f]
        for c in range(r):
            probability += weights[f, c] * x[c]
        logarithm = log(probability)
        for c in range(r):
            slope[c] = weights[f, c] / probability
        for j in range(windows):
            k = counts[j, f]
            if k == 0.0:
                continue
            term = -k * logarithm
            total = value[j] + term
            added = total - value[j]
            carry[j] += (value[j] - (total - added)) + (term - added)
            value[j] = total
            for c in range(r):
                first = k * slope[c]
                linear[j, c] -= first
                size[c] += abs(first)
                for d in range(c + 1):
                    second = first * slope[d]
                    quadratic[j, c, d] += second
                    for e in range(d + 1):
                        cubic[j, c, d, e] += second * slope[e]
    for j in range(windows):
        value[j] += carry[j]
        for c in range(r):
            for d in range(c + 1):
                quadratic[j, d, c] = quadratic[j, c, d]
                for e in range(d + 1):
                    if c > d and d > e:
                        cubic[j, c, d, e] *= 6.0
                    elif c > e:
                        cubic[j, c, d, e] *= 3.0


@njit(allocates=False)
def largest_ratio(constant: Floats, weights: Floats, x: Floats, factor: Floats) -> float:
    """max_f |factor b_f|², b_f = weights_f / f[x]."""
    r = weights.shape[1]
    largest = 0.0
    for f in range(len(constant)):
        probability, form = constant[f], 0.0
        for c in range(r):
            probability += weights[f, c] * x[c]
            entry = 0.0
            for d in range(r):
                entry += factor[c, d] * weights[f, d]
            form += entry * entry
        largest = max(largest, form / probability**2)
    return largest


@njit(part=True)
def taylor(
    step: Floats, j: int, value: Floats, linear: Floats, quadratic: Floats, cubic: Floats
) -> tuple[float, float]:
    """(third-order value, form step' quadratic step) of window j's g at a step (r,) from the centre."""
    form, third, first = 0.0, 0.0, 0.0
    for c in range(len(step)):
        seconds, thirds = 0.0, 0.0
        for d in range(c + 1):
            inner = 0.0
            for e in range(d + 1):
                inner += cubic[j, c, d, e] * step[e]
            seconds += quadratic[j, c, d] * step[d]
            thirds += inner * step[d]
        first += linear[j, c] * step[c]
        form += (2.0 * seconds - quadratic[j, c, c] * step[c]) * step[c]
        third += thirds * step[c]
    return value[j] + first + 0.5 * form - third / 3.0, form


@njit(part=True)
def half_form(matrix: Floats, step: Floats) -> float:
    """step' matrix step of a symmetric matrix."""
    total = 0.0
    for c in range(len(step)):
        inner = 0.0
        for d in range(c):
            inner += matrix[c, d] * step[d]
        total += (2.0 * inner + matrix[c, c] * step[c]) * step[c]
    return total


@njit()
def particles_inside(
    normals: Floats, longest2: float, mean: Floats, factor: Floats, A: Floats, b: Floats, out: Floats
) -> int:
    """Points mean + normals·factor (M, k) that satisfy A z ≤ b, written to the first rows of ``out``; their number.

    ``longest2`` is more than every |normal|²: rows that are further away than that from the mean need not be asked.
    """
    count, k = 0, len(mean)
    near = np.empty(len(b), np.bool_)
    for row in range(len(b)):
        room, width2 = b[row], 0.0
        for j in range(k):
            room -= A[row, j] * mean[j]
            moved = 0.0
            for l in range(k):
                moved += factor[j, l] * A[row, l]
            width2 += moved * moved
        near[row] = room <= 0.0 or room * room < longest2 * width2
    for i in range(len(normals)):
        for j in range(k):
            out[count, j] = mean[j]
        for l in range(k):
            for j in range(k):
                out[count, j] += normals[i, l] * factor[l, j]
        inside = True
        for row in range(len(b)):
            if not near[row]:
                continue
            total = 0.0
            for j in range(k):
                total += A[row, j] * out[count, j]
            if total > b[row]:
                inside = False
                break
        count += inside
    return count


@njit(allocates=False)
def exponential_sum(g: Floats) -> tuple[float, float]:
    """(least g, Σ e^{least − g}) of an array (n,); (inf, 0) where nothing is finite."""
    least = np.inf
    for value in g:
        least = min(least, value)
    total = 0.0
    if least < np.inf:
        for value in g:
            if value < np.inf:
                total += exp(least - value)
    return least, total


@njit(allocates=False)
def dirichlet_log_marginal(row_ptr: Ints, transitions: Ints) -> float:
    """ln Π_rows of the Dirichlet(½)-multinomial probability of the observed sequences of successors."""
    total = 0.0
    carry = 0.0
    half = lgamma(0.5)
    for r in range(len(row_ptr) - 1):
        n = 0
        for t in range(row_ptr[r], row_ptr[r + 1]):
            n += transitions[t]
        k = row_ptr[r + 1] - row_ptr[r]
        if n == 0 or k < 2:
            continue
        value = lgamma(0.5 * k) - lgamma(n + 0.5 * k)
        for t in range(row_ptr[r], row_ptr[r + 1]):
            if transitions[t] > 0:
                value += lgamma(transitions[t] + 0.5) - half
        summed = total + value
        if abs(total) >= abs(value):
            carry += (total - summed) + value
        else:
            carry += (value - summed) + total
        total = summed
    return total + carry
