"""Theorem 2 (the inclusion hierarchy) on random models, the counterexamples of Appendix A.5, and soundness."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpl_agent.agent.output.plotting.region import parameter_support
from rpl_agent.core.errors import ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Domain, Nature, Objective, Polynomial, Sense, build
from rpl_agent.core.model.algebra.ranges import range_on_box
from rpl_agent.core.regions import Box, Ellipsoid, Intersection, Polytope, build_region
from rpl_agent.core.relaxations.interval import (
    Intervals,
    expression_bounds,
    expression_wise,
    parameter_box,
    parameter_wise,
    tied,
)
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.core.solver import solve
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import Config
from tests.reference.domains import points_of
from tests.reference.regions import affine_model, intervals_around, polynomial_model

P = Polynomial.parameter
TOLERANCE = 1e-9


def relaxations(pmdp, lower, upper):
    region = build_region(pmdp, lower, upper)
    return {
        "I": tied(pmdp, lower, upper),
        "Theta": parameter_wise(region, pmdp),
        "Lambda": expression_wise(region, pmdp),
        "R": Rectangular(pmdp, region),
    }


def robust_iterates(pmdp, relaxation, extremum, steps=40):
    """Robust value iteration for reaching the goal, from 0, without any solver."""
    goal = pmdp.labels["goal"]
    values, out = goal.astype(float), np.empty(pmdp.num_rows)
    for _ in range(steps):
        relaxation.expectation(values, extremum, out)
        values = np.where(goal, 1.0, np.maximum.reduceat(out, pmdp.state_ptr[:-1]))
    return values


def random_case(seed, kind):
    pmdp = affine_model(seed, 1 + seed % 3) if kind == "affine" else polynomial_model(seed, 2 + seed % 2)
    theta = points_of(pmdp.domain, np.random.default_rng(seed), 1)[0]
    return pmdp, theta, *intervals_around(pmdp, theta, seed, width=0.15)


@pytest.mark.parametrize("kind", ["affine", "polynomial"])
@given(seed=st.integers(0, 10**6))
def test_inclusion_hierarchy_in_robust_values(kind, seed):
    pmdp, theta, lower, upper = random_case(seed, kind)
    sets = relaxations(pmdp, lower, upper)
    for extremum, sign in ((Sense.MIN, 1.0), (Sense.MAX, -1.0)):
        value = {name: sign * robust_iterates(pmdp, r, extremum) for name, r in sets.items()}
        point = np.add.reduceat  # the true model, iterated in the same way
        p, truth = pmdp.instantiate(theta).probability, pmdp.labels["goal"].astype(float)
        for _ in range(40):
            rows = point(p * truth[pmdp.successor], pmdp.row_ptr[:-1])
            truth = np.where(pmdp.labels["goal"], 1.0, np.maximum.reduceat(rows, pmdp.state_ptr[:-1]))
        for wider, tighter in (("I", "Lambda"), ("Theta", "Lambda"), ("Lambda", "R")):
            assert (value[wider] <= value[tighter] + TOLERANCE).all(), (wider, tighter)
        assert (value["R"] <= sign * truth + 1e-12).all()


@pytest.mark.parametrize("kind", ["affine", "polynomial"])
@given(seed=st.integers(0, 10**6))
def test_sampled_points_of_u_lie_in_every_relaxation(kind, seed):
    pmdp, theta, lower, upper = random_case(seed, kind)
    sets = relaxations(pmdp, lower, upper)
    rng = np.random.default_rng(seed)
    points = np.vstack([theta, (theta + rng.normal(size=(50, len(theta))) * 0.05)])
    points = points[pmdp.domain.contains(points, tol=0.0)]
    f = pmdp.table.at(points)
    f = f[((f >= lower) & (f <= upper)).all(axis=1)]
    values, out = rng.normal(size=pmdp.num_states), np.empty(pmdp.num_rows)
    exact = np.add.reduceat(f[:, pmdp.expression] * values[pmdp.successor], pmdp.row_ptr[:-1], axis=1)
    for relaxation in sets.values():
        low, high = relaxation.bounds()
        assert (f >= low - 1e-12).all() and (f <= high + 1e-12).all()
        relaxation.expectation(values, Sense.MIN, out)
        assert (out <= exact.min(axis=0) + 1e-12).all()
        relaxation.expectation(values, Sense.MAX, out)
        assert (out >= exact.max(axis=0) - 1e-12).all()


@pytest.mark.parametrize("kind", ["affine", "polynomial"])
def test_hierarchy_through_the_solver(kind):
    pmdp, _, lower, upper = random_case(13, kind)
    found = {
        name: solve(r, Objective.reach("goal"), Nature.ADVERSARIAL, precision=1e-8)
        for name, r in relaxations(pmdp, lower, upper).items()
    }
    assert found["I"].lower <= found["Lambda"].upper + TOLERANCE
    assert found["Theta"].lower <= found["Lambda"].upper + TOLERANCE
    assert found["Lambda"].lower <= found["R"].upper + TOLERANCE
    assert found["R"].upper - found["I"].lower > 1e-4  # the sets do differ


# ---------------------------------------------------------------------- Appendix A.5
def go_or_stop(expressions, domain):
    """State k goes on with probability expressions[k] and is lost otherwise."""
    n = len(expressions)

    def actions(s):
        if s >= n:
            return {"stay": {s: 1}}
        return {"go": {s + 1 if s < n - 1 else n + 1: expressions[s], n: 1 - expressions[s]}}

    return build(0, actions, domain=domain, labels={"goal": lambda s: s == n + 1})


def bounds_of(pmdp, given):
    """Intervals of the named expressions, [0, 1] for the others; 1 - f gets the mirror image of f."""
    lower, upper = np.zeros(pmdp.num_expressions), np.ones(pmdp.num_expressions)
    for f in range(pmdp.num_expressions):
        polynomial = pmdp.table.polynomial(f)
        if polynomial in given:
            lower[f], upper[f] = given[polynomial]
        elif 1 - polynomial in given:
            lower[f], upper[f] = 1 - given[1 - polynomial][1], 1 - given[1 - polynomial][0]
        elif polynomial.is_constant:
            lower[f] = upper[f] = float(polynomial.at({}))
    return lower, upper


def identity(pmdp, polynomial):
    return next(f for f in range(pmdp.num_expressions) if pmdp.table.polynomial(f) == polynomial)


def test_counterexample_parameter_wise_leaves_the_tied_intervals():
    a, b = P("a"), P("b")
    half = (a + b) * Fraction(1, 2)
    pmdp = go_or_stop([a, b, half], Domain.box(["a", "b"]))
    lower, upper = bounds_of(pmdp, {half: (0.5, 0.5)})
    region = build_region(pmdp, lower, upper)
    f = identity(pmdp, half)
    assert not region.is_empty
    low, high = parameter_wise(region, pmdp).bounds()
    assert low[f] == pytest.approx(0.0, abs=1e-9) and high[f] == pytest.approx(1.0, abs=1e-9)
    low, high = expression_wise(region, pmdp).bounds()
    assert low[f] == pytest.approx(0.5, abs=1e-9) and high[f] == pytest.approx(0.5, abs=1e-9)


def test_counterexample_tied_intervals_leave_the_parameter_wise_set():
    a = P("a")
    pmdp = go_or_stop([a, 1 - a], Domain.box(["a"]))
    f, g = identity(pmdp, a), identity(pmdp, 1 - a)
    lower, upper = np.zeros(pmdp.num_expressions), np.ones(pmdp.num_expressions)
    lower[[f, g]], upper[[f, g]] = 0.4, 0.7
    one = identity(pmdp, Polynomial.constant(1))
    lower[one] = 1.0
    low, high = parameter_wise(build_region(pmdp, lower, upper), pmdp).bounds()
    assert low[[f, g]] == pytest.approx([0.4, 0.4]) and high[[f, g]] == pytest.approx([0.6, 0.6])
    assert high[f] < upper[f] - 0.09
    # The choice f = 0.7 in one row and 1 - f = 0.7 in the other is left to nature by the tied intervals only.
    values = {
        name: solve(r, Objective.reach("goal"), Nature.COOPERATIVE).upper
        for name, r in relaxations(pmdp, lower, upper).items()
    }
    assert values["I"] == pytest.approx(0.36, abs=1e-5)  # rows are distributions: f <= 1 - 0.4 as well
    assert values["Theta"] == pytest.approx(0.36, abs=1e-5)


# ---------------------------------------------------------------------- every kind of region
def test_rectangular_of_every_region_kind_agrees_with_queries_one_by_one():
    pmdp = affine_model(5, 2)
    theta = np.array([0.3, 0.4])
    polytope = build_region(pmdp, *intervals_around(pmdp, theta, 5))
    ball = Ellipsoid(theta, 400 * np.eye(2), 1.0)
    rng = np.random.default_rng(0)
    weights, constant = pmdp.table.reduction.weights, pmdp.table.constant
    for region in (polytope, ball, Box(theta - 0.05, theta + 0.05), Intersection([polytope, ball])):
        relaxation = Rectangular(pmdp, region)
        values, out = rng.normal(size=pmdp.num_states), np.empty(pmdp.num_rows)
        for extremum, sign in ((Sense.MIN, 1.0), (Sense.MAX, -1.0)):
            relaxation.expectation(values, extremum, out)
            for row in range(pmdp.num_rows):
                span = slice(pmdp.row_ptr[row], pmdp.row_ptr[row + 1])
                f, v = pmdp.expression[span], sign * values[pmdp.successor[span]]
                query = v @ constant[f] + region.minimize((v @ weights[f])[None])[0]
                assert sign * out[row] >= query - 1e-9
                assert sign * out[row] <= v @ pmdp.table.at(theta)[f] + 1e-9
            batch = np.empty(pmdp.num_rows)
            Intervals(pmdp, *relaxation.bounds()).expectation(values, extremum, batch)
            relaxation._by_queries(values, extremum, batch, None)  # which improves on the hull
            assert np.abs(batch - out).max() < 1e-9
            some = np.array([3, 1])
            relaxation.expectation(values, extremum, part := np.empty(2), some)
            assert np.array_equal(part, out[some])


def test_two_successors_make_rectangular_equal_expression_wise():
    pmdp = go_or_stop([P("a"), P("b"), P("a") * Fraction(1, 2) + P("b") * Fraction(1, 3)], Domain.box(["a", "b"]))
    lower, upper = bounds_of(pmdp, {P("a"): (0.2, 0.5), P("b"): (0.3, 0.6)})
    sets = relaxations(pmdp, lower, upper)
    values = np.random.default_rng(1).random(pmdp.num_states)
    first, second = np.empty(pmdp.num_rows), np.empty(pmdp.num_rows)
    for extremum in Sense:
        sets["R"].expectation(values, extremum, first)
        sets["Lambda"].expectation(values, extremum, second)
        assert np.abs(first - second).max() < 1e-13


def test_infinite_values_keep_the_rule_of_the_hull():
    pmdp = affine_model(5, 2)
    relaxation = Rectangular(pmdp, build_region(pmdp, *intervals_around(pmdp, np.array([0.3, 0.4]), 5)))
    values = np.random.default_rng(0).random(pmdp.num_states)
    values[2] = np.inf
    compiled, batch = np.empty(pmdp.num_rows), np.empty(pmdp.num_rows)
    for extremum in Sense:
        relaxation.expectation(values, extremum, compiled)
        Intervals(pmdp, *relaxation.bounds()).expectation(values, extremum, batch)
        relaxation._by_queries(values, extremum, batch, None)  # which improves on the hull
        assert (np.isinf(compiled) == np.isinf(batch)).all() and not np.isnan(compiled).any()


# ---------------------------------------------------------------------- parameters and ranges
@given(seed=st.integers(0, 10**6), degree=st.integers(1, 4))
def test_range_on_box_encloses_and_is_exact_for_multilinear(seed, degree):
    pmdp = affine_model(seed, 2) if degree == 1 else polynomial_model(seed, degree)
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 0.6, 2)
    lower, upper = corner, corner + rng.uniform(0, 0.3, 2)
    low, high = range_on_box(pmdp.table, lower, upper)
    grid = np.stack(np.meshgrid(*[np.linspace(a, b, 15) for a, b in zip(lower, upper)]), axis=-1).reshape(-1, 2)
    f = pmdp.table.at(grid)
    assert (low <= f.min(axis=0).clip(0, 1)).all() and (high >= f.max(axis=0).clip(0, 1)).all()
    if degree <= 2:  # products of two coins with different parameters
        assert np.allclose(low, f.min(axis=0).clip(0, 1), atol=1e-12)
        assert np.allclose(high, f.max(axis=0).clip(0, 1), atol=1e-12)


def test_monomial_bounds_enclose_where_bernstein_is_too_large(monkeypatch):
    from rpl_agent.core.model.algebra import ranges

    pmdp = polynomial_model(4, 4)
    tight = range_on_box(pmdp.table, np.array([0.2, 0.1]), np.array([0.5, 0.6]))
    monkeypatch.setattr(ranges, "MAX_BERNSTEIN", 1)
    loose = range_on_box(pmdp.table, np.array([0.2, 0.1]), np.array([0.5, 0.6]))
    assert (loose[0] <= tight[0] + 1e-9).all() and (loose[1] >= tight[1] - 1e-9).all()
    assert (loose[0] < tight[0] - 1e-3).any()


def test_unidentifiable_parameters_get_their_honest_interval():
    s = P("a") + P("b")
    pmdp = go_or_stop([s * Fraction(1, 2), s * Fraction(1, 4)], Domain.box(["a", "b"]))
    lower, upper = bounds_of(pmdp, {s * Fraction(1, 2): (0.1, 0.2)})
    region = build_region(pmdp, lower, upper)
    low, high = parameter_box(region, pmdp)
    assert low == pytest.approx([0, 0], abs=1e-6) and high == pytest.approx([0.4, 0.4], abs=1e-6)
    assert (low <= 0).all() and (high >= 0.4).all()
    wide = parameter_wise(region, pmdp).bounds()
    f = identity(pmdp, s * Fraction(1, 2))
    assert wide[1][f] == pytest.approx(0.4, abs=1e-6) and expression_bounds(region, pmdp)[1][f] == pytest.approx(0.2)


def test_parameters_of_polynomial_models():
    pmdp = go_or_stop([P("a") * P("b"), P("a"), P("b")], Domain.box(["a", "b"]))
    lower, upper = bounds_of(pmdp, {P("a"): (0.3, 0.4), P("a") * P("b"): (0.2, 0.21)})
    low, high = parameter_box(build_region(pmdp, lower, upper), pmdp)
    assert low[0] <= 0.3 and high[0] >= 0.4 and high[0] < 0.401
    assert low[1] <= 0.5 and high[1] >= 0.7 and low[1] > 0.45 and high[1] < 0.75
    cubic = go_or_stop([P("a") ** 3], Domain.box(["a"]))
    lower, upper = bounds_of(cubic, {P("a") ** 3: (0.1, 0.2)})
    low, high = parameter_box(build_region(cubic, lower, upper), cubic)
    assert low[0] <= 0.1 ** (1 / 3) and high[0] >= 0.2 ** (1 / 3)


UNUSED_CASES = {
    "bilinear": [P("p") * P("q"), P("p")],
    "cubic": [P("p") * P("p") * P("q"), P("p")],
    "affine": [(P("p") + P("q")) * Fraction(1, 2), P("r") * Fraction(1, 2)],
}


@pytest.mark.parametrize("names", [("u", "p", "q"), ("p", "u", "q"), ("p", "q", "u")])
@pytest.mark.parametrize("case", UNUSED_CASES)
@pytest.mark.parametrize("ellipsoid", [False, True])
def test_the_bounds_of_used_parameters_stay_with_them(case, names, ellipsoid):
    """A region's coordinates are those of the parameters in use: an unused one shifted the others' bounds."""
    names = (*names, "r") if case == "affine" else names
    pmdp = go_or_stop(UNUSED_CASES[case], Domain.box(names))
    theta = np.array([{"p": 0.6, "q": 0.6, "r": 0.5, "u": 0.1}[name] for name in names])
    truth = pmdp.table.at(theta).ravel()
    region = build_region(pmdp, np.maximum(truth - 0.02, 0.0), np.minimum(truth + 0.02, 1.0))
    if ellipsoid:
        x = pmdp.table.reduction.coordinates(theta)[0]
        region = Intersection([region, Ellipsoid(x, np.eye(len(x)), 0.05**2)])
    low, high = parameter_box(region, pmdp)
    assert (low <= theta).all() and (theta <= high).all()
    u, p = names.index("u"), names.index("p")
    assert (low[u], high[u]) == (0.0, 1.0) and high[p] - low[p] < 0.9
    for lower, upper in (parameter_wise(region, pmdp).bounds(), expression_bounds(region, pmdp)):
        assert (lower <= truth + 1e-12).all() and (truth <= upper + 1e-12).all()
    for direction in np.vstack([np.eye(len(theta)), -np.eye(len(theta)), np.ones((1, len(theta)))]):
        assert parameter_support(region, pmdp, direction[None, :])[0] <= direction @ theta + 1e-12


def test_more_unused_parameters_than_coordinates():
    names, used = [f"u{k}" for k in range(12)], ["a", "b", "c"]
    a, b, c = map(P, used)
    terms = [a * b, b * c, a * c, a, b * b, c * c, c * c * a, a * a * b]
    pmdp = go_or_stop(terms, Domain.box([*names, *used]))
    theta = np.array([0.5] * len(names) + [0.3, 0.6, 0.4])
    counts = Counts(pmdp)
    counts.add_batch(np.rint(1000 * pmdp.table.at(theta).ravel()[pmdp.expression]).astype(int))
    truth = np.prod([float(f.at(dict(zip(used, theta[-3:])))) for f in terms])
    for relaxation in ("parameter", "expression", "rectangular"):
        found = certify(pmdp, counts, Objective.reach("goal"), Config("ellipsoid", relaxation))
        assert found.lower <= truth <= found.upper


def test_empty_and_foreign_regions_are_errors():
    pmdp = affine_model(0, 2)
    empty = Polytope([[1.0, 0.0]], [-1.0], [0, 0], [1, 1])
    for make in (expression_wise, parameter_wise, lambda r, p: Rectangular(p, r)):
        with pytest.raises(ModelError, match="empty"):
            make(empty, pmdp)
        with pytest.raises(ModelError, match="1 coordinates, the model 2"):
            make(Box([0.0], [1.0]), pmdp)
