"""Storm, which nobody here wrote, on the same interval models: agreement where Storm's stopping rule allows it.

Storm refuses lower bounds 0 and stops on differences, so its numbers carry its own error: with tight precision they
must lie in (or within that error of) our brackets.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import rpl_envs  # noqa: F401
from benchmarks import bench_solver
from rpl_agent.core.model import Nature, Objective, Sense
from rpl_agent.core.relaxations import Intervals
from rpl_agent.core.solver import solve
from rpl_agent.formats.export import write_uncertain
from rpl_envs.benchmark import benchmark
from tests.reference.solver import interval_model

stormpy = pytest.importorskip("stormpy", reason="the peer stormpy is not installed (extra 'peers')")


def storm_model(tmp_path, relaxation: Intervals):
    path = tmp_path / "model.drn"
    write_uncertain(path, relaxation.pmdp, relaxation.lower, relaxation.upper)
    return stormpy.build_model_from_drn[stormpy.Interval](str(path))


def storm_value(model, objective: Objective, nature: Nature, precision: str = "1/100000000000") -> float:
    return bench_solver.storm_value(stormpy, model, objective, nature, precision)


def random_model(seed: int) -> Intervals:
    """Up to 12 states, positive lower bounds (Storm insists), a goal that every state can reach, a trap."""
    rng = np.random.default_rng(seed)
    states = int(rng.integers(4, 12))
    table, cost = [], []
    for s in range(states - 2):
        choices = []
        for _ in range(rng.integers(1, 4)):
            successors = np.unique(np.append(rng.integers(0, states, size=rng.integers(1, 4)), s + 1))
            mass = 0.6 * rng.dirichlet(np.ones(len(successors))) + 0.4 * (successors == s + 1)  # plays end soon
            low = np.clip(mass * rng.uniform(0.5, 1.0), 1e-3, 1)
            high = np.minimum(1.0, mass + rng.uniform(0, 0.2, size=len(mass)) + 1e-3)
            low /= max(1.0, low.sum())
            choices.append(
                {int(j): (Fraction(float(a)), Fraction(float(max(a, b)))) for j, a, b in zip(successors, low, high)}
            )
        table.append(choices)
        cost.append([float(rng.integers(1, 5)) for _ in choices])
    one = {states - 2: (Fraction(1), Fraction(1))}
    table += [[one], [{states - 1: (Fraction(1), Fraction(1))}]]
    cost += [[0.0], [0.0]]
    pmdp, lower, upper = interval_model(
        table, labels={"goal": {states - 2}, "done": {states - 2, states - 1}}, cost=cost
    )
    return Intervals(pmdp, lower, upper)


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(k, marks=pytest.mark.nightly) for k in range(10, 20))])
def test_random_interval_models(seed, tmp_path):
    relaxation = random_model(seed)
    model = storm_model(tmp_path, relaxation)
    objectives = [
        *(Objective.reach("goal", sense=sense) for sense in Sense),
        *(Objective.reward("cost", target="done", sense=sense) for sense in Sense),
    ]
    for objective in objectives:
        for nature in Nature:
            solution = solve(relaxation, objective, nature)
            assert solution.check() == []
            peer = storm_value(model, objective, nature)
            slack = 1e-7 * max(1.0, abs(peer))
            assert solution.lower - slack <= peer <= solution.upper + slack, objective.describe()


@pytest.mark.parametrize(
    "name", ["Aircraft-20x10", "Betting-25", "Engagement-50", "MarsRover-10x10", "Glider-11x9", "ParallelBetting-5"]
)
def test_benchmarks_as_interval_models(name, tmp_path):
    world = benchmark(name)
    p = world.pmdp.table.at(np.array(world.theta))
    slack = 0.05 * np.minimum(p, 1 - p)
    relaxation = Intervals(world.pmdp, np.clip(p - slack, 0, 1), np.clip(p + slack, 0, 1))
    model = storm_model(tmp_path, relaxation)
    for nature in Nature:
        solution = solve(relaxation, world.objective, nature, precision=1e-9)
        assert solution.check() == []
        peer = storm_value(model, world.objective, nature)
        # Storm's absolute error is its last difference times the number of expected steps.
        slack_value = 1e-5 * max(1.0, abs(peer))
        assert solution.lower - slack_value <= peer <= solution.upper + slack_value
        assert solution.gap <= 1e-6


def test_storm_stops_too_early_where_we_do_not(tmp_path):
    """The slow walk: at precision 1e-6 Storm is wrong by more than 1e-2; ours brackets the exact 1/2."""
    states, middle = 601, 300
    half = (Fraction(1, 2), Fraction(1, 2))
    one = (Fraction(1), Fraction(1))
    inner = [[{s - 1: half, s + 1: half}] for s in range(1, states - 1)]
    pmdp, lower, upper = interval_model([[{0: one}], *inner, [{states - 1: one}]], labels={"goal": {states - 1}})
    relaxation = Intervals(pmdp, lower, upper)
    solution = solve(relaxation, Objective.reach("goal"))
    assert solution.lower_values[middle] <= 0.5 <= solution.upper_values[middle]
    assert solution.upper_values[middle] - solution.lower_values[middle] <= 1e-9
    path = tmp_path / "walk.drn"
    write_uncertain(path, replace(pmdp, initial_state=middle), lower, upper)
    model = stormpy.build_model_from_drn[stormpy.Interval](str(path))
    peer = storm_value(model, Objective.reach("goal"), Nature.ADVERSARIAL, "1/1000000")
    assert abs(peer - 0.5) > 1e-2
