"""Resuming never draws the same chance twice, whatever an environment does with seeds."""

from __future__ import annotations

from functools import lru_cache

import gymnasium as gym
import numpy as np
import pytest
from scipy import stats

from rpl_agent.agent import RPLAgent
from rpl_agent.agent.schedule import Never
from rpl_agent.core.errors import ModelError, RPLWarning
from rpl_agent.core.model import Objective, Simulator, StateIndex, build
from rpl_agent.guarantee.pipeline import Config
from rpl_envs.vector_env import PMDPVectorEnv
from tests.agent_worlds import TRUE_P, CorridorEnv

pytestmark = pytest.mark.short_runs

CHUNKS, EPISODES = 12, 12
QUICK = Config("anytime", "tied")  # what is drawn is looked at, not its certificate


@lru_cache
def coin():
    pmdp = build(
        "start", lambda s: {"toss": {"heads": "p", "tails": "1 - p"} if s == "start" else {s: "1"}}, domain=["p"],
        labels={"heads": lambda s: s == "heads"}, name="coin",
    )  # fmt: skip
    return pmdp, Objective.reach("heads")


class Coin(gym.Env):
    """One toss per episode: equal chunks are equal in steps too."""

    observation_to_state = StateIndex
    observation_space, action_space = gym.spaces.Discrete(3), gym.spaces.Discrete(1)

    def __init__(self):
        self.pmdp, self.objective = coin()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.pmdp.initial_state, {}

    def step(self, action):
        heads = self.np_random.random() < TRUE_P
        state = int(np.flatnonzero(self.pmdp.labels["heads"] == heads)[-1])
        return state, float(heads), True, False, {}


class FastCoin(Coin):
    def simulator(self, seed):
        heads = self.pmdp.labels["heads"]
        stop = np.arange(3) != self.pmdp.initial_state
        return Simulator(self.pmdp.instantiate({"p": TRUE_P}), stop, 10, seed, None, heads.astype(float))


class UnseededCoin(FastCoin):
    """Its simulator ignores the seed."""

    def __init__(self, first: int):
        super().__init__()
        self._first = first

    def simulator(self, seed):
        return super().simulator(self._first)


class OwnGenerator(Coin):
    """Draws from a generator of its own, made in the constructor; ``obeys``: reset(seed=) seeds it too."""

    def __init__(self, first: int = 17, obeys: bool = True, mixed: bool = False):
        super().__init__()
        self._own, self._obeys, self._mixed = np.random.default_rng(first), obeys, mixed

    def reset(self, *, seed=None, options=None):
        if seed is not None and self._obeys:
            self._own = np.random.default_rng(seed)
        result = super().reset(seed=seed)
        if self._mixed:
            self.np_random.random()  # something is drawn from Gymnasium's generator as well
        return result

    def step(self, action):
        kept, self._np_random = self.np_random, self._own
        result = super().step(action)
        self._np_random = kept
        return result


def vector(seed=0):
    return gym.vector.SyncVectorEnv([Coin] * 3)


def disobedient_vector():
    return gym.vector.SyncVectorEnv([lambda: OwnGenerator(obeys=False)] * 3)


def uniform(env, budget):
    """An agent that has drawn actions uniformly."""
    return RPLAgent(seed=1, schedule=Never(), config=QUICK).learn(env, budget=budget, log_interval=10**9)


def in_chunks(make, path, seed, reload=True):
    """Learn in equal chunks, with a new environment for each."""
    agent = RPLAgent(seed=seed, schedule=Never(), config=QUICK).learn(make(seed), budget=EPISODES, log_interval=10**9)
    for _ in range(CHUNKS - 1):
        if reload:
            agent.save(path)
            agent = RPLAgent.load(path, make(seed))
            agent.learn(budget=EPISODES, log_interval=10**9)
        else:
            agent.learn(make(seed), budget=EPISODES, log_interval=10**9)
    return agent


@pytest.mark.filterwarnings("ignore::rpl_agent.core.errors.RPLWarning")
@pytest.mark.parametrize(
    "reload, seeds", [(True, 1), *(pytest.param(reload, 6, marks=pytest.mark.nightly) for reload in (True, False))]
)
@pytest.mark.parametrize(
    "make",
    [
        lambda _: Coin(),
        vector,
        OwnGenerator,
        lambda seed: OwnGenerator(seed, mixed=True),
        lambda _: FastCoin(),
        UnseededCoin,
    ],
    ids=["gymnasium", "vector", "own", "mixed", "compiled", "unseeded simulator"],
)
def test_chunks_are_new_data(tmp_path, make, reload, seeds):
    """Frequencies over all chunks spread as those of independent draws; repeated chunks spread CHUNKS times as much."""
    squares = 0.0
    for seed in range(seeds):
        counts = in_chunks(make, tmp_path / "c.zip", seed, reload).counts
        heads = counts.transitions[counts.pmdp.labels["heads"][counts.pmdp.successor]].sum()
        squares += (heads - TRUE_P * counts.total) ** 2 / (TRUE_P * (1 - TRUE_P) * counts.total)
    assert squares < stats.chi2(seeds).isf(1e-4)


@pytest.mark.filterwarnings("ignore::rpl_agent.core.errors.RPLWarning")
@pytest.mark.parametrize("make", [vector, lambda: OwnGenerator(), lambda: PMDPVectorEnv(4, "Betting-25")])
def test_two_chunks_are_not_equal(tmp_path, make):
    path, found = tmp_path / "c.zip", []
    agent = uniform(make(), 20)
    for _ in range(4):
        agent.save(path)
        agent = RPLAgent.load(path, make())
        found.append(agent.session.experience.record())
        agent.learn(budget=20, log_interval=10**9)
    assert len({tuple(f) for f in found}) == len(found)


@pytest.mark.parametrize("make", [lambda: OwnGenerator(obeys=False), disobedient_vector])
def test_an_environment_that_repeats_itself_is_refused(tmp_path, make):
    agent = uniform(make(), 900)
    agent.save(tmp_path / "c.zip")
    loaded = RPLAgent.load(tmp_path / "c.zip", make())
    with pytest.raises(ModelError, match="same chance twice"):
        loaded.learn(budget=5)
    with pytest.raises(ModelError, match="same chance twice"):
        agent.learn(make(), budget=5)
    assert loaded.certificate.samples == agent.certificate.samples  # nothing was added


class Bandit(gym.Env):
    """All that is drawn is the reward."""

    observation_space, action_space = gym.spaces.Discrete(1), gym.spaces.Discrete(2)
    obeys = True

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed if self.obeys or seed is None else 1)
        return 0, {}

    def step(self, action):
        return 0, float(self.np_random.random() < 0.5), True, False, {}


@pytest.mark.filterwarnings("ignore::rpl_agent.core.errors.RPLWarning")
def test_rewards_alone_show_whether_an_environment_repeats_itself(tmp_path):
    RPLAgent(Bandit(), returns=(0, 1), seed=0).learn(budget=200).save(tmp_path / "c.zip")
    assert RPLAgent.load(tmp_path / "c.zip", Bandit()).learn(budget=5, reset_num_timesteps=False).num_episodes == 205
    env, again = Bandit(), Bandit()
    env.obeys = again.obeys = False
    RPLAgent(env, returns=(0, 1), seed=0).learn(budget=200).save(tmp_path / "c.zip")
    with pytest.raises(ModelError, match="same chance twice"):
        RPLAgent.load(tmp_path / "c.zip", again).learn(budget=5)


@pytest.mark.parametrize("make", [CorridorEnv, Coin, OwnGenerator, vector])
def test_what_cannot_be_restored_is_said(tmp_path, make):
    uniform(make(), 30).save(tmp_path / "c.zip")
    with pytest.warns(RPLWarning, match="fresh seed"):
        RPLAgent.load(tmp_path / "c.zip", make()).learn(budget=5)


@pytest.mark.filterwarnings("error")
def test_what_is_restored_is_not_warned_of(tmp_path):
    uniform(FastCoin(), 30).save(tmp_path / "c.zip")
    assert RPLAgent.load(tmp_path / "c.zip", FastCoin()).learn(budget=5).num_episodes == 35


@pytest.mark.parametrize("make", [lambda: OwnGenerator(obeys=False), disobedient_vector])
def test_repetitions_too_short_to_tell_are_said(tmp_path, make):
    uniform(make(), 5).save(tmp_path / "c.zip")
    with pytest.warns(RPLWarning, match="too little randomness to show"):
        RPLAgent.load(tmp_path / "c.zip", make()).learn(budget=5)
