"""`bound_return`: an interval for the mean return of any policy in any environment, without a model."""

from __future__ import annotations

import json
import signal
from functools import partial

import gymnasium as gym
import numpy as np
import pytest

import rpl_agent
from rpl_agent import DataError, ModelError, RPLAgent, bound_return
from rpl_agent.agent.sampling import returns
from rpl_agent.cli import main
from rpl_agent.core.evidence.repetition import RepeatedChanceError
from rpl_agent.guarantee.likelihood.bets.mean import mean_interval


class Draws(gym.Env):
    """Continuous observations; each of three steps pays 1 with the probability that is played, in tenths."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(11)

    def __init__(self, reseeds=False, length=3):
        self._reseeds, self._length = reseeds, length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=7 if self._reseeds else seed)
        self._step = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self._step += 1
        reward = float(self.np_random.random() < action / 10)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), reward, self._step == self._length, False, {}


class Predicts:
    """As models of Stable-Baselines3, with a memory of the episode."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic and (state is None) == bool(episode_start[0])
        return np.array(6), 1


def test_intervals_hold_as_often_as_promised(sized):
    """Truth 1.8 at δ = 0.2: 40 runs, of which at most 8 may be wrong on average."""
    wrong = 0
    for seed in range(sized(40, 400)):
        found = bound_return(lambda observation: 6, Draws(), 60, (0, 3), delta=0.2, seed=seed)
        wrong += not found.lower <= 1.8 <= found.upper
        assert found.lower <= found.mean <= found.upper < found.lower + 1.2
    assert wrong <= 0.25 * sized(40, 400)


def test_policies_of_all_kinds():
    functions = [bound_return(policy, Draws(), 30, (0, 3)) for policy in (Predicts(), lambda observation: 6)]
    assert np.array_equal(functions[0].returns, functions[1].returns)  # one seed, one action
    text = str(functions[0])
    assert text.startswith("mean return in [") and "30 episodes" in text and "\n" not in text
    agent = RPLAgent("rpl/Betting-25-v0", seed=0).learn(budget=20)
    for policy in (agent, agent.as_policy()):
        assert bound_return(policy, "rpl/Betting-25-v0", 20, (0, 1e6)).episodes == 20


def test_it_ends_early_once_the_interval_is_narrow():
    found = bound_return(lambda observation: 6, Draws(), 100_000, (0, 3), width=0.5, delta=0.05)
    assert found.upper - found.lower <= 0.5 and 30 < found.episodes < 2000
    assert found.lower <= 1.8 <= found.upper


def test_rounding_of_rewards_is_no_return_outside():
    class Tenths(Draws):
        def step(self, action):
            return (*super().step(action)[:1], 0.1, *super().step(action)[2:])

    found = bound_return(lambda observation: 0, Tenths(length=14), 5, (0, 0.7))
    assert found.lower <= 0.7 <= found.upper


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"returns": (0, 2)}, r"episode \d+ returned 3, outside returns=\(0, 2\)"),
        ({"returns": (3, 0)}, "returns=.* must be the least and the most"),
        ({"returns": 500}, "returns=500 must be the least and the most"),
        ({"returns": (0, np.inf)}, "must be the least and the most"),
        ({"episodes": 0}, "episodes 0 must be a whole number"),
        ({"episodes": 2.5}, r"episodes 2\.5 must be a whole number"),
        ({"delta": 0}, "delta"),
        ({"width": -1}, "width -1 must be a positive number"),
        ({"policy": Predicts}, "Predicts is a class"),
        ({"policy": 3}, "int is not a policy"),
        ({"env": "NoSuch-v0"}, "no environment is registered as 'NoSuch-v0'"),
        ({"env": gym.vector.SyncVectorEnv([Draws] * 2)}, "has several environments"),
        ({"env": Draws(reseeds=True)}, "reseeds its generator"),
        ({"env": 5}, "environment comes first|not a Gymnasium environment"),
    ],
)
def test_what_is_refused(arguments, words):
    known = {"policy": lambda observation: 9, "env": Draws(), "episodes": 40, "returns": (0, 3)} | arguments
    with pytest.raises((ModelError, DataError), match=words):
        bound_return(**known)


def test_an_episode_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(returns, "ENDLESS", 100)
    with pytest.raises(DataError, match="episode 1 has not ended after 100 steps"):
        bound_return(lambda observation: 0, Draws(length=0), 1, (0, 3))


def test_an_environment_that_repeats_itself_is_refused():
    with pytest.raises(RepeatedChanceError):
        bound_return(lambda observation: 5, Draws(reseeds=True), 10, (0, 3))


# ---------------------------------------------------------------------- the command
def always_six(observation):
    return 6


make = partial(Draws)


def command(*arguments):
    here = "tests.agent.test_bound_return"
    return main(["evaluate", "--policy", f"{here}:always_six", "--env", f"{here}:make", *arguments])


def test_the_command(capsys):
    assert command("--returns", "0", "3", "--episodes", "50", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["episodes"] == 50 and found["steps"] == 150 and found["lower"] <= 1.8 <= found["upper"]
    assert command("--returns", "0", "3", "--episodes", "50") == 0
    assert capsys.readouterr().out.count("\n") == 1


def stop_at(k):
    """A policy that presses Ctrl-C in the middle of episode k."""
    steps = iter(range(10**6))

    def act(observation):
        if next(steps) == 3 * (k - 1) + 1:
            signal.raise_signal(signal.SIGINT)
        return 6

    return act


def test_plays_before_ctrl_c_are_not_lost():
    told = []
    found = bound_return(stop_at(300), Draws(), 5_000, (0, 3), delta=0.2, progress=lambda *now: told.append(now))
    whole = bound_return(lambda observation: 6, Draws(), 5_000, (0, 3), delta=0.2)
    assert found.interrupted and found.episodes == 300 and not whole.interrupted
    assert np.array_equal(found.returns, whole.returns[:300]) and told == [(k, 5_000) for k in range(1, 301)]
    # the bets are those of 5,000 episodes: bets for 300 would depend on when it was stopped
    planned, other = (mean_interval(whole.returns[:300], 0.0, 3.0, 0.2, planned=n) for n in (5_000, 300))
    assert (found.lower, found.upper) == pytest.approx(planned, abs=1e-9)
    assert planned != pytest.approx(other, abs=1e-3)
    assert found.lower <= whole.lower + 1e-9 and whole.upper <= found.upper + 1e-9


def stopping(observation):
    return stopping.act(observation)


def test_the_command_prints_what_was_played_before_ctrl_c(capsys, monkeypatch):
    here = "tests.agent.test_bound_return"
    given = ["evaluate", "--policy", f"{here}:stopping", "--env", f"{here}:make", "--returns", "0", "3"]
    monkeypatch.setattr(stopping, "act", stop_at(7), raising=False)
    assert main([*given, "--episodes", "1000"]) == 130
    assert "7 episodes returned" in (said := capsys.readouterr().out) and "interrupted before 1,000 episodes" in said
    monkeypatch.setattr(stopping, "act", stop_at(7))
    assert main([*given, "--episodes", "1000", "--json"]) == 130
    found = json.loads(capsys.readouterr().out)
    assert found["interrupted"] is True and found["episodes"] == 7


def test_a_forgotten_ending_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ppo.zip").write_bytes(b"")
    for env in ("CartPole-v1", "FrozenLake-v1"):
        assert main(["evaluate", "--policy", "ppo", "--env", env, "--returns", "0", "1"]) == 2
        said = capsys.readouterr().err
        assert said.endswith("did you mean ppo.zip?\n") and said.count("\n") == 1


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--policy", "ppo.zip", "--returns", "0", "1"], "--policy needs --env"),
        (["--policy", "ppo.zip", "--env", "CartPole-v1"], "--policy needs --returns"),
        (["--policy", "nosuch.zip", "--env", "CartPole-v1", "--returns", "0", "500"], "nosuch.zip: no such file"),
        (["logs/x", "--returns", "0", "1"], "--returns belongs to --policy"),
        (["logs/x", "--policy", "a.zip", "--env", "CartPole-v1", "--returns", "0", "1"], "takes no run folder"),
        ([], "give a run folder, or --policy"),
        (["--env", "nope"], "rpl evaluate: nothing to play in nope: add --policy FILE, or a run folder\n"),
        (["--env", "nope", "--returns", "0", "1"], "nothing to play in nope: add --policy FILE, or a run folder\n"),
    ],
)
def test_wrong_commands_say_what_is_wrong(arguments, words, capsys):
    assert main(["evaluate", *arguments]) != 0
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", ["PPO", "DQN", "A2C"])
def test_saved_models_of_stable_baselines3(name, tmp_path, capsys):
    kind = getattr(pytest.importorskip("stable_baselines3"), name)
    model = kind("MlpPolicy", "CartPole-v1", seed=0, device="cpu", policy_kwargs={"net_arch": [4]})
    model.save(tmp_path / "model.zip")
    path = str(tmp_path / "model.zip")
    arguments = ["--env", "CartPole-v1", "--returns", "0", "500", "--episodes", "20", "--json"]
    assert main(["evaluate", "--policy", path, *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    own = bound_return(model, "CartPole-v1", 20, (0, 500), seed=1)
    assert (found["mean"], found["lower"], found["upper"]) == (own.mean, own.lower, own.upper)
    assert main(["evaluate", "--policy", path, *arguments, "--algorithm", "NoSuch"]) != 0
    assert rpl_agent.ReturnBound is returns.ReturnBound
