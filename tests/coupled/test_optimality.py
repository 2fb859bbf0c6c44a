"""Proved optimal: beaten rows and ties against exact optima, and ties that must not count."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from rpl_agent.core.coupled import coupled_bounds
from rpl_agent.core.coupled.regret import proved_regret
from rpl_agent.core.coupled.ties import tied_rows
from rpl_agent.core.model import Domain, Nature, Objective, Policy, Sense, build
from rpl_agent.core.model.polynomial import Polynomial
from rpl_agent.core.regions.lifting import build_region
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.core.solver.problem import Problem
from tests.coupled.test_coupled import CENTER, cases, prepared
from tests.reference import regrets
from tests.reference.coupled import box_points, exact_rows, exact_value, objectives
from tests.reference.fuzz import Tally
from tests.reference.solver import chain_value

ENDS = ("won", "lost")


def judged(pmdp, region, objective, policy=None):
    """The regret of a policy, or of the best one at the centre, over a region."""
    start = policy or Policy.deterministic(pmdp.state_ptr[:-1])
    found = coupled_bounds(Rectangular(pmdp, region), region, objective, policy, start)
    return (found.policy, proved_regret(found, region, found.policy, np.inf)) if found is not None else (None, None)


@pytest.mark.parametrize("objective", objectives(horizon=False), ids=lambda o: o.describe())
def test_what_is_proved_optimal_is_optimal(objective, sized):
    """At corners and inside, in exact arithmetic; also for policies that were not chosen for being good."""
    proved, refused = 0, 0
    for width in (0.002, 0.02):
        for seed, polynomial, loops, kind in cases(sized(2, 4)):
            pmdp, region, _ = prepared(seed, polynomial, loops, kind, width)
            for policy in (None, Policy.deterministic(pmdp.state_ptr[1:] - 1)):
                policy, found = judged(pmdp, region, objective, policy)
                if found is None:
                    continue
                refused += not found.is_optimal
                proved += found.is_optimal
                if found.is_optimal:
                    assert found.most == 0.0 and not len(found.undecided)
                    for theta in box_points(CENTER, Fraction(width), seed, 2):
                        own, best = (exact_value(pmdp, objective, theta, p) for p in (policy, None))
                        assert own == best, (seed, polynomial, width)
    assert proved >= 3 and refused >= 3


def small(table: dict, region=((0.4, 0.6),)):
    """A model from {state: {action: {successor: probability}}} with one parameter p, and a region of it."""

    def actions(state):
        return {"stay": {state: 1}} if state in ENDS else table[state]

    pmdp = build(
        0,
        actions,
        domain=Domain.box({"p": (0.1, 0.9)}),
        labels={"won": lambda s: s == "won", "end": lambda s: s in ENDS},
        rewards={"cost": lambda s, a: float(s not in ENDS)},
    )
    ends = pmdp.table.at(np.array(region).T)
    return pmdp, build_region(pmdp, ends.min(axis=0), ends.max(axis=0))


def first(pmdp) -> Policy:
    return Policy.deterministic(pmdp.state_ptr[:-1])


P = Polynomial.parameter("p")
WIN = {"won": P, "lost": 1 - P}


@pytest.mark.parametrize("sense", Sense)
def test_symmetric_actions_are_ties(sense):
    """Left and right lead to different states that share their fate, perhaps a step later; a copy of a row is one."""
    table = {
        0: {"left": {1: P, 2: 1 - P}, "right": {3: P, 4: 1 - P}, "again": {1: P, 2: 1 - P}},
        1: {"go": WIN},
        2: {"go": {1: 1}},
        3: {"go": WIN},
        4: {"go": {5: P, 3: 1 - P}},
        5: {"go": WIN},
    }
    pmdp, region = small(table)
    _, found = judged(pmdp, region, Objective.reach("won", sense=sense), first(pmdp))
    assert found.is_optimal and found.most == 0.0


@pytest.mark.parametrize(("more", "optimal"), [(0, True), (Fraction(1, 10**12), False), (-Fraction(1, 10**12), True)])
def test_nearly_equal_is_not_equal(more, optimal):
    """Numbers that a comparison of floats might not tell apart: a better row is no tie, and a worse one is beaten."""
    table = {0: {"one": WIN, "other": {"won": P + more, "lost": 1 - P - more}}}
    pmdp, region = small(table)
    _, found = judged(pmdp, region, Objective.reach("won"), first(pmdp))
    assert found.is_optimal is optimal and found.most < 1e-9
    assert len(found.undecided) == int(not optimal)


@pytest.mark.parametrize("sense", Sense)
def test_a_loop_is_a_tie_that_may_be_better(sense):
    """To wait changes no value at one step; to wait forever is the best way not to win."""
    pmdp, region = small({0: {"go": WIN, "wait": {0: 1}}})
    _, found = judged(pmdp, region, Objective.reach("won", sense=sense), first(pmdp))
    assert found is None or found.is_optimal is (sense is Sense.MAX)
    pmdp, region = small({0: {"go": {1: 1}, "wait": {2: 1}}, 1: {"go": WIN}, 2: {"go": {1: 1}, "back": {0: 1}}})
    _, found = judged(pmdp, region, Objective.reach("won", sense=sense), first(pmdp))
    assert found is None or found.is_optimal is (sense is Sense.MAX)


def test_an_alternative_may_continue_better():
    """Equal to the policy where the policy is bad afterwards: the advantage over the policy alone does not decide."""
    table = {
        0: {"left": {1: 1}, "right": {2: 1}},
        1: {"go": WIN},
        2: {"bad": WIN, "good": {"won": P + Fraction(1, 20), "lost": Fraction(19, 20) - P}},
    }
    pmdp, region = small(table)
    _, found = judged(pmdp, region, Objective.reach("won"), first(pmdp))
    assert not found.is_optimal and found.most >= 0.05


def test_ties_are_ties_at_every_parameter():
    """Random models of few numbers: every row that is called a tie has the exact value of its state."""
    tied = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows = [WIN, {"won": 1 - P, "lost": P}, {"won": Fraction(1, 2), "lost": Fraction(1, 2)}]
        table = {}
        for s in range(5):
            later = [[s + 1, 5], [s + 1, s + 1], [5, "lost"], [min(s + 2, 5), s + 1], [0, s + 1]][
                : 5 if seed % 2 else 4
            ]
            pick = [later[int(k)] for k in rng.integers(len(later), size=3)]
            table[s] = {a: {p[0]: P, p[1]: 1 - P} if p[0] != p[1] else {p[0]: 1} for a, p in zip("abc", pick)}
        table[5] = dict(zip("abc", rows))
        pmdp, region = small(table)
        for objective in (Objective.reach("won"), Objective.cost("cost", target="end")):
            problem = Problem.of(Rectangular(pmdp, region), objective, Nature.ADVERSARIAL, None)
            policy = pmdp.state_ptr[:-1] + rng.integers(0, np.diff(pmdp.state_ptr))
            others = np.setdiff1d(np.flatnonzero(~problem.task.decided[pmdp.row_state]), policy)
            theta = [Fraction(int(rng.integers(30, 70)), 100)]
            exact, reward = exact_rows(pmdp, theta), [Fraction(float(r)) for r in problem.reward]
            ends = [set(np.flatnonzero(mask).tolist()) for mask in (problem.task.target, problem.task.avoid)]
            values = chain_value([exact[r] for r in policy], [reward[r] for r in policy], *ends, objective)
            if any(not isinstance(v, Fraction) for v in values):
                continue  # a policy that never ends
            guess = np.array([float(v) for v in values])
            found = tied_rows(problem, policy, guess, np.zeros((len(guess), 1)), others)
            for row in others[found].tolist():
                q = reward[row] + sum(p * values[i] for i, p in exact[row].items())
                assert q == values[int(pmdp.row_state[row])], (seed, objective.describe(), row)
            tied += int(found.sum())
    assert tied > 20


def test_random_regrets_are_true(sized):
    """The fuzz of `python -m benchmarks fuzz --regrets`, in short."""
    tally = Tally()
    for seed in range(rounds := sized(3, 60)):
        tally.add(regrets.round_of(seed))
    assert tally.failures == []
    assert tally.problems["regrets"] > 4 * rounds and tally.problems["proved optimal"] >= rounds
