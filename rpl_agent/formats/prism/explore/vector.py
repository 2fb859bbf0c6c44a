"""Expressions evaluated over many states at once, exactly: by a `Tape` where that can be, else by the plain evaluator.

The plain evaluator is asked once per distinct combination of the variables that an expression depends on. Nothing is
evaluated as code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import prod

import numpy as np

from rpl_agent.formats.prism.explore.tape import LIMIT, Columns, NotVectorisable, Scaled, Tape
from rpl_agent.formats.prism.language.errors import PrismError
from rpl_agent.formats.prism.language.scope import StateVariable
from rpl_agent.formats.prism.language.typed import Node, Type, evaluate
from rpl_agent.model.states import Codec


class Projection:
    """Distinct combinations of the variables that an expression depends on."""

    def __init__(self, support: frozenset[int], variables: Sequence[StateVariable]):
        self.indices = sorted(support)
        self.variables = variables
        self.size = prod(variables[i].size for i in self.indices)

    @cached_property
    def _codec(self) -> Codec:
        return Codec({i: (self.variables[i].low, self.variables[i].high) for i in self.indices})

    def key(self, columns: Columns, n: int) -> np.ndarray:
        return self._codec.key(columns, n)

    def columns(self, key: np.ndarray) -> list[np.ndarray]:
        """One column per state variable; those outside the support hold their initial value (never read)."""
        return self._filled(self._codec.decode(key), len(key))

    def distinct(self, columns: Columns, n: int) -> tuple[np.ndarray, np.ndarray]:
        """(k, V) one state for each combination that occurs, (n,) which of them each state has."""
        if self.size < LIMIT:
            keys, inverse = np.unique(self.key(columns, n), return_inverse=True)
            found = self.columns(keys)
        else:  # too wide for a key
            part, inverse = np.unique(np.column_stack([columns[i] for i in self.indices]), axis=0, return_inverse=True)
            found = self._filled(dict(zip(self.indices, part.T)), len(part))
        states = np.column_stack(found) if found else np.zeros((1, 0), dtype=np.int64)
        return states, inverse.reshape(-1)

    def _filled(self, found: Mapping[int, np.ndarray], n: int) -> list[np.ndarray]:
        return [found[i] if i in found else np.full(n, v.initial, dtype=np.int64) for i, v in enumerate(self.variables)]


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
        results, whole = [], self._numerators(columns, n)
        for node, value in zip(self.nodes, self.values, strict=True):
            kind = bool if node.type is Type.BOOL else np.int64
            if value is not None:
                results.append(next(whole).astype(kind, copy=False))
            else:
                exact = self._slow(node, columns, n)
                results.append(np.array([int(v) for v in exact], dtype=np.int64).astype(kind))
        return results

    def numbers(self, columns: Columns, n: int) -> list[np.ndarray]:
        """(n,) float64 array per expression: the exact value, rounded once."""
        results, whole = [], self._numerators(columns, n)
        for node, value in zip(self.nodes, self.values, strict=True):
            if value is None:
                results.append(np.array([float(v) for v in self._slow(node, columns, n)]))
            elif max(-value.low, value.high, value.denominator) <= 2**53:
                results.append(next(whole) / value.denominator)
            else:
                results.append(np.array([float(Fraction(int(v), value.denominator)) for v in next(whole)]))
        return results

    def _numerators(self, columns: Columns, n: int) -> Iterator[np.ndarray]:
        """(n,) int64 for each expression that the tape knows."""
        return iter(self.tape.run(columns, [v for v in self.values if v is not None], n))

    def _slow(self, node: Node, columns: Columns, n: int) -> np.ndarray:
        """(n,) object array by the plain evaluator, once per distinct combination."""
        projection = Projection(node.support, self.variables)
        states, inverse = projection.distinct(columns, n)
        exact = np.empty(len(states), dtype=object)
        for k, state in enumerate(states.tolist()):
            try:
                value = evaluate(node, state)
            except PrismError as error:
                shown = ", ".join(f"{self.variables[i].name}={state[i]}" for i in projection.indices)
                raise PrismError(f"{error.reason} at ({shown})", node.position) from None
            if node.type is Type.INT and abs(value) >= LIMIT:
                raise PrismError("integer out of the 62-bit range", node.position)
            exact[k] = value
        return exact[inverse]
