"""The region U of a model: exact for affine models, a superset for polynomial ones, in reduced coordinates."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Domain, Polynomial, build
from rpl_agent.core.regions import Image, Polytope, build_region, domain_region, lifting
from rpl_agent.core.regions.lifting import initial_bounds, linear_chart, mccormick_rows, relax
from tests.reference.domains import points_of
from tests.reference.regions import affine_model, intervals_around, polynomial_model

P = Polynomial.parameter


def model(expressions, domain):
    """One state per expression f, which goes on with probability f and stops with 1 - f."""
    n = len(expressions)

    def actions(s):
        if s >= n:
            return {"stay": {s: 1}}
        following = n + 1 if s == n - 1 else s + 1
        return {"go": {following: expressions[s], n: 1 - expressions[s]}}

    return build(0, actions, domain=domain, labels={"goal": lambda s: s == n + 1})


def lifted(chart, theta):
    return np.prod(theta[:, None, :] ** chart.exponents[None], axis=2)


@given(seed=st.integers(0, 10**6), d=st.integers(1, 4))
def test_affine_region_is_exact(seed, d):
    pmdp = affine_model(seed, d)
    rng = np.random.default_rng(seed)
    truth = points_of(pmdp.domain, rng, 1)[0]
    lower, upper = intervals_around(pmdp, truth, seed)
    region = build_region(pmdp, lower, upper)
    points = np.vstack([truth, points_of(pmdp.domain, rng, 200)])
    f = pmdp.table.at(points)
    inside = ((f >= lower) & (f <= upper)).all(axis=1)
    clear = inside | ((f < lower - 1e-6) | (f > upper + 1e-6)).any(axis=1)
    contained = region.contains(pmdp.table.reduction.coordinates(points))
    assert contained[0] and not region.is_empty
    assert (contained[inside]).all()
    if pmdp.table.reduction.is_identity:
        assert (contained == inside)[clear].all()


@given(seed=st.integers(0, 10**6), degree=st.integers(2, 4))
def test_polynomial_region_contains_every_feasible_point(seed, degree):
    pmdp = polynomial_model(seed, degree)
    rng = np.random.default_rng(seed)
    truth = points_of(pmdp.domain, rng, 1)[0]
    lower, upper = intervals_around(pmdp, truth, seed)
    region = build_region(pmdp, lower, upper)
    points = np.vstack([truth, rng.uniform(truth - 0.1, truth + 0.1, (300, 2)).clip(0, 1)])
    f = pmdp.table.at(points)
    feasible = points[((f >= lower) & (f <= upper)).all(axis=1)]
    x = pmdp.table.reduction.coordinates(feasible)
    directions = rng.normal(size=(40, region.dimension))
    assert not region.is_empty and len(feasible)
    assert (region.minimize(directions) <= (directions @ x.T).min(axis=1) + 1e-12).all()
    low, high = region.box()
    assert (x >= low - 1e-12).all() and (x <= high + 1e-12).all()


@pytest.mark.parametrize("degree", [2, 3, 4])
def test_mccormick_rows_hold_on_the_box(degree):
    chart = linear_chart(polynomial_model(3, degree).table)
    lower, upper = initial_bounds(chart, Domain.box(["u", "v"], 0.2, 0.7))
    z = lifted(chart, np.random.default_rng(0).uniform(0.2, 0.7, (500, 2)))
    assert (z >= lower).all() and (z <= upper).all()
    rows, rhs = mccormick_rows(chart, lower, upper)
    assert len(rows) >= 4 * len(chart.products) and (z @ rows.T <= rhs + 1e-15).all()
    # Outside the surface the envelope cuts: a product that is too large violates some row.
    wrong = z.copy()
    wrong[:, chart.products[0, 0]] += 0.5
    assert (wrong @ rows.T > rhs + 1e-3).any(axis=1).all()


def test_chains_reach_down_to_the_parameters():
    x, y = P("x"), P("y")
    pmdp = model([x**3 * y / 4, x * y], Domain.box(["x", "y"]))
    chart = linear_chart(pmdp.table)
    known = {tuple(row) for row in chart.exponents.tolist()}
    assert {(1, 0), (0, 1), (3, 1), (1, 1)} <= known
    for k, i, j in chart.products:
        assert (chart.exponents[k] == chart.exponents[i] + chart.exponents[j]).all()
    assert {int(k) for k in chart.products[:, 0]} == {k for k, e in enumerate(chart.exponents) if e.sum() > 1}
    assert chart.weights @ lifted(chart, np.array([[0.3, 0.5]]))[0] + pmdp.table.constant == pytest.approx(
        pmdp.table.at(np.array([0.3, 0.5]))
    )


def test_bound_tightening_finds_what_one_round_misses(monkeypatch):
    x, y = P("x"), P("y")
    pmdp = model([x * y, x, y], Domain.box(["x", "y"]))
    lower, upper = np.zeros(pmdp.num_expressions), np.ones(pmdp.num_expressions)
    for f in range(pmdp.num_expressions):
        if pmdp.table.polynomial(f) == x * y:
            lower[f], upper[f] = 0.56, 0.57
        if pmdp.table.polynomial(f) == x:
            lower[f], upper[f] = 0.7, 0.72
    region = build_region(pmdp, lower, upper)
    low, high = region.box()
    with monkeypatch.context() as patch:
        patch.setattr(lifting, "OBBT_TOLERANCE", 1.0)
        one = build_region(pmdp, lower, upper).box()
    y_at = 1
    assert one[0][y_at] <= low[y_at] <= 0.56 / 0.72 + 1e-9 and one[1][y_at] >= high[y_at] >= 0.57 / 0.7 - 1e-9
    assert high[y_at] - low[y_at] < 0.05 and high[y_at] - low[y_at] <= one[1][y_at] - one[0][y_at]
    assert low[y_at] > 0.77 and high[y_at] < 0.82


def test_high_dimension_relaxes_by_linear_programs():
    names = [f"x{i}" for i in range(6)]
    expressions = [P(a) * P(b) for a, b in pairwise(names)]
    pmdp = model(expressions, Domain.box(names, 0.2, 0.8))
    theta = np.full(6, 0.5)
    lower, upper = intervals_around(pmdp, theta, 0, 0.01)
    chart = linear_chart(pmdp.table)
    assert chart.dimension == 11
    region = build_region(pmdp, lower, upper)
    values = -region.minimize(-pmdp.table.reduction.weights)
    assert (values + pmdp.table.constant <= upper + 1e-6).all() and (values + pmdp.table.constant >= 0.25 - 1e-9).any()


def test_reduced_coordinates_of_unidentifiable_parameters():
    s = P("a") + P("b") + P("c")
    pmdp = model([s / 3, s / 6 + Fraction(1, 4)], Domain.box(["a", "b", "c"]).with_simplex())
    lower, upper = np.zeros(pmdp.num_expressions), np.ones(pmdp.num_expressions)
    region = domain_region(pmdp)
    assert pmdp.table.reduction.rank == region.dimension == 1
    assert np.allclose(np.ravel(region.box()), [0, 1])
    for f in range(pmdp.num_expressions):
        if pmdp.table.polynomial(f) == s / 3:
            lower[f], upper[f] = 0.1, 0.2
    assert np.allclose(np.ravel(build_region(pmdp, lower, upper).box()), [0.3, 0.6])


def test_rank_between_one_and_the_number_of_parameters_is_projected_exactly():
    a, b, c = P("a"), P("b"), P("c")
    pmdp = model([a + b, b + c], Domain.box(["a", "b", "c"]).with_simplex())
    region = domain_region(pmdp)
    assert region.dimension == 2 and isinstance(region, Image)
    coordinates = pmdp.table.reduction.coordinates(points_of(pmdp.domain, np.random.default_rng(0), 2000))
    directions = np.random.default_rng(1).normal(size=(50, 2))
    vertices = pmdp.table.reduction.coordinates(np.vstack([np.eye(3), np.zeros((1, 3))]))
    assert np.allclose(region.minimize(directions), (directions @ vertices.T).min(axis=1), atol=1e-9)
    assert region.contains(coordinates[:5]).all()


def test_contradicting_intervals_are_empty():
    pmdp = model([P("a"), P("a") / 2], Domain.box(["a"]))
    lower, upper = np.zeros(pmdp.num_expressions), np.ones(pmdp.num_expressions)
    for f in range(pmdp.num_expressions):
        if pmdp.table.polynomial(f) == P("a"):
            lower[f] = 0.8
        if pmdp.table.polynomial(f) == P("a") / 2:
            upper[f] = 0.3
    assert build_region(pmdp, lower, upper).is_empty
    bilinear = model([P("a") * P("b"), P("a")], Domain.box(["a", "b"]))
    lower, upper = np.zeros(bilinear.num_expressions), np.ones(bilinear.num_expressions)
    for f in range(bilinear.num_expressions):
        if bilinear.table.polynomial(f) == P("a") * P("b"):
            lower[f] = 0.5
        if bilinear.table.polynomial(f) == P("a"):
            upper[f] = 0.4
    assert build_region(bilinear, lower, upper).is_empty


def test_extra_rows_are_in_reduced_coordinates():
    pmdp = affine_model(0, 2)
    ones = np.ones(pmdp.num_expressions)
    region = build_region(pmdp, 0 * ones, ones, extra=(np.array([[1.0, 1.0]]), np.array([0.4])))
    assert region.minimize([[-1.0, -1.0]])[0] == pytest.approx(-0.4)
    with pytest.raises(ModelError, match="rank 2"):
        build_region(pmdp, 0 * ones, ones, extra=(np.ones((1, 3)), np.ones(1)))


def test_bad_bounds_are_named():
    pmdp = affine_model(0, 2)
    ones = np.ones(pmdp.num_expressions)
    with pytest.raises(ModelError, match="shapes"):
        build_region(pmdp, ones[:-1], ones)
    with pytest.raises(ModelError, match=r"the lower bound exceeds the upper bound .* at state 1 .*, expression"):
        build_region(pmdp, ones, 0 * ones)
    with pytest.raises(ModelError, match=r"bounds are not finite .* at state 1 .*, expression"):
        build_region(pmdp, np.full_like(ones, np.nan), ones)


def test_relax_without_products_is_the_polytope():
    chart = linear_chart(affine_model(0, 2).table)
    region = relax(chart, np.array([[1.0, 1.0]]), np.array([1.0]), np.zeros(2), np.ones(2))
    assert isinstance(region, Polytope) and region.minimize([[-1.0, -1.0]])[0] == pytest.approx(-1.0)
