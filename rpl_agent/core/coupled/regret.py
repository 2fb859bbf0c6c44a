"""How far a policy is from the best one: the most that any policy can gain over it, at one common parameter.

Let U bound the best value from above and L the policy's value from below, both affine and proved over the region C.
Then V*(θ) − V^π(θ) ≤ max over C of U − L for the true θ, on the event that C contains it (minimising: the mirror
image). Both are expanded at one centre, so their gradients all but cancel: the regret is of second order in the size of
C, whereas the gap of a certificate, whose two bounds are taken each at its own worst parameter, is of the first order.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np

from rpl_agent.core.coupled.affine import AffineBound, AffineProof, BoxFrame, Side
from rpl_agent.core.coupled.bounds import CoupledBounds, proved_bound, varying_directions, worst_of_pieces
from rpl_agent.core.coupled.claims import difference_bound
from rpl_agent.core.coupled.expansion import StepExpansion, ValueExpansion, expansion_of, greedy_policy
from rpl_agent.core.model import Objective, Policy
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.frame import Frame, frame_of
from rpl_agent.core.regions.product import Product
from rpl_agent.core.solver.problem import Problem

#: the most products of derivatives over all transitions: a few tenths of a second
PRODUCTS = 200_000_000
#: split the region if the regret is more than this share of what is known already
SPLIT = 0.25


def regret_bound(found: CoupledBounds, region: Region, policy: Policy, known: float, pieces: int = 1) -> float:
    """The most that the best policy gains over ``policy`` in the initial state, over the region; inf if not found.

    found : of the same region, whose proved bounds are used again
    known : a bound on the regret that holds already, inf if there is none; pieces of the region are tried where the
        whole region hardly improves on it
    pieces : the most pieces to try
    """
    problem = found.problem
    directions = varying_directions(problem, region)
    if directions is None or problem.pmdp.num_transitions * region.dimension**2 > PRODUCTS:
        return np.inf
    search, best = RegretSearch(problem, policy, found), np.inf
    for frame in _frames(found, region, directions):
        best = min(best, search.over(region, frame))
    limit = min(best, known)
    whole = found.expansion.frame
    if pieces > 1 and np.isfinite(limit) and SPLIT * known < best and isinstance(whole, Frame) and found.proved:
        attempt = partial(search.over_piece, directions)
        return worst_of_pieces(region, whole, found.gradient, limit, attempt, pieces)
    return best


def proved_regret(found: CoupledBounds, region: Region, policy: Policy, known: float, pieces: int) -> float:
    """`regret_bound`, with the rounding of the objective's numbers, which moves either value."""
    rounding = 2.0 * found.problem.task.rounding
    most = regret_bound(found, region, policy, known, pieces)
    return float(np.nextafter(most + rounding, np.inf)) if rounding > 0.0 else most


def regret_with_error(objective: Objective, regret: float, bounds: tuple[float, float], error: float) -> float:
    """A regret for rewards that differ from the model's, see `Objective.with_reward_error`.

    bounds : on the policy's value, and so, with the regret, on the optimum
    """
    if error == 0.0 or not np.isfinite(regret):
        return regret
    lower, upper = bounds[0] - regret, bounds[1] + regret
    low, high = objective.with_reward_error(lower, upper, error)
    moved = 2.0 * max(abs(low), abs(high), abs(lower), abs(upper)) * error if objective.is_open_ended else 0.0
    moved = max(moved, difference_above(high, upper) + difference_above(lower, low))
    return float(np.nextafter((regret + moved) * (1.0 + 1e-15), np.inf)) if moved > 0.0 else regret


def difference_above(upper: float, lower: float) -> float:
    """upper − lower, rounded up."""
    found = upper - lower
    if not np.isfinite(found):
        return np.inf
    exact = Fraction(upper) - Fraction(lower)
    return float(np.nextafter(found, np.inf)) if Fraction(found) < exact else found


def _frames(found: CoupledBounds, region: Region, directions: np.ndarray) -> list[Frame | BoxFrame]:
    """The frames in which to expand: that of the bounds, and for independent blocks their box."""
    frames: list[Frame | BoxFrame] = [found.expansion.frame] if found.proved else []
    if isinstance(region, Product):
        frames.append(BoxFrame.around(*region.box(), is_reduced=True))
    elif not frames:
        whole = frame_of(region, directions)
        frames += [] if whole is None else [whole]
    return frames


class RegretSearch:
    """The regret of one policy over regions; ``found`` is what is known already."""

    def __init__(self, problem: Problem, policy: Policy, found: CoupledBounds) -> None:
        self.problem, self.policy, self.found = problem, policy, found
        self.own = Side.own(problem.objective.sense)
        self.far = Side.LOWER if self.own is Side.UPPER else Side.UPPER

    def over(self, region: Region, frame: Frame | BoxFrame) -> float:
        """The regret over a region, by bounds in a frame; inf if not found."""
        proof = AffineProof(self.problem, region)
        best, mine = self._known(frame, self.far, None), self._known(frame, self.own, self.policy)
        if best is None or mine is None:
            expansion = self._best(frame)
            if expansion is None:
                return np.inf
            best = proved_bound(proof, expansion, self.far, True) if best is None else best
            if best is not None and mine is None:
                mine = self._of_policy(proof, expansion)
        if best is None or mine is None:
            return np.inf
        pair = (best, mine) if self.own is Side.LOWER else (mine, best)
        return max(difference_bound(region, *pair, self.problem.pmdp.initial_state), 0.0)

    def over_piece(self, directions: np.ndarray, piece: Region) -> float:
        frame = frame_of(piece, directions)
        return np.inf if frame is None else self.over(piece, frame)

    def _known(self, frame: Frame | BoxFrame, side: Side, policy: Policy | None) -> AffineBound | None:
        """A bound that is proved already."""
        bound = self.found.proved.get(side)
        return bound if bound is not None and bound.frame is frame and same_policy(bound.policy, policy) else None

    def _best(self, frame: Frame | BoxFrame) -> ValueExpansion | StepExpansion | None:
        """The expansion of the best policy at the centre."""
        found, problem = self.found, self.problem
        if not found.is_given and found.expansion.frame is frame:
            return found.expansion
        start = found.policy
        if start.rows is not None or problem.objective.horizon is not None or problem.order is not None:
            return expansion_of(problem, frame, None, start)
        drawn = expansion_of(problem, frame, start, start)
        if not isinstance(drawn, ValueExpansion):
            return None
        return expansion_of(problem, frame, None, greedy_policy(problem, drawn))

    def _of_policy(self, proof: AffineProof, best: ValueExpansion | StepExpansion) -> AffineBound | None:
        same = same_policy(best.policy, self.policy)
        expansion = best if same else expansion_of(self.problem, best.frame, self.policy, self.policy)
        return None if expansion is None else proved_bound(proof, expansion, self.own, False)


def same_policy(one: Policy | None, other: Policy | None) -> bool:
    """Whether two policies are known to be the same; None stands for every policy."""
    if one is None or other is None or one is other:
        return one is other
    return one.rows is not None and other.rows is not None and np.array_equal(one.rows, other.rows)
