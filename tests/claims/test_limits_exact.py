"""Bounds on all policies within limits, and half planes of curves, against exact rationals at points of a region."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Objective, Policy, Sense
from rpl_agent.guarantee.claims.combined import CombinedModel
from rpl_agent.guarantee.claims.limits import LimitSearch, bounded
from rpl_agent.guarantee.likelihood.refutation.alternatives import NO_DOUBT
from rpl_agent.guarantee.pipeline import Config, Uncertainty
from tests.coupled.test_coupled import CENTER, cases, prepared
from tests.reference import claims
from tests.reference.coupled import box_points, exact_value
from tests.reference.fuzz import Tally

LIMITED = [
    ("minimise cost until end", "probability of goal >= {}"),
    ("maximise cost until end", "probability of goal >= {}"),
    ("maximise probability of goal", "cost until end <= {}"),
    ("minimise probability of goal", "cost until end >= {}"),
    ("maximise discounted cost until end, gamma 0.9", "discounted cost until end, gamma 0.9 <= {}"),
]


def policies_of(pmdp):
    choices = [range(pmdp.state_ptr[s], pmdp.state_ptr[s + 1]) for s in range(pmdp.num_states)]
    return [Policy.deterministic(np.array(rows)) for rows in product(*choices)]


def uncertainty_of(relaxation, region):
    return Uncertainty(relaxation, region, CENTER, NO_DOUBT, False, False, None)


@pytest.mark.parametrize("goal, limit", LIMITED)
def test_no_policy_that_keeps_the_limit_passes_the_bound(goal, limit):
    """Every deterministic policy, at corners of the region and inside, with exact values; and the one that is found."""
    tight, checked = 0, 0
    for seed, polynomial, loops, kind in cases(3):
        width = 0.03
        pmdp, region, relaxation = prepared(seed, polynomial, loops, kind, width)
        objective = Objective.parse(goal)
        bare = Objective.parse(f"{goal} subject to {limit.format(0)}").limits[0].objective
        values = sorted(float(exact_value(pmdp, bare, [Fraction(1, 2)] * 2, p)) for p in policies_of(pmdp))
        threshold = values[len(values) // 6 if bare.sense is Sense.MIN else -1 - len(values) // 6]
        search = LimitSearch(
            pmdp,
            Counts(pmdp),
            uncertainty_of(relaxation, region),
            objective.subject_to(limit.format(threshold)),
            Config(bets=False),
        )
        far, best, sign = Fraction(search.far_side()[0]), search.best(), 1 if objective.sense is Sense.MIN else -1
        free = Fraction(search._dual(np.zeros(1)))
        tight += sign * (far - free) > 1e-6
        for theta in box_points(CENTER, Fraction(width), seed, 1):
            for policy in policies_of(pmdp):
                own = exact_value(pmdp, bare, theta, policy)
                keeps = own <= Fraction(threshold) if search.upward[0] else own >= Fraction(threshold)
                if keeps:
                    assert sign * exact_value(pmdp, objective, theta, policy) >= sign * far, (seed, theta)
                    checked += 1
            if best.keeps and best.value.policy.is_deterministic:
                own = exact_value(pmdp, bare, theta, best.value.policy)
                assert own <= Fraction(threshold) if search.upward[0] else own >= Fraction(threshold)
    assert checked >= 40 and tight > 0


@pytest.mark.parametrize("sense", Sense)
def test_weighted_sums_bound_the_exact_ones(sense, sized):
    """Any signs of weights: no policy is beyond the bound of the total."""
    rng, checked = np.random.default_rng(1), 0
    objectives = [Objective.reach("goal"), Objective.reward("cost", target="end", sense=Sense.MIN)]
    for seed, polynomial, loops, kind in cases(sized(2, 3)):
        pmdp, region, relaxation = prepared(seed, polynomial, loops, kind, 0.03)
        combined = CombinedModel(pmdp, objectives)
        for _ in range(3):
            weights = np.round(rng.normal(size=2) * [3.0, 1.0], 3)
            total = combined.weighted(weights, sense, relaxation.bounds())
            found = bounded(total.pmdp, total.objective, uncertainty_of(relaxation, region), Config(bets=False))
            end = found.lower if sense is Sense.MIN else found.upper
            if not np.isfinite(end):
                continue
            turn = 1 if sense is Sense.MIN else -1
            bound = Fraction(end) + Fraction(total.constant) - turn * Fraction(1, 10**9)
            for theta in box_points(CENTER, Fraction(3, 100), seed, 1):
                for policy in policies_of(pmdp):
                    exact = [exact_value(pmdp, objective, theta, policy) for objective in objectives]
                    value = sum(Fraction(w) * v for w, v in zip(weights.tolist(), exact))
                    assert turn * value >= turn * bound, (seed, weights)
                    checked += 1
    assert checked > 100


@pytest.mark.parametrize("seeds", [range(24, 26), pytest.param(range(400), marks=pytest.mark.nightly)])
def test_random_claims_are_true(seeds):
    """The fuzz of `python -m benchmarks fuzz --claims`, in short: chances of 0, endless plays, states behind targets.

    Seed 24 fails if plays are held by the graph alone, and not by chances that may be 0.
    """
    tally = Tally()
    for seed in seeds:
        tally.add(claims.round_of(seed))
    assert tally.failures == []
    assert tally.problems["limits"] > len(seeds) and tally.problems["curve"] > len(seeds) // 2
