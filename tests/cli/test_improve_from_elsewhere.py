"""`rpl improve` with what users have: models of Stable-Baselines3, logs of Gymnasium's worlds, plays without end."""

from __future__ import annotations

import csv
import json

import gymnasium as gym
import numpy as np
import pytest

import rpl_envs
from rpl_agent import Counts, Policy, build, improve
from rpl_agent.agent.world.attach import attach, shown_numbers
from rpl_agent.cli import main
from rpl_agent.formats import prism
from rpl_agent.formats.logs import read_log, simulate_log
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.proof import prove
from rpl_agent.guarantee.shown import true_value
from rpl_agent.studies.baselines.sb3 import from_sb3

pytestmark = pytest.mark.short_runs

MODEL = "examples/models/maintenance.prism"


def improved(capsys, *line: str) -> dict:
    assert main(["improve", *line, "--json"]) in (0, 1)
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def lake(tmp_path) -> str:
    """A log of FrozenLake as its user would write one: what the environment shows, numbers from 0 to 15."""
    env, rng = gym.make("FrozenLake-v1"), np.random.default_rng(0)
    path = tmp_path / "lake.csv"
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["episode", "state", "action", "next_state"])
        for episode in range(100):
            state, _ = env.reset(seed=episode)
            over = False
            while not over:
                action = int(rng.integers(4))
                after, _, ended, cut, _ = env.step(action)
                table.writerow([episode, state, action, after])
                state, over = after, ended or cut
    return str(path)


def test_a_log_may_have_the_numbers_that_the_environment_shows(lake, tmp_path, capsys):
    """Before: they were taken for the model's own numbers, and half of the rows contradicted the model."""
    pmdp = attach(gym.make("FrozenLake-v1")).pmdp
    shown = shown_numbers(attach(gym.make("FrozenLake-v1")))
    assert shown is not None and shown[0] == pmdp.initial_state and sorted(shown) == list(range(16))
    by_fields = tmp_path / "fields.csv"
    with open(lake, newline="") as file, open(by_fields, "w", newline="") as out:
        table = csv.writer(out)
        table.writerow(["row", "column", "action", "next_row", "next_column", "episode"])
        for line in csv.DictReader(file):
            here, there = divmod(int(line["state"]), 4), divmod(int(line["next_state"]), 4)
            table.writerow([*here, line["action"], *there, line["episode"]])
    same = read_log(pmdp, lake, shown=shown).counts.transitions, read_log(pmdp, by_fields).counts.transitions
    assert np.array_equal(*same)
    found = [improved(capsys, "FrozenLake-v1", "--data", str(log)) for log in (lake, by_fields)]
    assert found[0] == found[1] and found[0]["samples"] == int(same[0].sum())
    text = (tmp_path / "lake.csv").read_text() + "100,16,0,0\n"
    (tmp_path / "wrong.csv").write_text(text)
    assert main(["improve", "FrozenLake-v1", "--data", str(tmp_path / "wrong.csv")]) == 2
    assert "state: '16' is shown in no state" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["DQN", "PPO"])
def test_a_model_of_stable_baselines3_is_the_baseline_on_frozen_lake(kind, lake, tmp_path, capsys):
    learner = getattr(pytest.importorskip("stable_baselines3"), kind)
    learner("MlpPolicy", "FrozenLake-v1", seed=0, device="cpu").save(tmp_path / "model.zip")
    model = str(tmp_path / "model.zip")
    found = improved(capsys, "FrozenLake-v1", "--data", lake, "--baseline", model)
    env = gym.make("FrozenLake-v1")
    world = attach(env)
    counts, used = read_log(world.pmdp, lake, shown=shown_numbers(world)).counts, from_sb3(model, env)
    best = improve(world.pmdp, counts, world.objective, used)
    assert found["known"] == "its policy is given" and found["lower"] == best.lower
    truth = np.array([1 / 3])
    baseline, policy = (true_value(world.pmdp, world.objective, one, truth) for one in (used, best.policy))
    assert found["baseline_value"][0] - 1e-9 <= baseline <= found["baseline_value"][1] + 1e-9
    assert found["value"][0] <= policy <= found["value"][1]
    assert found["lower"] <= policy - baseline <= found["upper"]


def test_a_model_of_stable_baselines3_needs_no_true_parameters(tmp_path, capsys):
    """Before: an environment was made to read the policy, and asked for what the log is to tell."""
    contrib = pytest.importorskip("sb3_contrib")
    pmdp, objective = prism.load(MODEL).objective()
    env = rpl_envs.make_own(pmdp, objective, [0.4, 0.02], max_episode_steps=40)
    contrib.MaskablePPO("MlpPolicy", env, seed=0, device="cpu").save(tmp_path / "model.zip")
    log, model = str(tmp_path / "plant.csv"), str(tmp_path / "model.zip")
    simulate_log(log, pmdp, [0.4, 0.02], episodes=50, max_steps=30)
    found = improved(capsys, "--model", MODEL, "--data", log, "--baseline", model)
    known = improve(pmdp, read_log(pmdp, log).counts, objective, from_sb3(model, env))  # at the true parameters
    assert (found["lower"], found["upper"]) == (known.lower, known.upper)
    assert found["known"] == "its policy is given"


def test_a_baseline_that_never_ends_is_infinitely_worse():
    """Before: by at least 1.8e308; the proof said that nothing is known, and so did the stored file."""
    doors = {"leave": {"out": "p", "in": "1 - p"}, "stay": {"in": 1}}
    pmdp = build(
        "in", lambda s: doors if s == "in" else {"end": {s: 1}}, domain={"p": (0.2, 0.9)},
        labels={"out": lambda s: s == "out"}, rewards={"time": lambda s, a: 1.0 * (s == "in")},
    )  # fmt: skip
    stays = Policy.from_table(pmdp, [("in", "stay", 1)])
    found = improve(pmdp, Counts(pmdp), "minimise time until out", stays)
    assert found.improves and found.lower == np.inf and found.baseline_value == (np.inf, np.inf)
    assert found.value[1] <= 5.0 + 1e-6
    proof = prove(pmdp, Counts(pmdp), found)
    assert proof["refused"].startswith("the checker does not cover infinite values")
    with pytest.raises(checker.Refused, match="infinite values"):
        checker.check(proof)
