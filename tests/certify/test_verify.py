"""Every certificate has passed the solver's check, and a stored one can be checked again by anybody."""

from __future__ import annotations

import dataclasses
import json
import math

import gymnasium as gym
import numpy as np
import pytest

import rpl_envs
from rpl_agent.agent import RPLAgent
from rpl_agent.agent.callbacks import BaseCallback
from rpl_agent.agent.output import logger
from rpl_agent.cli import main
from rpl_agent.core.errors import DataError, RPLWarning
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Nature, Objective, Policy, build
from rpl_agent.core.model.objectives.objective import Kind
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.core.solver import solve
from rpl_agent.core.solver.solution import Solution
from rpl_agent.guarantee.best_so_far import best_so_far
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.claims.improvement import improve
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import Config
from rpl_agent.guarantee.verify import data_from_json, data_to_json, verify
from tests.small_worlds import make_worlds_small

pytestmark = pytest.mark.short_runs

ID = "rpl/Betting-25-v0"


def small_world():
    """Of runs: each ends with a proof in exact fractions."""
    return gym.make("rpl/Betting-v0", n=6)


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
    with pytest.warns(RPLWarning, match="is left out"):
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


def test_rpl_certify_verify(tmp_path, capsys, monkeypatch):
    make_worlds_small(monkeypatch)
    path = tmp_path / "c.json"
    assert main(["certify", ID, "--episodes", "200", "--output", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checked"] is True
    assert main(["certify", str(path), "--verify"]) == 0
    assert "verified against" in capsys.readouterr().out
    data = json.loads(path.read_text())
    data["lower"] += 0.5
    del data["gap"], data["guarantee"]  # which would not fit any more
    path.write_text(json.dumps(data))
    assert main(["certify", str(path), "--verify", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verified"] is False and "lower bound" in found["problems"][0]
    Certificate.from_json(path.read_text()).to_json(path)
    assert main(["certify", str(path), "--verify"]) == 2 and "no data" in capsys.readouterr().err


@pytest.mark.parametrize("confidence", ["clopper-pearson", "hoeffding", "l1"])
def test_what_is_not_covered_is_refused_by_name(tmp_path, capsys, confidence):
    """It passed as one that "does not claim to be proved"."""
    path = tmp_path / "c.json"
    made = ["certify", ID, "--episodes", "50", "--confidence", confidence, "--relaxation", "rectangular"]
    assert main([*made, "--output", str(path)]) == 0
    assert "proved" not in capsys.readouterr().out
    assert main(["certify", str(path), "--verify"]) == 0
    assert f"no proof: confidence '{confidence}' is not covered" in capsys.readouterr().out
    (tmp_path / "c.proof.json.gz").unlink()
    assert main(["certify", str(path), "--verify"]) == 0
    assert "no proof: there is no c.proof.json.gz" in capsys.readouterr().out


def test_long_proofs_are_refused_by_name(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("rpl_agent.agent.loop.PROVED", 10)
    agent = RPLAgent(seed=0, tensorboard_log=tmp_path).learn(small_world(), budget=60, log_interval=60)
    assert main(["certify", str(agent.run_folder), "--verify"]) == 0
    assert "inequalities are more than 10: rpl certify RUN proves them" in capsys.readouterr().out
    assert main(["certify", str(agent.run_folder)]) == 0
    assert main(["certify", str(agent.run_folder), "--verify"]) == 0
    assert "proved with probability" in capsys.readouterr().out


def test_what_a_model_assumes_is_said_by_every_statement_about_it(world, counts):
    pmdp, uniform = dataclasses.replace(world.pmdp, assumption="the wind blows"), Policy.uniform(world.pmdp)
    config = Config(relaxation="rectangular")
    gain = improve(pmdp, counts, world.objective, uniform, config=config)
    assert "NOTE: the wind blows" in str(gain)
    for limits in ((), ("probability of done >= 0",)):
        found = certify(pmdp, counts, world.objective, config, subject_to=limits)
        assert "NOTE: the wind blows" in str(found) and not verify(found, pmdp, counts).problems
        (problem,) = verify(dataclasses.replace(found, assumptions=()), pmdp, counts).problems
        assert problem == "the certificate does not say what it assumes: the wind blows"


def test_runs_verify(tmp_path, capsys):
    agent = RPLAgent(seed=0, tensorboard_log=tmp_path).learn(small_world(), budget=60, log_interval=60)
    assert agent.certificate.checked
    assert main(["certify", str(agent.run_folder), "--verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == agent.num_timesteps


def test_every_claim_is_compared(world, counts):
    """Only the momentary bounds were, where there were some: [1e9, 2e9], NaN and "at all times" passed."""
    good = best_so_far(None, certify(world.pmdp, counts, world.objective))
    assert verify(good, world.pmdp, counts).problems == []
    for change, word in (
        ({"lower": 1e9, "upper": 2e9}, "lower bound 1e+09"),
        ({"lower": good.upper - 1e-9}, "lower bound"),
        ({"upper": good.lower + 1e-9}, "upper bound"),
        ({"lower": good.upper, "upper": good.lower}, "exceeds"),
        ({"lower": math.nan}, "NaN"),
        ({"momentary_lower": good.lower + 0.01}, "of the last data"),
        ({"momentary_upper": good.upper - 0.01}, "of the last data"),
        ({"log_e_value": good.log_e_value - 1.0}, "log e-value"),
        ({"refuted": True}, "not what was configured"),
        ({"confidence": "clopper-pearson", "anytime": True}, "not at all times"),
    ):
        problems = verify(dataclasses.replace(good, **change), world.pmdp, counts).problems
        assert any(word in text for text in problems), (change, problems)


def test_claims_are_compared_relative_to_their_size():
    """With an absolute tolerance of 4e-6 a value of 1e-8 could be claimed to be 3.9e-6, or 0."""
    rows = {0: {"go": {1: "p*1/10000000", 2: "1-p*1/10000000"}}, 1: {"go": {1: 1}}, 2: {"go": {2: 1}}}
    pmdp = build(0, lambda s: rows[s], domain=["p"], labels={"goal": lambda s: s == 1})
    counts = Counts(pmdp)
    good = certify(pmdp, counts, Objective.reach("goal"))
    assert verify(good, pmdp, counts).problems == [] and 0.0 < good.upper < 1.1e-7
    for change in ({"lower": good.upper}, {"upper": good.upper / 2}, {"upper": 0.0}):
        assert verify(dataclasses.replace(good, **change), pmdp, counts).problems, change


def test_marks_are_those_of_the_schedule(world, counts):
    """Weights of [.3, −20, 20] passed, because they sum to less than 1, and shrank the region."""
    table = Counts(world.pmdp)
    table.add_transitions(np.repeat(np.arange(world.pmdp.num_transitions), counts.transitions))
    assert len(table.marks) >= 3
    table.marks = table.marks[:3]
    data = data_to_json(table)
    assert data_from_json(world.pmdp, data).total == counts.total
    marks = data["marks"]

    def weighted(*weights):
        return [m | {"weight": float(w).hex()} for m, w in zip(marks, weights)]

    own = [m.weight for m in table.marks]
    for bad in (
        weighted(0.3, -20.0, 20.0), weighted(math.nan, *own[1:]), weighted(0.0, *own[1:]),
        weighted(own[0] / 2, *own[1:]),
        marks[::-1], [marks[0], marks[0], marks[1]], [marks[0] | {"total": marks[0]["total"] + 1}, *marks[1:]],
        [*marks, marks[-1]],
    ):  # fmt: skip
        with pytest.raises(DataError, match="mark"):
            data_from_json(world.pmdp, {**data, "marks": bad})


def test_a_run_is_verified_on_the_data_that_its_best_bounds_rest_on(tmp_path, capsys):
    """Any bounds of a run passed, because those of earlier data could not be computed anew."""
    config = Config(bets=False)  # the last bets are the best ones here
    agent = RPLAgent(seed=3, tensorboard_log=tmp_path, config=config)
    agent.learn(small_world(), budget=300, log_interval=10)
    found, path = agent.certificate, agent.run_folder / "certificate.json"
    assert (found.lower, found.upper) != (found.momentary_lower, found.momentary_upper)
    assert main(["certify", str(agent.run_folder), "--verify", "--json"]) == 0
    assert "was found with the first" in capsys.readouterr().out
    for name, value in (
        ("lower", found.lower + 0.01), ("upper", found.upper - 0.01), ("lower", 19.9), ("truncation", "none"),
        ("gap", 0.0), ("guarantee", 20.0),
    ):  # fmt: skip
        found.to_json(path)
        path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
        assert main(["certify", str(agent.run_folder), "--verify"]) != 0, name


def test_an_interrupted_proof_leaves_the_old_one(tmp_path, capsys, monkeypatch):
    """It was removed first: then a certificate that claims a proof had none."""
    agent = RPLAgent(seed=0, tensorboard_log=tmp_path).learn(small_world(), budget=20)
    run = str(agent.run_folder)
    assert main(["certify", run]) == 0 and (agent.run_folder / "proof.json.gz").is_file()

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(logger, "prove", interrupted)
        assert main(["certify", run]) != 0
    assert main(["certify", run, "--verify"]) == 0, capsys.readouterr().out


def test_a_certificate_does_not_claim_a_proof_that_could_not_be_written(tmp_path, capsys):
    """It was written before its proof."""
    path = tmp_path / "found.json"
    assert main(["certify", ID, "--episodes", "50", "--output", str(path)]) == 0
    before, proof = path.read_text(), tmp_path / "found.proof.json.gz"
    proof.unlink()
    proof.mkdir()
    assert main(["certify", ID, "--episodes", "60", "--output", str(path)]) != 0
    assert path.read_text() == before


class KeepAt(BaseCallback):
    """Saves once, at a number of episodes: what a killed run leaves, whose last certificate is of fewer."""

    every_episodes = 1

    def __init__(self, episodes, path):
        super().__init__()
        self.episodes, self.path = episodes, path

    def _on_step(self):
        if self.agent.num_episodes == self.episodes:
            self.agent.save(self.path)
        return True


def test_a_killed_run_that_is_certified_anew_is_verified(tmp_path, capsys):
    """The bounds of all data were compared with those of the data of the last certificate before the kill."""
    agent, kept = RPLAgent(seed=0, tensorboard_log=tmp_path), tmp_path / "kept.zip"
    agent.learn(small_world(), budget=400, log_interval=200, callback=KeepAt(399, kept))
    kept.replace(agent.run_folder / "checkpoint.zip")
    (agent.run_folder / "checkpoint.zip.previous").unlink(missing_ok=True)
    assert main(["certify", str(agent.run_folder)]) == 0
    capsys.readouterr()
    status = main(["certify", str(agent.run_folder), "--verify"])
    assert status == 0, capsys.readouterr().out


def test_files_that_are_no_text_are_refused_by_verify(tmp_path, capsys):
    (tmp_path / "certificate.json").write_bytes(bytes(range(128, 256)))
    assert main(["certify", str(tmp_path / "certificate.json"), "--verify"]) == 2
    assert "not a text file" in capsys.readouterr().err
