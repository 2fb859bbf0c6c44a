"""`certify` within limits: the best policy that is certified to keep them, and a bound on every policy that does.

All values are bounded over one confidence region, so any number of limits costs one δ (and no bets are placed, because
those favour one value).

1. *A policy.* The linear program over occupancies at the estimate (`occupancy`) gives one that is randomised in as few
   states as limits need. Thresholds are tightened until the certified bounds of the policy meet the limits.
2. *Every policy.* For multipliers λ ≥ 0 and a policy that keeps the limits V_k ≤ c_k, minimising,
   V ≥ V + Σ λ_k (V_k − c_k) ≥ min over all policies of V + Σ λ_k V_k, minus Σ λ_k c_k: one total (`combined`), bounded
   like any other. The program's multipliers are improved by a few steps.
3. *Dead ends.* A limit that no policy keeps at any parameter of the region is said to be impossible; one that no policy
   is certified to keep yet comes with an estimate of the further episodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from rpl_agent.core.coupled.regret import difference_above, same_policy
from rpl_agent.core.errors import ModelError, front_door, require_kind
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Limit, Objective, ParametricMDP, Policy, Sense
from rpl_agent.core.native.blas import one_blas_thread
from rpl_agent.core.native.memory import give_back_memory
from rpl_agent.core.regions.base import Region
from rpl_agent.core.relaxations.umdp import UncertainMDP
from rpl_agent.core.solver.problem import require_end
from rpl_agent.guarantee.certificate import Certificate, LimitClaim
from rpl_agent.guarantee.claims.combined import CombinedModel
from rpl_agent.guarantee.claims.occupancy import LimitedOptimum, OccupancyProgram
from rpl_agent.guarantee.pipeline import (
    Config,
    Solutions,
    Uncertainty,
    certify_uncertainty,
    rectangular_set,
    require_kinds,
    uncertainty_from,
)

#: Rounds in which thresholds are tightened until a policy keeps its limits, and in which they are loosened again.
TIGHTENED, LOOSENED = 12, 6
#: Relative amount by which thresholds move further than the bounds demand, so that rounding costs no further round.
MARGIN = 1e-4
#: Relative difference below which bounds that cross are equal up to rounding.
SAME = 1e-9
#: Factors by which multipliers are tried, one after the other, while a bound gains more than this share of its distance
#: from the optimum at the estimate. Where limits do not bind yet, multipliers would else creep towards 0.
FACTORS, GAINED = (1.5, 0.67, 1.15, 0.87), 2e-3


@front_door
def certify(
    pmdp: ParametricMDP | UncertainMDP,
    counts: Counts,
    objective: Objective | str,
    config: Config | None = None,
    *,
    policy: Policy | None = None,
    fixed_policy: bool = False,
    subject_to: Sequence[Limit | str] = (),
    warm: Solutions | None = None,
    **settings: Any,
) -> Certificate:
    """A certificate from counts, for a policy that keeps limits if any are given.

    Parameters
    ----------
    counts : those of an `UncertainMDP` are of its ``pmdp``; its bounds are known before any data
    policy : certify this policy; without one the robust policy is synthesised, so that the agent's side bounds its
        value and the other side the optimum
    fixed_policy : your word that ``policy`` was chosen before the data. Where every row is an unknown of its own, later
        visits of its rows then bound it much more tightly; a policy that these data suggested must not be given so
    subject_to : limits, such as "probability of fallen <= 0.05"; an objective may also name them itself
    warm : solutions carried between calls on the same model, updated in place
    settings : fields of ``config``, for example delta

    >>> import rpl_envs
    >>> world = rpl_envs.benchmark("Betting-25")
    >>> certificate = certify(world.pmdp, Counts(world.pmdp), "maximise money until done", delta=0.05)  # without data
    >>> print(f"{certificate.upper:.2f}")
    120.61
    """
    require_kinds(pmdp, counts, objective, config)
    goal = (Objective.parse(objective) if isinstance(objective, str) else objective).subject_to(*subject_to)
    config = replace(config or Config(), **settings)
    model = pmdp.pmdp if isinstance(pmdp, UncertainMDP) else pmdp
    require_end(model, goal.free.resolve(model))
    if policy is not None:
        require_kind("policy", policy, Policy)
        policy.require_fit(model)
    if fixed_policy and (policy is None or goal.limits):
        raise ModelError("fixed_policy says when a policy was chosen: give it with policy=, and without limits")
    if goal.limits:
        config = replace(config, bets=False)
    found = uncertainty_from(model, counts, config, goal.free)
    if goal.limits:
        certificate = certify_within(model, counts, found, goal, config, policy)
    else:
        certificate = certify_uncertainty(
            model, counts, found, goal, config, policy=policy, fixed_policy=fixed_policy, warm=warm
        )
    give_back_memory(model.num_transitions)
    return certificate


@one_blas_thread
def certify_within(
    pmdp: ParametricMDP,
    counts: Counts,
    found: Uncertainty,
    objective: Objective,
    config: Config,
    policy: Policy | None = None,
    reward_error: float = 0.0,
) -> Certificate:
    """`certify` for an objective with limits and a known uncertainty."""
    search = LimitSearch(pmdp, counts, found, objective, config, reward_error)
    best = search.judged(policy) if policy is not None else search.best()
    far, prices = search.far_side()
    value = best.value
    known = zip(objective.limits, best.limits, prices.tolist())
    claims = tuple(search.claim(limit, bounds, price) for limit, bounds, price in known)
    # where no policy keeps the limits, there is no best one of those that do to speak of
    alone = policy is not None or not all(claim.possible for claim in claims)
    lower, upper = (value.lower, far) if search.sense is Sense.MAX else (far, value.upper)
    if alone:
        lower, upper = value.lower, value.upper
    elif not best.keeps:  # such a policy may be better than all that keep the limits
        lower, upper = min(lower, value.lower), max(upper, value.upper)
    if lower > upper and math.isclose(lower, upper, rel_tol=SAME, abs_tol=SAME):  # rounding of equal numbers
        lower, upper = min(lower, upper), max(lower, upper)
    if not lower <= upper:
        raise ModelError(f"the bounds [{lower!r}, {upper!r}] contradict each other: this is a bug, please report it")
    return replace(
        value,
        objective=objective,
        lower=lower,
        upper=upper,
        evaluated=alone,
        limits=claims,
        regret=math.inf if alone else difference_above(upper, lower),  # among policies that keep them
        optimal=False,
        undecided=None,
    )


@dataclass(frozen=True, eq=False)
class JudgedPolicy:
    """A policy with certified bounds on all its values."""

    value: Certificate
    limits: tuple[tuple[float, float], ...]
    excess: np.ndarray  # (K − 1,) by how much the bound on each limit exceeds it; ≤ 0 if it is kept

    @property
    def keeps(self) -> bool:
        return bool((self.excess <= 0.0).all())

    @property
    def cost(self) -> float:
        """The guarantee; smaller is better."""
        sign = 1.0 if self.value.objective.sense is Sense.MIN else -1.0
        return sign * self.value.guarantee


class LimitSearch:
    """Policies within limits and bounds on all of them, over one region."""

    def __init__(
        self,
        pmdp: ParametricMDP,
        counts: Counts,
        found: Uncertainty,
        objective: Objective,
        config: Config,
        reward_error: float = 0.0,
    ) -> None:
        self.pmdp, self.counts, self.found, self.config = pmdp, counts, found, config
        self.goal, self.limits, self.sense = objective.free, objective.limits, objective.sense
        self.reward_error = reward_error
        self._judged: list[JudgedPolicy] = []
        self.combined = CombinedModel(pmdp, [self.goal, *(limit.objective for limit in self.limits)])
        self.thresholds = np.array([limit.threshold for limit in self.limits])
        self.upward = np.array([limit.upward for limit in self.limits])

    # ------------------------------------------------------------------ policies
    def _certified(self, objective: Objective, policy: Policy | None) -> Certificate:
        return certify_uncertainty(
            self.pmdp,
            self.counts,
            self.found,
            objective,
            self.config,
            policy=policy,
            reward_error=self.reward_error,
            with_regret=False,  # it would be about all policies, not about those that keep the limits
        )

    def judged(self, policy: Policy) -> JudgedPolicy:
        """Certified bounds on the value of a policy and on all its limits."""
        found = next((one for one in self._judged if same_policy(one.value.policy, policy)), None)
        if found is None:
            found = JudgedPolicy(self._certified(self.goal, policy), *self.limits_of(policy))
            self._judged.append(found)
        return found

    def limits_of(self, policy: Policy) -> tuple[tuple[tuple[float, float], ...], np.ndarray]:
        """(certified bounds on each limit of a policy, (K − 1,) by how much they exceed it)."""
        own = [self._certified(limit.objective, policy) for limit in self.limits]
        bounds = tuple((one.lower, one.upper) for one in own)
        excess = np.array(
            [
                high - limit.threshold if limit.upward else limit.threshold - low
                for limit, (low, high) in zip(self.limits, bounds)
            ]
        )
        return bounds, excess

    @cached_property
    def extremes(self) -> list[Certificate]:
        """For each limit alone: the policy that keeps it best, and the bound on what every policy has to bear."""
        return [self._certified(limit.objective, None) for limit in self.limits]

    @cached_property
    def program(self) -> OccupancyProgram | None:
        theta = self.found.estimate if self.pmdp.num_parameters else np.zeros(0)  # nothing to estimate
        if theta is None:
            return None
        return OccupancyProgram(self.combined, np.asarray(theta), self.sense, self.upward)

    @cached_property
    def _free(self) -> Certificate:
        """The certificate without the limits."""
        return self._certified(self.goal, None)

    @property
    def _elsewhere(self) -> Policy:
        return self._free.policy

    def best(self) -> JudgedPolicy:
        """The policy with the best guarantee among those that keep the limits; else the one that comes closest."""
        tried = [self.judged(self._elsewhere), *self._tightened()]  # the robust one may keep them by itself
        if not any(one.keeps for one in tried):
            tried += [self.judged(one.policy) for one in self.extremes]
        kept = [one for one in tried if one.keeps]
        if kept:
            return min(kept, key=lambda one: one.cost)
        return min(tried, key=lambda one: float(np.maximum(one.excess, 0.0).max()))

    def with_room(self) -> Policy | None:
        """The best policy certified to keep limits half-way from these to the tightest ones certified for any policy.

        None if there is none with a finite guarantee.
        """
        middle = [(limit.threshold + one.guarantee) / 2.0 for limit, one in zip(self.limits, self.extremes)]
        if not np.isfinite(middle).all():
            return None
        tighter = [replace(limit, threshold=float(c)) for limit, c in zip(self.limits, middle)]
        goal = self.goal.subject_to(*tighter)
        found = LimitSearch(self.pmdp, self.counts, self.found, goal, self.config, self.reward_error).best()
        return found.value.policy if found.keeps and math.isfinite(found.cost) else None

    def _tightened(self) -> Iterator[JudgedPolicy]:
        """Policies of the program with thresholds that are tightened until they keep the limits, then loosened."""
        if self.program is None:
            return
        shift, least, kept = np.zeros(len(self.limits)), np.zeros(len(self.limits)), False
        for _ in range(TIGHTENED):
            one = self._with_shift(shift)
            if one is None or not np.isfinite(one.excess).all():
                return
            yield one
            if one.keeps:
                kept = True
                break
            least, over = shift, np.maximum(one.excess, 0.0)
            shift = shift + np.where(one.excess > 0.0, over * (1.0 + MARGIN) + MARGIN * np.abs(self.thresholds), 0.0)
        for _ in range(LOOSENED if kept and shift.any() else 0):
            middle = (least + shift) / 2.0
            one = self._with_shift(middle)
            if one is None:
                return
            yield one
            shift, least = (middle, least) if one.keeps else (shift, middle)

    def _with_shift(self, shift: np.ndarray) -> JudgedPolicy | None:
        found = self._optimum(shift)
        return None if found is None else self.judged(found.policy)

    def _optimum(self, shift: np.ndarray) -> LimitedOptimum | None:
        """The optimum at the estimate with thresholds tightened by ``shift``."""
        if self.program is None:
            return None
        return self.program.solve(self.thresholds - np.where(self.upward, shift, -shift), self._elsewhere)

    # ------------------------------------------------------------------ every policy
    def far_side(self) -> tuple[float, np.ndarray]:
        """A bound on the value of every policy that keeps the limits, and the prices (K − 1,) of limits behind it."""
        sign, free = 1.0 if self.sense is Sense.MIN else -1.0, np.zeros(len(self.limits))
        best, found = sign * self._dual(free), self._optimum(free)
        if found is None or not found.multipliers.any():
            return sign * best, free
        prices, value = self._better(found.multipliers, sign, sign * float(found.values[0]))
        return (sign * value, prices) if value > best else (sign * best, free)

    def _better(self, prices: np.ndarray, sign: float, optimum: float) -> tuple[np.ndarray, float]:
        """Multipliers and their bound (larger is better), improved one multiplier after the other.

        optimum : at the estimate, which no bound is expected to pass
        """
        value = sign * self._dual(prices)
        for factor in FACTORS:
            for k in np.flatnonzero(prices):
                while True:
                    tried = prices.copy()
                    tried[k] *= factor
                    found = sign * self._dual(tried)
                    if not found > value + GAINED * abs(optimum - value):
                        break
                    prices, value = tried, found
        return prices, value

    @cached_property
    def _hull(self) -> tuple[np.ndarray, np.ndarray]:
        return hull_of(self.pmdp, self.found)

    def _dual(self, prices: np.ndarray) -> float:
        """The bound for multipliers λ ≥ 0; infinite if the total of gains and costs has none."""
        sign = 1.0 if self.sense is Sense.MIN else -1.0
        nothing = -sign * math.inf
        if not prices.any():
            return self._free.lower if sign > 0 else self._free.upper
        turn = np.where(self.upward, 1.0, -1.0)
        weights = np.concatenate([[1.0], sign * prices * turn])
        try:
            total = self.combined.weighted(weights, self.sense, self._hull)
            found = bounded(total.pmdp, total.objective, self.found, self.config, self.reward_error)
        except ModelError:  # gains and costs without a certain end
            return nothing
        bound = found.lower if sign > 0 else found.upper
        if not math.isfinite(bound):
            return nothing
        return total.less(bound, weights, np.concatenate([[0.0], self.thresholds]), self.sense)

    # ------------------------------------------------------------------ what is said
    def claim(self, limit: Limit, bounds: tuple[float, float], price: float = 0.0) -> LimitClaim:
        """What is known about a limit, for the policy with these bounds and for every policy."""
        extreme = self.extremes[self.limits.index(limit)]
        least = extreme.lower if limit.upward else extreme.upper
        possible = least <= limit.threshold if limit.upward else least >= limit.threshold
        kept = limit.kept_by(*bounds)
        more = None if kept or not possible else self._more_episodes(limit, extreme)
        return LimitClaim(limit, *bounds, kept, possible, least, more, price)

    def _more_episodes(self, limit: Limit, extreme: Certificate) -> int | None:
        """Further episodes until some policy is certified to keep a limit: widths shrink with the square root."""
        turn, episodes = (1.0 if limit.upward else -1.0), self.counts.episodes
        room = turn * (limit.threshold - extreme.estimate)
        width = turn * (extreme.guarantee - extreme.estimate)
        if not (room > 0.0 and math.isfinite(width)) or not episodes:
            return None
        return max(1, math.ceil(episodes * (width / room) ** 2 - episodes))


def hull_of(pmdp: ParametricMDP, found: Uncertainty) -> tuple[np.ndarray, np.ndarray]:
    """The least and the most of every expression (F,) over the region."""
    return rectangular_set(_region(found), pmdp).bounds()


def _region(found: Uncertainty) -> Region:
    if found.region is None or found.fallback is not None:
        raise ModelError("the set of the data is no region of parameters")
    return found.region


def bounded(
    pmdp: ParametricMDP, objective: Objective, found: Uncertainty, config: Config, reward_error: float = 0.0
) -> Certificate:
    """Bounds for a model over the region of another one with the same expressions."""
    require_end(pmdp, objective.resolve(pmdp))
    own = replace(found, relaxation=rectangular_set(_region(found), pmdp), timings={})
    return certify_uncertainty(pmdp, Counts(pmdp), own, objective, config, reward_error=reward_error, with_regret=False)
