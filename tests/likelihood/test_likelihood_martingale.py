"""The martingale property by exact enumeration, and the closed forms against quadrature."""

from itertools import product

import numpy as np
import pytest
from scipy import integrate

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Domain, build
from rpl_agent.core.native import core
from rpl_agent.guarantee.likelihood import mixture, windows
from rpl_agent.guarantee.likelihood.chart import Observations, domain_chart, fit
from rpl_agent.guarantee.likelihood.mixture import Gaussian, Uniform, closed_form, expand, particle_set, particles
from tests.reference import evidence as slow

STEPS = 7


def _coin():
    """One parameter, two rows with different expressions of it."""
    second = {"a": {0: "0.5*p + 0.25", 1: "0.75 - 0.5*p"}, "b": {0: "0.2*p", 1: "1 - 0.2*p"}}
    rows = {0: {"a": {0: "p", 1: "1 - p"}}, 1: second}
    return build(0, lambda s: rows[s], domain=Domain.box({"p": (0.0, 1.0)}), name="coin"), np.array([0.35])


def _bilinear():
    """Two parameters and their product, as in the polynomial benchmarks."""
    rows = {0: {"a": {0: "p*q", 1: "1 - p*q"}}, 1: {"a": {0: "p", 1: "1 - p"}, "b": {0: "q", 1: "1 - q"}}}
    return build(0, lambda s: rows[s], domain=["p", "q"], name="bilinear"), np.array([0.6, 0.7])


def _adaptive(model, state, successes, step):
    """A rule that depends on everything seen: the second action after an even number of returns to 0."""
    options = model.state_ptr[state + 1] - model.state_ptr[state]
    return int(model.action[model.state_ptr[state] + (successes + step) % options])


def _paths(model, theta):
    """(probability, records (s, a, s')) of every sequence of STEPS under the adaptive rule."""
    probability = model.instantiate(theta).probability
    for outcome in product(range(2), repeat=STEPS):
        state, weight, successes, records = 0, 1.0, 0, []
        for step, target in enumerate(outcome):
            action = _adaptive(model, state, successes, step)
            t = model.find_transition(model.find_row(state, action), target)
            if t < 0:
                weight = 0.0
                break
            weight *= probability[t]
            records.append((state, action, target))
            successes += target == 0
            state = target
        if weight > 0:
            yield weight, records


def _mark_time(records):
    """A stopping time: after the second return to 0, but no later than step 4."""
    returns = 0
    for k, (_, _, target) in enumerate(records, 1):
        returns += target == 0
        if returns == 2 or k == 4:
            return k
    raise AssertionError


@pytest.mark.parametrize("make", [_coin, _bilinear])
def test_particle_e_process_has_expectation_one(make):
    model, theta = make()
    truth = model.table.evaluate(theta)
    chart = domain_chart(model)
    total, mass = 0.0, 0.0
    cache = {}
    for weight, records in _paths(model, theta):
        stop = _mark_time(records)
        before, after = Counts(model, schedule="split"), Counts(model, schedule="split")
        before.add_many(*np.array(records[:stop]).T)
        if stop < STEPS:
            after.add_many(*np.array(records[stop:]).T)
        key = before.successes.tobytes()
        if key not in cache:
            prior = windows.window_prior(before.mark(0.5), chart)
            cache[key] = particle_set(prior, chart)
        points, count = cache[key]
        values = model.table.evaluate(points)
        ratio = np.prod((values / truth) ** after.successes, axis=1).sum() / count
        total += weight * ratio
        mass += weight
    assert mass == pytest.approx(1.0, abs=1e-12)
    assert total == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("make", [_coin, _bilinear])
def test_whole_e_process_is_a_supermartingale(make):
    """Origin window and marks together, as the region uses them, bounds on ln Q included."""
    model, theta = make()
    chart = domain_chart(model)
    x = model.table.reduction.coordinates(theta)
    expected = 0.0
    for weight, records in _paths(model, theta):
        counts = Counts(model, schedule="split")
        stop = _mark_time(records)
        counts.add_many(*np.array(records[:stop]).T)
        counts.mark()
        if stop < STEPS:
            counts.add_many(*np.array(records[stop:]).T)
        level_set = windows.likelihood_set(counts, 0.05, chart)
        if level_set is not None:
            expected += weight * float(np.exp(level_set.values(x)[0]))
    assert 0.05 < expected <= 1.0 + 1e-9


def test_particles_equal_their_definition_and_selection_only_lowers():
    model, _ = _bilinear()
    chart = domain_chart(model)
    counts = np.zeros(model.num_expressions)
    counts[~model.table.is_constant] = [30, 20, 25, 15, 11, 12]
    kept = np.flatnonzero(counts)
    constant, weights, k = model.table.constant[kept], model.table.reduction.weights[kept], counts[kept]
    center = fit(Observations(constant, weights, k), chart)
    prior = Gaussian(np.array([0.6, 0.6]), np.array([[60.0, 10.0], [10.0, 80.0]]))
    points, count = particle_set(prior, chart)
    g = np.array([slow.negative_log_likelihood(constant, weights, k, x) for x in chart.coordinates(points)])
    exact = np.log(np.mean(np.exp(-(g - g.min())))) - g.min()
    value, _ = particles(prior, Observations(constant, weights, k), chart, center)
    assert len(points) == count > 2 * mixture.EVALUATED
    assert exact - 0.7 < value <= exact


@pytest.mark.parametrize("make", [_coin, _bilinear])
@pytest.mark.parametrize("scale", [300, 3000, 30_000])
def test_expansion_bounds_the_likelihood_from_below(make, scale):
    """Every particle's likelihood is bounded, sharply so where there are data; far particles are dropped."""
    model, theta = make()
    chart = domain_chart(model)
    kept = np.flatnonzero(~model.table.is_constant)
    constant, weights = model.table.constant[kept], model.table.reduction.weights[kept]
    truth = model.table.evaluate(theta).ravel()[kept]
    rng = np.random.default_rng(scale)
    total = rng.poisson(scale * truth)
    counts = np.array([total - rng.binomial(total, share) for share in (0.05, 0.15)], dtype=float)
    center = fit(Observations(constant, weights, total.astype(float)), chart)
    local = expand(Observations(constant, weights, counts), chart, center)
    assert local.spread < 0.5
    prior = Gaussian(center.z + 0.5 / np.sqrt(np.diag(center.precision)), center.precision / 8)
    points = particle_set(prior, chart)[0]
    for j, k in enumerate(counts):
        bounds = np.empty(len(points))
        scratch = np.empty(len(center.z) + len(center.x))
        core.likelihood_bounds(chart.struct, local.struct, j, center.z, len(points), points, scratch, bounds)
        g = np.array([slow.negative_log_likelihood(constant, weights, k, x) for x in chart.coordinates(points)])
        assert (bounds >= g - local.error).all()
        near = np.isfinite(bounds)
        assert near.sum() > 20 and (bounds - g)[near].max() < 200.0 * local.spread**2
        assert g[~near].min(initial=np.inf) > g.min() + 4.0  # less than 2 % of the best
        exact = np.log(np.mean(np.exp(-(g - g.min())))) - g.min()
        mixed = mixture.log_mixture(prior, Observations(constant, weights, k), chart, center, local, j)
        share = 0.0 if chart.reduction is not None else np.log(mixture.PARTICLE_SHARE)
        assert exact + share - 0.1 < mixed <= exact + share


@pytest.mark.parametrize("seed", range(6))
def test_closed_form_is_below_quadrature_in_one_dimension(seed):
    rng = np.random.default_rng(seed)
    model, _ = _coin()
    chart = domain_chart(model)
    kept = np.flatnonzero(~model.table.is_constant)
    k = rng.integers(0, 400, len(kept)).astype(float)
    used = k > 0
    constant, weights, k = model.table.constant[kept][used], model.table.reduction.weights[kept][used], k[used]
    center = fit(Observations(constant, weights, k), chart)
    width = 1.0 / np.sqrt(center.precision[0, 0])
    base = slow.negative_log_likelihood(constant, weights, k, center.z)
    for prior in (Uniform(0.0), Gaussian(center.z + rng.normal(size=1) * width, center.precision / 9)):

        def integrand(p, prior=prior):
            value = np.exp(-(slow.negative_log_likelihood(constant, weights, k, [p]) - base))
            if isinstance(prior, Gaussian):
                q = prior.precision[0, 0]
                value *= np.sqrt(q / (2 * np.pi)) * np.exp(-0.5 * q * (p - prior.mean[0]) ** 2)
            return value

        low, high = max(0.0, center.z[0] - 14 * width), min(1.0, center.z[0] + 14 * width)
        exact = np.log(integrate.quad(integrand, low, high, points=[float(center.z[0])], limit=200)[0]) - base
        bound = closed_form(prior, Observations(constant, weights, k), chart, center)
        assert exact - 0.1 < bound <= exact + 1e-9


def test_closed_form_is_below_quadrature_in_two_dimensions():
    mixed = {"a": {0: "0.5*p + 0.5*q", 2: "1 - 0.5*p - 0.5*q"}}
    rows = {0: {"a": {0: "p", 1: "q", 2: "1 - p - q"}}, 1: mixed, 2: {"a": {2: 1}}}
    model = build(0, lambda s: rows[s], domain=Domain.box(["p", "q"]).with_simplex())
    chart = domain_chart(model)
    kept = np.flatnonzero(~model.table.is_constant)
    grid = (np.arange(600) + 0.5) / 600
    points = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    points = points[points.sum(axis=1) < 1]
    constant, weights = model.table.constant[kept], model.table.reduction.weights[kept]
    for seed in range(4):
        k = np.random.default_rng(seed).integers(5, 60, len(kept)).astype(float)
        g = -(np.log(constant + points @ weights.T) @ k)
        exact = np.log(np.exp(-(g - g.min())).sum() / 600**2 / 0.5) - g.min()
        center = fit(Observations(constant, weights, k), chart)
        bound = closed_form(Uniform(np.log(0.5)), Observations(constant, weights, k), chart, center)
        assert exact - 0.3 < bound <= exact + 1e-3  # the midpoint rule's own error


def test_wider_ball_and_shares_are_used():
    """Near the domain's boundary the ball shrinks; the bound stays finite and below the particles' exact value."""
    model, _ = _coin()
    chart = domain_chart(model)
    kept = np.flatnonzero(~model.table.is_constant)
    f = {str(model.table.polynomial(i)): j for j, i in enumerate(kept)}
    k = np.zeros(len(kept))
    k[f["p"]] = 50
    constant, weights = model.table.constant[kept], model.table.reduction.weights[kept]
    observed = Observations(constant, weights, k).used
    center = fit(observed, chart)
    bound = closed_form(Uniform(0.0), observed, chart, center)
    assert np.log(1 / 51) - 3.0 < bound < np.log(1 / 51)
