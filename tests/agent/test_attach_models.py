"""Models that people have: random starts, rewards of (state, action, successor), objectives in plain words."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import rpl_envs
from rpl_agent import DataError, ModelError, Objective, RPLAgent, build
from rpl_agent.agent.evaluation import monte_carlo, optimal_value
from rpl_agent.core.model import Policy, StateIndex, paying
from rpl_agent.guarantee.shown import true_value

pytestmark = pytest.mark.short_runs

CARDS = {2: "1/2", 5: "1/3", 9: "1/6"}


class Dice(gym.Env):
    """Draws a first number; `hit` wins with 0.7 and pays number + 3, else pays number; `pass` pays 4. One step."""

    observation_space, action_space = gym.spaces.Discrete(100), gym.spaces.Discrete(2)

    def __init__(self, chances=(1 / 2, 1 / 3, 1 / 6)):
        self.chances = chances

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number = int(self.np_random.choice([2, 5, 9], p=self.chances))
        return self.number, {}

    def step(self, action):
        won = self.np_random.random() < 0.7
        paid = 4.0 if action == 1 else self.number + (3.0 if won else 0.0)
        return 50, paid, True, False, {}


def dice_model(start=CARDS, parameters=("p",)):
    def actions(number):
        if number == 50:
            return {"hit": {50: 1}, "pass": {50: 1}}
        return {"hit": {50: "p", 51: "1-p"}, "pass": {50: 1}} if number != 51 else {"hit": {51: 1}, "pass": {51: 1}}

    return build(
        start, actions, domain=parameters, labels={"end": lambda s: s >= 50},
        rewards={"gain": lambda s, a: 0.0 if s >= 50 else 4.0 if a == "pass" else float(s)}, name="dice",
    )  # fmt: skip


def test_a_known_random_start_is_averaged_over():
    pmdp = dice_model()
    assert pmdp.has_random_start and pmdp.state_name(0) == "start" and pmdp.num_states == 6
    objective = Objective.reward("gain", target="end")
    best = 4 / 2 + 5 / 3 + 9 / 6  # pass at 2, hit at 5 and 9
    assert optimal_value(pmdp, objective, np.array([0.7])) == pytest.approx(best)
    for goal in (
        Objective.reward("gain", target="end", horizon=1),
        Objective.discounted("gain", 0.5, target="end"),
        Objective.discounted("gain", 0.95),
    ):  # one step long: neither a discount nor a horizon of one step takes anything off
        assert optimal_value(pmdp, goal, np.array([0.7])) == pytest.approx(best, abs=1e-6)


def test_discount_and_horizon_count_from_the_first_state_that_is_seen():
    def actions(s):
        return {"go": {s + 1: 1} if s < 5 else {s: 1}}

    objective = {"gain": lambda s, a: float(s < 5)}
    random = build({0: "1/2", 2: "1/2"}, actions, domain=["p"], rewards=objective, labels={"end": lambda s: s == 5})
    value = lambda goal: optimal_value(random, goal, np.array([0.5]))  # noqa: E731
    assert value(Objective.reward("gain", target="end")) == pytest.approx(4)
    assert value(Objective.reward("gain", target="end", horizon=4)) == pytest.approx(3.5)
    g = 0.9
    expected = ((1 - g**5) / (1 - g) + (1 - g**3) / (1 - g)) / 2
    assert value(Objective.discounted("gain", g)) == pytest.approx(expected, abs=1e-6)
    assert value(Objective.reach("end", horizon=3)) == pytest.approx(0.5)


def test_an_unknown_start_is_learned_with_the_same_delta():
    class Two(Dice):
        def step(self, action):
            return 50, 4.0 if action == 1 else float(self.number), True, False, {}

    def actions(number):
        return {"hit": {50: 1}, "pass": {50: 1}}

    pmdp = build(
        {2: "a", 5: "b", 9: "1 - a - b"}, actions, domain=rpl_domain("a", "b"), labels={"end": lambda s: s == 50},
        rewards={"gain": lambda s, a: 0.0 if s == 50 else 4.0 if a == "pass" else float(s)},
    )  # fmt: skip
    agent = RPLAgent(pmdp=pmdp, objective=Objective.reward("gain", target="end"), seed=0)
    agent.learn(Two(), budget=3000, log_interval=5000)
    truth = 4 / 2 + 5 / 3 + 9 / 6
    assert agent.certificate.lower <= truth <= agent.certificate.upper
    assert agent.certificate.gap < 0.6 and agent.counts.total == 6000 and agent.num_timesteps == 3000
    vector = RPLAgent(pmdp=pmdp, objective=Objective.reward("gain", target="end"), seed=0)
    vector.learn(gym.vector.SyncVectorEnv([Two] * 3), budget=300, log_interval=5000)
    assert vector.counts.total == 600 and vector.num_timesteps == 300


def rpl_domain(*names):
    from rpl_agent import Domain

    return Domain.box(names).with_simplex()


def test_a_start_that_the_model_excludes_is_named():
    pmdp = dice_model({2: "1/2", 5: "1/2"})
    agent = RPLAgent(pmdp=pmdp, objective=Objective.reward("gain", target="end"), seed=0, check_rewards=False)
    with pytest.raises(DataError, match=r"reset: (observation 9 has no state|the environment starts in .*never)"):
        agent.learn(Dice(), budget=100)


class Paying(gym.Env):
    """From 0 `hit` leads to 1 with 0.3 and costs 5 then, else 1; `safe` leads to 1 for 3."""

    observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)

    def __init__(self, back=1.0):
        self.back = back

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        if action == 1:
            return 1, -3.0, True, False, {}
        arrived = bool(self.np_random.random() < 0.3)
        return int(arrived), -5.0 if arrived else -self.back, arrived, False, {}


def arrival_model():
    def cost(state, action, successor):
        return 0.0 if state == 1 else 3.0 if action == "safe" else 5.0 if successor == 1 else 1.0

    def actions(s):
        return {"hit": {1: "p", 0: "1-p"}, "safe": {1: 1}} if s == 0 else {"hit": {1: 1}, "safe": {1: 1}}

    return build(0, actions, domain=["p"], labels={"end": lambda s: s == 1}, rewards={"cost": cost}, name="paying")


def test_rewards_of_the_successor_are_expected_and_compared(sized):
    pmdp, objective = arrival_model(), Objective.cost("cost", target="end")
    assert pmdp.has_payments and not pmdp.has_random_start
    hit = Policy.deterministic(pmdp.state_ptr[:-1])
    # E = 0.3·5 + 0.7·(1 + E)
    assert true_value(pmdp, objective, hit, np.array([0.3])) == pytest.approx(2.2 / 0.3, abs=1e-4)
    assert optimal_value(pmdp, objective, np.array([0.3])) == pytest.approx(3.0)
    agent = RPLAgent(pmdp=pmdp, objective=objective, seed=0).learn(Paying(), budget=300, log_interval=500)
    assert agent.certificate.lower <= 3.0 <= agent.certificate.upper + 1e-9
    sampled = monte_carlo(agent, Paying(), sized(1000, 4000), policy=hit)
    assert -sampled.mean == pytest.approx(2.2 / 0.3, abs=6 * sampled.standard_error)
    assert sampled.values.mean() == pytest.approx(-sampled.mean)
    with pytest.raises(DataError, match=r"reward -1\.5 contradicts the model, which pays -1 for state"):
        RPLAgent(pmdp=pmdp, objective=objective, seed=0).learn(Paying(back=1.5), budget=300)
    with pytest.raises(ModelError, match="nothing is paid before the first step"):
        build({paying(0, cost=1): "p", 0: "1-p"}, lambda s: {"hit": {s: 1}}, domain=["p"])


def test_states_that_are_never_shown_are_refused():
    """States that the environment never shows are refused when it is attached."""

    class Slot(gym.Env):
        observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(1)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return 0, {}

        def step(self, action):
            return 1, 4.0 if self.np_random.random() < 0.25 else 1.0, True, False, {}

    def gain(state, action, successor):
        return 4.0 if successor == "won" else 1.0 if state == 0 else 0.0

    def actions(s):
        return {"pull": {"won": "p", "lost": "1-p"}} if s == 0 else {"pull": {s: 1}}

    pmdp = build(0, actions, domain=["p"], labels={"end": lambda s: s != 0}, rewards={"gain": gain})
    with pytest.raises(ModelError, match="model has the state 'lost'"):
        RPLAgent(pmdp=pmdp, objective=Objective.reward("gain", target="end")).set_env(Slot())


def test_silent_states_in_our_own_environments(sized):
    """One law on all paths: stepping, lanes and the compiled simulator."""
    pmdp, objective = arrival_model(), Objective.cost("cost", target="end")
    start = dice_model()
    for model, goal, theta, steps in (
        (pmdp, objective, {"p": 0.3}, 1000),
        (start, Objective.reward("gain", target="end"), {"p": 0.7}, 5),
    ):
        env = rpl_envs.make_own(model, goal, theta, max_episode_steps=steps)
        uniform = Policy.uniform(model)
        exact = true_value(model, goal, uniform, np.array(list(theta.values())))
        for compiled in (True, False):
            agent = RPLAgent(seed=0, compiled=compiled)
            agent.set_env(env)
            found = monte_carlo(agent, env, 1000 if compiled else sized(300, 1000), policy=uniform)
            assert found.values.mean() == pytest.approx(exact, abs=6 * found.standard_error)
            assert found.lengths.min() >= 1 and found.cut == 0
            if model is start:
                assert found.lengths.max() == 1
        lanes = rpl_envs.PMDPVectorEnv(4, rpl_envs.Benchmark(model, goal, tuple(theta.values()), steps))
        agent = RPLAgent(seed=0)
        agent.set_env(lanes)
        found = monte_carlo(agent, lanes, sized(400, 800), policy=uniform)
        assert found.values.mean() == pytest.approx(exact, abs=6 * found.standard_error)
        states, _ = env.reset(seed=0)
        assert not model.is_silent[states] and model.state_index(StateIndex(states)) == states
