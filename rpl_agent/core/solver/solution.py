"""`Solution`: bounds on a value, the policy that attains them, and the evidence for them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rpl_agent.core.errors import PrecisionWarning
from rpl_agent.core.model import Nature, Policy, Sense
from rpl_agent.core.native import core
from rpl_agent.core.printed import interval_text
from rpl_agent.core.solver.check import SMALLEST, is_converged, problems_of
from rpl_agent.core.solver.claimed import ClaimedBounds
from rpl_agent.core.solver.problem import Problem


def midpoint(lower: float, upper: float) -> float:
    """The middle of a bracket whose ends may both be infinite."""
    return lower if lower == upper else (lower + upper) / 2


@dataclass(frozen=True, eq=False)
class Solution(ClaimedBounds):
    """Bounds on the value under one direction of nature.

    lower, upper : the bracket at the initial state, rounding included.
    lower_values, upper_values : (S,) brackets everywhere; +inf where the graph shows an infinite total.
        With a horizon: (H + 1, S), row k holds the values with k steps to go.
    policy : attains the bound on the agent's own side (lower for MAX, upper for MIN), re-evaluated with it fixed.

    >>> import rpl_envs
    >>> from rpl_agent.core.solver import solve_at
    >>> world = rpl_envs.benchmark("Betting-25")
    >>> solution = solve_at(world.pmdp, world.theta, world.objective)
    >>> solution.converged, round(solution.middle, 3)
    (True, 19.043)
    """

    @property
    def nature(self) -> Nature:
        return self.problem.nature

    @property
    def gap(self) -> float:
        """upper - lower; 0 if both are infinite."""
        return 0.0 if self.lower == self.upper else self.upper - self.lower

    @property
    def middle(self) -> float:
        """The middle of the bracket, for display; not a bound."""
        return midpoint(self.lower, self.upper)

    @property
    def value(self) -> float:
        """The bound on the agent's own side, the one its policy attains."""
        return self.lower if self.objective.sense is Sense.MAX else self.upper

    def check(self, sides: Sequence[bool] = (False, True)) -> list[str]:
        """Problems of the bounds on ``sides`` (True: the upper), found independently of how the bounds were computed;
        empty means certified."""
        return problems_of(self, sides)


def claiming_nothing(solution: Solution, upward: bool) -> Solution:
    """The solution with trivial bounds on one side."""
    side, value = "upper" if upward else "lower", solution.problem.criterion.exact_range[upward]
    values = np.full(solution.problem.pmdp.num_states, value)
    changes: Any = {side: value, f"{side}_values": np.broadcast_to(values, solution.lower_values.shape)}
    return replace(solution, **changes, converged=False)


def without_tiny(problem: Problem, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Replace bounds (S,) so small that their rounding error is unknown (see `SMALLEST`).

    Adding one constant to all positive upper bounds keeps U >= T U. Lower bounds close to the small ones also become
    0, because their inequality may depend on those.
    """
    some = SMALLEST * 1e20
    if ((lower > 0.0) & (lower < SMALLEST)).any():
        lower = np.where((lower > 0.0) & (lower < some), 0.0, lower)
    if ((upper != 0.0) & (np.abs(upper) < SMALLEST)).any():
        upper = np.where(~problem.task.decided & (upper > problem.criterion.least), upper + some, upper)
    if problem.criterion.signed and ((lower < 0.0) & (lower > -SMALLEST)).any():
        lower = np.where(~problem.task.decided, lower - some, lower)
    return lower, upper


def finish(
    problem: Problem,
    lower: np.ndarray,
    upper: np.ndarray,
    policy: Policy,
    iterations: int,
    precision: float,
    began: float,
    witness: np.ndarray | None,
) -> Solution:
    """Assemble a solution; warn if it is wider than requested."""
    if lower.ndim == 1 and (core.any_faint(len(lower), lower) or core.any_faint(len(upper), upper)):
        lower, upper = without_tiny(problem, lower, upper)
    if problem.mirrors is not None:
        problem, lower, upper = problem.mirrors, 0.0 - upper, 0.0 - lower
    start = problem.pmdp.initial_state
    last = (start,) if lower.ndim == 1 else (-1, start)
    low, high = problem.task.outward(float(lower[last]), float(upper[last]))
    converged = is_converged(low, high, precision)
    if not converged:
        warnings.warn(
            f"the bracket {interval_text(low, high, 9)} is sound but wider than the requested precision {precision:g}",
            PrecisionWarning,
            stacklevel=3,
        )
    return Solution(
        problem, low, high, lower, upper, policy, iterations, time.perf_counter() - began, converged, precision, witness
    )
