"""The shell is open to one's own environment: every command on a run that was made in Python, and code by its name."""

from __future__ import annotations

import json
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from rpl_agent.agent import RPLAgent
from rpl_agent.agent.storage.state import model_from_data, model_to_data
from rpl_agent.cli import main
from rpl_agent.core.errors import DataError
from rpl_agent.core.model import Domain, Objective, ParametricMDP, build, paying
from tests.attach_worlds import Machine, machine_model

pytestmark = pytest.mark.short_runs

FACTORIES = """
import gymnasium as gym
from tests.attach_worlds import Machine, machine_model

class Drawn(Machine):
    metadata = {"render_modes": ["ansi"]}
    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode
    def render(self):
        return f"state {self.state}"

def both(render_mode=None):
    pmdp, objective = machine_model()
    return Drawn(render_mode), {"pmdp": pmdp, "objective": objective}

class Carries(Drawn):
    pmdp, objective = machine_model()

gym.register("own27/Machine-v0", Carries)

def nothing():
    return 3

def talkative():
    return Drawn(), {"model": 1}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("code") / "my_factories.py"
    path.write_text(FACTORIES)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Made in Python: an environment without a registered id, its model as an argument."""
    pmdp, objective = machine_model()
    agent = RPLAgent(env=Machine(), pmdp=pmdp, objective=objective, seed=0)
    agent.learn(budget=60, folder=tmp_path_factory.mktemp("logs") / "run")
    return agent.run_folder


def test_what_needs_no_environment_works_without_one(run, tmp_path, capsys):
    certificate = json.loads((run / "certificate.json").read_text())
    for line in (
        ["info", str(run)], ["certify", str(run)], ["certify", str(run), "--verify"],
        ["report", str(run), "--output", str(tmp_path / "page.html")],
        ["export", str(run), "--policy-file", str(tmp_path / "p.csv"), "--uncertain", str(tmp_path / "m.drn")],
        ["plot-region", str(run), "--output", str(tmp_path / "region.png")],
    ):  # fmt: skip
        assert main([*line, "--json"]) == 0, capsys.readouterr().err
        found = json.loads(capsys.readouterr().out)
        if "lower" in found:
            assert found["lower"] == pytest.approx(certificate["lower"], abs=1e-6), line


def test_what_needs_an_environment_takes_its_name(run, file, capsys):
    for command in ("evaluate", "watch", "resume"):
        assert main([command, str(run)]) == 2
        assert "--env module:Id or --env path/to/file.py:factory" in capsys.readouterr().err
    named = ["--env", f"{file}:both", "--json"]
    assert main(["evaluate", str(run), "--episodes", "200", *named]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lower"] - 1 <= found["monte_carlo"] <= found["upper"] + 1
    assert main(["watch", str(run), *named]) == 0
    assert json.loads(capsys.readouterr().out)["frames"] == 11
    assert main(["resume", str(run), "--budget", "80", *named]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 80


def test_a_guess_of_the_parameters_plans_for_an_environment(capsys):
    """It was refused, though nothing is played; where the world is played it has its own parameters."""
    for line in (["plan", "--episodes", "20", "--draws", "3"], ["solve"]):
        found = []
        for guess in ("0.3", "0.9"):
            assert main([*line, "FrozenLake-v1", "--theta", f"success_rate={guess}", "--json"]) == 0
            found.append(json.loads(capsys.readouterr().out)["value"])
        assert found[0] < found[1] - 0.1
        assert main([*line, "FrozenLake-v1"]) == 2
        assert "--theta" in capsys.readouterr().err
    for line in (["train", "--budget", "5"], ["certify", "--episodes", "5"], ["smc"]):
        assert main([*line, "FrozenLake-v1", "--theta", "success_rate=0.3"]) == 2
        assert "other worlds simulate themselves" in capsys.readouterr().err


def test_train_by_name_of_code(file, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(file.parent)
    names = (f"{file}:both", "my_factories.py:Carries", "my_factories:own27/Machine-v0", "my_factories:both")
    for number, name in enumerate(names):
        line = ["train", name, "--budget", "20", "--log-dir", str(tmp_path), "--name", str(number), "--json"]
        assert main(line) == 0, capsys.readouterr().err
        assert json.loads(capsys.readouterr().out)["episodes"] == 20
    monkeypatch.chdir(tmp_path)
    assert main(["resume", "1", "--budget", "30"]) == 2  # a run folder names no code, but says what to add
    hint = capsys.readouterr().err.strip().rpartition("add ")[2].split()
    assert hint == ["--env", f"{file}:Carries"]
    assert main(["resume", "1", "--budget", "30", *hint, "--quiet"]) == 0
    assert main(["info", "1", "--json"]) == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("{file}:missing", "has no function or class 'missing'"), ("{file}:nothing", "made int"),
        ("{file}:talkative", "keyword 'model'"), ("/nowhere/a.py:f", "no file"), ("no_such_module_27:f", "no module"),
    ],
)  # fmt: skip
def test_names_of_nothing_are_one_line(file, name, said, capsys):
    assert main(["info", name.format(file=file)]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_a_checkpoint_needs_no_model_beside_it(run, tmp_path):
    agent = RPLAgent.load(run / "checkpoint.zip", Machine())
    agent.learn(budget=5)
    alone = RPLAgent.load(run / "checkpoint.zip")
    assert alone.env is None and alone.certify().lower <= agent.certificate.upper


# ---------------------------------------------------------------------- the format
@dataclass(frozen=True)
class Place:
    name: str


Cell = namedtuple("Cell", "row column")


def models() -> dict[str, ParametricMDP]:
    def chain(*states: object, **more: object) -> ParametricMDP:
        first, second = states
        return build(
            first, lambda s: {0: {first: "p", second: "1 - p"}, (1, "x"): {second: 1}}, domain=["p"],
            action_names=[0, (1, "x")], labels={"end": lambda s: s == second}, rewards={"r": lambda s, a: 0.1}, **more,
        )  # fmt: skip

    big = 3**50
    return {
        "machine": machine_model()[0], "floats": chain(0.1, float("inf")), "named": chain(Cell(0, 1), Cell(1, 0)),
        "texts": chain("a\n", ("b", None, (True, np.int64(2)))), "objects": chain(Place("a"), Place("b")),
        "variables": chain((0, 1), (1, 1), variables=("x", "y")),
        "paying": build(
            {"a": "p", "b": "1 - p"}, lambda s: {"go": {paying("b", r=2.5): "p", "a": "1 - p"}},
            domain=Domain.box({"p": (0.1, 0.9)}), rewards={"r": lambda s, a: 1.0},
        ),
        "big": build(
            0, lambda s: {"go": {0: f"p/{big} + 1/{big}", 1: f"1 - p/{big} - 1/{big}"}}, domain=["p"],
        ),
        "simplex": build(
            0, lambda s: {"go": {0: "p", 1: "q", 2: "1 - p - q"}}, domain=Domain.box(["p", "q"]).with_simplex(),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", models())
def test_models_are_stored_exactly(name):
    model = models()[name]
    data, arrays = model_to_data(model)
    found = model_from_data(json.loads(json.dumps(data)), arrays)
    assert found.content_hash == model.content_hash and found.name == model.name
    assert repr(found.action_keys) == repr(model.action_keys)
    for f in range(model.num_expressions):
        assert found.table.polynomial(f) == model.table.polynomial(f)
    for s in range(model.num_states):
        assert repr(found.state_value(s)) == repr(model.state_value(s)).replace("np.int64(2)", "2")
        if name != "objects":
            assert found.state_index(model.state_value(s)) == s


def test_a_damaged_model_is_refused():
    data, arrays = model_to_data(machine_model()[0])
    with pytest.raises(DataError, match="damaged"):
        model_from_data(data, {**arrays, "successor": arrays["successor"][::-1]})
    with pytest.raises(DataError, match="not readable"):
        model_from_data({**data, "table": None}, arrays)


def test_rewards_that_depend_on_parameters_are_stored(tmp_path):
    from rpl_agent.formats import prism

    path = Path(__file__).parents[2] / "examples" / "models" / "maintenance.prism"
    model = prism.load(str(path)).pmdp
    assert model_from_data(*model_to_data(model)).content_hash == model.content_hash


def test_own_objects_as_states_are_shown(tmp_path):
    model = models()["objects"]
    found = model_from_data(*model_to_data(model))
    assert repr(found.state_value(0)) == "Place(name='a')"
    assert Objective.reach("end").resolve(found).target.tolist() == [False, True]


def test_a_file_without_its_factory_lists_what_it_has(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(
        "raise SystemExit('this file was run')\n\nclass Pump: ...\n\ndef make(): ...\n\ndef _hidden(): ...\n"
    )
    assert main(["train", str(file)]) == 2
    said = capsys.readouterr().err
    assert f"{file}:Pump or {file}:make" in said and "_hidden" not in said and "was run" not in said


def test_a_file_of_ranges_stands_for_many_options(tmp_path, capsys):
    model = tmp_path / "coin.prism"
    model.write_text(
        "dtmc\nconst double p;\nconst double q;\nmodule m\ns:[0..2];\n[] s=0 -> p*q:(s'=1) + 1-p*q:(s'=2);\nendmodule\n"
        'label "won" = s=1;\n'
    )
    ranges = tmp_path / "ranges.txt"
    ranges.write_text("# measured last year\np=0.2:0.4\n\nq=0.5:0.6  # guessed\n")
    asked = [str(model), "--property", 'P=? [F "won"]', "--json"]
    assert main(["solve", *asked, "--params", str(ranges)]) == 0
    from_file = json.loads(capsys.readouterr().out)
    assert main(["solve", *asked, "--param", "p=0.2:0.4", "--param", "q=0.5:0.6"]) == 0
    by_options = json.loads(capsys.readouterr().out)
    del from_file["seconds"], by_options["seconds"]
    assert by_options == from_file
    ranges.write_text("p 0.2\n")
    assert main(["solve", *asked, "--params", str(ranges)]) == 2
    assert "expected NAME=VALUE" in capsys.readouterr().out
    assert main(["solve", *asked, "--params", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().out
