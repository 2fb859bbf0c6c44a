"""R-MAX (Brafman and Tennenholtz 2002) for total rewards and reachability."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rpl_agent.baselines.model_based import ModelBased
from rpl_agent.errors import ModelError
from rpl_agent.model import Policy


class RMax(ModelBased):
    """A row is known after ``known_after`` visits, then taken at its frequencies; until then it is as good as can be.

    "As good as can be" is the value of the row's best successor: the support graph is known, so the original's
    global maximum can be replaced by it. Replans when rows become known or double, not in between.
    """

    name: ClassVar[str] = "rmax"

    def __init__(self, *, known_after: int = 20, **common: Any):
        super().__init__(**common)
        if known_after < 1:
            raise ModelError(f"known_after {known_after} must be at least 1")
        self.known_after = known_after

    def _explore(self) -> Policy:
        unknown = self.row_count < self.known_after
        radius = np.where(unknown, 2.0, 0.0)  # radius 2 is the whole simplex over the support
        return self._planned(self.frequencies(), radius=radius)
