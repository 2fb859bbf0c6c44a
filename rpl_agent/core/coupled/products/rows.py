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
from rpl_agent.core.coupled.expansion import expansion_of
from rpl_agent.core.coupled.products.rooms import Rooms
from rpl_agent.core.model import Policy
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
        of_block = [np.flatnonzero(rooms.owner[self.pairs[1]] == k) for k in range(len(rooms.blocks))]
        used = [np.flatnonzero(self.matrix[:, columns].any(axis=1)) for columns in of_block]
        self._parts = [(rows, columns, self.matrix[np.ix_(rows, columns)]) for rows, columns in zip(used, of_block)]

    def normal(self, weight: np.ndarray) -> np.ndarray:
        """matrix · weight · matrix': products with cuts of one block have few monomials."""
        total = np.zeros((self.monomials, self.monomials))
        for rows, columns, part in self._parts:
            total[np.ix_(rows, rows)] += (part * weight[columns]) @ part.T
        return total

    def summed(self, form: np.ndarray) -> np.ndarray:
        """(monomials,) of z'Wz, W (D, 1 + r); the first one is 1."""
        return np.bincount(self.place.ravel(), form.ravel(), self.monomials)

    def at(self, z: np.ndarray) -> np.ndarray:
        """(monomials,) at a point."""
        found = np.empty(self.monomials)
        found[self.place] = np.outer(z[self.coordinates], z)
        return found


@dataclass(frozen=True, eq=False)
class RowForm:
    """An inequality: W = ahead @ U, and ``paid`` beside it; U (n, 1 + r) are those of all functions in its span."""

    products: Products
    state: int
    span: slice
    ahead: np.ndarray  # (D, n)
    paid: float
    sizes: float  # the magnitudes that add up to it
    lost: float  # what errors of chances may add up to, for functions that are at most 1

    def left(self, U: np.ndarray, multipliers: np.ndarray) -> np.ndarray:
        """(monomials,) of q − Σ μ c c'."""
        found = self.products.summed(self.ahead @ U[self.span]) - self.products.matrix @ multipliers
        found[0] += self.paid
        return found

    def rounding(self, U: np.ndarray, multipliers: np.ndarray) -> float:
        """More than the sum of the errors of `left`."""
        height = np.abs(U[self.span]).sum(axis=1)
        size = self.sizes + float(np.abs(self.ahead).sum(axis=0) @ height + self.products.sizes @ multipliers)
        terms = 16.0 * (sum(self.ahead.shape) + U.shape[1] + len(multipliers) + 8.0)
        return terms * UNIT_ROUNDOFF * size + self.lost * float(height.max())


@dataclass(frozen=True, eq=False)
class RowsOfPolicy:
    """The inequalities of a policy's value times ``sign``, from below, in the states that it may reach."""

    rows: list[RowForm]
    functions: np.ndarray  # (S, 1 + r) the value and its gradient at the box's centre; 0 where it does not get to
    open: np.ndarray  # (S,) where it gets to, and the play is not over
    visits: np.ndarray  # (n,) discounted, to the states of the rows, in the middle of the region

    @classmethod
    def of(
        cls,
        problem: Problem,
        rooms: Rooms,
        policy: Policy,
        sign: float,
        span: slice,
        known: dict[tuple[int, ...], Products],
    ) -> RowsOfPolicy | None:
        """None if values at the centre are not found. ``known``: products by blocks, to be filled."""
        pmdp, frame, gamma, weight = problem.pmdp, rooms.frame, problem.gamma, policy.shares(problem.pmdp)
        expansion = expansion_of(problem, frame, policy, policy)
        if expansion is None:
            return None
        forms, S, f = chances_of(problem, frame), pmdp.num_states, pmdp.expression
        share, state = weight[pmdp.transition_row], pmdp.row_state[pmdp.transition_row]
        chances = np.zeros((S, S, 1 + frame.dimension))
        np.add.at(
            chances, (state, pmdp.successor), gamma * share[:, None] * np.column_stack([forms.p[f], forms.slope[f]])
        )
        decided = problem.task.decided
        reached = _reached(pmdp.initial_state, chances.any(axis=2) & ~decided[:, None])
        functions = sign * np.column_stack([expansion.values, expansion.gradient])
        functions[decided] = sign * np.outer(problem.boundary()[decided], np.eye(1, functions.shape[1])[0])
        functions[~reached & ~decided] = 0.0
        error = forms.error[f] + 16.0 * UNIT_ROUNDOFF * (np.abs(forms.p[f]) + np.abs(forms.slope[f]).sum(axis=1))
        lost = gamma * np.bincount(state, share * error, S)
        paid, sizes = (np.bincount(pmdp.row_state, weight * r, S) for r in (problem.reward, np.abs(problem.reward)))
        blocks, played = factorisation(pmdp).block_of_row, weight > 0.0
        rows, states = [], np.flatnonzero(reached & ~decided)
        for s in states.tolist():
            mine = slice(pmdp.state_ptr[s], pmdp.state_ptr[s + 1])
            own = tuple(np.unique(blocks[mine][played[mine] & (blocks[mine] >= 0)]).tolist())
            products = known[own] if own in known else known.setdefault(own, Products(rooms, own))
            ahead = chances[s][:, products.coordinates].T.copy()
            ahead[0, s] -= 1.0
            rows.append(RowForm(products, s, span, ahead, sign * float(paid[s]), float(sizes[s]), float(lost[s])))
        system = np.eye(S) - chances @ rooms.middle
        visits = np.linalg.solve(system[np.ix_(states, states)].T, (states == pmdp.initial_state).astype(float))
        return cls(rows, functions, reached & ~decided, visits)


def _reached(start: int, leads: np.ndarray) -> np.ndarray:
    """(S,) the states that plays from the start may get to, where ``leads`` (S, S) is true."""
    found = np.zeros(len(leads), bool)
    found[start] = True
    while (more := found | leads[found].any(axis=0)).sum() > found.sum():
        found = more
    return found
