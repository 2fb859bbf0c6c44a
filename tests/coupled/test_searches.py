"""Which of two searches is used on which side."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import improvement_worlds as worlds
from rpl_agent import certify, improve
from rpl_agent.core.coupled.affine import Side
from rpl_agent.core.coupled.products.searches import Searches
from tests.reference.river import GAIN, river_log, small_river


class Told(Searches):
    """Finds numbers that are given, by side."""

    def __init__(self, over, products):
        self.numbers, self.asked = {"over": over, "products": products}, []
        super().__init__(None, None)

    def _told(self, name, side, known):
        self.asked.append((name, known))
        return self.numbers[name].get(side, side.value * np.inf)

    def _over_cuts(self, side, every_policy, known):
        return self._told("over", side, known)

    def _by_products(self, side, every_policy, known):
        return self._told("products", side, known)


LOW, HIGH = Side.LOWER, Side.UPPER


@pytest.mark.parametrize(
    "over, products, found, order",
    [
        ({LOW: 1.0, HIGH: 9.0}, {LOW: 2.0, HIGH: 8.0}, (2.0, 8.0), ["over", "products", "products"]),
        ({LOW: 2.0, HIGH: 9.0}, {LOW: 1.0, HIGH: 8.0}, (2.0, 9.0), ["over", "products", "over"]),
        ({LOW: 2.0}, {LOW: 1.0, HIGH: 8.0}, (2.0, 8.0), ["over", "products", "over", "products"]),
        ({HIGH: 9.0}, {LOW: 1.0}, (1.0, 9.0), ["over", "products", "products", "over"]),
        ({}, {}, (-np.inf, np.inf), ["over", "products", "over", "products"]),
    ],
)
def test_what_wins_for_a_policy_is_first_for_all(over, products, found, order):
    searches = Told(over, products)
    assert (searches.bound(LOW, False, 0.0), searches.bound(HIGH, True, 10.0)) == found
    assert [name for name, _ in searches.asked] == order


def test_one_is_enough_for_all_policies():
    searches = Told({HIGH: 9.0}, {HIGH: 8.0})
    assert searches.bound(HIGH, True, 10.0) == 9.0 and searches.asked == [("over", 10.0)]


def test_the_second_knows_what_the_first_found():
    searches = Told({HIGH: 9.0}, {HIGH: 8.0})
    assert searches.bound(HIGH, False, 10.0) == 8.0 and searches.asked == [("over", 10.0), ("products", 9.0)]
    searches = Told({LOW: 1.0}, {})
    assert searches.bound(LOW, False, 2.0) == 1.0 and searches.asked == [("over", 2.0), ("products", 2.0)]


def test_improvements_leave_them_out(monkeypatch):
    """They search for gains, not for the values of all candidates."""
    pmdp, theta = small_river()
    used, asked = worlds.halfway(pmdp, theta, GAIN), []
    counts = river_log(pmdp, theta, used, 30)

    def bound(self, side, every_policy, known):
        asked.append(side)
        return side.value * np.inf

    monkeypatch.setattr(Searches, "bound", bound)
    improve(pmdp, counts, GAIN, used, delta=0.1)
    assert asked == []
    certify(pmdp, counts, GAIN, delta=0.1, bets=False)
    assert sorted(side.name for side in asked) == ["LOWER", "UPPER"]
