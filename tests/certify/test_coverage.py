"""Coverage at δ = 0.05 when the data decide: fixed-N intervals are seen to fail, anytime sets hold.

The samplers are those of the benchmark table (`benchmarks/coverage.py`), at a smaller size.
"""

import numpy as np
import pytest
from scipy import stats

from benchmarks.coverage import interval_failures, likelihood_failures
from rpl_agent.core.evidence import intervals
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Domain, Policy, Simulator, build
from rpl_agent.core.regions.lifting import build_region
from rpl_agent.guarantee.likelihood.refutation.misspecification import log_e_value
from rpl_agent.guarantee.likelihood.region import likelihood_region
from rpl_agent.studies.classical_sets import least_squares

DELTA = 0.05


def _limit(runs, delta=DELTA):
    """Failures that a method with error δ exceeds with probability 1e-4."""
    return int(stats.binom.ppf(1 - 1e-4, runs, delta))


def test_clopper_pearson_fails_when_data_decide_and_anytime_holds(sized):
    runs = sized(300, 600)
    fixed = interval_failures("clopper-pearson", "stop when certified", DELTA, runs, 1000, seed=1)
    valid = interval_failures("anytime", "stop when certified", DELTA, runs, 1000, seed=1)
    assert fixed > 5 * DELTA * runs
    assert valid <= _limit(runs)


@pytest.mark.parametrize("runs", [200, pytest.param(1500, marks=pytest.mark.nightly)])
def test_likelihood_holds_after_every_sample(runs):
    for schedule in ("split", "geometric"):
        for adaptive in (True, False):
            failures, mean = likelihood_failures(schedule, DELTA, runs, 500, seed=2, adaptive=adaptive)
            assert failures <= _limit(runs)
            assert mean < 1.5  # expectation 1, heavy tailed, cut at 1/δ


def _bandit():
    """Four one-step choices whose chances depend on two parameters."""
    rows = {
        0: {
            "a": {1: "0.2 + 0.6*p", 2: "0.8 - 0.6*p"},
            "b": {1: "0.7 - 0.4*p + 0.1*q", 2: "0.3 + 0.4*p - 0.1*q"},
            "c": {1: "0.5*q", 2: "0.5 - 0.25*q", 0: "0.5 - 0.25*q"},
            "d": {1: "0.3 + 0.3*q", 2: "0.7 - 0.3*q"},
        },
        1: {"a": {1: 1}},
        2: {"a": {2: 1}},
    }
    return build(0, lambda s: rows[s], domain=Domain.box(["p", "q"]), name="bandit"), np.array([0.8, 0.6])


@pytest.mark.parametrize("method", ["likelihood", "anytime"])
def test_agent_like_loop_keeps_its_promise(method, sized):
    """Optimism, doubling, stop when certified; the truth must be in the region at every look of a run."""
    model, theta = _bandit()
    probability = model.instantiate(theta).probability
    first = np.array([model.find_transition(model.find_row(0, a), 1) for a in range(4)])
    won = model.table.reduction.weights[model.expression[first]]
    base = model.table.constant[model.expression[first]]
    truth = model.table.reduction.coordinates(theta)
    runs, failures, stopped = sized(20, 80), 0, 0
    for run in range(runs):
        rng = np.random.default_rng(run)
        counts = Counts(model)
        for _ in range(14):
            if method == "likelihood":
                region = likelihood_region(model, counts, DELTA)
            else:
                region = build_region(model, *intervals.confidence_intervals(model, counts, "anytime", DELTA))
            if not region.contains(truth)[0]:
                failures += 1
                break
            lower, upper = base + region.minimize(won), base - region.minimize(-won)
            best = int(np.argmax(lower))
            if (lower[best] >= np.delete(upper, best)).all():
                stopped += 1
                break
            row = model.find_row(0, int(np.argmax(upper)))
            span = slice(model.row_ptr[row], model.row_ptr[row + 1])
            batch = np.zeros(model.num_transitions, dtype=np.int64)
            batch[span] = rng.multinomial(max(16, int(counts.transitions[span].sum())), probability[span])
            counts.add_batch(batch)
    assert failures <= DELTA * runs
    assert stopped > runs / 4


def test_fixed_size_coverage_of_every_set():
    """Fixed N: all intervals and the ellipsoid hold at δ = 0.1; the e-value does not refute a true model."""
    model, theta = _bandit()
    truth_x = model.table.reduction.coordinates(theta)[0]
    truth = model.table.at(theta)
    runs, delta = 300, 0.1
    failures = dict.fromkeys(("clopper-pearson", "anytime", "hoeffding", "ellipsoid", "e-value"), 0)
    simulator = Simulator(model.instantiate(theta), np.array([False, True, True]), 5, 9)
    for _ in range(runs):
        batch = np.zeros(model.num_transitions, dtype=np.int64)
        simulator.run(Policy.uniform(model), 150, batch)
        counts = Counts(model)
        counts.add_batch(batch)
        for method in intervals.METHODS:
            lower, upper = intervals.confidence_intervals(model, counts, method, delta)
            failures[method] += not ((lower <= truth) & (truth <= upper)).all()
        center, V, beta = least_squares(model, counts, delta)
        failures["ellipsoid"] += (truth_x - center) @ V @ (truth_x - center) > beta**2
        failures["e-value"] += log_e_value(model, counts) >= np.log(1 / delta)
    assert all(count <= _limit(runs, delta) for count in failures.values()), failures
