"""`improve` finds a policy that is better than the one in use, and certifies by how much at least.

The values of the policy and of a given baseline are bounded over one confidence region: at a common parameter
(`coupled.difference`), or each at its own worst parameter, whichever proves more. All bounds hold on the event of this
region, for all policies, so choosing the policy from the same data costs nothing. No propensities are needed: the log
may come from any policy, or from several, because its transitions alone say what the parameters are.

An unknown baseline is the policy that made the log. With "log", a confidence sequence bounds the mean of the log's own
returns without the model. It gets a share of δ, and needs complete episodes of one policy. With "frequencies", the
baseline's action frequencies are unknowns as well (see `frequencies`): its choices have to depend on the state alone.

Nothing is bet on the improvement. Payoffs along its gradient at the estimate of each mark would be valid, but with few
data that gradient turns from mark to mark. Over several blocks, the functions that prove an improvement lose far more
than the set does: even a slab along the true gradient hardly helps them. `guarantee.proof` proves an improvement over a
given baseline for the checker: over the whole region or, where data are few, over pieces of it, by products of its
cuts, or by these in pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rpl_agent.core.coupled.difference import Comparison, ValueDifference
from rpl_agent.core.coupled.products.pieces import Progress
from rpl_agent.core.errors import DataError, ModelError, front_door
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.ledger import POLICY_SHARE, split_paths
from rpl_agent.core.model import Objective, ParametricMDP, Policy, Sense
from rpl_agent.core.native.blas import one_blas_thread
from rpl_agent.core.printed import chance_text, floor_text, interval_text
from rpl_agent.core.schema import Count, jsonable, read_document, write_document
from rpl_agent.core.solver.problem import require_end
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.claims.candidates import candidates, same_policy
from rpl_agent.guarantee.claims.frequencies import logged_baseline
from rpl_agent.guarantee.likelihood.bets.mean import mean_interval
from rpl_agent.guarantee.pipeline import Config, Uncertainty, certify_uncertainty, uncertainty_from

Item = TypeVar("Item")

FORMAT = "rpl-improvement/2"
#: Bounds on a log's mean are planned for these widths, as shares of the range of returns. Plans must not use the number
#: of episodes: data may have decided it.
WIDTHS = (2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-10)
#: Pieces of the region to try where the whole falls short, unless more are configured.
PIECES = 8
#: If at most this share of the estimate is certified, this many times as many pieces of the region are tried. They are
#: of no help if, to first order, the gain falls over the region by this multiple of itself or more.
ENOUGH, MORE_PIECES, HOPELESS = 0.5, 4, 2.0
#: Most policies for which other functions are searched.
SEARCHED = 2
#: How the improvement was bounded.
COMMON, APART, RETURNS = "a common parameter", "two certificates", "the returns of the log"
#: What is known of the baseline.
GIVEN, UNKNOWN = "its policy is given", "unknown: from the returns of the log"
FREQUENCIES = "unknown: its action frequencies are unknowns too, and depend on the state alone"
#: Why the checker proves nothing about an unknown baseline.
NOT_COVERED = {
    UNKNOWN: "the checker does not cover the returns of a log, which bound the unknown baseline",
    FREQUENCIES: "the checker does not cover action frequencies, which stand for the unknown baseline",
}
#: What a proof would need.
NOT_PROVED = "computed, not proved by the checker: --output FILE.json writes a proof"


@dataclass(frozen=True, eq=False)
class LogReturns:
    """Returns of the episodes of a log, each between two numbers that differ if the episode was cut.

    >>> import numpy as np
    >>> wins = 1.0 * (np.arange(1000) % 2)
    >>> low, high = LogReturns(wins, wins, (0.0, 1.0)).mean(0.05)
    >>> 0.4 < low < 0.5 < high < 0.6
    True
    """

    least: np.ndarray  # (n,)
    most: np.ndarray  # (n,)
    bounds: tuple[float, float]  # between which every return lies, whatever happens
    fixed_length: bool = False  # whether the number of episodes was fixed before the data
    stated: bool = True  # whether the bounds are the user's word; False: the model's own

    @property
    def assumption(self) -> str | None:
        """What is taken for granted."""
        low, high = self.bounds
        return f"it is stated, not proved, that an episode returns {low:.6g} to {high:.6g}" if self.stated else None

    def mean(self, delta: float) -> tuple[float, float]:
        """Bounds on the mean return, with probability ≥ 1 − delta."""
        low, high = self.bounds
        if not (math.isfinite(low) and math.isfinite(high)):
            raise DataError(
                "an unknown baseline needs bounded returns, but plays of the model can earn without bound: "
                "give returns=(LO, HI), a discount, or a horizon"
            )
        ends = []
        plans = [None] if self.fixed_length else [share * (high - low) for share in WIDTHS]
        for width in plans:
            lower = mean_interval(self.least, low, high, delta / len(plans), width)[0]
            upper = mean_interval(self.most, low, high, delta / len(plans), width)[1]
            ends.append((lower, upper))
        return max(lower for lower, _ in ends), min(upper for _, upper in ends)


@dataclass(frozen=True, eq=False)
class Improvement:
    """With probability ≥ 1 − delta over the data, all at once:

    the policy is better than the baseline by at least ``lower`` and at most ``upper``; its value lies in ``value``,
    that of the baseline in ``baseline_value``. Better means larger when maximising and smaller when minimising.

    >>> import rpl_envs
    >>> world = rpl_envs.benchmark("Betting-25")
    >>> found = improve(world.pmdp, Counts(world.pmdp), world.objective, Policy.uniform(world.pmdp))  # without data
    >>> found.improves, found.episodes
    (False, 0)
    """

    objective: Objective
    policy: Policy
    baseline: Policy | None  # None: whoever made the log
    lower: float
    upper: float
    value: tuple[float, float]
    baseline_value: tuple[float, float]
    delta: float
    chosen: str  # which candidate the policy is
    method: str  # how the improvement was bounded
    estimate: float  # of the improvement, at the point estimate; not a guarantee
    samples: int
    episodes: int
    more_episodes: int | None = None  # estimate: further episodes until an improvement is proved; None if never
    model: str = ""
    model_hash: str = ""
    confidence: str = "likelihood"
    relaxation: str = "coupled"
    pieces: Count = 8  # the most pieces of the region that values were bounded in
    basis: str = ""  # of a likelihood set: "windows" alone, or a "table" of counts without order
    fallback: str | None = None  # what was used instead of the configured set, and why
    returns: tuple[float, float] | None = None  # of an unknown baseline: the least and the most of an episode
    notes: tuple[str, ...] = ()
    proved: bool = False  # `rpl_agent.guarantee.checker` proves exactly these numbers, from the file beside this one
    unproved: str = NOT_PROVED  # why not
    known: str = GIVEN  # what is known of the baseline

    @property
    def improves(self) -> bool:
        """Whether the policy is certified to be better than the baseline."""
        return self.lower > 0.0

    @property
    def sentence(self) -> str:
        if self.improves:
            return f"the policy is better than the baseline by at least {floor_text(self.lower)}"
        if self.upper < 0.0:
            return f"the policy is worse than the baseline by at least {floor_text(-self.upper)}"
        return f"no improvement is certified yet: the policy gains at least {floor_text(self.lower)}"

    @property
    def outlook(self) -> str:
        """What more data would do, as an estimate."""
        if self.improves:
            return ""
        if self.more_episodes is None:
            return "estimate: the data so far show no improvement to be certified"
        return f"estimate: about {self.more_episodes:,} more episodes certify one"

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; infinities as the strings "inf" and "-inf"."""
        return {"format": FORMAT, **jsonable(self), "improves": self.improves, "sentence": self.sentence}

    def to_json(self, path: str | Path | None = None) -> str:
        """The JSON text, also written to a file if there is a path."""
        return write_document(self.to_dict(), path)

    @classmethod
    def from_json(cls, source: str | Path) -> Improvement:
        """From a JSON text or a file."""
        return read_document(source, cls, FORMAT, "improvement")

    def __str__(self) -> str:
        (low, high), (first, last) = self.value, self.baseline_value
        lines = [
            f"{self.objective.describe()}  on {self.model}",
            f"  with probability ≥ {chance_text(self.delta)}: {self.sentence}",
            f"  improvement in {interval_text(self.lower, self.upper)}, by {self.method}; estimate {self.estimate:.6g}",
            f"  policy ({self.chosen}): value in {interval_text(low, high)}",
            f"  baseline ({self.known}): value in {interval_text(first, last)}",
            f"  from {self.samples:,} transitions, {self.episodes:,} episodes; no propensities, no bets",
        ]
        lines += [f"  {self.outlook}"] if self.outlook else []
        proof = "  proved: rpl_agent/guarantee/checker.py checks these numbers, from the proof beside the file"
        lines.append(proof if self.proved else f"  NOTE: {self.unproved}")
        return "\n".join([*lines, *(f"  NOTE: {note}" for note in self.notes)])


@one_blas_thread
@front_door
def improve(
    pmdp: ParametricMDP,
    counts: Counts,
    objective: Objective | str,
    baseline: Policy | str,
    policy: Policy | None = None,
    config: Config | None = None,
    *,
    returns: LogReturns | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Improvement:
    """A policy and how much better it is than a baseline.

    Parameters
    ----------
    baseline : the policy in use; or the unknown one that made the log: "log", by these ``returns``, or "frequencies",
        by how often it took which action (its choices then have to depend on the state alone)
    policy : the policy to compare; by default the one with the largest certified improvement among several
    returns : of the log, for an unknown baseline (`rpl_agent.log_returns`)
    progress : called with the number of policies and pieces of the region that were compared, and of all so far
    settings : fields of ``config``, for example delta

    >>> toss = lambda s: {"safe": {1: "0.5", 2: "0.5"}, "bold": {1: "p", 2: "1 - p"}} if s == 0 else {"stay": {s: 1}}
    >>> model = build(0, toss, domain=["p"], labels={"won": lambda s: s == 1})
    >>> counts = Counts(model)
    >>> for k in range(400):  # bold wins nine times of ten
    ...     counts.add(0, 1, 1 if k % 10 else 2)
    >>> found = improve(model, counts, "maximise probability of won", Policy.from_table(model, [(0, "safe", 1)]))
    >>> found.improves, 0.2 < found.lower < 0.4
    (True, True)
    """
    config = replace(config or Config(), **{**settings, "bets": False})
    objective = Objective.parse(objective) if isinstance(objective, str) else objective
    require_end(pmdp, objective.resolve(pmdp))
    if baseline == "frequencies":
        return _by_frequencies(pmdp, counts, objective, policy, config, progress)
    given, model_delta, log_delta = _baseline(pmdp, baseline, returns, config.delta)
    for known in (given, policy):
        if known is not None:
            known.require_fit(pmdp)
    inner = replace(config, delta=model_delta)
    # searches that take seconds are for gains, not for the values of all candidates
    found = replace(uncertainty_from(pmdp, counts, inner, objective), is_quick=True)
    comparing = _Comparing(pmdp, counts, objective, inner, found, given)
    if given is None:
        assert returns is not None
        comparing.baseline_value = returns.mean(log_delta)
    if policy is not None:
        asked = {"the given one": policy}
    else:
        asked = dict(candidates(pmdp, counts, objective, inner, found, given))
    compared = list(_reported(comparing.all_of(asked), len(asked), progress))

    def split(pieces: int, most: int) -> None:
        if progress is not None:
            progress(len(asked) + pieces, len(asked) + most)

    best = comparing.best_of(compared, split)
    fixed = None if config.is_anytime else "fixed-N only: not valid if data decided how much data there is"
    notes = tuple(note for note in (found.fallback, fixed, pmdp.assumption) if note)
    best = replace(best, delta=config.delta, notes=notes)
    if given is not None:
        return best
    assert returns is not None
    notes += () if returns.assumption is None else (returns.assumption,)
    return replace(best, returns=returns.bounds, known=UNKNOWN, unproved=NOT_COVERED[UNKNOWN], notes=notes)


def _by_frequencies(
    pmdp: ParametricMDP,
    counts: Counts,
    objective: Objective,
    policy: Policy | None,
    config: Config,
    progress: Progress | None,
) -> Improvement:
    """The improvement on the log's own policy, in the larger model that has its action frequencies as parameters."""
    larger = logged_baseline(pmdp, counts, objective)
    if policy is not None:
        policy.require_fit(pmdp)
        asked = {"the given one": policy}
    else:
        asked = dict(
            candidates(pmdp, counts, objective, config, uncertainty_from(pmdp, counts, config, objective), None)
        )
    own = {
        name: improve(larger.pmdp, larger.counts, objective, larger.policy, larger.lifted(one), config)
        for name, one in _reported(asked.items(), len(asked), progress)
    }
    chosen = max(own, key=lambda name: (own[name].lower, own[name].estimate))
    return replace(
        own[chosen],
        policy=asked[chosen],
        baseline=None,
        chosen=chosen,
        model=pmdp.name,
        model_hash=pmdp.content_hash,
        samples=counts.total,
        episodes=counts.episodes,
        known=FREQUENCIES,
        unproved=NOT_COVERED[FREQUENCIES],
    )


def _reported(items: Iterable[Item], number: int, progress: Progress | None) -> Iterator[Item]:
    """The items, each reported when the next one is asked for."""
    for done, item in enumerate(items, 1):
        yield item
        if progress is not None:
            progress(done, number)


def _baseline(
    pmdp: ParametricMDP, baseline: Policy | str, returns: LogReturns | None, delta: float
) -> tuple[Policy | None, float, float]:
    """(the baseline's policy or None, δ of the model, δ of the log's returns)."""
    if isinstance(baseline, Policy):
        return baseline, delta, 0.0
    if baseline != "log":
        raise ModelError(f'the baseline {baseline!r} is neither a Policy nor "log" nor "frequencies"')
    if returns is None:
        raise ModelError('baseline="log" needs the returns of the log: returns=log_returns(pmdp, LOG, objective)')
    if not len(returns.least):
        raise DataError("the log has no episode from its beginning on: an unknown baseline needs some")
    return None, *split_paths(delta, POLICY_SHARE)


@dataclass
class _Comparing:
    """Compares candidates with one baseline, over one region."""

    pmdp: ParametricMDP
    counts: Counts
    objective: Objective
    config: Config
    found: Uncertainty
    baseline: Policy | None
    baseline_value: tuple[float, float] | None = None
    _common: dict[str, ValueDifference] = field(default_factory=dict)  # by candidate, at a common parameter

    @property
    def pieces(self) -> int:
        return max(self.config.pieces, PIECES)

    def all_of(self, policies: dict[str, Policy]) -> Iterator[Improvement]:
        if self.baseline is not None:
            own = self._certified(self.baseline)
            self.baseline_value, self._estimate = (own.lower, own.upper), own.estimate
        else:
            assert self.baseline_value is not None
            self._estimate = sum(self.baseline_value) / 2.0
        for name, policy in policies.items():
            yield self._one(name, policy)

    def best_of(self, found: list[Improvement], progress: Progress) -> Improvement:
        """The largest improvement, after a search for other functions for the most promising policies.

        progress : is told of the pieces of the region, where it is split
        """
        best = first = self._refined(max(found, key=lambda one: (one.lower, one.estimate)))
        for likely in sorted(found, key=lambda one: -self._common[one.chosen].attained)[:SEARCHED]:
            enough = max(best.lower, 0.0)
            if not self._common[likely.chosen].attained > enough:
                break
            again = self._gain(likely.policy, 1, beyond=enough)
            if again.lower > enough:
                best = replace(likely, lower=again.lower, method=COMMON, more_episodes=0)
        if not best.improves:
            best = self._by_events(found, best, progress)
        if best is first:
            return best
        compared = self._compared(best.policy)
        return best if compared is None else replace(best, upper=min(best.upper, compared.upper()))

    def _by_events(self, found: list[Improvement], best: Improvement, progress: Progress) -> Improvement:
        """The improvement of the most promising policy, by pieces of the region that are split by events."""
        likely = max(found, key=lambda one: self._common[one.chosen].attained)
        compared = self._compared(likely.policy)
        if compared is None or not self._common[likely.chosen].attained > 0.0:
            return best
        lower = compared.lower_by_events(0.0, progress)
        return replace(likely, lower=lower, method=COMMON, more_episodes=0) if lower > 0.0 else best

    def _refined(self, best: Improvement) -> Improvement:
        """The improvement, by more pieces of the region where these may prove more."""
        if best.method != COMMON and self.config.pieces < self.pieces:  # values in pieces as well
            finer = replace(self, config=replace(self.config, pieces=self.pieces))
            return max(*finer.all_of({best.chosen: best.policy}), best, key=lambda one: one.lower)
        first = self._common[best.chosen]
        short = (
            best.method == COMMON and first.spread < HOPELESS * first.center and best.lower <= ENOUGH * best.estimate
        )
        again = self._gain(best.policy, MORE_PIECES * self.pieces if short else 1, self.pieces)
        best = replace(best, upper=min(best.upper, again.upper))
        if not again.lower > best.lower:
            return best
        more = more_episodes(best.episodes, again.lower, again.spread, again.center)
        return replace(best, lower=again.lower, more_episodes=more)

    def _certified(self, policy: Policy) -> Certificate:
        return certify_uncertainty(
            self.pmdp, self.counts, self.found, self.objective, self.config, policy=policy, with_regret=False
        )

    def _one(self, name: str, policy: Policy) -> Improvement:
        assert self.baseline_value is not None
        own = self._certified(policy)
        low, high = own.lower, own.upper
        first, last = self.baseline_value
        sign = 1.0 if self.objective.sense is Sense.MAX else -1.0
        apart = (_below(low, last), -_below(-high, -first)) if sign > 0 else (_below(first, high), -_below(-last, -low))
        common = self._common[name] = self._gain(policy, self.pieces)
        lower, upper = max(apart[0], common.lower), min(apart[1], common.upper)
        method = COMMON if common.lower > apart[0] else APART if self.baseline is not None else RETURNS
        gain = own.estimate - self._estimate if sign > 0 else self._estimate - own.estimate
        episodes = self.counts.episodes
        widths = (common.spread, common.center) if method == COMMON else (math.nan, gain)
        return Improvement(
            objective=self.objective,
            policy=policy,
            baseline=self.baseline,
            lower=lower,
            upper=upper,
            value=(low, high),
            baseline_value=self.baseline_value,
            delta=self.config.delta,
            chosen=name,
            method=method,
            estimate=gain,
            samples=self.counts.total,
            episodes=episodes,
            more_episodes=more_episodes(episodes, lower, *widths),
            model=self.pmdp.name,
            model_hash=self.pmdp.content_hash,
            confidence=self.config.confidence,
            relaxation=self.config.relaxation,
            pieces=self.config.pieces,
            basis=self.found.basis,
            fallback=self.found.fallback,
        )

    def _gain(self, policy: Policy, pieces: int, above: int = 1, beyond: float = math.inf) -> ValueDifference:
        """Bounds on the improvement at a common parameter; infinite if the set has no region.

        pieces, above : of the region, for the lower and for the upper bound
        beyond : search other functions for a larger lower bound than this (`Comparison.bounds`)
        """
        if self.baseline is not None and same_policy(policy, self.baseline):
            return ValueDifference(0.0, 0.0, 0.0, 0.0)
        compared = self._compared(policy)
        return ValueDifference(-math.inf, math.inf) if compared is None else compared.bounds(pieces, above, beyond)

    def _compared(self, policy: Policy) -> Comparison | None:
        """The comparison with the baseline, where larger is better; None if the baseline or the region is unknown."""
        found = self.found
        one_region = self.config.relaxation == "coupled" and found.region is not None and found.fallback is None
        if self.baseline is None or not one_region:
            return None
        assert found.region is not None
        pair = (policy, self.baseline) if self.objective.sense is Sense.MAX else (self.baseline, policy)
        return Comparison(found.relaxation, found.region, self.objective, *pair)


def _below(first: float, second: float) -> float:
    """first − second, rounded down; −inf if it is NaN."""
    found = first - second
    if math.isnan(found):
        return -math.inf
    is_exact = math.isinf(first) or math.isinf(second)
    return found if is_exact else math.nextafter(found, -math.inf)


def more_episodes(episodes: int, lower: float, spread: float, gain: float) -> int | None:
    """Estimate how many more episodes make the lower bound on a gain positive: 0 if it is, None if they never will.

    The bound falls short of the gain by two parts. The first (``spread``; if NaN, the whole shortfall) shrinks with the
    square root of the data; the second, of second order, shrinks with the data.
    """
    if lower > 0.0:
        return 0
    short = gain - lower
    if not (gain > 0.0 and math.isfinite(short)) or not episodes:
        return None
    first = min(max(spread, 0.0), short) if math.isfinite(spread) else short
    second = short - first
    root = math.sqrt(first * first + 4.0 * second * gain)
    share = (2.0 * gain) / (first + root)  # the root x > 0 of second x² + first x = gain, without cancellation
    needed = episodes / share**2 if share**2 > 0.0 else math.inf
    return max(1, math.ceil((needed - episodes) * (1.0 - 1e-9))) if math.isfinite(needed) else None
