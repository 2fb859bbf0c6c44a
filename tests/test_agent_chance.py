"""Resuming never draws the same chance twice, whatever an environment does with seeds."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from scipy import stats

from rpl_agent.agent import RPLAgent
from rpl_agent.agent.schedule import Never
from rpl_agent.agent.tape import Tape, plays_again
from rpl_agent.errors import ModelError, RPLWarning
from rpl_envs.vector_env import PMDPVectorEnv
from tests.agent_worlds import TRUE_P, CorridorEnv, FastCorridorEnv

SEEDS, CHUNKS, EPISODES = 6, 12, 12


class OwnGenerator(CorridorEnv):
    """Draws from a generator of its own, made in the constructor; ``obeys``: reset(seed=) seeds it too."""

    def __init__(self, first: int = 17, obeys: bool = True, mixed: bool = False):
        super().__init__()
        self._own, self._obeys, self._mixed = np.random.default_rng(first), obeys, mixed

    def reset(self, *, seed=None, options=None):
        if seed is not None and self._obeys:
            self._own = np.random.default_rng(seed)
        if self._mixed:
            self.np_random.random()  # something is drawn from Gymnasium's generator as well
        return super().reset(seed=seed)

    def step(self, action):
        kept, self._np_random = self.np_random, self._own
        result = super().step(action)
        self._np_random = kept
        return result


class FixedSimulator(FastCorridorEnv):
    """Its simulator ignores the seed."""

    def simulator(self, seed):
        return super().simulator(0)


def vector(seed=0):
    """Episodes of two steps: equal chunks are equal in steps too."""
    return gym.vector.SyncVectorEnv([lambda: gym.wrappers.TimeLimit(CorridorEnv(), 2)] * 3)


def disobedient_vector():
    return gym.vector.SyncVectorEnv([lambda: OwnGenerator(obeys=False)] * 3)


def in_chunks(make, path, seed, reload=True):
    """Learn in equal chunks, with a new environment for each."""
    agent = RPLAgent(seed=seed, schedule=Never()).learn(make(seed), budget=EPISODES, log_interval=10**9)
    for _ in range(CHUNKS - 1):
        if reload:
            agent.save(path)
            agent = RPLAgent.load(path, make(seed))
            agent.learn(budget=EPISODES, log_interval=10**9)
        else:
            agent.learn(make(seed), budget=EPISODES, log_interval=10**9)
    return agent


@pytest.mark.filterwarnings("ignore::rpl_agent.errors.RPLWarning")
@pytest.mark.parametrize("reload", [True, False])
@pytest.mark.parametrize(
    "make",
    [
        lambda _: CorridorEnv(), vector, OwnGenerator, lambda seed: OwnGenerator(seed, mixed=True),
        lambda _: FastCorridorEnv(), lambda _: FixedSimulator(),
    ],
    ids=["gymnasium", "vector", "own", "mixed", "compiled", "unseeded simulator"],
)
def test_chunks_are_new_data(tmp_path, make, reload):
    """Frequencies over all chunks spread as those of independent draws; repeated chunks spread CHUNKS times as much."""
    squares = 0.0
    for seed in range(SEEDS):
        counts = in_chunks(make, tmp_path / "c.zip", seed, reload).experience.counts
        pmdp = counts.pmdp
        probability = pmdp.instantiate({"p": TRUE_P}).probability
        running = pmdp.action[pmdp.transition_row] == 0
        forward = counts.transitions[running & np.isclose(probability, TRUE_P)].sum()
        runs = forward + counts.transitions[running & np.isclose(probability, 1 - TRUE_P)].sum()
        squares += (forward - TRUE_P * runs) ** 2 / (TRUE_P * (1 - TRUE_P) * runs)
    assert squares < stats.chi2(SEEDS).isf(1e-4)


@pytest.mark.filterwarnings("ignore::rpl_agent.errors.RPLWarning")
@pytest.mark.parametrize("make", [vector, OwnGenerator, lambda: PMDPVectorEnv(4, "Betting-25")])
def test_two_chunks_are_not_equal(tmp_path, make):
    path, found = tmp_path / "c.zip", []
    agent = RPLAgent(seed=1, schedule=Never()).learn(make(), budget=20, log_interval=10**9)
    for _ in range(4):
        before = agent.experience.counts.transitions.copy()
        agent.save(path)
        agent = RPLAgent.load(path, make())
        agent.learn(budget=20, log_interval=10**9)
        found.append((agent.experience.counts.transitions - before).tolist())
    assert len({tuple(f) for f in found}) == len(found)


@pytest.mark.parametrize("make", [lambda: OwnGenerator(obeys=False), disobedient_vector])
def test_an_environment_that_repeats_itself_is_refused(tmp_path, make):
    agent = RPLAgent(seed=1, schedule=Never()).learn(make(), budget=400, log_interval=10**9)
    agent.save(tmp_path / "c.zip")
    loaded = RPLAgent.load(tmp_path / "c.zip", make())
    with pytest.raises(ModelError, match="same chance twice"):
        loaded.learn(budget=5)
    with pytest.raises(ModelError, match="same chance twice"):
        agent.learn(make(), budget=5)
    assert loaded.certificate.samples == agent.certificate.samples  # nothing was added


def test_what_cannot_be_restored_is_said(tmp_path):
    path = tmp_path / "c.zip"
    for make, exact in ((CorridorEnv, True), (OwnGenerator, False), (vector, False)):
        agent = RPLAgent(seed=1, schedule=Never()).learn(make(), budget=600, log_interval=10**9)
        agent.save(path)
        loaded = RPLAgent.load(path, make())
        if exact:
            loaded.learn(budget=5)
        else:
            with pytest.warns(RPLWarning, match="fresh seed"):
                loaded.learn(budget=5)


def test_short_runs_of_any_single_environment_resume_exactly(tmp_path):
    """All calls are still on the tape: even a generator of its own is brought to where it was."""
    whole = RPLAgent(seed=3).learn(OwnGenerator(obeys=False), budget=20, log_interval=20)

    def stop(local, _):
        if local["self"].num_episodes >= 9:
            local["self"].save(tmp_path / "c.zip")
            return False

    RPLAgent(seed=3).learn(OwnGenerator(obeys=False), budget=20, log_interval=20, callback=stop)
    resumed = RPLAgent.load(tmp_path / "c.zip", OwnGenerator(obeys=False)).resume()
    assert np.array_equal(resumed.experience.counts.transitions, whole.experience.counts.transitions)


def test_a_tape_plays_again_only_where_it_should():
    env = Tape(CorridorEnv())
    rng = np.random.default_rng(0)
    env.reset(seed=4)
    for _ in range(200):
        _, _, over, _, _ = env.step(int(rng.integers(2)))
        if over:
            env.reset()
    state = env.get_state()
    assert state["whole"] and plays_again(CorridorEnv(), state["tail"], state["anchor"])
    state["tail"][0][1] = 5
    assert not plays_again(CorridorEnv(), state["tail"], state["anchor"])
