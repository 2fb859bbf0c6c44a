"""`problems_of`: a proof, from inequalities alone, that the two bounds of a solution are bounds.

Claim. T is the robust Bellman operator of the problem, T_pi the one with the agent fixed to a policy pi. If
the agent maximises, lower <= V^pi for the returned pi and V* <= upper; if it minimises, lower <= V* and V^pi <= upper;
if the problem fixes the policy, both bound its value. T' below is the operator of the side in question. Nothing from
the solver is trusted: values must not be NaN, the policy must be valid (weights are normalised, and the error
of that is charged), and nature's witness must be an exact distribution within exact bounds, or it is not used.

The problem itself and its relaxation are trusted: bounds per row from the requested side, in exact sets (intervals,
known MDPs, rows of two successors) with rounding. For other sets (regions) only the outward bounds hold as they
are: from below if nature minimises, from above if it maximises, the two that certificates use. Bounds from the
inner side hold up to the tightness that the relaxation states; within it, a minimising nature can also hold the play
at 0 where the relaxation's bound on the least leaving mass is 0.

Let b be the values of decided states (targets and avoided states, which absorb), L and U the values to be checked,
"open" all other states. Arithmetic is rounded outward, relative to its results, so bounds closer to 0 than 1e-290,
where products lose digits, are rejected: a positive lower bound, an upper one other than 0. -inf from below and
+inf from above claim nothing and are always valid. Without a discount or horizon rewards are >= 0 in points 3 to 7,
where L may be replaced by max(L, 0).

1. Horizon. L_0 <= b <= U_0 and L_k <= T' L_{k-1}, U_k >= T' U_{k-1}: induction.
2. Discount. T' is a contraction. L <= T' L with L < inf everywhere gives L <= T'^n L -> V; the same for U > -inf.
3. Upper bound, infinite plays allowed (reachability, reward). V is the least fixpoint of T' above 0
   (compact sets of nature, finitely many rows), so U >= 0, U >= b, U >= T' U suffice (Park). For probabilities
   min(T' U, 1) is enough.
4. Lower bound in the same case. Let X be the open states with 0 < L < inf, and L <= T' L there. Call a row used in X
   *spent* if it pays a reward or its inequality is strict, and suppose that no free player can keep the
   play in X forever by rows that are not spent. Then L <= V: along any play up to time n within X,
   L(s) <= E[rewards] - E[gaps] + E[L(s_n)]. If the expected reward is infinite there is nothing to show. Otherwise
   the expected number of spent rows is finite, because L is bounded; since the play cannot stay in X by other rows, it
   leaves X almost surely, to states where L <= V: decided states, states with L <= 0, states where V is infinite (5).
   A maximising nature may be assumed to play any extremum of T' L; those are unknown, so it counts as free,
   unless the solution has a witness: then T' has nature fixed to it, and so does the question who can stay.
5. An infinite lower bound needs the graph: no strategy of the minimisers reaches a target almost surely (cost), or
   that or an unpaid loop (reward). The graph overestimates a set that is not exact, so this is shown for a
   nature that minimises, whatever its real direction.
6. Lower bound of a cost (a play that misses the target costs infinity). L <= T' L suffices: under strategies that reach
   the target almost surely it iterates to L <= cost, all others cost infinity.
7. Upper bound of a cost. U >= 0 and U >= T' U where U is finite, with the minimisers fixed as in 4. Now U(s) >=
   E[costs] + E[gaps] + E[U(s_n)] >= E[costs] + E[gaps], so the number of spent rows is finite again; if the play cannot
   stay among open states with finite U by other rows, it reaches the target, and the costs are at most U.
8. Totals of both signs, as costs (`Problem.as_cost`). What a play costs is the limit of what n steps cost (its superior
   one for upper bounds), or infinity if it may miss a target that must be reached. Let X be the open states where the
   bound is finite, spent rows those whose inequality is strict, and suppose again that no free player can keep the play
   in X by other rows. From above: E[costs of n steps] <= U(s) - E[gaps] - E[U(s_n)]. Either E[gaps] is infinite and
   costs tend to -inf, or the play leaves X almost surely, to decided states, and E[U(s_n)] tends to their values. Where
   the target must be reached no row is spent, so that it is reached. From below the same with the signs reversed; where
   the target must be reached, 6 holds as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rpl_agent.core.model import Policy
from rpl_agent.core.native import Struct, core, read_only
from rpl_agent.core.relaxations.base import (
    INTERVAL,
    POINT,
    compiled_set,
    longest_row,
    model_rows,
    row_arrays,
    workspace,
)
from rpl_agent.core.solver.claimed import ClaimedBounds, policy_issues, side_policy, side_weights
from rpl_agent.core.solver.graph import ALL_ROWS, ANY_ROW, model_graph, played_rows, usable_rows
from rpl_agent.core.solver.operator import better_bounds, images, row_bounds, state_bounds, step_images, total_bounds
from rpl_agent.core.solver.problem import MIN_AGENT, Problem

#: tolerated missing or excess mass in a row
TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Witness:
    """Nature's distributions p (T,), and the mass (R,) between each row and an exact one; inf if none is near."""

    rows: Struct
    p: np.ndarray
    mass: np.ndarray

    @classmethod
    def of(cls, rows: Struct, p: np.ndarray, lower: np.ndarray, upper: np.ndarray, is_region: bool) -> Witness:
        """A witness within bounds (F,) per expression.

        The bounds of a region are its hull. Its best distributions for a row need not lie within: the operator takes
        the better of several outer bounds, each with its own extremum. Then p shows that the play ends, and the
        operator itself, which must agree as well, shows the inequality: no mass needs to be moved.
        """
        if is_region:
            off = np.abs(np.add.reduceat(p, rows.row_ptr[:-1]) - 1.0) > TOLERANCE
            off |= np.minimum.reduceat(p, rows.row_ptr[:-1]) < 0.0
            return cls(rows, p, np.where(off, np.inf, 0.0))
        mass = np.empty(rows.count)
        core.mass_to_move(rows, lower, upper, p, mass)
        mass[mass > TOLERANCE] = np.inf
        return cls(rows, p, mass)

    def charges(self, values: np.ndarray) -> np.ndarray:
        """(R,) bound on the difference between the means of values under p and under the exact distributions."""
        costs = np.empty(self.rows.count)
        core.moving_costs(self.rows, values, self.p, self.mass, costs)
        return costs


#: numbers closer to 0 than this prove nothing: rounding exceeds their products
SMALLEST = core.SMALLEST


def problems_of(solution: ClaimedBounds, sides: Sequence[bool] = (False, True)) -> list[str]:
    """Problems of a solution; empty means that its bounds are proved: both, or one of ``sides`` (True: the upper)."""
    issues = _shape(solution)
    if issues:
        return issues
    if solution.objective.horizon is not None:
        return _horizon(solution, sides)
    problem = solution.problem.as_cost
    for upward in sides:
        values = solution.upper_values if upward else solution.lower_values
        if solution.problem.is_hull and upward != solution.problem.maximise and np.isfinite(values).any():
            return [f"{'upper' if upward else 'lower'} is claimed of a hull, which does not bound this side"]
        claim = (values, upward) if problem.mirrors is None else (-values, not upward)
        issues += prove_side(problem, *claim, side_policy(solution, upward), solution.nature_witness)
    return issues


def prove_side(
    problem: Problem, values: np.ndarray, upward: bool, policy: Policy | None, witness: np.ndarray | None = None
) -> list[str]:
    """What is missing in a proof that values (S,) are bounds from one side; the agent plays a policy or is free."""
    return _Claim(problem, values, upward, policy, witness).issues()


def _shape(solution: ClaimedBounds) -> list[str]:
    """NaN, claims that no argument could support, an invalid policy."""
    problem, low, high = solution.problem, solution.lower_values, solution.upper_values
    horizon, states, start = problem.objective.horizon, problem.pmdp.num_states, problem.pmdp.initial_state
    wanted = (states,) if horizon is None else (horizon + 1, states)
    for side, values in (("lower", low), ("upper", high)):
        if values.shape != wanted or values.dtype != np.float64:
            return [f"{side} values have shape {values.shape} and type {values.dtype}, not {wanted} floats"]
    ends = low[..., start].flat[-1], high[..., start].flat[-1]
    low, high = (values if values.strides[0] else values[:1] for values in (low, high))  # `claiming_nothing`
    most, least = low.max(), high.min()
    for side, values, end in (("lower", low, most), ("upper", high, least)):
        if np.isnan(end):
            return [f"{side} is NaN in {_name(problem, np.isnan(values))}"]
    issues = []
    # Written so that a NaN bracket fails.
    if not (solution.lower <= ends[0] and solution.upper >= ends[1]):
        issues.append("the bracket at the initial state is tighter than the values")
    if least == -np.inf:
        issues.append(f"upper is -inf in {_name(problem, np.isneginf(high))}")
    if most == np.inf and not problem.criterion.can_be_infinite:
        issues.append(f"lower is infinite in {_name(problem, np.isposinf(low))}, where every value is finite")
    for side, values, any_sign in (("lower", low, problem.criterion.signed), ("upper", high, True)):
        if core.any_faint(values.size, np.ascontiguousarray(values)):
            faint = (values != 0.0) & (np.abs(values) < SMALLEST) & ((values > 0.0) | any_sign)
            if faint.any():
                issues.append(f"{side} is too small to bound its rounding error in {_name(problem, faint)}")
    if most > least and (low > high).any():
        issues.append(f"lower exceeds upper in {_name(problem, low > high)}")
    if solution.converged and not is_converged(solution.lower, solution.upper, solution.precision):
        issues.append("the bracket is wider than its stated precision")
    return issues + policy_issues(solution)


def is_converged(low: float, high: float, precision: float) -> bool:
    """Whether a bracket is as narrow as requested, relative to values above 1."""
    if low == high:
        return True
    return math.isfinite(high) and high - low <= precision * max(1.0, abs(low), abs(high))


def _name(problem: Problem, bad: np.ndarray) -> str:
    """The first marked state, and the number of others; ``bad`` (S,) or (H + 1, S)."""
    steps, states = bad.any(axis=-1), np.flatnonzero(np.atleast_2d(bad).any(axis=0))
    at = f" with {np.flatnonzero(steps)[0]} steps to go" if bad.ndim == 2 else ""
    more = f" and {len(states) - 1} more" if len(states) > 1 else ""
    return f"state {states[0]} = {problem.pmdp.state_name(int(states[0]))}{at}{more}"


def _fails(values: np.ndarray, image: np.ndarray, upward: bool) -> np.ndarray:
    """Where values are not on the right side of their image; NaN fails, trivial bounds pass."""
    fails = ~(values >= image if upward else values <= image)
    return fails & (values != (np.inf if upward else -np.inf)) if fails.any() else fails


@dataclass(frozen=True, eq=False)
class _Claim:
    """One side of a solution without horizon: values (S,), with the agent fixed to a policy or free."""

    problem: Problem
    given: np.ndarray
    upward: bool
    policy: Policy | None
    witness: np.ndarray | None

    @property
    def side(self) -> str:
        return "upper" if self.upward else "lower"

    @cached_property
    def weights(self) -> np.ndarray | None:
        """(R,) of the policy."""
        return None if self.policy is None else self.policy.shares(self.problem.pmdp)

    @cached_property
    def values(self) -> np.ndarray:
        """The claim, tightened by what holds without proof: sums of rewards >= 0 are not negative."""
        least = self.problem.criterion.least
        return self.given if self.given.min() >= least else np.maximum(self.given, least)

    @cached_property
    def must_end(self) -> bool:
        """Whether the inequality alone proves nothing: points 4, 7 and 8."""
        criterion = self.problem.criterion
        return not criterion.contracts and (self.upward != self.problem.proper_max or criterion.sums_endlessly)

    @cached_property
    def active(self) -> np.ndarray:
        """(S,) where the inequality is required: X of points 4, 7 and 8, otherwise open states."""
        found = ~self.problem.task.decided
        if self.must_end:
            found = found & np.isfinite(self.values)
            if not self.upward:
                found &= self.values > self.problem.criterion.least
        elif self.upward and not self.problem.criterion.contracts and not self.problem.maximise and self.is_region:
            found = found & ~self._held_at_zero(found & (self.values == 0.0))
        return found

    @property
    def is_region(self) -> bool:
        """Whether nature's set may be smaller than the graph's view of it."""
        compiled = self.problem.relaxation.compiled()
        return compiled is None or compiled.kind > INTERVAL

    def _held_at_zero(self, zero: np.ndarray) -> np.ndarray:
        """(S,) the largest part of ``zero`` in which a minimising nature can hold the play without reward."""
        problem, pmdp = self.problem, self.problem.pmdp
        played = played_rows(self.weights, pmdp.num_rows)
        usable = usable_rows(played, problem.reward > 0.0)
        quantifier = ANY_ROW if self.policy is None and problem.agent == MIN_AGENT else ALL_ROWS
        return problem.held_states(usable, quantifier, zero)

    def issues(self) -> list[str]:
        found = self._boundary() + self._infinite()
        if found:
            return found
        found = self._proof(*images(self.problem, self.values, self.upward, self.policy), None)
        if found and self.is_region:
            q = row_bounds(self.problem, self.values, self.upward)
            found = self._proof_by_rows(better_bounds(self.problem, self.values, self.upward, q), None)
        fixed = self.must_end and self.upward != self.problem.proper_max and self.problem.nature_proper
        if found and fixed and self.witness is not None:
            return self._with_witness()
        return found

    def _boundary(self) -> list[str]:
        """Check decided states, and upper bounds below 0."""
        problem, decided = self.problem, self.problem.task.decided
        if _fails(self.values[decided], problem.boundary()[decided], self.upward).any():
            bad = decided & _fails(self.values, problem.boundary(), self.upward)
            return [f"{self.side} is wrong in the decided {_name(problem, bad)}"]
        if self.upward and self.given.min() < problem.criterion.least:
            return [f"upper is negative in {_name(problem, self.given < 0.0)}"]
        return []

    def _proof_by_rows(self, q: np.ndarray, support: np.ndarray | None) -> list[str]:
        """The same from bounds q (R,) on nature's choices."""
        image = state_bounds(self.problem, q, self.upward, self.weights)
        return self._proof(image, total_bounds(self.problem, q, self.upward), support)

    def _proof(self, image: np.ndarray, totals: np.ndarray, support: np.ndarray | None) -> list[str]:
        """Check the inequality, from bounds on T values (S,), and that the play ends where it must.

        ``totals`` (R,) bound what rows pay in all. ``support`` (T,) says in which rows nature is fixed and where it
        then puts mass: 1 yes, 0 no, -1 free.
        """
        problem = self.problem
        np.minimum(image, problem.criterion.most, out=image)
        bad = self.active & _fails(self.values, image, self.upward)
        if bad.any():
            relation = ">=" if self.upward else "<="
            worst = float(np.abs(self.values[bad] - image[bad]).max())
            return [f"{self.side} {relation} T {self.side} fails by {worst:.3g} in {_name(problem, bad)}"]
        return self._endless(totals, image, support) if self.must_end else []

    def _endless(self, totals: np.ndarray, image: np.ndarray, support: np.ndarray | None) -> list[str]:
        """Whether the play can stay where it must not, by rows that are not spent."""
        problem, pmdp = self.problem, self.problem.pmdp
        if problem.rank is not None and core.runs_forward(model_graph(pmdp).forward, self.active, None, problem.rank):
            return []  # whatever rows are played, and whatever they pay
        here = self.values[pmdp.row_state]
        result = totals if self.policy is None else image[pmdp.row_state]
        spent = problem.criterion.spent((here > result) if self.upward else (here < result), problem.reward)
        usable = usable_rows(played_rows(self.weights, pmdp.num_rows), spent)
        quantifier = ANY_ROW if self.policy is None else ALL_ROWS
        held = problem.held_states(usable, quantifier, self.active, support=support)
        if not held.any():
            return []
        if self.upward:
            return [f"the target can be avoided forever from {_name(problem, held)}"]
        if problem.criterion.signed:
            return [f"the play can be held forever in {_name(problem, held)}"]
        return [f"lower is positive where the play can be held: {_name(problem, held)}"]

    def _with_witness(self) -> list[str]:
        """The proof with nature fixed to its witness in every row where that is an exact distribution."""
        problem, pmdp, p = self.problem, self.problem.pmdp, self.witness
        assert p is not None
        if p.shape != (pmdp.num_transitions,) or p.dtype != np.float64:
            return [f"nature's witness has shape {p.shape} and type {p.dtype}, not one float per transition"]
        witness = Witness.of(model_rows(pmdp), p, *problem.relaxation.bounds(), is_region=False)
        lengths = np.diff(pmdp.row_ptr)
        usable = np.isfinite(witness.mass) & (lengths > 1) & ~(self.is_region & (lengths > 2))
        q = row_bounds(problem, self.values, self.upward)
        rows = np.flatnonzero(usable)
        if len(rows):
            fixed, each = compiled_set(POINT, p, p), read_only(np.arange(pmdp.num_transitions), np.int32)
            means = np.empty(len(rows))
            core.row_bounds(
                len(rows),
                self.values,
                problem.maximise,
                self.upward,
                row_arrays(pmdp.row_ptr, pmdp.successor, each),
                fixed,
                workspace(fixed, longest_row(pmdp)),
                rows,
                means,
            )
            charge = witness.charges(self.values)[rows]
            side = np.inf if self.upward else -np.inf
            charged = np.nextafter(means + np.copysign(charge, side), side)
            q[rows] = np.where(charge > 0.0, charged, means)
        support = np.where(usable[pmdp.transition_row], (p > 0.0).astype(float), -1.0)
        return self._proof_by_rows(q, support)

    def _infinite(self) -> list[str]:
        """Point 5."""
        problem = self.problem
        if self.upward or self.values.max() < np.inf:
            return []
        bad = np.isposinf(self.values) & problem.finite_states(self.weights, self.is_region or not problem.maximise)
        return [f"lower is infinite but the graph allows a finite value in {_name(problem, bad)}"] if bad.any() else []


def _horizon(solution: ClaimedBounds, sides: Sequence[bool]) -> list[str]:
    """Point 1."""
    problem, horizon = solution.problem, solution.objective.horizon
    assert horizon is not None
    decided, start = problem.task.decided, problem.boundary()
    issues = []
    for upward in sides:
        values = solution.upper_values if upward else solution.lower_values
        side = "upper" if upward else "lower"
        if _fails(values[0], start, upward).any():
            issues.append(f"{side} is wrong with no steps to go")
        found = step_images(problem, values, upward, side_policy(solution, upward))
        found[:, decided] = start[decided]
        wrong = _fails(values[1:], found, upward)
        for k in (1 + np.flatnonzero(wrong.any(axis=1))).tolist() if wrong.any() else []:
            q = better_bounds(problem, values[k - 1], upward, row_bounds(problem, values[k - 1], upward))
            image = state_bounds(problem, q, upward, side_weights(solution, upward, horizon - k))
            wrong = _fails(values[k], np.where(decided, start, image), upward)
            if wrong.any():
                state = int(np.flatnonzero(wrong)[0])
                issues.append(f"{side} does not follow from the step after it, {k} steps to go, state {state}")
                break
    return issues
