"""The least sum over pieces of a region, split by the chances of events: products of cuts prove more in each of them.

Intervals of a few visits are wide, and what products of cuts lose is of second order in their width. In a box of many
coordinates halves of single ones help little; an event with a large effect, such as the last outcome, helps a lot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

import numpy as np

from rpl_agent.core.coupled.affine import BoxFrame
from rpl_agent.core.coupled.products.gain import LeastSum
from rpl_agent.core.coupled.products.rooms import Rooms
from rpl_agent.core.coupled.products.splits import Split

#: The most pieces of a region, and how many splits of one are tried.
MOST_PIECES, TRIED = 16, 3
#: So many splits, the last ones, show what the next ones gain.
LAST = 4


class Source(Protocol):
    """What a piece is made from."""

    def rooms(self) -> Rooms | None: ...

    def halves(self, split: Split) -> tuple[Source, Source] | None:
        """Where the cut has at least so much room, and where at most; None if this split is not on offer."""


@dataclass(eq=False)
class Piece:
    """A region or a piece of it, and its halves if it was split."""

    source: Source
    found: LeastSum
    split: Split | None = None
    halves: tuple[Piece, Piece] | None = None

    def leaves(self) -> list[Piece]:
        return [self] if self.halves is None else [leaf for half in self.halves for leaf in half.leaves()]

    @property
    def bound(self) -> float:
        return min(leaf.found.bound for leaf in self.leaves())


#: Is told how many pieces there are, of the most.
Progress = Callable[[int, int], None]
#: (rooms, a bound that it has to exceed, one above which no better one is looked for) -> the least sum
Least = Callable[[Rooms, float, float], LeastSum | None]


def least_in_pieces(whole: Source, least: Least, enough: float, progress: Progress | None = None) -> Piece | None:
    """Pieces whose bounds exceed ``enough``, or as far as splits get; None if nothing is found for the whole."""
    root, gains = _piece(whole, least, -np.inf, enough), list[float]()
    while root is not None:
        short = [leaf for leaf in root.leaves() if not leaf.bound > enough]
        left = MOST_PIECES - len(root.leaves())
        if progress is not None:
            progress(MOST_PIECES - left, MOST_PIECES)
        if not short or left < _needed([enough - leaf.bound for leaf in short], gains[-LAST:]):
            break
        worst = min(short, key=lambda leaf: leaf.bound)
        before = worst.bound
        if not _split(worst, least, enough):
            break
        gains.append(worst.bound - before)
    return root


def _needed(missing: list[float], gains: list[float]) -> float:
    """About how many splits pieces need that are short by so much: both halves of a split are short by the rest."""
    if not gains:
        return len(missing)
    pace = sum(gains) / len(gains)
    if not pace > 0.0:
        return np.inf
    return sum(max(1.0, 2.0 ** min(one / pace, MOST_PIECES) - 1.0) for one in missing)  # beyond the most anyway


def _piece(source: Source, least: Least, beyond: float, enough: float) -> Piece | None:
    rooms = source.rooms()
    found = None if rooms is None else least(rooms, beyond, enough)
    return None if found is None else Piece(source, found)


def _split(piece: Piece, least: Least, enough: float) -> bool:
    """Split a piece in the best one of the likely ways; whether there is one."""
    best = -np.inf
    offered = ((split, piece.source.halves(split)) for split in piece.found.splits)
    for split, sources in islice((way for way in offered if way[1] is not None), TRIED):
        halves = list[Piece]()
        for source in sources or ():
            half = _piece(source, least, best, enough)
            if half is None:
                break
            halves.append(half)
        bound = min((half.found.bound for half in halves), default=-np.inf)
        if len(halves) == 2 and bound > best:
            best, piece.split, piece.halves = bound, split, (halves[0], halves[1])
    return piece.halves is not None


@dataclass(frozen=True, eq=False)
class CutRegion:
    """The region of cuts A x ≤ b over a box."""

    frame: BoxFrame
    blocks: list[np.ndarray]  # the coordinates of each block
    A: np.ndarray
    b: np.ndarray

    def rooms(self) -> Rooms | None:
        return Rooms.of(self.frame, self.blocks, self.A, self.b)

    def halves(self, split: Split) -> tuple[CutRegion, CutRegion]:
        end = self.b[split.cut] - split.room
        return self._within(self.A[split.cut], end), self._within(-self.A[split.cut], -end)

    def _within(self, a: np.ndarray, end: float) -> CutRegion:
        return replace(self, A=np.vstack([self.A, a]), b=np.append(self.b, end))
