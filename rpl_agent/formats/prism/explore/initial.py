"""Initial states: one from the declarations, or all that satisfy ``init … endinit``."""

from __future__ import annotations

import numpy as np

from rpl_agent.formats.prism.explore.vector import ExpressionBatch
from rpl_agent.formats.prism.language.errors import PrismError
from rpl_agent.formats.prism.language.scope import Program
from rpl_agent.formats.prism.language.typed import Node

#: partial assignments held at a time while the initial states are found
MAX_CANDIDATES = 1 << 23


def initial_states(program: Program) -> np.ndarray:
    """(n, V) values of the variables in the initial states, sorted.

    Variables get their values one after the other; each conjunct of the predicate is tested as soon as its variables
    have values, so that a predicate over many variables does not mean trying all their combinations.
    """
    variables = program.variables
    if program.initial is None:
        return np.array([[v.initial for v in variables]], dtype=np.int64).reshape(1, -1)
    conjuncts = _conjuncts(program.initial)
    # the most constrained first: variables of conjuncts with few variables
    weight = {v.index: min((len(c.support) for c in conjuncts if v.index in c.support), default=99) for v in variables}
    order = sorted((v.index for v in variables), key=lambda i: (weight[i], variables[i].size))
    found = np.array([[v.low for v in variables]], dtype=np.int64)
    known: set[int] = set()
    pending = list(conjuncts)
    for i in [-1, *order]:
        if i >= 0:
            known.add(i)
            if len(found) * variables[i].size > MAX_CANDIDATES:
                raise PrismError(
                    f"init … endinit leaves more than {MAX_CANDIDATES} combinations to try", program.initial.position
                )
            values = np.arange(variables[i].low, variables[i].high + 1)
            found = np.repeat(found, len(values), axis=0)
            found[:, i] = np.tile(values, len(found) // len(values))
        ready = [c for c in pending if c.support <= known]
        pending = [c for c in pending if not c.support <= known]
        for c in ready:
            found = found[ExpressionBatch([c], variables)(list(found.T), len(found))[0]]
    if not len(found):
        raise PrismError("no state satisfies init … endinit", program.initial.position)
    return found[np.lexsort(found.T[::-1])] if len(variables) else found


def _conjuncts(node: Node) -> list[Node]:
    if node.operator == "&":
        return [c for a in node.arguments for c in _conjuncts(a)]
    return [node]
