"""`AffineBound`: a bound on the value that is affine in the parameters, and its check.

Over a frame C ⊂ {x0 + ρ L y : |y| ≤ 1}, U(s, y) = v(s) + g(s)·y + e(s) (LOWER: − e(s)) is such a bound if U ≥ T U
(LOWER: ≤) for every y in every undecided state of the *scope*, U bounds the values of decided states, and infinite
plays do no harm: theorem and proof are in docs/guarantees.md, "One common parameter". With a horizon U has one function
per number of steps to go, each bounding the next.

`AffineProof` proves this from the numbers of the bound, the model and the region alone, however they were found.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial

import numpy as np

from rpl_agent.core.coupled.gradients.cuts import CutRows, offered_cuts, proved_states
from rpl_agent.core.model import ParametricMDP, Policy, Sense, cached_on, gather
from rpl_agent.core.model.algebra.ranges import taylor_table
from rpl_agent.core.model.building.validation import linear_part
from rpl_agent.core.model.expressions import ExpressionTable
from rpl_agent.core.native import UNIT_ROUNDOFF, Struct, core, threads
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.frame import Frame, FrameForms, triangle
from rpl_agent.core.regions.parameter_region import curvature_sizes
from rpl_agent.core.regions.sliced import Sliced
from rpl_agent.core.solver.graph import ALL_ROWS, ANY_ROW, played_rows, usable_rows
from rpl_agent.core.solver.problem import Problem, step_rows

#: number of states from which several threads pay off
THREADED = 50_000


@dataclass(frozen=True, eq=False)
class BoxFrame:
    """{center + half · y : |y_j| ≤ 1}, whatever the degree of the model."""

    center: np.ndarray  # (d,)
    half: np.ndarray  # (d,)
    known: np.ndarray | None = None  # (F,) the values of the expressions at a point, for d = 0
    is_reduced: bool = False  # whether coordinates are the model's reduced ones, in which expressions are affine
    used: ExpressionTable | None = None  # the model's expressions over these d parameters, where others are not used

    @classmethod
    def around(cls, lower: np.ndarray, upper: np.ndarray, is_reduced: bool = False) -> BoxFrame:
        """The frame of a box; a parameter with a single value keeps it."""
        center = np.where(lower < upper, 0.5 * (lower + upper), lower)
        reach = np.maximum(center - lower, upper - center) + 3.0 * np.spacing(np.maximum(np.abs(lower), np.abs(upper)))
        return cls(center, np.where(lower < upper, reach, 0.0), None, is_reduced)

    @property
    def dimension(self) -> int:
        return len(self.center)

    def split(self, table: ExpressionTable) -> FrameForms:
        """The expressions of a table as functions of y: a Taylor model over the cube."""
        table = table if self.used is None else self.used
        if self.known is not None:
            return FrameForms(self.known, np.zeros((len(self.known), 0)), None, np.zeros(len(self.known)))
        if self.is_reduced or table.is_affine:
            linear, constant = linear_part(table), table.constant
            if self.is_reduced:
                linear = np.asarray(table.reduction.weights)
            size = np.abs(constant) + np.abs(linear) @ (np.abs(self.center) + self.half)
            error = (4.0 * self.dimension + 20.0) * UNIT_ROUNDOFF * size
            return FrameForms(constant + linear @ self.center, np.ascontiguousarray(linear * self.half), None, error)
        value, slope, curvature, error = taylor_table(table, self.center, self.half)
        slope = slope * self.half
        rows, columns = triangle(self.dimension)
        bent = (curvature * self.half[:, None] * self.half)[:, rows, columns]
        scaled = 4.0 * UNIT_ROUNDOFF * (np.abs(slope).sum(axis=1) + cube_sizes(bent, self.dimension))
        return FrameForms(value, np.ascontiguousarray(slope), np.ascontiguousarray(bent), error + scaled)

    def encloses(self, region: Region) -> bool:
        """Whether the region is proved to lie in the box."""
        low, high = region.box()
        # rounding of the ends is at most half a unit in the last place
        first, last = np.nextafter(self.center - self.half, np.inf), np.nextafter(self.center + self.half, -np.inf)
        fixed = self.half == 0.0
        inside = np.where(fixed, low == self.center, first <= low) & np.where(fixed, high == self.center, high <= last)
        return bool(inside.all())

    def in_region(self, slope: np.ndarray) -> tuple[np.ndarray, float]:
        """(c (d,), error): slope·y is c·(θ − center) for every θ of the box, up to the error."""
        used = self.half > 0.0
        c = np.where(used, slope / np.where(used, self.half, 1.0), 0.0)
        return c, float(np.abs(slope[~used]).sum() + 4.0 * UNIT_ROUNDOFF * np.abs(slope).sum())

    def minimum(self, region: Region, value: float, slope: np.ndarray) -> float:
        """A lower bound on value + slope·y over the region."""
        c, left = self.in_region(slope)
        least = float(region.minimize(c[None, :])[0]) - float(c @ self.center)
        size = np.abs(c) @ (np.abs(self.center) + self.half) + abs(value)
        return value + least - left - (4.0 * self.dimension + 16.0) * UNIT_ROUNDOFF * float(size)


def cube_sizes(curvature: np.ndarray, d: int) -> np.ndarray:
    """(F,) bounds on |y'My| over the cube for matrices (F, d (d + 1) / 2): sums of magnitudes, rounded up."""
    rows, columns = triangle(d)
    return np.abs(curvature) @ np.where(rows == columns, 1.0, 2.0) * (1.0 + (4.0 + d * d) * UNIT_ROUNDOFF)


class Side(Enum):
    """Whether a bound is an upper or a lower one; the value is its sign in inequalities."""

    UPPER = 1.0
    LOWER = -1.0

    @classmethod
    def own(cls, sense: Sense) -> Side:
        """The side of the bound on the agent's own policy."""
        return cls.LOWER if sense is Sense.MAX else cls.UPPER


@dataclass(frozen=True, eq=False)
class AffineBound:
    """v(s) + g(s)·y ± e(s) bounds the value of a state for every parameter of the frame."""

    side: Side
    policy: Policy | None  # whose value is bounded; None for every policy
    frame: Frame | BoxFrame
    values: np.ndarray  # (S,) v; with a horizon (H + 1, S), row k for k steps to go; likewise the other arrays
    gradient: np.ndarray  # (S, r) g, in the coordinates y of the frame
    slack: np.ndarray  # (S,) e ≥ 0
    scope: np.ndarray  # (S,) bool, the states that the bound covers; for a policy, those it reaches
    rows: CutRows | None = None  # how rows are proved over cuts too; None: over the frame alone

    @cached_property
    def moved(self) -> np.ndarray:
        """(S,) v ± e."""
        return self.values + self.slack if self.side is Side.UPPER else self.values - self.slack

    def at(self, region: Region, state: int) -> float:
        """The bound on a state's value over the whole region."""
        sign = self.side.value
        u = float(np.ravel(self.values[..., state] + sign * self.slack[..., state])[-1])
        g = self.gradient[..., state, :].reshape(-1, self.frame.dimension)[-1]
        return -sign * self.frame.minimum(region, -sign * u, -sign * g)


def choice_of(problem: Problem, policy: Policy | None) -> Struct:
    """`choice`: the rows of a policy, or, without one, any row that is not dropped."""
    rows, weights, dropped = None, None, problem.dropped if policy is None else None
    if policy is not None and policy.rows is not None:
        rows = np.ascontiguousarray(policy.rows, np.int64)
    elif policy is not None:
        weights = policy.shares(problem.pmdp)
    return core.Choice(state_ptr=problem.pmdp.state_ptr, rows=rows, weights=weights, dropped=dropped)


def rules_of(problem: Problem, policy: Policy | None) -> Struct:
    """`step_rules`: the rows of a policy for each number of steps to go, or all rows."""
    pmdp, horizon = problem.pmdp, problem.objective.horizon
    assert horizon is not None
    given, stride = step_rows(policy, horizon)
    agent = choice_of(problem, policy if given is None else Policy(rows=given))
    return core.StepRules(states=pmdp.num_states, steps=horizon, agent=agent, stride=stride)


def chances_of(problem: Problem, frame: Frame | BoxFrame) -> Struct:
    """`row_chances`: the model's transitions as functions of y, found once for a frame."""
    pmdp, chances = cached_on(frame, "chances", lambda _: (problem.pmdp, _chances(problem.pmdp, frame)))
    return chances if pmdp is problem.pmdp else _chances(problem.pmdp, frame)


def chances_of_rows(chances: Struct, rows: np.ndarray) -> Struct:
    """The part of `row_chances` for some rows (n,), in this order."""
    moves, row_ptr = gather(chances.row_ptr, rows)
    kept = {"row_ptr": row_ptr, "successor": chances.successor[moves], "expression": chances.expression[moves]}
    same = ("r", "is_box", "p", "slope", "error", "curvature", "bend")
    return core.RowChances(**kept, **{name: getattr(chances, name) for name in same})


def _chances(pmdp: ParametricMDP, frame: Frame | BoxFrame) -> Struct:
    forms = frame.split(pmdp.table)
    sizes, is_box = (curvature_sizes, False) if isinstance(frame, Frame) else (cube_sizes, True)
    bend = None if forms.curvature is None else sizes(forms.curvature, frame.dimension)
    return core.RowChances(
        r=frame.dimension,
        is_box=is_box,
        row_ptr=pmdp.row_ptr,
        successor=pmdp.successor,
        expression=pmdp.expression,
        p=forms.p,
        slope=forms.slope,
        error=forms.error,
        curvature=forms.curvature,
        bend=bend,
    )


def excess(
    problem: Problem,
    policy: Policy | None,
    chances: Struct,
    side: Side,
    here: tuple[np.ndarray, np.ndarray],
    order: np.ndarray | None = None,
    margin: float = -1.0,
) -> np.ndarray:
    """(S,) upper bound on the violation of the inequality of each state in ``order`` (None: all), for any play; else 0.

    ``here`` = (u (S,), g (S, r)). A number ≤ 0 proves the inequality. With a margin ≥ 0: by how much states are raised
    (core.h: `residuals`).
    """
    pmdp, r = problem.pmdp, chances.r
    order = np.arange(pmdp.num_states) if order is None else order
    u, g = (np.ascontiguousarray(a) for a in here)
    out = np.zeros(pmdp.num_states)
    helpers = threads() if len(order) >= THREADED else 1
    core.residuals(
        len(order),
        order,
        choice_of(problem, policy),
        chances,
        problem.reward,
        problem.gamma,
        side.value,
        margin,
        u,
        g,
        helpers,
        np.empty(helpers * (2 * r + 2 * r * r)),
        out,
    )
    return out


def row_excess(problem: Problem, chances: Struct, side: Side, here: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """(R,) upper bound on the violation of each row's inequality."""
    pmdp, r = problem.pmdp, chances.r
    u, g = (np.ascontiguousarray(a) for a in here)
    out = np.empty(pmdp.num_rows)
    core.row_residuals(
        pmdp.num_rows,
        pmdp.row_state,
        chances,
        problem.reward,
        problem.gamma,
        side.value,
        u,
        g,
        np.empty(2 * r + 2 * r * r),
        out,
    )
    return out


# ---------------------------------------------------------------------- the proof
class AffineProof:
    """Checks affine bounds for one problem and one region."""

    def __init__(self, problem: Problem, region: Region) -> None:
        self.problem, self.region = problem, region

    @property
    def cuts(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The cuts on offer, of a product with slabs."""
        if not isinstance(self.region, Sliced):
            return None
        return cached_on(self.region, "cuts", partial(offered_cuts, self.problem))

    def issues(self, bound: AffineBound) -> list[str]:
        """What the bound fails to prove; empty means that it holds for every parameter of the region."""
        problem = self.problem
        if issues := _number_issues(bound, problem):
            return issues
        if not bound.frame.encloses(self.region):
            return ["the region is not proved to lie in the frame"]
        if problem.objective.horizon is not None:
            over = (
                None
                if bound.rows is None
                else np.array([self._over_cuts(bound, k) for k in range(len(bound.scope) - 1)])
            )
            return _horizon_issues(bound, problem, over)
        issues = _decided_issues(bound, problem, bound.moved, bound.gradient) + _scope_issues(bound, problem)
        open_states, chances = bound.scope & ~problem.task.decided, chances_of(problem, bound.frame)
        here, order = (bound.moved, bound.gradient), np.flatnonzero(open_states)
        if bound.rows is None:
            missed = excess(problem, bound.policy, chances, bound.side, here, order)
        else:
            missed = np.where(self._over_cuts(bound, None), 0.0, np.inf)
        bad = open_states & ~(missed <= 0.0)
        if bad.any():
            issues.append(f"the inequality of state {np.flatnonzero(bad)[0]} may fail by {missed[bad].max():.3g}")
        return issues if problem.criterion.contracts else issues + self._end_issues(bound)

    def _over_cuts(self, bound: AffineBound, step: int | None) -> np.ndarray:
        """(S,) which inequalities are proved over the frame and cuts, without a horizon or after ``step`` steps."""
        problem, rows = self.problem, bound.rows
        open_states = (bound.scope if step is None else bound.scope[step + 1]) & ~problem.task.decided
        chances, proved = chances_of(problem, bound.frame), ~open_states
        if self.cuts is None or rows is None or chances.curvature is not None:
            return proved
        alone = np.zeros(problem.pmdp.num_rows, dtype=bool)
        if step is None:
            alone = row_excess(problem, chances, bound.side, (bound.moved, bound.gradient)) <= 0.0
        A, b = (part[rows.chosen] for part in self.cuts)
        return proved | proved_states(problem, bound, chances, (A, b), np.flatnonzero(open_states), step, alone)

    def _end_issues(self, bound: AffineBound) -> list[str]:
        """Check that infinite plays do no harm."""
        problem = self.problem
        if problem.criterion.must_reach:
            if bound.side is Side.LOWER:
                return []
        elif bound.side is Side.UPPER and not problem.criterion.signed and not self._held_issues(bound, bound.scope):
            return []
        # What no policy can do, a given one cannot do either.
        issues = self._held_issues(bound, self._held_by_some_policy & bound.scope)
        if issues and (bound.policy is not None or problem.criterion.signed or self._counts_gains(bound)):
            scope = bound.scope & ~self._known_to_hold(bound)
            issues = self._held_issues(bound, held_by_nature(problem, bound.policy, scope, self._spent(bound)))
        return issues

    def _counts_gains(self, bound: AffineBound) -> bool:
        """Whether it bounds, from below, values that are never negative."""
        return bound.side is Side.LOWER and self.problem.criterion.least >= 0.0

    def _known_to_hold(self, bound: AffineBound) -> np.ndarray:
        """(S,) where the bound is at most 0, of values that are never negative: it holds there, however plays go on."""
        if not self._counts_gains(bound):
            return np.zeros(len(bound.scope), dtype=bool)
        size = np.abs(bound.gradient).sum(axis=1)
        return bound.moved + size * (1.0 + (2.0 * bound.gradient.shape[1] + 4.0) * UNIT_ROUNDOFF) <= 0.0

    def _spent(self, bound: AffineBound) -> np.ndarray | bool:
        """(R,) for a total of both signs, the rows whose inequality is strict (`solver.check`, point 8)."""
        drawn = bound.policy is not None and bound.policy.rows is None
        if drawn or not self.problem.criterion.sums_endlessly:
            return False
        here = (bound.moved, bound.gradient)
        return row_excess(self.problem, chances_of(self.problem, bound.frame), bound.side, here) < 0.0

    def _held_issues(self, bound: AffineBound, held: np.ndarray) -> list[str]:
        if not self.problem.proper_max:
            return [f"the play can be held forever in state {np.flatnonzero(held)[0]}"] if held.any() else []
        u, g = bound.moved, np.ascontiguousarray(bound.gradient)
        state = core.wrong_sign(len(u), held, g.shape[1], bound.side.value, u, g)
        return [f"state {state} has a wrong sign, and plays can stay there"] if state >= 0 else []

    @property
    def _held_by_some_policy(self) -> np.ndarray:
        everywhere = np.ones(self.problem.pmdp.num_states, bool)
        return cached_on(self.problem, "held by some policy", lambda problem: held_by_nature(problem, None, everywhere))


def held_by_nature(
    problem: Problem, policy: Policy | None, scope: np.ndarray, spent: np.ndarray | bool = False
) -> np.ndarray:
    """(S,) undecided states of the scope where nature, in the region, can hold the play by rows that are not spent."""
    usable = usable_rows(_played(problem, policy), spent)
    quantifier = ANY_ROW if policy is None else ALL_ROWS
    return problem.held_states(usable, quantifier, scope & ~problem.task.decided)


def _played(problem: Problem, policy: Policy | None) -> np.ndarray:
    return played_rows(None if policy is None else policy.as_weights(problem.pmdp), problem.pmdp.num_rows)


def _number_issues(bound: AffineBound, problem: Problem) -> list[str]:
    """Check the shapes, that all numbers are finite, and that the policy is valid."""
    pmdp, horizon = problem.pmdp, problem.objective.horizon
    shape = (pmdp.num_states,) if horizon is None else (horizon + 1, pmdp.num_states)
    wanted = {"values": shape, "slack": shape, "gradient": (*shape, bound.frame.dimension)}
    for name, expected in wanted.items():
        array = getattr(bound, name)
        # a sum of squares is finite only if all numbers are
        if array.shape != expected or not (np.isfinite(np.vdot(array, array)) or np.isfinite(array).all()):
            return [f"{name} is not an array of {expected} finite numbers"]
    if bound.slack.min() < 0.0:
        return ["a slack is negative"]
    if bound.scope.shape != shape or bound.scope.dtype != bool:
        return ["the scope is not a set of states"]
    if bound.policy is not None:
        bound.policy.require_fit(pmdp)
    return [] if bound.rows is None else bound.rows.issues(pmdp.num_rows * (horizon or 1))


def _decided_issues(bound: AffineBound, problem: Problem, u: np.ndarray, g: np.ndarray) -> list[str]:
    """Check that in decided states the bound is at least (LOWER: at most) their value and does not depend on y."""
    known = np.flatnonzero(problem.task.decided)
    wrong = g[known].any(axis=1) | (bound.side.value * (u[known] - problem.boundary()[known]) < 0.0)
    return [f"the decided state {known[np.argmax(wrong)]} has a wrong value"] if wrong.any() else []


def _scope_issues(bound: AffineBound, problem: Problem) -> list[str]:
    """Check that the scope contains the initial state and that plays leave it only to decided states."""
    pmdp, inside = problem.pmdp, bound.scope | problem.task.decided
    if not inside[pmdp.initial_state]:
        return ["the initial state is outside the scope"]
    if inside.all():
        return []
    states = np.flatnonzero(bound.scope & ~problem.task.decided)
    if bound.policy is not None and bound.policy.rows is not None:
        rows = bound.policy.rows[states]
    else:
        rows = gather(pmdp.state_ptr, states)[0]
        rows = rows[_played(problem, bound.policy)[rows]]
    moves, first = gather(pmdp.row_ptr, rows)
    bad = np.flatnonzero(~inside[pmdp.successor[moves]])
    if not len(bad):
        return []
    return [f"the play leaves the scope at {pmdp.row_name(int(rows[np.searchsorted(first, bad[0], 'right') - 1]))}"]


def _horizon_issues(bound: AffineBound, problem: Problem, over_cuts: np.ndarray | None) -> list[str]:
    """With a horizon: the functions for k steps follow from those for k − 1."""
    u, g, start, decided = bound.moved, bound.gradient, problem.boundary(), problem.task.decided
    if g[0].any() or (bound.side.value * (u[0] - start) < 0.0).any():
        return ["the functions with no steps to go are wrong"]
    known = np.flatnonzero(decided)
    wrong = g[:, known].any(axis=(0, 2)) | (bound.side.value * (u[:, known] - start[known]) < 0.0).any(axis=0)
    if wrong.any():
        return [f"the decided state {known[np.argmax(wrong)]} has a wrong value"]
    proved = _horizon_proved(bound, problem) if over_cuts is None else over_cuts
    if not proved.all():
        step, state = np.argwhere(~proved)[0]
        return [f"{step + 1} steps to go: state {state} may fail its inequality, or leave the scope"]
    return [] if bound.scope[-1, problem.pmdp.initial_state] else ["the initial state is outside the scope"]


def _horizon_proved(bound: AffineBound, problem: Problem) -> np.ndarray:
    """(H, S) which inequalities are proved over the frame."""
    u, g, decided = bound.moved, bound.gradient, problem.task.decided
    missed, r = np.empty_like(u[1:]), bound.frame.dimension
    core.step_residuals(
        rules_of(problem, bound.policy),
        decided,
        bound.scope,
        chances_of(problem, bound.frame),
        problem.reward,
        problem.gamma,
        bound.side.value,
        u,
        np.ascontiguousarray(g),
        np.empty(2 * r + 2 * r * r),
        missed,
    )
    return np.asarray(missed <= 0.0)
