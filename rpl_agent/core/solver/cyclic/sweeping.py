"""Bounds on a cyclic part by sweeps, as narrow as was asked for: values first, then inequalities around them.

Gauss-Seidel sweeps bring x close to the value: x differs from T x by at most r. Let N be the expected number of steps
until the play leaves, by the strategies of x. Then x + m N and x - m N satisfy the inequalities of `check` strictly for
every m a little larger than r, unless another strategy is almost as good and takes more steps; then a few sweeps with m
as extra cost or bonus mend them. The bracket is 2 m N wide, which says how small r must become. Nothing here is
trusted: both bounds are verified with directed rounding, and are strict where a proof needs that the play ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rpl_agent.core.native import core
from rpl_agent.core.solver.cyclic.local import Local
from rpl_agent.core.solver.cyclic.quotient import Quotient, collapse
from rpl_agent.core.solver.cyclic.strategies import proper_start, scale_of
from rpl_agent.core.solver.graph import ALL_ROWS, ANY_ROW, played_rows, usable_rows
from rpl_agent.core.solver.problem import FIXED_AGENT, MAX_AGENT, MIN_AGENT, Problem

#: how often sweeps may leave more than they should where an exact solution is cheap and given preference
LITTLE_PATIENCE = 2
#: sweeps that count steps before they are accelerated
COUNTING = 96
#: parts with fronts up to this (see `Local.front`) are factorised as fast as a few hundred sweeps are made
NARROW = core.NARROW


@dataclass(eq=False)
class Swept:
    """Verified bounds (n + m,), the agent's rows (n,) and the sweeps they took."""

    lower: np.ndarray
    upper: np.ndarray
    rows: np.ndarray
    steps: int


@dataclass(eq=False)
class _Values:
    """Values (n + m,) of a local model, close to a fixpoint, with the strategies that attain them."""

    local: Local
    values: np.ndarray
    rows: np.ndarray
    p: np.ndarray
    budget: int  # the most sweeps
    change: float = np.inf  # of the last full sweep
    sweeps: int = 0
    slow: int = 0  # how often in a row sweeps over the strategies left more than they should
    steps: np.ndarray | None = None  # (n + m,) the last `steps_left`

    @classmethod
    def of(cls, local: Local, values: np.ndarray, budget: int) -> _Values:
        p = local.lo if local.nature_fixed else np.zeros(0)
        return cls(local, values, np.zeros(0, dtype=np.int64), p, budget)

    @property
    def stalls(self) -> bool:
        """Whether sweeps are slow and an exact solution is cheap."""
        return self.slow >= LITTLE_PATIENCE and is_narrow(self.local)

    @cached_property
    def order(self) -> np.ndarray:
        """(n,) the states, those nearest to the exits first: one sweep carries values all the way back."""
        return np.arange(self.local.n)

    def approach(self, tolerance: float) -> bool:
        """Sweep until values change by at most ``tolerance``; False if that is too slow."""
        for _ in range(core.MOST_FULL_SWEEPS):
            self._full_sweep()
            if self.change <= tolerance:
                return True
            if self.stalls or self.sweeps > self.budget or not np.isfinite(self.change):
                return False
            self._strategy_sweeps(max(core.LEFT * self.change, 0.5 * tolerance))
        return False

    def _full_sweep(self) -> None:
        local = self.local
        nature = local
        if not local.nature_fixed:
            self.p = np.zeros(0)  # one such array at a time
            _, self.p = local.greedy(self.values)
            nature = local.fix_nature(self.p)
        self.change, self.rows = nature.value_sweep(self.values, self.order)
        self.sweeps += 1

    def _strategy_sweeps(self, tolerance: float) -> None:
        chain = self.local.assembled(self.values, self.rows, self.p, 0.0)
        used = chain.relax(self.values, core.INNER, tolerance)
        self.sweeps += used
        self.slow = self.slow + 1 if used == core.INNER else 0
        if self.slow >= core.PATIENCE and not self.stalls:
            self.sweeps += chain.accelerate(self.values, tolerance)

    def steps_left(self) -> np.ndarray | None:
        """(n,) N with N >= 1/2 + P N about: the expected number of steps by these strategies; None if too slow."""
        local = self.local
        steps = np.zeros(local.n + local.m) if self.steps is None else self.steps
        chain = local.assembled(steps, self.rows, self.p, 1.0, pays=False)
        used = chain.relax(steps, COUNTING, 0.25)
        if used == COUNTING:
            if is_narrow(local):
                return None
            used += chain.accelerate(steps, 0.1)
            more = chain.relax(steps, core.INNER, 0.25)
            if more == core.INNER:
                return None
            used += more
        self.sweeps += used
        self.steps = steps
        return steps[: local.n] if np.isfinite(steps).all() else None


@dataclass(eq=False)
class _Bound:
    """The search for one bound: values with their strategies and steps, and the model that must confirm it."""

    found: _Values
    steps: np.ndarray
    local: Local
    rows: np.ndarray | None  # (n,) what the agent plays on its own side; None if it is free
    quotient: Quotient | None
    strict: bool
    is_upper: bool

    @cached_property
    def checked(self) -> Local:
        return self.local if self.rows is None else self.local.fix_agent(self.rows)

    def bound(self, problem: Problem, exits: np.ndarray, apart: float, margin: float, mend: bool) -> np.ndarray | None:
        """(n + m,) verified values, mended if needed and if ``mend`` allows it; None if there are none.

        ``apart``: how far the exits may lie from those that the values were found for.
        """
        sign, n = (1.0 if self.is_upper else -1.0), self.found.local.n
        values = self.found.values.copy()
        values[:n] += sign * (margin * self.steps + apart)
        values[n:] = self._inner_exits(exits)
        whole = self._whole(values, exits)
        if verified(problem, self.checked, whole, self.is_upper, self.strict):
            return whole
        if not mend:
            return None
        # another strategy is almost as good and takes more steps: the fixpoint of T + margin is not as near
        model = self.checked if self.quotient is None else self.found.local
        shifted = _Values.of(replace(model, reward=model.reward + sign * margin), values, self.found.budget)
        good = shifted.approach(0.25 * margin)
        self.found.sweeps += shifted.sweeps
        whole = self._whole(shifted.values, exits)
        return whole if good and verified(problem, self.checked, whole, self.is_upper, self.strict) else None

    def _whole(self, values: np.ndarray, exits: np.ndarray) -> np.ndarray:
        """(n + m,) values of the model's states and exits."""
        whole = values.copy() if self.quotient is None else self.quotient.up(values)
        whole[self.local.n :] = exits
        return whole

    def _inner_exits(self, exits: np.ndarray) -> np.ndarray:
        if self.quotient is None:
            return exits
        return self.quotient.down(np.concatenate([np.zeros(self.local.n), exits]))[self.found.local.n :]


def verified(problem: Problem, checked: Local, values: np.ndarray, is_upper: bool, strict: bool) -> bool:
    """Clip a candidate (n + m,) to the trivial range; whether its inequality holds with directed rounding.

    ``strict`` in every state; from below, in those with a value above 0. Most failures are among the first states.
    """
    clip(problem, checked.n, values)
    first, last, image = 0, core.AT_FIRST, values.copy()
    while first < checked.n:
        some = slice(first, min(last, checked.n))
        checked.images(some, values, image, upward=is_upper)
        if not _holds(values[some], image[some], is_upper, strict):
            return False
        first, last = last, 2 * last
    return True


def _holds(inner: np.ndarray, image: np.ndarray, is_upper: bool, strict: bool) -> bool:
    if is_upper:
        return bool((image < inner if strict else image <= inner).all())
    good = ((image > inner) | (inner <= 0.0) if strict else image >= inner) & np.isfinite(inner)
    return bool(good.all())


def clip(problem: Problem, n: int, values: np.ndarray) -> None:
    """Clip the values of n states to what holds without proof."""
    problem.criterion.clip(values[:n])


def is_narrow(local: Local) -> bool:
    """Whether factors of the local model's chains have little fill."""
    return local.front <= NARROW


def swept_bounds(
    problem: Problem,
    local: Local,
    exit_low: np.ndarray,
    exit_high: np.ndarray,
    guess: np.ndarray,
    width: float,
    budget: int,
) -> Swept | None:
    """Bounds whose distance is at most ``width``, relative to values above 1, if at most ``budget`` sweeps find them.

    None if they do not, or if they are slow and an exact solution is cheap.

    guess : (n,) a start; 0: none is known
    """
    equal = exit_low == exit_high
    apart = float(np.abs(exit_high - exit_low, where=~equal, out=np.zeros(len(equal))).max(initial=0.0))
    if problem.criterion.signed or not np.isfinite(apart):
        return None
    quotient = None
    if _loops(problem, local).any():
        if _has_opponents(problem, local):
            return None
        quotient = collapse(local)
        if quotient is None or not quotient.local.n:
            return None
    start = np.concatenate([guess, exit_low])
    inner = start if quotient is None else quotient.down(start)
    work = local if quotient is None else quotient.local
    if not (problem.proper_max or problem.criterion.contracts or guess.any()):
        inner[: work.n] = work.ways_out(inner[work.n :])[1]  # from 0 a cost would rise by one step per sweep
    local.forget_bounds()
    work.forget_bounds()
    found, goal = _Values.of(work, inner, budget), _Goal(width)
    tolerance = 0.02 * width if problem.criterion.pays else min(0.02 * width, core.COUNTED)
    for _ in range(core.ROUNDS):
        if not found.approach(tolerance):
            return None
        sides = list(_sides(problem, local, found, quotient, start))
        if len(sides) < 2:
            return None
        least = core.LEAST_MARGIN * scale_of(local, found.values)
        bounds = _search(problem, sides, (exit_low, exit_high), apart, max(4.0 * found.change, least), goal)
        if bounds is not None:
            return Swept(*bounds, sides[int(problem.proper_max)].found.rows, found.sweeps)
        margin = _widest(sides, goal.width)
        if not margin > least:
            return None
        tolerance = min(0.125 * margin, 0.25 * tolerance)
    return None


@dataclass(eq=False)
class _Goal:
    """The width of the bounds to look for next, 0 if there are none, and whether these may be mended."""

    width: float
    mend: bool = False


def _search(
    problem: Problem,
    sides: list[_Bound],
    exits: tuple[np.ndarray, np.ndarray],
    apart: float,
    least: float,
    goal: _Goal,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Bounds as narrow as asked, at margins from the widest of use down to ``least``; without any, another goal."""
    failed = False
    while (margin := _widest(sides, goal.width)) >= least:
        bounds = _both(problem, sides, exits, apart, margin, goal.mend)
        if bounds is not None:
            excess = _excess(*bounds, sides[0].local.n, goal.width, apart)
            if excess <= 1.0:
                return bounds
            goal.width /= min(excess, core.MOST_EXCESS)
        elif goal.mend:
            goal.width = 0.0
            return None
        else:
            failed, goal.mend = True, goal.width <= core.FINE
            goal.width *= core.NARROWER
    if failed:
        goal.width = min(goal.width, core.FINE)
    return None


def _both(
    problem: Problem,
    sides: list[_Bound],
    exits: tuple[np.ndarray, np.ndarray],
    apart: float,
    margin: float,
    mend: bool,
) -> tuple[np.ndarray, np.ndarray] | None:
    """(lower, upper), each (n + m,), see `_Bound.bound`."""
    found: dict[bool, np.ndarray] = {}
    # first the side where other rows may do better: it fails more often
    for side in sides if problem.agent == MAX_AGENT else reversed(sides):
        bound = side.bound(problem, exits[side.is_upper], apart if side.is_upper else 0.0, margin, mend)
        if bound is None:
            return None
        found[side.is_upper] = bound
    return found[False], found[True]


def _excess(lower: np.ndarray, upper: np.ndarray, n: int, width: float, apart: float) -> float:
    """How many times as wide as asked the bracket is."""
    between = (upper - lower)[:n] - apart
    return float((between / np.maximum(1.0, np.abs(lower[:n]))).max()) / width


def _widest(sides: list[_Bound], width: float) -> float:
    """The largest margin whose bracket is as narrow as asked."""
    found = [side.found.values[: side.found.local.n] for side in sides]
    sizes = [np.maximum(1.0, np.abs(values)) / np.maximum(side.steps, 1.0) for values, side in zip(found, sides)]
    return 0.45 * width * float(min(size.min() for size in sizes))


def _sides(
    problem: Problem, local: Local, found: _Values, quotient: Quotient | None, start: np.ndarray
) -> Iterator[_Bound]:
    """The upper and the lower side; fewer if the expected number of steps is not found."""
    steps = found.steps_left()
    if steps is None:
        return
    proper, proper_steps = found, steps
    if quotient is not None:
        # the other side's strategies loop where they like; the proper side's must leave
        values = quotient.up(found.values)
        values[local.n :] = start[local.n :]
        proper = _leaving(problem, local, values, found.change, found.budget)
        left = proper.steps_left()
        if left is None:
            return
        proper_steps = left
    own_upper = problem.agent == MIN_AGENT
    for is_upper in (True, False):
        is_proper = is_upper != problem.proper_max
        free = problem.agent == FIXED_AGENT or is_upper != own_upper
        rows = None if free else proper.rows
        strict = is_proper and not problem.criterion.contracts
        if is_proper:
            yield _Bound(proper, proper_steps, local, rows, None, strict, is_upper)
        else:
            yield _Bound(found, steps, local, rows, quotient, strict, is_upper)


def _leaving(problem: Problem, local: Local, values: np.ndarray, change: float, budget: int) -> _Values:
    """The values with strategies close to the best ones from which every play ends."""
    q, p = local.greedy(values)
    rows = local.best_rows(q)
    p, rows = proper_start(
        local,
        problem.proper_max,
        problem.agent_proper,
        problem.nature_proper and not local.nature_fixed,
        q,
        p,
        rows,
        ~np.isfinite(values),
        8.0 * change,
    )
    return _Values(local, values, rows, p, budget, change)


def _loops(problem: Problem, local: Local) -> np.ndarray:
    """(n,) where the proper side can stay forever without paying or being paid: values there are not unique."""
    if problem.criterion.contracts:
        return np.zeros(local.n, dtype=bool)
    played = played_rows(local.weights if local.agent == FIXED_AGENT else None, len(local.reward))
    usable = usable_rows(played, local.reward != 0.0)
    start = np.concatenate([np.ones(local.n, dtype=bool), np.zeros(local.m, dtype=bool)])
    nature = local.moves if problem.nature_proper else local.leaving_moves
    return local.graph.hold_set(nature, usable, ANY_ROW if problem.agent_proper else ALL_ROWS, start)[: local.n]


def _has_opponents(problem: Problem, local: Local) -> bool:
    """Whether somebody plays against the proper side."""
    against = MAX_AGENT if not problem.proper_max else MIN_AGENT
    return local.agent == against or not (problem.nature_proper or local.nature_fixed)
