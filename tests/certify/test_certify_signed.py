"""Certificates and proofs of totals of gains and costs, in models with cycles whose plays end."""

from __future__ import annotations

import copy
import dataclasses
import math

import numpy as np
import pytest

from rpl_agent import ModelError, Objective, build, certify
from rpl_agent.agent.evaluation import optimal_value
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Policy, Sense, Unreached
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.pipeline import Config, certify_uncertainty, uncertainty_from
from rpl_agent.guarantee.proof import prove
from rpl_agent.guarantee.shown import true_value
from tests.solver.test_solver_signed import random_model

pytestmark = pytest.mark.usefixtures("shared_particles")

THETA = np.array([0.4, 0.6])
OBJECTIVES = [
    Objective.reward("pay", target="end"), Objective.cost("price", target="end"), Objective.total("pay"),
    Objective.total("pay", target="end", sense=Sense.MIN),
]  # fmt: skip


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=Objective.describe)
def test_certificates_hold(objective, loops, sized):
    if loops and objective.sense is Sense.MIN and objective.reward_name == "pay":
        pytest.skip("waiting would gain forever")
    for seed in range(sized(1, 6)):
        pmdp = random_model(np.random.default_rng(seed), 6, loops)
        counts, best = uniform_counts(pmdp, objective, THETA, 200, 500, seed), optimal_value(pmdp, objective, THETA)
        for relaxation in ("coupled", "rectangular", "tied"):
            found = certify(pmdp, counts, objective, relaxation=relaxation)
            own = true_value(pmdp, objective, found.policy, THETA)
            low, high = (own, best) if objective.sense is Sense.MAX else (best, own)
            assert found.checked and found.lower <= low + 1e-9 and high - 1e-9 <= found.upper, (seed, relaxation)
            assert math.isfinite(found.gap) and not found.notes


def test_more_data_and_one_parameter_for_all_rows_are_tighter():
    pmdp, objective = random_model(np.random.default_rng(1), 6, False), OBJECTIVES[0]
    gaps = {}
    for episodes in (200, 3000):
        counts = uniform_counts(pmdp, objective, THETA, episodes, 500, 3)
        for relaxation in ("coupled", "rectangular"):
            gaps[episodes, relaxation] = certify(pmdp, counts, objective, relaxation=relaxation).gap
    assert gaps[3000, "coupled"] < 0.95 * gaps[3000, "rectangular"]
    assert gaps[3000, "coupled"] < 0.4 * gaps[200, "coupled"]


def test_a_given_policy_is_evaluated():
    pmdp, objective = random_model(np.random.default_rng(4), 6, False), OBJECTIVES[0]
    counts = uniform_counts(pmdp, objective, THETA, 300, 500, 1)
    shares = 1.0 / np.diff(pmdp.state_ptr)[pmdp.row_state]
    for policy in (Policy.deterministic(pmdp.state_ptr[:-1]), Policy.randomised(shares)):
        found = certify(pmdp, counts, objective, policy=policy)
        assert found.lower <= true_value(pmdp, objective, policy, THETA) <= found.upper and math.isfinite(found.gap)


def test_before_any_data_there_is_no_bound_and_the_certificate_says_why():
    pmdp = random_model(np.random.default_rng(0), 6, False)
    for objective in OBJECTIVES:
        found = certify(pmdp, Counts(pmdp), objective)
        assert (found.lower, found.upper) == (-math.inf, math.inf)
        assert "plays may never end" in str(found)


def test_an_error_of_rewards_widens_the_bounds():
    pmdp, objective = random_model(np.random.default_rng(1), 6, False), OBJECTIVES[0]
    counts, config = uniform_counts(pmdp, objective, THETA, 300, 500, 1), Config(relaxation="rectangular")
    uncertainty = uncertainty_from(pmdp, counts, config, objective)
    plain = certify_uncertainty(pmdp, counts, uncertainty, objective, config)
    wider = certify_uncertainty(pmdp, counts, uncertainty, objective, config, reward_error=0.1)
    assert wider.lower < plain.lower and plain.upper < wider.upper
    best = {r: optimal_value(_scaled(pmdp, *r), objective, THETA) for r in ((0.9, 1.1), (1.1, 0.9))}
    assert wider.lower <= min(best.values()) and max(best.values()) <= wider.upper
    proof = prove(pmdp, counts, wider)
    with pytest.raises(checker.Refused, match=r"the error of rewards 0\.1"):
        checker.check(proof)


def _scaled(pmdp, gains: float, costs: float):
    """The model with gains and costs multiplied by factors."""
    reward = pmdp.rewards["pay"]
    row, state = (np.where(x > 0.0, gains * x, costs * x) for x in (reward.row, reward.state))
    return dataclasses.replace(pmdp, rewards={**pmdp.rewards, "pay": dataclasses.replace(reward, row=row, state=state)})


@pytest.mark.parametrize("objective", [*OBJECTIVES[:2], OBJECTIVES[3]], ids=Objective.describe)
def test_the_checker_proves_them_and_nothing_beyond(objective):
    pmdp = random_model(np.random.default_rng(3), 4, False)
    counts = uniform_counts(pmdp, objective, THETA, 300, 500, 2)
    certificate = certify(pmdp, counts, objective)
    proof = prove(pmdp, counts, certificate)
    found = checker.check(proof)
    low, high = found["lower"], found["upper"]
    best = optimal_value(pmdp, objective, THETA)
    assert certificate.lower - 1e-9 <= best <= certificate.upper + 1e-9 and low <= best <= high
    assert high - low < 1.3 * certificate.gap
    for side, off in (("lower", 1e-3 * (high - low)), ("upper", -1e-3 * (high - low))):
        lie = copy.deepcopy(proof)
        lie["claim"][side] = float(found[f"{side} proved"]) + off
        with pytest.raises(checker.Refused):
            checker.check(lie)


def test_the_checker_needs_an_end():
    """A set with p = 0, where plays need not end: the same numbers prove nothing."""
    pmdp, objective = random_model(np.random.default_rng(3), 4, False), OBJECTIVES[0]
    counts = uniform_counts(pmdp, objective, THETA, 300, 500, 2)
    proof = prove(pmdp, counts, certify(pmdp, counts, objective))
    for sign in (1.0, -1.0):  # a waiting room that pays, or costs, forever
        lie = copy.deepcopy(proof)
        rewards = lie["model"]["rewards"]["pay"]
        rewards["row"] = [[row, sign * abs(pay) + sign] for row, pay in rewards["row"]]
        with pytest.raises(checker.Refused):
            checker.check(lie)


def test_fair_bets_prove_nothing():
    """Whoever bets until he is ahead and then stops gains 1 on average; n steps gain 0, for every n."""

    def actions(s):
        moves = {"play": {"bet": {"won": 0.5, "lost": 0.5}, "stop": {"end": 1}}, "end": {"stay": {"end": 1}}}
        return moves.get(s, {"back": {"play": 1}})

    pmdp = build(
        "play", actions, domain=[], labels={"end": lambda s: s == "end"},
        rewards={"pay": lambda s, a: {"won": 1.0, "lost": -1.0}.get(s, 0.0)},
    )  # fmt: skip
    costs = Objective.cost("pay", target="end")
    gains = dataclasses.replace(costs, sense=Sense.MAX, unreached=Unreached.ACCUMULATE)
    for objective, side, other, shift in ((costs, "lower", "upper", 0.0), (gains, "upper", "lower", 1.0)):
        with pytest.raises(ModelError, match="needs a certain end"):
            certify(pmdp, Counts(pmdp), objective)
        proof = prove(pmdp, Counts(pmdp), certify(pmdp, Counts(pmdp), dataclasses.replace(gains, horizon=2)))
        proof["policy"]["rules"] = proof["policy"]["rules"][:1]
        unreached = objective.unreached and objective.unreached.value
        proof["objective"] |= {"horizon": None, "sense": objective.sense.value, "unreached": unreached}
        values = [[pmdp.row_reward("pay")[row] + shift] for row in pmdp.state_ptr[:-1]]
        proof |= {side: {"values": values, "region": 0}, other: None, "claim": {side: shift, other: None}}
        with pytest.raises(checker.Refused, match="plays may stay forever"):
            checker.check(proof)
