"""Claims that compare values at one common parameter: against exact rationals at sampled parameters."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from rpl_agent.core.coupled import AffineProof, Side, difference_bound, frame_of
from rpl_agent.core.coupled.bounds import find_bound
from rpl_agent.core.coupled.claims import RegionClaim
from rpl_agent.core.coupled.expansion import expansion_of
from rpl_agent.core.model import Nature, Objective, Policy, Sense
from rpl_agent.core.solver.problem import Problem
from tests.coupled.test_coupled import CENTER, cases, prepared
from tests.reference.coupled import box_points, exact_value, objectives


def _moved(frame, region):
    """Another frame around the same region."""
    shifted = replace(frame, center=frame.center + 0.1 * frame.radius * frame.factor[:, 0], radius=1.5 * frame.radius)
    return shifted if shifted.encloses(region) else replace(frame, radius=1.5 * frame.radius)


def _proved(proof, frame, policy, start, side, every_policy):
    expansion = expansion_of(proof.problem, frame, policy, start)
    bound = None if expansion is None else find_bound(proof.problem, expansion, side, every_policy)
    return None if bound is None or proof.issues(bound) else bound


@pytest.mark.parametrize("objective", objectives(), ids=lambda o: o.describe())
def test_differences_bound_the_exact_ones(objective, sized):
    """Optimum minus policy and policy minus policy, from one frame and from two, at corners and inside."""
    checked, apart = 0, 0
    own = Side.own(objective.sense)
    far = Side.UPPER if own is Side.LOWER else Side.LOWER
    for seed, polynomial, loops, kind in cases(sized(2, 4)):  # 2: a box and an ellipsoid, with loops and without
        width = (0.02, 0.06)[seed % 2]
        pmdp, region, relaxation = prepared(seed, polynomial, loops, kind, width)
        problem = Problem.of(relaxation, objective, Nature.ADVERSARIAL, None)
        start = Policy.deterministic(pmdp.state_ptr[:-1])
        frame, proof = frame_of(region, pmdp.table.reduction.weights), AffineProof(problem, region)
        best = _proved(proof, frame, None, start, far, True)
        other = _proved(proof, _moved(frame, region), start, start, far, False)
        for policy in (start, Policy.deterministic(pmdp.state_ptr[1:] - 1)):
            mine = _proved(proof, frame, policy, policy, own, False)
            for one in (best, other):
                if one is None or mine is None:
                    continue
                pair = (one, mine) if own is Side.LOWER else (mine, one)
                found = Fraction(difference_bound(region, *pair, pmdp.initial_state))
                # never worse than the two bounds apart, each at its own worst parameter
                alone = [b.at(region, pmdp.initial_state) for b in pair]
                assert found <= Fraction(alone[0] - alone[1]) + Fraction(1, 10**9)
                apart += found < Fraction(alone[0] - alone[1])
                for theta in box_points(CENTER, Fraction(width), seed, 2):
                    values = [exact_value(pmdp, objective, theta, b.policy) for b in pair]
                    assert values[0] - values[1] <= found, (seed, polynomial)
                    checked += 1
    assert checked > 20 and apart > 0


def test_functions_of_one_expansion_differ_by_their_slacks():
    pmdp, region, relaxation = prepared(1, False, True, "ellipsoid", 0.02)
    problem = Problem.of(relaxation, Objective.reach("goal"), Nature.ADVERSARIAL, None)
    start = Policy.deterministic(pmdp.state_ptr[:-1])
    expansion = expansion_of(problem, frame_of(region, pmdp.table.reduction.weights), None, start)
    upper, lower = (find_bound(problem, expansion, side, side is Side.UPPER) for side in (Side.UPPER, Side.LOWER))
    found = difference_bound(region, upper, lower, pmdp.initial_state)
    slacks = Fraction(upper.moved[pmdp.initial_state]) - Fraction(lower.moved[pmdp.initial_state])
    assert slacks <= Fraction(found) <= slacks + Fraction(1, 10**12)
    with pytest.raises(ValueError, match="an upper and a lower one"):
        difference_bound(region, lower, upper, pmdp.initial_state)


def test_a_claim_says_from_which_side_each_value_is_bounded():
    policy = Policy.deterministic(np.zeros(1, np.int64))
    for sense, sides in ((Sense.MAX, (Side.UPPER, Side.LOWER)), (Sense.MIN, (Side.LOWER, Side.UPPER))):
        objective = Objective.reach("goal", sense=sense)
        for claim in (
            RegionClaim.regret(objective, policy, 0.1),
            RegionClaim.improvement(objective, policy, policy, -0.1),
        ):
            assert tuple(term.side for term in claim.terms) == sides and claim.most == 0.1
            assert claim.terms[1].policy is policy
