"""Support queries: vertex graph = HiGHS = exact rationals, and every answer is a bound."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from rpl_agent.core.errors import ModelError, RPLWarning
from rpl_agent.core.native import core
from rpl_agent.core.regions import Box, Ellipsoid, Image, Intersection, Polytope, Product
from rpl_agent.core.regions.lp import GrowingProgram, LinearProgram, compressed
from rpl_agent.core.regions.vertex_graph import VertexGraph
from tests.reference.regions import exact_minimum


def random_polytope(rng, n, m, thin=1.0):
    A = rng.normal(size=(m, n))
    b = A @ np.full(n, 0.5) + rng.uniform(0.05, 0.5, m) * np.abs(A).sum(axis=1) * thin
    return A, b, np.zeros(n), np.ones(n)


def cross_polytope(n):
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * n)).reshape(n, -1).T
    return signs, signs @ np.full(n, 0.5) + 0.25, np.zeros(n), np.ones(n)


def pyramid(n):
    """All sides meet in one apex: as degenerate as it gets."""
    rng = np.random.default_rng(n)
    A = np.hstack([rng.normal(size=(30, n - 1)), np.full((30, 1), 1.0)])
    apex = np.full(n, 0.5)
    return A, A @ apex, np.zeros(n), np.ones(n)


def repeated(n):
    A, b, lower, upper = random_polytope(np.random.default_rng(n), n, 12)
    return np.vstack([A, A, 3 * A]), np.concatenate([b, b, 3 * b]), lower, upper


def slab(n, width):
    """Two parallel faces at distance width: thin or flat."""
    A = np.vstack([np.ones((1, n)), -np.ones((1, n))])
    return A, np.array([n / 2 + width, -n / 2]), np.zeros(n), np.ones(n)


SHAPES = {
    "random": lambda n: random_polytope(np.random.default_rng(n), n, 60),
    "cross": cross_polytope,
    "pyramid": pyramid,
    "repeated": repeated,
    "thin": lambda n: slab(n, 1e-6),
    "flat": lambda n: slab(n, 0.0),
    "tiny": lambda n: random_polytope(np.random.default_rng(n), n, 60, thin=1e-5),
}


FEW_ROWS = {  # few enough to try every basis in rationals
    "random": lambda n: random_polytope(np.random.default_rng(n), n, 9),
    "tiny": lambda n: random_polytope(np.random.default_rng(n), n, 9, thin=1e-5),
    **{name: SHAPES[name] for name in ("cross", "thin", "flat")},
}


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("shape", FEW_ROWS)
def test_the_box_of_a_graph_holds_its_polytope(shape, n):
    """From outside by exact rationals, and as close as the loosened right sides allow."""
    A, b, lower, upper = FEW_ROWS[shape](n)
    graph = VertexGraph(lower, upper)
    graph.cut(A, b)
    low, high = graph.box()
    for j in range(n):
        axis = np.eye(n)[j]
        least, most = exact_minimum(A, b, lower, upper, axis), -exact_minimum(A, b, lower, upper, -axis)
        assert Fraction(low[j]) <= least and Fraction(high[j]) >= most
        assert float(least) - low[j] < 1e-8 and high[j] - float(most) < 1e-8


@pytest.mark.parametrize("n", [2, 3, 4, 6])
@pytest.mark.parametrize("shape", SHAPES)
def test_vertex_graph_equals_highs(shape, n, sized):
    A, b, lower, upper = SHAPES[shape](n)
    polytope = Polytope(A, b, lower, upper)
    assert polytope.method == "vertices" and not polytope.is_empty
    directions = np.random.default_rng(7).normal(size=(sized(40, 150), n))
    found = polytope.minimize(directions)
    reference = LinearProgram(A, b, lower, upper)
    optima = np.array([c @ reference.solve(c)[1] for c in directions])
    assert np.abs(found - optima).max() < 1e-6  # HiGHS is feasible to 1e-7 only
    safe = found - reference.minimize(directions)  # both are bounds; ours is the tighter one in tiny polytopes
    assert safe.min() > -1e-9 and safe.max() < (1e-7 if shape == "tiny" else 1e-9)


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_vertex_graph_equals_highs_on_thousands_of_directions(count):
    rng = np.random.default_rng(3)
    A, b, lower, upper = random_polytope(rng, 4, 200)
    polytope, reference = Polytope(A, b, lower, upper), LinearProgram(A, b, lower, upper)
    directions = rng.normal(size=(count, 4)) * 10.0 ** rng.uniform(-9, 9, (count, 1))
    scale = np.linalg.norm(directions, axis=1)
    assert (np.abs(polytope.minimize(directions) - reference.minimize(directions)) / scale).max() < 1e-9


@pytest.mark.parametrize("n", [3, 5])
def test_growing_graph_equals_complete_graph(n):
    A, b, lower, upper = random_polytope(np.random.default_rng(5), n, 80)
    complete, growing = Polytope(A, b, lower, upper), Polytope(A, b, lower, upper, max_vertices=2**n)
    assert (complete.method, growing.method) == ("vertices", "walk")
    directions = np.random.default_rng(1).normal(size=(400, n))
    expected = complete.minimize(directions)
    # The first query leaves the table at once (plain simplex), later ones find their way in it.
    unseen, data = np.empty(50), growing.kernel().polytope
    core.support_polytope_many(data, 50, directions[:50], 50, np.zeros(50, np.int32), unseen)
    assert np.abs(unseen - expected[:50]).max() < 1e-9
    assert np.abs(growing.minimize(directions) - expected).max() < 1e-9
    assert growing.kernel().polytope.counts[0] <= 2**n


@given(seed=st.integers(0, 10**6), n=st.integers(1, 3), scale=st.sampled_from([1e-8, 1.0, 1e8]))
def test_bounds_never_exceed_the_exact_optimum(seed, n, scale):
    rng = np.random.default_rng(seed)
    A = np.round(rng.normal(size=(5, n)), rng.integers(1, 4))
    b = np.round(A @ np.full(n, 0.5) + rng.uniform(0, 0.3, 5), 3)
    lower, upper = np.zeros(n), np.ones(n)
    c = rng.normal(size=n) * scale
    exact = exact_minimum(A, b, lower, upper, c)
    assert exact is not None
    for bound in (
        Polytope(A, b, lower, upper).minimize(c)[0],
        Polytope(A, b, lower, upper, graph_dimension=0).minimize(c)[0] if n > 1 else -np.inf,
        LinearProgram(A, b, lower, upper).minimize(c[None])[0],
    ):
        assert bound <= exact
        if np.isfinite(bound):
            assert float(exact) - bound <= 1e-9 * np.linalg.norm(c) + 1e-300


def test_tiny_directions_keep_their_precision():
    A, b, lower, upper = random_polytope(np.random.default_rng(0), 3, 30)
    c = np.random.default_rng(1).normal(size=(50, 3))
    for region in (Polytope(A, b, lower, upper), Polytope(A, b, lower, upper, graph_dimension=1)):
        assert np.allclose(region.minimize(1e-8 * c), 1e-8 * region.minimize(c), rtol=1e-6, atol=1e-20)


@pytest.mark.parametrize("power", [-300, -450, -500, -520, -540, -600, -900])
def test_bounds_scale_with_their_directions(power):
    """Squares of numbers below 1e-162 are 0: the bound of an ellipsoid was then the value at its center."""
    A, b, lower, upper = random_polytope(np.random.default_rng(0), 3, 30)
    c, scale = np.random.default_rng(1).normal(size=(50, 3)), 2.0**power
    ball = Ellipsoid(np.full(3, 0.5), np.diag([4.0, 9.0, 16.0]), 0.7)
    polytopes = Polytope(A, b, lower, upper), Polytope(A, b, lower, upper, graph_dimension=1)
    for region in (ball, *polytopes, Box(lower, upper), Intersection([ball, polytopes[0]])):
        assert np.abs(region.minimize(scale * c) / scale - region.minimize(c)).max() <= 1e-12 + 4e-300 / scale


def test_emptiness_is_certified():
    assert Polytope([[1.0, 1.0], [-1.0, -1.0]], [1.0, -1.001], [0, 0], [1, 1]).is_empty
    assert not Polytope([[1.0, 1.0], [-1.0, -1.0]], [1.0, -1.0], [0, 0], [1, 1]).is_empty
    n = 9
    ones = np.ones((1, n))
    assert Polytope(np.vstack([ones, -ones]), [1.0, -1.001], np.zeros(n), np.ones(n)).is_empty
    assert not Polytope(np.vstack([ones, -ones]), [1.0, -1.0], np.zeros(n), np.ones(n)).is_empty
    empty = Polytope([[1.0]], [-0.5], [0.0], [1.0])
    assert empty.is_empty and np.isposinf(empty.minimize([[1.0]])[0]) and not empty.contains([[0.2]])[0]
    assert Polytope(np.zeros((1, 2)), [-1.0], [0, 0], [1, 1]).is_empty
    assert not Polytope(np.zeros((1, 2)), [1.0], [0, 0], [1, 1]).is_empty


def test_trouble_in_highs_yields_the_box_and_a_warning():
    A, b, lower, upper = random_polytope(np.random.default_rng(0), 30, 400)
    program = LinearProgram(A, b, lower, upper, time_limit=0.0)
    c = np.random.default_rng(1).normal(size=30)
    with pytest.warns(RPLWarning, match="bound of the box"):
        bound, _ = program.solve(c)
    assert bound == pytest.approx(Box(lower, upper).minimize(c)[0])
    infeasible = LinearProgram(np.array([[1.0, 1.0], [-1.0, -1.0]]), np.array([1.0, -1.5]), np.zeros(2), np.ones(2))
    with pytest.warns(RPLWarning):
        assert infeasible.solve(np.array([1.0, 0.0]))[0] <= 0.0
    assert infeasible.proves_empty()


def test_queries_are_safe_in_threads():
    A, b, lower, upper = random_polytope(np.random.default_rng(2), 5, 100)
    for region in (Polytope(A, b, lower, upper), Polytope(A, b, lower, upper, graph_dimension=1)):
        directions = np.random.default_rng(4).normal(size=(60, 5))
        expected = region.minimize(directions)
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(region.minimize, [directions] * 8))
        assert len(results) == 8 and all(np.abs(values - expected).max() < 1e-9 for values in results)


def test_regions_survive_pickling():
    A, b, lower, upper = random_polytope(np.random.default_rng(2), 3, 20)
    c = np.eye(3)
    for region in (
        Polytope(A, b, lower, upper),
        Polytope(A, b, lower, upper, graph_dimension=1),
        Ellipsoid(np.zeros(3), np.eye(3), 1.0),
    ):
        region.minimize(c)
        assert np.allclose(pickle.loads(pickle.dumps(region)).minimize(c), region.minimize(c), atol=1e-12)


def test_box_and_interval():
    box = Box([0.0, -1.0], [1.0, 2.0])
    assert box.minimize([[1.0, -1.0]])[0] == pytest.approx(-2.0) and box.minimize([[1.0, -1.0]])[0] <= -2.0
    assert box.contains([[0.5, 0.5], [0.5, 2.1]]).tolist() == [True, False]
    interval = Polytope([[2.0], [-3.0]], [1.0, -0.3], [0.0], [1.0])
    assert interval.method == "interval"
    assert np.allclose(np.ravel(interval.box()), [0.1, 0.5]) and interval.box()[0][0] <= 0.1
    assert Box([1.0], [0.0]).is_empty


@given(seed=st.integers(0, 10**6), n=st.integers(1, 4))
def test_ellipsoid_against_direct_optimisation(seed, n):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n)) + 2 * np.eye(n)
    H, center, c = root @ root.T, rng.normal(size=n), rng.normal(size=n)
    bound = Ellipsoid(center, H, 0.7).minimize(c)[0]
    found = minimize(
        lambda x: c @ x, center, jac=lambda x: c, method="SLSQP", options={"ftol": 1e-14, "maxiter": 500},
        constraints={"type": "ineq", "fun": lambda x: 0.7 - (x - center) @ H @ (x - center),
                     "jac": lambda x: -2 * H @ (x - center)},
    )  # fmt: skip
    assert bound <= found.fun + 1e-7 * (1 + abs(found.fun)) and bound == pytest.approx(found.fun, rel=1e-3, abs=1e-3)
    exact = c @ center - np.sqrt(0.7 * c @ np.linalg.solve(H, c))
    assert bound == pytest.approx(exact, rel=1e-7, abs=1e-9) and bound <= exact + 1e-12 * (1 + abs(exact))


def test_a_singular_matrix_is_no_ellipsoid():
    with pytest.raises(ModelError, match="positive definite"):
        Ellipsoid([0.5, 0.5], np.diag([1e4, 0.0]), 1.0)


def test_intersection_takes_the_best_member_and_merges_polytopes():
    first = Polytope([[1.0, 1.0]], [1.0], [0, 0], [1, 1])
    second = Polytope([[1.0, -1.0]], [0.0], [0, 0], [1, 1])
    both = Intersection([first, second, Ellipsoid([0.0, 0.0], np.eye(2), 0.25)])
    assert len(both.members) == 2
    values = both.minimize([[-1.0, 0.0], [-1.0, -1.0]])
    assert values[0] == pytest.approx(-0.5, abs=1e-9) and values[1] == pytest.approx(-np.sqrt(0.5), abs=1e-9)
    assert both.contains([[0.2, 0.3], [0.3, 0.2]]).tolist() == [True, False]
    assert both.kernel().ellipsoid is not None and both.kernel().polytope.counts[0] >= 3
    assert Intersection([first, Ellipsoid([3.0, 3.0], np.eye(2), 0.1)]).is_empty


def test_image_is_the_projection():
    inner = Polytope([[1.0, 1.0, 1.0]], [1.0], np.zeros(3), np.ones(3))
    image = Image(inner, np.array([[1.0, 1.0, 0.0]]))
    assert image.dimension == 1
    assert image.minimize([[-1.0]])[0] == pytest.approx(-1.0)
    assert image.contains([[0.7], [1.2]]).tolist() == [True, False]


def test_product_decomposes():
    rng = np.random.default_rng(0)
    region = Product(
        [0, 2, 3, 5], [0.1, 0.2, 0.3, 0.0, 0.0], [0.5, 0.6, 0.6, 1.0, 1.0], [0.2, 0.4, 0.0], [0.4, 0.7, 1.0],
        {2: Polytope([[1.0, 1.0]], [0.5], [0, 0], [1, 1])},
    )  # fmt: skip
    rows = np.zeros((5, 5))
    rows[0, :2], rows[1, :2], rows[2, 2], rows[3, 2], rows[4, 3:] = 1, -1, 1, -1, 1
    whole = Polytope(rows, [0.8, -0.6, 0.6, -0.3, 0.5], region.lower, region.upper, graph_dimension=1)
    directions = rng.normal(size=(50, 5))
    assert np.abs(region.minimize(directions) - whole.minimize(directions)).max() < 1e-9
    assert (region.minimize(directions) <= whole.minimize(directions) + 1e-9).all()
    assert np.allclose(region.box(), whole.box(), atol=1e-9)
    assert region.contains([[0.3, 0.4, 0.5, 0.2, 0.2], [0.1, 0.2, 0.5, 0.2, 0.2]]).tolist() == [True, False]
    assert Product([0, 2], [0.6, 0.6], [0.7, 0.7], [0.0], [1.0]).is_empty


def test_bad_input():
    with pytest.raises(ModelError, match="bounded"):
        Box([0.0], [np.inf])
    with pytest.raises(ModelError, match="2 right sides"):
        Polytope([[1.0, 0.0]], [1.0, 2.0], [0, 0], [1, 1])
    with pytest.raises(ModelError, match="finite"):
        Polytope([[np.nan, 0.0]], [1.0], [0, 0], [1, 1])
    with pytest.raises(ModelError, match="dimension 2"):
        Polytope([[1.0, 0.0]], [1.0], [0, 0], [1, 1]).minimize([[1.0]])
    with pytest.raises(ModelError, match="not finite"):
        Box([0.0], [1.0]).minimize([[np.nan]])
    with pytest.raises(ModelError, match="symmetric"):
        Ellipsoid([0.0, 0.0], [[1.0, 2.0], [0.0, 1.0]], 1.0)
    with pytest.raises(ModelError, match="one dimension"):
        Intersection([Box([0.0], [1.0]), Box([0.0, 0.0], [1.0, 1.0])])


def test_a_program_that_grows_has_the_optima_of_a_new_one():
    """More rows, other boxes and other directions, also after boxes in which nothing is left."""
    rng, program, empty = np.random.default_rng(8), GrowingProgram(), 0
    A, b = np.zeros((0, 3)), np.zeros(0)
    for _ in range(40):
        more = rng.normal(size=(rng.integers(0, 4), 3)) * (rng.random(3) < 0.8)
        A, b = np.vstack([A, more]), np.append(b, rng.uniform(0.3, 1.0, len(more)))
        lower = rng.uniform(-1.0, 1.0, 3)
        upper, c = lower + rng.uniform(0.0, 1.0, 3), rng.normal(size=3)
        found, wanted = program.optimum(c, A, b, lower, upper), LinearProgram(A, b, lower, upper).optimum(c)
        assert (found[1] is None) == (wanted[1] is None)
        if found[1] is None:
            empty += 1
            continue
        assert len(found[1]) == len(b) and (found[1] >= 0.0).all()
        assert c @ found[0] == pytest.approx(c @ wanted[0], abs=1e-6)
        rest = c + found[1] @ A  # what the multipliers prove
        least = np.minimum(rest * lower, rest * upper).sum() - found[1] @ b
        assert least == pytest.approx(c @ wanted[0], abs=1e-6)
    assert 3 <= empty <= 30


def test_rows_with_huge_entries_are_added():
    """HiGHS adds no row with an entry beyond 1e15: multipliers were then those of other rows."""
    program, box = GrowingProgram(), (-np.ones(2), np.ones(2))
    A, b = np.array([[1.0, 0.0]]), np.array([0.5])
    program.optimum(np.array([-1.0, -1.0]), A, b, *box)
    A, b = np.vstack([A, [[0.0, 9e15], [1.0, 1.0]]]), np.array([0.5, 2.25e15, 0.5])
    x, multipliers = program.optimum(np.array([-1.0, -2.0]), A, b, *box)
    assert np.allclose(x, [0.25, 0.25]) and np.allclose(multipliers, [0.0, 1.0 / 9e15, 1.0], atol=1e-18)


def test_rows_of_a_dense_matrix_are_those_of_a_sparse_one():
    A = np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, -3.0], [0.0, 0.0, 0.0]])
    for one, other in zip(compressed(A), compressed(scipy.sparse.csr_array(A))):
        assert one.tolist() == other.tolist() and one.dtype == other.dtype
