"""`Bytecode`: exact evaluation of expressions over many states, by straight-line programs over scaled integers.

A number is an int64 numerator over a denominator that is known in advance (from literals and fixed divisors),
together with bounds from the ranges of the variables. If the bounds do not prove that 62 bits suffice, or
if an operation is partial (division by a variable, ``mod`` by a possible zero), `NotVectorisable` sends the
expression to the plain evaluator, which is called once per distinct combination of the variables it depends on.

Bytecode is a list of steps (operation, a, b, c). An argument is the index of an earlier step, or a plain number where
the operation says so (core.h). The compiled core runs it: here over columns of states, in `explorer` state by state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm, prod
from typing import Any

import numpy as np

from rpl_agent.core.model.states import Codec
from rpl_agent.core.native import core
from rpl_agent.formats.prism.language.grammar import PrismError
from rpl_agent.formats.prism.language.scope import StateVariable
from rpl_agent.formats.prism.language.typed import Node, Type, interpret

# Products of two values below this stay below 2**63.
LIMIT = 2**62

Columns = Sequence[np.ndarray]  # one (n,) int64 array per state variable


_COMPARE = {
    "=": core.OP_EQUAL,
    "<=>": core.OP_EQUAL,
    "!=": core.OP_NOT_EQUAL,
    "<": core.OP_LESS,
    ">": core.OP_LESS,
    "<=": core.OP_LESS_EQUAL,
    ">=": core.OP_LESS_EQUAL,
}


class NotVectorisable(Exception):
    """Raised for expressions that only the plain evaluator can compute."""


@dataclass(frozen=True)
class Scaled:
    """A value in the bytecode: its step, its denominator, and inclusive bounds on the numerator."""

    slot: int
    denominator: int
    low: int
    high: int


class Bytecode:
    """Straight-line program over state variables; equal steps are shared."""

    def __init__(self, variables: Sequence[StateVariable]):
        self.variables = variables
        self.steps: list[tuple[int, int, int, int]] = []
        self._place: dict[tuple[int, int, int, int], int] = {}
        self._memo: dict[int, Scaled] = {}
        self._alive: list[Node] = []  # keeps ids in the memo unique

    def run(self, columns: Columns, values: Sequence[Scaled], n: int) -> np.ndarray:
        """(len(values), n) int64: the numerators of these values in n states."""
        step = np.array(self.steps, dtype=np.int64).reshape(-1, 4)
        table = np.array(columns, dtype=np.int64).reshape(len(columns), n)
        which = np.array([value.slot for value in values], dtype=np.int64)
        out = np.empty((len(which), n), dtype=np.int64)
        scratch = np.empty(len(step) + len(table), dtype=np.int64)
        core.run_code_columns(n, len(table), table, len(step), step, len(which), which, scratch, out)
        return out

    def emit(self, op: int, a: int, b: int = 0, c: int = 0) -> int:
        step = (op, a, b, c)
        if step not in self._place:
            self._place[step] = len(self.steps)
            self.steps.append(step)
        return self._place[step]

    # -- values ---------------------------------------------------------------------------------------------------
    def constant(self, value: Fraction | int | bool) -> Scaled:
        number = Fraction(value)
        return self._scaled_constant(number.numerator, number.denominator)

    def _scaled_constant(self, numerator: int, denominator: int) -> Scaled:
        self._fits(numerator, numerator)
        if denominator >= LIMIT:
            raise NotVectorisable
        return Scaled(self.emit(core.OP_CONSTANT, numerator), denominator, numerator, numerator)

    def value(self, node: Node) -> Scaled:
        """Compile a parameter-free expression."""
        if id(node) not in self._memo:
            self._alive.append(node)
            self._memo[id(node)] = self._compile(node)
        return self._memo[id(node)]

    def _compile(self, node: Node) -> Scaled:
        operator = node.operator
        if operator == "literal":
            return self.constant(node.value)
        if operator == "variable":
            v = self.variables[node.value]
            return Scaled(self.emit(core.OP_COLUMN, v.index), 1, v.low, v.high)
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
            return Scaled(self.emit(core.OP_MOD, left.slot, right.slot), 1, 0, right.high - 1)
        if operator == "pow":
            return self._power(arguments)
        if operator == "?:":
            return self.choose(*arguments)
        return self._boolean(operator, arguments)

    def _boolean(self, operator: str, arguments: list[Scaled]) -> Scaled:
        if operator in ("&", "|"):
            slot = arguments[0].slot
            for other in arguments[1:]:
                slot = self.emit(core.OP_AND if operator == "&" else core.OP_OR, slot, other.slot)
        elif operator == "!":
            slot = self.emit(core.OP_NOT, arguments[0].slot)
        elif operator == "=>":
            slot = self.emit(core.OP_OR, self.emit(core.OP_NOT, arguments[0].slot), arguments[1].slot)
        else:
            left, right = self._aligned(arguments)
            if operator in (">", ">="):
                left, right = right, left
            slot = self.emit(_COMPARE[operator], left.slot, right.slot)
        return Scaled(slot, 1, 0, 1)

    # -- arithmetic -----------------------------------------------------------------------------------------------
    def add(self, terms: list[Scaled]) -> Scaled:
        terms = self._aligned(terms)
        result = terms[0]
        for other in terms[1:]:
            self._fits(result.low + other.low, result.high + other.high)
            slot = self.emit(core.OP_ADD, result.slot, other.slot)
            result = Scaled(slot, result.denominator, result.low + other.low, result.high + other.high)
        return result

    def multiply(self, left: Scaled, right: Scaled) -> Scaled:
        corners = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
        self._fits(min(corners), max(corners))
        if left.denominator * right.denominator >= LIMIT:
            raise NotVectorisable
        slot = self.emit(core.OP_MULTIPLY, left.slot, right.slot)
        return Scaled(slot, left.denominator * right.denominator, min(corners), max(corners))

    def choose(self, condition: Scaled, yes: Scaled, no: Scaled) -> Scaled:
        """``condition ? yes : no``."""
        yes, no = self._aligned([yes, no])
        slot = self.emit(core.OP_IF, condition.slot, yes.slot, no.slot)
        return Scaled(slot, yes.denominator, min(yes.low, no.low), max(yes.high, no.high))

    def _aligned(self, terms: list[Scaled]) -> list[Scaled]:
        """The same values over their common denominator."""
        common = lcm(*(t.denominator for t in terms))
        return [
            t
            if t.denominator == common
            else Scaled(
                self.multiply(t, self._scaled_constant(common // t.denominator, 1)).slot,
                common,
                t.low * (common // t.denominator),
                t.high * (common // t.denominator),
            )
            for t in terms
        ]

    def _extremum(self, operator: str, arguments: list[Scaled]) -> Scaled:
        op, bound = (core.OP_MINIMUM, min) if operator == "min" else (core.OP_MAXIMUM, max)
        arguments = self._aligned(arguments)
        result = arguments[0]
        for other in arguments[1:]:
            slot = self.emit(op, result.slot, other.slot)
            result = Scaled(slot, result.denominator, bound(result.low, other.low), bound(result.high, other.high))
        return result

    def _rounded(self, operator: str, x: Scaled) -> Scaled:
        if operator == "round":  # floor(x + 1/2)
            x, operator = self.add([x, self.constant(Fraction(1, 2))]), "floor"
        q = x.denominator
        if q == 1:
            return x
        if operator == "floor":
            return Scaled(self.emit(core.OP_FLOOR, x.slot, q), 1, x.low // q, x.high // q)
        return Scaled(self.emit(core.OP_CEIL, x.slot, q), 1, -((-x.low) // q), -((-x.high) // q))

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
        return Scaled(self.emit(core.OP_POWER, base.slot, exponent.slot), 1, -largest if base.low < 0 else 0, largest)

    @staticmethod
    def _fits(low: int, high: int) -> None:
        if low <= -LIMIT or high >= LIMIT:
            raise NotVectorisable


#: combinations of variables that are marked in a table; more are sorted
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
        """One column per state variable; those outside the support have their initial value (never read)."""
        return self._filled(self._codec.decode(key), len(key))

    def distinct(self, columns: Columns, n: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Columns of one state per combination that occurs, and (n,) the combination of each state."""
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
    """The values of an expression in n states by the plain evaluator; an error names the variables it depends on."""
    values = []
    for state in np.array(columns, dtype=np.int64).reshape(len(columns), n).T.tolist():
        try:
            value = interpret(node, state)
        except PrismError as error:
            shown = ", ".join(f"{variables[i].name}={state[i]}" for i in sorted(node.support))
            place = f" at ({shown})" if shown else ""
            raise PrismError(f"{error.reason}{place}", node.position) from None
        if node.type is Type.INT and abs(value) >= LIMIT:
            raise PrismError("integer out of the 62-bit range", node.position)
        values.append(value)
    return values


def column_of(node: Node, variables: Sequence[StateVariable], columns: Columns, n: int) -> np.ndarray:
    """(n,) values of an expression without parameters: bool, int64, or float64, the exact value rounded once."""
    bytecode = Bytecode(variables)
    try:
        value = bytecode.value(node)
    except NotVectorisable:
        some, inverse = Projection(node.support, variables).distinct(columns, n)
        kind = _KINDS[node.type]
        found = exact_values(node, variables, some, int(inverse.max(initial=-1)) + 1)
        return np.array([kind(v) for v in found], dtype=kind)[inverse]
    whole = bytecode.run(columns, [value], n)[0]
    if node.type is not Type.DOUBLE:
        return whole.astype(_KINDS[node.type], copy=False)
    if max(-value.low, value.high, value.denominator) <= 2**53:
        return whole / value.denominator
    return np.array([float(Fraction(v, value.denominator)) for v in whole.tolist()])
