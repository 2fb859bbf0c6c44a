"""`PlayedBound`: what whole plays of a fixed policy say of its value (Theorem 2 of `guarantee.open_world`).

A policy is fixed, then played in episodes that were planned before they began; each is worth a number in a known
range. Fixed stakes need only how often each number came, so this is all that is stored, and all that a proof needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rpl_agent.core.schema import Positive, Whole
from rpl_agent.guarantee.stakes import lower_mean, upper_mean

#: If there are more distinct numbers than this, they are moved outward to a grid of this many steps in their range.
MOST_NUMBERS, GRID = 4_096, 2.0**14


def policy_share(share: float, number: int) -> float:
    """The share of the j-th policy that is fixed, j = number ≥ 1: 1/j − 1/(j + 1) of the whole. These sum to 1."""
    return share / (number * (number + 1))


@dataclass(frozen=True)
class PlayedBound:
    """What plays of one policy were worth, at least (``upward``: at most).

    numbers, counts : each number, and how often it came.
    number : the policy's number among those fixed in the run so far, which determines its share of δ.
    loss : how far the mean is moved outward, for rounding and rewards that are not exactly the model's.
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
    """Distinct numbers with their counts; many of them are moved outward to a grid."""
    numbers = np.clip(numbers, low, high)
    values, counts = np.unique(numbers, return_counts=True)
    if len(values) > MOST_NUMBERS:
        steps = (numbers - low) / (high - low) * GRID
        moved = low + (np.ceil(steps) if upward else np.floor(steps)) * ((high - low) / GRID)
        moved = np.maximum(moved, numbers) if upward else np.minimum(moved, numbers)  # whatever rounding did
        values, counts = np.unique(np.clip(moved, low, high), return_counts=True)
    return tuple(values.tolist()), tuple(counts.tolist())
