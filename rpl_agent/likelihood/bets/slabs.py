"""Bets on the value: a slab that contains the truth at all times, at the price of one dimension instead of d.

Payoffs u_f > −1 of every expression f are fixed at marks and settled by the K_f steps labelled f out of the N_f steps
that could have been. The log wealth against x is ln M_t(x) = Σ_marks Σ_f (K_f ln(1 + u_f) − N_f u_f f[x]); M_t is a
supermartingale at the truth (docs/guarantees.md: proof, and how to recompute a slab). Betting ±u, each at α/2, gives

    Σ K ln(1 + u) − ln 2/α  ≤  Σ_f (Σ_marks N_f u_f) f[x]  ≤  ln 2/α − Σ K ln(1 − u)

at all times t simultaneously with probability ≥ 1 − α; `payoffs` makes the slabs narrow along the value's gradient.
"""

from __future__ import annotations

import math
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from rpl_agent._core import UNIT_ROUNDOFF
from rpl_agent.evidence.coordinates import coordinate_box
from rpl_agent.evidence.counts import MOST_PARAMETERS, Counts, Mark
from rpl_agent.evidence.ledger import OF_A_TABLE, WITH_BETS, WITHOUT_BETS, MainShares
from rpl_agent.likelihood.bets.payoffs import BetDirection, hardest_ray, next_direction, payoffs
from rpl_agent.likelihood.blocks import is_blockwise
from rpl_agent.likelihood.chart import JOINT_DIMENSION
from rpl_agent.likelihood.level_set import Rows
from rpl_agent.likelihood.windows import supports
from rpl_agent.model.algebra.ranges import taylor_table
from rpl_agent.model.expressions import ExpressionTable
from rpl_agent.model.objective import Objective, Task
from rpl_agent.model.pmdp import ParametricMDP

#: Slack in nats, so that payoffs recomputed in other arithmetic give slabs that are no wider.
MARGIN = 2.0**-10


class Wealth(NamedTuple):
    """Log wealth so far, as an affine function of the probabilities f: gain − coefficients·f, loss + coefficients·f.

    coefficients : (F,) Σ N_f u_f over the marks
    gain, loss : Σ K ln(1 + u) from betting u, and Σ K ln(1 − u) from betting −u; both rounded down
    error : bound on the total rounding error of the coefficients
    """

    coefficients: np.ndarray
    gain: float = 0.0
    loss: float = 0.0
    error: float = 0.0

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
    slabs = [slab for slab in value_slabs(pmdp, counts, objective, alpha) if slab.coefficients.any()]
    if not slabs:
        return None
    direction = _bets_at[next(mark for mark in reversed(counts.marks) if mark.progress > 0.0)][objective, alpha][0]
    middle, along = hardest_ray(pmdp, counts, direction)
    c = np.array([slab.coefficients for slab in slabs])
    here, slope = c @ middle, c @ along
    with np.errstate(divide="ignore", invalid="ignore"):
        below = np.where(slope > 0.0, (here - [slab.low for slab in slabs]) / slope, np.inf)
        above = np.where(slope > 0.0, ([slab.high for slab in slabs] - here) / slope, np.inf)
    return slabs[int(np.argmin(above))], slabs[int(np.argmin(below))]


def _next(
    pmdp: ParametricMDP, task: Task, key: tuple[Objective, float], mark: Mark, last: Mark | None,
    current: tuple[BetDirection, Wealth] | None, level: float,
) -> tuple[BetDirection, Wealth]:  # fmt: skip
    """The direction from a mark on, and the wealth at the mark; cached per mark."""
    known = _bets_at.setdefault(mark, {})
    if key not in known:
        if current is None or last is None:
            before, wealth = None, Wealth(np.zeros(pmdp.num_expressions))
        else:
            before = current[0]
            wealth = current[1].after(payoffs(before, level, last.progress), *_since(last, mark))
        known[key] = next_direction(pmdp, task, mark, before), wealth
    return known[key]


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


def curved_rows(table: ExpressionTable, slab: ValueSlab, low: np.ndarray, high: np.ndarray) -> Rows:
    """The same for polynomials: rows in θ that hold for every θ of the slab in a box [low, high], (d,) each.

    At the centre, Σ c_f f[θ] = q + g·t + t'Ct + rest (`model.algebra.taylor`); the last two are bounded over the box.
    """
    c, center = slab.coefficients, (low + high) / 2
    half = np.maximum(high - center, center - low) * (1.0 + 4.0 * UNIT_ROUNDOFF)
    p, slope, curvature, rest = taylor_table(table, center, half)
    bend = np.tensordot(c, curvature, 1) * np.outer(half, half)
    mixed = float(np.abs(bend).sum() - np.abs(np.diag(bend)).sum())
    least, most = (float(part.sum()) for part in (np.minimum(np.diag(bend), 0.0), np.maximum(np.diag(bend), 0.0)))
    reach = np.abs(center) + half
    sizes = np.abs(p) + np.abs(slope) @ reach + np.abs(curvature * np.outer(half, half)).sum(axis=(1, 2))
    error = float(np.abs(c) @ (rest + (2.0 * len(c) + 8.0 * len(half) ** 2 + 32.0) * UNIT_ROUNDOFF * sizes)) + mixed
    normal = c @ slope
    offset = float(c @ p - normal @ center)
    rows, sides = np.stack([normal, -normal]), np.array([slab.high - offset - least, offset + most - slab.low]) + error
    return _unit_rows(rows, sides, reach)


def side_rows(above: Rows, below: Rows) -> Rows:
    """The upper side of one slab and the lower side of another, from the rows of both."""
    return np.stack([above[0][0], below[0][1]]), np.array([above[1][0], below[1][1]])


def _unit_rows(rows: np.ndarray, sides: np.ndarray, reach: np.ndarray) -> Rows:
    """Normalise rows, with offsets that stay valid for points of magnitude ≤ reach (r,)."""
    norm = float(np.linalg.norm(rows[0])) or 1.0
    rows = rows / norm
    return rows, sides / norm + 8.0 * UNIT_ROUNDOFF * (np.abs(sides) / norm + np.abs(rows) @ reach)
