"""Level sets of likelihoods that are not convex: no parameter of the set is left out of the region."""

import numpy as np
import pytest

from rpl_agent import Counts, build
from rpl_agent.core.errors import RPLWarning
from rpl_agent.guarantee.likelihood import windows
from rpl_agent.guarantee.likelihood.chart import parameter_chart
from rpl_agent.guarantee.likelihood.polynomial import cover as cover_module
from rpl_agent.guarantee.likelihood.polynomial.cover import around, cover
from rpl_agent.guarantee.likelihood.polynomial.parameters import parameter_blocks
from rpl_agent.guarantee.likelihood.region import likelihood_region
from tests.reference import cover as reference

SAME = "(p*q+(1-p)*(1-q))"
#: rows of a coin each: the probability of heads
COINS = {
    "twins": [SAME],
    "powers": ["0.5*p**3+0.5*q**2", "p"],
    "one": ["0.25+0.5*p**2-0.3*p"],
    "three": [f"r*{SAME}", "r"],
    "four": [f"{SAME}*r", "r*s+(1-r)*(1-s)", "s"],
}


def coins(name: str):
    heads = COINS[name]
    rows = {f"toss{k}": {"heads": text, "tails": f"1-({text})"} for k, text in enumerate(heads)}
    names = sorted({c for text in heads for c in text if c in "pqrs"})
    return build("s", lambda s: rows if s == "s" else {"stay": {s: 1}}, domain=dict.fromkeys(names, (0.02, 0.98)),
                 labels={"goal": lambda s: s == "heads"})  # fmt: skip


def tossed(pmdp, theta: np.ndarray, trials: int, seed: int) -> Counts:
    rng, counts = np.random.default_rng(seed), Counts(pmdp, schedule="split")
    p = pmdp.table.evaluate(theta).ravel()[pmdp.expression]
    start = pmdp.initial_state
    for part in range(4):
        batch = np.zeros(pmdp.num_transitions, np.int64)
        for row in range(pmdp.state_ptr[start], pmdp.state_ptr[start + 1]):
            span = slice(pmdp.row_ptr[row], pmdp.row_ptr[row + 1])
            batch[span] = rng.multinomial(max(trials // 4, 1), p[span])
        counts.add_batch(batch)
        if part == 0:
            counts.mark(0.5)
    return counts


def members(level_set, rng: np.random.Generator, number: int) -> np.ndarray:
    """Parameters of C: drawn from the whole domain and from its neighbourhoods, found by the definition."""
    chart, d = level_set.chart, level_set.chart.dimension
    everywhere = rng.uniform(0.02, 0.98, size=(number, d))
    inside = everywhere[level_set.values(chart.coordinates(everywhere)) <= level_set.level]
    near = np.vstack([inside, level_set.center.z[None]])
    root = np.linalg.inv(np.linalg.cholesky(level_set.center.precision))
    steps = rng.choice([0.3, 1.0, 3.0], size=(number, 1)) * (rng.normal(size=(number, d)) @ root)
    more = near[rng.integers(len(near), size=number)] + steps
    more = more[chart.contains(more)]
    return np.vstack([inside, more[level_set.values(chart.coordinates(more)) <= level_set.level]])


@pytest.mark.parametrize("trials", [20, pytest.param(2_000, marks=pytest.mark.nightly), 10**8])
@pytest.mark.parametrize("name", COINS)
def test_no_parameter_of_the_set_is_left_out(name, trials):
    pmdp, rng = coins(name), np.random.default_rng(trials)
    theta = rng.uniform(0.1, 0.9, pmdp.num_parameters)
    counts = tossed(pmdp, theta, trials, seed=1)
    (block,) = parameter_blocks(pmdp)
    assert block.chart.reduction is not None  # not convex
    level_set = windows.likelihood_set(counts, 0.05, parameter_chart(pmdp))
    points = members(level_set, rng, 4_000)
    assert len(points) > 30
    directions = rng.normal(size=(12, pmdp.num_parameters))
    assert ((points @ directions.T).max(axis=0) <= cover(level_set, directions)).all()
    low, high = points.min(axis=0), points.max(axis=0)
    found = around(level_set, low, high)
    if found is not None:
        center, H, radius2 = found
        assert (np.einsum("ij,jk,ik->i", points - center, H, points - center) <= radius2).all()
    region = likelihood_region(pmdp, counts, 0.05)  # at less than 0.05: a larger set, cut with anytime intervals
    assert region.contains(theta[None]).all()


@pytest.mark.parametrize("trials", [20, 100_000])
@pytest.mark.parametrize("name", COINS)
def test_boxes_are_those_of_the_slow_twin(name, trials):
    pmdp, rng = coins(name), np.random.default_rng(trials)
    counts = tossed(pmdp, rng.uniform(0.2, 0.8, pmdp.num_parameters), trials, seed=2)
    level_set = windows.likelihood_set(counts, 0.05, parameter_chart(pmdp))
    d, directions = pmdp.num_parameters, rng.normal(size=(5, pmdp.num_parameters))
    center = np.vstack([rng.uniform(0.02, 0.98, (60, d)), level_set.center.z + 0.02 * rng.normal(size=(60, d))])
    half = rng.choice([0.3, 0.05, 0.005], size=(120, 1)) * rng.uniform(0.5, 1.0, (120, d))
    wanted = reference.kept(level_set, center, half)
    found = cover_module._Cover(level_set, directions).kept(center, half)
    assert np.array_equal(found.center, wanted.center) and 0 < len(wanted.center) < 120 + (trials == 20)
    bowls = np.isfinite(wanted.radius2)
    assert np.array_equal(np.isfinite(found.radius2), bowls)
    for one, other in zip((found.shape, found.ball, found.radius2), (wanted.shape, wanted.ball, wanted.radius2)):
        assert np.allclose(one[bowls], other[bowls], rtol=1e-6, atol=1e-9)
    assert np.allclose(found.reach, wanted.support(directions), rtol=1e-6, atol=1e-9)


def test_both_parts_of_a_set_are_kept():
    """p q + (1 − p)(1 − q) is the same at 1 − p, 1 − q."""
    pmdp = coins("twins")
    counts = tossed(pmdp, np.array([0.9, 0.9]), 10_000, seed=3)
    region = likelihood_region(pmdp, counts, 0.05)
    assert region.contains(np.array([[0.9, 0.9], [0.1, 0.1]])).all()


def test_a_cover_that_ends_early_says_what_to_do(monkeypatch):
    pmdp = coins("three")
    counts = tossed(pmdp, np.array([0.3, 0.6, 0.5]), 2_000, seed=4)
    level_set = windows.likelihood_set(counts, 0.05, parameter_chart(pmdp))
    fine = cover(level_set, np.eye(3))
    monkeypatch.setattr(cover_module, "MOST_BOXES", 40)
    with pytest.warns(RPLWarning, match="not a product of affine terms.*3 parameters.*Split such a step in two"):
        coarse = cover(level_set, np.eye(3))
    assert (coarse >= fine - 1e-12).all() and coarse[2] > fine[2]


def test_the_hull_is_not_much_larger_than_the_set():
    pmdp, rng = coins("powers"), np.random.default_rng(5)
    counts = tossed(pmdp, np.array([0.6, 0.4]), 40_000, seed=2)
    level_set = windows.likelihood_set(counts, 0.05, parameter_chart(pmdp))
    points, directions = members(level_set, rng, 40_000), rng.normal(size=(8, 2))
    width = (points @ directions.T).max(axis=0) + (points @ -directions.T).max(axis=0)
    assert (cover(level_set, directions) + cover(level_set, -directions) <= 1.15 * width).all()
