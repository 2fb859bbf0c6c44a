"""Claims that compare: numbers that are proved for every parameter of a region at once, such as a regret.

A claim is a signed sum of values at one common parameter θ and the number that it does not exceed:

    value        +V*(θ) ≤ most, or −V^π(θ) ≤ most
    regret       +V*(θ) − V^π(θ) ≤ most        (minimising: +V^π(θ) − V*(θ))
    improvement  +V^β(θ) − V^π(θ) ≤ most       (maximising: π is better than β by at least −most)

A value that is added is bounded from above and one that is subtracted from below, each by a proved affine function
(`affine`); `difference_bound` takes the largest difference of the two over the region. Functions of one expansion have
one gradient: it cancels, and what is left are their slacks, which are of second order in the size of the region.
All claims about one region hold on the same event, so together they cost one δ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent.core.coupled.affine import AffineBound, Side
from rpl_agent.core.model import Objective, Policy, Sense
from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.core.regions.base import Region


@dataclass(frozen=True, eq=False)
class SignedValue:
    """One value of a claim, with its sign."""

    sign: int  # 1 or −1
    objective: Objective
    policy: Policy | None  # None: the best value of any policy

    @property
    def side(self) -> Side:
        """The side from which the value has to be bounded."""
        return Side.UPPER if self.sign > 0 else Side.LOWER


@dataclass(frozen=True, eq=False)
class RegionClaim:
    """The sum of sign · value is at most ``most`` for every parameter of the region."""

    terms: tuple[SignedValue, ...]
    most: float

    @classmethod
    def regret(cls, objective: Objective, policy: Policy, most: float) -> RegionClaim:
        """No policy is better than this one by more than ``most``."""
        sign = 1 if objective.sense is Sense.MAX else -1
        return cls((SignedValue(sign, objective, None), SignedValue(-sign, objective, policy)), most)

    @classmethod
    def improvement(cls, objective: Objective, policy: Policy, over: Policy, least: float) -> RegionClaim:
        """A policy is better than another one by at least ``least``."""
        sign = 1 if objective.sense is Sense.MAX else -1
        return cls((SignedValue(sign, objective, over), SignedValue(-sign, objective, policy)), -least)


def difference_bound(region: Region, upper: AffineBound, lower: AffineBound, state: int) -> float:
    """The most that ``upper`` exceeds ``lower`` by in a state (with all steps to go), over the region; rounded up.

    Each of the two must have passed `AffineProof` for this region: then no value that the first one bounds exceeds one
    that the second one bounds by more, at the same parameter. Their frames may differ.
    """
    if upper.side is not Side.UPPER or lower.side is not Side.LOWER:
        raise ValueError("the difference of two bounds needs an upper and a lower one, in this order")
    (u, g), (v, h) = _at_state(upper, state), _at_state(lower, state)
    size = abs(u) + abs(v)
    if upper.frame is lower.frame:
        size += float(np.abs(g).sum() + np.abs(h).sum())  # |y_j| ≤ 1, and the difference of gradients is rounded
        turn = h - g
        least = upper.frame.minimum(region, v - u, turn) if turn.any() else v - u
    else:
        (c, c_left), (d, d_left) = upper.frame.in_region(g), lower.frame.in_region(h)
        one, other = upper.frame.center, lower.frame.center
        reach = np.abs(region.box()).max(axis=0) + np.maximum(np.abs(one), np.abs(other))
        size += (len(c) + 1.0) * float((np.abs(c) + np.abs(d)) @ reach)
        turned = float(region.minimize((d - c)[None])[0])
        least = (v - u) + (turned + float(c @ one) - float(d @ other)) - (c_left + d_left)
    return -least + 8.0 * UNIT_ROUNDOFF * size


def _at_state(bound: AffineBound, state: int) -> tuple[float, np.ndarray]:
    """(u, g) of u + g·y in a state, with all steps to go."""
    u = float(np.ravel(bound.moved[..., state])[-1])
    return u, bound.gradient[..., state, :].reshape(-1, bound.frame.dimension)[-1]
