"""The transitions that records (s, a, s') of what happened mean in a model, or why they mean none."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from rpl_agent.core.errors import DataError
from rpl_agent.core.model import ParametricMDP
from rpl_agent.core.native import core

#: Results of `locate` for records without a transition: the action is not enabled, the row does not lead to the state
#: (both as in core.h), or it leads there in several ways.
NO_ROW, NO_SUCCESSOR, AMBIGUOUS = -1, -2, -3


def locate(pmdp: ParametricMDP, states: np.ndarray, actions: np.ndarray, successors: np.ndarray) -> np.ndarray:
    """(n,) the transition of each record; NO_ROW, NO_SUCCESSOR or AMBIGUOUS if there is none.

    Successors are those of the transitions, or the visible states behind silent ones.
    """

    def found(targets: np.ndarray) -> np.ndarray:
        out = np.empty(len(states), dtype=np.int64)
        model = (pmdp.num_states, pmdp.state_ptr, pmdp.action, pmdp.row_ptr, targets)
        core.locate(len(states), states, actions, successors, *model, out)
        return out

    out = found(pmdp.successor)
    if pmdp.has_payments and (out == NO_SUCCESSOR).any():
        seen = found(pmdp.visible_successor)
        seen[(seen >= 0) & pmdp.ambiguous_without_reward[seen]] = AMBIGUOUS
        out = np.where(out == NO_SUCCESSOR, seen, out)
    return out


def impossible(p: ParametricMDP, state: int, action: int, successor: int, reason: int) -> str:
    """A sentence for a record without a transition, for a ``reason`` of `locate`."""
    if not 0 <= state < p.num_states:
        return f"the model has no state {state} (it has {p.num_states})"
    if not 0 <= action < p.num_actions:
        return f"the model has no action {action} (it has {p.num_actions})"
    shown = f"{p.state_name(state)}, action {p.action_names[action]!r}"
    if reason == NO_ROW:
        return f"{shown} is not enabled"
    if not 0 <= successor < p.num_states:
        return f"the model has no state {successor} (it has {p.num_states})"
    if reason == AMBIGUOUS:
        return f"{shown} leads to {p.state_name(successor)} in several ways that only the reward distinguishes"
    return f"{shown} never leads to {p.state_name(successor)}"


def located(pmdp: ParametricMDP, states: ArrayLike, actions: ArrayLike, successors: ArrayLike) -> np.ndarray:
    """(n,) the transition of each record; raises DataError if one has none."""
    columns = [np.atleast_1d(np.asarray(c)) for c in (states, actions, successors)]
    for name, column in zip(("states", "actions", "successors"), columns):
        if column.ndim != 1 or (column.dtype.kind not in "iu" and column.size):
            raise DataError(f"{name} must be a flat array of whole numbers")
        if len(column) != len(columns[0]):
            raise DataError("states, actions and successors must have one length")
    s, a, s2 = (c.astype(np.int64) for c in columns)
    out = locate(pmdp, s, a, s2)
    if (out < 0).any():
        k = int(np.argmax(out < 0))
        raise DataError(impossible(pmdp, int(s[k]), int(a[k]), int(s2[k]), int(out[k])))
    return out
