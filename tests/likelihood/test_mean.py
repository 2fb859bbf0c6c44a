"""Intervals of a mean: the supermartingale by enumeration, misses at any time, rounding, width."""

from itertools import pairwise, product

import mpmath
import numpy as np
import pytest
from scipy import stats

from rpl_agent.core.errors import DataError
from rpl_agent.guarantee.likelihood.bets import mean
from rpl_agent.guarantee.likelihood.bets.mean import mean_interval

DELTA = 0.1
LAWS = {
    "fair": (np.array([0.0, 1.0]), np.array([0.5, 0.5])),
    "rare": (np.array([0.0, 1.0]), np.array([0.97, 0.03])),
    "three": (np.array([0.0, 0.4, 1.0]), np.array([0.2, 0.5, 0.3])),
    "narrow": (np.array([0.3, 0.4]), np.array([0.9, 0.1])),
}


@pytest.mark.parametrize("width", [None, 0.1])
@pytest.mark.parametrize("law", LAWS)
def test_money_does_not_grow_on_average(law, width):
    """Every sequence: E M(μ) ≤ 1 on both sides."""
    outcomes, chances = LAWS[law]
    mu, expected, mass = outcomes @ chances, np.zeros(2), 0.0
    for sequence in product(range(len(outcomes)), repeat=6 if len(outcomes) == 3 else 9):
        x = outcomes[list(sequence)]
        staked, paid, gain, loss = (sums[-1] for sums in mean.cumulative_bets(x, np.log(2 / DELTA), width))
        weight = np.prod(chances[list(sequence)])
        expected += weight * np.exp([gain + paid - staked * mu, loss - paid + staked * mu])
        mass += weight
    assert mass == pytest.approx(1.0) and (expected <= 1.0 + 1e-12).all() and (expected > 0.3).all()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("width", [None, 0.05, 0.3])
@pytest.mark.parametrize("runs", [120, pytest.param(1000, marks=pytest.mark.nightly)])
def test_misses_at_any_time_are_no_more_than_allowed(law, width, runs):
    """Bounds are the best of all moments so far, so one call sees all of them."""
    outcomes, chances = LAWS[law]
    rng, mu = np.random.default_rng(7), outcomes @ chances
    found = [mean_interval(rng.choice(outcomes, 400, p=chances), 0.0, 1.0, DELTA, width) for _ in range(runs)]
    misses = sum(not low <= mu <= high for low, high in found)
    assert misses <= stats.binom.ppf(0.9999, runs, DELTA)


@pytest.mark.parametrize("planned", [400, 10_000])
def test_values_may_end_before_the_planned_number(planned):
    """Whoever stops when the interval looks best sees the intervals of all moments: those of the planned bets."""
    rng = np.random.default_rng(11)
    misses = 0
    for _ in range(120):
        x = (rng.random(400) < 0.5).astype(float)
        found = [mean_interval(x[:n], 0.0, 1.0, DELTA, planned=planned) for n in (10, 40, 100, 200, 400)]
        assert all(a[0] <= b[0] + 1e-9 and b[1] <= a[1] + 1e-9 for a, b in pairwise(found))
        misses += any(not low <= 0.5 <= high for low, high in found)
    assert misses <= stats.binom.ppf(0.9999, 120, DELTA)
    with pytest.raises(DataError, match="more than the 399"):
        mean_interval(x, 0.0, 1.0, DELTA, planned=399)


def test_a_stake_that_knows_the_next_number_is_found_out(monkeypatch):
    """A tenth more on what will exceed the mean, a tenth less on what will not."""
    honest, rng, seen = mean.running_mean, np.random.default_rng(3), {}

    def cheating(numbers, first):
        seen.setdefault(first, numbers)
        return honest(numbers, first) * (1.0 if first == 0.5 else np.where(seen[0.5] > 0.5, 0.8, 1.2))

    monkeypatch.setattr(mean, "running_mean", cheating)
    misses = 0
    for _ in range(100):
        seen.clear()
        low, high = mean_interval((rng.random(400) < 0.5).astype(float), 0.0, 1.0, DELTA)
        misses += not low <= 0.5 <= high
    assert misses > stats.binom.ppf(0.9999, 100, DELTA)


def test_the_width_is_near_that_of_a_single_look():
    rng, n = np.random.default_rng(1), 4000
    x = rng.choice([0.0, 0.4, 1.0], n, p=[0.2, 0.5, 0.3])
    low, high = mean_interval(x, 0.0, 1.0, DELTA)
    ideal = 2 * stats.norm.isf(DELTA / 2) * x.std() / n**0.5
    assert ideal < high - low < 1.4 * ideal


def test_a_planned_width_is_met_about_as_early_as_by_one_look():
    """2σ²/h² · ln 2/δ values; the mean and the variance so far cost a little more."""
    rng = np.random.default_rng(5)
    x, half = rng.choice([0.0, 0.4, 1.0], 20_000, p=[0.2, 0.5, 0.3]), 0.02
    needed = 2 * x.var() / half**2 * np.log(2 / DELTA)
    n = next(n for n in range(100, 20_000, 20) if np.ptp(mean_interval(x[:n], 0.0, 1.0, DELTA, 2 * half)) <= 2 * half)
    assert n < 1.1 * needed


def test_other_units_and_what_is_refused():
    x = np.array([0.0, 1.0, 1.0, 0.0, 1.0] * 40)
    low, high = mean_interval(x, 0.0, 1.0, DELTA)
    assert mean_interval(-5 + 20 * x, -5.0, 15.0, DELTA) == pytest.approx((-5 + 20 * low, -5 + 20 * high))
    assert mean_interval(np.zeros(3), 0.0, 0.0, DELTA) == (0.0, 0.0) and mean_interval([], 0.0, 2.0, DELTA) == (
        0.0,
        2.0,
    )
    for bad, bounds in ((x + 0.1, (0.0, 1.0)), (x * np.nan, (0.0, 1.0)), (x, (1.0, 0.0)), (x, (0.0, np.inf))):
        with pytest.raises(DataError):
            mean_interval(bad, *bounds, DELTA)
    with pytest.raises(DataError, match="delta"):
        mean_interval(x, 0.0, 1.0, 1.0)


@pytest.mark.parametrize("width", [None, 0.3])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3e6, 2e6), (5e5, 5e5 + 1.0), (0.0, 7.3)])
def test_bounds_are_those_of_the_theorem_rounded_outward(low, high, width, sized):
    """The same stakes with 40 digits: no bound is inside of the exact one, and none is far outside."""
    rng = np.random.default_rng(11)
    for n in (1, 2, 7, 30, 200, *sized((500,), (200, 200, 2000, 2000))):
        x = rng.choice([0.0, 0.3, 1.0], n)
        values = np.clip(low + (high - low) * x, low, high)
        planned = None if width is None else width * (high - low)
        found = mean_interval(values, low, high, DELTA, planned)
        with mpmath.workdps(40):
            exact = exact_interval(values, low, high, planned)
            room = [1e-9 * (high - low), 4e-15 * (abs(low) + abs(high))]
            assert found[0] <= exact[0] <= found[0] + sum(room)
            assert found[1] - sum(room) <= exact[1] <= found[1]


def exact_interval(values: np.ndarray, low: float, high: float, width: float | None) -> tuple[mpmath.mpf, mpmath.mpf]:
    """The bounds of the stakes that `cumulative_bets` places; what it stakes and around what are floats."""
    size, level = high - low, np.log(2.0 / DELTA)
    x = (values - low) / size
    c = mean.running_mean(x, 0.5)
    staked = mean.cumulative_bets(x, level, None if width is None else width / size)[0]
    bets = [mpmath.mpf(float(now)) - mpmath.mpf(float(before)) for before, now in zip([0.0, *staked], staked)]
    shares = [(mpmath.mpf(v) - mpmath.mpf(low)) / mpmath.mpf(size) for v in values.tolist()]
    goal = mpmath.log(2 / mpmath.mpf(DELTA))
    total, paid, gain, loss = (mpmath.mpf(0) for _ in range(4))
    bottom, top = mpmath.mpf(0), mpmath.mpf(1)
    for bet, center, share in zip(bets, map(mpmath.mpf, c.tolist()), shares):
        total, paid = total + bet, paid + bet * center
        gain, loss = gain + mpmath.log1p(bet * (share - center)), loss + mpmath.log1p(-bet * (share - center))
        bottom = max(bottom, (paid + gain - goal) / total)
        top = min(top, (paid - loss + goal) / total)
    return mpmath.mpf(low) + bottom * size, mpmath.mpf(low) + top * size


def test_a_planned_width_is_in_the_units_of_the_values():
    x = np.array([0.0, 1.0, 1.0, 0.0, 1.0] * 40)
    low, high = mean_interval(x, 0.0, 1.0, DELTA, 0.2)
    assert mean_interval(-5 + 20 * x, -5.0, 15.0, DELTA, 4.0) == pytest.approx((-5 + 20 * low, -5 + 20 * high))
