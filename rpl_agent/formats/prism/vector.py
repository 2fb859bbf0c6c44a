"""Expressions evaluated over many states at once, exactly: by a `Tape` where that can be, else by the plain evaluator.

The plain evaluator is asked once per distinct combination of the variables that an expression depends on. Nothing is
evaluated as code.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from rpl_agent.formats.prism.errors import PrismError
from rpl_agent.formats.prism.scope import StateVariable
from rpl_agent.formats.prism.tape import LIMIT, Columns, NotVectorisable, Scaled, Tape
from rpl_agent.formats.prism.typed import Node, Type, evaluate


class Projection:
    """Distinct combinations of the variables that an expression depends on."""

    def __init__(self, support: frozenset[int], variables: Sequence[StateVariable]):
        self.indices = sorted(support)
        self.variables = variables
        self.size = 1
        for i in self.indices:
            self.size *= variables[i].size

    def key(self, columns: Columns, n: int) -> np.ndarray:
        key = np.zeros(n, dtype=np.int64)
        for i in self.indices:
            v = self.variables[i]
            key = key * v.size + (columns[i] - v.low)
        return key

    def columns(self, key: np.ndarray) -> list[np.ndarray]:
        """One column per state variable; those outside the support hold their initial value (never read)."""
        result = [np.full(len(key), v.initial, dtype=np.int64) for v in self.variables]
        for i in reversed(self.indices):
            v = self.variables[i]
            key, digit = np.divmod(key, v.size)
            result[i] = digit + v.low
        return result


class ExpressionBatch:
    """Several boolean or integer expressions evaluated together on columns."""

    def __init__(self, nodes: Sequence[Node], variables: Sequence[StateVariable]):
        self.nodes = nodes
        self.variables = variables
        self.tape = Tape(variables)
        self.values: list[Scaled | None] = []
        for node in nodes:
            try:
                self.values.append(self.tape.value(node))
            except NotVectorisable:
                self.values.append(None)

    @property
    def vectorised(self) -> bool:
        return all(v is not None for v in self.values)

    def __call__(self, columns: Columns, n: int) -> list[np.ndarray]:
        """(n,) bool or int64 array per expression."""
        slots = self.tape.run(columns)
        results = []
        for node, value in zip(self.nodes, self.values, strict=True):
            kind = bool if node.type is Type.BOOL else np.int64
            if value is not None:
                results.append(np.broadcast_to(np.asarray(slots[value.slot], dtype=kind), (n,)))
            else:
                exact = self._slow(node, columns, n)
                results.append(np.array([int(v) for v in exact], dtype=np.int64).astype(kind))
        return results

    def numbers(self, columns: Columns, n: int) -> list[np.ndarray]:
        """(n,) float64 array per expression: the exact value, rounded once."""
        slots = self.tape.run(columns)
        results = []
        for node, value in zip(self.nodes, self.values, strict=True):
            if value is None:
                results.append(np.array([float(v) for v in self._slow(node, columns, n)]))
            elif max(-value.low, value.high, value.denominator) <= 2**53:
                results.append(np.broadcast_to(np.asarray(slots[value.slot]) / value.denominator, (n,)))
            else:
                whole = np.broadcast_to(np.asarray(slots[value.slot]), (n,))
                results.append(np.array([float(Fraction(int(v), value.denominator)) for v in whole]))
        return results

    def _slow(self, node: Node, columns: Columns, n: int) -> np.ndarray:
        """(n,) object array by the plain evaluator, once per distinct combination."""
        projection = Projection(node.support, self.variables)
        keys, inverse = np.unique(projection.key(columns, n), return_inverse=True)
        states = (
            np.column_stack(projection.columns(keys))
            if len(keys)
            else np.zeros((0, len(self.variables)), dtype=np.int64)
        )
        exact = np.empty(len(keys), dtype=object)
        for k, state in enumerate(states.tolist()):
            try:
                value = evaluate(node, state)
            except PrismError as error:
                shown = ", ".join(f"{self.variables[i].name}={state[i]}" for i in projection.indices)
                raise PrismError(f"{error.reason} at ({shown})", node.position) from None
            if node.type is Type.INT and abs(value) >= LIMIT:
                raise PrismError("integer out of the 62-bit range", node.position)
            exact[k] = value
        return exact[inverse.reshape(-1)]
