"""`Experience`: everything observed so far; and what a source of episodes is asked for and answers.

What counts as data: every ``step`` is one transition, the truncated or terminal one included; a reset is none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rpl_agent.agent.sampling.chance import ChanceWatch
from rpl_agent.agent.schedule import NEVER, Limits
from rpl_agent.evidence.counts import Counts
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.policy import Policy


class Experience:
    """Everything observed so far: counts with their marks, and the running visit counts the schedules watch."""

    def __init__(self, pmdp: ParametricMDP, counts: Counts | None = None):
        self.pmdp = pmdp
        self.counts = Counts(pmdp, schedule="planned") if counts is None else counts
        if self.counts.schedule == "geometric":  # of an older run: the windows are the same
            self.counts.schedule = "planned"
        self.rows = self.counts.row_totals.astype(np.int64)  # (R,)
        self.expressions = self.counts.successes.copy()  # (F,)
        self.reward_error = 0.0  # how far rewards were off the model's, see `Objective.with_reward_error`
        self.watch = ChanceWatch(pmdp)  # of environments that are stepped
        self._trace: list[int] | None = None

    def record(self) -> list[int]:
        """A list that the transitions of the coming steps are added to, in their order, until the next call."""
        self._trace = []
        return self._trace

    def add_steps(self, transitions: list[int]) -> None:
        """Transitions (ids) in the order they happened."""
        if self._trace is not None:
            self._trace.extend(transitions)
        self.counts.add_transitions(transitions)

    def recount(self) -> None:
        """The running visit counts from the counts, after an error came in between."""
        self.rows[:] = self.counts.row_totals
        self.expressions[:] = self.counts.successes


@dataclass
class SampledBatch:
    """What one call of `Source.collect` did."""

    episodes: int = 0
    steps: int = 0
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)  # of the objective, in its own unit
    cut: int = 0  # episodes that were truncated before the objective was decided
    due: bool = False  # a limit was reached
    interrupted: bool = False

    def end(self, total: float, length: int, value: float, cut: bool) -> None:
        """One episode is over."""
        self.episodes += 1
        self.returns.append(total)
        self.lengths.append(length)
        self.values.append(value)
        self.cut += cut


@dataclass(frozen=True)
class Request:
    """How much to collect: stop after the first of these.

    pause : completed episodes after which to return, episodes_left / steps_left : what the budget still allows.
    """

    policy: Policy
    limits: Limits
    pause: int = NEVER
    episodes_left: int = NEVER
    steps_left: int = NEVER
    interrupted: Callable[[], bool] = lambda: False


@dataclass
class StreamState:
    """How a stream goes on: the simulator's random state, and the first calls of the environment (`EnvSource`)."""

    simulator: list[int] | None = None
    opening: list[tuple[str, Any, str]] = field(default_factory=list)


class Source(Protocol):
    """A stream of episodes."""

    def collect(self, request: Request, done: SampledBatch) -> None:
        """Collect into ``done``, which stays right if an error ends the collection."""
        ...
