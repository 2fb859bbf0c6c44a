"""`partition`: the boxes of a region in which a comparison holds, fails, or is open."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import count

import numpy as np

from rpl_agent.coupled.affine import Side
from rpl_agent.coupled.boxes import BoxBounds, BoxPiece
from rpl_agent.coupled.region import compares, region_in
from rpl_agent.errors import ModelError
from rpl_agent.model.domain import Domain
from rpl_agent.model.objective import Objective
from rpl_agent.model.pmdp import ParametricMDP

DEFAULT_UNDECIDED = 0.05
DEFAULT_BOXES = 1_000


@dataclass(frozen=True)
class Partition:
    """Boxes that cover a region.

    Attributes
    ----------
    lower, upper : (n, d) float64
    holds : (n,) int8
        1: the comparison holds for every parameter of the box; -1: for none; 0: not decided.
    shares : (holds, fails) or None
        Of the volume of the region, at least; None where the region is not a box.
    """

    lower: np.ndarray
    upper: np.ndarray
    holds: np.ndarray
    shares: tuple[float, float] | None


def partition(
    pmdp: ParametricMDP, objective: Objective, comparison: str, threshold: float | Fraction,
    region: Domain | Mapping[str, tuple[float, float]] | None = None, *, undecided: float = DEFAULT_UNDECIDED,
    max_boxes: int = DEFAULT_BOXES,
) -> Partition:  # fmt: skip
    """Halve boxes, the largest undecided one first, until no more than a share of the region is left open.

    Parameters
    ----------
    region : as in `solve_region`
    undecided : float
        The share of the volume that may be left undecided.
    max_boxes : int
        How many boxes may be bounded.
    """
    if not 0.0 < undecided < 1.0:
        raise ModelError(f"undecided {undecided} must be above 0 and below 1")
    bounds = BoxBounds(pmdp, objective, region_in(pmdp, region))
    limit, number, upward = Fraction(threshold), count(), comparison in (">=", ">")
    root = bounds.root(Side.UPPER)
    free = root.upper > root.lower
    volume = {True: 0.0, False: 0.0}
    decided: list[tuple[BoxPiece, int]] = []
    waiting = [(-1.0, next(number), root)]
    while waiting and -sum(entry[0] for entry in waiting) > undecided and bounds.boxes < max_boxes:
        share, _, piece = heapq.heappop(waiting)
        for lower, upper in piece.halves(_axis(piece)) if piece.axis >= 0 else []:
            half, holds = _judged(bounds, lower, upper, comparison, limit, upward)
            if half is None:
                continue
            if holds is None and half.axis >= 0:
                heapq.heappush(waiting, (share / 2, next(number), half))
            else:
                decided.append((half, 0 if holds is None else 1 if holds else -1))
                if holds is not None:
                    volume[holds] -= share / 2
    pieces = decided + [(entry[2], 0) for entry in waiting]
    shares = (volume[True], volume[False]) if not len(bounds.region.b) and free.any() else None
    return Partition(
        np.array([p.lower for p, _ in pieces]), np.array([p.upper for p, _ in pieces]),
        np.array([holds for _, holds in pieces], dtype=np.int8), shares,
    )  # fmt: skip


def _axis(piece: BoxPiece) -> int:
    """The parameter along which the value changes most in the box."""
    if piece.slope is None or not np.abs(piece.slope).any():
        return piece.axis
    return int(np.abs(np.where(piece.upper > piece.lower, piece.slope, 0.0)).argmax())


def _judged(
    bounds: BoxBounds, lower: np.ndarray, upper: np.ndarray, comparison: str, limit: Fraction, upward: bool
) -> tuple[BoxPiece | None, bool | None]:
    """A box, and whether the comparison holds in all of it; None: open. Only the side that may decide is bounded."""
    middle = bounds.value(0.5 * (lower + upper)) if bounds.region.contains(0.5 * (lower + upper)) else None
    likely = None if middle is None or np.isnan(middle) else compares(middle, middle, comparison, limit)
    piece = None
    for expected in (True, False) if likely is None else (likely,):
        side = Side.LOWER if upward == expected else Side.UPPER
        piece = bounds.piece(side, lower, upper)
        if piece is None:
            return None, None
        ends = (piece.bound, np.inf) if side is Side.LOWER else (-np.inf, piece.bound)
        if compares(*ends, comparison, limit) is expected:
            return piece, expected
    return piece, None
