"""Bets on the value: a slab that contains the truth at all times, at the price of one dimension instead of d.

Payoffs u_f > −1 of every expression f are fixed at marks and settled by the K_f steps labelled f out of the N_f steps
that could have been. The log wealth against x is ln M_t(x) = Σ_marks Σ_f (K_f ln(1 + u_f) − N_f u_f f[x]); M_t is a
supermartingale at the truth (docs/guarantees.md: proof, and how to recompute a slab). Betting ±u, each at α/2, gives

    Σ K ln(1 + u) − ln 2/α  ≤  Σ_f (Σ_marks N_f u_f) f[x]  ≤  ln 2/α − Σ K ln(1 − u)

at all times t simultaneously with probability ≥ 1 − α, for any payoffs that were fixed at their mark. `payoffs` chooses
them from the data before a mark and from nothing else, so that slabs are narrow along the value's gradient. They are an
explicit formula of (model, objective, marks), so that an independent implementation can reproduce them. With K_f
successes in N_f trials of every expression at the mark,

    θ       the estimate: a few steps of Fisher scoring, θ ← θ + I⁻¹ Σ_f ∇f (K_f − N_f f) / f,  I = Σ_f N_f ∇f∇f' / f
    G       the gradient of the best policy's value at θ, by sweeps over the states
    s       = λ J⁻¹G / √(G'J⁻¹G), J = I / (completed share of the plan): λ standard deviations at the end
    u_f     = ∇f·s / f, which bets on θ + s against θ: the direction in which the data say least about the value.

λ is the stake for reaching a wealth of 1/a by a deadline, capped (docs/guarantees.md, "Which payoffs").
"""

from __future__ import annotations

import math
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from rpl_agent.core.evidence.counts import MOST_PARAMETERS, Counts, Mark
from rpl_agent.core.evidence.ledger import OF_A_TABLE, WITH_BETS, WITHOUT_BETS, MainShares
from rpl_agent.core.model.algebra.ranges import coordinate_box, taylor_table
from rpl_agent.core.model.caching import cached_on
from rpl_agent.core.model.csr import gather
from rpl_agent.core.model.expressions import ExpressionTable, monomial_slopes
from rpl_agent.core.model.objective import Kind, Objective, Sense, Task
from rpl_agent.core.model.pmdp import ParametricMDP
from rpl_agent.core.native import UNIT_ROUNDOFF, core
from rpl_agent.core.regions.blocks import is_blockwise
from rpl_agent.guarantee.likelihood.chart import JOINT_DIMENSION
from rpl_agent.guarantee.likelihood.level_set import Rows
from rpl_agent.guarantee.likelihood.windows import supports

#: state_ptr, row_ptr, successor, expression, reward: as in a model.
ModelRows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]

#: Steps of scoring at the first mark and at later marks, which start from the previous estimate.
FIRST_STEPS, STEPS = 8, 2
#: Recompute the direction when the data have grown by this factor or the plan has changed by this share; recompute the
#: gradient, which takes a solution of the model, only after more growth.
REFRESH, REPLAN, REGROWTH = 1.25, 0.1, 5.0
#: Sweeps stop when no value changes by more than this share of the largest, or after this many transitions.
SWEEP_TOLERANCE, MOST_WORK = 2.0**-8, 2.0**27
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
    """The direction to bet on, scaled to one standard deviation at the end of the plan."""

    unit: np.ndarray  # (F,) payoffs for λ = 1
    theta: np.ndarray  # (d,) the estimate
    gradient: np.ndarray  # (d,) of the value
    total: int  # transitions at the mark
    planned: float  # transitions at the end of the plan
    gradient_total: int  # transitions that the gradient was computed from


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


def least_informed_ray(pmdp: ParametricMDP, counts: Counts, direction: BetDirection) -> tuple[np.ndarray, np.ndarray]:
    """f (F,) at the estimate, and its change along the ray I⁻¹G, in which the data say least about the value."""
    trials = counts.trials.astype(float)
    value, slope, floored = _at(pmdp, direction.theta, counts.successes.astype(float), trials)
    return value, slope @ np.linalg.solve(_information(slope, trials / floored), direction.gradient)


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
    return np.asarray(table.coefficients @ monomial_slopes(table.monomials, theta))


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
    if objective.horizon is None:  # keep the rows of the best policy
        chosen = _sweeps(rows, task, p, slope[:, :0], v, g[:, :0])
        moves, own = gather(pmdp.row_ptr, chosen)
        every = np.arange(len(chosen) + 1)
        rows = (every, own, pmdp.successor[moves], pmdp.expression[moves], task.reward[chosen])
    _sweeps(rows, task, p, slope, v, g)
    found = g[pmdp.initial_state]
    return found if np.abs(found).max() > NOISE * np.abs(v).max() else np.zeros_like(found)


def _sweeps(rows: ModelRows, task: Task, p: np.ndarray, slope: np.ndarray, v: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Sweep v (S,) and g (S, d) in place until they converge, or once per step of the horizon; return the rows (S,)."""
    horizon, d, (state_ptr, row_ptr, successor, expression, reward) = task.objective.horizon, g.shape[1], rows
    sweeps = int(np.clip(MOST_WORK / len(successor), FEWEST_SWEEPS, MOST_SWEEPS)) if horizon is None else horizon
    order = np.flatnonzero(~task.decided)[::-1].copy()
    model = core.PointModel(
        states=len(v),
        count=len(order),
        order=order,
        state_ptr=state_ptr,
        reward=reward,
        weights=None,
        p=p,
        d=d,
        rows=core.RowArrays(count=len(row_ptr) - 1, row_ptr=row_ptr, successor=successor, expression=expression),
        slope=np.ascontiguousarray(slope),
        gamma=task.objective.discount,
        tie=TIE,
        sign=1.0 if task.objective.sense is Sense.MAX else -1.0,
    )
    g_now, taken, scratch = np.ascontiguousarray(g), state_ptr[:-1].copy(), np.empty(d)
    if horizon is None:
        core.value_sweeps(model, sweeps, SWEEP_TOLERANCE, v, g_now, scratch, taken)
    else:  # each sweep reads the previous step's values
        for _ in range(sweeps):
            core.value_sweep(model, v.copy(), g_now.copy(), v, g_now, scratch, taken, np.empty(2))
    g[:] = g_now
    return taken


#: Slack in nats, so that payoffs recomputed in other arithmetic give slabs that are no wider.
MARGIN = 2.0**-10


class Wealth(NamedTuple):
    """Log wealth so far, as an affine function of the probabilities f: gain − coefficients·f, loss + coefficients·f."""

    coefficients: np.ndarray  # (F,) Σ N_f u_f over the marks
    gain: float = 0.0  # Σ K ln(1 + u) from betting u, rounded down
    loss: float = 0.0  # Σ K ln(1 − u) from betting −u, rounded down
    error: float = 0.0  # bound on the total rounding error of the coefficients

    def after(self, payoff: np.ndarray, successes: np.ndarray, trials: np.ndarray) -> Wealth:
        """Settle new successes and trials (F,) since the payoffs (F,) were fixed."""
        seen = np.flatnonzero(successes)
        won, lost = (successes[seen] * np.log1p(sign * payoff[seen]) for sign in (1.0, -1.0))
        room, more = (len(seen) + 16.0) * UNIT_ROUNDOFF, trials * payoff
        size = float(np.abs(more).sum() + np.abs(self.coefficients).sum())
        return Wealth(
            self.coefficients + more,
            self.gain + float(won.sum()) - room * (float(np.abs(won).sum()) + abs(self.gain)),
            self.loss + float(lost.sum()) - room * (float(np.abs(lost).sum()) + abs(self.loss)),
            self.error + 4.0 * UNIT_ROUNDOFF * size,
        )


class ValueSlab(NamedTuple):
    """low ≤ Σ_f coefficients_f f[truth] ≤ high."""

    coefficients: np.ndarray
    low: float
    high: float


_bets_at: WeakKeyDictionary[Mark, dict[tuple[Objective, float], tuple[BetDirection, Wealth]]] = WeakKeyDictionary()


def bets_apply(pmdp: ParametricMDP, objective: Objective | None) -> bool:
    """Whether to bet: decided by the model and the objective alone, never by data."""
    if objective is None or is_blockwise(pmdp) or not supports(pmdp):
        return False
    if pmdp.num_parameters > (MOST_PARAMETERS if pmdp.table.is_affine else JOINT_DIMENSION):
        return False
    reward = pmdp.rewards.get(objective.reward_name) if objective.reward_name else None
    return objective.reward_name is None or (reward is not None and reward.is_known)


def basis_of(pmdp: ParametricMDP, counts: Counts, objective: Objective | None) -> str:
    """What the set is based on: "bets" on the value, "windows" alone, or a "table" without order."""
    if counts.schedule == "table":
        return "table"
    return "bets" if counts.has_plan and bets_apply(pmdp, objective) else "windows"


def shares_of(pmdp: ParametricMDP, counts: Counts, objective: Objective | None) -> MainShares:
    """How the likelihood divides δ for these data."""
    shares = {"table": OF_A_TABLE, "bets": WITH_BETS, "windows": WITHOUT_BETS}
    return shares[basis_of(pmdp, counts, objective)]


def value_slabs(pmdp: ParametricMDP, counts: Counts, objective: Objective, alpha: float) -> list[ValueSlab]:
    """Slabs that hold simultaneously with probability ≥ 1 − alpha: one per mark after the first, one for all data."""
    level, slabs = math.log(2.0 / alpha) * (1.0 + 4.0 * UNIT_ROUNDOFF), []
    current, last, task = None, None, objective.resolve(pmdp)
    for mark in counts.marks:
        if mark.progress > 0.0:
            current, last = _next(pmdp, task, (objective, alpha), mark, last, current, level), mark
            slabs.append(_slab(current[1], level))
    if current is not None and last is not None and counts.total > last.total:
        direction, wealth = current
        slabs.append(_slab(wealth.after(payoffs(direction, level, last.progress), *_since(last, counts)), level))
    return slabs[1:]  # nothing was bet before the first mark


def tightest_slabs(
    pmdp: ParametricMDP, counts: Counts, objective: Objective | None, alpha: float
) -> tuple[ValueSlab, ValueSlab] | None:
    """The slabs whose upper and lower sides are tightest along the ray in which the data say least about the value."""
    if objective is None or not alpha:
        return None
    slabs = value_slabs(pmdp, counts, objective, alpha)
    c = np.array([slab.coefficients for slab in slabs]).reshape(len(slabs), pmdp.num_expressions)
    used = np.flatnonzero(c.any(axis=1))
    if not len(used):
        return None
    slabs, c = [slabs[k] for k in used.tolist()], c[used]
    direction = _bets_at[next(mark for mark in reversed(counts.marks) if mark.progress > 0.0)][objective, alpha][0]
    middle, along = least_informed_ray(pmdp, counts, direction)
    here, slope = c @ middle, c @ along
    with np.errstate(divide="ignore", invalid="ignore"):
        below = np.where(slope > 0.0, (here - [slab.low for slab in slabs]) / slope, np.inf)
        above = np.where(slope > 0.0, ([slab.high for slab in slabs] - here) / slope, np.inf)
    return slabs[int(np.argmin(above))], slabs[int(np.argmin(below))]


def _next(
    pmdp: ParametricMDP,
    task: Task,
    key: tuple[Objective, float],
    mark: Mark,
    last: Mark | None,
    current: tuple[BetDirection, Wealth] | None,
    level: float,
) -> tuple[BetDirection, Wealth]:
    """The direction from a mark on, and the wealth at the mark; cached per mark."""
    known = _bets_at.setdefault(mark, {})
    found = known.get(key)
    if found is None:
        if current is None or last is None:
            before, wealth = None, Wealth(np.zeros(pmdp.num_expressions))
        else:
            before = current[0]
            wealth = current[1].after(payoffs(before, level, last.progress), *_since(last, mark))
        found = known[key] = next_direction(pmdp, task, mark, before), wealth
    return found


def _since(last: Mark, now: Mark | Counts) -> tuple[np.ndarray, np.ndarray]:
    """New successes and trials (F,) after a mark."""
    assert last.trials is not None and now.trials is not None
    return now.successes - last.successes, now.trials - last.trials


def _slab(wealth: Wealth, level: float) -> ValueSlab:
    room = level + MARGIN + wealth.error  # errors are multiplied by probabilities, at most 1
    return ValueSlab(wealth.coefficients, wealth.gain - room, room - wealth.loss)


def slab_rows(pmdp: ParametricMDP, slab: ValueSlab) -> Rows:
    """Rows (A (2, r), b (2,)) of unit norm with A x ≤ b for every x of the slab, in reduced coordinates."""
    reduction, constant, c = pmdp.table.reduction, pmdp.table.constant, slab.coefficients
    weights = np.asarray(reduction.weights)
    reach = np.maximum(*(np.abs(bound) for bound in coordinate_box(pmdp.table, pmdp.domain)))
    normal, offset = c @ weights, float(c @ constant)
    size = float(np.abs(c) @ (np.abs(constant) + np.abs(weights) @ reach))
    error = (2.0 * len(c) + 32.0) * UNIT_ROUNDOFF * size  # sums over F terms of products
    rows, sides = np.stack([normal, -normal]), np.array([slab.high - offset, offset - slab.low]) + error
    return _unit_rows(rows, sides, reach)


def curved_rows(table: ExpressionTable, low: np.ndarray, high: np.ndarray, *slabs: ValueSlab) -> list[Rows]:
    """The same for polynomials: rows in θ that hold for every θ of each slab in a box [low, high], (d,) each.

    At the centre, Σ c_f f[θ] = q + g·t + t'Ct + rest (`model.algebra.taylor`); the last two are bounded over the box.
    """
    center, found = (low + high) / 2, list[Rows]()
    half = np.maximum(high - center, center - low) * (1.0 + 4.0 * UNIT_ROUNDOFF)
    p, slope, curvature, rest = taylor_table(table, center, half)
    square, reach = np.outer(half, half), np.abs(center) + half
    sizes = np.abs(p) + np.abs(slope) @ reach + np.abs(curvature * square).sum(axis=(1, 2))
    errors = rest + (2.0 * len(p) + 8.0 * len(half) ** 2 + 32.0) * UNIT_ROUNDOFF * sizes
    for c, above, below in ((slab.coefficients, slab.high, slab.low) for slab in slabs):
        bend = np.tensordot(c, curvature, 1) * square
        own = np.diag(bend)
        error = float(np.abs(c) @ errors) + float(np.abs(bend).sum() - np.abs(own).sum())
        normal = c @ slope
        offset = float(c @ p - normal @ center)
        ends = above - offset - float(np.minimum(own, 0.0).sum()), offset + float(np.maximum(own, 0.0).sum()) - below
        found.append(_unit_rows(np.stack([normal, -normal]), np.array(ends) + error, reach))
    return found


def side_rows(above: Rows, below: Rows) -> Rows:
    """The upper side of one slab and the lower side of another, from the rows of both."""
    return np.stack([above[0][0], below[0][1]]), np.array([above[1][0], below[1][1]])


def _unit_rows(rows: np.ndarray, sides: np.ndarray, reach: np.ndarray) -> Rows:
    """Normalise rows, with offsets that stay valid for points of magnitude ≤ reach (r,)."""
    norm = float(np.linalg.norm(rows[0])) or 1.0
    rows = rows / norm
    return rows, sides / norm + 8.0 * UNIT_ROUNDOFF * (np.abs(sides) / norm + np.abs(rows) @ reach)
