"""Commands and calls that used to write over something of the user's."""

from __future__ import annotations

import gymnasium as gym
import pytest

import rpl_envs  # noqa: F401  (registers the worlds)
from rpl_agent import Counts, ModelError, Objective, RPLAgent, build, solve
from rpl_agent.agent import runs
from rpl_agent.agent.storage import checkpoint
from rpl_agent.agent.storage.checkpoint import CheckpointError, write_run
from rpl_agent.cli import main
from rpl_agent.core.errors import DataError
from rpl_agent.formats.logs import read_log
from rpl_agent.studies.baselines import QLearning

pytestmark = pytest.mark.short_runs


def coin():
    return build(0, lambda s: {"flip": {1: "p", 2: "1 - p"}} if s == 0 else {"stay": {s: 1}}, domain=["p"])


def test_forbidden_rows_are_not_written_over_the_log(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("state,action,next_state\n0,flip,1\n")
    with pytest.raises(DataError, match="is the log itself"):
        read_log(coin(), log, quarantine=log)
    assert log.read_text().count("\n") == 2


def test_a_quarantine_file_is_opened_by_the_first_forbidden_row(tmp_path):
    """A log without any, and one that could not be read, emptied the file of an earlier one."""
    log, kept = tmp_path / "log.csv", tmp_path / "kept.csv"
    log.write_text("state,action,next_state\n0,flip,1\n")
    kept.write_text("earlier")
    read_log(coin(), log, quarantine=kept)
    with pytest.raises((DataError, OSError)):
        read_log(coin(), tmp_path / "none.csv", quarantine=kept)
    assert kept.read_text() == "earlier"


FLIP = """mdp
const double p;
module flip
 x : [0..2] init 0;
 [go] x=0 -> p:(x'=1) + 1-p:(x'=2);
 [stay] x>0 -> true;
endmodule
label "done" = x=1;
"""


@pytest.mark.parametrize(
    "words",
    [
        ["improve", "--baseline", "frequencies", "--policy-file", "log.csv"],
        ["improve", "--baseline", "policy.csv", "--policy-file", "./policy.csv"],
        ["improve", "--baseline", "frequencies", "--policy-file", "new.json", "--output", "new.json"],
        ["export", "--policy-file", "link.csv"],
        ["certify", "--quarantine", "flip.prism"],
    ],
)
def test_commands_write_over_no_file_that_they_read(tmp_path, monkeypatch, capsys, words):
    """The log, a policy, the model; nor do two options write one file."""
    monkeypatch.chdir(tmp_path)
    contents = {
        "flip.prism": FLIP,
        "log.csv": "x,action,next_x\n0,go,1\n0,go,2\n",
        "policy.csv": "state,action,weight\n0,go,1\n1,stay,1\n2,stay,1\n",
    }
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "link.csv").symlink_to("log.csv")
    command, *options = words
    model = ["--model", "flip.prism", "--property", 'Pmax=? [F "done"]', "--data", "log.csv"]
    assert main([command, *model, *options]) == 2
    assert "is a file that another option reads or writes: name another one" in capsys.readouterr().err
    assert {name: (tmp_path / name).read_text() for name in contents} == contents
    assert not (tmp_path / "new.json").exists()


def test_a_folder_with_a_run_takes_no_other_one(tmp_path):
    env = gym.make("rpl/Betting-v0", n=3)
    agent = RPLAgent(seed=0).learn(env, budget=5, folder=tmp_path)
    before = (tmp_path / "checkpoint.zip").read_bytes()
    with pytest.raises(ModelError, match="has a run already"):
        RPLAgent(seed=1).learn(env, budget=5, folder=tmp_path)
    assert (tmp_path / "checkpoint.zip").read_bytes() == before
    agent.learn(env, budget=5, folder=tmp_path, reset_num_timesteps=False)  # its own run may go on
    assert agent.num_episodes == 10


def test_a_folder_that_cannot_be_made_is_an_error_before_any_play(tmp_path, capsys):
    """The error of the system named a path and no reason to look at it."""
    file = tmp_path / "file"
    file.write_text("mine")
    for place in (file, file / "logs"):
        for made, learnt in (({"tensorboard_log": place}, {}), ({}, {"folder": place})):
            agent = RPLAgent("rpl/Betting-25-v0", seed=0, **made)
            with pytest.raises(ModelError, match=r"file.* is no folder that can be written to: "):
                agent.learn(budget=5, **learnt)
            assert agent.num_timesteps == 0
        assert main(["train", "rpl/Betting-25-v0", "--budget", "5", "--log-dir", str(place)]) == 2
        assert f"rpl train: {place} is no folder that can be written to: " in capsys.readouterr().err
    assert file.read_text() == "mine"


def test_an_agent_is_loaded_from_its_file_though_a_folder_has_its_name(tmp_path):
    agent = RPLAgent(seed=0).learn(gym.make("rpl/Betting-v0", n=3), budget=5)
    (tmp_path / "saved").mkdir()
    agent.save(tmp_path / "saved")
    assert RPLAgent.load(tmp_path / "saved").num_episodes == 5


def test_a_sketch_is_not_written_over_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["sketch", "FrozenLake-v1", "--episodes", "3"]) == 0
    (tmp_path / "sketch.py").write_text("mine")
    assert main(["sketch", "FrozenLake-v1", "--episodes", "3"]) == 2
    assert "sketch.py exists" in capsys.readouterr().err and (tmp_path / "sketch.py").read_text() == "mine"


def test_a_discount_of_zero_is_no_missing_discount(capsys):
    assert main(["train", "FrozenLake-v1", "--returns", "0", "1", "--discount", "0", "--budget", "2"]) == 2
    assert "discount" in capsys.readouterr().err


def test_objectives_are_texts_for_solve_and_for_other_agents():
    model = build(
        0, lambda s: {"flip": {1: "1/2", 2: "1/2"}} if s == 0 else {"stay": {s: 1}}, domain=[],
        labels={"won": lambda s: s == 1},
    )  # fmt: skip
    text = "maximise probability of won"
    assert solve(model, text).lower == solve(model, Objective.parse(text)).lower and Counts(model).total == 0
    agent = QLearning(attachment={"objective": "maximise money until done"})
    assert isinstance(agent.attachment["objective"], Objective)


def test_a_policy_of_another_library_that_is_not_installed(tmp_path, capsys, monkeypatch):
    (tmp_path / "ppo.zip").write_bytes(b"")
    monkeypatch.setattr("rpl_agent.cli.training.find_spec", lambda name: None)
    arguments = ["--policy", str(tmp_path / "ppo.zip"), "--env", "FrozenLake-v1", "--returns", "0", "1"]
    assert main(["evaluate", *arguments]) == 2
    assert "pip install 'rpl_agent[baselines]'" in capsys.readouterr().err


def test_the_command_that_resumes_a_run_names_the_users_own_code(tmp_path):
    """It was refused, with the option that it lacked."""
    write_run(tmp_path, {"id": "/some where/pump.py:make"}, 0)
    assert runs._resume_command(tmp_path) == f"rpl resume {tmp_path} --env '/some where/pump.py:make'"
    write_run(tmp_path, {"id": "FrozenLake-v1"}, 0)
    assert runs._resume_command(tmp_path) == f"rpl resume {tmp_path}"


def test_a_full_disk_at_the_end_does_not_hide_the_certificate(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise CheckpointError("no space left")

    write = checkpoint.write

    def until_the_end(path, state, arrays):
        (full if state["session"]["episodes"] else write)(path, state, arrays)

    monkeypatch.setattr(checkpoint, "write", until_the_end)
    arguments = ["train", "rpl/Betting-25-v0", "--budget", "5", "--quiet", "--log-dir", str(tmp_path)]
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert "the policy is certified" in said and "what was learned is saved" not in said
