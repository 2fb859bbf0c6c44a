"""`ChanceWatch`: whether an environment draws the same chance again, in its copies or in its episodes.

Sixteen copies with one seed, or an environment that seeds itself in every reset, make data that look sixteen times
as certain as they are. What they do is compared step by step (`evidence.repetition`); Gymnasium's own generator is
looked at after resets besides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rpl_agent.evidence.repetition import EpisodeCodes, RepetitionTest
from rpl_agent.model.pmdp import ParametricMDP

#: Steps after which the watch looks for the first time; then after a quarter more, and before every certificate.
FIRST_LOOK = 64


class ChanceWatch:
    """Looks at all steps of a run.

    Attributes
    ----------
    found : str or None
        The kind of context in which chance repeats itself (`evidence.repetition`), or "reset".
    """

    def __init__(self, pmdp: ParametricMDP):
        self._test = RepetitionTest(pmdp, ("row", "step", "episode", "tick"))
        self._lanes: dict[int, EpisodeCodes] = {}
        self._waiting: list[tuple[int, int, bool, int]] = []
        self._after_reset: Any = None  # the generator's state after the last reset
        self.found: str | None = None

    def add(self, transition: int, lane: int, begins: bool, tick: int) -> None:
        """The next step: of which copy, whether an episode begins with it, and its number since the copy was made."""
        self._waiting.append((transition, lane, begins, tick))
        if len(self._waiting) >= max(FIRST_LOOK, self._test.total // 4):
            self.look()

    def reset(self, before: Any, after: Any) -> None:
        """States of the environment's generator before and after a reset without a seed; None: not known.

        That it was used in the episode and then is where it was after the last reset has no other explanation.
        """
        if after is not None and after == self._after_reset and before != after:
            self.found = "reset"
        self._after_reset = after

    def look(self) -> str | None:
        """`found`, with all steps so far."""
        if self._waiting and self.found is None:
            transitions, lanes, begins, ticks = (np.array(column) for column in zip(*self._waiting))
            codes = {kind: np.zeros(len(ticks), np.uint64) for kind in ("row", "step", "episode")}
            for lane in np.unique(lanes).tolist():
                at = np.flatnonzero(lanes == lane)
                known = self._lanes.setdefault(lane, EpisodeCodes())
                for kind, found in known.add(transitions[at], begins[at]).items():
                    codes[kind][at] = found
            self._test.add(transitions, {**codes, "tick": ticks.astype(np.uint64)})
            alarm = self._test.alarm()
            self.found = None if alarm is None else alarm[0]
        self._waiting.clear()
        return self.found
