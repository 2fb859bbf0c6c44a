"""Comparisons at one parameter over a product of blocks, by functions whose rows are products of cuts."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from rpl_agent.core.coupled.products.gain import LeastSum, ProvedRow, are_covered, least_sum
from rpl_agent.core.coupled.products.pieces import Piece, least_in_pieces
from rpl_agent.core.coupled.products.rooms import Rooms
from rpl_agent.core.coupled.products.rows import Term
from rpl_agent.core.model import Nature
from rpl_agent.core.regions.blocks import factorisation
from rpl_agent.core.relaxations.interval import Intervals
from rpl_agent.core.solver.problem import Problem
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.proof.events import ProofRegion
from rpl_agent.guarantee.proof.foundation import Cuts, Foundation
from rpl_agent.guarantee.proof.functions import WIDENED, prove_claim, shown, time_scale
from rpl_agent.guarantee.proof.pieces import BoundedValue, StatedObjective


class ProductSearch:
    """Finds and proves a value, or the difference of two, over a region or over pieces of it."""

    def __init__(
        self, relaxation: Intervals, base: Foundation, objective: StatedObjective, asked: list[BoundedValue]
    ) -> None:
        self.problem = Problem.of(relaxation, objective.objective, Nature.ADVERSARIAL, None)
        if base.cuts is None or not (are_covered(self.problem, len(base.cuts.low)) and base.region.line.is_product):
            raise checker.Refused("products of cuts are not tried")
        self.base, self.cuts, self.stated, self.asked = base, base.cuts, objective.stated, asked
        self.scale = time_scale(relaxation.pmdp, objective.objective)
        self.terms = [Term(-one.side.value, None if one.every_policy else one.policy) for one in asked]

    def whole(self) -> tuple[dict[str, Any], Fraction]:
        """(part of the file, the most of the value or difference) by functions over the whole region."""
        return self._undone(lambda: self._functions(self._region, np.inf))

    def in_pieces(self, enough: float) -> tuple[dict[str, Any], Fraction]:
        """As `whole`, by pieces that are split by events until the result is ``enough``."""
        root = least_in_pieces(self._region, self._least, -enough)
        if root is None or root.halves is None:
            raise checker.Refused("no pieces of the region are proved by products of cuts")
        return self._undone(lambda: self._split(root, -enough))

    @property
    def _region(self) -> ProofRegion:
        return ProofRegion(self.base, self.cuts, factorisation(self.problem.pmdp))

    def _least(self, rooms: Rooms, beyond: float, enough: float, few: bool = False) -> LeastSum | None:
        return least_sum(self.problem, rooms, self.terms, beyond, enough, few)

    def _undone(self, prove: Callable[[], tuple[dict[str, Any], Fraction]]) -> tuple[dict[str, Any], Fraction]:
        """What is proved; the cuts that it needed are dropped again if it is refused."""
        kept = len(self.base.region.cuts)
        try:
            return prove()
        except checker.Refused:
            self.cuts.keep(kept)
            raise

    def _split(self, piece: Piece, enough: float) -> tuple[dict[str, Any], Fraction]:
        source, split = piece.source, piece.split
        assert isinstance(source, ProofRegion)
        if piece.halves is None or split is None:
            return self._functions(source, enough)
        event = source.event(split)
        assert event is not None
        found = [self._split(half, enough) for half in (piece.halves if event.is_below_first else piece.halves[::-1])]
        part = {"event": [event.expression, event.end], "pieces": [half for half, _ in found]}
        return part, max(most for _, most in found)

    def _functions(self, source: ProofRegion, enough: float) -> tuple[dict[str, Any], Fraction]:
        """By functions for one region; better ones than ``enough`` are not looked for."""
        rooms = source.rooms()
        found = None if rooms is None else self._least(rooms, -np.inf, enough, few=True)
        if rooms is None or found is None:
            raise checker.Refused("no function is proved by products of cuts")
        numbers = _numbered(self.cuts, rooms)
        region, pairs = source.region(), []
        for one, U, rows in zip(self.asked, found.functions, found.rows):
            values = {"kind": "affine in a box", "values": -one.side.value * U[:, 0]}
            values["gradient"] = -one.side.value * U[:, 1:]
            factors = self.scale[self.problem.pmdp.row_state]
            products = {f"0 {row.first}": _shown(row, numbers, factors[row.first]) for row in rows}
            pairs.append(_proved(region, one, values, products, self.scale, self.stated))
        start = source.multipliers([claim for claim, _ in pairs])
        most = checker.at_most([claim for claim, _ in pairs], start)
        if len(pairs) == 1:
            return pairs[0][1] | {"duals": {"start": start}}, most
        return {"functions": [function for _, function in pairs], "start": start}, most


def _numbered(cuts: Cuts, rooms: Rooms) -> list[int]:
    """The number of each room's cut in the proof from now on."""
    used = np.zeros(len(cuts.names))
    used[rooms.number] = 1.0
    number = {cut: k for cut, (k, _) in zip(np.flatnonzero(used).tolist(), cuts.numbered(used))}
    return [number[cut] for cut in rooms.number.tolist()]


def _shown(row: ProvedRow, numbers: list[int], factor: float) -> list[Any]:
    """As in a file: no multiple of a ball, and each product with the cut of the row's own block last."""
    products = []
    for own, other, multiple in zip(*row.pairs.tolist(), (factor * row.multipliers).tolist()):
        products.append([multiple, numbers[other], *([] if own < 0 else [numbers[own]])])
    return [0.0, products]


def _proved(
    region: checker.Known,
    one: BoundedValue,
    values: dict[str, Any],
    products: dict[str, Any],
    scale: np.ndarray,
    objective: checker.Objective,
) -> tuple[checker.Claim, dict[str, Any]]:
    for slack in WIDENED:
        function = shown(values, scale, one.side.value * slack, None) | {"rows": products}
        try:
            claim = checker.Claim(region, one.rules, one.side.value > 0.0, function, objective)
            prove_claim(claim, function)
            return claim, function
        except checker.Refused:
            continue
    raise checker.Refused("no function is proved by products of cuts")
