"""UCRL2 (Jaksch, Ortner and Auer 2010): optimism over L1 balls, by extended value iteration."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rpl_agent.baselines.model_based import ModelBased
from rpl_agent.errors import ModelError
from rpl_agent.model import Policy


class UCRL2(ModelBased):
    """Plan in the best model within ‖p − p̂‖₁ ≤ sqrt(14 m ln(2 R t / δ) / N), until a row's count doubles.

    The radius is the original's with the number S of states replaced by the number m of successors of the
    row (the support graph is known), SA by the number R of rows, t the steps so far. Rewards are known. The
    objective is the episodes' total value instead of the average reward: extended value iteration is the same.
    """

    name: ClassVar[str] = "ucrl2"

    def __init__(self, *, delta: float = 0.05, **common: Any):
        super().__init__(**common)
        if not 0 < delta < 1:
            raise ModelError(f"delta {delta} is outside (0, 1)")
        self.delta = delta

    def radius(self) -> np.ndarray:
        """(R,) L1 radii; a row with one successor has nothing to learn."""
        pmdp = self.world.pmdp
        successors = np.diff(pmdp.row_ptr)
        log = np.log(2.0 * pmdp.num_rows * max(1, self.num_timesteps) / self.delta)
        return np.where(successors > 1, np.sqrt(14.0 * successors * log / np.maximum(1, self.row_count)), 0.0)

    def _explore(self) -> Policy:
        return self._planned(self.frequencies(), radius=self.radius())
