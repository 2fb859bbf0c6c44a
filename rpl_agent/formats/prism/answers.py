"""`answer`: a property of a model with known parameters, or with intervals, as certified bounds or as yes and no."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from rpl_agent.errors import ModelError, RPLWarning, listed
from rpl_agent.formats.prism.language.syntax import Property
from rpl_agent.formats.prism.properties.queries import Query
from rpl_agent.formats.prism.reader import PrismModel
from rpl_agent.model.objective import Kind, Nature, Objective, Unreached
from rpl_agent.model.pmdp import ParametricMDP, Reward
from rpl_agent.relaxations.base import Relaxation
from rpl_agent.relaxations.interval import Intervals
from rpl_agent.relaxations.point import Point
from rpl_agent.solver import solve
from rpl_agent.solver.solution import Solution

YES, NO, NOT_DECIDED = "yes", "no", "not decided at this precision"


@dataclass(frozen=True)
class Answer:
    """The answer to a query for one nature.

    lower, upper : certified bounds of the number that was asked for, after filter and complement. For the filter
        ``range`` the least lower and the largest upper bound. For a comparison: of the number that is compared, over
        all states of the filter; for ``count`` of the number of states.
    verdict : "yes", "no" or "not decided at this precision" for a comparison, else None.
    problems : what the independent check of the solution found; empty means certified.
    """

    query: Query
    nature: Nature
    lower: float
    upper: float
    verdict: str | None
    solution: Solution
    problems: list[str]


def answer(
    model: PrismModel, text: str | Property | None = None, theta: np.ndarray | None = None, *, precision: float = 1e-6
) -> list[Answer]:
    """Answer a property: one answer, or two (robust, optimistic) for an interval model where it names no nature.

    theta : values of the parameters. Needed unless the model has none; an interval model without them is solved for
        the widest intervals over the domain, which hold every value.
    """
    query = model.query(text, theta)
    natures = [query.nature or Nature.COOPERATIVE]
    if model.bounds is not None and query.nature is None:
        natures = [Nature.ADVERSARIAL, Nature.COOPERATIVE]
    return [_answer(query, partial(_relaxation, model, theta), nature, precision) for nature in natures]


def _relaxation(model: PrismModel, theta: np.ndarray | None, pmdp: ParametricMDP) -> Relaxation:
    if model.bounds is not None:
        return Intervals(pmdp, *model.bounds.at(theta))
    if theta is None and pmdp.num_parameters:
        raise ModelError(f"values of the parameters {listed(pmdp.table.parameters)} are needed")
    return Point(pmdp.instantiate(np.zeros(0) if theta is None else theta))


def _answer(query: Query, relax: Callable[[ParametricMDP], Relaxation], nature: Nature, precision: float) -> Answer:
    with warnings.catch_warnings():
        if query.comparison:  # a wide bracket may decide all the same
            warnings.simplefilter("ignore", RPLWarning)
        solution = solve(relax(query.pmdp), query.objective, nature, precision=precision)
    low, high = (v if v.ndim == 1 else v[-1] for v in (solution.lower_values, solution.upper_values))
    low, high = low[query.states] + 0.0, high[query.states] + 0.0  # no minus zero
    if query.comparison and ((low < 1.0) & (high >= 1.0)).any():
        low = np.where(_surely(query, relax, nature, precision)[query.states], 1.0, low)
    if query.complement:
        low, high = _complement(high, -np.inf), _complement(low, np.inf)
    problems = solution.check()
    if query.comparison:
        verdict, lower, upper = _compared(query, low, high)
        return Answer(query, nature, lower, upper, verdict, solution, problems)
    lower, upper = _combined(query.filter, low, high)
    return Answer(query, nature, lower, upper, None, solution, problems)


def _surely(query: Query, relax: Callable[[ParametricMDP], Relaxation], nature: Nature, precision: float) -> np.ndarray:
    """(S,) where the target is reached with probability one: no bracket of an iteration can say that.

    It is exactly where a cost of nothing until the target, infinite where it is missed, is finite; the graph decides.
    """
    pmdp, objective = query.pmdp, query.objective
    if objective.kind is not Kind.REACH or objective.horizon is not None or objective.avoid is not None:
        return np.zeros(pmdp.num_states, dtype=bool)
    free = replace(pmdp, rewards={"free": Reward(np.zeros(pmdp.num_states), np.zeros(pmdp.num_rows))})
    question = Objective(
        Kind.REWARD, objective.sense.opposite, objective.target, reward_name="free", unreached=Unreached.INFINITE
    )
    return np.isfinite(solve(relax(free), question, nature, precision=precision).upper_values)


def _complement(values: np.ndarray, direction: float) -> np.ndarray:
    """1 - values, rounded towards `direction` where it is not exact."""
    result = 1.0 - values
    return np.clip(np.where(1.0 - result == values, result, np.nextafter(result, direction)), 0.0, 1.0)


def _combined(name: str, low: np.ndarray, high: np.ndarray) -> tuple[float, float]:
    if name == "min":
        return float(low.min()), float(high.min())
    if name == "max":
        return float(low.max()), float(high.max())
    if name in ("state", "range"):
        return float(low.min()), float(high.max())
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return (math.inf if np.isinf(low).any() else 0.0), math.inf
    # a sum rounded once, and a quotient rounded once: two steps outward cover both
    number = len(low) if name == "avg" else 1
    lower, upper = math.fsum(low.tolist()) / number, math.fsum(high.tolist()) / number
    if len(low) == 1:
        return lower, upper
    return max(0.0, math.nextafter(math.nextafter(lower, -math.inf), -math.inf)), math.nextafter(
        math.nextafter(upper, math.inf), math.inf
    )


def _holds(low: float, high: float, comparison: str, threshold: Fraction) -> str:
    """Whether a number between low and high compares so."""
    least = math.inf if low == math.inf else Fraction(low)
    most = math.inf if high == math.inf else Fraction(high)
    yes, no = {
        ">=": (least >= threshold, most < threshold),
        ">": (least > threshold, most <= threshold),
        "<=": (most <= threshold, least > threshold),
        "<": (most < threshold, least >= threshold),
    }[comparison]
    return YES if yes else NO if no else NOT_DECIDED


def _compared(query: Query, low: np.ndarray, high: np.ndarray) -> tuple[str | None, float, float]:
    assert query.threshold is not None
    single = [_holds(a, b, query.comparison, query.threshold) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    lower, upper = float(low.min()), float(high.max())
    if query.filter == "count":
        return None, float(single.count(YES)), float(len(single) - single.count(NO))
    strong, weak = (NO, YES) if query.filter == "forall" else (YES, NO)
    if strong in single:
        return strong, lower, upper
    return (weak if all(v == weak for v in single) else NOT_DECIDED), lower, upper
