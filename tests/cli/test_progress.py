"""Long commands show what they do on a terminal, and nowhere else."""

from __future__ import annotations

import io
import json
import re
import sys

import numpy as np
import pytest

import rpl_envs
from rpl_agent import Counts, Policy, curve, improve
from rpl_agent.cli import main
from rpl_agent.core.evidence import sampling
from rpl_agent.core.evidence.sampling import uniform_counts
from tests.small_worlds import make_worlds_small

pytestmark = pytest.mark.short_runs

WORLD = "rpl/Betting-25-v0"
CERTIFY = ["certify", WORLD, "--episodes", "20000"]
IMPROVE = ["improve", WORLD, "--episodes", "200", "--baseline", "uniform.csv", "--output", "gain.json"]
CURVE = ["curve", WORLD, "--episodes", "200", "--points", "3", "--objectives"]
CURVE += ["maximise money until done", "maximise probability of done"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in a folder with a policy; return what it prints on stderr, a terminal or not."""
    make_worlds_small(monkeypatch)  # proofs in fractions take most of the time
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    pmdp = rpl_envs.benchmark(WORLD).pmdp
    Policy.uniform(pmdp).to_table(pmdp, "uniform.csv")

    def shown(arguments: list[str], stderr: io.StringIO) -> str:
        monkeypatch.setattr(sys, "stderr", stderr)
        assert main(arguments) in (0, 1)
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stderr.getvalue())

    return shown


@pytest.mark.parametrize(
    "arguments, stages",
    [
        (CERTIFY, ["episodes", "certificate"]),
        ([*CERTIFY, "--output", "a.json"], ["episodes", "certificate", "proof"]),
        (IMPROVE, ["episodes", "candidate policies", "policies and pieces compared", "proof"]),
    ],
    ids=["certify", "certify with a proof", "improve"],
)
def test_stages_are_shown_on_a_terminal_only(run, capsys, arguments, stages):
    text = run(arguments, Terminal())
    places = [text.find(stage) for stage in stages]
    assert -1 not in places and places == sorted(places)
    assert run(arguments, io.StringIO()) == ""
    capsys.readouterr()
    assert run([*arguments, "--json"], Terminal()) == ""
    json.loads(capsys.readouterr().out)


def test_weights_of_a_curve_are_shown(run):
    text = run([*CURVE], Terminal())
    assert re.search(r"weights .*[0-3]/3", text)
    assert run([*CURVE], io.StringIO()) == ""


def test_reports_of_progress_reach_the_end_and_change_nothing(monkeypatch):
    world = rpl_envs.benchmark(WORLD)
    pmdp, objective, theta = world.pmdp, world.objective, np.array(world.theta)
    told: list[tuple[int, int]] = []

    def tell(done: int, number: int) -> None:
        told.append((done, number))

    whole = uniform_counts(pmdp, objective, theta, 1_000, 50, 3)
    monkeypatch.setattr(sampling, "PIECE", 7)
    pieces = uniform_counts(pmdp, objective, theta, 1_000, 50, 3, tell)
    assert np.array_equal(whole.transitions, pieces.transitions) and len(whole.marks) == len(pieces.marks)
    assert told == sorted(told) and told[-1] == (1_000, 1_000) and len(told) > 100
    told.clear()
    improve(pmdp, whole, objective, Policy.uniform(pmdp), progress=tell)
    assert [done for done, _ in told] == list(range(1, told[-1][1] + 1))
    told.clear()
    objectives = ["maximise money until done", "maximise probability of done"]
    curve(pmdp, Counts(pmdp), objectives, points=3, progress=tell)
    assert told == [(1, 3), (2, 3), (3, 3)]
