"""Compiled loops over the products z_k = z_i z_j of a lifting: a handful of numbers each, many times per region."""

from __future__ import annotations

import numpy as np

from rpl_agent.jit import UNIT_ROUNDOFF, Floats, Ints, njit


@njit(allocates=False)
def _inequality(
    place: int,
    k: int,
    i: int,
    j: int,
    a: float,
    b: float,
    sign: float,
    lower: Floats,
    upper: Floats,
    rows: Floats,
    rhs: Floats,
) -> None:
    """sign * z_k <= sign * (a z_j + b z_i - a b), where z_i touches a and z_j touches b."""
    rows[place, k] += sign
    rows[place, j] -= sign * a
    rows[place, i] -= sign * b
    reach = max(abs(lower[i]), abs(upper[i]), abs(lower[j]), abs(upper[j]))
    rhs[place] = -sign * a * b + 4.0 * UNIT_ROUNDOFF * (abs(a * b) + (abs(a) + abs(b)) * reach)


@njit()
def mccormick(products: Ints, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """(rows, rhs) of McCormick's inequalities over bounds of z (n,), and a middle tangent for squares.

    ``products`` (p, 3) holds (k, i, j).
    """
    count = 4 * products.shape[0]
    for m in range(products.shape[0]):
        count += products[m, 1] == products[m, 2]
    rows, rhs = np.zeros((count, lower.shape[0])), np.zeros(count)
    at = 0
    for m in range(products.shape[0]):
        k, i, j = products[m]
        _inequality(at, k, i, j, lower[i], lower[j], -1.0, lower, upper, rows, rhs)
        _inequality(at + 1, k, i, j, upper[i], upper[j], -1.0, lower, upper, rows, rhs)
        _inequality(at + 2, k, i, j, upper[i], lower[j], 1.0, lower, upper, rows, rhs)
        _inequality(at + 3, k, i, j, lower[i], upper[j], 1.0, lower, upper, rows, rhs)
        at += 4
        if i == j:
            middle = 0.5 * (lower[i] + upper[i])
            _inequality(at, k, i, j, middle, middle, -1.0, lower, upper, rows, rhs)
            at += 1
    return rows, rhs


@njit(allocates=False)
def propagate(products: Ints, order: Ints, lower: Floats, upper: Floats) -> None:
    """Tighten bounds of z in place by z_k = z_i z_j in interval arithmetic, products in ``order``."""
    for m in order:
        k, i, j = products[m]
        a, b, c, d = lower[i] * lower[j], lower[i] * upper[j], upper[i] * lower[j], upper[i] * upper[j]
        low, high = min(a, b, c, d), max(a, b, c, d)
        if i == j:
            low = 0.0 if lower[i] <= 0.0 <= upper[i] else min(a, d)
        lower[k] = max(lower[k], np.nextafter(low, -np.inf))
        upper[k] = min(upper[k], np.nextafter(high, np.inf))
