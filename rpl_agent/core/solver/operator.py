"""The robust Bellman operator T of a problem, bounded from one side: rows first (nature), then states (the agent)."""

from __future__ import annotations

import numpy as np

from rpl_agent.core.model import Policy, Sense, gather
from rpl_agent.core.native import UNIT_ROUNDOFF, Struct, core, read_only
from rpl_agent.core.relaxations.base import CompiledRelaxation
from rpl_agent.core.solver.graph import staying_rows
from rpl_agent.core.solver.problem import FIXED_AGENT, Problem, step_rows

#: default bound on a relaxation's distance from the exact extremum, relative to the values' span
DEFAULT_TIGHTNESS = 1e-9
#: vertices from which rows are queried again if one answer is not good enough
STARTS = 16


def row_bounds(problem: Problem, values: np.ndarray, upward: bool) -> np.ndarray:
    """(R,) bounds on nature's extremum per row from the requested side.

    +inf among values is treated as in `row_bound`; -inf (a trivial lower bound) propagates to wherever it
    can be reached.
    """
    unknown = np.isneginf(values)
    if unknown.any():
        pmdp = problem.pmdp
        q = row_bounds(problem, np.where(unknown, 0.0, values), upward)
        reached = unknown[pmdp.successor] & (problem.relaxation.bounds()[1][pmdp.expression] > 0.0)
        q[np.logical_or.reduceat(reached, pmdp.row_ptr[:-1])] = -np.inf
        return q
    compiled = problem.relaxation.compiled()
    if compiled is None:
        return generic_bounds(problem, values, upward)
    out = np.empty(problem.pmdp.num_rows)
    direct = CompiledRelaxation(problem.pmdp, compiled, problem.relaxation.name)
    direct.directed_expectation(values, Sense.MAX if problem.maximise else Sense.MIN, upward, out)
    return out


def better_bounds(problem: Problem, values: np.ndarray, upward: bool, q: np.ndarray) -> np.ndarray:
    """Improve bounds q (R,) by walks that start at other vertices of the region's polytope.

    If several vertices are optimal, their bounds differ by rounding, and all of them hold.
    """
    compiled = problem.relaxation.compiled()
    if compiled is None or compiled.polytope is None or compiled.polytope.capacity == 0:
        return q
    memory, vertices = compiled.memory, compiled.polytope.capacity
    before = memory.copy()
    for start in np.unique(np.linspace(0, vertices - 1, STARTS).astype(np.int32)):
        memory[:] = start
        other = row_bounds(problem, values, upward)
        q = np.minimum(q, other) if upward else np.maximum(q, other)
    memory[:] = before
    return q


def generic_bounds(problem: Problem, values: np.ndarray, upward: bool, rows: np.ndarray | None = None) -> np.ndarray:
    """(R,) or (k,) row bounds through the protocol alone: infinities by the hull, the inner side by the tightness."""
    pmdp, relaxation = problem.pmdp, problem.relaxation
    extremum = Sense.MAX if problem.maximise else Sense.MIN
    chosen = np.arange(pmdp.num_rows) if rows is None else rows
    out = np.empty(len(chosen))
    if not len(chosen):
        return out
    each, own = gather(pmdp.row_ptr, chosen)
    starts = own[:-1]
    infinite = np.isinf(values)
    forced = np.zeros(len(chosen), dtype=bool)
    finite_values = values
    if infinite.any():
        finite_values = np.where(infinite, float(values[~infinite].max(initial=0.0)), values)
        lo, hi = problem.graph_bounds()
        bad, lo, hi = infinite[pmdp.successor[each]], lo[each], hi[each]
        possible = np.add.reduceat(np.where(bad, hi, 0.0), starts) > 0.0
        if problem.maximise:  # from below, a possibility of the hull proves nothing
            forced = possible & upward
        else:
            forced = ~staying_rows(~bad, read_only(own, np.int64), lo, hi)
            if upward:  # nor does it prove a way around an infinite successor, unless the hull is the set
                forced |= possible & (np.diff(own) > 2)
    relaxation.expectation(finite_values, extremum, out, rows)
    if upward != problem.maximise:
        seen = finite_values[pmdp.successor[each]]
        span = np.maximum.reduceat(seen, starts) - np.minimum.reduceat(seen, starts)
        tightness = getattr(relaxation, "tightness", DEFAULT_TIGHTNESS)
        out += (1.0 if upward else -1.0) * (
            tightness * span + (4.0 * UNIT_ROUNDOFF * np.abs(out) + 2e-300) * (span > 0)
        )
    out[forced] = np.inf
    return out


def state_bounds(
    problem: Problem,
    q: np.ndarray,
    upward: bool,
    weights: np.ndarray | None,
    states: np.ndarray | None = None,
    rows: np.ndarray | None = None,
) -> np.ndarray:
    """Bounds on T values from row expectations q; ``weights`` (R,) fixes the agent.

    For all states and rows, or for ``states`` (k,) whose ``rows`` (in order) q belongs to.
    """
    totals = total_bounds(problem, q, upward, rows)
    pmdp = problem.pmdp
    pointer = pmdp.state_ptr
    if states is not None:
        lengths = pmdp.state_ptr[states + 1] - pmdp.state_ptr[states]
        pointer = read_only(np.concatenate([[0], np.cumsum(lengths)]), np.int64)
    if weights is None:
        agent = problem.agent
    else:
        agent, weights = FIXED_AGENT, weights if rows is None else weights[rows]
    out = np.empty(len(pointer) - 1)
    core.state_images(len(out), totals, pointer, agent, weights, upward, out)
    return out


def total_bounds(problem: Problem, q: np.ndarray, upward: bool, rows: np.ndarray | None = None) -> np.ndarray:
    """Bounds on reward + discount * q per row: of all rows, or of ``rows`` (k,)."""
    out = np.empty(len(q))
    reward = problem.reward if rows is None else problem.reward[rows]
    core.row_totals(len(q), q, reward, problem.gamma, upward, out)
    return out


def images(problem: Problem, values: np.ndarray, upward: bool, policy: Policy | None) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on T values (S,) in open states and on what rows that are played pay in all (R,), in one pass."""
    pmdp = problem.pmdp
    if problem.relaxation.compiled() is None:
        q, weights = row_bounds(problem, values, upward), None if policy is None else policy.shares(pmdp)
        return state_bounds(problem, q, upward, weights), total_bounds(problem, q, upward)
    image, numbers = np.empty(pmdp.num_states), np.zeros(pmdp.num_rows + pmdp.num_states)
    core.horizon_images(
        _game(problem, policy),
        len(image),
        1,
        upward,
        problem.task.decided,
        *step_rows(policy, 1),
        values,
        image,
        numbers,
        problem.scratch(),
    )
    return image, numbers[: pmdp.num_rows]


def _game(problem: Problem, policy: Policy | None) -> Struct:
    """The game of a policy: a randomised one is passed as weights, a deterministic one as rows."""
    if policy is None or policy.rows is not None or problem.agent == FIXED_AGENT:
        return problem.game
    return problem.game_of(policy.shares(problem.pmdp))


def step_images(problem: Problem, values: np.ndarray, upward: bool, policy: Policy | None) -> np.ndarray:
    """(H, S) bounds on T values[k] for values (H + 1, S) in open states, with the agent fixed to a policy or free."""
    steps, states = len(values) - 1, problem.pmdp.num_states
    out, values = np.empty((steps, states)), np.ascontiguousarray(values)
    if problem.relaxation.compiled() is None:
        for k in range(steps):
            weights = None if policy is None else policy.at(steps - 1 - k).shares(problem.pmdp)
            out[k] = state_bounds(problem, row_bounds(problem, values[k], upward), upward, weights)
        return out
    core.horizon_images(
        _game(problem, policy),
        states,
        steps,
        upward,
        problem.task.decided,
        *step_rows(policy, steps),
        values,
        out,
        None,
        problem.scratch(),
    )
    return out
