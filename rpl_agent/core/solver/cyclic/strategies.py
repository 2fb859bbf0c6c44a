"""Strategies on a local model: policy iteration for one side, Hoffman-Karp for two.

The *proper* side is the one whose infinite plays are worthless to it (see `Problem.proper_max`). Fixing a proper
strategy of that side leaves a problem in which every play ends, hence one fixpoint, and policy iteration with exact
chain solutions finds it in a few steps however slowly the chain mixes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent.core.solver.cyclic.local import Local
from rpl_agent.core.solver.graph import ALL_ROWS, ANY_ROW, moves, played_rows, usable_rows
from rpl_agent.core.solver.problem import FIXED_AGENT

#: improvements below this (relative to the values) are ties: switching on them could leave the proper strategies
IMPROVEMENT = 4e-14
MAX_STEPS = 100
#: sweeps for the start of policy iteration: enough to find the way out, not to converge
FIRST_SWEEPS, FIRST_CHANGE = 20, 1e-3
#: the most actions that are tried as constant policies, and the most states of a part in which they are
CONSTANT_ACTIONS, CONSTANT_LIMIT = 4, 20_000
#: sweeps between two chains on the way to the start, and the most chains
SWEEPS_BETWEEN, APPROACHES = 2, 40
#: a start this close (relative) is left to policy iteration
CLOSE = 1e-9


@dataclass(eq=False)
class Strategies:
    """A pair of strategies on a local model and its value."""

    values: np.ndarray  # (n + m,)
    rows: np.ndarray  # (n,) the agent's, empty for a fixed policy
    p: np.ndarray  # (T,) nature's, on every row
    steps: int
    converged: bool


def scale_of(local: Local, values: np.ndarray) -> float:
    """The magnitude of the values, for tolerances; far from underflow, where rounding is no longer relative.

    Far enough that bounds made of tolerances alone are not below `SMALLEST`.
    """
    finite = values[np.isfinite(values)]
    return max(float(np.abs(finite).max(initial=0.0)), float(np.abs(local.reward).max(initial=0.0)), 1e-260)


def improve(local: Local, values: np.ndarray, offset: float) -> Strategies:
    """Policy iteration for players with the same direction (others fixed), from a finite start.

    The result is not ``converged`` if a chain was singular or the values kept changing.
    """
    rows, p = np.zeros(0, dtype=np.int64), np.zeros(0)
    previous = np.inf
    for step in range(1, MAX_STEPS + 1):
        q, p = local.greedy(values)
        rows = local.best_rows(q)
        new = local.chain(values, rows, p, offset)
        if new is None:
            return Strategies(values, rows, p, step, False)
        change = float(np.abs(new[: local.n] - values[: local.n]).max())
        values = new
        tolerance = 0.25 * IMPROVEMENT * scale_of(local, values)
        if change <= tolerance or (change <= 1e3 * tolerance and change >= 0.5 * previous):
            return Strategies(values, rows, p, step, True)
        if local.agent == FIXED_AGENT and local.nature_fixed:
            return Strategies(values, rows, p, step, True)
        previous = change
    return Strategies(values, rows, p, MAX_STEPS, False)


def can_hold(local: Local, proper_max: bool, fixed: Local, p: np.ndarray) -> np.ndarray:
    """(n,) where the opponents of the proper side can hold the play without reward, given its strategy.

    fixed : the model with the proper side's choices fixed
    p : (T,) nature's distributions if nature is on the proper side
    """
    nature_proper = local.maximise == proper_max
    # A cost minimiser's opponents gain from every step, a maximiser's only from steps without reward.
    played = played_rows(fixed.weights if fixed.agent == FIXED_AGENT else None, len(local.reward))
    usable = usable_rows(played, local.reward != 0.0 if proper_max else False)
    quantifier = ALL_ROWS if fixed.agent == FIXED_AGENT else ANY_ROW
    start = np.zeros(local.n + local.m, dtype=bool)
    start[: local.n] = True
    # A fixed nature stays inside only if its whole support does.
    nature = moves(None, p) if nature_proper else local.moves
    return local.graph.hold_set(nature, usable, quantifier, start)[: local.n]


def _leaving(local: Local, values: np.ndarray, p: np.ndarray) -> np.ndarray:
    """(n,) rows of the agent by which plays leave to exits with finite values (n + m,), if nature plays p (T,)."""
    finite = np.isfinite(values) | (np.arange(len(values)) < local.n)
    usable = np.logical_and.reduceat(finite[local.successor] | (local.hi <= 0.0), local.row_ptr[:-1])
    rows = local.state_ptr[:-1].copy()
    local.graph.progress_rows(moves(p, p), usable, usable, np.zeros(len(usable), dtype=bool), True, rows)
    return rows


def iterate_strategies(local: Local, proper_max: bool, values: np.ndarray, budget: int) -> Strategies:
    """Optimal strategies of both sides (Hoffman-Karp): the proper side improves, its opponents respond exactly.

    values : (n + m,) a guess for the states, the true values for the exits
    budget : limit on the number of chains solved
    """
    sign = 1.0 if proper_max else -1.0
    agent_proper = local.agent == int(sign)
    nature_proper = local.maximise == proper_max and not local.nature_fixed
    values, rows, p, steps = _approach(local, proper_max, agent_proper, nature_proper, values, budget)
    infinite = ~np.isfinite(values)
    solved = 0
    answer = Strategies(values, rows, p, 0, False)
    while steps < budget and solved < MAX_STEPS:
        fixed = local.fix_agent(rows) if agent_proper else local
        fixed = fixed.fix_nature(p) if nature_proper else fixed
        if solved == 0 and proper_max and (local.reward > 0).any():
            # The minimisers' first responses must end the play too: rows that leave, and a nature that spreads mass.
            first, spread = rows, fixed.central(infinite)
            if not agent_proper:
                first = np.zeros(0, dtype=np.int64) if fixed.agent == FIXED_AGENT else _leaving(fixed, values, spread)
            start = fixed.chain(values, first, spread, 0.0)
            values = values if start is None else start
        answer = improve(fixed, values, 0.0)
        steps += answer.steps
        solved += answer.steps
        if not answer.converged:
            break
        values = answer.values
        tolerance = IMPROVEMENT * scale_of(local, values)
        q, greedy_p = local.greedy(values)
        switched = False
        if nature_proper:
            current = local.means(values, p)
            gain = np.subtract(q, current, out=np.zeros_like(q), where=~np.isinf(current))
            better = sign * gain > tolerance
            switched = bool(better.any())
            p = np.where(better[local.transition_row], greedy_p, p)
        else:
            p = greedy_p
        if agent_proper:
            best = local.best_rows(q)
            better = sign * (q[best] - q[rows]) > tolerance
            switched = switched or bool(better.any())
            rows = np.where(better, best, rows)
        else:
            rows = answer.rows
        if not switched:
            return Strategies(values, rows, p, steps, True)
    return Strategies(values, rows, p, steps, False)


def _approach(
    local: Local, proper_max: bool, agent_proper: bool, nature_proper: bool, values: np.ndarray, budget: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """A good start: Newton steps of both sides at once, with sweeps between them; guarantees only
    that the proper side's strategies end every play. Returns (values, rows, p, steps)."""
    n = local.n
    order, cost = local.ways_out(values[n:])
    risen = not proper_max and local.gamma == 1.0 and not values[:n].any()
    if risen:
        values[:n] = cost  # from 0 a cost would rise by one step per sweep
    steps = 0
    sweeps = local.agent != FIXED_AGENT  # if nature plays alone, its response to a solved chain is good enough
    losses = bool((local.reward < 0.0).any())
    if sweeps:
        # Compute nature's responses once per Newton step and keep them in the sweeps: sorting rows is most of a sweep.
        p = local.greedy(values)[1]
        if risen and n <= CONSTANT_LIMIT and _constant_policies(local, values, p):
            p = local.greedy(values)[1]
        steps = local.fix_nature(p).relax(values, order, min(FIRST_SWEEPS, budget), FIRST_CHANGE, not proper_max)
    for k in range(APPROACHES):
        values[:n][~np.isfinite(values[:n])] = 0.0
        q, p = local.greedy(values)
        rows = local.best_rows(q)
        if steps >= budget or k == APPROACHES - 1:
            break
        new = local.chain(values, rows, p, 0.0, 0.1 * CLOSE)
        steps += 1
        if new is None or not ((new[:n] >= 0.0).all() or losses):  # some play did not end: look further first
            steps += local.relax(values, order, min(FIRST_SWEEPS, max(budget - steps, 1)), 0.1 * FIRST_CHANGE)
            continue
        change = float(np.abs(new[:n] - values[:n]).max())
        values = new
        if change <= CLOSE * scale_of(local, values):
            break
        if sweeps:
            between = min(SWEEPS_BETWEEN, max(budget - steps, 1))
            steps += local.fix_nature(p).relax(values, order, between, 0.0, not proper_max)
    if local.gamma == 1.0:
        p, rows = proper_start(local, proper_max, agent_proper, nature_proper, q, p, rows, ~np.isfinite(values))
    return values, rows, p, steps


def _constant_policies(local: Local, values: np.ndarray, p: np.ndarray) -> bool:
    """Replace ``values`` by the costs of always taking the first action, the second, ... if such plays end.

    Policy iteration moves the border between two ways out by a state or two per step; the best of constant policies
    starts it near its final place.
    """
    counts, n = np.diff(local.state_ptr), local.n
    found, limit = np.full(n, np.inf), 1e3 * (1.0 + values[:n].max())
    for k in range(min(int(counts.max()), CONSTANT_ACTIONS)):
        rows = local.state_ptr[:-1] + np.minimum(k, counts - 1)
        if k == 0 and can_hold(local.fix_nature(p), False, local.fix_agent(rows), p).any():
            return False  # plays never end; factors would show that too, at ten times the price
        new = local.chain(values, rows, p, 0.0)
        if new is None or not ((new[:n] >= 0.0) & (new[:n] < limit)).all():
            break  # if one action alone leads nowhere, the others rarely do better
        found = np.minimum(found, new[:n])
    if np.isfinite(found).all():
        values[:n] = found
    return bool(np.isfinite(found).all())


def proper_start(
    local: Local,
    proper_max: bool,
    agent_proper: bool,
    nature_proper: bool,
    q: np.ndarray,
    p: np.ndarray,
    rows: np.ndarray,
    infinite: np.ndarray,
    tie: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Proper strategies close to the greedy ones, with which every play ends: (p, rows).

    ``tie``: how much worse than the best a row may be, beside rounding.
    """
    pays = (local.reward > 0.0) if proper_max else np.zeros(len(q), dtype=bool)
    tie = max(tie, 1e-9 * scale_of(local, np.where(np.isfinite(q), q, 0.0)))

    def attract(p: np.ndarray) -> tuple[np.ndarray, int]:
        if not agent_proper:
            return rows, 0
        best = q[rows][local.row_state]
        usable = np.isfinite(q)
        preferred = usable & (np.abs(np.where(usable, q, 0.0) - np.where(np.isfinite(best), best, 0.0)) <= tie)
        nature = moves(p, p) if nature_proper else local.moves
        chosen = rows.copy()
        left = local.graph.progress_rows(nature, preferred, usable, pays, not nature_proper, chosen)
        return chosen, left

    chosen, left = attract(p)
    if nature_proper:
        fixed = local.fix_agent(chosen) if agent_proper else local
        if left or can_hold(local, proper_max, fixed, p).any():
            p = local.central(infinite & (not proper_max))
            chosen, left = attract(p)
    return p, chosen
