"""Every certificate has passed the solver's check, and a stored one can be checked again by anybody."""

from __future__ import annotations

import dataclasses
import json

import gymnasium as gym
import numpy as np
import pytest

import rpl_envs
from rpl_agent.agent import RPLAgent
from rpl_agent.certificate import Certificate
from rpl_agent.cli import main
from rpl_agent.errors import DataError, RPLWarning
from rpl_agent.evidence.sampling import uniform_counts
from rpl_agent.model import Nature
from rpl_agent.model.objective import Kind
from rpl_agent.pipeline import Config, certify
from rpl_agent.relaxations.point import Point
from rpl_agent.solver import solve
from rpl_agent.solver.solution import Solution
from rpl_agent.verify import data_from_json, data_to_json, verify

ID = "rpl/Betting-25-v0"


@pytest.fixture(scope="module")
def world():
    return rpl_envs.benchmark(ID)


@pytest.fixture(scope="module")
def counts(world):
    return uniform_counts(world.pmdp, world.objective, np.asarray(world.theta), 300, world.max_episode_steps, 1)


@pytest.mark.parametrize("relaxation", ["coupled", "rectangular", "expression", "tied", "parameter"])
def test_certificates_are_checked_and_verify(world, counts, relaxation):
    certificate = certify(world.pmdp, counts, world.objective, Config(relaxation=relaxation))
    assert (certificate.checked and "checked" in certificate.timings) or certificate.timings["check"] >= 0
    assert json.loads(certificate.to_json())["checked"] is True
    verdict = verify(certificate, world.pmdp, counts)
    assert not verdict.problems and verdict.lower == pytest.approx(certificate.lower, abs=1e-5)


def test_bounds_that_fail_their_check_are_not_given(world, counts, monkeypatch):
    monkeypatch.setattr(Solution, "check", lambda self, sides: ["upper does not follow"])
    with pytest.warns(RPLWarning, match="upper does not follow"):
        bad = certify(world.pmdp, counts, world.objective, Config(relaxation="rectangular"))
    nothing = (0.0, 1.0) if world.objective.kind is Kind.REACH else (-np.inf, np.inf)
    assert (bad.lower, bad.upper) == nothing


def test_only_one_side_may_fail(world, counts, monkeypatch):
    good = certify(world.pmdp, counts, world.objective, Config(relaxation="rectangular"))
    check = Solution.check
    monkeypatch.setattr(Solution, "check", lambda self, sides: ["no"] if list(sides) == [True] else check(self, sides))
    with pytest.warns(RPLWarning, match="not given"):
        half = certify(world.pmdp, counts, world.objective, Config(relaxation="rectangular"))
    assert half.lower == good.lower and half.upper >= 1.0 and half.upper > good.upper


def test_a_certificate_of_rounding_size_passes():
    """Here the upper bound of the optimal policy misses its check by 1e-12, and is widened."""
    world = rpl_envs.benchmark("rpl/Engagement-50-v0")
    data = uniform_counts(world.pmdp, world.objective, np.asarray(world.theta), 2000, world.max_episode_steps, 5)
    best = solve(Point(world.pmdp.instantiate(np.asarray(world.theta))), world.objective, Nature.COOPERATIVE)
    assert certify(world.pmdp, data, world.objective, Config("clopper-pearson"), policy=best.policy).checked


def test_false_claims_are_named(world, counts):
    good = certify(world.pmdp, counts, world.objective)
    for change, word in (
        ({"lower": good.lower + 0.01}, "lower bound"),
        ({"upper": good.upper - 0.01}, "upper bound"),
        ({"delta": good.delta * 10}, None),  # weaker: its bounds would be tighter, these are too loose, not wrong
        ({"delta": good.delta / 10}, "bound"),
        ({"samples": good.samples + 1}, "transitions"),
        ({"model_hash": "0"}, "another model"),
        ({"policy": dataclasses.replace(good.policy, rows=good.policy.rows * 0)}, "not enabled"),
    ):
        problems = verify(dataclasses.replace(good, **change), world.pmdp, counts).problems
        assert (word is None and not problems) or any(word in text for text in problems), (change, problems)


def test_data_in_a_file_are_the_data(world, counts):
    again = data_from_json(world.pmdp, json.loads(json.dumps(data_to_json(counts))))
    assert np.array_equal(again.transitions, counts.transitions) and again.total == counts.total
    assert [(m.total, m.weight) for m in again.marks] == [(m.total, m.weight) for m in counts.marks]
    assert all(np.array_equal(a.successes, b.successes) for a, b in zip(again.marks, counts.marks))
    for bad in ({"transitions": [[10**9, 1]]}, {"transitions": [[1]]}, {"schedule": "x"}, {"marks": [{}]}):
        with pytest.raises(DataError):
            data_from_json(world.pmdp, {**data_to_json(counts), **bad})


def test_rpl_certify_verify(tmp_path, capsys):
    path = tmp_path / "c.json"
    assert main(["certify", ID, "--episodes", "200", "--output", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checked"] is True
    assert main(["certify", str(path), "--verify"]) == 0
    assert "verified against" in capsys.readouterr().out
    data = json.loads(path.read_text())
    data["lower"] += 0.5
    path.write_text(json.dumps(data))
    assert main(["certify", str(path), "--verify", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verified"] is False and "lower bound" in found["problems"][0]
    Certificate.from_json(path.read_text()).to_json(path)
    assert main(["certify", str(path), "--verify"]) == 2 and "no data" in capsys.readouterr().err


def test_runs_verify(tmp_path, capsys):
    agent = RPLAgent(seed=0, tensorboard_log=tmp_path).learn(gym.make(ID), budget=60, log_interval=60)
    assert agent.certificate.checked
    assert main(["certify", str(agent.run_folder), "--verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == agent.num_timesteps
