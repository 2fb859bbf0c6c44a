"""Ranges of polynomials over boxes of parameters, moved outward past rounding."""

from __future__ import annotations

import itertools
from math import comb

import numpy as np

from rpl_agent.jit import UNIT_ROUNDOFF
from rpl_agent.model.expressions import ExpressionTable

#: tensor Bernstein coefficients up to this many per expression; beyond, monomials are bounded one by one
MAX_BERNSTEIN = 4096
#: expressions in one block
BATCH = 100_000


def range_on_box(table: ExpressionTable, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (F,) of every expression over a box of parameters, cut with [0, 1].

    The least and the largest Bernstein coefficient enclose a polynomial on a box; for affine and multilinear
    expressions they are the values at corners, so the bounds are exact.

    Parameters
    ----------
    lower, upper : (d,) float64
    """
    degrees = np.zeros(0, dtype=int) if table.is_affine else table.monomials.max(axis=0, initial=0)
    if table.is_affine:
        low, high = _affine_range(table, lower, upper)
    elif np.prod(degrees + 1.0) <= MAX_BERNSTEIN:
        low, high = _bernstein_range(table, lower, upper, degrees)
    else:
        low, high = _monomial_range(table, lower, upper)
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


def _affine_range(table: ExpressionTable, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    columns = np.arange(len(lower)) if table.is_plain else table.monomials[1:].argmax(axis=1)
    weights = table.coefficients[:, np.arange(1, table.num_monomials)]
    low, high = lower[columns], upper[columns]
    positive, negative = weights.maximum(0), weights.minimum(0)
    slack = _slack(table, np.maximum(np.abs(low), np.abs(high)))
    least = table.constant + positive @ low + negative @ high
    most = table.constant + positive @ high + negative @ low
    constant = table.is_constant
    return np.where(constant, table.constant, least - slack), np.where(constant, table.constant, most + slack)


def _bernstein_range(
    table: ExpressionTable, lower: np.ndarray, upper: np.ndarray, degrees: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    # Per parameter: theta**p = (lower + width t)**p in the Bernstein basis of degree n_j on [0, 1].
    tables = []
    for lo, hi, n in zip(lower, upper, degrees.tolist()):
        width = hi - lo
        powers = np.zeros((n + 1, n + 1))  # powers[p, i]: coefficient i of theta**p
        for p in range(n + 1):
            for i in range(n + 1):
                powers[p, i] = sum(
                    comb(p, q) * lo ** (p - q) * width**q * comb(i, q) / comb(n, q) for q in range(min(i, p) + 1)
                )
        tables.append(powers)
    basis = np.ones((len(table.monomials), 1))
    for j, powers in enumerate(tables):
        basis = (basis[:, :, None] * powers[table.monomials[:, j]][:, None, :]).reshape(len(basis), -1)
    reach = np.maximum(np.abs(lower), np.abs(upper))
    sizes = np.prod((3.0 * reach) ** table.monomials, axis=1)  # also covers lo and width of mixed signs
    slack = _slack(table, sizes[1:]) * (1 + table.degree)
    least, most = np.empty(len(table)), np.empty(len(table))
    for first in range(0, len(table), BATCH):
        block = slice(first, first + BATCH)
        values = table.coefficients[block] @ basis
        least[block], most[block] = values.min(axis=1), values.max(axis=1)
    constant = table.is_constant
    return np.where(constant, table.constant, least - slack), np.where(constant, table.constant, most + slack)


def _monomial_range(table: ExpressionTable, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.ones(len(table.monomials)), np.ones(len(table.monomials))
    for j in range(len(lower)):
        p = table.monomials[:, j]
        ends = np.stack([lower[j] ** p.astype(float), upper[j] ** p.astype(float)])
        a, b = ends.min(axis=0), ends.max(axis=0)
        a = np.where((p % 2 == 0) & (p > 0) & (lower[j] < 0 < upper[j]), 0.0, a)
        corners = np.stack([x * y for x, y in itertools.product((low, high), (a, b))])
        low, high = corners.min(axis=0), corners.max(axis=0)
    positive, negative = table.coefficients.maximum(0), table.coefficients.minimum(0)
    slack = _slack(table, np.maximum(np.abs(low), np.abs(high))[1:]) * (1 + table.degree)
    return positive @ low + negative @ high - slack, positive @ high + negative @ low + slack


def _slack(table: ExpressionTable, reach: np.ndarray) -> np.ndarray:
    """(F,) more than the rounding of constant + sum of coefficients times numbers up to reach (M - 1,)."""
    weights = table.coefficients[:, np.arange(1, table.num_monomials)]
    return (2 * len(reach) + 16) * UNIT_ROUNDOFF * (np.abs(table.constant) + abs(weights) @ reach)
