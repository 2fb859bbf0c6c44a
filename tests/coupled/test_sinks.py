"""A sink that the question does not name costs nothing: bounds are those of the same question that names it."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rpl_agent import Config, Objective, certify
from rpl_agent.core.coupled import bounds
from rpl_agent.core.coupled import expansion as expansions
from rpl_agent.core.coupled.affine import AffineProof, Side
from rpl_agent.core.coupled.expansion import expansion_of, swept_expansion
from rpl_agent.core.coupled.gradients import over_cuts
from rpl_agent.core.coupled.gradients.inequalities import Inequalities
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Nature, Sense, build
from rpl_agent.core.regions.base import Box
from rpl_agent.core.regions.frame import frame_of
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.core.solver import solve_at
from rpl_agent.core.solver.problem import Problem
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.pipeline import uncertainty_from
from rpl_agent.guarantee.proof import prove
from tests.reference.block_models import ending_model

WIN, LOSE = Objective.reach("won"), Objective.reach("lost", sense=Sense.MIN)
GAIN, LOSS = (Objective.total("gain", sense=sense) for sense in Sense)
#: the same questions, where a label ends every play
NAMED = {
    WIN: replace(WIN, avoid="lost"),
    LOSE: replace(LOSE, avoid="won"),
    GAIN: replace(GAIN, target="over"),
    LOSS: replace(LOSS, target="over"),
}
#: of bets the directions differ by a little: they stop to follow a play where it is over
WITHOUT_BETS = Config(bets=False, pieces=1)
ENDED = Objective.reach("over")
SIDES = [(asked, side) for asked in (WIN, LOSE, LOSS) for side in Side] + [(GAIN, Side.LOWER)]


def data(unknowns: int, seed: int):
    pmdp, theta = ending_model(seed, unknowns)
    return pmdp, theta, uniform_counts(pmdp, ENDED, theta, 500, 40, seed)


def asked_about(pmdp, region, relaxation, objective, theta):
    """(problem, expansion of the best policy at the centre)."""
    problem = Problem.of(relaxation, objective, Nature.ADVERSARIAL, None)
    frame = frame_of(region, bounds.varying_directions(problem, region))
    return problem, expansion_of(problem, frame, None, solve_at(pmdp, theta, objective).policy)


@pytest.fixture(scope="module")
def made():
    """By question and side: the proof, and a bound whose rows hold over cuts; and the region of the first question."""
    pmdp, theta, counts = data(9, 2)
    found, sets = {}, uncertainty_from(pmdp, counts, Config(pieces=1), WIN)
    for objective, side in SIDES:
        problem, expansion = asked_about(pmdp, sets.region, sets.relaxation, objective, theta)
        proof = AffineProof(problem, sets.region)
        every = side is not Side.own(objective.sense)
        found[objective, side] = proof, over_cuts.over_cuts(problem, expansion, side, every, *proof.cuts)
    return SimpleNamespace(pmdp=pmdp, theta=theta, sets=sets, found=found)


@pytest.mark.parametrize("asked", NAMED, ids=lambda o: o.describe())
@pytest.mark.parametrize("unknowns, seed", [(3, 2), (3, 3), (9, 2)])
def test_naming_a_sink_changes_nothing(unknowns, seed, asked):
    pmdp, theta, counts = data(unknowns, seed)
    found, named = (certify(pmdp, counts, objective, WITHOUT_BETS) for objective in (asked, NAMED[asked]))
    assert found.gap == pytest.approx(named.gap, rel=1e-3)
    assert found.lower <= solve_at(pmdp, theta, asked).middle <= found.upper
    checked = checker.check(prove(pmdp, counts, found))
    assert checked["upper"] - checked["lower"] <= 1.01 * found.gap


@pytest.mark.parametrize("seed, asked", [(1, WIN), (2, LOSE)], ids=["win", "lose"])
def test_functions_over_cuts_are_found_and_checked(seed, asked):
    """Without them the gap is 1.8 or 1.4 times as wide."""
    pmdp, theta, counts = data(9, seed)
    found, named = (certify(pmdp, counts, objective, pieces=1) for objective in (asked, NAMED[asked]))
    assert found.gap <= 1.05 * named.gap
    assert found.lower <= solve_at(pmdp, theta, asked).middle <= found.upper
    proof, side = prove(pmdp, counts, found), Side.own(asked.sense).name.lower()
    checked = checker.check(proof)
    assert checked["upper"] - checked["lower"] <= 1.05 * named.gap
    states = {int(pmdp.row_state[int(key.split()[1])]) for key in proof[side]["rows"]}
    assert states and not pmdp.labels["over"][list(states)].any()


def test_totals_that_start_from_more_than_nothing_are_refused():
    """With the same number added everywhere, all inequalities hold: it is what a play is worth once it is over."""
    pmdp, _, counts = data(9, 2)
    proof = prove(pmdp, counts, certify(pmdp, counts, GAIN, pieces=1))
    assert proof["lower"]["rows"]
    for side, sign in (("lower", 1.0), ("upper", -1.0)):
        forged = copy.deepcopy(proof)
        for values in filter(None, forged[side]["values"]):
            values[0] += sign * 0.25
        with pytest.raises(checker.Refused, match=f"plays may stay forever, and the {side} bound fails"):
            checker.check(forged)


@pytest.mark.parametrize("objective, side", SIDES, ids=str)
def test_a_sink_that_is_worth_too_much_is_refused(made, objective, side):
    proof, bound = made.found[objective, side]
    assert proof.issues(bound) == []
    lost = bound.scope & proof.problem.resting_states
    assert lost.any() and not bound.values[lost].any() and not bound.gradient[lost].any()
    for better in (1e-9, 0.3):
        assert proof.issues(replace(bound, values=bound.values - side.value * better * lost))
        if objective.criterion.pays:  # then all inequalities hold
            issues = proof.issues(replace(bound, values=bound.values - side.value * better))
            assert any("plays can stay there" in issue for issue in issues)


def test_a_sink_that_pays_is_not_left_out(made):
    """The total is infinite there, and no upper bound holds."""
    _, bound = made.found[LOSS, Side.UPPER]
    gains = made.pmdp.rewards["gain"]
    paid = gains.row + np.where(made.pmdp.labels["lost"][made.pmdp.row_state], 1e-6, 0.0)
    pmdp = replace(made.pmdp, rewards={"gain": replace(gains, row=paid)})
    relaxation = Rectangular(pmdp, made.sets.region)
    problem = Problem.of(relaxation, LOSS, Nature.ADVERSARIAL, None)
    assert np.flatnonzero(problem.resting_states).tolist() == np.flatnonzero(pmdp.labels["won"]).tolist()
    assert any("may fail" in issue for issue in AffineProof(problem, made.sets.region).issues(bound))


def test_only_values_that_are_never_negative_exceed_a_negative_bound(made):
    """A state is left out of the plays that have to end only where the bound holds by itself."""
    _, bound = made.found[LOSS, Side.LOWER]
    below, gains = replace(bound, values=bound.values - 100.0), made.pmdp.rewards["gain"]
    losses = np.where(made.pmdp.labels["over"][made.pmdp.row_state], 0.0, gains.row - 0.5)
    for row, holds in ((gains.row, True), (losses, False)):
        pmdp = replace(made.pmdp, rewards={"gain": replace(gains, row=row)})
        problem = Problem.of(Rectangular(pmdp, made.sets.region), NAMED[LOSS], Nature.ADVERSARIAL, None)
        known = AffineProof(problem, made.sets.region)._known_to_hold(below)
        assert known.all() if holds else not known.any()


def test_a_cost_that_must_end_is_infinite_in_a_sink(made):
    """What bounds the total from above does not bound the cost of plays that must be won."""
    total, cost = replace(LOSS, target="won"), Objective.cost("gain", target="won")
    problem, expansion = asked_about(made.pmdp, made.sets.region, made.sets.relaxation, total, made.theta)
    bound = bounds.find_bound(problem, expansion, Side.UPPER, False)
    assert AffineProof(problem, made.sets.region).issues(bound) == []
    costly = Problem.of(made.sets.relaxation, cost, Nature.ADVERSARIAL, None)
    issues = AffineProof(costly, made.sets.region).issues(bound)
    assert issues and "held forever" in issues[0]


def coins(more: str):
    """Two coins that are nearly as good as each other in every state, and sometimes a way to wait, or to give up."""

    def actions(s):
        if s in ("end", "lost"):
            return {"stay": {s: 1}}
        after, before = s + 1 if s < 4 else "end", max(s - 1, 0)
        rows = {"one": {after: "p", before: "1 - p"}, "other": {after: "0.2*p + 0.8*q", before: "1 - 0.2*p - 0.8*q"}}
        return rows | {"wait": {"wait": {s: 1}}, "quit": {"quit": {"lost": 1}}, "": {}}[more]

    return build(
        0,
        actions,
        domain={"p": (0.0, 1.0), "q": (0.0, 1.0)},
        labels={"end": lambda s: s == "end"},
        rewards={"cost": lambda s, a: {"one": 1.0, "other": 0.98}.get(a, 0.0)},
    )


@pytest.mark.parametrize("more", ["wait", "quit"])
def test_ways_never_to_arrive_change_no_least_cost(more):
    """They cost infinity. Their rows used to be paid for again and again."""
    objective, found = Objective.cost("cost", target="end"), []
    for name in ("", more):
        pmdp = coins(name)
        region = Box(np.full(2, 0.57), np.full(2, 0.63))
        problem, expansion = asked_about(pmdp, region, Rectangular(pmdp, region), objective, np.full(2, 0.6))
        bound = bounds.find_bound(problem, expansion, Side.LOWER, True)
        assert AffineProof(problem, region).issues(bound) == []
        found.append(bound.at(region, pmdp.initial_state))
    assert found[1] == pytest.approx(found[0], rel=1e-9)


def test_which_rows_rest():
    rows = {
        "start": {"toss": {"heads": "p", "tails": "1 - p"}, "wait": {"start": 1}, "pay": {"start": 1}},
        "heads": {"stay": {"heads": 1}},
        "tails": {"stay": {"tails": 1}, "again": {"tails": 1}},
    }
    labels, rewards = {"heads": lambda s: s == "heads"}, {"cost": lambda s, a: float(a == "pay")}
    pmdp = build("start", lambda s: rows[s], domain={"p": (0.0, 1.0)}, labels=labels, rewards=rewards)
    point = Point(pmdp.instantiate([0.5]))

    def rest(objective: Objective) -> tuple[list[int], list[int]]:
        problem = Problem.of(point, objective, Nature.ADVERSARIAL, None)
        return np.flatnonzero(problem.resting_rows).tolist(), np.flatnonzero(problem.resting_states).tolist()

    assert rest(Objective.reach("heads")) == ([1, 2, 3, 4, 5], [1, 2])
    assert rest(Objective.total("cost")) == ([1, 3, 4, 5], [1, 2])
    assert rest(Objective.total("cost", horizon=3)) == rest(Objective.discounted("cost", 0.9)) == ([], [])


def test_a_policy_is_searched_where_it_goes(made):
    for (objective, side), (_, bound) in made.found.items():
        if bound.policy is not None:
            problem, expansion = asked_about(made.pmdp, made.sets.region, made.sets.relaxation, objective, made.theta)
            given = Inequalities.of(problem, expansion, side, bound.policy)
            assert np.array_equal(given.place[:, 1], np.flatnonzero(expansion.reached & ~problem.resting_states))
            assert np.array_equal(bound.scope, expansion.reached)


def test_large_models_are_swept_to_their_sinks(made, monkeypatch):
    problem, expansion = asked_about(made.pmdp, made.sets.region, made.sets.relaxation, GAIN, made.theta)
    monkeypatch.setattr(expansions, "SWEPT_STATES", 0)
    swept = swept_expansion(problem, expansion.frame, expansion.policy)
    np.testing.assert_allclose(swept.values, expansion.values, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(swept.gradient, expansion.gradient, rtol=1e-10, atol=1e-11)


def test_nothing_is_looked_for_where_nothing_varies(made):
    """A policy that rests from the start on."""
    problem, expansion = asked_about(made.pmdp, made.sets.region, made.sets.relaxation, GAIN, made.theta)
    still = replace(expansion, gradient=0.0 * expansion.gradient, reached=np.zeros_like(expansion.reached))
    cuts = AffineProof(problem, made.sets.region).cuts
    assert over_cuts.over_cuts(problem, still, Side.LOWER, False, *cuts) is None
