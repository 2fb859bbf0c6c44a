"""Polynomials are exact, parse safely, and obey the laws of a ring."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Polynomial, as_polynomial

fractions = st.fractions(min_value=-3, max_value=3, max_denominator=60)
monomials = st.dictionaries(st.sampled_from("pqr"), st.integers(1, 3), max_size=2).map(
    lambda d: tuple(sorted(d.items()))
)
polynomials = st.dictionaries(monomials, fractions, max_size=4).map(Polynomial)
points = st.fixed_dictionaries({name: fractions for name in "pqr"})


@given(polynomials, polynomials, polynomials, points)
def test_ring_laws_and_evaluation(f, g, h, at):
    assert f + g == g + f and f * g == g * f
    assert (f + g) + h == f + (g + h) and (f * g) * h == f * (g * h)
    assert f * (g + h) == f * g + f * h
    assert f - f == 0 and f + 0 == f and f * 1 == f
    assert (f + g).at(at) == f.at(at) + g.at(at)
    assert (f * g).at(at) == f.at(at) * g.at(at)
    assert (f**3).at(at) == f.at(at) ** 3
    assert (1 - f).at(at) == 1 - f.at(at)


@given(polynomials)
def test_what_is_printed_parses_back(f):
    assert Polynomial.parse(str(f)) == f
    assert hash(Polynomial.parse(str(f))) == hash(f)


def test_equality_is_exact():
    assert Polynomial.parse("0.1 + 0.2") == Polynomial.constant("0.3")  # not so in floats
    assert Polynomial.parse("p/3 + p/3 + p/3") == Polynomial.parameter("p")
    assert Polynomial.parse("(p + q)**2") == Polynomial.parse("p**2 + 2*p*q + q**2")
    assert Polynomial.parse("0.5*p + 0.0004*12") == Polynomial.parse("p/2 + 0.0048")
    assert Polynomial.parse("0.30000000000000000001") != Polynomial.parse("0.3")
    assert Polynomial.parse("p - p").terms == {} and Polynomial.parse("0*p").degree == 0


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        (0.1, "1/10"),
        (np.float64(0.7), "7/10"),
        (3, "3"),
        (Decimal("0.125"), "1/8"),
        (Fraction(2, 7), "2/7"),
        (np.int32(4), "4"),
    ],
)
def test_numbers_mean_what_was_typed(value, exact):
    assert as_polynomial(value).constant_value() == Fraction(exact)


REFUSED = (
    "__import__('os').system('true')|p.real|f(p)|p[0]|p if q else r|lambda: 1|p // 2|p % 2|p @ q|p < q|1j|True|'p'||p q"
    "|p +|0x10|p**-1|p**q|p**0.5|p**1000|(p + q)**64**2|1/p|1/0|1e999999999|((10**64)**64)**64"
).split("|")


@pytest.mark.parametrize("text", [*REFUSED, "(" * 500 + "p" + ")" * 500, "+".join(["p"] * 50_000)])
def test_everything_else_is_refused_with_a_reason(text):
    with pytest.raises(ModelError):
        Polynomial.parse(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, [1], object()])
def test_strange_values_are_refused(value):
    with pytest.raises(ModelError):
        as_polynomial(value)


def test_properties():
    f = Polynomial.parse("2*p*q**2 - 0.5")
    assert f.degree == 3 and f.parameters == {"p", "q"} and not f.is_constant
    assert f.constant_value() == Fraction(-1, 2)
    assert str(f) in ("-0.5 + 2*p*q**2", "2*p*q**2 - 0.5")
    assert repr(Polynomial.parse("p/3")) == "Polynomial('1/3*p')"
    with pytest.raises(KeyError):
        f.at({"p": 1})
