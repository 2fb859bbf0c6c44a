"""`coupled_bounds`: what one common parameter gives beyond the rectangular bounds of the same region."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy

from rpl_agent.coupled.affine import AffineProof, Side
from rpl_agent.coupled.expansion import ValueExpansion, expansion_of
from rpl_agent.coupled.find import find_bound
from rpl_agent.coupled.horizon import StepExpansion, greedy_rules
from rpl_agent.coupled.pieces import worst_of_pieces
from rpl_agent.model.objective import Nature, Objective
from rpl_agent.model.policy import Policy
from rpl_agent.regions.base import Region
from rpl_agent.regions.frame import Frame, frame_of
from rpl_agent.regions.parameter_region import ParameterRegion
from rpl_agent.regions.product import Product
from rpl_agent.relaxations.base import Relaxation
from rpl_agent.relaxations.rectangular import Rectangular
from rpl_agent.solver.problem import Problem

#: a side is left alone where even a bound without slack would gain less than this share of the gap
WORTHWHILE = 0.02
#: transitions that the pieces of a side may have together: each piece is three passes over the model
WORK = 100_000_000
#: a side is split where the slack, or a bound that was not found, costs more than this share of the gap
SPLIT = 0.1


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
    known: tuple[float, float] = (-np.inf, np.inf), pieces: int = 1,
) -> CoupledBounds | None:  # fmt: skip
    """Bounds of a policy's value, or, without one, of the value of a policy found here and of the optimum.

    Parameters
    ----------
    relaxation : Relaxation
        Rectangular, of the same region: it says where plays can be held.
    start : Policy
        Where the search for the best policy at the centre begins.
    known : (float, float)
        Bounds that hold already: a side is worked on only where it may become better.
    pieces : int
        How many pieces of the region may be tried on a side on which the whole falls short.
    """
    problem = Problem.of(relaxation, objective, Nature.ADVERSARIAL, None)
    if problem.task.decided[problem.pmdp.initial_state]:
        return None
    if isinstance(region, ParameterRegion):
        directions = np.linalg.solve(region.frame.factor.T, region.forms.slope.T).T
    else:
        directions = problem.pmdp.table.reduction.weights
    if not isinstance(directions, np.ndarray):
        return None
    if objective.horizon is None and is_rectangular(relaxation, region):
        return _gradient_only(problem, region, policy, start)
    frame = frame_of(region, directions)
    if frame is None:
        return None
    if objective.horizon is not None:
        return _horizon_bounds(problem, region, frame, policy)
    expansion = expansion_of(problem, frame, policy, start)
    if expansion is None:
        return None
    pieces = min(pieces, WORK // problem.pmdp.num_transitions)
    search, proof = Search(problem, expansion.policy, directions), AffineProof(problem, region)
    found, slope = {Side.LOWER: -np.inf, Side.UPPER: np.inf}, expansion.gradient[problem.pmdp.initial_state]
    for side in Side:
        every_policy = policy is None and side is not Side.own(objective.sense)
        best = _without_slack(expansion, region, side, problem.pmdp.initial_state)
        limit, gap = known[0] if side is Side.LOWER else known[1], known[1] - known[0]
        # A given policy is evaluated as sharply as one that was found here, whatever is known already.
        least = WORTHWHILE * gap if policy is None else 0.0
        if np.isfinite(gap) and side.value * (limit - best) <= least:
            continue
        found[side] = search.bound(proof, expansion, side, every_policy)
        so_far = (min if side is Side.UPPER else max)(found[side], limit)
        if pieces > 1 and np.isfinite(gap) and side.value * so_far - side.value * best > SPLIT * gap:
            found[side] = side.value * worst_of_pieces(
                region, frame, _in_region(frame, slope), side.value * so_far,
                partial(search.piece, side, every_policy), pieces,
            )  # fmt: skip
    return CoupledBounds(found[Side.LOWER], found[Side.UPPER], expansion.policy, _in_region(frame, slope))


def _horizon_bounds(problem: Problem, region: Region, frame: Frame, policy: Policy | None) -> CoupledBounds:
    """The same for an objective with a horizon, which has a bound for each number of steps to go."""
    chosen, proof = policy if policy is not None else greedy_rules(problem, frame), AffineProof(problem, region)
    found, state = {Side.LOWER: -np.inf, Side.UPPER: np.inf}, problem.pmdp.initial_state
    expansion = StepExpansion.of(problem, frame, chosen)
    for side in Side:
        every_policy = policy is None and side is not Side.own(problem.objective.sense)
        bound = expansion.bound(side, every_policy)
        if not proof.issues(bound):
            found[side] = bound.at(region, state)
    return CoupledBounds(found[Side.LOWER], found[Side.UPPER], chosen, _in_region(frame, bound.gradient[-1, state]))


def _in_region(frame: Frame, slope: np.ndarray) -> np.ndarray:
    """(r,) a gradient in the frame's coordinates, in those of the region."""
    return np.linalg.solve(frame.factor.T, slope) / frame.radius


def is_rectangular(relaxation: Relaxation, region: Region) -> bool:
    """Whether one common parameter is nothing but one choice per row, so that rectangular bounds are coupled ones.

    So it is in a product of which every block has one row of the model: nature's choices in two rows are independent,
    and without a horizon a choice that stays the same is as good as one that changes. A relaxation that knows only the
    hull of a row has less than the region in it.
    """
    if not (isinstance(region, Product) and isinstance(relaxation, Rectangular)):
        return False
    pmdp = relaxation.pmdp
    weights = scipy.sparse.coo_array(pmdp.table.reduction.weights)
    uses = scipy.sparse.csr_array(
        (np.ones(weights.nnz), (weights.coords[0], region.block_of[weights.coords[1]])),
        shape=(pmdp.num_expressions, len(region.block_ptr) - 1),
    )
    ones = np.ones(pmdp.num_transitions)
    carries = scipy.sparse.csr_array((ones, pmdp.expression, pmdp.row_ptr), shape=(pmdp.num_rows, pmdp.num_expressions))
    rows_of_block = np.bincount(scipy.sparse.csr_array(carries @ uses).indices, minlength=uses.shape[1])
    return bool((rows_of_block <= 1).all())


def _gradient_only(problem: Problem, region: Region, policy: Policy | None, start: Policy) -> CoupledBounds | None:
    """No better bounds, but the gradient that says where the gap comes from."""
    low, high = region.box()
    expansion = expansion_of(problem, Frame((low + high) / 2, np.eye(len(low)), 1.0), policy, start)
    if expansion is None:
        return None
    return CoupledBounds(-np.inf, np.inf, expansion.policy, expansion.gradient[problem.pmdp.initial_state])


@dataclass(frozen=True)
class Search:
    """Bounds of one problem on any region, for one policy or for all of them."""

    problem: Problem
    policy: Policy
    directions: np.ndarray  # (F, r) in which a frame should be narrow

    def bound(self, proof: AffineProof, expansion: ValueExpansion, side: Side, every_policy: bool) -> float:
        """The bound of the initial state that was found and proved, infinite if there is none."""
        bound = find_bound(self.problem, expansion, side, every_policy)
        if bound is None or proof.issues(bound):
            return side.value * np.inf
        return bound.at(proof.region, self.problem.pmdp.initial_state)

    def piece(self, side: Side, every_policy: bool, region: Region) -> float:
        """The bound on a piece, larger is worse."""
        frame = frame_of(region, self.directions)
        if frame is None:
            return np.inf
        expansion = expansion_of(self.problem, frame, None if every_policy else self.policy, self.policy)
        if expansion is None:
            return np.inf
        return side.value * self.bound(AffineProof(self.problem, region), expansion, side, every_policy)


def _without_slack(expansion: ValueExpansion, region: Region, side: Side, state: int) -> float:
    """The bound that the expansion would give if it were exact."""
    value, slope = -side.value * float(expansion.values[state]), -side.value * expansion.gradient[state]
    return -side.value * expansion.frame.minimum(region, value, slope)
