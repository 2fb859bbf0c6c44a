"""Sources of data: the same law on every path, resets never counted, budgets exact, errors that name the step."""

from __future__ import annotations

from functools import cache

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scipy.stats import chi2

from rpl_agent.agent.sampling.experience import Experience, Request, SampledBatch
from rpl_agent.agent.sampling.stream import Stream, open_source
from rpl_agent.agent.schedule import Limits
from rpl_agent.agent.world.attach import attach
from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.model import Policy, StateIndex
from tests.agent_worlds import TRUE_P, CorridorEnv, FastCorridorEnv, corridor

pytestmark = pytest.mark.short_runs


def collect(env, *, seed=0, rng=1, policy=None, compiled=True, **order):
    world = attach(env, compiled=compiled)
    experience = Experience(world.pmdp)
    source = open_source(world, experience, np.random.default_rng(rng), seed)
    done = SampledBatch()
    policy = policy or Policy.uniform(world.pmdp)
    source.collect(Request(policy, order.pop("limits", Limits()), **order), done)
    return experience, done, source


def goodness_of_fit(experience, mdp):
    """p-value of the observed transitions against the true probabilities, row by row."""
    pmdp, counts = experience.pmdp, experience.counts
    n = counts.row_totals[pmdp.transition_row]
    used = (n > 50) & (mdp.probability > 0)
    expected = n[used] * mdp.probability[used]
    statistic = ((counts.transitions[used] - expected) ** 2 / expected).sum()
    freedom = used.sum() - len(np.unique(pmdp.transition_row[used]))
    return chi2.sf(statistic, freedom)


def vector(mode, n=3, cls=CorridorEnv):
    return SyncVectorEnv([cls for _ in range(n)], autoreset_mode=mode)


PATHS = {
    "env": lambda: CorridorEnv(),
    "compiled": lambda: FastCorridorEnv(),
    "next step": lambda: vector(AutoresetMode.NEXT_STEP),
    "same step": lambda: vector(AutoresetMode.SAME_STEP),
    "disabled": lambda: vector(AutoresetMode.DISABLED),
}


@cache
def sampled(path, episodes=400):
    return collect(PATHS[path](), episodes_left=episodes, pause=episodes)[:2]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("episodes", [400, pytest.param(4_000, marks=pytest.mark.nightly)])
def test_every_path_samples_the_true_law(path, episodes):
    experience, done = sampled(path, episodes)
    pmdp, _ = corridor()
    assert done.episodes == episodes == len(done.returns)
    assert experience.counts.total == done.steps == sum(done.lengths)
    assert goodness_of_fit(experience, pmdp.instantiate({"p": TRUE_P})) > 1e-4
    # every counted episode starts at the initial state: flow out of it minus flow in is the number of episodes
    transitions, rows = experience.counts.transitions, pmdp.row_state[pmdp.transition_row]
    start = pmdp.initial_state
    assert transitions[rows == start].sum() - transitions[pmdp.successor == start].sum() == episodes


def test_paths_agree_in_mean_visits():
    means = {}
    for path in PATHS:
        experience, done = sampled(path)
        means[path] = experience.rows / done.episodes
    reference = means.pop("compiled")
    for path, mean in means.items():
        assert np.allclose(mean, reference, atol=0.25), path


def test_same_seed_in_environment_and_agent_does_not_correlate_actions_and_outcomes():
    """If both drew the same numbers, `run` would be followed by the small outcome."""
    env = CorridorEnv()
    from rpl_agent.agent import RPLAgent
    from rpl_agent.agent.schedule import Never

    agent = RPLAgent(seed=3, compiled=False, schedule=Never()).learn(env, budget=800, log_interval=10_000)
    assert goodness_of_fit(agent.session.experience, corridor()[0].instantiate({"p": TRUE_P})) > 1e-4


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("budget", [1, 7, 50])
def test_step_budgets_are_exact(path, budget):
    experience, done, _ = collect(PATHS[path](), steps_left=budget)
    assert done.steps == experience.counts.total == budget


@pytest.mark.parametrize("path", PATHS)
def test_episode_budgets_are_exact_across_calls(path):
    env = PATHS[path]()
    world = attach(env)
    experience = Experience(world.pmdp)
    source = open_source(world, experience, np.random.default_rng(0), 0)
    left, policy = 20, Policy.uniform(world.pmdp)
    while left:
        done = SampledBatch()
        source.collect(Request(policy, Limits(), pause=2, episodes_left=left), done)
        left -= done.episodes
        assert left >= 0 and done.episodes >= 1
    assert experience.counts.total == experience.rows.sum() == experience.expressions.sum()


@pytest.mark.parametrize("path", PATHS)
def test_limits_stop_at_the_end_of_the_episode(path):
    pmdp, _ = corridor()
    limit = np.full(pmdp.num_rows, 10)
    experience, done, _ = collect(PATHS[path](), limits=Limits(rows=limit), episodes_left=10_000)
    assert done.due and (experience.rows >= 10).any()
    assert done.episodes < 40
    experience, done, _ = collect(
        PATHS[path](), limits=Limits(expressions=np.full(pmdp.num_expressions, 10)), episodes_left=10_000
    )
    assert done.due and (experience.expressions >= 10).any()


def test_truncated_steps_count_and_resets_do_not():
    env = gym.wrappers.TimeLimit(CorridorEnv(), 3)
    experience, done, _ = collect(env, episodes_left=200, pause=200)
    assert max(done.lengths) == 3 and experience.counts.total == sum(done.lengths)
    fast, quick, _ = collect(gym.wrappers.TimeLimit(FastCorridorEnv(), 3), episodes_left=200, pause=200)
    assert max(quick.lengths) == 3 and fast.counts.total == sum(quick.lengths)


def test_a_changing_wrapper_turns_the_compiled_path_off():
    assert attach(FastCorridorEnv()).compiled
    assert attach(gym.wrappers.TimeLimit(FastCorridorEnv(), 9)).compiled
    assert not attach(
        gym.wrappers.TransformObservation(FastCorridorEnv(), lambda o: o, None), state_of=StateIndex
    ).compiled
    assert not attach(FastCorridorEnv(), compiled=False).compiled


class Teleport(gym.Wrapper):
    """After some steps a transition that the model does not have."""

    def __init__(self, env, after=12, state=None, reward=None):
        super().__init__(env)
        self.after, self.state, self.reward, self.count = after, state, reward, 0

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.count += 1
        if self.count == self.after:
            obs = self.state if self.state is not None else obs
            reward = self.reward if self.reward is not None else reward
        return obs, reward, terminated, truncated, info


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"state": 5}, r"episode \d+, step \d+: successor state 5 .* is unknown to the model"),
        ({"state": 99}, r"episode \d+, step \d+: observation 99 has no state"),
        ({"reward": 0.25}, r"episode \d+, step \d+: reward 0.25 contradicts the model, which pays"),
    ],
)
def test_contradictions_name_the_step_and_keep_the_data(fault, message):
    world = attach(Teleport(CorridorEnv(), after=12, **fault), compiled=False)
    experience = Experience(world.pmdp)
    source = open_source(world, experience, np.random.default_rng(0), 0)
    done = SampledBatch()
    # from the start cell nothing reaches cell 5 in one step, so the fault is a contradiction wherever it happens
    with pytest.raises(DataError, match=message):
        source.collect(Request(Policy.uniform(world.pmdp), Limits(), episodes_left=10_000), done)
    assert experience.counts.total == done.steps == 11


def test_wrong_spaces_and_missing_models_are_named():
    pmdp, objective = corridor()
    with pytest.raises(ModelError, match="has no attribute 'pmdp'"):
        attach(CorridorEnv(own_model=False))
    with pytest.raises(ModelError, match=r"action space .* must be Discrete\(2\)"):
        attach(gym.make("FrozenLake-v1"), pmdp=pmdp, objective=objective)
    with pytest.raises(ModelError, match="pass observation_to_state"):
        attach(gym.make("CartPole-v1"), pmdp=pmdp, objective=objective)
    with pytest.raises(ModelError, match="not a Gymnasium environment"):
        attach(object(), pmdp=pmdp, objective=objective)


def test_observations_are_mapped_to_states():
    env = gym.wrappers.TransformObservation(
        CorridorEnv(), lambda o: np.array([o / 10.0], dtype=np.float32), gym.spaces.Box(0, 1, (1,), np.float32)
    )
    world = attach(env, state_of=lambda o: StateIndex(round(float(o[0]) * 10)))
    experience = Experience(world.pmdp)
    done = SampledBatch()
    open_source(world, experience, np.random.default_rng(0), 0).collect(
        Request(Policy.uniform(world.pmdp), Limits(), episodes_left=50), done
    )
    assert done.episodes == 50 and experience.counts.total == done.steps


def test_a_compiled_stream_restores_exactly():
    world = attach(FastCorridorEnv())
    policy, rng = Policy.uniform(world.pmdp), np.random.default_rng(4)
    stream = Stream(world, Experience(world.pmdp), rng, iter(range(9, 20)).__next__, [])
    stream.collect(Request(policy, Limits(), pause=5), SampledBatch())
    stored, first, second = stream.get_state(), SampledBatch(), SampledBatch()
    stream.collect(Request(policy, Limits(), pause=20), first)
    again = Stream(world, Experience(world.pmdp), rng, iter(range(1, 9)).__next__, [], stored)
    again.collect(Request(policy, Limits(), pause=20), second)
    assert first.lengths == second.lengths and first.returns == second.returns


def test_an_error_in_the_environment_leaves_no_stale_state():
    """The next call begins with a reset: nobody knows whether the environment made the step that failed."""

    class Fails(CorridorEnv):
        calls = 0

        def step(self, action):
            returned = super().step(action)
            Fails.calls += 1
            if Fails.calls in (7, 20):
                raise RuntimeError("out of order")
            return returned

    for env in (Fails(), vector(AutoresetMode.NEXT_STEP, cls=Fails), vector(AutoresetMode.DISABLED, cls=Fails)):
        Fails.calls = 0
        world = attach(env, compiled=False)
        experience = Experience(world.pmdp)
        source = open_source(world, experience, np.random.default_rng(0), 0)
        request = Request(Policy.uniform(world.pmdp), Limits(), episodes_left=40, pause=40)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="out of order"):
                source.collect(request, SampledBatch())
        done = SampledBatch()
        source.collect(request, done)
        assert done.episodes == 40
