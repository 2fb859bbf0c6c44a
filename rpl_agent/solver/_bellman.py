"""Compiled Bellman sweeps in three levels: states (the agent), rows (rewards), and what nature may do in a row.

The innermost level is `row_bound`; it alone knows the set. Every kernel works on a model's arrays or a local model's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rpl_agent.jit import FAINT, UNIT_ROUNDOFF, Floats, Ints, int64, njit
from rpl_agent.relaxations._rows import remembered, row_bound

if TYPE_CHECKING:
    from rpl_agent.relaxations.row_set import IntervalRows, RegionRows, Scratch


MAX_AGENT, MIN_AGENT, FIXED_AGENT = 1, -1, 0


class Game(NamedTuple):
    """Who moves where, for what: the arguments of a sweep that are the same for all of them.

    Attributes
    ----------
    agent : int
        MAX_AGENT, MIN_AGENT, or FIXED_AGENT to play ``weights``.
    maximise : bool
        Direction of nature.
    gamma : float
    state_ptr, row_ptr, successor, expression : of the model
    reward, weights : (R,) float64
    """

    agent: int
    maximise: bool
    gamma: float
    state_ptr: np.ndarray
    row_ptr: np.ndarray
    successor: np.ndarray
    expression: np.ndarray
    reward: np.ndarray
    weights: np.ndarray


@njit(part=True)
def paid(q: float, reward: float, gamma: float, side: float) -> float:
    """reward + gamma q, rounded to a side (1.0: up, -1.0: down)."""
    if q < np.inf and (reward != 0.0 or (gamma != 1.0 and q != 0.0)):
        q = reward + gamma * q
        q += side * 3.0 * UNIT_ROUNDOFF * (abs(q) + 2.0 * abs(reward) + FAINT)
    return q


@njit(part=True)
def mixed_in(
    q: float, weight: float, drawn: int, base: float, total: float, least: float, most: float
) -> tuple[float, float, float, float]:
    """One more row of a fixed policy: its mean is base + total, its values lie between least and most."""
    if drawn == 0 or q == np.inf:
        base = q
    elif q != base and base < np.inf:
        total += weight * (q - base)
    return base, total, min(least, q), max(most, q)


@njit(part=True)
def mixture(drawn: int, base: float, total: float, least: float, most: float, side: float) -> float:
    """The mean of ``drawn`` rows, rounded to a side."""
    mean = base + total
    if most > least and mean < np.inf:
        mean += side * 3.0 * UNIT_ROUNDOFF * ((2.0 * drawn + 8.0) * (most - least) + 2.0 * abs(mean) + FAINT)
    return mean


@njit(nogil=True, allocates=False)
def bellman(
    order: Ints,
    values: Floats,
    out: Floats,
    chosen: Ints,
    upward: bool,
    offset: float,
    game: Game,
    point: Floats | None,
    interval: IntervalRows | None,
    region: RegionRows | None,
    scratch: Scratch,
) -> float:
    """out[s] = bound of (T values)(s) + offset for s in order; ``out is values`` makes it a Gauss-Seidel sweep.

    Parameters
    ----------
    order : (k,) int64
    values, out : (S,) float64
    chosen : (S,) int64
        Written: the agent's best row (untouched for a fixed policy).
    upward : bool
        Side of the bound: False gives out <= T values, True out >= T values.
    offset : float
        Added to every result (a strict margin).
    game : Game
    point, interval, region : `CompiledSet.arguments`
    scratch : Scratch

    Returns
    -------
    float
        The largest change.
    """
    agent, maximise, gamma, state_ptr, row_ptr = game.agent, game.maximise, game.gamma, game.state_ptr, game.row_ptr
    successor, expression, reward, weights = game.successor, game.expression, game.reward, game.weights
    largest = 0.0
    vertex = int64(0)
    side = 1.0 if upward else -1.0
    for i in range(order.shape[0]):
        s = order[i]
        best = np.inf if agent == MIN_AGENT else -np.inf
        best_row = state_ptr[s]
        base, total, least, most = 0.0, 0.0, np.inf, -np.inf
        drawn = 0
        for row in range(state_ptr[s], state_ptr[s + 1]):
            if agent == FIXED_AGENT and weights[row] == 0.0:
                continue
            start = remembered(row, region, vertex)
            q, vertex, _ = row_bound(
                row_ptr[row], row_ptr[row + 1], values, maximise, upward, successor, expression, point, interval,
                region, scratch, start,
            )  # fmt: skip
            if region is not None:
                region.memory[row % region.memory.shape[0]] = vertex
            q = paid(q, reward[row], gamma, side)
            if agent == FIXED_AGENT:
                base, total, least, most = mixed_in(q, weights[row], drawn, base, total, least, most)
                drawn += 1
            elif (agent == MAX_AGENT and q > best) or (agent == MIN_AGENT and q < best):
                best = q
                best_row = row
        if agent == FIXED_AGENT:
            best = mixture(drawn, base, total, least, most, side)
        else:
            chosen[s] = best_row
        best += offset
        if offset != 0.0 and best < np.inf:
            best += side * UNIT_ROUNDOFF * abs(best)
        if best != values[s]:
            change = abs(best - values[s])
            largest = change if not change <= largest else largest
        out[s] = best
    return largest
