"""Comparisons at one parameter over a product of blocks, by functions whose rows are products of cuts."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from rpl_agent.core.coupled.products.gain import ProvedRow, are_covered, blocks_of, least_sum
from rpl_agent.core.coupled.products.rooms import Rooms
from rpl_agent.core.coupled.products.rows import Term
from rpl_agent.core.model import Nature
from rpl_agent.core.regions.blocks import factorisation
from rpl_agent.core.relaxations.interval import Intervals
from rpl_agent.core.solver.problem import Problem
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.proof.foundation import Cuts, Foundation, box_frame
from rpl_agent.guarantee.proof.functions import WIDENED, prove_claim, shown, time_scale
from rpl_agent.guarantee.proof.pieces import BoundedValue, StatedObjective


def proved_by_products(
    relaxation: Intervals, base: Foundation, objective: StatedObjective, asked: list[BoundedValue]
) -> tuple[dict[str, Any], Fraction]:
    """(part of the file, the most of a value, or of the difference of two); raises `Refused` if none is proved.

    The value that is bounded from below counts with the opposite sign.
    """
    problem, cuts = Problem.of(relaxation, objective.objective, Nature.ADVERSARIAL, None), base.cuts
    rooms = None if cuts is None else _rooms(problem, base, cuts)
    terms = [Term(-one.side.value, None if one.every_policy else one.policy) for one in asked]
    found = None if rooms is None else least_sum(problem, rooms, terms, few=True)
    if cuts is None or rooms is None or found is None:
        raise checker.Refused("no function is proved by products of cuts")
    scale, kept, pairs = time_scale(relaxation.pmdp, objective.objective), len(base.region.cuts), []
    try:
        numbers = _numbered(cuts, rooms)
        for one, U, rows in zip(asked, found.functions, found.rows):
            values = {"kind": "affine in a box", "values": -one.side.value * U[:, 0]}
            values["gradient"] = -one.side.value * U[:, 1:]
            factors = scale[problem.pmdp.row_state]
            products = {f"0 {row.first}": _shown(row, numbers, factors[row.first]) for row in rows}
            pairs.append(_proved(base, one, values, products, scale, objective.stated))
        start = base.multipliers([claim for claim, _ in pairs])
        most = checker.at_most([claim for claim, _ in pairs], start)
    except checker.Refused:
        cuts.keep(kept)
        raise
    if len(pairs) == 1:
        return pairs[0][1] | {"duals": {"start": start}}, most
    return {"functions": [function for _, function in pairs], "start": start}, most


def _rooms(problem: Problem, base: Foundation, cuts: Cuts) -> Rooms | None:
    """The rooms of cuts over the box of the proof's region, as in the core; None where products are not tried.

    Tangents of the likelihood are left out: they would take the place of slabs with nearly the same direction.
    """
    if not (are_covered(problem, len(cuts.low)) and base.region.line.is_product):
        return None
    blocks = factorisation(problem.pmdp)
    frame = box_frame(base.region.boxed())
    kept = np.array([k for k, name in enumerate(cuts.names) if not isinstance(name, list)])
    rooms = Rooms.of(frame, blocks_of(blocks.order, blocks.block_ptr), cuts.A[kept], cuts.b[kept])
    if rooms is None:
        return None
    rooms = replace(rooms, number=kept[rooms.number])
    return rooms.corrected(*cuts.exactly(rooms.number.tolist()))


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
    base: Foundation,
    one: BoundedValue,
    values: dict[str, Any],
    products: dict[str, Any],
    scale: np.ndarray,
    objective: checker.Objective,
) -> tuple[checker.Claim, dict[str, Any]]:
    for slack in WIDENED:
        function = shown(values, scale, one.side.value * slack, None) | {"rows": products}
        try:
            claim = checker.Claim(base.region, one.rules, one.side.value > 0.0, function, objective)
            prove_claim(claim, function)
            return claim, function
        except checker.Refused:
            continue
    raise checker.Refused("no function is proved by products of cuts")
