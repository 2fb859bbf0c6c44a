"""`ParameterRegion`: a region of the parameters themselves, for models whose expressions are polynomials.

The truth has d dimensions, and so does this region; the monomials of the expressions, possibly hundreds, are
never coordinates. Over the ball around the region, θ = c + Ly with |y| ≤ 1, every expression is a quadratic function
of y up to an error (`algebra.ranges.taylor_table`), and a linear combination of expressions, e.g. the mean of a row, is
bounded by

    min Σ w_f f ≥ Σ w_f (p_f − error_f) + min over the region of Σ w_f slope_f·(θ − c) + min(λ, 0),    w ≥ 0,

λ the least eigenvalue of Σ w_f M_f: one support query in d dimensions, one eigenvalue of a small matrix.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Domain, ExpressionTable, ParametricMDP, cached_fact, without_unused
from rpl_agent.core.model.algebra.ranges import taylor_table
from rpl_agent.core.model.building.validation import linear_part
from rpl_agent.core.native import UNIT_ROUNDOFF, core
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.frame import Frame, FrameForms, frame_of, triangle
from rpl_agent.core.regions.lifting import ExpressionRows
from rpl_agent.core.regions.polytope import Polytope

#: Above this many parameters expressions are bounded one by one: their curvatures would take too much memory.
MAX_EXPANDED = core.MAX_BENT


class ParameterRegion:
    """A region over the parameters that a table of expressions uses.

    inner : of one dimension per parameter
    """

    def __init__(self, inner: Region, table: ExpressionTable) -> None:
        if inner.dimension != table.num_parameters:
            raise ModelError(f"a region of dimension {inner.dimension} for {table.num_parameters} parameters")
        self.inner, self.table = inner, table
        self.minimize, self.contains, self.box, self.kernel = inner.minimize, inner.contains, inner.box, inner.kernel

    @property
    def dimension(self) -> int:
        return self.inner.dimension

    @property
    def is_empty(self) -> bool:
        return self.inner.is_empty

    @property
    def is_expanded(self) -> bool:
        """Whether there are few enough parameters for quadratic forms."""
        return self.dimension <= MAX_EXPANDED

    @cached_property
    def frame(self) -> Frame:
        """The ball around the region."""
        low, high = self.box()
        width = np.maximum(high - low, 1e-300)
        found = frame_of(self, np.diag(1.0 / width))
        if found is None:
            raise ModelError("the parameters' region has no ellipsoid around it: its numbers are out of range")
        return found

    @cached_property
    def forms(self) -> FrameForms:
        """The expressions over the region, as functions of the y of its frame."""
        return self.frame.split(self.table)


def curvature_sizes(curvature: np.ndarray, d: int) -> np.ndarray:
    """(F,) bounds on |y'My| over the unit ball for matrices (F, d (d + 1) / 2): Frobenius norms, rounded up."""
    rows, columns = triangle(d)
    scale = np.abs(curvature).max(axis=1, initial=0.0)
    scaled = curvature / np.where(scale > 0.0, scale, 1.0)[:, None]
    square = (np.square(scaled) * np.where(rows == columns, 1.0, 2.0)).sum(axis=1)
    return scale * np.sqrt(square) * (1.0 + (4.0 + d * d) * UNIT_ROUNDOFF)


def least_eigenvalues(curvature: np.ndarray, d: int) -> np.ndarray:
    """Lower bounds (n,), at most 0, on the least eigenvalues of symmetric matrices (n, d (d + 1) / 2)."""
    parts = np.empty(len(curvature))
    core.negative_parts(len(curvature), d, np.ascontiguousarray(curvature), np.empty(d * (d + 1) // 2), parts)
    return -parts


# ---------------------------------------------------------------------- rows that bounds of expressions give
class ParameterRows(NamedTuple):
    """{θ in [lower, upper] : rows θ ≤ rhs}."""

    rows: np.ndarray  # (m, d)
    rhs: np.ndarray  # (m,)
    lower: np.ndarray  # (d,)
    upper: np.ndarray  # (d,)

    def polytope(self, extra: tuple[np.ndarray, np.ndarray] | None = None) -> Polytope:
        """The set, cut with extra rows (A, b)."""
        if extra is None:
            return Polytope(self.rows, self.rhs, self.lower, self.upper)
        return Polytope(np.vstack([extra[0], self.rows]), np.concatenate([extra[1], self.rhs]), self.lower, self.upper)

    def of(self, parameters: np.ndarray, domain: Domain) -> ParameterRows:
        """The rows that involve only some parameters (k,), whose domain is given."""
        others = np.ones(self.rows.shape[1], dtype=bool)
        others[parameters] = False
        own = ~self.rows[:, others].any(axis=1)
        return ParameterRows(self.rows[np.ix_(own, parameters)], self.rhs[own], domain.lower, domain.upper)


def affine_rows(model: ParametricMDP, lower: np.ndarray, upper: np.ndarray) -> ParameterRows:
    """The domain of a model without unused parameters, and lower_f ≤ f ≤ upper_f (F,) of its affine expressions."""
    domain, table = model.domain, model.table
    constant, weights = affine_slopes(table)
    informative = (lower > 0.0) | (upper < 1.0)
    reach = np.maximum(np.abs(domain.lower), np.abs(domain.upper))
    own = ExpressionRows.of(constant, np.where(informative[:, None], weights, 0.0), reach)
    rows, rhs = np.vstack([domain.A, own.rows]), np.concatenate([domain.b, own.rhs(lower, upper)])
    return ParameterRows(rows, rhs, domain.lower, domain.upper)


@cached_fact
def affine_slopes(table: ExpressionTable) -> tuple[np.ndarray, np.ndarray]:
    """(constant (F,), slopes (F, d)); slopes of non-affine expressions are 0."""
    return table.constant, np.where((table.degrees == 1)[:, None], linear_part(table), 0.0)


#: The most rounds in which bounds on expressions and on parameters tighten each other.
ROUNDS = 12
#: A round that gains less than this share of the largest width is the last one.
MIN_GAIN = 0.01


def interval_parameters(pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray) -> ParameterRegion:
    """U = D with lower_f ≤ f ≤ upper_f (F,), as a region of the used parameters.

    Over the current box every expression is affine up to an error, which turns its bounds into two rows; the polytope
    of all rows has a smaller box, and so on.
    """
    model = without_unused(pmdp)
    table, domain = model.table, model.domain
    lower, upper = np.maximum(lower, 0.0), np.minimum(upper, 1.0)
    informative = np.flatnonzero(~table.is_constant & ((lower > 0.0) | (upper < 1.0)))
    low, high = domain.lower, domain.upper
    region = Polytope(domain.A, domain.b, low, high)
    for _ in range(ROUNDS if len(informative) else 0):
        center, half = (low + high) / 2, (high - low) / 2
        p, slope, curvature, error = (array[informative] for array in taylor_table(table, center, half))
        bend = np.abs(curvature * np.outer(half, half))
        mixed = bend.sum(axis=(1, 2)) - np.einsum("fii->f", bend)
        diagonal = np.einsum("fii->fi", curvature) * half**2
        offset = slope @ center - p
        size = np.abs(slope) @ (np.abs(center) + half) + np.abs(p) + bend.sum(axis=(1, 2))
        slack = error + mixed + 8 * UNIT_ROUNDOFF * size
        above = upper[informative] + offset - np.minimum(diagonal, 0.0).sum(axis=1) + slack
        below = -lower[informative] - offset + np.maximum(diagonal, 0.0).sum(axis=1) + slack
        region = Polytope(np.vstack([domain.A, slope, -slope]), np.concatenate([domain.b, above, below]), low, high)
        if region.is_empty:
            break
        new_low, new_high = (np.clip(end, low, high) for end in region.box())
        gain = ((high - low) - (new_high - new_low)).max() / max(float((high - low).max()), 1e-300)
        low, high = new_low, new_high
        if gain < MIN_GAIN:
            break
    return ParameterRegion(region, table)
