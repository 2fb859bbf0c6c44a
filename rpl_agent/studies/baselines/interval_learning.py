"""Learning interval MDPs: optimism and robustness over one interval per transition, tied or not.

The paper's baseline P_I and the classical method before it: no parameter space, only intervals. With ``tied``, equal
expressions share one interval (their counts are pooled); without, every transition has its own and only
the support graph is used.
"""

from __future__ import annotations

from typing import Any, ClassVar

from rpl_agent.core.errors import ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.intervals import METHODS, confidence_intervals, untied_intervals
from rpl_agent.core.model import Nature, Policy
from rpl_agent.core.relaxations.interval import Intervals, untied_model
from rpl_agent.core.relaxations.interval import tied as tied_relaxation
from rpl_agent.core.solver import Solution, solve
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.likelihood.refutation.alternatives import NO_DOUBT
from rpl_agent.guarantee.pipeline import Config, Solutions, Uncertainty, certify_uncertainty
from rpl_agent.studies.baselines.planning import ModelBased

#: The sampling policy needs no certified digits.
EXPLORATION_PRECISION = 1e-3


class IntervalLearning(ModelBased):
    """Sample with the optimistic policy of the interval MDP (0.9 on its action), end with the robust one.

    tied : pool equal expressions (the paper's P_I); otherwise one interval per transition.
    method : "anytime" (default; valid online), "clopper-pearson" (the paper's; fixed-N only) or "hoeffding".
    delta : error probability of the certificate.
    weight : probability of the optimistic action while sampling.

    Solves are warm-started, so a run resumed from a file draws the same law but not the same bits.
    """

    name: ClassVar[str] = "interval"

    def __init__(
        self,
        *,
        tied: bool = True,
        method: str = "anytime",
        delta: float = 1e-3,
        weight: float = 0.9,
        **common: Any,
    ):
        super().__init__(**common)
        if method not in METHODS:
            raise ModelError(f"interval method {method!r} is not one of {METHODS}")
        self.tied, self.method, self.delta, self.weight = tied, method, delta, weight
        self.config = Config(confidence=method, relaxation="tied", delta=delta)
        self._robust: tuple[int, Certificate] | None = None
        self._optimistic: Solution | None = None
        self._warm = Solutions()

    def _reset(self) -> None:
        super()._reset()
        if not self.tied:
            self._untied = untied_model(self.world.pmdp)

    def relaxation(self) -> tuple[Counts, Intervals]:
        """The interval MDP of all data so far."""
        pmdp, counts = self.world.pmdp, self.experience.counts
        if self.tied:
            return counts, tied_relaxation(pmdp, *confidence_intervals(pmdp, counts, self.method, self.config.delta))
        lower, upper = untied_intervals(pmdp, counts, self.method, self.config.delta)
        return counts, Intervals(self._untied, lower, upper, "untied")

    def _explore(self) -> Policy:
        _, intervals = self.relaxation()
        self._optimistic = solve(
            intervals, self.world.objective, Nature.COOPERATIVE, precision=EXPLORATION_PRECISION, warm=self._optimistic
        )
        return self._optimistic.policy.mixed(self.world.pmdp, self.weight)

    @property
    def certificate(self) -> Certificate | None:  # type: ignore[override]
        """The robust policy's guarantee from all data so far; None before the first episode."""
        if self._world is None or self.num_timesteps == 0:
            return None
        if self._robust is None or self._robust[0] != self.num_timesteps:
            counts, intervals = self.relaxation()
            uncertainty = Uncertainty(intervals, None, None, NO_DOUBT, False, False, None)
            found = certify_uncertainty(
                self.world.pmdp, counts, uncertainty, self.world.objective, self.config, warm=self._warm
            )
            self._robust = (self.num_timesteps, found)
        return self._robust[1]

    @property
    def policy(self) -> Policy:
        certificate = self.certificate
        if certificate is None:
            raise ModelError("nothing learned yet: call learn first")
        return certificate.policy
