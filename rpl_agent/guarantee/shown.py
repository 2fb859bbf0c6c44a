"""What a certificate shows beside its bounds: values at the point estimate, and where the gap comes from."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from rpl_agent.core.coupled import CoupledBounds
from rpl_agent.core.coupled.attribution import attribution, own_gradient
from rpl_agent.core.coupled.expansion import value_at
from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Objective, ParametricMDP, Policy
from rpl_agent.core.regions.base import Region
from rpl_agent.core.solver import Solution, solve_at
from rpl_agent.guarantee.likelihood.estimate import TELLING_GAIN, edge


def value_at_estimate(
    pmdp: ParametricMDP, solved: Solution, policy: Policy, estimate: np.ndarray | None, precision: float, share: float
) -> float:
    """The policy's value at the point estimate, nan if there is none: shown, no bound."""
    if estimate is None:
        return math.nan
    problem, value = solved.problem, None
    if problem.pmdp is pmdp and not share:
        value = value_at(problem, policy, np.clip(pmdp.table.accurate(estimate), 0.0, 1.0))
    return true_value(pmdp, solved.objective, policy, estimate, precision) if value is None else value


#: The share of the value that counts as close to the best in forecasts.
CLOSE = 0.01


def until_close(regret: float, gap: float, value: float, episodes: int) -> dict[str, int]:
    """Estimate of further episodes until the regret is 1 % of the value; empty if it is.

    A regret below the gap falls like 1/n; of one that is the gap itself this says nothing.

    >>> until_close(0.03, 0.2, 1.0, 1000), until_close(0.005, 0.2, 1.0, 1000)
    ({'regret of 1%': 2000}, {})
    """
    target = CLOSE * abs(value)
    if not (regret < gap and regret > target > 0.0 and episodes > 0):
        return {}
    return {"regret of 1%": math.ceil(episodes * (regret / target - 1.0))}


def explained(
    pmdp: ParametricMDP, counts: Counts, region: Region | None, estimate: np.ndarray | None, found: CoupledBounds | None
) -> dict[str, Any]:
    """The fields of a certificate that explain its gap, by the local Gaussian model."""
    if estimate is None or found is None or region is None or counts.total == 0:
        return {}
    gradient = own_gradient(pmdp, region, estimate, found.gradient)
    if gradient is None:
        return {}
    return {"attribution": attribution(pmdp, counts, estimate, gradient)}


def true_value(
    pmdp: ParametricMDP, objective: Objective, policy: Policy, theta: np.ndarray, precision: float = 1e-6
) -> float:
    """The value of a policy at one θ (the middle of a certified bracket)."""
    return solve_at(pmdp, theta, objective, policy=policy, precision=precision).middle


def note_on_edge(pmdp: ParametricMDP, counts: Counts) -> str | None:
    """What to say of parameters whose most likely value lies outside their domain, with a warning where that tells."""
    found = edge(pmdp, counts)
    if found is not None and found.gain >= TELLING_GAIN:
        warnings.warn(found.note, RPLWarning, stacklevel=4)
    return None if found is None else found.note
