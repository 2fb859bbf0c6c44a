"""Typed expressions compiled to numpy: exact, by scaled integers.

A number is held as int64 numerators over a denominator that is known before any state is (literals and fixed divisors
give it), together with bounds from the ranges of the variables, so that no operation can overflow: where the bounds
do not prove it, or where an operation is partial (division by a variable, ``mod`` by a possible zero),
`NotVectorisable` sends the expression to the plain evaluator, which is asked once per distinct combination of the
variables it depends on.

The program is a tape: one step per distinct subexpression, shared by all expressions compiled together. Nothing is
evaluated as code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from rpl_agent.formats.prism.errors import PrismError
from rpl_agent.formats.prism.scope import StateVariable
from rpl_agent.formats.prism.typed import Node, Type, evaluate

# Products of two values below this stay below 2**63.
LIMIT = 2**62

Columns = Sequence[np.ndarray]  # one (n,) int64 array per state variable


class NotVectorisable(Exception):
    """The expression needs the plain evaluator."""


@dataclass(frozen=True)
class Scaled:
    """A value on the tape: slot, denominator, and inclusive bounds of the numerator."""

    slot: int
    denominator: int
    low: int
    high: int


class Tape:
    """Straight-line program over columns."""

    def __init__(self, variables: Sequence[StateVariable]):
        self.variables = variables
        self.steps: list[tuple[Callable[..., Any], tuple[int, ...]]] = []
        self._memo: dict[int, Scaled] = {}
        self._cse: dict[object, int] = {}
        self._alive: list[Node] = []  # keeps ids in the memo unique

    def run(self, columns: Columns) -> list[Any]:
        slots: list[Any] = []
        for function, arguments in self.steps:
            slots.append(function(columns, *(slots[i] for i in arguments)))
        return slots

    def _emit(self, key: object, function: Callable[..., Any], *arguments: int) -> int:
        full = (key, arguments)
        if full not in self._cse:
            self._cse[full] = len(self.steps)
            self.steps.append((function, arguments))
        return self._cse[full]

    # -- values ---------------------------------------------------------------------------------------------------
    def constant(self, value: Fraction | int | bool) -> Scaled:
        number = Fraction(value)
        return self._scaled_constant(number.numerator, number.denominator)

    def _scaled_constant(self, numerator: int, denominator: int) -> Scaled:
        self._fits(numerator, numerator)
        if denominator >= LIMIT:
            raise NotVectorisable
        held = np.int64(numerator)
        return Scaled(self._emit(("const", numerator), lambda _: held), denominator, numerator, numerator)

    def value(self, node: Node) -> Scaled:
        """Compile a parameter-free expression."""
        if id(node) not in self._memo:
            self._alive.append(node)
            self._memo[id(node)] = self._compile(node)
        return self._memo[id(node)]

    def _compile(self, node: Node) -> Scaled:
        operator = node.operator
        if operator == "literal":
            if node.type is Type.BOOL:
                held = np.bool_(node.value)
                return Scaled(self._emit(("bool", bool(node.value)), lambda _: held), 1, int(held), int(held))
            return self.constant(node.value)
        if operator == "variable":
            v = self.variables[node.value]
            index = v.index
            if v.is_boolean:
                return Scaled(self._emit(("flag", index), lambda columns: columns[index] != 0), 1, 0, 1)
            return Scaled(self._emit(("column", index), lambda columns: columns[index]), 1, v.low, v.high)
        arguments = [self.value(a) for a in node.arguments]
        if operator == "+":
            return self.add(arguments)
        if operator == "*":
            result = arguments[0]
            for other in arguments[1:]:
                result = self.multiply(result, other)
            return result
        if operator == "neg":
            return self.multiply(self.constant(-1), arguments[0])
        if operator == "/":
            divisor = node.arguments[1]
            if not divisor.is_literal or divisor.value == 0:
                raise NotVectorisable
            return self.multiply(arguments[0], self.constant(1 / Fraction(divisor.value)))
        if operator in ("min", "max"):
            return self._extremum(operator, arguments)
        if operator in ("floor", "ceil", "round"):
            return self._rounded(operator, arguments[0])
        if operator == "mod":
            left, right = arguments
            if right.low <= 0:
                raise NotVectorisable
            return Scaled(self._emit("mod", lambda _, a, b: np.mod(a, b), left.slot, right.slot), 1, 0, right.high - 1)
        if operator == "pow":
            return self._power(arguments)
        if operator == "?:":
            yes, no = self._aligned(arguments[1:])
            slot = self._emit("?:", lambda _, c, a, b: np.where(c, a, b), arguments[0].slot, yes.slot, no.slot)
            return Scaled(slot, yes.denominator, min(yes.low, no.low), max(yes.high, no.high))
        return self._boolean(operator, arguments)

    def _boolean(self, operator: str, arguments: list[Scaled]) -> Scaled:
        if operator in ("&", "|"):
            join = np.logical_and if operator == "&" else np.logical_or
            slot = arguments[0].slot
            for other in arguments[1:]:
                slot = self._emit(operator, lambda _, a, b: join(a, b), slot, other.slot)
            return Scaled(slot, 1, 0, 1)
        if operator == "!":
            return Scaled(self._emit("!", lambda _, a: np.logical_not(a), arguments[0].slot), 1, 0, 1)
        if operator == "=>":
            function: Callable[..., Any] = lambda _, a, b: np.logical_or(np.logical_not(a), b)  # noqa: E731
        else:
            compare = {
                "=": np.equal, "<=>": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal,
                ">": np.greater, ">=": np.greater_equal,
            }[operator]  # fmt: skip
            arguments = self._aligned(arguments)
            function = lambda _, a, b: compare(a, b)  # noqa: E731
        return Scaled(self._emit(operator, function, arguments[0].slot, arguments[1].slot), 1, 0, 1)

    # -- arithmetic -----------------------------------------------------------------------------------------------
    def add(self, terms: list[Scaled]) -> Scaled:
        terms = self._aligned(terms)
        result = terms[0]
        for other in terms[1:]:
            self._fits(result.low + other.low, result.high + other.high)
            slot = self._emit("+", lambda _, a, b: a + b, result.slot, other.slot)
            result = Scaled(slot, result.denominator, result.low + other.low, result.high + other.high)
        return result

    def multiply(self, left: Scaled, right: Scaled) -> Scaled:
        corners = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
        self._fits(min(corners), max(corners))
        if left.denominator * right.denominator >= LIMIT:
            raise NotVectorisable
        slot = self._emit("*", lambda _, a, b: a * b, left.slot, right.slot)
        return Scaled(slot, left.denominator * right.denominator, min(corners), max(corners))

    def choose(self, condition: Node, yes: Scaled, no: Scaled) -> Scaled:
        """``condition ? yes : no`` for values already compiled."""
        yes, no = self._aligned([yes, no])
        slot = self._emit("?:", lambda _, c, a, b: np.where(c, a, b), self.value(condition).slot, yes.slot, no.slot)
        return Scaled(slot, yes.denominator, min(yes.low, no.low), max(yes.high, no.high))

    def _aligned(self, terms: list[Scaled]) -> list[Scaled]:
        """The same values over their common denominator."""
        common = lcm(*(t.denominator for t in terms))
        return [
            t if t.denominator == common
            else Scaled(self.multiply(t, self._scaled_constant(common // t.denominator, 1)).slot, common,
                        t.low * (common // t.denominator), t.high * (common // t.denominator))
            for t in terms
        ]  # fmt: skip

    def _extremum(self, operator: str, arguments: list[Scaled]) -> Scaled:
        pick, bound = (np.minimum, min) if operator == "min" else (np.maximum, max)
        arguments = self._aligned(arguments)
        result = arguments[0]
        for other in arguments[1:]:
            slot = self._emit(operator, lambda _, a, b: pick(a, b), result.slot, other.slot)
            result = Scaled(slot, result.denominator, bound(result.low, other.low), bound(result.high, other.high))
        return result

    def _rounded(self, operator: str, x: Scaled) -> Scaled:
        if operator == "round":  # floor(x + 1/2)
            x, operator = self.add([x, self.constant(Fraction(1, 2))]), "floor"
        q = x.denominator
        if q == 1:
            return x
        if operator == "floor":
            return Scaled(self._emit(("floor", q), lambda _, a: a // q, x.slot), 1, x.low // q, x.high // q)
        return Scaled(
            self._emit(("ceil", q), lambda _, a: -((-a) // q), x.slot), 1, -((-x.low) // q), -((-x.high) // q)
        )

    def _power(self, arguments: list[Scaled]) -> Scaled:
        base, exponent = arguments
        if exponent.denominator != 1 or exponent.low < 0 or exponent.high > 62:
            raise NotVectorisable
        if exponent.low == exponent.high:
            result = self.constant(1)
            for _ in range(exponent.low):
                result = self.multiply(result, base)
            return result
        largest = max(abs(base.low), abs(base.high), 1) ** exponent.high
        if base.denominator != 1 or largest >= LIMIT:
            raise NotVectorisable
        slot = self._emit("pow", lambda _, a, b: np.power(a, b), base.slot, exponent.slot)
        return Scaled(slot, 1, -largest if base.low < 0 else 0, largest)

    @staticmethod
    def _fits(low: int, high: int) -> None:
        if low <= -LIMIT or high >= LIMIT:
            raise NotVectorisable


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


class Batch:
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
