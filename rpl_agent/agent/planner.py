"""The pipeline with a memory: what was computed last warm-starts the next computation.

Two uses of one call, as in the paper. `plan`: nature COOPERATIVE, the optimistic policy to sample with; called at
every update, so it solves only that side. `certify`: nature ADVERSARIAL for the guarantee and COOPERATIVE for the
bound on the optimum; called at log points. The two keep separate memories, so that looking at certificates more or
less often does not change what is sampled.
"""

from __future__ import annotations

import time
import warnings

import numpy as np

from rpl_agent.certificate import Certificate
from rpl_agent.certify import Config, Solutions, Uncertainty, certify_uncertainty, uncertainty
from rpl_agent.errors import RPLWarning
from rpl_agent.evidence.counts import Counts
from rpl_agent.model.objective import Nature, Objective
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.policy import Policy
from rpl_agent.solver import Solution, solve

#: Stages of an update, in the order they happen; anything else certify times is counted as "region".
STAGES = ("sampling", "intervals", "region", "relaxation", "solve")
#: The sampling policy needs no certified digits: any policy is a sound sampler.
EXPLORATION_PRECISION = 1e-3


class Planner:
    """Uncertainty, optimism and certificates for one model."""

    def __init__(self, pmdp: ParametricMDP, objective: Objective, config: Config):
        self.pmdp, self.objective, self.config = pmdp, objective, config
        self.optimistic: Solution | None = None
        self.solutions = Solutions()
        self.estimate: np.ndarray | None = None  # (d,) warm start of the next update's point estimate
        self.learned: Uncertainty | None = None  # of the last certificate, for figures and widths
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.skipped = 0
        self._unknown = ~pmdp.table.is_constant
        self._seen: np.ndarray | None = None  # successes of unknown expressions at the last update
        self._warned = False

    def plan(self, counts: Counts) -> Policy | None:
        """The optimistic policy for all data so far; None if nothing was learned since the last call."""
        seen = counts.successes[self._unknown]
        if self._seen is not None and np.array_equal(seen, self._seen):
            self.skipped += 1
            return None
        learned = self._uncertainty(counts, self.estimate)
        start = time.perf_counter()
        precision = max(self.config.precision, EXPLORATION_PRECISION)
        self.optimistic = solve(
            learned.relaxation, self.objective, Nature.COOPERATIVE, precision=precision, warm=self.optimistic
        )
        self.seconds["solve"] += time.perf_counter() - start
        self.estimate, self._seen = learned.estimate, seen
        return self.optimistic.policy

    def certify(self, counts: Counts) -> Certificate:
        """The robust policy and its certificate for all data so far."""
        self.learned = self._uncertainty(counts, None)
        certificate = certify_uncertainty(
            self.pmdp, counts, self.learned, self.objective, self.config, warm=self.solutions
        )
        self.seconds["solve"] += certificate.timings.get("solve", 0.0)
        return certificate

    def _uncertainty(self, counts: Counts, estimate: np.ndarray | None) -> Uncertainty:
        previous = None
        if estimate is not None:
            previous = Uncertainty(None, None, estimate, 0.0, False, False, None)  # type: ignore[arg-type]
        with warnings.catch_warnings():
            if self._warned:  # an empty or refuted set stands in every certificate and in region/*: one warning is enough
                warnings.simplefilter("ignore", RPLWarning)
            learned = uncertainty(self.pmdp, counts, self.config, previous=previous)
        self._warned = self._warned or learned.fallback is not None
        for stage, seconds in learned.timings.items():
            self.seconds[stage if stage in self.seconds else "region"] += seconds
        return learned

    def widths(self) -> dict[str, float]:
        """Figures of the last certificate's set, for region/*."""
        if self.learned is None:
            return {}
        lower, upper = self.learned.relaxation.bounds()
        width = (upper - lower)[self._unknown] if len(upper) == len(self._unknown) else upper - lower
        found = {
            "region/width_mean": float(width.mean()) if len(width) else 0.0,
            "region/width_max": float(width.max(initial=0.0)),
            "region/log_e_value": float(self.learned.log_e_value),
            "region/refuted": float(self.learned.refuted),
            "region/empty": float(self.learned.empty),
        }
        if self.learned.region is not None and not self.learned.empty:
            low, high = self.learned.region.box()
            found["region/box_log10_volume"] = float(np.log10(np.maximum(high - low, 1e-300)).sum())
            found["region/box_width_max"] = float((high - low).max(initial=0.0))
        return found
