"""The SB3 adapter: exact budgets, masks, policies read out whole, known answers on a small world."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.model import Objective, build
from tests.toy_worlds import ToyEnv, exact_value, risk

pytestmark = pytest.mark.short_runs

sb3 = pytest.importorskip("rpl_agent.studies.baselines.sb3")


def corridor():
    """Walk right to the goal; at 0 only right is enabled. Left never helps: V* = 4 / 0.9 steps."""

    def actions(s):
        (x,) = s
        if x == 4:
            return {"stay": {s: 1}}
        moves = {"right": {(x + 1,): "p", s: "1-p"}}
        if x > 0:
            moves["left"] = {(x - 1,): "p", s: "1-p"}
        return moves

    done = {"goal": lambda s: s == (4,), "done": lambda s: s == (4,)}
    rewards = {"time": lambda s, a: 0.0 if s == (4,) else 1.0}
    names = ("left", "right", "stay")
    pmdp = build((0,), actions, domain=("p",), labels=done, rewards=rewards, variables=("x",), action_names=names)
    return ToyEnv(pmdp, Objective.cost("time", target="goal"), {"p": 0.9}, max_steps=30), 4 / 0.9


@pytest.mark.parametrize(
    "algorithm", ["dqn", *(pytest.param(a, marks=pytest.mark.nightly) for a in ("ppo", "maskable-ppo"))]
)
def test_learns_the_corridor_within_an_exact_budget(algorithm, tmp_path):
    env, optimum = corridor()
    quick = {"learning_rate": 3e-3, "learning_starts": 100, "target_update_interval": 100, "exploration_fraction": 0.05}
    settings = quick if algorithm == "dqn" else {"n_steps": 256}
    agent = sb3.SB3Agent(algorithm, seed=1, **settings)
    seen = []
    agent.learn(env, 250, checkpoints=[50, 100], callback=lambda a: seen.append(a.num_episodes))
    assert seen == [50, 100, 250] and agent.num_episodes == 250
    policy = agent.policy
    policy.require_fit(env.pmdp)
    assert exact_value(env, policy) == pytest.approx(optimum)
    for s in range(4):
        action, _ = agent.predict(s, deterministic=True)
        assert env.pmdp.find_row(s, int(action)) == policy.rows[s]
    agent.save(tmp_path / "agent.zip")
    again = sb3.SB3Agent.load(tmp_path / "agent.zip", env)
    np.testing.assert_array_equal(again.policy.rows, policy.rows)
    again.learn(env, 3)
    assert again.num_episodes == 253


def test_every_action_number_means_an_enabled_action():
    env, _ = corridor()
    assert [sb3.remap(env.pmdp, 0, a) for a in range(3)] == [1, 1, 1]
    assert [sb3.remap(env.pmdp, 1, a) for a in range(3)] == [0, 1, 0]


def test_errors_say_what_is_wrong(tmp_path, monkeypatch):
    env, _ = corridor()
    monkeypatch.setattr(sb3, "MOST_COLUMNS", 1)  # a column per state of a model without variables
    with pytest.raises(ModelError, match="not one of"):
        sb3.SB3Agent("sarsa")
    with pytest.raises(ModelError, match="no environment yet"):
        sb3.SB3Agent("dqn").predict(0)
    with pytest.raises(ModelError, match="no state variables"):
        sb3.SB3Agent("dqn").learn(risk()[0], 1)
    (tmp_path / "x.zip").write_bytes(b"no")
    with pytest.raises(DataError, match="not a checkpoint"):
        sb3.SB3Agent.load(tmp_path / "x.zip", env)


def test_the_other_baselines_need_no_torch():
    code = "import sys, rpl_agent.studies.baselines, rpl_agent.studies.experiments; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_copies_side_by_side_share_the_budget_and_the_schedules():
    import gymnasium as gym

    agent = sb3.SB3Agent("dqn", seed=0, num_envs=4, learning_starts=50)
    agent.learn(gym.make("rpl_envs:rpl/Betting-25-v0"), 20)
    assert 20 <= agent.num_episodes < 24
    assert agent.num_timesteps == agent.model.num_timesteps == 26 * agent.num_episodes
    # the exploration rate follows the episodes that are left, not the longest play there could be
    assert agent.model.exploration_rate == pytest.approx(agent.model.exploration_final_eps)
    with pytest.raises(ModelError, match=r"made by gymnasium\.make"):
        sb3.SB3Agent("ppo", num_envs=2).learn(corridor()[0], 1)
    with pytest.raises(ModelError, match="at least one"):
        sb3.SB3Agent("ppo", num_envs=0)
