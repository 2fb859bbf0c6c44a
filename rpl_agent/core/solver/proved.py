"""`checked_solutions`: both solves of a certificate, each proved on the side that the certificate uses."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from rpl_agent.core.errors import PrecisionWarning, RPLWarning
from rpl_agent.core.model import Objective, Policy, Sense
from rpl_agent.core.relaxations.base import Relaxation
from rpl_agent.core.solver.claimed import WarmStart, side_policy
from rpl_agent.core.solver.operator import images
from rpl_agent.core.solver.solution import Solution, claiming_nothing
from rpl_agent.core.solver.solve import solve_both

#: What the solver may add to the gap between robust and optimistic values, as a share of it; and the first width.
USEFUL, FIRST_WIDTH = 0.01, 1e-3
#: Relative widths by which bounds are widened, in turn, until they pass their check.
WIDENED = (0.0, 1e-11, 1e-9, 1e-7)
#: Most sweeps outward of bounds that still fail; each takes about as long as a check.
SETTLING_SWEEPS = 200


@dataclass
class Solutions:
    """Solver results kept to warm-start the next solve on the same model."""

    robust: WarmStart | None = None
    optimistic: WarmStart | None = None


@contextmanager
def timed(timings: dict[str, float], stage: str) -> Iterator[None]:
    """Add the time of the enclosed code to that of a stage."""
    start = time.perf_counter()
    try:
        yield
    finally:
        timings[stage] = timings.get(stage, 0.0) + time.perf_counter() - start


def checked_solutions(
    relaxation: Relaxation,
    objective: Objective,
    policy: Policy | None,
    precision: float,
    warm: Solutions,
    timings: dict[str, float],
    reward_error: float,
) -> tuple[Solution, Solution]:
    """(robust, optimistic), each proved on the side that a certificate uses.

    Brackets are as narrow as the data can use: wider than ``precision`` only where they take up a hundredth of the gap.
    The proof does not depend on how bounds were found. What fails is solved once more without a warm start; a
    side that still fails claims nothing.
    """
    upward = objective.sense is Sense.MIN  # of the robust side; the optimistic one is opposite
    for start in (warm, Solutions()):
        with timed(timings, "solve"), warnings.catch_warnings():
            warnings.simplefilter("ignore", PrecisionWarning)  # the width is part of the bounds; `slack` reports it
            robust, optimistic = _narrow_enough(relaxation, objective, policy, precision, start, reward_error)
        with timed(timings, "check"):
            proved = _proved(robust, upward), _proved(optimistic, not upward)
        if proved[0] is not None and proved[1] is not None:
            return proved[0], proved[1]
    problem = (robust.check([upward]) + optimistic.check([not upward]))[0]
    warnings.warn(f"a bound did not pass its independent check and is left out: {problem}", RPLWarning, stacklevel=3)
    return proved[0] or claiming_nothing(robust, upward), proved[1] or claiming_nothing(optimistic, not upward)


def _narrow_enough(
    relaxation: Relaxation,
    objective: Objective,
    policy: Policy | None,
    precision: float,
    warm: Solutions,
    reward_error: float,
) -> tuple[Solution, Solution]:
    """(robust, optimistic): first as narrow as the last gap suggests, then as the new gap requires."""
    start: tuple[WarmStart | None, WarmStart | None] = (warm.robust, warm.optimistic)
    width = precision
    if objective.horizon is None and relaxation.compiled() is not None:  # elsewhere all widths take the same time
        last = [found for found in start if isinstance(found, Solution)]
        width = max(precision, 0.5 * _useful(*last) if len(last) == 2 else FIRST_WIDTH)
    while True:
        found = solve_both(
            relaxation,
            objective,
            policy=policy,
            precision=width,
            warm=start,
            reward_error=reward_error,
            outer=True,
        )
        enough = max(precision, _useful(*found))
        if width <= precision or found[0].gap + found[1].gap <= enough * _size(*found) < np.inf:
            return found
        start, width = found, max(precision, 0.1 * min(width, 5.0 * enough))


def _useful(robust: Solution, optimistic: Solution) -> float:
    """The width that adds little to what lies between robust and optimistic values, relative to values above 1."""
    apart, size = abs(optimistic.middle - robust.middle), _size(robust, optimistic)
    return USEFUL * apart / size if np.isfinite(size) else 0.0


def _size(robust: Solution, optimistic: Solution) -> float:
    return max(1.0, *(abs(end) for found in (robust, optimistic) for end in (found.lower, found.upper)))


def _proved(solution: Solution, upward: bool) -> Solution | None:
    """The solution, slightly widened if only rounding keeps one side from passing its check; None if it fails.

    The check proves whatever passes it: how the bounds were obtained does not matter.
    """
    for slack in WIDENED:
        wider = solution if slack == 0.0 else _widened(solution, slack)
        if not wider.check([upward]):
            return wider
    settled = _settled(solution, upward)
    return settled if settled is not None and not settled.check([upward]) else None


def _widened(solution: Solution, slack: float) -> Solution:
    return replace(
        solution,
        lower=solution.lower - slack * abs(solution.lower),
        upper=solution.upper + slack * abs(solution.upper),
        lower_values=solution.lower_values - slack * np.abs(solution.lower_values),
        upper_values=solution.upper_values + slack * np.abs(solution.upper_values),
    )


def _settled(solution: Solution, upward: bool) -> Solution | None:
    """One side moved outward to its own Bellman image, again and again until nothing moves; None with a horizon.

    Widening by a share of the values helps where rewards are paid. On a cycle without rewards or far from the target it
    scales both sides of an inequality alike, so that a rounding error remains; moving to the image removes it.
    """
    if solution.objective.horizon is not None:
        return None
    problem = solution.problem.as_cost
    sign = 1.0 if problem.mirrors is None else -1.0
    outer, side = (np.maximum, True) if upward == (sign > 0.0) else (np.minimum, False)
    given = solution.upper_values if upward else solution.lower_values
    values, policy = sign * given, side_policy(solution, upward)
    is_open = np.isfinite(values) & ~problem.task.decided
    for _ in range(SETTLING_SWEEPS):
        image = np.minimum(images(problem, values, side, policy)[0], problem.criterion.most)
        moved = np.where(is_open, outer(values, image), values)
        if np.array_equal(moved, values):
            break
        values = moved
    values = sign * values + 0.0  # no minus zero
    start = float(values[solution.problem.pmdp.initial_state])
    low, high = solution.problem.task.outward(start, start)
    if upward:
        return replace(solution, upper=max(solution.upper, float(high)), upper_values=values)
    return replace(solution, lower=min(solution.lower, float(low)), lower_values=values)
