"""Refuses chance that repeats itself: a seed that is set again in every reset, copies or episodes that agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rpl_agent.agent.sampling.experience import GeneratorStates
from rpl_agent.core.evidence.repetition import RepeatedChanceError

#: A row and the number of what followed; and which share of the row's visits that was.
Outcome = tuple[int, int]
Share = Callable[[Outcome], float]


class ResetWatch:
    """Refuses an environment that seeds itself in reset, with one seed or a few in turn: its episodes repeat."""

    def __init__(self) -> None:
        self._states = GeneratorStates()  # after all resets

    def reset(self, before: Any, after: Any) -> None:
        """States of the environment's generator before and after a reset without a seed; None if unknown."""
        if after is not None and self._states.add(after) and before != after:
            raise RepeatedChanceError(
                "the environment seeds itself in reset(), so that its episodes repeat the same chance: no guarantee "
                "holds for such data; seed its generator in reset(seed=...) only"
            )


#: Bits of chance that must agree, from the first comparison and without one exception, to count as repeated.
REPEATED_BITS = 32.0


class AgreementWatch:
    """Refuses chance that repeats itself: the same row has the same outcome again and again, at once or in turn."""

    def __init__(self, what: str):
        self._what, self._bits = what, 0.0
        self.is_open = True  # until one outcome differs: then chance is not repeated

    def compare(self, agrees: bool, share: float) -> None:
        """One comparison of two outcomes of a row; ``share`` of its visits had the first one."""
        self.is_open = self.is_open and agrees
        self._bits -= math.log2(share)
        if self.is_open and self._bits >= REPEATED_BITS:
            raise RepeatedChanceError(
                f"{self._what} repeat the same chance: no guarantee holds for such data; seed them differently"
            )


class EpisodeSteps:
    """The steps of a copy's current and previous episode, compared as long as they are the same."""

    __slots__ = ("current", "earlier", "same")

    def __init__(self) -> None:
        self.earlier: list[Outcome] = []
        self.current: list[Outcome] = []
        self.same = True  # so far

    def add(self, begins: bool, steps: Sequence[Outcome]) -> list[tuple[Outcome, bool]]:
        """Add steps; return those in whose row the previous episode was too, and whether its outcome was the same."""
        if begins:
            self.earlier, self.current, self.same = self.current, [], True
        at, found = len(self.current), list[tuple[Outcome, bool]]()
        self.current += steps
        for before, step in zip(self.earlier[at : at + len(steps)], steps) if self.same else ():
            self.same = before == step
            if before[0] == step[0]:
                found.append((step, self.same))
            if not self.same:
                break
        return found


class RepetitionWatch:
    """Compares steps of neighbouring copies in one tick, and of one copy's episodes as long as they are the same."""

    def __init__(self) -> None:
        self._copies = AgreementWatch("copies of the environment")
        self._episodes = AgreementWatch("episodes of the environment")
        self._latest: dict[int, tuple[int, int, int]] = {}  # by lane: tick, row, outcome
        self._steps: dict[int, EpisodeSteps] = {}  # by lane

    @property
    def compares_episodes(self) -> bool:
        """Whether episodes of one copy are still compared."""
        return self._episodes.is_open

    def add(self, lane: int, tick: int, begins: bool, step: Outcome, share: Share) -> None:
        """A step of a lane; ``share`` of its row's visits had this outcome."""
        if self._copies.is_open:
            row, entry = step
            other = self._latest.get(lane - 1)
            if other is not None and other[:2] == (tick, row):
                self._copies.compare(other[2] == entry, share(step))
            self._latest[lane] = tick, row, entry
        self.add_alone(lane, begins, [step], share)

    def add_alone(self, lane: int, begins: bool, steps: Sequence[Outcome], share: Share) -> None:
        """Steps of a lane that has no neighbours, or was compared with them; the first one may begin an episode."""
        if self._episodes.is_open:
            own = self._steps.get(lane) or self._steps.setdefault(lane, EpisodeSteps())
            for step, agrees in own.add(begins, steps):
                self._episodes.compare(agrees, share(step))
