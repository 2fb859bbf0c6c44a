"""What RL people reach for: SB3's names, SB3's callbacks, and bounds per state and action."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import rpl_envs  # noqa: F401  (registers the worlds)
from rpl_agent import RPLAgent
from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Nature, Policy
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.core.solver import solve
from rpl_agent.guarantee.shown import true_value
from tests.agent_worlds import TRUE_P, CorridorEnv, FastCorridorEnv, corridor

pytestmark = pytest.mark.short_runs

THETA = np.array([TRUE_P])
sb3 = pytest.importorskip("stable_baselines3.common.callbacks")


@pytest.fixture(scope="module")
def agent():
    return RPLAgent(env=FastCorridorEnv(), seed=0).learn(total_timesteps=4_000)


def test_env_at_the_start_and_a_budget_in_steps(agent):
    assert agent.num_timesteps == 4_000  # an exact cap
    assert "certified [" in repr(agent) and "no environment" in repr(RPLAgent())
    with pytest.raises(ModelError, match="not both"):
        agent.learn(budget=1, total_timesteps=1)


def test_a_loaded_agent_knows_the_bounds_of_every_state(agent, tmp_path):
    """A file has the values of solutions, from which a search may start, but not the problem that they solve."""
    agent.save(tmp_path / "agent")
    loaded = RPLAgent.load(tmp_path / "agent", env=FastCorridorEnv())
    for found, known in zip(loaded.value_bounds(), agent.value_bounds()):
        assert found == pytest.approx(known, abs=1e-6)


def test_bounds_of_every_state_and_action_hold_the_truth(agent):
    pmdp, objective = corridor()
    exact = solve(Point(pmdp.instantiate(THETA)), objective, Nature.COOPERATIVE)
    lower, upper = agent.value_bounds()
    q_lower, q_upper = agent.q_bounds()
    achieved = solve(Point(pmdp.instantiate(THETA)), objective, Nature.COOPERATIVE, policy=agent.policy)
    assert (lower <= achieved.upper_values + 1e-9).all() and (upper >= exact.lower_values - 1e-9).all()
    assert lower[pmdp.initial_state] <= agent.certificate.lower + 1e-8  # which has moved outward, for its proof
    enabled = ~np.isnan(q_lower)
    assert enabled.sum() == pmdp.num_rows and (q_lower[enabled] <= q_upper[enabled]).all()
    best = np.nanmax(q_upper, axis=1)
    open_states = ~objective.resolve(pmdp).decided
    assert (best[open_states] >= exact.lower_values[open_states] - 1e-9).all()
    for row in range(pmdp.num_rows):  # take one action, then play optimally: inside the bound
        state = int(pmdp.row_state[row])
        if open_states[state]:
            mdp = pmdp.instantiate(THETA)
            span = slice(pmdp.row_ptr[row], pmdp.row_ptr[row + 1])
            q = float(mdp.probability[span] @ exact.lower_values[pmdp.successor[span]])
            assert q <= q_upper[state, pmdp.action[row]] + 1e-9
    table = agent.policy_table()
    assert len(table) == pmdp.num_states and table[0]["action"] in pmdp.action_names


def test_horizon_bounds_by_step():
    pmdp, objective = corridor()
    bounded = replace(objective, horizon=6)
    agent = RPLAgent(seed=0, pmdp=pmdp, objective=bounded).learn(FastCorridorEnv(), budget=50)
    first, last = agent.value_bounds()[1], agent.value_bounds(6)[1]
    assert (last <= first + 1e-12).all()  # fewer steps to go, less can be reached
    with pytest.raises(ModelError, match="outside the horizon"):
        agent.value_bounds(7)


def test_parameters_travel_between_agents(agent):
    other = RPLAgent(env=FastCorridorEnv(), seed=5)
    other.set_parameters(agent.get_parameters())
    assert np.array_equal(other.counts.transitions, agent.counts.transitions)
    assert other.certify().lower == agent.certify().lower
    other.learn(budget=10)
    with pytest.raises(ModelError, match="get_parameters"):
        other.set_parameters({"policy": 1})


def test_another_logger_hears_everything(tmp_path):
    from stable_baselines3.common.logger import configure

    agent = RPLAgent(env=FastCorridorEnv(), seed=0, tensorboard_log=tmp_path / "ours")
    agent.set_logger(configure(str(tmp_path / "theirs"), ["csv"]))
    agent.learn(budget=30)
    assert "guarantee/lower" in (tmp_path / "theirs" / "progress.csv").read_text()
    assert list((tmp_path / "ours").rglob("progress.csv"))
    with pytest.raises(ModelError, match="not a logger"):
        agent.set_logger(print)


def test_stop_after_a_number_of_episodes():
    agent = RPLAgent(seed=0).learn(CorridorEnv(), budget=500, callback=sb3.StopTrainingOnMaxEpisodes(7))
    assert agent.num_episodes == 7


def test_checkpoints_every_so_many_steps(tmp_path):
    callback = sb3.CheckpointCallback(save_freq=50, save_path=str(tmp_path), name_prefix="ours")
    agent = RPLAgent(seed=0).learn(CorridorEnv(), total_timesteps=240, callback=callback)
    saved = sorted(int(p.name.split("_")[1]) for p in tmp_path.glob("ours_*_steps.zip"))
    assert saved == [50, 100, 150, 200]
    assert RPLAgent.load(tmp_path / "ours_200_steps.zip", CorridorEnv()).num_timesteps <= agent.num_timesteps


def test_evaluation_during_training(tmp_path):
    callback = sb3.EvalCallback(
        gym.make("rpl/Betting-25-v0"), eval_freq=100, n_eval_episodes=5, best_model_save_path=str(tmp_path), verbose=0,
        warn=False,
    )  # fmt: skip
    RPLAgent(seed=0).learn(gym.make("rpl/Betting-25-v0"), total_timesteps=450, callback=callback)
    assert callback.n_calls == 450 and np.isfinite(callback.best_mean_reward)
    assert (tmp_path / "best_model.zip").is_file()


def test_progress_bar_of_sb3():
    pytest.importorskip("tqdm")
    RPLAgent(seed=0).learn(CorridorEnv(), total_timesteps=60, callback=sb3.ProgressBarCallback())
    with pytest.raises(ModelError, match="ProgressBarCallback counts steps"):
        RPLAgent(seed=0).learn(CorridorEnv(), budget=5, callback=sb3.ProgressBarCallback())


@pytest.mark.nightly
def test_the_same_lines_for_all_agents():
    script = Path(__file__).resolve().parents[2] / "examples" / "compare_with_sb3.py"
    command = [sys.executable, str(script), "--steps", "600", "--episodes", "3", "--agents", "PPO", "RPL"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "certified [" in done.stdout and "no guarantee" in done.stdout


def test_the_certified_policy_is_worth_its_bound(agent):
    pmdp, objective = corridor()
    assert isinstance(agent.policy, Policy)
    assert true_value(pmdp, objective, agent.policy, THETA) >= agent.certificate.lower - 1e-9
