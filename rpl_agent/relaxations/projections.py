"""The interval relaxations: tied (P_I), parameter-wise (P_Theta) and expression-wise (P_Lambda).

Each is a pair of vectors over the expressions. Bounds are moved outward past rounding, so inclusion of the truth
survives floating point.
"""

from __future__ import annotations

import itertools
from math import comb

import numpy as np
from scipy import sparse

from rpl_agent.errors import ModelError
from rpl_agent.model.expressions import ExpressionTable
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.regions._kernels import UNIT_ROUNDOFF
from rpl_agent.regions.base import Region
from rpl_agent.regions.intersection import Image, Intersection
from rpl_agent.regions.lifting import checked_bounds
from rpl_agent.regions.lp import LinearProgram
from rpl_agent.regions.polytope import Polytope
from rpl_agent.relaxations.interval import Intervals

#: tensor Bernstein coefficients up to this many per expression; beyond, monomials are bounded one by one
MAX_BERNSTEIN = 4096
#: support queries in one batch
BATCH = 100_000


def tied(pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray) -> Intervals:
    """P_I: the confidence intervals of the expressions, as they are.

    Parameters
    ----------
    lower, upper : (F,) array
    """
    return Intervals(pmdp, *_tidy(pmdp, *checked_bounds(pmdp, lower, upper)), name="tied")


def expression_wise(
    region: Region, pmdp: ParametricMDP, intersect_with: tuple[np.ndarray, np.ndarray] | None = None
) -> Intervals:
    """P_Lambda: the range of every expression over the region, two support queries each.

    Parameters
    ----------
    region : Region
        In the reduced coordinates of ``pmdp.table``.
    intersect_with : (lower (F,), upper (F,)), optional
        Further bounds known to hold.
    """
    lower, upper = expression_bounds(region, pmdp)
    return Intervals(pmdp, *_tidy(pmdp, *_meet(lower, upper, intersect_with)), name="expression-wise")


def parameter_wise(
    region: Region, pmdp: ParametricMDP, intersect_with: tuple[np.ndarray, np.ndarray] | None = None
) -> Intervals:
    """P_Theta: the range of every expression over the smallest box of parameters around the region.

    Parameters
    ----------
    region : Region
    intersect_with : (lower (F,), upper (F,)), optional
        Usually the tied intervals; without them P_Theta and P_I are incomparable.
    """
    lower, upper = range_on_box(pmdp.table, *parameter_box(region, pmdp))
    return Intervals(pmdp, *_tidy(pmdp, *_meet(lower, upper, intersect_with)), name="parameter-wise")


# ---------------------------------------------------------------------- ranges
def expression_bounds(region: Region, pmdp: ParametricMDP) -> tuple[np.ndarray, np.ndarray]:
    """(lower (F,), upper (F,)) of every expression over a region, in [0, 1].

    Raises
    ------
    ModelError
        The region is empty or of another dimension than the model's rank.
    """
    table = pmdp.table
    weights, constant = table.reduction.weights, table.constant
    _check_region(region, pmdp)
    lower, upper = constant.copy(), constant.copy()
    used = np.flatnonzero(~table.is_constant)
    low, high = (np.asarray(a) for a in region.box())
    reach = np.maximum(np.abs(low), np.abs(high))
    for first in range(0, len(used), BATCH):
        batch = used[first : first + BATCH]
        w = weights[batch]
        slack = 8 * UNIT_ROUNDOFF * (1.0 + np.abs(constant[batch]) + abs(w) @ reach)
        lower[batch] += region.minimize(w) - slack
        upper[batch] -= region.minimize(-w) - slack
    return np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)


def parameter_box(region: Region, pmdp: ParametricMDP) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (lower (d,), upper (d,)) of every parameter over the region.

    A parameter that is a linear function of x is bounded by the region itself; one that is not, by the domain cut
    with what the region says about x (for unidentifiable parameters that is the honest, wide answer).
    """
    _check_region(region, pmdp)
    table, domain = pmdp.table, pmdp.domain
    reduction = table.reduction
    lower, upper = domain.lower.copy(), domain.upper.copy()
    if reduction.is_identity:
        low, high = region.box()
        return _crossing_undone(np.maximum(lower, low), np.minimum(upper, high), lower, upper)
    for member in region.members if isinstance(region, Intersection) else [region]:
        if isinstance(member, Image):
            low, high = member.inner.box()
            d = domain.dimension
            lower, upper = np.maximum(lower, low[:d]), np.minimum(upper, high[:d])
    linear = [np.flatnonzero((reduction.exponents == unit).all(axis=1)) for unit in np.eye(domain.dimension)]
    matrix = reduction.matrix.toarray() if sparse.issparse(reduction.matrix) else reduction.matrix
    for j, column in enumerate(linear):
        if not len(column):
            continue
        direction = np.linalg.lstsq(matrix.T, np.eye(matrix.shape[1])[column[0]], rcond=None)[0]
        direction = np.where(np.abs(direction) < 1e-12, 0.0, direction)
        unit = direction @ matrix
        unit[column[0]] -= 1.0
        if np.abs(unit).max() > 1e-9:
            continue
        # What the direction misses of theta_j, monomial by monomial, over the domain.
        reach = np.prod(np.maximum(np.abs(domain.lower), np.abs(domain.upper)) ** reduction.exponents, axis=1)
        slack = (np.abs(unit) + 8 * UNIT_ROUNDOFF * (np.abs(direction) @ np.abs(matrix) + 1.0)) @ reach
        low, high = region.minimize(np.stack([direction, -direction])) - slack
        lower[j], upper[j] = max(lower[j], low), min(upper[j], -high)
    if table.is_affine:
        low, high = _affine_box(region, pmdp, np.asarray(matrix))
        lower, upper = np.maximum(lower, low), np.minimum(upper, high)
    return _crossing_undone(lower, upper, domain.lower, domain.upper)


def _affine_box(region: Region, pmdp: ParametricMDP, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of theta by linear programs over the domain cut with the region's box and rows in x = matrix theta."""
    domain, reduction = pmdp.domain, pmdp.table.reduction
    d = domain.dimension
    columns = np.array([int(np.flatnonzero(e)[0]) for e in reduction.exponents])
    embedding = np.zeros((reduction.rank, d))
    embedding[:, columns] = matrix
    low, high = region.box()
    rows, rhs = [embedding, -embedding], [high, -low]
    for member in region.members if isinstance(region, Intersection) else [region]:
        if isinstance(member, Polytope):
            rows.append(member.A @ embedding)
            rhs.append(member.b)
    A, b = np.vstack(rows), np.concatenate(rhs)
    reach = np.maximum(np.abs(domain.lower), np.abs(domain.upper))
    b = b + 8 * UNIT_ROUNDOFF * (np.abs(b) + np.abs(A) @ reach)
    program = LinearProgram(np.vstack([domain.A, A]), np.concatenate([domain.b, b]), domain.lower, domain.upper)
    values = program.minimize(np.vstack([np.eye(d), -np.eye(d)]))
    return values[:d], -values[d:]


def range_on_box(table: ExpressionTable, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (F,) of every expression over a box of parameters, cut with [0, 1].

    The least and the largest Bernstein coefficient enclose a polynomial on a box; for affine and multilinear
    expressions they are the values at corners, so the bounds are exact.

    Parameters
    ----------
    lower, upper : (d,) float64
    """
    degrees = table.monomials.max(axis=0, initial=0)
    if table.is_affine:
        low, high = _affine_range(table, lower, upper)
    elif np.prod(degrees + 1.0) <= MAX_BERNSTEIN:
        low, high = _bernstein_range(table, lower, upper, degrees)
    else:
        low, high = _monomial_range(table, lower, upper)
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


def _affine_range(table: ExpressionTable, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    exponents = table.monomials[1:]
    columns = exponents.argmax(axis=1)
    weights = table.coefficients[:, np.arange(1, len(table.monomials))]
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
    weights = table.coefficients[:, np.arange(1, len(table.monomials))]
    return (2 * len(reach) + 16) * UNIT_ROUNDOFF * (np.abs(table.constant) + abs(weights) @ reach)


# ---------------------------------------------------------------------- small repairs
def _check_region(region: Region, pmdp: ParametricMDP) -> None:
    if region.dimension != pmdp.table.reduction.rank:
        raise ModelError(
            f"a region of dimension {region.dimension} for a model of rank {pmdp.table.reduction.rank}"
        )
    if region.is_empty:
        raise ModelError("the region is empty: no parameter vector satisfies all constraints")


def _meet(
    lower: np.ndarray, upper: np.ndarray, other: tuple[np.ndarray, np.ndarray] | None
) -> tuple[np.ndarray, np.ndarray]:
    return (lower, upper) if other is None else (np.maximum(lower, other[0]), np.minimum(upper, other[1]))


def _crossing_undone(
    lower: np.ndarray, upper: np.ndarray, widest_lower: np.ndarray, widest_upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds that cross by rounding are exchanged, by more are replaced by the widest: wider, hence sound."""
    crossed = lower > upper
    slight = crossed & (lower - upper <= 1e-8)
    low = np.where(slight, upper, np.where(crossed, widest_lower, lower))
    high = np.where(slight, lower, np.where(crossed, widest_upper, upper))
    return low, high


def _tidy(pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds in [0, 1] that do not cross; constants are known exactly."""
    lower, upper = np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)
    lower, upper = _crossing_undone(lower, upper, np.zeros_like(lower), np.ones_like(upper))
    constant = pmdp.table.is_constant
    return np.where(constant, pmdp.table.constant, lower), np.where(constant, pmdp.table.constant, upper)
