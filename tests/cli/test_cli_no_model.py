"""`rpl train --returns`: an environment without a model from the shell."""

from __future__ import annotations

import json

import gymnasium as gym
import pytest

from rpl_agent import Certificate, DataError, RPLAgent
from rpl_agent.cli import main

WORLD = """
import gymnasium as gym

def env(render_mode=None):
    return gym.make("FrozenLake-v1", render_mode=render_mode)

def told():
    return gym.make("FrozenLake-v1"), {"returns": (0, 1), "discount": 0.99}

def by_state():
    return gym.make("FrozenLake-v1"), {"returns": lambda state: (0, 1), "discount": 0.99}

class Pump(gym.Env):
    observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 1, float(self.np_random.random() < 0.5), True, False, {}

def pump():
    return Pump(), {"returns": (0, 1), "discount": 0.9}

def too_low():
    return Pump(), {"returns": (0, 0.5), "discount": 0.9}
"""


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(WORLD)
    return tmp_path


def rpl(capsys, *arguments: str) -> dict:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.filterwarnings("ignore:the environment continues")
def test_train_resume_evaluate(world, capsys):
    given = ("--budget", "60", "--delta", "0.1", "--name", "first", "--log-dir", "logs")
    first = rpl(capsys, "train", "mine.py:env", "--returns", "0", "1", "--discount", "0.99", *given)
    assert first["episodes"] == 60 and first["states"] > 5 and first["lower"] <= first["upper"] <= 1
    assert {"run.json", "checkpoint.zip", "certificate.json", "progress.csv"} <= {
        path.name for path in (world / "logs" / "first").iterdir()
    }
    more = rpl(capsys, "resume", "logs/first", "--env", "mine.py:env", "--budget", "90")
    assert more["episodes"] == 90 and more["upper"] <= first["upper"]
    judged = rpl(capsys, "evaluate", "logs/first", "--env", "mine.py:env", "--episodes", "20")
    assert judged["witness_lower"] <= judged["monte_carlo"] <= judged["witness_upper"]


def test_report_info_and_watch(world, capsys):
    given = ("--returns", "0", "1", "--discount", "0.99", "--budget", "40", "--name", "a", "--log-dir", "logs")
    rpl(capsys, "train", "mine.py:env", *given)
    report = rpl(capsys, "report", "logs/a")
    text = (world / "logs" / "a" / "report.html").read_text()
    assert report["charts"] == 2 and "What was discovered" in text and "States with the largest bounds" in text
    assert "Rows that look alike" in text
    info = rpl(capsys, "info", "logs/a")
    assert isinstance(info["proposed_ties"], list)
    assert info["states"] > 5 and "returns lie in [0, 1]" in info["assumed"]
    assert main(["watch", "logs/a", "--env", "mine.py:env"]) == 0
    assert "episode 1" in capsys.readouterr().out


def test_what_a_run_without_a_model_lacks_is_named(world, capsys):
    given = ("--returns", "0", "1", "--discount", "0.99", "--budget", "20", "--name", "a", "--log-dir", "logs")
    rpl(capsys, "train", "FrozenLake-v1", *given)
    needs = [["plot-region", "logs/a"], ["export", "logs/a", "--policy-file", "a.csv"]]
    for arguments in needs:
        assert main(arguments) == 2
        assert f"logs/a is a run without a model, which rpl {arguments[0]} needs" in capsys.readouterr().err
    (world / "logs" / "a" / "certificate.json").unlink()
    for arguments in (["info", "logs/a"], ["report", "logs/a"], ["certify", "logs/a", "--verify"]):
        assert main(arguments) == 2
        assert "logs/a has no certificate yet: rpl certify logs/a writes one" in capsys.readouterr().err
    assert main(["certify", "logs/a"]) == 0 and main(["info", "logs/a"]) == 0


def test_a_run_that_is_refuted_is_not_told_to_write_a_certificate(world, capsys):
    """`report` advised `certify`, which then refused."""
    given = ("--returns", "-200", "20", "--budget", "20", "--name", "a", "--log-dir", "logs")
    assert main(["train", "Taxi-v4", *given, "--quiet"]) != 0
    capsys.readouterr()
    for arguments in (["info", "logs/a"], ["report", "logs/a"], ["certify", "logs/a"]):
        assert main(arguments) != 0
        assert "no certificate: what was assumed is refuted (episode" in capsys.readouterr().err


def test_commands_agree_that_refuted_facts_leave_no_certificate(world, capsys):
    """Each command named another one, and a resumed run played on before it said so."""
    assert main(["train", "mine.py:too_low", "--budget", "40", "--name", "a", "--log-dir", ".", "--quiet"]) == 2
    env = ("--env", "mine.py:too_low")
    commands = [["info", "a"], ["report", "a"], ["certify", "a", "--verify"], ["certify", "a", *env]]
    commands += [["certify", "a"], ["resume", "a"], ["evaluate", "a"], ["watch", "a"]]  # they asked for --env first
    for arguments in [*commands, ["resume", "a", *env, "--quiet"], ["evaluate", "a", *env]]:
        capsys.readouterr()
        assert main(arguments) == 2
        said = capsys.readouterr().err
        assert "no certificate: what was assumed is refuted" in said and "start a new run with facts that hold" in said
        assert "writes one" not in said and said.count("\n") == 1
    before = (world / "a" / "checkpoint.zip").read_bytes()
    assert main(["resume", "a", *env, "--budget", "80"]) == 2
    assert (world / "a" / "checkpoint.zip").read_bytes() == before


def test_a_run_in_code_of_ones_own_is_certified_with_that_code(world, capsys):
    rpl(capsys, "train", "mine.py:pump", "--budget", "20", "--name", "a", "--log-dir", ".")
    assert main(["certify", "a"]) == 2
    said = capsys.readouterr().err
    assert f"add --env {world / 'mine.py'}:pump" in said and "load(" not in said
    assert rpl(capsys, "certify", "a", "--env", "mine.py:pump")["proved"] is True
    assert main(["certify", "a", "--env", "mine.py:pump", "--delta", "0.1"]) == 2
    assert "--delta would not be used" in capsys.readouterr().err
    assert main(["plot-region", "a"]) == 2
    assert "a is a run without a model, which rpl plot-region needs" in capsys.readouterr().err
    rpl(capsys, "train", "mine.py:by_state", "--budget", "20", "--name", "b", "--log-dir", ".")
    assert main(["certify", "b"]) == 2
    assert "--env path/to/file.py:factory" in capsys.readouterr().err
    assert rpl(capsys, "certify", "b", "--env", "mine.py:by_state")["lower"] >= 0


@pytest.mark.filterwarnings("ignore:the environment continues")
def test_a_run_without_a_model_made_in_python_goes_on_in_the_shell(world, capsys):
    """Its environment was looked for in a model."""
    env = gym.make("FrozenLake-v1", map_name="8x8", max_episode_steps=9)
    RPLAgent(env, returns=(0, 1), seed=0).learn(20, folder="a")
    more = rpl(capsys, "resume", "a", "--budget", "30")
    assert more["episodes"] == 30 and more["steps"] <= 270
    assert rpl(capsys, "evaluate", "a", "--episodes", "9")["episodes"] == 9


def test_another_world_does_not_refute_a_run(world, capsys):
    """Its steps were counted with those of the run's own world, and what they contradict was lost for good."""
    env = gym.make("FrozenLake-v1", map_name="8x8", max_episode_steps=9)
    RPLAgent(env, returns=(0, 1), seed=0).learn(20, folder="a")
    before = (world / "a" / "checkpoint.zip").read_bytes()
    for other, reason in (
        ("CliffWalking-v1", "CliffWalking-v1 is not the world of the run, FrozenLake-v1"),
        ("FrozenLake-v1", "FrozenLake-v1 is not the world of the run: its observations are others"),  # the small one
    ):
        assert main(["resume", "a", "--budget", "40", "--env", other]) == 2
        assert reason in capsys.readouterr().err
        assert (world / "a" / "checkpoint.zip").read_bytes() == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["info"],
        ["solve"],
        ["plan", "--gap", "0.1"],
        ["smc"],
        ["certify", "--episodes", "9"],
        ["improve", "--data", "log.csv"],
        ["curve", "--episodes", "9", "--objectives", "a", "b"],
        ["plot-region"],
        ["export", "--episodes", "9", "--policy-file", "a.csv"],
        ["check"],
        ["evaluate", "--policy", "a.csv", "--env"],
        ["evaluate", "--policy", "a.zip", "--env"],
    ],
    ids=" ".join,
)
def test_commands_that_need_a_model_say_that_there_is_none(world, capsys, arguments):
    """Most ended in a traceback."""
    place = len(arguments) if arguments[-1] == "--env" else 1
    assert main([*arguments[:place], "mine.py:pump", *arguments[place:]]) == 2
    said = capsys.readouterr().err
    assert "mine.py:pump has no model" in said and "only facts" in said and said.count("\n") == 1


def test_a_picture_is_no_certificate(world, capsys):
    (world / "picture.png").write_bytes(b"\x89PNG\xff")
    assert main(["certify", "picture.png", "--verify"]) == 2
    assert "picture.png is not a text file in UTF-8" in capsys.readouterr().err
    with pytest.raises(DataError, match="not a text file"):
        Certificate.from_json(world / "picture.png")


def test_a_file_may_state_the_facts_itself(world, capsys):
    assert rpl(capsys, "train", "mine.py:told", "--budget", "20", "--log-dir", "logs")["episodes"] == 20


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["train", "rpl/Betting-25-v0", "--discount", "0.9"], "discount is for environments without a model"),
        (["train", "--model", "x.prism", "--returns", "0", "1"], "are for environments without a model"),
        (["train", "Nowhere-v0", "--returns", "0", "1"], "no environment 'Nowhere-v0' is registered"),
        (["train", "FrozenLake-v0", "--returns", "0", "1"], "is registered: the nearest is FrozenLake-v1"),
        (["train", "FrozenLake-v1", "--returns", "1", "0"], "low < high"),
    ],
)
def test_errors_name_what_is_wrong(world, capsys, arguments, text):
    assert main(arguments) != 0
    assert text in capsys.readouterr().err


def test_a_run_with_a_horizon_is_proved(world, capsys):
    rpl(capsys, "train", "FrozenLake-v1", "--returns", "0", "1", "--budget", "12", "--name", "a", "--log-dir", "logs")
    assert rpl(capsys, "certify", "logs/a")["proved"] is True
    assert rpl(capsys, "certify", "logs/a", "--verify")["verified"] is True
