"""`Region`: a set of reduced coordinates x of the parameters, accessed through one primitive, `minimize`.

Every relaxation is a set of linear functions minimised over a region: parameter-wise the parameters, expression-wise
the expressions, rectangular the Bellman gradient of every row. A new kind of region supports all of them.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import scipy

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model.caching import cached_on
from rpl_agent.core.native import core
from rpl_agent.core.regions.polytope_data import PolytopeData, empty_polytope_data

#: the largest accepted error |I − K L| of a computed inverse or factor; what rests on it is enlarged to match
MAX_DEFECT = 0.5
#: slack of `contains` for points that come from floating-point arithmetic
CONTAINS_TOLERANCE = 1e-9


class EllipsoidData(NamedTuple):
    """{center + radius * factor z : |z| <= 1}."""

    center: np.ndarray  # (r,)
    factor: np.ndarray  # (r, r)
    radius: float


class RegionKernel(NamedTuple):
    """The parts of a region for compiled code; None for parts that the region lacks."""

    polytope: PolytopeData | None  # in coordinates z with x = embedding z
    ellipsoid: EllipsoidData | None  # in coordinates x
    embedding: np.ndarray | None  # (r, n); None if z = x


@runtime_checkable
class Region(Protocol):
    """A closed set of reduced coordinates x in R^r that contains the truth with the confidence of its data."""

    @property
    def dimension(self) -> int:
        """r."""

    @property
    def is_empty(self) -> bool:
        """True only if a certified bound proves that no point is left."""

    def minimize(self, directions: np.ndarray) -> np.ndarray:
        """Guaranteed lower bounds (n,) on min c.x over the region for each direction c of (n, r); inf if empty."""

    def contains(self, points: np.ndarray) -> np.ndarray:
        """Whether each of (n, r) points satisfies the region's constraints, up to 1e-9."""

    def box(self) -> tuple[np.ndarray, np.ndarray]:
        """Outer bounds (lower (r,), upper (r,)); by default from 2r support queries, made once."""
        r = self.dimension
        values = cached_on(self, "box", lambda region: region.minimize(np.vstack([np.eye(r), -np.eye(r)])))
        return values[:r].copy(), -values[r:]

    def kernel(self) -> RegionKernel | None:
        """Arrays for compiled queries; None if every query is a linear program."""
        return None


def checked_directions(directions: np.ndarray | scipy.sparse.csr_array, dimension: int) -> np.ndarray:
    """Directions, dense or sparse, as a finite, contiguous (n, dimension) array."""
    if not isinstance(directions, np.ndarray) and scipy.sparse.issparse(directions):
        directions = directions.toarray()
    directions = np.atleast_2d(np.ascontiguousarray(directions, dtype=np.float64))
    if directions.ndim != 2 or directions.shape[1] != dimension:
        raise ModelError(f"directions of shape {directions.shape} for a region of dimension {dimension}")
    if not np.isfinite(directions).all():
        raise ModelError("a direction of a support query is not finite")
    return directions


def checked_points(points: np.ndarray, dimension: int) -> np.ndarray:
    """Points as a (n, dimension) array."""
    points = np.atleast_2d(np.asarray(points, dtype=np.float64))
    if points.shape[1] != dimension:
        raise ModelError(f"points of shape {points.shape} for a region of dimension {dimension}")
    return points


def checked_box(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finite bounds of one length (crossing bounds mean an empty box)."""
    lower, upper = np.array(lower, dtype=np.float64).ravel(), np.array(upper, dtype=np.float64).ravel()
    if lower.shape != upper.shape:
        raise ModelError(f"{len(lower)} lower and {len(upper)} upper bounds")
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise ModelError("regions must be bounded: give finite lower and upper bounds for every coordinate")
    return lower, upper


class Box:
    """{x : lower <= x <= upper}.

    Parameters
    ----------
    lower, upper : (r,) finite; crossing bounds make an empty region
    """

    def __init__(self, lower: np.ndarray, upper: np.ndarray) -> None:
        self.lower, self.upper = checked_box(lower, upper)

    @property
    def dimension(self) -> int:
        return len(self.lower)

    @property
    def is_empty(self) -> bool:
        return bool((self.lower > self.upper).any())

    def minimize(self, directions: np.ndarray) -> np.ndarray:
        """Closed form: each coordinate goes to the end given by its sign."""
        directions = checked_directions(directions, self.dimension)
        if self.is_empty:
            return np.full(len(directions), np.inf)
        return box_minimum(directions, self.lower, self.upper)

    def contains(self, points: np.ndarray) -> np.ndarray:
        points = checked_points(points, self.dimension)
        inside = (points >= self.lower - CONTAINS_TOLERANCE) & (points <= self.upper + CONTAINS_TOLERANCE)
        return np.asarray(inside.all(axis=1))

    def box(self) -> tuple[np.ndarray, np.ndarray]:
        return self.lower.copy(), self.upper.copy()

    def kernel(self) -> RegionKernel:
        return RegionKernel(empty_polytope_data(self.lower, self.upper), None, None)


def box_minimum(directions: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Lower bounds (n,) on min c.x over [lower, upper] for contiguous directions (n, r), with a margin for rounding."""
    values = np.empty(len(directions))
    core.support_box_many(*directions.shape, lower, upper, directions, values)
    return values
