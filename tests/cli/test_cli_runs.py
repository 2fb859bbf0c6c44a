"""`rpl info`, `export` and `plot-region` of a run folder: what the run learned, not what could be simulated anew."""

from __future__ import annotations

import csv
import json
import re
import shutil

import pytest

import rpl_envs
from rpl_agent.agent import RPLAgent
from rpl_agent.cli import main
from tests.reference.policies import read_csv
from tests.small_worlds import make_worlds_small

pytestmark = pytest.mark.short_runs

ID = "rpl/Glider-11x9-v0"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    logs = tmp_path_factory.mktemp("logs")
    method = ("--confidence", "anytime", "--relaxation", "parameter", "--delta", "0.01")
    assert main(["train", ID, "--budget", "50", "--log-dir", str(logs), "--name", "run", "--quiet", *method]) == 0
    return str(logs / "run")


@pytest.fixture(scope="module")
def certificate(run):
    with open(f"{run}/certificate.json") as file:
        return json.load(file)


def test_info_of_a_run(run, certificate, capsys):
    assert main(["info", run, "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert main(["info", ID, "--json"]) == 0
    model = json.loads(capsys.readouterr().out)
    assert info["hash"] == model["hash"] and info["states"] == model["states"] == 99
    assert (info["episodes"], info["confidence"], info["delta"]) == (50, "anytime", 0.01)
    assert (info["lower"], info["upper"]) == (certificate["lower"], certificate["upper"])
    assert main(["info", run]) == 0
    assert "parameter names" in capsys.readouterr().out


def test_undecided_pairs_are_listed_and_in_the_report(tmp_path, capsys):
    """Most visited first, as many as the certificate counts; the page names each of them."""
    folder = tmp_path / "run"
    goal = ("--stop-when-regret", "1%", "--log-dir", str(tmp_path), "--name", "run", "--quiet")
    assert main(["train", ID, "--budget", "100", *goal]) == 0
    capsys.readouterr()
    assert main(["info", str(folder), "--undecided", "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    pairs = info["undecided_pairs"]
    assert len(pairs) == info["undecided"] > 1
    assert all(pair["action"] != pair["played"] for pair in pairs)
    visits = [pair["visits"] for pair in pairs]
    assert visits == sorted(visits, reverse=True) and visits[0] > 0.0
    assert main(["info", str(folder), "--undecided"]) == 0
    shown = capsys.readouterr().out
    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    assert "The states where more data would still matter" in page
    assert all(pair["name"] in shown and f"<td>{pair['name']}</td>" in page for pair in pairs)


def test_export_of_a_run(run, certificate, tmp_path, capsys):
    model, policy = tmp_path / "learned.drn", tmp_path / "policy.csv"
    assert main(["export", run, "--uncertain", str(model), "--policy-file", str(policy), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    # the same data and the same method: the same bounds as the run's own certificate
    assert result["lower"] == pytest.approx(certificate["lower"], abs=1e-5)
    assert result["upper"] == pytest.approx(certificate["upper"], abs=1e-5)
    agent = RPLAgent.load(f"{run}/checkpoint.zip")
    with policy.open() as file:
        assert len(list(csv.DictReader(file))) == agent.pmdp.num_states
    assert sorted(agent.policy.rows) == list(read_csv(policy, agent.pmdp).nonzero()[0])
    from rpl_agent.formats.drn import read_drn

    assert read_drn(model).pmdp.num_states == agent.pmdp.num_states


@pytest.fixture
def small_worlds():
    with pytest.MonkeyPatch.context() as patch:
        make_worlds_small(patch)
        yield


def test_plot_of_a_run(small_worlds, tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    seen = {}
    monkeypatch.setattr(
        "rpl_agent.agent.output.plotting.region.plot_region", lambda region, pmdp, **more: seen.update(more, U=region)
    )
    likelihood = tmp_path / "likelihood"
    train = ["train", ID, "--budget", "20", "--log-dir", str(tmp_path), "--name", "likelihood", "--quiet"]
    assert main(train) == 0
    assert main(["plot-region", str(likelihood), "--output", str(tmp_path / "r.png")]) == 0
    agent = RPLAgent.load(likelihood / "checkpoint.zip")
    agent.certify()
    low, high = seen["U"].box()
    expected = agent.session.planner.uncertainty.region.box()
    assert low == pytest.approx(expected[0]) and high == pytest.approx(expected[1])
    assert list(seen["true_theta"]) == list(rpl_envs.benchmark(ID).theta)
    monkeypatch.undo()
    assert main(["plot-region", str(likelihood), "--output", str(tmp_path / "r.png")]) == 0
    assert (tmp_path / "r.png").stat().st_size > 5000
    capsys.readouterr()
    assert (
        main(["plot-region", str(likelihood), "--parameters", "theta_h", "x", "--output", str(tmp_path / "r.png")]) == 2
    )
    assert "no parameter 'x'" in capsys.readouterr().err


def test_options_that_a_run_answers_itself_are_refused(run, tmp_path, capsys):
    out = ("--uncertain", str(tmp_path / "x.drn"))
    for line, option in [
        (["export", run, *out, "--episodes", "5"], "--episodes"),
        (["export", run, *out, "--delta", "0.4"], "--delta"),
        (["plot-region", run, "--episodes", "5"], "--episodes"),
        (["plot-region", run, "--confidence", "hoeffding"], "--confidence"),
        (["export", run, *out, "--delta", "0.001"], "--delta"),  # also where it is the default
        (["export", run, *out, "--policy", "own.csv"], "--policy"),
        (["export", run, "--policy-file", str(tmp_path / "x.csv"), "--policy", "own.csv"], "--policy"),
        (["plot-region", run, "--seed", "5"], "--seed"),
        (["info", run, "--theta", "theta_h=0.5"], "--theta"),
        (["info", run, "--model", "x.prism"], "--model"),
    ]:
        assert main(line) == 2
        err = capsys.readouterr().err
        assert f"{option} would not be used: {run} is a run with its own model" in err and err.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_a_folder_without_a_run_is_one_line(tmp_path, capsys):
    for line in (["info"], ["plot-region"], ["export", "--policy-file", str(tmp_path / "p.csv")]):
        assert main([line[0], str(tmp_path), *line[1:]]) == 2
        err = capsys.readouterr().err
        assert str(tmp_path) in err and err.count("\n") == 1


def test_a_run_without_a_registered_environment(run, tmp_path, capsys):
    """Model, counts and method are in the checkpoint; only the simulator's truth is not known then."""
    folder = tmp_path / "copy"
    shutil.copytree(run, folder)
    (folder / "run.json").write_text(json.dumps({"source": {}, "seed": 0}))
    assert main(["info", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 50
    assert main(["export", str(folder), "--policy-file", str(tmp_path / "p.json")]) == 0


@pytest.mark.parametrize("facts", [(), ("--returns", "0", "1")], ids=["with a model", "without a model"])
def test_a_run_whose_proof_is_too_long_says_so(facts, tmp_path, capsys, monkeypatch):
    """Its certificate had no proof, and nothing said why."""
    monkeypatch.setattr("rpl_agent.agent.loop.PROVED", 1)
    given = ["FrozenLake-v1", *facts, "--budget", "9", "--log-dir", str(tmp_path), "--quiet"]
    assert main(["train", *given, "--name", "a"]) == 0
    reason = "no proof: .* inequalities are more than 1: rpl certify RUN proves them"
    assert re.search(f"NOTE: {reason}", capsys.readouterr().out)
    assert main(["train", *given, "--name", "b", "--json"]) == 0
    assert any(re.match(reason, note) for note in json.loads(capsys.readouterr().out)["notes"])
    assert main(["certify", str(tmp_path / "a")]) == 0
    said = capsys.readouterr().out
    assert "proved: " in said and "no proof" not in said
    stored = json.loads((tmp_path / "a" / "certificate.json").read_text())
    assert stored["proved"] is True and stored["unproved"] == ""


def test_a_total_below_what_is_done_is_refused(run, tmp_path, capsys):
    """It took the place of the run's own budget, and the run went on to its proof at 50/20 episodes."""
    copied = tmp_path / "run"
    shutil.copytree(run, copied)
    before = {path.name: path.read_bytes() for path in copied.iterdir() if path.is_file()}
    assert main(["resume", str(copied), "--budget", "20", "--quiet"]) == 2
    said = capsys.readouterr().err
    assert "budget 20 is a new total, and less than the 50 episodes that are done" in said and said.count("\n") == 1
    assert {path.name: path.read_bytes() for path in copied.iterdir() if path.is_file()} == before
    assert main(["resume", str(copied), "--budget", "50", "--quiet"]) == 0
