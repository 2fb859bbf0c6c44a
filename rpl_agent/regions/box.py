"""An axis-aligned box: independent coordinates."""

from __future__ import annotations

import numpy as np

from rpl_agent._core import core
from rpl_agent.regions.base import (
    CONTAINS_TOLERANCE,
    RegionKernel,
    checked_box,
    checked_directions,
    checked_points,
)
from rpl_agent.regions.polytope_data import empty_polytope_data


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
