"""Exact multivariate polynomials: the form of transition probabilities.

Coefficients are rationals, so equality of polynomials is decided exactly; that decides which
transitions are tied (Sec. 2.4 of the paper). A float stands for its shortest decimal form:
``0.1`` is 1/10, as its author meant.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import inf, nextafter
from typing import TypeAlias, Union

from rpl_agent.core.errors import ModelError

Monomial: TypeAlias = tuple[tuple[str, int], ...]
Number: TypeAlias = Union[int, float, str, Fraction, Decimal]

ONE: Monomial = ()
#: Powers above this are refused: they are typing errors, and would take forever to expand.
MAX_DEGREE = 64
#: Decimal exponents above this are refused for the same reason (doubles end at 308).
MAX_EXPONENT = 400


def outward(low: Fraction, high: Fraction) -> tuple[float, float]:
    """The nearest floats at or below ``low`` and at or above ``high``."""
    below, above = float(low), float(high)
    return (
        below if Fraction(below) <= low else nextafter(below, -inf),
        above if Fraction(above) >= high else nextafter(above, inf),
    )


def exact(value: Number) -> Fraction:
    """The rational number for a value (floats by their shortest decimal form)."""
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ModelError(f"{value!r} is not a coefficient: it must be finite")
        return Fraction(float.__repr__(value))  # np.float64 is a float with its own repr
    if hasattr(value, "item"):  # numpy scalars
        return exact(value.item())
    return Fraction(value)


class Polynomial:
    """A polynomial over named parameters with rational coefficients (immutable, hashable).

    >>> p = Polynomial.parameter("p")
    >>> print((1 - p) * (1 - p))
    1 - 2*p + p**2
    >>> (p * p).at({"p": "1/3"})
    Fraction(1, 9)
    """

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, Fraction]):
        self.terms: dict[Monomial, Fraction] = {m: c for m, c in terms.items() if c}
        self._hash: int | None = None

    @classmethod
    def constant(cls, value: Number) -> Polynomial:
        return cls({ONE: exact(value)})

    @classmethod
    def parameter(cls, name: str) -> Polynomial:
        return cls({((name, 1),): Fraction(1)})

    @classmethod
    def parse(cls, text: str) -> Polynomial:
        """Read ``"0.5*p + 0.0004*12"``: numbers, names, ``+ - * / ** ^ ( )``; nothing is evaluated as code."""
        written = text.strip().replace("^", "**")  # Python's ^ binds less tightly than +, which nobody means here
        try:
            return _from_ast(ast.parse(written, mode="eval").body, written)
        except ModelError:
            raise
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ModelError(f"expression {text!r} is not a polynomial: {error}") from None

    @property
    def is_constant(self) -> bool:
        return all(m == ONE for m in self.terms)

    @property
    def degree(self) -> int:
        return max((sum(power for _, power in m) for m in self.terms), default=0)

    @property
    def parameters(self) -> frozenset[str]:
        return frozenset(name for m in self.terms for name, _ in m)

    def constant_value(self) -> Fraction:
        """The coefficient of the monomial 1."""
        return self.terms.get(ONE, Fraction(0))

    def at(self, values: Mapping[str, Number]) -> Fraction:
        """The exact value at a parameter instantiation."""
        total = Fraction(0)
        for monomial, coefficient in self.terms.items():
            for name, power in monomial:
                coefficient *= exact(values[name]) ** power
            total += coefficient
        return total

    def __add__(self, other: Polynomial | Number) -> Polynomial:
        other = as_polynomial(other)
        terms = dict(self.terms)
        for m, c in other.terms.items():
            terms[m] = terms[m] + c if m in terms else c
        return Polynomial(terms)

    def __neg__(self) -> Polynomial:
        return Polynomial({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Polynomial | Number) -> Polynomial:
        return self + (-as_polynomial(other))

    def __rsub__(self, other: Polynomial | Number) -> Polynomial:
        return as_polynomial(other) - self

    def __mul__(self, other: Polynomial | Number) -> Polynomial:
        other = as_polynomial(other)
        terms: dict[Monomial, Fraction] = {}
        for m1, c1 in self.terms.items():
            for m2, c2 in other.terms.items():
                powers = dict(m1)
                for name, power in m2:
                    powers[name] = powers.get(name, 0) + power
                key = tuple(sorted(powers.items()))
                terms[key] = terms[key] + c1 * c2 if key in terms else c1 * c2
        return Polynomial(terms)

    def __truediv__(self, other: Polynomial | Number) -> Polynomial:
        other = as_polynomial(other)
        if not other.is_constant:
            raise ModelError(f"division by {other} is not a polynomial: only constants may divide")
        if not other.terms:
            raise ModelError("division by zero in an expression")
        return Polynomial({m: c / other.constant_value() for m, c in self.terms.items()})

    def __rtruediv__(self, other: Polynomial | Number) -> Polynomial:
        return as_polynomial(other) / self

    def __pow__(self, power: int) -> Polynomial:
        if not isinstance(power, int) or power < 0:
            raise ModelError(f"power {power!r} is not a natural number")
        if power * max(self.degree, 1) > MAX_DEGREE:
            raise ModelError(
                f"a polynomial of degree {power * max(self.degree, 1)} is refused: the largest degree is {MAX_DEGREE}"
            )
        value = self.constant_value()
        if power * max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_DEGREE * 64:
            raise ModelError(f"the power {power} of {_decimal(value)[:40]} is too large")
        result = Polynomial.constant(1)
        for _ in range(power):
            result = result * self
        return result

    __radd__ = __add__
    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (int, float, Fraction)):
            other = Polynomial.constant(other)
        return isinstance(other, Polynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        parts = []
        for monomial, coefficient in sorted(self.terms.items()):
            factors = [_factor(name, power) for name, power in monomial]
            if not factors or abs(coefficient) != 1:
                factors.insert(0, _decimal(abs(coefficient)))
            sign = "-" if coefficient < 0 else "+"
            parts.append((sign, "*".join(factors)))
        head = ("-" if parts[0][0] == "-" else "") + parts[0][1]
        return head + "".join(f" {sign} {body}" for sign, body in parts[1:])

    def __repr__(self) -> str:
        return f"Polynomial({str(self)!r})"


def divided(left: Polynomial, right: Polynomial) -> Polynomial | None:
    """Divide by long division with leading monomials; None if the quotient is not a polynomial."""
    names = sorted(left.parameters | right.parameters)

    def order(monomial: Monomial) -> tuple[int, ...]:
        powers = dict(monomial)
        return tuple(powers.get(name, 0) for name in names)

    lead = max(right.terms, key=order)
    quotient, rest = Polynomial({}), left
    while rest.terms:
        top = max(rest.terms, key=order)
        powers = [a - b for a, b in zip(order(top), order(lead), strict=True)]
        if min(powers, default=0) < 0:
            return None
        monomial = tuple((name, power) for name, power in zip(names, powers, strict=True) if power)
        term = Polynomial({monomial: rest.terms[top] / right.terms[lead]})
        quotient, rest = quotient + term, rest - term * right
    return quotient


def as_polynomial(value: Polynomial | Number) -> Polynomial:
    """Polynomials unchanged, strings parsed, numbers as constants."""
    if isinstance(value, Polynomial):
        return value
    if isinstance(value, str):
        return Polynomial.parse(value)
    try:
        return Polynomial.constant(value)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{value!r} is not a polynomial: {error}") from None


def _factor(name: str, power: int) -> str:
    """A power of a parameter; the name of a quotient is put in parentheses."""
    name = name if name.isidentifier() else f"({name})"
    return name if power == 1 else f"{name}**{power}"


def _decimal(value: Fraction) -> str:
    """A decimal if it is exact and short, else ``n/d``."""
    denominator = value.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    if denominator == 1 and value.denominator <= 10**12:
        digits = Decimal(value.numerator) / Decimal(value.denominator)
        return format(digits.normalize(), "f")
    return f"{value.numerator}/{value.denominator}"


def _literal(source: str, text: str) -> Fraction:
    """A number exactly as written."""
    try:
        value = Decimal(source)
    except InvalidOperation:
        raise ModelError(f"expression {text!r}: {source!r} is not a decimal number") from None
    if abs(value.adjusted()) > MAX_EXPONENT:
        raise ModelError(f"expression {text!r}: the exponent of {source!r} is beyond {MAX_EXPONENT}")
    return Fraction(value)


_BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def _from_ast(node: ast.expr, text: str) -> Polynomial:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        source = ast.get_source_segment(text, node) or repr(node.value)
        return Polynomial.constant(_literal(source.replace("_", ""), text))
    if isinstance(node, ast.Name):
        return Polynomial.parameter(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        inner = _from_ast(node.operand, text)
        return -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.BinOp):
        left, right = _from_ast(node.left, text), _from_ast(node.right, text)
        if type(node.op) in _BINARY:
            return _BINARY[type(node.op)](left, right)
        if isinstance(node.op, ast.Pow):
            power = right.constant_value()
            if not right.is_constant or power.denominator != 1:
                raise ModelError(f"expression {text!r}: a power must be a natural number")
            return left ** int(power)
    raise ModelError(
        f"expression {text!r} is not a polynomial: {type(node).__name__} at column {node.col_offset + 1} is not allowed"
    )
