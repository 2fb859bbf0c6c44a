"""How far a policy is from the best one: the most that any policy can gain over it, at one common parameter.

Let U bound the best value from above and L the policy's value from below, both affine and proved over the region C.
Then V*(θ) − V^π(θ) ≤ max over C of U − L for the true θ, on the event that C contains it (minimising: the mirror
image). Both are expanded at one centre, so their gradients all but cancel: the regret is of second order in the size of
C, whereas the gap of a certificate, whose two bounds are taken each at its own worst parameter, is of the first order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from rpl_agent.core.coupled.affine import AffineBound, AffineProof, BoxFrame, Side
from rpl_agent.core.coupled.bounds import PRODUCTS, CoupledBounds, proved_bound, varying_directions
from rpl_agent.core.coupled.claims import difference_bound
from rpl_agent.core.coupled.expansion import (
    StepExpansion,
    ValueExpansion,
    expansion_everywhere,
    expansion_of,
    greedy_policy,
)
from rpl_agent.core.coupled.optimality import RowVerdict, settled_rows
from rpl_agent.core.coupled.pieces import GAINED, affordable_pieces, hopeless_bound, worst_of_boxes
from rpl_agent.core.model import Objective, Policy
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.frame import Frame, frame_of
from rpl_agent.core.regions.product import Product
from rpl_agent.core.regions.sliced import Sliced
from rpl_agent.core.solver.problem import Problem

#: split the region if the regret is more than this multiple of what is known already
SPLIT = 0.25


@dataclass(frozen=True, eq=False)
class Regret:
    """How far a policy is from the best one."""

    most: float  # the most that any policy gains over it, inf if not found
    undecided: np.ndarray | None = None  # rows that may still be part of a better policy; None if not looked for
    is_optimal: bool = False  # no policy is better

    def at_most(self, other: float) -> Regret:
        """The smaller of this regret and another bound that holds too."""
        return replace(self, most=min(self.most, other))


NOT_FOUND = Regret(np.inf)


def proved_regret(found: CoupledBounds, region: Region, policy: Policy, known: float, pieces: int = 1) -> Regret:
    """The regret of a policy in the initial state, over the region.

    found : bounds of the same region; the proved ones are used again
    known : a bound on the regret that holds already, inf if there is none; pieces of the region are tried where the
        whole region hardly improves on it
    pieces : the most pieces to try
    """
    problem = found.problem
    directions = varying_directions(problem, region)
    if directions is None or problem.pmdp.num_transitions * region.dimension**2 > PRODUCTS:
        return NOT_FOUND
    search = RegretSearch(problem, policy, found)
    pairs = [search.over(region, frame) for frame in _frames(found, region, directions)]
    pair = min((pair for pair in pairs if pair is not None), key=lambda pair: pair.most, default=None)
    # With little data hardly any row is beaten.
    verdict = None if pair is None or pair.most > SPLIT * known else search.settled(region, pair)
    rounding = search.rounding(region, pair)
    if verdict is not None and verdict.is_optimal:
        return Regret(rounding, verdict.undecided, rounding == 0.0)
    most = np.inf if pair is None else pair.most
    whole = found.expansion.frame
    count = affordable_pieces(pieces, problem.pmdp.num_transitions, problem.objective.horizon)
    if pair is not None and count > 1 and most > SPLIT * known and isinstance(whole, Frame) and found.proved:
        most = min(most, search.in_pieces(region, directions, pair, known, count))
    if verdict is not None:
        assert pair is not None
        most = min(most, search.difference(region, verdict.best, pair.mine))
    most = float(np.nextafter(most + rounding, np.inf)) if rounding > 0.0 else most
    return Regret(most, None if verdict is None else verdict.undecided)


def regret_with_error(objective: Objective, found: Regret, bounds: tuple[float, float], error: float) -> Regret:
    """A regret for rewards that differ from the model's, see `Objective.with_reward_error`.

    bounds : on the policy's value, and so, with the regret, on the optimum
    """
    regret = found.most
    if error == 0.0 or not objective.criterion.pays or not np.isfinite(regret):
        return found
    lower, upper = bounds[0] - regret, bounds[1] + regret
    low, high = objective.with_reward_error(lower, upper, error)
    moved = 2.0 * max(abs(low), abs(high), abs(lower), abs(upper)) * error if objective.criterion.is_open_ended else 0.0
    moved = max(moved, difference_above(high, upper) + difference_above(lower, low))
    return Regret(float(np.nextafter((regret + moved) * (1.0 + 1e-15), np.inf)), found.undecided)


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
    if isinstance(region, Product | Sliced):
        frames.append(BoxFrame.around(*region.box(), is_reduced=True))
    elif not frames:
        whole = frame_of(region, directions)
        frames += [] if whole is None else [whole]
    return frames


@dataclass(frozen=True, eq=False)
class RegretPair:
    """A proved bound on the value of every policy, one on that of a policy, and the most that they differ by."""

    best: AffineBound
    mine: AffineBound
    most: float
    expansion: ValueExpansion | StepExpansion  # of the best policy at the centre


class RegretSearch:
    """Searches for the regret of one policy over regions; ``found`` are bounds that are known already."""

    def __init__(self, problem: Problem, policy: Policy, found: CoupledBounds) -> None:
        self.problem, self.policy, self.found = problem, policy, found
        self.own = Side.own(problem.objective.sense)
        self.far = Side.LOWER if self.own is Side.UPPER else Side.UPPER

    def rounding(self, region: Region, pair: RegretPair | None) -> float:
        """How much the difference of two values may change by the rounding of the objective's numbers."""
        task = self.problem.task
        if task.reward_error.amount == 0.0 or task.signed:
            return 2.0 * task.rounding
        if pair is None:
            return np.inf
        larger = pair.best if self.own is Side.LOWER else pair.mine  # an upper bound on both values
        return 2.0 * task.difference(abs(larger.at(region, self.problem.pmdp.initial_state)))

    def over(self, region: Region, frame: Frame | BoxFrame) -> RegretPair | None:
        """Proved bounds on the best value and on the policy's over a region, in one frame; None if not found."""
        proof = AffineProof(self.problem, region)
        best, mine = self._known(frame, self.far, None), self._known(frame, self.own, self.policy)
        expansion = self._best(frame)
        if expansion is None:
            return None
        best = proved_bound(proof, expansion, self.far, True) if best is None else best
        if best is not None and mine is None:
            mine = self._of_policy(proof, expansion)
        if best is None or mine is None:
            return None
        return RegretPair(best, mine, self.difference(region, best, mine), expansion)

    def over_piece(self, piece: Region, frame: BoxFrame) -> float:
        pair = self.over(piece, frame)
        return np.inf if pair is None else pair.most

    def in_pieces(self, region: Region, directions: np.ndarray, pair: RegretPair, known: float, count: int) -> float:
        """The regret by boxes of the region; infinite if so many of them can hardly get below a known bound.

        pair : bounds over the whole region
        """
        best, mine = (replace(bound, slack=np.zeros_like(bound.slack)) for bound in (pair.best, pair.mine))
        hopeless = hopeless_bound(self.difference(region, best, mine), known, count, region.dimension)
        if not pair.most < hopeless:
            return np.inf
        limits = {"least": GAINED * pair.most, "useless": known, "hopeless": hopeless}
        return worst_of_boxes(region, directions, self.over_piece, count, **limits)

    def difference(self, region: Region, best: AffineBound, mine: AffineBound) -> float:
        """The most that the best value exceeds the policy's by (minimising: falls below)."""
        pair = (best, mine) if self.own is Side.LOWER else (mine, best)
        return max(difference_bound(region, *pair, self.problem.pmdp.initial_state), 0.0)

    def settled(self, region: Region, pair: RegretPair) -> RowVerdict | None:
        """Which rows can still be part of a better policy; None with a horizon, or for a policy that draws its rows."""
        policy, expansion = self.policy, pair.expansion
        if policy.rows is None or policy.rows.ndim > 1 or not isinstance(expansion, ValueExpansion):
            return None
        proof, mine = AffineProof(self.problem, region), pair.mine
        if not (mine.scope | self.problem.task.decided).all():
            own = self._expansion(expansion)
            found = None if own is None else proved_bound(proof, own, self.own, False, everywhere=True)
            if found is None:
                return None
            mine = found
        return settled_rows(proof, expansion, pair.best, mine)

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
        """A bound on the policy's value, in all states if possible: that decides about rows too."""
        expansion = self._expansion(best)
        bound = None
        if isinstance(expansion, ValueExpansion):
            bound = proved_bound(proof, expansion, self.own, False, everywhere=True)
        if bound is None and expansion is not None:
            bound = proved_bound(proof, expansion, self.own, False)
        return bound

    def _expansion(self, best: ValueExpansion | StepExpansion) -> ValueExpansion | StepExpansion | None:
        """The expansion of the policy, in all states, at the centre of the best one's."""
        if same_policy(best.policy, self.policy):
            return best
        if isinstance(best, ValueExpansion):
            return expansion_everywhere(self.problem, best.frame, self.policy)
        return expansion_of(self.problem, best.frame, self.policy, self.policy)


def same_policy(one: Policy | None, other: Policy | None) -> bool:
    """Whether two policies are known to be the same; None stands for every policy."""
    if one is None or other is None or one is other:
        return one is other
    if one.rows is not None and other.rows is not None:
        return np.array_equal(one.rows, other.rows)
    if one.weights is not None and other.weights is not None:
        return np.array_equal(one.weights, other.weights)
    return False
