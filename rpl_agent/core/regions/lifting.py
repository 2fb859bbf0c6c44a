"""Regions of a model: the domain and U, in coordinates in which every expression is linear.

A *chart* lists those coordinates z: the parameters, every monomial of higher degree, and the intermediate products
in its chain of factors. Expressions are linear in z; the nonlinear z_k = z_i z_j is relaxed by McCormick's
inequalities over the current bounds of z_i and z_j. Tighter bounds give tighter inequalities, which give tighter
bounds: optimisation-based bound tightening (OBBT) repeats the two until no bound moves. Affine models have no
products and one exact round.

Soundness: every parameter vector of the true set, lifted to z, satisfies every row built here, rounding included
(right-hand sides are moved outward by more than the rounding error of the row).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Domain, ExpressionTable, ParametricMDP, cached_fact, without_unused
from rpl_agent.core.native import UNIT_ROUNDOFF, core
from rpl_agent.core.regions.base import Box, Region
from rpl_agent.core.regions.intersection import Ellipsoid, Image
from rpl_agent.core.regions.polytope import GRAPH_DIMENSION, Polytope
from rpl_agent.core.regions.vertex_graph import ATTEMPTS, PERTURBATION, GraphError, VertexGraph

#: OBBT ends when no bound moves by more than this share of its initial width
OBBT_TOLERANCE = 1e-6
OBBT_ROUNDS = 30
#: ... or when the observed shrink rate predicts less than this relative change in the next round
OBBT_SETTLED = 5e-4


@dataclass(frozen=True, eq=False)
class LinearChart:
    """Coordinates z in which all expressions are linear."""

    exponents: np.ndarray  # (n, d) int, z_k = product of theta_j ** exponents[k, j]; the first d are the parameters
    products: np.ndarray  # (p, 3) int, (k, i, j) with z_k = z_i z_j identically; chains down to the parameters
    weights: np.ndarray  # (F, n), f = constant + weights @ z
    embedding: np.ndarray  # (r, n), reduced coordinates x = embedding @ z

    @property
    def dimension(self) -> int:
        return len(self.exponents)

    @cached_property
    def by_degree(self) -> np.ndarray:
        """(p,) the products, lower degrees first."""
        return np.argsort(self.exponents.sum(axis=1)[self.products[:, 0]], kind="stable")

    @property
    def is_identity(self) -> bool:
        """Whether z = x."""
        n = self.dimension
        return self.embedding.shape == (n, n) and bool((self.embedding == np.eye(n)).all())


def linear_dimension(table: ExpressionTable) -> int:
    """A lower bound on the coordinates of `linear_chart`: the parameters and the monomials of higher degree."""
    return table.num_parameters + int((table.monomial_degrees > 1).sum())


@cached_fact
def linear_chart(table: ExpressionTable) -> LinearChart:
    """The chart of a table: parameters, monomials of higher degree, intermediate products.

    The reduction must be dense: models of more than 64 monomials are covered by `regions.blocks`.
    """
    reduction = table.reduction
    if not isinstance(reduction.weights, np.ndarray):
        raise ModelError(
            f"{table.num_monomials - 1} monomials are too many for one region: choose confidence likelihood or "
            "anytime, which work in independent blocks of parameters"
        )
    d = table.num_parameters
    rows: list[tuple[int, ...]] = [tuple(row) for row in np.eye(d, dtype=int).tolist()]
    index = {row: k for k, row in enumerate(rows)}
    for monomial in map(tuple, table.monomials[1:].tolist()):
        _add_chain(monomial, rows, index)
    products = [
        (k, index[other], index[unit])
        for k, row in enumerate(rows)
        if sum(row) > 1
        for unit in rows[:d]
        if (other := tuple(a - b for a, b in zip(row, unit))) in index
    ]
    columns = [index[m] for m in map(tuple, table.monomials[1:].tolist())]
    weights = np.zeros((table.num_expressions, len(rows)))
    weights[:, columns] = table.coefficients[:, list(range(1, len(table.monomials)))].todense()
    embedding = np.zeros((reduction.rank, len(rows)))
    embedding[:, columns] = reduction.matrix
    return LinearChart(np.array(rows).reshape(-1, d), np.array(products, int).reshape(-1, 3), weights, embedding)


def _add_chain(monomial: tuple[int, ...], rows: list[tuple[int, ...]], index: dict[tuple[int, ...], int]) -> None:
    """Add a monomial after one with one factor less, preferring one that is already there."""
    if monomial in index:
        return
    shorter = [tuple(p - (i == j) for i, p in enumerate(monomial)) for j, power in enumerate(monomial) if power]
    if not any(s in index for s in shorter):
        _add_chain(shorter[-1], rows, index)
    index[monomial] = len(rows)
    rows.append(monomial)


# ---------------------------------------------------------------------- rows
@dataclass(frozen=True, eq=False)
class ExpressionRows:
    """Rows of lower <= constant + weights z <= upper, ready for any bounds."""

    rows: np.ndarray  # (2k, n), weights and -weights of the k expressions that are not constant
    used: np.ndarray  # (k,) int
    constant: np.ndarray  # (k,)
    slack: np.ndarray  # (k,), how far right-hand sides are moved outward, more than rounding

    @classmethod
    def of(cls, constant: np.ndarray, weights: np.ndarray, reach: np.ndarray) -> ExpressionRows:
        """For expressions (F,) with weights (F, n), where |z| <= reach (n,)."""
        used = np.flatnonzero(np.abs(weights).sum(axis=1))
        w, c = weights[used], constant[used]
        return cls(np.vstack([w, -w]), used, c, 8 * UNIT_ROUNDOFF * (1.0 + np.abs(c) + np.abs(w) @ reach))

    def rhs(self, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
        """(2k,) right-hand sides for bounds (F,) on all expressions."""
        c, slack = self.constant, self.slack
        return np.concatenate([upper[self.used] - c + slack, c - lower[self.used] + slack])


def mccormick_rows(chart: LinearChart, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """McCormick's inequalities of all products over the bounds (n,) of z, and a middle tangent for squares."""
    p, n = len(chart.products), len(lower)
    count = 4 * p + int((chart.products[:, 1] == chart.products[:, 2]).sum())
    rows, rhs = np.zeros((count, n)), np.empty(count)
    core.mccormick(p, n, chart.products, lower, upper, rows, rhs)
    return rows, rhs


def propagate(chart: LinearChart, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tighten bounds on z by z_k = z_i z_j in interval arithmetic (products in order of degree)."""
    lower, upper = lower.copy(), upper.copy()
    core.propagate_products(len(chart.products), chart.products, chart.by_degree, lower, upper)
    return lower, upper


def initial_bounds(chart: LinearChart, domain: Domain) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (lower (n,), upper (n,)) on z over the box of the domain."""
    d = len(domain.lower)
    lower, upper = np.full(chart.dimension, -np.inf), np.full(chart.dimension, np.inf)
    lower[:d], upper[:d] = domain.lower, domain.upper
    return propagate(chart, lower, upper)


# ---------------------------------------------------------------------- OBBT
def relax(chart: LinearChart, rows: np.ndarray, rhs: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> Polytope:
    """The linear relaxation of {z : rows z <= rhs, products hold}, rows (m, n), after rounds of OBBT.

    lower, upper : (n,) initial bounds on z
    """
    if not len(chart.products):
        return Polytope(rows, rhs, lower, upper)
    if chart.dimension <= GRAPH_DIMENSION:
        for attempt in range(ATTEMPTS):
            try:
                return _relax_graph(chart, rows, rhs, lower, upper, PERTURBATION * 10.0**attempt)
            except GraphError:
                continue
    width = np.maximum(upper - lower, 1e-300)
    for _ in range(OBBT_ROUNDS):
        more, right = mccormick_rows(chart, lower, upper)
        region = Polytope(np.vstack([rows, more]), np.concatenate([rhs, right]), lower, upper, graph_dimension=1)
        if region.is_empty:
            return region
        new_lower, new_upper = _tightened(chart, lower, upper, *region.box())
        moved = max(((new_lower - lower) / width).max(), ((upper - new_upper) / width).max())
        lower, upper = new_lower, new_upper
        if moved <= OBBT_TOLERANCE:
            break
    return region


def _relax_graph(
    chart: LinearChart, rows: np.ndarray, rhs: np.ndarray, lower: np.ndarray, upper: np.ndarray, perturbation: float
) -> Polytope:
    """OBBT on one vertex graph: the set only shrinks, so each round cuts the result of the last one."""
    width = np.maximum(upper - lower, 1e-300)
    graph = VertexGraph(lower, upper, perturbation)
    graph.cut(rows, rhs)
    last, cut_box, box = 0.0, (lower, upper), None
    for _ in range(OBBT_ROUNDS):
        if not graph.empty:
            graph.cut(*mccormick_rows(chart, lower, upper))
        if graph.empty:
            break
        cut_box, box = (lower, upper), graph.box()
        lower, upper = _tightened(chart, lower, upper, *box)
        moved = np.maximum(lower - cut_box[0], cut_box[1] - upper)
        share = float((moved / np.maximum(upper - lower, 1e-300)).max())
        if (moved <= OBBT_TOLERANCE * width).all() or share * share <= OBBT_SETTLED * last:
            break
        last = share
    region = Polytope.from_graph(graph, box)
    region.lower, region.upper = cut_box  # the bounds that the McCormick rows belong to
    return region


def _tightened(
    chart: LinearChart, lower: np.ndarray, upper: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The intersection of two boxes, propagated through the products; crossings by rounding are undone (wider)."""
    low, high = propagate(chart, np.maximum(lower, low), np.minimum(upper, high))
    crossed = low > high
    return np.where(crossed, lower, low), np.where(crossed, upper, high)


# ---------------------------------------------------------------------- regions of a model
@dataclass(frozen=True, eq=False)
class _FixedPart:
    """The part of `build_region` that does not depend on data; computed once per model."""

    chart: LinearChart | None  # coordinates of the polytope; None if it lives in x
    lower: np.ndarray  # (n,) bounds of the coordinates over the domain; crossing if the domain is empty
    upper: np.ndarray  # (n,)
    rows: np.ndarray  # (m, n) of the domain
    rhs: np.ndarray  # (m,)
    expressions: ExpressionRows


@cached_fact
def _fixed_part(pmdp: ParametricMDP) -> _FixedPart:
    pmdp = without_unused(pmdp)
    table, domain, reduction = pmdp.table, pmdp.domain, pmdp.table.reduction
    chart = linear_chart(table)
    lower, upper = initial_bounds(chart, domain)
    rows = np.zeros((len(domain.b), chart.dimension))
    rows[:, : domain.dimension] = domain.A
    expressions = ExpressionRows.of(table.constant, chart.weights, _reach(lower, upper))
    few = reduction.rank == 1 or (reduction.rank <= GRAPH_DIMENSION < chart.dimension)
    if not few or chart.is_identity:
        return _FixedPart(chart, lower, upper, rows, domain.b, expressions)
    # Few coordinates matter: bound each over the domain, then stay in x (exact for one coordinate).
    zeros, ones = np.zeros(len(table)), np.ones(len(table))
    rows, rhs = np.vstack([rows, expressions.rows]), np.concatenate([domain.b, expressions.rhs(zeros, ones)])
    start = relax(chart, rows, rhs, lower, upper)
    lower, upper = Image(start, chart.embedding).box()
    if start.is_empty:
        lower, upper = upper, lower - 1.0
    expressions = ExpressionRows.of(table.constant, reduction.weights, _reach(lower, upper))
    return _FixedPart(None, lower, upper, np.zeros((0, reduction.rank)), np.zeros(0), expressions)


def build_region(
    pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray, extra: tuple[np.ndarray, np.ndarray] | None = None
) -> Region:
    """U = D with lower_f <= f <= upper_f for every expression, in reduced coordinates x.

    Exact (up to outward rounding) for affine models; for polynomial ones the McCormick relaxation after OBBT.
    It ``is_empty`` if the constraints contradict each other.

    lower, upper : (F,) confidence bounds; [0, 1] is no constraint
    extra : (A (m, r), b (m,)) further rows A x <= b

    Raises
    ------
    ModelError
        Bounds have the wrong shape, are not finite, or cross.
    """
    lower, upper = checked_bounds(pmdp, lower, upper)
    lower, upper = np.maximum(lower, 0.0), np.minimum(upper, 1.0)
    rank = pmdp.table.reduction.rank
    A, b = _checked_extra(extra, rank)
    if rank == 0:
        return Box(np.zeros(0), np.zeros(0))
    fixed = _fixed_part(pmdp)
    chart = fixed.chart
    if len(A) and chart is not None:
        b = b + 8 * UNIT_ROUNDOFF * (np.abs(A) @ np.abs(chart.embedding) @ _reach(fixed.lower, fixed.upper))
        A = A @ chart.embedding
    rows = np.vstack([A.reshape(-1, len(fixed.lower)), fixed.rows, fixed.expressions.rows])
    rhs = np.concatenate([b, fixed.rhs, fixed.expressions.rhs(lower, upper)])
    if chart is None:
        return Polytope(rows, rhs, fixed.lower, fixed.upper)
    region = relax(chart, rows, rhs, fixed.lower, fixed.upper)
    return region if chart.is_identity else Image(region, chart.embedding)


def lies_inside(pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray, ellipsoid: Ellipsoid, share: float) -> bool:
    """Whether every row of `build_region` cuts off at most ``share`` of the ellipsoid's width (affine models only)."""
    fixed = _fixed_part(pmdp)
    if fixed.chart is not None and not fixed.chart.is_identity:
        return False
    rows = np.vstack([fixed.rows, fixed.expressions.rows])
    rhs = np.concatenate([fixed.rhs, fixed.expressions.rhs(np.maximum(lower, 0.0), np.minimum(upper, 1.0))])
    return ellipsoid.fits(rows, rhs, fixed.lower, fixed.upper, share)


def domain_region(pmdp: ParametricMDP) -> Region:
    """The domain with every expression in [0, 1], in reduced coordinates x."""
    ones = np.ones(pmdp.num_expressions)
    return build_region(pmdp, 0.0 * ones, ones)


def checked_bounds(
    pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray, tolerance: float = np.inf
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on all expressions as float arrays, in [0, 1] up to a tolerance; ModelError names the place."""
    lower, upper = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    shape = (pmdp.num_expressions,)
    if lower.shape != shape or upper.shape != shape:
        raise ModelError(f"bounds have shapes {lower.shape} and {upper.shape}; the model has {shape[0]} expressions")
    for bad, what in (
        (~np.isfinite(lower) | ~np.isfinite(upper), "bounds are not finite"),
        (lower > upper, "the lower bound exceeds the upper bound"),
        ((lower < -tolerance) | (upper > 1 + tolerance), "bounds leave [0, 1]"),
    ):
        if bad.any():
            f = int(np.argmax(bad))
            used = np.flatnonzero(pmdp.expression == f)
            place = pmdp.transition_name(int(used[0])) if len(used) else f"expression {pmdp.table.polynomial(f)}"
            raise ModelError(f"{what} ([{lower[f]}, {upper[f]}]) at {place}")
    return lower, upper


def _checked_extra(extra: tuple[np.ndarray, np.ndarray] | None, rank: int) -> tuple[np.ndarray, np.ndarray]:
    if extra is None:
        return np.zeros((0, rank)), np.zeros(0)
    A, b = np.asarray(extra[0], dtype=np.float64), np.asarray(extra[1], dtype=np.float64).ravel()
    if A.ndim != 2 or A.shape != (len(b), rank):
        raise ModelError(f"extra rows of shape {A.shape} with {len(b)} right sides; the model has rank {rank}")
    return A, b


def _reach(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    return np.maximum(np.abs(lower), np.abs(upper))
