"""Sampling for the certificate: fewer episodes for the same gap, the same law on every path, exact resumption."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import rpl_envs  # noqa: F401
from rpl_agent import RPLAgent
from rpl_agent.agent.exploration import OPTIMISTIC_SHARE, SamplingGoal, block_of
from rpl_agent.agent.information import _rates, informative_policy
from rpl_agent.coupled.attribution import slopes
from rpl_agent.errors import ModelError
from rpl_agent.evidence.counts import Counts
from rpl_agent.evidence.sampling import uniform_counts
from rpl_agent.model import Domain, Objective, Policy, build
from rpl_agent.pipeline import Config, uncertainty_from
from rpl_envs import benchmark


def agent(**options) -> RPLAgent:
    return RPLAgent(seed=7, delta=0.05, exploration="certificate", **options)


def test_unknown_names_are_refused():
    with pytest.raises(ModelError, match="exploration"):
        RPLAgent(exploration="curious")


def test_blocks_keep_their_share_and_grow():
    episodes, optimistic, changes = 0, 0, 0
    while episodes < 100_000:
        kind, length = block_of(episodes)
        assert length >= 1
        optimistic += length * kind
        episodes, changes = episodes + length, changes + 1
    assert abs(optimistic / episodes - OPTIMISTIC_SHARE) < 0.05
    assert changes < 1500


def test_rates_are_derivatives_of_the_variance():
    """Another visit of a row, with its expected outcome, lowers G'I⁻¹G by c'I_row c to first order."""
    world = benchmark("ParallelBetting", n=3)
    pmdp, theta = world.pmdp, np.array(world.theta)
    counts = uniform_counts(pmdp, world.objective, theta, 20_000, 50, 1)
    weights, value = slopes(pmdp, theta), pmdp.table.evaluate(theta)
    gradient = np.random.default_rng(0).normal(size=weights.shape[1])
    rates = _rates(counts, theta, gradient, weights)

    def variance(extra):
        K = counts.successes + extra
        directions = weights * (np.sqrt(K) / value)[:, None]
        return gradient @ np.linalg.solve(directions.T @ directions, gradient)

    base = variance(np.zeros(pmdp.num_expressions))
    rows = np.flatnonzero(rates > 0.2 * rates.max())[:5]
    for row in rows:
        extra = np.zeros(pmdp.num_expressions)
        for t in range(pmdp.row_ptr[row], pmdp.row_ptr[row + 1]):
            extra[pmdp.expression[t]] += value[pmdp.expression[t]]
        assert base - variance(extra) == pytest.approx(rates[row], rel=0.02)


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
        SamplingGoal(3.0, per_step=False, limited=False),
    )
    names = [pmdp.action_names[pmdp.action[r]] for r in plan.rows]
    assert names[pmdp.initial_state] == "test"  # three tosses for the price of one episode
    per_step = informative_policy(
        uncertainty.relaxation,
        objective,
        counts,
        np.array([0.5]),
        Policy.deterministic(pmdp.state_ptr[:-1]),
        SamplingGoal(3.0, per_step=True, limited=False),
    )
    assert pmdp.action_names[pmdp.action[per_step.rows[pmdp.initial_state]]] == "bet"  # a toss per step


@pytest.mark.parametrize(
    "unit, name",
    [
        ("steps", "rpl/Glider-11x9-v0"),
        ("episodes", "rpl/Betting-25-v0"),
        pytest.param("steps", "rpl/Betting-25-v0", marks=pytest.mark.nightly),
        pytest.param("episodes", "rpl/Glider-11x9-v0", marks=pytest.mark.nightly),
    ],
)
def test_it_resumes_exactly(name, unit, tmp_path):
    budget = 60 if unit == "episodes" else 900
    whole = agent().learn(gym.make(name), budget, unit=unit)
    half = agent().learn(gym.make(name), budget // 2, unit=unit)
    half.save(tmp_path / "half.zip")
    again = RPLAgent.load(tmp_path / "half.zip")
    assert again.exploration == "certificate"
    again.learn(budget=budget - budget // 2, unit=unit)
    straight = half.learn(budget=budget - budget // 2, unit=unit)
    assert np.array_equal(straight.counts.transitions, again.counts.transitions)
    assert straight.certificate.lower == again.certificate.lower
    assert whole.counts.total > 0


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
