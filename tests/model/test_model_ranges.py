"""Ranges of polynomials over boxes contain every value, in exact arithmetic, and are sharp where monomials are not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpl_agent.core.model import Domain, ExpressionTable, Polynomial
from rpl_agent.core.model.algebra import ranges
from rpl_agent.core.model.building.validation import expression_range

PARAMETERS = ("p", "q", "r")


def table_of(*texts: str, parameters: tuple[str, ...] = ("p",)) -> ExpressionTable:
    return ExpressionTable.from_polynomials([Polynomial.parse(text) for text in texts], parameters)


def test_products_of_one_parameter_with_its_complement_are_probabilities():
    low, high = expression_range(table_of("p*(1-p)", "(1-p)**3", "p**2*(1-p)"), Domain.box(("p",)))
    np.testing.assert_allclose(low, 0.0, atol=1e-14)
    np.testing.assert_allclose(high, [1 / 3, 1.0, 1 / 3], atol=1e-14)


@st.composite
def polynomials(draw) -> Polynomial:
    terms = draw(st.lists(st.tuples(st.floats(-2, 2), *[st.integers(0, 3)] * 3), min_size=1, max_size=6))
    total = Polynomial.constant(0)
    for coefficient, *powers in terms:
        term = Polynomial.constant(Fraction(coefficient))
        for name, power in zip(PARAMETERS, powers):
            for _ in range(power):
                term = term * Polynomial.parameter(name)
        total = total + term
    return total


@pytest.mark.parametrize("most", [ranges.MAX_BERNSTEIN, 1])
@given(data=st.data())
def test_enclosures_hold_at_every_point_exactly(most, data):
    """At corners and inside, evaluated in rationals: nothing is lost to rounding, by either method."""
    polynomial = data.draw(polynomials())
    lower = [data.draw(st.floats(-1, 0.5)) for _ in PARAMETERS]
    upper = [low + data.draw(st.floats(0, 1)) for low in lower]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "MAX_BERNSTEIN", most)
        table = ExpressionTable.from_polynomials([polynomial], PARAMETERS)
        low, high, slack = ranges.enclosure(table, np.array(lower), np.array(upper))
        one = ranges.range_of_one(table, 0, np.array(lower), np.array(upper))
    for shares in data.draw(st.lists(st.tuples(*[st.sampled_from([0, 0.25, 0.5, 1])] * 3), min_size=1, max_size=20)):
        point = {n: Fraction(a) + Fraction(s) * (Fraction(b) - Fraction(a))
                 for n, s, a, b in zip(PARAMETERS, shares, lower, upper)}  # fmt: skip
        row = table.coefficients[[0]]  # as floats: that a constant is rounded to one is for rows to allow for
        value = sum(
            (Fraction(c) * np.prod([point[n] ** int(k) for n, k in zip(PARAMETERS, table.monomials[m])])
             for m, c in zip(row.indices, row.data)),
            Fraction(0),
        )  # fmt: skip
        assert Fraction(low[0]) - Fraction(slack[0]) <= value <= Fraction(high[0]) + Fraction(slack[0])
        assert one is None or one[0] - 1e-12 <= value <= one[1] + 1e-12


def test_a_range_of_few_parameters_of_many_is_sharp():
    """Coefficients of all twenty parameters together are too many; of an expression's own two they are not."""
    names = tuple(f"x{k}" for k in range(20))
    texts = [f"x{k}*(1 - x{k})*x{k + 1}" for k in range(19)]
    table = table_of(*texts, parameters=names)
    assert not ranges.fits(table.monomials)
    loose = ranges.enclosure(table, np.zeros(20), np.ones(20))
    assert (loose.lower < -0.9).all()
    low, high = expression_range(table, Domain.box(names))
    np.testing.assert_allclose(low, 0.0, atol=1e-14)
    np.testing.assert_allclose(high, 0.5, atol=1e-14)


def test_a_table_without_parameters():
    low, high = ranges.range_on_box(table_of("1/3", parameters=()), np.zeros(0), np.zeros(0))
    assert Fraction(float(low[0])) < Fraction(1, 3) < Fraction(float(high[0])) and high[0] == np.nextafter(low[0], 1.0)


def test_a_product_that_underflows_is_not_bounded_by_zero():
    low, high = ranges.range_on_box(table_of("p**2"), np.array([1e-199]), np.array([3e-199]))
    assert low[0] == 0.0 < high[0]
    low, high = ranges.range_on_box(table_of("p**2"), np.zeros(1), np.zeros(1))
    assert low[0] == high[0] == 0.0
