"""`evaluate` after Ctrl-C: the episodes before it, in the order of their starts, with an interval planned for all."""

from __future__ import annotations

import io
import json
import re
import signal
import sys

import gymnasium as gym
import numpy as np
import pytest

from rpl_agent import Policy, RPLAgent
from rpl_agent.cli import main
from rpl_agent.guarantee.likelihood.bets.mean import mean_interval
from tests.agent.test_agent_evaluate import Race, Runner
from tests.agent_worlds import CorridorEnv, FastCorridorEnv
from tests.cli.test_progress import Terminal

pytestmark = pytest.mark.short_runs


class Stop:
    """Asks to end early once this many episodes are over."""

    def __init__(self, after: int):
        self.after, self.told = after, list[tuple[int, int]]()

    def progress(self, done: int, number: int) -> None:
        self.told.append((done, number))

    def interrupted(self) -> bool:
        return bool(self.told) and self.told[-1][0] >= self.after

    def keywords(self):
        return {"progress": self.progress, "interrupted": self.interrupted}


@pytest.fixture(scope="module")
def agent():
    return RPLAgent(seed=2, delta=0.05).learn(FastCorridorEnv(), 100, log_interval=5000)


@pytest.mark.parametrize("world", [FastCorridorEnv, CorridorEnv])
@pytest.mark.parametrize("runs", [False, True], ids=["table", "predicts"])
def test_what_was_played_has_the_interval_of_the_plan(agent, world, runs):
    policy = Runner() if runs else None
    whole, told = Stop(10**6), Stop(30)
    every = agent.evaluate(world(), 400, policy=policy, seed=5, **whole.keywords())
    found = agent.evaluate(world(), 400, policy=policy, seed=5, **told.keywords())
    n = len(found.values)
    assert found.interrupted and 30 <= n < 400 and len(every.values) == 400 and not every.interrupted
    assert np.array_equal(found.values, every.values[:n]) and np.array_equal(found.lengths, every.lengths[:n])
    # the bets are those of 400 episodes: bets for n would depend on when it was stopped
    assert (found.lower, found.upper) == mean_interval(found.values, 0.0, 1.0, 0.05, planned=400)
    assert (every.lower, every.upper) == mean_interval(every.values, 0.0, 1.0, 0.05)
    assert whole.told[-1] == (400, 400) and whole.told == sorted(set(whole.told))


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_of_several_environments_none_is_counted_that_began_after_a_running_one(mode):
    """Lost plays are over at once: all plays that are over by then would be lost ones."""
    agent, some = RPLAgent(Race(), delta=0.1, seed=0), 0
    for seed in range(20):
        lanes = gym.vector.SyncVectorEnv([Race] * 8, autoreset_mode=gym.vector.AutoresetMode[mode])
        every = agent.evaluate(lanes, 200, seed=seed)
        try:
            found = agent.evaluate(lanes, 200, seed=seed, **Stop(20).keywords())
        except KeyboardInterrupt as error:
            assert str(error) == "no episode was over"
            continue
        n = len(found.values)
        assert found.interrupted and np.array_equal(found.values, every.values[:n])
        some += n > 8
    assert some > 5


# ====================================================================== the command
class Pressed(CorridorEnv):
    """Ctrl-C at the start of its seventh episode."""

    left = 7

    def reset(self, **keywords):
        self.left -= 1
        if not self.left:
            signal.raise_signal(signal.SIGINT)
        return super().reset(**keywords)


class AtOnce(Pressed):
    left = 1


PRESSED = "tests.agent.test_evaluate_interrupted:Pressed"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run folder, and a policy in a file."""
    monkeypatch.chdir(tmp_path)
    agent = RPLAgent(CorridorEnv(), seed=0).learn(budget=20, folder="a")
    Policy.uniform(agent.pmdp).to_table(agent.pmdp, "uniform.csv")
    return tmp_path


GIVEN = {"run": ["a"], "policy": ["--policy", "uniform.csv"]}


@pytest.mark.parametrize("given", GIVEN)
def test_the_command_prints_what_was_played(run, capsys, given):
    whole = ["evaluate", *GIVEN[given], "--env", PRESSED, "--episodes", "1000"]
    assert main(whole) == 130
    said = capsys.readouterr().out
    assert "(7 episodes)" in said and "without any model, with probability" in said
    assert said.endswith("interrupted before 1,000 episodes\n")
    assert main([*whole, "--json"]) == 130
    found = json.loads(capsys.readouterr().out)
    assert found["interrupted"] is True and found["episodes"] == 7
    assert main([*whole[:-1], "6", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["interrupted"] is False


def test_an_episode_that_does_not_end_is_no_result(run, capsys, monkeypatch):
    monkeypatch.setattr("rpl_agent.agent.sampling.stepping.GRACE_SECONDS", 0.0)
    assert main(["evaluate", "a", "--env", PRESSED.replace("Pressed", "AtOnce")]) == 130
    assert capsys.readouterr().err == "rpl evaluate: stopped; no episode was over\n"


@pytest.mark.parametrize("given", GIVEN)
def test_episodes_are_shown_on_a_terminal_only(run, capsys, monkeypatch, given):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    line = ["evaluate", *GIVEN[given], "--env", "tests.agent_worlds:CorridorEnv", "--episodes", "300"]
    for stderr, shows in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stderr)
        assert main(line) == 0
        assert bool(re.search(r"episodes .*300/300", stderr.getvalue())) == shows
