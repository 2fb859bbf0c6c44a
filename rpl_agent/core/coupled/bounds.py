"""`coupled_bounds`: bounds for one common parameter, tighter than the rectangular bounds of the same region.

From an expansion to a bound: the slack is raised until every inequality holds. The expansion v + g·y violates its
inequalities only to second order, and by what other actions may gain. Without cycles the slack is found state by
state, successors first. With cycles an excess x(s) is covered by the slack that x earns along plays of the policy,
e += (I − γ P)⁻¹ x; the variation of e over the region is an excess of higher order, covered in the next round. For
costs, where a free agent may loop at a positive excess, the function is also divided by 1 + κ: if every row violates
its inequality by at most κ times its cost, U / (1 + κ) violates none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from rpl_agent.core.coupled.affine import AffineBound, AffineProof, BoxFrame, Side, excess, row_excess
from rpl_agent.core.coupled.expansion import ROUNDING, StepExpansion, ValueExpansion, expansion_of
from rpl_agent.core.coupled.pieces import GAINED, affordable_pieces, hopeless_bound, worst_of_boxes
from rpl_agent.core.coupled.products.searches import Searches
from rpl_agent.core.model import Nature, Objective, Policy
from rpl_agent.core.native import core
from rpl_agent.core.native.memory import give_back_memory
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.blocks import factorisation
from rpl_agent.core.regions.frame import Frame, frame_of
from rpl_agent.core.regions.parameter_region import ParameterRegion
from rpl_agent.core.regions.product import Product
from rpl_agent.core.regions.sliced import Sliced
from rpl_agent.core.relaxations.base import Relaxation, longest_chain
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.core.solver.graph import model_graph
from rpl_agent.core.solver.problem import Problem

#: the most products of derivatives over all transitions: a few tenths of a second
PRODUCTS = 200_000_000
#: the most rounds of payments
ROUNDS = 12
#: each round pays this share too much, so that higher orders need no rounds of their own
OVERPAID = 0.05
#: rounds for the worst choice of rows where the rest would be left to a factor of the costs, which is far worse
COST_ROUNDS = 40
#: upper limit on the remaining share
MOST_LEFT = 0.9
#: an excess below this share of the first one is left to the factor
NEGLIGIBLE = 1e-6
#: accuracy of the payments of the worst rows, relative to the largest excess
ACCURATE = 1e-5
#: the most sweeps for these payments
SWEEPS = 20_000
#: a slack above this multiple of the values is useless
MOST_SLACK = 4.0
#: a slack above this multiple of the first payment does not converge
DIVERGED = 30.0
#: the grid on which equal values are made equal, relative to the largest one
GRID = 2.0**-40


def find_bound(
    problem: Problem,
    expansion: ValueExpansion | StepExpansion,
    side: Side,
    every_policy: bool,
    everywhere: bool = False,
) -> AffineBound | None:
    """A bound with the gradient of the expansion, still to be checked; None if none was found.

    The bound of a policy covers the states that it reaches, or, without a horizon, all states (``everywhere``).
    """
    if isinstance(expansion, StepExpansion):
        return expansion.bound(side, every_policy)
    bound = expansion.bound(side, every_policy, everywhere)
    largest, order = max(float(expansion.values.max()), -float(expansion.values.min())), expansion.order
    margin = ROUNDING * largest
    if order is not None:
        order, here = order if every_policy else order[bound.scope[order]], (bound.values.copy(), bound.gradient)
        raised = excess(problem, bound.policy, expansion.chances, side, here, order, margin)  # raises the copy in place
        return replace(bound, slack=raised)
    if every_policy and expansion.policy.rows is not None:
        worst = _of_worst_rows(problem, expansion, bound, margin)
        if worst is not None:
            return worst
    if every_policy and problem.criterion.must_reach:
        paid = _with_slack(problem, expansion, bound, margin, leave_rest=True)
        return _with_factor(problem, expansion, bound if paid is None else paid)
    found = _with_slack(problem, expansion, bound, margin, leave_rest=False)
    return _on_grid(problem, expansion, bound, largest) if found is None and every_policy else found


def _on_grid(problem: Problem, expansion: ValueExpansion, bound: AffineBound, largest: float) -> AffineBound | None:
    """A bound whose numbers are multiples of one power of two, so that equal values are equal to the last bit.

    A row between states of equal value misses its inequality by its own rounding error, for ever: where plays of the
    policy pass through both, a payment raises both alike. Differences that are exactly 0 have no rounding error.
    """
    if not largest > 0.0:
        return None
    step = float(np.ldexp(GRID, int(np.ceil(np.log2(largest)))))  # the power alone may be infinite
    rounded = replace(bound, values=_multiples(bound.values, step), gradient=_multiples(bound.gradient, step))
    return _with_slack(problem, expansion, rounded, step, leave_rest=False, step=step)


def _multiples(numbers: np.ndarray, step: float) -> np.ndarray:
    return np.round(numbers / step) * step


def _of_worst_rows(
    problem: Problem, expansion: ValueExpansion, bound: AffineBound, margin: float
) -> AffineBound | None:
    """The slack earned by the worst choice of rows, at the centre of the frame."""
    pmdp, chances, slack, first = problem.pmdp, expansion.chances, bound.slack, 0.0
    open_states = bound.scope & ~problem.task.decided & ~problem.resting_states
    useless = MOST_SLACK * (1.0 + float(np.abs(bound.values).max()))
    for _ in range(COST_ROUNDS if problem.criterion.must_reach else ROUNDS):
        u = bound.values + bound.side.value * slack
        missed = row_excess(problem, chances, bound.side, (u, bound.gradient))
        worst = np.maximum.reduceat(missed, pmdp.state_ptr[:-1])
        most = float(worst[open_states].max(initial=0.0))
        if most <= 0.0:
            return replace(bound, slack=slack)
        first = max(first, most)
        if problem.criterion.must_reach and most < NEGLIGIBLE * first:
            scaled = _with_factor(problem, expansion, replace(bound, slack=slack))
            if scaled is not None:
                return scaled
        step = ACCURATE * most + margin
        extra = np.where(missed > 0.0, (1.0 + OVERPAID) * missed, missed) + 2.0 * step
        extra[problem.resting_rows] = -useless  # they miss nothing: no payment for the margin, again and again
        payment = np.empty(pmdp.num_states)
        allowed = core.Effort(tolerance=step, budget=SWEEPS, most=useless, capacity=longest_chain(pmdp))
        game = model_graph(pmdp).both_ways, problem.gamma, chances.p, pmdp.expression, extra
        if core.worst_totals(*game, allowed, ~open_states, payment, None, None, None) < 0:
            return None
        slack = slack + payment
        if not np.isfinite(slack).all() or slack.max() > useless:
            return None
    return None


def _with_slack(
    problem: Problem,
    expansion: ValueExpansion,
    bound: AffineBound,
    margin: float,
    leave_rest: bool,
    step: float = 0.0,
) -> AffineBound | None:
    """The slack earned along plays of the policy, in multiples of ``step`` unless it is 0; None if none suffices."""
    order = np.flatnonzero(bound.scope & ~problem.task.decided)
    slack, first, limit, before, share = bound.slack, 0.0, np.inf, np.inf, 0.0
    for _ in range(ROUNDS):
        u = bound.values + bound.side.value * slack
        missed = excess(problem, bound.policy, expansion.chances, bound.side, (u, bound.gradient), order)
        missed = np.maximum(missed, 0.0)
        worst = float(missed.max())
        if worst == 0.0 or (leave_rest and worst < NEGLIGIBLE * first):
            return replace(bound, slack=slack)
        # Each payment leaves a share of itself to be paid: sum the geometric series at once, in later rounds too.
        share = min(max(share, worst / before), MOST_LEFT)
        before = worst
        payment = expansion.spread(np.where(missed > 0.0, (1.0 + OVERPAID) / (1.0 - share) * missed + margin, 0.0))
        slack = np.maximum(slack + payment, 0.0)
        slack = _multiples(slack, step) if step else slack
        if first == 0.0:
            first, limit = worst, DIVERGED * float(slack.max())
        if not np.isfinite(slack).all() or slack.max() > limit:
            return None
    return None


def _with_factor(problem: Problem, expansion: ValueExpansion, bound: AffineBound) -> AffineBound | None:
    """The bound divided by 1 + κ, with a positive cost in every row."""
    open_states = bound.scope & ~problem.task.decided
    costs = np.where(problem.resting_rows, np.inf, problem.reward)  # rows that rest hold for every function
    least = np.minimum.reduceat(costs, problem.pmdp.state_ptr[:-1])
    if not (least[open_states] > 0.0).all():
        return None
    factor = 1.0
    for _ in range(ROUNDS):
        scaled = replace(
            bound, values=bound.values / factor, gradient=bound.gradient / factor, slack=bound.slack / factor
        )
        missed = excess(problem, bound.policy, expansion.chances, bound.side, (scaled.moved, scaled.gradient))
        worst = float((np.maximum(missed[open_states], 0.0) / least[open_states]).max(initial=0.0))
        if worst <= 0.0:
            return scaled
        factor *= 1.0 + worst * (1.0 + OVERPAID) + ROUNDING
    return None


#: skip a side if even a bound without slack would gain less than this share of the gap
WORTHWHILE = 0.02
#: look for functions over cuts if the slack costs more than this share of the gap
CUT = 0.02
#: try n pieces of the region if the slack costs more than this share of the gap, over n: eight take as long as all else
SPLIT = 0.5


@dataclass(frozen=True, eq=False)
class CoupledBounds:
    """Bounds that hold for every parameter of the region."""

    lower: float  # −inf if nothing was proved
    upper: float  # inf if nothing was proved
    policy: Policy  # whose value the agent's own side bounds: the given one, or the best at the centre of the region
    gradient: np.ndarray  # (r,) of the policy's value at the initial state, in the coordinates x of the region
    problem: Problem
    expansion: ValueExpansion | StepExpansion  # of the policy, at the centre
    is_given: bool  # whether the policy was given
    proved: dict[Side, AffineBound] = field(default_factory=dict)  # affine bounds over the whole region, if found


@dataclass(frozen=True, eq=False)
class BoundTask:
    """One side to bound: of a policy's value, or of every policy's."""

    side: Side
    every_policy: bool
    policy: Policy  # whose value is bounded, or the start of the search for the best one
    first_order: float  # the bound of the whole region if it needed no slack: none is better

    @classmethod
    def of(
        cls, expansion: ValueExpansion | StepExpansion, region: Region, start: int, side: Side, every: bool
    ) -> BoundTask:
        value, sign = float(expansion.values[..., start].flat[-1]), side.value
        best = -sign * expansion.frame.minimum(region, -sign * value, -sign * slope_at(expansion, start))
        return cls(side, every, expansion.policy, best)


def slope_at(expansion: ValueExpansion | StepExpansion, state: int) -> np.ndarray:
    """(r,) the gradient of a state's value, with all steps to go."""
    return expansion.gradient[..., state, :].reshape(-1, expansion.frame.dimension)[-1]


def coupled_bounds(
    relaxation: Relaxation,
    region: Region,
    objective: Objective,
    policy: Policy | None,
    start: Policy,
    known: tuple[float, float] = (-np.inf, np.inf),
    pieces: int = 1,
    quick: bool = False,
) -> CoupledBounds | None:
    """Bounds on a policy's value, or, without one, on the value of a policy found here and on the optimum.

    relaxation : Rectangular, for the same region; determines where plays can be held
    start : start of the search for the best policy at the centre
    known : (float, float) bounds that hold already: a side is skipped unless it may improve
    pieces : the most pieces of the region to try on a side where the whole region falls short
    quick : whether functions over cuts, which take seconds, are left out
    """
    problem = Problem.of(relaxation, objective, Nature.ADVERSARIAL, None)
    if problem.task.decided[problem.pmdp.initial_state]:
        return None
    directions = varying_directions(problem, region)
    if directions is None:
        return None
    if objective.horizon is None and is_rectangular(relaxation, region):
        return _gradient_only(problem, region, policy, start)
    frame = frame_of(region, directions)
    if frame is None:
        return None
    expansion = expansion_of(problem, frame, policy, start)
    if expansion is None:
        return None
    give_back_memory(problem.pmdp.num_transitions)
    searches = Searches(AffineProof(problem, region), expansion)
    start_state, own, is_given = problem.pmdp.initial_state, Side.own(objective.sense), policy is not None
    every = [not is_given and side is not own for side in Side]
    tasks = [BoundTask.of(expansion, region, start_state, *pair) for pair in zip(Side, every)]
    found: dict[Side, float] = {}
    proved: dict[Side, AffineBound] = {}
    for task in sorted(tasks, key=lambda task: task.every_policy):
        found[task.side] = _over_whole_region(searches, task, known, is_given, quick, proved)
    count = affordable_pieces(pieces, problem.pmdp.num_transitions, objective.horizon)
    if count > 1:
        whole = max(known[0], found[Side.LOWER]), min(known[1], found[Side.UPPER])
        for task in tasks:
            bound = _in_pieces(problem, region, task, whole, pieces, count)
            found[task.side] = _tighter(task.side, found[task.side], bound)
    at_start = _in_region(frame, slope_at(expansion, start_state))
    ends = found[Side.LOWER], found[Side.UPPER]
    return CoupledBounds(*ends, expansion.policy, at_start, problem, expansion, is_given, proved)


def _over_whole_region(
    searches: Searches,
    task: BoundTask,
    known: tuple[float, float],
    is_given: bool,
    quick: bool,
    proved: dict[Side, AffineBound],
) -> float:
    """The bound of a side over the whole region; infinite if none was found, or none could improve on what is known.

    known, is_given, quick : as in `coupled_bounds`; ``is_given``: whether the policy was given
    proved : takes the affine bound, if one was found
    """
    proof, expansion, side = searches.proof, searches.expansion, task.side
    limit, gap = known[0] if side is Side.LOWER else known[1], known[1] - known[0]
    # Evaluate a given policy as sharply as one that was found here, whatever is known already.
    least = 0.0 if is_given else WORTHWHILE * gap
    hardly_improves = np.isfinite(gap) and side.value * (limit - task.first_order) <= least
    if hardly_improves and not isinstance(expansion, StepExpansion):
        return side.value * np.inf
    found = _noted(proved, proof, expansion, side, task.every_policy)
    found = _tighter(side, found, _in_box(proof, expansion, side, task.every_policy))
    so_far = _tighter(side, found, limit)
    if not quick and side.value * (so_far - task.first_order) > CUT * gap:
        found = _tighter(side, found, searches.bound(side, task.every_policy, so_far))
    return found


def varying_directions(problem: Problem, region: Region) -> np.ndarray | None:
    """(F, r) in which the model's expressions vary, in the coordinates of the region; None if there are too many."""
    if isinstance(region, ParameterRegion):
        return np.linalg.solve(region.frame.factor.T, region.forms.slope.T).T
    directions = problem.pmdp.table.reduction.weights
    return directions if isinstance(directions, np.ndarray) else None


def _in_region(frame: Frame, slope: np.ndarray) -> np.ndarray:
    """(r,) convert a gradient from the frame's coordinates to those of the region."""
    return np.linalg.solve(frame.factor.T, slope) / frame.radius


def is_rectangular(relaxation: Relaxation, region: Region) -> bool:
    """Whether one common parameter amounts to one choice per row, so that rectangular bounds are coupled ones.

    That holds for a product whose blocks each have one row of the model: nature's choices in two rows are independent,
    and without a horizon a constant choice is as good as a changing one. A relaxation that uses only the
    hull of a row may be looser than the region.
    """
    if not (isinstance(region, Product) and isinstance(relaxation, Rectangular)):
        return False
    blocks = factorisation(relaxation.pmdp)
    return blocks.describes(region) and bool((np.bincount(blocks.block_of_row + 1)[1:] <= 1).all())


def _gradient_only(problem: Problem, region: Region, policy: Policy | None, start: Policy) -> CoupledBounds | None:
    """The gradient alone, which attributes the gap: rectangular bounds cannot be improved."""
    low, high = region.box()
    expansion = expansion_of(problem, Frame((low + high) / 2, np.eye(len(low)), 1.0), policy, start)
    if expansion is None:
        return None
    slope = expansion.gradient[problem.pmdp.initial_state]
    return CoupledBounds(-np.inf, np.inf, expansion.policy, slope, problem, expansion, policy is not None)


def proved_bound(
    proof: AffineProof,
    expansion: ValueExpansion | StepExpansion,
    side: Side,
    every_policy: bool,
    everywhere: bool = False,
) -> AffineBound | None:
    """A bound that holds for every parameter of the region of the proof; None if none was found (`find_bound`)."""
    bound = find_bound(proof.problem, expansion, side, every_policy, everywhere)
    return None if bound is None or proof.issues(bound) else bound


def _noted(
    proved: dict[Side, AffineBound],
    proof: AffineProof,
    expansion: ValueExpansion | StepExpansion,
    side: Side,
    every_policy: bool,
) -> float:
    """The proved bound of the initial state, infinite if none was found; the bound itself is kept."""
    bound = proved_bound(proof, expansion, side, every_policy)
    if bound is None:
        return side.value * np.inf
    proved[side] = bound
    return bound.at(proof.region, proof.problem.pmdp.initial_state)


def _tighter(side: Side, one: float, other: float) -> float:
    return min(one, other) if side is Side.UPPER else max(one, other)


def _in_box(proof: AffineProof, expansion: ValueExpansion | StepExpansion, side: Side, every_policy: bool) -> float:
    """The bound of functions over the box of a sliced region, infinite if none was found.

    The ball around many coordinates is large in each of them: actions that are nearly as good as the best are
    compared at its far ends. The box has the intervals of single expressions.
    """
    if not isinstance(proof.region, Sliced):
        return side.value * np.inf
    frame, policy = BoxFrame.around(*proof.region.box(), is_reduced=True), expansion.policy
    found = expansion_of(proof.problem, frame, None if every_policy else policy, policy)
    bound = None if found is None else proved_bound(proof, found, side, every_policy)
    return side.value * np.inf if bound is None else bound.at(proof.region, proof.problem.pmdp.initial_state)


def _in_pieces(
    problem: Problem, region: Region, task: BoundTask, known: tuple[float, float], pieces: int, count: int
) -> float:
    """The bound of a side from boxes of the region, infinite if none was found or none is worth it.

    known : bounds of the whole region
    pieces, count : how many were asked for, and how many are affordable
    """
    side, every_policy, policy, start = task.side, task.every_policy, task.policy, problem.pmdp.initial_state
    gap, so_far = known[1] - known[0], known[1] if side is Side.UPPER else known[0]
    directions = varying_directions(problem, region)
    if (
        directions is None
        or not np.isfinite(gap)
        or not side.value * (so_far - task.first_order) > SPLIT / pieces * gap
    ):
        return side.value * np.inf

    def attempt(piece: Region, frame: BoxFrame) -> float:
        found = expansion_of(problem, frame, None if every_policy else policy, policy)
        bound = None if found is None else proved_bound(AffineProof(problem, piece), found, side, every_policy)
        return np.inf if bound is None else side.value * bound.at(piece, start)

    useless, first = side.value * so_far, side.value * task.first_order
    hopeless = hopeless_bound(first, useless, count, region.dimension)
    limits = {"least": GAINED * gap, "useless": useless, "hopeless": hopeless}
    return side.value * worst_of_boxes(region, directions, attempt, count, **limits)
