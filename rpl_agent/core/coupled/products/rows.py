"""Inequalities of rows as quadratic forms over the region's box, and products of cuts that prove them.

Let U(s, y) = v(s) + g(s)·y. In a model of blocks the rows that a policy plays in a state depend on the coordinates x of
few blocks, its own; what they leave is

    q(y) = r + γ Σ p(x) U(y) − U(s, y) = (1, x)'W(1, y),

where W is linear in all v and g. Every cut has a room c(y) ≥ 0 in the region. So if q = Σ μ c c' with μ ≥ 0, for cuts c
of own blocks and c' of any, then q ≥ 0 in the region.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent.core.coupled.affine import chances_of
from rpl_agent.core.coupled.products.normal import NormalMatrices
from rpl_agent.core.coupled.products.rooms import Rooms
from rpl_agent.core.model import ParametricMDP, Policy
from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.core.regions.blocks import factorisation
from rpl_agent.core.solver.problem import Problem


class Products:
    """The products of each cut of some blocks and any cut (without blocks: all cuts), as sums of monomials z_i z_j,
    z = (1, y)."""

    def __init__(self, rooms: Rooms, own: tuple[int, ...]) -> None:
        width, first = rooms.forms.shape[1], np.flatnonzero(np.isin(rooms.owner, own))
        self.coordinates = np.concatenate([[0], *(rooms.blocks[k] + 1 for k in own)]).astype(int)
        #: (D, 1 + r) the monomial z_i z_j of the i-th coordinate and any j
        self.place = np.arange(len(self.coordinates) * width).reshape(-1, width)
        mirrored = self.place[:, self.coordinates]
        self.place[:, self.coordinates] = np.minimum(mirrored, mirrored.T)
        self.place = np.unique(self.place, return_inverse=True)[1].reshape(self.place.shape)
        self.monomials = 1 + int(self.place.max())
        every = np.arange(len(rooms.owner))
        pairs = [np.stack([np.full_like(every, i), every])[:, ~np.isin(every, first) | (every >= i)] for i in first]
        #: (2, n) the cuts of each product, −1: none
        self.pairs = np.concatenate(pairs, axis=1) if pairs else np.stack([np.full_like(every, -1), every])
        forms, sizes = np.vstack([rooms.forms, np.eye(1, width)]), np.append(rooms.sizes, 1.0)
        left, right = forms[self.pairs[0]][:, self.coordinates], forms[self.pairs[1]]
        self.matrix = np.zeros((self.monomials, self.pairs.shape[1]))
        np.add.at(self.matrix, self.place.ravel(), np.einsum("na,nj->ajn", left, right).reshape(self.place.size, -1))
        self.sizes = sizes[self.pairs].prod(axis=0)
        #: (n,) positive multipliers of products whose sum is 1 for every y
        self.even = _even(rooms, self.pairs, len(own))
        chosen = first if len(first) else np.array([-1])
        at = np.searchsorted(chosen, self.pairs[0]) * len(every) + self.pairs[1]
        factors = forms[chosen][:, self.coordinates], rooms.forms
        self.normal = NormalMatrices(*factors, at, self.place)

    def summed(self, forms: np.ndarray) -> np.ndarray:
        """(k, monomials) of z'Wz, W (k, D, 1 + r); the first one is 1."""
        count = len(forms)
        place = self.place.ravel() + self.monomials * np.arange(count)[:, None]
        return np.bincount(place.ravel(), forms.ravel(), count * self.monomials).reshape(count, -1)

    def at(self, z: np.ndarray) -> np.ndarray:
        """(monomials,) at a point."""
        found = np.empty(self.monomials)
        found[self.place] = np.outer(z[self.coordinates], z)
        return found


#: by blocks
KnownProducts = dict[tuple[int, ...], Products]


def _even(rooms: Rooms, pairs: np.ndarray, blocks: int) -> np.ndarray:
    """(n,) of products: Σ over cuts of some blocks, times Σ over all cuts."""
    alone, joint = np.append(rooms.alone / max(blocks, 1), 1.0), np.append(rooms.joint, 1.0)
    one, other = pairs
    both = (alone[other] > 0.0) & np.isin(other, one) & (one != other)  # a product of two cuts of these blocks
    return alone[one] * joint[other] + np.where(both, alone[other] * joint[one], 0.0)


@dataclass(frozen=True, eq=False)
class Term:
    """A policy's value, or that of every one, times a sign: it is bounded from below."""

    sign: float
    policy: Policy | None  # None: of every one


@dataclass(frozen=True, eq=False)
class LikeRows:
    """k inequalities with the same products: W = ahead @ U, and ``paid`` beside it; U (N, 1 + r) are all functions."""

    products: Products
    first: np.ndarray  # (k,) rows of the model, the first ones that are played
    ahead: np.ndarray  # (k, D, N)
    paid: np.ndarray  # (k,)
    sizes: np.ndarray  # (k,) the magnitudes that add up to it
    lost: np.ndarray  # (k,) what errors of chances may add up to, for functions that are at most 1

    @property
    def count(self) -> int:
        """The number of products."""
        return len(self.paid) * len(self.products.sizes)

    def left(self, U: np.ndarray, multipliers: np.ndarray) -> np.ndarray:
        """(k, monomials) of q − Σ μ c c'."""
        found = self.products.summed(self.ahead @ U) - multipliers @ self.products.matrix.T
        found[:, 0] += self.paid
        return found

    def rounding(self, U: np.ndarray, multipliers: np.ndarray) -> np.ndarray:
        """(k,) more than the sum of the errors of `left`."""
        height = np.abs(U).sum(axis=1)
        size = self.sizes + np.abs(self.ahead).sum(axis=1) @ height + multipliers @ self.products.sizes
        terms = 16.0 * (sum(self.ahead.shape[1:]) + U.shape[1] + multipliers.shape[1] + 8.0)
        return np.asarray(terms * UNIT_ROUNDOFF * size + self.lost * float(height.max()))


@dataclass(frozen=True, eq=False)
class RowsOfValue:
    """The inequalities of a policy's value, or of every one's, times ``sign``, from below, in the states reached."""

    rows: list[LikeRows]
    ended: np.ndarray  # (S,) what states are worth where the play is over
    open: np.ndarray  # (S,) where it gets to, and the play is not over
    visits: list[np.ndarray]  # (k,) discounted, to the rows, in the middle of the region

    @classmethod
    def of(
        cls, problem: Problem, rooms: Rooms, value: Term, place: tuple[int, int], known: KnownProducts
    ) -> RowsOfValue:
        """place: the number of the value's first function, and of all functions; ``known``: products by blocks."""
        pmdp, decided = problem.pmdp, problem.task.decided
        played = PlayedRows.of(problem, rooms, value)
        is_open = _reached(pmdp.initial_state, played.leads(decided)) & ~decided
        used = np.flatnonzero(is_open[played.state])
        chances = played.chances[used]
        visits = _visits(pmdp.initial_state, chances @ rooms.middle, played.state[used])
        chances[np.arange(len(used)), played.state[used], 0] -= 1.0  # what is ahead, less the value of the state
        alike, first, rows = played.alike(factorisation(pmdp).block_of_row, used), played.first(), list[LikeRows]()
        for own, mine in alike.items():
            products = known[own] if own in known else known.setdefault(own, Products(rooms, own))
            chosen, ahead = used[mine], np.zeros((len(mine), len(products.coordinates), place[1]))
            mine_ahead = chances[mine][:, :, products.coordinates].transpose(0, 2, 1)
            ahead[:, :, place[0] : place[0] + pmdp.num_states] = mine_ahead
            paid, sizes, lost = value.sign * played.paid[chosen], played.sizes[chosen], played.lost[chosen]
            rows.append(LikeRows(products, first[chosen], ahead, paid, sizes, lost))
        ended = np.where(decided, value.sign * problem.boundary(), 0.0)
        return cls(rows, ended, is_open, [visits[mine] for mine in alike.values()])


@dataclass(frozen=True, eq=False)
class PlayedRows:
    """The G groups of rows that are judged as one: of a policy those of a state, of every policy each row alone."""

    group: np.ndarray  # (R,) of each row of the model
    weight: np.ndarray  # (R,) its share in the group
    state: np.ndarray  # (G,)
    chances: np.ndarray  # (G, S, 1 + r) discounted probability of each successor, as p0 + p·y
    lost: np.ndarray  # (G,) what errors of chances may add up to, for values that are at most 1
    paid: np.ndarray  # (G,) reward
    sizes: np.ndarray  # (G,) the magnitudes that add up to it

    @classmethod
    def of(cls, problem: Problem, rooms: Rooms, value: Term) -> PlayedRows:
        pmdp, gamma = problem.pmdp, problem.gamma
        forms, expression = chances_of(problem, rooms.frame), pmdp.expression
        group, weight = _groups(pmdp, value)
        groups = int(group.max()) + 1
        share, of_move = weight[pmdp.transition_row], group[pmdp.transition_row]
        p, slope = forms.p[expression], forms.slope[expression]
        chances = np.zeros((groups, pmdp.num_states, 1 + rooms.frame.dimension))
        np.add.at(chances, (of_move, pmdp.successor), gamma * share[:, None] * np.column_stack([p, slope]))
        state = np.zeros(groups, dtype=int)
        state[group] = pmdp.row_state
        error = forms.error[expression] + 16.0 * UNIT_ROUNDOFF * (np.abs(p) + np.abs(slope).sum(axis=1))
        lost = gamma * np.bincount(of_move, share * error, groups)
        paid, sizes = (np.bincount(group, weight * r, groups) for r in (problem.reward, np.abs(problem.reward)))
        return cls(group, weight, state, chances, lost, paid, sizes)

    def first(self) -> np.ndarray:
        """(G,) the first row of each group that is played."""
        played = np.flatnonzero(self.weight > 0.0)
        found = np.zeros(len(self.state), dtype=int)
        found[self.group[played][::-1]] = played[::-1]
        return found

    def leads(self, decided: np.ndarray) -> np.ndarray:
        """(S, S) whether a play may step from one state, where it is not over, to another."""
        found = np.zeros((len(decided), len(decided)), dtype=bool)
        np.logical_or.at(found, self.state, self.chances.any(axis=2) & ~decided[self.state, None])
        return found

    def alike(self, block_of_row: np.ndarray, used: np.ndarray) -> dict[tuple[int, ...], list[int]]:
        """By blocks, which of the groups ``used`` have played rows of just these."""
        played = self.weight > 0.0
        block, group = block_of_row[played], self.group[played]
        found: dict[tuple[int, ...], list[int]] = {}
        for n, k in enumerate(used.tolist()):
            own = np.unique(block[group == k])
            found.setdefault(tuple(own[own >= 0].tolist()), []).append(n)
        return found


def _groups(pmdp: ParametricMDP, value: Term) -> tuple[np.ndarray, np.ndarray]:
    """((R,) number of the inequality that a row is part of, (R,) its share): of a policy one for each state."""
    if value.policy is None:
        return np.arange(pmdp.num_rows), np.ones(pmdp.num_rows)
    return pmdp.row_state, value.policy.shares(pmdp)


def _visits(start: int, ahead: np.ndarray, state: np.ndarray) -> np.ndarray:
    """(n,) discounted visits to rows that lead ahead (n, S), if each one of a state is played as often."""
    states = ahead.shape[1]
    share = 1.0 / np.bincount(state, minlength=states)[state]
    moved = np.zeros((states, states))
    np.add.at(moved, state, share[:, None] * ahead)
    used = np.unique(state)
    system = np.eye(len(used)) - moved[np.ix_(used, used)]
    visits = np.zeros(states)
    visits[used] = np.linalg.solve(system.T, (used == start).astype(float))
    return share * visits[state]


def _reached(start: int, leads: np.ndarray) -> np.ndarray:
    """(S,) the states that plays from the start may get to, where ``leads`` (S, S) is true."""
    found = np.zeros(len(leads), bool)
    found[start] = True
    while (more := found | leads[found].any(axis=0)).sum() > found.sum():
        found = more
    return found
