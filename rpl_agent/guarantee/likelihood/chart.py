"""`Observations`, the argument of every likelihood function, coordinates for probabilities over parameters, and `fit`:
maximum a-posteriori points by damped Newton steps inside the domain.

The point need not be exact: every bound built on it holds at any interior point of the domain; a better
point only makes it tighter. It minimises

    g(z) − τ Σ_i ln(b_i − a_i·z),      g(z) = −Σ_f K_f ln f[x(z)],

over the rows A z ≤ b of the domain. The barrier keeps z inside, where the confidence set's mixture needs a
ball around it, and bounds the Hessian in directions without data.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import scipy

from rpl_agent.core.errors import ModelError
from rpl_agent.core.highs import minimiser
from rpl_agent.core.model import Domain, ExpressionTable, ParametricMDP, Reduction, cached_fact, without_unused
from rpl_agent.core.model.algebra.factors import Factors, factors
from rpl_agent.core.model.building.validation import RANGE_TOLERANCE, expression_range
from rpl_agent.core.native import Struct, core


@dataclass(frozen=True, eq=False)
class Observations:
    """Observed expressions f = constant_f + weights_f·x with their counts K_f; g(x) = −Σ K_f ln f[x]."""

    constant: np.ndarray  # (n,)
    weights: np.ndarray  # (n, r), contiguous
    counts: np.ndarray  # (n,) of one window, or (J, n) of several; real numbers, because windows may be mixed

    @cached_property
    def struct(self) -> Struct:
        """The struct passed to C."""
        n, r = self.weights.shape
        windows = 1 if self.counts.ndim == 1 else len(self.counts)
        return core.Observations(
            n=n, r=r, windows=windows, constant=self.constant, weights=self.weights, counts=self.counts
        )

    @classmethod
    def of(cls, pmdp: ParametricMDP, expressions: np.ndarray, counts: np.ndarray) -> Observations:
        """The ``expressions`` (n,) of a model in its reduced coordinates, with ``counts`` (n,) or (J, n)."""
        weights = pmdp.table.reduction.dense(expressions)
        return cls(pmdp.table.constant[expressions], weights, np.ascontiguousarray(counts, dtype=float))

    @property
    def used(self) -> Observations:
        """The expressions of one window that were observed."""
        seen = self.counts > 0
        if seen.all():
            return self
        return Observations(self.constant[seen], np.ascontiguousarray(self.weights[seen]), self.counts[seen])

    @property
    def largest(self) -> Observations:
        """Every expression with its largest count over the windows, which bounds the rounding error of all of them."""
        return self.counted(self.counts.max(axis=0))

    def counted(self, counts: np.ndarray) -> Observations:
        """The same expressions with other counts, (n,) or (J, n)."""
        return replace(self, counts=np.ascontiguousarray(counts, dtype=float))

    def window(self, j: int | np.ndarray) -> Observations:
        """The j-th of several windows, or those that a mask (J,) keeps."""
        return self.counted(self.counts[j])

    def values(self, x: np.ndarray) -> np.ndarray:
        """(n,) f[x] at one point."""
        return self.constant + self.weights @ x

    def cancellation(self, x: np.ndarray) -> float:
        """The largest ratio between the summands of an expression and its value."""
        summands = np.abs(self.constant) + np.abs(self.weights) @ np.abs(x)
        return float((summands / self.values(x)).max())


def rounding(observed: Observations, x: np.ndarray) -> float:
    """Bound on the floating-point error of g near x (nats), with room to spare.

    The relative error of f is its summands' rounding over f; the error of the sum of n terms is n units of Σ K|ln f|.
    """
    return (8.0 + len(observed.counts)) * np.finfo(float).eps * core.rounding_size(observed.struct, x) + 1e-9


def observed_expressions(pmdp: ParametricMDP, successes: np.ndarray) -> np.ndarray:
    """Ids of the observed expressions that carry information about the parameters."""
    return np.flatnonzero((successes > 0) & ~pmdp.table.is_constant)


#: Up to this many parameters the domain's vertices are enumerated to project it.
MAX_PROJECTED = 8
#: Up to this rank of an affine model all coordinates are searched together, by dense matrices.
MAX_RANK = 64
#: Up to this many parameters of a polynomial model there is one joint set.
JOINT_DIMENSION = 6
#: Up to this many coordinates the set on which all expressions are probabilities is enumerated.
MAX_WIDER = 5


@dataclass(frozen=True, eq=False)
class ParameterChart:
    """Coordinates z in which probabilities over parameters live, with the domain's rows A z ≤ b there.

    The likelihood is a function of the *forms* that the model's expressions are products of (`model.factors`), each
    constant + weights·x. Affine models: z = x, the reduced coordinates, and the expressions themselves are the forms.
    Products of affine terms: z = x = θ. In both cases ``reduction`` is None and g is convex in z. Where a form is left
    that is not affine, z = θ and x(z) are the reduced monomials of the forms; g is convex in x, but not in z.
    """

    A: np.ndarray  # (m, k)
    b: np.ndarray  # (m,)
    start: np.ndarray  # (k,) interior point
    reduction: Reduction | None = None
    factors: Factors | None = None  # None: the expressions are the forms
    constant: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (n,)
    weights: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))  # (n, r)

    def __post_init__(self) -> None:
        for name in ("A", "b", "start", "constant", "weights"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=float))

    @property
    def dimension(self) -> int:
        return len(self.start)

    @property
    def forms(self) -> ExpressionTable:
        """The forms of a chart of products."""
        assert self.factors is not None
        return self.factors.forms

    def form_counts(self, successes: np.ndarray) -> np.ndarray:
        """Counts (n,) or (J, n) of the forms, from those of the expressions (F,) or (J, F)."""
        return np.asarray(successes, dtype=float) if self.factors is None else self.factors.counts(successes)

    def observed(self, counts: np.ndarray) -> np.ndarray:
        """Ids of the observed forms (by counts (n,)) that carry information about the parameters."""
        return np.flatnonzero((counts > 0) & self._tells)

    @cached_property
    def _tells(self) -> np.ndarray:
        return np.asarray(self.weights.any(axis=1))

    def observations(self, forms: np.ndarray, counts: np.ndarray) -> Observations:
        """Some forms (k,) with their counts (k,) or (J, k)."""
        return Observations(
            self.constant[forms], np.ascontiguousarray(self.weights[forms]), np.ascontiguousarray(counts, dtype=float)
        )

    def seen(self, successes: np.ndarray) -> Observations:
        """The observations of expressions with these counts (F,)."""
        counts = self.form_counts(successes)
        kept = self.observed(counts)
        return self.observations(kept, counts[kept])

    @property
    def has_interior(self) -> bool:
        """Whether the domain has an interior (it has none if bounds fix a parameter)."""
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
        """The struct passed to C."""
        k = self.dimension
        exponents, matrix = np.zeros((0, k), dtype=np.int64), np.zeros((k, 0))
        if self.reduction is not None:
            exponents = np.ascontiguousarray(self.reduction.exponents, dtype=np.int64)
            matrix = np.ascontiguousarray(scipy.sparse.csr_array(self.reduction.matrix).toarray(), dtype=float)
        return core.ParameterChart(
            k=k,
            r=len(matrix),
            monomials=len(exponents),
            rows=len(self.b),
            exponents=exponents,
            matrix=matrix,
            A=self.A,
            b=self.b,
        )

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


@cached_fact
def domain_chart(pmdp: ParametricMDP) -> ParameterChart:
    """z = θ with the domain's own rows, for any model."""
    if not pmdp.table.is_affine:
        return forms_chart(pmdp.domain, factors(pmdp))
    reduction = pmdp.table.reduction
    return ParameterChart(
        *pmdp.domain.constraints(),
        pmdp.domain.center(),
        None if reduction.is_identity else reduction,
        constant=pmdp.table.constant,
        weights=reduction.dense(),
    )


def forms_chart(domain: Domain, found: Factors) -> ParameterChart:
    """z = θ for expressions that are products of forms."""
    table = found.forms
    if table.is_affine:  # x = θ, whether or not all parameters are identifiable
        weights, reduction = np.asarray(table.coefficients[:, 1:] @ table.monomials[1:].astype(float)), None
    else:
        weights, reduction = table.reduction.dense(), table.reduction
    return ParameterChart(*domain.constraints(), domain.center(), reduction, found, table.constant, weights)


@cached_fact
def parameter_chart(pmdp: ParametricMDP) -> ParameterChart:
    """The coordinates in which probabilities over parameters live.

    Affine models whose parameters are not all identifiable: the reduced coordinates x, over the exact
    projection of the domain where that is cheap (one coordinate, or few parameters).
    """
    pmdp = without_unused(pmdp)
    if not pmdp.table.is_affine or pmdp.table.reduction.is_identity:
        return domain_chart(pmdp)
    reduction, domain = pmdp.table.reduction, pmdp.domain
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
    elif reduction.rank > 1 and domain.dimension <= MAX_PROJECTED:  # at rank 0 nothing varies: no hull
        from scipy.spatial import HalfspaceIntersection

        A, b = domain.constraints()
        corners = HalfspaceIntersection(np.hstack([A, -b[:, None]]), domain.center()).intersections
        vertices = reduction.coordinates(corners)
    else:
        return domain_chart(pmdp)
    return _hull_chart(vertices, pmdp.table)


@cached_fact
def wider_chart(pmdp: ParametricMDP) -> ParameterChart:
    """The coordinates of `parameter_chart` over a superset of the domain on which every expression is a probability.

    Rows sum to 1 identically, so such parameters also define a Markov decision process on the same graph. Affine
    models of few dimensions: {x : 0 ≤ f[x] ≤ 1 for all f}. Polynomial ones: [0, 1] per parameter, where that works.
    """
    chart, pmdp = parameter_chart(pmdp), without_unused(pmdp)
    if chart.reduction is not None or not pmdp.table.is_affine:
        return _unit_chart(pmdp, chart)
    reduction = pmdp.table.reduction
    if not chart.has_interior or not 0 < reduction.rank <= MAX_WIDER:
        return chart
    free = np.flatnonzero(~pmdp.table.is_constant)
    weights, constant = np.asarray(reduction.weights)[free], pmdp.table.constant[free]
    if np.linalg.matrix_rank(weights) < reduction.rank:  # what no expression shows may be anything: no polytope
        return chart
    rows = np.column_stack([np.vstack([weights, -weights]), -np.concatenate([1.0 - constant, constant])])
    rows = np.unique(np.round(rows / np.linalg.norm(rows[:, :-1], axis=1)[:, None], 13), axis=0)
    if reduction.rank == 1:
        ends = -rows[:, 1] / rows[:, 0]
        return _hull_chart(
            np.array([[ends[rows[:, 0] < 0].max()], [ends[rows[:, 0] > 0].min()]]), pmdp.table, chart.start
        )
    if not (rows[:, :-1] @ chart.start + rows[:, -1] < 0.0).all():  # only in a model that was not validated
        raise not_probabilities(pmdp)
    from scipy.spatial import HalfspaceIntersection

    return _hull_chart(HalfspaceIntersection(rows, chart.start).intersections, pmdp.table, chart.start)


def not_probabilities(pmdp: ParametricMDP) -> ModelError:
    """The refusal of a model that was built with validate=False and has no probabilities in its domain."""
    return ModelError(
        f"expressions of {pmdp.name!r} leave [0, 1] at the centre of its domain: restrict the domain "
        "(Domain.with_simplex for the probabilities of one draw), and build with validate=True to see which"
    )


def _unit_chart(pmdp: ParametricMDP, chart: ParameterChart) -> ParameterChart:
    """The parameters' chart over [0, 1] for each, if all expressions and their factors allow it."""
    domain = pmdp.domain
    larger = Domain(domain.parameters, np.minimum(domain.lower, 0.0), np.maximum(domain.upper, 1.0), domain.A, domain.b)
    low, high = expression_range(pmdp.table, larger)
    if (low < -RANGE_TOLERANCE).any() or (high > 1.0 + RANGE_TOLERANCE).any():
        return chart
    if chart.factors is not None and (expression_range(chart.forms, larger)[0] < -RANGE_TOLERANCE).any():
        return chart
    return ParameterChart(
        *larger.constraints(), chart.start, chart.reduction, chart.factors, chart.constant, chart.weights
    )


def _hull_chart(vertices: np.ndarray, table: ExpressionTable, start: np.ndarray | None = None) -> ParameterChart:
    """Chart of the convex hull of points x (n, r), shrunk slightly so that every point of it is a parameter."""
    if vertices.shape[1] == 1:
        A, b = np.array([[1.0], [-1.0]]), np.array([vertices.max(), -vertices.min()])
    else:
        from scipy.spatial import ConvexHull

        equations = ConvexHull(vertices).equations
        A, b = equations[:, :-1], -equations[:, -1]
    weights = table.reduction.dense()
    start = vertices.mean(axis=0) if start is None else start
    return ParameterChart(A, b - 1e-9 * (1.0 + np.abs(b)), start, constant=table.constant, weights=weights)


#: Weight of the barrier: equivalent to one pseudo-observation per row of the domain.
BARRIER = 1.0
MAX_STEPS = 100
#: Newton stops when the predicted decrease (nats) is below this, far less than what moves a region.
TOLERANCE = 1e-9


def inverse_factor(matrix: np.ndarray) -> np.ndarray:
    """The inverse of the lower triangular L with LL' = ``matrix`` (k, k); LinAlgError if it has no such root."""
    out = np.empty(matrix.shape)
    if not core.inverse_factor(len(matrix), np.ascontiguousarray(matrix), out):
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return out


@dataclass(frozen=True, eq=False)
class Fit:
    """A point near the optimum: z, x(z), and the curvature there in z (likelihood part and with barrier)."""

    z: np.ndarray
    x: np.ndarray
    information: np.ndarray  # (k, k) Σ K_f ∇f∇f'/f², positive semidefinite
    precision: np.ndarray  # (k, k) information + barrier, positive definite


def fit(
    observed: Observations, chart: ParameterChart, start: np.ndarray | None = None, barrier: float = BARRIER
) -> Fit:
    """Minimise the penalised negative log-likelihood of one window; ``start`` (k,) is used if it is strictly inside."""
    observed = observed.used
    r, k = observed.weights.shape[1], chart.dimension
    model, x = (chart.struct, observed.struct, barrier), np.empty(r)
    z = np.array(chart.start if start is None or np.shape(start) != (k,) else start, dtype=float)
    if start is not None and not np.isfinite(core.penalised(*model, z, x)):
        z = chart.start.copy()
    information, precision = np.empty((k, k)), np.empty((k, k))
    scratch = np.empty(3 * k + k * k + r + r * r + r * k)
    core.newton(*model, MAX_STEPS, TOLERANCE, scratch, z, x, information, precision)
    return Fit(z, x, information, precision)


def largest_likelihood(
    observed: Observations, chart: ParameterChart, start: np.ndarray | None, barrier: float
) -> tuple[float, np.ndarray]:
    """(an upper bound on Σ K_f ln f[y] over all y in a chart that is a box, a point x (r,) near its maximum)."""
    x = fit(observed, chart, start, barrier).x
    return likelihood_above(observed, x, chart), x


def likelihood_above(observed: Observations, x: np.ndarray, chart: ParameterChart) -> float:
    """An upper bound on Σ K_f ln f[y] over all y in the chart's box; x (r,) is any point inside.

    −ln likelihood is convex, so it lies above its tangent at x, which is least in a corner.
    """
    rank, values = len(x), observed.values(x)
    if not (values > 0).all():
        return np.inf  # no bound from here: no claim
    terms = (observed.counts / values)[:, None] * observed.weights
    slope = terms.sum(axis=0)  # of the log-likelihood
    above, below = chart.b[:rank] - x, x + chart.b[rank:]  # x ≤ b[:r] and −x ≤ b[r:]
    gain = np.maximum(slope * above, -slope * below).sum()
    size = np.abs(terms).sum(axis=0) @ np.maximum(above, below)
    error = (8.0 + len(values)) * np.finfo(float).eps * (1.0 + observed.cancellation(x)) * size
    return float(observed.counts @ np.log(values) + gain + error) + rounding(observed, x)
