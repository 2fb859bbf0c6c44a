"""Compiled support queries of ellipsoids: one formula, its rounding subtracted."""

from __future__ import annotations

import numpy as np

from rpl_agent.jit import SAFE_SQUARES, UNIT_ROUNDOFF, Floats, njit


@njit(allocates=False)
def _small_norm(factor: Floats, direction: Floats, sizes: float) -> float:
    """|factor' direction| where squares underflow; ``sizes`` is at least as large."""
    n = direction.shape[0]
    squares = 0.0
    for j in range(n):
        entry = 0.0
        for k in range(n):
            entry += factor[k, j] * direction[k]
        entry /= sizes
        squares += entry * entry
    return sizes * np.sqrt(squares)


@njit(part=True)
def support_ellipsoid(center: Floats, factor: Floats, radius: float, direction: Floats) -> float:
    """A certified lower bound of min c.x over {center + radius * factor z : |z| <= 1}.

    Part of every row of a sweep: no call, one square root; the rounding of the norm is bounded by a sum.

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
        entry = 0.0
        for k in range(n):
            term = factor[k, j] * direction[k]
            entry += term
            sizes += abs(term)
        squares += entry * entry
    norm = np.sqrt(squares)
    if squares < SAFE_SQUARES and sizes > 0.0:
        norm = _small_norm(factor, direction, sizes)
    total -= radius * norm
    return total - (4.0 * n + 16.0) * UNIT_ROUNDOFF * (size + radius * sizes) - 1e-300
