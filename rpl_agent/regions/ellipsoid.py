"""An ellipsoid: every support query is a closed formula."""

from __future__ import annotations

import numpy as np

from rpl_agent._core import UNIT_ROUNDOFF, core
from rpl_agent.errors import ModelError
from rpl_agent.regions.base import (
    CONTAINS_TOLERANCE,
    EllipsoidData,
    Region,
    RegionKernel,
    checked_directions,
    checked_points,
)

#: largest accepted error of the computed factor of H; the radius is enlarged to match
MAX_DEFECT = 0.5


class Ellipsoid(Region):
    """{x : (x - center)' H (x - center) <= radius2}.

    min a.x = a.center - sqrt(radius2 a'H^-1 a). H^-1 is kept as a factor L whose error is measured: if
    |L'HL - I| <= e in Frobenius norm then H^-1 <= L L' / (1 - e), so enlarging the radius by 1 / sqrt(1 - e) makes
    the formula a bound.

    Parameters
    ----------
    center : (r,)
    H : (r, r) symmetric and positive definite (see `regularised` if it is singular)
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

    @classmethod
    def regularised(
        cls, center: np.ndarray, H: np.ndarray, radius2: float, lower: np.ndarray, upper: np.ndarray
    ) -> Ellipsoid:
        """An ellipsoid that contains {x in [lower, upper] : (x - center)'H(x - center) <= radius2}, H singular or not.

        Adding a small diagonal D to H and its largest value on the box to radius2 keeps every such point.
        """
        center, H = np.asarray(center, float), np.asarray(H, float)
        half = np.maximum(np.maximum(np.abs(upper - center), np.abs(lower - center)), 1e-300)
        share = 1e-9 * max(float(np.trace(H * np.outer(half, half))), radius2, 1e-300) / len(center)
        return cls(center, H + np.diag(share / half**2), radius2 + share * len(center) * (1 + 1e-9))

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
        raise ModelError("the matrix of an ellipsoid is not positive definite; use Ellipsoid.regularised")
    scale = np.exp2(-np.round(0.5 * np.log2(diagonal)))  # powers of two: the scaling is exact
    scaled = H * np.outer(scale, scale)
    try:
        cholesky = np.linalg.cholesky(scaled)
    except np.linalg.LinAlgError:
        raise ModelError("the matrix of an ellipsoid is not positive definite; use Ellipsoid.regularised") from None
    factor = np.linalg.solve(cholesky.T, np.eye(r))  # scipy's solve_triangular starts threads for any size
    size = np.abs(factor).T @ np.abs(scaled) @ np.abs(factor)
    defect = np.linalg.norm(factor.T @ scaled @ factor - np.eye(r)) + (2 * r + 8) * UNIT_ROUNDOFF * size.sum()
    if not defect < MAX_DEFECT:
        raise ModelError("the matrix of an ellipsoid is too ill-conditioned; use Ellipsoid.regularised")
    radius = np.sqrt(radius2 / (1.0 - defect)) * (1.0 + 1e-14)
    return np.ascontiguousarray(scale[:, None] * factor), float(radius)
