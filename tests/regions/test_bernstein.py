"""Bernstein enclosures contain the range, and are sharp where monomials are not."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from rpl_agent.model import Domain, ExpressionTable, Polynomial
from rpl_agent.model.bernstein import applies, bernstein_range
from rpl_agent.model.validation import expression_range


def test_products_of_one_parameter_with_its_complement_are_probabilities():
    table = ExpressionTable.from_polynomials(
        [Polynomial.parse(t) for t in ("p*(1-p)", "(1-p)**3", "p**2*(1-p)")], ("p",)
    )
    low, high = expression_range(table, Domain.box(("p",)))
    np.testing.assert_allclose(low, 0.0, atol=1e-14)
    np.testing.assert_allclose(high, [1 / 3, 1.0, 1 / 3], atol=1e-14)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_enclosures_hold_at_every_point(data):
    d = data.draw(st.integers(1, 3))
    monomials = np.array(data.draw(st.lists(st.tuples(*[st.integers(0, 3)] * d), min_size=1, max_size=6, unique=True)))
    values = data.draw(st.lists(st.floats(-2, 2), min_size=len(monomials), max_size=len(monomials)))
    lower = np.array(data.draw(st.tuples(*[st.floats(-1, 0.5)] * d)))
    upper = lower + np.array(data.draw(st.tuples(*[st.floats(0, 1)] * d)))
    assert applies(monomials)
    low, high = bernstein_range(sparse.csr_array(np.array([values])), monomials, lower, upper)
    points = lower + (upper - lower) * np.random.default_rng(0).random((200, d))
    reached = np.prod(points[:, None, :] ** monomials[None], axis=2) @ np.array(values)
    assert low[0] - 1e-12 <= reached.min()
    assert reached.max() <= high[0] + 1e-12
    corner = np.prod(np.where(monomials == 0, 1.0, lower**monomials), axis=1) @ np.array(values)
    assert low[0] - 1e-12 <= corner <= high[0] + 1e-12
