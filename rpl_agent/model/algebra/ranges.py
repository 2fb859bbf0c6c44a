"""Ranges of polynomials over boxes of parameters, with how far rounding may have moved them.

On a box, a polynomial lies between its least and its largest Bernstein coefficient. That is far tighter than adding
up ranges of monomials (p − p² over [0, 1] gets [0, 0.5], not [−1, 1]), and exact where an extremum lies at a corner, as
for affine and multilinear expressions. With θ = lower + width·t, t ∈ [0, 1]^d, and degrees n per parameter,
θ_j^p = Σ_q C(p, q) lower^(p−q) width^q t^q, and t^q has the Bernstein coefficients C(i, q) / C(n_j, q), i = 0 … n_j.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from math import comb
from typing import NamedTuple

import numpy as np
import scipy

from rpl_agent._core import UNIT_ROUNDOFF
from rpl_agent.model.expressions import ExpressionTable

#: tensor Bernstein coefficients up to this many per expression; beyond, monomials are bounded one by one
MAX_BERNSTEIN = 4096
#: more than products that underflow can lose; the smallest normal number
UNDERFLOW = float(np.finfo(float).tiny)
#: coefficients held at a time
MAX_NUMBERS = 4_000_000


class RangeEnclosure(NamedTuple):
    """lower − slack ≤ f ≤ upper + slack on the box, for each of F expressions; slack is more than all rounding.

    Attributes
    ----------
    lower, upper, slack : (F,) float64
    """

    lower: np.ndarray
    upper: np.ndarray
    slack: np.ndarray


def enclosure(table: ExpressionTable, lower: np.ndarray, upper: np.ndarray) -> RangeEnclosure:
    """Bounds of every expression over a box of parameters (d,), (d,); of constants the nearest floats."""
    least, most = table.constant_bounds
    if table.num_monomials == 1:
        return RangeEnclosure(least.copy(), most.copy(), np.zeros(table.num_expressions))
    if not table.is_affine and fits(table.monomials):
        found = _bernstein(table.coefficients, table.monomials, lower, upper)
    else:
        ends = (lower, upper) if table.is_plain else monomial_range(table.monomials[1:], lower, upper)
        found = _combined(table, *ends)
        found = found if table.is_affine else found._replace(slack=found.slack * (1 + table.degree))
    known = table.is_constant
    slack = found.slack + _underflow(table, np.maximum(np.abs(lower), np.abs(upper)))
    return RangeEnclosure(
        np.where(known, least, found.lower), np.where(known, most, found.upper), np.where(known, 0.0, slack)
    )


def range_on_box(table: ExpressionTable, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (F,) of every expression over a box of parameters, moved outward past rounding and cut with [0, 1]."""
    found = enclosure(table, lower, upper)
    return np.clip(found.lower - found.slack, 0.0, 1.0), np.clip(found.upper + found.slack, 0.0, 1.0)


def fits(monomials: np.ndarray, most: int | None = None) -> bool:
    """Whether the Bernstein coefficients of the (M, d) monomials are few enough."""
    return bool(np.prod(monomials.max(axis=0, initial=0) + 1.0) <= (MAX_BERNSTEIN if most is None else most))


def range_of_one(table: ExpressionTable, f: int, lower: np.ndarray, upper: np.ndarray) -> tuple[float, float] | None:
    """The range of one expression by the Bernstein coefficients of its own parameters; None where they are too many.

    Not moved outward. It helps where those of all parameters of the table are too many.
    """
    row = table.coefficients[[f]]
    monomials = table.monomials[row.indices]
    used = np.flatnonzero(monomials.any(axis=0))
    if not fits(monomials):
        return None
    coefficients = scipy.sparse.csr_array(row.data[None, :])
    low, high, _ = _bernstein(coefficients, monomials[:, used], lower[used], upper[used])
    return float(low[0]), float(high[0])


def monomial_range(exponents: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(M,), (M,) the range of each monomial (M, d) over the box, up to rounding."""
    low, high = np.ones(len(exponents)), np.ones(len(exponents))
    for j in range(exponents.shape[1]):
        power = exponents[:, j]
        ends = np.stack([lower[j] ** power.astype(float), upper[j] ** power.astype(float)])
        # an even power of an interval around 0 begins at 0
        crosses = (power % 2 == 0) & (power > 0) & (lower[j] < 0 < upper[j])
        a, b = np.where(crosses, 0.0, ends.min(axis=0)), ends.max(axis=0)
        corners = np.stack([x * y for x, y in itertools.product((low, high), (a, b))])
        low, high = corners.min(axis=0), corners.max(axis=0)
    return low, high


def _combined(table: ExpressionTable, low: np.ndarray, high: np.ndarray) -> RangeEnclosure:
    """The table's expressions, where its monomials but the constant one lie between low and high (M - 1,)."""
    weights = table.coefficients[:, np.arange(1, table.num_monomials)]
    positive, negative = weights.maximum(0), weights.minimum(0)
    slack = _slack(table.coefficients, np.append(1.0, np.maximum(np.abs(low), np.abs(high))))
    constant = table.constant
    return RangeEnclosure(
        constant + positive @ low + negative @ high, constant + positive @ high + negative @ low, slack
    )


def _bernstein(
    coefficients: scipy.sparse.csr_array, monomials: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> RangeEnclosure:
    """For polynomials with coefficients (F, M) of monomials (M, d)."""
    basis, slack = _basis(coefficients, monomials, lower, upper)
    least, most = np.empty(coefficients.shape[0]), np.empty(coefficients.shape[0])
    group = max(1, MAX_NUMBERS // basis.shape[1])
    for first in range(0, len(least), group):
        block = slice(first, first + group)
        values = coefficients[block] @ basis
        least[block], most[block] = values.min(axis=1), values.max(axis=1)
    return RangeEnclosure(least, most, slack)


def _basis(
    coefficients: scipy.sparse.csr_array, monomials: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """((M, n) Bernstein coefficients of the monomials, (F,) the rounding of what is made of them)."""
    basis = np.ones((len(monomials), 1))
    for j, n in enumerate(monomials.max(axis=0, initial=0).tolist()):
        powers = _powers(lower[j], upper[j] - lower[j], n)
        basis = (basis[:, :, None] * powers[monomials[:, j]][:, None, :]).reshape(len(basis), -1)
    reach = np.maximum(np.abs(lower), np.abs(upper))
    sizes = np.prod((3.0 * reach) ** monomials, axis=1)  # also covers lower and width of mixed signs
    return basis, _slack(coefficients, sizes) * (1 + monomials.sum(axis=1).max(initial=0))


def bernstein(table: ExpressionTable, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """((F, n) Bernstein coefficients of all expressions over a box, (F,) how far rounding may have moved them).

    A sum of expressions lies between the least and the largest of the sums of their coefficients.
    """
    basis, slack = _basis(table.coefficients, table.monomials, lower, upper)
    return np.asarray(table.coefficients @ basis), slack + _underflow(table, np.maximum(np.abs(lower), np.abs(upper)))


def _powers(lower: float, width: float, n: int) -> np.ndarray:
    """(n+1, n+1): Bernstein coefficients of degree n on [lower, lower + width], row p those of theta**p."""
    choose = _binomials(n)
    q = np.arange(n + 1)
    shifted = choose * lower ** np.maximum(q[:, None] - q, 0) * width**q
    return shifted @ (choose / choose[n]).T


@lru_cache
def _binomials(n: int) -> np.ndarray:
    """(n+1, n+1): C(p, q), 0 for q > p."""
    return np.array([[float(comb(p, q)) for q in range(n + 1)] for p in range(n + 1)])


def _underflow(table: ExpressionTable, reach: np.ndarray) -> np.ndarray:
    """(F,) what products of tiny numbers may lose over parameters up to reach (d,); nothing where they are zero."""
    moves = np.append(True, reach > 0) if table.is_plain else ((reach > 0) | (table.monomials == 0)).all(axis=1)
    sizes = table.coefficients.copy()
    sizes.data = 1.0 + np.abs(sizes.data)
    return UNDERFLOW * (sizes @ moves.astype(float))


def _slack(coefficients: scipy.sparse.csr_array, reach: np.ndarray) -> np.ndarray:
    """(F,) more than the rounding of sums of coefficients (F, M) times numbers up to reach (M,)."""
    return (2 * len(reach) + 14) * UNIT_ROUNDOFF * (abs(coefficients) @ reach)
