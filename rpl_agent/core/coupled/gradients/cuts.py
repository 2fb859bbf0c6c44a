"""`CutRows`: inequalities of rows over a ball and cuts at once.

An affine function misses the inequality of a row by q(y) = a + l·y + y'My. In the region |y| ≤ 1, and every cut
a·x ≤ b has a *room* c(y) = b − a·x ≥ 0. So for t, m, μ ≥ 0

    q  ≤  q + t (1 − |y|²) + Σ m c + Σ μ c c',

and where the right side is −z'Nz, z = (1, y), with a positive definite N, q < 0 in the region. N is proved to be so by
its Cholesky factor: if that exists for N − s I, N is positive definite up to rounding errors below s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rpl_agent.core.model import Policy, gather
from rpl_agent.core.native import UNIT_ROUNDOFF, Struct
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.frame import Frame
from rpl_agent.core.regions.sliced import Sliced
from rpl_agent.core.solver.problem import Problem


@dataclass(frozen=True, eq=False)
class CutRows:
    """t, m and μ of rows; with a horizon H · R rows, those with one step to go first."""

    chosen: np.ndarray  # (K,) which of the cuts on offer are used
    level: np.ndarray  # (n,) t
    single: np.ndarray  # (n, K) m
    place: np.ndarray  # (Q,) the row of each product
    pairs: np.ndarray  # (Q, 2) its cuts
    double: np.ndarray  # (Q,) μ

    def issues(self, rows: int) -> list[str]:
        """What is wrong with the numbers."""
        shapes = self.level.shape == (rows,) and self.single.shape == (rows, len(self.chosen))
        if not shapes or self.pairs.shape != (len(self.place), 2) or self.double.shape != self.place.shape:
            return ["multipliers of cuts have a wrong shape"]
        if not all((part >= 0.0).all() and np.isfinite(part).all() for part in (self.level, self.single, self.double)):
            return ["a multiplier of a cut is negative, or not finite"]
        return []


def offered_cuts(problem: Problem, region: Region) -> tuple[np.ndarray, np.ndarray]:
    """(A (n, r), b (n,)), A x ≤ b in the region: ends of expressions, and its slabs where it has some."""
    weights = np.asarray(problem.pmdp.table.reduction.weights)
    weights = weights[weights.any(axis=1)]
    weights = np.unique(np.vstack([weights, -weights]), axis=0)
    ends = -region.minimize(-weights)
    if not isinstance(region, Sliced):
        return weights, ends
    return np.vstack([weights, region.A]), np.concatenate([ends, region.b])


def cut_rooms(frame: Frame, A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(K, r + 1) the rooms b − a·x as c0 + c·y."""
    return np.concatenate([(b - A @ frame.center)[:, None], -A @ (frame.radius * frame.factor)], axis=1)


def proved_states(
    problem: Problem,
    bound: Any,  # AffineBound
    chances: Struct,
    cuts: tuple[np.ndarray, np.ndarray],
    states: np.ndarray,
    step: int | None,
    alone: np.ndarray,
) -> np.ndarray:
    """(S,) which of these states (n,) have all their inequalities proved: of the rows that the bound is about.

    alone : (R,) the rows that are proved without cuts
    """
    found = np.zeros(problem.pmdp.num_states, dtype=bool)
    rows = _rows_of(problem, bound.policy, states, step)
    if rows is None or not isinstance(bound.frame, Frame):
        return found
    found[states] = True
    rows = rows[~alone[rows]]
    if not len(rows):
        return found
    N, lost = _forms(problem, bound, chances, cuts, rows, step)
    # Cholesky's factor exists: rounding moves eigenvalues by less than 2 n² u times the largest entry
    n = N.shape[1]
    lost += 4.0 * (n + 2.0) ** 2 * UNIT_ROUNDOFF * (np.abs(np.diagonal(N, axis1=1, axis2=2)).max(axis=1) + lost)
    bad = rows[~_are_positive(N - lost[:, None, None] * np.eye(n))]
    found[problem.pmdp.row_state[bad]] = False
    return found


def _rows_of(problem: Problem, policy: Policy | None, states: np.ndarray, step: int | None) -> np.ndarray | None:
    """The rows that states play: of a policy one each, after ``step`` steps from the end; None if that is not so."""
    if policy is None:
        return None if problem.dropped is not None else gather(problem.pmdp.state_ptr, states)[0]
    if policy.rows is None:
        return None
    rules, horizon = np.atleast_2d(policy.rows), problem.objective.horizon
    number = 0 if horizon is None or step is None else min(horizon - 1 - step, len(rules) - 1)
    return np.asarray(rules[number][states])


def _forms(
    problem: Problem,
    bound: Any,  # AffineBound
    chances: Struct,
    cuts: tuple[np.ndarray, np.ndarray],
    rows: np.ndarray,
    step: int | None,
) -> tuple[np.ndarray, np.ndarray]:
    """(N (n, r + 1, r + 1) of rows, (n,) by how much −z'Nz may be off, for |z_k| ≤ 1)."""
    given, pmdp, sign, gamma = bound.rows, problem.pmdp, bound.side.value, problem.gamma
    assert given is not None and isinstance(bound.frame, Frame)
    u, g = (bound.moved, bound.gradient) if step is None else (bound.moved[step], bound.gradient[step])
    here, turn = (u, g) if step is None else (bound.moved[step + 1], bound.gradient[step + 1])
    state, (moves, first) = pmdp.row_state[rows], gather(pmdp.row_ptr, rows)
    f, behind, after = pmdp.expression[moves], u[pmdp.successor[moves]], g[pmdp.successor[moves]]
    p, slope = gamma * chances.p[f], gamma * chances.slope[f]

    def summed(terms: np.ndarray) -> np.ndarray:
        return np.asarray(np.add.reduceat(terms, first[:-1]))

    rooms, sizes = cut_rooms(bound.frame, *cuts), _room_sizes(bound.frame, *cuts)
    index, width = rows + (step or 0) * pmdp.num_rows, rooms.shape[1]
    t, single = given.level[index], given.single[index]
    form = np.zeros((len(rows), width, width))
    form[:, 0, 0] = sign * (problem.reward[rows] + summed(p * behind) - here[state]) + t
    form[:, 0, 1:] = sign * (summed(p[:, None] * after + behind[:, None] * slope) - turn[state])
    form[:, 1:, 1:] = sign * summed(slope[:, :, None] * after[:, None, :])
    form[:, 0] += single @ rooms
    value = np.abs(behind) + np.abs(after).sum(axis=1)
    size = np.abs(problem.reward[rows]) + np.abs(here[state]) + np.abs(turn[state]).sum(axis=1)
    size += summed((np.abs(p) + np.abs(slope).sum(axis=1)) * value) + (width + 1.0) * t + single @ sizes
    where = np.full(len(given.level), -1)
    where[index] = np.arange(len(rows))
    used = np.flatnonzero(where[given.place] >= 0)
    k, (i, j), multiple = where[given.place[used]], given.pairs[used].T, given.double[used]
    np.add.at(form, k, multiple[:, None, None] * rooms[i][:, :, None] * rooms[j][:, None, :])
    np.add.at(size, k, multiple * sizes[i] * sizes[j])
    N = -(form + form.transpose(0, 2, 1)) / 2
    N[:, np.arange(1, width), np.arange(1, width)] += t[:, None]
    terms = 8.0 * (width + len(rooms)) + 2.0 * float(np.diff(first).max()) + float(len(used)) + 64.0
    return N, gamma * summed(chances.error[f] * value) + terms * UNIT_ROUNDOFF * size


def _room_sizes(frame: Frame, A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(K,) the magnitudes that add up to rooms."""
    reach = np.abs(frame.center) + frame.radius * np.abs(frame.factor).sum(axis=1)
    return np.asarray(np.abs(b) + np.abs(A) @ reach)


def _are_positive(matrices: np.ndarray) -> np.ndarray:
    """(n,) which of the matrices have a Cholesky factor."""
    found = np.ones(len(matrices), dtype=bool)
    try:
        found[:] = np.isfinite(np.linalg.cholesky(matrices)).all(axis=(1, 2))
    except np.linalg.LinAlgError:
        if len(matrices) == 1:
            return np.zeros(1, dtype=bool)
        half = len(matrices) // 2
        return np.concatenate([_are_positive(matrices[:half]), _are_positive(matrices[half:])])
    return found
