"""Regions that are split by the chances of events, where products of cuts prove too little over the whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import improvement_worlds as worlds
from rpl_agent.core.coupled.gradients.cuts import offered_cuts
from rpl_agent.core.coupled.products import pieces
from rpl_agent.core.coupled.products.gain import LeastSum, least_sum, rooms_of
from rpl_agent.core.coupled.products.pieces import CutRegion, least_in_pieces
from rpl_agent.core.coupled.products.rooms import ACROSS
from rpl_agent.core.coupled.products.rows import Term
from rpl_agent.core.coupled.products.splits import Split, likely_splits
from rpl_agent.core.solver import solve_at
from tests.coupled.test_products_gain import points_of, value
from tests.reference.river import GAIN, compared, river_log, small_river


@pytest.fixture(scope="module")
def split():
    """(model, the two policies, comparison, rooms of the whole, pieces of a log that is too short for the whole)."""
    pmdp, theta = small_river()
    best, used = solve_at(pmdp, theta, GAIN).policy, worlds.halfway(pmdp, theta, GAIN)
    comparison = compared(pmdp, river_log(pmdp, theta, used, 125), GAIN, best, used)
    rooms = rooms_of(comparison.problem, comparison.region)
    whole = CutRegion(rooms.frame, rooms.blocks, *offered_cuts(comparison.problem, comparison.region))
    terms = [Term(1.0, best), Term(-1.0, used)]

    def least(rooms, beyond, enough):
        return least_sum(comparison.problem, rooms, terms, beyond, enough)

    return pmdp, (best, used), comparison, rooms, least_in_pieces(whole, least, 0.0)


def test_pieces_prove_what_the_whole_does_not(split):
    *_, comparison, _, root = split
    assert root.found.bound < 0.0 < root.bound < comparison.bounds(1, 1).attained
    assert 2 < len(root.leaves()) <= pieces.MOST_PIECES
    assert comparison.lower_by_events(0.0) == pytest.approx(root.bound, abs=1e-9)


def test_pieces_cover_the_region_and_hold_in_it(split):
    """Corners and mixtures of the whole, against values at them."""
    pmdp, (best, used), _, rooms, root = split
    found = [0] * len(root.leaves())
    for x in points_of(rooms, 3, 60):
        inside = [bool((leaf.source.A @ x <= leaf.source.b + 1e-9).all()) for leaf in root.leaves()]
        assert any(inside)
        gain = value(pmdp, x, best) - value(pmdp, x, used)
        assert all(leaf.found.bound <= gain for leaf, here in zip(root.leaves(), inside) if here)
        found = [count + here for count, here in zip(found, inside)]
    assert sum(count > 0 for count in found) > 1


def test_the_first_splits_explain_most(split):
    *_, rooms, root = split
    explained = [one.explained for one in root.found.splits]
    assert explained == sorted(explained, reverse=True) and explained[-1] > 0.0
    y = np.column_stack([np.ones(40), (points_of(rooms, 1, 20) - rooms.frame.center) / rooms.frame.half])
    for one in root.found.splits:  # there is something on both sides
        room = y @ rooms.forms[rooms.number.tolist().index(one.cut)]
        assert 0.0 < one.room < room.max()


class Line:
    """Of numbers low..high: the bound is −(high − low), and every split is in the middle."""

    def __init__(self, low: float, high: float, on_offer: bool = True) -> None:
        self.low, self.high, self.on_offer = low, high, on_offer

    def rooms(self):
        return None if self.low >= self.high else self

    def halves(self, split):
        if split.cut == 0 or not self.on_offer:
            return None
        middle = self.low + split.room * (self.high - self.low)
        return Line(self.low, middle, self.on_offer), Line(middle, self.high, self.on_offer)


def least_on_line(asked: list[float], splits: list[Split]):
    def least(line, beyond, enough):
        asked.append(beyond)
        bound = line.low - line.high
        return None if bound <= beyond else LeastSum(bound, [], [], splits)

    return least


def test_splits_end_where_enough_is_proved_or_out_of_reach():
    half = [Split(0, 0.9, 3.0), Split(1, 0.5, 2.0)]  # the first one is not on offer
    # of −0.1 the first split gains 4, and two pieces that lack 3.9 need one each; then those of 2 lack 1.9 …
    for enough, leaves in ((-9.0, 1), (-8.0, 2), (-5.0, 2), (-3.9, 4), (-0.6, pieces.MOST_PIECES), (-0.1, 9)):
        root = least_in_pieces(Line(0.0, 8.0), least_on_line([], half), enough)
        assert len(root.leaves()) == leaves, enough
        assert root.bound == min(leaf.source.low - leaf.source.high for leaf in root.leaves())


def test_the_best_of_a_few_splits_is_taken():
    asked, ways = list[float](), [Split(1, 0.9, 5.0), Split(1, 0.5, 4.0), Split(1, 0.2, 3.0), Split(1, 0.5, 1.0)]
    root = least_in_pieces(Line(0.0, 1.0), least_on_line(asked, ways), -0.95)
    assert root.split is ways[1] and root.bound == -0.5
    assert asked == [-np.inf, -np.inf, -np.inf, -0.9, -0.9, -0.5, -0.5]  # each has to be better than those before


def test_without_a_split_the_whole_stays():
    for source in (Line(0.0, 1.0, on_offer=False), Line(0.0, 1.0)):
        ways = [Split(1, 0.0, 1.0)]  # nothing is left below
        root = least_in_pieces(source, least_on_line([], ways), 0.0)
        assert root.halves is None and root.bound == -1.0
    assert least_in_pieces(Line(1.0, 1.0), least_on_line([], []), 0.0) is None


def test_cuts_across_blocks_are_no_events(split):
    *_, rooms, _ = split
    across = replace(rooms, owner=np.full(len(rooms.owner), ACROSS))
    assert likely_splits(across, [], np.zeros((1, 9)), []) == []


def test_both_halves_of_a_split_are_short_by_the_rest():
    assert pieces._needed([1.0, 2.0], [1.5, 0.5]) == 1 + 3  # a split that gains 1 leaves two pieces that are short by 1
    assert pieces._needed([0.1], [1.0]) == 1
    assert pieces._needed([9.0, 9.0], []) == 2
    assert pieces._needed([1.0], [0.0]) == np.inf
    assert pieces.MOST_PIECES < pieces._needed([1e6], [1e-6]) < np.inf  # without an overflow
