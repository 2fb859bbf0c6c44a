"""Certificates end to end against exact values: a goal that can be left, eight parameters, broken solutions."""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from rpl_agent import Config, Counts, ModelError, Objective, RPLWarning, build, certify
from rpl_agent.core.model import Sense
from rpl_agent.core.relaxations.interval import Intervals
from rpl_agent.guarantee.pipeline import uncertainty_from
from tests.reference.oracle import Question, best_values, policy_values

MODULE = sys.modules["rpl_agent.core.solver.proved"]
THETA = [Fraction(k, 16) for k in (12, 10, 9, 13, 8, 14, 11, 7)]
PRICE = (1.0, 1.25)


def pair(stage: int, action: int) -> tuple[int, int]:
    """The parameters of an action; every expression shares one with the next, so that no block is independent."""
    return 2 * stage + action, (2 * stage + action + 1) % 8


def eight_parameters():
    """Four stages with two actions; the goal (4) has an action into a dead end (5)."""

    def actions(s):
        if s == 5:
            return {"a": {5: "1"}}
        if s == 4:
            return {"a": {4: "1 - p0", 5: "p0"}}
        found = {}
        for k, name in enumerate("ab"):
            i, j = pair(s, k)
            found[name] = {s + 1: f"0.5*p{i} + 0.5*p{j}", s: f"0.5 - 0.5*p{i}", 0: f"0.5 - 0.5*p{j}"}
            if s == 0:
                found[name] = {1: f"0.5*p{i} + 0.5*p{j}", 0: f"1 - 0.5*p{i} - 0.5*p{j}"}
        return found

    return build(
        0, actions, domain={f"p{k}": (0.25, 0.96875) for k in range(8)}, labels={"goal": lambda s: s == 4},
        rewards={"cost": lambda s, a: 0.0 if s >= 4 else PRICE[a == "b"]}, action_names=["a", "b"],
    )  # fmt: skip


def exact_rows(model):
    """The model at THETA as the oracle takes it: rows, rewards, target."""
    order = [int(model.state_name(s).strip("()").split("=")[-1]) for s in range(6)]
    at = {value: s for s, value in enumerate(order)}
    rows, rewards = [], []
    for value in order:
        choices = [{5: Fraction(1)}] if value == 5 else [{4: 1 - THETA[0], 5: THETA[0]}]
        if value < 4:
            choices = []
            for k in range(2):
                i, j = pair(value, k)
                row = {value + 1: (THETA[i] + THETA[j]) / 2, value: (1 - THETA[i]) / 2}
                row[0] = row.get(0, Fraction(0)) + (1 - THETA[j]) / 2
                choices.append(row)
        rows.append([[{at[v]: p for v, p in row.items()}] for row in choices])
        rewards.append(tuple(Fraction(PRICE[k]) if value < 4 else Fraction(0) for k in range(len(choices))))
    return rows, tuple(rewards), frozenset({at[4]})


def expected_counts(model, visits: int = 32_000) -> Counts:
    """As many transitions as THETA makes one expect: the truth is in every set."""
    p = model.table.at(np.array([float(t) for t in THETA]))[model.expression]
    batch = np.rint(p * visits).astype(np.int64)
    counts = Counts(model)
    counts.add_batch(batch)
    return counts


@pytest.mark.parametrize(("confidence", "relaxation", "sense"), [
    *((confidence, relaxation, sense) for sense in Sense for confidence, relaxation in (
        ("anytime", "tied"), ("likelihood", "rectangular"),
    )),
    ("anytime", "rectangular", Sense.MIN), ("anytime", "coupled", Sense.MIN),
    *(pytest.param("anytime", relaxation, Sense.MAX, marks=pytest.mark.nightly)
      for relaxation in ("rectangular", "coupled")),
])  # fmt: skip
def test_a_goal_that_can_be_left_for_a_dead_end(sense, confidence, relaxation):
    """With eight parameters in one region the optimistic cost was infinite: [inf, 1.95] for a truth in between."""
    model = eight_parameters()
    rows, rewards, goal = exact_rows(model)
    objective = Objective.reward("cost", target="goal", sense=sense)
    counts, config = expected_counts(model), Config(confidence, relaxation, delta=0.01)
    if (confidence, relaxation) == ("anytime", "rectangular"):  # rows over many coordinates: their hull
        assert isinstance(uncertainty_from(model, counts, config).relaxation, Intervals)
    certificate = certify(model, counts, objective, config)
    question = Question(
        "cost" if objective.must_reach else "reward", goal, frozenset(), rewards, Fraction(1), None, sense is Sense.MAX,
        False,
    )  # fmt: skip
    weights, chosen = [], certificate.policy.as_weights(model)
    for s in range(6):
        weights.append(tuple(Fraction(float(w)) for w in chosen[model.state_ptr[s] : model.state_ptr[s + 1]]))
    start = model.initial_state
    own, best = policy_values(rows, question, weights)[start], best_values(rows, question)[start]
    low, high = (own, best) if sense is Sense.MAX else (best, own)
    assert Fraction(certificate.lower) <= low <= high <= Fraction(certificate.upper)
    assert certificate.upper - certificate.lower < 2.0


@pytest.fixture(params=[1e6, np.inf, np.nan], ids=["crossed", "infinite", "not a number"])
def broken(request, monkeypatch):
    """Solves whose optimistic lower bound is wrong."""
    real = MODULE.solve_both

    def wrong(*arguments, **keywords):
        robust, optimistic = real(*arguments, **keywords)
        values = np.full_like(optimistic.lower_values, request.param)
        return robust, replace(optimistic, lower=float(request.param), lower_values=values)

    monkeypatch.setattr(MODULE, "solve_both", wrong)


COST = Objective.reward("cost", target="goal", sense=Sense.MIN)


def test_a_broken_solution_claims_nothing(broken):
    model = eight_parameters()
    with pytest.warns(RPLWarning, match="did not pass its independent check"):
        certificate = certify(model, expected_counts(model), COST, Config("anytime", "tied"))
    assert certificate.lower == -np.inf and np.isfinite(certificate.upper)


def test_bounds_that_cross_never_leave_even_without_the_check(broken, monkeypatch):
    monkeypatch.setattr(MODULE, "_proved", lambda solution, upward: solution)
    model = eight_parameters()
    with pytest.raises(ModelError, match="contradict each other: this is a bug"):
        certify(model, expected_counts(model), COST, Config("anytime", "tied"))


@pytest.mark.parametrize("confidence", ["likelihood", "anytime"])
def test_a_model_without_parameters_is_certified_with_data(confidence):
    """Its chart has no dimension, and no polytope around it was found: qhull raised."""
    pmdp = build(0, lambda s: {"go": {1: "1/4", 2: "3/4"}} if s == 0 else {"stay": {s: 1}}, domain=[],
                 labels={"goal": lambda s: s == 1})  # fmt: skip
    counts = Counts(pmdp)
    counts.add(0, 0, 1)
    found = certify(pmdp, counts, Objective.reach("goal"), Config(confidence))
    assert found.lower == pytest.approx(0.25, abs=1e-6) == found.upper


def test_parameters_that_nothing_depends_on_are_no_obstacle():
    """Found by the fuzz: the hull of points without coordinates was asked for."""
    rows = {0: {"a": {1: "1/4", 2: "3/4"}}, 1: {"a": {1: 1}}, 2: {"a": {2: 1}}}
    pmdp = build(0, lambda s: rows[s], domain=["p", "q"], labels={"goal": lambda s: s == 1})
    counts = Counts(pmdp)
    counts.add(0, 0, 1)
    found = certify(pmdp, counts, Objective.reach("goal"))
    assert found.lower == pytest.approx(0.25) and found.upper == pytest.approx(0.25)
    assert found.lower <= 0.25 <= found.upper
