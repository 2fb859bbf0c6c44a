"""Bets on the rows of untied models: ranges, bounds, shares, coverage."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from rpl_agent import Config, Policy, certify, from_matrices, hide_parameters
from rpl_agent.core.evidence.ledger import Ledger
from rpl_agent.core.model import Sense
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.untied.rows import RowBets, is_untied, ranges
from rpl_agent.guarantee.verify import verify
from tests.reference import open_world as exact
from tests.untied import worlds
from tests.untied.worlds import OBJECTIVES, random_policy, sampled, untied

DELTA = 0.1


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("seed", range(6))
def test_ranges_hold_every_value_of_every_policy(name, seed):
    world, objective = untied(seed), OBJECTIVES[name]
    low, high = ranges(world.pmdp, objective)
    for k in range(5):
        found = solve_at(world.pmdp, world.theta, objective, policy=random_policy(world.pmdp, k))
        assert (found.lower_values >= low - 1e-9).all()
        assert (found.upper_values <= high + 1e-9).all()


def test_totals_on_cycles_have_no_range():
    world = untied(0)
    assert ranges(world.pmdp, OBJECTIVES["steps"]) is not None
    assert ranges(world.pmdp, OBJECTIVES["steps"].__class__.total("reward", target="goal")) is None


def test_untied_means_that_no_parameter_is_in_two_rows():
    assert is_untied(untied(1).pmdp)
    # a walk on a ring: every action has one distribution in all states
    ahead = np.roll(np.eye(9), 1, axis=1)
    walk = from_matrices(np.array([p * ahead + (1 - p) * ahead.T for p in np.arange(1, 9) / 10]))
    forward = walk.successor == (walk.row_state[walk.transition_row] + 1) % 9
    hidden = hide_parameters(walk, rows=walk.action.astype(int), outcomes=forward.astype(int))
    assert not is_untied(hidden.pmdp)


def test_shares_of_untied_models_sum_to_at_most_delta():
    ledger = Ledger.of_untied(DELTA)
    names = ("main", "rows", "plays", "visits", "fallback", "refutation")
    assert sum(Fraction(ledger.take(name)) for name in names) <= Fraction(DELTA)


@pytest.mark.parametrize("seed", range(2))
def test_the_bound_is_that_of_the_theorem(seed):
    world, objective = untied(seed), OBJECTIVES["reach"]
    pmdp = world.pmdp
    counts = sampled(world, Policy.uniform(pmdp), 40, seed)
    bets = RowBets(pmdp, counts, objective, DELTA)
    decided = objective.resolve(pmdp).decided
    rows = {}
    for s in range(pmdp.num_states):
        if decided[s]:
            continue
        rows[s] = []
        for row in range(pmdp.state_ptr[s], pmdp.state_ptr[s + 1]):
            at = range(pmdp.row_ptr[row], pmdp.row_ptr[row + 1])
            seen = Counter()
            for t in at:
                after = int(pmdp.successor[t])
                over = bool(decided[after])
                paid = Fraction(int(pmdp.labels["goal"][after]))
                seen[paid, None if over else after] += int(counts.transitions[t])
            rows[s].append(Counter({k: n for k, n in seen.items() if n}))
    share = Fraction(DELTA) / sum(map(len, rows.values()))
    expected = exact.best_values(rows, Fraction(1), (Fraction(0), Fraction(1)), lambda s: share, 25)
    found = bets.bound()
    value = float(expected[pmdp.initial_state])
    assert value - 1e-3 <= found + 1e-3 and found <= value + 0.02 * (1 - value) + 5e-3
    # a bound that holds already is used, and makes it no larger
    assert bets.bound(np.full(pmdp.num_states, 0.7)) <= min(found, 0.7) + 1e-12


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_best_value_is_within_the_bound_in_as_many_runs_as_promised(name, sized):
    (runs, most), objective, missed = sized((20, 7), (60, 22)), OBJECTIVES[name], 0
    for seed in range(runs):
        world = untied(seed % 4)
        counts = sampled(world, Policy.uniform(world.pmdp), 5 + 4 * (seed % 20), 1_000 + seed)
        bound = RowBets(world.pmdp, counts, objective, 0.3).bound()
        best = solve_at(world.pmdp, world.theta, objective).middle
        missed += best > bound + 1e-9 if objective.sense is Sense.MAX else best < bound - 1e-9
    assert missed <= most  # each with probability 0.3 at most: of 60 mean 18 even if the bound were tight


def test_the_harness_sees_a_share_that_is_no_share(monkeypatch, sized):
    """A planted mistake: no share at all, and every step counted a thousand times."""

    def repeated(*arguments):
        counts = worlds.sampled(*arguments)
        counts.transitions *= 1_000
        return counts

    monkeypatch.setattr("rpl_agent.guarantee.untied.rows.level", lambda share: 0.0)
    monkeypatch.setattr("tests.untied.test_rows.sampled", repeated)
    with pytest.raises(AssertionError):
        test_the_best_value_is_within_the_bound_in_as_many_runs_as_promised("reach", sized)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_certificates_are_narrower_hold_and_are_verified(name):
    world, objective = untied(3), OBJECTIVES[name]
    counts = sampled(world, Policy.uniform(world.pmdp), 400, 5)
    found = certify(world.pmdp, counts, objective, Config(delta=DELTA))
    assert found.basis == "rows" and not found.proved
    best = solve_at(world.pmdp, world.theta, objective).middle
    assert found.lower - 1e-9 <= best <= found.upper + 1e-9
    assert verify(found, world.pmdp, counts).problems == []
    without = certify(world.pmdp, counts, objective, Config(delta=DELTA, bets=False))
    assert without.basis != "rows" and found.gap < 1.25 * without.gap


def test_a_better_bound_than_the_data_support_is_refused():
    from dataclasses import replace

    world, objective = untied(3), OBJECTIVES["reach"]
    counts = sampled(world, Policy.uniform(world.pmdp), 400, 5)
    found = certify(world.pmdp, counts, objective, Config(delta=DELTA))
    forged = replace(found, upper=found.upper - 0.01, regret=found.gap - 0.01)
    assert any("upper" in problem for problem in verify(forged, world.pmdp, counts).problems)
