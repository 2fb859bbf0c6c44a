"""Environments whose episodes do not end: the run does, and says what it did."""

from __future__ import annotations

import gymnasium as gym
import pytest

from rpl_agent.agent import RPLAgent
from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.model import Objective, StateIndex, build
from rpl_agent.core.solver import solve_at

ROWS = {0: {"stay": {0: "p", 1: "1-p"}, "go": {0: "1-p", 1: "p"}}, 1: {"stay": {1: "p", 0: "1-p"}, "go": {0: 1}}}


class Endless(gym.Env):
    """Two states, no end, no TimeLimit."""

    observation_to_state = StateIndex
    observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)

    def __init__(self):
        self.pmdp = build(
            0, lambda s: ROWS[s], domain=["p"], rewards={"r": lambda s, a: float(s)}, labels={"one": lambda s: s == 1},
            action_names=["stay", "go"],
        )  # fmt: skip
        self.objective = Objective.discounted("r", 0.9)
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return 0, {}

    def step(self, action):
        self.steps += 1
        assert self.steps < 100_000, "it goes on for ever"
        paid = float(self.state)
        if self.state == 1 and action == 1:
            self.state = 0
        else:
            self.state ^= (self.np_random.random() < 0.7) == (action == 1)
        return self.state, paid, False, False, {}


@pytest.mark.parametrize("vector", [False, True])
def test_a_budget_in_episodes_comes_to_an_end(vector):
    """It never returned: 905,998 steps in the first episode, and not a word."""
    env = gym.vector.SyncVectorEnv([Endless] * 4) if vector else Endless()
    with pytest.warns(RPLWarning, match=r'no TimeLimit; .* unit="steps"'):
        agent = RPLAgent(seed=0).learn(env, budget=8, log_interval=4)
    assert agent.num_episodes == 8 and agent.num_timesteps == 8_000
    found = agent.certificate
    best = solve_at(agent.pmdp, [0.7], agent.objective).middle
    assert not found.refuted and found.lower <= best <= found.upper


@pytest.mark.filterwarnings("error")
def test_a_horizon_ends_them():
    agent = RPLAgent(seed=0, objective=Objective.reach("one", horizon=5)).learn(Endless(), 20, log_interval=20)
    assert agent.num_timesteps == 100


@pytest.mark.filterwarnings("error")
def test_a_time_limit_of_its_own_is_respected():
    env = gym.wrappers.TimeLimit(Endless(), 30)
    assert RPLAgent(seed=0).learn(env, budget=10, log_interval=10).num_timesteps == 300
