"""Several objectives at known parameters: PRISM's multi-objective questions, with the bounds of `limits` and `curves`.

A model whose domain is one point needs no data, and nothing about it is left to chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rpl_agent.core.coupled.region import NO, NOT_DECIDED, YES
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Domain, Limit, Objective, ParametricMDP
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.claims.curves import ObjectiveCurve, curve
from rpl_agent.guarantee.claims.limits import certify


def known_model(pmdp: ParametricMDP, theta: np.ndarray) -> ParametricMDP:
    """The model whose domain is one point."""
    point = {name: (value, value) for name, value in zip(pmdp.table.parameters, theta.tolist())}
    return replace(pmdp, domain=Domain.box(point))


def best_within(pmdp: ParametricMDP, theta: np.ndarray, objective: Objective) -> Certificate:
    """Bounds on the best value within the objective's limits, and a policy that keeps them."""
    model = known_model(pmdp, theta)
    return certify(model, Counts(model), objective)


def achievable(pmdp: ParametricMDP, theta: np.ndarray, limits: Sequence[Limit]) -> tuple[str, Certificate]:
    """(whether one policy keeps all limits: yes, no or not decided; the best value of the first within the others)."""
    first, *others = limits
    found = best_within(pmdp, theta, first.objective.subject_to(*others))
    within = found.keeps_limits if others else True
    best, worst = (found.lower, found.upper) if first.upward else (found.upper, found.lower)
    reached = worst <= first.threshold if first.upward else worst >= first.threshold
    missed = best > first.threshold if first.upward else best < first.threshold
    impossible = any(not claim.possible for claim in found.limits)
    return YES if within and reached else NO if missed or impossible else NOT_DECIDED, found


def front(pmdp: ParametricMDP, theta: np.ndarray, objectives: Sequence[Objective], points: int) -> ObjectiveCurve:
    """The Pareto front of two objectives."""
    model = known_model(pmdp, theta)
    return curve(model, Counts(model), objectives, points=points)
