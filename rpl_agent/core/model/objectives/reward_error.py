"""`RewardError`: what rewards lost to rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rpl_agent.core.native import core


@dataclass(frozen=True)
class RewardError:
    """How far the rewards of a task are from exact ones, which need not be doubles (1/10, or the sum of two doubles).

    >>> RewardError.of(np.array([0.5, 0.1]), np.array([0.0, 5.6e-18])).share <= 2.0**-53
    True
    """

    share: float = 0.0  # of each reward; infinite if one is 0 only after rounding
    amount: float = 0.0  # of a single payment
    any_negative: bool = False  # whether some reward is

    @classmethod
    def of(cls, reward: np.ndarray, error: np.ndarray | None) -> RewardError:
        """From rewards (n,) and bounds (n,) on their errors."""
        if error is None:
            return EXACT
        sizes = np.empty(3)
        core.error_sizes(len(reward), np.ascontiguousarray(reward), np.ascontiguousarray(error), sizes)
        share, amount, least = sizes.tolist()
        if amount == 0.0:
            return EXACT
        return cls(math.nextafter(share, math.inf), math.nextafter(amount, math.inf), least < 0.0)


EXACT = RewardError()
