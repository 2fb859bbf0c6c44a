"""The fixed stakes, and the mean of bounded numbers that they bound; the theory is in `guarantee.open_world`."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from rpl_agent.core.native import core, read_only

#: The largest stake, the ratio of neighbours, and how many there are. Few data need large stakes; n numbers with
#: standard deviation σ need one near √(2 ln(1/α) / n) (1 − m)/σ, so the least serves some 10^8 of them. A finer grid
#: costs as much in weights as it gains: radii are 1.13 to 1.2 times those of the best single stake.
LARGEST, RATIO, NUMBER = 0.97, 2.5, 11
STAKES = read_only([LARGEST * RATIO**-k for k in range(NUMBER)])
#: A weight w adds ln(1/w) to the level. The radius is proportional to the level where numbers hardly vary, which the
#: largest stake serves, and to its root where they do. So weights fall: each next stake, for six times as many numbers,
#: adds 0.4 more, which is some 2 % of its radius.
FIRST_WEIGHT, FALL = 1.0 / 3.0, 2.0 / 3.0
WEIGHTS = read_only([FIRST_WEIGHT * FALL**k for k in range(NUMBER)])
#: Sweeps over rows that are bounded by bets: every iterate is a bound, and the next update continues from it.
MOST_SWEEPS = 1_000
#: The mixture for C: logarithms are rounded down.
MIXTURE = core.StakeMixture(
    size=NUMBER, stake=STAKES, log_weight=read_only(np.nextafter(np.nextafter(np.log(WEIGHTS), -np.inf), -np.inf))
)
#: Stakes that are planned, for numbers that are themselves observed: the k-th is the largest times the fall to the k.
MOST_PLANNED, PLANNED_FALL, PLANNED_NUMBER = 0.99, Fraction(4, 5), 64
PLANNED_PARTS = read_only([float(PLANNED_FALL**k) for k in range(PLANNED_NUMBER)])
PLANNED = core.StakeMixture(size=1, stake=read_only([MOST_PLANNED]), log_weight=read_only([0.0]))


def level(share: float) -> float:
    """ln(1/share), rounded up."""
    return math.nextafter(math.nextafter(-math.log(share), math.inf), math.inf)


def upper_mean(
    numbers: np.ndarray, counts: np.ndarray, low: float, high: float, share: float, planned: np.ndarray | None = None
) -> float:
    """An upper bound of the mean of numbers (n,) in [low, high], seen counts (n,) times; at all times, except with
    probability ``share``.

    Numbers may be bounds from above of those that were drawn: then it bounds the mean of these. Above ``high`` they
    count as ``high``. ``planned`` (n,): each number's stake, by its place in `PLANNED_PARTS`, chosen before it was
    drawn; without it, the fixed stakes.
    """
    x, scale = _scaled(numbers, low, high)
    bets, parts = (MIXTURE, None) if planned is None else (PLANNED, PLANNED_PARTS[planned])
    found = core.stake_upper(bets, len(x), x, np.ascontiguousarray(counts, dtype=float), parts, level(share), 1.0)
    return min(high, low + found * (high - low) + scale)


def lower_mean(
    numbers: np.ndarray, counts: np.ndarray, low: float, high: float, share: float, planned: np.ndarray | None = None
) -> float:
    """A lower bound of the mean, likewise, from bounds from below."""
    return -upper_mean(-np.asarray(numbers, dtype=float), counts, -high, -low, share, planned)


def plan_stake(mean: float, deviation: float, number: float, share: float) -> int:
    """The planned stake that bounds a mean in [0, 1] best from above, if this many numbers come.

    With ε = bound − mean and c = stake / (1 − bound), the wealth has the logarithm n (c ε − c² (ε² + σ²)/2), nearly.
    It is ln(1/share) at the least ε for c = √(q (1 − q)) / σ, ε = σ √(q / (1 − q)), q = 2 ln(1/share) / n.
    """
    q = min(2.0 * level(share) / max(number, 1.0), 0.5)
    bound = mean + deviation * math.sqrt(q / (1.0 - q))
    stake = math.sqrt(q * (1.0 - q)) / max(deviation, 1e-12) * max(1.0 - bound, 1e-12)
    place = math.log(MOST_PLANNED / stake) / -math.log(PLANNED_FALL)
    return min(max(round(place), 0), PLANNED_NUMBER - 1)


def _scaled(numbers: np.ndarray, low: float, high: float) -> tuple[np.ndarray, float]:
    """Numbers as shares of the range, rounded up, and the rounding of the way back."""
    numbers = np.asarray(numbers, dtype=float)
    slack = 8.0 * core.UNIT_ROUNDOFF * (np.abs(numbers) + abs(low))
    shares = (numbers - low + slack) / (high - low) * (1.0 + 8.0 * core.UNIT_ROUNDOFF)
    return np.clip(shares, 0.0, 1.0), 8.0 * core.UNIT_ROUNDOFF * (abs(low) + high - low)
