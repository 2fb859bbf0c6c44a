"""`coupled_bounds`: what one common parameter gives beyond the rectangular bounds of the same region."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent.coupled.affine import AffineBound, Judge, Side
from rpl_agent.coupled.expansion import Expansion, backward_order, expand, expand_without_cycles, improved
from rpl_agent.coupled.find import find_bound
from rpl_agent.coupled.frame import Frame, frame_of
from rpl_agent.coupled.horizon import find_horizon_bound, greedy_rules
from rpl_agent.model.objective import Nature, Objective, Sense
from rpl_agent.model.policy import Policy
from rpl_agent.regions.base import Region
from rpl_agent.relaxations.base import Relaxation
from rpl_agent.solver.problem import Problem

#: steps of policy iteration at the centre of a frame
IMPROVEMENTS = 12
#: a side is left alone where even a bound without slack would gain less than this share of the gap
WORTHWHILE = 0.02


@dataclass(frozen=True)
class CoupledBounds:
    """Bounds that hold for every parameter of the region.

    Attributes
    ----------
    lower, upper : float
        −inf and inf where nothing was proved.
    policy : Policy
        Whose value the agent's own side bounds: the given one, or the best one at the centre of the region.
    gradient : (r,) float64
        Of the policy's value at the initial state, in the coordinates x of the region.
    """

    lower: float
    upper: float
    policy: Policy
    gradient: np.ndarray


def coupled_bounds(
    relaxation: Relaxation, region: Region, objective: Objective, policy: Policy | None, start: Policy,
    known: tuple[float, float] = (-np.inf, np.inf),
) -> CoupledBounds | None:  # fmt: skip
    """Bounds of a policy's value, or, without one, of the value of a policy found here and of the optimum.

    Parameters
    ----------
    relaxation : Relaxation
        Rectangular, of the same region: its interval hull says where plays can be held.
    start : Policy
        Where the search for the best policy at the centre begins.
    known : (float, float)
        Bounds that hold already: a side is worked on only where it may become better.
    """
    problem = Problem.of(relaxation, objective, Nature.ADVERSARIAL, None)
    if problem.task.decided[problem.pmdp.initial_state]:
        return None
    weights = problem.pmdp.table.reduction.weights
    frame = frame_of(region, weights) if isinstance(weights, np.ndarray) else None
    if frame is None:
        return None
    judge = Judge(problem, region)
    own = Side.LOWER if objective.sense is Sense.MAX else Side.UPPER
    found = {Side.LOWER: -np.inf, Side.UPPER: np.inf}
    expansion = None
    if objective.horizon is not None:
        chosen = policy if policy is not None else greedy_rules(problem, frame)
    else:
        expansion = _expansion(problem, frame, policy, start)
        if expansion is None:
            return None
        chosen = expansion.policy
    gradient = np.zeros(frame.dimension)
    for side in Side:
        every_policy = policy is None and side is not own
        bound: AffineBound | None
        if expansion is None:
            bound = find_horizon_bound(problem, frame, chosen, side, every_policy)
        else:
            gradient = expansion.gradient[problem.pmdp.initial_state]
            if not _worthwhile(expansion, region, side, problem.pmdp.initial_state, known):
                continue
            bound = find_bound(problem, expansion, side, every_policy)
        if bound is not None and not judge.issues(bound):
            found[side] = bound.at(region, problem.pmdp.initial_state)
            gradient = bound.gradient[..., problem.pmdp.initial_state, :].reshape(-1, frame.dimension)[-1]
    gradient = np.linalg.solve(frame.factor.T, gradient) / frame.radius
    return CoupledBounds(found[Side.LOWER], found[Side.UPPER], chosen, gradient)


def _worthwhile(
    expansion: Expansion, region: Region, side: Side, state: int, known: tuple[float, float]
) -> bool:
    """Whether a bound with the gradient of the expansion can beat the known one, if it needs no slack."""
    lower, upper = known
    sign = side.value
    value, slope = -sign * float(expansion.values[state]), -sign * expansion.gradient[state]
    best = -sign * expansion.frame.minimum(region, value, slope)
    if not (np.isfinite(lower) and np.isfinite(upper)):
        return True
    gain = upper - best if side is Side.UPPER else best - lower
    return gain > WORTHWHILE * (upper - lower)


def _expansion(problem: Problem, frame: Frame, policy: Policy | None, start: Policy) -> Expansion | None:
    """The expansion of the policy, or of the best one at the centre."""
    order = backward_order(problem)
    if order is not None:
        return expand_without_cycles(problem, frame, order, policy)
    expansion = expand(problem, frame, policy if policy is not None else start)
    if policy is not None or start.rows is None:
        return expansion
    for _ in range(IMPROVEMENTS):
        if expansion is None:
            return None
        better = improved(problem, expansion)
        if better is None:
            return expansion
        expansion = expand(problem, frame, better)
    return expansion
