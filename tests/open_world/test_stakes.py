"""Bounds on one mean by fixed stakes, and on values by rows, against the theorems in rational numbers."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from rpl_agent.core.errors import DataError
from rpl_agent.core.evidence.ledger import OPEN_EPISODES, OPEN_PLANNED, OPEN_REST, OpenLedger, of_states
from rpl_agent.guarantee.open_world.assumptions import Assumptions
from rpl_agent.guarantee.open_world.data import END, OpenData
from rpl_agent.guarantee.open_world.values import UpperValues
from rpl_agent.guarantee.stakes import (
    MOST_PLANNED,
    PLANNED_PARTS,
    STAKES,
    WEIGHTS,
    lower_mean,
    plan_stake,
    upper_mean,
)
from tests.open_world.worlds import SmallAgent, SmallWorld
from tests.reference import open_world as exact


def numbers(seed: int, most: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    kinds = int(rng.integers(1, 5))
    x = np.unique(np.round(rng.random(kinds) ** rng.integers(1, 4), 6))
    x[rng.random(len(x)) < 0.3] = rng.integers(0, 2)
    return x, rng.integers(1, most, len(x))


def test_weights_sum_to_at_most_one_and_stakes_lie_inside():
    assert sum(map(Fraction, WEIGHTS.tolist())) <= 1
    assert 0 < STAKES.min() and STAKES.max() < 1


@pytest.mark.parametrize("seed", range(60))
def test_the_bound_has_the_wealth_exactly_and_little_less_has_not(seed):
    x, counts = numbers(seed)
    share = float(10.0 ** -np.random.default_rng(seed).uniform(0.5, 7))
    found = Fraction(upper_mean(x, counts, 0.0, 1.0, share))
    if found == 1:
        assert exact.upper(list(map(Fraction, x)), counts.tolist(), Fraction(share)) > 1 - Fraction(1, 2**30)
        return
    assert exact.wealth(list(map(Fraction, x)), counts.tolist(), found) >= 1 / Fraction(share)
    mean = Fraction(float(x @ counts)) / int(counts.sum())
    less = found - Fraction(2, 1000) * (found - mean)
    assert exact.wealth(list(map(Fraction, x)), counts.tolist(), less) < 1 / Fraction(share)


@pytest.mark.parametrize("seed", range(40))
def test_larger_numbers_give_larger_bounds_and_more_confidence_too(seed):
    x, counts = numbers(seed)
    larger = np.minimum(1.0, x + np.random.default_rng(seed).random(len(x)) * 0.3)
    found = upper_mean(x, counts, 0.0, 1.0, 0.01)
    accuracy = 2e-3  # of the search, as a share of the distance from the mean
    assert upper_mean(larger, counts, 0.0, 1.0, 0.01) >= found - accuracy
    assert upper_mean(x, counts, 0.0, 1.0, 0.001) >= found - accuracy
    assert found >= x @ counts / counts.sum()


@pytest.mark.parametrize("seed", range(20))
def test_planned_stakes_have_the_wealth_exactly_and_little_less_has_not(seed):
    rng, (x, counts) = np.random.default_rng(seed), numbers(seed, 200)
    places = rng.integers(0, 20, len(x))
    share = float(10.0 ** -rng.uniform(0.5, 4))
    found = Fraction(upper_mean(x, counts, 0.0, 1.0, share, places))
    if found == 1:
        return
    assert planned_wealth(x, counts, places, found) >= 1 / Fraction(share)
    mean = Fraction(float(x @ counts)) / int(counts.sum())
    less = found - Fraction(2, 1000) * (found - mean)
    assert found - mean < Fraction(1, 10**6) or planned_wealth(x, counts, places, less) < 1 / Fraction(share)


def planned_wealth(x: np.ndarray, counts: np.ndarray, places: np.ndarray, m: Fraction) -> Fraction:
    """Π (1 + c_k (m − x_k) / (1 − m)), exactly, with the stakes that are used."""
    total = Fraction(1)
    for number, count, part in zip(x.tolist(), counts.tolist(), PLANNED_PARTS[places].tolist()):
        total *= (1 + Fraction(MOST_PLANNED) * Fraction(part) * (m - Fraction(number)) / (1 - m)) ** count
    return total


@pytest.mark.parametrize("chance, plays", [(0.5, 300), (0.5, 30_000), (0.9, 3_000), (0.02, 3_000), (0.0, 500)])
def test_the_planned_stake_is_nearly_the_best_and_better_than_the_fixed_ones(chance, plays):
    """Numbers 0.1, and 0.7 with this chance: as many as were planned."""
    x, counts = np.array([0.1, 0.7]), np.round(plays * np.array([1.0 - chance, chance]))
    mean = float(x @ counts) / plays
    deviation = float(np.sqrt(counts @ (x - mean) ** 2 / plays))
    place = plan_stake(mean, deviation, plays, 0.01)
    bounds = [upper_mean(x, counts, 0.0, 1.0, 0.01, np.full(2, k)) - mean for k in range(len(PLANNED_PARTS))]
    assert bounds[place] <= 1.08 * min(bounds)
    assert bounds[place] < upper_mean(x, counts, 0.0, 1.0, 0.01) - mean


def adaptive_bound(x: np.ndarray, share: float) -> float:
    """The same bet with one stake that is large where the numbers before were alike."""
    spread = [1.0, *(x[:k].std() for k in range(1, len(x)))]
    stakes = np.array([min(0.97, 0.05 / max(s, 1e-9)) for s in spread])
    low, high = float(x.mean()), 1.0
    for _ in range(50):
        m = 0.5 * (low + high)
        enough = np.log1p(stakes * (m - x) / (1.0 - m)).sum() >= -np.log(share)
        low, high = (low, m) if enough else (m, high)
    return high


def test_stakes_that_follow_the_data_would_be_no_bound():
    """Their bound falls though a number rises, so that U must not take the place of V*; with fixed stakes it rises."""
    less, more = np.full(200, 0.5), np.full(200, 0.5)
    less[0] = 0.0
    assert adaptive_bound(more, 0.01) < adaptive_bound(less, 0.01) - 1e-3  # the planted mistake
    fixed = [upper_mean(*np.unique(x, return_counts=True), 0.0, 1.0, 0.01) for x in (less, more)]
    assert fixed[0] < fixed[1]


def test_the_lower_bound_is_the_upper_bound_turned_round():
    x, counts = numbers(3)
    assert lower_mean(5 - 7 * x, counts, -2.0, 5.0, 0.01) == pytest.approx(
        5 - 7 * upper_mean(x, counts, 0.0, 1.0, 0.01), abs=1e-9
    )


def test_nothing_seen_is_the_whole_range_and_ones_stay_ones():
    assert upper_mean(np.zeros(0), np.zeros(0), -3.0, 7.0, 0.1) == 7.0
    assert upper_mean(np.array([7.0]), np.array([10**6]), -3.0, 7.0, 0.1) == 7.0


@pytest.mark.parametrize("known", [None, 30])
def test_shares_never_exceed_their_whole_and_do_not_change_as_states_appear(known):
    """The pitfall of weights by the end of a phase: a share that shrinks or grows with the data is not fixed."""
    whole = of_states(0.05, 0, 30, known)
    assert sum(map(Fraction, whole.tolist())) <= Fraction(0.05)
    later = np.concatenate([of_states(0.05, first, first + 10, known) for first in (0, 10, 20)])
    assert np.array_equal(whole, later)
    if known is None:  # the rest of the series fits as well: sums of 2^j − 1 states are 1 − 1/(j + 1)
        many = of_states(1.0, 0, 2**17 - 1, None)
        assert many.sum() <= 1.0 - 1.0 / 18


def test_shares_of_rows_stand_from_the_first_visit_of_their_state_on():
    """The planted mistakes: shares by the number of visits, or among the states seen by the end of a phase."""
    data, ledger = OpenData(2), OpenLedger.of(0.1)
    upper = UpperValues(Assumptions(discount=0.5, returns=(0.0, 1.0)), 2, ledger)
    seen = np.zeros(0)
    for state in range(20):
        data.state(state)
        for _ in range(2 * state + 1):  # later ones are visited more often
            data.add(2 * state, 0.0, END)
        upper.update(data)
        assert np.array_equal(upper._levels[: len(seen)], seen)
        seen = upper._levels.copy()
    assert (np.diff(seen) >= 0).all() and seen[0] < seen[-1]  # in the order of first visits, each fixed before it
    assert 2 * np.exp(-seen).sum() <= upper.row_share


def test_the_ledger_spends_no_more_than_delta():
    ledger = OpenLedger.of(0.1)
    policies = sum(Fraction(ledger.take_policy(j)) for j in range(1, 2_000))
    rest = Fraction(ledger.take("rows")) + Fraction(ledger.take("start"))
    assert Fraction(0.0998) < rest + policies <= Fraction(0.1)
    assert OPEN_PLANNED + OPEN_EPISODES + OPEN_REST < 1.0


def test_a_share_is_spent_once():
    """Two statements with the same share would fail twice as often."""
    ledger = OpenLedger.of(0.1)
    UpperValues(Assumptions(discount=0.5, returns=(0.0, 1.0)), 1, ledger)
    for name in ("rows", "start", "policies"):
        with pytest.raises(DataError, match=f"'{name}' of delta is spent"):
            ledger.take(name)
    assert ledger.take_policy(2) == pytest.approx(2.5 * ledger.take_policy(3))
    for number in (3, 2, 1, 0):
        with pytest.raises(DataError, match="needs a new number"):
            ledger.take_policy(number)


def agent_with_data(seed: int, episodes: int) -> SmallAgent:
    agent = SmallAgent(SmallWorld(seed), seed)
    agent.play(episodes)
    return agent


def rows_of(agent: SmallAgent) -> dict[object, list[Counter]]:
    """Outcomes for the exact twin, by number of the state."""
    actions = agent.world.actions
    found = {s: [Counter() for _ in range(actions)] for s in range(len(agent.data.states))}
    for row, reward, after, count in zip(agent.data.rows, agent.data.rewards, agent.data.successors, agent.data.counts):
        found[row // actions][row % actions][Fraction(reward), None if after == END else after] += count
    return found


def share_of(agent: SmallAgent, layers: int):
    shares = of_states(agent.upper.row_share / (agent.world.actions * layers), 0, len(agent.data.states), None)
    return lambda s: Fraction(float(shares[s]))


@pytest.mark.parametrize("seed", range(3))
def test_values_are_those_of_the_theorem(seed):
    agent = agent_with_data(seed, 12)
    agent.upper.update(agent.data)
    expected = exact.best_values(rows_of(agent), Fraction(0.9), (Fraction(0), Fraction(1)), share_of(agent, 1), 40)
    for s, value in expected.items():
        found = agent.upper.values[0][s]
        assert float(value) - 1e-6 <= found <= float(value) + 0.02 * (1.0 - float(value)) + 1e-3, s


@pytest.mark.parametrize("seed", range(2))
def test_values_with_steps_to_go_are_those_of_the_theorem(seed):
    agent = agent_with_data(seed, 12)
    assumed = Assumptions(discount=1.0, horizon=3, returns=(0.0, 1.0))
    upper = UpperValues(assumed, agent.world.actions, OpenLedger.of(0.1))
    upper.update(agent.data)
    expected = exact.values_to_go(rows_of(agent), Fraction(1), (Fraction(0), Fraction(1)), share_of(agent, 3), 3)
    for h, layer in enumerate(expected):
        for s, value in layer.items():
            assert float(value) - 1e-6 <= upper.values[h][s] <= float(value) + 5e-3, (h, s)


def test_bounds_never_rise_and_updates_in_parts_lose_nothing():
    agent = agent_with_data(1, 5)
    agent.upper.update(agent.data)
    before = agent.upper.rows.copy()
    agent.play(30)
    agent.upper.update(agent.data)
    assert (agent.upper.rows[:, : before.shape[1]] <= before).all()
    whole = UpperValues(agent.assumptions, agent.world.actions, OpenLedger.of(0.1))
    whole.update(agent.data)
    assert (agent.upper.values <= whole.values + 1e-3).all()


def test_a_loop_does_not_keep_the_bound_at_the_top():
    """The centred form of the bet sticks at the largest value wherever a state may return to itself."""
    agent = SmallAgent(SmallWorld(0), 0)
    s = agent.data.state("loop")
    for _ in range(2_000):
        agent.data.add(2 * s, 0.0, s)
        agent.data.add(2 * s + 1, 0.0, s)
    agent.upper.update(agent.data)
    assert agent.upper.values[0][s] < 0.05
