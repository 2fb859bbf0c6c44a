"""The product of a model with a deterministic automaton: every state remembers what its history has shown."""

from __future__ import annotations

import numpy as np
import scipy

from rpl_agent.errors import ModelError
from rpl_agent.formats.prism.properties.automaton import Automaton
from rpl_agent.model.csr import gather
from rpl_agent.model.pmdp import ParametricMDP

MAX_TRANSITIONS = 2**31 - 2


def product(
    pmdp: ParametricMDP, automaton: Automaton, letter: np.ndarray, starts: np.ndarray, label: str
) -> tuple[ParametricMDP, np.ndarray]:
    """The part of the product that can be reached from the start states, and where these are in it.

    Parameters
    ----------
    letter : (S,) what the automaton reads on entering a state (start states included).
    starts : states of the model; the first one is the product's initial state.
    label : name of the new label that holds where the automaton accepts.
    """
    number = len(automaton.step)
    if pmdp.num_states * number > MAX_TRANSITIONS or pmdp.num_transitions * number > MAX_TRANSITIONS:
        raise ModelError(f"the product of {pmdp.num_states} states with an automaton of {number} is too large")
    pairs = _reachable(pmdp, automaton, letter, starts)
    state, memory = np.divmod(pairs, number)
    place = np.full(pmdp.num_states * number, -1, dtype=np.int64)
    place[pairs] = np.arange(len(pairs))
    rows, state_ptr = gather(pmdp.state_ptr, state)
    row_memory = np.repeat(memory, np.diff(state_ptr))
    transitions, row_ptr = gather(pmdp.row_ptr, rows)
    lengths = np.diff(row_ptr)
    target = pmdp.successor[transitions].astype(np.int64)
    successor = place[target * number + automaton.step[np.repeat(row_memory, lengths), letter[target]]]
    labels = {name: mask[state] for name, mask in pmdp.labels.items()}
    begin = place[starts * number + automaton.step[0, letter[starts]]]
    labels["init"] = np.isin(np.arange(len(pairs)), begin)
    labels[label] = memory == automaton.accepting
    row_of = np.repeat(np.arange(len(rows)), lengths)
    order = np.lexsort((successor, row_of))
    made = ParametricMDP(
        state_ptr, pmdp.action[rows], row_ptr,
        successor[order], pmdp.expression[transitions][order], pmdp.table, pmdp.domain, int(begin[0]), labels,
        {name: r.taken(state, rows) for name, r in pmdp.rewards.items()}, pmdp.action_names,
        {**{name: values[state] for name, values in pmdp.variables.items()}, "automaton": memory}, pmdp.name,
    )  # fmt: skip
    return made, begin


def _reachable(pmdp: ParametricMDP, automaton: Automaton, letter: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Numbers (state * Q + memory) of the reachable pairs, sorted."""
    number, states = len(automaton.step), pmdp.num_states
    source = pmdp.row_state[pmdp.transition_row].astype(np.int64)
    target = pmdp.successor.astype(np.int64)
    before = np.tile(np.arange(number), (len(source), 1))
    tails = (source[:, None] * number + before).ravel()
    heads = (target[:, None] * number + automaton.step[before, letter[target][:, None]]).ravel()
    size = states * number + 1  # one extra node in front of all starts
    begin = starts * number + automaton.step[0, letter[starts]]
    tails = np.concatenate([tails, np.full(len(begin), size - 1)])
    heads = np.concatenate([heads, begin])
    graph = scipy.sparse.csr_array((np.ones(len(tails), dtype=np.int8), (tails, heads)), shape=(size, size))
    found = scipy.sparse.csgraph.breadth_first_order(graph, size - 1, return_predecessors=False)
    return np.sort(found[found < size - 1]).astype(np.int64)
