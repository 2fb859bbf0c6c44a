"""`Frame`: an ellipsoid around a region, found and proved by support queries alone.

A frame is a point x0, a matrix L and a radius ρ with C ⊂ {x0 + ρ L y : |y| ≤ 1}. Affine value functions live in y:
their residuals are quadratic polynomials of y, which are easily bounded on the unit ball.

Proof from queries. Let K be an approximate inverse of L and d run through the vectors of {−1, 0, 1}^r with k
nonzero entries. If d·K(x − x0) ≤ α √k for every x of C and all those d, then the k largest entries of |z|,
z = K(x − x0), sum to at most α √k, which is also the sum of the first k entries of α n, n_k = √k − √(k−1). So |z| is
weakly majorised by α n and |z| ≤ α |n|; |n|² = Σ (√k − √(k−1))² is 1, 1.17, 1.27, 1.34, … Beyond `FULL` dimensions
only k = 1 is queried, which gives α √r. Finally ρ y = L⁻¹(x − x0) = (K L)⁻¹ z, so ρ |y| ≤ |z| / (1 − |I − K L|).
A region that is or contains an ellipsoid needs no proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from rpl_agent.core.model import ExpressionTable, cached_on
from rpl_agent.core.model.algebra.ranges import taylor_table
from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.core.regions.base import MAX_DEFECT, Region, RegionKernel
from rpl_agent.core.regions.product import Product

#: up to this dimension all 3^r − 1 directions are queried
FULL = 6
#: widths below this, relative to the coordinates, are raised to it, because a region may be a point
NARROW = 1e-13
#: a region's own ellipsoid is preferred up to this factor in size
OWN_ADVANTAGE = 1.5
#: up to this many coordinates the metric has correlations, which cost two queries for each pair
PAIRED = 16
NOTHING = RegionKernel(None, None, None)


@lru_cache(maxsize=16)
def triangle(d: int, diagonal: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(rows, columns) of the lower triangle of a (d, d) matrix, row by row."""
    return np.tril_indices(d, diagonal)


class FrameForms(NamedTuple):
    """|f(x) − p_f − slope_f·y − y'M_f y| ≤ error_f for every x of a frame; M is None if expressions are affine."""

    p: np.ndarray  # (F,)
    slope: np.ndarray  # (F, r)
    curvature: np.ndarray | None  # (F, r (r + 1) / 2) the lower triangles of M, row by row
    error: np.ndarray  # (F,)


@dataclass(frozen=True, eq=False)
class Frame:
    """C ⊂ {center + radius · factor y : |y| ≤ 1}."""

    center: np.ndarray  # (r,)
    factor: np.ndarray  # (r, r)
    radius: float
    table: ExpressionTable | None = None  # if the coordinates are the parameters of these polynomials
    box: tuple[np.ndarray, np.ndarray] | None = None  # (lower (r,), upper (r,)) of the region

    @property
    def dimension(self) -> int:
        return len(self.center)

    def split(self, table: ExpressionTable) -> FrameForms:
        """The expressions of a table as functions of y."""
        if self.table is not None:
            return cached_on(self, "forms", Frame._expanded)
        weights, constant = np.asarray(table.reduction.weights), table.constant
        p, slope = constant + weights @ self.center, (weights @ self.factor) * self.radius
        reach = np.abs(self.center) + self.radius * np.abs(self.factor).sum(axis=1)
        error = (2.0 * self.dimension + 8.0) * UNIT_ROUNDOFF * (np.abs(constant) + np.abs(weights) @ reach)
        return FrameForms(p, np.ascontiguousarray(slope), None, error)

    def _expanded(self) -> FrameForms:
        """The same for polynomials: a Taylor model over the ball."""
        assert self.table is not None
        d, factor = self.dimension, self.radius * self.factor
        reach = np.sqrt(np.square(factor).sum(axis=1)) * (1.0 + 1e-12)
        if self.box is not None:
            reach = np.minimum(reach, np.maximum(self.box[1] - self.center, self.center - self.box[0]) * (1.0 + 1e-12))
        p, slope, curvature, error = taylor_table(self.table, self.center, reach)
        rows, columns = triangle(d)
        bent = (factor.T @ curvature @ factor)[:, rows, columns]
        steps = np.abs(factor).sum(axis=1)
        size = np.abs(slope) @ reach + np.abs(curvature) @ steps @ steps
        error = error + (6.0 * d + 16.0) * UNIT_ROUNDOFF * (size + np.abs(p))
        return FrameForms(p, np.ascontiguousarray(slope @ factor), np.ascontiguousarray(bent), error)

    def encloses(self, region: Region) -> bool:
        """Whether the region is proved to lie in the frame."""
        if self.box is not None:
            low, high = region.box()
            if (low < self.box[0]).any() or (high > self.box[1]).any():
                return False
        return _norm_bounds(region, self.center, self.factor[None])[0] <= self.radius

    def least(self, region: Region, slopes: np.ndarray) -> np.ndarray:
        """(n,) lower bounds on slope·y over the region, for slopes (n, r).

        For any c, slope·y = c·(x − x0) + (slope − ρ L'c)·y; c ≈ (ρ L')⁻¹ slope makes the last term vanish.
        """
        factor = self.radius * self.factor
        c = np.linalg.solve(factor.T, slopes.T).T
        left = np.abs(slopes - c @ factor).sum(axis=1)
        size = np.abs(slopes).sum(axis=1) + np.abs(c) @ (np.abs(factor).sum(axis=1) + 2.0 * np.abs(self.center))
        return region.minimize(c) - c @ self.center - left - (4.0 * self.dimension + 16.0) * UNIT_ROUNDOFF * size

    def in_region(self, slope: np.ndarray) -> tuple[np.ndarray, float]:
        """(c (r,), error): slope·y is c·(x − center) for every x of the frame, up to the error."""
        factor = self.radius * self.factor
        c = np.linalg.solve(factor.T, slope)
        size = float(np.abs(slope).sum() + np.abs(c) @ np.abs(factor).sum(axis=1))
        left = float(np.abs(slope - c @ factor).sum())
        return c, left + (4.0 * self.dimension + 16.0) * UNIT_ROUNDOFF * size

    def minimum(self, region: Region, value: float, slope: np.ndarray) -> float:
        """A lower bound on value + slope·y over the region."""
        return value + float(self.least(region, slope[None])[0]) - 16.0 * UNIT_ROUNDOFF * abs(value)


def frame_of(region: Region, directions: np.ndarray) -> Frame | None:
    """The frame of a region in which given directions (n, r) vary least; None if its numbers are out of range.

    The directions are those of the expressions: residuals are products of their changes.

    The metric comes from widths: for an ellipsoid the squared half-width in direction q is q'Σq, so Σ follows from
    the widths along the axes and along their sums and differences.
    """
    if region.dimension == 0 or region.is_empty:
        return None
    frames = cached_on(region, "frames", _frames)
    sizes = [f.radius * float(np.linalg.norm(directions @ f.factor)) for f in frames]
    if (region.kernel() or NOTHING).ellipsoid is not None and sizes:
        sizes[0] /= OWN_ADVANTAGE  # the likelihood's own metric unless it is far larger than the region
    return frames[int(np.argmin(sizes))] if frames else None


def _frames(region: Region) -> list[Frame]:
    """The candidate frames of a region; that of its own ellipsoid comes first."""
    own, table = (region.kernel() or NOTHING).ellipsoid, getattr(region, "table", None)
    box = None if table is None else region.box()
    center, factors = _metrics(region)
    norms = _norm_bounds(region, center, factors)
    found = [] if own is None else [Frame(*own, table, box)]
    found += [Frame(center, f, norm, table, box) for f, norm in zip(factors, norms)]
    return [f for f in found if np.isfinite(f.center).all() and np.isfinite(f.factor).all() and 0.0 < f.radius < np.inf]


def use_own_frame(region: Region) -> None:
    """Make `frame_of` return the frame of the region's own ellipsoid."""
    own = (region.kernel() or NOTHING).ellipsoid
    assert own is not None
    cached_on(region, "frames", lambda _: [Frame(*own)])


def _half_widths(region: Region, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(middle, half-width) of each direction over the region."""
    values = region.minimize(np.vstack([directions, -directions]))
    low, high = values[: len(directions)], -values[len(directions) :]
    return (low + high) / 2, np.maximum((high - low) / 2, 0.0)


def _metrics(region: Region) -> tuple[np.ndarray, np.ndarray]:
    """(center (r,), factors (2, r, r)) of two ellipsoids estimated from widths."""
    r, (low, high) = region.dimension, region.box()
    middle, half = (low + high) / 2, np.maximum((high - low) / 2, 0.0)
    half = np.maximum(half, NARROW * (1.0 + np.abs(middle)))
    sigma = np.eye(r)
    block_of = region.block_of if isinstance(region, Product) else np.zeros(r)  # blocks are independent
    j, k = triangle(r, -1) if r <= PAIRED else (np.zeros(0, int), np.zeros(0, int))
    j, k = j[block_of[j] == block_of[k]], k[block_of[j] == block_of[k]]
    if len(j):
        units = np.diag(1.0 / half)
        _, width = _half_widths(region, np.concatenate([units[j] + units[k], units[j] - units[k]]))
        plus, minus = np.split(width, 2)
        sigma[j, k] = sigma[k, j] = np.clip((plus**2 - minus**2) / 4, -0.999999, 0.999999)
    eigenvalues, axes = np.linalg.eigh(sigma)
    middle, width = _half_widths(region, axes.T / half)
    # The small eigenvalues of a flat region are rounding errors; its widths along the axes are not.
    sizes = np.stack([np.maximum(width, NARROW), np.sqrt(np.maximum(eigenvalues, NARROW))])
    return half * (axes @ middle), (half[:, None] * axes) * sizes[:, None, :]


@cache
def _directions(r: int) -> tuple[np.ndarray, np.ndarray, float]:
    """(n, r) sign vectors, one of each pair d, −d; (n,) the square root of their number of entries; |n| or √r."""
    found = [d for d in product((-1, 0, 1), repeat=r) if next((e for e in d if e), 0) > 0] if r <= FULL else []
    signs = np.array(found, dtype=float) if found else np.eye(r)
    steps = np.diff(np.sqrt(np.arange(r + 1.0))) if r <= FULL else np.ones(r)
    return signs, np.sqrt(np.abs(signs).sum(axis=1)), float(np.linalg.norm(steps))


def _own_norm(region: Region) -> dict[bytes, float]:
    own = (region.kernel() or NOTHING).ellipsoid
    return {} if own is None else {own.center.tobytes() + own.factor.tobytes(): float(own.radius)}


def _norm_bounds(region: Region, center: np.ndarray, factors: np.ndarray) -> list[float]:
    """Upper bounds on |factor⁻¹ (x − center)| over the region for factors (k, r, r); inf where none was found."""
    known, keys = cached_on(region, "norms", _own_norm), [center.tobytes() + factor.tobytes() for factor in factors]
    if any(key not in known for key in keys):
        known.update(zip(keys, _new_norm_bounds(region, center, factors).tolist()))
    return [known[key] for key in keys]


def _new_norm_bounds(region: Region, center: np.ndarray, factors: np.ndarray) -> np.ndarray:
    r, count, (signs, root, longest) = len(center), len(factors), _directions(len(center))
    try:
        inverse = np.linalg.inv(factors)
    except np.linalg.LinAlgError:
        inverse = np.full(factors.shape, np.nan)
    queries = (signs @ inverse).reshape(-1, r)
    if not (np.isfinite(queries).all() and np.isfinite(center).all()):
        alone = [_new_norm_bounds(region, center, factor[None]) for factor in factors] if count > 1 else []
        return np.concatenate(alone) if alone else np.array([np.inf])
    defect = np.linalg.norm(np.eye(r) - inverse @ factors, axis=(1, 2))
    defect += (2.0 * r + 8.0) * UNIT_ROUNDOFF * (np.abs(inverse) @ np.abs(factors)).sum(axis=(1, 2))
    values = region.minimize(np.concatenate([queries, -queries])).reshape(2, count, -1)
    offset = (queries @ center).reshape(count, -1)
    most = np.maximum(-values[1] - offset, offset - values[0])
    low, high = region.box()
    size = np.maximum(np.abs(low), np.abs(high)) + np.abs(center)
    rounded = np.abs(signs) @ (np.abs(inverse) @ size).T + np.abs(values).max(axis=(0, 2))
    most += (2.0 * r + 8.0) * UNIT_ROUNDOFF * rounded.T
    alpha = (most / root).max(axis=1)
    proved = (defect < MAX_DEFECT) & np.isfinite(values).all(axis=(0, 2))
    bounds = alpha * longest / np.where(proved, 1.0 - defect, 1.0) * (1.0 + 1e-12)
    return np.where(proved, bounds, np.inf)
