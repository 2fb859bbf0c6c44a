"""Return as RL knows it: the question of an unmodified environment is its own, in its own units, its limit included."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rpl_agent import ModelError, Objective, RPLAgent, build
from rpl_agent.agent import EveryN, Never
from rpl_agent.agent.evaluation import optimal_value
from rpl_agent.agent.schedule import Target
from rpl_agent.core.model import paying
from rpl_agent.guarantee.shown import true_value
from tests.agent.test_attach_battery import within
from tests.attach_worlds import Machine, machine_model

pytestmark = pytest.mark.short_runs

#: how it is made, horizon, parameters, episodes
OWN = {
    "large lake": (lambda: gym.make("FrozenLake8x8-v1"), 200, [1 / 3], 60),
    "lake that pays its own": (lambda: gym.make("FrozenLake-v1", reward_schedule=(5, -1, -0.01)), 100, [1 / 3], 60),
    "taxi": (lambda: gym.make("Taxi-v4"), 200, [1.0], 20),
    "blackjack": (lambda: gym.make("Blackjack-v1"), 20, [4 / 13], 200),
}


@pytest.mark.parametrize(  # by day test_attach_battery.py has the large lake
    "name", [pytest.param(name, marks=pytest.mark.nightly if name == "large lake" else ()) for name in OWN]
)
def test_the_return_of_an_unmodified_environment(name):
    """Before: Taxi said [12.07, 12.08] and paid 7.74, Blackjack 1 more, the lakes a probability without a limit."""
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    make, horizon, theta, episodes = OWN[name]
    agent = RPLAgent(seed=1, schedule=Never() if name == "blackjack" else EveryN(100))
    agent.learn(make(), budget=episodes, log_interval=10_000)
    certificate, truth = agent.certificate, np.array(theta)
    assert agent.objective.horizon == horizon and certificate.truncation is None and not certificate.notes
    best = optimal_value(agent.pmdp, agent.objective, truth)
    table = getattr(make().unwrapped, "P", None)
    if table is not None and name != "taxi":
        assert best == pytest.approx(within(table, horizon)[0], abs=1e-6)
    if name == "taxi":  # starts are drawn
        chances = make().unwrapped.initial_state_distrib
        assert best == pytest.approx(float(chances @ within(table, horizon)), abs=1e-6)
    value = true_value(agent.pmdp, agent.objective, certificate.policy, truth)
    assert certificate.lower - 1e-9 <= value <= best + 1e-9 <= certificate.upper + 2e-9
    plays = {"blackjack": 400}.get(name, 50)
    env = make()
    env.reset(seed=1)
    paid, _ = evaluation.evaluate_policy(agent, env, plays, return_episode_rewards=True, warn=False)
    assert np.mean(paid) == pytest.approx(value, abs=5 * np.std(paid) / np.sqrt(plays) + 1e-9)


def test_other_questions_are_asked_by_name():
    text = "maximise probability of goal avoiding hole"
    agent = RPLAgent(env=gym.make("FrozenLake-v1"), objective=text)
    assert agent.objective == Objective.parse(text)
    cost = RPLAgent(env=gym.make("Taxi-v4"), objective="minimise cost until delivered")
    assert cost.objective.horizon is None


class Venture(gym.Env):
    """Invest (−2) or stop; an investment that succeeds pays 5 in the next state. ``rounds`` ends it, or nothing."""

    observation_space, action_space = gym.spaces.Discrete(100), gym.spaces.Discrete(2)

    def __init__(self, rounds: int | None):
        self.rounds = rounds

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return 0, {}

    def step(self, action):
        if action == 1:
            return 99, 0.0, True, False, {}
        won = self.np_random.random() < 0.5
        self.state += int(self.rounds is not None)
        over = self.state == self.rounds
        return 99 if over else self.state, 3.0 if won else -2.0, over, False, {}


def venture_model(rounds):
    def actions(s):
        if s == 99:
            return {0: {99: 1}, 1: {99: 1}}
        after = s if rounds is None else 99 if s + 1 == rounds else s + 1
        return {0: {paying(after, money=5): "p", after: "1 - p"}, 1: {99: 1}}

    def money(s, a):
        return -2.0 if a == 0 and s != 99 else 0.0

    return build(0, actions, domain=["p"], labels={"end": lambda s: s == 99}, rewards={"money": money})


def test_gains_and_costs_where_every_play_ends():
    """Refused before: "undiscounted totals need rewards ≥ 0"."""
    pmdp, total = venture_model(6), Objective.reward("money", target="end")
    agent = RPLAgent(pmdp=pmdp, objective=total, seed=0).learn(Venture(6), budget=150, log_interval=1000)
    assert agent.objective.horizon == 6  # changes nothing: no play is longer
    assert agent.certificate.lower <= 3.0 <= agent.certificate.upper < 6.0
    limited = RPLAgent(pmdp=pmdp, objective=total, seed=0)
    limited.learn(gym.wrappers.TimeLimit(Venture(6), 4), budget=50, log_interval=1000)
    assert limited.objective.horizon == 4 and limited.certificate.lower <= 2.0 <= limited.certificate.upper


def test_gains_and_costs_that_need_not_end():
    pmdp, total = venture_model(None), Objective.reward("money", target="end")
    with pytest.raises(ModelError, match=r"horizon='env'.*discount.*Objective\.cost"):
        RPLAgent(pmdp=pmdp, objective=total).set_env(Venture(None))
    limited = RPLAgent(pmdp=pmdp, objective=total)
    limited.set_env(gym.wrappers.TimeLimit(Venture(None), 7))
    assert limited.objective.horizon == 7
    free = RPLAgent(pmdp=pmdp, objective=Objective.discounted("money", 0.9), seed=0)
    free.learn(gym.wrappers.TimeLimit(Venture(None), 30), budget=60, log_interval=1000)
    assert free.certificate.lower <= 5.0 <= free.certificate.upper
    assert free.session.cut > 0 and free.certificate.truncation is None  # for discounted plays a cut is no news


def test_cut_episodes_are_told_where_there_are_any():
    pmdp, objective = machine_model()
    short = RPLAgent(pmdp=pmdp, objective=objective, seed=0)
    short.learn(gym.wrappers.TimeLimit(Machine(), 9), budget=5, log_interval=1000)
    assert "5 of 5 episodes" in short.certificate.truncation

    class Lucky(gym.Env):
        observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(1)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return 0, {}

        def step(self, action):
            done = self.np_random.random() < 0.9
            return int(done), 0.0, done, False, {}

    lucky = build(0, lambda s: {0: {1: "p", 0: "1 - p"} if s == 0 else {1: 1}}, domain=["p"],
                  labels={"there": lambda s: s == 1})  # fmt: skip
    agent = RPLAgent(pmdp=lucky, objective=Objective.reach("there"), seed=0)
    agent.learn(gym.wrappers.TimeLimit(Lucky(), 500), budget=50, log_interval=1000)
    assert agent.session.cut == 0 and agent.certificate.truncation is None  # it could have been, and was not


def test_one_sign_for_costs():
    """The live view said −0.9 beside [0.6, 1.3]."""
    pmdp, objective = machine_model()
    agent = RPLAgent(env=Machine(), pmdp=pmdp, objective=objective, seed=0).learn(budget=30, log_interval=10)
    agent.session.target = Target.after(0, 30, "episodes", None, None)
    mean = np.mean(agent.session.returns)
    assert mean <= 0.0
    from rich.console import Console

    from rpl_agent.agent.output.views import render

    console = Console(width=100, record=True, file=open("/dev/null", "w"))
    console.print(render(agent.session, [1.0, 0.5]))
    assert f"mean cost of the exploring policy {-mean:.5g}" in console.export_text()
