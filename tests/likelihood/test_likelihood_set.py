"""The level set C, its cuts and its ellipsoid; the region made of them."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import brentq, minimize

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.ledger import WITHOUT_BETS, split_main
from rpl_agent.core.model import Domain, Policy, Simulator, build
from rpl_agent.core.native import core
from rpl_agent.core.regions.intersection import Ellipsoid
from rpl_agent.guarantee.likelihood import level_set as level_sets
from rpl_agent.guarantee.likelihood import windows
from rpl_agent.guarantee.likelihood.chart import Observations, domain_chart, fit, inverse_factor, parameter_chart
from rpl_agent.guarantee.likelihood.level_set import cut_directions
from rpl_agent.guarantee.likelihood.region import likelihood_region
from tests.reference import evidence as slow
from tests.reference.regions import coordinates_in

DELTA = 0.05


def _affine():
    rows = {
        0: {"a": {1: "0.2 + 0.5*p", 2: "0.3*q", 3: "0.8 - 0.5*p - 0.3*q"}, "b": {1: "0.5*q", 2: "1 - 0.5*q"}},
        1: {"a": {0: "0.1*p + 0.4*q + 0.2", 3: "0.8 - 0.1*p - 0.4*q"}},
        2: {"a": {0: "0.6 - 0.4*p", 1: "0.4 + 0.4*p"}},
        3: {"a": {0: 1}},
    }
    domain = Domain.box(["p", "q"]).with_simplex()
    return build(0, lambda s: rows[s], domain=domain, name="affine"), np.array([0.4, 0.3])


def _bilinear():
    rows = {
        0: {"a": {1: "p*q", 2: "p - p*q", 3: "1 - p"}},
        1: {"a": {0: "q", 3: "1 - q"}},
        2: {"a": {0: "0.5*p + 0.2", 1: "0.8 - 0.5*p"}},
        3: {"a": {0: 1}},
    }
    return build(0, lambda s: rows[s], domain=["p", "q"], name="bilinear"), np.array([0.7, 0.4])


def _one():
    rows = {0: {"a": {0: "p", 1: "1 - p"}}, 1: {"a": {0: "0.5 + 0.3*p", 1: "0.5 - 0.3*p"}}}
    return build(0, lambda s: rows[s], domain=["p"], name="one"), np.array([0.25])


def _unidentifiable():
    """Three parameters seen only through p + q and r: rank 2."""
    rows = {0: {"a": {0: "0.4*p + 0.4*q", 1: "1 - 0.4*p - 0.4*q"}}, 1: {"a": {0: "0.5*r", 1: "1 - 0.5*r"}}}
    return build(0, lambda s: rows[s], domain=["p", "q", "r"], name="reduced"), np.array([0.5, 0.3, 0.8])


def _three():
    rows = {
        0: {"a": {1: "0.2 + 0.3*p", 2: "0.3*q + 0.1", 3: "0.7 - 0.3*p - 0.3*q"}, "b": {1: "r", 2: "1 - r"}},
        1: {"a": {0: "0.1*p + 0.4*r + 0.2", 3: "0.8 - 0.1*p - 0.4*r"}},
        2: {"a": {0: "0.6 - 0.4*p", 1: "0.4 + 0.4*p"}, "b": {0: "q", 3: "1 - q"}},
        3: {"a": {0: 1}},
    }
    return build(0, lambda s: rows[s], domain=["p", "q", "r"], name="three"), np.array([0.4, 0.3, 0.6])


MODELS = {"affine": _affine, "bilinear": _bilinear, "one": _one, "reduced": _unidentifiable, "three": _three}


def _data(make, episodes, seed, schedule="split"):
    model, theta = make()
    simulator = Simulator(model.instantiate(theta), np.zeros(model.num_states, bool), 20, seed)
    counts = Counts(model, schedule=schedule, planned=20 * episodes if schedule == "split" else None)
    for size in np.diff(np.unique(np.linspace(0, episodes, 26).astype(int))):
        batch = np.zeros(model.num_transitions, dtype=np.int64)
        simulator.run(Policy.uniform(model), int(size), batch)
        counts.add_batch(batch)
    return model, theta, counts


def _members(level_set, model, n, seed):
    """Points of C: parameters of the domain near the centre that satisfy the definition, term by term."""
    rng = np.random.default_rng(seed)
    chart, center = level_set.chart, level_set.center
    root = np.linalg.inv(np.linalg.cholesky(center.precision))
    found = []
    for scale in (1.0, 2.0, 4.0, 8.0):
        z = center.z + scale * rng.normal(size=(n, chart.dimension)) @ root
        z = z[chart.contains(z)]
        x = chart.coordinates(z)
        for point in x:
            total = -np.inf
            for offset, k in zip(level_set.offsets, level_set.observed.counts):
                g = slow.negative_log_likelihood(level_set.observed.constant, level_set.observed.weights, k, point)
                total = np.logaddexp(total, offset + g)
            if total <= level_set.level:
                found.append(point)
    return np.array(found)


@pytest.mark.parametrize("schedule", ["split", "geometric"])
@pytest.mark.parametrize("episodes", [5, 60, 2000])
@pytest.mark.parametrize("name", MODELS)
def test_points_of_the_set_satisfy_cuts_ellipsoid_and_region(name, episodes, schedule):
    model, theta, counts = _data(MODELS[name], episodes, seed=episodes, schedule=schedule)
    level_set = windows.likelihood_set(counts, DELTA, parameter_chart(model))
    assert level_set is not None
    points = _members(level_set, model, 150, seed=1)
    assert len(points) > 50
    assert level_set.contains(points).all()
    rays = level_sets.rays_of(level_set, cut_directions(level_set.chart.dimension))
    A, b = level_sets.cuts(level_set, *level_sets.boundary(level_set, rays), 3.0)
    assert len(A) > 0
    assert (points @ A.T <= b + 1e-12).all()
    mixing = rays.shares.mean(axis=0)
    found = level_sets.ellipsoid(level_set, np.ones(len(level_set.observed.constant)), mixing, 3.0)
    if found is not None:
        center, H, radius2 = found
        distance = np.einsum("ij,jk,ik->i", points - center, H, points - center)
        assert (distance <= radius2 * (1 + 1e-12)).all()
    region = likelihood_region(model, counts, DELTA)
    assert not region.is_empty
    assert region.contains(coordinates_in(region, model, theta)).all()  # seeds chosen before looking: 5 % may fail


@pytest.mark.parametrize("name", ["affine", "three"])
@pytest.mark.parametrize("sizes", [(1_000, 10_000), (1_000_000, 10_000), (10_000, 1_000_000)])
def test_a_first_batch_unlike_the_rest(name, sizes):
    """Its prior explains nothing after it: e^G at the centre is so far below the level that it underflows."""
    model, theta = MODELS[name]()
    counts = Counts(model)
    for size, shift in zip(sizes, (-0.25, 0.25)):
        counts.add_batch(np.rint(size * model.table.evaluate(theta + shift).ravel()[model.expression]).astype(np.int64))
    level_set = windows.likelihood_set(counts, split_main(DELTA, WITHOUT_BETS).level_set, parameter_chart(model))
    points = _members(level_set, model, 100, seed=2)
    assert len(points) > 50
    rays = level_sets.rays_of(level_set, cut_directions(level_set.chart.dimension))
    np.testing.assert_allclose(rays.shares.sum(axis=1), 1.0)
    A, b = level_sets.cuts(level_set, *level_sets.boundary(level_set, rays), 3.0)
    assert (points @ A.T <= b + 1e-12).all()


def test_cuts_and_ellipsoid_are_nearly_exact_for_large_data():
    model, _, counts = _data(_affine, 20000, seed=3)
    level_set = windows.likelihood_set(counts, DELTA, domain_chart(model))
    rays = level_sets.rays_of(level_set, cut_directions(level_set.chart.dimension))
    dense = level_sets.boundary(level_set, rays)[0]
    np.testing.assert_allclose(level_set.values(dense), level_set.level, atol=2e-2)
    mixing = rays.shares.mean(axis=0)
    _, H, radius2 = level_sets.ellipsoid(level_set, np.ones(len(level_set.observed.constant)), mixing, 3.0)
    for direction in np.random.default_rng(0).normal(size=(8, 2)):
        exact = (dense @ direction).max() - (dense @ direction).min()  # 40 points: inside by at most 0.4 %
        closed = 2 * np.sqrt(radius2 * direction @ np.linalg.inv(H) @ direction)
        assert 0.996 <= closed / exact <= 1.04


def test_the_ellipsoid_alone_holds_the_set_and_is_almost_as_small():
    """Much data away from the domain's boundary: no polytope is built, nothing is lost."""
    model, theta, counts = _data(_three, 20000, seed=3)
    region = likelihood_region(model, counts, DELTA)
    assert isinstance(region, Ellipsoid)
    alpha = split_main(DELTA, WITHOUT_BETS).level_set
    level_set = windows.likelihood_set(counts, alpha, parameter_chart(model))
    points = _members(level_set, model, 2000, seed=2)
    assert region.contains(points).all() and region.contains(theta[None]).all()
    directions = np.random.default_rng(1).normal(size=(6, 3))
    exact = _extent(level_set, directions) + _extent(level_set, -directions)
    width = -region.minimize(-directions) - region.minimize(directions)
    assert (width > exact).all() and (width < 1.03 * exact).all()


def _extent(level_set, directions):
    """max a·x over C from inside: the best of many points of its boundary."""
    rays = np.random.default_rng(0).normal(size=(4000, level_set.chart.dimension))
    rays /= np.linalg.norm(rays, axis=1)[:, None]
    x = level_sets.boundary(level_set, level_sets.rays_of(level_set, rays))[0]
    return (x @ directions.T).max(axis=0)


def test_a_domain_that_cuts_the_ellipsoid_stays_in_the_region():
    rows = {0: {"a": {0: "p", 1: "q", 2: "r", 3: "1 - p - q - r"}}, **{s: {"a": {0: 1}} for s in (1, 2, 3)}}
    model = build(0, lambda s: rows[s], domain=Domain.box(["p", "q", "r"]).with_simplex())
    counts = Counts(model, schedule="split", planned=40_000)
    rng = np.random.default_rng(4)
    for _ in range(20):
        batch = np.zeros(model.num_transitions, dtype=np.int64)
        for successor, n in enumerate(rng.multinomial(2000, [0.5, 0.3, 0.1995, 0.0005])):
            batch[model.find_transition(model.find_row(0, 0), successor)] = n
        counts.add_batch(batch)
    region = likelihood_region(model, counts, 1e-3)
    assert -region.minimize(np.array([[-1.0, -1.0, -1.0]]))[0] <= 1.0 + 1e-6
    assert region.contains(np.array([[0.5, 0.3, 0.1995]])).all()


@pytest.mark.parametrize("name", MODELS)
def test_tangents_equal_their_definition(name):
    model, _, counts = _data(MODELS[name], 60, seed=7)
    level_set = windows.likelihood_set(counts, DELTA, parameter_chart(model))
    points = _members(level_set, model, 20, seed=3)[:5]
    values, gradients, shares = level_set.tangents(points)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    for x, value, gradient, share in zip(points, values, gradients, shares):
        seen = level_set.observed
        g = [slow.negative_log_likelihood(seen.constant, seen.weights, k, x) for k in seen.counts]
        terms = np.array(g) + level_set.offsets
        assert value == pytest.approx(np.log(np.exp(terms - terms.max()).sum()) + terms.max(), abs=1e-9)
        np.testing.assert_allclose(share, np.exp(terms - value), rtol=1e-6)
        k = share @ level_set.observed.counts
        f = level_set.observed.constant + level_set.observed.weights @ x
        np.testing.assert_allclose(gradient, -(level_set.observed.weights.T @ (k / f)), rtol=1e-9)


@pytest.mark.parametrize("episodes", [2, 30, 500, 50_000])
def test_one_dimension_is_exact(episodes):
    model, _, counts = _data(_one, episodes, seed=2)
    level_set = windows.likelihood_set(counts, split_main(DELTA, WITHOUT_BETS).level_set, domain_chart(model))
    center, ends = level_set.center.x[0], np.concatenate(likelihood_region(model, counts, DELTA).box())

    def excess(x):
        return level_set.values(np.array([[x]]))[0] - level_set.level

    for end, limit in zip(ends, (1e-6, 1.0 - 1e-6)):  # at 0 and 1 some logarithms are infinite
        exact = brentq(excess, center, limit, xtol=1e-13) if excess(limit) > 0.0 else limit
        assert end == pytest.approx(exact, abs=1e-8 if excess(limit) > 0.0 else 1e-5)
        assert (end - exact) * (limit - center) >= -1e-12


@pytest.mark.parametrize("name", ["affine", "bilinear"])
def test_fit_equals_scipy(name):
    model, _, counts = _data(MODELS[name], 300, seed=4)
    chart = domain_chart(model)
    seen = (counts.successes > 0) & ~model.table.is_constant
    k = counts.successes[seen].astype(float)
    forms = chart.form_counts(counts.successes)
    kept = chart.observed(forms)
    found = fit(chart.observations(kept, forms[kept]), chart)

    def penalised(z):
        slack = chart.b - chart.A @ z
        values = model.table.evaluate(z)[seen]
        if (slack <= 0).any() or (values <= 0).any():
            return 1e9
        return -k @ np.log(values) - np.log(slack).sum()

    options = {"xatol": 1e-10, "fatol": 1e-10, "maxiter": 4000}
    best = minimize(penalised, chart.start, method="Nelder-Mead", options=options)
    assert penalised(found.z) <= best.fun + 1e-6
    np.testing.assert_allclose(found.z, best.x, atol=1e-4)


def test_curvature_is_a_decreasing_lower_bound():
    excess = np.concatenate([np.linspace(-0.9, 5, 60), [1e-9, 9.9e-4, 1.1e-3, 100.0]])
    phi = np.array([core.curvature(e) for e in np.sort(excess)])
    assert (np.diff(phi) < 0).all()
    for e, value in zip(np.sort(excess), phi):
        for t in np.linspace(-0.95, e, 25):
            assert -np.log1p(t) >= -t + 0.5 * value * t * t - 1e-12


@pytest.mark.parametrize("apart", [1e-1, 1e-3, 3e-5])
def test_the_ellipsoid_pays_for_its_rounding(apart, sized):
    """So much data that the set is almost an ellipsoid, and expressions that hardly tell coordinates apart.

    Everything is compared in rationals: −ln(1+e) lies between −e + e²/2 − e³/3 and that plus e⁴.
    """
    rng = np.random.default_rng(int(1 / apart))
    weights = np.array([[0.3, 0.3], [0.3, 0.3 + apart], [-0.6, -0.6 - apart]])
    constant, m, room = np.array([0.1, 0.2, 0.7]), np.array([0.3, 0.2]), 10.0
    counts = 1e12 * (constant + weights @ m) + np.array([3e6, -2e6, 1e6])
    center, H = np.empty(2), np.empty((2, 2))
    seen = Observations(constant, weights, counts).struct
    radius2 = core.enclose(seen, m, room, 2.0, 15, np.empty(3 * 3 + 5 * 2 + 4), np.ones(3), center, H)
    assert radius2 > 0.0

    def exact(array):
        return [[Fraction(v) for v in row] for row in np.atleast_2d(array).tolist()]

    (c,), (k,), (z,), (o,), w, h = (exact(a) for a in (constant, counts, m, center, weights, H))
    values = [c[f] + w[f][0] * z[0] + w[f][1] * z[1] for f in range(3)]

    def rise(x):
        """Upper bound on g(x) − g(m)."""
        e = [(w[f][0] * (x[0] - z[0]) + w[f][1] * (x[1] - z[1])) / values[f] for f in range(3)]
        return sum(k[f] * (-e[f] + e[f] ** 2 / 2 - e[f] ** 3 / 3 + e[f] ** 4) for f in range(3))

    furthest = 0.0
    for _ in range(sized(20, 60)):
        ray = np.linalg.solve(np.linalg.cholesky(H).T, rng.normal(size=2))
        low, high = Fraction(0), Fraction(10)
        for _ in range(60):  # the last point of the set on the ray, from inside
            middle = (low + high) / 2
            x = [o[i] + middle * Fraction(ray[i]) for i in range(2)]
            low, high = (middle, high) if rise(x) <= Fraction(room) else (low, middle)
        d = [low * Fraction(ray[i]) for i in range(2)]
        distance = sum(d[i] * h[i][j] * d[j] for i in range(2) for j in range(2))
        assert distance <= Fraction(radius2)
        furthest = max(furthest, float(distance / Fraction(radius2)))
    assert furthest > 0.995


@pytest.mark.parametrize("size", [1, 2, 5, 20])
def test_inverse_factors_equal_numpy_and_know_their_defect(size):
    root = np.random.default_rng(size).normal(size=(size, size)) * np.logspace(0, 4, size)
    matrix = root @ root.T + 1e-3 * np.eye(size)
    factor = inverse_factor(matrix)
    expected = np.linalg.inv(np.linalg.cholesky(matrix))
    np.testing.assert_allclose(factor, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    defect = np.linalg.norm(factor @ matrix @ factor.T - np.eye(size))
    scratch = np.empty(2 * size)
    assert 0.5 * defect <= core.factor_defect(size, matrix, factor, scratch) < 1e-3
    assert core.factor_defect(size, matrix, 1.1 * factor, scratch) >= 0.21
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        inverse_factor(matrix - 2.0 * np.trace(matrix) * np.eye(size))


def test_priors_use_nothing_after_their_mark():
    model, _, counts = _data(_affine, 200, seed=6)
    mark = counts.marks[0]
    chart = domain_chart(model)
    first = windows.window_prior(mark, chart)
    copy = Counts.from_arrays(model, counts.to_arrays())
    copy.add_batch(np.full(model.num_transitions, 1000))
    again = windows.window_prior(copy.marks[0], chart)
    np.testing.assert_array_equal(first.mean, again.mean)
    np.testing.assert_array_equal(first.precision, again.precision)


def test_no_data_and_one_step():
    model, theta = _affine()
    region = likelihood_region(model, Counts(model), DELTA)
    assert region.contains(theta[None]).all()
    counts = Counts(model)
    counts.add(0, 0, 1)
    assert likelihood_region(model, counts, DELTA).contains(theta[None]).all()


def test_more_data_shrink_the_region_and_beat_the_intervals():
    from rpl_agent.core.evidence.intervals import confidence_intervals
    from rpl_agent.core.regions.lifting import build_region

    widths = []
    for episodes in (100, 1000, 10000):
        model, _, counts = _data(_affine, episodes, seed=8)
        lower, upper = likelihood_region(model, counts, 1e-3).box()
        widths.append((upper - lower).mean())
    assert widths[0] > 2 * widths[1] > 4 * widths[2]
    lower, upper = build_region(model, *confidence_intervals(model, counts, "anytime", 1e-3)).box()
    assert widths[-1] < 0.9 * (upper - lower).mean()


def test_domain_without_interior_is_left_to_the_intervals():
    """A parameter that its bounds fix leaves no room for a mixture; the region is still valid and not empty."""
    rows = {0: {"a": {0: "p", 1: "q", 2: "1 - p - q"}}, 1: {"a": {0: 1}}, 2: {"a": {0: 1}}}
    domain = Domain.box({"p": (0.0, 0.6), "q": (0.3, 0.3)})
    model = build(0, lambda s: rows[s], domain=domain)
    counts = Counts(model)
    for successor, n in ((0, 40), (1, 30), (2, 30)):
        counts.add(0, 0, successor, n)
    assert not windows.supports(model)
    region = likelihood_region(model, counts, DELTA)
    assert region.contains(np.array([[0.4, 0.3]]))[0] and not region.contains(np.array([[0.05, 0.3]]))[0]
