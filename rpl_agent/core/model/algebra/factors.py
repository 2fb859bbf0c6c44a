"""Affine factors of transition probabilities: f = scale · Π_i a_i ** m_i, found and checked in exact arithmetic.

Binomials, products of synchronised commands and most probabilities in practice are products of affine terms. Then
−Σ_f K_f ln f = const − Σ_i (Σ_f K_f m_fi) ln a_i: the likelihood is that of an *affine* model in θ with the counts
Σ_f K_f m_fi on the term a_i. It is convex in θ, whatever the degree of f and however many monomials it has.

A term counts as a factor if it divides f over the rationals and is ≥ 0 on the domain (a logarithm needs that, and
f = a² with a of both signs is not log-concave). The remaining part of f is one more form, of a higher
degree.

Terms are searched among θ_j and 1 − θ_j, the domain's facets, the table's affine expressions and their complements;
then, in the remaining part, among terms of one parameter that occurs to the first power, and by the rational roots
along lines. Guesses are harmless: one that does not divide is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import gcd, lcm, log
from typing import Any

import numpy as np
import scipy

from rpl_agent.core.model.caching import cached_fact
from rpl_agent.core.model.domain import Domain
from rpl_agent.core.model.expressions import ExpressionTable
from rpl_agent.core.model.pmdp import ParametricMDP
from rpl_agent.core.model.polynomial import Polynomial, exact

#: A polynomial with integer coefficients: exponents of the parameters -> coefficient.
Integers = dict[tuple[int, ...], int]
#: Roots are rounded to the nearest rationals with denominators up to these.
DENOMINATORS = (1_000, 100_000)
#: Values on a term's zero set smaller than this share of their summands justify an exact division.
VANISHING = 1e-9
#: Roots closer to each other than this share of the largest may be equal.
CLOSE_ROOTS = 0.1
#: Numbers of powers up to which a dense matrix is faster than a sparse one.
DENSE = 10_000


@dataclass(frozen=True, eq=False)
class Factors:
    """f = exp(log_scale_f) · Π_i form_i ** powers[f, i] for every expression f; forms are ≥ 0 on the domain."""

    forms: ExpressionTable  # n distinct polynomials with a largest coefficient of 1; for an affine table, the table
    powers: scipy.sparse.csr_array  # (F, n) int64, sparse
    log_scale: np.ndarray  # (F,)

    def counts(self, successes: np.ndarray) -> np.ndarray:
        """Counts (n,) or (J, n) of the forms, from counts (F,) or (J, F) of the expressions."""
        return np.asarray((self._collected @ np.asarray(successes, dtype=np.float64).T).T)

    @cached_property
    def _collected(self) -> Any:
        """(n, F) the powers, transposed; sums of whole numbers are exact in any order, so a few of them are dense."""
        found = scipy.sparse.csr_array(self.powers.T, dtype=np.float64)
        return found.toarray() if found.shape[0] * found.shape[1] <= DENSE else found

    def scale(self, expressions: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
        """Bounds on Σ K_f log_scale_f over some expressions (k,) with counts K (k,), rounding included."""
        terms = counts * self.log_scale[expressions]
        rounding = 8.0 * np.finfo(float).eps * (len(terms) + 8.0) * float((counts + np.abs(terms)).sum())
        return float(terms.sum()) - rounding, float(terms.sum()) + rounding

    @cached_property
    def affine(self) -> np.ndarray:
        """(F,) bool: expressions whose factors are all affine."""
        curved = (self.forms.degrees > 1).astype(np.int64)
        return np.asarray(self.powers @ curved == 0)


@cached_fact
def factors(pmdp: ParametricMDP) -> Factors:
    """The factors of a model's expressions."""
    table = pmdp.table
    if table.is_affine:
        count = len(table)
        return Factors(table, scipy.sparse.eye_array(count, dtype=np.int64, format="csr"), np.zeros(count))
    search = _Divisions(table, pmdp.domain)
    rows = [search.factor(f) for f in range(len(table))]
    forms = ExpressionTable.from_polynomials(search.forms, table.parameters)
    at = [(f, i, m) for f, (_, row) in enumerate(rows) for i, m in sorted(row.items())]
    entries = np.array(at, dtype=np.int64).reshape(-1, 3)
    powers = scipy.sparse.csr_array((entries[:, 2], (entries[:, 0], entries[:, 1])), shape=(len(table), len(forms)))
    scale = np.array([_logarithm(s) for s, _ in rows])
    return Factors(forms, powers, scale)


def _logarithm(scale: Fraction) -> float:
    """ln of a positive number, to a few units of 1 + |ln|; −inf for others."""
    if scale <= 0:
        return -np.inf
    try:
        nearest = float(scale)
    except OverflowError:
        nearest = np.inf
    usual = np.finfo(float).tiny <= nearest < np.inf
    return log(nearest) if usual else log(scale.numerator) - log(scale.denominator)


class _Divisions:
    """Divides the expressions of a table by affine terms, collecting the forms on the way."""

    def __init__(self, table: ExpressionTable, domain: Domain):
        self._table, self._domain = table, domain
        self._ends = [[exact(v) for v in end.tolist()] for end in (domain.lower, domain.upper)]
        self._signs: dict[tuple, int] = {}
        self._number: dict[tuple, int] = {}
        self.forms: list[Polynomial] = []
        self._terms = [a for a in _candidates(table, domain, self._ends) if self._sign(a)]
        self._vanishes = _vanishing(table, self._terms)
        self._found: list[Integers] = []  # terms found in remainders: other expressions may have them too
        self._middle = [Fraction(float(m)).limit_denominator(97) for m in domain.center()]

    def factor(self, f: int) -> tuple[Fraction, dict[int, int]]:
        """(scale, form -> power) of expression f."""
        row: dict[int, int] = {}
        (left, share), scale = _expression(self._table, f), 1
        for k in np.flatnonzero(self._vanishes[f]):
            left, scale = self._divide(left, self._terms[k], scale, row)
        for j in range(self._table.num_parameters) if _degree(left) > 1 else ():
            if (term := _term_in_one(left, j)) is not None and self._sign(term):
                left, scale = self._divide(left, term, scale, row)
        for term in self._found:
            if _degree(left) > 1:
                left, scale = self._divide(left, term, scale, row)
        for term in _affine_divisors(left, self._middle) if _degree(left) > 1 else ():
            if self._sign(term) and divided_by_affine(left, term) is not None:
                left, scale = self._divide(left, term, scale, row)
                self._found.append(term)
        if _degree(left) > 0:
            if _degree(left) == 1 and (sign := self._sign(left)):
                left, scale = _scaled(left, sign), scale * sign
            elif self._value_inside(left) < 0:
                left, scale = _scaled(left, -1), -scale
            return share * (scale * self._count(left, 1, row)), row
        return share * (scale * left.get((0,) * self._table.num_parameters, 0)), row

    def _divide(self, left: Integers, term: Integers, scale: int, row: dict[int, int]) -> tuple[Integers, int]:
        """The remainder after dividing as often as possible; ``row`` and scale take the factors."""
        times = 0
        while (quotient := divided_by_affine(left, term)) is not None:
            left, times = quotient, times + 1
        if times:
            sign = self._sign(term)
            scale *= sign**times * self._count(_scaled(term, sign), times, row)
        return left, scale

    def _count(self, form: Integers, times: int, row: dict[int, int]) -> int:
        """Enter a factor into a row; return the ratio of its powers to those of the form it is counted as."""
        size = max(abs(c) for c in form.values())
        key = _key(form)
        if key not in self._number:
            self._number[key] = len(self.forms)
            self.forms.append(_polynomial(form, size, self._table.parameters))
        number = self._number[key]
        row[number] = row.get(number, 0) + times
        return size**times

    def _value_inside(self, form: Integers) -> float:
        center = self._domain.center()
        return sum(c * float(np.prod(center ** np.array(m))) for m, c in form.items())

    def _sign(self, term: Integers) -> int:
        """1 or −1 if the affine term is ≥ 0 or ≤ 0 on the domain, else 0."""
        key = _key(term)
        if key not in self._signs:
            self._signs[key] = next((s for s in (1, -1) if _nonnegative(_scaled(term, s), self._domain, self._ends)), 0)
        return self._signs[key]


# ---------------------------------------------------------------------- integer polynomials
def _reduced(form: Integers, below: int = 1) -> tuple[Integers, Fraction]:
    """form / below as (form without zeros and common divisor, scale)."""
    divisor = gcd(*form.values()) or 1
    return {m: c // divisor for m, c in form.items() if c}, Fraction(divisor, below)


def _expression(table: ExpressionTable, f: int) -> tuple[Integers, Fraction]:
    """(form, scale) of an expression."""
    span = slice(table.indptr[f], table.indptr[f + 1])
    places, numbers = table.indices[span], table.data[span].tolist()
    below = [table.denominators[i] for i in places.tolist()]
    multiple, exponents = lcm(*below), map(tuple, table.monomials[places].tolist())
    return _reduced({m: int(v) * (multiple // n) for m, v, n in zip(exponents, numbers, below)}, multiple)


def _degree(form: Integers) -> int:
    return max((sum(m) for m in form), default=0)


def _scaled(form: Integers, sign: int) -> Integers:
    return form if sign == 1 else {m: sign * c for m, c in form.items()}


def _key(form: Integers) -> tuple:
    return tuple(sorted(form.items()))


def _polynomial(form: Integers, size: int, names: tuple[str, ...]) -> Polynomial:
    return Polynomial(
        {tuple(sorted((name, p) for name, p in zip(names, m) if p)): Fraction(c, size) for m, c in form.items()}
    )


def _by_power(form: Integers, j: int) -> dict[int, Integers]:
    """h_k of Σ_k h_k θ_j^k, by k."""
    found: dict[int, Integers] = {}
    for m, c in form.items():
        found.setdefault(m[j], {})[(*m[:j], 0, *m[j + 1 :])] = c
    return found


def divided_by_affine(left: Integers, term: Integers) -> Integers | None:
    """left / term if that is a polynomial, else None; the coefficients of ``term`` have no common divisor.

    Division in one parameter j of the term a·θ_j + b: from Σ_k h_k θ_j^k the quotient's coefficients are
    q_{k−1} = (h_k − b q_k) / a from the top, all integers by Gauss's lemma, and h_0 = b q_0 must be left.
    """
    lead = next(m for m in sorted(term) if any(m))
    j, a = lead.index(1), term[lead]
    rest = [(m if any(m) else None, c) for m, c in term.items() if m != lead]
    by_power = _by_power(left, j)
    quotient: Integers = {}
    carried: Integers = {}
    for k in range(max(by_power, default=0), -1, -1):
        row = dict(by_power.get(k, {}))
        for m, c in carried.items():
            for n, b in rest:
                key = m if n is None else tuple(x + y for x, y in zip(m, n))
                row[key] = row.get(key, 0) - b * c
        carried = {}
        for m, c in row.items():
            if c == 0:
                continue
            if k == 0 or c % a:
                return None
            carried[m] = c // a
            quotient[(*m[:j], k - 1, *m[j + 1 :])] = c // a
    return quotient


# ---------------------------------------------------------------------- where terms are looked for
def _primitive(numbers: list[Fraction]) -> Integers | None:
    """The affine term numbers[0] + Σ numbers[j + 1] θ_j with integer coefficients; None for constants."""
    multiple = lcm(*(c.denominator for c in numbers))
    whole = {m: int(c * multiple) for m, c in zip(_units(len(numbers) - 1), numbers)}
    return _reduced(whole)[0] if any(numbers[1:]) else None


@lru_cache(maxsize=2)
def _units(d: int) -> list[tuple[int, ...]]:
    """Exponents of 1 and of each of d parameters."""
    return [(0,) * d] + [tuple(int(i == j) for i in range(d)) for j in range(d)]


def _candidates(table: ExpressionTable, domain: Domain, ends: list[list[Fraction]]) -> list[Integers]:
    """θ_j, 1 − θ_j, facets of the domain, the table's affine expressions and their complements; each once."""
    d = domain.dimension
    rows: list[list[Fraction]] = []
    for j in range(d):
        unit = [Fraction(int(i == j)) for i in range(d)]
        opposite = [-u for u in unit]
        rows += [[Fraction(0), *unit], [Fraction(1), *opposite], [-ends[0][j], *unit], [ends[1][j], *opposite]]
    for a, b in zip(_dense_rows(domain), domain.b.tolist()):
        rows.append([exact(b), *(-exact(v) for v in a)])
    degrees = table.monomial_degrees
    for f in range(len(table)):
        if degrees[table.indices[table.indptr[f] : table.indptr[f + 1]]].max(initial=0) == 1:
            form = table.polynomial(f)
            slopes = [form.terms.get(((name, 1),), Fraction(0)) for name in table.parameters]
            rows += [[form.constant_value(), *slopes], [1 - form.constant_value(), *(-s for s in slopes)]]
    return list({_key(term): term for row in rows if (term := _primitive(row)) is not None}.values())


def _dense_rows(domain: Domain) -> Iterator[list[float]]:
    rows = scipy.sparse.csr_array(domain.A)
    for k in range(rows.shape[0]):
        yield rows[[k]].toarray().ravel().tolist()


def _vanishing(table: ExpressionTable, terms: list[Integers]) -> np.ndarray:
    """(F, n) bool: expressions that vanish, up to rounding, at a point of the zero set of each term."""
    units = _units(table.num_parameters)
    points = np.random.default_rng(7).uniform(0.2, 0.8, size=(len(terms), table.num_parameters))
    for k, term in enumerate(terms):
        constant, *slopes = (float(term.get(unit, 0)) for unit in units)
        slope = np.array(slopes)
        j = int(np.argmax(np.abs(slope)))
        others = points[k] @ slope - points[k, j] * slope[j] + constant
        points[k, j] = -others / slope[j]
    values = table.monomial_values(points).T
    size = abs(table.coefficients) @ np.abs(values)
    return np.abs(table.coefficients @ values) <= VANISHING * size


def _term_in_one(form: Integers, j: int) -> Integers | None:
    """The term a θ_j + b that divides B θ_j + A, with A and B free of θ_j: they are proportional, a A = b B."""
    parts = _by_power(form, j)
    if parts.keys() != {0, 1} or parts[0].keys() != parts[1].keys():
        return None
    first, units = next(iter(parts[0])), _units(len(next(iter(form))))
    a, b = parts[1][first], parts[0][first]
    proportional = all(a * c == b * parts[1][m] for m, c in parts[0].items())
    return _reduced({units[0]: b, units[j + 1]: a})[0] if proportional else None


def _affine_divisors(form: Integers, middle: list[Fraction]) -> Iterator[Integers]:
    """Candidate affine terms that divide a polynomial and do not vanish at ``middle``.

    A term 1 + Σ_j a_j (θ_j − middle_j) has, on the line middle + t·Σ_{i ≤ j} e_i, the root t = −1 / Σ_{i ≤ j} a_i, or
    none if that sum is 0. So the sums are among the negative reciprocals of the polynomial's rational roots there.
    """
    d = len(middle)
    partial: list[list[Fraction]] = [[]]
    for j in range(d):
        along = _reciprocals(form, middle, [int(i == j) for i in range(d)])
        sums = along if j == 0 else _reciprocals(form, middle, [int(i <= j) for i in range(d)])
        partial = [[*p, a] for p in partial for a in along if sum(p) + a in sums]
    for slopes in partial:
        constant = 1 - sum((a * m for a, m in zip(slopes, middle)), Fraction(0))
        term = _primitive([constant, *slopes])
        if term is not None:
            yield term


def _reciprocals(form: Integers, middle: list[Fraction], direction: list[int]) -> set[Fraction]:
    """−1/t for likely rational roots t of the polynomial on the line middle + t·direction, and 0."""
    line = _line(form, middle, direction)
    if not len(line):
        return {Fraction(0)}
    roots = np.roots((line[::-1] / max(map(abs, line))).astype(float))
    apart = np.abs(roots[:, None] - roots[None, :]) + np.diag(np.full(len(roots), np.inf))
    if apart.min(initial=np.inf) < CLOSE_ROOTS * np.abs(roots).max(initial=0.0):  # multiple roots are inaccurate
        line = _square_free(line)
        roots = np.roots((line[::-1] / max(map(abs, line))).astype(float))
    real = roots[np.abs(roots.imag) <= 1e-6 * (1.0 + np.abs(roots.real))].real.tolist()
    tries = {Fraction(root).limit_denominator(most) for root in real for most in DENOMINATORS}
    return {Fraction(0)} | {-1 / t for t in tries if t}


def _line(form: Integers, middle: list[Fraction], direction: list[int]) -> np.ndarray:
    """Integer coefficients of a multiple of the polynomial on the line middle + t·direction, the constant first."""
    common, degree = lcm(*(m.denominator for m in middle)), _degree(form)
    places = [
        np.array([int(place * common), common][: 1 + step], dtype=object) for place, step in zip(middle, direction)
    ]
    line = np.zeros(degree + 1, dtype=object)
    for m, c in form.items():
        term = np.array([c * common ** (degree - sum(m))], dtype=object)
        for place, power in zip(places, m):
            for _ in range(power):
                term = np.convolve(term, place)
        line[: len(term)] += term
    line = np.trim_zeros(line, "b")
    return line // gcd(*line) if len(line) else line


def _square_free(line: np.ndarray) -> np.ndarray:
    """The polynomial in one variable divided by its common divisor with its derivative: the same roots, each once."""
    line = np.array([Fraction(c) for c in line], dtype=object)
    common, other = line, np.polynomial.polynomial.polyder(line)
    while other.any():
        common, other = other, np.polynomial.polynomial.polydiv(common, other)[1]
    return np.polynomial.polynomial.polydiv(line, common)[0]


# ---------------------------------------------------------------------- signs on the domain
def _nonnegative(term: Integers, domain: Domain, ends: list[list[Fraction]]) -> bool:
    """Whether an affine term is proved to be ≥ 0 on the domain with these exact ends, in exact arithmetic.

    On the box its least value is in a corner. A row a·θ ≤ b of the domain with a multiplier y ≥ 0 proves it if
    constant − y b plus the least value of (slope + y a)·θ on the box is not negative; y is chosen to cancel a
    slope, which is enough for the facets themselves.
    """
    constant, *slope = (Fraction(term.get(unit, 0)) for unit in _units(domain.dimension))

    def least(offset: Fraction, c: list[Fraction]) -> Fraction:
        return offset + sum((min(x * lo, x * hi) for x, lo, hi in zip(c, *ends) if x), Fraction(0))

    if least(constant, slope) >= 0:
        return True
    for row, right in zip(_dense_rows(domain), domain.b.tolist()):
        scales = {-c / exact(a) for c, a in zip(slope, row) if a and c}
        for y in sorted(s for s in scales if s > 0):
            if least(constant - y * exact(right), [c + y * exact(a) for c, a in zip(slope, row)]) >= 0:
                return True
    return False
