"""Coordinates in which probabilities over parameters live."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rpl_agent._core import Struct, core
from rpl_agent.highs import minimiser
from rpl_agent.model.caching import cached_on
from rpl_agent.model.domain import Domain
from rpl_agent.model.expressions import Reduction
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.unused import without_unused
from rpl_agent.model.validation import RANGE_TOLERANCE, expression_range

#: Up to this many parameters the domain's vertices are enumerated to project it.
MAX_PROJECTED = 8
#: Up to this many coordinates the set on which all expressions are probabilities is enumerated.
MAX_WIDER = 5


@dataclass(frozen=True)
class ParameterChart:
    """Coordinates z in which probabilities over parameters live, with the domain's rows A z ≤ b there.

    Affine models: z = x, the reduced coordinates (``reduction`` is None). Polynomial models: z = θ, and
    x(z) are the reduced monomials; g is not convex in z, yet every bound remains one.
    """

    A: np.ndarray  # (m, k)
    b: np.ndarray  # (m,)
    start: np.ndarray  # (k,) interior point
    reduction: Reduction | None = None

    def __post_init__(self) -> None:
        for name in ("A", "b", "start"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=float))

    @property
    def dimension(self) -> int:
        return len(self.start)

    @property
    def has_interior(self) -> bool:
        """Whether the domain has room in every direction (a parameter that is fixed by its bounds has none)."""
        return bool((self.b - self.A @ self.start > 1e-9 * (1.0 + np.abs(self.b))).all())

    def coordinates(self, z: np.ndarray) -> np.ndarray:
        """x (n, r) of points z (n, k)."""
        z = np.ascontiguousarray(np.atleast_2d(z), dtype=float)
        if self.reduction is None:
            return z
        out = np.empty((len(z), self.reduction.rank))
        core.coordinates(self.struct, len(z), z, out)
        return out

    @cached_property
    def struct(self) -> Struct:
        """As C sees it."""
        k = self.dimension
        exponents, matrix = np.zeros((0, k), dtype=np.int64), np.zeros((k, 0))
        if self.reduction is not None:
            exponents = np.ascontiguousarray(self.reduction.exponents, dtype=np.int64)
            matrix = np.ascontiguousarray(self.reduction.matrix, dtype=float)
        return core.ParameterChart(
            k=k, r=len(matrix), monomials=len(exponents), rows=len(self.b), exponents=exponents, matrix=matrix,
            A=self.A, b=self.b,
        )  # fmt: skip

    def jacobian(self, z: np.ndarray) -> np.ndarray | None:
        """∂x/∂z (r, k) at one point, None for the identity."""
        if self.reduction is None:
            return None
        out = np.empty((self.reduction.rank, self.dimension))
        core.jacobian(self.struct, np.ascontiguousarray(z, dtype=float), out)
        return out

    def contains(self, z: np.ndarray) -> np.ndarray:
        """Whether each z (n, k) satisfies the domain's rows, exactly as computed."""
        return (np.atleast_2d(z) @ self.A.T <= self.b).all(axis=1)


def domain_chart(pmdp: ParametricMDP) -> ParameterChart:
    """z = θ with the domain's own rows, for any model."""
    A, b = pmdp.domain.constraints()
    reduction = pmdp.table.reduction
    return ParameterChart(A, b, pmdp.domain.center(), None if reduction.is_identity else reduction)


def parameter_chart(pmdp: ParametricMDP) -> ParameterChart:
    """The coordinates in which the mixtures live, cached with the model.

    Affine models whose parameters are not all identifiable: the reduced coordinates x, over the exact
    projection of the domain where that is cheap (one coordinate, or few parameters).
    """
    return cached_on(pmdp, "likelihood chart", _chart_of)


def _chart_of(pmdp: ParametricMDP) -> ParameterChart:
    pmdp = without_unused(pmdp)
    reduction, domain = pmdp.table.reduction, pmdp.domain
    if not pmdp.table.is_affine or reduction.is_identity:
        return domain_chart(pmdp)
    matrix = np.asarray(reduction.matrix)
    if reduction.rank == 1:
        A, b = domain.constraints()
        ends = []
        gradient = matrix[0] @ reduction.exponents
        for sign in (1.0, -1.0):
            point = minimiser(sign * gradient, A, b)
            assert point is not None, "domains are bounded, and an empty one has been refused"
            ends.append(float(gradient @ point))
        vertices = np.array(ends)[:, None]
    elif domain.dimension <= MAX_PROJECTED:
        from scipy.spatial import HalfspaceIntersection

        A, b = domain.constraints()
        corners = HalfspaceIntersection(np.hstack([A, -b[:, None]]), domain.center()).intersections
        vertices = reduction.coordinates(corners)
    else:
        return domain_chart(pmdp)
    return _hull_chart(vertices)


def wider_chart(pmdp: ParametricMDP) -> ParameterChart:
    """The coordinates of `parameter_chart` over more than the domain, as far as every expression is a probability.

    Rows sum to 1 identically, so parameters out there make a Markov decision process of the same graph, too. Affine
    models of few dimensions: {x : 0 ≤ f[x] ≤ 1 for all f}. Polynomial ones: [0, 1] for each parameter, if that will do.
    """
    return cached_on(pmdp, "wider chart", _wider)


def _wider(pmdp: ParametricMDP) -> ParameterChart:
    chart, pmdp = parameter_chart(pmdp), without_unused(pmdp)
    reduction, domain = pmdp.table.reduction, pmdp.domain
    if chart.reduction is not None:
        larger = Domain(
            domain.parameters, np.minimum(domain.lower, 0.0), np.maximum(domain.upper, 1.0), domain.A, domain.b
        )
        low, high = expression_range(pmdp.table, larger)
        if (low < -RANGE_TOLERANCE).any() or (high > 1.0 + RANGE_TOLERANCE).any():
            return chart
        return ParameterChart(*larger.constraints(), chart.start, chart.reduction)
    if not chart.has_interior or reduction.rank > MAX_WIDER:
        return chart
    free = np.flatnonzero(~pmdp.table.is_constant)
    weights, constant = np.asarray(reduction.weights)[free], pmdp.table.constant[free]
    rows = np.column_stack([np.vstack([weights, -weights]), -np.concatenate([1.0 - constant, constant])])
    rows = np.unique(np.round(rows / np.linalg.norm(rows[:, :-1], axis=1)[:, None], 13), axis=0)
    if reduction.rank == 1:
        ends = -rows[:, 1] / rows[:, 0]
        return _hull_chart(np.array([[ends[rows[:, 0] < 0].max()], [ends[rows[:, 0] > 0].min()]]), chart.start)
    from scipy.spatial import HalfspaceIntersection

    return _hull_chart(HalfspaceIntersection(rows, chart.start).intersections, chart.start)


def _hull_chart(vertices: np.ndarray, start: np.ndarray | None = None) -> ParameterChart:
    """Chart of the convex hull of points x (n, r), a hair inside so that every point of it is a parameter."""
    if vertices.shape[1] == 1:
        A, b = np.array([[1.0], [-1.0]]), np.array([vertices.max(), -vertices.min()])
    else:
        from scipy.spatial import ConvexHull

        equations = ConvexHull(vertices).equations
        A, b = equations[:, :-1], -equations[:, -1]
    return ParameterChart(A, b - 1e-9 * (1.0 + np.abs(b)), vertices.mean(axis=0) if start is None else start)
