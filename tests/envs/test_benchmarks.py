"""The six worlds: sizes of the paper, values, and equality with slow twins written state by state."""

from __future__ import annotations

import numpy as np
import pytest

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Nature, Sense, validate
from rpl_agent.core.relaxations import Point
from rpl_agent.core.solver import solve
from rpl_envs import FAMILIES, INSTANCES, benchmark
from rpl_envs.benchmark import builder
from tests.reference import worlds
from tests.reference.domains import points_of

LARGE = {
    "Aircraft-200x40", "MarsRover-75x75", "MarsRover-125x125", "ParallelBetting-20", "Engagement-1000", "Betting-135",
    "Betting-140", "MarsRover-50x50",
}  # fmt: skip
#: Sizes that the paper does not print; kept so that a change of the model is noticed.
OTHER_COUNTS = {
    "Betting-140": (100800, 879738, 7413),
    "Glider-51x47-region": (2397, 37059, 4977),
    "Glider-69x67": (4623, 72183, 9504),
}


def marked(names):
    return [pytest.param(n, marks=pytest.mark.nightly) if n in LARGE else n for n in names]


@pytest.mark.parametrize("name", marked(INSTANCES))
def test_sizes_are_those_of_the_paper(name):
    instance, made = INSTANCES[name], benchmark(name)
    pmdp = made.pmdp
    sizes = (pmdp.num_states, pmdp.num_transitions, pmdp.num_expressions)
    assert sizes == (instance.counts or OTHER_COUNTS[name])
    parameters = {"Aircraft": 3, "Betting": 1, "Engagement": 4, "MarsRover": 4, "Glider": 2, "ParallelBetting": 2}
    assert pmdp.num_parameters == parameters[instance.family] == len(made.theta)
    assert made.max_episode_steps == instance.episode + 1
    assert pmdp.domain.contains(np.array(made.theta))
    probability = pmdp.instantiate(made.theta).probability
    assert probability.min() >= 0.0
    totals = np.add.reduceat(probability, pmdp.row_ptr[:-1])
    assert np.abs(totals - 1.0).max() < 1e-12


@pytest.mark.parametrize("name", [n for n, i in INSTANCES.items() if i.value is not None])
def test_optimal_value_at_the_true_parameters(name):
    made = benchmark(name)
    solution = solve(Point(made.pmdp.instantiate(made.theta)), made.objective, Nature.COOPERATIVE)
    # the printed values are rounded to the digits given
    tolerance = 0.6 * 10.0 ** -len(str(INSTANCES[name].value).split(".")[1])
    assert solution.lower == pytest.approx(INSTANCES[name].value, abs=tolerance)
    assert solution.upper == pytest.approx(INSTANCES[name].value, abs=tolerance)


TWINS = {
    "Aircraft": (dict(X=4, Y=3), lambda d: worlds.aircraft(4, 3, d)),
    "Betting": (dict(n=4), lambda d: worlds.betting(4, d)),
    "Engagement": (dict(L=8), lambda d: worlds.engagement(8, d)),
    "MarsRover": (dict(X=6, Y=5, tries=2), lambda d: worlds.mars_rover(6, 5, 2, d)),
    "MarsRover, jammed": (dict(X=4, Y=10, tries=1), lambda d: worlds.mars_rover(4, 10, 1, d)),
    "Glider": (dict(w=5, h=4), lambda d: worlds.glider(5, 4, (4, 3), d)),
    "Glider, odd": (dict(w=7, h=5, goal=(3, 2)), lambda d: worlds.glider(7, 5, (3, 2), d)),
    "ParallelBetting": (dict(n=3), lambda d: worlds.parallel_betting(3, "mixed", d)),
    "ParallelBetting, capital": (dict(n=3, variant="capital"), lambda d: worlds.parallel_betting(3, "capital", d)),
}


@pytest.mark.parametrize("case", TWINS)
def test_both_builders_give_the_same_model(case):
    size, twin = TWINS[case]
    fast = benchmark(case.split(",")[0], **size).pmdp
    slow = twin(fast.domain)
    for name in ("state_ptr", "action", "row_ptr", "successor", "expression"):
        assert np.array_equal(getattr(fast, name), getattr(slow, name)), name
    assert fast.action_names == slow.action_names
    for name, values in slow.variables.items():
        assert np.array_equal(fast.variables[name], values)
    assert [fast.table.polynomial(f) for f in range(len(fast.table))] == [
        slow.table.polynomial(f) for f in range(len(slow.table))
    ]
    assert fast.table.denominators == slow.table.denominators
    for name in slow.rewards:
        assert np.allclose(fast.row_reward(name), slow.row_reward(name), atol=0, rtol=1e-15)


def test_engagement_counts_churn_on_request():
    plain, counted = benchmark("Engagement", L=10), benchmark("Engagement", L=10, churn_penalty=True)
    values = []
    for made in (plain, counted):
        solution = solve(Point(made.pmdp.instantiate(made.theta)), made.objective, Nature.COOPERATIVE)
        values.append(solution.lower)
    assert plain.objective.resolve(plain.pmdp).reward.max() == 1.0  # the paper's model never pays for churn
    assert counted.objective.resolve(counted.pmdp).reward.max() == 5.0
    assert values[1] > values[0] + 0.5


def test_glider_region_is_the_target_and_only_its_centre_absorbs():
    made = benchmark("Glider-51x47-region")
    task = made.objective.resolve(made.pmdp)
    assert task.target.sum() == 19 * 19
    single = np.diff(made.pmdp.state_ptr) == 1
    assert [made.pmdp.state_name(s) for s in np.flatnonzero(single)] == ["(x=30, y=30)"]


def test_names_ids_and_keywords_give_one_object():
    made = benchmark("Aircraft-20x10")
    assert benchmark("rpl/Aircraft-20x10-v0") is made
    assert benchmark("rpl_envs:rpl/Aircraft-20x10-v0") is made
    assert benchmark("Aircraft", X=20, Y=10) is made
    assert benchmark("Aircraft") is made
    assert benchmark("Glider", w=51, h=47, goal=(30, 30), radius=10) is benchmark("Glider-51x47-region")
    assert benchmark("ParallelBetting", n=5) is benchmark("ParallelBetting-5")


@pytest.mark.parametrize(
    ("name", "size", "named"),
    [
        ("Airplane", {}, "Airplane"),
        ("Aircraft", {"Z": 3}, "Z"),
        ("Aircraft", {"X": 1}, "X"),
        ("Betting", {"n": 0}, "n = 0"),
        ("Betting", {"n": 2.5}, "2.5"),
        ("Glider", {"goal": (11, 0)}, "11"),
        ("Glider", {"goal": (3, 3), "radius": 5}, "radius"),
        ("ParallelBetting", {"variant": "odd"}, "odd"),
        ("Engagement", {"L": 3}, "L = 3"),
    ],
)
def test_wrong_sizes_are_named(name, size, named):
    with pytest.raises(ModelError, match=named):
        benchmark(name, **size)


@pytest.mark.parametrize("family", FAMILIES)
def test_models_are_valid_and_documented(family):
    made = benchmark(family)
    assert validate(made.pmdp) == []
    text = builder(family).__doc__
    for heading in (
        "Description",
        "Action Space",
        "Observation Space",
        "Rewards",
        "Starting State",
        "Episode End",
        "Arguments",
        "Version History",
    ):
        assert f"## {heading}" in text
    assert made.objective.sense in (Sense.MAX, Sense.MIN)
    assert "0.4" not in repr(made)  # the true parameters are not shown by accident


def test_domains_keep_every_expression_a_probability():
    rng = np.random.default_rng(5)
    for family in FAMILIES:
        pmdp = benchmark(family).pmdp
        values = pmdp.table.at(points_of(pmdp.domain, rng, 200))
        assert values.min() > -1e-9 and values.max() < 1 + 1e-9, family
    # and they are not smaller than need be: Betting's largest p makes some win certain
    betting = benchmark("Betting-25").pmdp
    assert betting.table.at(betting.domain.upper).max() == pytest.approx(1.0)
    assert betting.domain.upper[0] == pytest.approx(1 - 0.0003 * 250)
