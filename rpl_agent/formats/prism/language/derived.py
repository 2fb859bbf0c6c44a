"""Quotients of polynomials, such as p/(p+q), and the derived parameters that represent them.

1/g is a named factor (`Reciprocal`). The terms of g satisfy g · (1/g) = 1, so the largest of them,
divided by g, is expressed by the others: q/(p+q) = 1 − p/(p+q). With that rule applied wherever possible (`reduced`),
rows of quotients sum to one as polynomials, and equal quotients of one divisor are equal polynomials.

With a parameter for each quotient, probabilities stay polynomials. Its domain is the range of the quotient over the box
of the file's parameters, rounded outward, so it contains every point of the file's domain: guarantees stay valid.
Further ties between the file's parameters (such as p occurring elsewhere too) are not used. A parameter that occurs
in quotients only is no longer a parameter of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, reduce
from math import comb, gcd, lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from rpl_agent.core.model import Domain, Polynomial, as_polynomial
from rpl_agent.core.model.algebra.ranges import MAX_BERNSTEIN
from rpl_agent.core.model.polynomial import ONE, Monomial, Number, divided, exact, outward
from rpl_agent.core.model.unused import projection
from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.formats.prism.language.grammar import Position, PrismError

if TYPE_CHECKING:
    from rpl_agent.formats.prism.language.scope import Program  # it needs this file, because expressions divide

#: Divisors and quotients with more terms are mistakes, not probabilities; so are longer reductions.
MAX_DIVISOR, MAX_TERMS, MAX_STEPS = 50, 500, 20_000


class Reciprocal(str):
    """The name of 1/g, used in monomials beside the names of parameters."""

    divisor: Polynomial  # g, with coprime integer coefficients, the leading one positive
    position: Position  # of the division, or of the first one by this divisor
    leading: Monomial  # the largest of g

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
    """left / right, right not zero: a polynomial in the parameters if the division is exact."""
    right, below = as_fraction(right)  # (a/b) / (c/d) = (a d / b) / c
    if len(right.terms) > MAX_DIVISOR:
        raise PrismError(f"a divisor with more than {MAX_DIVISOR} terms is too large", position)
    left = reduced(left * below)
    whole = divided(left, right)
    if whole is not None:
        return whole
    for name in sorted(right.parameters):  # a parameter that divides the divisor becomes its own divisor
        alone = Polynomial.parameter(name)
        while (rest := divided(right, alone)) is not None:
            left, right = left * Reciprocal(alone, position).polynomial, rest
    numbers = right.terms.values()  # leave coprime integers with a positive leading one
    scale = Fraction(gcd(*(c.numerator for c in numbers)), lcm(*(c.denominator for c in numbers)))
    scale = scale if right.terms[max(right.terms, key=by_last(right))] > 0 else -scale
    left, right = left * (1 / scale), right * (1 / scale)
    if not right.is_constant:
        left = left * Reciprocal(right, position).polynomial
    return reduced(left)


def reciprocals(polynomial: Polynomial) -> list[Reciprocal]:
    """The reciprocals in a polynomial, sorted."""
    return sorted({name for monomial in polynomial.terms for name, _ in monomial if isinstance(name, Reciprocal)})


def as_fraction(value: Polynomial) -> tuple[Polynomial, Polynomial]:
    """(numerator, denominator) over the parameters alone."""
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
    """The normal form of a polynomial with reciprocals; other values unchanged."""
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


Box = Mapping[str, tuple[Fraction, Fraction]]


@dataclass(frozen=True)
class Derived:
    """The parameter ``top / (divisor of over)``; its top is a term of the divisor, up to its sign, or a monomial."""

    top: Polynomial
    over: Reciprocal

    @property
    def name(self) -> str:
        return f"{str(self.top).replace(' ', '')}/{parenthesised(self.over.divisor)}"

    @property
    def parameters(self) -> frozenset[str]:
        """The file's parameters that it depends on."""
        return self.top.parameters | self.over.divisor.parameters

    def value(self, point: Mapping[str, Number]) -> Fraction:
        below = self.over.divisor.evaluate(point)
        if below == 0:
            raise PrismError(f"{self.over.divisor} is 0 at these parameters", self.over.position)
        return self.top.evaluate(point) / below


class DerivedParameters:
    """Collects the quotients of a file and names them."""

    def __init__(self) -> None:
        self.found: dict[str, Derived] = {}
        self._several: dict[Polynomial, Polynomial] = {}  # named -> meaning, for those with two or more
        #: the file's parameters whose ties to others are lost by this
        self.loose: list[str] = []

    def named(self, value: Polynomial | Number) -> Polynomial:
        """A probability over the file's and the derived parameters, from one with reciprocals."""
        if not isinstance(value, Polynomial) or not reciprocals(value):
            return as_polynomial(value)
        result = Polynomial({})
        for monomial, coefficient in value.terms.items():
            result = result + self._named(monomial, coefficient)
        if sum(name in self.found for name in result.parameters) > 1:
            self._several[result] = value
        return result

    def _named(self, monomial: Monomial, coefficient: Fraction) -> Polynomial:
        """One term: each reciprocal takes the largest monomial of its divisor that is present."""
        powers = {name: power for name, power in monomial if not isinstance(name, Reciprocal)}
        factors: list[str] = []
        for over, power in monomial:
            if not isinstance(over, Reciprocal):
                continue
            for _ in range(power):
                terms = {m: c for m, c in over.divisor.terms.items() if m != over.leading and divides(m, powers)}
                top = max(terms, key=by_last(over.divisor), default=ONE)
                size = abs(terms.get(top, Fraction(1)))
                powers = dict(without(powers, top))
                derived = Derived(Polynomial({top: size}), over)
                self.found.setdefault(derived.name, derived)
                coefficient /= size
                factors.append(derived.name)
        for name in factors:
            powers[name] = powers.get(name, 0) + 1
        return Polynomial({tuple(sorted(powers.items())): coefficient})

    def values(self, point: Mapping[str, Number]) -> dict[str, Fraction]:
        """The derived parameters at a point of the file's, exactly."""
        return {name: derived.value(point) for name, derived in self.found.items()}

    def extended(self, program: Program, domain: Domain, occurring: Iterable[str]) -> tuple[Program, Domain]:
        """Program and domain with the derived parameters, without those of the file that occur in quotients only.

        occurring : parameters that occur outside quotients.
        """
        if not self.found:
            return program, domain
        box = exact_box(domain)
        limits = [outward(*quotient_range(d.top, d.over.divisor, box, d.over.position)) for d in self.found.values()]
        divided = frozenset().union(*(d.parameters for d in self.found.values()))
        alone = set(occurring)
        self.loose = self._loose(divided, alone)
        kept = projection(domain, np.array([name in alone or name not in divided for name in domain.parameters]))
        kept = domain if kept is None else kept
        names = (*kept.parameters, *self.found)
        if len(set(names)) < len(names):
            raise PrismError(f"the names {names} of parameters and quotients are not distinct")
        lower, upper = (
            np.append(ends, [limit[k] for limit in limits]) for k, ends in enumerate((kept.lower, kept.upper))
        )
        A = np.hstack([kept.A, np.zeros((len(kept.b), len(self.found)))])
        wide = Domain(names, lower, upper, A, kept.b)
        return replace(program, parameters=names), self._constrained(wide, box)

    def _loose(self, divided: Iterable[str], alone: set[str]) -> list[str]:
        """Parameters that occur in several divisors, or in one and alone, or in more quotients than there are."""
        groups: dict[str, list[Derived]] = {}
        for d in self.found.values():
            groups.setdefault(d.over, []).append(d)
        own = {over: frozenset().union(*(d.parameters for d in group)) for over, group in groups.items()}
        many = frozenset().union(*(own[over] for over, group in groups.items() if len(group) > len(own[over])))
        return [
            name
            for name in sorted(divided)
            if name in alone or name in many or sum(name in parameters for parameters in own.values()) > 1
        ]

    def _constrained(self, domain: Domain, box: Box) -> Domain:
        """Add the range of every probability that is linear in several derived parameters of its own."""
        rows: list[np.ndarray] = []
        right: list[float] = []
        reach = np.maximum(np.abs(domain.lower), np.abs(domain.upper))
        for named, meaning in self._several.items():
            if named.degree > 1:
                continue
            top, bottom = as_fraction(meaning)
            low, high = outward(*quotient_range(top, bottom, box, reciprocals(meaning)[0].position))
            row = np.array([float(named.terms.get(((name, 1),), Fraction(0))) for name in domain.parameters])
            constant = float(named.constant_value())
            slack = 8 * UNIT_ROUNDOFF * (len(row) * float(np.abs(row) @ reach) + abs(constant) + abs(low) + abs(high))
            rows += [row, -row]
            right += [high - constant + slack, constant - low + slack]
        return domain.with_constraints(np.array(rows), np.array(right)) if rows else domain


def exact_box(domain: Domain) -> Box:
    """The bounds of the parameters, as the decimals in which they are written."""
    return {
        name: (min(Fraction(low), exact(low)), max(Fraction(high), exact(high)))
        for name, low, high in zip(domain.parameters, domain.lower.tolist(), domain.upper.tolist())
    }


def quotient_range(top: Polynomial, bottom: Polynomial, box: Box, position: Position) -> tuple[Fraction, Fraction]:
    """Exact bounds on top / bottom over a box on which the bottom keeps its sign.

    In Bernstein form both are averages of their coefficients with the same weights, so the quotient lies between the
    least and the largest quotient of coefficients; at corners of the box these are its values.
    """
    names = sorted(top.parameters | bottom.parameters)
    degrees = [max(dict(m).get(name, 0) for part in (top, bottom) for m in part.terms) for name in names]
    if np.prod([n + 1.0 for n in degrees]) > MAX_BERNSTEIN:
        raise PrismError(f"the quotient ({top}) / ({bottom}) has too high a degree", position)
    above, below = (_bernstein(part, names, degrees, box) for part in (top, bottom))
    if not ((below > 0).all() or (below < 0).all()):
        places = ", ".join(f"{name} in [{float(box[name][0]):g}, {float(box[name][1]):g}]" for name in names)
        raise PrismError(
            f"the divisor {bottom} may be 0 for {places}: give ranges that exclude 0 (--param NAME=LO:HI)",
            position,
        )
    quotients = above / below
    return quotients.min(), quotients.max()


def _bernstein(polynomial: Polynomial, names: list[str], degrees: list[int], box: Box) -> np.ndarray:
    """Exact Bernstein coefficients of all degrees on the box, flat (see `rpl_agent.core.model.algebra.ranges`)."""
    total = np.full(int(np.prod([n + 1 for n in degrees])), Fraction(0))
    for monomial, coefficient in polynomial.terms.items():
        powers = dict(monomial)
        factors = [_power(powers.get(name, 0), n, *box[name]) for name, n in zip(names, degrees)]
        total = total + reduce(np.multiply.outer, factors, np.array(coefficient, dtype=object)).reshape(-1)
    return total


@lru_cache(maxsize=10_000)
def _power(p: int, n: int, low: Fraction, high: Fraction) -> np.ndarray:
    """Bernstein coefficients of degree n of the p-th power on [low, high]."""
    return np.array(
        [
            sum(
                comb(p, q) * low ** (p - q) * (high - low) ** q * Fraction(comb(i, q), comb(n, q))
                for q in range(min(i, p) + 1)
            )
            for i in range(n + 1)
        ],
        dtype=object,
    )
