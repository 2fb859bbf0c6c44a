"""Splitting: if the second order is too large for the whole region, bound pieces of it one by one.

A piece is the part of a region between two parallel planes, and its bound holds for the parameters in it; the worst
piece bounds them all. The piece with the worst bound is split in two, until a budget of pieces is spent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rpl_agent._core import UNIT_ROUNDOFF
from rpl_agent.regions.base import Region, checked_directions
from rpl_agent.regions.frame import Frame


class Slab(Region):
    """{x in region : low ≤ normal·x ≤ high}.

    For any μ, c·x = (c + μ normal)·x − μ normal·x, so the minimum over the region of (c + μ normal)·x, minus μ · high
    (μ · low if μ < 0), is a lower bound. We use the best μ for the ellipsoid of a frame.

    Parameters
    ----------
    frame : of the region
    normal : (r,)
    low, high : may be infinite
    """

    def __init__(self, region: Region, frame: Frame, normal: np.ndarray, low: float, high: float) -> None:
        self.region, self.frame, self.normal, self.low, self.high = region, frame, normal, low, high
        root = frame.radius * frame.factor
        self._sigma = root @ root.T
        self._width = float(np.sqrt(normal @ self._sigma @ normal))
        # for a region of parameters, so that the frame of a piece has it too
        self.table = getattr(region, "table", None)
        box = region.box()
        self._reach = np.maximum(np.abs(box[0]), np.abs(box[1]))

    @property
    def dimension(self) -> int:
        return self.region.dimension

    @property
    def is_empty(self) -> bool:
        lower, upper = self.box()
        return self.region.is_empty or bool((lower > upper).any())

    def minimize(self, directions: np.ndarray) -> np.ndarray:
        directions = checked_directions(directions, self.dimension)
        mu = self._multipliers(directions)
        turned = directions + mu[:, None] * self.normal
        end = np.where(mu > 0.0, self.high, np.where(mu < 0.0, self.low, 0.0))
        size = (np.abs(directions) + 2.0 * np.abs(mu)[:, None] * np.abs(self.normal)) @ self._reach
        values = self.region.minimize(turned) - mu * end
        return values - (2.0 * self.dimension + 8.0) * UNIT_ROUNDOFF * (size + np.abs(mu * end))

    def _multipliers(self, directions: np.ndarray) -> np.ndarray:
        """(n,) the multiplier of the planes in each direction; 0 where they are inactive."""
        normal = self.normal / self._width
        spread = directions @ self._sigma
        along = spread @ normal
        across = np.sqrt(np.maximum((spread * directions).sum(axis=1) - along**2, 0.0))
        middle = float(self.normal @ self.frame.center)
        mu = np.zeros(len(directions))
        for end, side in ((self.high, 1.0), (self.low, -1.0)):
            t = (end - middle) / self._width
            if abs(t) < 1.0:
                best = -along - t * across / np.sqrt(1.0 - t * t)
                mu = np.where(side * best > 0.0, best, mu)
        return mu / self._width

    def contains(self, points: np.ndarray) -> np.ndarray:
        level = np.atleast_2d(points) @ self.normal
        return self.region.contains(points) & (level >= self.low - 1e-9) & (level <= self.high + 1e-9)


@dataclass(frozen=True)
class Piece:
    """An interval of the splitting direction, and the bound there."""

    low: float
    high: float
    bound: float  # larger is worse, whatever the side


def worst_of_pieces(
    region: Region, frame: Frame, direction: np.ndarray, known: float, attempt: Callable[[Region], float], budget: int
) -> float:
    """A bound for the whole region from bounds of its pieces.

    Parameters
    ----------
    direction : (r,) pieces are cut across it, in the coordinates x
    known : a bound of the whole region; larger is worse
    attempt : Region -> float
        A bound for one piece, inf if there is none.
    budget : the most attempts
    """
    # The length of a direction does not matter, but squares of small numbers underflow.
    direction = np.ldexp(direction, -np.frexp(np.abs(direction).max())[1])
    ends = region.minimize(np.stack([direction, -direction]))
    least, most = float(ends[0]), -float(ends[1])
    pieces = [Piece(least, most, known)]
    while budget >= 2:
        worst = max(range(len(pieces)), key=lambda k: (pieces[k].bound, pieces[k].high - pieces[k].low))
        old = pieces[worst]
        middle = (old.low + old.high) / 2
        if not old.low < middle < old.high:
            break
        halves = []
        for low, high in ((old.low, middle), (middle, old.high)):
            # The outermost pieces have one plane only, so that together they cover the region.
            first, last = -np.inf if low == least else low, np.inf if high == most else high
            bound = attempt(Slab(region, frame, direction, first, last))
            halves.append(Piece(low, high, min(old.bound, bound)))
        pieces[worst : worst + 1] = halves
        budget -= 2
    return max(piece.bound for piece in pieces)
