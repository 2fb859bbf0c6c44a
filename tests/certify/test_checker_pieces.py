"""Comparisons in pieces of a region: proofs from few data, and pieces that do not cover, or are not empty."""

from __future__ import annotations

import copy
import json
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.improvement_worlds import TRUTH, cliff_grid, logged, softened
from rpl_agent.core.model import Objective, Policy
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.claims.improvement import improve
from rpl_agent.guarantee.proof import prove, stated
from rpl_agent.guarantee.shown import true_value
from rpl_agent.guarantee.verify import verify_improvement

GAIN = Objective.discounted("gain", 0.99, target="end")
NAME = "gain lower"


@pytest.fixture(scope="module")
def made() -> SimpleNamespace:
    """Ten episodes of the cliff grid's baseline, and the improvement that they prove."""
    pmdp = cliff_grid()
    theta = np.array([TRUTH[name] for name in pmdp.table.parameters])
    baseline = softened(pmdp, solve_at(pmdp, theta, GAIN).policy, 0.2)
    counts = logged(pmdp, theta, GAIN, baseline, 10, 0)
    found = improve(pmdp, counts, GAIN, baseline)
    proof = json.loads(json.dumps(prove(pmdp, counts, found)))
    return SimpleNamespace(
        pmdp=pmdp, theta=theta, counts=counts, baseline=baseline, found=stated(found, proof), proof=proof
    )


def nodes(part: dict[str, Any]) -> list[dict[str, Any]]:
    return [part, *(node for piece in part.get("pieces", []) for node in nodes(piece))]


def leaves(part: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [node for node in nodes(part) if kind in node]


def refused(proof: dict[str, Any], sentence: str) -> None:
    with pytest.raises(checker.Refused, match=sentence):
        checker.check(proof)


@pytest.fixture
def proof(made) -> dict[str, Any]:
    return copy.deepcopy(made.proof)


def test_ten_episodes_prove_an_improvement_of_six(made):
    told, found = checker.check(made.proof), made.found
    assert 6.0 <= found.lower == told[NAME] <= told[f"{NAME} proved"] and found.proved
    assert len(leaves(made.proof[NAME], "functions")) > 2 and leaves(made.proof[NAME], "empty")
    values = [true_value(made.pmdp, GAIN, policy, made.theta) for policy in (found.policy, made.baseline)]
    assert found.lower <= values[0] - values[1] <= found.upper
    assert not verify_improvement(found, made.pmdp, made.counts).problems


def test_every_piece_is_needed(proof):
    part = next(node for node in leaves(proof[NAME], "split") if all("functions" in x for x in node["pieces"]))
    part["pieces"].pop()
    with pytest.raises(ValueError, match="zip"):
        checker.check(proof)


def test_a_piece_with_functions_is_not_empty(proof):
    several = leaves(proof[NAME], "functions")
    multipliers = leaves(proof[NAME], "empty")[0]["empty"]
    several[0].clear()
    several[0]["empty"] = multipliers
    refused(proof, "a piece is not empty")


def test_multipliers_of_empty_pieces_are_not_negative(proof):
    for pair in leaves(proof[NAME], "empty")[0]["empty"]:
        pair[1] = -pair[1]
    refused(proof, "a multiplier is negative")


def test_functions_hold_in_their_own_piece_only(proof):
    """The halves of one split, exchanged: each function is right in the other piece."""
    split = next(node for node in leaves(proof[NAME], "split") if all("functions" in x for x in node["pieces"]))
    split["pieces"].reverse()
    refused(proof, "misses its inequality|is claimed, but")


@pytest.mark.parametrize("axis", [-1, 2, 7])
def test_pieces_are_split_along_a_coordinate(proof, axis):
    proof[NAME]["split"][0] = axis
    refused(proof, "split outside")


@pytest.mark.parametrize("end", [-0.5, 0.0, 0.45, 2.0])
def test_pieces_are_split_inside(proof, end):
    proof[NAME]["split"][1] = end
    refused(proof, "split outside")


def test_a_moved_split_needs_other_functions(proof):
    split = next(node for node in leaves(proof[NAME], "split") if all("functions" in x for x in node["pieces"]))
    low, high = (x[1] for x in [node["split"] for node in leaves(proof[NAME], "split")][:2])
    split["split"][1] += 0.01 * abs(high - low)
    refused(proof, "misses its inequality|is claimed, but|split outside")


def test_the_worst_piece_counts(proof):
    claimed = proof["claim"][NAME]
    proof["claim"][NAME] = claimed + 1.0
    refused(proof, "is claimed, but")


def test_functions_of_the_whole_region_do_not_serve_a_piece(proof):
    leaves(proof[NAME], "functions")[0]["functions"][0] = None
    refused(proof, "there is none on this value")


def test_the_number_of_pieces_is_limited(proof, monkeypatch):
    splits = len(leaves(proof[NAME], "split"))
    monkeypatch.setattr(checker, "MOST_PIECES", splits + 1)
    checker.check(proof)
    monkeypatch.setattr(checker, "MOST_PIECES", splits)
    refused(proof, "more than .* pieces")


def test_something_must_be_left(made, proof):
    """A region all of whose pieces are empty: cuts that contradict each other are no proof of anything."""
    empty = {"empty": leaves(proof[NAME], "empty")[0]["empty"]}
    statement = checker.Statement(proof)
    region = statement.region(0)
    region.most = lambda h, multipliers: Fraction(-1)  # type: ignore[method-assign]
    with pytest.raises(checker.Refused, match="all pieces of the region are empty"):
        statement.differences({"region": 0, **empty})


def test_a_policy_is_proved_optimal_over_one_piece_only(made):
    """With fates there has to be one pair of functions."""
    statement = checker.Statement(made.proof)
    statement.bounds()
    statement.proof = made.proof | {"regret": {"fates": [], "region": 0}}
    statement.differences = lambda *asked: [(Fraction(0), [statement.claims["lower"]] * 2)] * 2  # type: ignore
    with pytest.raises(ValueError, match="unpack"):
        statement.regret()


# ---------------------------------------------------------------------- boxes
LINE = SimpleNamespace(dimension=2, den=10, terms=[[1, 2, 0], [3, -2, 4]])


def test_a_box_is_a_frame():
    box = checker.Box(LINE, [[Fraction(1, 4), Fraction(3, 4)], [Fraction(-1), Fraction(2)]])  # type: ignore[arg-type]
    assert box.center == [Fraction(1, 2)] * 2 and box.factor == [[Fraction(1, 4), 0], [0, Fraction(3, 2)]]
    for f, (c, *w) in enumerate(LINE.terms):
        for y in ((0, 0), (1, -1), (-1, 1)):
            x = [m + h[i] * t for i, (m, h, t) in enumerate(zip(box.center, box.factor, y))]
            found = Fraction(box.p[f] + sum(a * t for a, t in zip(box.s[f], y)), box.den)
            assert found == Fraction(c + sum(a * b for a, b in zip(w, x))) / LINE.den


@pytest.mark.parametrize("seed", range(20))
def test_quadratic_functions_on_a_box_are_bounded(seed):
    """By the largest of them at points of the box, the corners included."""
    rng = np.random.default_rng(seed)
    r, own = 3, int(rng.integers(1, 4))
    A = rng.integers(-9, 10, (own, own))
    A, B = A + A.T, rng.integers(-9, 10, (own, r - own))
    M = np.zeros((r, r), int)
    M[:own, :own], M[:own, own:], M[own:, :own] = A, B, B.T
    corners = np.array(np.meshgrid(*[[-1, 0, 1]] * r)).reshape(r, -1).T
    points = np.concatenate([corners, rng.uniform(-1, 1, (500, r))])
    box = checker.Box.__new__(checker.Box)
    most = checker.highest(box, A.tolist(), B.tolist())
    values = -np.einsum("ni,ij,nj->n", points, M, points)
    assert values.max() <= most <= np.abs(M).sum()
    if r == own and not (A - np.diag(np.diag(A))).any():
        assert most == max(values.max(), 0)
    g = rng.integers(-9, 10, r)
    assert checker.farthest(box, g.tolist()) == (points @ g).max()


def test_squares_help_on_their_own_side_only():
    box = checker.Box.__new__(checker.Box)
    assert checker.highest(box, [[-4]], [[]]) == 4 and checker.highest(box, [[4]], [[]]) == 0
    assert checker.highest(box, [[4, 1], [1, -3]], [[], []]) == 5
    assert checker.highest(box, [[0]], [[2, -3]]) == 10


def test_halves_are_all_of_a_region():
    region = checker.Known.__new__(checker.Known)
    region.reach, region.line = [[Fraction(0), Fraction(1)], [Fraction(2), Fraction(4)]], LINE  # type: ignore
    first, last = region.halves(1, Fraction(3))
    assert first.reach == [[0, 1], [2, 3]] and last.reach == [[0, 1], [3, 4]]
    assert region.reach == [[0, 1], [2, 4]] and isinstance(first.ball, checker.Box)
    assert first.ball.center == [Fraction(1, 2), Fraction(5, 2)]
    for axis, end in ((0, 0), (0, 1), (1, 2), (1, 4), (2, 3), (-1, 3)):
        with pytest.raises(checker.Refused, match="split outside"):
            region.halves(axis, Fraction(end))


def test_costs_and_totals_are_compared_in_pieces(made):
    """Minimising, without a discount: ranks show that plays end in each piece."""
    pmdp, steps = made.pmdp, Objective.parse("minimise steps until done")
    best = solve_at(pmdp, made.theta, steps).policy
    baseline = Policy.randomised(0.8 * best.as_weights(pmdp) + 0.2 * Policy.uniform(pmdp).as_weights(pmdp))
    counts = logged(pmdp, made.theta, steps, baseline, 25, 1)
    found = improve(pmdp, counts, steps, baseline, best)
    proof = prove(pmdp, counts, found)
    told = checker.check(json.loads(json.dumps(proof)))
    gain = true_value(pmdp, steps, baseline, made.theta) - true_value(pmdp, steps, best, made.theta)
    assert "split" in proof[NAME] and told[NAME] <= gain
    whole = {name: part for name, part in proof.items() if name != NAME} | {NAME: None}
    refused(whole, "is claimed, but")
