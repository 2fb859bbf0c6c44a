"""Typed expressions: names resolved to variables, parameters and values; types checked; constants folded.

Numbers are exact (int or Fraction), so a decimal literal means what it says. The value of an expression with a
parameter is a polynomial (`Polynomial`); everything that determines the *structure* of the
model (guards, updates, bounds, conditions) must not depend on parameters.

`interpret` is the slow, obvious meaning of an expression in one state; `explore.code` compiles the same expressions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from math import ceil, floor
from typing import Any

from rpl_agent.core.model import Polynomial
from rpl_agent.core.model.polynomial import divided
from rpl_agent.formats.prism.language.grammar import Position, PrismError
from rpl_agent.formats.prism.language.syntax import MAX_DEPTH

# Exact arithmetic can grow without end (x*x*x…): with more bits than this a number is a mistake, not a probability.
MAX_BITS = 20_000
MAX_TERMS = 2_000
MAX_POWER = 64


class Type(Enum):
    INT = "int"
    DOUBLE = "double"
    BOOL = "bool"


@dataclass(frozen=True, eq=False)
class Node:
    """A typed expression."""

    operator: str  # "literal", "variable", "parameter", or the operator of `syntax.Apply`
    arguments: tuple[Node, ...]
    type: Type
    position: Position
    value: Any = None  # the literal's value, the variable's index, or the parameter's name
    support: frozenset[int] = frozenset()  # indices of the state variables it depends on
    parametric: bool = False  # whether it contains a parameter
    depth: int = 1

    @property
    def is_literal(self) -> bool:
        return self.operator == "literal"


def literal(value: bool | int | Fraction, position: Position, kind: Type | None = None) -> Node:
    if kind is None:
        kind = Type.BOOL if isinstance(value, bool) else Type.INT if isinstance(value, int) else Type.DOUBLE
    return Node("literal", (), kind, position, value)


def variable(index: int, kind: Type, position: Position) -> Node:
    return Node("variable", (), kind, position, index, frozenset([index]))


def parameter(name: str, position: Position) -> Node:
    return Node("parameter", (), Type.DOUBLE, position, name, parametric=True)


def parameters_of(node: Node) -> frozenset[str]:
    """The parameters in an expression."""
    if not node.parametric:
        return frozenset()
    return frozenset([str(node.value)] if node.operator == "parameter" else []).union(
        *(parameters_of(a) for a in node.arguments)
    )


def apply(operator: str, arguments: tuple[Node, ...], position: Position) -> Node:
    """Check types, forbid parameters that would determine structure, and fold constants."""
    if operator == "/" and arguments[1].parametric:
        *others, last = _factors(arguments[1])  # a / (b c) = (a / b) / c: the divisors p+q and (p+q)^2 share a name
        left = arguments[0]
        for other in others:
            left = apply("/", (left, other), position)
        arguments = (left, last)
    depth = 1 + max(a.depth for a in arguments)
    if depth > MAX_DEPTH:
        raise PrismError(f"expression nested more than {MAX_DEPTH} levels deep (formulas included)", position)
    kind = _type_of(operator, arguments, position)
    parametric = any(a.parametric for a in arguments)
    if parametric:
        _check_polynomial(operator, arguments, position)
    support = frozenset().union(*(a.support for a in arguments))
    node = Node(operator, arguments, kind, position, None, support, parametric, depth)
    if not parametric and all(a.is_literal for a in arguments):
        try:
            return literal(interpret(node, ()), position, kind)
        except PrismError:
            # 1/0 in a branch that is never taken is not an error; if it is taken, it reports the error then.
            return node
    return node


def _factors(node: Node) -> list[Node]:
    """The factors of a parametric product or power; any other node is its own factor."""
    if node.operator == "*":
        return [factor for a in node.arguments for factor in _factors(a)]
    if node.operator == "pow" and node.arguments[1].is_literal and node.arguments[1].value:
        return _factors(node.arguments[0]) * node.arguments[1].value
    return [node]


#: argument types of operators, and their result type (None: int if all arguments are, else double)
_RULES: dict[str, tuple[str, Type | None]] = {
    **dict.fromkeys(("+", "*", "neg", "min", "max", "pow"), ("numbers", None)),
    **dict.fromkeys(("floor", "ceil", "round"), ("a number", Type.INT)),
    **dict.fromkeys(("&", "|", "!", "=>", "<=>"), ("booleans", Type.BOOL)),
    **dict.fromkeys(("<", "<=", ">", ">="), ("numbers", Type.BOOL)),
    **dict.fromkeys(("=", "!="), ("two numbers or two booleans", Type.BOOL)),
    "/": ("numbers", Type.DOUBLE),
    "mod": ("integers", Type.INT),
}


def _type_of(operator: str, arguments: tuple[Node, ...], position: Position) -> Type:
    kinds = {a.type for a in arguments}
    if operator == "?:":
        _require(arguments[0].type is Type.BOOL, "?:", "a boolean condition", arguments[:1], position)
        branches = {a.type for a in arguments[1:]}
        _require(len(branches) == 1 or Type.BOOL not in branches, "?:", "branches of one type", arguments[1:], position)
        return branches.pop() if len(branches) == 1 else Type.DOUBLE
    wanted, result = _RULES[operator]
    numeric, integer, boolean = Type.BOOL not in kinds, kinds == {Type.INT}, kinds == {Type.BOOL}
    holds = {"booleans": boolean, "integers": integer, "numbers": numeric, "a number": numeric}
    _require(holds.get(wanted, numeric or boolean), operator, wanted, arguments, position)
    return result or (Type.INT if integer else Type.DOUBLE)


def _require(holds: bool, operator: str, wanted: str, arguments: tuple[Node, ...], position: Position) -> None:
    if not holds:
        shown = "-" if operator == "neg" else operator
        kinds = ", ".join(a.type.value for a in arguments)
        raise PrismError(f"type error: '{shown}' needs {wanted}, got {kinds}", position)


def _check_polynomial(operator: str, arguments: tuple[Node, ...], position: Position) -> None:
    """Parameters may be added, multiplied, divided and raised to state-dependent powers; nothing else."""
    if operator in ("+", "*", "neg", "/"):
        return
    if operator == "?:" and not arguments[0].parametric:
        return
    if operator == "pow" and not arguments[1].parametric:
        power = arguments[1]
        if power.type is Type.INT and (not power.is_literal or 0 <= power.value <= MAX_POWER):
            return
        raise PrismError(f"a parameter may only be raised to an integer power 0..{MAX_POWER}", position)
    raise PrismError(
        f"a parameter may not occur under '{operator}': probabilities must be polynomials",
        position,
    )


def interpret(node: Node, state: Sequence[int], memo: dict[int, Any] | None = None) -> Any:
    """The exact value of an expression in one state (variables by index, booleans as 0/1).

    A bool, an int, a Fraction, or a Polynomial if parameters occur.
    """
    memo = {} if memo is None else memo
    if node.operator == "literal":
        return node.value
    if node.operator == "variable":
        value = int(state[node.value])
        return bool(value) if node.type is Type.BOOL else value
    if node.operator == "parameter":
        return Polynomial.parameter(str(node.value))
    if id(node) not in memo:
        memo[id(node)] = _checked(node, _operate(node, state, memo))
    return memo[id(node)]


def _operate(node: Node, state: Sequence[int], memo: dict[int, Any]) -> Any:
    kind, arguments = node.operator, node.arguments
    # lazy operators first: the other side may be undefined, as in x>0 & 10/x>2
    if kind == "&":
        return all(interpret(a, state, memo) for a in arguments)
    if kind == "|":
        return any(interpret(a, state, memo) for a in arguments)
    if kind == "=>":
        return not interpret(arguments[0], state, memo) or bool(interpret(arguments[1], state, memo))
    if kind == "?:":
        return interpret(arguments[1] if interpret(arguments[0], state, memo) else arguments[2], state, memo)
    values = [interpret(a, state, memo) for a in arguments]
    if kind in _WITH_POSITION:
        return _WITH_POSITION[kind](node, *values)
    return _PLAIN[kind](*values)


def _product(node: Node, *values: Any) -> Any:
    product = values[0]
    for value in values[1:]:
        product = _checked(node, product * value)
    return product


def _quotient(node: Node, left: Any, right: Any) -> Any:
    if right == 0:
        raise PrismError("division by zero", node.position)
    if isinstance(right, Polynomial):
        whole = divided(Polynomial.constant(0) + left, right)
        if whole is None:
            raise PrismError(
                f"({left}) / ({right}) divides by a parameter, and probabilities must be polynomials: "
                "declare the quotient as an unknown of its own (const double r;) and write r",
                node.position,
            )
        return whole
    if isinstance(left, Polynomial):
        return left / right
    return Fraction(left) / Fraction(right)


def _remainder(node: Node, left: Any, right: Any) -> Any:
    if right <= 0:
        raise PrismError(f"mod by {right}: the divisor must be positive", node.position)
    return left % right


def _power(node: Node, base: Any, exponent: Any) -> Any:
    if isinstance(exponent, Fraction):
        if exponent.denominator != 1:
            raise PrismError(f"pow({base}, {exponent}): roots are not supported", node.position)
        exponent = int(exponent)
    if isinstance(base, Polynomial):
        if not 0 <= exponent <= MAX_POWER:
            raise PrismError(f"a parameter raised to {exponent}: only 0..{MAX_POWER} are polynomials", node.position)
        return base**exponent
    if exponent < 0 and (node.type is Type.INT or base == 0):
        raise PrismError(f"pow({base}, {exponent}): negative exponent", node.position)
    size = max(abs(base.numerator).bit_length(), base.denominator.bit_length())
    if size * abs(exponent) > 2 * MAX_BITS:
        raise PrismError("number too large in pow", node.position)
    result = Fraction(base) ** exponent
    return int(result) if node.type is Type.INT else result


def _checked(node: Node, value: Any) -> Any:
    if isinstance(value, Polynomial):
        bits = max(map(_bits, value.terms.values()), default=0)
        if len(value.terms) > MAX_TERMS or bits > MAX_BITS or value.degree > MAX_POWER:
            raise PrismError(
                f"polynomial too large (more than {MAX_TERMS} terms, or a degree above {MAX_POWER})", node.position
            )
    elif _bits(value) > MAX_BITS:
        raise PrismError(f"number too large (more than {MAX_BITS} bits)", node.position)
    return value


def _bits(value: int | Fraction) -> int:
    return max(abs(value.numerator).bit_length(), value.denominator.bit_length())


#: operators that may fail, with the node for the position
_WITH_POSITION: dict[str, Callable[..., Any]] = {"*": _product, "/": _quotient, "mod": _remainder, "pow": _power}
_PLAIN: dict[str, Callable[..., Any]] = {
    "+": lambda first, *rest: sum(rest, first),
    "neg": operator.neg,
    "!": operator.not_,
    "min": lambda *values: min(values),
    "max": lambda *values: max(values),
    "floor": floor,
    "ceil": ceil,
    "round": lambda value: floor(value + Fraction(1, 2)),
    "=": operator.eq,
    "<=>": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
