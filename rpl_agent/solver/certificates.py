"""Certificates: which inequalities make a pair (lower, upper) a bracket, and an independent check of them.

Write T for the Bellman operator of the problem (a fixed policy's if one was given), T_pi with the agent fixed to the
returned policy, and L, U for the values to be checked. Every expectation is evaluated through
`Relaxation.expectation`'s bound on the side that makes the inequality harder.

Reachability and rewards, whose value is the *least* fixpoint of T:

* upper: U >= T U and U >= 0 (and U >= 1 on the target) suffice (Park). If the agent minimises, T_pi is used, so that
  the returned policy attains the bound.
* lower: fix the maximisers: the agent's policy if it maximises, nature's witness if nature does. Let Z be the largest
  set of undecided states in which the minimisers can hold the play without paying. If L <= 0 on Z and L <= T' L
  elsewhere, T' the operator with those choices fixed, then L is a lower bound: outside Z every play that costs the
  minimisers a finite amount ends in Z or a decided state, so iterating L <= T' L ends in true values. L <= T L alone is
  not enough: a self-loop satisfies it with any L.

Costs (the minimiser must reach the target):

* lower: L <= T L, L <= 0 on the target. Along any strategy that reaches the target almost surely the inequality
  iterates to L <= cost; other strategies cost infinity.
* upper: fix the minimisers (policy, and nature's witness if nature minimises). If the maximisers cannot hold the play
  anywhere that U is finite and U >= T' U, U >= 0, then U is an upper bound.

Discounted: T is a contraction, so L <= T L and U >= T_pi U suffice. Horizon: each step bounds the next.

Infinite values are accepted only where the graph shows them. A witness in floats stands for an exact one with the same
support; the mass between them is charged to the inequality (`_witness`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpl_agent.model.objective import Sense
from rpl_agent.relaxations.row_set import INTERVAL
from rpl_agent.solver._bellman import FIXED_AGENT, MIN_AGENT
from rpl_agent.solver._graph import ALL_ROWS, ANY_ROW, attainable, finite_set, hold_set
from rpl_agent.solver.operator import row_bounds, state_bounds
from rpl_agent.solver.witness import Witness

if TYPE_CHECKING:
    from rpl_agent.solver.problem import Problem
    from rpl_agent.solver.solution import Solution


def check(solution: Solution) -> list[str]:
    """Problems of a solution's certificate; empty means that both bounds are proven."""
    problem = solution.problem
    if problem.objective.horizon is not None:
        from rpl_agent.solver.horizon import check_horizon

        return check_horizon(solution)
    issues = _shape(solution)
    if issues:
        return issues
    for is_upper in (False, True):
        issues += _inductive(solution, is_upper)
    if not problem.discounted:
        issues += _ends(solution) + _infinities(solution)
    return issues


def _name(problem: Problem, bad: np.ndarray) -> str:
    states = np.flatnonzero(bad)
    more = f" and {len(states) - 1} more" if len(states) > 1 else ""
    return f"state {states[0]} = {problem.pmdp.state_name(int(states[0]))}{more}"


def _shape(solution: Solution) -> list[str]:
    """Values that are no numbers, or contradict the objective where it decides them."""
    problem, low, high = solution.problem, solution.lower_values, solution.upper_values
    task, start = problem.task, problem.pmdp.initial_state
    if np.isnan(low).any() or np.isnan(high).any() or np.isneginf(low).any() or np.isneginf(high).any():
        return ["a value is not a number or -inf"]
    issues = []
    if solution.lower > low[start] or solution.upper < high[start]:
        issues.append("the bracket at the initial state is tighter than the values")
    if (low > high).any():
        issues.append(f"lower exceeds upper in {_name(problem, low > high)}")
    for mask, value in ((task.target, 1.0 if problem.is_reach else 0.0), (task.avoid, 0.0)):
        for bad in (mask & (low > value), mask & (high < value)):
            if bad.any():
                issues.append(f"a decided state has a wrong bound: {_name(problem, bad)}")
    if not problem.discounted and (high < 0).any():
        issues.append(f"upper is negative in {_name(problem, high < 0)}")
    solution.policy.check(problem.pmdp)
    return issues


def _agent_weights(solution: Solution, fixed: bool) -> np.ndarray | None:
    """The agent's weights if it is fixed by the problem or (``fixed``) to the returned policy."""
    problem = solution.problem
    if problem.agent == FIXED_AGENT:
        return problem.weights
    return solution.policy.as_weights(problem.pmdp) if fixed else None


def _inductive(solution: Solution, is_upper: bool) -> list[str]:
    """L <= T L or U >= T U, with the choices fixed that the bound claims for."""
    problem = solution.problem
    values = solution.upper_values if is_upper else solution.lower_values
    own_side = is_upper == (problem.objective.sense is Sense.MIN)  # the bound that the policy attains
    proper_side = is_upper != problem.proper_max
    witness = None
    if solution.nature_witness is not None and proper_side and not problem.discounted:
        witness = Witness.of(
            solution.nature_witness, *problem.relaxation.bounds(), problem.pmdp.expression, problem.pmdp.row_ptr,
            problem.pmdp.successor, _is_region(problem),
        )  # fmt: skip
        issues = _witness_issues(problem, witness)
        if issues:
            return issues
    weights = _agent_weights(solution, own_side)
    image = state_bounds(problem, row_bounds(problem, values, is_upper, witness), is_upper, weights)
    if witness is not None and _is_region(problem):
        # A witness of a region is only known to lie in the hull: the operator itself must agree.
        free = state_bounds(problem, row_bounds(problem, values, is_upper), is_upper, weights)
        image = np.maximum(image, free) if is_upper else np.minimum(image, free)
    open_states = ~problem.task.decided & np.isfinite(values)
    if problem.is_reach:
        image = np.minimum(image, 1.0)
    bad = open_states & (values < image if is_upper else values > image)
    if not is_upper and problem.proper_max and not problem.discounted:
        bad &= values > 0.0  # 0 is below every value here
    if bad.any():
        relation = ">=" if is_upper else "<="
        worst = float(np.abs(values - image)[bad].max())
        side = "upper" if is_upper else "lower"
        return [f"{side} {relation} T {side} fails by {worst:.3g} in {_name(problem, bad)}"]
    return []


def _is_region(problem: Problem) -> bool:
    compiled = problem.relaxation.compiled()
    return compiled is None or compiled.kind > INTERVAL


def _witness_issues(problem: Problem, witness: Witness) -> list[str]:
    """Nature's witness must be distributions within the bounds."""
    pmdp = problem.pmdp
    off = np.flatnonzero(np.isinf(witness.mass) & problem.structure().is_cyclic[pmdp.row_state])
    if not len(off):
        return []
    return [f"nature's witness is no distribution within the bounds at {pmdp.row_name(int(off[0]))}"]


def _ends(solution: Solution) -> list[str]:
    """The side that must not be held: no cycle in which its opponents can keep a bound alive."""
    problem = solution.problem
    pmdp = problem.pmdp
    lo, hi = attainable(*problem.relaxation.bounds(), pmdp.expression, pmdp.row_ptr)
    witness = solution.nature_witness
    if problem.nature_proper:
        # Without cycles there is no witness and nothing to hold; a stray value there is caught by the inequalities.
        support = hi > 0.0 if witness is None else witness > 0.0
        lo = hi = support.astype(float)
    weights = _agent_weights(solution, problem.agent_proper)
    played = np.ones(pmdp.num_rows, dtype=bool) if weights is None else weights > 0.0
    unpaid = np.ones(pmdp.num_rows, dtype=bool) if problem.must_reach else problem.reward == 0.0
    usable = np.where(played, np.where(unpaid, 2, 1), 0).astype(np.int8)
    quantifier = ALL_ROWS if weights is not None else ANY_ROW
    open_states = ~problem.task.decided
    if problem.must_reach:
        open_states &= np.isfinite(solution.upper_values)
    held = hold_set(pmdp.state_ptr, pmdp.row_ptr, pmdp.successor, lo, hi, usable, quantifier, open_states)
    if problem.must_reach:
        return [f"the target can be avoided for ever from {_name(problem, held)}"] if held.any() else []
    bad = held & (solution.lower_values > 0.0)
    return [f"lower is positive where the play can be held: {_name(problem, bad)}"] if bad.any() else []


def _infinities(solution: Solution) -> list[str]:
    """Infinite lower bounds must follow from the graph (with the policy fixed where it is the agent's own claim)."""
    problem = solution.problem
    pmdp, claimed = problem.pmdp, np.isinf(solution.lower_values)
    if not claimed.any():
        return []
    if problem.is_reach or problem.discounted:
        return [f"an infinite bound in {_name(problem, claimed)}"]
    if problem.maximise and _is_region(problem):
        return [f"an infinite lower bound rests on the interval hull in {_name(problem, claimed)}"]
    lo, hi = attainable(*problem.relaxation.bounds(), pmdp.expression, pmdp.row_ptr)
    weights = _agent_weights(solution, problem.agent_proper and not problem.must_reach)
    played = np.ones(pmdp.num_rows, dtype=bool) if weights is None else weights > 0.0
    quantifier = 2 if weights is not None else ANY_ROW if problem.agent == MIN_AGENT else ALL_ROWS
    finite = finite_set(
        pmdp.state_ptr, pmdp.row_ptr, pmdp.successor, lo, hi, played, problem.reward > 0.0, quantifier,
        not problem.maximise, problem.must_reach, problem.task.target.copy(), np.ones(pmdp.num_states, dtype=bool),
    )  # fmt: skip
    bad = claimed & finite
    return [f"lower is infinite but the graph allows a finite value in {_name(problem, bad)}"] if bad.any() else []
