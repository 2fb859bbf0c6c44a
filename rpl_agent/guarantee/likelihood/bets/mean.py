"""Bets on a mean: a confidence sequence for the mean of bounded numbers, without a model.

For the theorem see docs/guarantees.md, "A witness that does not trust the model". There c is the running mean and λ the
stake for the planned end, in units of the running standard deviation. The width is that of the normal approximation
with the observed variance, times the price of validity at all times (`checker.stake`). Where a width 2h is planned
instead of a number of values, λ = h/σ²: both bounds are h from the mean after 2σ²/h² · ln 2/δ values, the fewest that
any λ needs.
"""

from __future__ import annotations

import math

import numpy as np

from rpl_agent.core.errors import DataError
from rpl_agent.core.evidence.ledger import check_delta
from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.guarantee.checker import stake

#: The largest bet.
LARGEST = 0.5


def mean_interval(
    values: np.ndarray,
    low: float,
    high: float,
    delta: float,
    width: float | None = None,
    planned: int | None = None,
) -> tuple[float, float]:
    """Bounds on the mean of values (n,) in [low, high]; valid with probability ≥ 1 − delta at any time.

    width : the planned upper − lower, fixed before the first value; None: a number of values is planned instead
    planned : that number, also fixed before the first value: bets may not depend on when they ended; None: n
    """
    check_delta(delta)
    values = np.asarray(values, dtype=float)
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise DataError(f"[{low}, {high}] is not a range of values")
    outside = np.flatnonzero(~((values >= low) & (values <= high)))
    if len(outside):
        first = int(outside[0])
        raise DataError(f"value {first + 1} is {values[first]:.10g}, outside [{low:.10g}, {high:.10g}]")
    if low == high or not len(values):
        return low, high
    level, n = math.log(2.0 / delta), len(values)
    if planned is not None and planned < n:
        raise DataError(f"{n:,} values are more than the {planned:,} that were planned")
    staked, paid, gain, loss = cumulative_bets(
        (values - low) / (high - low), level, None if width is None else width / (high - low), planned
    )
    # Every term is at most 1, so the error of a sum of n terms is at most n in units of n roundings.
    room = level + 8.0 * n * UNIT_ROUNDOFF * (n + 1.0)
    bottom = float(np.clip(((paid + gain - room) / staked).max(), 0.0, 1.0))
    top = float(np.clip(((paid - loss + room) / staked).min(), 0.0, 1.0))
    slack = 8.0 * UNIT_ROUNDOFF * (abs(low) + abs(high))
    return max(low, low + bottom * (high - low) - slack), min(high, low + top * (high - low) + slack)


def cumulative_bets(
    x: np.ndarray, level: float, width: float | None = None, planned: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sums (n,) so far of λ, of λ c, and of log wealth from betting λ and −λ on x (n,) in [0, 1]; level = ln 2/δ."""
    n = len(x) if planned is None else planned
    c = running_mean(x, 0.5)
    variance = running_mean((x - c) ** 2, 0.25)
    if width is None:
        stakes = np.array([stake(level, (t + 0.5) / n) for t in range(len(x))])
        bet = np.minimum(stakes / np.sqrt(variance * n), LARGEST)
    else:
        bet = np.minimum(width / 2.0 / variance, LARGEST)
    gain, loss = (np.cumsum(np.log1p(sign * bet * (x - c))) for sign in (1.0, -1.0))
    return np.cumsum(bet), np.cumsum(bet * c), gain, loss


def running_mean(numbers: np.ndarray, first: float) -> np.ndarray:
    """(n,) for each number, the mean of ``first`` and all numbers before it."""
    return np.cumsum(np.concatenate([[first], numbers[:-1]])) / np.arange(1, len(numbers) + 1)
