"""Ellipsoids, intersections and linear images of regions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.native import UNIT_ROUNDOFF, core
from rpl_agent.core.regions.base import (
    CONTAINS_TOLERANCE,
    MAX_DEFECT,
    Box,
    EllipsoidData,
    Region,
    RegionKernel,
    checked_directions,
    checked_points,
)
from rpl_agent.core.regions.lp import LinearProgram
from rpl_agent.core.regions.polytope import Polytope


class Ellipsoid(Region):
    """{x : (x - center)' H (x - center) <= radius2}.

    min a.x = a.center - sqrt(radius2 a'H^-1 a). H^-1 is kept as a factor L whose error is measured: if
    |L'HL - I| <= e in Frobenius norm then H^-1 <= L L' / (1 - e), so enlarging the radius by 1 / sqrt(1 - e) makes
    the formula a bound.

    center : (r,)
    H : (r, r) symmetric and positive definite
    radius2 : negative for the empty set
    """

    def __init__(self, center: np.ndarray, H: np.ndarray, radius2: float) -> None:
        self.center = np.array(center, dtype=np.float64).ravel()
        self.H = np.array(H, dtype=np.float64)
        r = len(self.center)
        if self.H.shape != (r, r):
            raise ModelError(f"a centre of {r} coordinates and a matrix of shape {self.H.shape}")
        if not (np.isfinite(self.center).all() and np.isfinite(self.H).all() and np.isfinite(radius2)):
            raise ModelError("the numbers of an ellipsoid must be finite")
        if np.abs(self.H - self.H.T).max(initial=0.0) > 1e-9 * np.abs(self.H).max(initial=0.0):
            raise ModelError("the matrix of an ellipsoid must be symmetric")
        self.H = (self.H + self.H.T) / 2
        self.radius2 = float(radius2)
        self._data = EllipsoidData(self.center, *_safe_factor(self.H, max(self.radius2, 0.0)))

    @property
    def dimension(self) -> int:
        return len(self.center)

    @property
    def is_empty(self) -> bool:
        return self.radius2 < 0

    def minimize(self, directions: np.ndarray) -> np.ndarray:
        directions = checked_directions(directions, self.dimension)
        if self.is_empty:
            return np.full(len(directions), np.inf)
        values = np.empty(len(directions))
        core.support_ellipsoid_many(*directions.shape, *self._data, directions, values)
        return values

    def contains(self, points: np.ndarray) -> np.ndarray:
        offset = checked_points(points, self.dimension) - self.center
        return np.einsum("ij,jk,ik->i", offset, self.H, offset) <= self.radius2 * (1 + CONTAINS_TOLERANCE)

    def fits(self, rows: np.ndarray, rhs: np.ndarray, lower: np.ndarray, upper: np.ndarray, share: float) -> bool:
        """Whether rows x ≤ rhs and the box [lower, upper] cut off no more than ``share`` of the ellipsoid's width."""
        least, most = self.minimize(rows), -self.minimize(-rows)
        low, high = self.box()
        depth = share * (high - low)
        inside = (lower - low <= depth).all() and (high - upper <= depth).all()
        return bool(inside and (most - rhs <= share * (most - least)).all())

    def kernel(self) -> RegionKernel:
        return RegionKernel(None, self._data, None)


def _safe_factor(H: np.ndarray, radius2: float) -> tuple[np.ndarray, float]:
    """(L, radius) with {|x'Hx| <= radius2} inside {radius L z : |z| <= 1}."""
    r = len(H)
    diagonal = np.diag(H)
    if (diagonal <= 0).any():
        raise ModelError("the matrix of an ellipsoid is not positive definite")
    scale = np.exp2(-np.round(0.5 * np.log2(diagonal)))  # powers of two: the scaling is exact
    scaled = H * np.outer(scale, scale)
    try:
        cholesky = np.linalg.cholesky(scaled)
    except np.linalg.LinAlgError:
        raise ModelError("the matrix of an ellipsoid is not positive definite") from None
    factor = np.linalg.solve(cholesky.T, np.eye(r))  # scipy's solve_triangular starts threads for any size
    size = np.abs(factor).T @ np.abs(scaled) @ np.abs(factor)
    defect = np.linalg.norm(factor.T @ scaled @ factor - np.eye(r)) + (2 * r + 8) * UNIT_ROUNDOFF * size.sum()
    if not defect < MAX_DEFECT:
        raise ModelError("the matrix of an ellipsoid is too ill-conditioned")
    radius = np.sqrt(radius2 / (1.0 - defect)) * (1.0 + 1e-14)
    return np.ascontiguousarray(scale[:, None] * factor), float(radius)


class Intersection(Region):
    """The intersection of regions, bounded per query by the best of its members.

    members : sequence of Region
        All of one dimension. Polytopes and boxes are merged into one polytope.
    """

    def __init__(self, members: Sequence[Region]) -> None:
        if not members or len({m.dimension for m in members}) != 1:
            raise ModelError("an intersection needs regions of one dimension")
        plain = [_as_polytope(m) for m in members if isinstance(m, Polytope | Box)]
        others = [m for m in members if not isinstance(m, Polytope | Box)]
        self.members: list[Region] = ([merged(plain)] if plain else []) + others

    @property
    def dimension(self) -> int:
        return self.members[0].dimension

    @property
    def is_empty(self) -> bool:
        if any(m.is_empty for m in self.members):
            return True
        lower, upper = self.box()
        return bool((lower > upper).any())

    def minimize(self, directions: np.ndarray) -> np.ndarray:
        return np.maximum.reduce([m.minimize(directions) for m in self.members])

    def contains(self, points: np.ndarray) -> np.ndarray:
        return np.all([m.contains(points) for m in self.members], axis=0)

    def kernel(self) -> RegionKernel | None:
        """The first polytope and the first ellipsoid: exact if there are no more members."""
        kernels = [k for k in (m.kernel() for m in self.members) if k is not None]
        polytope = next((k for k in kernels if k.polytope is not None), None)
        ellipsoid = next((k.ellipsoid for k in kernels if k.ellipsoid is not None), None)
        if polytope is None:
            return None if ellipsoid is None else RegionKernel(None, ellipsoid, None)
        return RegionKernel(polytope.polytope, ellipsoid, polytope.embedding)


class Boxed(Region):
    """The part of a region in a box: the region's linear rows and the box are one polytope.

    lower, upper : (r,) finite
    """

    def __init__(self, region: Region, lower: np.ndarray, upper: np.ndarray) -> None:
        self.region, self.lower, self.upper = region, lower, upper
        members = region.members if isinstance(region, Intersection) else [region]
        rows = [member for member in members if isinstance(member, Polytope)]
        A = np.vstack([np.zeros((0, region.dimension)), *(member.A for member in rows)])
        b = np.concatenate([np.zeros(0), *(member.b for member in rows)])
        self._part = Polytope(A, b, lower, upper)

    @property
    def dimension(self) -> int:
        return self.region.dimension

    @property
    def is_empty(self) -> bool:
        return self.region.is_empty or self._part.is_empty

    def minimize(self, directions: np.ndarray) -> np.ndarray:
        return np.maximum(self.region.minimize(directions), self._part.minimize(directions))

    def contains(self, points: np.ndarray) -> np.ndarray:
        return self.region.contains(points) & Box(self.lower, self.upper).contains(points)

    def box(self) -> tuple[np.ndarray, np.ndarray]:
        return self.lower.copy(), self.upper.copy()


class Image(Region):
    """{embedding z : z in inner}: a region described in coordinates other than x, for example in all monomials.

    inner : in n coordinates z
    embedding : (r, n) x = embedding z
    """

    def __init__(self, inner: Polytope, embedding: np.ndarray) -> None:
        self.inner = inner
        self.embedding = np.ascontiguousarray(embedding, dtype=np.float64)
        if self.embedding.ndim != 2 or self.embedding.shape[1] != inner.dimension:
            raise ModelError(f"an embedding of shape {self.embedding.shape} for {inner.dimension} coordinates")
        reach = np.maximum(np.abs(inner.lower), np.abs(inner.upper))
        # Products c'(embedding) are rounded, and so may be the embedding itself.
        self._slack = (2.0 * self.dimension + 8.0) * UNIT_ROUNDOFF * (np.abs(self.embedding) @ reach)

    @property
    def dimension(self) -> int:
        return len(self.embedding)

    @property
    def is_empty(self) -> bool:
        return self.inner.is_empty

    def minimize(self, directions: np.ndarray) -> np.ndarray:
        directions = checked_directions(directions, self.dimension)
        return self.inner.minimize(directions @ self.embedding) - np.abs(directions) @ self._slack

    def contains(self, points: np.ndarray) -> np.ndarray:
        """Whether some z in the inner polytope maps to each point (a linear program per point)."""
        points = checked_points(points, self.dimension)
        if self.is_empty:
            return np.zeros(len(points), bool)
        rows = np.vstack([self.inner.A, self.embedding, -self.embedding])
        inside = []
        for x in points:
            slack = 1e-9 * (1.0 + np.abs(x))
            rhs = np.concatenate([self.inner.b + 1e-9, x + slack, slack - x])
            inside.append(not LinearProgram(rows, rhs, self.inner.lower, self.inner.upper).proves_empty())
        return np.array(inside)

    def kernel(self) -> RegionKernel | None:
        inner = self.inner.kernel()
        return None if inner is None else RegionKernel(inner.polytope, None, self.embedding)


def _as_polytope(region: Polytope | Box) -> Polytope:
    if isinstance(region, Polytope):
        return region
    return Polytope(np.zeros((0, region.dimension)), np.zeros(0), region.lower, region.upper)


def merged(polytopes: Sequence[Polytope]) -> Polytope:
    """The intersection of polytopes as one polytope."""
    if len(polytopes) == 1:
        return polytopes[0]
    if any(p.is_empty for p in polytopes):
        return next(p for p in polytopes if p.is_empty)
    lower, upper = np.max([p.lower for p in polytopes], axis=0), np.min([p.upper for p in polytopes], axis=0)
    return Polytope(np.vstack([p.A for p in polytopes]), np.concatenate([p.b for p in polytopes]), lower, upper)
