"""Choose the payoff of every outcome, from the data before a mark and from nothing else.

Validity does not depend on how payoffs are chosen: `slabs` holds for any payoffs that were fixed at their mark. They
are an explicit formula of (model, objective, marks), so that an independent implementation can reproduce them.

With K_f successes in N_f trials of every expression at the mark,

    θ       the estimate: a few steps of Fisher scoring, θ ← θ + I⁻¹ Σ_f ∇f (K_f − N_f f) / f,  I = Σ_f N_f ∇f∇f' / f
    G       the gradient of the best policy's value at θ, by sweeps over the states
    s       = λ J⁻¹G / √(G'J⁻¹G), J = I / (completed share of the plan): λ standard deviations at the end
    u_f     = ∇f·s / f, which bets on θ + s against θ: the direction in which the data say least about the value.

λ is the stake for reaching a wealth of 1/a by a deadline, capped (docs/guarantees.md, "Which payoffs").
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rpl_agent._core import core
from rpl_agent.evidence.counts import Counts, Mark
from rpl_agent.model.caching import cached_on
from rpl_agent.model.csr import gather
from rpl_agent.model.expressions import ExpressionTable
from rpl_agent.model.objective import Kind, Sense, Task
from rpl_agent.model.pmdp import ParametricMDP

#: state_ptr, row_ptr, successor, expression, reward: as in a model.
Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]

#: Steps of scoring at the first mark and at later marks, which start from the previous estimate.
FIRST_STEPS, STEPS = 8, 2
#: Recompute the direction when the data have grown by this factor or the plan has changed by this share; recompute the
#: gradient, which takes a solution of the model, only after more growth.
REFRESH, REPLAN, REGROWTH = 1.25, 0.1, 5.0
#: Sweeps stop when no value changes by more than this share of the largest, or after this many transitions.
SETTLED, MOST_WORK = 2.0**-8, 2.0**27
FEWEST_SWEEPS, MOST_SWEEPS = 16, 1024
#: A later action is taken only if it is better by this share, so that rounding does not decide between equal actions.
TIE = 2.0**-12
#: A gradient below this share of the values counts as rounding error.
NOISE = 2.0**-40
#: Added to the information, relative to its trace, because some parameters may not be identifiable.
RIDGE = 2.0**-30
#: Payoffs are multiples of this, at most a half.
GRID, LARGEST = 2.0**-26, 0.5
#: The difference in nats between L and z²/2, z the quantile of usual error probabilities; the cap on λ in units of z.
NORMAL_LOSS, LATE = 2.0, 2.0
#: Before this share of the plan, stakes are larger by a power of (this share / completed share).
EARLY, EARLY_POWER = 0.5, 0.125


class BetDirection(NamedTuple):
    """The direction to bet on, scaled to one standard deviation at the end of the plan.

    unit : (F,) payoffs for λ = 1; theta : (d,) the estimate; gradient : (d,) of the value
    total, planned : transitions at the mark, and at the end of the plan
    gradient_total : transitions that the gradient was computed from
    """

    unit: np.ndarray
    theta: np.ndarray
    gradient: np.ndarray
    total: int
    planned: float
    gradient_total: int


def next_direction(pmdp: ParametricMDP, task: Task, mark: Mark, before: BetDirection | None) -> BetDirection:
    """The direction to bet on from ``mark`` on; ``before`` is the direction until then."""
    planned = mark.total / mark.progress
    if before is not None and mark.total < REFRESH * before.total and abs(planned / before.planned - 1.0) < REPLAN:
        return before
    assert mark.trials is not None
    successes, trials = mark.successes.astype(float), mark.trials.astype(float)
    theta = (pmdp.domain.lower + pmdp.domain.upper) / 2 if before is None else before.theta
    for _ in range(FIRST_STEPS if before is None else STEPS):
        value, slope, floored = _at(pmdp, theta, successes, trials)
        score = slope.T @ ((successes - trials * value) / floored)
        theta = theta + np.linalg.solve(_information(slope, trials / floored), score)
        if not pmdp.table.is_affine:  # far outside the domain polynomials mean nothing
            theta = np.clip(theta, pmdp.domain.lower, pmdp.domain.upper)
    value, slope, floored = _at(pmdp, theta, successes, trials)
    if before is None or mark.total >= REGROWTH * before.gradient_total:
        gradient, found_with = value_gradient(pmdp, task, np.clip(value, 0.0, 1.0), slope), mark.total
    else:
        gradient, found_with = before.gradient, before.gradient_total
    unit = np.zeros(len(value))
    if np.isfinite(theta).all() and np.isfinite(gradient).all() and gradient.any():
        shift = np.linalg.solve(_information(slope, trials / floored) / mark.progress, gradient)
        unit = slope @ (shift / math.sqrt(gradient @ shift)) / floored
    return BetDirection(unit, theta, gradient, mark.total, planned, found_with)


def payoffs(direction: BetDirection, level: float, progress: float) -> np.ndarray:
    """(F,) the payoffs u from a mark on; ``level`` = ln 1/a."""
    return np.rint(np.clip(stake(level, progress) * direction.unit, -LARGEST, LARGEST) / GRID) * GRID


def hardest_ray(pmdp: ParametricMDP, counts: Counts, direction: BetDirection) -> tuple[np.ndarray, np.ndarray]:
    """f (F,) at the estimate, and its change along the ray I⁻¹G, in which the data say least about the value."""
    value, slope, floored = _at(pmdp, direction.theta, counts.successes.astype(float), counts.trials.astype(float))
    return value, slope @ np.linalg.solve(_information(slope, counts.trials / floored), direction.gradient)


def stake(level: float, progress: float) -> float:
    """λ, from the log wealth to reach and the completed share of the plan."""
    z2 = max(2.0 * (level - NORMAL_LOSS), 1.0)
    late = math.sqrt(z2 + 8.0 / math.pi / max(1.0 - progress, 2.0**-20))
    early = max(EARLY / progress, 1.0) ** EARLY_POWER
    return min((math.sqrt(z2) + late) / 2.0 * early, LATE * math.sqrt(z2))


def derivatives(table: ExpressionTable, theta: np.ndarray) -> np.ndarray:
    """(F, d) derivatives of all expressions at θ (d,), for models with few parameters."""
    if table.is_affine:
        return cached_on(table, "derivatives", lambda t: np.asarray(t.coefficients @ t.monomials.astype(float)))
    slopes = table.monomials.astype(float)  # (M, d)
    for j in range(table.num_parameters):
        lower = table.monomials.copy()
        lower[:, j] = np.maximum(lower[:, j] - 1, 0)
        slopes[:, j] *= np.prod(np.asarray(theta, dtype=float) ** lower, axis=1)
    return np.asarray(table.coefficients @ slopes)


def _at(
    pmdp: ParametricMDP, theta: np.ndarray, successes: np.ndarray, trials: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """f (F,) at θ, ∇f (F, d), and f with a positive floor from the data, because iterates may leave the domain."""
    value, slope = pmdp.table.evaluate(theta), derivatives(pmdp.table, theta)
    return value, slope, np.maximum(value, (successes + 0.5) / (4.0 * trials + 4.0))


def _information(slope: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """(d, d) Σ weight ∇f∇f', positive definite."""
    matrix = slope.T @ (weight[:, None] * slope)
    return matrix + np.eye(len(matrix)) * max(RIDGE * np.trace(matrix), 1e-300)


def value_gradient(pmdp: ParametricMDP, task: Task, p: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """(d,) the gradient of the best policy's value at the start, for chances p (F,) with derivatives (F, d).

    Sweeps start from 0: first over values, then over gradients under the resulting policy. With a horizon, one sweep
    per step computes both.
    """
    objective = task.objective
    v, g = np.zeros(pmdp.num_states), np.zeros((pmdp.num_states, slope.shape[1]))
    if objective.kind is Kind.REACH:
        v[task.target] = 1.0
    if task.final is not None:
        v = task.final.copy()
    rows = (pmdp.state_ptr, pmdp.row_ptr, pmdp.successor, pmdp.expression, task.reward)
    if objective.horizon is None:
        rows = _restricted(*rows, _sweeps(rows, task, p, slope[:, :0], v, g[:, :0]))
    _sweeps(rows, task, p, slope, v, g)
    found = g[pmdp.initial_state]
    return found if np.abs(found).max() > NOISE * np.abs(v).max() else np.zeros_like(found)


def _restricted(
    state_ptr: np.ndarray, row_ptr: np.ndarray, successor: np.ndarray, expression: np.ndarray, reward: np.ndarray,
    chosen: np.ndarray,
) -> Rows:  # fmt: skip
    """The rows of a policy: ``chosen`` (S,), one row per state."""
    moves, own = gather(row_ptr, chosen)
    return np.arange(len(chosen) + 1), own, successor[moves], expression[moves], reward[chosen]


def _sweeps(rows: Rows, task: Task, p: np.ndarray, slope: np.ndarray, v: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Sweep v (S,) and g (S, d) in place until they converge, or once per step of the horizon; return the rows (S,)."""
    horizon, d, (state_ptr, row_ptr, successor, expression, reward) = task.objective.horizon, g.shape[1], rows
    sweeps = int(np.clip(MOST_WORK / len(successor), FEWEST_SWEEPS, MOST_SWEEPS)) if horizon is None else horizon
    model = core.PointModel(
        num_states=len(v), d=d, state_ptr=state_ptr, reward=reward, p=p, slope=np.ascontiguousarray(slope),
        rows=core.RowArrays(count=len(row_ptr) - 1, row_ptr=row_ptr, successor=successor, expression=expression),
        decided=np.ascontiguousarray(task.decided), gamma=task.objective.discount,
        sign=1.0 if task.objective.sense is Sense.MAX else -1.0, tie=TIE,
    )  # fmt: skip
    g_now, taken, scratch, change = np.ascontiguousarray(g), state_ptr[:-1].copy(), np.empty(d), np.empty(2)
    if horizon is None:
        core.value_sweeps(model, sweeps, SETTLED, v, g_now, scratch, taken, change)
    else:  # each sweep reads the previous step's values
        for _ in range(sweeps):
            core.value_sweep(model, v.copy(), g_now.copy(), v, g_now, scratch, taken, change)
    g[:] = g_now
    return taken
