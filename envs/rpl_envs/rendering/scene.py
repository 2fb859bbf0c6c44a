"""What a picture of a benchmark must offer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from rpl_agent.model import ParametricMDP


class Renderer(Protocol):
    """Draws the last of the states of an episode; the earlier ones are there for trails and curves."""

    def rgb(self, pmdp: ParametricMDP, states: Sequence[int]) -> np.ndarray:
        """(height, width, 3) uint8."""
        ...

    def text(self, pmdp: ParametricMDP, states: Sequence[int]) -> str:
        """The same for a terminal."""
        ...
