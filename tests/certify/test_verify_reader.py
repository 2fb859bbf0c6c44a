"""`rpl certify FILE.json --verify` runs nothing that the file names, and uses what the reader brings."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rpl_agent.agent import RPLAgent
from rpl_agent.cli import main
from tests.attach_worlds import Machine, machine_model

pytestmark = pytest.mark.short_runs

#: A world whose log is written here: two tries to reach the goal.
MODEL = """
mdp
const double p;
module m
  s : [0..2] init 0;
  [go] s=0 -> p : (s'=1) + 1-p : (s'=2);
  [on] s=1 -> p : (s'=2) + 1-p : (s'=1);
  [stay] s=2 -> (s'=2);
endmodule
label "goal" = s=1;
"""
EVIL = """
from pathlib import Path
Path({marker!r}).write_text("executed")
def make():
    Path({marker!r}).write_text("executed")
    from tests.attach_worlds import Machine, machine_model
    pmdp, objective = machine_model()
    return Machine(), {{"pmdp": pmdp, "objective": objective}}
"""


@pytest.fixture
def written(tmp_path: Path) -> dict[str, Any]:
    """A log, a model, and a certificate from both, made by the command line."""
    model, log, path = tmp_path / "m.prism", tmp_path / "log.csv", tmp_path / "c.json"
    model.write_text(MODEL)
    write_log(log, 400, seed=1)
    own = ["--model", str(model), "--param", "p=0.1:0.9", "--property", 'Pmax=? [F "goal"]']
    assert main(["certify", *own, "--data", str(log), "--output", str(path)]) == 0
    return {"model": own, "log": log, "path": path}


def write_log(path: Path, episodes: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["s", "action", "next_s", "episode"])
        for episode in range(episodes):
            rows.writerow([0, "go", 1 if draw.random() < 0.6 else 2, episode])


def verified(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["certify", *arguments, "--verify", "--json"])
    return code, json.loads(capsys.readouterr().out)


# ---------------------------------------------------------------------- nothing is run
@pytest.mark.parametrize(
    "name",
    ["{folder}/evil.py:make", "evil.py:make", "evil:make", "evil:Some-v0", "os:abort", "rpl_envs.x:evil.py:make"],
)
def test_a_file_that_names_code_runs_none(name, written, tmp_path, capsys, monkeypatch):
    """Four of four such files were executed."""
    marker = tmp_path / "executed"
    (tmp_path / "evil.py").write_text(EVIL.format(marker=str(marker)))
    monkeypatch.chdir(tmp_path)
    name = name.format(folder=tmp_path)
    for source in ({"id": name}, {"id": name, "model": None}, {"id": name, "kwargs": {}}, {"id": [name]}, {}):
        found = json.loads(written["path"].read_text()) | {"source": source}
        written["path"].write_text(json.dumps(found))
        code, said = verified([str(written["path"])], capsys)
        assert code == 2 and ("--env" in said["error"] or "not a string" in said["error"]), said
        assert not marker.exists()


@pytest.mark.parametrize("change", [{"param": "p=0:1"}, {"model": 3}, {"max_states": "many"}, {"unknown": {"a": 1}}])
def test_options_in_a_file_have_the_types_of_options(change, written, capsys):
    found = json.loads(written["path"].read_text())
    found["source"] |= change
    written["path"].write_text(json.dumps(found))
    code, said = verified([str(written["path"])], capsys)
    assert code == 2 and f"the {next(iter(change))} of" in said["error"]


def test_a_run_folder_that_wraps_code_runs_none(tmp_path, capsys, monkeypatch):
    """Registered environments that make others by name are another door to any module."""
    marker = tmp_path / "executed"
    (tmp_path / "evil.py").write_text(EVIL.format(marker=str(marker)))
    monkeypatch.chdir(tmp_path)
    pmdp, objective = machine_model()
    agent = RPLAgent(env=Machine(), pmdp=pmdp, objective=objective, seed=0).learn(budget=20, folder=tmp_path / "run")
    path = agent.run_folder / "run.json"
    stored = json.loads(path.read_text())
    for source in (
        {"id": "GymV26Environment-v0", "kwargs": {"env_id": "evil:make"}},
        {"id": "GymV21Environment-v0", "kwargs": {"env_id": "evil:make"}},
        {"id": "evil:make", "kwargs": {}},
        {"id": f"{tmp_path}/evil.py:make"},
    ):
        path.write_text(json.dumps(stored | {"source": source}))
        for command in ("evaluate", "watch", "resume"):
            assert main([command, str(agent.run_folder)]) == 2
            assert "--env" in capsys.readouterr().err and not marker.exists()


def test_the_readers_own_word_runs_code(tmp_path, capsys):
    """The environment of a certificate, named on the command line, is made."""
    marker, path = tmp_path / "executed", tmp_path / "c.json"
    (tmp_path / "mine.py").write_text(EVIL.format(marker=str(marker)))
    name = f"{tmp_path}/mine.py:make"
    log = tmp_path / "log.csv"
    pmdp, _ = machine_model()
    row = int(pmdp.row_ptr[pmdp.state_ptr[pmdp.initial_state]])
    states = [pmdp.initial_state, int(pmdp.successor[row])]
    action = pmdp.action_names[int(pmdp.action[pmdp.state_ptr[pmdp.initial_state]])]
    value = [pmdp.state_value(s) for s in states]
    with log.open("w", newline="") as file:
        csv.writer(file).writerows([["state", "action", "next_state"], [value[0], action, value[1]]])
    assert main(["certify", name, "--data", str(log), "--output", str(path)]) == 0
    marker.unlink()
    code, said = verified([str(path)], capsys)
    assert code == 2 and f"add --env {name}" in said["error"] and not marker.exists()
    code, said = verified([str(path), "--env", name], capsys)
    assert code == 0 and said["verified"] and marker.exists()
    assert main(["certify", name, "--env", name]) == 2 and "--env belongs to --verify" in capsys.readouterr().err


# ---------------------------------------------------------------------- what the reader brings
def test_the_sentence_says_whose_data_these_are(written, capsys):
    path, log = str(written["path"]), str(written["log"])
    capsys.readouterr()
    assert main(["certify", path, "--verify"]) == 0
    said = capsys.readouterr().out
    assert "verified against 400 transitions, with the file's own data" in said and "objective: max prob" in said
    assert main(["certify", path, "--verify", "--data", log]) == 0
    assert f"verified against 400 transitions, with your {log}" in capsys.readouterr().out


def test_the_readers_log_and_model_are_compared(written, tmp_path, capsys):
    """`--data nosuchfile.csv` was swallowed, and "verified" printed."""
    path, log = str(written["path"]), str(written["log"])
    for own in ([], written["model"]):
        code, said = verified([path, *own, "--data", log], capsys)
        assert code == 0 and said["verified"] and said["data"] == f"your {log}" and said["samples"] == 400
    code, said = verified([path, "--data", str(tmp_path / "nosuchfile.csv")], capsys)
    assert code == 2 and "nosuchfile.csv" in said["error"]
    other = tmp_path / "other.csv"
    for episodes, seed in ((400, 2), (399, 1), (401, 1)):
        write_log(other, episodes, seed)
        code, said = verified([path, "--data", str(other)], capsys)
        assert code == 1 and f"not those of {other}" in said["problems"][0]
    code, said = verified([path, "--data", log, "--fixed-length"], capsys)
    assert code == 1 and "other schedule of marks" in said["problems"][0] and "--fixed-length" in said["problems"][0]
    narrow = [*written["model"][:3], "p=0.1:0.8", *written["model"][4:]]
    code, said = verified([path, *narrow], capsys)
    assert code == 1 and "another model" in said["problems"][0]


def test_a_file_forged_with_its_data_fails_on_the_readers_log(written, tmp_path, capsys):
    """Everything in the file fits together, from another log: only the reader's own log tells."""
    better, forged = tmp_path / "better.csv", tmp_path / "forged.json"
    write_log(better, 4000, seed=3)
    assert main(["certify", *written["model"], "--data", str(better), "--output", str(forged)]) == 0
    assert verified([str(forged)], capsys)[0] == 0
    code, said = verified([str(forged), "--data", str(written["log"])], capsys)
    assert code == 1 and "not those of" in said["problems"][0]


def test_a_certificate_without_data_is_checked_against_the_readers(written, capsys):
    found = json.loads(written["path"].read_text())
    written["path"].write_text(json.dumps({k: v for k, v in found.items() if k not in ("data", "source")}))
    path, log = str(written["path"]), str(written["log"])
    assert "does not name its model" in verified([path, "--data", log], capsys)[1]["error"]
    for own in ([], written["model"]):
        assert "no data" in verified([path, *own], capsys)[1]["error"]
    assert verified([path, *written["model"], "--data", log], capsys)[0] == 0


@pytest.mark.parametrize(
    "options",
    [
        ["--episodes", "7"],
        ["--delta", "0.5"],
        ["--delta=0.001"],
        ["--seed", "0"],
        ["--confidence", "likelihood"],
        ["--precision", "1e-5"],
        ["--output", "d.json"],
        ["--evaluate", "optimal"],
        ["--theta", "p=0.5"],
        ["--max-steps", "3"],
        ["--fixed-length"],
        ["--quarantine", "q.csv"],
        ["--param", "p=0:1"],
        ["--normalise"],
    ],
)
def test_options_that_are_not_used_are_refused(options, written, capsys):
    code, said = verified([str(written["path"]), *options], capsys)
    assert code == 2 and options[0].partition("=")[0] in said["error"] and "would not be used" in said["error"]


def test_a_run_is_verified_with_its_own_data_only(tmp_path, capsys):
    pmdp, objective = machine_model()
    agent = RPLAgent(env=Machine(), pmdp=pmdp, objective=objective, seed=0).learn(budget=20, folder=tmp_path / "run")
    run = str(agent.run_folder)
    code, said = verified([run], capsys)
    assert code == 0 and said["data"] == "the run's own data"
    for options in (["--data", "x.csv"], ["--delta", "0.5"], ["--env", "a:b"], ["--episodes", "3"]):
        code, said = verified([run, *options], capsys)
        assert code == 2 and "would not be used" in said["error"]
        assert main(["certify", run, *options]) == 2
