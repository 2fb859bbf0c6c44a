"""What a picture of a model must offer, and the plain picture that any model has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from rpl_agent.core.model import ParametricMDP
from rpl_envs.rendering.canvas import FAINT, INK, Canvas


class Renderer(Protocol):
    """Draws the last of the states of an episode; the earlier ones are there for trails and curves."""

    def rgb(self, pmdp: ParametricMDP, states: Sequence[int]) -> np.ndarray:
        """(height, width, 3) uint8."""
        ...

    def text(self, pmdp: ParametricMDP, states: Sequence[int]) -> str:
        """The same for a terminal."""
        ...


class StateRenderer:
    """The variables of the state and its labels, for models without a picture of their own."""

    def rgb(self, pmdp: ParametricMDP, states: Sequence[int]) -> np.ndarray:
        lines = self._lines(pmdp, states)
        canvas = Canvas(360, 30 + 20 * len(lines))
        for i, line in enumerate(lines):
            canvas.text((16, 16 + 20 * i), line, INK if i else FAINT)
        return canvas.array()

    def text(self, pmdp: ParametricMDP, states: Sequence[int]) -> str:
        return "\n".join(self._lines(pmdp, states))

    @staticmethod
    def _lines(pmdp: ParametricMDP, states: Sequence[int]) -> list[str]:
        state = states[-1]
        labels = [name for name, holds in pmdp.labels.items() if holds[state]]
        return [
            f"{pmdp.name}, step {len(states) - 1}",
            f"state {state}",
            *(f"{name} = {values[state]}" for name, values in pmdp.variables.items()),
            *([f"labels: {', '.join(labels)}"] if labels else []),
        ]


def columns(pmdp: ParametricMDP, states: Sequence[int]) -> dict[str, np.ndarray]:
    """variable -> (len(states),) its values along the episode."""
    at = np.asarray(states)
    return {name: values[at] for name, values in pmdp.variables.items()}


def window(center: int, low: int, high: int, size: int) -> tuple[int, int]:
    """The part of low..high of at most ``size`` values around ``center``, as inclusive bounds."""
    if high - low + 1 <= size:
        return low, high
    start = min(max(center - size // 2, low), high - size + 1)
    return start, start + size - 1
