"""`Inequalities`: what affine functions have to satisfy in the rows of a model, as arrays for a search.

Without a discount and a horizon, no function satisfies them with room to spare where plays stay and nothing is paid:
there U = P U for the number that the play is worth. Such states keep the number of the expansion, and rows that only
lead back to their own state are left out: they hold for every U.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent.core.coupled.affine import Side, chances_of
from rpl_agent.core.coupled.expansion import StepExpansion, ValueExpansion
from rpl_agent.core.model import Policy, gather
from rpl_agent.core.solver.problem import Problem


@dataclass(eq=False)
class Inequalities:
    """Rows of open nodes (states, or states with steps to go), with their successors.

    Other successors are *known*: decided states, and those where plays stay.
    """

    sign: float
    rows: np.ndarray  # (R,) of the model, those of a node after another
    step: np.ndarray  # (R,) the layer of the node, 0 without a horizon
    own: np.ndarray  # (R,) their nodes
    nodes: int
    initial: int
    reward: np.ndarray  # (R,) with the worth of successors that are known, times the sign
    ahead: np.ndarray  # (R, N) γ p
    move_row: np.ndarray  # (T,) of moves to open nodes
    move_node: np.ndarray  # (T,)
    slope: np.ndarray  # (T, r) γ β
    still: np.ndarray  # (R, r) the change of what known successors are worth, times the sign
    values: np.ndarray  # (N,) of the expansion, times the sign
    gradient: np.ndarray  # (N, r)
    place: np.ndarray  # (N, 2) layer and state of each node

    @classmethod
    def of(
        cls, problem: Problem, expansion: ValueExpansion | StepExpansion, side: Side, policy: Policy | None
    ) -> Inequalities:
        pmdp, horizon, sign = problem.pmdp, problem.objective.horizon, side.value
        chances, gamma = chances_of(problem, expansion.frame), problem.gamma
        worth = expansion.values if isinstance(expansion, ValueExpansion) else problem.boundary()
        open_states, rests = _open_states(problem, expansion, policy), problem.resting_rows
        position = np.full(pmdp.num_states, -1)
        position[open_states] = np.arange(len(open_states))
        layers = range(1 if horizon is None else horizon)
        played = [_rows(problem, open_states, policy, None if horizon is None else horizon - 1 - k) for k in layers]
        parts = [part[~rests[part]] for part in played]
        rows, step = np.concatenate(parts), np.repeat(layers, [len(part) for part in parts])
        own = position[pmdp.row_state[rows]] + step * len(open_states)
        moves, first = gather(pmdp.row_ptr, rows)
        row = np.repeat(np.arange(len(rows)), np.diff(first))
        successor, f = pmdp.successor[moves], pmdp.expression[moves]
        before = step[row] - (horizon is not None)
        is_open = (before >= 0) & (position[successor] >= 0)
        node = position[successor] + before * len(open_states)
        p, slope = gamma * chances.p[f], gamma * chances.slope[f]
        ended = np.where(is_open, 0.0, sign * worth[successor])
        ahead = np.zeros((len(rows), len(open_states) * len(layers)))
        np.add.at(ahead, (row[is_open], node[is_open]), p[is_open])
        still = np.zeros((len(rows), chances.r))
        np.add.at(still, row, ended[:, None] * slope)
        values, gradient = (sign * expansion.values, expansion.gradient)
        place = np.stack([np.repeat(layers, len(open_states)), np.tile(open_states, len(layers))], axis=1)
        if horizon is not None:
            values, gradient = values[1:], gradient[1:]
        return cls(
            sign,
            rows,
            step,
            own,
            len(place),
            int(position[pmdp.initial_state] + (len(layers) - 1) * len(open_states)),
            sign * problem.reward[rows] + np.bincount(row, ended * p, len(rows)),
            ahead,
            row[is_open],
            node[is_open],
            slope[is_open],
            still,
            values[..., open_states].ravel(),
            gradient[..., open_states, :].reshape(len(place), -1),
            place,
        )


def _open_states(problem: Problem, expansion: ValueExpansion | StepExpansion, policy: Policy | None) -> np.ndarray:
    """(n,) the undecided states that are not known; of a policy, those that it reaches."""
    if policy is None or not isinstance(expansion, ValueExpansion):
        return np.flatnonzero(~problem.task.decided & ~problem.resting_states)
    found = expansion.solved if expansion.order is None else expansion.order
    assert found is not None
    return np.sort(found[expansion.reached[found]])


def _rows(problem: Problem, states: np.ndarray, policy: Policy | None, step: int | None) -> np.ndarray:
    """The rows of states: of a policy (in a step), or all."""
    if policy is None:
        return gather(problem.pmdp.state_ptr, states)[0]
    assert policy.rows is not None
    rules = np.atleast_2d(policy.rows)
    return np.asarray(rules[min(step or 0, len(rules) - 1)][states])
