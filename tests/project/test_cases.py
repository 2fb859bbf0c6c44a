"""The case studies of docs/cases run at a small size, and their optima are those of others."""

import importlib.machinery
import importlib.util
import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from gymnasium.utils.env_checker import check_env

from benchmarks import bench_sepsis
from rpl_agent import RPLAgent, certify, check_model
from rpl_agent.agent import EveryN
from rpl_agent.cli import main
from rpl_agent.core.solver import solve_at
from rpl_agent.formats import prism
from rpl_agent.formats.logs import simulate_log

pytestmark = pytest.mark.short_runs

ROOT = Path(__file__).resolve().parents[2]


def run(name: str, monkeypatch, capsys, *options: str) -> str:
    """What an example prints."""
    monkeypatch.setattr(sys, "argv", [name, *options])
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


def example(name: str) -> dict:
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


def storm(file: str, constants: dict[str, float], formula: str) -> float:
    """The value that Storm gives to a property of a file."""
    stormpy = pytest.importorskip("stormpy")
    program = stormpy.parse_prism_program(str(ROOT / "examples" / "models" / file))
    properties = stormpy.parse_properties(formula, program)
    values = ",".join(f"{name}={value!r}" for name, value in constants.items())
    program, properties = stormpy.instantiate_constants(program, values, properties)
    model = stormpy.build_model(program, properties)
    return stormpy.model_checking(model, properties[0]).get_value(model.initial_states[0])


def test_bridges(monkeypatch, capsys, tmp_path):
    table, picture = tmp_path / "inspections.csv", tmp_path / "b.png"
    text = run("bridges", monkeypatch, capsys, "--components", "60", "--plot", str(picture), "--table", str(table))
    assert "To the agency" in text and picture.stat().st_size > 10_000
    model = ROOT / "examples" / "models" / "bridge.prism"
    assert main(["certify", "--model", str(model), "--data", str(table), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["samples"] == 600 and found["lower"] <= 32.0 <= found["upper"]


def test_bridges_have_the_optimum_of_others():
    names = example("bridges")
    pmdp, cost = prism.load(names["MODEL"]).objective()
    optimum, _ = names["value_iteration"](pmdp, cost)
    assert optimum == pytest.approx(storm("bridge.prism", names["BOOK"], 'R{"cost"}min=? [ C<=30 ]'), rel=1e-9)
    assert optimum == pytest.approx(solve_at(pmdp, pmdp.instantiate(names["BOOK"]).theta, cost).middle, rel=1e-6)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_bounds_of_bridges_hold(seed, tmp_path):
    names = example("bridges")
    pmdp, cost = prism.load(names["MODEL"]).objective()
    names["inspections"](pmdp, 80, 10, tmp_path / "t.csv", seed)
    plan, failure = names["statements"](pmdp, cost, tmp_path / "t.csv")
    true_cost, true_risk = names["value_iteration"](pmdp, cost, plan.policy)
    optimum, _ = names["value_iteration"](pmdp, cost)
    assert plan.lower <= optimum <= true_cost <= plan.upper
    assert failure.lower <= true_risk <= failure.upper
    weights = names["practice"](pmdp).as_weights(pmdp)
    assert np.allclose(np.add.reduceat(weights, pmdp.state_ptr[:-1]), 1.0)


def test_the_disk(monkeypatch, capsys, tmp_path):
    text = run("disk", monkeypatch, capsys, "--minutes", "2", "--plot", str(tmp_path / "d.png"))
    assert "To whoever runs the disk" in text and (tmp_path / "d.png").stat().st_size > 10_000


def test_the_disk_has_the_optimum_of_others():
    names = example("disk")
    pmdp, cost, energy, lost = names["objectives"]()
    optimum, joule, losses = names["value_iteration"]([cost, energy, lost])
    assert optimum == pytest.approx(storm("disk.prism", names["PUBLISHED"], 'R{"cost"}min=? [ C<=1200 ]'), rel=1e-9)
    assert optimum == pytest.approx(joule + losses, rel=1e-12)
    assert optimum == pytest.approx(solve_at(pmdp, pmdp.instantiate(names["PUBLISHED"]).theta, cost).middle, rel=1e-6)


def test_bounds_of_the_disk_hold(tmp_path):
    names = example("disk")
    pmdp, cost, energy, lost = names["objectives"]()
    simulate_log(tmp_path / "d.csv", pmdp, names["PUBLISHED"], episodes=2, max_steps=1200, seed=5)
    found = names["statements"](tmp_path / "d.csv")
    truth = names["value_iteration"]([cost, energy, lost], found.cost.policy)
    assert found.cost.lower <= names["value_iteration"]([cost])[0] <= truth[0] <= found.cost.upper
    assert found.energy.lower <= truth[1] <= found.energy.upper
    assert found.lost.lower <= truth[2] <= found.lost.upper


def test_an_outbreak(monkeypatch, capsys, tmp_path):
    text = run("outbreak", monkeypatch, capsys, "--people", "4", "--outbreaks", "10", "--plot", str(tmp_path / "o.png"))
    assert "To the ward" in text and (tmp_path / "o.png").stat().st_size > 10_000


def test_an_outbreak_is_a_chain_binomial():
    """Person by person, a generation has the law that scipy gives to Reed and Frost's."""
    names = example("outbreak")
    pmdp = names["outbreak"](7)
    mdp, level = pmdp.instantiate(names["CHANCE"]), "hygiene"
    mass = np.zeros(pmdp.num_states)
    mass[pmdp.initial_state] = 1.0  # six susceptible, one infectious
    for _ in range(7):  # a measure is chosen, then six people are looked at
        after = np.zeros_like(mass)
        for s in np.flatnonzero(mass):
            rows = range(pmdp.state_ptr[s], pmdp.state_ptr[s + 1])
            row = next(r for r in rows if pmdp.action_names[pmdp.action[r]] in (level, "next"))
            span = slice(pmdp.row_ptr[row], pmdp.row_ptr[row + 1])
            np.add.at(after, pmdp.successor[span], mass[s] * mdp.probability[span])
        mass = after
    found = [mass[pmdp.state_index((0, x, 6 - x, 0, 0))] for x in range(7)]
    assert found == pytest.approx(scipy.stats.binom(6, names["CHANCE"][level]).pmf(range(7)), abs=1e-14)


def test_bounds_of_an_outbreak_hold():
    names = example("outbreak")
    pmdp = names["outbreak"](6)
    optimum = names["value_iteration"](pmdp, "cost")
    assert optimum == pytest.approx(
        storm("outbreak.prism", {"N": 6, **names["CHANCE"]}, 'R{"cost"}min=? [ F "over" ]'), rel=1e-6
    )
    rule, cases = names["statements"](pmdp, names["observe"](pmdp, 40, seed=3))
    true = names["value_iteration"](pmdp, "cost", rule.policy)
    assert rule.lower <= optimum <= true <= rule.upper
    assert cases.lower <= names["value_iteration"](pmdp, "cases", rule.policy) <= cases.upper


def test_a_ward_is_an_environment(sized):
    """Meetings that are drawn one by one agree with the model, and a short run with the optimum."""
    names = example("outbreak")
    env, options = names["ward"]()
    for action in range(env.action_space.n):  # Gymnasium's checker plays what the mask forbids, by chance
        seen, info = env.reset(seed=0)
        assert (env.step(action)[0] != seen) == info["action_mask"][action]
    check_env(env)
    assert check_model(env, **options, episodes=sized(30, 100)).problems == []
    agent = RPLAgent(env, seed=0, schedule=EveryN(10), **options).learn(budget=40)
    assert agent.certificate.lower <= names["value_iteration"](options["pmdp"], "cost") <= agent.certificate.upper < 8


@pytest.fixture
def small_benchmark(tmp_path, monkeypatch):
    """Files as those of icu-sepsis, of four states and three doses."""
    assets = tmp_path / "envs" / "assets"
    assets.mkdir(parents=True)
    rng = np.random.default_rng(0)
    moves = rng.dirichlet(np.ones(6), size=(7, 3))
    moves = np.concatenate([moves, np.zeros((7, 3, 1))], axis=2)
    np.savez(
        assets / "dynamics.npz", tx_mat=moves, d_0=np.array([0.25] * 4 + [0.0] * 3),
        expert_policy=rng.dirichlet(np.ones(3), size=7), sofa_scores=np.arange(7.0),
    )  # fmt: skip
    (assets / "admissible_actions.txt").write_text("3 2 3 2 1 1 1\n0 1 2\n0 2\n0 1 2\n1 2\n0\n0\n0\n")
    spec = importlib.machinery.ModuleSpec("icu_sepsis", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)


def test_stays(small_benchmark, monkeypatch, capsys, tmp_path):
    text = run(
        "sepsis", monkeypatch, capsys, "--stays", "500", "--trials", "500", "5000", "--plot", str(tmp_path / "s.png")
    )
    assert "clinicians" in text and (tmp_path / "s.png").stat().st_size > 5_000


def test_bounds_of_stays_hold(small_benchmark):
    names = example("sepsis")
    world = names["load"]()
    best, logged = names["value_iteration"](world), names["value_iteration"](world, world.clinicians)
    assert best == pytest.approx(solve_at(world.pmdp, world.theta, world.objective).middle, abs=1e-6)
    seen, survived = names["stays"](world, world.clinicians, 2_000, seed=1)
    counts = names["counted"](world.pmdp, seen)
    lower, upper = names["witness"](survived, 2_000)
    known = certify(world.pmdp, counts, world.objective, names["CONFIG"], policy=world.clinicians)
    assert lower <= logged <= upper < lower + 0.15
    assert known.lower <= logged <= known.upper
    assert certify(world.pmdp, counts, world.objective, names["CONFIG"]).upper >= best


def test_certificates_of_stays_hold(small_benchmark):
    """Bets on rows and on later visits, with and without the graph, and the clinicians' own log."""
    found = {row["bounds"]: row for row in bench_sepsis.rows(smoke=True)}
    assert list(found) == ["no graph", "best policy", "clinicians"]
    for name, row in found.items():
        assert row["lower"] <= row["value"] <= row["upper"] and 0.0 < row["width"] < 0.5
        assert name == "clinicians" or row["optimum"] <= row["upper"]


def test_the_benchmark_says_which_package_is_missing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert bench_sepsis.rows() == [{"skipped": "the package is missing: pip install --no-deps icu-sepsis==2.0.1"}]


def test_classes_of_severity(small_benchmark, monkeypatch, capsys):
    """Records counted in classes, the truth of the policy in the states, and both witnesses."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    text = run("sepsis_classes", monkeypatch, capsys, "--stays", "1500", "--classes", "2", "--played", "500")
    assert "2 classes of severity: 9 rows instead of 13" in text
    bounds = [tuple(map(float, re.findall(r"[01]\.\d{3}(?=[,\]])", line))) for line in text.splitlines()[1:]]
    true = [float(number) for number in re.findall(r"benchmark (\S+)", text)]
    for (lower, upper), truth in zip(bounds, np.repeat(true, 2), strict=True):
        assert lower <= truth <= upper


@pytest.mark.parametrize("seeds", [5, pytest.param(30, marks=pytest.mark.nightly)])
def test_cuts_of_rows_hold(small_benchmark, monkeypatch, capsys, seeds):
    """Bounds on the mean of a value function that a tenth of the stays gave, at δ = .2, and without their own data."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    assert "boxes, cut" in run("sepsis_floor", monkeypatch, capsys, "--stays", "3000")
    names, of = example("sepsis_floor"), example("sepsis")
    world = of["load"]()
    rows, best = names["Rows"](world), of["value_iteration"](world)
    p = world.pmdp.instantiate(world.theta).probability
    uniform = of["Policy"].uniform(world.pmdp)
    missed, peeked = 0, 0
    for seed in range(seeds):
        first, later = (of["stays"](world, uniform, n, seed=7 * seed + n)[0] for n in (150, 1350))
        found = names["bounds"](rows, first, later, 0.2)
        for lower, upper in found.values():
            assert lower <= upper
        for sign in (1.0, -1.0):
            x, bound = names["tested"](rows, first, later, sign, 0.2)
            missed += bool((sign * rows.mean(p, x) < bound).any())
            missed += not found["boxes, cut"][0] <= best <= found["boxes, cut"][1]
            better = later[np.random.default_rng(seed).permutation(len(later))]  # another world's data
            peeked += bool((sign * rows.mean(p, x) < names["tested"](rows, first, better, sign, 0.2)[1]).any())
    assert missed <= 0.2 * 2 * seeds < peeked
