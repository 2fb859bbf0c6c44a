"""Bounds on the optimum over boxes of parameters: a proved affine bound, or the interval MDP of the box.

The error of an affine bound (`affine`) is of second order in the box's width, so halving boxes closes the gap
fast; the error of the interval MDP is of first order, but it exists for every box.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rpl_agent.core.coupled.affine import AffineBound, AffineProof, BoxFrame, Side
from rpl_agent.core.coupled.bounds import find_bound
from rpl_agent.core.coupled.expansion import StepExpansion, ValueExpansion, expansion_of, visits
from rpl_agent.core.errors import ModelError, RPLWarning
from rpl_agent.core.model import Domain, Nature, Objective, ParametricMDP, Policy, Sense, gather, range_on_box
from rpl_agent.core.regions.base import Box
from rpl_agent.core.regions.polytope import Polytope
from rpl_agent.core.relaxations.interval import Intervals
from rpl_agent.core.solver.problem import Problem
from rpl_agent.core.solver.solution import Solution
from rpl_agent.core.solver.solve import solve, solve_at

#: halve boxes without an affine bound this many times before using their interval MDP
PATIENCE = 2
#: do not use affine bounds at one point if they are further apart than this
POINT_WIDTH = 1e-6


@dataclass(frozen=True)
class BoxPiece:
    """A box of parameters, and bounds on the value there on one side."""

    lower: np.ndarray  # (d,)
    upper: np.ndarray  # (d,)
    bound: float  # no value in the box is beyond it
    axis: int  # the best parameter to split along; -1 if the box cannot be split
    point: np.ndarray | None  # (d,) of the region in the box, where the value is near its extreme; None if not found
    value: float  # the approximate value there
    slope: np.ndarray | None  # (d,) the gradient of the value at the centre, times half the box; None if unknown
    failed: int = 0  # the number of boxes without an affine bound among this one and its ancestors

    def halves(self, axis: int | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
        """The two halves of the box, along ``axis``; by default along its own."""
        axis = self.axis if axis is None else axis
        middle = 0.5 * (self.lower[axis] + self.upper[axis])
        first, second = self.upper.copy(), self.lower.copy()
        first[axis] = second[axis] = middle
        return [(self.lower, first), (second, self.upper)]


class BoxBounds:
    """Bounds over boxes in a region, on the optimum of an objective or on one policy's value.

    region : in the domain of the model
    """

    def __init__(self, pmdp: ParametricMDP, objective: Objective, region: Domain, policy: Policy | None = None) -> None:
        self.pmdp, self.objective, self.region = pmdp, objective, region
        if policy is None and pmdp.num_rows == pmdp.num_states and objective.horizon is None:
            policy = Policy.deterministic(np.array(pmdp.state_ptr[:-1]))
        self.policy = policy
        self.boxes = 0
        self.deadline = math.inf  # of `time.perf_counter`: after it only what a result needs is computed

    @property
    def is_late(self) -> bool:
        return time.perf_counter() > self.deadline

    # ------------------------------------------------------------------ the whole region
    @cached_property
    def problem(self) -> Problem:
        """The problem of the whole region: its interval hull shows where plays can be held, in each box too."""
        return self._problem_on(self.region.lower, self.region.upper)

    def _problem_on(self, lower: np.ndarray, upper: np.ndarray) -> Problem:
        return Problem.of(self._intervals(lower, upper), self.objective, Nature.ADVERSARIAL, None)

    def _intervals(self, lower: np.ndarray, upper: np.ndarray) -> Intervals:
        return Intervals(self.pmdp, *range_on_box(self.pmdp.table, lower, upper))

    @cached_property
    def is_expandable(self) -> bool:
        """Whether affine bounds apply: the start is undecided."""
        return not self.problem.task.decided[self.pmdp.initial_state]

    @cached_property
    def robust(self) -> Solution:
        """The robust solution of the region's interval MDP; its policy is a starting point."""
        return self._solved(Nature.ADVERSARIAL, self.region.lower, self.region.upper)

    @cached_property
    def _start(self) -> Policy:
        if self.policy is not None:
            return self.policy
        return self.robust.policy if self.objective.horizon is None else Policy.uniform(self.pmdp)  # needs no search

    def root(self, side: Side, has_point: bool = False) -> BoxPiece:
        """The whole region; without an affine bound its bound is infinite."""
        piece = self.piece(side, self.region.lower, self.region.upper, eager=False, has_point=has_point)
        if piece is None:
            raise ModelError("the region is empty: its constraints leave no parameters")
        return piece

    # ------------------------------------------------------------------ one box
    def piece(
        self,
        side: Side,
        lower: np.ndarray,
        upper: np.ndarray,
        parent: BoxPiece | None = None,
        eager: bool = True,
        best: float | None = None,
        allowed: float = 0.0,
        has_point: bool = True,
    ) -> BoxPiece | None:
        """The box with its bound, no worse than that of its parent; None if it is proved to be outside the region.

        A box without an affine bound may keep its parent's, unless ``eager``, because it will be halved. A box whose
        bound is within ``allowed`` of the best value so far will hardly be halved, so its axis is simply its longest;
        one below that value has no better point, so none is looked for. After the deadline a box keeps its parent's
        bound, and no point is looked for if one is known (``has_point``).
        """
        cell = self._cell(lower, upper)
        if cell is None:
            return None
        self.boxes += 1
        if parent is not None and self.is_late:
            return BoxPiece(lower, upper, parent.bound, -1, None, np.nan, None, parent.failed)
        frame = BoxFrame.around(lower, upper)
        expansion = None if self.is_late else self._expansion(frame)
        bound, slope = side.value * np.inf, None
        if expansion is not None and not (parent is not None and self.is_late):
            bound, slope = self._affine(side, expansion, cell), expansion.gradient[..., self.pmdp.initial_state, :]
            slope = slope.reshape(-1, frame.dimension)[-1]  # with all steps to go
        failed, known = 0, side.value * np.inf if parent is None else parent.bound
        if not np.isfinite(bound) and not self.is_late:
            failed = 1 if parent is None else parent.failed + 1
            if eager or failed > PATIENCE or not isinstance(expansion, ValueExpansion) or self._every_policy(side):
                bound = self.interval_bound(side, lower, upper)
        bound = side.value * min(side.value * bound, side.value * known)
        beyond = np.inf if best is None else side.value * (bound - best)
        point = self._point(side, lower, upper, slope) if beyond > 0.0 and not (self.is_late and has_point) else None
        value = np.nan if point is None else self.value(point)
        axis = self._axis(lower, upper, expansion if beyond > allowed else None)
        return BoxPiece(lower, upper, bound, axis, point, value, slope, failed)

    def _cell(self, lower: np.ndarray, upper: np.ndarray) -> Box | Polytope | None:
        """The part of the region in a box; None if some constraint leaves nothing."""
        box = Box(lower, upper)
        if not len(self.region.b):
            return box
        A = self.region.A if isinstance(self.region.A, np.ndarray) else self.region.A.toarray()
        if (box.minimize(A) > self.region.b).any():
            return None
        if (-box.minimize(-A) <= self.region.b).all():
            return box
        cell = Polytope(A, self.region.b, lower, upper)
        return None if cell.is_empty else cell

    def _expansion(self, frame: BoxFrame) -> ValueExpansion | StepExpansion | None:
        return expansion_of(self.problem, frame, self.policy, self._start) if self.is_expandable else None

    def _every_policy(self, side: Side) -> bool:
        return self.policy is None and side is not Side.own(self.objective.sense)

    def _affine(self, side: Side, expansion: ValueExpansion | StepExpansion, cell: Box | Polytope) -> float:
        task = self.problem.task
        if task.must_play_errors() and (side is Side.UPPER) != self.problem.maximise:
            return side.value * np.inf  # the rounding of rewards is counted on nature's side only
        bound = find_bound(self.problem, expansion, side, self._every_policy(side))
        if bound is None:
            return side.value * np.inf
        box = Box(cell.lower, cell.upper)
        if AffineProof(self.problem, box).issues(bound):
            # plays may be held in the hull of the region, but not in that of the box
            if AffineProof(self._problem_on(box.lower, box.upper), box).issues(bound):
                return side.value * np.inf
        return self._at(bound, cell)

    def _at(self, bound: AffineBound, cell: Box | Polytope) -> float:
        value = bound.at(cell, self.pmdp.initial_state)
        found = float(self.problem.task.outward(value, value)[bound.side is Side.UPPER])
        least, most = self.problem.criterion.exact_range
        return min(max(found, least), most)

    def interval_bound(self, side: Side, lower: np.ndarray, upper: np.ndarray) -> float:
        direction = Sense.MIN if side is Side.LOWER else Sense.MAX
        nature = next(nature for nature in Nature if nature.direction(self.objective.sense) is direction)
        solution = self._solved(nature, lower, upper)
        if solution.check((side is Side.UPPER,)):
            return side.value * np.inf
        return solution.lower if side is Side.LOWER else solution.upper

    def _solved(self, nature: Nature, lower: np.ndarray, upper: np.ndarray) -> Solution:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RPLWarning)  # a wide bracket is still a bound
            return solve(self._intervals(lower, upper), self.objective, nature, policy=self.policy)

    # ------------------------------------------------------------------ points
    def value(self, theta: np.ndarray) -> float:
        """The approximate value at one point."""
        expansion = self._expansion(BoxFrame(theta, np.zeros(len(theta))))
        if expansion is None:
            return self.solved_at(theta).middle
        return float(expansion.values[..., self.pmdp.initial_state].flat[-1])

    def certified_at(self, theta: np.ndarray) -> tuple[float, float]:
        """Certified bounds on the value at one point."""
        expansion = self._expansion(BoxFrame(theta, np.zeros(len(theta))))
        if expansion is not None:
            ends = [self._affine(side, expansion, Box(theta, theta)) for side in (Side.LOWER, Side.UPPER)]
            if np.isfinite(ends).all() and ends[1] - ends[0] <= POINT_WIDTH * max(1.0, abs(ends[0])):
                return ends[0], ends[1]
        solution = self.solved_at(theta)
        return solution.lower, solution.upper

    def solved_at(self, theta: np.ndarray) -> Solution:
        """The value at one point, with the best policy there."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RPLWarning)
            return solve_at(self.pmdp, theta, self.objective, policy=self.policy)

    def _point(self, side: Side, lower: np.ndarray, upper: np.ndarray, slope: np.ndarray | None) -> np.ndarray | None:
        """A point of the box in the region, as far along the gradient as possible."""
        direction = np.zeros(len(lower)) if slope is None else np.where(upper > lower, -side.value * slope, 0.0)
        point = np.where(direction > 0.0, lower, np.where(direction < 0.0, upper, 0.5 * (lower + upper)))
        if len(self.region.b) and not self.region.contains(point, 0.0):
            from rpl_agent.core.regions.lp import LinearProgram

            point = LinearProgram(self.region.A, self.region.b, lower, upper).solve(direction)[1]
        return point if self.region.contains(point) else None

    def _axis(self, lower: np.ndarray, upper: np.ndarray, expansion: ValueExpansion | StepExpansion | None) -> int:
        """The parameter with the largest second order, or, if unknown, the widest one relative to the region."""
        middle = 0.5 * (lower + upper)
        whole = self.region.upper - self.region.lower
        share = np.divide(upper - lower, whole, out=np.zeros(len(whole)), where=whole > 0.0)
        share[~((lower < middle) & (middle < upper))] = 0.0
        if not share.any():
            return -1
        if isinstance(expansion, ValueExpansion):
            turned = np.where(share > 0.0, second_order(self.problem, expansion), 0.0)
            if turned.any():
                return int(turned.argmax())
        return int(share.argmax())


def second_order(problem: Problem, expansion: ValueExpansion) -> np.ndarray:
    """(d,) each coordinate's part of the value's second order, along plays of the policy."""
    pmdp = problem.pmdp
    weights = expansion.policy.as_weights(pmdp)
    lam = visits(problem, expansion)
    rows = np.flatnonzero((weights > 0.0) & (lam[pmdp.row_state] > 0.0))
    moves, own = gather(pmdp.row_ptr, rows)
    state = np.repeat(pmdp.row_state[rows], np.diff(own))
    turn = expansion.gradient[pmdp.successor[moves]] - expansion.gradient[state]
    slope = expansion.chances.slope[pmdp.expression[moves]]
    amount = (lam[pmdp.row_state[rows]] * weights[rows])[:, None]
    found = np.zeros(slope.shape[1])
    for j in range(slope.shape[1]):
        mixed = np.abs(np.add.reduceat(slope[:, [j]] * turn, own[:-1]))
        found += (amount * mixed).sum(axis=0)
        found[j] += float((amount * mixed).sum())
    return found
