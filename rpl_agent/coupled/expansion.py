"""The value of a policy and its gradient at the centre of a frame: r + 1 linear systems with one factorisation.

With P the chain of the policy at the centre, β the derivatives of its probabilities and v its values,

    (I − γ P) v = reward,     (I − γ P) g = γ Σ_i v(i) β_i;

for a model without cycles one pass backward. Numbers from here are guesses, which `affine.AffineProof` proves or
rejects; nothing rests on their accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from rpl_agent._core import Struct, core
from rpl_agent.coupled.affine import chances_of, groups_of
from rpl_agent.model.csr import best_rows, gather
from rpl_agent.model.objective import Sense
from rpl_agent.model.policy import Policy
from rpl_agent.regions.frame import Frame
from rpl_agent.solver.graph import ALL_ROWS, held_states, moves, usable_rows
from rpl_agent.solver.problem import Problem

#: cyclic parts with more states than this are not factorised: fill-in grows faster than their number
FACTOR_LIMIT = 120_000
#: a finite stand-in for infinite values, relative to the others
LOST = 4.0
#: smaller gains, relative to the values, do not change a policy
IMPROVEMENT = 1e-12


@dataclass(frozen=True)
class ValueExpansion:
    """v + g·y, the value of a policy to first order.

    Attributes
    ----------
    values : (S,), gradient : (S, r) float64
    scope : (S,) bool
        Undecided states.
    reached : (S,) bool
        Those of them that the policy can meet.
    order : (n,) int64 or None
        The undecided states of a model without cycles, successors first.
    solved : (n,) int64
        With cycles: states of the linear system; the others are decided, worthless or outside.
    """

    policy: Policy
    frame: Frame
    chances: Struct  # row_chances
    values: np.ndarray
    gradient: np.ndarray
    scope: np.ndarray
    reached: np.ndarray
    order: np.ndarray | None = None
    solved: np.ndarray | None = None
    factors: Any = None

    def spread(self, extra: np.ndarray) -> np.ndarray:
        """(S,) what an extra reward (S,) per visit adds to the values of the policy (models with cycles)."""
        result = np.zeros(len(extra))
        result[self.solved] = self.factors.solve(extra[self.solved])
        return result


def backward_order(problem: Problem) -> np.ndarray | None:
    """(n,) undecided states, successors first, sinks left out; None if the model has cycles."""
    structure = problem.structure()
    if problem.discounted or any(len(cyclic) for _, cyclic in structure.rounds):
        return None
    return np.concatenate([trivial for trivial, _ in structure.rounds]).astype(np.int64)


def expand_without_cycles(
    problem: Problem, frame: Frame, order: np.ndarray, policy: Policy | None
) -> ValueExpansion | None:
    """The expansion of a policy, or of the best one at the centre (None), everywhere in a model without cycles."""
    pmdp, chances = problem.pmdp, chances_of(problem, frame)
    sinks = problem.structure().sinks
    if problem.must_reach and len(sinks):
        return None
    paid = np.maximum.reduceat(problem.reward, pmdp.state_ptr[:-1])[sinks]
    if (paid > 0.0).any():
        return None
    groups = groups_of(problem, policy)
    sense = 0.0 if policy is not None else 1.0 if problem.objective.sense is Sense.MAX else -1.0
    values, gradient = problem.boundary(), np.zeros((pmdp.num_states, frame.dimension))
    rows, model = np.array(pmdp.state_ptr[:-1]), (pmdp.state_ptr, groups, chances, problem.reward)
    core.expand_backward(len(order), order, *model, sense, values, gradient, rows)
    if not (np.isfinite(values).all() and np.isfinite(gradient).all()):
        return None
    chosen, scope = policy if policy is not None else Policy.deterministic(rows), ~problem.task.decided
    return ValueExpansion(chosen, frame, chances, values, gradient, scope, scope, order)


def expand(problem: Problem, frame: Frame, policy: Policy) -> ValueExpansion | None:
    """The expansion of a policy in a model with cycles, None where it is infinite or too large to be factorised."""
    pmdp, decided = problem.pmdp, problem.task.decided
    groups, chances = groups_of(problem, policy), chances_of(problem, frame)
    size, played = pmdp.num_states, np.flatnonzero((groups.weights > 0.0) & ~decided[pmdp.row_state])
    moves, own = gather(pmdp.row_ptr, played)
    row = np.repeat(played, np.diff(own))
    source, target, f = pmdp.row_state[row], pmdp.successor[moves], pmdp.expression[moves]
    weight = problem.gamma * groups.weights[row]
    p = weight * chances.p[f]
    worthless, lost = _never_ending(problem, groups.weights, chances.p, source, target)
    solved = np.flatnonzero(~decided & ~worthless & ~lost)
    if lost[pmdp.initial_state] or not 0 < len(solved) <= FACTOR_LIMIT:
        return None
    position = np.full(size, -1)
    position[solved] = np.arange(len(solved))
    inner = (position[source] >= 0) & (position[target] >= 0)
    ends = (position[source[inner]], position[target[inner]])
    chain = scipy.sparse.csc_array((p[inner], ends), shape=(len(solved), len(solved)))
    try:
        factors = scipy.sparse.linalg.splu(
            scipy.sparse.csc_matrix(scipy.sparse.eye_array(len(solved), format="csc") - chain)
        )
    except RuntimeError:  # singular
        return None
    values = problem.boundary()
    reward = np.bincount(pmdp.row_state, groups.weights * problem.reward, size)
    values[solved] = factors.solve((reward + np.bincount(source, p * values[target], size))[solved])
    gradient = np.zeros((size, frame.dimension))
    pull = weight * values[target]
    for j in range(frame.dimension):
        gradient[solved, j] = factors.solve(np.bincount(source, pull * chances.slope[f, j], size)[solved])
    if not (np.isfinite(values).all() and np.isfinite(gradient).all()):
        return None
    values[lost] = LOST * (1.0 + float(np.abs(values).max()))
    reached = _reachable(pmdp.initial_state, source, target, size)
    return ValueExpansion(policy, frame, chances, values, gradient, ~decided, ~decided & reached, None, solved, factors)


def improved(problem: Problem, expansion: ValueExpansion) -> Policy | None:
    """The policy that is greedy for an expansion's values at the centre; None if it is the same."""
    pmdp, rows = problem.pmdp, expansion.policy.rows
    assert rows is not None
    sign = 1.0 if problem.objective.sense is Sense.MAX else -1.0
    p = expansion.chances.p[pmdp.expression]
    means = np.add.reduceat(p * expansion.values[pmdp.successor], pmdp.row_ptr[:-1])
    q = sign * (problem.reward + problem.gamma * means)
    best = np.maximum.reduceat(q, pmdp.state_ptr[:-1])
    better = (best > q[rows] + IMPROVEMENT * (1.0 + np.abs(best))) & expansion.scope
    if not better.any():
        return None
    return Policy.deterministic(np.where(better, best_rows(q, pmdp.state_ptr, pmdp.row_state), rows))


def _reachable(start: int, sources: np.ndarray, targets: np.ndarray, size: int) -> np.ndarray:
    """(S,) the states that can be met from the start."""
    graph = scipy.sparse.csr_array((np.ones(len(sources), np.int8), (sources, targets)), shape=(size, size))
    found = np.zeros(size, bool)
    found[scipy.sparse.csgraph.breadth_first_order(graph, start, return_predecessors=False)] = True
    return found


def _never_ending(
    problem: Problem, weights: np.ndarray, p: np.ndarray, source: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(worthless, lost), each (S,): where the policy stays forever at value 0, and where its value is infinite."""
    pmdp, none = problem.pmdp, np.zeros(problem.pmdp.num_states, bool)
    if problem.discounted:
        return none, none
    usable = usable_rows(weights > 0.0, False)
    start = ~problem.task.decided
    still = held_states(pmdp, usable, ALL_ROWS, start, lambda: moves(None, p[pmdp.expression]))
    paid = np.maximum.reduceat(np.where(weights > 0.0, problem.reward, 0.0), pmdp.state_ptr[:-1]) > 0.0
    costly = still if problem.must_reach else still & paid
    if not costly.any():
        return still, none
    # whoever can get there, backward along the graph, has an infinite value, too
    hub = pmdp.num_states
    first = np.flatnonzero(costly)
    edges = (np.concatenate([target, np.full(len(first), hub)]), np.concatenate([source, first]))
    graph = scipy.sparse.csr_array((np.ones(len(edges[0]), np.int8), edges), shape=(hub + 1, hub + 1))
    found = np.zeros(hub + 1, bool)
    found[scipy.sparse.csgraph.breadth_first_order(graph, hub, return_predecessors=False)] = True
    return still & ~found[:hub], found[:hub]
