"""The values of two policies at one common parameter, over a product of small polytopes: rows at vertices.

In a model of blocks the rows that a policy plays in a state depend on one block, and the region is a product of small
polytopes. Let L(s, y) = v(s) + g(s)·y. What such a row leaves, with x the coordinates of its own block and z those of
the others,

    q(y) = r + γ Σ p(x) (v + g·y) − v(s) − g(s)·y = a + l·x + x'Mx + Σ_z (l_z + M_z'x)·z,

is affine in the first x of every term. So if x = Σ λ c is a mixture of vertices c, then q is the mixture of numbers
that are at least

    a + l·c + min_c' c'M c' + Σ_z min_z (l_z + M_z'c)·z,

and q ≥ 0 everywhere if the least of them, over the vertices of few coordinates, is. Terms of two blocks lose nothing
by that, where the sum of their magnitudes (`affine`, on a box) is many times too large. For given gradients the largest
such v are a fixpoint of nature's best choice of a vertex in each state; with a discount, L then bounds the value from
below at every parameter. The checker does not know this argument.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent.core.coupled.affine import BoxFrame, chances_of
from rpl_agent.core.coupled.expansion import expansion_of
from rpl_agent.core.coupled.vertices.enumeration import Vertices, vertices_of
from rpl_agent.core.model import Policy, cached_on
from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.blocks import factorisation
from rpl_agent.core.regions.polytope import Polytope
from rpl_agent.core.regions.product import Product
from rpl_agent.core.solver.problem import Problem

#: The most states, vertices of a block, and numbers of chances at vertices or of their derivatives.
MOST_STATES, MOST_VERTICES, NUMBERS = 400, 2_000, 4_000_000
#: Rounds in which nature improves its choice of vertices, and the gain, relative to values, that counts as one.
ROUNDS, BETTER = 100, 1e-12
#: Values are lowered by this multiple of what inequalities miss, and checked again: vertices are loosened a little, so
#: that chances there may sum up to more than 1.
ROOM = 1.01


def rows_of_pair(
    problem: Problem, region: Product, one: Policy, other: Policy
) -> tuple[RowsAtVertices, RowsAtVertices] | None:
    """The rows of a value to be bounded from below, and of one from above: its negative from below."""
    if not _applies(problem, region):
        return None
    own = own_blocks(problem, one), own_blocks(problem, other)
    vertices = None if own[0] is None or own[1] is None else _vertices_of(region)
    if own[0] is None or own[1] is None or vertices is None:
        return None
    frame = _frame(region, vertices)
    blocks = [_PointsOfBlock.of(region, frame, k, found) for k, found in enumerate(vertices)]
    first = RowsAtVertices.of(problem, frame, blocks, one, 1.0, own[0])
    second = RowsAtVertices.of(problem, frame, blocks, other, -1.0, own[1])
    return None if first is None or second is None else (first, second)


def _applies(problem: Problem, region: Product) -> bool:
    """Whether problem and region are of the kind that the argument is about, and small."""
    pmdp, size = problem.pmdp, problem.pmdp.num_states
    plain = problem.objective.horizon is None and problem.criterion.contracts and problem.dropped is None
    few = size <= MOST_STATES and size * size * region.dimension <= NUMBERS
    is_dense = isinstance(pmdp.table.reduction.weights, np.ndarray)
    return plain and few and is_dense and factorisation(pmdp).describes(region)


def own_blocks(problem: Problem, policy: Policy) -> np.ndarray | None:
    """(S,) the block of the rows that a policy plays in each state, −1 if they are known; None if there are several."""
    pmdp, of_row, played = problem.pmdp, factorisation(problem.pmdp).block_of_row, policy.shares(problem.pmdp) > 0.0
    own = np.full(pmdp.num_states, -1)
    np.maximum.at(own, pmdp.row_state[played], of_row[played])
    return None if (played & (of_row >= 0) & (of_row != own[pmdp.row_state])).any() else own


def _vertices_of(region: Product) -> list[Vertices] | None:
    """The vertices of each block; None if they are not found."""
    return cached_on(region, "vertices of blocks", _vertices_of_blocks)


def _vertices_of_blocks(region: Product) -> list[Vertices] | None:
    found = []
    for k in range(len(region.block_ptr) - 1):
        vertices = vertices_of(_block_region(region, k), MOST_VERTICES)
        if vertices is None:
            return None
        found.append(vertices)
    return found


def _block_region(region: Product, k: int) -> Region:
    """Block k as a region of its own."""
    if k in region.regions:
        return region.regions[k]
    span = slice(region.block_ptr[k], region.block_ptr[k + 1])
    ones = np.ones((1, span.stop - span.start))
    room = 4.0 * UNIT_ROUNDOFF * (ones.size + 4.0)
    ends = np.array([1.0 - region.rest_lower[k] + room, region.rest_upper[k] - 1.0 + room])
    return Polytope(np.vstack([ones, -ones]), ends, region.lower[span], region.upper[span])


def _frame(region: Product, vertices: list[Vertices]) -> BoxFrame:
    """The box of the region around the mean of its vertices: the box's own centre may be outside the region."""
    low, high = region.box()
    center = np.empty(region.dimension)
    center[region.order] = np.concatenate([found.points.mean(axis=0) for found in vertices])
    center = np.clip(center, low, high)
    reach = np.maximum(high - center, center - low) + 3.0 * np.spacing(np.maximum(np.abs(low), np.abs(high)))
    return BoxFrame(center, reach, None, is_reduced=True)


@dataclass(frozen=True, eq=False)
class _PointsOfBlock:
    columns: np.ndarray  # (d,) its coordinates
    points: np.ndarray  # (n, d) its vertices, in the coordinates y of the frame
    error: float  # by which they may be off

    @classmethod
    def of(cls, region: Product, frame: BoxFrame, k: int, vertices: Vertices) -> _PointsOfBlock:
        columns = region.order[region.block_ptr[k] : region.block_ptr[k + 1]]
        half, center = frame.half[columns], frame.center[columns]
        points = (vertices.points - center) / half
        size = float(np.abs(vertices.points).max() + np.abs(center).max())
        moved = (vertices.error + 4.0 * UNIT_ROUNDOFF * size) / float(half.min())
        return cls(columns, points, moved + 4.0 * UNIT_ROUNDOFF * float(np.abs(points).max()))


@dataclass(frozen=True, eq=False)
class RowsAtVertices:
    """What a policy's rows lead to at the vertices of their blocks; values and rewards times ``sign``."""

    problem: Problem
    frame: BoxFrame
    sign: float
    gradient: np.ndarray  # (S, r) of sign · value at the centre
    blocks: list[_PointsOfBlock]
    own: np.ndarray  # (S,) the block of each state's rows, −1 if they are known
    center: np.ndarray  # (S, S) chances at the centre
    chances: list[np.ndarray]  # of each state (n, S): at the vertices of its block
    reward: np.ndarray  # (S,)
    lost: np.ndarray  # (S,) errors of chances
    steep: float  # the most that the chances of a state change with y, summed up

    @classmethod
    def of(
        cls,
        problem: Problem,
        frame: BoxFrame,
        blocks: list[_PointsOfBlock],
        policy: Policy,
        sign: float,
        own: np.ndarray,
    ) -> RowsAtVertices | None:
        """None if there are too many numbers, or values at the centre are not found."""
        pmdp, forms = problem.pmdp, chances_of(problem, frame)
        states, weight = pmdp.num_states, policy.shares(pmdp)
        sizes = np.array([*(len(block.points) for block in blocks), 1])
        expansion = expansion_of(problem, frame, policy, policy)
        if expansion is None or int(sizes[own].sum()) * states > NUMBERS:
            return None
        f, share, state = pmdp.expression, weight[pmdp.transition_row], pmdp.row_state[pmdp.transition_row]
        center, slope = np.zeros((states, states)), np.zeros((states, states, frame.dimension))
        np.add.at(center, (state, pmdp.successor), share * forms.p[f])
        np.add.at(slope, (state, pmdp.successor), share[:, None] * forms.slope[f])
        chances = []
        for s, k in enumerate(own.tolist()):
            change = blocks[k].points @ slope[s][:, blocks[k].columns].T if k >= 0 else 0.0
            chances.append(np.atleast_2d(center[s] + change))
        reward = sign * np.bincount(pmdp.row_state, weight * problem.reward, states)
        error = forms.error[f] + 16.0 * UNIT_ROUNDOFF * (np.abs(forms.p[f]) + np.abs(forms.slope[f]).sum(axis=1))
        lost = np.bincount(state, share * error, states)
        steep = float(np.abs(slope).sum(axis=(1, 2)).max())
        gradient = sign * expansion.gradient
        return cls(problem, frame, sign, gradient, blocks, own, center, chances, reward, lost, steep)

    def least(self, g: np.ndarray) -> np.ndarray:
        """(S,) the largest v found so that v + g·y bounds sign · value from below over the region; −inf if none is."""
        decided = self.problem.task.decided
        g = np.where(decided[:, None], 0.0, g)
        left = {s: self._left(g, s)[0] for s in self._open}
        v, _, _ = self._settled(left)
        lost = max(self._missed(v, left), 0.0) + self._rounding(v, g)
        lowered = np.where(decided, v, v - ROOM * lost / (1.0 - self.problem.gamma))
        holds = self._missed(lowered, left) <= -self._rounding(lowered, g)
        return lowered if holds else np.full(len(v), -np.inf)

    def _missed(self, v: np.ndarray, left: dict[int, np.ndarray]) -> float:
        """The most by which an inequality is missed, before rounding."""
        return max(float(v[s] - self._after(s, v, left[s]).min()) for s in left)

    def slopes(self, g: np.ndarray) -> tuple[float, np.ndarray]:
        """(v of the initial state, its derivatives (S, r) by g): no bounds. v is concave in g."""
        gamma, start = self.problem.gamma, self.problem.pmdp.initial_state
        found = {s: self._left(g, s) for s in self._open}
        v, choice, system = self._settled({s: left for s, (left, _) in found.items()})
        visits, slope = np.linalg.solve(system.T, np.eye(len(v))[start]), np.zeros_like(g)
        for s, c in choice.items():
            ahead = gamma * self.chances[s][c]
            for k, block in enumerate(self.blocks):
                point = block.points[found[s][1][k][c]]
                if k != self.own[s]:
                    slope[:, block.columns] += visits[s] * np.outer(ahead, point)
                    slope[s, block.columns] -= visits[s] * point
                else:
                    middle = gamma * self.center[s]
                    slope[:, block.columns] += visits[s] * np.outer(middle, block.points[c])
                    slope[:, block.columns] += visits[s] * np.outer(ahead - middle, point)
                    slope[s, block.columns] -= visits[s] * block.points[c]
        slope[self.problem.task.decided] = 0.0
        return float(v[start]), slope

    @property
    def _open(self) -> list[int]:
        return [int(s) for s in np.flatnonzero(~self.problem.task.decided)]

    def _after(self, s: int, v: np.ndarray, left: np.ndarray) -> np.ndarray:
        """(n,) what the state is worth with each vertex."""
        return np.asarray(self.reward[s] + self.problem.gamma * (self.chances[s] @ v) + left)

    def _settled(self, left: dict[int, np.ndarray]) -> tuple[np.ndarray, dict[int, int], np.ndarray]:
        """(v (S,), the vertex that nature chooses in each state, I − γP (S, S) of these choices)."""
        decided, known = self.problem.task.decided, self.sign * self.problem.boundary()
        choice = {s: int(left[s].argmin()) for s in left}
        for _ in range(ROUNDS):
            system, right, better = np.eye(len(known)), known.copy(), False
            for s, c in choice.items():
                system[s] -= self.problem.gamma * self.chances[s][c]
                right[s] = self.reward[s] + left[s][c]
            v = np.linalg.solve(system, right)
            v[decided] = known[decided]
            height = float(np.abs(v).max())
            for s in choice:
                after = self._after(s, v, left[s])
                c = int(after.argmin())
                if after[c] < v[s] - BETTER * (1.0 + height):
                    choice[s], better = c, True
            if not better:
                break
        return v, choice, system

    def _left(self, g: np.ndarray, s: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """What gradients leave at the vertices of the state's block: q(y) without r + γ Σ p v − v(s).

        (n,), and of every block the vertices (n,) at which it is least.
        """
        gamma, own, chosen = self.problem.gamma, self.own[s], []
        slope = gamma * (self.chances[s] @ g) - g[s]  # (n, r)
        middle = gamma * (self.center[s] @ g) - g[s]
        found = np.zeros(len(slope))
        for k, block in enumerate(self.blocks):
            if k == own:
                found += block.points @ middle[block.columns]
                slope[:, block.columns] -= middle[block.columns]
            products = slope[:, block.columns] @ block.points.T
            chosen.append(products.argmin(axis=1))
            found += products[np.arange(len(found)), chosen[-1]]
        return found, chosen

    def _rounding(self, v: np.ndarray, g: np.ndarray) -> float:
        """More than any inequality may be off by rounding, and by the errors of vertices."""
        height, size = float(np.abs(v).max()), float(np.abs(g).sum(axis=1).max())
        reach = max((float(np.abs(block.points).max()) for block in self.blocks), default=0.0)
        moved = max((block.error for block in self.blocks), default=0.0)
        total = float(np.abs(self.reward).max()) + (4.0 + self.steep * (1.0 + reach)) * (height + (1.0 + reach) * size)
        lost = float(self.lost.max()) * (height + (1.0 + reach) * size)
        terms = 8.0 * (len(v) + g.shape[1] + 16.0)
        return lost + (terms * UNIT_ROUNDOFF + 4.0 * moved) * total
