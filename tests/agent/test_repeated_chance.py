"""Environments that draw the same chance again are noticed while they are played, and nothing is certified on that."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest

from rpl_agent.agent import EveryN, RPLAgent
from rpl_agent.agent.sampling import experience
from rpl_agent.core.errors import RepeatedChanceWarning
from tests.agent_worlds import CorridorEnv

pytestmark = pytest.mark.short_runs


class OwnChance(CorridorEnv):
    """A corridor whose random numbers come from a generator of its own: made once, or in every reset."""

    def __init__(self, seed=0, in_reset=False):
        super().__init__()
        self._seed, self._in_reset = seed, in_reset
        self._own = np.random.default_rng(seed)

    def reset(self, *, seed=None, options=None):
        if self._in_reset:
            self._own = np.random.default_rng(self._seed)
        return super().reset(seed=seed)

    def step(self, action):
        kept, self._np_random = self._np_random, self._own
        found = super().step(action)
        self._np_random = kept
        return found


class SeedsItself(CorridorEnv):
    """The usual mistake: a seed of its own for Gymnasium's generator, in every reset."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=7)


class Levels(CorridorEnv):
    """Plays twenty levels in turn: each has random numbers of its own, always the same."""

    def __init__(self, hidden):
        super().__init__()
        self._hidden, self._played = hidden, 0

    def reset(self, *, seed=None, options=None):
        found = super().reset(seed=seed)
        self._level = np.random.default_rng(1000 + self._played % 20)
        self._played += 1
        if not self._hidden:
            self._np_random = self._level
        return found

    def step(self, action):
        kept, self._np_random = self._np_random, self._level
        found = super().step(action)
        self._np_random = kept
        return found


def assert_nothing_is_certified(agent, words):
    found = agent.certificate
    assert found.refuted and (found.lower, found.upper) == (0.0, 1.0)
    assert words in found.fallback and "no data" in found.fallback


def test_copies_with_one_seed():
    """Every chance was counted 16 times: 9 of 12 certificates were wrong, without a word."""
    for seed in range(2):
        lanes = gym.vector.SyncVectorEnv([partial(OwnChance, seed)] * 16)
        with pytest.warns(RepeatedChanceWarning, match="seed every copy apart"):
            agent = RPLAgent(seed=seed, schedule=EveryN(50)).learn(lanes, budget=200, log_interval=100)
        assert_nothing_is_certified(agent, "seed every copy apart")


def test_an_environment_that_seeds_itself():
    for env, words in (
        (SeedsItself(), "reseeds its generator"),
        (OwnChance(3, in_reset=True), "reset() must not seed"),
    ):
        with pytest.warns(RepeatedChanceWarning, match="same chance"):
            agent = RPLAgent(seed=1, schedule=EveryN(50)).learn(env, budget=150, log_interval=100)
        assert_nothing_is_certified(agent, words)
        agent.learn(budget=20)  # it stays so
        assert agent.certificate.refuted


@pytest.mark.parametrize("hidden, words", [(True, "continue as they did then"), (False, "reseeds its generator")])
def test_levels_in_turn(hidden, words, sized):
    """Chance that repeats itself after twenty episodes, in a generator of its own and in Gymnasium's."""
    for seed in range(sized(2, 8)):
        with pytest.warns(RepeatedChanceWarning, match="same chance"):
            agent = RPLAgent(seed=seed, schedule=EveryN(50)).learn(Levels(hidden), budget=250, log_interval=250)
        assert_nothing_is_certified(agent, words)


def test_every_generator_state_is_remembered(monkeypatch):
    """Of too many states those are kept whose hash says so, so that a long cycle is found too."""
    monkeypatch.setattr(experience, "REMEMBERED_STATES", 64)
    watch = experience.ChanceWatch(CorridorEnv().pmdp)
    for k in range(500):
        watch.reset(b"before", b"state %d" % k)
    assert watch.found is None and len(watch._states._seen) <= 64
    watch.reset(b"state 499", b"state 499")  # a generator that nobody used
    assert watch.found is None
    for k in range(500):
        watch.reset(b"before", b"state %d" % k)
    assert watch.found == "reset"


def test_it_stays_so_after_loading(tmp_path):
    with pytest.warns(RepeatedChanceWarning):
        RPLAgent(seed=1).learn(SeedsItself(), budget=100).save(tmp_path / "a.zip")
    agent = RPLAgent.load(tmp_path / "a.zip", CorridorEnv())
    with pytest.warns(RepeatedChanceWarning):
        agent.learn(budget=200)
    assert_nothing_is_certified(agent, "reseeds its generator")


@pytest.mark.filterwarnings("error")
def test_honest_ones_are_not_accused(sized):
    """Sub-environments that are seeded apart, one after the other, with seeds in reset."""
    lanes = gym.vector.SyncVectorEnv([CorridorEnv] * 16)
    for env in (lanes, CorridorEnv(), gym.vector.SyncVectorEnv([lambda k=k: OwnChance(k) for k in range(16)])):
        agent = RPLAgent(seed=0, schedule=EveryN(100)).learn(env, budget=sized(200, 400), log_interval=100)
        assert not agent.certificate.refuted and agent.session.experience.watch.found is None
