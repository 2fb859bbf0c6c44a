"""Later visits of a fixed policy's rows: the identity, the bets, marks, shares, coverage and planted mistakes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.optimize

from rpl_agent import Certificate, Config, Policy, certify
from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Sense
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.untied.fixed import VisitBets, Visited
from rpl_agent.guarantee.untied.policy_rows import PolicyRows
from rpl_agent.guarantee.untied.visits import Levels, VisitBounds, VisitPlan, best_factor, most_together
from rpl_agent.guarantee.verify import verify
from tests.untied import visit_runs
from tests.untied.visit_runs import MARKS, SHARE, adaptive, geometric, marked, missed, slot_machines
from tests.untied.worlds import OBJECTIVES, random_policy, untied

DELTA = 0.1
STATIONARY = ("reach", "discounted", "cost")


def value(world, objective, policy=None) -> float:
    return solve_at(world.pmdp, world.theta, objective, policy=policy).middle


@pytest.mark.parametrize("name", STATIONARY)
def test_the_identity_is_exact_for_any_weights(name):
    """V(s0) = Σ w r + Σ_s V(s) (1[s = s0] − w_s + γ Σ_t w_t P̃_ts) + Σ w e, in rationals."""
    world, objective = untied(2), OBJECTIVES[name]
    policy = random_policy(world.pmdp, 3)
    rows = PolicyRows.of(world.pmdp, objective, policy)
    rng = np.random.default_rng(0)
    weights = [Fraction(int(w), 7) for w in rng.integers(-20, 20, world.pmdp.num_states)]
    seen = [Fraction(int(n)) for n in rng.integers(1, 9, len(rows.owner))]
    visits = [sum(n for n, owner in zip(seen, rows.owner) if owner == k) for k in range(rows.size)]
    # any "value" that solves its equation will do: choose rewards for a value drawn at random
    values = [Fraction(int(v), 5) for v in rng.integers(0, 9, world.pmdp.num_states)]
    truth = [Fraction(float(p)) for p in world.pmdp.instantiate(world.theta).probability[rows.transition]]
    gamma = Fraction(rows.discount)
    after, tilde = ([Fraction(0)] * rows.size for _ in range(2))
    for p, n, owner, successor in zip(truth, seen, rows.owner.tolist(), rows.successor.tolist()):
        after[owner] += gamma * p * values[successor]
        tilde[owner] += gamma * n / visits[owner] * values[successor]
    states = rows.state.tolist()
    reward = [values[s] - after[k] for k, s in enumerate(states)]
    flow = [Fraction(int(s == rows.start)) for s in range(world.pmdp.num_states)]
    for n, owner, successor in zip(seen, rows.owner.tolist(), rows.successor.tolist()):
        flow[successor] += gamma * weights[states[owner]] * n / visits[owner]
    left = sum(v * (f - (w if s in states else 0)) for s, (v, f, w) in enumerate(zip(values, flow, weights)))
    paid = sum(weights[s] * reward[k] for k, s in enumerate(states))
    errors = sum(weights[s] * (after[k] - tilde[k]) for k, s in enumerate(states))
    assert paid + left + errors == values[rows.start]


def test_stakes_are_fixed_before_and_no_stake_can_lose_everything():
    world, objective = untied(1), OBJECTIVES["discounted"]
    rows = PolicyRows.of(world.pmdp, objective, random_policy(world.pmdp, 0))
    counts = marked(world, Policy.uniform(world.pmdp), 300, 0)
    before = counts.marks[-1].successes[world.pmdp.expression]
    plan = VisitPlan.at_mark(rows, before, SHARE, 2)
    width = rows.span[1] - rows.span[0]
    for stakes in (*plan.together, *plan.alone):
        assert (stakes >= 0.0).all() and (stakes * width <= 0.5 + 1e-12).all()
    assert ((plan.centre >= rows.span[0]) & (plan.centre <= rows.span[1])).all()


def test_a_plan_knows_nothing_of_what_comes_after_its_mark(monkeypatch):
    """Not even which rows are visited again: a plan for these alone would have chosen its data."""
    world, plans, real = untied(3), list[VisitPlan](), VisitPlan.at_mark
    monkeypatch.setattr(VisitPlan, "at_mark", lambda *given: plans.append(real(*given)) or plans[-1])
    counts = marked(world, Policy.uniform(world.pmdp), 5_000, 5)
    more = counts.copy()
    open_ones = np.flatnonzero(~world.pmdp.table.is_constant[world.pmdp.expression])
    more.add_batch(np.bincount(open_ones[:1], minlength=world.pmdp.num_transitions) * 20_000)
    for data in (counts, more):
        assert VisitBets(world.pmdp, data, OBJECTIVES["discounted"], SHARE).own is not None
    first, second = plans
    assert np.array_equal(first.centre, second.centre) and np.array_equal(first.is_played, second.is_played)
    assert np.array_equal(first.together, second.together) and np.array_equal(first.alone, second.alone)


def test_shares_of_a_plan_sum_to_at_most_its_share():
    for sides in (1, 2):
        levels = Levels.of(0.03, sides, 17, 4)
        spent = sides * 4 * np.exp(-levels.together) + 2 * 17 * (4 * np.exp(-levels.alone) + np.exp(-levels.values))
        assert 0.999 * 0.03 <= spent <= 0.03 * (1 + 1e-12)


def test_the_wealth_of_a_bet_has_mean_at_most_one():
    """Exactly, over all outcomes of three visits of a row: the factor that Ville's inequality is used for."""
    chances, numbers = [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)], [Fraction(0), Fraction(3, 5), Fraction(1)]
    mean = sum(p * y for p, y in zip(chances, numbers))
    for stake, centre in ((Fraction(1, 2), Fraction(3, 10)), (Fraction(-1, 2), Fraction(9, 10))):
        wealth = sum(p * (1 - stake * (y - centre)) for p, y in zip(chances, numbers))
        assert wealth == 1 - stake * (mean - centre)  # and (1 − z) e^z ≤ 1
        assert float(wealth) * np.exp(float(stake * (mean - centre))) <= 1.0


@pytest.mark.parametrize("seed", range(20))
def test_the_factor_is_the_best_one(seed):
    rng = np.random.default_rng(seed)
    own, bet, radius = rng.random((3, 9))
    cost = float(rng.random() * 3)

    def total(factor):
        return factor * cost + np.abs(own - factor * bet) @ radius

    found = best_factor(own, bet, radius, cost)
    assert total(found) <= min(total(f) for f in np.linspace(0.0, 5.0, 2_001)) + 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_rests_of_both_signs_count(seed):
    """A planted mistake: without the negative rests the worst errors that the bets allow exceed the bound."""
    rng = np.random.default_rng(seed)
    own, bet, most, least = rng.random((4, 9))
    cost = 0.1 * float(bet @ most)
    worst = -scipy.optimize.linprog(-own, bet[None], [cost], bounds=list(zip(-least, most))).fun
    found = most_together(own, bet, most, least, cost)
    assert worst <= found + 1e-9
    factor = best_factor(own, bet, 0.5 * (most + least), cost)
    rest = own - factor * bet
    assert (rest < 0.0).any()
    assert factor * cost + np.maximum(rest, 0.0) @ most < worst


@pytest.mark.parametrize("name", STATIONARY)
@pytest.mark.parametrize("seed", range(8))
def test_bounds_hold_for_given_policies_plain_and_randomised(name, seed):
    world, objective = untied(seed % 4), OBJECTIVES[name]
    counts = marked(world, Policy.uniform(world.pmdp), 2_000, seed)
    for policy in (random_policy(world.pmdp, seed), Policy.uniform(world.pmdp)):
        claim = VisitBets(world.pmdp, counts, objective, 1e-4).given(policy)
        truth = value(world, objective, policy)
        assert claim.lower <= truth <= claim.upper
        assert claim.visited == Visited(counts.marks[-1].total, claim.visited.visits, True)


def test_many_data_make_the_bounds_narrow():
    world, objective = untied(3), OBJECTIVES["reach"]
    policy = random_policy(world.pmdp, 1)
    widths = []
    for episodes in (2_000, 20_000, 200_000):
        claim = VisitBets(world.pmdp, marked(world, Policy.uniform(world.pmdp), episodes, 1), objective, 0.05).given(
            policy
        )
        widths.append(claim.upper - claim.lower)
    assert widths[1] < 0.45 * widths[0] and widths[2] < 0.4 * widths[1]  # one over the root of the data: .32


@pytest.mark.parametrize("name", STATIONARY)
def test_certificates_use_visits_say_so_and_are_verified(name):
    world, objective = untied(3), OBJECTIVES[name]
    counts = marked(world, Policy.uniform(world.pmdp), 20_000, 5)
    found = certify(world.pmdp, counts, objective, Config(delta=DELTA))
    assert found.visits is not None and not found.visits.given and found.visits.fixed == counts.marks[-1].total
    own, best = value(world, objective, found.policy), value(world, objective)
    low, high = (own, best) if objective.sense is Sense.MAX else (best, own)
    assert found.lower <= low and high <= found.upper
    assert f"{found.visits.visits:,} later visits of its rows" in str(found)
    again = Certificate.from_json(found.to_json())
    assert again.visits == found.visits and verify(again, world.pmdp, counts).problems == []
    unmarked = counts.copy()
    unmarked.marks, unmarked.schedule = [], "table"
    wider = certify(world.pmdp, unmarked, objective, Config(delta=DELTA))
    assert wider.visits is None and found.gap < wider.gap


def test_a_policy_that_the_data_chose_is_not_bounded_by_their_visits():
    """Only the policy of the mark, or one that the user says was fixed before the data."""
    world, objective = untied(3), OBJECTIVES["discounted"]
    counts = marked(world, Policy.uniform(world.pmdp), 20_000, 5)
    policy = random_policy(world.pmdp, 1)
    plain, fixed = (
        certify(world.pmdp, counts, objective, Config(delta=DELTA), policy=policy, fixed_policy=word)
        for word in (False, True)
    )
    assert plain.visits is None and fixed.visits.given and fixed.gap < plain.gap
    assert "it was fixed before the data" in str(fixed)
    word = "the bounds rest on the word that the policy was fixed before the data"
    assert (verify(fixed, world.pmdp, counts).problems, verify(fixed, world.pmdp, counts).notes) == ([], [word])
    assert word not in verify(plain, world.pmdp, counts).notes
    forged = replace(fixed, visits=replace(fixed.visits, given=False))
    assert any("bound" in problem for problem in verify(forged, world.pmdp, counts).problems)
    with pytest.raises(ModelError, match="give it with policy=, and without limits"):
        certify(world.pmdp, counts, objective, fixed_policy=True)


def test_better_bounds_than_visits_support_and_other_policies_are_refused():
    world, objective = untied(3), OBJECTIVES["reach"]
    counts = marked(world, Policy.uniform(world.pmdp), 20_000, 5)
    found = certify(world.pmdp, counts, objective, Config(delta=DELTA))
    assert found.visits is not None
    higher = replace(found, lower=found.lower + 1e-3, regret=found.gap)
    assert any("lower" in problem for problem in verify(higher, world.pmdp, counts).problems)
    other = replace(found, policy=random_policy(world.pmdp, 1))
    assert any("lower" in problem for problem in verify(other, world.pmdp, counts).problems)


def test_horizons_and_models_whose_marks_do_not_tell_transitions_have_none():
    world = untied(3)
    assert VisitBets.apply(world.pmdp, OBJECTIVES["reach"])
    assert not VisitBets.apply(world.pmdp, OBJECTIVES["steps"])
    counts = marked(world, Policy.uniform(world.pmdp), 40, 5)
    assert VisitBets(world.pmdp, counts, OBJECTIVES["reach"], SHARE).own is None  # some hundred visits are needed
    assert VisitBets(world.pmdp, visit_runs.unmarked(counts), OBJECTIVES["reach"], SHARE).own is None


@pytest.mark.parametrize("name", STATIONARY)
def test_bounds_hold_in_as_many_runs_as_promised(name, sized):
    runs, most = sized((range(12), 5), (range(30), 14))  # each with probability at most 0.3
    assert sum(missed(name, seed, counts_of=marked) for seed in runs) <= most
    assert sum(missed(name, seed, counts_of=adaptive) for seed in runs) <= most
    assert sum(missed(name, seed, counts_of=geometric) for seed in runs[:10]) <= 7


def test_the_harness_sees_a_policy_that_is_tested_on_the_data_that_chose_it():
    """The planted mistake: no split. Of 2,000 equal slot machines the luckiest one is tested on its own luck."""
    world, objective = slot_machines(2_000)
    honest, planted = 0, 0
    for seed in range(6):
        counts = marked(world, Policy.uniform(world.pmdp), 300_000, seed)
        claim = VisitBets(world.pmdp, counts, objective, SHARE / MARKS[-1][1]).own
        honest += claim.lower > value(world, objective, claim.policy)
        luckiest = VisitBets(world.pmdp, visit_runs.all_before(counts), objective, SHARE)
        policy = luckiest._best_at(luckiest.counts.marks[-1])
        rows = PolicyRows.of(world.pmdp, objective, policy)
        plan = VisitPlan.at_mark(rows, counts.transitions, SHARE, 1, 0.5)
        planted += VisitBounds(plan, counts.transitions).bound(-1.0) > value(world, objective, policy)
    assert honest <= 3 and planted == 6  # 6 runs with probability at most 0.3 each


@pytest.mark.parametrize("counts_of", [marked, adaptive, geometric])
def test_whole_certificates_hold_and_false_ones_are_seen(counts_of, monkeypatch):
    """`--certificates`: at the small error no run should miss, and each does if its bounds are moved together."""
    monkeypatch.setattr(visit_runs, "SHARE", 0.001)
    assert not visit_runs.is_false("discounted", 2, counts_of)
    found = visit_runs.certify

    def moved(*asked, **options):
        honest = found(*asked, **options)
        return replace(honest, lower=honest.upper)

    monkeypatch.setattr(visit_runs, "certify", moved)
    assert visit_runs.is_false("discounted", 2, counts_of)
