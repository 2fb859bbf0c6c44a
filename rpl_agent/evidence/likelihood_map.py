"""Maximum a-posteriori points by damped Newton inside the domain.

The point need not be exact: every bound built on it holds at any interior point of the domain, a better
point only makes it tighter. It minimises

    g(z) − τ Σ_i ln(b_i − a_i·z),      g(z) = −Σ_f K_f ln f[x(z)],

over the rows A z ≤ b of the domain. The barrier keeps z inside, where the confidence set's mixture needs a
ball around it, and bounds the Hessian where data say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rpl_agent.evidence import _newton
from rpl_agent.model.expressions import Reduction
from rpl_agent.model.pmdp import ParametricMDP

#: Weight of the barrier: as strong as one pseudo-observation per domain row.
BARRIER = 1.0
MAX_STEPS = 100
#: Newton stops when the predicted decrease (nats) is below this: far below what moves a region.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Chart:
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
        _newton.coordinates_many(z, *self.monomials, out)
        return out

    @cached_property
    def monomials(self) -> tuple[np.ndarray, np.ndarray]:
        """(exponents, matrix) of x(z) for compiled code; empty for the identity."""
        if self.reduction is None:
            return np.zeros((0, self.dimension), dtype=np.int64), np.zeros((self.dimension, 0))
        return self.reduction.exponents.astype(np.int64), np.ascontiguousarray(self.reduction.matrix, dtype=float)

    def jacobian(self, z: np.ndarray) -> np.ndarray | None:
        """∂x/∂z (r, k) at one point, None for the identity."""
        if self.reduction is None:
            return None
        out = np.empty((self.reduction.rank, self.dimension))
        _newton.jacobian(np.asarray(z, dtype=float), *self.monomials, out)
        return out

    def contains(self, z: np.ndarray) -> np.ndarray:
        """Whether each z (n, k) satisfies the domain's rows, exactly as computed."""
        return (np.atleast_2d(z) @ self.A.T <= self.b).all(axis=1)


def domain_chart(pmdp: ParametricMDP) -> Chart:
    """z = θ with the domain's own rows, for any model."""
    A, b = pmdp.domain.constraints()
    reduction = pmdp.table.reduction
    return Chart(A, b, pmdp.domain.center(), None if reduction.is_identity else reduction)


def inverse_factor(matrix: np.ndarray) -> np.ndarray:
    """The inverse of the lower triangular L with LL' = ``matrix`` (k, k); LinAlgError if it has no such root."""
    out = np.empty(matrix.shape)
    if not _newton.inverse_factor(np.ascontiguousarray(matrix), out):
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return out


@dataclass(frozen=True)
class Fit:
    """A point near the optimum: z, x(z), and the curvature there in z (likelihood part and with barrier)."""

    z: np.ndarray
    x: np.ndarray
    information: np.ndarray  # (k, k) Σ K_f ∇f∇f'/f², positive semidefinite
    precision: np.ndarray  # (k, k) information + barrier, positive definite
    decrement: float  # predicted distance (nats, doubled) to the optimum; the rule's own error estimate


def fit(
    constant: np.ndarray,
    weights: np.ndarray,
    counts: np.ndarray,
    chart: Chart,
    start: np.ndarray | None = None,
    barrier: float = BARRIER,
) -> Fit:
    """Minimise the penalised negative log-likelihood.

    Parameters
    ----------
    constant, weights, counts : (n,), (n, r), (n,) expressions f = constant + weights·x and K_f ≥ 0
        (real numbers: mixtures of windows are allowed).
    start : warm start (k,); ignored unless it is strictly inside.
    """
    used = counts > 0
    constant, weights, counts = constant[used], np.ascontiguousarray(weights[used]), counts[used]
    x, k = np.empty(weights.shape[1]), chart.dimension
    model = (chart.A, chart.b, barrier, *chart.monomials, constant, weights, counts)
    z = np.array(chart.start if start is None or np.shape(start) != (k,) else start, dtype=float)
    if start is not None and not np.isfinite(_newton.penalised(z, *model, x)):
        z = chart.start.copy()
    information, precision = np.empty((k, k)), np.empty((k, k))
    decrement = _newton.newton(z, *model, MAX_STEPS, TOLERANCE, x, information, precision)
    return Fit(z, x, information, precision, float(decrement))
