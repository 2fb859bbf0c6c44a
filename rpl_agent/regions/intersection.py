"""Intersections and linear images of regions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rpl_agent._core import UNIT_ROUNDOFF
from rpl_agent.errors import ModelError
from rpl_agent.regions.base import Region, RegionKernel, checked_directions, checked_points
from rpl_agent.regions.box import Box
from rpl_agent.regions.lp import LinearProgram
from rpl_agent.regions.polytope import Polytope


class Intersection:
    """The intersection of regions, bounded per query by the best of its members.

    Parameters
    ----------
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
        return np.max([m.minimize(directions) for m in self.members], axis=0)

    def contains(self, points: np.ndarray) -> np.ndarray:
        return np.all([m.contains(points) for m in self.members], axis=0)

    def box(self) -> tuple[np.ndarray, np.ndarray]:
        boxes = [m.box() for m in self.members]
        return np.max([lo for lo, _ in boxes], axis=0), np.min([hi for _, hi in boxes], axis=0)

    def kernel(self) -> RegionKernel | None:
        """The first polytope and the first ellipsoid: exact if there are no more members."""
        kernels = [k for k in (m.kernel() for m in self.members) if k is not None]
        polytope = next((k for k in kernels if k.polytope is not None), None)
        ellipsoid = next((k.ellipsoid for k in kernels if k.ellipsoid is not None), None)
        if polytope is None:
            return None if ellipsoid is None else RegionKernel(None, ellipsoid, None)
        return RegionKernel(polytope.polytope, ellipsoid, polytope.embedding)


class Image(Region):
    """{embedding z : z in inner}: a region described in coordinates other than x, for example in all monomials.

    Parameters
    ----------
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
    return Polytope(
        np.vstack([p.A for p in polytopes]),
        np.concatenate([p.b for p in polytopes]),
        np.max([p.lower for p in polytopes], axis=0),
        np.min([p.upper for p in polytopes], axis=0),
    )
