"""`PlayedPolicy`: a policy that is fixed, then played; its episodes bound its value from below (Theorem 2)."""

from __future__ import annotations

import math
from array import array
from collections import deque
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from rpl_agent.core.evidence.ledger import OPEN_EPISODES, OPEN_PLANNED, OPEN_REST
from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.guarantee.open_world.assumptions import Assumptions
from rpl_agent.guarantee.open_world.data import OpenData
from rpl_agent.guarantee.open_world.values import lower_values
from rpl_agent.guarantee.stakes import PLANNED_PARTS, lower_mean, plan_stake

#: Weight of a play as good and of one as bad as can be, beside those that were seen: few plays show little spread.
UNSEEN = 0.25
#: The stake is planned anew this often while the number of plays doubles.
PLANS = 8


@dataclass(eq=False)
class OpenPolicy:
    """An action per state and number of steps to go; ``unseen`` in states that were not known when it was made.

    actions : (H, S) int64, layer h has h + 1 steps to go; one layer without a horizon.
    """

    actions: np.ndarray
    unseen: int = 0

    def action(self, state: int | None, layer: int) -> int:
        """The action in a state (None: never visited) with layer + 1 steps to go."""
        rule = self._rules[layer]
        return self.unseen if state is None or state >= len(rule) else rule[state]

    @cached_property
    def _rules(self) -> list[list[int]]:
        return self.actions.tolist()

    def table(self, states: int) -> np.ndarray:
        """(H, states) the actions of this many states."""
        found = np.full((len(self.actions), states), self.unseen, dtype=np.int64)
        found[:, : self.actions.shape[1]] = self.actions[:, :states]
        return found


@dataclass(slots=True)
class OpenEpisode:
    """One episode of a policy, by which the policy is judged."""

    stake: int = 0  # planned, by its place in `stakes.PLANNED_PARTS`
    last: int | None = None  # the state that it is in, until it is over
    earned: float = 0.0  # discounted
    size: float = 0.0  # of what was added up, for its rounding
    steps: int = 0
    cut_in: int | None = None  # state in which it was cut; None: it ended, or its horizon did
    over: bool = False

    def add(self, reward: float, weight: float) -> None:
        self.earned += weight * reward
        self.size += abs(weight * reward)
        self.steps += 1

    def end(self, cut: bool) -> None:
        """Note that the episode is over; if it was cut, what would have followed in the last state is missing."""
        self.over, self.cut_in = True, self.last if cut else None


class FinishedPlays:
    """Episodes that are over, in the order of their starts; in arrays, because there may be millions.

    earned, size, steps, stake : (n,) as in `OpenEpisode`.
    cut_in : (n,) int64, −1: it was not cut.
    """

    def __init__(self, earned: Any = (), size: Any = (), steps: Any = (), cut_in: Any = (), stake: Any = ()) -> None:
        self._earned, self._size = array("d", earned), array("d", size)
        self._steps, self._cut_in, self._stake = array("q", steps), array("q", cut_in), array("b", stake)

    def add(self, episode: OpenEpisode) -> None:
        self._earned.append(episode.earned)
        self._size.append(episode.size)
        self._steps.append(episode.steps)
        self._cut_in.append(-1 if episode.cut_in is None else episode.cut_in)
        self._stake.append(episode.stake)

    def __len__(self) -> int:
        return len(self._earned)

    @property
    def earned(self) -> np.ndarray:
        return np.array(self._earned)

    @property
    def size(self) -> np.ndarray:
        return np.array(self._size)

    @property
    def steps(self) -> np.ndarray:
        return np.array(self._steps)

    @property
    def cut_in(self) -> np.ndarray:
        return np.array(self._cut_in)

    @property
    def stake(self) -> np.ndarray:
        return np.array(self._stake, dtype=np.int64)

    def numbers(self) -> np.ndarray:
        """What was earned, less the rounding of powers of the discount and of the sum."""
        return self.earned - 4.0 * UNIT_ROUNDOFF * (self.steps + 4) * self.size


@dataclass(eq=False)
class PlayedPolicy:
    """A fixed policy with its share of δ and its episodes in the order of their starts.

    before : counts of outcomes when the policy was fixed; earlier data are no evidence about it, because they chose it.
    expected : episodes that it will have played at the end of the budget.
    stake : of the next episode, by its place in `stakes.PLANNED_PARTS`.
    """

    policy: OpenPolicy
    number: int  # its number among the policies fixed so far, from 1
    share: float
    before: np.ndarray
    expected: float = 0.0
    stake: int = 0
    _plays: FinishedPlays = field(default_factory=FinishedPlays)
    _begun: deque[OpenEpisode] = field(default_factory=deque)  # after those of _plays

    def begin(self, ends: tuple[float, float]) -> OpenEpisode:
        """A new episode, which counts from now on; ``ends`` of the range of returns."""
        plays = len(self.complete())
        if 2 * PLANS * (plays & -plays) >= plays:  # a function of the number, so that a run may be resumed anywhere
            self._plan(*ends)
        self._begun.append(OpenEpisode(self.stake))
        return self._begun[-1]

    def complete(self) -> FinishedPlays:
        """The episodes before the first that is still running."""
        while self._begun and self._begun[0].over:
            self._plays.add(self._begun.popleft())
        return self._plays

    def given_up(self) -> FinishedPlays:
        """All episodes, as if those that are running had been cut now."""
        found = self.complete()
        found = FinishedPlays(found.earned, found.size, found.steps, found.cut_in, found.stake)
        for episode in self._begun:
            found.add(episode if episode.over else replace(episode, cut_in=episode.last))
        return found

    def _plan(self, low: float, high: float) -> None:
        """Choose the stake of the coming episodes by the spread of those that are complete."""
        earned = (high - self._plays.earned) / (high - low)
        number = len(earned) + 2.0 * UNSEEN
        mean = (earned.sum() + UNSEEN) / number
        variance = ((earned - mean) ** 2).sum() + UNSEEN * (mean**2 + (1.0 - mean) ** 2)
        deviation = math.sqrt(variance / number)
        self.stake = plan_stake(mean, deviation, max(self.expected, len(earned)), OPEN_PLANNED * self.share)

    def lower(self, assumptions: Assumptions, data: OpenData) -> float:
        """A lower bound on the policy's return, at all times except with probability ``share``."""
        plays = self.complete()
        low, high = assumptions.overall
        if not plays:
            return low
        numbers, cut = plays.numbers(), plays.cut_in
        if (cut >= 0).any():
            rest = lower_values(
                assumptions, data, self.policy.table(len(data.states)), self.before, OPEN_REST * self.share
            )
            steps = plays.steps[cut >= 0]
            layer = 0 if assumptions.horizon is None else assumptions.horizon - 1 - steps
            after = assumptions.discount**steps * rest[layer, cut[cut >= 0]]
            numbers[cut >= 0] += after - 8.0 * UNIT_ROUNDOFF * (np.abs(numbers[cut >= 0]) + np.abs(after))
        values, place = np.unique(numbers, return_inverse=True)
        pairs, counts = np.unique(len(PLANNED_PARTS) * place + plays.stake, return_counts=True)
        place, stakes = np.divmod(pairs, len(PLANNED_PARTS))
        return lower_return(values[place], counts, stakes, (low, high), self.share)

    @property
    def mean(self) -> float:
        """What the complete episodes earned on average: an estimate."""
        plays = self.complete()
        return float(plays.earned.mean()) if plays else math.nan


def lower_return(
    numbers: np.ndarray, counts: np.ndarray, stakes: np.ndarray, ends: tuple[float, float], share: float
) -> float:
    """A lower bound of a policy's return from its plays: bets with planned stakes (n,), or with fixed ones."""
    return max(
        lower_mean(numbers, counts, *ends, OPEN_PLANNED * share, stakes),
        lower_mean(numbers, counts, *ends, OPEN_EPISODES * share),
    )
