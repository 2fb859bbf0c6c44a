"""Rewards that are nearly the model's: told apart relative to their size, and paid for by the bounds."""

from __future__ import annotations

from functools import cache

import gymnasium as gym
import numpy as np
import pytest

from rpl_agent import DataError, ModelError, Objective, RPLAgent, build
from rpl_agent.agent import EveryN
from rpl_agent.core.model import paying
from rpl_agent.guarantee.certificate import Certificate

pytestmark = pytest.mark.short_runs


class Steps(gym.Env):
    """Ten steps forward; each pays ``paid``, and a step is made if a coin of 0.6 shows heads."""

    observation_space, action_space = gym.spaces.Discrete(11), gym.spaces.Discrete(1)

    def __init__(self, paid, single=False):
        self.paid = np.float32(paid) if single else paid

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action):
        heads = self.np_random.random() < 0.6
        self.place += int(heads)
        return self.place, self.paid * heads, self.place == 10, False, {}


def model(paid):
    def actions(s):
        return {0: {s + 1: "p", s: "1-p"} if s < 10 else {s: 1}}

    return build(
        0, actions, domain={"p": (0.5, 0.7)}, labels={"end": lambda s: s == 10},
        rewards={"r": lambda s, a, t: paid * (t > s)},
    )  # fmt: skip


OBJECTIVES = {
    "open": Objective.total("r", target="end"),
    "discounted": Objective.discounted("r", 0.999),
    "horizon": Objective.reward("r", target=None, horizon=500),
}


def learned(modelled, paid, objective, single=False, **settings):
    agent = RPLAgent(pmdp=model(modelled), objective=objective, seed=0, delta=0.1, schedule=EveryN(200), **settings)
    return agent.learn(Steps(paid, single), budget=200, log_interval=1000)


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_a_reward_that_is_nearly_nothing_is_something(kind):
    """The model pays 9e-7 per success, the environment nothing: "achieves at least 3.7e-07"."""
    with pytest.raises(DataError, match=r"reward 0\.0 contradicts the model, which pays 9e-07"):
        learned(9e-7, 0.0, OBJECTIVES[kind])
    certificate = learned(9e-7, 9e-7, OBJECTIVES[kind]).certificate
    assert certificate.reward_error == 0.0 and 0 < certificate.lower <= 9.01e-6 and certificate.upper >= 8.9e-6


@cache
def exactly_paid(kind):
    return learned(1000.0, 1000.0, OBJECTIVES[kind]).certificate


@pytest.mark.parametrize("kind", OBJECTIVES)
@pytest.mark.parametrize("share", [0.9e-6, -0.9e-6, 1e-9])
def test_what_is_tolerated_is_paid_for(kind, share):
    """Ten rewards that are off by nearly a millionth: a certificate of rounding size missed the truth."""
    objective, paid = OBJECTIVES[kind], 1000.0 * (1.0 + share)
    certificate = learned(1000.0, paid, objective).certificate
    assert abs(share) <= 1.0001 * certificate.reward_error / (1.0 if kind == "open" else 1000.0) <= 11.0 * abs(share)
    if kind == "open":  # ten successes for certain
        assert certificate.lower <= 10.0 * paid <= certificate.upper
        assert certificate.gap <= 10_000 * 2.1 * certificate.reward_error
    assert "not exactly the model's" in str(certificate)
    assert Certificate.from_json(certificate.to_json()).reward_error == certificate.reward_error
    exact = exactly_paid(kind)
    assert exact.reward_error == 0.0
    assert certificate.lower < exact.lower and certificate.upper > exact.upper


def test_beyond_the_tolerance_is_a_contradiction():
    for share in (2e-6, -2e-6, 1e-3):
        with pytest.raises(DataError, match="contradicts the model"):
            learned(1000.0, 1000.0 * (1.0 + share), OBJECTIVES["open"])


def test_single_precision_is_within_it():
    certificate = learned(0.1, 0.1, OBJECTIVES["open"], single=True).certificate
    assert 1e-9 < certificate.reward_error <= 1e-6
    assert certificate.lower <= 10 * float(np.float32(0.1)) <= certificate.upper


def test_what_was_seen_is_stored(tmp_path):
    agent = learned(1000.0, 1000.0 + 5e-4, OBJECTIVES["open"])
    agent.save(tmp_path / "agent.zip")
    loaded = RPLAgent.load(tmp_path / "agent.zip", pmdp=model(1000.0))
    assert loaded.session.experience.reward_error == agent.session.experience.reward_error > 0.0
    assert loaded.certify().reward_error == agent.certificate.reward_error


def test_the_sum_of_errors():
    discounted, steps = OBJECTIVES["discounted"], OBJECTIVES["horizon"]
    assert discounted.with_reward_error(1.0, 2.0, 0.0) == (1.0, 2.0)
    assert discounted.with_reward_error(1.0, 2.0, 1e-3) == pytest.approx((0.0, 3.0))
    assert steps.with_reward_error(1.0, 2.0, 1e-3) == pytest.approx((0.5, 2.5))
    assert OBJECTIVES["open"].with_reward_error(1.0, 2.0, 1e-3) == pytest.approx((0.999, 2.002))
    assert Objective.reach("end").with_reward_error(0.1, 0.2, 1.0) == (0.1, 0.2)
    low, high = discounted.with_reward_error(1.0, 2.0, 1e-3)
    assert low <= 1.0 - 1e-3 / (1 - 0.999) and high >= 2.0 + 1e-3 / (1 - 0.999)


# ---------------------------------------------------------------------- outcomes that only the reward tells apart
class Prizes(gym.Env):
    """Each episode pays one of two amounts, the larger with probability 0.3, and in one of 100 a million."""

    observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(1)

    def __init__(self, small, large, single=False, off=0.0):
        kind = np.float32 if single else float
        self._prizes, self._off = (kind(small), kind(large), kind(1e6)), off

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        won = 2 if self.np_random.random() < 0.01 else int(self.np_random.random() < 0.3)
        return 1, self._prizes[won] + self._off, True, False, {}


def prizes(small, large):
    def actions(s):
        if s == 1:
            return {0: {1: 1}}
        ways = {paying(1, r=small): "0.99 - 0.99*p", paying(1, r=large): "0.99*p", paying(1, r=1e6): 0.01}
        return {0: ways}

    return build(
        0, actions, domain=["p"], labels={"end": lambda s: s == 1}, rewards={"r": lambda s, a: 0.0}, name="prizes"
    )


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("small, large", [(0.5, 0.75), (0.1, 0.100001)])
def test_the_way_with_exactly_this_reward_is_taken(small, large, single):
    """Amounts that differ by less than a millionth of the largest: the first was counted, a right model refuted."""
    agent = RPLAgent(pmdp=prizes(small, large), objective=Objective.total("r", target="end"), seed=0)
    agent.learn(Prizes(small, large, single), budget=600, log_interval=600)
    drawn = agent.counts.transitions[:3]
    assert 0.2 < drawn[np.argsort(_amounts(agent.pmdp))[1]] / drawn.sum() < 0.4
    assert not agent.certificate.refuted


def _amounts(pmdp):
    return pmdp.on_transitions(pmdp.row_reward("r"))[:3]


def test_a_reward_between_two_ways_is_refused():
    agent = RPLAgent(pmdp=prizes(0.5, 0.75), objective=Objective.total("r", horizon=3), seed=0)
    with pytest.raises(DataError, match=r"reward 0\.6.* contradicts the model, which pays 0\.5 or 0\.75"):
        agent.learn(Prizes(0.5, 0.75, off=0.1), budget=50)


@pytest.mark.parametrize("objective", [Objective.total("r", target="end"), Objective.reach("end")])
def test_ways_that_pay_the_same_are_refused(objective):
    with pytest.raises(ModelError, match=r"in two ways that pay 0\.1 and 0\.1: .*cannot tell them apart"):
        RPLAgent(Prizes(0.1, 0.1), pmdp=prizes(0.1, 0.1 + 1e-12), objective=objective)
