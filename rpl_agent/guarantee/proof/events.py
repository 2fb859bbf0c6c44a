"""`ProofRegion`: the region of a proof, or a piece of it that is split off by the chances of events."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from rpl_agent.core.coupled.products.gain import blocks_of
from rpl_agent.core.coupled.products.rooms import Rooms
from rpl_agent.core.coupled.products.splits import Split
from rpl_agent.core.regions.blocks import Factorisation
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.proof.foundation import Cuts, Foundation, box_frame

#: Decimals of the chance at which a region is split.
DECIMALS = 9


@dataclass(frozen=True)
class Event:
    """A split by the chance of an expression."""

    expression: int
    end: float
    is_below_first: bool  # whether the half with more room is the one where the chance is at most ``end``


@dataclass(frozen=True, eq=False)
class ProofRegion:
    """Where the chances of events are at most, or at least, some ends."""

    base: Foundation
    cuts: Cuts
    blocks: Factorisation
    path: tuple[tuple[int, float, bool], ...] = ()  # expression, end, whether the chance is at most that

    def rooms(self) -> Rooms | None:
        """The rooms of cuts over the box of the proof's region, as in the core.

        Tangents of the likelihood are left out: they would take the place of slabs with nearly the same direction.
        """
        frame, cuts = box_frame(self.base.region.boxed()), self._cuts()
        kept = np.array([k for k, name in enumerate(cuts.names) if not isinstance(name, list)])
        blocks = blocks_of(self.blocks.order, self.blocks.block_ptr)
        rooms = Rooms.of(frame, blocks, cuts.A[kept], cuts.b[kept])
        if rooms is None:
            return None
        rooms = replace(rooms, number=kept[rooms.number])
        return rooms.corrected(*cuts.exactly(rooms.number.tolist(), self.region()))

    def halves(self, split: Split) -> tuple[ProofRegion, ProofRegion] | None:
        event = self.event(split)
        if event is None:
            return None
        below, above = (
            replace(self, path=(*self.path, (event.expression, event.end, at_most))) for at_most in (True, False)
        )
        return (below, above) if event.is_below_first else (above, below)

    def event(self, split: Split) -> Event | None:
        """The split as the checker knows it; None if the cut is not an end of an expression's interval."""
        name = self.cuts.names[split.cut]
        if not isinstance(name, str) or name.startswith("domain"):
            return None
        kind, f = name.split()[0], int(name.split()[1])
        sign = 1.0 if kind == "high" else -1.0  # the cut is ± (chance − constant) ≤ b
        line = self.cuts.line
        end = float(line.terms[f][0]) / line.den + sign * (self._cuts().b[split.cut] - split.room)
        return Event(f, round(float(end), DECIMALS), kind == "high")

    def region(self) -> checker.Known:
        found = self.base.region
        for f, end, at_most in self.path:
            found = found.sides(f, checker.exact(end))[0 if at_most else 1]
        return found

    def multipliers(self, claims: list[checker.Claim]) -> list[list[object]]:
        """`Foundation.multipliers`; the region of the claims then has all cuts that they need."""
        found = self.base.multipliers(claims, self._cuts())
        region = claims[0].region
        region.cuts += [region.cut(name) for name in region.names[len(region.cuts) :]]
        return found

    def _cuts(self) -> Cuts:
        """The cuts with the ends of this piece; they are numbered as those of the whole region."""
        if not self.path:
            return self.cuts
        found, region = copy(self.cuts), self.region()
        found.b = self.cuts.b.copy()
        for f, _, at_most in self.path:
            name = f"{'high' if at_most else 'low'} {f}"
            found.b[self.cuts.names.index(name)] = float(region.cut(name)[1])
        return found
