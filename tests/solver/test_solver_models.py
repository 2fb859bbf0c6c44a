"""The solver on larger models: published values, slow mixing, regions, warm starts, relaxations without kernels."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import rpl_envs  # noqa: F401
from rpl_agent.core.model import Nature, Objective, Sense, build
from rpl_agent.core.regions.base import Box, EllipsoidData
from rpl_agent.core.regions.polytope_data import empty_polytope_data
from rpl_agent.core.relaxations import CompiledRelaxation, Intervals, Point
from rpl_agent.core.relaxations.base import ELLIPSOID, POLYTOPE, RowForms, compiled_set
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.core.solver import solve, solve_both
from rpl_agent.core.solver.operator import images, row_bounds
from rpl_agent.core.solver.problem import Problem
from rpl_envs.benchmark import INSTANCES, benchmark
from tests.reference.solver import interval_model

SMALL = ["Aircraft-20x10", "Betting-25", "Engagement-50", "Engagement-100", "MarsRover-10x10", "Glider-11x9",
         "Glider-21x17", "ParallelBetting-5", "ParallelBetting-6"]  # fmt: skip
ACYCLIC = ("Aircraft", "Betting", "ParallelBetting", "MarsRover")


def around(pmdp, theta, width: float) -> Intervals:
    """Intervals of relative width around the truth; constants stay points."""
    p = pmdp.table.at(np.asarray(theta, dtype=float))
    slack = width * np.minimum(p, 1 - p)
    return Intervals(pmdp, np.clip(p - slack, 0, 1), np.clip(p + slack, 0, 1))


@pytest.mark.parametrize("name", SMALL)
def test_published_values_are_inside(name):
    world = benchmark(name)
    solution = solve(Point(world.pmdp.instantiate(np.array(world.theta))), world.objective)
    assert solution.converged and solution.check() == []
    assert solution.lower == pytest.approx(INSTANCES[name].value, rel=2e-5)
    if INSTANCES[name].family in ACYCLIC:
        assert solution.iterations == 1
    known = around(world.pmdp, world.theta, 0.05)
    robust, optimistic = (solve(known, world.objective, nature) for nature in Nature)
    assert robust.check() == optimistic.check() == []
    ends = (robust.lower, solution.upper, optimistic.upper)
    assert list(ends) == sorted(ends, reverse=world.objective.sense is Sense.MIN)


def walk(states: int, up: Fraction):
    """A random walk on a line with ends that absorb; the goal is the upper one."""
    one = (Fraction(1), Fraction(1))
    inner = [[{s - 1: (1 - up, 1 - up), s + 1: (up, up)}] for s in range(1, states - 1)]
    return interval_model([[{0: one}], *inner, [{states - 1: one}]], labels={"goal": {states - 1}})


def test_slow_mixing_where_stopping_on_differences_is_wrong():
    states, start = 341, 170
    pmdp, lower, upper = walk(states, Fraction(1, 2))
    solution = solve(Intervals(pmdp, lower, upper), Objective.reach("goal"))
    exact = np.arange(states) / (states - 1)
    assert (solution.lower_values <= exact).all() and (exact <= solution.upper_values).all()
    assert solution.upper_values[start] - solution.lower_values[start] < 1e-9 and solution.check() == []
    # The usual iteration, stopped when values move by less than 1e-6, is wrong by more than 1e-2.
    values = np.zeros(states)
    values[-1] = 1.0
    while True:
        new = values.copy()
        new[1:-1] = 0.5 * (values[:-2] + values[2:])
        if np.abs(new - values).max() < 1e-6:
            break
        values = new
    assert abs(new[start] - 0.5) > 1e-2


def test_drifting_walk_against_the_closed_form():
    pmdp, lower, upper = walk(101, Fraction(9, 20))
    solution = solve(Intervals(pmdp, lower, upper), Objective.reach("goal"))
    ratio = Fraction(11, 9)
    for state in (1, 50, 99):
        exact = (ratio**state - 1) / (ratio**100 - 1)
        # The model's bounds are floats near 9/20: compare within their rounding, amplified by the walk's length.
        assert solution.lower_values[state] == pytest.approx(float(exact), rel=1e-10)
        assert solution.upper_values[state] == pytest.approx(float(exact), rel=1e-10)


def test_a_warm_start_changes_the_work_and_not_the_answer():
    world = benchmark("Engagement-50")
    first = solve(around(world.pmdp, world.theta, 0.05), world.objective)
    narrower = around(world.pmdp, world.theta, 0.049)
    cold, warm = solve(narrower, world.objective), solve(narrower, world.objective, warm=first)
    assert warm.check() == []
    assert max(cold.lower, warm.lower) <= min(cold.upper, warm.upper)
    assert warm.iterations < cold.iterations


def simplex_model():
    """Three successors with probabilities x, y, 1 - x - y, a way back, and a goal."""

    def actions(state):
        if state in (2, 3):
            return {"stay": {state: 1}}
        return {"go": {(state + 1) % 2: "x", 2: "y", 3: "1 - x - y"}}

    return build(0, actions, domain=["x", "y"], labels={"goal": lambda s: s == 2}, validate=False)


def test_a_hand_made_box_of_parameters_is_tighter_than_its_hull():
    # x in [.2, .4], y in [.2, .4]: the row's set is a box in (x, y), its hull frees 1 - x - y in [.2, .6] as well.
    pmdp = simplex_model()
    reduction = pmdp.table.reduction
    low, high = reduction.coordinates(np.array([[0.2, 0.2]]))[0], reduction.coordinates(np.array([[0.4, 0.4]]))[0]
    box = empty_polytope_data(np.minimum(low, high), np.maximum(low, high))
    corners = pmdp.table.at(np.array([[0.2, 0.2], [0.4, 0.4], [0.2, 0.4], [0.4, 0.2]]))
    lower, upper = corners.min(axis=0), corners.max(axis=0)
    forms = RowForms(pmdp.table.constant, np.ascontiguousarray(reduction.weights))
    region = CompiledRelaxation(pmdp, compiled_set(POLYTOPE, lower, upper, forms=forms, polytope=box), "box")
    for sense in Sense:
        for nature in Nature:
            solution = solve(region, Objective.reach("goal", sense=sense), nature)
            y = 0.2 if nature.direction(sense) is Sense.MIN else 0.4
            # v = x v + y with v <= 1, so nature pulls x the same way as y.
            x = y
            assert solution.lower <= y / (1 - x) + 1e-12 and solution.upper >= y / (1 - x) - 1e-12
            assert solution.gap < 1e-6
            assert solution.check() == []


def test_a_hand_made_ball_of_parameters():
    pmdp = simplex_model()
    reduction = pmdp.table.reduction
    center = reduction.coordinates(np.array([[0.3, 0.3]]))[0]
    radius = 0.1
    angles = np.linspace(0, 2 * np.pi, 721)
    points = np.array([[0.3, 0.3]]) + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert reduction.is_identity, "the model's coordinates are its parameters"
    around_ball = pmdp.table.at(points)
    lower, upper = around_ball.min(axis=0) - 1e-4, around_ball.max(axis=0) + 1e-4
    forms = RowForms(pmdp.table.constant, np.ascontiguousarray(reduction.weights))
    ellipsoid = EllipsoidData(center, np.eye(2), radius)
    ball = CompiledRelaxation(pmdp, compiled_set(ELLIPSOID, lower, upper, forms=forms, ellipsoid=ellipsoid), "ball")
    for nature in Nature:
        solution = solve(ball, Objective.reach("goal"), nature)
        values = points[:, 1] / (1 - points[:, 0])  # stationary points of the ball suffice: both rows are alike
        best = values.min() if nature is Nature.ADVERSARIAL else values.max()
        assert solution.value == pytest.approx(best, abs=2e-5)
        if nature is Nature.ADVERSARIAL:
            assert solution.lower <= best + 1e-12
        else:
            assert solution.upper >= best - 1e-12


@pytest.mark.parametrize("name", ["Engagement-50", "Aircraft-20x10", "MarsRover-10x10"])
def test_rectangular_boxes_of_parameters(name):
    world = benchmark(name)
    truth = world.pmdp.table.reduction.coordinates(np.array([world.theta]))[0]
    region = Rectangular(world.pmdp, Box(truth - 0.01, truth + 0.01))
    exact = solve(Point(world.pmdp.instantiate(np.array(world.theta))), world.objective)
    for nature in Nature:
        solution = solve(region, world.objective, nature)
        assert solution.check() == []
        assert solution.gap <= 1e-5 * max(1.0, exact.upper)
        # The truth is inside: the robust value is worse, the optimistic one better.
        better = (nature is Nature.COOPERATIVE) == (world.objective.sense is Sense.MAX)
        assert solution.upper >= exact.lower if better else solution.lower <= exact.upper


class Opaque:
    """An interval relaxation that hides its kernel: only the protocol is left."""

    tightness = 1e-13

    def __init__(self, inner: Intervals) -> None:
        self.pmdp, self.name, self._inner = inner.pmdp, "opaque", inner

    def expectation(self, values, extremum, out, rows=None):
        self._inner.expectation(values, extremum, out, rows)

    def bounds(self):
        return self._inner.bounds()

    def compiled(self):
        return None


@pytest.mark.parametrize("name", ["Betting-25", "Glider-11x9", "MarsRover-10x10"])
def test_relaxations_without_kernels(name):
    world = benchmark(name)
    known = around(world.pmdp, world.theta, 0.05)
    for nature in Nature:
        fast, slow = solve(known, world.objective, nature), solve(Opaque(known), world.objective, nature)
        assert slow.check() == []
        assert slow.lower <= fast.upper and fast.lower <= slow.upper
        assert slow.gap <= 1e-4 * max(1.0, fast.upper)


def test_opaque_end_components_stay_honest():
    one = (Fraction(1), Fraction(1))
    table = [
        [{0: one}, {1: (Fraction(1, 4), Fraction(1, 2)), 2: (Fraction(1, 2), Fraction(3, 4))}],
        [{1: one}],
        [{2: one}],
    ]
    pmdp, lower, upper = interval_model(table, labels={"goal": {1}})
    solution = solve(Opaque(Intervals(pmdp, lower, upper)), Objective.reach("goal"))
    assert solution.lower <= 0.25 <= solution.upper and solution.lower == pytest.approx(0.25)
    assert solution.check() == []


@pytest.mark.parametrize("name", ["Betting-25", "Betting-50", "Glider-51x47"])  # below and above the size for threads
def test_both_natures_at_once_are_the_two_solves(name):
    world = benchmark(name)
    relaxation = around(world.pmdp, world.theta, 0.05)
    for found, nature in zip(solve_both(relaxation, world.objective), (Nature.ADVERSARIAL, Nature.COOPERATIVE)):
        alone = solve(relaxation, world.objective, nature)
        assert (found.lower_values == alone.lower_values).all() and (found.upper_values == alone.upper_values).all()
        assert (found.policy.rows == alone.policy.rows).all() and found.problem.nature is nature


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch):
    world = benchmark("Engagement-50")
    found, values = [], np.random.default_rng(0).random(world.pmdp.num_states)
    problem = Problem.of(around(world.pmdp, world.theta, 0.1), world.objective, Nature.ADVERSARIAL, None)
    monkeypatch.setattr("rpl_agent.core.relaxations.base.WORTH_A_THREAD", 10)
    for count in (1, 2, 3, 64):
        monkeypatch.setattr("rpl_agent.core.relaxations.base.threads", lambda count=count: count)
        assert problem.scratch().threads == count
        found.append((row_bounds(problem, values, True), *images(problem, values, False, None)))
    for other in found[1:]:
        assert all(np.array_equal(*pair) for pair in zip(found[0], other))
