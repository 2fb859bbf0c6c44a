"""Bounds on a probability from paths of a chain: valid at all times, without a model.

k of n paths reach the target, each with probability p given the past. Likelihood ratios against p, of a fixed
coin q = p + h and of one drawn from Beta(1/2, 1/2), are martingales that start at 1, and so is their average

    M_n(p) = a (q/p)^k ((1 − q)/(1 − p))^(n − k) + (1 − a) B(k + 1/2, n − k + 1/2) / (B(1/2, 1/2) p^k (1 − p)^(n − k)):

with probability ≥ 1 − δ it never reaches 1/δ (Ville). The first term is optimal where k/n is p + h, that is,
when a bound h below k/n is due; the second is good at all times. Both fall in p up to k/n, so the excluded values
there form an interval, and rise in k: if the end of some paths is unknown, the lower bound counts them as failures.
The upper bound is one minus the lower bound on failing. Each of the two has δ/2.
"""

from __future__ import annotations

import math

from rpl_agent.evidence.ledger import check_delta

#: a: the weight of the coin for the planned width
PLANNED_SHARE = 0.9
#: larger than the relative error of the logarithms and Γ functions in M
ROUNDING = 1e-12
#: bisections until adjacent floats
HALVINGS = 80


def reach_bounds(reached: int, failed: int, paths: int, delta: float, width: float) -> tuple[float, float]:
    """(lower, upper) bounds on the probability to reach the target, given how many paths reached it or never will.

    width : planned upper − lower, fixed before the first path; any number in (0, 1) is sound.
    """
    check_delta(delta)
    level, half = math.log(2.0 / delta), width / 2
    top = 1.0 - _least(failed, paths, level, half)
    return _least(reached, paths, level, half), min(1.0, math.nextafter(top, 2.0))


def _least(k: int, n: int, level: float, h: float) -> float:
    """A number below every q ≤ k/n with ln M_n(q) < level; rounding makes it smaller."""
    if k <= 0:
        return 0.0
    mixture = math.lgamma(k + 0.5) + math.lgamma(n - k + 0.5) - math.lgamma(n + 1.0) - math.log(math.pi)
    level += ROUNDING * (1.0 + n * (1.0 + math.log(n + 1.0)))

    def is_excluded(p: float) -> bool:
        rest = (n - k) * math.log1p(-p) if n > k else 0.0
        found = math.log1p(-PLANNED_SHARE) + mixture - k * math.log(p) - rest
        if p + h < 1.0:  # otherwise the planned coin gets nothing
            more = k * math.log1p(h / p) + (n - k) * math.log1p(-h / (1.0 - p)) + math.log(PLANNED_SHARE)
            found = max(found, more) + math.log1p(math.exp(-abs(found - more)))
        return found > level * (1.0 + ROUNDING)

    low, high = 0.0, k / n
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if middle <= 0.0 or not is_excluded(middle):
            high = middle
        else:
            low = middle
    return low
