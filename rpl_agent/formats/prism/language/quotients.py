"""Quotients of polynomials, such as p/(p+q): polynomials in the parameters and in the reciprocals of divisors.

1/g is a factor with a name of its own (`Reciprocal`). The terms of g obey g · (1/g) = 1, so the largest of them,
divided by g, is written by the others: q/(p+q) = 1 − p/(p+q). With that rule applied wherever it can be (`reduced`),
rows of quotients sum to one as polynomials, and equal quotients of one divisor are equal polynomials.
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd, lcm
from typing import Any

from rpl_agent.formats.prism.language.errors import Position, PrismError
from rpl_agent.model.polynomial import Monomial, Polynomial, divided

#: Divisors and quotients of more terms are mistakes, not probabilities; so are longer reductions.
MAX_DIVISOR, MAX_TERMS, MAX_STEPS = 50, 500, 20_000


class Reciprocal(str):
    """The name of 1/g, to stand in monomials beside the names of parameters.

    Attributes
    ----------
    divisor : g, with coprime integer coefficients, the leading one positive.
    position : of the division, or of the first one by this divisor.
    leading : the largest monomial of g.
    """

    divisor: Polynomial
    position: Position
    leading: Monomial

    def __new__(cls, divisor: Polynomial, position: Position) -> Reciprocal:
        self = super().__new__(cls, f"1/{parenthesised(divisor)}")
        self.divisor, self.position = divisor, position
        self.leading = max(divisor.terms, key=by_last(divisor))
        return self

    @property
    def polynomial(self) -> Polynomial:
        return Polynomial.parameter(self)


def parenthesised(polynomial: Polynomial) -> str:
    """A polynomial as the text of a divisor, without spaces."""
    text = str(polynomial).replace(" ", "")
    return text if text.isidentifier() else f"({text})"


def quotient(left: Polynomial, right: Polynomial, position: Position) -> Polynomial:
    """left / right, right not zero: a polynomial in the parameters where it comes out even."""
    right, below = as_fraction(right)  # (a/b) / (c/d) = (a d / b) / c
    if len(right.terms) > MAX_DIVISOR:
        raise PrismError(f"a divisor with more than {MAX_DIVISOR} terms is too large", position)
    left = reduced(left * below)
    whole = divided(left, right)
    if whole is not None:
        return whole
    for name in sorted(right.parameters):  # a parameter that divides the divisor is a divisor by itself
        alone = Polynomial.parameter(name)
        while (rest := divided(right, alone)) is not None:
            left, right = left * Reciprocal(alone, position).polynomial, rest
    scale = _content(right)
    left, right = left * (1 / scale), right * (1 / scale)
    if not right.is_constant:
        left = left * Reciprocal(right, position).polynomial
    return reduced(left)


def reciprocals(polynomial: Polynomial) -> list[Reciprocal]:
    """The reciprocals in a polynomial, sorted."""
    return sorted({name for monomial in polynomial.terms for name, _ in monomial if isinstance(name, Reciprocal)})


def as_fraction(value: Polynomial) -> tuple[Polynomial, Polynomial]:
    """(top, bottom) over the parameters alone."""
    highest: dict[Reciprocal, int] = {}
    for monomial in value.terms:
        for name, power in monomial:
            if isinstance(name, Reciprocal):
                highest[name] = max(power, highest.get(name, 0))
    top, bottom = Polynomial({}), Polynomial.constant(1)
    for name, power in highest.items():
        bottom = bottom * name.divisor**power
    for monomial, coefficient in value.terms.items():
        powers = dict(monomial)
        term = Polynomial({tuple((n, k) for n, k in monomial if n not in highest): coefficient})
        for name, power in highest.items():
            term = term * name.divisor ** (power - powers.get(name, 0))
        top = top + term
    return top, bottom


def reduced(value: Any) -> Any:
    """The normal form of a polynomial with reciprocals; every other value as it is."""
    if not isinstance(value, Polynomial) or not reciprocals(value):
        return value
    done: dict[Monomial, Fraction] = {}
    open_terms = dict(value.terms)
    steps = 0
    while open_terms:
        steps += 1
        if steps > MAX_STEPS or len(open_terms) + len(done) > MAX_TERMS:
            raise PrismError(
                f"a quotient with more than {MAX_TERMS} terms is too large", reciprocals(value)[0].position
            )
        monomial, coefficient = open_terms.popitem()
        powers = dict(monomial)
        factor = next((name for name in powers if isinstance(name, Reciprocal) and divides(name.leading, powers)), None)
        if factor is None:
            done[monomial] = done.get(monomial, Fraction(0)) + coefficient
            continue
        # leading · (1/g) = (1 − rest · (1/g)) / coefficient of the leading monomial
        terms = factor.divisor.terms
        other = Polynomial({without(powers, ((factor, 1), *factor.leading)): coefficient / terms[factor.leading]})
        rest = Polynomial({m: c for m, c in terms.items() if m != factor.leading})
        for m, c in (other - other * rest * factor.polynomial).terms.items():
            open_terms[m] = open_terms.get(m, Fraction(0)) + c
    return Polynomial(done)


def by_last(polynomial: Polynomial) -> Any:
    """A key that compares monomials by the powers of the last parameter, then of the one before, …"""
    names = sorted(polynomial.parameters, reverse=True)
    return lambda monomial: tuple(dict(monomial).get(name, 0) for name in names)


def divides(monomial: Monomial, powers: dict[str, int]) -> bool:
    return all(powers.get(name, 0) >= power for name, power in monomial)


def without(powers: dict[str, int], divisor: Monomial) -> Monomial:
    left = dict(powers)
    for name, power in divisor:
        left[name] -= power
    return tuple(sorted((name, power) for name, power in left.items() if power))


def _content(polynomial: Polynomial) -> Fraction:
    """The number that leaves coprime integers with a positive leading one."""
    coefficients = polynomial.terms.values()
    size = Fraction(gcd(*(c.numerator for c in coefficients)), lcm(*(c.denominator for c in coefficients)))
    return size if polynomial.terms[max(polynomial.terms, key=by_last(polynomial))] > 0 else -size
