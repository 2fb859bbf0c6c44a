"""Regions that are split by the chance of an event: the checker's halves, and forgeries of proofs that use them."""

import copy
import json
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import scipy

from benchmarks import improvement_worlds as worlds
from rpl_agent import improve
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.claims.improvement import COMMON
from rpl_agent.guarantee.proof import prove
from rpl_agent.guarantee.proof.foundation import Foundation
from tests.reference.river import GAIN, river_log, small_river


@pytest.fixture(scope="module")
def proved():
    """(improvement, its proof), from a log that is too short for functions over the whole region."""
    pmdp, theta = small_river()
    used = worlds.halfway(pmdp, theta, GAIN)
    counts = river_log(pmdp, theta, used, 125)
    found = improve(pmdp, counts, GAIN, used, delta=0.1)
    return found, json.loads(json.dumps(prove(pmdp, counts, found)))


def events(part):
    """The splits of a part of a file, from the outside in."""
    return [part, *(one for piece in part["pieces"] for one in events(piece))] if "event" in part else []


def leaves(part):
    return [one for piece in part["pieces"] for one in leaves(piece)] if "event" in part else [part]


def region_of(proof):
    """The checker's region of a proof."""
    foundation, part = Foundation(proof, None), proof["regions"][proof["gain lower"]["region"]]
    return checker.Known(foundation.objective, foundation.data, Fraction(proof["delta"]), proof["confidence"], part)


def test_the_improvement_is_proved_in_pieces(proved):
    found, proof = proved
    shown = checker.check(proof)
    assert found.method == COMMON and 0.0 < found.lower == shown["gain lower"]
    assert len(events(proof["gain lower"])) > 1 and len(leaves(proof["gain lower"])) > 2


def points(region, form, count):
    """Mixtures of three corners of the region, where a form is least and where it is largest among them; some a little
    beyond it."""
    rng, (A, b) = np.random.default_rng(1), (np.array(one, dtype=float) for one in zip(*region.cuts))
    ways = [form, -form, *rng.normal(size=(20, len(form)))]
    corners = np.array([scipy.optimize.linprog(way, A_ub=A, b_ub=b, bounds=(None, None)).x for way in ways])
    for k in range(count):
        shares = rng.dirichlet(np.ones(3)) * rng.choice([1.0, 1.0, 1.1])
        yield [checker.exact(float(one)) for one in shares @ corners[[k % 2, *rng.integers(2, len(ways), size=2)]]]


def test_halves_are_together_all_and_each_has_its_end(proved):
    """By their cuts, at points; a split of a half keeps the cut of the first one."""
    region = region_of(proved[1])
    f, end = next(event for event in (part["event"] for part in events(proved[1]["gain lower"])))
    end, terms = checker.exact(end), [Fraction(w, region.line.den) for w in region.line.terms[f]]
    assert {f"low {f}", f"high {f}"} <= set(region.names)
    halves = region.sides(f, end)
    parts, held = [region, *halves, halves[0].sides(f, end * Fraction(9, 10))[1]], [0] * 4
    for x in points(region, np.array(terms[1:], dtype=float), 300):
        chance = terms[0] + sum(w * y for w, y in zip(terms[1:], x))
        here, below, above, between = (
            all(sum(a * y for a, y in zip(row, x)) <= b for row, b in part.cuts) for part in parts
        )
        assert (below, above) == (here and chance <= end, here and chance >= end)
        assert between == (below and chance >= end * Fraction(9, 10))
        held = [count + one for count, one in zip(held, (here, below, above, between))]
    assert min(held) > 5 and held[0] < 290
    assert region.ends == region_of(proved[1]).ends  # the whole stays as it is


def interval_region():
    """A region of three expressions of two coordinates, x, y and 1 − x − y, and a constant one before them."""
    region, one = object.__new__(checker.Known), checker.ONE
    terms = [[Fraction(1, 2), 0, 0], [0, 1, 0], [0, 0, 1], [1, -1, -1]]
    region.line = SimpleNamespace(den=1, free=[1, 2, 3], terms=terms, domain=[])
    region.ends = {"low": [0, one // 8, one // 4, 0], "high": [one, one // 2, one * 3 // 4, one]}
    region.names = ["low 1", "high 1", "low 2", "high 2", "low 3", "high 3"]
    region.cuts = [region.cut(name) for name in region.names]
    return region


@pytest.mark.parametrize("f", [1, 2, 3])
def test_a_half_has_another_end_of_one_interval(f):
    region, end = interval_region(), Fraction(1, 3)
    before = copy.deepcopy((region.ends, region.cuts))
    halves = region.sides(f, end)
    for half, kind, other in zip(halves, ("high", "low"), ("low", "high")):
        ends, k = half.ends[kind], region.names.index(f"{kind} {f}")
        assert half.ends[other] == region.ends[other] and len(ends) == 4
        assert [x for i, x in enumerate(ends) if i != f] == [x for i, x in enumerate(region.ends[kind]) if i != f]
        assert half.cuts[:k] + half.cuts[k + 1 :] == region.cuts[:k] + region.cuts[k + 1 :]
        assert half.cuts[k] == half.cut(f"{kind} {f}") != region.cuts[k]
    high, low = (Fraction(half.ends[kind][f], checker.ONE) for half, kind in zip(halves, ("high", "low")))
    assert low < end < high < low + Fraction(2, checker.ONE)  # a third is no binary number: nothing is lost between
    assert (region.ends, region.cuts) == before


def test_an_end_beyond_the_interval_changes_nothing():
    """All is on one side: the interval is not widened."""
    for end, side in ((Fraction(9, 10), 0), (Fraction(1, 100), 1)):
        assert interval_region().sides(1, end)[side].cuts == interval_region().cuts


def test_what_does_not_vary_splits_nothing():
    for f in (0, 4, -1):
        with pytest.raises(checker.Refused, match="does not vary"):
            interval_region().sides(f, Fraction(1, 2))


def test_pieces_are_the_two_sides_in_order(monkeypatch):
    """Below first; each with its own part of the file."""
    statement, region = object.__new__(checker.Statement), interval_region()
    statement.splits = 0
    part = {"event": [1, 0.25], "pieces": ["first", {"event": [2, 0.5], "pieces": ["second", "third"]}]}
    plain = checker.Statement.leaves
    monkeypatch.setattr(
        checker.Statement,
        "leaves",
        lambda self, region, part: plain(self, region, part) if isinstance(part, dict) else [(region, part)],
    )
    found = statement.leaves(region, part)
    assert [one for _, one in found] == ["first", "second", "third"] and statement.splits == 2
    below, second, third = (one for one, _ in found)
    quarter, half = checker.ONE // 4, checker.ONE // 2
    assert below.ends == {"low": region.ends["low"], "high": [checker.ONE, quarter, *region.ends["high"][2:]]}
    assert second.ends["low"][1] == third.ends["low"][1] == quarter
    assert second.ends["high"][2] == half == third.ends["low"][2] and third.ends["high"] == region.ends["high"]


def test_forged_splits_are_refused(proved):
    proof = proved[1]

    def refused(change, said):
        other = copy.deepcopy(proof)
        change(other["gain lower"])
        with pytest.raises((checker.Refused, *checker.MALFORMED), match=said):
            checker.check(other)

    first = events(proof["gain lower"])[0]["event"]
    refused(lambda part: part["pieces"].reverse(), "misses its inequality|is proved")
    refused(lambda part: part["pieces"].pop(), "shorter")
    refused(lambda part: part["pieces"].append(part["pieces"][0]), "longer")
    refused(lambda part: part["pieces"].__setitem__(0, part["pieces"][1]), "misses its inequality|is proved")
    refused(lambda part: part.__setitem__("event", [first[0], first[1] + 0.2]), "misses its inequality|is proved")
    refused(lambda part: part.__setitem__("event", [first[0], first[1] - 0.2]), "misses its inequality|is proved")
    refused(lambda part: part.__setitem__("event", [10**6, first[1]]), "does not vary")
    refused(lambda part: part.__setitem__("event", [-1, first[1]]), "does not vary")
    refused(lambda part: part.pop("event"), "functions")
    refused(lambda part: leaves(part)[0].pop("functions"), "functions")
    refused(lambda part: part.__setitem__("split", [0, 0.5]), "does not fit|misses its inequality|is proved|outside")
    for k in range(len(leaves(proof["gain lower"]))):
        refused(lambda part, k=k: leaves(part)[k].__setitem__("empty", []), "a piece is not empty")


def test_every_piece_needs_its_own_cut(proved, monkeypatch):
    """A checker whose halves are the whole region refuses each of them."""
    proof = proved[1]
    with monkeypatch.context() as patch:
        patch.setattr(checker.Known, "sides", lambda self, f, end: [self, self])
        with pytest.raises(checker.Refused, match=r"misses its inequality|is proved"):
            checker.check(proof)


def test_there_are_only_so_many_pieces(proved, monkeypatch):
    monkeypatch.setattr(checker, "MOST_PIECES", 2)
    with pytest.raises(checker.Refused, match="more than 2 pieces"):
        checker.check(proved[1])
