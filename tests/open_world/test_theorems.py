"""Both theorems under adaptive play, and the mistakes that their proofs warn of: each must be seen here."""

from __future__ import annotations

import numpy as np
import pytest

from rpl_agent.core.evidence.ledger import OpenLedger
from rpl_agent.guarantee.open_world.assumptions import Assumptions
from rpl_agent.guarantee.open_world.data import END, OpenData
from rpl_agent.guarantee.open_world.played import OpenPolicy, PlayedPolicy
from rpl_agent.guarantee.open_world.values import UpperValues, lower_values
from tests.open_world.worlds import SmallAgent, SmallWorld

DISCOUNT = 0.9


def misses(seed: int, looks: int, delta: float) -> int:
    """Looks of one adaptive run at which a bound was false: on V* anywhere, at the start, or on the policy."""
    agent = SmallAgent(SmallWorld(seed), seed, DISCOUNT, delta)
    best, false = agent.world.values(DISCOUNT), 0
    for look in range(looks):
        agent.play(4 + 2 * look)
        agent.upper.update(agent.data)
        known = np.array([best[int(s)] for s in agent.data.states])
        bad = (agent.upper.values[0] < known - 1e-9).any()
        bad |= agent.upper.start(agent.data) < agent.true_start(best) - 1e-9
        if agent.played is not None:
            own = agent.true_start(agent.world.values(DISCOUNT, agent.policy_table()))
            bad |= agent.played.lower(agent.assumptions, agent.data) > own + 1e-9
        if look % 3 == 0:
            agent.fix()
        false += bool(bad)
    return false


def test_bounds_hold_at_every_look_of_adaptive_runs(sized):
    """At most a share δ of the runs may ever be wrong; the bound is far from tight here."""
    delta, runs = 0.1, sized(30, 60)
    assert sum(misses(seed, 8, delta) > 0 for seed in range(runs)) <= delta * runs


@pytest.mark.nightly
def test_bounds_hold_in_many_runs():
    assert sum(misses(seed, 10, 0.1) > 0 for seed in range(1_000, 2_000)) <= 100


def test_the_harness_sees_rows_without_a_share(monkeypatch):
    """The planted mistake: bounds that need a wealth of 1 only, which half of all means exceed."""
    monkeypatch.setattr("rpl_agent.guarantee.open_world.values.levels", lambda shares: np.zeros(len(shares)))
    assert sum(misses(seed, 8, 0.1) > 0 for seed in range(12)) > 3


# ---------------------------------------------------------------------- ends, cuts, starts
def bounds_after(outcomes: list[tuple[float, int]], **facts) -> float:
    """U of one state with one action, after these outcomes (successor 0 is the state itself)."""
    data = OpenData(1)
    data.state("s")
    for reward, after in outcomes:
        data.add(0, reward, after)
    upper = UpperValues(Assumptions(discount=0.5, returns=(0.0, 1.0), **facts), 1, OpenLedger.of(0.1))
    upper.update(data)
    return float(upper.values[0][0])


def test_nothing_is_earned_after_an_end_and_a_cut_step_counts_with_its_successor():
    assert bounds_after([(0.0, END)] * 500) < 0.05
    assert bounds_after([(0.5, END)] * 500) < 0.55
    assert bounds_after([(0.5, 0)] * 500) > 0.95  # the truth is 1


def test_deterministic_rows_need_one_visit():
    assert bounds_after([(0.25, END)], deterministic=True) == pytest.approx(0.25, abs=1e-12)
    assert bounds_after([(0.25, END)]) > 0.9


def test_deterministic_does_not_cover_the_start():
    """One start was seen, and it is worthless: the other one, which has half of the probability, is not."""
    data = OpenData(1)
    data.starts[data.state("poor")] += 1
    data.add(0, 0.0, END)
    upper = UpperValues(Assumptions(discount=0.5, returns=(0.0, 1.0), deterministic=True), 1, OpenLedger.of(0.1))
    upper.update(data)
    assert upper.values[0][0] == pytest.approx(0.0, abs=1e-12)
    assert upper.start(data) > 0.9  # V* = 1/2 in a world that starts rich in every second episode


# ---------------------------------------------------------------------- a policy that is played
def new_policy(actions: int = 1, share: float = 0.05) -> PlayedPolicy:
    return PlayedPolicy(OpenPolicy(np.zeros((1, 1), dtype=np.int64)), 1, share, np.zeros(0, dtype=np.int64))


def add_episode(played: PlayedPolicy, earned: float, steps: int = 1, cut_in: int | None = None) -> None:
    episode = played.begin((0.0, 1.0))
    episode.add(earned, 1.0)
    episode.steps, episode.over, episode.cut_in = steps, True, cut_in


def test_episodes_count_in_the_order_of_their_starts():
    """Episodes that end early are not a fair sample: here they all earn 1, and the mean is 1/2."""
    rng, assumed, data = np.random.default_rng(0), Assumptions(discount=1.0, returns=(0.0, 1.0)), OpenData(1)
    data.state("s")
    fair, finished = new_policy(), new_policy()
    lanes = 64
    for _ in range(lanes):  # every lane begins one episode; after one tick those that earned 1 are over
        wins = rng.random() < 0.5
        episode = fair.begin((0.0, 1.0))
        if wins:
            episode.add(1.0, 1.0)
            episode.over = True
            add_episode(finished, 1.0)  # the planted mistake: by the end, not by the start
    assert finished.lower(assumed, data) > 0.5
    assert fair.lower(assumed, data) <= 0.5


def test_the_stake_of_a_play_is_chosen_before_it_begins():
    """Half of the plays earn 1. Whoever bets much on these, and little on others, takes their mean for the truth."""
    assumed, data = Assumptions(discount=1.0, returns=(0.0, 1.0)), OpenData(1)
    data.state("s")
    fair, planted = new_policy(), new_policy()
    fair.expected = planted.expected = 400
    for k in range(400):
        for played in (fair, planted):
            add_episode(played, float(k % 2))
        assert fair._begun[-1].stake == fair.stake  # of the plan that was made before
        planted._begun[-1].stake = 0 if k % 2 else 63
    assert 0.4 < fair.lower(assumed, data) < 0.46  # a value of 0.46 has such plays too
    assert planted.lower(assumed, data) > 0.499


def test_a_cut_episode_counts_with_what_it_misses_and_is_never_dropped():
    """A state that pays 1/2 for ever, discount 1/2: V = 1. Cut after two steps, an episode has earned 3/4."""
    assumed, data = Assumptions(discount=0.5, returns=(0.0, 1.0)), OpenData(1)
    s = data.state("s")
    cut, least = new_policy(), new_policy()
    for _ in range(3_000):
        for _ in range(2):
            data.add(0, 0.5, s)
        add_episode(cut, 0.75, steps=2, cut_in=s)
        add_episode(least, 0.75)  # the planted mistake: the rest as the least return, 0
    rest = lower_values(assumed, data, np.zeros((1, 1), dtype=np.int64), np.zeros(0, dtype=np.int64), 0.01)
    assert 0.95 < rest[0, 0] <= 1.0
    assert least.lower(assumed, data) < 0.76
    assert 0.97 < cut.lower(assumed, data) <= 1.0


def test_only_steps_after_the_policy_was_fixed_judge_it():
    """Of 100,000 arms that pay 1 in half of the cases the luckiest is chosen: its past flatters it."""
    rng, assumed, data = np.random.default_rng(1), Assumptions(discount=0.5, returns=(0.0, 1.0)), OpenData(1)
    s, pulls = data.state("the luckiest arm"), 14
    won = int(rng.binomial(pulls, 0.5, 100_000).max())
    for k in range(pulls):
        data.add(0, float(k < won), END)
    policy = np.zeros((1, 1), dtype=np.int64)
    before = np.array(data.counts)
    fair = lower_values(assumed, data, policy, before, 0.1)
    planted = lower_values(assumed, data, policy, np.zeros_like(before), 0.1)
    assert fair[0, s] == 0.0  # nothing was seen since
    assert planted[0, s] > 0.5  # the truth is 1/2


def test_lower_values_are_bounds_with_steps_to_go():
    assumed, data = Assumptions(discount=1.0, horizon=3, rewards=(0.0, 1.0)), OpenData(1)
    s = data.state("s")
    for _ in range(4_000):
        data.add(0, 0.5, s)
    found = lower_values(assumed, data, np.zeros((3, 1), dtype=np.int64), np.zeros(0, dtype=np.int64), 0.1)
    assert (found[:, 0] <= [0.5, 1.0, 1.5]).all() and (found[:, 0] >= [0.45, 0.9, 1.35]).all()
