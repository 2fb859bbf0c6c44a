"""Several objectives at known parameters: PRISM's multi-objective questions.

A model whose domain is one point needs no data, and nothing about it is left to chance.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from rpl_agent.core.coupled.region import NO, NOT_DECIDED, YES
from rpl_agent.core.errors import ModelError, PrecisionWarning
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Domain, Limit, Objective, ParametricMDP, Sense
from rpl_agent.core.native.blas import one_blas_thread
from rpl_agent.core.printed import ceil_text, floor_text, interval_text
from rpl_agent.core.solver.check import is_converged
from rpl_agent.core.solver.solve import DEFAULT_PRECISION
from rpl_agent.guarantee.claims.curves import ObjectiveCurve, curve
from rpl_agent.guarantee.claims.mixtures import Mixture, MixtureSearch
from rpl_agent.guarantee.claims.totals import PointTotals

#: precision of single values, as a share of the precision that is asked
SHARE = 0.05


@dataclass(frozen=True, eq=False)
class BestWithin:
    """What strategies within limits achieve.

    lower, upper : bounds on the best value among all strategies that keep the limits; NaN if none does, or if nothing
        but the limits was asked
    verdict : whether some strategy keeps all limits: yes, no or not decided
    mixture : policies with their shares, which keep the limits if the verdict is yes; one is drawn before the first
        step. They are policies of a model in which a play may be ended where it can stay without a cost
    """

    lower: float
    upper: float
    verdict: str
    sentences: tuple[str, ...]
    mixture: Mixture | None

    @property
    def keeps_limits(self) -> bool:
        return self.verdict == YES


def known_model(pmdp: ParametricMDP, theta: np.ndarray) -> ParametricMDP:
    """The model whose domain is one point."""
    point = {name: (value, value) for name, value in zip(pmdp.table.parameters, theta.tolist())}
    return replace(pmdp, domain=Domain.box(point))


@one_blas_thread
def best_within(
    pmdp: ParametricMDP, theta: np.ndarray, objective: Objective, precision: float = DEFAULT_PRECISION
) -> BestWithin:
    """Bounds on the best value within the objective's limits; a warning if they are wider than the precision."""
    goal, limits = objective.free, objective.limits
    search = _search(pmdp, theta, limits, goal, precision)
    mixture, impossible = search.kept()
    if impossible and goal.criterion.pays:  # perhaps they can be kept at an infinite cost
        alone = achievable(pmdp, theta, limits, precision)
        worst = math.inf if goal.sense is Sense.MIN else -math.inf
        return alone if alone.verdict == NO else replace(alone, lower=worst, upper=worst)
    verdict, sentences = _said(search, limits, mixture, impossible)
    if impossible:
        return BestWithin(math.nan, math.nan, verdict, sentences, None)
    attained, least = math.inf, -math.inf
    if verdict == YES and mixture is not None:
        mixture, least = search.best(mixture, precision)
        attained, (_, sentences) = _upward(mixture.costs[-1]), _said(search, limits, mixture, False)
    lower, upper = (least, attained) if goal.sense is Sense.MIN else (-attained, -least)
    lower, upper = max(lower, goal.criterion.exact_range[0]), min(upper, goal.criterion.exact_range[1])
    if not lower <= upper:
        raise ModelError(f"the bounds [{lower!r}, {upper!r}] contradict each other: this is a bug, please report it")
    if not is_converged(lower, upper, precision):
        reason = "" if verdict == YES else ", because whether the limits can be kept at all is not decided"
        bracket = interval_text(lower, upper, 9)
        _warn(f"the bracket {bracket} is sound but wider than the precision {precision:g}{reason}")
    return BestWithin(lower + 0.0, upper + 0.0, verdict, sentences, mixture)


@one_blas_thread
def achievable(
    pmdp: ParametricMDP, theta: np.ndarray, limits: Sequence[Limit], precision: float = DEFAULT_PRECISION
) -> BestWithin:
    """Whether one strategy keeps all limits."""
    search = _search(pmdp, theta, limits, None, precision)
    mixture, impossible = search.kept()
    verdict, sentences = _said(search, limits, mixture, impossible)
    if verdict == NOT_DECIDED:
        _warn(f"whether the limits can be kept is not decided at the precision {precision:g}: they are on the edge")
    return BestWithin(math.nan, math.nan, verdict, sentences, mixture)


def front(pmdp: ParametricMDP, theta: np.ndarray, objectives: Sequence[Objective], points: int) -> ObjectiveCurve:
    """The Pareto front of two objectives."""
    model = known_model(pmdp, theta)
    return curve(model, Counts(model), objectives, points=points)


def _search(
    pmdp: ParametricMDP, theta: np.ndarray, limits: Sequence[Limit], goal: Objective | None, precision: float
) -> MixtureSearch:
    asked = [limit.objective for limit in limits] + ([] if goal is None else [goal])
    thresholds = np.array([limit.threshold if limit.upward else -limit.threshold for limit in limits])
    return MixtureSearch(PointTotals(pmdp, theta, asked, SHARE * precision), thresholds)


def _said(
    search: MixtureSearch, limits: Sequence[Limit], mixture: Mixture | None, impossible: bool
) -> tuple[str, tuple[str, ...]]:
    """(the verdict, a sentence about every limit)."""
    if impossible:
        alone = [
            f"no policy keeps {limit.describe()}: every one has "
            + (f"at least {floor_text(least)}" if limit.upward else f"at most {ceil_text(-least)}")
            for limit, least, threshold in zip(limits, search.least, search.thresholds.tolist())
            if least > threshold
        ]
        return NO, tuple(alone or [f"no policy keeps {' and '.join(limit.describe() for limit in limits)}"])
    if mixture is None:
        return NOT_DECIDED, ("no policy was found for which all values have bounds",)
    words = []
    for limit, cost, threshold in zip(limits, mixture.costs, search.thresholds.tolist()):
        text, most = limit.describe(), _upward(cost)
        shown = f"at most {ceil_text(most)}" if limit.upward else f"at least {floor_text(-most + 0.0)}"
        kept = f"the policy keeps {text}: {shown}"
        words.append(kept if cost <= threshold else f"{text} is not decided: bounds miss it by {most - threshold:.1g}")
    return YES if mixture.keeps(search.thresholds) else NOT_DECIDED, tuple(words)


def _upward(number: Fraction | float) -> float:
    """The least double that is not below."""
    rounded = float(number)
    return rounded if rounded >= number else math.nextafter(rounded, math.inf)


def _warn(text: str) -> None:
    warnings.warn(text, PrecisionWarning, stacklevel=3)
