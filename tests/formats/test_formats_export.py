"""Exports: what is written is what the model says, in names that other tools accept."""

from __future__ import annotations

import csv
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

import rpl_envs
from rpl_agent.core.errors import ModelError, RPLWarning
from rpl_agent.core.model import Objective, Policy
from rpl_agent.formats import prism
from rpl_agent.formats.export import identifiers, write_policy, write_uncertain
from tests.reference.policies import read_csv

MODELS = Path(__file__).parents[2] / "examples" / "models"


@pytest.fixture(scope="module")
def betting():
    return rpl_envs.benchmark("Betting", n=3)


@pytest.fixture(scope="module")
def bounds(betting):
    value = betting.pmdp.table.at(np.array([0.55]))
    constant = betting.pmdp.table.is_constant
    return np.where(constant, value, np.clip(value - 0.3, 0, 1)), np.where(constant, value, np.clip(value + 0.1, 0, 1))


def test_bounds_of_zero_are_written_as_they_are(betting, bounds, tmp_path):
    pmdp, (lower, upper) = betting.pmdp, bounds
    lower = np.where(pmdp.table.is_constant, lower, 0.0)
    written = write_uncertain(tmp_path / "b.drn", pmdp, lower, upper, betting.objective)
    assert sorted(p.suffix for p in written) == [".drn", ".props"]
    assert (tmp_path / "b.props").read_text() == 'R{"money"}max=? [ F "done" ]\n'
    text = (tmp_path / "b.drn").read_text()
    assert text.count(": [0.0, ") == (lower[pmdp.expression] == 0.0).sum() > 0


def test_names_become_identifiers_and_stay_distinct():
    assert identifiers(["bet 0", "bet_0", "9 lives", "x>=1", "?", "init"], reserved=["init"]) == {
        "bet 0": "bet_0_2", "bet_0": "bet_0", "9 lives": "_9_lives", "x>=1": "x_1", "?": "unnamed", "init": "init_2",
    }  # fmt: skip


def test_formula_labels_are_named_in_the_property(tmp_path):
    model = prism.load(MODELS / "glider.prism")
    model.pmdp, objective = model.objective("Pmax=? [ x<9 U x=5 & y>2 ]")
    value = model.pmdp.table.at(np.array([0.3, 0.7]))
    _, properties = write_uncertain(tmp_path / "g.drn", model.pmdp, value, value, objective)
    assert properties.read_text() == 'Pmax=? [ !"x_9" U "x_5_y_2" ]\n'
    assert " x_5_y_2" in (tmp_path / "g.drn").read_text()


def test_bad_bounds_and_endings_are_refused(betting, bounds, tmp_path):
    lower, upper = bounds
    with pytest.raises(ModelError, match=r"the ending must be one of .drn, .umb"):
        write_uncertain(tmp_path / "x.txt", betting.pmdp, lower, upper)
    with pytest.raises(ModelError, match=r"the lower bound exceeds the upper bound .* at state 0 .*, expression p"):
        write_uncertain(tmp_path / "x.drn", betting.pmdp, upper, lower)
    with pytest.raises(ModelError, match="bounds have shapes"):
        write_uncertain(tmp_path / "x.drn", betting.pmdp, lower[1:], upper[1:])
    with pytest.raises(ModelError, match=r"the ending must be one of .csv, .json, .strat"):
        write_policy(tmp_path / "x.txt", betting.pmdp, Policy.uniform(betting.pmdp))


def test_umb_archives_hold_the_arrays(betting, bounds, tmp_path):
    pytest.importorskip("umbi", reason="umbi is not installed")
    pmdp, (lower, upper) = betting.pmdp, bounds
    write_uncertain(tmp_path / "b.umb", pmdp, lower, upper)
    with tarfile.open(tmp_path / "b.umb") as archive:
        index = json.load(archive.extractfile("index.json"))
        target = np.frombuffer(archive.extractfile("branch-to-target.bin").read(), dtype="<u8")
        probability = np.frombuffer(archive.extractfile("branch-to-probability.bin").read(), dtype="<f8").reshape(-1, 2)
    sizes = index["transition-system"]
    assert (sizes["#states"], sizes["#choices"], sizes["#branches"]) == (
        pmdp.num_states,
        pmdp.num_rows,
        pmdp.num_transitions,
    )
    np.testing.assert_array_equal(target, pmdp.successor)
    np.testing.assert_array_equal(probability, np.column_stack([lower, upper])[pmdp.expression])


def test_policies_are_written_and_read(betting, tmp_path):
    pmdp = betting.pmdp
    weights = np.random.default_rng(0).random(pmdp.num_rows)
    weights /= np.add.reduceat(weights, pmdp.state_ptr[:-1])[pmdp.row_state]
    policy = Policy.randomised(weights)
    write_policy(tmp_path / "p.csv", pmdp, policy)
    np.testing.assert_array_equal(read_csv(tmp_path / "p.csv", pmdp), weights)
    with open(tmp_path / "p.csv", newline="") as file:
        first = next(csv.DictReader(file))
    assert (first["state"], first["money"], first["step"], first["action"]) == ("0", "10", "0", "bet 0")
    write_policy(tmp_path / "p.json", pmdp, policy)
    content = json.loads((tmp_path / "p.json").read_text())
    assert content["model_hash"] == pmdp.content_hash
    assert content["states"]["0"]["bet 0"] == weights[0]
    with pytest.raises(ModelError, match="deterministic stationary"):
        write_policy(tmp_path / "p.strat", pmdp, policy)


def test_deterministic_and_finite_horizon_policies(betting, tmp_path):
    pmdp = betting.pmdp
    rows = pmdp.state_ptr[1:] - 1
    write_policy(tmp_path / "p.strat", pmdp, Policy.deterministic(rows))
    lines = (tmp_path / "p.strat").read_text().splitlines()
    assert lines[0] == "(10,0):bet 10"
    assert len(lines) == pmdp.num_states
    stepwise = Policy.deterministic(np.vstack([rows, pmdp.state_ptr[:-1]]))
    write_policy(tmp_path / "h.csv", pmdp, stepwise)
    with open(tmp_path / "h.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 * pmdp.num_states
    assert [line["action"] for line in lines if line["state"] == "0"] == ["bet 10", "bet 0"]
    write_policy(tmp_path / "h.json", pmdp, stepwise)
    assert [s["0"] for s in json.loads((tmp_path / "h.json").read_text())["states"]] == [
        {"bet 10": 1.0},
        {"bet 0": 1.0},
    ]


@pytest.mark.parametrize(
    "objective",
    [Objective.reward("money", target="done", horizon=2), Objective.discounted("money", 0.9)],
    ids=Objective.describe,
)
def test_a_property_that_prism_has_not_is_not_written_as_another(betting, bounds, tmp_path, objective):
    """The bounded reward read `C<=2` once, which goes on behind the target: Storm answered another question."""
    (tmp_path / "b.props").write_text("of an earlier model")
    with pytest.warns(RPLWarning, match=r"PRISM has no .* cannot be exported.*: there is no b\.props"):
        written = write_uncertain(tmp_path / "b.drn", betting.pmdp, *bounds, objective)
    assert [path.name for path in written] == ["b.drn"]
    assert not (tmp_path / "b.props").exists()
