"""Compiled support queries of ellipsoids: one formula, its rounding subtracted."""

from __future__ import annotations

import numpy as np

from rpl_agent.compiled import njit

UNIT_ROUNDOFF = 2.0**-53


@njit(cache=True)
def support_ellipsoid(center, factor, radius, direction):
    """A certified lower bound of min c.x over {center + radius * factor z : |z| <= 1}.

    Parameters
    ----------
    center : (n,) float64
    factor : (n, n) float64
        L with H^-1 <= L L' in the order of symmetric matrices (the Ellipsoid class sees to it).
    radius : float
    direction : (n,) float64
    """
    n = direction.shape[0]
    total = 0.0
    size = 0.0
    squares = 0.0
    sizes = 0.0
    for j in range(n):
        term = direction[j] * center[j]
        total += term
        size += abs(term)
    for k in range(n):
        entry = 0.0
        entry_size = 0.0
        for j in range(n):
            term = factor[j, k] * direction[j]
            entry += term
            entry_size += abs(term)
        squares += entry * entry
        sizes += entry_size * entry_size
    total -= radius * np.sqrt(squares)
    size += radius * np.sqrt(sizes)
    return total - (4.0 * n + 16.0) * UNIT_ROUNDOFF * size - 1e-300


@njit(cache=True)
def support_ellipsoid_many(center, factor, radius, directions, out):
    """``out[i]`` = bound for ``directions[i]``."""
    for i in range(directions.shape[0]):
        out[i] = support_ellipsoid(center, factor, radius, directions[i])
