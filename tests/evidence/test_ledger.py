"""Shares of δ: what the ledger hands out, to the last bit, and what it refuses."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from rpl_agent.core.errors import DataError
from rpl_agent.core.evidence.ledger import (
    FALLBACK_SHARE,
    LEAST_DELTA,
    MAIN_SHARE,
    OPEN_EPISODES,
    OPEN_PLANNED,
    OPEN_REST,
    PATH_SHARE,
    POLICY_SHARE,
    REFUTATION_SHARE,
    Ledger,
    MainShares,
    OpenLedger,
    check_delta,
    check_stated_delta,
    of_states,
    per_event,
    refuting_log_e_value,
    split_main,
    split_paths,
)
from rpl_agent.guarantee.checker import SHARES

DELTAS = (LEAST_DELTA, 1e-6, 0.05, 0.1, 0.3, 0.7, math.nextafter(1.0, 0.0))


@pytest.mark.parametrize("delta", DELTAS)
def test_the_shares_of_a_run_fit_into_delta(delta):
    ledger = Ledger.of(delta)
    main, fallback, refutation = (ledger.take(name) for name in ("main", "fallback", "refutation"))
    assert (main, fallback, refutation) == pytest.approx((0.95 * delta, 0.0099 * delta, 0.04 * delta), rel=1e-15)
    assert Fraction(0.9998) * Fraction(delta) < sum(map(Fraction, (main, fallback, refutation))) <= Fraction(delta)
    for name in ("main", "fallback", "refutation", "other"):
        with pytest.raises(DataError, match="is spent"):
            ledger.take(name)


def test_the_shares_of_the_checker_are_those_of_the_ledger():
    """The checker stands alone, so its table is a second one: of δ / 10,000."""
    for method, parts in SHARES.items():
        assert sum(parts) / 10_000 == (FALLBACK_SHARE if method == "graph" else MAIN_SHARE)
    assert sum(SHARES["anytime"]) + sum(SHARES["graph"]) + 10_000 * REFUTATION_SHARE <= 9_999


def test_shares_may_be_all_of_delta_and_no_more():
    Ledger(0.5, {"a": 0.25, "b": 0.25, "c": 0.0})
    for shares in ({"a": 0.25, "b": math.nextafter(0.25, 1.0)}, {"a": 0.25, "b": -5e-324}, {"a": 1.0, "b": -1.0}):
        with pytest.raises(DataError, match="more than the error probability"):
            Ledger(0.5, shares)


def test_the_main_share_is_divided_further():
    assert split_main(0.25, MainShares(0.5, 0.25, 0.25)) == MainShares(0.125, 0.0625, 0.0625)
    assert split_main(0.25, MainShares(0.0, 0.5, 0.5)).bets == 0.0
    for shares in (MainShares(0.5, 0.5, 1e-9), MainShares(-1e-9, 0.5, 0.5)):
        with pytest.raises(DataError, match="more than the error probability"):
            split_main(0.25, shares)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("share", [PATH_SHARE, POLICY_SHARE, 0.0, 1 / 3, 0.9])
def test_paths_and_their_model_share_delta(delta, share):
    model, paths = split_paths(delta, share)
    assert paths == share * delta
    assert Fraction(delta) * (1 - Fraction(1, 2**51)) <= Fraction(model) + Fraction(paths) <= Fraction(delta)


def test_the_shares_of_paths_are_those_that_are_documented():
    assert split_paths(0.1)[1] == 0.05 and PATH_SHARE == 0.5 and POLICY_SHARE == 0.2
    with pytest.raises(DataError, match="too small to be divided"):
        split_paths(1e-101)


@pytest.mark.parametrize(("events", "each"), [(0, 0.1), (1, 0.1), (2, 0.05), (10, 0.01)])
def test_events_get_the_same_share(events, each):
    assert per_event(0.1, events) == each


def test_a_model_is_refuted_at_one_over_its_share():
    assert refuting_log_e_value(0.004) == pytest.approx(math.log(250.0), rel=1e-15)


@pytest.mark.parametrize("delta", [0.0, -0.0, -0.5, 1.0, 1.5, math.inf, -math.inf, math.nan, "0.1", None, 0.5j])
def test_no_other_number_is_a_delta(delta):
    with pytest.raises(DataError, match="must lie strictly between 0 and 1"):
        check_delta(delta)
    with pytest.raises(DataError, match="must lie strictly between 0 and 1"):
        Ledger.of(delta)


def test_delta_is_large_enough_to_be_divided():
    for delta in (5e-324, 0.5, math.nextafter(1.0, 0.0), np.float32(0.5)):
        check_delta(delta)
    for divided in (Ledger.of, OpenLedger.of):
        divided(LEAST_DELTA)
        with pytest.raises(DataError, match="too small to be divided: at least 1e-100"):
            divided(math.nextafter(LEAST_DELTA, 0.0))


# ---------------------------------------------------------------------- worlds without a model
@pytest.mark.parametrize("delta", DELTAS)
def test_the_shares_of_a_world_without_a_model_fit_into_delta(delta):
    ledger = OpenLedger.of(delta)
    rows, start = ledger.take("rows"), ledger.take("start")
    assert (rows, start) == pytest.approx((0.5 * delta, 0.05 * delta), rel=1e-15)
    policies = [ledger.take_policy(number) for number in (1, 2, 3, 10)]
    assert policies == pytest.approx([0.449 * delta / n for n in (1.5, 6, 15, 330)], rel=1e-15)
    every = Fraction(policies[0]) * 3 / 2  # 2/3 + 1/6 + 1/15 + … = 1, each rounded by less than 2^-51 of itself
    spent = Fraction(rows) + Fraction(start) + every * (1 + Fraction(1, 2**50))
    assert Fraction(0.9989) * Fraction(delta) < spent <= Fraction(delta)
    parts = OPEN_PLANNED, OPEN_EPISODES, OPEN_REST
    assert min(parts) > 0 and 0.998 < sum(parts) < 1.0


def test_policies_have_numbers_from_one():
    for number in (0, -1):
        with pytest.raises(DataError, match="needs a new number"):
            OpenLedger.of(0.1).take_policy(number)


@pytest.mark.parametrize("share", [0.05, 0.1, 1 / 3])
def test_known_states_get_the_same(share):
    for known in range(1, 60):
        shares = of_states(share, 0, known, known)
        assert len(shares) == known and len(of_states(share, 3, 5, known)) == 2
        total = sum(map(Fraction, shares.tolist()))
        assert Fraction(share) * (1 - Fraction(2, 10**9)) < total <= Fraction(share)


@pytest.mark.parametrize(("first", "last"), [(0, 1), (0, 6), (2, 7), (10**6, 10**6 + 2)])
def test_states_that_appear_divide_the_share_of_their_power_of_two(first, last):
    found = of_states(0.25, first, last, None)
    for k, share in zip(range(first + 1, last + 1), found.tolist(), strict=True):
        j = k.bit_length() - 1
        exact = Fraction(1, 4 * 2**j * (j + 1) * (j + 2))
        assert exact * (1 - Fraction(2, 10**9)) <= Fraction(share) <= exact
        assert float(Fraction(share) / exact) == pytest.approx(1 - 1e-9, rel=1e-12)


def test_states_that_appear_never_get_more_than_the_whole():
    found = [Fraction(share) for share in of_states(1.0, 0, 2**12 - 1, None).tolist()]
    assert 1 - Fraction(1, 12) <= sum(found) <= 1 - Fraction(1, 13)  # twelve powers of two, and what comes after them


def test_a_user_states_an_error_below_one_half():
    check_stated_delta(math.nextafter(0.5, 0.0))
    words = "is the probability that bounds are wrong, and must be below 0.5"
    for delta, told in (
        (0.5, f"delta = 0.5 {words}"),
        (0.75, f"delta = 0.75 {words}: for a confidence of 75 % write delta = 0.25"),
        (0.95, f"delta = 0.95 {words}: for a confidence of 95 % write delta = 0.05"),
    ):
        with pytest.raises(DataError) as caught:
            check_stated_delta(delta)
        assert str(caught.value) == told
    with pytest.raises(DataError, match="too small"):
        check_stated_delta(1e-101)


def test_the_shares_of_untied_models_are_these_and_fit_into_delta():
    ledger = Ledger.of_untied(0.1)
    taken = {name: ledger.take(name) for name in ("main", "rows", "plays", "visits", "fallback", "refutation")}
    expected = {"main": 0.4, "rows": 0.25, "plays": 0.2, "visits": 0.1, "fallback": 0.0099, "refutation": 0.04}
    assert taken == {name: 0.1 * share for name, share in expected.items()}
    assert sum(expected.values()) < 1.0
    for name in expected:
        with pytest.raises(DataError, match="is spent"):
            ledger.take(name)
