"""`Experience`: everything observed so far; and the requests to and answers from a source of episodes.

Every ``step`` is one transition, also a truncated or terminal one; a reset is none.

`ChanceWatch`: sixteen copies with one seed, an environment that seeds itself in every reset, or one that plays twenty
levels in turn make data look many times as certain as they are. So steps are compared with each other
(`evidence.repetition`), and the state of Gymnasium's generator after a reset with those after all earlier ones.
"""

from __future__ import annotations

import hashlib
from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rpl_agent.agent.schedule import NEVER, Limits
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.repetition import EpisodeCodes, RepetitionTest, WindowCodes
from rpl_agent.core.model import ParametricMDP, Policy

#: Steps before the first test for repetitions; then after a quarter more, and before every certificate.
FIRST_LOOK = 64
#: Lengths of windows of a copy's last steps to search for earlier in the run: short ones if steps carry much chance.
WIDTHS = (8, 32, 128)
#: Generator states to remember; beyond this, only those whose hash is a multiple of 2, 4, … are remembered.
REMEMBERED_STATES = 1 << 16


class _LaneCodes:
    """Codes of the contexts along the steps of one copy of the environment."""

    def __init__(self) -> None:
        self._episodes = EpisodeCodes()
        self._windows = {f"last {w}": WindowCodes(w) for w in WIDTHS}

    def add(self, transitions: np.ndarray, begins: np.ndarray) -> dict[str, np.ndarray]:
        windows = {kind: codes.add(transitions) for kind, codes in self._windows.items()}
        return {**self._episodes.add(transitions, begins), **windows}


class GeneratorStates:
    """States of a generator that were seen before; what is forgotten when there are many depends on the state alone."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._rate = 1

    def add(self, state: bytes) -> bool:
        """Return whether the state was seen before, and remember it."""
        code = int.from_bytes(hashlib.blake2b(state, digest_size=8).digest(), "little")
        if code in self._seen:
            return True
        if code % self._rate == 0:
            self._seen.add(code)
        while len(self._seen) > REMEMBERED_STATES:
            self._rate *= 2
            self._seen = {code for code in self._seen if code % self._rate == 0}
        return False


#: Kinds of contexts, see `evidence.repetition`.
KINDS = ("row", "step", "episode", "tick", *(f"last {w}" for w in WIDTHS))


class ChanceWatch:
    """Tests all steps of a run for repeated chance.

    found : str or None
        The kind of context in which chance repeats itself (`evidence.repetition`), or "reset".
    """

    def __init__(self, pmdp: ParametricMDP):
        self._test = RepetitionTest(pmdp, KINDS)
        self._lanes: dict[int, _LaneCodes] = {}
        self._waiting: list[tuple[int, int, bool, int]] = []
        self._look_at = FIRST_LOOK
        self._states = GeneratorStates()  # after all resets
        self.found: str | None = None

    def add(self, transition: int, lane: int, begins: bool, tick: int) -> None:
        """Add a step: its copy, whether it begins an episode, and its number since the copy was made."""
        self._waiting.append((transition, lane, begins, tick))
        if len(self._waiting) >= self._look_at:
            self.look()

    def reset(self, before: Any, after: Any) -> None:
        """States of the environment's generator before and after a reset without a seed; None if unknown.

        If the generator was used since and is back where it was after an earlier reset, the environment reseeds itself.
        """
        if after is not None and self._states.add(after) and before != after:
            self.found = "reset"

    def look(self) -> str | None:
        """Test all steps so far and return `found`."""
        if self._waiting and self.found is None:
            transitions, lanes, begins, ticks = (np.array(column) for column in zip(*self._waiting))
            codes = {kind: np.zeros(len(ticks), np.uint64) for kind in KINDS}
            codes["tick"] = ticks.astype(np.uint64)
            for lane in np.unique(lanes).tolist():
                at = np.flatnonzero(lanes == lane)
                known = self._lanes.setdefault(lane, _LaneCodes())
                for kind, found in known.add(transitions[at], begins[at]).items():
                    codes[kind][at] = found
            self._test.add(transitions, codes)
            alarm = self._test.alarm()
            self.found = None if alarm is None else alarm[0]
            self._look_at = max(FIRST_LOOK, self._test.total // 4)
        self._waiting.clear()
        return self.found


class Experience:
    """Everything observed so far: counts with their marks, and the running visit counts that schedules watch."""

    def __init__(self, pmdp: ParametricMDP, counts: Counts | None = None):
        self.pmdp = pmdp
        self.counts = Counts(pmdp, schedule="planned") if counts is None else counts
        if self.counts.schedule == "geometric":  # from an older run: the windows are the same
            self.counts.schedule = "planned"
        self.rows = self.counts.row_totals.astype(np.int64)  # (R,)
        self.expressions = self.counts.successes.copy()  # (F,)
        self.reward_error = 0.0  # the largest deviation of rewards from the model, see `Objective.with_reward_error`
        self.lacking: str | None = None  # a note on actions of the environment that the model lacks
        self.watch = ChanceWatch(pmdp)  # for environments that are stepped
        self._trace: list[int] | None = None

    def record(self) -> list[int]:
        """A list to which the transitions of the coming steps are appended, in order, until the next call."""
        self._trace = []
        return self._trace

    def add_steps(self, transitions: list[int]) -> None:
        """Add transition ids in the order in which they happened."""
        if self._trace is not None:
            self._trace.extend(transitions)
        self.counts.add_transitions(transitions)

    @property
    def total(self) -> int:
        """Number of steps that are data."""
        return self.counts.total

    def entropy(self) -> float:
        """Mean entropy of a step in bits, by observed frequencies."""
        counts = self.counts
        seen = counts.transitions > 0
        if not seen.any():
            return 0.0
        share = counts.transitions[seen] / counts.row_totals[counts.pmdp.transition_row[seen]]
        return -float(counts.transitions[seen] @ np.log2(share)) / counts.total

    def recount(self) -> None:
        """Recompute the running visit counts from the counts, after an error."""
        self.rows[:] = self.counts.row_totals
        self.expressions[:] = self.counts.successes


@dataclass
class SampledBatch:
    """What a source of episodes collected; stays consistent if an error ends the collection.

    Episodes stand in the order in which they started. In the order in which they end, those of several environments
    are no independent draws: short ones come first.
    """

    episodes: int = 0
    steps: int = 0
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)  # of the objective, in its own unit
    undecided: list[bool] = field(default_factory=list)  # whether more steps could have changed the value
    cut: int = 0  # episodes that a time limit ended undecided
    due: bool = False  # a limit was reached
    interrupted: bool = False
    begun: int = 0  # episodes that began; those that are not over were given up
    _numbers: list[int] = field(default_factory=list)  # of the episodes, by start

    def end(self, number: int, total: float, length: int, value: float, undecided: bool) -> None:
        """The episode that was the ``number``-th to start is over, by itself or by a limit."""
        self.episodes += 1
        self.cut += undecided
        if not self._numbers or number > self._numbers[-1]:  # always, where there is one environment
            self._numbers.append(number)
            self.returns.append(total)
            self.lengths.append(length)
            self.values.append(value)
            self.undecided.append(undecided)
            return
        place = bisect(self._numbers, number)
        self._numbers.insert(place, number)
        self.returns.insert(place, total)
        self.lengths.insert(place, length)
        self.values.insert(place, value)
        self.undecided.insert(place, undecided)

    def keep_first(self) -> None:
        """Drop episodes that began after one that was given up: those that end soon would stand for all."""
        if self._numbers and self._numbers[-1] >= len(self._numbers):
            kept = next(k for k, number in enumerate(self._numbers) if number != k)
            self.cut -= sum(self.undecided[kept:])
            for column in (self._numbers, self.returns, self.lengths, self.values, self.undecided):
                del column[kept:]
            self.episodes = kept


@dataclass(frozen=True)
class Request:
    """How much to collect: stop at the first of these limits."""

    policy: Policy
    limits: Limits
    pause: int = NEVER  # completed episodes after which to return
    episodes_left: int = NEVER  # of the budget
    steps_left: int = NEVER
    interrupted: Callable[[], bool] = lambda: False


@dataclass
class StreamState:
    """How to continue a stream: the simulator's random state, and the first calls of the environment (`EnvSource`)."""

    simulator: list[int] | None = None
    opening: list[tuple[str, Any, str]] = field(default_factory=list)
