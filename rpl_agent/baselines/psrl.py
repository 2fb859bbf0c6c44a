"""PSRL (Osband, Russo and Van Roy 2013): sample a model from the posterior, act optimally in it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rpl_agent.baselines.model_based import ModelBased
from rpl_agent.errors import ModelError
from rpl_agent.model import Policy


class PSRL(ModelBased):
    """An independent Dirichlet posterior per row over its (known) successors.

    A new sample whenever a row's count doubles, and after k episodes at the latest for the k-th sample (the rule of
    Ouyang et al. 2017): far fewer plans than one per episode, and still samples without end.

    ``concentration`` is the prior's pseudo-count per successor (1 is uniform over the simplex).
    """

    name: ClassVar[str] = "psrl"

    def __init__(self, *, concentration: float = 1.0, **common: Any):
        super().__init__(**common)
        if concentration <= 0:
            raise ModelError(f"concentration {concentration} must be positive")
        self.concentration = concentration

    def sample(self) -> np.ndarray:
        """(T,) probabilities drawn from the posterior: normalised gammas."""
        pmdp = self.world.pmdp
        draws = self._rng.standard_gamma(self.transition_count + self.concentration)
        draws = np.maximum(draws, 1e-300)  # a tiny concentration can underflow; a row must keep mass
        return draws / np.add.reduceat(draws, pmdp.row_ptr[:-1])[pmdp.transition_row]

    def _patience(self) -> int:
        return max(1, self.num_updates)

    def _explore(self) -> Policy:
        return self._planned(self.sample())
