"""The least difference of two values, or the least value, over a product of small polytopes, by products of cuts.

Functions and multipliers come from one linear program (`interior`); what rounding leaves is paid for here, so that any
of them give a bound. `guarantee.checker` proves it from the same functions and multipliers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from rpl_agent.core.coupled.affine import BoxFrame
from rpl_agent.core.coupled.gradients.cuts import offered_cuts
from rpl_agent.core.coupled.products.interior import GAP, InteriorPoint
from rpl_agent.core.coupled.products.rooms import Rooms
from rpl_agent.core.coupled.products.rows import KnownProducts, LikeRows, Products, RowsOfValue, Term
from rpl_agent.core.model import cached_on
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.blocks import factorisation
from rpl_agent.core.regions.product import Product
from rpl_agent.core.regions.sliced import Sliced
from rpl_agent.core.solver.problem import Problem

#: The most states, coordinates (the checker has no more), unknown entries of functions, and products of cuts.
MOST_STATES, MOST_COORDINATES, MOST_UNKNOWN, MOST_PRODUCTS = 400, 64, 3_000, 60_000
#: The most numbers of one policy's products: the checker takes no more.
MOST_NUMBERS = 20_000_000
#: Multipliers below this share of a row's largest one are left out.
SMALL = 1e-8
#: The least payment in units of which functions start.
LEAST = 1e-6
#: Values are lowered by this multiple of what inequalities miss, and checked again.
ROOM = 1.01


@dataclass(frozen=True, eq=False)
class ProvedRow:
    """The multipliers of products of two cuts (−1: of one alone)."""

    first: int  # the row of the model, or the first one of those that are played
    pairs: np.ndarray  # (2, n)
    multipliers: np.ndarray  # (n,)


@dataclass(frozen=True, eq=False)
class LeastSum:
    """A lower bound on a sum of values, each times 1 or −1, over the region, and for each of them what proves it."""

    bound: float
    functions: list[np.ndarray]  # (S, 1 + r) v, g of v + g·y; NaN where nothing is said
    rows: list[list[ProvedRow]]


def rooms_of(problem: Problem, region: Region) -> Rooms | None:
    """The ends of expressions over the region's box, and slabs; None if problem and region are not covered here.

    Covered are discounted rewards, without a horizon, over the product of the model's own blocks, also with slabs.
    """
    pmdp = problem.pmdp
    plain = problem.objective.horizon is None and problem.criterion.contracts and problem.dropped is None
    few = pmdp.num_states <= MOST_STATES and region.dimension <= MOST_COORDINATES
    product = region.product if isinstance(region, Sliced) else region
    if not (plain and few and isinstance(product, Product) and factorisation(pmdp).describes(product)):
        return None
    if not isinstance(pmdp.table.reduction.weights, np.ndarray):
        return None
    return cached_on(region, "rooms", partial(_rooms, problem, product))


def _rooms(problem: Problem, product: Product, region: Region) -> Rooms | None:
    frame = BoxFrame.around(*region.box(), is_reduced=True)
    return Rooms.of(frame, blocks_of(product.order, product.block_ptr), *offered_cuts(problem, region))


def blocks_of(order: np.ndarray, block_ptr: np.ndarray) -> list[np.ndarray]:
    """The coordinates of each block."""
    return np.split(order, block_ptr[1:-1])


def least_sum(problem: Problem, rooms: Rooms, terms: list[Term], beyond: float = -np.inf) -> LeastSum | None:
    """Of (sign, policy), in the initial state; None where no bound is found, or none ``beyond`` a number."""
    known: KnownProducts = {}
    states = problem.pmdp.num_states
    places = [(k * states, len(terms) * states + 1) for k in range(len(terms))]
    parts = [RowsOfValue.of(problem, rooms, value, place, known) for value, place in zip(terms, places)]
    return _Sum(problem, rooms, parts).least(beyond) if all(part.rows for part in parts) else None


class _Sum:
    """All rows of some policies, the start's last; the functions of each, and the least sum T of them at the start."""

    def __init__(self, problem: Problem, rooms: Rooms, parts: list[RowsOfValue]) -> None:
        self.problem, self.rooms, self.parts = problem, rooms, parts
        states, start = problem.pmdp.num_states, problem.pmdp.initial_state
        total = len(parts) * states
        at_start = np.zeros((1, 1, total + 1))
        at_start[0, 0, start:total:states], at_start[0, 0, -1] = 1.0, -1.0
        nothing = np.zeros(1)
        last = LikeRows(Products(rooms, ()), np.array([-1]), at_start, nothing, nothing, nothing)
        self.rows = [*(rows for part in parts for rows in part.rows), last]

    def least(self, beyond: float) -> LeastSum | None:
        width = len(self.rooms.middle)
        free = np.repeat(np.concatenate([*(part.open for part in self.parts), [True]])[:, None], width, axis=1)
        free[-1, 1:] = False
        counts = [sum(rows.count for rows in part.rows) for part in self.parts]
        if sum(counts) > MOST_PRODUCTS or max(counts) * width**2 > MOST_NUMBERS or int(free.sum()) > MOST_UNKNOWN:
            return None
        visits = [*(visits for part in self.parts for visits in part.visits), np.ones(1)]
        moments = [visit[:, None] * rows.products.at(self.rooms.middle) for visit, rows in zip(visits, self.rows)]
        found = InteriorPoint(self.rows, free).best(*self._start(width), moments, beyond)
        return None if found is None else self._settled(*found)

    def _start(self, width: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """Functions that are the same number everywhere, so low that all inequalities hold, and multipliers for them.

        With moments of one point these are strictly feasible and central, but for ends of plays that are worth more.
        """
        gamma, ends = self.problem.gamma, np.concatenate([part.ended for part in self.parts])
        most = max(float(np.abs(rows.paid).max()) for rows in self.rows)
        low = -2.0 * max(most, LEAST) / (1.0 - gamma) - float(np.abs(ends).max())
        U = np.zeros((len(ends) + 1, width))
        U[:-1, 0] = np.where(np.concatenate([part.open for part in self.parts]), low, ends)
        U[-1, 0] = (len(self.parts) + 1.0) * low
        rooms = [*(rows.paid - (1.0 - gamma) * low for rows in self.rows[:-1]), np.array([-low])]
        return U, [room[:, None] * rows.products.even for room, rows in zip(rooms, self.rows)]

    def _settled(self, U: np.ndarray, given: list[np.ndarray]) -> LeastSum | None:
        """With values that are lowered until every inequality holds."""
        multipliers = [np.where(one > SMALL * one.max(axis=1, keepdims=True), one, 0.0) for one in given]
        U[-1] = 0.0
        firsts = np.cumsum([0, *(len(part.rows) for part in self.parts)])
        ours = [slice(*ends) for ends in pairwise(firsts)]
        functions = np.split(U[:-1], len(self.parts))
        for part, mine, one in zip(self.parts, ours, functions):
            lowered = ROOM * max(self._missed(U, multipliers, mine), 0.0) / (1.0 - self.problem.gamma)
            one[:, 0] -= np.where(part.open, lowered, 0.0)
            if not self._missed(U, multipliers, mine) <= 0.0:
                return None
        bound = -self._missed(U, multipliers, slice(-1, None)) - GAP * (1.0 + float(np.abs(U).max()))
        said = [part.open | self.problem.task.decided for part in self.parts]
        shown = [np.where(inside[:, None], one, np.nan) for inside, one in zip(said, functions)]
        rows = [
            [proved for rows, one in zip(self.rows[mine], multipliers[mine]) for proved in _proved(rows, one)]
            for mine in ours
        ]
        return LeastSum(float(np.nextafter(bound, -np.inf)), shown, rows)

    def _missed(self, U: np.ndarray, multipliers: list[np.ndarray], mine: slice) -> float:
        """The most by which an inequality may be missed: what products leave is judged by magnitudes, as |y_j| ≤ 1."""
        found = []
        for rows, one in zip(self.rows[mine], multipliers[mine]):
            left = rows.left(U, one)
            found.append(float((np.abs(left[:, 1:]).sum(axis=1) - left[:, 0] + rows.rounding(U, one)).max()))
        return max(found)


def _proved(rows: LikeRows, multipliers: np.ndarray) -> list[ProvedRow]:
    used = [np.flatnonzero(one) for one in multipliers]
    parts = zip(rows.first.tolist(), used, multipliers)
    return [ProvedRow(first, rows.products.pairs[:, chosen], one[chosen]) for first, chosen, one in parts]
