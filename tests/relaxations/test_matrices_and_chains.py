"""Interval MDPs from matrices, and the chain of a policy."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Nature, Objective, Policy, build
from rpl_agent.core.relaxations.umdp import UncertainMDP
from rpl_agent.core.solver import solve, solve_at
from rpl_agent.formats import prism
from rpl_agent.formats.export import write_uncertain

# action 0 gambles in state 0, action 1 is safe but slow; states 1 (won) and 2 (lost) absorb
LOWER = np.array([[[0, 0.5, 0.3], [0, 1, 0], [0, 0, 1]], [[0.7, 0.1, 0.0], [0, 0, 0], [0, 0, 0]]])
UPPER = np.array([[[0, 0.7, 0.5], [0, 1, 0], [0, 0, 1]], [[0.9, 0.3, 0.1], [0, 0, 0], [0, 0, 0]]])


def test_an_interval_mdp_from_matrices_is_the_one_of_a_prism_file():
    given = UncertainMDP.from_matrices(LOWER, UPPER, labels={"won": [1], "lost": 2}, rewards={"time": [1, 0, 0]})
    text = """mdp module m x:[0..2];
    [a0] x=0 -> [0.5,0.7]:(x'=1) + [0.3,0.5]:(x'=2);
    [a1] x=0 -> [0.7,0.9]:(x'=0) + [0.1,0.3]:(x'=1) + [0.0,0.1]:(x'=2);
    [a0] x>0 -> true; endmodule label "won" = x=1; label "lost" = x=2; rewards "time" x=0 : 1; endrewards"""
    model = prism.loads(text)
    for nature, property in ((Nature.ADVERSARIAL, "Pmaxmin=?"), (Nature.COOPERATIVE, "Pmaxmax=?")):
        ours = solve(given, Objective.reach("won"), nature)
        theirs = prism.answer(model, f"{property} [ F x=1 ]")[0]
        assert (ours.lower, ours.upper) == pytest.approx((theirs.lower, theirs.upper), abs=1e-12)
    assert given.action_names == ("a0", "a1") and list(given.pmdp.rewards) == ["time"]


def test_matrices_may_be_sparse_or_one_chain(tmp_path):
    by_action = [[sparse.csr_array(matrix) for matrix in bounds] for bounds in (LOWER, UPPER)]
    rewards = {"r": np.array([[1.0, 2.0], [0, 0], [0, 0]])}
    same = UncertainMDP.from_matrices(*by_action, labels={"won": [False, True, False]}, rewards=rewards)
    dense = UncertainMDP.from_matrices(LOWER, UPPER)
    assert np.array_equal(same.lower, dense.lower) and np.array_equal(same.successor, dense.successor)
    assert same.rewards["r"].row.tolist() == [1.0, 2.0, 0.0, 0.0]
    chain = UncertainMDP.from_matrices(LOWER[0], UPPER[0], labels={"won": 1})
    assert solve(chain, Objective.reach("won"), Nature.ADVERSARIAL).lower == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("lower", "upper", "more", "words"),
    [
        (LOWER[:1], UPPER, {}, "one shape"),
        (LOWER[:, :2], UPPER, {}, "one shape"),
        (UPPER, LOWER, {}, "positive where upper is 0"),
        (LOWER, np.where(UPPER == 1, 0.0, UPPER), {}, "state 1 has no transition"),
        (LOWER, UPPER * np.nan, {}, "finite"),
        (LOWER, UPPER, {"labels": {"l": [7]}}, "'l'"),
        (LOWER, UPPER, {"rewards": {"r": [1, 2]}}, "'r'"),
        (LOWER, np.where(UPPER == 0.7, 0.6, UPPER) - 0.2 * (UPPER == 0.5), {}, "upper bounds of row 0 sum"),
    ],
)
def test_bad_matrices_are_refused_by_name(lower, upper, more, words):
    with pytest.raises(ModelError, match=words):
        UncertainMDP.from_matrices(lower, upper, **more)


GAME = """mdp
const double p;  // range p 0.2 0.4
module m
  x : [0..3];
  [bold] x=0 -> p:(x'=3) + 1-p:(x'=1);
  [safe] x=0 -> p/2:(x'=3) + 1-p/2:(x'=2);
  [on] x=1 -> 0.5:(x'=3) + 0.5:(x'=1);
  [on] x>1 -> true;
endmodule
label "goal" = x=3;
rewards "r" [bold] true : 2; x=1 : 1; endrewards
"""


def test_the_chain_of_a_policy_has_its_value(tmp_path):
    model = prism.loads(GAME)
    pmdp, theta = model.pmdp, np.array([0.3])
    goal = Objective.reach("goal")
    best = solve_at(pmdp, theta, goal).policy
    chain = best.induced_chain(pmdp)
    assert chain.num_rows == chain.num_states == pmdp.num_states and chain.num_parameters == 1
    assert solve_at(chain, theta, goal).lower == pytest.approx(solve_at(pmdp, theta, goal).lower)
    bold = int(np.flatnonzero(pmdp.action == pmdp.action_names.index("bold"))[0])
    weights = Policy.uniform(pmdp).weights.copy()
    mixed = Policy.randomised(weights).induced_chain(pmdp)
    # goal at once with 3p/4, by way of x=1 surely with (1-p)/2
    assert solve_at(mixed, theta, goal).lower == pytest.approx(0.75 * 0.3 + 0.7 / 2, abs=1e-6)
    assert mixed.row_reward("r")[0] == pytest.approx(0.5 * pmdp.row_reward("r")[bold])
    for made in (chain, mixed):
        bounds = made.table.at(theta)
        write_uncertain(tmp_path / "c.drn", made, bounds, bounds)
    with pytest.raises(ModelError, match="step-dependent"):
        Policy.deterministic(np.stack([best.rows, best.rows])).induced_chain(pmdp)


def test_rewards_of_a_mixed_chain_are_within_their_errors():
    paid = {"left": Fraction(1, 10), "right": Fraction(1, 3), "wait": Fraction(2, 7)}
    pmdp = build(
        0,
        lambda s: {a: {1: "p", 0: "1 - p"} for a in paid} if s == 0 else {"left": {1: 1}},
        domain=["p"],
        labels={"end": lambda s: s == 1},
        rewards={"gain": lambda s, a: paid[a] if s == 0 else 0.0},
    )
    weights = np.array([0.2, 0.3, 0.5, 1.0])
    chain = Policy.randomised(weights).induced_chain(pmdp)
    given = [Fraction(w) for w in weights[:3].tolist()]
    exact = sum(w * paid[pmdp.action_names[a]] for w, a in zip(given, pmdp.action)) / sum(given)
    error = chain.row_reward_error("gain")
    assert error is not None and abs(Fraction(float(chain.row_reward("gain")[0])) - exact) <= Fraction(float(error[0]))
    assert error[0] < 1e-15
