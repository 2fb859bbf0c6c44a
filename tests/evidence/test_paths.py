"""Bounds from counted paths: exact probabilities of a miss at any time, and runs of statistical model checking."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy import stats

import rpl_envs
from rpl_agent.agent.smc import PathCount, check
from rpl_agent.errors import DataError
from rpl_agent.evidence.ledger import split_paths
from rpl_agent.evidence.paths import reach_bounds
from rpl_agent.formats import prism
from rpl_agent.pipeline import Config

#: the sum of two dice by turns: six unknown coins, one number asked for
CHAIN = """
dtmc
module m
  s : [0..5] init 0;
  [a] s=0 -> 0.5 : (s'=1) + 0.5 : (s'=2);
  [b] s=1 -> 0.4 : (s'=0) + 0.3 : (s'=3) + 0.3 : (s'=4);
  [c] s=2 -> 0.2 : (s'=0) + 0.8 : (s'=5);
  [] s>2 -> true;
endmodule
"""


def misses(bounds, p: float, steps: int) -> float:
    """The exact probability that p is ever outside of bounds(k, n) for n = 1, …, steps tosses of a coin p."""
    alive, lost = {0: 1.0}, 0.0
    for n in range(1, steps + 1):
        after: dict[int, float] = {}
        for k, mass in alive.items():
            for more, chance in ((1, p), (0, 1.0 - p)):
                low, high = bounds(k + more, n)
                if low <= p <= high:
                    after[k + more] = after.get(k + more, 0.0) + mass * chance
                else:
                    lost += mass * chance
        alive = after
    return lost


#: bounds do not depend on the coin: each pair of counts is asked for once
known_bounds = cache(reach_bounds)


@pytest.mark.parametrize("p", [0.003, 0.1, 0.5, 0.97])
@pytest.mark.parametrize("width", [0.02, 0.3])
def test_looking_after_every_path_costs_no_more_than_delta(p, width):
    delta = 0.1
    assert misses(lambda k, n: known_bounds(k, n - k, n, delta, width), p, 120) <= delta
    assert misses(lambda k, n: known_bounds(k, 0, n, delta, width), p, 120) <= delta / 2  # failures are not told


def test_intervals_for_one_look_would_not_survive_it():
    """The same computation sees that Clopper and Pearson's interval is for one look only."""

    def one_look(k: int, n: int) -> tuple[float, float]:
        low = stats.beta.ppf(0.05, k, n - k + 1) if k else 0.0
        return low, stats.beta.ppf(0.95, k + 1, n - k) if k < n else 1.0

    assert misses(one_look, 0.5, 120) > 0.2


def test_the_width_is_that_of_the_variance():
    low, high = reach_bounds(1_000, 9_000, 10_000, 0.05, 0.02)
    normal = stats.norm.ppf(0.975) * np.sqrt(0.1 * 0.9 / 10_000)
    assert low < 0.1 < high and (high - low) / 2 < 1.6 * normal
    unplanned = reach_bounds(1_000, 9_000, 10_000, 0.05, 0.5)
    assert unplanned[0] < 0.1 < unplanned[1] and (unplanned[1] - unplanned[0]) / 2 < 2.5 * normal
    assert reach_bounds(0, 0, 1, 0.1, 0.1) == (0.0, 1.0)
    wide, told = reach_bounds(400, 500, 1_000, 0.05, 0.1), reach_bounds(400, 600, 1_000, 0.05, 0.1)
    assert wide[0] == told[0] and wide[1] > told[1]  # of a hundred paths it is not known how they end
    with pytest.raises(DataError, match="delta"):
        reach_bounds(1, 1, 2, 1.5, 0.1)


def test_the_planned_width_is_met_as_early_as_by_one_look():
    """ln(2/δ)/(2 h²) paths is what Hoeffding's inequality needs for one look at the worst coin."""
    hoeffding = np.log(2 / 0.05) / (2 * 0.05**2)
    for p in (1 / 6, 0.5, 0.61):
        n = next(
            n for n in range(50, 3_000, 10) if np.ptp(reach_bounds(round(p * n), n - round(p * n), n, 0.05, 0.1)) <= 0.1
        )
        assert n <= 1.1 * hoeffding


def test_both_shares_are_one_delta():
    model, paths = split_paths(0.01)
    assert model + paths <= 0.01 and min(model, paths) > 0.004


def own_env(question: str = "P=? [ F s=3 ]"):
    model = prism.loads(CHAIN, unknown="commands")
    pmdp, objective = model.objective(question)
    return pmdp, objective, rpl_envs.make_own(pmdp, objective, model.truth.tolist(), max_episode_steps=1000)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_chain_is_decided_by_its_paths(seed):
    """P = 0.5 · 0.3 / (1 − 0.5 · 0.4 − 0.5 · 0.2)."""
    found = check(own_env()[2], Config(delta=0.1), 0.1, budget=100_000, seed=seed)
    exact = 0.15 / 0.7
    assert found.decided and found.lower <= exact <= found.upper and found.paths is not None
    assert found.certificate.delta == pytest.approx(0.05)
    assert found.lower == max(found.certificate.lower, found.paths[0])
    assert found.certificate.gap > 0.1 and found.episodes <= 780  # the paths decided, not the certificate


def test_what_paths_do_not_tell():
    pmdp, objective, _ = own_env()
    assert PathCount.applies(pmdp, objective)
    assert not PathCount.applies(*own_env("P=? [ F<=5 s=3 ]")[:2])
    assert not PathCount.applies(*own_env("P=? [ F s=0 ]")[:2])
    text = CHAIN.replace("dtmc", "mdp").replace("[] s>2", "[d] s=1 -> (s'=4);\n  [] s>2")
    choice = prism.loads(text, unknown="commands")
    assert not PathCount.applies(*choice.objective("Pmax=? [ F s=3 ]"))
