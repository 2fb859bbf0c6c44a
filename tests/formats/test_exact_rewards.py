"""Rewards that are no doubles: a threshold equal to the value is never decided the wrong way, for any operator."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from rpl_agent.core.errors import ModelError, RPLWarning
from rpl_agent.core.model import Objective, Sense, build
from rpl_agent.core.native import core
from rpl_agent.core.solver import solve_at
from rpl_agent.formats import prism
from rpl_agent.formats.prism.answers import answer

#: each number has doubles on both sides of it, so that both directions of rounding are tried
NUMBERS = ("0.1", "1/3", "123456.789", "0.5")
NUMBERS += tuple(pytest.param(text, marks=pytest.mark.nightly) for text in ("0.3", "2/3", "0.7", "1e-3", "3"))

TEXT = """dtmc
module m
  x : [0..3];
  [a] x<3 -> (x'=x+1);
  [e] x=3 -> true;
endmodule
label "end" = x=3;
rewards "r"
  x<3 : {reward};
endrewards
rewards "at"
  x=2 : {reward};
endrewards
rewards "both"
  x=0 : {reward};
  [a] x=0 : {reward};
endrewards
rewards "signed"
  x=0 : -({reward});
  x=1 : {reward} + {reward};
endrewards
"""
#: a property without its comparison, and its value as a multiple of the number
OPERATORS = {
    'R{"r"}%s [ I=0 ]': 1,
    'R{"r"}%s [ I=2 ]': 1,
    'R{"r"}%s [ C<=1 ]': 1,
    'R{"r"}%s [ C<=3 ]': 3,
    'R{"r"}%s [ F "end" ]': 3,
    'R{"r"}%s [ C ]': 3,
    'R{"at"}%s [ I=2 ]': 1,
    'R{"at"}%s [ F "end" ]': 1,
    'R{"at"}%s [ C ]': 1,
    'R{"at"}%s [ C<=3 ]': 1,
    'R{"both"}%s [ C<=1 ]': 2,
    'R{"both"}%s [ F "end" ]': 2,
    'R{"signed"}%s [ C<=1 ]': -1,
    'R{"signed"}%s [ I=0 ]': -1,
    'R{"signed"}%s [ C<=3 ]': 1,
    'R{"signed"}%s [ F "end" ]': 1,
}


def is_double(number: Fraction) -> bool:
    return Fraction(float(number)) == number


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("text", NUMBERS)
def test_a_threshold_that_equals_the_value_is_never_answered_wrongly(operator, text):
    model, number = prism.loads(TEXT.format(reward=text)), Fraction(text)
    value = OPERATORS[operator] * number
    threshold = f"{value.numerator}/{value.denominator}"
    for comparison, truth in (("<=", "yes"), (">=", "yes"), ("<", "no"), (">", "no")):
        found = answer(model, operator % f"{comparison}({threshold})")[0]
        assert found.verdict in (truth, "not decided at this precision"), (comparison, found)
        assert not found.problems
        if is_double(number) and "I=" in operator:  # nothing is rounded, so everything is decided
            assert found.verdict == truth
    found = answer(model, operator % "=?")[0]
    assert Fraction(found.lower) <= value <= Fraction(found.upper)
    assert found.upper - found.lower <= 1e-12 * max(1.0, abs(float(value)))


@pytest.mark.parametrize("text", NUMBERS)
@pytest.mark.parametrize(
    "objective",
    [
        Objective.reward("r", target="end"),
        Objective.cost("r", target="end"),
        Objective.reward("r", horizon=1),
        Objective.instant("r", 1),
        Objective.discounted("r", 0.5),
        Objective.total("r", target="end"),
    ],
)
def test_brackets_of_solutions_contain_the_value_of_exact_rewards(text, objective):
    """Of models from functions too, which may return fractions."""
    number = Fraction(text)
    states = {0: {"go": {1: 1}}, 1: {"stay": {1: 1}}}
    model = build(
        0, states.get, domain=[], labels={"end": lambda s: s == 1}, rewards={"r": lambda s, a: number * (s == 0)}
    )
    if objective.kind.value == "instant":
        model = prism.loads(TEXT.format(reward=text)).pmdp
    solution = solve_at(model, np.zeros(0), objective)
    assert Fraction(solution.lower) <= number <= Fraction(solution.upper)
    assert solution.check() == []


def test_what_a_silent_state_pays_is_rounded_outward():
    """0.3 - 0.1 is not a double: the two payments of a play sum to 0.3, not to what is stored."""
    states = {0: {"go": {1: "p", 2: "1-p"}}, 1: {"end": {1: 1}}, 2: {"end": {2: 1}}}
    pays = {1: 0.3, 2: 0.1}
    model = build(
        0, states.get, domain=["p"], labels={"end": lambda s: s > 0}, rewards={"r": lambda s, a, t: pays[t] * (s == 0)}
    )
    for sense in Sense:
        solution = solve_at(model, [1.0], Objective.reward("r", target="end", sense=sense))
        assert Fraction(solution.lower) <= Fraction(0.3) <= Fraction(solution.upper)
        assert solution.gap <= 1e-12


def test_an_infinite_total_is_infinite_for_exact_rewards_too():
    """The share of infinity that rounding may have lost is no number."""
    text = TEXT.replace("[a] x<3 -> (x'=x+1);", "[a] x<3 -> 0.5: (x'=x+1) + 0.5: (x'=1);").replace(
        '"end" = x=3', '"end" = x=0 & x=3'
    )
    query = prism.loads(text.format(reward="1/3")).query('R{"r"}=? [ F "end" ]')
    with pytest.warns(RPLWarning, match="holds in no state"):
        solution = solve_at(query.pmdp, [], query.objective)
    assert solution.lower == solution.upper == np.inf and solution.converged and solution.check() == []
    low, high = solution.problem.task.outward(np.array([np.inf, 1.0]), np.array([np.inf, 1.0]))
    assert low[0] == high[0] == np.inf and 0 < 1 - low[1] < 1e-15 and 0 < high[1] - 1 < 1e-15


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("over", [False, True])
def test_payments_and_the_sizes_of_their_errors_are_exact_sums(adds, over):
    """Against rationals: a row pays its state's number and its own, each known up to an error."""
    rng = np.random.default_rng(7)
    state_ptr = np.array([0, 2, 3, 3, 7])
    state, row = (rng.normal(size=size) * 10.0 ** rng.integers(-9, 9, size) for size in (4, 7))
    state_error, row_error = abs(state) * 1e-17, abs(row) * 3e-17
    state *= adds
    ends = np.array([False, True, False, False]) if over else None
    reward, error = np.empty(7), np.empty(7)
    least = core.row_payments(4, state_ptr, state, row, state_error, row_error, adds, ends, reward, error)
    for r, s in enumerate(np.repeat(np.arange(4), np.diff(state_ptr))):
        if over and ends[s]:
            assert reward[r] == error[r] == 0.0
            continue
        lost = abs(Fraction(state[s]) + Fraction(row[r]) - Fraction(reward[r]))
        wanted = lost + Fraction(state_error[s]) + Fraction(row_error[r])
        assert reward[r] == state[s] + row[r] and (adds or lost == 0)
        assert wanted <= Fraction(error[r]) <= wanted * (1 + Fraction(1, 2**48))
    sizes = np.empty(3)
    core.error_sizes(7, reward, error, sizes)
    assert sizes.tolist() == [(error[reward != 0] / abs(reward[reward != 0])).max(), error.max(), reward.min()]
    assert least == reward.min() < 0.0


def test_payments_without_a_number_have_no_least():
    for bad in (np.inf, -np.inf, np.nan):
        row, reward, sizes = np.array([1.0, bad]), np.empty(2), np.empty(3)
        assert np.isnan(core.row_payments(1, np.array([0, 2]), np.zeros(1), row, None, None, True, None, reward, None))
    core.error_sizes(2, np.array([1.0, 0.0]), np.array([0.0, 1e-20]), sizes)
    assert sizes.tolist() == [np.inf, 1e-20, 0.0]  # a reward that is 0 after rounding only


def test_a_sum_that_vanishes_only_after_rounding_bounds_nothing_or_is_refused():
    text = TEXT.replace(
        'rewards "both"\n  x=0 : {reward};\n  [a] x=0 : {reward};',
        'rewards "both"\n  x=0 : -0.1;\n  [a] x=0 : 0.1;\n  x=1: -1;',
    )
    model = prism.loads(text.format(reward="1"))
    found = answer(model, 'R{"both"}=? [ C<=1 ]')[0]
    assert found.lower < 0 < found.upper
    assert model.pmdp.row_reward_error("both").max() > 0
    with pytest.raises(ModelError, match=r"0 only after rounding at .*; write it as one number"):
        answer(model, 'R{"both"}=? [ F "end" ]')
