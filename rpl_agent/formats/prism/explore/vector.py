"""Expressions evaluated over many states at once, exactly: by a `Tape` where that can be, else by the plain evaluator.

The plain evaluator is asked once per distinct combination of the variables that an expression depends on. Nothing is
evaluated as code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from rpl_agent.formats.prism.explore.tape import LIMIT, Columns, NotVectorisable, Tape
from rpl_agent.formats.prism.language.errors import PrismError
from rpl_agent.formats.prism.language.scope import StateVariable
from rpl_agent.formats.prism.language.typed import Node, Type, evaluate
from rpl_agent.model.states import Codec

#: combinations of variables that are marked in a table, beyond it they are sorted
DENSE = 1 << 18
_KINDS: dict[Type, type] = {Type.BOOL: bool, Type.INT: int, Type.DOUBLE: float}


class Projection:
    """Distinct combinations of the variables that an expression depends on."""

    def __init__(self, support: frozenset[int], variables: Sequence[StateVariable]):
        self.indices = sorted(support)
        self.variables = variables
        self.size = prod(variables[i].size for i in self.indices)

    @cached_property
    def _codec(self) -> Codec:
        return Codec({i: (self.variables[i].low, self.variables[i].high) for i in self.indices})

    def columns(self, key: np.ndarray) -> list[np.ndarray]:
        """One column per state variable; those outside the support hold their initial value (never read)."""
        return self._filled(self._codec.decode(key), len(key))

    def distinct(self, columns: Columns, n: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Columns of one state for each combination that occurs, and (n,) which of them each state has."""
        if self.size >= LIMIT:  # too wide for a key
            part, inverse = np.unique(np.column_stack([columns[i] for i in self.indices]), axis=0, return_inverse=True)
            return self._filled(dict(zip(self.indices, part.T)), len(part)), inverse.reshape(-1)
        keys = self._codec.key(columns, n)
        if self.size > DENSE:
            found, inverse = np.unique(keys, return_inverse=True)
            return self.columns(found), inverse
        place = np.zeros(self.size, dtype=np.int64)
        place[keys] = 1
        found = np.flatnonzero(place)
        place[found] = np.arange(len(found))
        return self.columns(found), place[keys]

    def _filled(self, found: Mapping[int, np.ndarray], n: int) -> list[np.ndarray]:
        return [found[i] if i in found else np.full(n, v.initial, dtype=np.int64) for i, v in enumerate(self.variables)]


def exact_values(node: Node, variables: Sequence[StateVariable], columns: Columns, n: int) -> list[Any]:
    """The values of an expression in n states by the plain evaluator; an error names the state."""
    values = []
    for state in np.array(columns, dtype=np.int64).reshape(len(columns), n).T.tolist():
        try:
            value = evaluate(node, state)
        except PrismError as error:
            shown = ", ".join(f"{variables[i].name}={state[i]}" for i in sorted(node.support))
            raise PrismError(f"{error.reason} at ({shown})", node.position) from None
        if node.type is Type.INT and abs(value) >= LIMIT:
            raise PrismError("integer out of the 62-bit range", node.position)
        values.append(value)
    return values


def column_of(node: Node, variables: Sequence[StateVariable], columns: Columns, n: int) -> np.ndarray:
    """(n,) values of an expression without parameters: bool, int64, or float64, the exact value rounded once."""
    tape = Tape(variables)
    try:
        value = tape.value(node)
    except NotVectorisable:
        some, inverse = Projection(node.support, variables).distinct(columns, n)
        kind = _KINDS[node.type]
        found = exact_values(node, variables, some, int(inverse.max(initial=-1)) + 1)
        return np.array([kind(v) for v in found], dtype=kind)[inverse]
    whole = tape.run(columns, [value], n)[0]
    if node.type is not Type.DOUBLE:
        return whole.astype(_KINDS[node.type], copy=False)
    if max(-value.low, value.high, value.denominator) <= 2**53:
        return whole / value.denominator
    return np.array([float(Fraction(v, value.denominator)) for v in whole.tolist()])
