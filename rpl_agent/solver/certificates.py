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

Infinite values are accepted only where the graph shows them; probabilities up to 1e-12 that a witness carries are
treated as absent, which can only make the check harder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpl_agent.model.objective import Sense
from rpl_agent.relaxations._kernels import INTERVAL, MASS_TOLERANCE, POINT, UNIT_ROUNDOFF, compiled_set
from rpl_agent.relaxations.base import CompiledRelaxation
from rpl_agent.solver._graph_kernels import ALL_ROWS, ANY_ROW, finite_set, hold_set
from rpl_agent.solver._kernels import FIXED_AGENT, MAX_AGENT

if TYPE_CHECKING:
    from rpl_agent.solver.problem import Problem
    from rpl_agent.solver.solution import Solution

DEFAULT_TIGHTNESS = 1e-9


def check(solution: Solution) -> list[str]:
    """Problems of a solution's certificate; empty means that both bounds are proven."""
    problem = solution.problem
    if problem.objective.horizon is not None:
        from rpl_agent.solver.horizon import check_horizon

        return check_horizon(solution)
    issues = _shape(solution)
    if issues:
        return issues
    if problem.discounted:
        return _inductive(solution, False, False) + _inductive(solution, True, False)
    proper_is_upper = not problem.proper_max
    issues += _inductive(solution, not proper_is_upper, False)
    issues += _inductive(solution, proper_is_upper, True)
    return issues + _ends(solution) + _infinities(solution)


def _shape(solution: Solution) -> list[str]:
    problem, low, high = solution.problem, solution.lower_values, solution.upper_values
    task, start = problem.task, problem.pmdp.initial_state
    issues = []
    if np.isnan(low).any() or np.isnan(high).any():
        return ["a value is NaN"]
    if solution.lower > low[start] or solution.upper < high[start]:
        issues.append("the bracket at the initial state is tighter than the values")
    if (low > high).any():
        issues.append(f"lower exceeds upper in {_name(problem, low > high)}")
    target_value = 1.0 if problem.is_reach else 0.0
    for mask, value in ((task.target, target_value), (task.avoid, 0.0)):
        for bad in (mask & (low > value), mask & (high < value)):
            if bad.any():
                issues.append(f"a decided state has the wrong bound: {_name(problem, bad)}")
    if not problem.discounted and (high < 0).any():
        issues.append(f"upper is negative in {_name(problem, high < 0)}")
    solution.policy.check(problem.pmdp)
    return issues


def _name(problem: Problem, bad: np.ndarray) -> str:
    states = np.flatnonzero(bad)
    more = f" and {len(states) - 1} more" if len(states) > 1 else ""
    return f"state {states[0]} = {problem.pmdp.state_name(int(states[0]))}{more}"


def _expectations(solution: Solution, values: np.ndarray, upward: bool, use_witness: bool) -> np.ndarray:
    """(R,) bounds of nature's extremum per row from the side asked for."""
    problem = solution.problem
    out = np.empty(problem.pmdp.num_rows)
    extremum = Sense.MAX if problem.maximise else Sense.MIN
    witness = solution.nature_witness
    relaxation = problem.relaxation
    if use_witness and witness is not None:
        cyclic = problem.structure().is_cyclic[problem.pmdp.row_state]
        relaxation.expectation(values, extremum, out)
        if upward != problem.maximise:
            out += (1.0 if upward else -1.0) * _far_side(problem, values)
        rows = np.flatnonzero(cyclic)
        out[rows] = _witness_means(problem, values, witness, rows, upward)
        return out
    if isinstance(relaxation, CompiledRelaxation):
        relaxation.directed_expectation(values, extremum, upward, out)
        return out
    relaxation.expectation(values, extremum, out)
    if upward != problem.maximise:
        out += (1.0 if upward else -1.0) * _far_side(problem, values)
    return out
