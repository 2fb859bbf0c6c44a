"""Paths of a chain as tosses of one coin: bounds of a probability that hold at all times, with no model behind them.

k of n paths reach the target, each with probability p whatever came before. With Beta(1/2, 1/2) for the coin,

    M_n(p) = B(k + 1/2, n − k + 1/2) / (B(1/2, 1/2) p^k (1 − p)^(n − k))

is a martingale that begins at 1, so that with probability ≥ 1 − δ it never reaches 1/δ (Ville). {q : M_n(q) < 1/δ} is
an interval around k/n. Where it is not known of some paths how they end, the lower bound counts them as failures and
the upper bound as successes. That only moves either bound outward, and each holds with probability ≥ 1 − δ/2.
"""

from __future__ import annotations

import math

from rpl_agent.evidence.ledger import check_delta

#: more than the logarithms and Γ functions of M are off by, relative to their sizes
ROUNDING = 1e-12
#: halvings until neighbours among the floats
HALVINGS = 80


def reach_bounds(reached: int, failed: int, paths: int, delta: float) -> tuple[float, float]:
    """(lower, upper) of the probability to reach, where so many of the paths did, and so many never will."""
    check_delta(delta)
    level = math.log(2.0 / delta)
    return _least(reached, paths, level), min(1.0, math.nextafter(1.0 - _least(failed, paths, level), 2.0))


def _least(k: int, n: int, level: float) -> float:
    """A number below every q ≤ k/n with ln M_n(q) < level; rounding makes it less."""
    if k <= 0:
        return 0.0
    mixture = math.lgamma(k + 0.5) + math.lgamma(n - k + 0.5) - math.lgamma(n + 1.0) - math.log(math.pi)
    level += ROUNDING * (1.0 + n * (1.0 + math.log(n + 1.0)))

    def is_excluded(q: float) -> bool:
        rest = (n - k) * math.log1p(-q) if n > k else 0.0
        return mixture - k * math.log(q) - rest > level * (1.0 + ROUNDING)

    low, high = 0.0, k / n
    if n > k and is_excluded(high):  # numbers too large for their rounding
        return 0.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if middle <= 0.0 or not is_excluded(middle):
            high = middle
        else:
            low = middle
    return low
