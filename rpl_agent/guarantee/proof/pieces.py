"""Comparisons at one parameter by pieces of the region: boxes, split as in `core.coupled.boxes`.

Each piece has functions of its own for `guarantee.checker`, which checks every piece; the halves of a box cover it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from rpl_agent.core.coupled.affine import AffineBound, BoxFrame, Side
from rpl_agent.core.coupled.bounds import expansion_of, find_bound
from rpl_agent.core.coupled.boxes import BoxNode, split_boxes
from rpl_agent.core.model import Nature, Objective, Policy
from rpl_agent.core.regions.lp import LinearProgram
from rpl_agent.core.regions.polytope import GRAPH_DIMENSION
from rpl_agent.core.relaxations.interval import Intervals
from rpl_agent.core.solver.problem import Problem
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.proof.foundation import Cuts, Foundation
from rpl_agent.guarantee.proof.functions import WIDENED, of_bound, prove_claim, shown, time_scale

#: The most pieces, and the most transitions that all of them may have together.
PIECES, WORK = 24, 50_000
#: By how much, relative to the box, the region's extent is rounded outward, so that its digits are few.
ROOM = 2.0**-8


@dataclass(frozen=True, eq=False)
class ComparedPolicy:
    """One of the two values of a comparison, and the side from which it is bounded."""

    policy: Policy
    rules: checker.Policy
    side: Side


@dataclass(frozen=True, eq=False)
class PieceFunctions:
    """Proved in floats over one box: the functions of both values, and multipliers of cuts for their difference."""

    bounds: list[AffineBound]
    multipliers: np.ndarray


def compared_in_pieces(
    relaxation: Intervals, base: Foundation, objective: Objective, pair: list[ComparedPolicy], enough: float
) -> tuple[dict[str, Any], Fraction]:
    """(part of the file, the most that the first value exceeds the second by); raises `Refused` if none is proved."""
    count = min(PIECES, WORK // relaxation.pmdp.num_transitions)
    cuts = base.cuts
    if count < 2 or cuts is None or len(cuts.low) > GRAPH_DIMENSION:
        raise checker.Refused("pieces of the region are not tried")
    kept, search = len(base.region.cuts), PieceSearch(relaxation, base, cuts, objective, pair)
    try:
        return search.found(count, enough)
    except checker.Refused:
        cuts.keep(kept)
        raise


class PieceSearch:
    """Finds and proves the pieces of one comparison."""

    def __init__(
        self, relaxation: Intervals, base: Foundation, cuts: Cuts, objective: Objective, pair: list[ComparedPolicy]
    ) -> None:
        self.problem = Problem.of(relaxation, objective, Nature.ADVERSARIAL, None)
        self.base, self.cuts, self.pair = base, cuts, pair
        self.scale = time_scale(relaxation.pmdp, objective)

    def found(self, count: int, enough: float) -> tuple[dict[str, Any], Fraction]:
        trims = self._trims()
        low, high = self.cuts.low.copy(), self.cuts.high.copy()
        for axis, end, is_low, _ in trims:
            (low if is_low else high)[axis] = end
        root = BoxNode(low, high, *self._attempt(low, high))
        sizes = np.abs(np.asarray(self.problem.pmdp.table.reduction.weights)).max(axis=0)
        split_boxes(root, self._attempt, sizes, count, enough)
        return self._trimmed(self.base.region, trims, root)

    # ------------------------------------------------------------------ in floats
    def _trims(self) -> list[tuple[int, float, bool, np.ndarray]]:
        """(coordinate, end, whether it is the lower one, multipliers): cuts leave none of the region beyond the end."""
        found, cuts = [], self.cuts
        for axis, unit in enumerate(np.eye(len(cuts.low))):
            program = LinearProgram(cuts.A, cuts.b, cuts.low, cuts.high)
            (first, below), (last, above) = program.optimum(unit), program.optimum(-unit)
            room = 2.0 ** np.floor(np.log2(max(last[axis] - first[axis], 1e-12))) * ROOM
            ends = (np.floor(first[axis] / room - 0.5) * room, np.ceil(last[axis] / room + 0.5) * room)
            for end, is_low, m in ((ends[0], True, below), (ends[1], False, above)):
                if m is not None and cuts.low[axis] < end < cuts.high[axis]:
                    found.append((axis, float(end), is_low, m))
        return found

    def _attempt(self, low: np.ndarray, high: np.ndarray) -> tuple[float, Any]:
        """(the most of the difference, its functions) over a box; −inf and multipliers where nothing is left of it."""
        cuts, start = self.cuts, self.problem.pmdp.initial_state
        frame, bounds = BoxFrame.around(low, high, is_reduced=True), []
        for one in self.pair:
            expansion = expansion_of(self.problem, frame, one.policy, one.policy)
            bound = None if expansion is None else find_bound(self.problem, expansion, one.side, False)
            bounds += [] if bound is None else [bound]
        nothing = self._contradiction(low, high) if len(bounds) < len(self.pair) else None
        if nothing is not None or len(bounds) < len(self.pair):
            return (np.inf if nothing is None else -np.inf), nothing
        tops = [float(bound.moved[..., start].flat[-1]) for bound in bounds]
        slopes = [bound.gradient[..., start, :].reshape(-1, frame.dimension)[-1] for bound in bounds]
        slope = (slopes[0] - slopes[1]) / frame.half
        m = LinearProgram(cuts.A, cuts.b, low, high).optimum(-slope)[1] if slope.any() else None
        if m is None and slope.any():
            nothing = self._contradiction(low, high)
            if nothing is not None:
                return -np.inf, nothing
        m = np.zeros(len(cuts.b)) if m is None else m
        rest = float(np.abs((slope - m @ cuts.A) * frame.half).sum())
        most = tops[0] - tops[1] + float(m @ (cuts.b - cuts.A @ frame.center)) + rest
        return most, PieceFunctions(bounds, m)

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
        pairs = [self._function(region, one, bound) for one, bound in zip(self.pair, node.content.bounds)]
        start = self.cuts.numbered(node.content.multipliers)
        part = {"functions": [values for _, values in pairs], "start": start}
        return part, checker.at_most([claim for claim, _ in pairs], start)

    def _function(
        self, region: checker.Known, one: ComparedPolicy, bound: AffineBound
    ) -> tuple[checker.Claim, dict[str, Any]]:
        for slack in WIDENED:
            values = shown(of_bound(self.problem, bound), self.scale, one.side.value * slack, None)
            try:
                claim = checker.Claim(region, one.rules, one.side is Side.UPPER, values, self.base.objective)
                prove_claim(claim, values)
                return claim, values
            except checker.Refused:
                continue
        raise checker.Refused("no function is proved over a piece")
