"""`PlayedBound` bounds the value of a fixed policy from whole plays of it (Theorem 2 of `guarantee.open_world`).

The policy is fixed first, then played in episodes that were planned before they began. Each is worth a number in a
known range. Stakes are fixed, so the bound needs only how often each number came: a file and a proof hold no more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rpl_agent.core.schema import Positive, Whole
from rpl_agent.guarantee.stakes import lower_mean, upper_mean

#: More distinct numbers than this are moved outward, to a grid that splits their range into this many steps.
MOST_NUMBERS, GRID = 4_096, 2.0**14


def policy_share(share: float, number: int) -> float:
    """The share of the j-th fixed policy, j = number ≥ 1: 1/j − 1/(j + 1) of the whole. The sum over all j is 1."""
    return share / (number * (number + 1))


@dataclass(frozen=True)
class PlayedBound:
    """What plays of one policy were worth, at least (``upward``: at most).

    numbers, counts : each number, and how often it came.
    number : the policy's number among those fixed in the run so far, which determines its share of δ.
    loss : by how much the bound moves outward, for rounding and for rewards that differ from the model's.
    """

    numbers: tuple[float, ...]
    counts: tuple[Whole, ...]
    low: float
    high: float
    number: Whole
    upward: bool
    share: float  # of δ for plays of all policies
    loss: Positive = 0.0

    @property
    def plays(self) -> int:
        return sum(self.counts)

    def bound(self) -> float:
        """A bound on the policy's value, at all times except with probability `policy_share`."""
        share = policy_share(self.share, self.number)
        numbers, counts = np.array(self.numbers, dtype=float), np.array(self.counts, dtype=float)
        mean = upper_mean if self.upward else lower_mean
        found = mean(numbers, counts, self.low, self.high, share)
        side = 1.0 if self.upward else -1.0
        return math.nextafter(found + side * self.loss, side * math.inf)


def grouped(numbers: np.ndarray, low: float, high: float, upward: bool) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Distinct numbers with their counts; too many of them are moved outward to a grid."""
    numbers = np.clip(numbers, low, high)
    values, counts = np.unique(numbers, return_counts=True)
    if len(values) > MOST_NUMBERS:
        steps = (numbers - low) / (high - low) * GRID
        moved = low + (np.ceil(steps) if upward else np.floor(steps)) * ((high - low) / GRID)
        moved = np.maximum(moved, numbers) if upward else np.minimum(moved, numbers)  # whatever rounding did
        values, counts = np.unique(np.clip(moved, low, high), return_counts=True)
    return tuple(values.tolist()), tuple(counts.tolist())
