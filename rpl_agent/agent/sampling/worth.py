"""`PathWorth`: bounds on a policy's mean value from whole paths, each of which has a value in a known range."""

from __future__ import annotations

import math

import numpy as np

from rpl_agent.agent.sampling.experience import SampledBatch
from rpl_agent.agent.world.plays import ends_elsewhere, model_rewards, value_range
from rpl_agent.core.model import Instant, Objective, ParametricMDP, Sense
from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.guarantee.likelihood.bets.mean import mean_interval

Bounds = tuple[float, float]


class PathWorth:
    """What whole paths say of the mean value of a policy.

    reason : why paths give no bounds; empty if they do.
    """

    def __init__(self, pmdp: ParametricMDP, objective: Objective):
        self._pmdp, self._objective = pmdp, objective
        self.low, self.high = value_range(pmdp, objective, None)
        self.reason = self._why_not()
        if not self.reason:
            self._earned = np.abs(model_rewards(pmdp, objective)).max(initial=0.0)
            sign = 1.0 if objective.sense is Sense.MAX else -1.0
            self._grows = bool((sign * model_rewards(pmdp, objective) >= 0.0).all())

    def _why_not(self) -> str:
        pmdp, task = self._pmdp, self._objective.resolve(self._pmdp)
        if isinstance(self._objective.criterion, Instant):
            return "no path is paid the reward of an instant"
        if ends_elsewhere(pmdp, self._objective):
            return "a path may miss the target, which is worth infinity"
        if not math.isfinite(self.high - self.low):
            return "the total of a path has no bound; a horizon or a discount would give it one"
        return "the question is decided in the initial state" if task.decided[pmdp.initial_state] else ""

    def between(self, paths: SampledBatch) -> tuple[np.ndarray, np.ndarray]:
        """(least, most), each (n,), that paths are worth: one that ended undecided may earn more, or lose."""
        values, undecided = np.array(paths.values), np.array(paths.undecided, dtype=bool)
        discount = self._objective.discount
        if discount < 1.0 and self._objective.horizon is None:  # then the range is that of every state
            left = np.where(undecided, discount ** np.array(paths.lengths), 0.0)
            least, most = values + left * self.low, values + left * self.high
        else:
            least = values if self._grows else np.where(undecided, self.low, values)
            most = np.where(undecided, self.high, values)
        return np.clip(least, self.low, self.high), np.clip(most, self.low, self.high)

    def bounds(self, paths: SampledBatch, delta: float, reward_error: float, width: float | None = None) -> Bounds:
        """Bounds on the mean; ``width`` as in `mean_interval`."""
        least, most = self.between(paths)
        low = mean_interval(least, self.low, self.high, delta, width)[0]
        high = mean_interval(most, self.low, self.high, delta, width)[1]
        loss = self.loss(max(paths.lengths, default=0), reward_error)
        return low - loss, high + loss

    def loss(self, longest: int, reward_error: float) -> float:
        """By how much to move a mean outward: sums of ``longest`` steps are rounded, and rewards may be off."""
        if reward_error > 0.0 and self._objective.criterion.is_open_ended and not self._grows:
            return math.inf  # a share of gains and costs may be any share of their sum
        ends = self._objective.with_reward_error(self.low, self.high, reward_error)
        off = max(abs(end - before) for end, before in zip(ends, (self.low, self.high)))
        # a value is a sum of at most ``longest`` products, each with a power of the discount
        terms = longest + 2.0
        steps = min(terms, math.inf if self._objective.discount == 1.0 else 1.0 / (1.0 - self._objective.discount))
        return off + 4.0 * UNIT_ROUNDOFF * terms * steps * self._earned
