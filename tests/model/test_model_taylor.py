"""Taylor models of expressions: the error they state is never exceeded, in exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from rpl_agent.core.model import Polynomial
from rpl_agent.core.model.algebra.ranges import taylor_table
from rpl_agent.core.model.expressions import ExpressionTable
from tests.reference.taylor import taylor_terms


def random_table(rng: np.random.Generator, d: int, degree: int, count: int = 5) -> ExpressionTable:
    names = [f"t{j}" for j in range(d)]
    forms = []
    for _ in range(count):
        total = Polynomial.constant(Fraction(int(rng.integers(-5, 6)), 7))
        for _ in range(int(rng.integers(1, 7))):
            term = Polynomial.constant(Fraction(int(rng.integers(-9, 10)), int(rng.integers(1, 9))))
            for name in rng.choice(names, size=int(rng.integers(0, degree + 1))):
                term = term * Polynomial.parameter(str(name))
            total = total + term
        forms.append(total)
    return ExpressionTable.from_polynomials(forms, names)


@pytest.mark.parametrize("seed", range(12))
def test_the_error_is_a_bound(seed):
    rng = np.random.default_rng(seed)
    d, degree = int(rng.integers(1, 5)), int(rng.integers(1, 7))
    table = random_table(rng, d, degree)
    center, reach = rng.uniform(-1, 1, d), rng.uniform(0, 0.5, d) * (rng.random(d) < 0.8)
    found = taylor_table(table, center, reach)
    assert np.array_equal(found.curvature, found.curvature.transpose(0, 2, 1))
    for _ in range(20):
        step = reach * rng.choice([-1.0, 1.0, 0.5, 0.0], size=d)
        exact = [Fraction(c) + Fraction(t) for c, t in zip(center.tolist(), step.tolist())]
        for f in range(len(table)):
            value = table.polynomial(f).at(dict(zip(table.parameters, exact)))
            t = [Fraction(x) for x in step.tolist()]
            model = Fraction(found.value[f]) + sum(Fraction(a) * b for a, b in zip(found.slope[f].tolist(), t))
            model += sum(Fraction(found.curvature[f, i, j]) * t[i] * t[j] for i in range(d) for j in range(d))
            assert abs(value - model) <= Fraction(found.error[f])


def test_of_second_degree_nothing_but_rounding_is_left():
    table = ExpressionTable.from_polynomials([Polynomial.parse("p*q - 0.3*p**2 + 0.1"), Polynomial.parse("p")], "pq")
    found = taylor_table(table, np.array([0.2, 0.7]), np.array([0.5, 0.5]))
    assert (found.error < 1e-14).all()
    np.testing.assert_allclose(found.curvature[0], [[-0.3, 0.5], [0.5, 0.0]])
    np.testing.assert_allclose(found.slope, [[0.7 - 0.12, 0.2], [1.0, 0.0]])


def test_many_centers_at_once():
    rng = np.random.default_rng(3)
    table = random_table(rng, 2, 5)
    centers = rng.uniform(0, 1, (4, 2))
    alpha, terms = taylor_terms(table, np.array([1, 3]), centers)
    for k, center in enumerate(centers):
        for row, f in enumerate((1, 3)):
            step = rng.uniform(-1, 1, 2)
            value = table.at(center + step)[f]
            assert np.isclose(value, terms[k, row] @ np.prod(step**alpha, axis=1), rtol=1e-9, atol=1e-12)
