"""Where a play can be held for ever, and what the graph is told of nature."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.solver._graph import attainable, hold_set
from rpl_agent.solver._states import runs_forward


def graph_bounds(
    known: bool, lower: np.ndarray, upper: np.ndarray, expression: np.ndarray, row_ptr: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(lo, hi) (T,) of nature, from bounds (F,): of an interval hull exactly, of a ``known`` MDP its support.

    A known MDP has rounded probabilities: beside 1 - 1e-20, which is 1 as a float, their sum would leave no room for
    the 1e-20. A successor that is the only one of its row has all of the mass.
    """
    if not known:
        return attainable(lower, upper, expression, row_ptr)
    lengths = np.diff(row_ptr)
    p = np.where(np.repeat(lengths == 1, lengths), 1.0, lower[expression])
    return p, p


def held_states(
    pmdp: ParametricMDP,
    usable: np.ndarray,
    quantifier: int,
    start: np.ndarray,
    nature: Callable[[], tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    """(S,) the largest part of ``start`` in which the play can stay, as `hold_set` says it.

    nature : gives bounds (T,), (T,); not asked where some row is played in every state and those that may hold only
        move to larger numbers, so that no play stays whoever moves.
    """
    graph = pmdp.state_ptr, pmdp.row_ptr, pmdp.successor
    is_played = np.maximum.reduceat(usable, pmdp.state_ptr[:-1]) > 0
    if is_played[start].all() and runs_forward(start, usable, *graph):
        return np.zeros_like(start)
    return hold_set(*graph, *nature(), usable, quantifier, start)
