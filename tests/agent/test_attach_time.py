"""Time limits and steps: what is said about truncation, horizons, and policies that depend on the step."""

from __future__ import annotations

import warnings
from functools import cache

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv

import rpl_envs  # noqa: F401
from rpl_agent import ModelError, Objective, RPLAgent, RPLWarning
from rpl_agent.agent.evaluation import monte_carlo
from rpl_agent.agent.runs import evaluate_run, train
from rpl_agent.agent.world.plays import longest_play
from rpl_agent.guarantee.shown import true_value
from tests.attach_worlds import Machine, machine_model

pytestmark = pytest.mark.short_runs


def test_a_time_limit_that_can_cut_is_said(tmp_path):
    """`Monte Carlo 19.8` beside `certified [29.7, 75.9]`, without a word: plays are cut after 51 steps."""
    env = gym.make("rpl/Engagement-50-v0")
    result = train(env, log_dir=tmp_path, name="run", budget=40, quiet=True)
    assert "the limit of 51 steps" in result["truncation"] and result["truncation"] in result["text"]
    found = evaluate_run(tmp_path / "run", env, episodes=50)
    assert found["cut"] > 0 and "without the time limit" in found["text"]
    assert "\n" not in found["truncation"]


def test_limits_that_cannot_cut_are_not_mentioned():
    agent = RPLAgent(seed=0).learn(gym.make("rpl/Betting-25-v0"), budget=20, log_interval=50)
    assert agent.certificate.truncation is None and agent.session.cut == 0
    pmdp, objective = machine_model()
    task = objective.resolve(pmdp)
    assert [longest_play(pmdp, task, limit) for limit in (9, 10, 11)] == [None, 10, 10]


def test_the_limit_as_horizon():
    pmdp, objective = machine_model()
    short = gym.wrappers.TimeLimit(Machine(), 4)
    agent = RPLAgent(pmdp=pmdp, objective=objective, horizon="env", seed=0).learn(short, budget=200, log_interval=500)
    assert agent.objective.horizon == 4 and agent.certificate.truncation is None and agent.session.cut == 0
    sampled = monte_carlo(agent, gym.wrappers.TimeLimit(Machine(), 4), 1000)
    exact = true_value(pmdp, agent.objective, agent.certificate.policy, np.array([0.1, 0.9]))
    assert sampled.values.mean() == pytest.approx(exact, abs=5 * sampled.value_error)
    assert agent.certificate.lower <= exact <= agent.certificate.upper
    with pytest.raises(ModelError, match="no TimeLimit"):
        RPLAgent(pmdp=pmdp, objective=objective, horizon="env").set_env(Machine())
    with pytest.raises(ModelError, match="neither 'env' nor a whole number"):
        RPLAgent(pmdp=pmdp, objective=objective, horizon="ever").set_env(short)


class Walk(gym.Env):
    """Cells 0..3 towards 3: `safe` is sure but waits every second call, `leap` arrives with 0.5 and else falls to 0."""

    observation_space, action_space = gym.spaces.Discrete(4), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = 0
        return 0, {}

    def step(self, action):
        if action == 0:
            self.cell = min(3, self.cell + 1) if self.np_random.random() < 0.8 else self.cell
        else:
            self.cell = 3 if self.np_random.random() < 0.5 else 0
        return self.cell, 0.0, self.cell == 3, False, {}


@cache
def walk_agent():
    from rpl_agent import build

    def actions(c):
        if c == 3:
            return {"safe": {3: 1}, "leap": {3: 1}}
        return {"safe": {c + 1: "p", c: "1-p"}, "leap": {3: "q", 0: "1-q"}}

    pmdp = build(0, actions, domain=["p", "q"], labels={"there": lambda c: c == 3}, action_names=["safe", "leap"])
    agent = RPLAgent(pmdp=pmdp, objective=Objective.reach("there", horizon=3), seed=0)
    return agent.learn(Walk(), budget=400, log_interval=1000)


def test_predict_without_its_state_under_a_horizon():
    agent = walk_agent()
    assert agent.policy.rows.ndim == 2
    with pytest.warns(RPLWarning, match=r"agent\.as_policy\(\)"):
        first, _ = agent.predict(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert agent.predict(0)[0] == first  # said once
        _, memory = agent.predict(0, None, np.array([True]))
        agent.predict(0, memory)
    with pytest.raises(ModelError, match="called without state"):
        agent.predict(np.array([0, 1]))
    agent.predict(np.array([0, 1]), None, np.array([True, True]))


def test_as_policy_counts_steps_itself():
    agent = walk_agent()
    policy, wins = agent.as_policy(), 0
    for episode in range(1500):
        env = Walk()
        observation, _ = env.reset(seed=episode)
        policy.reset()
        for _ in range(3):
            observation, _, over, _, _ = env.step(int(policy(observation)))
            if over:
                wins += 1
                break
    exact = true_value(agent.pmdp, agent.objective, agent.policy, np.array([0.8, 0.5]))
    assert wins / 1500 == pytest.approx(exact, abs=0.05)
    assert agent.certificate.lower <= exact <= agent.certificate.upper
    policy.reset()
    for _ in range(3):
        policy(0)
    with pytest.raises(ModelError, match="call reset"):
        policy(0)


# ---------------------------------------------------------------------- vector environments of all kinds
def test_asynchronous_vector_environments():
    """Asking for an attribute that is missing ended the workers."""
    pmdp, objective = machine_model()
    env = AsyncVectorEnv([Machine, Machine])
    try:
        agent = RPLAgent(pmdp=pmdp, objective=objective, relaxation="expression", seed=0)
        agent.learn(env, budget=6, log_interval=50)
        assert agent.num_timesteps == 60
    finally:
        env.close()
    env = gym.make_vec("FrozenLake-v1", num_envs=2, vectorization_mode="async")
    try:
        agent = RPLAgent(seed=0).learn(env, budget=6, log_interval=50)
        assert agent.num_episodes == 6 and agent.pmdp.name == "FrozenLake-4x4"
    finally:
        env.close()


def test_stable_baselines_vec_envs_are_refused_by_name():
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    make = [lambda: gym.make("FrozenLake-v1")] * 2
    dummy = vec_env.DummyVecEnv(make)
    for env, name in ((dummy, "DummyVecEnv"), (vec_env.VecMonitor(dummy), "VecMonitor")):
        with pytest.raises(ModelError, match=f"{name} is a VecEnv of Stable-Baselines3"):
            RPLAgent().set_env(env)


# ---------------------------------------------------------------------- words
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("minimise discounted cost, gamma 0.95", 'R{"cost"}min=? [ C ] discount 0.95'),
        ("maximize discounted gain until end, gamma = 0.9", 'R{"gain"}max=? [ F "end" ] discount 0.9'),
        (
            "maximise discounted gain until end within 7 steps, gamma 0.9",
            'R{"gain"}max=? [ F<=7 "end" ] discount 0.9',
        ),
        ("maximise probability of goal", 'Pmax=? [ F "goal" ]'),
        ("maximise the probability of reaching goal avoiding hole within 9 steps", 'Pmax=? [ !"hole" U<=9 "goal" ]'),
        ("minimise cost until done", 'R{"cost"}min=? [ F "done" ]'),
        ("maximise money for 25 steps", 'R{"money"}max=? [ C<=25 ]'),
        ("minimise total cost until over", 'R{"cost"}min=? [ F "over" ]'),
    ],
)
def test_objectives_in_plain_words(text, expected):
    assert Objective.parse(text).describe() == expected


@pytest.mark.parametrize(
    "text", ["", "win", "minimise discounted cost", "minimise cost until done, gamma 0.9", "maximise cost, gamma x",
             "minimise cost"],
)  # fmt: skip
def test_words_that_are_not_understood(text):
    with pytest.raises(ModelError) as error:
        Objective.parse(text)
    assert "\n" not in str(error.value)


def test_words_are_accepted_where_objectives_are():
    pmdp, _ = machine_model()
    agent = RPLAgent(pmdp=pmdp, objective="minimise cost until over", relaxation="expression", seed=0)
    agent.learn(Machine(), budget=20, log_interval=50)
    assert agent.objective == Objective.cost("cost", target="over")
