"""`rpl_agent.guarantee.testing`: our own classes keep their contracts, and broken ones are found out."""

from __future__ import annotations

import numpy as np
import pytest

from rpl_agent import RPLAgent
from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Domain, Objective, Sense, build
from rpl_agent.core.regions import Box, Ellipsoid, Image, Intersection, Polytope, Product, build_region
from rpl_agent.core.regions.base import EllipsoidData, RegionKernel
from rpl_agent.core.relaxations import Intervals, Point
from rpl_agent.core.relaxations.interval import expression_wise, parameter_wise, tied, untied
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.guarantee.confidence import IntervalSet, confidence_names, confidence_set
from rpl_agent.guarantee.testing import ContractError, check_agent, check_confidence_set, check_region, check_relaxation
from rpl_agent.studies.baselines import PSRL, UCBVI, UCRL2, CertaintyEquivalence, IntervalLearning, QLearning, RMax

pytestmark = pytest.mark.short_runs

SIMPLEX = Polytope(np.ones((1, 2)), np.ones(1), np.zeros(2), np.ones(2))
BALL = Ellipsoid(np.full(2, 0.5), np.array([[4.0, 1.0], [1.0, 3.0]]), 0.1)
REGIONS = {
    "box": Box(np.array([0.1, 0.2]), np.array([0.3, 0.9])),
    "point": Box(np.array([0.1, 0.2]), np.array([0.1, 0.2])),
    "empty": Box(np.ones(2), np.zeros(2)),
    "polytope": SIMPLEX,
    "large polytope": Polytope(np.ones((1, 12)), np.full(1, 5.0), np.zeros(12), np.ones(12)),
    "ellipsoid": BALL,
    "intersection": Intersection([SIMPLEX, BALL]),
    "image": Image(SIMPLEX, np.array([[1.0, 0.5]])),
    "product": Product([0, 2, 4], np.zeros(4), np.full(4, 0.7), np.full(2, 0.1), np.full(2, 0.9), {1: SIMPLEX}),
}


@pytest.mark.parametrize("name", REGIONS)
def test_our_regions_keep_the_contract(name):
    check_region(REGIONS[name])


def test_given_points_count():
    """A flat region, which no random point hits: the caller knows one of its points."""
    flat = Polytope(np.array([[1.0, 1.0], [-1.0, -1.0]]), np.array([1.0, -1.0]), np.array([0.0, 0.2]), np.ones(2))
    check_region(flat, np.array([[0.75, 0.25]]))
    with pytest.raises(ContractError, match="rejects a point"):
        check_region(flat, np.array([[0.5, 0.6]]))


class Broken(Box):
    """A box with one method replaced."""

    def __init__(self, **methods):
        super().__init__(np.zeros(2), np.ones(2))
        self.__dict__.update(methods)


BROKEN_REGIONS = {
    "minimize is not a lower bound": {"minimize": lambda c: Box.minimize(Broken(), c) + 1e-3},
    "shape": {"minimize": lambda c: Box.minimize(Broken(), c)[:, None]},
    "NaN": {"minimize": lambda c: np.full(len(c), np.nan)},
    "misses a point": {"box": lambda: (np.zeros(2), np.array([0.5, 1.0])), "contains": lambda x: x[:, 0] >= 0.2,
                              "minimize": lambda c: np.full(len(Broken().minimize(c)), -np.inf)},
    "far outside": {"contains": lambda x: np.ones(len(x), dtype=bool)},
    "no point": {"contains": lambda x: np.zeros(len(x), dtype=bool)},
    "raise ModelError": {"minimize": lambda c: Box.minimize(Broken(), c[:, :2])},
    "ellipsoid of kernel": {"kernel": lambda: RegionKernel(None, EllipsoidData(np.zeros(2), np.eye(2), 0.5), None)},
    "polytope of kernel": {"kernel": lambda: SIMPLEX.kernel()},
}  # fmt: skip


@pytest.mark.parametrize("message", BROKEN_REGIONS)
def test_a_broken_region_is_found_out(message):
    region = Broken(**BROKEN_REGIONS[message])
    points = np.array([[0.9, 0.9]]) if message == "misses a point" else None
    with pytest.raises(ContractError, match=message):
        check_region(region, points)


# ---------------------------------------------------------------------- relaxations
def model():
    def actions(state):
        if state in (2, 3):
            return {"stay": {state: 1}}
        return {"go": {(state + 1) % 2: "x", 2: "y", 3: "1 - x - y"}, "stop": {2: "0.5*x", 3: "1 - 0.5*x"}}

    return build(0, actions, domain=Domain.box(["x", "y"]).with_simplex(), labels={"goal": lambda s: s == 2})


PMDP = model()
THETAS = np.array([[0.2, 0.3], [0.3, 0.2], [0.25, 0.25]])
VALUES = PMDP.table.at(THETAS)
LOWER, UPPER = VALUES.min(axis=0), VALUES.max(axis=0)
REGION = build_region(PMDP, LOWER, UPPER)
RELAXATIONS = {
    "tied": tied(PMDP, LOWER, UPPER),
    "parameter": parameter_wise(REGION, PMDP),
    "expression": expression_wise(REGION, PMDP),
    "rectangular": Rectangular(PMDP, REGION),
    "ellipsoid": Rectangular(PMDP, Ellipsoid(PMDP.table.reduction.coordinates(THETAS[2]), np.eye(2), 0.01)),
    "linear programs": Rectangular(PMDP, Polytope(np.zeros((0, 2)), np.zeros(0), *REGION.box(), graph_dimension=1)),
    "untied": untied(PMDP, LOWER[PMDP.expression], UPPER[PMDP.expression]),
}


@pytest.mark.parametrize("sense", Sense)
@pytest.mark.parametrize("name", RELAXATIONS)
def test_our_relaxations_keep_the_contract(name, sense):
    check_relaxation(RELAXATIONS[name], THETAS, Objective.reach("goal", sense=sense))


def test_a_known_model_keeps_the_contract():
    check_relaxation(Point(PMDP.instantiate(THETAS[0])), THETAS[:1], Objective.reach("goal"))


class BrokenIntervals(Intervals):
    def __init__(self, **methods):
        super().__init__(PMDP, LOWER, UPPER, name="broken")
        self.__dict__.update(methods)


def inward(values, extremum, out, rows=None):
    Intervals.expectation(BrokenIntervals(), values, extremum, out, rows)
    out += 1e-3 if extremum is Sense.MIN else -1e-3


def deaf_to_rows(values, extremum, out, rows=None):
    whole = np.empty(PMDP.num_rows)
    Intervals.expectation(BrokenIntervals(), values, extremum, whole)
    out[:] = whole[: len(out)]


BROKEN_RELAXATIONS = {
    "is not a bound": {"expectation": inward},
    "of some rows differs": {"expectation": deaf_to_rows},
    "NaN": {"expectation": lambda values, extremum, out, rows=None: None},
    "shape": {"bounds": lambda: (LOWER[:1], UPPER[:1])},
    "exclude the probabilities": {"bounds": lambda: (LOWER, LOWER)},
    "not probabilities": {"bounds": lambda: (LOWER - 1.0, UPPER)},
    r"compiled\(\)": {"compiled": lambda: Intervals(PMDP, VALUES[0], VALUES[0]).compiled()},
}


@pytest.mark.parametrize("message", BROKEN_RELAXATIONS)
def test_a_broken_relaxation_is_found_out(message):
    with pytest.raises(ContractError, match=message):
        check_relaxation(BrokenIntervals(**BROKEN_RELAXATIONS[message]), THETAS)


# ---------------------------------------------------------------------- confidence sets
@pytest.mark.parametrize("name", confidence_names())
def test_our_confidence_sets_keep_the_contract(name):
    check_confidence_set(confidence_set(name))


class BrokenSet(IntervalSet):
    """Intervals that are much too narrow for their δ."""

    def intervals(self, pmdp, counts, delta):
        lower, upper = super().intervals(pmdp, counts, delta)
        if not counts.total:
            return lower, upper
        middle = (lower + upper) / 2
        return middle - 0.1 * (upper - lower), middle + 0.1 * (upper - lower)


class Silent(IntervalSet):
    def intervals(self, pmdp, counts, delta):
        raise ModelError("none")


class FixedWidth(IntervalSet):
    """The same set whatever δ is; with 20 data sets it passed."""

    def intervals(self, pmdp, counts, delta):
        return super().intervals(pmdp, counts, 0.05)


class Hasty(IntervalSet):
    """Excludes most parameters before there are data."""

    def intervals(self, pmdp, counts, delta):
        lower, upper = super().intervals(pmdp, counts, delta)
        return (lower, upper) if counts.total else (lower + 0.1 * (upper - lower), upper)


class Backwards(IntervalSet):
    """Shrinks with δ."""

    def intervals(self, pmdp, counts, delta):
        return super().intervals(pmdp, counts, 1e-9 / delta)


def test_broken_confidence_sets_are_found_out():
    with pytest.raises(ContractError, match=r"missed in .* of 60 data sets"):
        check_confidence_set(BrokenSet("anytime"))
    with pytest.raises(ContractError, match="does it use δ"):
        check_confidence_set(FixedWidth("anytime"))
    with pytest.raises(ContractError, match="without data"):
        check_confidence_set(Hasty("anytime"))
    with pytest.raises(ContractError, match="does not contain the one"):
        check_confidence_set(Backwards("anytime"))
    with pytest.raises(ModelError, match="at least 60"):
        check_confidence_set(FixedWidth("clopper-pearson"), data_sets=20)
    with pytest.raises(ContractError, match="raises ModelError"):
        check_confidence_set(Silent("anytime"))
    wrong = IntervalSet("anytime")
    object.__setattr__(wrong, "name", "")
    with pytest.raises(ContractError, match="name"):
        check_confidence_set(wrong)


# ---------------------------------------------------------------------- agents
AGENTS = {
    "rpl": lambda seed: RPLAgent(seed=seed),
    **{
        kind.name: (lambda seed, kind=kind: kind(seed=seed))
        for kind in (PSRL, UCBVI, UCRL2, CertaintyEquivalence, IntervalLearning, QLearning, RMax)
    },
}


@pytest.mark.parametrize("name", AGENTS)
def test_our_agents_keep_the_contract(name):
    check_agent(AGENTS[name], episodes=30)


@pytest.mark.parametrize(
    "algorithm", ["maskable-ppo", *(pytest.param(a, marks=pytest.mark.nightly) for a in ("dqn", "ppo"))]
)  # dqn by day: tests/baselines/test_baselines_sb3.py
def test_the_deep_agents_keep_the_contract(algorithm):
    from rpl_agent.studies.baselines.sb3 import SB3Agent

    check_agent(lambda seed: SB3Agent(algorithm, seed=seed), episodes=20)


class Overspends(QLearning):
    def learn(self, env, budget, **options):
        return super().learn(env, budget + 1, **options)


class Forgets(QLearning):
    def _set_arrays(self, arrays):
        super()._set_arrays({name: -array if array.dtype == float else array for name, array in arrays.items()})


class Peeks(QLearning):
    def learn(self, env, budget, **options):
        _ = env.P
        return super().learn(env, budget, **options)


class Wild(QLearning):
    """Takes an action that is not enabled."""

    def predict(self, *arguments, **options):
        action, state = super().predict(*arguments, **options)
        return np.asarray(action) * 0 + 2, state


@pytest.mark.parametrize(
    ("kind", "message"),
    [(Overspends, "ends after 31 episodes"), (Forgets, "loaded agent chooses different"), (Peeks, "true probabilities"),
     (Wild, "not enabled")],
)  # fmt: skip
def test_a_broken_agent_is_found_out(kind, message):
    with pytest.raises(ContractError, match=message):
        check_agent(lambda seed: kind(seed=seed), episodes=30)


def test_chance_without_a_seed_is_found_out():
    seeds = iter(range(100))
    with pytest.raises(ContractError, match="learn differently"):
        check_agent(lambda seed: QLearning(seed=next(seeds)), episodes=200)
