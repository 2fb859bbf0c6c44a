"""Regions that are split by the chance of an event: the checker's halves, and forgeries of proofs that use them."""

import copy
import json
from fractions import Fraction

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


def test_an_end_beyond_the_interval_changes_nothing(proved):
    """All is on one side: the interval is not widened."""
    region = region_of(proved[1])
    f = next(iter(events(proved[1]["gain lower"])))["event"][0]
    for end, side in ((Fraction(2), 0), (Fraction(-1), 1)):
        assert region.sides(f, end)[side].cuts == region.cuts


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
