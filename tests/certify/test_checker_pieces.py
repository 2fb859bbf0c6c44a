"""Bounds and comparisons in pieces of a region, in the checker: each formula by itself, in plain fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from rpl_agent.guarantee import checker

#: Three expressions of two coordinates, over 4.
LINE = SimpleNamespace(den=4, dimension=2, terms=[[0, 4, 0], [0, 0, 4], [4, -4, -4]])


def fractions(*numbers: Any) -> list[Fraction]:
    return [Fraction(x) for x in numbers]


def box(*ends: tuple[Any, Any]) -> checker.Box:
    return checker.Box(LINE, [fractions(*pair) for pair in ends])


def ball() -> checker.Ball:
    return checker.Ball.__new__(checker.Ball)


# ---------------------------------------------------------------------- boxes
def test_expressions_in_coordinates_of_a_box():
    found = box(("1/8", "5/8"), (0, "1/2"))
    assert found.center == fractions("3/8", "1/4") and found.factor == [fractions("1/4", 0), fractions(0, "1/4")]
    for y in product((-1, 0, 1), repeat=2):
        x = [c + f[i] * y[i] for i, (c, f) in enumerate(zip(found.center, found.factor))]
        for f, (c, *w) in enumerate(LINE.terms):
            there = Fraction(found.p[f] + sum(s * k for s, k in zip(found.s[f], y)), found.den)
            assert there == Fraction(c, 4) + sum(Fraction(a, 4) * b for a, b in zip(w, x))


def test_the_most_of_a_linear_function():
    around = box((0, 1), (0, 1))
    assert checker.farthest(ball(), [3, -4]) == 6 and checker.farthest(None, []) == 0  # lengths are rounded up
    assert checker.farthest(around, [3, -4]) == 7 and checker.farthest(around, []) == 0


def test_the_most_of_a_quadratic_function():
    A, B = [[-2, 3], [3, 5]], [[7], [-1]]
    assert checker.highest(box((0, 1), (0, 1)), A, B) == 2 + (3 + 3) + 2 * (7 + 1)
    assert checker.highest(ball(), A, B) == 2 + 3 + 7
    assert checker.highest(ball(), [[0, 0], [0, 0]], [[5], [6]]) == 11  # a column of the whole matrix
    assert checker.highest(ball(), [], []) == checker.highest(box((0, 1), (0, 1)), [], []) == 0
    whole = [[-2, 3, 7], [3, 5, -1], [7, -1, 0]]
    values = [
        -sum(whole[i][j] * y[i] * y[j] for i, j in product(range(3), repeat=2)) for y in product((-1, 1), repeat=3)
    ]
    assert max(values) <= checker.highest(box((0, 1), (0, 1)), A, B)


def test_a_piece_is_split_inside_it():
    region = checker.Known.__new__(checker.Known)
    region.line, region.reach, region.cuts = LINE, [fractions(0, 1), fractions("1/4", "3/4")], ["cut"]  # type: ignore[assignment]
    low, high = region.halves(1, Fraction(1, 2))
    assert low.reach == [fractions(0, 1), fractions("1/4", "1/2")] and low.ball.center == fractions("1/2", "3/8")
    assert high.reach == [fractions(0, 1), fractions("1/2", "3/4")] and high.ball.center == fractions("1/2", "5/8")
    assert low.cuts is high.cuts is region.cuts and region.reach[1] == fractions("1/4", "3/4")
    first, second = region.halves(0, Fraction(1, 3))
    assert [first.reach[0], second.reach[0]] == [fractions(0, "1/3"), fractions("1/3", 1)]
    assert first.reach[1] == second.reach[1] == fractions("1/4", "3/4")
    for i, end in ((1, "1/4"), (1, "3/4"), (1, "1/5"), (1, "4/5"), (0, 0), (0, 1), (2, "1/2"), (-1, "1/2")):
        with pytest.raises(checker.Refused, match="a piece is split outside it"):
            region.halves(i, Fraction(end))


@pytest.mark.parametrize(("around", "length"), [(box((0, 1), (0, 1)), 5), (ball(), 4)])
def test_the_bound_at_the_start_of_a_piece(around, length):
    """v + g·y with g = (4, −1) is at most v + 5 on a box, at most v + √17 on a ball; with a cut of 2 x₁ ≤ 3, less."""
    around.center, around.factor = fractions("1/2", "1/2"), [fractions("1/2", 0), fractions(0, "1/2")]
    known = {0: (fractions(0, 0), Fraction(0)), 1: (fractions(2, 0), Fraction(3))}
    region = SimpleNamespace(ball=around, joined=lambda given: known[len(given)])
    claim = SimpleNamespace(
        region=region, ball=around, U=[[(10, [4, -1])]], den=1, model=SimpleNamespace(initial=0), side="upper"
    )
    assert length <= checker.at_most([claim], []) - 10 < length + 2
    rest = [Fraction(4) - 1, Fraction(-1)]
    by_cut = sum(map(abs, rest)) if length == 5 else checker.norm_up(rest)
    assert checker.at_most([claim], [[0, 1]]) == 10 + 3 - 1 + by_cut


# ---------------------------------------------------------------------- trees of pieces
class Piece:
    """A region that knows its name, how far it is from empty, and its halves."""

    def __init__(self, name: str, most: int = 1) -> None:
        self.name, self.reach, self.left = name, [None, None], most

    def halves(self, i: int, end: Fraction) -> list[Piece]:
        return [Piece(f"{self.name}{i}<{end} "), Piece(f"{self.name}{i}>{end} ", -1)]

    def most(self, h: list[Fraction], multipliers: list[Any]) -> Fraction:
        assert h == fractions(0, 0)
        return Fraction(self.left * len(multipliers))


OBJECTIVE = SimpleNamespace(maximising=True, off=lambda bound, error, upper: bound + error if upper else None)


@pytest.fixture
def statement(monkeypatch) -> Any:
    """One whose functions are names, each with a number that it proves."""

    class Named:
        def __init__(self, region: Piece, policy: Any, upper: bool, given: Any, objective: Any) -> None:
            self.region, self.policy, self.upper, self.given, self.objective = region, policy, upper, given, objective
            self.checked = False

        def bound(self) -> Any:
            self.checked = True
            return self.given["values"][-1] if isinstance(self.given, dict) else None

        def at_start(self) -> Fraction:
            return Fraction(self.given)

    def at_most(claims: list[Any], start: Any) -> Fraction:
        assert all(claim.checked for claim in claims)
        return Fraction(claims[0].given - claims[1].given)

    monkeypatch.setattr(checker, "Claim", Named)
    monkeypatch.setattr(checker, "at_most", at_most)
    found = checker.Statement.__new__(checker.Statement)
    whole = Piece("")
    found.objective, found.region = OBJECTIVE, {7: whole}.__getitem__  # type: ignore[assignment, method-assign]
    found.claims, found.proof, found.error, found.limits = {}, {"claim": {}}, Fraction(0), []
    found.found, found.given, found.policy, found.baseline = {}, False, "mine", None  # type: ignore[assignment]
    return found


def leaf(upper: int, lower: int) -> dict[str, Any]:
    return {"functions": [upper, lower], "start": []}


ASKED = (("upper", None), ("baseline lower", "mine"))


def test_pieces_are_halves_of_halves(statement):
    empty = {"empty": [[0, 1.0]]}
    part = {"region": 7, "split": [0, 0.5], "pieces": [{"split": [1, 0.25], "pieces": [leaf(3, 1), empty]}, leaf(9, 2)]}
    found = statement.differences(part, *ASKED)
    assert [most for most, _ in found] == [2, 7]
    assert [claims[0].region.name for _, claims in found] == ["0<1/2 1<1/4 ", "0>1/2 "]
    (_, (upper, lower)), _ = found
    assert (upper.policy, upper.upper, lower.policy, lower.upper) == (None, True, "mine", False)
    assert upper.objective is lower.objective is OBJECTIVE
    for pieces in ([leaf(3, 1)], [leaf(3, 1)] * 3):
        with pytest.raises(ValueError, match="zip"):
            statement.differences({"region": 7, "split": [0, 0.5], "pieces": pieces}, *ASKED)
    with pytest.raises(ValueError, match="zip"):
        statement.differences({"region": 7} | leaf(3, 1), *ASKED[:1])


def test_empty_pieces_are_proved_to_be_empty(statement):
    part = {"region": 7, "split": [0, 0.5], "pieces": [leaf(3, 1), {"empty": [[0, 1.0]]}]}
    assert len(statement.differences(part, *ASKED)) == 1
    for multipliers in ([],):  # the cuts leave 0, which is not less than 0
        part["pieces"][1]["empty"] = multipliers
        with pytest.raises(checker.Refused, match="a piece is not empty"):
            statement.differences(part, *ASKED)
    part["pieces"] = [{"empty": [[0, 1.0]]}, leaf(3, 1)]
    with pytest.raises(checker.Refused, match="a piece is not empty"):
        statement.differences(part, *ASKED)
    nothing = SimpleNamespace(most=lambda h, multipliers: Fraction(-1, 2), reach=[None, None])
    statement.region = {7: nothing}.__getitem__
    with pytest.raises(checker.Refused, match="all pieces of the region are empty"):
        statement.differences({"region": 7, "empty": [[0, 1.0]]}, *ASKED)


def test_the_number_of_pieces_is_bounded(statement, monkeypatch):
    monkeypatch.setattr(checker, "MOST_PIECES", 3)

    def split(times: int) -> dict[str, Any]:
        return {"split": [0, 0.5], "pieces": [split(times - 1), leaf(3, 1)]} if times else leaf(3, 1)

    for _ in range(2):  # each comparison has as many
        assert len(statement.differences({"region": 7} | split(2), *ASKED)) == 3
    with pytest.raises(checker.Refused, match="more than 3 pieces"):
        statement.differences({"region": 7} | split(3), *ASKED)


def test_functions_of_bounds_are_those_of_the_same_value(statement):
    whole = statement.region(7)
    own = checker.Claim(whole, "mine", False, 4, OBJECTIVE)  # type: ignore[arg-type]
    own.checked = True  # type: ignore[attr-defined]
    statement.claims["baseline lower"] = own
    ((most, claims),) = statement.differences({"region": 7, "functions": [9, None], "start": []}, *ASKED)
    assert most == 5 and claims[1] is own
    others = ((Piece(""), "mine", OBJECTIVE), (whole, "other", OBJECTIVE), (whole, "mine", SimpleNamespace()))
    for region, policy, objective in others:
        statement.claims["baseline lower"] = checker.Claim(region, policy, False, 4, objective)  # type: ignore[arg-type]
        with pytest.raises(checker.Refused, match="the baseline lower bound is used, and there is none on this value"):
            statement.differences({"region": 7, "functions": [9, None], "start": []}, *ASKED)
    with pytest.raises(checker.Refused, match="the upper bound is used, and there is none on this value"):
        statement.differences({"region": 7, "functions": [None, 4], "start": []}, *ASKED)


# ---------------------------------------------------------------------- what pieces prove together
SPLIT = {"region": 7, "split": [0, 0.5], "pieces": [leaf(9, 8), leaf(5, 3)]}


def proved(statement: Any, **parts: Any) -> Fraction | None:
    statement.proof = {"claim": {}} | parts
    statement.found = {"lower proved": None, "upper proved": None} | statement.found
    statement.regret()
    return statement.found["regret proved"]


def test_the_regret_is_that_of_the_worst_piece(statement):
    assert proved(statement, regret=SPLIT) == 2
    statement.found = {"lower proved": Fraction(1), "upper proved": Fraction(2)}
    assert proved(statement, regret=SPLIT) == 1  # the gap of the bounds is less
    statement.found, statement.given = {"lower proved": Fraction(1), "upper proved": Fraction(2)}, True
    assert proved(statement) is None  # of a policy that was given, the gap says nothing
    statement.given = False
    assert proved(statement) == 1
    statement.found = {"lower proved": Fraction(1), "upper proved": None}
    assert proved(statement) is None


def test_a_regret_is_not_negative(statement):
    assert proved(statement, regret={"region": 7} | leaf(3, 4)) == 0


def test_errors_of_rewards_move_both_values_of_a_regret(statement):
    statement.error = Fraction(1, 4)
    assert proved(statement, regret=SPLIT) == 2 + 2 * Fraction(1, 4)
    statement.objective = SimpleNamespace(maximising=True, off=lambda bound, error, upper: bound * (1 + error))
    assert proved(statement, regret=SPLIT) == max(1 + 2 * Fraction(9, 4), 2 + 2 * Fraction(5, 4))


def test_limits_have_no_functions_of_regret(statement):
    statement.limits = ["one"]
    with pytest.raises(checker.Refused, match="the regret among policies that keep limits is the gap"):
        proved(statement, regret=SPLIT)


@pytest.mark.parametrize("maximising", [True, False])
def test_who_is_compared_in_a_regret(statement, maximising, monkeypatch):
    """Every policy (None) from above and the policy from below; where costs are minimised, the other way round."""
    seen: list[Any] = []
    monkeypatch.setattr(checker, "check_optimal", lambda best, mine, fates: seen.append((best, mine, fates)))
    statement.objective = SimpleNamespace(maximising=maximising, off=OBJECTIVE.off)
    assert proved(statement, regret={"region": 7, "fates": "fates"} | leaf(9, 4)) == 0
    ((best, mine, fates),) = seen
    assert (best.policy, mine.policy, fates) == (None, "mine", "fates") and best.upper is maximising is not mine.upper
    statement.proof["claim"] = {"optimal": True}
    statement.regret()
    assert statement.found["optimal"] is True
    with pytest.raises(ValueError, match="unpack"):  # of several pieces none is proved
        proved(statement, regret=SPLIT | {"fates": "fates"})
    statement.error = Fraction(1, 100)
    with pytest.raises(checker.Refused, match="leaves no policy optimal"):
        proved(statement, regret={"region": 7, "fates": "fates"} | leaf(9, 4))
    statement.error = Fraction(0)
    with pytest.raises(checker.Refused, match="claimed to be optimal: that is not proved"):
        proved(statement, regret={"region": 7} | leaf(9, 4), claim={"optimal": True})


@pytest.mark.parametrize("maximising", [True, False])
def test_gains_are_those_of_the_worst_piece(statement, maximising):
    """V(π) − V(β) from 3 to 20 by bounds; in pieces the difference of the functions is at most 1 and 2."""
    statement.objective = SimpleNamespace(maximising=maximising, off=OBJECTIVE.off)
    statement.baseline, statement.given = "base", True
    ends = {"lower": 10, "upper": 21, "baseline lower": 1, "baseline upper": 7}
    statement.found = {f"{name} proved": Fraction(x) for name, x in ends.items()}
    statement.gain()
    found = [statement.found[f"gain {side} proved"] for side in ("lower", "upper")]
    assert found == ([3, 20] if maximising else [1 - 21, 7 - 10])
    statement.proof = {"claim": {}, "gain lower": SPLIT, "gain upper": SPLIT}
    statement.gain()
    found = [statement.found[f"gain {side} proved"] for side in ("lower", "upper")]
    assert found == ([3, 2] if maximising else [-2, -3])
    statement.found["upper proved"] = statement.found["baseline upper proved"] = None
    statement.proof = {"claim": {}}
    statement.gain()
    assert [statement.found[f"gain {side} proved"] for side in ("lower", "upper")] == [None, None]
    statement.baseline, statement.found = None, {}
    statement.gain()
    assert statement.found == {}


# ---------------------------------------------------------------------- bounds in pieces
def values(*numbers: int) -> dict[str, Any]:
    return {"values": [Fraction(x) for x in numbers]}


def bounded(statement: Any, part: dict[str, Any], upper: bool, horizon: int | None = None) -> Fraction:
    """The bound that a part of the file proves."""
    name, objective = "upper" if upper else "lower", SimpleNamespace(**vars(OBJECTIVE), horizon=horizon)
    objective.is_reach = objective.is_positive = False
    objective.off = lambda bound, error, upper: bound + error if upper else bound - error
    statement.proof = {"claim": {}, name: part}
    statement.bound(name, objective, "mine", upper)
    return statement.found[f"{name} proved"]


HALVES = {"region": 7, "split": [0, 0.5], "pieces": [values(5), values(3)]}


@pytest.mark.parametrize(("upper", "worst"), [(True, 5), (False, 3)])
def test_the_bound_is_that_of_the_worst_piece(statement, upper, worst):
    assert bounded(statement, HALVES, upper) == worst
    assert bounded(statement, HALVES | {"pieces": HALVES["pieces"][::-1]}, upper) == worst
    assert bounded(statement, {"region": 7} | values(4), upper) == 4  # the whole region is one piece
    statement.error = Fraction(1, 4)
    assert bounded(statement, HALVES, upper) == worst + (Fraction(1, 4) if upper else -Fraction(1, 4))


def test_each_piece_of_a_bound_has_its_own_half(statement, monkeypatch):
    seen = list[Any]()
    known = checker.Claim

    def noted(*given: Any) -> Any:
        seen.append(known(*given))
        return seen[-1]

    monkeypatch.setattr(checker, "Claim", noted)
    deeper = {"split": [1, 0.25], "pieces": [values(5), {"empty": [[0, 1.0]]}]}
    assert bounded(statement, HALVES | {"pieces": [deeper, values(3)]}, True) == 5
    assert [claim.region.name for claim in seen] == ["0<1/2 1<1/4 ", "0>1/2 "]
    assert all(claim.checked and claim.policy == "mine" and claim.upper for claim in seen)
    assert statement.claims["upper"] is seen[0]


@pytest.mark.parametrize("pieces", [[values(3)], [values(3)] * 3, []])
def test_no_piece_of_a_bound_may_be_missing(statement, pieces):
    with pytest.raises(ValueError, match="zip"):
        bounded(statement, HALVES | {"pieces": pieces}, True)


def test_a_piece_of_a_bound_is_not_left_out_as_empty(statement):
    with pytest.raises(checker.Refused, match="a piece is not empty"):
        bounded(statement, HALVES | {"pieces": [{"empty": [[0, 1.0]]}, values(3)]}, True)
    nothing = SimpleNamespace(most=lambda h, multipliers: Fraction(-1, 2), reach=[None, None])
    statement.region = {7: nothing}.__getitem__
    with pytest.raises(checker.Refused, match="all pieces of the region are empty"):
        bounded(statement, {"region": 7, "empty": [[0, 1.0]]}, True)


def test_steps_are_counted_before_a_region_is_made(statement):
    statement.region = None  # would fail
    with pytest.raises(checker.Refused, match="values of a wrong number of steps"):
        bounded(statement, {"region": 7} | values(4, 5), True, horizon=2)
    statement.region = {7: Piece("")}.__getitem__
    assert bounded(statement, {"region": 7} | values(4, 5, 6), True, horizon=2) == 6
    assert bounded(statement, HALVES | {"pieces": [values(1, 2, 5), values(0, 0, 7)]}, True, horizon=2) == 7


def test_the_function_of_a_piece_is_not_one_of_the_region(statement):
    bounded(statement, HALVES, True)
    statement.claims["upper"].policy = None
    statement.claims["upper"].objective = statement.objective
    part = {"region": 7, "functions": [None, 1], "start": []}
    with pytest.raises(checker.Refused, match="the upper bound is used, and there is none on this value"):
        statement.differences(part, *ASKED)
    again = {"region": 7, "split": [0, 0.5], "pieces": [part, part]}  # the same halves, of another tree
    with pytest.raises(checker.Refused, match="the upper bound is used, and there is none on this value"):
        statement.differences(again, *ASKED)
