"""The table Λ: canonical, exact, evaluated in one product, reduced to identifiable coordinates."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import ExpressionTable, Polynomial
from rpl_envs import benchmark

NAMES = ("p", "q", "r")
fractions = st.fractions(min_value=-2, max_value=2, max_denominator=40)
monomials = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 2), max_size=2).map(
    lambda d: tuple(sorted(d.items()))
)
polynomials = st.dictionaries(monomials, fractions, max_size=4).map(Polynomial)
lists = st.lists(polynomials, min_size=1, max_size=8, unique=True)
thetas = st.lists(st.floats(0, 1), min_size=3, max_size=3)


@given(lists, thetas)
def test_evaluation_and_reduction_agree_with_the_polynomials(expressions, theta):
    table = ExpressionTable.from_polynomials(expressions, NAMES)
    exact = np.array([float(f.at(dict(zip(NAMES, map(Fraction, theta))))) for f in expressions])
    assert np.allclose(table.at(np.array(theta)), exact, atol=1e-12)
    batch = table.at(np.array([theta, [0.0, 0.0, 0.0]]))
    assert batch.shape == (2, len(expressions)) and np.allclose(batch[0], exact, atol=1e-12)
    assert np.allclose(batch[1], table.constant)
    assert [table.polynomial(i) for i in range(len(table))] == expressions
    reduction = table.reduction
    x = reduction.coordinates(np.array([theta]))
    assert x.shape == (1, reduction.rank)
    assert np.allclose(table.constant + reduction.weights @ x[0], exact, atol=1e-9)
    dense = np.asarray(table.coefficients.todense())[:, 1:]
    assert reduction.rank == (np.linalg.matrix_rank(dense) if dense.size else 0)


@given(lists, st.randoms())
def test_sorted_tables_do_not_depend_on_the_order(expressions, random):
    table, rank = ExpressionTable.from_polynomials(expressions, NAMES).sorted()
    assert [table.polynomial(int(rank[i])) for i in range(len(expressions))] == expressions
    shuffled = list(expressions)
    random.shuffle(shuffled)
    other, _ = ExpressionTable.from_polynomials(shuffled, NAMES).sorted()
    assert np.array_equal(other.indptr, table.indptr) and np.array_equal(other.indices, table.indices)
    assert np.array_equal(other.data, table.data) and other.denominators == table.denominators


def test_integers_and_polynomials_give_the_same_table():
    expressions = [Polynomial.parse(t) for t in ("0.5*p + 0.25", "p*q", "1 - p", "1")]
    monomials = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0]])
    numerators = np.array([[25, 50, 0], [0, 0, 100], [100, -100, 0], [100, 0, 0]])
    a, _ = ExpressionTable.from_polynomials(expressions, NAMES).sorted()
    b, _ = ExpressionTable.from_integers(NAMES, monomials, numerators, [100, 100, 100]).sorted()
    assert [a.polynomial(i) for i in range(4)] == [b.polynomial(i) for i in range(4)]
    assert np.array_equal(a.data, b.data) and a.denominators == b.denominators


def test_huge_coefficients_stay_exact():
    tiny = Fraction(1, 10**30)
    expressions = [Polynomial.parse("p + 0.5") + tiny, Polynomial.parse("p + 0.5")]
    table, rank = ExpressionTable.from_polynomials(expressions, ("p",)).sorted()
    assert table.polynomial(int(rank[0])) != table.polynomial(int(rank[1]))
    assert table.data.dtype == object
    assert np.allclose(table.at(np.array([0.25])), 0.75)


def test_properties_and_errors():
    table = ExpressionTable.from_polynomials([Polynomial.parse(t) for t in ("1", "p", "1 - p", "p*q**2")], NAMES)
    assert table.degree == 3 and not table.is_affine and table.num_parameters == 3
    assert table.is_constant.tolist() == [True, False, False, False]
    with pytest.raises(ModelError, match="unknown parameters"):
        ExpressionTable.from_polynomials([Polynomial.parse("z")], NAMES)
    with pytest.raises(ModelError, match="2 entries"):
        table.at(np.array([0.5, 0.5]))
    with pytest.raises(ModelError, match="constant monomial first"):
        ExpressionTable.from_integers(("p",), np.array([[1], [0]]), np.array([[1, 2]]), [1, 1])


@pytest.mark.parametrize(
    ("name", "rank", "identity"),
    [
        ("Aircraft", 3, True),
        ("MarsRover", 1, False),
        ("Engagement", 4, True),
        ("Betting", 1, True),
        ("Glider", 3, False),
    ],
)
def test_ranks_of_the_benchmarks(name, rank, identity):
    reduction = benchmark(name).pmdp.table.reduction
    assert reduction.rank == rank and reduction.is_identity == identity


def test_many_parameters_need_no_square_array():
    """A table whose monomials are its parameters answers like one that lists them."""
    names = [f"p{i}" for i in range(100)]
    polynomials = [Polynomial.parse(text) for i in range(0, 100, 2) for text in (
        f"p{i}", f"p{i + 1}", f"1 - p{i} - p{i + 1}", f"1/3*p{i}",
    )] + [Polynomial.constant(1)]  # fmt: skip
    plain, rank = ExpressionTable.from_polynomials(polynomials, names).sorted()
    assert plain.is_plain and "monomials" not in plain.__dict__
    dense = ExpressionTable(names, plain.monomials, (plain.indptr, plain.indices, plain.data), plain.denominators)
    assert not dense.is_plain
    theta = np.random.default_rng(1).uniform(0.0, 0.5, (3, 100))
    np.testing.assert_array_equal(plain.at(theta), dense.at(theta))
    np.testing.assert_array_equal(plain.reduction.coordinates(theta), dense.reduction.coordinates(theta))
    np.testing.assert_array_equal(plain.reduction.weights.toarray(), dense.reduction.weights.toarray())
    assert [plain.polynomial(int(f)) for f in rank] == polynomials
    assert plain.degree == dense.degree == 1
