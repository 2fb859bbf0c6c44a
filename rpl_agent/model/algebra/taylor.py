"""Expressions around a point: to second order, with a bound on all that is left.

With θ = c + t and f(θ) = Σ_m a_m θ^m, f(c + t) = Σ_α f_α t^α, f_α = Σ_m a_m C(m, α) c^(m − α), where α runs through the
exponents below some m. For |t_j| ≤ r_j the terms of degree three and more add up to at most Σ_{|α| ≥ 3} |f_α| r^α. The
f_α are the derivatives of f over α!: what cancels between monomials has cancelled before sizes are added.
"""

from __future__ import annotations

from itertools import product
from math import comb, prod
from typing import Any, NamedTuple

import numpy as np
import scipy

from rpl_agent._core import UNIT_ROUNDOFF
from rpl_agent.model.caching import cached_on
from rpl_agent.model.expressions import ExpressionTable

#: Coefficients up to this many are multiplied as dense arrays.
DENSE = 2_000_000


class TaylorTable(NamedTuple):
    """|f(c + t) − value − slope·t − t'curvature t| ≤ error for all |t_j| ≤ reach_j, rounding included.

    Attributes
    ----------
    value : (F,) float64
    slope : (F, d) float64
    curvature : (F, d, d) float64
        Symmetric: half the second derivatives.
    error : (F,) float64
    """

    value: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray
    error: np.ndarray


class _Shifts(NamedTuple):
    """What turns coefficients of monomials into those of the terms t^α.

    Attributes
    ----------
    alpha : (A, d) int
        By degree, the lowest first.
    degree : (A,) int
    monomial, term : (n,) int
        Pairs of a monomial m and an α below it.
    binomial : (n,) float64
        C(m, α).
    rest : (n, d) int
        m − α.
    """

    alpha: np.ndarray
    degree: np.ndarray
    monomial: np.ndarray
    term: np.ndarray
    binomial: np.ndarray
    rest: np.ndarray


def taylor_table(table: ExpressionTable, center: np.ndarray, reach: np.ndarray) -> TaylorTable:
    """All expressions around ``center`` (d,), for steps of at most ``reach`` (d,) in each parameter."""
    shifts = cached_on(table, "taylor shifts", _shifts)
    center, reach = np.asarray(center, dtype=float), np.asarray(reach, dtype=float)
    entries = shifts.binomial * _products(center, shifts.rest)
    size = (table.num_monomials, len(shifts.alpha))
    if table.num_expressions * size[0] <= DENSE:
        matrix = np.zeros(size)
        matrix[shifts.monomial, shifts.term] = entries
        coefficients: Any = cached_on(table, "dense coefficients", lambda t: t.coefficients.toarray()) @ matrix
    else:
        places = (shifts.monomial, shifts.term)
        coefficients = table.coefficients @ scipy.sparse.csr_array((entries, places), shape=size)
    first, second = np.searchsorted(shifts.degree, (2, 3))
    d, count = len(center), len(table)
    low = coefficients[:, :second]
    low = np.asarray(low.todense() if scipy.sparse.issparse(low) else low)
    slope, curvature = np.zeros((count, d)), np.zeros((count, d, d))
    slope[:, shifts.alpha[1:first].argmax(axis=1)] = low[:, 1:first]
    for k in range(first, second):
        i, j = np.repeat(np.arange(d), shifts.alpha[k])
        curvature[:, i, j] += low[:, k] / 2
        curvature[:, j, i] += low[:, k] / 2
    # no number on the way exceeds the sum of the sizes of all terms, which is that of all monomials at |c| + r
    total = abs(table.coefficients) @ _products(np.abs(center) + reach, table.monomials)
    operations = 4 * len(shifts.alpha) + 4 * table.degree + 2 * table.num_monomials + 32
    error = abs(coefficients[:, second:]) @ _products(reach, shifts.alpha[second:])
    return TaylorTable(low[:, 0].copy(), slope, curvature, np.asarray(error) + operations * UNIT_ROUNDOFF * total)


def _products(theta: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """(n,) Π_j θ_j ** exponents[:, j] for exponents (n, d), from tables of powers."""
    most = int(exponents.max(initial=0))
    powers = theta[:, None] ** np.arange(most + 1.0)
    found = np.ones(len(exponents))
    for j in range(len(theta)):
        found *= powers[j][exponents[:, j]]
    return found


def taylor_terms(table: ExpressionTable, chosen: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(exponents α (A, d), f_α (k, n, A)) of n chosen expressions around each of the centers (k, d), without bounds."""
    shifts = cached_on(table, "taylor shifts", _shifts)
    matrix = np.zeros((len(centers), table.num_monomials, len(shifts.alpha)))
    powers = np.prod(centers[:, None, :] ** shifts.rest, axis=2)
    matrix[:, shifts.monomial, shifts.term] = shifts.binomial * powers
    return shifts.alpha, np.asarray(table.coefficients[chosen].todense()) @ matrix


def _shifts(table: ExpressionTable) -> _Shifts:
    pairs = [
        (m, alpha) for m, exponents in enumerate(table.monomials.tolist())
        for alpha in product(*(range(p + 1) for p in exponents))
    ]  # fmt: skip
    ordered = sorted({alpha for _, alpha in pairs}, key=lambda a: (sum(a), a))
    number = {alpha: k for k, alpha in enumerate(ordered)}
    monomial, term = np.array([m for m, _ in pairs]), np.array([number[alpha] for _, alpha in pairs])
    alpha = np.array(ordered).reshape(len(ordered), table.num_parameters)
    rows = table.monomials.tolist()
    binomial = np.array([float(prod(comb(p, q) for p, q in zip(rows[m], a))) for m, a in pairs])
    return _Shifts(alpha, alpha.sum(axis=1), monomial, term, binomial, table.monomials[monomial] - alpha[term])
