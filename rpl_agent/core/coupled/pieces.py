"""Bounds over boxes that cover a region of coordinates.

The bound of a box holds for the parameters of the region in it; the boxes cover the region, so the worst of their
bounds holds for all. What affine functions lose is of second order in the width of a box: with little data a few boxes
prove far more than the whole region.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rpl_agent.core.coupled.affine import BoxFrame
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.intersection import Boxed
from rpl_agent.core.regions.parameter_region import ParameterRegion
from rpl_agent.core.regions.polytope import GRAPH_DIMENSION
from rpl_agent.core.regions.sliced import Sliced

#: the share of what is known that a split must gain
GAINED = 0.003
#: total transitions that the pieces of a bound may have: each is checked in plain Python if there is a proof
CHECKED = 100_000
#: fewer pieces than this hardly ever get below the bound of the whole
FEWEST = 4
#: n boxes in d dimensions leave n^(−FALLING / d) of the slack: 2 if all had the same shape and the same slack, less as
#: the worst of them counts
FALLING = 1.5
#: no more boxes once a split gains less than this share of the bound
SETTLED = 1e-3
#: how many coordinates may be split: the widest ones, by how much the model changes along them
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


def split_boxes(
    root: BoxNode,
    attempt: Attempt,
    sizes: np.ndarray,
    budget: int,
    enough: float,
    least: float | None = None,
    useless: float = np.inf,
) -> float:
    """Split a box until the worst bound is good enough, or a budget of boxes is spent; return the worst bound.

    attempt : (lower, upper) of a box -> (its bound, inf if there is none; content)
    sizes : (r,) how much the model changes per unit of each coordinate
    least : what a split must gain; by default a share of the bound
    useless : a bound that serves no purpose: splits end where the remaining ones would not get below it, if each of
        them gained as much as the last one
    """
    leaves, splits = [root], BoxSplits(attempt, sizes)
    while len(leaves) < budget:
        worst = max(leaves, key=lambda leaf: leaf.bound)
        if worst.bound <= enough:
            break
        gained = SETTLED * abs(worst.bound) if least is None else least
        axis, halves = splits.best(worst, gained)
        if math.isfinite(worst.bound) and not _merit(halves)[0] < worst.bound - gained:
            break
        worst.axis, worst.halves = axis, halves
        leaves.remove(worst)
        leaves += halves
        now = max(leaf.bound for leaf in leaves)
        if math.isfinite(worst.bound) and now - (budget - len(leaves)) * (worst.bound - now) >= useless:
            break
    return max(leaf.bound for leaf in leaves)


def _merit(halves: tuple[BoxNode, BoxNode]) -> tuple[float, float]:
    bounds = [half.bound for half in halves]
    return max(bounds), min(bounds)


class BoxSplits:
    """The ways to split boxes.

    What affine functions lose along an axis is of second order in the width: what one split gained says how much one of
    another box will. Axes are tried in the order of that, as long as the next one promises more than the best gains.
    Of two halves the one that was worse along the axis before is tried first: it alone often rules a way out.
    """

    def __init__(self, attempt: Attempt, sizes: np.ndarray) -> None:
        self.attempt, self.sizes = attempt, sizes
        self.curvature: dict[int, float] = {}  # of an axis: what the last split gained, over the square of the width
        self.worse: dict[int, int] = {}  # of an axis: the half that was worse, 0 the lower and 1 the upper one

    def best(self, node: BoxNode, least: float) -> tuple[int, tuple[BoxNode, BoxNode]]:
        """(axis, halves) of the best way to split a box; a way with one half that is worse already is left.

        least : all axes are tried if none gains more
        """
        widths = node.upper - node.lower
        widest = np.argsort(-self.sizes * widths, kind="stable")[:AXES].tolist()
        promised = dict.fromkeys(widest, math.inf) | {
            axis: self.curvature[axis] * float(widths[axis]) ** 2 for axis in widest if axis in self.curvature
        }
        found, most = None, math.inf
        for axis in sorted(widest, key=lambda axis: -promised[axis]):
            if max(least, promised[axis]) <= node.bound - most < math.inf:
                break
            halves = self._halved(node, axis, most)
            if halves is not None and (found is None or _merit(halves) < _merit(found[1])):
                found, most = (axis, halves), _merit(halves)[0]
        assert found is not None
        return found

    def _halved(self, node: BoxNode, axis: int, most: float) -> tuple[BoxNode, BoxNode] | None:
        """The lower and the upper half of a box; None if the bound of the one that is tried first is above ``most``."""
        middle = _middle(float(node.lower[axis]), float(node.upper[axis]))
        end, begin = node.upper.copy(), node.lower.copy()
        end[axis] = begin[axis] = middle
        halves, worse = ((node.lower, end), (begin, node.upper)), self.worse.get(axis, 0)
        first = BoxNode(*halves[worse], *self.attempt(*halves[worse]))
        self._learn(node, axis, first.bound)
        if first.bound > most:
            return None
        second = BoxNode(*halves[1 - worse], *self.attempt(*halves[1 - worse]))
        self._learn(node, axis, max(first.bound, second.bound))
        self.worse[axis] = worse if first.bound >= second.bound else 1 - worse
        return (second, first) if worse else (first, second)

    def _learn(self, node: BoxNode, axis: int, bound: float) -> None:
        """Note what a split gained; one that gained nothing says nothing of other boxes."""
        width, gain = float(node.upper[axis] - node.lower[axis]), node.bound - bound
        if width**2 > 0.0 and 0.0 < gain < math.inf:
            self.curvature[axis] = gain / width**2
        else:
            self.curvature.pop(axis, None)


def _middle(low: float, high: float) -> float:
    """Near the middle, with few digits."""
    unit = 2.0 ** math.floor(math.log2(high - low)) * ROUNDED if high > low else 0.0
    found = round((low + high) / 2 / unit) * unit if unit > 0.0 else low
    return found if low < found < high else (low + high) / 2


def affordable_pieces(pieces: int, transitions: int, horizon: int | None) -> int:
    found = min(pieces, CHECKED // (transitions * (horizon or 1)))
    return found if found >= FEWEST else 1


def hopeless_bound(first_order: float, useless: float, boxes: int, dimension: int) -> float:
    """The bound of one box above which so many boxes hardly get below ``useless``; larger is worse.

    first_order : the bound without slack, which is of second order in the width of a box
    """
    return first_order + (useless - first_order) * boxes ** (FALLING / dimension)


def worst_of_boxes(
    region: Region,
    directions: np.ndarray,
    attempt: Callable[[Region, BoxFrame], float],
    budget: int,
    enough: float = -np.inf,
    least: float | None = None,
    useless: float = np.inf,
    hopeless: float = np.inf,
) -> float:
    """A bound for the whole region, the worst of those of boxes that cover it; inf if there is none.

    directions : (F, r) in which expressions vary
    attempt : (the part of the region in a box, the frame of the box) -> a bound there; larger is worse
    enough, least, useless : see `split_boxes`
    hopeless : a bound of one box around the region that is not worth a split
    """
    if region.dimension > GRAPH_DIMENSION or budget < 2:
        return np.inf
    used, (low, high) = (region.table if isinstance(region, ParameterRegion) else None), region.box()
    whole = region.apart() if isinstance(region, Sliced) else region

    def bounded(lower: np.ndarray, upper: np.ndarray) -> tuple[float, None]:
        piece = Boxed(whole, lower, upper)
        frame = replace(BoxFrame.around(lower, upper, is_reduced=used is None), used=used)
        return -np.inf if piece.is_empty else attempt(piece, frame), None

    root = BoxNode(low, high, *bounded(low, high))
    if root.bound > hopeless:
        return np.inf
    return split_boxes(root, bounded, np.abs(directions).max(axis=0), budget, enough, least, useless)
