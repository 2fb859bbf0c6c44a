"""The public uncertain MDP: solve, certify, in and out of DRN; Storm reads the same file."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rpl_agent import Config, Counts, Nature, Objective, UncertainMDP, build, certify, solve
from rpl_agent.cli import main
from rpl_agent.core.errors import ModelError
from rpl_agent.formats.drn import load_drn, read_drn
from rpl_agent.formats.export import write_uncertain

GOAL = Objective.reach("goal", avoid="lost")


def model(n: int = 6):
    def actions(s):
        if s in (-1, n):
            return {"walk": {s: "1"}}
        return {"walk": {s + 1: "p", s: "q", -1: "1-p-q"}, "jump": {min(s + 2, n): "p", -1: "1-p"}}

    labels = {"goal": lambda s: s == n, "lost": lambda s: s == -1}
    return build(0, actions, domain=["p", "q"], labels=labels, rewards={"time": lambda s, a: 1.0}, validate=False)


def intervals(pmdp):
    middle = pmdp.table.at(np.array([0.6, 0.2]))
    width = np.where(pmdp.table.is_constant, 0.0, 0.1)
    return np.clip(middle - width, 0, 1), np.clip(middle + width, 0, 1)


def test_solve_takes_an_uncertain_mdp_and_drn_keeps_it(tmp_path):
    pmdp = model()
    lower, upper = intervals(pmdp)
    given = UncertainMDP.from_intervals(pmdp, lower, upper)
    write_uncertain(tmp_path / "m.drn", pmdp, lower, upper)
    read = read_drn(tmp_path / "m.drn")
    for name in ("state_ptr", "action", "row_ptr", "successor", "lower", "upper"):
        np.testing.assert_array_equal(getattr(read, name), getattr(given, name))
    assert read.action_names == pmdp.action_names and read.initial_state == pmdp.initial_state
    np.testing.assert_array_equal(read.rewards["time"].row, pmdp.rewards["time"].row)
    values = {}
    for nature in Nature:
        ours, theirs = solve(given, GOAL, nature), solve(read, GOAL, nature)
        assert (ours.lower, ours.upper) == (theirs.lower, theirs.upper)
        values[nature] = ours
        assert ours.check() == []
    assert 0 < values[Nature.ADVERSARIAL].lower < values[Nature.COOPERATIVE].upper < 1


def test_storm_finds_the_same_values_in_our_file(tmp_path):
    stormpy = pytest.importorskip("stormpy", reason="the peer stormpy is not installed (extra 'peers')")
    pmdp = model()
    write_uncertain(tmp_path / "m.drn", pmdp, *intervals(pmdp))
    theirs = stormpy.build_model_from_drn[stormpy.Interval](str(tmp_path / "m.drn"))
    goal = stormpy.parse_properties('Pmax=? [ !"lost" U "goal" ]')[0]
    mode = stormpy.UncertaintyResolutionMode
    for nature, how in ((Nature.ADVERSARIAL, mode.ROBUST), (Nature.COOPERATIVE, mode.COOPERATIVE)):
        found = stormpy.model_checking(theirs, goal, only_initial_states=True, uncertainty_resolution_mode=how)
        value = float(found.get_value(theirs.initial_states[0]))
        ours = solve(read_drn(tmp_path / "m.drn"), GOAL, nature)
        assert ours.lower - 1e-4 <= value <= ours.upper + 1e-4


def test_data_narrow_an_uncertain_mdp():
    pmdp = model()
    given = UncertainMDP.from_intervals(pmdp, *intervals(pmdp))
    before = [solve(given, GOAL, nature) for nature in (Nature.ADVERSARIAL, Nature.COOPERATIVE)]
    counts = Counts(given.pmdp)
    truth = pmdp.table.at(np.array([0.6, 0.2]))[pmdp.expression]
    rng = np.random.default_rng(1)
    batch = np.concatenate([rng.multinomial(20_000, truth[a:b]) for a, b in zip(pmdp.row_ptr, pmdp.row_ptr[1:])])
    counts.add_batch(batch)
    found = certify(given, counts, GOAL, Config(delta=0.05))
    exact = solve(UncertainMDP.from_intervals(pmdp, *[pmdp.table.at(np.array([0.6, 0.2]))] * 2), GOAL)
    assert before[0].lower < found.lower <= exact.lower + 1e-6 and exact.upper - 1e-6 <= found.upper < before[1].upper


def ask(capsys, *arguments: str) -> dict:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_drn_files_on_the_command_line(tmp_path, capsys):
    """Sizes, and properties over labels, rewards and the number of a state; as Python answers them."""
    pmdp = model()
    path = tmp_path / "m.drn"
    write_uncertain(path, pmdp, *intervals(pmdp))
    sizes = ask(capsys, "info", str(path))
    assert (sizes["states"], sizes["transitions"]) == (pmdp.num_states, pmdp.num_transitions)
    found = ask(capsys, "solve", str(path), "--property", 'Pmax=? [ !"lost" U "goal" ]')
    for nature, name in ((Nature.ADVERSARIAL, "robust"), (Nature.COOPERATIVE, "optimistic")):
        wanted = solve(read_drn(path), GOAL, nature)
        assert (found[f"{name}_lower"], found[f"{name}_upper"]) == (wanted.lower, wanted.upper)
    goal = int(np.flatnonzero(load_drn(path).pmdp.labels["goal"])[0])
    same = ask(capsys, "solve", "--model", str(path), "--property", f'Pmaxmin=? [ !"lost" U x={goal} ]')
    assert same["lower"] == found["robust_lower"]
    cost = ask(capsys, "solve", str(path), "--property", 'R{"time"}maxmax=? [ F ("goal" | "lost") ]')
    assert 1 < cost["lower"] <= cost["upper"] < 20


def test_data_narrow_a_drn_file_and_go_back_into_one(tmp_path, capsys):
    pmdp = model()
    path, log, out = tmp_path / "m.drn", tmp_path / "log.csv", tmp_path / "narrow.drn"
    write_uncertain(path, pmdp, *intervals(pmdp), GOAL)
    skeleton = load_drn(path).pmdp
    rng, lines = np.random.default_rng(3), ["episode,x,action,next_x"]
    truth = pmdp.table.at(np.array([0.6, 0.2]))[pmdp.expression]
    for row in range(skeleton.num_rows):
        part = slice(skeleton.row_ptr[row], skeleton.row_ptr[row + 1])
        name = skeleton.action_names[skeleton.action[row]]
        for successor in rng.choice(skeleton.successor[part], size=4000, p=truth[part] / truth[part].sum()):
            lines.append(f"{len(lines)},{skeleton.row_state[row]},{name},{successor}")
    log.write_text("\n".join(lines) + "\n")
    before = [solve(read_drn(path), GOAL, nature) for nature in (Nature.ADVERSARIAL, Nature.COOPERATIVE)]
    found = ask(capsys, "certify", "--model", str(path), "--data", str(log), "--delta", "0.05")
    assert before[0].lower < found["lower"] < found["upper"] < before[1].upper
    assert found["upper"] - found["lower"] < 0.9 * (before[1].upper - before[0].lower)
    ask(capsys, "export", "--model", str(path), "--data", str(log), "--delta", "0.05", "--uncertain", str(out))
    assert (read_drn(out).lower >= read_drn(path).lower - 1e-9).all()


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["solve", "m.drn", "--property", 'Pmax=? [ F "nowhere" ]'], 'unknown label "nowhere"'),
        (["solve", "m.drn"], "no property given"),
        (["solve", "m.drn", "--const", "N=3", "--property", "Pmax=? [ F x=1 ]"], "need a model in the PRISM"),
        (["smc", "m.drn", "--property", "Pmax=? [ F x=1 ]"], "does not say what is tied"),
        (["solve", "none.drn", "--property", "Pmax=? [ F x=1 ]"], "No such file"),
    ],
)
def test_bad_requests_about_drn_files_end_in_one_line(tmp_path, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    pmdp = model()
    write_uncertain("m.drn", pmdp, *intervals(pmdp))
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("@type: MDP", "@type: CTMC", "m.drn:2: models of type CTMC"), ("\t\t7 :", "\t\t99 :", "no state 99"),
        ("state 3", "state 4", "state 4 where state 3"), ("[0.5, 0.7]", "[nan, 0.7]", "finite"),
        ("[0.5, 0.7]", "[0.7, 0.5]", "not an interval"), ("action walk", "axion walk", "cannot read"),
        ("double-interval", "complex", "complex are not supported"),
        ("[0.5, 0.7]", "[1/0, 0.7]", "m.drn:[0-9]+: 1/0 is not a finite number"),
        ("\taction walk [", "\taction walk [much, ", "m.drn: 2 rewards in one line, but the file names"),
    ],
)  # fmt: skip
def test_damaged_files_are_named_by_line(tmp_path, old, new, words):
    pmdp = model()
    write_uncertain(tmp_path / "m.drn", pmdp, *(np.round(bound, 6) for bound in intervals(pmdp)))
    text = (tmp_path / "m.drn").read_text()
    assert old in text
    (tmp_path / "m.drn").write_text(text.replace(old, new, 1))
    with pytest.raises(ModelError, match=words):
        read_drn(tmp_path / "m.drn")
