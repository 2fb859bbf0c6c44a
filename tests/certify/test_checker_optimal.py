"""Optimality in the checker, condition by condition, on a model of five states."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from rpl_agent.guarantee import checker

#: 0 → 1, or by its second row → 3; 1 → 2 or 4; 3 → 2 or 4, by two transitions each; 2 and 4 are decided, and lead to 5.
MOVES = [[(1, 0)], [(3, 0)], [(2, 1), (4, 1)], [(2, 2), (2, 2), (4, 2), (4, 2)], [(5, 0)], [(5, 0)], [(5, 0)]]
ROWS_OF = [range(2), range(2, 3), range(4, 5), range(3, 4), range(5, 6), range(6, 7)]
ROW_STATE = [0, 0, 1, 3, 2, 4, 5]
TABLE = [{(): Fraction(1)}, {(): Fraction(1, 2)}, {(): Fraction(1, 4)}]
FATES = [[7, 0], [8, 0], [9, 0], [8, 0], [6, 0], [3, 1]]  # what 5 is does not matter: no play gets there


def optimal(
    left: int = 1, values: dict[int, Any] | None = None, active: set[int] | None = None, fates: Any = None,
    rewards: dict[int, int] | None = None, moves: dict[int, Any] | None = None, plays: Any = None, ball: Any = None,
    own_ball: Any = None, factor: Any = None, decided: dict[int, int] | None = None, **asked: Any,
) -> list[Any]:  # fmt: skip
    """Check it; ``left`` is by how much the second row of 0 may be better. Returns what was asked about rows."""
    seen: list[Any] = []
    model = SimpleNamespace(
        states=6, initial=0, rows_of=ROWS_OF, row_state=ROW_STATE, table=TABLE, name=[f"row {k}" for k in range(7)],
        moves=[(moves or {}).get(row, there) for row, there in enumerate(MOVES)],
    )  # fmt: skip
    ends = {s: Fraction(x) for s, x in (decided or {2: 0, 4: 1}).items()}
    known = {"horizon": None, "discount": Fraction(1), "maximising": True, "is_signed": False, "must_reach": False}
    objective = SimpleNamespace(
        **(known | asked), decided=ends, reward=[Fraction((rewards or {}).get(row, 0)) for row in range(7)],
        factor=factor or (lambda s, t: 1),
    )  # fmt: skip

    def excess(*given: Any) -> Fraction:
        seen.append(given)
        return Fraction(left)

    best = SimpleNamespace(
        model=model,
        objective=objective,
        den=3,
        ball=ball,
        excess=excess,
        active={0, 1, 3} if active is None else active,
    )
    U = [(-5, []) for _ in range(6)]
    for s, value in (values or {}).items():
        U[s] = value
    rows = plays or {0: [(0, 1)]}
    played = lambda s, step: [rows.get(s, [(ROWS_OF[s][0], 1)])]  # noqa: E731
    mine = SimpleNamespace(U=[U], den=7, ball=own_ball if own_ball is not None else ball, played=played)
    checker.check_optimal(best, mine, FATES if fates is None else fates)  # type: ignore[arg-type]
    return seen


def refused(sentence: str, **changes: Any) -> None:
    with pytest.raises(checker.Refused, match=sentence):
        optimal(**changes)


def with_fate(state: int, fate: list[int]) -> list[list[int]]:
    return [fate if s == state else other for s, other in enumerate(FATES)]


def test_a_tie_does_what_its_class_does():
    optimal()
    refused("row 1 is neither beaten nor a tie", fates=with_fate(3, [5, 0]))
    refused("state 3 is not worth the same as its class", rewards={3: 1})
    refused("row 1 is neither beaten nor a tie", rewards={1: 1})
    optimal(rewards={0: 1, 1: 1, 2: 4, 3: 4})
    optimal(left=0, fates=with_fate(3, [5, 0]))  # a row that is beaten need not be a tie
    optimal(left=-1, rewards={1: 1})
    refused("state 3 is not worth the same", moves={3: [(2, 2), (4, 2), (4, 2), (4, 2)]})
    refused("state 4 is not worth the same as its class", fates=with_fate(4, [9, 0]))
    optimal(fates=with_fate(4, [9, 0]), decided={2: 1, 4: 1})


def test_a_tie_may_stay_in_its_class():
    optimal(moves={1: [(0, 0)]})
    refused("row 1 is neither beaten nor a tie", moves={1: [(0, 0)]}, rewards={1: 1})
    refused("row 1 is neither beaten nor a tie", moves={1: [(0, 1), (1, 1)]})


def test_a_state_may_delay_its_class():
    """0 leads to 1 for certain and pays nothing: it may be of the class of 1, one step before it."""
    sooner = [[8, 1], *FATES[1:]]
    optimal(fates=sooner)
    refused("state 0 is not worth the same as its class", fates=sooner, rewards={0: 1})
    refused("state 0 is not worth the same as its class", fates=[[8, 1], [8, 1], *FATES[2:]])
    refused("state 0 is not worth the same as its class", fates=[[9, 1], *FATES[1:]])
    half = {0: [(1, 1), (3, 1)]}
    optimal(fates=sooner, moves=half)
    refused("state 0 is not worth the same", fates=[[8, 1], FATES[1], FATES[2], [8, 1], *FATES[4:]], moves=half)


def test_discounts_are_part_of_what_a_row_does():
    half = {"discount": Fraction(1, 2)}
    optimal(**half, factor=lambda s, t: 1)
    refused("row 1 is neither beaten nor a tie", **half, factor=lambda s, t: 2 if t == 3 else 1)
    refused("state 3 is not worth the same", **half, factor=lambda s, t: 2 if s == 3 else 1)
    refused("row 1 is neither beaten nor a tie", **half, moves={1: [(0, 0)]})  # to wait is worth half


def test_what_is_compared_is_at_most_the_policy_s_own_value():
    """Rounded down, in whole numbers over the other's denominator: −3/7 of (10; 4, 0, −2)."""
    around = SimpleNamespace()
    (asked,) = optimal(values={0: (10, [4, 0, -2])}, ball=around)
    assert asked == ([(1, Fraction(1))], (-5 - 2, [-2, 0, 0]), 0)
    assert optimal(values={0: None}) == []  # without a number nothing is beaten
    refused("row 1 is neither beaten nor a tie", values={0: None}, left=-1, rewards={1: 1})


def test_what_is_covered():
    said = "optimality is covered for one row per state"
    refused(said, horizon=3)
    refused(said, fates=FATES[:-1])
    refused(said, fates=[*FATES, [1, 0]])
    refused(said, fates=with_fate(5, [3, 0.5]))
    refused(said, fates=with_fate(0, [7.0, 0]))
    refused(said, ball=SimpleNamespace(), own_ball=SimpleNamespace(other=1))
    refused(said, plays={1: [(2, Fraction(1, 2)), (3, Fraction(1, 2))]})


def test_ties_of_a_minimiser_must_not_be_played_forever():
    said = "ties may be played forever"
    least = {"maximising": False}
    optimal(**least)  # all states are left, by `plays_end`
    for value, good in (((1, []), False), ((0, []), True), ((-1, [1, 0]), False), ((-2, [1, 0]), True), (None, False)):
        given: dict[str, Any] = {"active": {0, 1}, "values": {3: value, 2: (9, []), 4: (9, [])}} | least
        if good:
            optimal(**given)
        else:
            refused(f"state 3: {said}", **given)
    far: dict[str, Any] = {"active": set(), "values": dict.fromkeys(range(6), (1, []))}
    refused(said, **far, **least)
    optimal(**far)
    optimal(**far, **least, must_reach=True)
    optimal(**far, **least, is_signed=True)
    optimal(**far, **least, discount=Fraction(1, 2))
    optimal(**far, **least, left=0)  # there is no tie
    refused(f"state 3: {said}", **least, must_reach=True, values={3: None})
    refused(f"state 3: {said}", **least, values={3: None})
