"""How far from the best: regrets of certificates against exact optima, for policies found and given."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from rpl_agent.core.errors import ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Objective, Policy, Sense, build
from rpl_agent.core.regions.product import Product
from rpl_agent.core.regions.sliced import Sliced
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import Config, certify_uncertainty, uncertainty_from
from rpl_agent.guarantee.shown import true_value
from rpl_agent.guarantee.verify import verify
from rpl_envs.benchmark import benchmark
from tests.reference.coupled import exact_value, objectives, random_model
from tests.small_worlds import SIZES

TRUTH = [Fraction(9, 16), Fraction(7, 16)]


def true_regret(pmdp, objective: Objective, policy: Policy) -> Fraction:
    own, best = (exact_value(pmdp, objective, TRUTH, p) for p in (policy, None))
    return best - own if objective.sense is Sense.MAX else own - best


def data(pmdp, objective, episodes: int, seed: int) -> Counts:
    return uniform_counts(pmdp, objective, np.array([float(t) for t in TRUTH]), episodes, 200, seed)


@pytest.mark.parametrize("objective", objectives(), ids=lambda o: o.describe())
def test_no_policy_is_better_by_more(objective, sized):
    """At the truth, in exact arithmetic: of the policy found, and of given ones, good and bad."""
    small, runs, config = 0, sized(3, 6), Config(delta=0.05)
    for seed in range(runs):
        pmdp = random_model(seed, polynomial=seed % 2 == 0, loops=seed % 3 != 0)
        counts = data(pmdp, objective, (30, 300, 3000)[seed % 3], seed)
        known = uncertainty_from(pmdp, counts, config, objective)  # the same for all policies
        found = certify_uncertainty(pmdp, counts, known, objective, config)
        assert found.regret <= math.nextafter(found.gap, math.inf)
        assert true_regret(pmdp, objective, found.policy) <= Fraction(found.regret)
        small += found.regret < 0.5 * found.gap
        first, last = Policy.deterministic(pmdp.state_ptr[:-1]), Policy.deterministic(pmdp.state_ptr[1:] - 1)
        for policy in (found.policy, first, last):
            given = certify_uncertainty(pmdp, counts, known, objective, config, policy=policy)
            assert true_regret(pmdp, objective, policy) <= Fraction(given.regret), (seed, policy)
    assert small >= runs // 3


def test_a_bad_policy_is_far_from_the_best():
    """Its own gap says nothing about better ones, and data do not make it good."""
    world = benchmark("Betting-25")
    counts = uniform_counts(world.pmdp, world.objective, np.array(world.theta), 1000, 30, 5)
    best = certify(world.pmdp, counts, world.objective)
    bad = certify(world.pmdp, counts, world.objective, policy=Policy.uniform(world.pmdp))
    assert best.regret < 0.05 * best.gap
    assert bad.regret > best.lower - bad.upper > 5 * bad.gap


def test_without_data_the_regret_is_the_gap():
    world = benchmark("Betting-25")
    empty = certify(world.pmdp, Counts(world.pmdp), world.objective)
    assert empty.regret <= math.nextafter(empty.gap, math.inf)
    pmdp = build(
        0,
        lambda s: {a: {0: "1 - p", 1: "p"} for a in "ab"} if s == 0 else {"stay": {1: 1}},
        domain={"p": (0, 1)},
        labels={"end": lambda s: s == 1},
        rewards={"cost": lambda s, a: float(s == 0)},
    )
    endless = certify(pmdp, Counts(pmdp), Objective.cost("cost", target="end"))
    assert endless.gap == math.inf == endless.regret


@pytest.mark.parametrize("relaxation", ["tied", "rectangular"])
def test_other_relaxations_bound_it_by_the_gap(relaxation):
    world = benchmark("Betting-25")
    counts = uniform_counts(world.pmdp, world.objective, np.array(world.theta), 300, 30, 5)
    found = certify(world.pmdp, counts, world.objective, relaxation=relaxation)
    assert found.gap <= found.regret <= math.nextafter(found.gap, math.inf)
    given = certify(world.pmdp, counts, world.objective, relaxation=relaxation, policy=found.policy)
    assert given.regret == math.inf  # nothing was asked about other policies


@pytest.mark.parametrize(
    "objective",
    [Objective.reward("cost", target="end"), Objective.discounted("cost", 0.9, target="end", sense=Sense.MIN)],
    ids=lambda o: o.describe(),
)
def test_errors_of_rewards_are_part_of_it(objective):
    """Each value moves by its own error: the worst case of both is inside."""
    pmdp, error = random_model(1, loops=True), 0.01
    counts = data(pmdp, objective, 3000, 1)
    config = Config(delta=0.05)
    uncertainty = uncertainty_from(pmdp, counts, config, objective)
    exact = certify_uncertainty(pmdp, counts, uncertainty, objective, config)
    off = certify_uncertainty(pmdp, counts, uncertainty, objective, config, reward_error=error)
    own, best = (exact_value(pmdp, objective, TRUTH, p) for p in (exact.policy, None))
    each = [error * float(own), error * float(best)] if objective.criterion.is_open_ended else [error / (1 - 0.9)] * 2
    assert off.regret >= exact.regret + sum(each)
    assert off.regret <= math.nextafter(off.gap, math.inf)


def test_certificates_keep_their_regret():
    world = benchmark("Betting-25")
    counts = uniform_counts(world.pmdp, world.objective, np.array(world.theta), 100, 30, 5)
    found = certify(world.pmdp, counts, world.objective)
    again = Certificate.from_json(found.to_json())
    assert again.regret == found.regret and f"within {found.regret:.4g} of the best possible" in str(again)


@pytest.mark.parametrize("name", ["Betting-25", "Glider-11x9", "MarsRover-10x10"])
@pytest.mark.parametrize("episodes", [10, 300])
def test_a_regret_is_verified_from_the_data(name, episodes, sized):
    world = benchmark(name, **sized(SIZES[name], {}))
    theta = np.array(world.theta)
    counts = uniform_counts(world.pmdp, world.objective, theta, episodes, world.max_episode_steps + 1, 7)
    found = certify(world.pmdp, counts, world.objective)
    assert verify(found, world.pmdp, counts).problems == []
    for lie in (replace(found, regret=0.5 * found.regret), replace(found, regret=math.nan)):
        assert any("regret" in problem or "NaN" in problem for problem in verify(lie, world.pmdp, counts).problems)
    other = certify(world.pmdp, counts, world.objective, policy=Policy.uniform(world.pmdp))
    assert verify(other, world.pmdp, counts).problems == []
    lie = replace(other, regret=0.5 * other.regret)
    assert any("the regret" in problem for problem in verify(lie, world.pmdp, counts).problems)


def test_the_policy_with_less_regret_is_returned_where_asked_for():
    """Its guarantee is its own, and may be weaker."""
    differ = 0
    for seed in range(4):
        world = benchmark("MarsRover-10x10")
        counts = uniform_counts(world.pmdp, world.objective, np.array(world.theta), 500, 200, seed)
        usual = certify(world.pmdp, counts, world.objective)
        found = certify(world.pmdp, counts, world.objective, prefer="regret")
        assert (usual.prefer, found.prefer) == ("guarantee", "regret")
        assert found.regret <= usual.regret and found.lower <= usual.lower + 1e-12
        given = certify(world.pmdp, counts, world.objective, policy=found.policy)
        assert found.lower <= given.lower + 1e-6
        assert verify(found, world.pmdp, counts).problems == []
        differ += found.regret < 0.9 * usual.regret
    assert differ > 0
    with pytest.raises(ModelError, match="prefer 'best' is not one of"):
        Config(prefer="best")


def test_optimal_is_said_and_verified():
    world = benchmark("Glider-11x9")
    theta, steps = np.array(world.theta), world.max_episode_steps + 1
    counts = uniform_counts(world.pmdp, world.objective, theta, 1000, steps, 5)
    found = certify(world.pmdp, counts, world.objective)
    assert found.optimal and found.regret == 0.0 and found.undecided == 0 and "is proved optimal" in found.sentence
    assert verify(found, world.pmdp, counts).problems == []
    few = uniform_counts(world.pmdp, world.objective, theta, 3, steps, 5)
    early = certify(world.pmdp, few, world.objective)
    assert not early.optimal
    lie = replace(early, optimal=True)
    assert any("optimal" in problem for problem in verify(lie, world.pmdp, few).problems)


def bridges():
    """Seven bridges that may throw one back, each with a chance of its own, and a slow ferry beside each."""

    def rows(place):
        if place == "goal":
            return {"stay": {"goal": 1}}
        after = place + 1 if place < 6 else "goal"
        return {"bridge": {after: f"p{place}", 0: f"1 - p{place}"}, "ferry": {after: "1/2", place: "1/2"}}

    return build(
        0,
        rows,
        domain={f"p{k}": (0.05, 0.95) for k in range(7)},
        labels={"goal": lambda s: s == "goal"},
        rewards={"cost": lambda s, a: 0.0 if s == "goal" else 1.0 if a == "bridge" else 2.5},
    )


def test_independent_unknowns_are_compared_in_their_box():
    """One choice per row is as good as one parameter for a bound, but not for a comparison."""
    pmdp, objective = bridges(), Objective.cost("cost", target="goal")
    theta = np.array([0.9, 0.8, 0.7, 0.6, 0.75, 0.5, 0.85])
    counts = uniform_counts(pmdp, objective, theta, 30_000, 100_000, 3)
    assert isinstance(uncertainty_from(pmdp, counts, Config(), objective).region, Sliced)
    assert isinstance(uncertainty_from(pmdp, counts, Config(bets=False), objective).region, Product)
    best = solve_at(pmdp, theta, objective, precision=1e-10).middle
    found = certify(pmdp, counts, objective)
    assert true_value(pmdp, objective, found.policy, theta, 1e-10) - best <= found.regret + 1e-9
    good = certify(pmdp, counts, objective, policy=solve_at(pmdp, theta, objective).policy)
    assert good.regret < 0.5 * found.gap
    preferred = certify(pmdp, counts, objective, prefer="regret")
    assert math.isfinite(preferred.upper) and preferred.regret <= found.regret


def test_large_regions_take_more_rounds():
    """Each round leaves a tenth of what is missing to the next; what is left in the end is a factor of the costs."""
    world = benchmark("Engagement-50")
    pmdp, objective, theta = world.pmdp, world.objective, np.array(world.theta)
    counts = uniform_counts(pmdp, objective, theta, 10_000, world.max_episode_steps + 1, 9101)
    found = certify(pmdp, counts, objective)
    best = solve_at(pmdp, theta, objective, precision=1e-9).middle
    assert true_value(pmdp, objective, found.policy, theta, 1e-9) - best <= found.regret < 0.25 * found.gap
