"""`Aim`: the directions in which bets are placed at a mark, as `checker.Bets` finds them, bit for bit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rpl_agent.core.model import Kind, Objective, ParametricMDP, Sense, cached_on
from rpl_agent.core.native import core
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.likelihood.line import Line


@dataclass(frozen=True, eq=False)
class Direction:
    """Of one series of bets: payoffs for a shift by one standard deviation of the value."""

    gradient: np.ndarray  # (r,) of the best value, of either sign
    shift: np.ndarray  # (r,) in which the data say least about the value
    unit: np.ndarray  # (n,) payoffs of the free expressions

    def payoffs(self, level: float, share: float) -> np.ndarray:
        """(n,) payoffs from the mark at which this share of the plan is done; level: ln of the wealth to reach."""
        size = checker.stake(level, share) * math.sqrt(share)
        return np.rint(np.clip(size * self.unit, -0.5, 0.5) * checker.Bets.GRID) / checker.Bets.GRID


@dataclass(frozen=True, eq=False)
class Aim:
    """The directions of all series."""

    total: int  # number of transitions when this aim was found
    slope_total: int  # number of transitions when its slopes were found
    slopes: list[np.ndarray]  # (r,) of each series, with their own sign
    series: list[Direction]


class _Information:
    """What the data before a mark tell about shifts of x (r,)."""

    def __init__(self, line: Line, chances: np.ndarray, successes: np.ndarray, trials: np.ndarray) -> None:
        self.line, self.N = line, trials[line.free].astype(float)
        self.p = np.maximum(chances, (successes[line.free] + 0.5) / (4 * self.N + 4))

    def direction(self, gradient: np.ndarray) -> Direction:
        line, gradient = self.line, np.ascontiguousarray(gradient, dtype=float)
        shift, unit = np.empty(line.dimension), np.empty(len(line.free))
        core.aim(len(unit), line.dimension, line.floats, self.p, self.N, gradient, None, shift, unit)
        return Direction(gradient, shift, unit)


def next_aim(
    world: BetWorld, line: Line, x: np.ndarray, successes: np.ndarray, trials: np.ndarray, before: Aim | None
) -> Aim:
    """The aim at a mark with the estimate x (r,), from the counts (F,) of expressions before it."""
    total = int(successes.sum())
    if before is not None and 4 * total < 5 * before.total:
        return before
    known = _Information(line, line.chances(x), successes, trials)
    if before is None or line.is_product or total >= 2 * before.slope_total:
        slopes, slope_total = _slopes(world, line, x, known, before), total
        gradients = slopes if before is None else list(map(_on_one_side, slopes, before.series))
    else:
        slopes, slope_total = before.slopes, before.slope_total
        gradients = [series.gradient for series in before.series]
    return Aim(total, slope_total, slopes, list(map(known.direction, gradients)))


def _slopes(world: BetWorld, line: Line, x: np.ndarray, known: _Information, before: Aim | None) -> list[np.ndarray]:
    """(r,) of every series."""
    if not line.is_product:
        return [world.slope(line, line.chances(x))]
    none = np.zeros(line.dimension)
    old = [none, none] if before is None else before.slopes
    found = checker.rivals(
        x.tolist(),
        [slope.tolist() for slope in old],
        world.sign,
        lambda direction: known.direction(np.array(direction)).shift.tolist(),
        lambda point: world.slope(line, line.chances(np.array(point))).tolist(),
        lambda point: line.chances(np.array(point)).tolist(),
    )
    return list(map(np.array, found))


def _on_one_side(slope: np.ndarray, before: Direction) -> np.ndarray:
    """A gradient (r,) of either sign, so that bets on a value that rises and on one that falls do not cancel.

    Where the best policy's value does not depend on the unknowns, the gradient before stays: another one's may.
    """
    if math.fsum((slope * before.shift).tolist()) < 0.0:
        return -slope
    return slope if slope.any() else before.gradient


class BetWorld:
    """A model and the objective whose best value is bet on, in arrays."""

    def __init__(self, pmdp: ParametricMDP, objective: Objective) -> None:
        self.fixed = np.where(pmdp.table.is_constant, pmdp.table.constant, 0.0)
        target = np.zeros(pmdp.num_states, bool) if objective.target is None else pmdp.labels[objective.target]
        decided = target if objective.avoid is None else target | pmdp.labels[objective.avoid]
        final, reward = np.where(target, float(objective.kind is Kind.REACH), 0.0), np.zeros(pmdp.num_rows)
        if objective.reward_name is not None:
            paid = pmdp.rewards[objective.reward_name]
            if objective.kind is Kind.INSTANT:
                final = paid.state.astype(float)
            else:
                reward = np.where(decided[pmdp.row_state], 0.0, paid.state[pmdp.row_state] + paid.row)
        takes_time = ~pmdp.is_silent[pmdp.successor]
        if pmdp.has_random_start:
            takes_time &= pmdp.row_state[pmdp.transition_row] != pmdp.initial_state
        numerator, denominator = objective.discount.as_integer_ratio()
        per_step, late = 2 if pmdp.has_payments else 1, int(pmdp.has_random_start)
        steps = None if objective.horizon is None else late + per_step * objective.horizon
        self.sweeps = steps or max(16, min(1024, 2**24 // pmdp.num_transitions))
        self.sign = 1 if objective.sense is Sense.MAX else -1
        self.model = core.BetModel(
            states=pmdp.num_states,
            rows=pmdp.num_rows,
            initial=pmdp.initial_state,
            state_ptr=pmdp.state_ptr,
            row_ptr=pmdp.row_ptr,
            successor=pmdp.successor,
            expression=pmdp.expression,
            factor=np.where(takes_time, float(numerator), float(denominator)),
            denominator=float(denominator),
            reward=np.ascontiguousarray(reward, dtype=float),
            decided=np.ascontiguousarray(decided, dtype=bool),
            final=np.ascontiguousarray(final),
            maximise=objective.sense is Sense.MAX,
            in_steps=steps is not None,
        )

    def slope(self, line: Line, chances: np.ndarray) -> np.ndarray:
        """(r,) the gradient of the best value where the free expressions have these chances (n,)."""
        chance, weight = self.fixed.copy(), np.zeros(len(self.fixed))
        chance[line.free] = np.clip(chances, 0.0, 1.0)
        core.passages(self.model, self.sweeps, chance, None, None, None, None, weight)
        return np.array([math.fsum((weight[line.free] * column).tolist()) for column in line.weights.T])


def bet_world(pmdp: ParametricMDP, objective: Objective) -> BetWorld:
    known: dict[Objective, BetWorld] = cached_on(pmdp, "bet worlds", lambda _: {})
    if objective not in known:
        known[objective] = BetWorld(pmdp, objective)
    return known[objective]
