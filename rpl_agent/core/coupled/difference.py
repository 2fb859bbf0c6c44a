"""The values of two policies, compared at one common parameter.

Each value is bounded by an affine function that is proved over the region, the one from above and the other from below;
`claims.difference_bound` takes the largest difference of the two functions over the region. Where they are far from
the truth the region is cut into boxes (`pieces`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rpl_agent.core.coupled.affine import AffineBound, AffineProof, BoxFrame, Side
from rpl_agent.core.coupled.bounds import PRODUCTS, find_bound, varying_directions
from rpl_agent.core.coupled.claims import difference_bound
from rpl_agent.core.coupled.expansion import expansion_of
from rpl_agent.core.coupled.gradients.cuts import offered_cuts
from rpl_agent.core.coupled.pieces import worst_of_boxes
from rpl_agent.core.coupled.products.gain import LeastSum, least_sum, rooms_of
from rpl_agent.core.coupled.products.pieces import CutRegion, Progress, least_in_pieces
from rpl_agent.core.coupled.products.rooms import Rooms
from rpl_agent.core.coupled.products.rows import Term
from rpl_agent.core.highs import minimiser
from rpl_agent.core.model import Nature, Objective, Policy
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.frame import Frame, frame_of
from rpl_agent.core.regions.product import Product
from rpl_agent.core.regions.sliced import Sliced
from rpl_agent.core.relaxations.base import Relaxation
from rpl_agent.core.solver import solve_both
from rpl_agent.core.solver.problem import Problem

#: pieces are tried if the whole region loses more than this share of the difference
SPLIT = 0.01
#: total transitions that all pieces may have: each piece is three passes over the model
WORK = 100_000_000
#: the most steps downhill, and how much of the way to the best corner is tried in each
DOWNHILL, STEPS = 20, (1.0, 0.5, 0.25, 0.125)


@dataclass(frozen=True)
class ValueDifference:
    """Bounds on V^one − V^other in the initial state, for every parameter of a region."""

    lower: float  # −inf if nothing was proved
    upper: float
    center: float = np.nan  # the difference at the centre of the region: no bound
    spread: float = np.nan  # by how much it falls from there to the least over the region, to first order: no bound
    #: the least difference at a parameter of the region that was found, so that no lower bound is larger; −inf where
    #: functions are not looked for any longer
    attained: float = -np.inf


class Comparison:
    """Compares two policies for one objective, over regions of one model."""

    def __init__(self, relaxation: Relaxation, region: Region, objective: Objective, one: Policy, other: Policy):
        self.problem = Problem.of(relaxation, objective, Nature.ADVERSARIAL, None)
        self.relaxation, self.region, self.one, self.other = relaxation, region, one, other
        self.directions = varying_directions(self.problem, region)

    @property
    def applies(self) -> bool:
        """Whether affine functions can be made: the model is not too large, and its start not yet decided."""
        pmdp, r = self.problem.pmdp, self.region.dimension
        small = pmdp.num_transitions * r * r <= PRODUCTS
        is_open = not self.problem.task.decided[pmdp.initial_state]
        return self.directions is not None and small and is_open and math.isfinite(self.rounding)

    @cached_property
    def rounding(self) -> float:
        """How much the difference may change by the rounding of the objective's numbers; infinite for a total of both
        signs with inexact rewards, whose errors nature chooses for each policy."""
        task = self.problem.task
        if task.must_play_errors():
            return math.inf
        if task.reward_error.amount == 0.0:
            return 2.0 * task.rounding
        solved = [solve_both(self.relaxation, task.objective, policy=policy) for policy in (self.one, self.other)]
        ends = [end for pair in solved for found in pair for end in (found.lower, found.upper)]
        return 2.0 * task.difference(max(map(abs, ends)))

    def bounds(self, below: int, above: int, beyond: float = np.inf) -> ValueDifference:
        """Bounds over the whole region, from at most so many pieces of it for the lower and for the upper one.

        beyond : look longer for a lower one that is larger than this, by other functions (`products.gain`)
        """
        found = [self._in_frame(frame, below, above) for frame in self._frames()] if self.applies else []
        if not found:
            return ValueDifference(-np.inf, np.inf)
        best = max(found, key=lambda one: one.lower)
        best = replace(best, upper=min(one.upper for one in found))
        rooms = rooms_of(self.problem, self.region)
        if rooms is None:
            return best
        lower = best.lower if beyond == np.inf else self._least(rooms, self.one, self.other, max(best.lower, beyond))
        return replace(best, lower=max(best.lower, lower), attained=self._attained(rooms))

    def upper(self) -> float:
        """The upper bound by the functions that `bounds` looks longer for; inf where there are none."""
        rooms = rooms_of(self.problem, self.region) if self.applies else None
        return np.inf if rooms is None else -self._least(rooms, self.other, self.one, -np.inf)

    def lower_by_events(self, enough: float, progress: Progress | None = None) -> float:
        """A lower bound by the functions that `bounds` looks longer for, over pieces of the region, split by events,
        until it exceeds ``enough``; −inf where there is none."""
        rooms = rooms_of(self.problem, self.region) if self.applies else None
        if rooms is None:
            return -np.inf
        whole = CutRegion(rooms.frame, rooms.blocks, *offered_cuts(self.problem, self.region))
        terms = [Term(1.0, self.one), Term(-1.0, self.other)]

        def least(rooms: Rooms, beyond: float, enough: float) -> LeastSum | None:
            return least_sum(self.problem, rooms, terms, beyond, enough)

        found = least_in_pieces(whole, least, enough + self.rounding, progress)
        return -np.inf if found is None else float(np.nextafter(found.bound - self.rounding, -np.inf))

    def _attained(self, rooms: Rooms) -> float:
        """The least difference that steps downhill find in the region: no lower bound is larger."""
        y, least = rooms.middle[1:], np.inf
        for _ in range(DOWNHILL):
            found = self._near(rooms, y)
            if found is None:
                return -np.inf
            least, slope = min(least, found[0]), found[1]
            corner = minimiser(slope, -rooms.forms[:, 1:], rooms.forms[:, 0])
            tried = [] if corner is None else [y + share * (corner - y) for share in STEPS]
            reached = [(self._near(rooms, one), one) for one in tried]
            lower = [(near[0], k) for k, (near, _) in enumerate(reached) if near is not None and near[0] < least]
            if not lower:
                break
            y = reached[min(lower)[1]][1]
        return least

    def _near(self, rooms: Rooms, y: np.ndarray) -> tuple[float, np.ndarray] | None:
        """The difference and its gradient at a point of the region's box."""
        frame = BoxFrame(rooms.frame.center + rooms.frame.half * y, rooms.frame.half, None, is_reduced=True)
        first, second = (self._at_start(frame, policy) for policy in (self.one, self.other))
        return None if first is None or second is None else (first[0] - second[0], first[1] - second[1])

    def _least(self, rooms: Rooms, one: Policy, other: Policy, beyond: float) -> float:
        found = least_sum(self.problem, rooms, [Term(1.0, one), Term(-1.0, other)], beyond)
        below = -np.inf if found is None else found.bound - self.rounding
        return float(np.nextafter(below, -np.inf))

    def _frames(self) -> list[Frame | BoxFrame]:
        """The frames in which to expand: for independent blocks also their box."""
        whole = self._frame(self.region)
        found: list[Frame | BoxFrame] = [] if whole is None else [whole]
        if isinstance(self.region, Product | Sliced):
            found.append(BoxFrame.around(*self.region.box(), is_reduced=True))
        return found

    def _in_frame(self, frame: Frame | BoxFrame, below: int, above: int) -> ValueDifference:
        """Bounds from functions of one frame."""
        first, second = (self._at_start(frame, policy) for policy in (self.one, self.other))
        if first is None or second is None:
            return ValueDifference(-np.inf, np.inf)
        center, slope = first[0] - second[0], first[1] - second[1]
        ends = [frame.minimum(self.region, 0.0, turn) if slope.any() else 0.0 for turn in (slope, -slope)]
        found = []
        for pair, best, pieces in (
            ((self.one, self.other), center - ends[1], above),
            ((self.other, self.one), -center - ends[0], below),
        ):
            most = self._most(self.region, frame, *pair)
            if pieces > 1 and most - best > SPLIT * abs(center) and isinstance(frame, Frame):
                most = min(most, self._of_pieces(*pair, pieces, best))
            found.append(float(np.nextafter(most + self.rounding, np.inf)))
        return ValueDifference(-found[1], found[0], center, -float(ends[0]))

    def _frame(self, region: Region) -> Frame | None:
        return None if self.directions is None else frame_of(region, self.directions)

    def _of_pieces(self, above: Policy, below: Policy, pieces: int, enough: float) -> float:
        """The most that one policy's value exceeds the other's by, over the region, by boxes of it."""
        assert self.directions is not None
        count = min(pieces, WORK // self.problem.pmdp.num_transitions)

        def attempt(piece: Region, frame: BoxFrame) -> float:
            return self._most(piece, frame, above, below)

        return worst_of_boxes(self.region, self.directions, attempt, count, enough)

    def _at_start(self, frame: Frame | BoxFrame, policy: Policy) -> tuple[float, np.ndarray] | None:
        """The value of a policy and its gradient in the initial state, at the centre of a frame."""
        expansion = expansion_of(self.problem, frame, policy, policy)
        if expansion is None:
            return None
        start = self.problem.pmdp.initial_state
        slope = expansion.gradient[..., start, :].reshape(-1, frame.dimension)[-1]
        return float(np.ravel(expansion.values[..., start])[-1]), slope

    def _most(self, region: Region, frame: Frame | BoxFrame, above: Policy, below: Policy) -> float:
        """The most that one policy's value exceeds the other's by, over a region; inf if nothing was proved."""
        upper = self._proved(region, frame, above, Side.UPPER)
        lower = None if upper is None else self._proved(region, frame, below, Side.LOWER)
        if upper is None or lower is None:
            return np.inf
        return difference_bound(region, upper, lower, self.problem.pmdp.initial_state)

    def _proved(self, region: Region, frame: Frame | BoxFrame, policy: Policy, side: Side) -> AffineBound | None:
        expansion = expansion_of(self.problem, frame, policy, policy)
        bound = None if expansion is None else find_bound(self.problem, expansion, side, False)
        return None if bound is None or AffineProof(self.problem, region).issues(bound) else bound
