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
from rpl_agent.core.coupled.products.interior import GAP, InteriorPoint
from rpl_agent.core.coupled.products.rooms import Rooms
from rpl_agent.core.coupled.products.rows import Products, RowForm, RowsOfPolicy
from rpl_agent.core.model import Policy, cached_on
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.blocks import factorisation
from rpl_agent.core.regions.product import Product
from rpl_agent.core.solver.problem import Problem

#: The most states, coordinates (the checker has no more), unknown entries of functions, and products of cuts.
MOST_STATES, MOST_COORDINATES, MOST_UNKNOWN, MOST_PRODUCTS = 400, 64, 3_000, 60_000
#: The most numbers of one policy's products: the checker takes no more.
MOST_NUMBERS = 20_000_000
#: Multipliers below this share of a row's largest one are left out.
SMALL = 1e-8
#: Values are lowered by this multiple of what inequalities miss, and checked again.
ROOM = 1.01


@dataclass(frozen=True, eq=False)
class ProvedRow:
    """The multipliers of products of two cuts (−1: of one alone)."""

    state: int
    pairs: np.ndarray  # (2, n)
    multipliers: np.ndarray  # (n,)


@dataclass(frozen=True, eq=False)
class LeastSum:
    """A lower bound on a sum of values, each times 1 or −1, over the region, and for each of them what proves it."""

    bound: float
    functions: list[np.ndarray]  # (S, 1 + r) v, g of v + g·y; NaN where nothing is said
    rows: list[list[ProvedRow]]


def rooms_of(problem: Problem, region: Region) -> Rooms | None:
    """The ends of expressions over the region's box; None if problem and region are not of the kind covered here.

    Covered are discounted rewards, without a horizon, over the product of the model's own blocks.
    """
    pmdp = problem.pmdp
    plain = problem.objective.horizon is None and problem.criterion.contracts and problem.dropped is None
    few = pmdp.num_states <= MOST_STATES and region.dimension <= MOST_COORDINATES
    if not (plain and few and isinstance(region, Product) and factorisation(pmdp).describes(region)):
        return None
    weights = pmdp.table.reduction.weights
    return cached_on(region, "rooms", partial(_rooms, weights)) if isinstance(weights, np.ndarray) else None


def _rooms(weights: np.ndarray, region: Product) -> Rooms | None:
    weights = weights[weights.any(axis=1)]
    weights = np.unique(np.vstack([weights, -weights]), axis=0)
    frame = BoxFrame.around(*region.box(), is_reduced=True)
    return Rooms.of(frame, blocks_of(region.order, region.block_ptr), weights, -region.minimize(-weights))


def blocks_of(order: np.ndarray, block_ptr: np.ndarray) -> list[np.ndarray]:
    """The coordinates of each block."""
    return np.split(order, block_ptr[1:-1])


def least_sum(
    problem: Problem, rooms: Rooms, terms: list[tuple[float, Policy]], beyond: float = -np.inf
) -> LeastSum | None:
    """Of (sign, policy), in the initial state; None where no bound is found, or none ``beyond`` a number."""
    known: dict[tuple[int, ...], Products] = {}
    states, parts = problem.pmdp.num_states, list[RowsOfPolicy]()
    for k, (sign, policy) in enumerate(terms):
        part = RowsOfPolicy.of(problem, rooms, policy, sign, slice(k * states, (k + 1) * states), known)
        parts += [part] if part is not None and part.rows else []
    return _Sum(problem, rooms, parts).least(beyond) if len(parts) == len(terms) else None


class _Sum:
    """All rows of some policies, the start's last; the functions of each, and the least sum T of them at the start."""

    def __init__(self, problem: Problem, rooms: Rooms, parts: list[RowsOfPolicy]) -> None:
        self.problem, self.rooms, self.parts = problem, rooms, parts
        states, start = problem.pmdp.num_states, problem.pmdp.initial_state
        total = len(parts) * states
        at_start = np.zeros((1, total + 1))
        at_start[0, start:total:states], at_start[0, -1] = 1.0, -1.0
        last = RowForm(Products(rooms, ()), start, slice(0, total + 1), at_start, 0.0, 0.0, 0.0)
        self.rows = [*(row for part in parts for row in part.rows), last]

    def least(self, beyond: float) -> LeastSum | None:
        U = np.vstack([*(part.functions for part in self.parts), np.zeros((1, len(self.rooms.middle)))])
        free = np.repeat(np.concatenate([*(part.open for part in self.parts), [True]])[:, None], U.shape[1], axis=1)
        free[-1, 1:] = False
        counts = [sum(len(row.products.sizes) for row in part.rows) for part in self.parts]
        numbers = max(counts) * U.shape[1] ** 2
        if sum(counts) > MOST_PRODUCTS or numbers > MOST_NUMBERS or int(free.sum()) > MOST_UNKNOWN:
            return None
        visits = np.concatenate([*(part.visits for part in self.parts), [1.0]])
        moments = [visit * row.products.at(self.rooms.middle) for visit, row in zip(visits, self.rows)]
        found = InteriorPoint(self.rows, free).best(U, moments, beyond)
        return None if found is None else self._settled(*found)

    def _settled(self, U: np.ndarray, given: list[np.ndarray]) -> LeastSum | None:
        """With values that are lowered until every inequality holds."""
        multipliers = [np.where(one > SMALL * one.max(), one, 0.0) for one in given]
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
        rows = [[_proved(row, one) for row, one in zip(self.rows[mine], multipliers[mine])] for mine in ours]
        return LeastSum(float(np.nextafter(bound, -np.inf)), shown, rows)

    def _missed(self, U: np.ndarray, multipliers: list[np.ndarray], mine: slice) -> float:
        """The most by which an inequality may be missed: what products leave is judged by magnitudes, as |y_j| ≤ 1."""
        found = []
        for row, one in zip(self.rows[mine], multipliers[mine]):
            left = row.left(U, one)
            found.append(float(np.abs(left[1:]).sum()) - float(left[0]) + row.rounding(U, one))
        return max(found)


def _proved(row: RowForm, multipliers: np.ndarray) -> ProvedRow:
    used = np.flatnonzero(multipliers)
    return ProvedRow(row.state, row.products.pairs[:, used], multipliers[used])
