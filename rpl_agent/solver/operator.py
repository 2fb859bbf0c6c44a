"""The robust Bellman operator T of a problem, bounded from one side: rows first (nature), then states (the agent)."""

from __future__ import annotations

import numpy as np

from rpl_agent.jit import UNIT_ROUNDOFF
from rpl_agent.model.objective import Sense
from rpl_agent.relaxations._rows import row_range
from rpl_agent.relaxations.base import CompiledRelaxation
from rpl_agent.relaxations.row_set import POINT, compiled_set, workspace
from rpl_agent.solver._bellman import MAX_AGENT
from rpl_agent.solver._graph import attainable, staying_rows
from rpl_agent.solver.problem import Problem
from rpl_agent.solver.witness import Witness

#: how far a relaxation that does not say otherwise may be from the exact extremum, relative to the values' span
DEFAULT_TIGHTNESS = 1e-9


def row_bounds(problem: Problem, values: np.ndarray, upward: bool, witness: Witness | None = None) -> np.ndarray:
    """(R,) bounds of nature's extremum per row from the side asked for; under a witness on cyclic rows.

    Infinite values are treated as in `row_expectation`.
    """
    pmdp, relaxation = problem.pmdp, problem.relaxation
    compiled = relaxation.compiled()
    if compiled is not None:
        out = np.empty(pmdp.num_rows)
        direct = CompiledRelaxation(pmdp, compiled, relaxation.name)
        direct.directed_expectation(values, Sense.MAX if problem.maximise else Sense.MIN, upward, out)
    else:
        out = generic_bounds(problem, values, upward)
    if witness is not None:
        rows = np.flatnonzero(problem.structure().is_cyclic[pmdp.row_state])
        means = np.empty(len(rows))
        fixed = compiled_set(POINT, witness.p, witness.p)
        each = np.arange(pmdp.num_transitions, dtype=np.int32)
        each.setflags(write=False)
        if len(rows):
            row_range(
                0, len(rows), values, problem.maximise, upward, pmdp.row_ptr, pmdp.successor, each, fixed,
                workspace(fixed, problem.longest), rows, means,
            )  # fmt: skip
        charge = witness.charges(values)[rows]
        out[rows] = means + charge if upward else means - charge
    return out


def generic_bounds(problem: Problem, values: np.ndarray, upward: bool, rows: np.ndarray | None = None) -> np.ndarray:
    """(R,) or (k,) row bounds through the protocol alone: infinities by the hull, the far side by the tightness."""
    pmdp, relaxation = problem.pmdp, problem.relaxation
    extremum = Sense.MAX if problem.maximise else Sense.MIN
    chosen = np.arange(pmdp.num_rows) if rows is None else rows
    out = np.empty(len(chosen))
    if not len(chosen):
        return out
    counts = pmdp.row_ptr[chosen + 1] - pmdp.row_ptr[chosen]
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    each = np.repeat(pmdp.row_ptr[chosen] - starts, counts) + np.arange(int(counts.sum()))
    infinite = np.isinf(values)
    forced = np.zeros(len(chosen), dtype=bool)
    finite_values = values
    if infinite.any():
        finite_values = np.where(infinite, float(values[~infinite].max(initial=0.0)), values)
        lo, hi = attainable(*relaxation.bounds(), pmdp.expression, pmdp.row_ptr)
        bad, lo, hi = infinite[pmdp.successor[each]], lo[each], hi[each]
        if problem.maximise:  # from below, a possibility of the hull proves nothing
            forced = (np.add.reduceat(np.where(bad, hi, 0.0), starts) > 0.0) & upward
        else:
            forced = ~staying_rows(~bad, np.append(starts, len(each)), lo, hi)
    relaxation.expectation(finite_values, extremum, out, rows)
    if upward != problem.maximise:
        seen = finite_values[pmdp.successor[each]]
        span = np.maximum.reduceat(seen, starts) - np.minimum.reduceat(seen, starts)
        tightness = getattr(relaxation, "tightness", DEFAULT_TIGHTNESS)
        out += (1.0 if upward else -1.0) * (tightness * span + 4.0 * UNIT_ROUNDOFF * np.abs(out) * (span > 0))
    out[forced] = np.inf
    return out


def state_bounds(
    problem: Problem, q: np.ndarray, upward: bool, weights: np.ndarray | None, states: np.ndarray | None = None,
    rows: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Bounds of T values from row expectations q; ``weights`` (R,) fixes the agent.

    For all states and rows, or for ``states`` (k,) whose ``rows`` (in their order) q belongs to.
    """
    pmdp = problem.pmdp
    side = 1.0 if upward else -1.0
    sizes = np.diff(pmdp.state_ptr) if states is None else pmdp.state_ptr[states + 1] - pmdp.state_ptr[states]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    reward = problem.reward if rows is None else problem.reward[rows]
    total = q.copy()
    moved = np.isfinite(q) & ((reward != 0.0) | (problem.gamma != 1.0))
    total[moved] = reward[moved] + problem.gamma * q[moved]
    total[moved] += side * 3.0 * UNIT_ROUNDOFF * (np.abs(total[moved]) + 2.0 * np.abs(reward[moved]))
    if weights is None:
        return (np.maximum if problem.agent == MAX_AGENT else np.minimum).reduceat(total, starts)
    weights = weights if rows is None else weights[rows]
    played = weights > 0.0
    low = np.minimum.reduceat(np.where(played, total, np.inf), starts)
    infinite = np.logical_or.reduceat(played & np.isinf(total), starts)
    base = np.where(np.isfinite(low), low, 0.0)
    gain = np.where(played & np.isfinite(total), total - np.repeat(base, sizes), 0.0)
    extra = np.add.reduceat(weights * gain, starts)
    result = base + extra
    count = np.add.reduceat(played.astype(float), starts)
    result += side * UNIT_ROUNDOFF * np.where(extra > 0.0, (2.0 * count + 8.0) * extra + 2.0 * np.abs(result), 0.0)
    return np.where(infinite, np.inf, result)
