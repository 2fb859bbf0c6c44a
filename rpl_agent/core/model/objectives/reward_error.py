"""`RewardError`: what rewards lost to rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


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
        if error is None or not error.any():
            return EXACT
        with np.errstate(divide="ignore"):
            share = float(np.divide(error, np.abs(reward), out=np.zeros(len(error)), where=error != 0.0).max())
        return cls(
            math.nextafter(share, math.inf), math.nextafter(float(error.max()), math.inf), bool((reward < 0.0).any())
        )


EXACT = RewardError()
