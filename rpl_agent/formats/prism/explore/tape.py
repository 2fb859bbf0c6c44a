"""Typed expressions as straight-line programs over scaled integers: exact, and free of overflow.

A number is held as an int64 numerator over a denominator that is known before any state is (literals and fixed divisors
give it), together with bounds from the ranges of the variables. Where the bounds do not prove that 62 bits suffice, or
where an operation is partial (division by a variable, ``mod`` by a possible zero), `NotVectorisable` sends the
expression to the plain evaluator, which is asked once per distinct combination of the variables it depends on.

A tape is a list of steps (operation, a, b, c); an argument is the number of an earlier step, or a plain number where
the operation says so. `Tape.run` runs it with numpy over columns of states, `_explore_kernels.run_tape` over one state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from rpl_agent.formats.prism.explore.operations import Op
from rpl_agent.formats.prism.language.scope import StateVariable
from rpl_agent.formats.prism.language.typed import Node

# Products of two values below this stay below 2**63.
LIMIT = 2**62

Columns = Sequence[np.ndarray]  # one (n,) int64 array per state variable


_NUMPY = {
    Op.ADD: np.add, Op.MULTIPLY: np.multiply, Op.MINIMUM: np.minimum, Op.MAXIMUM: np.maximum, Op.MOD: np.mod,
    Op.POWER: np.power, Op.AND: np.logical_and, Op.OR: np.logical_or, Op.EQUAL: np.equal,
    Op.NOT_EQUAL: np.not_equal, Op.LESS: np.less, Op.LESS_EQUAL: np.less_equal,
}  # fmt: skip
_COMPARE = {
    "=": Op.EQUAL, "<=>": Op.EQUAL, "!=": Op.NOT_EQUAL, "<": Op.LESS, "<=": Op.LESS_EQUAL, ">": Op.LESS,
    ">=": Op.LESS_EQUAL,
}  # fmt: skip


class NotVectorisable(Exception):
    """The expression needs the plain evaluator."""


@dataclass(frozen=True)
class Scaled:
    """A value on the tape: its step, its denominator, and inclusive bounds of the numerator."""

    slot: int
    denominator: int
    low: int
    high: int


class Tape:
    """Straight-line program over state variables; equal steps are shared."""

    def __init__(self, variables: Sequence[StateVariable]):
        self.variables = variables
        self.steps: list[tuple[int, int, int, int]] = []
        self._place: dict[tuple[int, int, int, int], int] = {}
        self._memo: dict[int, Scaled] = {}
        self._alive: list[Node] = []  # keeps ids in the memo unique

    def run(self, columns: Columns) -> list[Any]:
        """The value of every step, with numpy."""
        slots: list[Any] = []
        for op, a, b, c in self.steps:
            if op == Op.CONSTANT:
                slots.append(np.int64(a))
            elif op == Op.COLUMN:
                slots.append(columns[a])
            elif op == Op.FLOOR:
                slots.append(slots[a] // b)
            elif op == Op.CEIL:
                slots.append(-((-slots[a]) // b))
            elif op == Op.IF:
                slots.append(np.where(slots[a], slots[b], slots[c]))
            elif op == Op.NOT:
                slots.append(np.logical_not(slots[a]))
            else:
                slots.append(_NUMPY[Op(op)](slots[a], slots[b]))
        return slots

    def emit(self, op: Op, a: int, b: int = 0, c: int = 0) -> int:
        step = (int(op), a, b, c)
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
        return Scaled(self.emit(Op.CONSTANT, numerator), denominator, numerator, numerator)

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
            return Scaled(self.emit(Op.COLUMN, v.index), 1, v.low, v.high)
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
            return Scaled(self.emit(Op.MOD, left.slot, right.slot), 1, 0, right.high - 1)
        if operator == "pow":
            return self._power(arguments)
        if operator == "?:":
            return self._if(arguments[0], arguments[1], arguments[2])
        return self._boolean(operator, arguments)

    def _boolean(self, operator: str, arguments: list[Scaled]) -> Scaled:
        if operator in ("&", "|"):
            slot = arguments[0].slot
            for other in arguments[1:]:
                slot = self.emit(Op.AND if operator == "&" else Op.OR, slot, other.slot)
        elif operator == "!":
            slot = self.emit(Op.NOT, arguments[0].slot)
        elif operator == "=>":
            slot = self.emit(Op.OR, self.emit(Op.NOT, arguments[0].slot), arguments[1].slot)
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
            slot = self.emit(Op.ADD, result.slot, other.slot)
            result = Scaled(slot, result.denominator, result.low + other.low, result.high + other.high)
        return result

    def multiply(self, left: Scaled, right: Scaled) -> Scaled:
        corners = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
        self._fits(min(corners), max(corners))
        if left.denominator * right.denominator >= LIMIT:
            raise NotVectorisable
        slot = self.emit(Op.MULTIPLY, left.slot, right.slot)
        return Scaled(slot, left.denominator * right.denominator, min(corners), max(corners))

    def choose(self, condition: Node, yes: Scaled, no: Scaled) -> Scaled:
        """``condition ? yes : no`` for values already compiled."""
        return self._if(self.value(condition), yes, no)

    def _if(self, condition: Scaled, yes: Scaled, no: Scaled) -> Scaled:
        yes, no = self._aligned([yes, no])
        slot = self.emit(Op.IF, condition.slot, yes.slot, no.slot)
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
        op, bound = (Op.MINIMUM, min) if operator == "min" else (Op.MAXIMUM, max)
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
            return Scaled(self.emit(Op.FLOOR, x.slot, q), 1, x.low // q, x.high // q)
        return Scaled(self.emit(Op.CEIL, x.slot, q), 1, -((-x.low) // q), -((-x.high) // q))

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
        return Scaled(self.emit(Op.POWER, base.slot, exponent.slot), 1, -largest if base.low < 0 else 0, largest)

    @staticmethod
    def _fits(low: int, high: int) -> None:
        if low <= -LIMIT or high >= LIMIT:
            raise NotVectorisable
