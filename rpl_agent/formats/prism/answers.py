"""`answer`: certified bounds, or yes or no, for a property of a model with known parameters or with intervals."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from rpl_agent.core.coupled.region import (
    DEFAULT_BOXES,
    NO,
    NOT_DECIDED,
    YES,
    Partition,
    RegionPoint,
    RegionSolution,
    RegionVerdict,
    compares,
    partition,
    solve_region,
)
from rpl_agent.core.errors import ModelError, RPLWarning, listed
from rpl_agent.core.model import Kind, Nature, Objective, ParametricMDP, Reach, Reward, Sense, Unreached, range_on_box
from rpl_agent.core.relaxations.base import Relaxation
from rpl_agent.core.relaxations.interval import Intervals, Point
from rpl_agent.core.solver import solve
from rpl_agent.core.solver.solution import Solution
from rpl_agent.formats.prism.language.syntax import Property
from rpl_agent.formats.prism.properties.queries import Query
from rpl_agent.formats.prism.reader import PrismModel


@dataclass(frozen=True)
class Answer:
    """The answer to a query for one nature.

    lower, upper : certified bounds on the requested number, after filter and complement. For the filter
        ``range`` the least lower and the largest upper bound. For a comparison: on the compared number, over
        all states of the filter; for ``count`` on the number of states.
    """

    query: Query
    nature: Nature
    lower: float
    upper: float
    verdict: str | None  # "yes", "no" or "not decided at this precision" for a comparison
    solution: Solution  # the bounds of states that were not asked for may be trivial
    problems: list[str]  # findings of the independent check of the solution; empty means certified


def answer(
    model: PrismModel, text: str | Property | None = None, theta: np.ndarray | None = None, *, precision: float = 1e-6
) -> list[Answer]:
    """Answer a property: one answer, or two (robust, optimistic) for an interval model if it names no nature.

    theta : values of the parameters. Needed unless the model has none; an interval model without them is solved for
        the widest intervals over the domain, which contain every value.
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
        raise ModelError(f"the parameters {listed(pmdp.table.parameters)} need values")
    return Point(pmdp.instantiate(np.zeros(0) if theta is None else theta))


def _answer(query: Query, relax: Callable[[ParametricMDP], Relaxation], nature: Nature, precision: float) -> Answer:
    with warnings.catch_warnings():
        if query.comparison:  # even a wide bracket may decide
            warnings.simplefilter("ignore", RPLWarning)
        everywhere = query.states.tolist() != [query.pmdp.initial_state]
        solution = solve(relax(query.pmdp), query.objective, nature, precision=precision, everywhere=everywhere)
        low, high = _values(solution)
        for upward in (False, True) if _signed_and_rounded(query) else ():  # nature has one end; the bracket needs both
            moved = _with_reward_end(query, upward)
            low, high = _joined((low, high), _values(solve(relax(moved), query.objective, nature, precision=precision)))
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


def _values(solution: Solution) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (S,), (S,) on the values, for the exact rewards."""
    low, high = (v if v.ndim == 1 else v[-1] for v in (solution.lower_values, solution.upper_values))
    return solution.problem.task.outward(low, high)


def _joined(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.minimum(one[0], other[0]), np.maximum(one[1], other[1])


def _signed_and_rounded(query: Query) -> bool:
    """Whether this is a total of both signs whose rewards are not doubles (see `Task.outward`)."""
    name = query.objective.reward_name
    return name is not None and query.objective.resolve(query.pmdp).must_play_errors()


def _with_reward_end(query: Query, upward: bool) -> ParametricMDP:
    """The model with every reward at one end of its range; values are monotone in rewards."""
    name, pmdp = query.objective.reward_name, query.pmdp
    assert name is not None
    side = np.inf if upward else -np.inf
    reward, error = pmdp.row_reward(name), pmdp.row_reward_error(name)
    if error is None:
        return pmdp
    moved = np.where(error > 0.0, np.nextafter(reward + np.copysign(error, side), side), reward)
    return replace(pmdp, rewards={**pmdp.rewards, name: Reward(np.zeros(pmdp.num_states), moved)})


def _surely(query: Query, relax: Callable[[ParametricMDP], Relaxation], nature: Nature, precision: float) -> np.ndarray:
    """(S,) where the target is reached with probability one, which no bracket of an iteration can show.

    There, a cost that is 0 until the target and infinite if the target is missed is finite; the graph decides.
    """
    pmdp, objective = query.pmdp, query.objective
    if objective.criterion != Reach(objective.target or ""):
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
    # A sum and a quotient are each rounded once: two steps outward cover both.
    number = len(low) if name == "avg" else 1
    lower, upper = math.fsum(low.tolist()) / number, math.fsum(high.tolist()) / number
    if len(low) == 1:
        return lower, upper
    return max(0.0, math.nextafter(math.nextafter(lower, -math.inf), -math.inf)), math.nextafter(
        math.nextafter(upper, math.inf), math.inf
    )


def _compared(query: Query, low: np.ndarray, high: np.ndarray) -> tuple[str | None, float, float]:
    assert query.threshold is not None
    words, asked = {True: YES, False: NO, None: NOT_DECIDED}, (query.comparison, query.threshold)
    single = [words[compares(a, b, *asked)] for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    lower, upper = float(low.min()), float(high.max())
    if query.filter == "count":
        return None, float(single.count(YES)), float(len(single) - single.count(NO))
    strong, weak = (NO, YES) if query.filter == "forall" else (YES, NO)
    if strong in single:
        return strong, lower, upper
    return (weak if all(v == weak for v in single) else NOT_DECIDED), lower, upper


# -- regions ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class RegionAnswer:
    """The answer to a query for all parameters of a region."""

    query: Query
    lower: float  # certified bounds on the requested or compared number, for every parameter
    upper: float
    least: RegionPoint  # where the number is approximately least
    most: RegionPoint  # … and largest
    verdict: RegionVerdict | None  # for a comparison
    solution: RegionSolution

    def partition(self, undecided: float, max_boxes: int) -> Partition:
        """Where the comparison holds and where it fails, box by box."""
        comparison, threshold = _without_complement(self.query)
        return partition(
            self.query.pmdp,
            self.query.objective,
            comparison,
            threshold,
            self.solution.region,
            undecided=undecided,
            max_boxes=max_boxes,
        )


def answer_region(
    model: PrismModel,
    text: str | Property | None = None,
    *,
    precision: float = 0.01,
    max_boxes: int = DEFAULT_BOXES,
    time_limit: float = math.inf,
) -> RegionAnswer:
    """Answer a property for all parameters of the model's domain (the ranges given when loading it)."""
    if model.bounds is not None:
        raise ModelError("an interval model is solved for all its intervals at once, without a region")
    query = model.query(text)
    if len(query.states) != 1 or query.filter == "count":
        raise ModelError("a region question needs a single state: give --theta, or a property of the initial state")
    threshold = _without_complement(query)[1] if query.comparison else None
    found = solve_region(
        query.pmdp,
        query.objective,
        precision=precision,
        threshold=threshold,
        max_boxes=max_boxes,
        time_limit=time_limit,
    )
    if query.comparison:
        found = _sure_everywhere(query, found)
    ends = _complemented if query.complement else lambda low, high: (low, high)
    (lower, upper), least, most = ends(found.lower, found.upper), found.least, found.most
    if query.complement:
        least, most = (RegionPoint(w.theta, *ends(w.lower, w.upper)) for w in (most, least))
    verdict = None if not query.comparison else found.verdict(*_without_complement(query))
    return RegionAnswer(query, lower, upper, least, most, verdict, found)


def _without_complement(query: Query) -> tuple[str, Fraction]:
    """The comparison in terms of the objective's value."""
    assert query.threshold is not None
    if not query.complement:
        return query.comparison, query.threshold
    return query.comparison.translate(str.maketrans("<>", "><")), 1 - query.threshold


def _sure_everywhere(query: Query, found: RegionSolution) -> RegionSolution:
    """Raise the lower bound to one if the target is reached almost surely for all parameters."""
    if not found.lower < 1.0 <= found.upper:
        return found
    nature = Nature.COOPERATIVE if query.objective.sense is Sense.MIN else Nature.ADVERSARIAL

    def hull(pmdp: ParametricMDP) -> Relaxation:
        return Intervals(pmdp, *range_on_box(pmdp.table, found.region.lower, found.region.upper))

    if not _surely(query, hull, nature, 1e-6)[query.pmdp.initial_state]:
        return found
    return replace(found, lower=1.0, least=replace(found.least, lower=1.0), most=replace(found.most, lower=1.0))


def _complemented(low: float, high: float) -> tuple[float, float]:
    first, last = _complement(np.array([high]), -np.inf), _complement(np.array([low]), np.inf)
    return float(first[0]), float(last[0])
