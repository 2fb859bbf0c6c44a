"""Bets on a mean: an interval that holds at all times, of bounded numbers and with no model behind them.

The theorem is that of docs/guarantees.md, "A witness that does not trust the model": c is the mean so far and λ a stake
for the planned end in standard deviations so far. The width is that of the normal law for a mean of the observed
variance, times the price of looking at all times (`payoffs.stake`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rpl_agent._core import UNIT_ROUNDOFF
from rpl_agent.errors import DataError
from rpl_agent.evidence.ledger import check_delta
from rpl_agent.likelihood.bets.payoffs import LARGEST, stake


def mean_interval(values: np.ndarray, low: float, high: float, delta: float) -> tuple[float, float]:
    """Bounds on the mean of values (n,) in [low, high], n planned; valid with probability ≥ 1 − delta at any time."""
    check_delta(delta)
    values = np.asarray(values, dtype=float)
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise DataError(f"[{low}, {high}] is no range of returns")
    outside = np.flatnonzero(~((values >= low) & (values <= high)))
    if len(outside):
        raise DataError(f"number {outside[0] + 1} is {values[outside[0]]:.10g}, outside of [{low:.10g}, {high:.10g}]")
    if low == high or not len(values):
        return low, high
    level, n = math.log(2.0 / delta), len(values)
    money = settle((values - low) / (high - low), level)
    # every term is at most 1, and so is what a sum of n of them is off by in units of n roundings
    room = level + 8.0 * n * UNIT_ROUNDOFF * (n + 1.0)
    bottom = float(np.clip(((money.paid + money.gain - room) / money.staked).max(), 0.0, 1.0))
    top = float(np.clip(((money.paid - money.loss + room) / money.staked).min(), 0.0, 1.0))
    slack = 8.0 * UNIT_ROUNDOFF * (abs(low) + abs(high))
    return max(low, low + bottom * (high - low) - slack), min(high, low + top * (high - low) + slack)


class Settled(NamedTuple):
    """Sums (n,) until every moment: of λ, of λ c, and of the logarithms of who bet λ and −λ."""

    staked: np.ndarray
    paid: np.ndarray
    gain: np.ndarray
    loss: np.ndarray


def settle(x: np.ndarray, level: float) -> Settled:
    """What bets on numbers x (n,) in [0, 1] come to; ``level`` = ln 2/δ."""
    n = len(x)
    c = so_far(x, 0.5)
    spread = np.sqrt(so_far((x - c) ** 2, 0.25))
    stakes = np.array([stake(level, (t + 0.5) / n) for t in range(n)])
    bet = np.minimum(stakes / (spread * math.sqrt(n)), LARGEST)
    gain, loss = (np.cumsum(np.log1p(sign * bet * (x - c))) for sign in (1.0, -1.0))
    return Settled(np.cumsum(bet), np.cumsum(bet * c), gain, loss)


def so_far(numbers: np.ndarray, first: float) -> np.ndarray:
    """(n,) the mean of ``first`` and of the numbers (n,) before each."""
    return np.cumsum(np.concatenate([[first], numbers[:-1]])) / np.arange(1, len(numbers) + 1)
