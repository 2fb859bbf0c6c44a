"""Functions over a box around the region: they bound every policy where the ball of many unknowns is too large."""

from __future__ import annotations

import copy
from fractions import Fraction
from types import SimpleNamespace

import pytest

from benchmarks import block_worlds
from benchmarks.bench_tightness import ideal
from rpl_agent import certify
from rpl_agent.core.coupled.gradients import over_cuts
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.proof import prove, write
from tests.reference.proofs import cases

pytestmark = pytest.mark.usefixtures("shared_particles")


@pytest.fixture(scope="module")
def made() -> SimpleNamespace:
    """Bridges: seven unknowns, least cost over 30 years; without functions whose rows hold over cuts, or pieces."""
    world = block_worlds.bridges()
    counts = uniform_counts(world.pmdp, world.objective, world.theta, 5_000, world.steps, 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(over_cuts, "NUMBERS", 0)
        patch.setattr(write._Proof, "_in_pieces", lambda *asked: [])
        found = certify(world.pmdp, counts, world.objective, delta=world.delta, pieces=1)
        return SimpleNamespace(world=world, counts=counts, found=found, proof=prove(world.pmdp, counts, found))


def test_a_box_proves_what_the_ball_does_not(made):
    checker.check(made.proof)
    assert made.proof["lower"]["box"] is True
    claimed = made.proof["claim"]
    assert claimed["upper"] - claimed["lower"] <= 1.01 * made.found.gap
    best = solve_at(made.world.pmdp, made.world.theta, made.world.objective).middle
    assert claimed["lower"] <= best <= claimed["upper"]
    over_the_ball = copy.deepcopy(made.proof)
    del over_the_ball["lower"]["box"]
    with pytest.raises(checker.Refused, match="misses its inequality"):
        checker.check(over_the_ball)


def test_a_better_bound_is_refused(made):
    forged = copy.deepcopy(made.proof)
    forged["claim"]["lower"] += 1e-3
    with pytest.raises(checker.Refused, match="is proved"):
        checker.check(forged)
    forged = copy.deepcopy(made.proof)
    step = forged["lower"]["values"][-1]
    step[made.world.pmdp.initial_state][0] += 1e-3
    with pytest.raises(checker.Refused, match="misses its inequality"):
        checker.check(forged)


def test_functions_of_a_ball_and_of_a_box_are_not_compared(made):
    statement = checker.Statement(made.proof)
    statement.bounds()
    one, other = statement.claims["upper"], copy.copy(statement.claims["lower"])
    other.ball = one.region.ball if isinstance(one.ball, checker.Box) else one.region.boxed()
    with pytest.raises(checker.Refused, match="over a ball and over a box"):
        checker.at_most([one, other], [])


def test_the_box_has_the_intervals_of_the_unknowns(made):
    statement = checker.Statement(made.proof)
    region = statement.region(0)
    box, line = region.boxed(), region.line
    assert region.boxed() is box
    for f in line.free:
        c, *w = line.terms[f]
        used = [i for i, weight in enumerate(w) if weight]
        if len(used) == 1:
            (i,) = used
            ends = [box.center[i] - box.factor[i][i], box.center[i] + box.factor[i][i]]
            values = sorted((c + w[i] * end) / line.den for end in ends)
            assert values[0] >= Fraction(region.intervals.low[f], checker.ONE)
            assert values[1] <= Fraction(region.intervals.high[f], checker.ONE)


def test_bets_follow_the_gradient_of_a_policy_that_changed_late(monkeypatch):
    """The best policy at a quarter of these data is not the last one: old bets were 1.93 times as wide as needed."""
    world = block_worlds.bridges()
    counts = uniform_counts(world.pmdp, world.objective, world.theta, 5_000, world.steps, 101)
    unit, best = ideal(world, counts, world.delta)
    monkeypatch.setattr(over_cuts, "NUMBERS", 0)
    found = certify(world.pmdp, counts, world.objective, delta=world.delta, pieces=1)
    assert found.lower <= best <= found.upper
    assert found.gap <= 1.9 * unit


def test_a_box_of_intervals_alone_is_in_the_file():
    """No cut is used, but the function holds in the box of the intervals, which the checker has to know."""
    case = next(case for name, case in cases(96109) if "blocks" in name)
    assert case.proof["lower"]["box"] is True and not case.proof["regions"][0]["likelihood"]["cuts"]
    assert checker.check(case.proof)["lower"] == case.certificate.lower
