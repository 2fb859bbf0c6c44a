"""From counts to a certificate: the paper's Section 3, called by `claims.limits.certify`.

    counts ─► confidence set ─► region ─► relaxation ─► robust solver ─► certificate
              (evidence)       (where θ   (what nature    (adversarial: the guarantee,
                                can be)    may do)          cooperative: the bound on every policy)

Theorem 1 (the set contains the truth with probability ≥ 1 − δ, hence robust values bound true ones) is why the two
numbers of a certificate are bounds; Theorem 2 (inclusion hierarchy) orders the relaxations by tightness.

The life of the lower bound (the upper bound is its mirror image), in order:

1. `solver`: a value for every state, by one backward pass without cycles (`solve`); with them by `component`, or by
   one call of `core.solve_known` for a known model.
2. `solver.solution.finish`: the value of the initial state, minus the rounding of the objective's numbers.
3. `solver.proved`: `solver.check` proves the values independently of how they were found. What fails is widened by
   at most 1e-7 of itself, moved to its own image, solved once more without a warm start, and then dropped
   (`claiming_nothing`).
4. `certify_uncertainty`: of the robust solution if we maximise, of the optimistic one if we minimise.
5. `_better_bounds`: the maximum with the coupled bound. `coupled.bounds` proposes an affine value function,
   `coupled.affine` proves it, `regions.frame` takes its minimum over the region, or `coupled.pieces` over boxes of it.
6. `_with_bets_on_rows`: in untied models, the maximum with bets on rows and on later visits.
7. `certificate.with_margin`: a hair less, so that `proof` reaches the same number in rationals.
8. `best_so_far`: the maximum over the run, with its policy, for sets valid at all times.

`uncertainty_from` does the part that depends on the data only; `certify_uncertainty` adds the two solves. The agent
calls the same two functions: nature COOPERATIVE explores, nature ADVERSARIAL certifies.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from rpl_agent.core.coupled import CoupledBounds, coupled_bounds
from rpl_agent.core.coupled.regret import NOT_FOUND, Regret, difference_above, proved_regret, regret_with_error
from rpl_agent.core.errors import (
    DataError,
    ModelError,
    RefutedWarning,
    RepeatedChanceWarning,
    RPLWarning,
    front_door,
    require_count,
)
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.intervals import untied_intervals
from rpl_agent.core.evidence.ledger import Ledger, check_stated_delta, refuting_log_e_value
from rpl_agent.core.model import Objective, ParametricMDP, Policy, Sense, cached_on
from rpl_agent.core.native.blas import one_blas_thread
from rpl_agent.core.native.memory import give_back_memory
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.product import Product
from rpl_agent.core.regions.sliced import Sliced
from rpl_agent.core.relaxations.base import Relaxation, rows_feasible
from rpl_agent.core.relaxations.interval import Intervals, expression_wise, parameter_wise, tied, untied
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.core.relaxations.umdp import UncertainMDP
from rpl_agent.core.solver.graph import model_graph
from rpl_agent.core.solver.proved import Solutions as Solutions
from rpl_agent.core.solver.proved import checked_solutions
from rpl_agent.core.solver.proved import timed as timed
from rpl_agent.core.solver.solution import Solution
from rpl_agent.guarantee.certificate import Certificate, PolicyBounds, between_bounds, versions, with_margin
from rpl_agent.guarantee.checker import MOST_COORDINATES
from rpl_agent.guarantee.confidence import ConfidenceSet, confidence_set
from rpl_agent.guarantee.likelihood.bets.slabs import basis_of
from rpl_agent.guarantee.likelihood.estimate import point_estimate
from rpl_agent.guarantee.likelihood.refutation.alternatives import IN_TIME, NO_DOUBT, REPEATED, Doubt, strongest
from rpl_agent.guarantee.likelihood.refutation.misspecification import doubt
from rpl_agent.guarantee.shown import explained, note_on_edge, until_close, value_at_estimate
from rpl_agent.guarantee.untied.fixed import AskedPolicy, VisitBets, Visited
from rpl_agent.guarantee.untied.rows import RowBets, with_row_bets

PREFERENCES = ("guarantee", "regret")
#: What sound solvers leave between equal values, relative.
ROUNDING = 1e-11
#: Most rows of three or more successors to bound by one support query each.
QUERIED_ROWS = 500


@front_door
@dataclass(frozen=True)
class Config:
    """How to certify. The defaults are the tightest sound choice for every use.

    >>> Config(confidence="clopper-pearson").is_anytime
    False
    """

    confidence: str = "likelihood"
    relaxation: str = "coupled"
    delta: float = 1e-3  # probability that a bound is wrong, below 0.5
    precision: float = 1e-6
    pieces: int = 8  # coupled relaxation: the most pieces of the region on a side where the whole falls short
    bets: bool = True  # bet on the value; without bets, certificates for any number of objectives hold simultaneously
    prefer: str = "guarantee"  # the policy to return: with the best guarantee, or with the least "regret"

    def __post_init__(self) -> None:
        check_stated_delta(self.delta)
        confidence_set(self.confidence)
        if self.relaxation not in RELAXATIONS:
            raise ModelError(f"relaxation {self.relaxation!r} is not one of {RELAXATIONS}")
        if not isinstance(self.precision, float | int) or not 0 < self.precision < 1:
            raise ModelError(f"precision {self.precision!r} is not a number between 0 and 1")
        require_count("pieces", self.pieces)
        if not isinstance(self.bets, bool):
            raise ModelError(f"bets={self.bets!r} must be True or False")
        if self.prefer not in PREFERENCES:
            raise ModelError(f"prefer {self.prefer!r} is not one of {PREFERENCES}")

    @property
    def is_anytime(self) -> bool:
        return confidence_set(self.confidence).anytime

    @property
    def bets_on_rows(self) -> bool:
        """Whether rows of untied models are bet on, beside the set."""
        return self.bets and self.confidence == "likelihood" and self.relaxation in ("rectangular", "coupled")


@dataclass(eq=False)
class Uncertainty:
    """The result of the data: the relaxation for the solver, and its origin."""

    relaxation: Relaxation
    region: Region | None
    estimate: np.ndarray | None  # (d,) point estimate of θ, None if there is none
    doubt: Doubt  # the strongest evidence against the model
    refuted: bool
    empty: bool
    fallback: str | None
    basis: str = ""  # of the likelihood set, see `likelihood.bets.slabs.basis_of`; "rows" with bets on rows beside it
    rows: RowBets | None = None  # on the best value
    visits: VisitBets | None = None  # on that of a policy that was fixed at a mark
    timings: dict[str, float] = field(default_factory=dict)
    is_quick: bool = False  # whether searches that take seconds are left out: where there are many certificates

    @property
    def log_e_value(self) -> float:
        return self.doubt.log_e_value


# ---------------------------------------------------------------------- data → what nature may do
@one_blas_thread
def uncertainty_from(
    pmdp: ParametricMDP,
    counts: Counts,
    config: Config,
    objective: Objective | None = None,
    *,
    start: np.ndarray | None = None,
    evidence: Doubt = NO_DOUBT,
) -> Uncertainty:
    """The confidence set of the data, relaxed for the solver.

    ``objective`` is whose value will be bounded, chosen before the data: the set may be tight where that matters.
    ``start`` (d,) is an earlier estimate, from which the search for the new one starts. ``evidence`` is the
    strongest doubt about this data set so far: valid at all times simultaneously, so a refuted model stays refuted.
    """
    if counts.pmdp is not pmdp and counts.pmdp.content_hash != pmdp.content_hash:
        raise DataError("the counts belong to another model")
    by_rows = config.bets_on_rows and RowBets.apply(pmdp, objective)
    # a row-by-row relaxation loses the coupling of rows: only coupled bounds are worth a bet, and one kind of bet
    bet_on = objective if config.relaxation == "coupled" and config.bets and not by_rows else None
    ledger = Ledger.of_untied(config.delta) if by_rows else Ledger.of(config.delta)
    kind = confidence_set(config.confidence)
    timings: dict[str, float] = {}
    with timed(timings, "estimate"):
        estimate = point_estimate(pmdp, counts, start)
    with timed(timings, "e-value"):
        found = strongest(evidence, doubt(pmdp, counts, estimate))
    refuted = bool(found.log_e_value >= refuting_log_e_value(ledger.take("refutation")))
    basis = basis_of(pmdp, counts, bet_on) if config.confidence == "likelihood" else ""
    data = ConfidenceData(pmdp, counts, kind, ledger.take("main"), estimate, bet_on, timings)
    relaxation = None if refuted else RELAXERS[config.relaxation](data)
    empty, fallback = relaxation is None and not refuted, None
    if relaxation is None:
        reason = found.text(pmdp, counts) if refuted else "no parameter fits all constraints"
        changed = refuted and found.kind in (*IN_TIME, REPEATED)  # then untied intervals are as wrong as the model
        trusted = "the model's graph and no data" if changed else "untied intervals, which use only the model's graph"
        fallback = f"{reason}: bounds come from {trusted}"
        category = RepeatedChanceWarning if found.kind == REPEATED else RefutedWarning if refuted else RPLWarning
        warnings.warn(fallback, category, stacklevel=3)
        with timed(timings, "intervals"):
            known = Counts(pmdp) if changed else counts
            relaxation = untied(pmdp, *untied_intervals(pmdp, known, kind.untied, ledger.take("fallback")))
    rows, visits = None, None
    if by_rows and fallback is None and objective is not None:
        rows, basis = RowBets(pmdp, counts, objective, ledger.take("rows")), "rows"
        if VisitBets.apply(pmdp, objective):
            visits = VisitBets(pmdp, counts, objective, ledger.take("visits"))
    return Uncertainty(
        relaxation,
        data.known_region,
        estimate,
        doubt=found,
        refuted=refuted,
        empty=empty,
        fallback=fallback,
        basis=basis,
        rows=rows,
        visits=visits,
        timings=timings,
    )


@dataclass(eq=False)
class ConfidenceData:
    """The confidence set of the data at error ``delta``; intervals and region are built on demand."""

    pmdp: ParametricMDP
    counts: Counts
    kind: ConfidenceSet
    delta: float
    estimate: np.ndarray | None
    objective: Objective | None
    timings: dict[str, float]
    known_region: Region | None = None

    @cached_property
    def intervals(self) -> tuple[np.ndarray, np.ndarray]:
        with timed(self.timings, "intervals"):
            return self.kind.intervals(self.pmdp, self.counts, self.delta)

    @cached_property
    def region(self) -> Region:
        bounds = self.intervals if self.kind.region_of_intervals else None
        with timed(self.timings, "region"):
            data = (self.pmdp, self.counts, self.delta, self.estimate, bounds, self.objective)
            self.known_region = self.kind.region(*data)
        return self.known_region


def _tied(data: ConfidenceData) -> Relaxation | None:
    lower, upper = data.intervals
    with timed(data.timings, "relaxation"):
        return tied(data.pmdp, lower, upper) if rows_feasible(data.pmdp, lower, upper) else None


def rectangular_set(region: Region, pmdp: ParametricMDP) -> Relaxation:
    """What nature may do in each row of a model, for a region of its parameters."""
    region = region.product if isinstance(region, Sliced) else region  # a row knows of one block only
    found = Rectangular(pmdp, region)
    # Rows of three or more successors over a joint block, or over many coordinates, have no compiled form: each is a
    # query, in every sweep. Over a block of very many coordinates their ellipsoids take seconds, and gain nothing on
    # coupled bounds.
    slow = found.compiled() is None or (region.dimension > MOST_COORDINATES and not isinstance(region, Product))
    hull = slow and not _queries_pay(pmdp)
    return Intervals(pmdp, *found.bounds(), name="rectangular") if hull else found


def _queries_pay(pmdp: ParametricMDP) -> bool:
    """Whether to bound rows by one query each: one pass over not too many rows of a model without cycles.

    On cycles the interval hull of such rows is used instead. It is a few percent wider, but has compiled sweeps, and
    their engine closes the brackets of cyclic models, which matters more.
    """

    def decide(pmdp: ParametricMDP) -> bool:
        few = (np.diff(pmdp.row_ptr) > 2).sum() <= QUERIED_ROWS
        return bool(few) and model_graph(pmdp).forward_order(np.zeros(pmdp.num_states, bool)) is not None

    return cached_on(pmdp, "queried rows", decide)


def _of_region(relax: Callable[[Region, ParametricMDP], Relaxation], data: ConfidenceData) -> Relaxation | None:
    region = data.region
    with timed(data.timings, "relaxation"):
        return None if region.is_empty else relax(region, data.pmdp)


#: Relaxations by name; None if no parameter is left.
RELAXERS: dict[str, Callable[[ConfidenceData], Relaxation | None]] = {
    "tied": _tied,
    "parameter": partial(_of_region, parameter_wise),
    "expression": partial(_of_region, expression_wise),
    "rectangular": partial(_of_region, rectangular_set),
    "coupled": partial(_of_region, rectangular_set),  # and then better bounds for one common parameter, if any
}
RELAXATIONS = tuple(RELAXERS)


# ---------------------------------------------------------------------- what nature may do → bounds
def require_kinds(pmdp: Any, counts: Any, objective: Any, config: Any) -> None:
    """Raise unless these are a model, its counts, an objective and a config, in this order."""
    wanted = (
        (pmdp, (ParametricMDP, UncertainMDP)),
        (counts, (Counts,)),
        (objective, (Objective, str)),
        (Config() if config is None else config, (Config,)),
    )
    for given, kinds in wanted:
        if not isinstance(given, kinds):
            raise ModelError(
                f"certify(pmdp, counts, objective, config) got {type(given).__name__} in place of {kinds[0].__name__}"
            )


@one_blas_thread
def certify_uncertainty(
    pmdp: ParametricMDP,
    counts: Counts,
    uncertainty: Uncertainty,
    objective: Objective,
    config: Config,
    *,
    policy: Policy | None = None,
    fixed_policy: bool = False,
    warm: Solutions | None = None,
    reward_error: float = 0.0,
    with_regret: bool = True,
) -> Certificate:
    """The two solves of `certify`, for a given uncertainty; without ``with_regret`` the regret is just the gap.

    ``reward_error`` bounds the deviation of actual rewards from the model's, see `Objective.with_reward_error`.
    """
    warm = warm if warm is not None else Solutions()
    timings = dict(uncertainty.timings)
    task = objective.resolve(pmdp)
    share = reward_error if task.signed else 0.0  # which the solver counts (`Problem.of`), and coupled bounds cannot
    robust, optimistic = checked_solutions(
        uncertainty.relaxation, objective, policy, config.precision, warm, timings, share
    )
    warm.robust, warm.optimistic = robust, optimistic
    low, high = (robust, optimistic) if objective.sense is Sense.MAX else (optimistic, robust)
    lower, upper, chosen, found = low.lower, high.upper, robust.policy if policy is None else policy, None
    if _is_coupled(uncertainty, config) and not task.must_play_errors(reward_error) and not _is_closed(lower, upper):
        with timed(timings, "coupled"):
            lower, upper, chosen, found = _better_bounds(uncertainty, objective, config, policy, (lower, upper), chosen)
    with timed(timings, "rows"):
        asked, best = AskedPolicy(policy, fixed_policy, chosen), optimistic if policy is None else None
        lower, upper, chosen, visited = _with_bets_on_rows(uncertainty, objective, config, asked, (lower, upper), best)
    with timed(timings, "regret"):
        claim = PolicyBounds(lower, upper, chosen, is_given=policy is not None)
        regret = _regret(uncertainty, config, objective, found, claim, share) if with_regret else NOT_FOUND
        regret = regret_with_error(objective, regret, (lower, upper), reward_error - share)
    lower, upper = with_margin(objective, *objective.with_reward_error(lower, upper, reward_error - share))
    regret = regret if policy is not None else regret.at_most(difference_above(upper, lower))
    if not lower <= upper:  # bounds of one set cannot cross or be NaN: never report that
        raise ModelError(f"the bounds [{lower!r}, {upper!r}] contradict each other: this is a bug, please report it")
    with timed(timings, "solve"):
        estimate = value_at_estimate(pmdp, robust, chosen, uncertainty.estimate, config.precision, share)
        estimate = between_bounds(estimate, lower, upper, config.precision)
    return Certificate(
        lower=lower,
        upper=upper,
        delta=config.delta,
        objective=objective,
        policy=chosen,
        confidence=config.confidence,
        relaxation=config.relaxation,
        samples=counts.total,
        estimate=estimate,
        evaluated=policy is not None,
        regret=regret.most,
        optimal=regret.is_optimal,
        undecided=None if regret.undecided is None else len(regret.undecided),
        prefer=config.prefer,
        pieces=config.pieces,
        anytime=config.is_anytime,
        log_e_value=uncertainty.log_e_value,
        refuted=uncertainty.refuted,
        empty=uncertainty.empty,
        fallback=uncertainty.fallback,
        edge=note_on_edge(pmdp, counts),
        reward_error=reward_error,
        basis=uncertainty.basis,
        visits=visited,
        assumptions=() if pmdp.assumption is None else (pmdp.assumption,),
        model=pmdp.name,
        model_hash=pmdp.content_hash,
        timings=timings,
        slack=0.0 if objective.horizon is not None else max(robust.gap, optimistic.gap),
        iterations=robust.iterations + optimistic.iterations,
        versions=versions(),
        checked=True,
        episodes_for=until_close(regret.most, upper - lower, estimate, counts.episodes),
        **explained(pmdp, counts, uncertainty.region, uncertainty.estimate, found),
    )


def _with_bets_on_rows(
    uncertainty: Uncertainty,
    objective: Objective,
    config: Config,
    asked: AskedPolicy,
    known: tuple[float, float],
    best: Solution | None,
) -> tuple[float, float, Policy, Visited | None]:
    """Bounds with those of bets on rows and on later visits, which have shares of δ of their own.

    The results are bounds, the policy that they are about, and the visits if they made one of them.
    """
    visits, known = uncertainty.visits, with_row_bets(uncertainty.rows, objective, known, best)
    by_regret = asked.given is None and config.prefer == "regret"  # which visits do not compare
    if visits is None or visits.objective != objective or by_regret:
        return *known, asked.chosen, None
    return visits.improve(known, asked)


def _is_closed(lower: float, upper: float) -> bool:
    """Whether bounds differ by rounding alone, so that nothing is left to gain."""
    return 0.0 < upper - lower <= ROUNDING * max(1.0, abs(lower), abs(upper))


def _is_coupled(uncertainty: Uncertainty, config: Config) -> bool:
    """Whether bounds for one common parameter apply."""
    return config.relaxation == "coupled" and uncertainty.region is not None and uncertainty.fallback is None


@one_blas_thread
def regret_of(
    uncertainty: Uncertainty,
    config: Config,
    objective: Objective,
    claim: PolicyBounds,
    reward_error: float = 0.0,
) -> Regret:
    """The regret of any policy over an uncertainty."""
    region, relaxation = uncertainty.region, uncertainty.relaxation
    if region is None or not _is_coupled(uncertainty, config):
        return NOT_FOUND
    task = objective.resolve(relaxation.pmdp)
    if task.must_play_errors(reward_error):
        return NOT_FOUND
    found = coupled_bounds(relaxation, region, objective, None, claim.policy)
    regret = NOT_FOUND if found is None else proved_regret(found, region, claim.policy, math.inf)
    return regret_with_error(objective, regret, (claim.lower, claim.upper), reward_error)


def _regret(
    uncertainty: Uncertainty,
    config: Config,
    objective: Objective,
    found: CoupledBounds | None,
    claim: PolicyBounds,
    reward_error: float,
) -> Regret:
    """The most that any policy gains over that of a claim; not the gap."""
    gap, regret = difference_above(claim.upper, claim.lower), NOT_FOUND
    if found is not None and uncertainty.region is not None:
        # the gap of a given policy is one of its own value, and says nothing about better ones
        known = math.inf if claim.is_given else gap
        regret = proved_regret(found, uncertainty.region, claim.policy, known, config.pieces)
    if not claim.is_given or config.relaxation != "coupled" or regret.most <= gap:  # far below the next one
        return regret
    relaxation = uncertainty.relaxation
    _, best = checked_solutions(relaxation, objective, None, config.precision, Solutions(), {}, reward_error)
    apart = (best.upper, claim.lower) if objective.sense is Sense.MAX else (claim.upper, best.lower)
    return regret.at_most(difference_above(*apart))


def _better_bounds(
    uncertainty: Uncertainty,
    objective: Objective,
    config: Config,
    policy: Policy | None,
    known: tuple[float, float],
    chosen: Policy,
) -> tuple[float, float, Policy, CoupledBounds | None]:
    """The better of rectangular and coupled bounds on each side: both hold on the same event, so no δ is spent.

    Without a given policy the agent's own side bounds whichever policy has the better guarantee. The last result is
    what the coupled bounds were made of.
    """
    relaxation, region, (lower, upper) = uncertainty.relaxation, uncertainty.region, known
    assert region is not None
    give_back_memory(relaxation.pmdp.num_transitions)
    by_regret = config.prefer == "regret" and policy is None
    skipped = (-math.inf, math.inf) if by_regret else known  # both sides are needed to compare regrets
    found = coupled_bounds(relaxation, region, objective, policy, chosen, skipped, config.pieces, uncertainty.is_quick)
    if found is None:
        return lower, upper, chosen, None
    one, other = objective.resolve(relaxation.pmdp).outward(found.lower, found.upper)  # as `lower` and `upper` are
    better = one > lower if objective.sense is Sense.MAX else other < upper
    if by_regret:
        own = one if objective.sense is Sense.MAX else other  # not bounded where rectangular bounds are as good
        gap = difference_above(min(upper, other), max(lower, one))
        better = math.isfinite(own) and _has_less_regret(found, region, chosen, gap, config.pieces)
        mine = (one, other) if better else known  # the agent's own side bounds the policy
        one, lower = (mine[0], mine[0]) if objective.sense is Sense.MAX else (one, lower)
        other, upper = (mine[1], mine[1]) if objective.sense is Sense.MIN else (other, upper)
    low, high = max(lower, one), min(upper, other)
    if low > high:  # possible only if the region has missed the truth, or by rounding of equal bounds
        return *known, chosen, found
    return low, high, found.policy if better else chosen, found


def _has_less_regret(found: CoupledBounds, region: Region, chosen: Policy, gap: float, pieces: int) -> bool:
    """Whether the best policy at the centre of a region has less regret than another one, as `_regret` will find it."""
    one, other = (proved_regret(found, region, policy, gap, pieces).most for policy in (found.policy, chosen))
    return one < other
