"""Sampling for the certificate: fewer episodes for the same gap, the same law on every path, exact resumption."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import rpl_envs  # noqa: F401
from benchmarks.bench_sampler import SAMPLERS, final_gap
from rpl_agent import RPLAgent
from rpl_agent.agent.exploration import alternates, block_of, explorations, optimistic_share, register_exploration
from rpl_agent.agent.exploration.design import Episodes, RowInformation, design, informative_policy
from rpl_agent.agent.exploration.goal import SamplingGoal
from rpl_agent.core.coupled.attribution import point_frame, slopes
from rpl_agent.core.errors import ModelError, RPLWarning
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Domain, Nature, Objective, Policy, build
from rpl_agent.core.model.simulate import row_visits
from rpl_agent.core.registry import Registry
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.core.solver.problem import Problem
from rpl_agent.guarantee.pipeline import Config, uncertainty_from
from rpl_envs import benchmark
from tests.reference.block_models import block_model

pytestmark = pytest.mark.short_runs


def agent(**options) -> RPLAgent:
    return RPLAgent(seed=7, delta=0.05, exploration="certificate", **options)


def test_unknown_names_are_refused():
    with pytest.raises(ModelError, match="exploration"):
        RPLAgent(exploration="curious")


@pytest.mark.parametrize("evenly", [False, True])
def test_the_share_of_optimistic_episodes(evenly):
    """One in the root of their number, or every other one."""
    episodes, optimistic, changes = 0, 0, 0
    while episodes < 100_000:
        kind, length = block_of(episodes, evenly)
        assert length >= 1
        assert all(block_of(episodes + k, evenly) == (kind, length - k) for k in range(min(length, 5)))
        optimistic += length * kind
        episodes, changes = episodes + length, changes + 1
    assert abs(optimistic / episodes - optimistic_share(0, episodes, evenly)) < (5e-3 if evenly else 1e-3)
    assert changes < 1500


def test_models_of_many_unknowns_play_optimistically_in_half_of_the_episodes():
    assert alternates(block_model(0, 8)[0])
    assert not alternates(benchmark("Aircraft-20x10").pmdp)


def test_with_many_unknowns_it_does_not_lose_to_optimistic_or_uniform_play():
    """Bridges; `python -m benchmarks sampler` has 28 worlds."""
    widths = {sampler: final_gap("bridges", sampler, 1_000, 301) for sampler in SAMPLERS}
    assert widths["certificate"] <= 1.05 * min(widths["optimistic"], widths["uniform"])


def test_rates_are_derivatives_of_the_variance():
    """Another visit of a row, with its expected outcome, lowers G'I⁻¹G by c'I_row c to first order."""
    world = benchmark("ParallelBetting", n=3)
    pmdp, theta = world.pmdp, np.array(world.theta)
    visits = np.full(pmdp.num_rows, 500.0)
    weights, rng = slopes(pmdp, theta), np.random.default_rng(0)
    gradient = rng.normal(size=weights.shape[1])
    information = RowInformation(pmdp, theta, weights, gradient)
    rates = information.rates(information.wanted(information.of(visits)))
    for row in np.flatnonzero(rates > 0.2 * rates.max())[:5]:
        more = visits.copy()
        more[row] += 1.0
        before, after = (gradient @ np.linalg.solve(information.of(v), gradient) for v in (visits, more))
        assert before - after == pytest.approx(rates[row], rel=0.02)


def plays_of(pmdp, objective, theta, limit):
    point = Point(pmdp.instantiate(theta))
    return Episodes.of(Problem.of(point, objective, Nature.COOPERATIVE, None), point_frame(pmdp, theta), limit)


@pytest.mark.parametrize("limit", [None, 4, 9])
def test_plays_are_followed_as_elsewhere(limit):
    """Visits of the best collecting policy, against the sparse matrices of `row_visits` and a plain recursion."""

    def actions(state):
        if state in ("won", "lost"):
            return {"stay": {state: 1}}
        ahead = f"{int(state) + 1}" if state != "3" else "won"
        back = state if limit is not None else "lost"  # cycles need a limit
        return {"slow": {ahead: "p", back: "1-p"}, "fast": {ahead: "q", "lost": "1-q"}}

    pmdp = build("0", actions, domain=Domain.box({"p": (0, 1), "q": (0, 1)}), labels={"won": lambda s: s == "won"})
    theta, rng = np.array([0.3, 0.8]), np.random.default_rng(3)
    plays, reward = plays_of(pmdp, Objective.reach("won"), theta, limit), rng.random(pmdp.num_rows)
    rules = plays.best(reward)
    visits = plays.visits(rules)
    steps = rules[::-1] if len(rules) > 1 else np.repeat(rules, 4, axis=0)
    wanted = row_visits(pmdp.instantiate(theta), Policy.deterministic(steps), len(steps), plays.stopped)
    assert visits == pytest.approx(np.where(plays.stopped[pmdp.row_state], 0.0, wanted))
    p, value = pmdp.instantiate(theta).probability, np.zeros(pmdp.num_states)
    for _ in range(4 if limit is None else limit):
        q = reward + np.add.reduceat(p * value[pmdp.successor], pmdp.row_ptr[:-1])
        value = np.where(plays.stopped, 0.0, np.maximum.reduceat(q, pmdp.state_ptr[:-1]))
    assert visits @ reward == pytest.approx(value[pmdp.initial_state])


@pytest.mark.parametrize("per_step", [False, True])
def test_the_design_is_the_best_one(per_step):
    """Two coins that are tossed for different numbers of steps: Elfving's shares, by a search over all mixtures."""

    def actions(state):
        return {
            "start": {"one": {"end": "p", "gone": "1-p"}, "two": {"walk": 1}},
            "walk": {"toss": {"end": "q", "gone": "1-q"}},
        }.get(state, {"stay": {state: 1}})

    pmdp = build("start", actions, domain=Domain.box({"p": (0, 1), "q": (0, 1)}), labels={"end": lambda s: s == "end"})
    theta, gradient = np.array([0.5, 0.9]), np.array([1.0, 2.0])
    plays = plays_of(pmdp, Objective.reach("end"), theta, None)
    information = RowInformation(pmdp, theta, slopes(pmdp, theta), gradient)
    found = design(plays, information, 1e-9 * np.eye(2), SamplingGoal(1.0, per_step, None))
    first = pmdp.state_ptr[pmdp.initial_state]
    shares = np.linspace(0.001, 0.999, 999)  # of episodes for the first coin
    variance = theta[0] * (1 - theta[0]) / shares + 4 * theta[1] * (1 - theta[1]) / (1 - shares)
    best = shares[np.argmin(variance * (shares + 2 * (1 - shares) if per_step else 1.0))]
    assert found.weights[first] == pytest.approx(best, abs=0.02)


def test_the_plan_goes_where_the_value_is_uncertain():
    """Two coins: the value hangs on the one that the optimistic policy never tosses twice."""

    def actions(state):
        return {
            "start": {"bet": {"won": "p", "lost": "1-p"}, "test": {"lab": 1}},
            "lab": {"toss": {"lab2": "p", "lab3": "1-p"}}, "lab2": {"toss": {"lost": "p", "lab3": "1-p"}},
            "lab3": {"toss": {"lost": "p", "gone": "1-p"}},
        }.get(state, {"stay": {state: 1}})  # fmt: skip

    pmdp = build("start", actions, domain=Domain.box({"p": (0.1, 0.9)}), labels={"won": lambda s: s == "won"})
    objective, counts = Objective.reach("won"), Counts(pmdp)
    uncertainty = uncertainty_from(pmdp, counts, Config())
    plan = informative_policy(
        uncertainty.relaxation,
        objective,
        counts,
        np.array([0.5]),
        Policy.deterministic(pmdp.state_ptr[:-1]),
        SamplingGoal(1.0, per_step=False, limit=None),
    )
    assert pmdp.action_names[plan.action(pmdp, pmdp.initial_state)] == "test"  # three tosses for one episode
    per_step = informative_policy(
        uncertainty.relaxation,
        objective,
        counts,
        np.array([0.5]),
        Policy.deterministic(pmdp.state_ptr[:-1]),
        SamplingGoal(1.0, per_step=True, limit=None),
    )
    assert pmdp.action_names[per_step.action(pmdp, pmdp.initial_state)] == "bet"  # a toss per step


@pytest.mark.parametrize(
    "unit, name",
    [
        ("steps", "rpl/Glider-11x9-v0"),
        pytest.param("episodes", "rpl/Betting-25-v0", marks=pytest.mark.nightly),
        pytest.param("steps", "rpl/Betting-25-v0", marks=pytest.mark.nightly),
        pytest.param("episodes", "rpl/Glider-11x9-v0", marks=pytest.mark.nightly),
    ],
)
def test_it_resumes_exactly(name, unit, tmp_path):
    budget = 30 if unit == "episodes" else 450
    half = agent().learn(gym.make(name), budget // 2, unit=unit)
    half.save(tmp_path / "half.zip")
    again = RPLAgent.load(tmp_path / "half.zip")
    assert again.exploration.name == "certificate"
    again.learn(budget=budget - budget // 2, unit=unit)
    straight = half.learn(budget=budget - budget // 2, unit=unit)
    assert np.array_equal(straight.counts.transitions, again.counts.transitions)
    assert straight.certificate.lower == again.certificate.lower


def test_real_steps_are_sampled_alike():
    found = agent(compiled=False).learn(gym.make("rpl/Betting-25-v0"), 40)
    assert found.num_episodes == 40 and found.session.informative is not None


@pytest.mark.nightly
def test_it_needs_fewer_episodes_where_the_best_policy_learns_little():
    gaps = {}
    for exploration in ("optimistic", "certificate"):
        one = RPLAgent(seed=1, delta=0.05, exploration=exploration, relaxation="coupled")
        one.learn(gym.make("rpl/Glider-11x9-v0"), 1000)
        gaps[exploration] = one.certificate.gap
    assert gaps["certificate"] < 0.75 * gaps["optimistic"]


@pytest.mark.parametrize("limit", [None, 60])
def test_without_a_time_limit_no_play_is_drawn_that_might_never_end(limit):
    """What collects most information in a model with cycles is to play on; nobody would end that."""
    walk = gym.make("CliffWalking-v1", is_slippery=True, **({} if limit is None else {"max_episode_steps": limit}))
    found = agent(objective=Objective.cost("cost", target="goal")).learn(walk, 30)
    assert (found.session.informative is None) == (limit is None)


def test_with_a_horizon_it_samples_for_the_certificate():
    """FrozenLake asks for the goal within its time limit: the slippery steps are worth most where plays last."""
    found = agent().learn(gym.make("FrozenLake-v1"), 30)
    assert found.objective.horizon == 100 and found.session.informative is not None
    paper = RPLAgent(seed=7, delta=0.05, exploration="optimistic").learn(gym.make("FrozenLake-v1"), 30)
    assert found.counts.total > 1.5 * paper.counts.total


class Uniform:
    """A way to explore of a user's own: every action alike."""

    name = "uniform of a test"

    def __init__(self):
        self.asked = 0

    def plan(self, counts, uncertainty, objective, optimistic, goal):
        self.asked += 1
        return Policy.uniform(counts.pmdp)


def test_an_exploration_of_ones_own_is_an_object_or_a_registered_name(tmp_path):
    own = Uniform()
    agent = RPLAgent("rpl/Betting-25-v0", exploration=own, seed=0).learn(budget=60)
    assert own.asked > 1
    assert agent.session.informative.weights is not None  # what it planned is what is played
    agent.save(tmp_path / "agent.zip")
    with pytest.raises(ModelError, match=r"'uniform of a test' is not one of .*register your own before it is used"):
        RPLAgent.load(tmp_path / "agent.zip")
    register_exploration(own)
    try:
        loaded = RPLAgent.load(tmp_path / "agent.zip")
        assert loaded.exploration is own
        assert loaded.learn(budget=10).num_episodes == 70
    finally:
        del explorations._known[own.name]


def test_entry_points_of_other_packages_are_found(monkeypatch):
    class Point:
        name = "from elsewhere"

        def load(self):
            return type("Elsewhere", (), {"name": self.name, "plan": Uniform.plan})

    offered = {"rpl_agent.some_group": [Point()]}
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: offered[group])
    registry = Registry("thing", "rpl_agent.some_group")
    assert registry.get("from elsewhere").name == "from elsewhere"
    assert registry.names() == ("from elsewhere",)
    with pytest.raises(ModelError, match="thing 'neither' is not one of"):
        registry.get("neither")


def test_an_entry_point_that_cannot_be_loaded_leaves_the_others(monkeypatch):
    class Point:
        def __init__(self, name, found):
            self.name, self.found = name, found

        def load(self):
            if self.found is None:
                raise ImportError("no module named gone")
            return self.found

    whole = type("Whole", (), {"name": "whole"})()
    points = [Point("broken", None), Point("nameless", object()), Point("whole", whole)]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    registry = Registry("thing", "rpl_agent.some_group")
    with pytest.warns(RPLWarning) as caught:
        assert registry.names() == ("whole",)
    assert "thing 'broken' of an installed package cannot be used: no module named gone" in str(caught[0].message)
    assert "thing 'nameless' of an installed package cannot be used" in str(caught[1].message)
    assert registry.get("whole") is whole
