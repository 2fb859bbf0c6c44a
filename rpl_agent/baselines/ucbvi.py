"""UCBVI (Azar, Osband and Munos 2017) with Hoeffding bonuses, for total rewards and reachability."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rpl_agent.baselines.model_based import ModelBased
from rpl_agent.errors import ModelError
from rpl_agent.model import Policy


class UCBVI(ModelBased):
    """Plan in the empirical model with the bonus  c · range · sqrt(ln(2 R t / δ) / (2 N)),  until a row doubles.

    The total-reward analogue: the original's horizon H bounds every value of a successor; here the range of the
    current optimistic values over the row's successors takes its place (the support is known, so p̂·V cannot be
    further from p·V than Hoeffding allows on that range), and a bonus never leads past the best successor.
    """

    name: ClassVar[str] = "ucbvi"

    def __init__(self, *, delta: float = 0.05, scale: float = 1.0, **common: Any):
        super().__init__(**common)
        if not 0 < delta < 1 or scale <= 0:
            raise ModelError(f"delta {delta} must lie in (0, 1) and scale {scale} be positive")
        self.delta = delta
        self.scale = scale

    def bonus(self) -> np.ndarray:
        """(R,) bonuses per unit of range; a row never tried gets the best successor."""
        log = np.log(2.0 * self.world.pmdp.num_rows * max(1, self.num_timesteps) / self.delta)
        width = self.scale * np.sqrt(log / (2.0 * np.maximum(1, self.row_count)))
        return np.where(self.row_count > 0, width, 1.0)

    def _explore(self) -> Policy:
        return self._planned(self.frequencies(), bonus=self.bonus())
