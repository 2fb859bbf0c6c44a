"""Maximum-likelihood greedy: plan as if the estimate were the truth."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rpl_agent.baselines.model_based import ModelBased
from rpl_agent.errors import ModelError
from rpl_agent.likelihood.estimate import point_estimate
from rpl_agent.model import Policy

#: Pseudo-observations per bound of the domain: enough to stay inside, too few to be seen.
BARRIER = 1e-6


class CertaintyEquivalence(ModelBased):
    """Greedy in the estimated model, with the agent's own share of exploration.

    Parameters
    ----------
    structured : estimate θ jointly from all transitions through the known expressions (maximum likelihood over
        the domain); otherwise one frequency per transition, over the known support.
    weight : probability of the greedy action while sampling; the rest is spread over the others.
    """

    name: ClassVar[str] = "certainty-equivalence"

    def __init__(self, *, structured: bool = False, weight: float = 0.9, **common: Any):
        super().__init__(**common)
        if not 0 <= weight <= 1:
            raise ModelError(f"weight {weight} is outside [0, 1]")
        self.structured = structured
        self.weight = weight
        self._theta: tuple[int, np.ndarray] | None = None

    @property
    def theta(self) -> np.ndarray:
        """(d,) maximum-likelihood parameters."""
        if self._theta is None or self._theta[0] != self.num_timesteps:
            start = None if self._theta is None else self._theta[1]
            pmdp, found = self.world.pmdp, None if self.world.pmdp.num_parameters else np.zeros(0)
            if pmdp.num_parameters:
                found = point_estimate(pmdp, self.experience.counts, start, BARRIER)
            if found is None:
                raise ModelError(f"structured: {pmdp!r} has more parameters than can be estimated jointly")
            self._theta = (self.num_timesteps, found)
        return self._theta[1]

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays = super()._arrays()
        if self._theta is not None:
            arrays |= {"theta": self._theta[1], "theta_at": np.array(self._theta[0])}
        return arrays

    def _set_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        super()._set_arrays(arrays)
        self._theta = (int(arrays["theta_at"]), arrays["theta"]) if "theta" in arrays else None

    def estimate(self) -> np.ndarray:
        if not self.structured:
            return super().estimate()
        pmdp = self.world.pmdp
        probability = np.clip(pmdp.table.evaluate(self.theta), 0.0, 1.0)[pmdp.expression]
        return probability / np.add.reduceat(probability, pmdp.row_ptr[:-1])[pmdp.transition_row]

    def _explore(self) -> Policy:
        return self._planned(self.estimate()).mixed(self.world.pmdp, self.weight)
