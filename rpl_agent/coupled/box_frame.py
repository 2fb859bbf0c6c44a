"""`BoxFrame`: a box of the parameters themselves, as the cube of coordinates in which bounds are affine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent._core import UNIT_ROUNDOFF
from rpl_agent.model import ExpressionTable
from rpl_agent.model.algebra.ranges import taylor_table
from rpl_agent.regions.base import Region
from rpl_agent.regions.frame import FrameForms


@dataclass(frozen=True)
class BoxFrame:
    """{center + half · y : |y_j| ≤ 1}, whatever the degree of the model."""

    center: np.ndarray  # (d,)
    half: np.ndarray  # (d,)

    @classmethod
    def around(cls, lower: np.ndarray, upper: np.ndarray) -> BoxFrame:
        """The frame of a box; a parameter with a single value keeps it."""
        center = np.where(lower < upper, 0.5 * (lower + upper), lower)
        reach = np.maximum(center - lower, upper - center) + 3.0 * np.spacing(np.maximum(np.abs(lower), np.abs(upper)))
        return cls(center, np.where(lower < upper, reach, 0.0))

    @property
    def lower(self) -> np.ndarray:
        return self.center - self.half

    @property
    def upper(self) -> np.ndarray:
        return self.center + self.half

    @property
    def dimension(self) -> int:
        return len(self.center)

    def split(self, table: ExpressionTable) -> FrameForms:
        """The expressions of a table as functions of y: a Taylor model over the cube."""
        if table.is_affine:
            return self._affine(table)
        value, slope, curvature, error = taylor_table(table, self.center, self.half)
        slope = slope * self.half
        rows, columns = np.tril_indices(self.dimension)
        bent = (curvature * self.half[:, None] * self.half)[:, rows, columns]
        scaled = 4.0 * UNIT_ROUNDOFF * (np.abs(slope).sum(axis=1) + cube_sizes(bent, self.dimension))
        return FrameForms(value, np.ascontiguousarray(slope), np.ascontiguousarray(bent), error + scaled)

    def _affine(self, table: ExpressionTable) -> FrameForms:
        exponents, coefficients = table.monomials, table.coefficients
        used = np.asarray(exponents.any(axis=1))
        columns = np.column_stack([np.where(used, exponents @ self.center, 1.0), exponents * self.half])
        found = coefficients @ columns
        value, slope = found[:, 0].copy(), np.ascontiguousarray(found[:, 1:])
        size = abs(coefficients) @ np.where(used, exponents @ (np.abs(self.center) + self.half), 1.0)
        terms = np.diff(coefficients.indptr).max(initial=0)
        return FrameForms(value, slope, None, (4.0 * terms + 16.0) * UNIT_ROUNDOFF * size)

    def encloses(self, region: Region) -> bool:
        """Whether the region is proved to lie in the box."""
        low, high = region.box()
        # rounding of the ends is at most half a unit in the last place
        first, last = np.nextafter(self.lower, np.inf), np.nextafter(self.upper, -np.inf)
        fixed = self.half == 0.0
        inside = np.where(fixed, low == self.center, first <= low) & np.where(fixed, high == self.center, high <= last)
        return bool(inside.all())

    def minimum(self, region: Region, value: float, slope: np.ndarray) -> float:
        """A lower bound on value + slope·y over the region."""
        used = self.half > 0.0
        c = np.where(used, slope / np.where(used, self.half, 1.0), 0.0)
        least = float(region.minimize(c[None, :])[0]) - float(c @ self.center)
        size = np.abs(c) @ (np.abs(self.center) + self.half) + abs(value)
        left = np.abs(slope[~used]).sum() + 4.0 * UNIT_ROUNDOFF * np.abs(slope).sum()
        return value + least - float(left) - (4.0 * self.dimension + 16.0) * UNIT_ROUNDOFF * float(size)


def cube_sizes(curvature: np.ndarray, d: int) -> np.ndarray:
    """(F,) bounds on |y'My| over the cube for matrices (F, d (d + 1) / 2): sums of magnitudes, rounded up."""
    rows, columns = np.tril_indices(d)
    return np.abs(curvature) @ np.where(rows == columns, 1.0, 2.0) * (1.0 + (4.0 + d * d) * UNIT_ROUNDOFF)
