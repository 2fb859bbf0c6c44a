"""Plays that never end, by exhaustion: whatever the checker accepts about tiny models is true, by exact values.

A model has two states that are open, a goal and a state where all is lost; loops cost or pay something or nothing, and
a probability may be 0. Every pair of values from a grid is claimed of it, with every rank: most of them are false, and
many solve the equations of the values where plays need not end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from rpl_agent.guarantee import checker
from tests.reference.oracle import Distribution, Number, Question, Undefined, best_values, policy_values

GOAL, LOST = 2, 3
GRID = (None, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)
RANKS = ([0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0])
#: Expressions: 1, 1/2, p and 1 − p.
EXPRESSIONS = [[[1, []]], [["1/2", []]], [[1, [[0, 1]]]], [[1, []], [-1, [[0, 1]]]]]
BOXES = ((0.0, 1.0), (0.0, 0.5), (0.25, 0.75))
#: One state to its classes, with delays of either state, or none.
FATES = [
    [list(first), list(second), [GOAL, 0], [LOST, 0]]
    for first, second in product(product((0, 1, GOAL, LOST), (0, 1, 2)), repeat=2)
]
Row = tuple[tuple[int, int], ...]  # (successor, expression), …


def some_rows() -> list[Row]:
    states = range(4)
    pairs = [(s, t) for s in states for t in states if s != t]
    return [((s, 0),) for s in states] + [((s, a), (t, b)) for s, t in pairs for a, b in ((1, 1), (2, 3))]


@dataclass
class Tiny:
    """Rows of the open states with what they pay, and what is asked."""

    rows: list[list[tuple[Row, float]]]
    box: tuple[float, float]
    asked: dict[str, Any]

    @classmethod
    def drawn(cls, draw: random.Random, paid: tuple[float, ...], asked: dict[str, Any]) -> Tiny:
        rows = [[(draw.choice(some_rows()), draw.choice(paid)) for _ in range(draw.randint(1, 2))] for _ in range(2)]
        return cls(rows, draw.choice(BOXES), asked)

    def proof(self) -> dict[str, Any]:
        rows = [*self.rows, [(((GOAL, 0),), 0.0)], [(((LOST, 0),), 0.0)]]
        flat = [row for choices in rows for row in choices]
        used = sorted({f for moves, _ in flat for _, f in moves})
        model = {
            "name": "tiny",
            "hash": "",
            "initial": 0,
            "silent": [],
            "coordinates": None,
            "state_ptr": [sum(map(len, rows[:s])) for s in range(5)],
            "row_ptr": [sum(len(moves) for moves, _ in flat[:r]) for r in range(len(flat) + 1)],
            "successor": [t for moves, _ in flat for t, _ in moves],
            "expression": [used.index(f) for moves, _ in flat for _, f in moves],
            "expressions": [EXPRESSIONS[f] for f in used],
            "parameters": ["p"],
            "lower": [self.box[0]],
            "upper": [self.box[1]],
            "labels": {"goal": [GOAL], "lost": [LOST]},
            "rewards": {"r": {"state": [], "row": [[r, paid] for r, (_, paid) in enumerate(flat)]}},
            "action": [0] * len(flat),
            "actions": ["a"],
        }
        data = {"transitions": [], "schedule": "planned", "planned": 0, "marks": []}
        return {
            "format": checker.FORMAT,
            "model": model,
            "objective": self.asked,
            "data": data,
            "delta": 0.1,
            "confidence": "likelihood",
            "evaluated": False,
            "reward_error": 0,
            "claim": {},
            "policy": {"rules": [[rows[0] and 0, len(rows[0]), len(flat) - 2, len(flat) - 1]], "weights": None},
            "regions": [{"data": None, "likelihood": None, "ends": {}}],
        }

    def at(self, p: Fraction) -> list[list[list[Distribution]]]:
        chance = [Fraction(1), Fraction(1, 2), p, 1 - p]
        rows = [[[{t: chance[f] for t, f in moves}] for moves, _ in choices] for choices in self.rows]
        return [*rows, [[{GOAL: Fraction(1)}]], [[{LOST: Fraction(1)}]]]

    def question(self) -> Question:
        kind = self.asked["kind"]
        if kind == "reward" and self.asked.get("unreached") == "infinite":
            kind = "cost"
        paid = tuple(tuple(Fraction(r) for _, r in choices) for choices in self.rows)
        avoid = frozenset({LOST} if self.asked.get("avoid") else ())
        most = self.asked["sense"] == "max"
        none = (Fraction(0),)
        return Question(kind, frozenset({GOAL}), avoid, (*paid, none, none), Fraction(1), None, most, most)

    def policies(self) -> list[list[tuple[Fraction, ...]]]:
        """Weights of rows: all that are deterministic, and the one that plays everything."""
        fixed, both = (Fraction(1),), [(Fraction(1, len(choices)),) * len(choices) for choices in self.rows]
        ways = [[tuple(Fraction(a == k) for a in range(len(c))) for k in range(len(c))] for c in self.rows]
        return [[*pair, fixed, fixed] for pair in product(*ways)] + [[*both, fixed, fixed]]

    def points(self) -> list[Fraction]:
        low, high = map(Fraction, self.box)
        return [low, (low + high) / 2, high]


def refusal_of(claim: checker.Claim) -> str:
    """Why a claim is refused; nothing if it is accepted."""
    try:
        claim.bound()
    except checker.Refused as refused:
        return str(refused)
    return ""


def is_true(claim: checker.Claim, values: list[list[Number] | None]) -> bool:
    """Whether the numbers bound the values at all points; None: a sum without a limit, of which nothing is true."""
    for s, U in enumerate(claim.U[0]):
        if U is None:
            continue
        bound = claim.sign * Fraction(U[0], claim.den)
        for found in values:
            if found is None or (bound < found[s] if claim.upper else bound > found[s]):
                return False
    return True


def of_policies(tiny: Tiny, weights: list[tuple[Fraction, ...]] | None) -> list[list[Number] | None]:
    """Values of a policy or the best one, at each point."""
    question, found = tiny.question(), list[list[Number] | None]()
    for p in tiny.points():
        try:
            rows = tiny.at(p)
            found.append(best_values(rows, question) if weights is None else policy_values(rows, question, weights))
        except Undefined:
            found.append(None)
    return found


def claims(statement: checker.Statement, policy: checker.Policy | None, upper: bool) -> list[checker.Claim]:
    """Those that are accepted."""
    found, asked = [], statement.objective
    ends = [[float(asked.is_reach)], None if asked.is_signed or asked.must_reach else [0.0]]  # plays stay in the last
    for first, second in product(GRID, GRID):
        values = [*(None if v is None else [v] for v in (first, second)), *ends]
        for rank in RANKS:
            claim = checker.Claim(statement.region(0), policy, upper, {"values": values, "rank": rank}, asked)
            refusal = refusal_of(claim)
            found += [] if refusal else [claim]
            if refusal and "plays may stay forever" not in refusal:
                break  # an inequality does not hold, which no other rank mends
    return found


ASKED = {
    f"{sense} {kind}{' avoiding' * bool(more.get('avoid'))} {more.get('unreached', '')} {min(paid):g}": (
        {"kind": kind, "sense": sense, "target": "goal", "reward_name": "r"} | more,
        paid,
    )
    for sense in ("max", "min")
    for kind, more, paid in (
        ("reach", {}, (0.0,)),
        ("reach", {"avoid": "lost"}, (0.0,)),
        ("reward", {"unreached": "accumulate"}, (0.0, 0.0, 1.0)),
        ("reward", {"unreached": "infinite"}, (0.0, 0.0, 1.0)),
        ("reward", {"unreached": "accumulate"}, (0.0, -1.0, 1.0)),
        ("reward", {"unreached": "infinite"}, (0.0, -1.0, 1.0)),
    )
}


def examine(tiny: Tiny, draw: random.Random, fates: int) -> tuple[int, int]:
    """Check all that is accepted; (number of bounds, number of policies that are proved optimal)."""
    proof = tiny.proof()
    statement, optimal = checker.Statement(proof), 0
    most, best = tiny.asked["sense"] == "max", of_policies(tiny, None)
    every = {upper: claims(statement, None, upper) for upper in (True, False)}
    for claim in every[most]:
        assert is_true(claim, best), (tiny, claim.U, claim.rank)
    count = len(every[most])
    for weights in tiny.policies():
        flat = [float(w) for choices in weights for w in choices]
        policy, own = checker.Policy(statement.model, {"rules": None, "weights": flat}), of_policies(tiny, weights)
        mine = {upper: claims(statement, policy, upper) for upper in (True, False)}
        for claim in mine[True] + mine[False]:
            assert is_true(claim, own), (tiny, flat, claim.U, claim.rank)
        count += len(mine[True]) + len(mine[False])
        pairs = [(a, b) for a in every[most] for b in mine[not most]]
        for a, b in draw.sample(pairs, min(fates, len(pairs))):
            for given in draw.sample(FATES, 12) + [[[s, 0] for s in range(4)]]:
                try:
                    checker.check_optimal(a, b, given)
                except (checker.Refused, KeyError):
                    continue
                optimal += 1
                for x, y in zip(best, own):
                    assert x is not None and y is not None and x[0] == y[0], (tiny, flat, a.U, b.U, given)
    return count, optimal


@pytest.mark.parametrize("name", ASKED)
def test_what_is_accepted_about_tiny_models_is_true(name, sized):
    asked, paid = ASKED[name]
    bounds = optimal = seed = 0
    while bounds < sized(300, 20_000) or optimal < sized(10, 500):
        draw = random.Random(f"{name} {seed}")
        more = examine(Tiny.drawn(draw, paid, asked), draw, 6)
        bounds, optimal, seed = bounds + more[0], optimal + more[1], seed + 1
