"""Pieces of a region: boxes of its coordinates, halved where a bound is worst.

A bound of a box holds for the parameters of the region in it; the boxes cover the region, so the worst of their bounds
holds for all. What affine functions lose is of second order in the width of a box: with little data a few boxes prove
far more than the whole region.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

#: no more boxes once a split gains less than this share of the bound
SETTLED = 1e-3
#: how many coordinates are tried for a split, the widest ones first
AXES = 3
#: the middle of a box is rounded to this share of its width, so that its digits are few
ROUNDED = 2.0**-6


@dataclass(eq=False)
class BoxNode:
    """A box, and its halves if it was split."""

    lower: np.ndarray  # (r,)
    upper: np.ndarray  # (r,)
    bound: float  # larger is worse; −inf if the region has no parameter in the box
    content: Any = None  # what proves the bound
    axis: int = -1
    halves: tuple[BoxNode, BoxNode] | None = None

    @property
    def middle(self) -> float:
        """Where the box is split along its axis."""
        return _middle(float(self.lower[self.axis]), float(self.upper[self.axis]))


Attempt = Callable[[np.ndarray, np.ndarray], tuple[float, Any]]


def split_boxes(root: BoxNode, attempt: Attempt, sizes: np.ndarray, budget: int, enough: float) -> float:
    """Split a box until the worst bound is good enough, or a budget of boxes is spent; return the worst bound.

    attempt : (lower, upper) of a box -> (its bound, inf if there is none; content)
    sizes : (r,) how much the model changes per unit of each coordinate
    """
    leaves = [root]
    while len(leaves) < budget:
        worst = max(leaves, key=lambda leaf: leaf.bound)
        if worst.bound <= enough:
            break
        axes = np.argsort(-sizes * (worst.upper - worst.lower), kind="stable")[:AXES].tolist()
        ways = [(axis, _halved(worst, axis, attempt)) for axis in axes]
        axis, halves = min(ways, key=lambda way: _merit(way[1]))
        if math.isfinite(worst.bound) and not _merit(halves)[0] < worst.bound - SETTLED * abs(worst.bound):
            break
        worst.axis, worst.halves = axis, halves
        leaves.remove(worst)
        leaves += halves
    return max(leaf.bound for leaf in leaves)


def _merit(halves: tuple[BoxNode, BoxNode]) -> tuple[float, float]:
    bounds = [half.bound for half in halves]
    return max(bounds), min(bounds)


def _halved(node: BoxNode, axis: int, attempt: Attempt) -> tuple[BoxNode, BoxNode]:
    middle = _middle(float(node.lower[axis]), float(node.upper[axis]))
    first, last = node.upper.copy(), node.lower.copy()
    first[axis] = last[axis] = middle
    below, above = (BoxNode(*box, *attempt(*box)) for box in ((node.lower, first), (last, node.upper)))
    return below, above


def _middle(low: float, high: float) -> float:
    """Near the middle, with few digits."""
    unit = 2.0 ** math.floor(math.log2(high - low)) * ROUNDED if high > low else 0.0
    found = round((low + high) / 2 / unit) * unit if unit > 0.0 else low
    return found if low < found < high else (low + high) / 2
