"""Curves of two objectives: boxes hold the values of their policies, half planes all policies."""

from __future__ import annotations

import json
import re
from itertools import product

import numpy as np
import pytest

import rpl_envs
from benchmarks.improvement_worlds import TRUTH, cliff_grid
from rpl_agent import Counts, curve
from rpl_agent.agent.output.plotting.curve import plot_curve
from rpl_agent.cli import main
from rpl_agent.core.errors import ModelError
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Objective, Policy, build
from rpl_agent.guarantee.shown import true_value
from tests.claims.test_limits import corridor

pytestmark = pytest.mark.short_runs

PAIRS = [
    ("maximise probability of goal", "minimise probability of trap"),
    ("minimise probability of trap", "maximise probability of goal"),
    ("minimise discounted time, gamma 0.9", "maximise discounted toll, gamma 0.9"),
    ("minimise probability of trap", "minimise toll until over"),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
def test_boxes_and_half_planes_hold_for_every_policy(pair, sized):
    pmdp, rng = corridor(), np.random.default_rng(5)
    choices = [range(pmdp.state_ptr[s], pmdp.state_ptr[s + 1]) for s in range(pmdp.num_states)]
    policies = [Policy.deterministic(np.array(rows)) for rows in product(*choices)]
    objectives = [Objective.parse(text) for text in pair]
    for _ in range(sized(1, 2)):
        theta = rng.uniform(0.3, 0.8, 2)
        counts = uniform_counts(pmdp, objectives[0], theta, 400, 60, int(rng.integers(1000)))
        found = curve(pmdp, counts, pair, points=5, delta=0.01)
        assert found.points and len(found.half_planes) == 5
        for point in found.points:
            for k, objective in enumerate(objectives):
                assert (
                    point.lower[k] - 1e-6 <= true_value(pmdp, objective, point.policy, theta) <= point.upper[k] + 1e-6
                )
        for policy in policies:
            values = np.array([true_value(pmdp, objective, policy, theta) for objective in objectives])
            for plane in found.half_planes:
                gains = np.where(np.isfinite(values), found.signs * values, -np.inf)
                assert gains @ plane.weights <= plane.most + 1e-6, (policy.rows, plane)


def test_printed_half_planes_are_those_that_are_certified():
    """Weights were printed with four digits, the bound with six: such a half plane may cut off a policy."""
    pmdp = corridor()
    theta = np.array([0.5, 0.6])
    counts = uniform_counts(pmdp, Objective.parse(PAIRS[0][0]), theta, 400, 60, 1)
    found = curve(pmdp, counts, PAIRS[0], points=5, delta=0.01)
    lines = str(found).split("for every policy:\n")[1].splitlines()
    for line, plane in zip(lines, found.half_planes, strict=True):
        terms, bound = line.split(" ≤ ")
        weights = {name: float(weight) for weight, name in re.findall(r"([+-]\S+) · (V\d)", terms)}
        for k, (sign, weight) in enumerate(zip(found.signs, plane.weights)):
            assert weights.get(f"V{k + 1}", 0.0) == sign * weight
        assert plane.most <= float(bound) <= plane.most + 1e-5 * abs(plane.most)


def test_more_data_bring_boxes_to_the_edge(tmp_path):
    pmdp = cliff_grid()
    theta = np.array([TRUTH[name] for name in pmdp.table.parameters])
    pair = ["minimise steps until done", "minimise probability of fallen"]
    gaps = []
    for episodes in (300, 3000):
        counts = uniform_counts(pmdp, Objective.parse(pair[0]), theta, episodes, 1000, 0)
        found = curve(pmdp, counts, pair, points=7)
        edges = [min(float(np.dot(p.weights, q.upper)) + p.most for q in found.points) for p in found.half_planes]
        gaps.append(max(edges))
    assert 0.0 <= gaps[1] < 0.7 * gaps[0]
    plot_curve(found, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 10_000


def test_what_a_curve_needs():
    pmdp = corridor()
    counts = uniform_counts(pmdp, Objective.reach("goal"), np.array([0.5, 0.5]), 10, 50, 0)
    for pair, points, message in ((PAIRS[0][:1], 5, "two objectives"), (PAIRS[0], 2, "at least 3")):
        with pytest.raises(ModelError, match=message):
            curve(pmdp, counts, pair, points=points)


def test_the_command_draws_a_curve(tmp_path, capsys):
    picture = tmp_path / "curve.png"
    world = "rpl/Aircraft-20x10-v0"
    labels = sorted(rpl_envs.benchmark(world).pmdp.labels)
    pair = [f"maximise probability of {labels[0]}", f"minimise probability of {labels[0]}"]
    command = ["curve", world, "--episodes", "100", "--points", "3", "--json", "--objectives", *pair]
    assert main([*command, "--output", str(picture)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert len(printed["half_planes"]) == 3 and picture.is_file()
    assert main(["curve", world, "--episodes", "100", "--objectives", "nonsense", "more"]) == 2
    capsys.readouterr()
    pair = ["maximise probability of goal", "minimise probability of hole"]
    assert main(["curve", "FrozenLake-v1", "--episodes", "9", "--objectives", *pair]) == 2
    assert "give --data LOG" in capsys.readouterr().err  # it takes no --theta


@pytest.mark.parametrize("price", [2.0, 2e6])
def test_units_do_not_matter(price):
    """Paying wins more often, whatever a unit of money is: one end of the curve pays, the other does not."""

    def actions(place):
        if place != "start":
            return {"stay": {place: "1"}}
        return {"pay": {"won": "p", "lost": "1 - p"}, "wait": {"won": "q", "lost": "1 - q"}}

    pmdp = build(
        "start",
        actions,
        domain={"p": (0.8, 0.9), "q": (0.1, 0.2)},
        labels={"won": lambda s: s == "won", "over": lambda s: s != "start"},
        rewards={"money": lambda _, action: price * (action == "pay")},
    )
    found = curve(pmdp, Counts(pmdp), ["maximise probability of won", "minimise money until over"], points=4)
    assert max(point.lower[0] for point in found.points) == pytest.approx(0.8)
    assert min(point.upper[1] for point in found.points) == 0.0
    assert min(plane.most / plane.weights[0] for plane in found.half_planes) < 0.91


def test_objectives_that_one_policy_serves_best_have_weights_of_ordinary_size():
    """Every play ends in one of two ways, so their probabilities differ by rounding alone from policy to policy."""
    world = rpl_envs.benchmark("rpl/Engagement-50-v0")
    pmdp, theta = world.pmdp, world.theta
    pair = [f"maximise probability of {name}" for name in ("purchase", "churn")]
    counts = uniform_counts(pmdp, Objective.parse(pair[0]), theta, 200, 500, 0)
    found = curve(pmdp, counts, [pair[0], pair[1].replace("max", "min")], points=4)
    assert max(max(plane.weights) for plane in found.half_planes) <= 1.0
