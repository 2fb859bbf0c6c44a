"""Uniform mixtures of the likelihood: bounds on their logarithm against quadrature."""

import numpy as np
import pytest
from scipy import integrate

from rpl_agent.core.model import Domain, build
from rpl_agent.guarantee.likelihood.chart import Observations, domain_chart, fit
from rpl_agent.guarantee.likelihood.refutation.uniform import Uniform, closed_form, finite_sum
from tests.reference import evidence as slow


def _coin():
    """One parameter, two rows with different expressions of it."""
    second = {"a": {0: "0.5*p + 0.25", 1: "0.75 - 0.5*p"}, "b": {0: "0.2*p", 1: "1 - 0.2*p"}}
    rows = {0: {"a": {0: "p", 1: "1 - p"}}, 1: second}
    return build(0, lambda s: rows[s], domain=Domain.box({"p": (0.0, 1.0)}), name="coin"), np.array([0.35])


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

    def integrand(p):
        return np.exp(-(slow.negative_log_likelihood(constant, weights, k, [p]) - base))

    low, high = max(0.0, center.z[0] - 14 * width), min(1.0, center.z[0] + 14 * width)
    exact = np.log(integrate.quad(integrand, low, high, points=[float(center.z[0])], limit=200)[0]) - base
    bound = closed_form(Uniform(0.0), Observations(constant, weights, k), chart, center)
    assert exact - 0.1 < bound <= exact + 1e-9
    assert exact - 0.1 < finite_sum(Observations(constant, weights, k), chart, center) < exact + 0.1


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


def test_the_ball_shrinks_near_the_boundary():
    """Near the domain's boundary the ball shrinks; the bound stays finite and below the exact value."""
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
