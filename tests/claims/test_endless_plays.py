"""Sums of values where plays never end: at a chance of zero, behind the target of a cost, and at a loss."""

from __future__ import annotations

import numpy as np
import pytest

from rpl_agent import Counts, certify, curve
from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Objective, Policy, Sense, build
from rpl_agent.guarantee.claims.combined import CombinedModel
from rpl_agent.guarantee.shown import true_value

GOAL, BAD = Objective.parse("maximise probability of goal"), Objective.parse("minimise probability of bad")


def labels(*names):
    return {name: lambda s, name=name: s == name for name in names}


def shelter():
    """Go and risk it, sneak, or wait in a shelter that holds with an unknown chance, which may be 1."""

    def actions(place):
        if place == "start":
            go, sneak = {"goal": "0.5", "bad": "0.5"}, {"goal": "0.1", "bad": "0.3", "lost": "0.6"}
            return {"go": go, "sneak": sneak, "wait": {"shelter": "1"}}
        return {"stay": {"shelter": "p", "bad": "1 - p"} if place == "shelter" else {place: "1"}}

    return build("start", actions, domain=["p"], labels=labels("goal", "bad"))


def held(pmdp, state, times):
    counts, s = Counts(pmdp), pmdp.state_index(state)
    counts.add(s, int(pmdp.action[pmdp.state_ptr[s]]), s, times)
    return counts


@pytest.mark.parametrize("times", [0, 1000])
def test_a_chance_that_may_be_zero_holds_plays(times):
    """At p = 1 the shelter holds for ever: four times of five go, otherwise wait, wins .4 within the limit .4."""
    pmdp = shelter()
    counts, sure = held(pmdp, "shelter", times), np.ones(1)
    mixed = Policy.from_table(pmdp, [("start", "go", 0.8), ("start", "wait", 0.2), ("shelter", "stay", 1.0)])
    waiting = Policy.from_table(pmdp, [("start", "wait", 1.0), ("shelter", "stay", 1.0)])
    assert true_value(pmdp, GOAL, mixed, sure) == pytest.approx(0.4) == true_value(pmdp, BAD, mixed, sure)
    assert certify(pmdp, counts, GOAL, subject_to=["probability of bad <= 0.4"]).upper >= 0.4
    for plane in curve(pmdp, counts, [GOAL, BAD], points=5).half_planes:
        for policy in (mixed, waiting):
            gain = true_value(pmdp, GOAL, policy, sure), -true_value(pmdp, BAD, policy, sure)
            assert np.dot(plane.weights, gain) <= plane.most + 1e-9


def test_chances_that_are_seen_to_be_positive_hold_nothing():
    pmdp = shelter()
    counts, s = held(pmdp, "shelter", 1000), pmdp.state_index("shelter")
    counts.add(s, int(pmdp.action[pmdp.state_ptr[s]]), pmdp.state_index("bad"), 100)
    found = certify(pmdp, counts, GOAL, subject_to=["probability of bad <= 0.4"])
    assert found.upper == pytest.approx(0.3, abs=1e-6)


def courier():
    """Fast to a door at which one may idle for ever, or slowly to another one."""

    def actions(place):
        if place == "start":
            return {"fast": {"door": "1"}, "slow": {"home": "1"}}
        if place == "door":
            return {"idle": {"door": "1"}, "leave": {"bad": "p", "home": "1 - p"}}
        return {"stay": {place: "1"}}

    hours = {"fast": 1.0, "slow": 3.0}
    return build(
        "start",
        actions,
        domain={"p": (0.8, 1)},
        labels={"done": lambda s: s != "start", **labels("bad")},
        rewards={"hours": lambda _, action: hours.get(action, 0.0)},
    )


def test_plays_may_last_for_ever_behind_the_target_of_a_cost():
    """Fast, then idle: one hour and nothing bad. A sum that asks for an end would cost more."""
    pmdp = courier()
    goal = Objective.parse("minimise hours until done")
    found = certify(pmdp, Counts(pmdp), goal, subject_to=["probability of bad <= 0.1"])
    assert found.lower <= 1.0 <= found.upper + 1e-9
    for plane in curve(pmdp, Counts(pmdp), [goal, BAD], points=5).half_planes:
        assert np.dot(plane.weights, (-1.0, 0.0)) <= plane.most + 1e-9


def test_an_infinite_cost_that_would_make_a_sum_better_is_refused():
    pmdp = courier()
    costs = [Objective.cost("hours", target=target) for target in ("done", "bad")]
    combined, hull = CombinedModel(pmdp, costs), (np.zeros(pmdp.num_expressions), np.ones(pmdp.num_expressions))
    combined.weighted(np.ones(2), Sense.MIN, hull)
    with pytest.raises(ModelError, match="infinite cost"):
        combined.weighted(np.array([1.0, -1.0]), Sense.MIN, hull)


def test_a_loss_that_is_maximised_is_a_cost_that_is_minimised():
    """Staying loses in every step, so no stop is needed, and the bound for every policy is that of the cost."""

    def actions(place):
        if place > 3:
            return {"stay": {place: "1"}}
        return {"run": {place + 1: "p", 5: "1 - p"}, "walk": {place + 1: "0.5", place: "0.5"}}

    bounds = []
    for sign, verb in ((1.0, "minimise"), (-1.0, "maximise")):
        pmdp = build(
            0,
            actions,
            domain={"p": (0.85, 0.95)},
            labels={"over": lambda s: s > 3, "bad": lambda s: s == 5},
            rewards={"paid": lambda s, _, sign=sign: sign * (s < 4)},
        )
        found = certify(pmdp, Counts(pmdp), f"{verb} paid until over", subject_to=["probability of bad <= 0.1"])
        bounds.append((found.lower, found.upper) if sign > 0 else (-found.upper, -found.lower))
        assert found.limits[0].price > 1.0
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-6)
