"""The compiled simulator: reproducible, resumable, with the right law, and stopping on counts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Policy, Simulator, build
from rpl_agent.core.model.simulate import absorbing_states, row_visits, seed_state
from rpl_agent.core.native import core
from rpl_envs import benchmark


def branch(state):
    if state == 0:
        return {"a": {1: "p", 2: "q", 3: "1 - p - q"}, "b": {0: "p", 3: "1 - p"}}
    return {"a": {state: 1}}


@pytest.fixture(scope="module")
def pmdp():
    from rpl_agent.core.model import Domain

    return build(
        0, branch, domain=Domain.box(["p", "q"]).with_simplex(), rewards={"r": lambda s, a: 3.0 if a == "b" else 1.0}
    )


def simulator(pmdp, seed=0, max_steps=50, **keywords):
    stop = np.arange(pmdp.num_states) > 0
    return Simulator(pmdp.instantiate(np.array([0.2, 0.3])), stop, max_steps, seed, **keywords)


def test_reproducible_and_resumable(pmdp):
    policy = Policy.uniform(pmdp)
    runs = []
    for pieces in ((300,), (100, 200), (1,) * 300):
        counts, source = np.zeros(pmdp.num_transitions, dtype=np.int64), simulator(pmdp, seed=5)
        for episodes in pieces:
            source.run(policy, episodes, counts=counts)
        runs.append((counts.tolist(), source.state.tolist()))
    assert runs[0] == runs[1] == runs[2]
    first = simulator(pmdp, seed=5)
    first.run(policy, 100)
    saved, later = first.state.copy(), first.run(policy, 50)
    second = simulator(pmdp, seed=77)
    second.state = saved
    again = second.run(policy, 50)
    assert np.array_equal(later.lengths, again.lengths) and np.array_equal(later.returns, again.returns)
    other = simulator(pmdp, seed=6).run(policy, 100)
    assert not np.array_equal(other.lengths, simulator(pmdp, seed=5).run(policy, 100).lengths)


def test_transitions_follow_the_probabilities(pmdp):
    counts = np.zeros(pmdp.num_transitions, dtype=np.int64)
    batch = simulator(pmdp, seed=1).run(Policy.uniform(pmdp), 40_000, counts=counts)
    assert counts.sum() == batch.steps == batch.lengths.sum()
    a, b = counts[:3], counts[3:5]
    assert stats.chisquare(a, a.sum() * np.array([0.2, 0.3, 0.5])).pvalue > 1e-4
    assert stats.chisquare(b, b.sum() * np.array([0.2, 0.8])).pvalue > 1e-4
    assert stats.binomtest(int(a.sum()), int(a.sum() + b.sum()), 0.5).pvalue > 1e-4
    assert counts[5:].sum() == 0  # nothing is sampled after the end


def test_returns_lengths_and_arrivals(pmdp):
    always_b = Policy.deterministic(np.array([1, 2, 3, 4]))
    reward, arrival = pmdp.row_reward("r"), np.array([0.0, 10.0, 20.0, 30.0])
    batch = simulator(pmdp, reward=reward, arrival=arrival).run(always_b, 2_000)
    assert np.array_equal(batch.returns, 3.0 * batch.lengths + 30.0)
    assert batch.lengths.mean() == pytest.approx(1 / 0.8, rel=0.05)
    cut = simulator(pmdp, max_steps=1, reward=reward, arrival=arrival).run(always_b, 2_000)
    assert (cut.lengths == 1).all() and set(cut.returns) == {3.0, 33.0}  # no arrival where it was cut


def test_stops_after_the_episode_that_reached_a_limit(pmdp):
    policy, limit = Policy.uniform(pmdp), np.full(pmdp.num_rows, 2**60)
    limit[1] = 40
    counts, row_count = np.zeros(pmdp.num_transitions, dtype=np.int64), np.zeros(pmdp.num_rows, dtype=np.int64)
    source = simulator(pmdp, seed=3)
    batch = source.run(policy, 10_000, counts=counts, row_limit=limit, row_count=row_count)
    assert batch.stopped and batch.episodes < 10_000
    assert len(batch.returns) == len(batch.lengths) == batch.episodes
    assert row_count[1] >= 40 and counts[3:5].sum() == row_count[1]
    without_last = row_count[1] - batch.lengths[-1]
    assert without_last < 40  # the limit was reached in the last episode
    more = source.run(policy, 10_000, counts=counts, row_limit=2 * np.maximum(row_count, 1), row_count=row_count)
    assert more.stopped and row_count.sum() == counts.sum()

    expression_limit = np.full(pmdp.num_expressions, 2**60)
    which = int(pmdp.expression[1])
    expression_limit[which] = 25
    expression_count = np.zeros(pmdp.num_expressions, dtype=np.int64)
    batch = simulator(pmdp, seed=4).run(
        policy, 10_000, expression_limit=expression_limit, expression_count=expression_count
    )
    assert batch.stopped and expression_count[which] == 25
    assert not simulator(pmdp).run(policy, 10).stopped


def test_bad_input_is_named(pmdp):
    mdp = pmdp.instantiate(np.array([0.2, 0.3]))
    with pytest.raises(ModelError, match="stop has shape"):
        Simulator(mdp, np.zeros(2, dtype=bool), 5)
    with pytest.raises(ModelError, match="reward has shape"):
        Simulator(mdp, np.zeros(4, dtype=bool), 5, reward=np.zeros(1))
    with pytest.raises(ModelError, match="max_steps"):
        Simulator(mdp, np.zeros(4, dtype=bool), 0)
    with pytest.raises(ModelError, match="state-action pairs"):
        simulator(pmdp).run(Policy.randomised(np.ones(2)), 5)


def test_rare_and_impossible_successors():
    """Probabilities 0 and 1 are exact: an impossible successor is never drawn, even at the end of a row."""
    pmdp = build(0, lambda s: {"a": {1: "p", 2: "1 - p"}} if s == 0 else {"a": {s: 1}}, domain=["p"])
    for p, never in ((0.0, 0), (1.0, 1)):
        counts = np.zeros(pmdp.num_transitions, dtype=np.int64)
        Simulator(pmdp.instantiate(np.array([p])), np.array([False, True, True]), 9).run(
            Policy.uniform(pmdp), 5_000, counts=counts
        )
        assert counts[never] == 0 and counts.sum() == 5_000


def test_generator_is_uniform():
    state = seed_state(12345)
    draws = np.array([core.next_double(state) for _ in range(20_000)])
    assert 0.0 <= draws.min() and draws.max() < 1.0
    assert stats.kstest(draws, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.03


def test_value_of_a_known_policy():
    """Betting 0 keeps the money; betting 1 always is a fair walk with drift 2p − 1."""
    made = benchmark("Betting-25")
    task = made.objective.resolve(made.pmdp)
    mdp = made.pmdp.instantiate(made.theta)
    bets = {name: i for i, name in enumerate(made.pmdp.action_names)}
    keep = np.array([made.pmdp.find_row(s, bets["bet 0"]) for s in range(made.pmdp.num_states)])
    one = np.array([max(made.pmdp.find_row(s, bets["bet 1"]), k) for s, k in enumerate(keep)])
    batch = Simulator(mdp, task.decided, 26, 0, task.reward).run(Policy.deterministic(keep), 100)
    assert (batch.returns == 10.0).all() and (batch.lengths == 26).all()
    batch = Simulator(mdp, task.decided, 26, 0, task.reward).run(Policy.deterministic(one), 40_000)
    assert batch.returns.mean() == pytest.approx(10 + 25 * 0.1, abs=0.15)


def test_visits_of_a_policy_are_those_of_the_same_rule_at_every_step():
    world = benchmark("MarsRover-10x10")
    mdp, stop = world.pmdp.instantiate(world.theta), absorbing_states(world.pmdp)
    rule = world.pmdp.state_ptr[1:] - 1
    once, again = Policy(rows=rule), Policy(rows=np.tile(rule, (30, 1)))
    assert np.allclose(row_visits(mdp, once, 30, stop), row_visits(mdp, again, 30, stop), rtol=1e-12)
