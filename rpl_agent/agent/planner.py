"""The pipeline with a memory: each result warm-starts the next computation.

Two uses of one pipeline, as in the paper. `plan`: nature COOPERATIVE, the optimistic policy to sample with; called at
every update, so it solves only that side. `certificate`: nature ADVERSARIAL for the guarantee and COOPERATIVE for the
bound on the optimum; called at log points. They keep separate memories, so that certifying more or
less often does not change what is sampled.

An update that would hardly change the set is skipped: one state-action count going from 1 to 2 does not move a region
pooled from a million steps. The criterion is the Fisher information Σ_f K_f b_f b_f' / f² at the
last estimate: if it grew by less than a fraction `UNCHANGED` in every direction, widths shrink by at most half that.
With thousands of independent parameters the information on some always grows; there the total number of observations
has to grow by that fraction, so that updates are logarithmic in the data, whatever the number of parameters.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from rpl_agent.agent.exploration import Exploration
from rpl_agent.agent.exploration.goal import SamplingGoal
from rpl_agent.agent.exploration.optimism import Optimism, explore
from rpl_agent.agent.sampling.interrupt import interruptible
from rpl_agent.core.coupled.attribution import fisher_information, slopes
from rpl_agent.core.coupled.regret import Regret
from rpl_agent.core.errors import PrecisionWarning, RPLWarning
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.ledger import Ledger, refuting_log_e_value
from rpl_agent.core.model import Limit, Objective, ParametricMDP, Policy
from rpl_agent.core.native.blas import one_blas_thread
from rpl_agent.core.schema import Positive, Whole
from rpl_agent.guarantee.certificate import Certificate, PolicyBounds
from rpl_agent.guarantee.claims.limits import LimitSearch, certify_within
from rpl_agent.guarantee.likelihood.bets.slabs import bets_apply
from rpl_agent.guarantee.likelihood.refutation.alternatives import EMPTY, NO_DOUBT, Doubt, strongest
from rpl_agent.guarantee.pipeline import (
    Config,
    Solutions,
    Uncertainty,
    certify_uncertainty,
    regret_of,
    timed,
    uncertainty_from,
)

#: Stages that a run's time is divided into, in order; any other time in `certificate` counts as "region". Logging is
#: all that follows a certificate: tables, events, pictures, callbacks.
STAGES = ("sampling", "intervals", "region", "relaxation", "solve", "proof", "logging")
#: Growth of the information in every direction below which a set counts as unchanged.
UNCHANGED = 0.05


@dataclass(eq=False)
class Memory:
    """The part of a planner that checkpoints store, under the same names."""

    skipped: Whole = 0
    seconds: dict[str, Positive] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    evidence: Doubt = NO_DOUBT  # the strongest so far: a refuted model stays refuted
    estimate: np.ndarray | None = None  # (d,) warm start of the next update's point estimate
    seen: np.ndarray | None = None  # successes of unknown expressions at the last update
    optimistic: Optimism | None = None


class Planner(Memory):
    """Uncertainty, optimism and certificates for one model."""

    def __init__(self, pmdp: ParametricMDP, objective: Objective, config: Config, unchanged: float = UNCHANGED):
        super().__init__()
        self.pmdp, self.objective, self.config = pmdp, objective, config
        self.unchanged = unchanged
        self.informative: Policy | None = None  # what an exploration planned, if anything
        self.solutions = Solutions()
        self.uncertainty: Uncertainty | None = None  # of the last certificate, for figures and widths
        #: Whether certificates are based on bets, which need marks.
        self.bets = (config.confidence, config.relaxation) == ("likelihood", "coupled") and bets_apply(pmdp, objective)
        self._unknown = ~pmdp.table.is_constant
        self._warned: set[str | type[Warning]] = set()

    @interruptible
    @one_blas_thread
    def plan(
        self, counts: Counts, exploration: Exploration | None = None, goal: SamplingGoal | None = None
    ) -> Policy | None:
        """The optimistic policy for all data so far; None if nothing was learned since the last call.

        With an ``exploration`` and its ``goal``, also plan the policy of the other episodes.
        """
        seen = counts.successes[self._unknown]
        if self.seen is not None and not self._changed(seen):
            self.skipped += 1
            return None
        uncertainty = self._uncertainty(counts, self.estimate)
        with timed(self.seconds, "solve"), self._each_warning_once():
            self.optimistic = explore(uncertainty.relaxation, self.objective, self.optimistic)
            self.informative = None
            if exploration is not None and goal is not None:
                self.informative = exploration.plan(counts, uncertainty, self.objective, self.optimistic.policy, goal)
        self.estimate, self.seen = uncertainty.estimate, seen
        return self.optimistic.policy

    def _changed(self, seen: np.ndarray) -> bool:
        """Whether data (F',) of the unknown expressions would move the set since the last update."""
        assert self.seen is not None
        grown = seen - self.seen
        if not grown.any():
            return False
        if self.unchanged == 0.0 or self.estimate is None:
            return True
        if self.config.relaxation == "tied":  # one interval per expression: each has to be unchanged
            return bool((grown > self.unchanged * self.seen).any())
        weights = slopes(self.pmdp, self.estimate)
        if weights is None:  # thousands of blocks, of which some always grow: compare totals
            return bool(grown.sum() > self.unchanged * self.seen.sum())
        # grown < unchanged · seen in every direction: positive semidefinite
        amounts = np.zeros(self.pmdp.num_expressions)
        amounts[self._unknown] = self.unchanged * self.seen - grown
        matrix = fisher_information(self.pmdp, amounts, self.estimate)
        return bool(np.linalg.eigvalsh(matrix)[0] < 0.0)

    @interruptible
    def certificate(
        self, counts: Counts, reward_error: float = 0.0, subject_to: tuple[Limit, ...] = (), is_quick: bool = False
    ) -> Certificate:
        """The robust policy and its certificate for all data so far; within limits, if any, and then without bets."""
        if subject_to:
            self.uncertainty = self._uncertainty(counts, None)
            with self._each_warning_once():
                goal = self.objective.subject_to(*subject_to)
                return certify_within(self.pmdp, counts, self.uncertainty, goal, self.config, reward_error=reward_error)
        self.uncertainty = self._uncertainty(counts, None, self.objective)
        self.uncertainty.is_quick = is_quick
        with self._each_warning_once():
            certificate = certify_uncertainty(
                self.pmdp,
                counts,
                self.uncertainty,
                self.objective,
                self.config,
                warm=self.solutions,
                reward_error=reward_error,
            )
        self.seconds["solve"] += certificate.solve_seconds
        return certificate

    def limit_search(self, counts: Counts, reward_error: float, subject_to: tuple[Limit, ...]) -> LimitSearch:
        """Policies and bounds within limits, over the set of the last certificate."""
        assert self.uncertainty is not None
        goal = self.objective.subject_to(*subject_to)
        return LimitSearch(self.pmdp, counts, self.uncertainty, goal, self.config, reward_error)

    def regret_of(self, certificate: Certificate, reward_error: float) -> Regret:
        """The regret of a certificate's policy, perhaps an earlier one of the run, over the set of the last data."""
        assert self.uncertainty is not None
        with timed(self.seconds, "solve"):
            claim = PolicyBounds(certificate.lower, certificate.upper, certificate.policy)
            return regret_of(self.uncertainty, self.config, self.objective, claim, reward_error)

    def refute(self, kind: str, number: int = -1) -> None:
        """Treat the model as refuted from now on, for a reason that is not an alternative (see `Doubt`)."""
        refuted = refuting_log_e_value(Ledger.of(self.config.delta).take("refutation"))
        self.evidence = strongest(self.evidence, Doubt(max(refuted, self.evidence.log_e_value), kind, number))

    def _uncertainty(
        self, counts: Counts, estimate: np.ndarray | None, objective: Objective | None = None
    ) -> Uncertainty:
        with self._each_warning_once():
            uncertainty = uncertainty_from(
                self.pmdp, counts, self.config, objective, start=estimate, evidence=self.evidence
            )
        self.evidence = strongest(self.evidence, uncertainty.doubt)
        if uncertainty.empty and self.config.is_anytime:  # later sets rest on the same event, which has failed
            self.refute(EMPTY)
        for stage, seconds in uncertainty.timings.items():
            self.seconds[stage if stage in self.seconds else "region"] += seconds
        return uncertainty

    @contextmanager
    def _each_warning_once(self) -> Iterator[None]:
        """Show each kind of warning once per run; warnings with numbers have their own category.

        Nothing is lost: every certificate reports a fallback, an empty region and the solver's slack.
        """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", PrecisionWarning)  # the width is part of the bounds; `slack` reports it
            yield
        for warning in caught:
            kind = str(warning.message) if warning.category is RPLWarning else warning.category
            if kind not in self._warned:
                self._warned.add(kind)
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)

    def widths(self) -> dict[str, float]:
        """Widths of the last certificate's set, for region/*."""
        if self.uncertainty is None:
            return {}
        relaxation = self.uncertainty.relaxation  # its model has an expression per transition if sets are untied
        lower, upper = relaxation.bounds()
        width = (upper - lower)[~relaxation.pmdp.table.is_constant]
        found = {
            "region/width_mean": float(width.mean()) if len(width) else 0.0,
            "region/width_max": float(width.max(initial=0.0)),
            "region/log_e_value": float(self.uncertainty.log_e_value),
            "region/refuted": float(self.uncertainty.refuted),
            "region/empty": float(self.uncertainty.empty),
        }
        if self.uncertainty.region is not None and not self.uncertainty.empty:
            low, high = self.uncertainty.region.box()
            found["region/box_log10_volume"] = float(np.log10(np.maximum(high - low, 1e-300)).sum())
            found["region/box_width_max"] = float((high - low).max(initial=0.0))
        return found
