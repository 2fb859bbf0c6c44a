"""A few rounds of the fuzz; `python -m benchmarks fuzz --minutes N` runs as many as one likes."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.reference import polynomials
from tests.reference.fuzz import round_of
from tests.reference.oracle import Question, best_values

HALF = Fraction(1, 2)


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(k, marks=pytest.mark.nightly) for k in (10, 20, 30))]
)  # 10: all kinds
def test_answers_hold_and_lies_do_not_pass(first):
    tried, lies, signed = 0, 0, 0
    for seed in range(first, first + 10):
        tally = round_of(seed)
        assert tally.failures == []
        signed += tally.problems.pop("signed", 0)
        tried += sum(tally.problems.values())
        lies += tally.lies
    assert tried == 480 and lies > 100 and signed > 10


def test_the_oracle_knows_a_coin():
    # Heads (1/2) ends in the goal 1; tails tries again at a price of 1.
    rows = [[[{0: HALF, 1: HALF}]], [[{1: Fraction(1)}]]]
    reward = ((Fraction(1),), (Fraction(0),))
    for kind, gamma, horizon, value in (
        ("reach", 1, None, 1), ("cost", 1, None, 2), ("reward", 1, None, 2), ("reward", HALF, None, Fraction(4, 3)),
        ("reach", 1, 3, Fraction(7, 8)), ("reward", 1, 2, Fraction(3, 2)),
    ):  # fmt: skip
        question = Question(kind, frozenset({1}), frozenset(), reward, Fraction(gamma), horizon, True, False)
        assert best_values(rows, question)[0] == value
    # Nature that may stay forever gives a maximiser nothing and a cost no end.
    rows = [[[{0: Fraction(1)}, {1: Fraction(1)}]], [[{1: Fraction(1)}]]]
    for kind, value in (("reach", 0), ("cost", float("inf"))):
        question = Question(
            kind, frozenset({1}), frozenset(), reward, Fraction(1), None, kind == "reach", kind == "cost"
        )
        assert best_values(rows, question)[0] == value


@pytest.mark.parametrize("seed", [1500256, pytest.param(1100370, marks=pytest.mark.nightly)])
def test_what_the_hull_allows_is_not_taken_for_the_region(seed):
    """Nature's distributions of a region were iterated from below although only its hull has them (1 for 1/3)."""
    assert round_of(seed).failures == []


@pytest.mark.parametrize("seed", [600304, *(pytest.param(k, marks=pytest.mark.nightly) for k in (900035, 1500164))])
def test_products_that_underflow_leave_upper_bounds_positive(seed):
    """An upper bound was 0 for a value near 1e-600."""
    assert round_of(seed).failures == []


@pytest.mark.parametrize("seed", [1400393])
def test_what_a_query_gives_away_is_charged_to_the_inner_side(seed):
    """A multiplier just below 0 was clipped; a lower bound, taken from above by a fixed margin, exceeded the value."""
    assert round_of(seed).failures == []


@pytest.mark.parametrize("seed", [20000127])
def test_claims_near_the_largest_number_are_judged_and_not_refused(seed):
    """A row's gradient overflowed, and a region that is asked in such a direction raises."""
    assert round_of(seed).failures == []


@pytest.mark.parametrize("seed", [30000066])
def test_where_nothing_is_paid_the_value_is_zero(seed):
    """Tolerances alone made an upper bound of 1e-270, which its own check did not accept."""
    assert round_of(seed).failures == []


@pytest.mark.parametrize("seed", [30001395])
def test_a_row_is_charged_for_the_spread_of_both_sides(seed):
    """A backward pass took the rounding of both bounds from the spread of one, which may be flat."""
    assert round_of(seed).failures == []


@pytest.mark.parametrize("seed", [50007734])
def test_a_mean_lies_between_its_terms(seed):
    """Two rows had one lower bound in the solver, two in the check, whose mean was then rounded below both."""
    assert round_of(seed).failures == []


@pytest.mark.parametrize("seed", [60027446])
def test_bounds_that_rest_on_a_region_are_strict(seed):
    """A lower bound was equal to its image in one state, so its check could not tell that the play leaves it."""
    assert round_of(seed).failures == []


@pytest.mark.parametrize("seed", [96011701])
def test_squares_that_underflow_are_not_left_out(seed):
    """At values near 1e-274 the norm in an ellipsoid's bound was 0: bounds of rows were those at its center."""
    assert round_of(seed).failures == []


@pytest.mark.parametrize("seed", [97000108])
def test_the_check_rounds_as_the_sweeps_do(seed):
    """What a row pays was rounded in two ways, by an ulp apart: the check refused a bound of the solver."""
    assert round_of(seed).failures == []


@pytest.mark.parametrize("seed", [90011898])
def test_a_row_that_is_not_a_number_supports_nothing(seed):
    """A row's query overflowed near the largest float, and the check let the agent choose another row."""
    assert round_of(seed).failures == []


@pytest.mark.parametrize("seed", [7_200_945, 7_203_139])
def test_the_two_sides_of_a_horizon_do_not_cross(seed):
    """Two looks at a curved row may differ by more than rounding: a lower bound was above the upper one."""
    assert polynomials.round_of(seed).failures == []


@pytest.mark.parametrize("seed", [930001904])
def test_a_hull_in_place_of_a_set_proves_nothing_on_its_inner_side(seed):
    """An upper bound for the hull of a set of linear programs, below the value for the set by rounding, passed."""
    assert round_of(seed).failures == []


@pytest.mark.parametrize("seed", [960001059])
def test_what_a_walk_clips_is_part_of_the_tightness(seed):
    """Through the protocol alone, an upper bound was 1e-14 below a value: 1e-12 was added, 1.01e-12 was missing."""
    assert round_of(seed).failures == []


@pytest.mark.parametrize("seed", [960006348, 990005368])
def test_totals_that_fall_without_bound_are_not_judged_by_corners(seed):
    """The oracle knew only corners of nature's set, and took a true bound for a lie that the check accepts."""
    assert round_of(seed).failures == []
