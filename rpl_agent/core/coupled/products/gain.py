"""The least difference of two values, or the least value, over a product of small polytopes, by products of cuts.

Functions and multipliers come from one linear program (`interior`); what rounding leaves is paid for here, so that any
of them give a bound. `guarantee.checker` proves it from the same functions and multipliers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import scipy

from rpl_agent.core.coupled.affine import BoxFrame
from rpl_agent.core.coupled.gradients.cuts import offered_cuts
from rpl_agent.core.coupled.products.interior import GAP, MISSED, InteriorPoint
from rpl_agent.core.coupled.products.rooms import Rooms
from rpl_agent.core.coupled.products.rows import KnownProducts, LikeRows, Products, RowsOfValue, Term
from rpl_agent.core.coupled.products.splits import Split, likely_splits
from rpl_agent.core.model import cached_on
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.blocks import factorisation
from rpl_agent.core.regions.product import Product
from rpl_agent.core.regions.sliced import Sliced
from rpl_agent.core.solver.problem import Problem

#: The most states, coordinates (the checker has no more), unknown entries of functions, and products of cuts.
MOST_STATES, MOST_COORDINATES, MOST_UNKNOWN, MOST_PRODUCTS = 400, 64, 2_000, 250_000
#: The most numbers of one policy's products, the checker takes no more; and of all chances.
MOST_NUMBERS = 20_000_000
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
    splits: list[Split]  # of the region, those first that promise more


def are_covered(problem: Problem, dimension: int) -> bool:
    """Whether bounds are looked for: discounted rewards without a horizon, in a small model."""
    pmdp = problem.pmdp
    plain = problem.objective.horizon is None and problem.criterion.contracts and problem.dropped is None
    few = pmdp.num_states <= MOST_STATES and dimension <= MOST_COORDINATES
    return plain and few and pmdp.num_rows * pmdp.num_states * (1 + dimension) <= MOST_NUMBERS


def rooms_of(problem: Problem, region: Region) -> Rooms | None:
    """The ends of expressions over the region's box, and slabs; None if problem and region are not covered here.

    Covered are products of the model's own blocks, also with slabs.
    """
    pmdp, product = problem.pmdp, region.product if isinstance(region, Sliced) else region
    if not (isinstance(product, Product) and are_covered(problem, region.dimension)):
        return None
    if not (factorisation(pmdp).describes(product) and isinstance(pmdp.table.reduction.weights, np.ndarray)):
        return None
    return cached_on(region, "rooms", partial(_rooms, problem, product))


def _rooms(problem: Problem, product: Product, region: Region) -> Rooms | None:
    frame = BoxFrame.around(*region.box(), is_reduced=True)
    return Rooms.of(frame, blocks_of(product.order, product.block_ptr), *offered_cuts(problem, region))


def blocks_of(order: np.ndarray, block_ptr: np.ndarray) -> list[np.ndarray]:
    """The coordinates of each block."""
    return np.split(order, block_ptr[1:-1])


def least_sum(
    problem: Problem,
    rooms: Rooms,
    terms: list[Term],
    beyond: float = -np.inf,
    enough: float = np.inf,
    few: bool = False,
) -> LeastSum | None:
    """In the initial state; None where no bound is found, or none ``beyond`` a number.

    enough : a bound above which no better one is looked for
    few : whether each row has as few products as monomials, for a file
    """
    known: KnownProducts = {}
    states = problem.pmdp.num_states
    places = [(k * states, len(terms) * states + 1) for k in range(len(terms))]
    parts = [RowsOfValue.of(problem, rooms, value, place, known) for value, place in zip(terms, places)]
    return _Sum(problem, rooms, parts).least(beyond, enough, few) if all(part.rows for part in parts) else None


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

    def least(self, beyond: float, enough: float, few: bool) -> LeastSum | None:
        width = len(self.rooms.middle)
        free = np.repeat(np.concatenate([*(part.open for part in self.parts), [True]])[:, None], width, axis=1)
        free[-1, 1:] = False
        count = sum(rows.count for part in self.parts for rows in part.rows)
        stored = max(sum(len(rows.paid) * rows.products.monomials for rows in part.rows) for part in self.parts)
        if count > MOST_PRODUCTS or stored * width**2 > MOST_NUMBERS or int(free.sum()) > MOST_UNKNOWN:
            return None
        visits = [*(visits for part in self.parts for visits in part.visits), np.ones(1)]
        moments = [visit[:, None] * rows.products.at(self.rooms.middle) for visit, rows in zip(visits, self.rows)]
        found = InteriorPoint(self.rows, free).best(*self._start(width), moments, beyond, enough)
        if found is None:
            return None
        splits = likely_splits(self.rooms, self.rows[:-1], found.U, found.moments[:-1])
        return self._settled(found.U, found.multipliers, splits, few)

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

    def _settled(self, U: np.ndarray, given: list[np.ndarray], splits: list[Split], few: bool) -> LeastSum | None:
        """With values that are lowered until every inequality holds."""
        U[-1] = 0.0
        multipliers = [*map(partial(_few, U), self.rows[:-1], given[:-1]), given[-1]] if few else given
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
        return LeastSum(float(np.nextafter(bound, -np.inf)), shown, rows, splits)

    def _missed(self, U: np.ndarray, multipliers: list[np.ndarray], mine: slice) -> float:
        """The most by which an inequality may be missed: what products leave is judged by magnitudes, as |y_j| ≤ 1."""
        found = []
        for rows, one in zip(self.rows[mine], multipliers[mine]):
            left = rows.left(U, one)
            found.append((np.abs(left[:, 1:]).sum(axis=1) - left[:, 0] + rows.rounding(U, one)).max())
        return float(np.max(found))  # of all: what is not a number proves nothing


def _few(U: np.ndarray, rows: LikeRows, multipliers: np.ndarray) -> np.ndarray:
    """(k, n) multipliers of at most as many products as monomials; those given where that fails."""
    size = multipliers.mean(axis=0)  # of the order of what is looked for
    found, scaled = np.zeros_like(multipliers), rows.products.matrix * size
    for k, q in enumerate(rows.left(U, found)):
        try:
            x, error = scipy.optimize.nnls(scaled, q)
        except RuntimeError:  # too many steps
            error = np.inf
        found[k] = size * x if error <= MISSED * (1.0 + float(np.abs(U).max())) else multipliers[k]
    return found


def _proved(rows: LikeRows, multipliers: np.ndarray) -> list[ProvedRow]:
    used = [np.flatnonzero(one) for one in multipliers]
    parts = zip(rows.first.tolist(), used, multipliers)
    return [ProvedRow(first, rows.products.pairs[:, chosen], one[chosen]) for first, chosen, one in parts]
