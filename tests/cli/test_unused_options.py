"""An option that would have no effect is refused by its name: ignored, it would look as if it had been honoured."""

from __future__ import annotations

import json

import pytest

from rpl_agent.cli import main

pytestmark = pytest.mark.short_runs

WORLD = "rpl/Betting-25-v0"
OWN = """
import gymnasium as gym

def told():
    return gym.make("FrozenLake-v1"), {"returns": (0, 1), "discount": 0.99}

def known():
    return gym.make("FrozenLake-v1"), {}
"""
COIN = """mdp
const double p;
module coin
  s : [0..2];
  [flip] s=0 -> p:(s'=1) + 1-p:(s'=2);
  [stay] s>0 -> true;
endmodule
label "won" = s=1;
"""
OPEN = ["train", "FrozenLake-v1", "--returns", "0", "1", "--budget", "2"]
MODEL = ["--model", "coin.prism", "--property", 'Pmax=? [ F "won" ]']
EXPORT = ["export", WORLD, "--policy", "x.csv", "--policy-file", "y.csv"]
LOG = ["--data", "log.csv"]
THETA = ["--theta", "p=0.5"]
NEED_A_MODEL = [
    ["--schedule", "never"],
    ["--schedule", "state-action"],  # also where it is the default
    ["--weight", "0.3"],
    ["--exploration", "regret"],
    ["--confidence", "anytime"],
    ["--relaxation", "tied"],
    ["--precision", "0.1"],
    ["--subject-to", "probability of won >= 0.5"],
    ["--explore-within-limits"],
    ["--unknown", "rows"],
    ["--param", "p=0:1"],
    ["--params", "ranges.txt"],
    ["--const", "n=3"],
    ["--tie", "modules"],
    ["--property", 'P=? [ F "won" ]'],
    ["--theta", "p=0.5"],
    ["--max-steps", "7"],
    ["--max-states", "7"],
    ["--normalise"],
]
UNUSED = [
    *(([*OPEN, *option], option[0]) for option in NEED_A_MODEL),
    (["train", "own.py:told", "--weight=0.3"], "--weight"),
    (["train", "own.py:known", "--max-steps", "7"], "--max-steps"),
    (["info", WORLD, "--normalise"], "--normalise"),
    (["info", WORLD, "--max-states", "5"], "--max-states"),
    (["info", WORLD, "--theta", "p=0.5"], "--theta"),
    (["info", WORLD, "--max-steps", "5"], "--max-steps"),
    (["info", WORLD, "--undecided"], "--undecided"),
    (["info", *MODEL, "--theta", "p=0.5"], "--theta"),
    (["solve", WORLD, "--max-steps", "5"], "--max-steps"),
    (["solve", WORLD, "--time-limit", "5"], "--time-limit"),
    (["solve", *MODEL, "--theta", "p=0.5", "--time-limit", "5"], "--time-limit"),
    (["certify", WORLD, *LOG, "--seed", "1"], "--seed"),
    (["certify", WORLD, *LOG, "--max-steps", "9"], "--max-steps"),
    (["certify", WORLD, "--episodes", "9", "--fixed-length"], "--fixed-length"),
    (["improve", WORLD, "--baseline", "frequencies", "--episodes", "9", "--quarantine", "q.csv"], "--quarantine"),
    (["improve", WORLD, *LOG, *THETA], "--theta"),
    (["improve", WORLD, *LOG, *THETA, "--baseline", "frequencies"], "--theta"),
    (["curve", WORLD, *LOG, *THETA, "--objectives", "a", "b"], "--theta"),
    (["export", WORLD, *LOG, *THETA, "--policy-file", "y.csv"], "--theta"),
    ([*EXPORT, *THETA], "--theta"),
    ([*EXPORT, *LOG], "--data"),
    ([*EXPORT, "--episodes", "9"], "--episodes"),
    ([*EXPORT, "--delta", "0.1"], "--delta"),
]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "coin.prism").write_text(COIN)
    return tmp_path


@pytest.mark.parametrize("arguments, option", UNUSED, ids=lambda given: "_".join(given) if type(given) is list else "")
def test_an_option_without_an_effect_is_refused(place, capsys, arguments, option):
    before = sorted(place.iterdir())
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert f"rpl {arguments[0]}: {option} would not be used: " in said and said.count("\n") == 1
    assert sorted(path for path in place.iterdir() if path.name != "__pycache__") == before


def test_options_of_a_run_without_a_model_are_refused(place, capsys):
    assert main([*OPEN, "--name", "a", "--log-dir", ".", "--quiet"]) == 0
    for given in (
        ["info", "a", "--normalise"],
        ["watch", "a", "--mode", "optimistic"],
        ["report", "a", "--results", "b"],
    ):
        assert main(given) == 2
        assert f"{given[2]} would not be used" in capsys.readouterr().err


@pytest.mark.parametrize("world", [WORLD, "FrozenLake-v1"])
def test_the_number_of_steps_cuts_episodes_of_registered_worlds(place, capsys, world):
    """It was ignored where episodes are played."""
    given = ["--budget", "9", "--max-steps", "2", "--log-dir", ".", "--name", "a", "--json"]
    assert main(["train", world, *given]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] <= 18
    assert main(["resume", "a", "--budget", "15", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] <= 30


@pytest.mark.parametrize("argument, hint", [("--pieces", ""), ("--epsiode", "; the nearest is --episodes"), ("x", "")])
def test_unknown_arguments_are_reported_by_their_command(capsys, argument, hint):
    assert main(["certify", WORLD, argument]) == 2
    said = capsys.readouterr().err
    assert said == f"rpl certify: unrecognized arguments: {argument}{hint} (see rpl certify --help)\n"
