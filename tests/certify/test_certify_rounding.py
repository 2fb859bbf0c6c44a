"""Errors that only the last digits of a certificate show: of scaled rewards, of rewards that deviate."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rpl_agent import Objective, build
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Nature, Sense, range_on_box
from rpl_agent.core.relaxations.interval import Intervals
from rpl_agent.core.solver import proved, solve
from rpl_agent.core.solver.solution import claiming_nothing
from rpl_agent.guarantee import pipeline
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import Config, certify_uncertainty, uncertainty_from


@pytest.mark.parametrize("sense", Sense)
def test_coupled_bounds_pay_for_the_rounding_of_rewards(monkeypatch, sense):
    """With a random start discounted rewards are scaled, and rounded: coupled bounds are of the rounded ones."""
    states = {"a": {"go": {"a": "p", "b": "1-p"}}, "b": {"go": {"a": "1-p", "b": "p"}}}
    start = {"a": "p", "b": "1-p"}
    pmdp = build(start, states.get, domain=["p"], rewards={"r": lambda s, a: 0.7 if s == "a" else 0.2})
    objective = dataclasses.replace(Objective.discounted("r", 0.9), sense=sense)
    rounding = objective.resolve(pmdp).rounding
    assert rounding > 0.0
    counts = Counts(pmdp)
    proposed = {}

    real = pipeline.coupled_bounds

    def tight(relaxation, region, objective, policy, chosen, known, *_):
        middle = (known[0] + known[1]) / 2
        proposed.update(lower=middle - 0.1, upper=middle + 0.1)
        return dataclasses.replace(real(relaxation, region, objective, policy, chosen), **proposed)

    monkeypatch.setattr(pipeline, "coupled_bounds", tight)
    found = certify(pmdp, counts, objective)
    assert found.lower <= proposed["lower"] - rounding
    assert found.upper >= proposed["upper"] + rounding
    assert found.gap < 0.21  # so both bounds are those proposed


@pytest.mark.parametrize("sense", Sense)
@pytest.mark.parametrize("error", [0.01, 1e-6])
def test_gains_and_costs_that_cancel_still_deviate(sense, error):
    """Their total is 0, so a share of the total would be nothing; each may be off by its own share."""
    states = {0: {"go": {1: 1}}, 1: {"go": {2: 1}}, 2: {"stay": {2: 1}}}
    pays = {0: 1.0, 1: -1.0, 2: 0.0}
    pmdp = build(0, states.get, domain=["p"], labels={"end": lambda s: s == 2}, rewards={"r": lambda s, a: pays[s]})
    counts, config = Counts(pmdp), Config()
    objective = Objective.total("r", target="end", sense=sense)
    assert objective.resolve(pmdp).signed
    uncertainty = uncertainty_from(pmdp, counts, config, objective)
    found = certify_uncertainty(pmdp, counts, uncertainty, objective, config, reward_error=error)
    assert found.lower <= -2.0 * error <= 2.0 * error <= found.upper
    assert found.gap <= 4.0 * error * (1.0 + 1e-6)


CARDS = ("c0", "c1", "c2", "1 - c0 - c1 - c2")


def card_game(top: int = 15):
    """Draw up to `top`: a card too many returns to 0, the last card loses, a pass puts one back; `top` wins."""

    def rows(total):
        if total in ("won", "lost"):
            return {"stay": {total: 1}}
        draw = {}
        for k, card in enumerate(CARDS):
            after = total + k + 1
            after = "lost" if k == 3 else "won" if after == top else after if after < top else 0
            draw[after] = f"{draw[after]} + {card}" if after in draw else card
        return {"draw": draw, "pass": {total - 2: "c0", total: "1 - c0"}} if total >= 2 else {"draw": draw}

    domain = {name: (0.05, 0.3) for name in CARDS[:3]}
    return build(0, rows, domain=domain, labels={"won": lambda s: s == "won"})


@pytest.mark.parametrize("upward", [False, True])
def test_what_rounding_explains_is_widened_before_a_bound_is_dropped(upward):
    """Bounds off by 6.55e-13 on cycles without rewards, where a share of the values scales both sides alike."""
    pmdp = card_game()
    objective = Objective.reach("won")
    lower, upper = np.array([0.05] * 3), np.array([0.3] * 3)
    nature = Nature.COOPERATIVE if upward else Nature.ADVERSARIAL
    solution = solve(Intervals(pmdp, *range_on_box(pmdp.table, lower, upper)), objective, nature)
    assert proved._proved(solution, upward) is not None
    off = np.where(objective.resolve(pmdp).decided, 0.0, 6.55e-13 * (np.arange(pmdp.num_states) % 3 == 0))
    off = off * ((solution.lower_values > 1e-3) & (solution.upper_values < 1.0 - 1e-3))
    assert off.any()
    moved = solution.upper_values - off if upward else solution.lower_values + off
    start = float(moved[pmdp.initial_state])
    side = {"upper": start, "upper_values": moved} if upward else {"lower": start, "lower_values": moved}
    wrong = claiming_nothing(dataclasses.replace(solution, **side), not upward)
    issues = wrong.check([upward])
    assert issues and "fails by" in issues[0]
    found = proved._proved(wrong, upward)
    assert found is not None and found.check([upward]) == []
    assert abs((found.upper if upward else found.lower) - start) < 1e-9


def test_rewards_near_the_largest_float_are_bounded():
    """The power of two above them is infinite, but not the grid of multiples that it spans."""
    rows = {0: {"a": {1: "p", 2: "1 - p"}, "b": {0: "1/2", 1: "1/4", 2: "1/4"}}}
    most = 1.7e308
    pmdp = build(
        0,
        lambda s: rows.get(s, {"stay": {s: 1}}),
        domain={"p": (0.1, 0.9)},
        rewards={"r": lambda s, a: most if s == 0 else 0.0},
    )
    found = certify(pmdp, Counts(pmdp), Objective.discounted("r", 1e-9))
    assert found.lower <= most <= found.upper <= most * (1.0 + 1e-6)
