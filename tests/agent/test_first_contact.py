"""What a newcomer from RL writes first works, or is answered in their words."""

from __future__ import annotations

import warnings

import gymnasium as gym
import pytest

import rpl_agent
import rpl_envs
from rpl_agent import RPLAgent
from rpl_agent.agent.world.attach import FIRST_MODEL
from rpl_agent.cli import main
from rpl_agent.core.errors import ModelError, PrecisionWarning
from rpl_agent.core.model import Domain, build
from rpl_agent.core.model.polynomial import Polynomial
from rpl_agent.core.solver import solve
from tests.agent_worlds import CorridorEnv

ID = "rpl/Betting-25-v0"


def test_a_power_is_a_power():
    """Python reads 1-p^2 as (1-p)^2; p^2 was refused once per transition."""
    assert Polynomial.parse("1-p^2") == Polynomial.parse("1-p**2")
    build(0, lambda s: {"go": {0: "p^2", 1: "1-p^2"} if s == 0 else {1: 1}}, domain=["p"])


def test_a_simplex_of_names():
    domain = Domain.with_simplex(["a", "b"])
    assert domain.contains([0.5, 0.5]) and not domain.contains([0.6, 0.5])
    assert Domain.box(["a", "b", "c"]).with_simplex(["a", "b"]).contains([0.5, 0.5, 1.0])


def test_habits_of_stable_baselines_are_answered():
    env = gym.make(ID)
    with pytest.raises(ModelError, match=r"learn\(total_timesteps=1000\).*episodes"):
        RPLAgent(seed=0).learn(1000)
    for first in (("MlpPolicy", env), ("MlpPolicy",)):
        with pytest.raises(ModelError, match="no policy network"):
            RPLAgent(*first)
    world = rpl_envs.benchmark(ID)
    with pytest.raises(ModelError, match=r"solve_at\(pmdp, \[p\], objective\)"):
        solve(world.pmdp, world.objective)


def test_a_missing_objective_is_shown():
    def model(**parts):
        return build(
            0,
            lambda s: {"left": {0: 1}, "right": {0: "p", 1: "1-p"}} if not s else {"stay": {1: 1}},
            domain=["p"],
            **parts,
        )

    for parts, hint in (
        ({"rewards": {"r": lambda s, a: -1.0}}, r"Objective.total\('r', horizon=100\)"),
        ({"labels": {"end": bool}}, r"Objective.reach\('end'\)"),
        ({}, r"build\(…, rewards="),
    ):
        with pytest.raises(ModelError, match=hint):
            RPLAgent(gym.make("FrozenLake-v1"), pmdp=model(**parts))


def test_evaluate_policy_takes_the_acting_policy():
    evaluate_policy = pytest.importorskip("stable_baselines3.common.evaluation").evaluate_policy
    env = gym.make(ID)
    agent = RPLAgent(seed=0).learn(env, budget=30, log_interval=30)
    mean, _ = evaluate_policy(agent.as_policy(), env, n_eval_episodes=3, warn=False)
    assert mean >= 0.0


class Stairs(gym.Env):
    """The environment of the lines that the message for one without a model prints."""

    observation_space, action_space = gym.spaces.Discrete(6), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return 0, {}

    def step(self, action):
        if action == 0 and self.state < 5:
            self.state += self.np_random.random() < 0.6
        return self.state, 0.0, self.state == 5, False, {}


def test_the_lines_of_the_message_work():
    with pytest.raises(ModelError) as found:
        RPLAgent().learn(Stairs(), 5)
    assert FIRST_MODEL in str(found.value) and "docs/" not in str(found.value)
    names = {"rpl_agent": rpl_agent, "RPLAgent": RPLAgent, "env": Stairs()}
    lines = [line.removeprefix("    ") for line in FIRST_MODEL.splitlines()]
    exec("\n".join([*lines[:-1], f"agent = {lines[-1]}"]), names)
    assert names["agent"].certificate.lower > 0.99


def test_a_first_run_speaks_of_no_brackets():
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrecisionWarning)
        RPLAgent(seed=0).learn(CorridorEnv(), budget=5)
        RPLAgent(seed=0).learn(gym.make("FrozenLake-v1"), budget=5)


def test_a_report_of_the_folder_of_a_sweep(tmp_path, capsys):
    """The folder was taken for that of a run without a checkpoint."""
    (tmp_path / "rows.jsonl").write_text("")
    main(["report", str(tmp_path)])
    assert "checkpoint" not in capsys.readouterr().err
