"""Bounds, and comparisons at one parameter, by pieces of the region: boxes, split as in `core.coupled.pieces`.

Each piece has functions of its own for `guarantee.checker`, which checks every piece; the halves of a box cover it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from rpl_agent.core.coupled.affine import AffineBound, BoxFrame, Side
from rpl_agent.core.coupled.bounds import expansion_of, find_bound
from rpl_agent.core.coupled.pieces import BoxNode, affordable_pieces, split_boxes
from rpl_agent.core.model import Nature, Objective, Policy
from rpl_agent.core.regions.lp import GrowingProgram, LinearProgram
from rpl_agent.core.regions.polytope import GRAPH_DIMENSION
from rpl_agent.core.relaxations.interval import Intervals
from rpl_agent.core.solver.problem import Problem
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.proof.foundation import Cuts, Foundation
from rpl_agent.guarantee.proof.functions import WIDENED, of_bound, prove_claim, shown, time_scale

PIECES = 24
#: By how much, relative to the box, the region's extent is rounded outward, so that its digits are few.
ROOM = 2.0**-12
#: The most tangents of the likelihood that are added for the bound of one piece.
TOUCHES = 3


class StatedObjective(NamedTuple):
    """An objective, and the same as the checker reads it."""

    objective: Objective
    stated: checker.Objective


@dataclass(frozen=True, eq=False)
class BoundedValue:
    """The value of a policy, or of every one, and the side from which it is bounded."""

    policy: Policy  # with ``every_policy``: where the search for the best one starts
    rules: checker.Policy | None
    side: Side
    every_policy: bool = False


@dataclass(frozen=True, eq=False)
class PieceFunctions:
    """Proved in floats over one box: the function of each value, and multipliers of cuts for their sum."""

    bounds: list[AffineBound]
    multipliers: np.ndarray


def proved_in_pieces(
    relaxation: Intervals,
    base: Foundation,
    objective: StatedObjective,
    asked: list[BoundedValue],
    enough: float,
    least: float | None,
) -> tuple[dict[str, Any], Fraction]:
    """(part of the file, the most of a value, or of the difference of two); raises `Refused` if none is proved.

    The value that is bounded from below counts with the opposite sign. Pieces are split until the result is ``enough``,
    or a split gains less than ``least`` (None: a share of the result).
    """
    count = affordable_pieces(PIECES, relaxation.pmdp.num_transitions, objective.objective.horizon)
    cuts = base.cuts
    if count < 2 or cuts is None or len(cuts.low) > GRAPH_DIMENSION:
        raise checker.Refused("pieces of the region are not tried")
    kept, search = len(base.region.cuts), PieceSearch(relaxation, cuts, objective, asked)
    try:
        return search.found(base.region, count, enough, least)
    except checker.Refused:
        cuts.keep(kept)
        raise


class PieceSearch:
    """Finds and proves the pieces of one bound or comparison."""

    def __init__(
        self,
        relaxation: Intervals,
        cuts: Cuts,
        objective: StatedObjective,
        asked: list[BoundedValue],
    ) -> None:
        self.problem = Problem.of(relaxation, objective.objective, Nature.ADVERSARIAL, None)
        self.cuts, self.asked, self.stated = cuts, asked, objective.stated
        self.scale = time_scale(relaxation.pmdp, objective.objective)
        self.program = GrowingProgram()

    def found(
        self, region: checker.Known, count: int, enough: float, least: float | None
    ) -> tuple[dict[str, Any], Fraction]:
        trims = self._trims()
        low, high = self.cuts.low.copy(), self.cuts.high.copy()
        for axis, end, is_low, _ in trims:
            (low if is_low else high)[axis] = end
        root = BoxNode(low, high, *self._attempt(low, high))
        sizes = np.abs(np.asarray(self.problem.pmdp.table.reduction.weights)).max(axis=0)
        split_boxes(root, self._attempt, sizes, count, enough, least)
        return self._trimmed(region, trims, root)

    # ------------------------------------------------------------------ in floats
    def _trims(self) -> list[tuple[int, float, bool, np.ndarray]]:
        """(coordinate, end, whether it is the lower one, multipliers): cuts leave none of the region beyond the end."""
        found, cuts = [], self.cuts
        for axis, unit in enumerate(np.eye(len(cuts.low))):
            (first, below), (last, above) = (self._optimum(way, cuts.low, cuts.high) for way in (unit, -unit))
            room = 2.0 ** np.floor(np.log2(max(last[axis] - first[axis], 1e-12))) * ROOM
            ends = (np.floor(first[axis] / room - 0.5) * room, np.ceil(last[axis] / room + 0.5) * room)
            for end, is_low, m in ((ends[0], True, below), (ends[1], False, above)):
                if m is not None and cuts.low[axis] < end < cuts.high[axis]:
                    found.append((axis, float(end), is_low, m))
        return found

    def _attempt(self, low: np.ndarray, high: np.ndarray) -> tuple[float, Any]:
        """(the most of the sum, its functions) over a box; −inf and multipliers where nothing is left of it."""
        start, frame, bounds = self.problem.pmdp.initial_state, BoxFrame.around(low, high, is_reduced=True), []
        for one in self.asked:
            expansion = expansion_of(self.problem, frame, None if one.every_policy else one.policy, one.policy)
            bound = None if expansion is None else find_bound(self.problem, expansion, one.side, one.every_policy)
            bounds += [] if bound is None else [bound]
        nothing = self._contradiction(low, high) if len(bounds) < len(self.asked) else None
        if nothing is not None or len(bounds) < len(self.asked):
            return (np.inf if nothing is None else -np.inf), nothing
        top = sum(bound.side.value * float(bound.moved[..., start].flat[-1]) for bound in bounds)
        slopes = [bound.gradient[..., start, :].reshape(-1, frame.dimension)[-1] for bound in bounds]
        slope = sum(bound.side.value * g for bound, g in zip(bounds, slopes)) / frame.half
        m = self._optimum(-slope, low, high)[1] if slope.any() else None
        if m is None and slope.any():
            nothing = self._contradiction(low, high)
            if nothing is not None:
                return -np.inf, nothing
        m = np.zeros(len(self.cuts.b)) if m is None else m
        rest = float(np.abs((slope - m @ self.cuts.A) * frame.half).sum())
        most = top + float(m @ (self.cuts.b - self.cuts.A @ frame.center)) + rest
        return most, PieceFunctions(bounds, m)

    def _optimum(self, c: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """`LinearProgram.optimum` of c·x over the cuts in a box, with tangents where its minimiser is not in C."""
        found = self.program.optimum(c, self.cuts.A, self.cuts.b, low, high)
        for _ in range(TOUCHES):
            if found[1] is None or not self.cuts.cut_off(found[0]):
                break
            found = self.program.optimum(c, self.cuts.A, self.cuts.b, low, high)
        return found

    def _contradiction(self, low: np.ndarray, high: np.ndarray) -> np.ndarray | None:
        """Multipliers of cuts that contradict each other in a box: of the least t with A x ≤ b + t."""
        A, b = self.cuts.A, self.cuts.b
        size = np.abs(A) @ np.maximum(np.abs(low), np.abs(high)) + np.abs(b) + 1e-300
        program = LinearProgram(
            np.column_stack([A / size[:, None], -np.ones(len(b))]), b / size, np.append(low, 0.0), np.append(high, 2.0)
        )
        found = program.optimum(np.append(np.zeros(len(low)), 1.0))[1]
        if found is None:
            return None
        m = found / size
        a = m @ A
        return m if float(m @ b - np.minimum(a * low, a * high).sum()) < -1e-9 else None

    # ------------------------------------------------------------------ exactly
    def _trimmed(self, region: checker.Known, trims: list[Any], root: BoxNode) -> tuple[dict[str, Any], Fraction]:
        """What lies beyond the extent of the region is empty."""
        if not trims:
            return self._proved(region, root)
        (axis, end, is_low, m), *more = trims
        halves = region.halves(axis, Fraction(end))
        empty = {"empty": self.cuts.numbered(m)}
        inside, most = self._trimmed(halves[1] if is_low else halves[0], more, root)
        return {"split": [axis, end], "pieces": [empty, inside] if is_low else [inside, empty]}, most

    def _proved(self, region: checker.Known, node: BoxNode) -> tuple[dict[str, Any], Fraction]:
        if node.halves is not None:
            halves = region.halves(node.axis, Fraction(node.middle))
            found = [self._proved(half, piece) for half, piece in zip(halves, node.halves)]
            return {"split": [node.axis, node.middle], "pieces": [part for part, _ in found]}, max(x for _, x in found)
        if not isinstance(node.content, PieceFunctions):
            checker.need(node.content is not None, "no function is proved over a piece")
            return {"empty": self.cuts.numbered(node.content)}, Fraction(-(10**99))
        start = self.cuts.numbered(node.content.multipliers)
        pairs = [self._function(region, one, bound) for one, bound in zip(self.asked, node.content.bounds)]
        most = checker.at_most([claim for claim, _ in pairs], start)
        if len(pairs) == 1:
            return pairs[0][1] | {"duals": {"start": start}}, most
        return {"functions": [values for _, values in pairs], "start": start}, most

    def _function(
        self, region: checker.Known, one: BoundedValue, bound: AffineBound
    ) -> tuple[checker.Claim, dict[str, Any]]:
        for slack in WIDENED:
            values = shown(of_bound(self.problem, bound), self.scale, one.side.value * slack, None)
            try:
                claim = checker.Claim(region, one.rules, one.side is Side.UPPER, values, self.stated)
                prove_claim(claim, values)
                return claim, values
            except checker.Refused:
                continue
        raise checker.Refused("no function is proved over a piece")
