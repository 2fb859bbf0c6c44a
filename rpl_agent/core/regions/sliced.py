"""`Sliced`: a product of blocks, cut by what is known across blocks: an ellipsoid around all coordinates, and slabs.

A support query over all three is one over each, by weak duality: for any multipliers m ≥ 0 of the slabs A x ≤ b and any
q, each x of the region has

    c·x  =  (c + A'm + q)·x − q·x − m·Ax  ≥  min (c + A'm + q)·x over the product + min −q·x over the ellipsoid − m·b,

so blocks stay separable, and nothing grows with the product of their sizes. A linear program finds good m and q; the
bound holds for any.
"""

from __future__ import annotations

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.core.regions.base import CONTAINS_TOLERANCE, Region, RegionKernel, checked_directions, checked_points
from rpl_agent.core.regions.intersection import Ellipsoid, Intersection
from rpl_agent.core.regions.lp import LinearProgram
from rpl_agent.core.regions.polytope import Polytope
from rpl_agent.core.regions.product import Product

#: Multipliers are searched only in queries of at most this many directions: they take a linear program each.
FEW = 8
#: The most linear programs for one direction; each adds a plane that touches the ellipsoid.
PROGRAMS = 32
#: The search ends when a program gains less than this share of the width.
SETTLED = 1e-5


class Sliced(Region):
    """A product, intersected with an ellipsoid and with A x ≤ b.

    product : the blocks
    around : an ellipsoid around all coordinates, if one is known
    A, b : (k, r) and (k,), the slabs A x ≤ b
    """

    def __init__(self, product: Product, around: Ellipsoid | None, A: np.ndarray, b: np.ndarray) -> None:
        self.product, self.around = product, around
        self.A, self.b = np.ascontiguousarray(A, dtype=np.float64), np.asarray(b, dtype=np.float64)
        if self.A.shape != (len(self.b), product.dimension):
            raise ModelError(f"{len(self.b)} slabs of shape {self.A.shape} for {product.dimension} coordinates")
        if around is not None and around.dimension != product.dimension:
            raise ModelError(f"an ellipsoid of {around.dimension} coordinates around {product.dimension}")

    @property
    def dimension(self) -> int:
        return self.product.dimension

    @property
    def is_empty(self) -> bool:
        if self.product.is_empty or (self.around is not None and self.around.is_empty):
            return True
        low, high = self.box()
        return bool((low > high).any() or (self.product.minimize(self.A) > self.b).any())

    def minimize(self, directions: np.ndarray) -> np.ndarray:
        directions = checked_directions(directions, self.dimension)
        found = self.product.minimize(directions)
        if self.around is not None:
            found = np.maximum(found, self.around.minimize(directions))
        if len(directions) <= FEW and np.isfinite(found).all():
            found = np.maximum(found, [self._dual(c) if c.any() else -np.inf for c in directions])
        return found

    def apart(self) -> Intersection:
        """The same set as an intersection: queries are far cheaper, and nearly as tight in a small box."""
        around = [] if self.around is None else [self.around]
        return Intersection([Polytope(self.A, self.b, *self.box()), self.product, *around])

    def _dual(self, c: np.ndarray) -> float:
        """The best bound found by multipliers of slabs and of planes that touch the ellipsoid.

        Programs are in units of the box, with rows of length 1, as HiGHS' tolerances want it.
        """
        low, high = self.box()
        middle, half = (low + high) / 2, np.maximum((high - low) / 2, 1e-12)
        scale = float(np.linalg.norm(c * half))
        sums, rests = self.product.rest_rows()  # they guide the search only: every point of the product satisfies them
        rows, ends = np.vstack([self.A, sums]), np.concatenate([self.b, rests])
        slabs, known, best = len(self.b), len(ends), -np.inf
        for _ in range(PROGRAMS if scale > 0.0 else 0):
            size = np.maximum(np.linalg.norm(rows * half, axis=1), 1e-300)
            unit = LinearProgram(
                rows * half / size[:, None], (ends - rows @ middle) / size, -np.ones(len(c)), np.ones(len(c))
            )
            y, found = unit.optimum(c * half / scale)
            if found is None:
                break
            m = found * scale / size
            bound = self._bound(c, m[:slabs], m[known:] @ rows[known:])
            settled = best > -np.inf and bound - best < SETTLED * abs(bound - float(c @ middle))
            best, plane = max(best, bound), self._cutting_plane(middle + half * y)
            if plane is None or settled:
                break
            rows, ends = np.vstack([rows, plane[0]]), np.append(ends, plane[1])
        return best

    def _cutting_plane(self, x: np.ndarray) -> tuple[np.ndarray, float] | None:
        """A plane (n, e) with n·x ≤ e on the ellipsoid that cuts off a point; None if the point is hardly outside."""
        if self.around is None:
            return None
        n = self.around.H @ (x - self.around.center)
        n /= max(float(np.linalg.norm(n)), 1e-300)
        end = -float(self.around.minimize(-n[None])[0])
        width = end - float(n @ self.around.center)
        return (n, end) if float(n @ x) > end + 1e-6 * width else None

    def _bound(self, c: np.ndarray, m: np.ndarray, q: np.ndarray) -> float:
        """The bound of the formula above, rounding included."""
        rest = c + m @ self.A + q
        found = float(self.product.minimize(rest[None])[0]) - float(m @ self.b)
        if self.around is not None and q.any():
            found += float(self.around.minimize(-q[None])[0])
        low, high = self.product.box()
        reach = np.maximum(np.abs(low), np.abs(high))
        size = (np.abs(c) + m @ np.abs(self.A) + 2.0 * np.abs(q)) @ reach + m @ np.abs(self.b)
        return found - (4.0 * (len(m) + self.dimension) + 32.0) * UNIT_ROUNDOFF * float(size)

    def contains(self, points: np.ndarray) -> np.ndarray:
        points = checked_points(points, self.dimension)
        size = np.abs(points) @ np.abs(self.A).T + np.abs(self.b)
        inside = (points @ self.A.T <= self.b + CONTAINS_TOLERANCE * (1.0 + size)).all(axis=1)
        inside &= self.product.contains(points)
        return inside if self.around is None else inside & self.around.contains(points)

    def box(self) -> tuple[np.ndarray, np.ndarray]:
        low, high = self.product.box()
        if self.around is None:
            return low, high
        least, most = self.around.box()
        return np.maximum(low, least), np.minimum(high, most)

    def kernel(self) -> RegionKernel | None:
        return None if self.around is None else self.around.kernel()
