"""The C functions of the likelihood against their definitions."""

import numpy as np
import pytest
from scipy import special

from rpl_agent.core.model.expressions import Reduction
from rpl_agent.core.native import core
from rpl_agent.guarantee.likelihood.chart import Observations, ParameterChart
from tests.reference import likelihood as slow


def _chart(rng, polynomial):
    """A random chart: the unit box cut by one row, with two to five monomials where it is polynomial."""
    k = int(rng.integers(1, 5))
    A = np.vstack([np.eye(k), -np.eye(k), rng.random((1, k))])
    b = np.concatenate([np.ones(k), np.zeros(k), [0.8 * k]])
    reduction = None
    if polynomial:
        exponents = rng.integers(0, 4, (int(rng.integers(2, 6)), k))
        matrix = rng.normal(size=(int(rng.integers(1, 5)), len(exponents)))
        reduction = Reduction(matrix, tuple(range(len(matrix))), matrix, False, exponents)
    return ParameterChart(A, b, np.full(k, 0.3), reduction)


def _observations(rng, r, windows):
    n = int(rng.integers(1, 30))
    weights = 0.1 * rng.normal(size=(n, r)) / r
    counts = np.floor(rng.gamma(0.5, 200.0, (windows, n)))
    return Observations(0.5 + 0.4 * rng.random(n), weights, counts)


@pytest.mark.parametrize("seed", range(8))
def test_coordinates_and_their_derivatives(seed):
    rng = np.random.default_rng(seed)
    chart = _chart(rng, polynomial=seed % 4 > 0)
    none = np.zeros((0, chart.dimension), dtype=int), np.zeros((chart.dimension, 0))
    shape = none if chart.reduction is None else (chart.reduction.exponents, chart.reduction.matrix)
    z, rays = rng.random((6, chart.dimension)), rng.normal(size=(6, chart.dimension))
    expected = np.array([slow.coordinates(*shape, point) for point in z])
    np.testing.assert_allclose(chart.coordinates(z), expected, rtol=1e-12, atol=1e-14)
    h = 1e-5
    for place, ray in zip(z, rays):
        steps = [slow.coordinates(*shape, place + side * h * ray) for side in (1, -1)]
        if chart.reduction is not None:
            change = (steps[0] - steps[1]) / (2 * h)
            np.testing.assert_allclose(chart.jacobian(place) @ ray, change, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_newton_finds_the_least_sum_over_windows(seed):
    rng = np.random.default_rng(seed)
    chart, barrier = _chart(rng, polynomial=False), 0.05 ** (seed % 3)
    k, windows = chart.dimension, int(rng.integers(1, 6))
    seen, offsets = _observations(rng, k, windows), rng.normal(size=windows)
    if seed == 7:  # no data in one direction, and hardly a barrier: nothing but rounding is curved there
        seen, barrier = Observations(seen.constant, seen.weights * (np.arange(k) > 0), 1e12 * seen.counts), 1e-9

    def penalised(x):
        terms = offsets - seen.counts @ np.log(seen.values(x))
        return special.logsumexp(terms) - barrier * np.log(chart.b - chart.A @ x).sum()

    x = chart.start.copy()
    core.newton_of_sum(chart.struct, seen.struct, offsets, barrier, 60, 1e-8, np.empty(99 + windows + 30), x)
    assert (chart.A @ x < chart.b).all()
    least = penalised(x)
    for size in (1e-1, 1e-2, 1e-3):
        for point in x + size * rng.normal(size=(50, k)):
            if (chart.A @ point < chart.b).all():
                assert penalised(point) >= least - 1e-7 - 1e-12 * abs(least)


def test_sums_of_exponentials():
    for g in (np.array([800.0, 801.0, np.inf, 900.0]), np.full(3, np.inf), np.array([-1e4])):
        least = np.empty(1)
        total = core.exponential_sum(len(g), g, least)
        assert least[0] == g.min()
        if np.isfinite(least[0]):
            assert np.log(total) - least[0] == pytest.approx(special.logsumexp(-g))
        else:
            assert total == 0.0


def test_dirichlet_marginals():
    rows = [[3, 0, 5], [7], [0, 0], [1, 10**6], [2, 2, 2, 2]]
    row_ptr = np.cumsum([0, *map(len, rows)])
    transitions = np.array([n for row in rows for n in row])
    found = np.empty(len(rows))
    core.dirichlet_log_marginals(len(rows), row_ptr, transitions, found)
    assert found == pytest.approx([slow.dirichlet_log_marginal([row]) for row in rows], abs=1e-8)  # of terms of 1e7
