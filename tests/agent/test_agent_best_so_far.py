"""The running certificate: never worse in a run, saved and resumed, and kept apart where events differ."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from rpl_agent import RPLAgent
from rpl_agent.agent.callbacks import CertificateLog
from rpl_agent.core.coupled.regret import same_policy
from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Objective, Policy, Sense, build
from rpl_agent.guarantee.best_so_far import best_so_far
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import Config
from rpl_agent.guarantee.verify import verify
from rpl_envs import benchmark
from tests.small_worlds import make_worlds_small

pytestmark = pytest.mark.short_runs

WORLD = {"n": 4}


@pytest.fixture(scope="module")
def certificates():
    """Certificates of growing data."""
    world = benchmark("Betting", **WORLD)
    rng = np.random.default_rng(0)
    from rpl_agent.core.evidence.sampling import uniform_counts

    return [
        certify(
            world.pmdp, uniform_counts(world.pmdp, world.objective, np.array(world.theta), int(n), 50, int(seed)),
            world.objective, Config(relaxation="coupled"),
        )
        for n, seed in zip((20, 40, 60, 80), rng.integers(1, 1000, 4))
    ]  # fmt: skip


def test_both_bounds_only_improve(certificates):
    best = None
    for momentary in certificates:
        after = best_so_far(best, momentary)
        assert (after.momentary_lower, after.momentary_upper) == (momentary.lower, momentary.upper)
        assert after.lower >= momentary.lower and after.upper <= momentary.upper
        if best is not None:
            assert after.lower >= best.lower and after.upper <= best.upper
        best = after


def test_the_policy_belongs_to_the_guarantee(certificates):
    good = replace(certificates[0], lower=certificates[1].lower + 0.5, upper=certificates[1].upper + 5)
    after = best_so_far(good, certificates[1])
    assert after.policy is good.policy and after.lower == good.lower and after.upper == certificates[1].upper
    worse = replace(certificates[0], lower=certificates[1].lower - 0.5, upper=certificates[1].upper + 5)
    assert best_so_far(worse, certificates[1]).policy is certificates[1].policy
    cost = [replace(c, objective=Objective.cost("x", target="y")) for c in certificates[:2]]
    assert cost[0].objective.sense is Sense.MIN
    kept = best_so_far(replace(cost[0], upper=cost[1].upper - 0.5, lower=cost[1].lower - 9), cost[1])
    assert kept.policy is cost[0].policy and kept.upper == cost[1].upper - 0.5


def test_bounds_that_cross_refute_the_model(tmp_path):
    """A guarantee above what is possible now went on without a word; it is evidence, and stays so in a checkpoint."""
    world = benchmark("Betting", **WORLD)
    agent = RPLAgent(seed=0, pmdp=world.pmdp, objective=world.objective)
    agent.session.start(world.pmdp, world.objective)
    counts = uniform_counts(world.pmdp, world.objective, np.array(world.theta), 200, 50, 3)
    agent.counts.add_batch(counts.transitions)
    first = agent.certify()
    assert not first.refuted
    agent.session.certificate = replace(first, lower=first.upper + 0.5, upper=first.upper + 1.0)
    with pytest.warns(RPLWarning, match="two certificates of this run contradict each other"):
        second = agent.certify()
    assert second.refuted and "contradict each other" in second.fallback and second.lower <= second.upper
    assert second.lower <= first.lower and second.upper >= first.upper
    assert agent.certify().refuted
    agent.save(tmp_path / "agent.zip")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert RPLAgent.load(tmp_path / "agent.zip", pmdp=world.pmdp).certify().refuted


@pytest.mark.parametrize(
    "change",
    [
        {"anytime": False}, {"refuted": True}, {"fallback": "untied"}, {"delta": 0.5}, {"model_hash": "other"},
        {"confidence": "anytime"}, {"evaluated": True}, {"empty": True}, {"lower": 1e9, "upper": 2e9},
        {"basis": "table"},
    ],
    ids=str,
)  # fmt: skip
def test_other_events_are_not_mixed(certificates, change):
    momentary = certificates[1]
    earlier = replace(certificates[0], **{"lower": momentary.lower + 0.1, "upper": momentary.upper} | change)
    after = best_so_far(earlier, momentary)
    assert (after.lower, after.upper) == (momentary.lower, momentary.upper)


def test_a_run_never_loses_what_it_had(tmp_path, monkeypatch):
    import gymnasium as gym

    import rpl_envs  # noqa: F401

    make_worlds_small(monkeypatch)
    seen = []

    def agent():
        return RPLAgent(seed=3, delta=0.05, relaxation="coupled")

    one = agent()
    for _ in range(4):
        one.learn(gym.make("rpl/Betting-25-v0") if one.get_env() is None else None, 30, log_interval=10)
        seen.append((one.certificate.lower, one.certificate.upper))
    assert all(b[0] >= a[0] and b[1] <= a[1] for a, b in pairwise(seen))
    one.save(tmp_path / "agent.zip")
    two = RPLAgent.load(tmp_path / "agent.zip")
    assert two.certificate.lower == one.certificate.lower and two.certificate.upper == one.certificate.upper
    two.learn(budget=10)
    assert two.certificate.lower >= one.certificate.lower and two.certificate.upper <= one.certificate.upper
    assert (two.certificate.momentary_lower, two.certificate.momentary_upper) != (np.nan, np.nan)


def test_attribution_names_the_parameter_that_matters():
    world = benchmark("Aircraft", X=6, Y=4)
    from rpl_agent.core.evidence.sampling import uniform_counts

    counts = uniform_counts(world.pmdp, world.objective, np.array(world.theta), 3000, 100, 1)
    found = certify(world.pmdp, counts, world.objective, Config(relaxation="coupled"))
    assert set(found.attribution) == set(world.pmdp.table.parameters)
    assert sum(found.attribution.values()) == pytest.approx(1.0)
    few = certify(
        world.pmdp, uniform_counts(world.pmdp, world.objective, np.array(world.theta), 600, 100, 1), world.objective
    )
    close = 0.01 * few.estimate
    assert few.episodes_for == {"regret of 1%": math.ceil(600 * (few.regret / close - 1.0))}
    assert "more episodes" in few.explanation and "of the gap is" in str(few)
    stored = type(found).from_json(found.to_json())
    assert stored.attribution == found.attribution and stored.episodes_for == found.episodes_for


def test_shares_follow_the_information():
    """Ten times the data of one coin leaves it with less of the gap."""
    from rpl_agent.core.model import Domain, build

    pmdp = build(
        "s", lambda s: {"a": {"s": {"t": "p", "bad": "1-p"}, "t": {"good": "q", "bad": "1-q"}}.get(s, {s: 1})},
        domain=Domain.box(["p", "q"]), labels={"good": lambda s: s == "good"},
    )  # fmt: skip
    shares = []
    for scale in (1, 10):
        counts, row = Counts(pmdp), pmdp.transition_row
        coins = np.diff(pmdp.row_ptr)[row] == 2
        counts.add_batch(np.where(coins, np.where(row == 0, 50 * scale, 50), 0))
        shares.append(certify(pmdp, counts, Objective.reach("good"), Config(relaxation="coupled")).attribution)
    assert shares[1]["p"] < 0.3 < shares[0]["p"] and shares[1]["q"] > 0.7


def test_episodes_are_counted_where_transitions_pay():
    """Rewards r(s, a, s') put a state that nobody sees before each successor: returns to the start were not seen."""
    rows = {0: {"toss": {0: "p", 1: "1-p"}}, 1: {"end": {1: 1}}}
    pmdp = build(0, rows.__getitem__, domain=["p"], rewards={"r": lambda s, a, t: float(t)}, labels={"end": bool})
    counts = uniform_counts(pmdp, Objective.reach("end"), np.array([0.7]), 50, 1000, 1)
    assert counts.total > 100 and counts.episodes == 50


def test_the_regret_belongs_to_the_policy(certificates):
    """Of the policy that is kept; of one and the same policy the least so far; never more than the gap."""
    old, new = certificates[0], certificates[1]
    good = replace(old, lower=new.lower + 0.5, upper=new.upper + 5, regret=0.25)
    expected = 0.01 if same_policy(old.policy, new.policy) else 0.25
    assert best_so_far(good, replace(new, regret=0.01)).regret == expected
    kept = best_so_far(replace(new, regret=0.125, lower=new.lower - 1), replace(new, regret=0.25))
    assert kept.regret == 0.125 and kept.policy is new.policy
    narrow = best_so_far(replace(new, lower=new.upper - 0.0625, regret=5.0), replace(new, regret=0.5))
    assert narrow.regret == 0.0625


def test_with_less_regret_preferred_the_guarantee_is_that_of_the_policy(certificates):
    old, new = (replace(c, prefer="regret") for c in certificates[:2])
    other = Policy.deterministic(np.where(old.policy.rows == old.policy.rows.max(), 0, old.policy.rows))
    old = replace(old, policy=other, lower=new.lower + 0.5, upper=new.upper + 5, regret=0.25)
    assert best_so_far(old, replace(new, regret=0.125)).lower == new.lower
    assert best_so_far(old, replace(new, regret=0.5)).lower == new.lower + 0.5


def test_regrets_of_a_run_only_fall_while_the_policy_is_the_same(tmp_path):
    """Saved and resumed, with the data that each claim rests on."""
    log = CertificateLog()
    agent = RPLAgent("rpl/Betting-25-v0", seed=1).learn(budget=300, log_interval=50, callback=log)
    regrets = [entry["regret"] for entry in log.history]
    assert regrets[-1] < 0.2 * regrets[0] and all(np.isfinite(regrets))
    assert set(agent.session.earlier) == {"lower", "upper", "regret"}
    agent.save(tmp_path / "agent.zip")
    again = RPLAgent.load(tmp_path / "agent.zip")
    assert again.certificate.regret == agent.certificate.regret
    assert {k: c.total for k, c in again.session.earlier.items()} == {
        k: c.total for k, c in agent.session.earlier.items()
    }
    assert verify(agent.certificate, agent.pmdp, agent.counts, agent.session.earlier).problems == []
