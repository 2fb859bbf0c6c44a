"""Ranges of polynomials over boxes of parameters, with bounds on the rounding error.

On a box, a polynomial lies between its least and its largest Bernstein coefficient. That is far tighter than adding
up ranges of monomials (p − p² over [0, 1] gets [0, 0.5], not [−1, 1]), and exact if an extremum lies at a corner, as
for affine and multilinear expressions. With θ = lower + width·t, t ∈ [0, 1]^d, and degrees n per parameter,
θ_j^p = Σ_q C(p, q) lower^(p−q) width^q t^q, and t^q has the Bernstein coefficients C(i, q) / C(n_j, q), i = 0 … n_j.

Around a point, expressions are expanded to second order, with a bound on the remainder (`taylor_table`): with
θ = c + t and f(θ) = Σ_m a_m θ^m, f(c + t) = Σ_α f_α t^α, f_α = Σ_m a_m C(m, α) c^(m − α), where α runs through the
exponents below some m. For |t_j| ≤ r_j the terms of degree three and more add up to at most Σ_{|α| ≥ 3} |f_α| r^α. The
f_α are the derivatives of f over α!: cancellation between monomials happens before magnitudes are added.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from itertools import product
from math import comb, prod
from operator import methodcaller
from typing import Any, NamedTuple

import numpy as np
import scipy

from rpl_agent.core.model.caching import cached_fact, cached_on
from rpl_agent.core.model.domain import Domain
from rpl_agent.core.model.expressions import ExpressionTable
from rpl_agent.core.native import UNIT_ROUNDOFF

#: tensor Bernstein coefficients up to this many per expression; beyond that, monomials are bounded one by one
MAX_BERNSTEIN = 4096
#: more than underflowing products can lose; the smallest normal number
UNDERFLOW = float(np.finfo(float).tiny)
#: coefficients in memory at a time
MAX_NUMBERS = 4_000_000


class RangeEnclosure(NamedTuple):
    """lower − slack ≤ f ≤ upper + slack on the box, for each of F expressions; slack exceeds all rounding errors."""

    lower: np.ndarray  # (F,)
    upper: np.ndarray  # (F,)
    slack: np.ndarray  # (F,)


def enclosure(table: ExpressionTable, lower: np.ndarray, upper: np.ndarray) -> RangeEnclosure:
    """Bounds on every expression over a box of parameters (d,), (d,); the nearest floats for constants."""
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
    """Bounds (F,) on every expression over a box of parameters, rounded outward and intersected with [0, 1]."""
    found = enclosure(table, lower, upper)
    return np.clip(found.lower - found.slack, 0.0, 1.0), np.clip(found.upper + found.slack, 0.0, 1.0)


def fits(monomials: np.ndarray, most: int | None = None) -> bool:
    """Whether the Bernstein coefficients of the (M, d) monomials are few enough."""
    return bool(np.prod(monomials.max(axis=0, initial=0) + 1.0) <= (MAX_BERNSTEIN if most is None else most))


def range_of_one(table: ExpressionTable, f: int, lower: np.ndarray, upper: np.ndarray) -> tuple[float, float] | None:
    """The range of one expression by the Bernstein coefficients of its own parameters; None if there are too many.

    Not rounded outward. Helps if there are too many coefficients for all parameters of the table.
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
    if len(exponents) and (exponents.sum(axis=1) == 1).all():  # parameters
        own = exponents.argmax(axis=1)
        return np.minimum(lower, upper)[own], np.maximum(lower, upper)[own]
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
    """The table's expressions, if its monomials except the constant lie between low and high (M - 1,)."""
    weights = cached_on(table, "weights", lambda t: t.coefficients[:, np.arange(1, t.num_monomials)])
    positive, negative = (cached_on(weights, n, methodcaller(n, 0)) for n in ("maximum", "minimum"))
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
        values = (coefficients if group >= len(least) else coefficients[block]) @ basis
        least[block], most[block] = values.min(axis=1), values.max(axis=1)
    return RangeEnclosure(least, most, slack)


def _basis(
    coefficients: scipy.sparse.csr_array, monomials: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """((M, n) Bernstein coefficients of the monomials, (F,) the rounding error of expressions built from them)."""
    basis = np.ones((len(monomials), 1))
    for j, n in enumerate(monomials.max(axis=0, initial=0).tolist()):
        powers = _powers(lower[j], upper[j] - lower[j], n)
        basis = (basis[:, :, None] * powers[monomials[:, j]][:, None, :]).reshape(len(basis), -1)
    reach = np.maximum(np.abs(lower), np.abs(upper))
    sizes = np.prod((3.0 * reach) ** monomials, axis=1)  # also covers lower and width of mixed signs
    return basis, _slack(coefficients, sizes) * (1 + monomials.sum(axis=1).max(initial=0))


def bernstein(table: ExpressionTable, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """((F, n) Bernstein coefficients of all expressions over a box, (F,) bounds on their rounding errors).

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
    """(F,) what products of tiny numbers may lose over parameters up to reach (d,); 0 where they are zero."""
    a = table.coefficients
    sizes = cached_on(
        a, "sizes", lambda _: scipy.sparse.csr_array((1.0 + np.abs(a.data), a.indices, a.indptr), a.shape)
    )
    if (reach > 0).all():
        return cached_on(a, "underflow", lambda _: UNDERFLOW * (sizes @ np.ones(a.shape[1])))
    moves = np.append(True, reach > 0) if table.is_plain else ((reach > 0) | (table.monomials == 0)).all(axis=1)
    return UNDERFLOW * (sizes @ moves.astype(float))


def _slack(coefficients: scipy.sparse.csr_array, reach: np.ndarray) -> np.ndarray:
    """(F,) more than the rounding error of sums of coefficients (F, M) times numbers up to reach (M,)."""
    return (2 * len(reach) + 14) * UNIT_ROUNDOFF * (cached_on(coefficients, "magnitudes", abs) @ reach)


#: Coefficients up to this many are multiplied as dense arrays.
DENSE = 2_000_000


class TaylorTable(NamedTuple):
    """|f(c + t) − value − slope·t − t'curvature t| ≤ error for all |t_j| ≤ reach_j, rounding included."""

    value: np.ndarray  # (F,)
    slope: np.ndarray  # (F, d)
    curvature: np.ndarray  # (F, d, d), symmetric: half the second derivatives
    error: np.ndarray  # (F,)


class _Shifts(NamedTuple):
    """Converts coefficients of monomials into those of the terms t^α."""

    alpha: np.ndarray  # (A, d) int, by degree, the lowest first
    monomial: np.ndarray  # (n,) int, m of pairs of a monomial m and an α below it
    term: np.ndarray  # (n,) int, α of these pairs
    binomial: np.ndarray  # (n,) C(m, α)
    rest: np.ndarray  # (n, d) int, m − α
    first: int  # the number of α of degree zero and one
    second: int  # and two
    linear: np.ndarray  # (first − 1,) the parameter of each α of degree one
    quadratic: np.ndarray  # (2, k) the two parameters of each α of degree two


def taylor_table(table: ExpressionTable, center: np.ndarray, reach: np.ndarray) -> TaylorTable:
    """All expressions around ``center`` (d,), for steps of at most ``reach`` (d,) in each parameter."""
    shifts = taylor_shifts(table)
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
    d, count, first, second = len(center), len(table), shifts.first, shifts.second
    low = coefficients[:, :second]
    low = np.asarray(low.todense() if scipy.sparse.issparse(low) else low)
    slope, curvature = np.zeros((count, d)), np.zeros((count, d, d))
    slope[:, shifts.linear] = low[:, 1:first]
    i, j = shifts.quadratic
    curvature[:, i, j] = curvature[:, j, i] = low[:, first:] / np.where(i == j, 1.0, 2.0)
    # No intermediate number exceeds the sum of the magnitudes of all terms, which is that of all monomials at |c| + r.
    total = cached_on(table.coefficients, "magnitudes", abs) @ _products(np.abs(center) + reach, table.monomials)
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


@cached_fact
def taylor_shifts(table: ExpressionTable) -> _Shifts:
    """The terms t^α of all expansions, and which monomials contribute to each."""
    pairs = [
        (m, alpha)
        for m, exponents in enumerate(table.monomials.tolist())
        for alpha in product(*(range(p + 1) for p in exponents))
    ]
    ordered = sorted({alpha for _, alpha in pairs}, key=lambda a: (sum(a), a))
    number = {alpha: k for k, alpha in enumerate(ordered)}
    monomial, term = np.array([m for m, _ in pairs]), np.array([number[alpha] for _, alpha in pairs])
    alpha = np.array(ordered).reshape(len(ordered), table.num_parameters)
    rows = table.monomials.tolist()
    binomial = np.array([float(prod(comb(p, q) for p, q in zip(rows[m], a))) for m, a in pairs])
    degree = alpha.sum(axis=1)
    named = [np.repeat(np.arange(table.num_parameters), one) for one in alpha[degree == 2]]
    both, rest = np.array(named, dtype=np.int64).reshape(-1, 2).T, table.monomials[monomial] - alpha[term]
    first, second = np.searchsorted(degree, (2, 3)).tolist()
    return _Shifts(alpha, monomial, term, binomial, rest, first, second, alpha[1:first].argmax(axis=1), both)


def coordinate_box(table: ExpressionTable, domain: Domain) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper), each (r,): interval arithmetic over the parameters' bounds, rounded outward."""
    reduction = table.reduction
    if table.is_plain:
        return domain.lower.copy(), domain.upper.copy()
    low, high = monomial_range(reduction.exponents, domain.lower, domain.upper)
    matrix = reduction.matrix
    middle, radius = matrix @ ((low + high) / 2), abs(matrix) @ ((high - low) / 2)
    margin = 1e-12 * (1.0 + abs(middle) + radius)
    return middle - radius - margin, middle + radius + margin
