"""Interquartile means, bootstrap intervals, arrival times, the paper's figures as data, and the list of tasks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import trim_mean

from rpl_agent.studies.experiments import suites
from rpl_agent.studies.experiments.tables import (
    TABLE_2,
    TABLE_3,
    TABLE_5,
    arrival,
    bootstrap,
    interquartile_mean,
    is_close,
    published,
)
from rpl_envs import INSTANCES


def test_the_interquartile_mean_is_the_mean_of_the_middle_half():
    values = np.random.default_rng(0).normal(size=40)
    assert interquartile_mean(values) == pytest.approx(trim_mean(values, 0.25))
    assert interquartile_mean([5.0]) == 5.0
    # three values: the middle one whole, a quarter of each neighbour's third
    assert interquartile_mean([0.0, 1.0, 5.0]) == pytest.approx((1 / 12 * 0 + 1 / 3 * 1 + 1 / 12 * 5) / 0.5)
    assert interquartile_mean([1.0, 2.0, 3.0, 4.0, math.inf]) < math.inf
    assert interquartile_mean([1.0, math.inf, math.inf, math.inf]) == math.inf


def test_the_bootstrap_covers_and_shrinks():
    rng = np.random.default_rng(1)
    small, large = bootstrap(rng.normal(size=10)), bootstrap(rng.normal(size=1000))
    assert small.low <= small.point <= small.high
    assert large.high - large.low < small.high - small.low
    assert bootstrap([2.0]) == (2.0, 2.0, 2.0)
    assert math.isnan(bootstrap([math.nan]).point)
    assert bootstrap([1.0, 2.0, 3.0]) == bootstrap([1.0, 2.0, 3.0])
    never = bootstrap([100.0, math.inf, math.inf, math.inf])
    assert never.point == math.inf and not math.isnan(never.low)


def test_arrival_means_to_stay():
    assert arrival([10, 20, 30, 40], [1.0, 0.5, 0.96, 0.99], 1.0, maximise=True) == 30
    assert arrival([10, 20], [0.5, 0.5], 1.0, maximise=True) == math.inf
    assert arrival([10, 20], [10.4, 10.5], 10.0, maximise=False) == 10
    assert arrival([10, 20], [None, 10.0], 10.0, maximise=False) == 20
    assert is_close(1.2, 1.0, maximise=True) and not is_close(math.inf, 1.0, maximise=False)


def test_the_paper_is_in_the_data():
    assert len(TABLE_2) == len(TABLE_3) == 18 * 4 and len(TABLE_5) == 18 * 6
    assert {name for name, _, _ in TABLE_2} == set(suites.TABLE_2_INSTANCES)
    cell = TABLE_2["Aircraft-200x40", "clopper-pearson", "rectangular"]
    assert (cell.lower, cell.upper, cell.gap, cell.total) == (0.769, 0.838, 0.09, 4464.25)
    split = TABLE_3["Engagement-1000", "clopper-pearson", "parameter"]
    assert (split.build, split.solve) == (0.91, 56.83) and split.total == pytest.approx(57.74)
    assert TABLE_5["Betting-135", "ellipsoid", "expression"].build == 1916.81
    # 6 of the 72 cells of Table 2 timed out; the abstract of the issue counts the same
    assert sum(cell.timed_out for cell in TABLE_2.values()) == 6
    assert published("Glider-71x67", "ellipsoid", "parameter").gap == 0.03
    assert published("Betting-140", "likelihood", "rectangular") is None


def test_published_totals_agree_with_their_parts():
    """Table 2's seconds are Table 3's build + solve, where the two tables show the same run."""
    close = 0
    for place, cell in TABLE_2.items():
        if not cell.timed_out and TABLE_3[place].total == pytest.approx(cell.total, abs=0.05):
            close += 1
    assert close >= 55


def test_the_tasks_of_the_paper():
    tasks = suites.paper(None, quick=False, seeds=2, budget=None)
    uniform = [t for t in tasks if t["kind"] == "uniform"]
    online = [t for t in tasks if t["kind"] == "online"]
    assert len(uniform) == 21 * len(suites.UNIFORM_SETS) and len(online) == 6 * 2 * len(suites.ONLINE_SETS)
    assert {t["instance"] for t in tasks} <= set(INSTANCES)
    assert len({suites.key(t) for t in tasks}) == len(tasks)
    assert len({suites.group(t) for t in uniform}) == 21
    assert set(suites.SETS) == set(suites.UNIFORM_SETS + suites.ONLINE_SETS)
    quick = suites.paper(["uniform"], quick=True, seeds=1, budget=50)
    assert {t["episodes"] for t in quick} == {50} and {t["kind"] for t in quick} == {"uniform"}


def test_checkpoints_are_spread_over_decades():
    points = suites.checkpoints(100_000)
    assert points[0] == 10 and points[-1] == 100_000 and {100, 1000, 10_000} <= set(points)
    assert suites.checkpoints(7) == [7]
