"""The engine for relaxations without compiled sets: Jacobi steps through `Relaxation.expectation` alone.

Levels of the component graph are solved in order, so acyclic models take one pass. On cycles, lower bounds
are iterates from the sound side and upper bounds are guesses above them, accepted only when T maps them below
themselves (optimistic value iteration). Nature's strategies are unknown here, so end components and infinite values
of regions get sound, possibly wide, brackets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent.core.model import ParametricMDP, Policy, Sense, gather
from rpl_agent.core.solver.check import prove_side
from rpl_agent.core.solver.graph import ALL_ROWS, ANY_ROW, CYCLIC, model_graph, played_rows, usable_rows
from rpl_agent.core.solver.operator import generic_bounds, state_bounds
from rpl_agent.core.solver.problem import FIXED_AGENT, MAX_AGENT, Problem
from rpl_agent.core.solver.solution import Solution, finish, without_tiny

#: initial relative distance of an optimistic guess, its growth, and the sweeps to verify it
GUESS, GUESS_GROWTH, GUESS_SWEEPS, GUESSES = 1e-8, 16.0, 200, 9


@dataclass(frozen=True, eq=False)
class _Known:
    """Facts from the graph, for one choice of the agent: held (S,) and infinite (S,), see `solve_batch`."""

    held: np.ndarray
    infinite: np.ndarray


def _graph(problem: Problem, weights: np.ndarray | None) -> _Known:
    """Where the proper side's opponents can hold the play without reward, and where the value can only be infinite."""
    pmdp, states = problem.pmdp, problem.pmdp.num_states
    if problem.criterion.contracts:
        return _Known(np.zeros(states, dtype=bool), np.zeros(states, dtype=bool))
    infinite = np.zeros(states, dtype=bool)
    if problem.criterion.can_be_infinite:
        infinite = ~problem.finite_states(weights, not problem.maximise)
    usable = usable_rows(
        played_rows(weights, pmdp.num_rows), not problem.criterion.must_reach and problem.reward != 0.0
    )
    quantifier = ANY_ROW if weights is None and not problem.agent_proper else ALL_ROWS
    start = ~problem.task.decided & ~infinite
    return _Known(problem.held_states(usable, quantifier, start, willing=not problem.nature_proper), infinite)


@dataclass(frozen=True, eq=False)
class _Level:
    """States of one level with their rows."""

    states: np.ndarray
    rows: np.ndarray
    cyclic: bool

    def image(self, problem: Problem, values: np.ndarray, upward: bool, weights: np.ndarray | None) -> np.ndarray:
        """(k,) bounds on T values for the block's states."""
        q = generic_bounds(problem, values, upward, self.rows)
        result = state_bounds(problem, q, upward, weights, self.states, self.rows)
        return np.minimum(result, problem.criterion.most)


def _blocks(problem: Problem) -> list[_Level]:
    pmdp, decided = problem.pmdp, problem.task.decided
    graph = model_graph(pmdp)
    kind, level = graph.layers(decided, *graph.components(decided)[:2], sinks=False, every=True)
    found = []
    for k in np.unique(level[~decided]):
        for cyclic in (False, True):
            states = np.flatnonzero((level == k) & ~decided & ((kind == CYCLIC) == cyclic))
            if len(states):
                found.append(_Level(states, gather(pmdp.state_ptr, states)[0], cyclic))
    return found


def solve_batch(problem: Problem, precision: float, max_iterations: int, began: float) -> Solution:
    """Bounds through `expectation` alone; see the module docstring."""
    blocks = _blocks(problem)
    free = problem.weights if problem.agent == FIXED_AGENT else None
    graph = _graph(problem, free)
    low, steps = _below(problem, blocks, free, graph, precision, max_iterations)
    policy, fixed = problem.policy, free
    if policy is None:
        policy = Policy.deterministic(_rows(problem, blocks, low))
        fixed = policy.as_weights(problem.pmdp)
    own = _graph(problem, fixed)
    if problem.agent == MAX_AGENT:  # the lower bound must be that of the policy
        low, more = _below(problem, blocks, fixed, own, precision, max_iterations)
        steps += more
    above = (fixed, own) if problem.objective.sense is Sense.MIN else (free, graph)
    high, more = _above(problem, blocks, above[0], above[1], low, max_iterations)
    low, high = without_tiny(problem, low, high)
    if prove_side(problem, low, False, policy if problem.agent == MAX_AGENT else problem.policy):
        low = _nothing(problem, False)
    if prove_side(problem, high, True, policy if problem.objective.sense is Sense.MIN else problem.policy):
        high = _nothing(problem, True)
    return finish(problem, low, high, policy, max(1, steps + more), precision, began, None)


def _below(
    problem: Problem, blocks: list[_Level], weights: np.ndarray | None, graph: _Known, precision: float, limit: int
) -> tuple[np.ndarray, int]:
    """Iterates that stay below the value; a tiny cost per step keeps them inductive on cycles."""
    values = problem.boundary()
    if problem.criterion.contracts:
        least = min(float(problem.reward.min(initial=0.0)), 0.0) / (1.0 - problem.gamma)
        values[~problem.task.decided] = least * (1.0 + 1e-9) - 1e-9
    steps = 0
    certain = graph.infinite & (not problem.maximise)
    values[certain] = np.inf
    for block in blocks:
        states = block.states[~certain[block.states]] if block.cyclic else block.states
        if not block.cyclic:
            values[states] = block.image(problem, values, False, weights)
            continue
        pinned = graph.held[block.states] & problem.proper_max
        while steps < limit:
            current = values[block.states]
            size = float(np.abs(current[np.isfinite(current)]).max(initial=1e-3))
            image = block.image(problem, values, False, weights) - 1e-14 * size
            image = np.where(pinned | np.isinf(current), current, np.maximum(current, image))
            moving = np.isfinite(current) & ~graph.infinite[block.states]
            rise = float((image[moving] - current[moving]).max(initial=0.0))
            values[block.states] = image
            steps += 1
            if rise <= 1e-4 * precision:
                break
    return values, steps


def _above(
    problem: Problem, blocks: list[_Level], weights: np.ndarray | None, graph: _Known, low: np.ndarray, limit: int
) -> tuple[np.ndarray, int]:
    """Upper bounds; on cycles the first guess above the lower bound that T maps below itself."""
    values = problem.boundary()
    steps = 0
    for block in blocks:
        states = block.states
        if not block.cyclic:
            values[states] = block.image(problem, values, True, weights)
            continue
        infinite = graph.infinite[states] | (problem.criterion.must_reach & graph.held[states])
        zero = graph.held[states] & problem.proper_max & ~infinite
        start = np.where(np.isfinite(low[states]), low[states], 0.0)
        proven = False
        for k in range(GUESSES):
            guess = start + GUESS * GUESS_GROWTH**k * max(float(np.abs(start).max()), 1e-3)
            guess = np.minimum(guess, problem.criterion.most)
            values[states] = np.where(infinite, np.inf, np.where(zero, 0.0, guess))
            for _ in range(GUESS_SWEEPS):
                image = block.image(problem, values, True, weights)
                steps += 1
                proven = bool((image <= values[states]).all())
                if proven or steps >= limit or (image >= values[states])[~infinite & ~zero].all():
                    break
                values[states] = np.where(infinite, np.inf, np.where(zero, 0.0, image))
            if proven or steps >= limit:
                break
        if not proven:
            values[states] = _trivial(problem, values)
    return values, steps


def _nothing(problem: Problem, upward: bool) -> np.ndarray:
    """(S,) trivial bounds."""
    values = problem.boundary()
    values[~problem.task.decided] = problem.criterion.most if upward else problem.criterion.least
    return values


def _trivial(problem: Problem, values: np.ndarray) -> float:
    if problem.criterion.contracts:
        most = max(float(problem.reward.max(initial=0.0)), 0.0)
        return most / (1.0 - problem.gamma) * (1.0 + 1e-9) + float(np.abs(values).max(initial=0.0))
    return problem.criterion.most


def _rows(problem: Problem, blocks: list[_Level], values: np.ndarray) -> np.ndarray:
    """(S,) the agent's best rows; among equals, rows that surely come closer to a decided state."""
    pmdp = problem.pmdp
    sign = 1.0 if problem.agent == MAX_AGENT else -1.0
    q = problem.reward + problem.gamma * generic_bounds(problem, values, problem.agent != MAX_AGENT)
    best = np.maximum.reduceat(sign * q, pmdp.state_ptr[:-1])[pmdp.row_state]
    tied = sign * q >= best - 1e-9 * (1.0 + np.abs(np.where(np.isfinite(best), best, 0.0)))
    lo, _ = problem.graph_bounds()
    rows = np.full(pmdp.num_states, -1, dtype=np.int64)
    reached = problem.task.decided.copy()
    rows[reached] = pmdp.state_ptr[:-1][reached]
    for block in blocks:
        while True:
            open_rows = block.rows[tied[block.rows] & ~reached[pmdp.row_state[block.rows]]]
            near = [r for r in open_rows.tolist() if _hits(pmdp, lo, reached, r)] if block.cyclic else open_rows
            if not len(near):
                break
            rows[pmdp.row_state[near]] = near
            reached[pmdp.row_state[near]] = True
        rest = block.rows[tied[block.rows] & (rows[pmdp.row_state[block.rows]] < 0)]
        rows[pmdp.row_state[rest]] = rest
        reached[block.states] = True
    return rows


def _hits(pmdp: ParametricMDP, lo: np.ndarray, reached: np.ndarray, row: int) -> bool:
    part = slice(pmdp.row_ptr[row], pmdp.row_ptr[row + 1])
    return bool((lo[part] > 0.0)[reached[pmdp.successor[part]]].any())
