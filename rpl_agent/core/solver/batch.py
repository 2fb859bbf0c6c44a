"""The engine for relaxations without compiled sets: Jacobi steps through `Relaxation.expectation` alone.

It is for relaxations that users write, of which nothing else may be known, and for rectangular sets without a compiled
form: each row is a linear program there. For nine of these (random models without cycles, 9 or 12 parameters) it took
3 to 6 times as long as the ordinary engine with their interval hulls, and gaps were up to 5.6 % smaller.

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
#: Room in inequalities of a level without cycles, relative to its values: a relaxation that the check asks again, of
#: other rows at once, may answer with other last digits.
ROOM = 1e-12


@dataclass(frozen=True, eq=False)
class _GraphFacts:
    """What the graph says of each state, for one choice of the agent."""

    held: np.ndarray  # (S,) bool, where the proper side's opponents can hold the play without reward
    infinite: np.ndarray  # (S,) bool, where the value can only be infinite


def _graph_facts(problem: Problem, weights: np.ndarray | None) -> _GraphFacts:
    """The facts with the agent fixed to weights (R,), or free."""
    pmdp, states = problem.pmdp, problem.pmdp.num_states
    if problem.criterion.contracts:
        return _GraphFacts(np.zeros(states, dtype=bool), np.zeros(states, dtype=bool))
    infinite = np.zeros(states, dtype=bool)
    if problem.criterion.can_be_infinite:
        infinite = ~problem.finite_states(weights, not problem.maximise)
    usable = usable_rows(
        played_rows(weights, pmdp.num_rows), not problem.criterion.must_reach and problem.reward != 0.0
    )
    quantifier = ANY_ROW if weights is None and not problem.agent_proper else ALL_ROWS
    start = ~problem.task.decided & ~infinite
    return _GraphFacts(problem.held_states(usable, quantifier, start, willing=not problem.nature_proper), infinite)


@dataclass(frozen=True, eq=False)
class _Level:
    """States of one level of the component graph, cyclic ones or the others, with their rows."""

    states: np.ndarray  # (k,)
    rows: np.ndarray  # (m,) of these states, in order
    cyclic: bool

    def image(self, problem: Problem, values: np.ndarray, upward: bool, weights: np.ndarray | None) -> np.ndarray:
        """(k,) bounds on T values for the states of the level."""
        q = generic_bounds(problem, values, upward, self.rows)
        result = state_bounds(problem, q, upward, weights, self.states, self.rows)
        if not self.cyclic:
            room = ROOM * float(np.abs(result[np.isfinite(result)]).max(initial=0.0))
            result = np.maximum(result + (room if upward else -room), problem.criterion.least)
        return np.minimum(result, problem.criterion.most)


def _levels(problem: Problem) -> list[_Level]:
    pmdp, decided = problem.pmdp, problem.task.decided
    graph = model_graph(pmdp)
    kind, depth = graph.layers(decided, *graph.components(decided)[:2], sinks=False, every=True)
    found = []
    for d in np.unique(depth[~decided]):
        for cyclic in (False, True):
            states = np.flatnonzero((depth == d) & ~decided & ((kind == CYCLIC) == cyclic))
            if len(states):
                found.append(_Level(states, gather(pmdp.state_ptr, states)[0], cyclic))
    return found


def solve_batch(problem: Problem, precision: float, max_iterations: int, began: float) -> Solution:
    """Bounds through `expectation` alone; see the module docstring."""
    levels = _levels(problem)
    free = problem.weights if problem.agent == FIXED_AGENT else None
    facts = _graph_facts(problem, free)
    low, steps = _below(problem, levels, free, facts, precision, max_iterations)
    policy, fixed = problem.policy, free
    if policy is None:
        policy = Policy.deterministic(_rows(problem, levels, low))
        fixed = policy.as_weights(problem.pmdp)
    own = _graph_facts(problem, fixed)
    if problem.agent == MAX_AGENT:  # the lower bound must be that of the policy
        low, more = _below(problem, levels, fixed, own, precision, max_iterations)
        steps += more
    above = (fixed, own) if problem.objective.sense is Sense.MIN else (free, facts)
    high, more = _above(problem, levels, above[0], above[1], low, max_iterations)
    low, high = without_tiny(problem, low, high)
    if prove_side(problem, low, False, policy if problem.agent == MAX_AGENT else problem.policy):
        low = _trivial_values(problem, False)
    if prove_side(problem, high, True, policy if problem.objective.sense is Sense.MIN else problem.policy):
        high = _trivial_values(problem, True)
    return finish(problem, low, high, policy, max(1, steps + more), precision, began, None)


def _below(
    problem: Problem, levels: list[_Level], weights: np.ndarray | None, facts: _GraphFacts, precision: float, limit: int
) -> tuple[np.ndarray, int]:
    """Iterates that stay below the value; a tiny cost per step keeps them inductive on cycles."""
    values = problem.boundary()
    if problem.criterion.contracts:
        least = min(float(problem.reward.min(initial=0.0)), 0.0) / (1.0 - problem.gamma)
        values[~problem.task.decided] = least * (1.0 + 1e-9) - 1e-9
    steps = 0
    certain = facts.infinite & (not problem.maximise)
    values[certain] = np.inf
    for level in levels:
        states = level.states[~certain[level.states]] if level.cyclic else level.states
        if not level.cyclic:
            values[states] = level.image(problem, values, False, weights)
            continue
        pinned = facts.held[level.states] & problem.proper_max
        while steps < limit:
            current = values[level.states]
            size = float(np.abs(current[np.isfinite(current)]).max(initial=1e-3))
            image = level.image(problem, values, False, weights) - 1e-14 * size
            image = np.where(pinned | np.isinf(current), current, np.maximum(current, image))
            moving = np.isfinite(current) & ~facts.infinite[level.states]
            rise = float((image[moving] - current[moving]).max(initial=0.0))
            values[level.states] = image
            steps += 1
            if rise <= 1e-4 * precision:
                break
    return values, steps


def _above(
    problem: Problem, levels: list[_Level], weights: np.ndarray | None, facts: _GraphFacts, low: np.ndarray, limit: int
) -> tuple[np.ndarray, int]:
    """Upper bounds; on cycles the first guess above the lower bound that T maps below itself."""
    values = problem.boundary()
    steps = 0
    for level in levels:
        states = level.states
        if not level.cyclic:
            values[states] = level.image(problem, values, True, weights)
            continue
        infinite = facts.infinite[states] | (problem.criterion.must_reach & facts.held[states])
        zero = facts.held[states] & problem.proper_max & ~infinite
        start = np.where(np.isfinite(low[states]), low[states], 0.0)
        proven = False
        for k in range(GUESSES):
            guess = start + GUESS * GUESS_GROWTH**k * max(float(np.abs(start).max()), 1e-3)
            guess = np.minimum(guess, problem.criterion.most)
            values[states] = np.where(infinite, np.inf, np.where(zero, 0.0, guess))
            for _ in range(GUESS_SWEEPS):
                image = level.image(problem, values, True, weights)
                steps += 1
                proven = bool((image <= values[states]).all())
                if proven or steps >= limit or (image >= values[states])[~infinite & ~zero].all():
                    break
                values[states] = np.where(infinite, np.inf, np.where(zero, 0.0, image))
            if proven or steps >= limit:
                break
        if not proven:
            values[states] = _trivial_upper(problem, values)
    return values, steps


def _trivial_values(problem: Problem, upward: bool) -> np.ndarray:
    """(S,) trivial bounds."""
    values = problem.boundary()
    values[~problem.task.decided] = problem.criterion.most if upward else problem.criterion.least
    return values


def _trivial_upper(problem: Problem, values: np.ndarray) -> float:
    """An upper bound on all values that needs no proof, given those of decided states."""
    if problem.criterion.contracts:
        most = max(float(problem.reward.max(initial=0.0)), 0.0)
        return most / (1.0 - problem.gamma) * (1.0 + 1e-9) + float(np.abs(values).max(initial=0.0))
    return problem.criterion.most


def _rows(problem: Problem, levels: list[_Level], values: np.ndarray) -> np.ndarray:
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
    for level in levels:
        while True:
            open_rows = level.rows[tied[level.rows] & ~reached[pmdp.row_state[level.rows]]]
            near = open_rows.tolist()
            if level.cyclic:
                near = [row for row in near if _surely_reaches(pmdp, lo, reached, row)]
            if not len(near):
                break
            rows[pmdp.row_state[near]] = near
            reached[pmdp.row_state[near]] = True
        rest = level.rows[tied[level.rows] & (rows[pmdp.row_state[level.rows]] < 0)]
        rows[pmdp.row_state[rest]] = rest
        reached[level.states] = True
    return rows


def _surely_reaches(pmdp: ParametricMDP, lo: np.ndarray, reached: np.ndarray, row: int) -> bool:
    part = slice(pmdp.row_ptr[row], pmdp.row_ptr[row + 1])
    return bool((lo[part] > 0.0)[reached[pmdp.successor[part]]].any())
