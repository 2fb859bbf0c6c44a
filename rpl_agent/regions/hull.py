"""What is known of a block that is too large for a region: bounds of its own expressions, and a box."""

from __future__ import annotations

import numpy as np

from rpl_agent._core import UNIT_ROUNDOFF
from rpl_agent.regions.base import CONTAINS_TOLERANCE, Region, checked_box, checked_directions, checked_points
from rpl_agent.regions.box import box_minimum


class Hull(Region):
    """{x in a box : lower_f <= constant_f + weights_f.x <= upper_f}, asked about the f themselves only.

    A query in the direction of some f, or against it, is answered by the bound of f; any other by the box.

    Parameters
    ----------
    constant : (n,) array
    weights : (n, r) array
    lower, upper : (n,) array
    box : (lower (r,), upper (r,))
    """

    def __init__(
        self, constant: np.ndarray, weights: np.ndarray, lower: np.ndarray, upper: np.ndarray,
        box: tuple[np.ndarray, np.ndarray],
    ) -> None:  # fmt: skip
        self._constant, self._weights, self._lower, self._upper = constant, weights, lower, upper
        self._box = checked_box(*box)
        slack = 2 * UNIT_ROUNDOFF * (1.0 + np.abs(constant))
        self._known: dict[bytes, float] = {}
        for w, low, high in zip(weights, lower - constant - slack, constant - upper - slack):
            for direction, bound in ((w, low), (-w, high)):
                key = (direction + 0.0).tobytes()  # + 0.0 turns -0.0 into 0.0
                self._known[key] = max(bound, self._known.get(key, -np.inf))

    @property
    def dimension(self) -> int:
        return len(self._box[0])

    @property
    def is_empty(self) -> bool:
        return bool((self._lower > self._upper).any() or (self._box[0] > self._box[1]).any())

    def minimize(self, directions: np.ndarray) -> np.ndarray:
        directions = checked_directions(directions, self.dimension) + 0.0
        if self.is_empty:
            return np.full(len(directions), np.inf)
        known = [self._known.get(direction.tobytes(), -np.inf) for direction in directions]
        return np.maximum(box_minimum(directions, *self._box), known)

    def contains(self, points: np.ndarray) -> np.ndarray:
        points = checked_points(points, self.dimension)
        values = self._constant + points @ self._weights.T
        inside = (values >= self._lower - CONTAINS_TOLERANCE) & (values <= self._upper + CONTAINS_TOLERANCE)
        return np.asarray(inside.all(axis=1))

    def box(self) -> tuple[np.ndarray, np.ndarray]:
        return self._box[0].copy(), self._box[1].copy()
