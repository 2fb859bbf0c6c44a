"""A checker for certificates of learned Markov decision processes: `python checker.py PROOF.json[.gz]`.

One file, Python's standard library, exact arithmetic (big integers and `fractions`), no imports from the package.
It reads a model M with unknown parameters θ, counted data, a policy π and a claim, and proves

    with probability ≥ 1 − δ over the data:   lower ≤ V(π)  and  V(best policy) ≤ upper       (maximising),
                                              lower ≤ V(best policy)  and  V(π) ≤ upper       (minimising),
                                              lower ≤ V(π) ≤ upper                            (a given policy),
                                              |V(best policy) − V(π)| ≤ regret                (always),
                                              V(best policy) = V(π)                           (if claimed: optimal),

with a baseline β bounds on V(β) and on π's gain over it, with limits bounds on each, for the best that keeps them all,

or names the first inequality that fails. It does not search: all values, centres and ranks are in the file.

Trusted: this file; that `model` (with the `start` of estimates), `objective`, `delta`, `confidence` (the method, chosen
before any data), `reward_error` and `data`, also those of earlier times in `regions`, are the reader's; and the
reader's assumptions: the data come from M[u] with one u in the domain, at which every expression is a probability;
given state and action the successor is drawn independently of everything before; marks were taken when their data
arrived, with their weight and the completed share of the plan. Actions and stopping may depend on the past.

Floats are exact dyadic numbers, irrational numbers are enclosed. Anything not covered is refused with a sentence.
The author of a file is not trusted: the sentence that is proved is printed with its question (objective, model, δ), and
the limits below bound the time and memory that a file can take.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import signal
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from copy import copy
from fractions import Fraction
from itertools import pairwise
from math import factorial, fsum, isqrt, lcm, prod, sqrt
from operator import mul
from typing import Any

FORMAT = "rpl-proof/10"
#: Scale of enclosures: a number t stands for t / 2^BITS.
BITS = 128
ONE = 1 << BITS
#: The shares of bets, the joint likelihood and intervals, in δ / 10,000, by method ("anytime" for models without
#: coordinates) and for a graph whose expressions are not trusted; the rest covers the rounding of 1/13 + 1/13 + …
SHARES = {"likelihood with bets": (7220, 2090, 190), "likelihood": (0, 9215, 285)}
SHARES |= {"likelihood of a table": (0, 4750, 4750), "anytime": (0, 0, 9500), "graph": (0, 0, 99)}
SHARES |= {"likelihood with bets, of blocks": (8000, 500, 1000)}
MOST_COORDINATES, MOST_OF_BLOCKS = 12, 64  # of a joint likelihood: with particles, and of all blocks
#: Points of a window's prior by coordinates (last entry: and more), and the steps of their sequence in each.
PARTICLES = (0, 64, 256, 512, 1024, 4096)
WALL = 0.1  # the weight of a row of the domain in estimates, in observations
STEPS = [sqrt(prime) for prime in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)]
#: Limits, far above what proofs need: of an unpacked file and its entries; of "p/q", of the degree of a monomial and of
#: a common denominator; of steps, and of steps times transitions; of marks; of logarithms for tangents or particles.
MOST_BYTES, MOST_ENTRIES = 1 << 27, 20_000_000
MOST_DIGITS, MOST_DEGREE, MOST_BITS = 1_000, 100, 1 << 14
MOST_STEPS, MOST_WORK, MOST_MARKS, MOST_LOGARITHMS = 100_000, 20_000_000, 1_000, 500_000
MOST_PIECES = 256  # of a region, in one bound or comparison
MOST_SHARED, MOST_PARTS = 1_000, 5_000_000  # expressions of a model in which unions are looked for, and looks
MOST_SLABS = 200  # of a ball
LONGEST = 300  # sentence, and name in it
BOX, SIDES = ("parameters", "lower", "upper"), (("lower", False), ("upper", True))


class Refused(Exception):
    """A sentence saying what is false, or not covered."""


#: Exceptions caused by a file that is not a proof.
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError, RecursionError)


def need(holds: bool, sentence: str) -> None:
    if not holds:
        raise Refused(sentence)


# ====================================================================== numbers
def exact(number: Any) -> Fraction:
    """The number in the file: an integer or a float, which is a dyadic number. Sums of many stay short."""
    need(isinstance(number, int | float) and not isinstance(number, bool), f"{number!r} is not a number")
    try:
        return Fraction(number)
    except (ValueError, OverflowError):
        raise Refused(f"{number!r} is not a finite number") from None


def ratios(numbers: list[Any]) -> list[Fraction]:
    """Coefficients of a model, which may also be "p/q"."""
    found = []
    for number in numbers:
        if not isinstance(number, str):
            found.append(exact(number))
            continue
        fits = len(number) <= MOST_DIGITS and re.fullmatch("-?[0-9]+/0*[1-9][0-9]*", number)
        need(bool(fits), f"{number[:99]!r} is not a number, or has more than {MOST_DIGITS:,} digits")
        found.append(Fraction(number))
    common_den(found)
    return found


def common_den(numbers: Any) -> int:
    """The least common denominator; refused if it is too long to compute with."""
    den = 1
    for other in {x.denominator for x in numbers}:
        den = lcm(den, other)
        need(den.bit_length() <= MOST_BITS, f"a common denominator has more than {MOST_BITS:,} bits")
    return den


def up(x: Fraction) -> int:
    """x rounded up to a multiple of 2^-BITS."""
    return -((-x.numerator << BITS) // x.denominator)


def down(x: Fraction) -> int:
    return (x.numerator << BITS) // x.denominator


def _atanh_series(n: int, d: int, bits: int) -> int:
    """2 atanh(n/d) · 2^bits for |n/d| ≤ 1/3, with error below 2^10: every term is rounded by less than 2 units."""
    power, total, k = (n << bits) // d, 0, 1
    square = power * power >> bits
    while power not in (0, -1):  # rounding towards −∞ never ends at 0
        total, power, k = total + power // k, power * square >> bits, k + 2
    return 2 * total


_GUARD = BITS + 32
_LN2 = _atanh_series(1, 3, _GUARD)


def ln(x: Fraction) -> tuple[int, int]:
    """ln x enclosed, both ends times 2^BITS. x = m 2^e with m in [2/3, 4/3], ln m = 2 atanh((m − 1)/(m + 1))."""
    n, d = x.numerator, x.denominator
    e = n.bit_length() - d.bit_length()
    need(x > 0 and abs(e) < 1 << 20, "the logarithm of a number that is not positive, or out of range")
    n, d = (n, d << e) if e >= 0 else (n << -e, d)
    if 3 * n > 4 * d:
        e, d = e + 1, 2 * d
    elif 3 * n < 2 * d:
        e, n = e - 1, 2 * n
    value = (_atanh_series(n - d, n + d, _GUARD) + e * _LN2) >> 32  # 2^10 (|e| + 2) < 2^32
    return value - 1, value + 2


def root_up(square: int) -> int:
    """An integer that is at least the square root of an integer."""
    return isqrt(square) + 1 if square > 0 else 0


def norm_up(vector: list[Fraction]) -> Fraction:
    """At least the length of a vector."""
    den = common_den(vector)
    return Fraction(root_up(sum((x.numerator * (den // x.denominator)) ** 2 for x in vector)), den)


def shifted(matrix: list[list[Any]], amount: Any) -> list[list[Any]]:
    """matrix + amount · I."""
    return [[x + (amount if i == j else 0) for j, x in enumerate(row)] for i, row in enumerate(matrix)]


def solved(matrix: list[list[Any]], right: list[Any]) -> list[Any] | None:
    """x with matrix x = right for a positive definite matrix, None for any other: by elimination."""
    rows = [[*row, y] for row, y in zip(matrix, right)]
    for k, pivot in enumerate(rows):
        if not pivot[k] > 0:
            return None
        for i, row in enumerate(rows):
            if i != k and row[k]:
                factor = row[k] / pivot[k]
                rows[i] = [a - factor * b for a, b in zip(row, pivot)]
    return [row[-1] / row[k] for k, row in enumerate(rows)]


def is_positive(matrix: list[list[Any]]) -> bool:
    """Whether a symmetric matrix is proved to be positive definite: WAW' has a dominant diagonal, for some W.

    A: whole numbers, each less than 1 off, with a diagonal lowered by more than that can raise an eigenvalue.
    """
    n, unit = len(matrix), Fraction(2**80) / (max((abs(x) for row in matrix for x in row), default=0) or 1)
    A = [[int(x * unit) - n * (i == j) for j, x in enumerate(row)] for i, row in enumerate(matrix)]
    rows = [[*map(float, row), *(float(i == j) for j in range(n))] for i, row in enumerate(A)]
    for k, pivot in enumerate(rows):
        if not pivot[k] > 0:
            return False
        for i in range(k + 1, n):
            share = rows[i][k] / pivot[k]
            rows[i] = [a - share * b for a, b in zip(rows[i], pivot)] if share else rows[i]
    W = [[int(2.0**90 * x / sqrt(row[k])) for x in row[n:]] for k, row in enumerate(rows)]  # Cholesky's inverse
    half = [[sum(map(mul, w, column)) for column in A] for w in W]
    return all(2 * sum(map(mul, h, w)) > sum(abs(sum(map(mul, h, v))) for v in W) for h, w in zip(half, W))


PI = [Fraction(3141592653589793238462643383279502884197 + k, 10**39) for k in (0, 1)]


def ln_factorial(n: int) -> tuple[int, int]:
    """ln n! enclosed; Stirling's series alternates, so two partial sums enclose it."""
    if n < 256:
        return ln(Fraction(factorial(n)))
    low, high = ln(Fraction(n))
    least, most = ln(2 * PI[0] * n)[0], ln(2 * PI[1] * n)[1]
    start = Fraction(1, 12 * n) - Fraction(1, 360 * n**3)
    rest = up(start + Fraction(1, 1260 * n**5))
    return n * low - n * ONE + least // 2 + down(start), n * high - n * ONE + most // 2 + 1 + rest


# ====================================================================== 1. model, objective, data
Monomial = tuple[tuple[int, int], ...]  # (parameter, power), …
Polynomial = dict[Monomial, Fraction]
Cut = tuple[list[Fraction], Fraction]  # a·x ≤ b
Map = Callable[[list[float]], list[float]]
Slab = tuple[Fraction, list[Fraction], Fraction, Fraction]  # μ, h, low, high: low ≤ h·x ≤ high


def polynomial(terms: list[Any], parameters: int) -> Polynomial:
    """Σ coefficient · monomial, of [coefficient, [[parameter, power], …]], …"""
    for _, monomial in terms:
        known = all(isinstance(i, int) and isinstance(p, int) and 0 <= i < parameters and p > 0 for i, p in monomial)
        need(known, "a monomial has an unknown parameter, or a power that is not a positive integer")
        need(sum(p for _, p in monomial) <= MOST_DEGREE, f"a monomial has a degree above {MOST_DEGREE}")
    coefficients = ratios([c for c, _ in terms])
    monomials = [tuple((i, p) for i, p in monomial) for _, monomial in terms]
    return combined([(c, {monomial: Fraction(1)}) for c, monomial in zip(coefficients, monomials)])


def combined(parts: list[tuple[Fraction, Polynomial]]) -> Polynomial:
    """Σ factor · polynomial, without zeros."""
    total: Polynomial = {}
    for factor, part in parts:
        for monomial, c in part.items():
            total[monomial] = total.get(monomial, Fraction(0)) + factor * c
    return {monomial: c for monomial, c in total.items() if c}


class Model:
    """States, rows (an action in a state), transitions, and for each transition an expression in the parameters."""

    def __init__(self, data: dict[str, Any]) -> None:
        state_ptr, row_ptr, successor, expression = (
            data[k] for k in ("state_ptr", "row_ptr", "successor", "expression")
        )
        self.states, self.rows, self.initial = len(state_ptr) - 1, len(row_ptr) - 1, data["initial"]
        self.silent, self.rewards = set(data["silent"]), data["rewards"]
        self.labels = {name: set(states) for name, states in data["labels"].items()}
        self.box = [(exact(low), exact(high)) for low, high in zip(data["lower"], data["upper"], strict=True)]
        self.coordinates, size = None, len(self.box)
        if data["coordinates"] is not None:
            self.coordinates = Coordinates(data["coordinates"], size)
        self.table = self.coordinates.table if self.coordinates else [polynomial(f, size) for f in data["expressions"]]
        common_den(c for terms in self.table for c in terms.values())
        for name, ptr, size in (("states", state_ptr, self.rows), ("rows", row_ptr, len(successor))):
            grows = all(isinstance(p, int) and p < q for p, q in pairwise(ptr))
            need(bool(ptr) and ptr[0] == 0 and ptr[-1] == size and grows, f"the {name} of the model are out of order")
        need(len(expression) == len(successor) and len(data["action"]) == self.rows, "the model's lists differ")
        need(all(0 <= s < self.states for s in [*successor, self.initial, *self.silent]), "a state does not exist")
        need(set(expression) == set(range(len(self.table))), "an expression does not exist, or is not used")
        #: per state its rows; per row its state, its name, and (successor, expression) of its transitions
        self.rows_of = [range(*pair) for pair in pairwise(state_ptr)]
        self.row_state = [s for s, rows in enumerate(self.rows_of) for _ in rows]
        self.name = [f"state {s}, action {data['actions'][a]!r}" for s, a in zip(self.row_state, data["action"])]
        self.moves = [list(zip(successor[i:j], expression[i:j])) for i, j in pairwise(row_ptr)]
        self.constant = [terms.get((), Fraction(0)) if not set(terms) - {()} else None for terms in self.table]
        for labels, name in {tuple(f for _, f in moves): name for name, moves in zip(self.name, self.moves)}.items():
            total = combined([(Fraction(1), self.table[f]) for f in labels])  # must be 1, for all θ and for all x
            terms = [self.coordinates.terms[f][1:] for f in labels] if self.coordinates else []
            cancel = not any(map(sum, zip(*terms)))  # also where the coordinates depend on each other
            need(total == {(): 1} and cancel, f"the probabilities of {name} do not sum to 1")

    def range_over_box(self, terms: Polynomial) -> tuple[int, int]:
        """A polynomial over the parameters' bounds, term by term, in units of 2^-BITS."""
        low = high = Fraction(0)
        for monomial, c in terms.items():
            least = most = c
            for i, power in monomial:
                a, b = self.box[i]
                powers = [a**power, b**power, *([Fraction(0)] if a < 0 < b else [])]
                ends = [x * end for x in (least, most) for end in powers]
                least, most = min(ends), max(ends)
            low, high = low + least, high + most
        return down(low), up(high)


class Objective:
    """The value of a play. `decided` states end it, with a value; without a target it never ends."""

    def __init__(self, model: Model, data: dict[str, Any]) -> None:
        kind, sense = data["kind"], data["sense"]
        need(kind in ("reach", "reward", "instant") and sense in ("max", "min"), f"{sense} {kind} is not covered")
        self.maximising, self.is_reach, self.pays = sense == "max", kind == "reach", kind == "reward"
        target: set[int] = model.labels[data["target"]] if data.get("target") is not None else set()
        avoid: set[int] = model.labels[data["avoid"]] - target if data.get("avoid") is not None else set()
        need(self.is_reach or data.get("avoid") is None, "rewards with states to avoid are not covered")
        self.decided = dict.fromkeys(avoid, Fraction(0)) | dict.fromkeys(target, Fraction(int(self.is_reach)))
        self.discount = exact(data.get("discount", 1))
        need(0 < self.discount <= 1, f"the discount is {float(self.discount)}")
        self._rewards(model, data)
        self._times(model, data.get("horizon"))
        summed = not self.is_reach and self.discount == 1 and self.horizon is None
        #: whether no value is negative, and whether an infinite play is worth infinity, or what it collects
        self.is_positive = self.is_reach or (summed and all(r >= 0 for r in self.reward))
        unreached = data.get("unreached") or ("accumulate" if self.maximising else "infinite")
        need(unreached in ("infinite", "accumulate"), f"unreached = {unreached!r} is not covered")
        self.must_reach = summed and data.get("target") is not None and unreached == "infinite"
        self.is_signed = summed and not self.is_positive

    def _rewards(self, model: Model, data: dict[str, Any]) -> None:
        """(R) what each row pays, 0 where the play is over; for "the reward of the state after n steps" its values."""
        self.reward, self.final = [Fraction(0)] * model.rows, [Fraction(0)] * model.states
        if self.is_reach:
            return
        need(data.get("reward_name") in model.rewards, f"the model has no reward {data.get('reward_name')!r}")
        given = model.rewards[data["reward_name"]]
        state, row = ({int(k): exact(r) for k, r in given[part]} for part in ("state", "row"))
        if data["kind"] == "instant":
            need(not self.decided and data.get("horizon") is not None, "an instant reward with a target, or no horizon")
            self.final = [state.get(s, Fraction(0)) for s in range(model.states)]
            return
        for r, s in enumerate(model.row_state):
            if s not in self.decided:
                self.reward[r] = state.get(s, Fraction(0)) + row.get(r, Fraction(0))

    def _times(self, model: Model, horizon: Any) -> None:
        """Silent states take no time. They are a random start, and states that pay between any two others."""
        start, between = model.initial in model.silent, model.silent - {model.initial}
        for s in model.silent:
            quiet = not any(t in model.silent for row in model.rows_of[s] for t, _ in model.moves[row])
            need(quiet, f"the silent state {s} leads to a silent one")
        need(not start or all(model.initial not in dict(m) for m in model.moves), "the silent start is entered again")
        self.undiscounted = model.initial if start else -1
        self.visible = [s not in model.silent for s in range(model.states)]
        self.horizon: int | None = None
        self.steps = [] if horizon is None else [Fraction(horizon)]
        if horizon is None:
            return
        need(isinstance(horizon, int) and 0 <= horizon <= MOST_STEPS, f"the horizon is {horizon!r}")
        need(horizon * sum(map(len, model.moves)) <= MOST_WORK, f"more than {MOST_WORK:,} steps times transitions")
        for s, rows in enumerate(model.rows_of):
            if between and self.visible[s] and s not in self.decided:
                following = [{t for t, _ in model.moves[row]} for row in rows]
                passes = [not any(self.visible[t] for t in successors) for successors in following]
                rests = all(successors == {s} for successors in following) and not any(self.reward[r] for r in rows)
                name = model.name[rows[passes.index(False)]] if False in passes else ""
                need(rests or not name, f"{name} passes no silent state, and does not rest without a reward")
        self.horizon = int(start) + (2 if between else 1) * horizon

    def off(self, bound: Fraction, error: Fraction, upper: bool) -> Fraction:
        """The bound if rewards deviate from the model's: by a share of each (all are ≥ 0), or by an amount per step."""
        steps = [*self.steps, 1 / (1 - self.discount)] if self.discount < 1 else self.steps or [Fraction(0)]
        amount = error * (max(bound, Fraction(0)) if self.is_positive else min(steps)) if self.pays else Fraction(0)
        return bound + amount if upper else bound - amount

    def factor(self, state: int, target: int) -> int:
        """The factor of a successor's value, over the discount's denominator."""
        takes_time = self.visible[target] and state != self.undiscounted
        return self.discount.numerator if takes_time else self.discount.denominator


class Sum(Objective):
    """Σ weight · value of several objectives as one total. A play is over where each is decided, or can gain no more;
    one that never ends is worth what it collects: where that should be infinite, bounds are only weaker."""

    def __init__(self, model: Model, parts: list[tuple[Fraction, Objective]]) -> None:
        vars(self).update(vars(parts[0][1]))  # discount, sense, and which states take time
        self.is_reach, self.must_reach, settled = False, False, list[set[int]]()
        for weight, part in parts:
            need(part.horizon is None and part.discount == self.discount, "limits with a horizon, or other discounts")
            need(not part.must_reach or (weight < 0) == self.maximising, "a sum that infinite costs make better")
            paying = [s for s, paid in zip(model.row_state, part.reward) if paid]
            into: list[list[int]] = [[] for _ in model.rows_of]
            for s, t in ((s, t) for s, moves in zip(model.row_state, model.moves) for t, _ in moves):
                into[t] += [s] if s not in part.decided else []
            gaining = reached(paying + [s for s, value in part.decided.items() if value], into)
            settled.append(set(range(model.states)) - gaining | set(part.decided))
        same = all(known == settled[0] for known in settled)
        need(same, "objectives end in different states: what happened before would have to be remembered")
        self.decided = {s: sum((w * part.decided.get(s, 0) for w, part in parts), Fraction(0)) for s in settled[0]}
        self.reward = [sum((w * part.reward[row] for w, part in parts), Fraction(0)) for row in range(model.rows)]
        self.is_signed = self.discount == 1 and any(r < 0 for r in self.reward)
        self.is_positive = self.discount == 1 and all(x >= 0 for x in [*self.reward, *self.decided.values()])


def reached(start: list[int], after: list[list[int]]) -> set[int]:
    """All that can be reached from ``start``, where ``after`` lists what follows each."""
    found, todo = set[int](), start
    while todo:
        if (s := todo.pop()) not in found:
            found.add(s)
            todo += after[s]
    return found


class Policy:
    """The policy: one row per state, one per step (of a horizon) and state, or weights of rows."""

    def __init__(self, model: Model, data: dict[str, Any]) -> None:
        self.model, self.rules, self.weights = model, data["rules"], data["weights"]

    def at(self, state: int, step: int) -> list[tuple[int, Fraction]]:
        """Rows and their probabilities in a step; the last rule persists."""
        rows = self.model.rows_of[state]
        if self.rules is not None:
            played = {self.rules[min(step, len(self.rules) - 1)][state]: Fraction(1)}
        else:
            played = {row: exact(self.weights[row]) for row in rows if self.weights[row]}
        total = sum(played.values())
        fine = total > 0 and all(row in rows and weight > 0 for row, weight in played.items())
        need(fine, f"the policy plays nothing in state {state}, or what does not exist there")
        return [(row, weight / total) for row, weight in played.items()]


class Data:
    """Counts of transitions, and per mark the counts of expressions of the data before it."""

    def __init__(self, model: Model, data: dict[str, Any]) -> None:
        self.model, self.rows = model, [[0] * len(moves) for moves in model.moves]
        places = [(row, k) for row, moves in enumerate(model.moves) for k in range(len(moves))]
        for t, n in data["transitions"]:
            need(isinstance(n, int) and n > 0 <= t, f"{n!r} counts of transition {t!r}")
            row, k = places[t]
            need(self.rows[row][k] == 0, f"transition {t} is counted twice")
            self.rows[row][k] = n
        #: per expression how often it occurred, and how often it could have
        self.successes, self.trials = [0] * len(model.table), [0] * len(model.table)
        for moves, counts in zip(model.moves, self.rows):
            visits = sum(counts)
            for (_, f), n in zip(moves, counts):
                self.successes[f] += n
                self.trials[f] += visits
        self.total, self.fitted = sum(self.successes), list[list[float]]()
        self._read_marks(data)

    def _read_marks(self, data: dict[str, Any]) -> None:
        """(weight, share of the plan, successes, trials): windows begin where weight > 0, bets where share > 0.

        The first mark is the start. Weights sum to ≤ 1; those of a plan are told at the mark, others before any data.
        """
        schedule, planned = data["schedule"], data["planned"]
        known = ("geometric", "planned", "split", "table")
        need(schedule in known, f"the schedule of marks {schedule!r} is not covered")
        need(isinstance(planned, int) and planned >= 0, f"{planned!r} transitions were planned")
        first = usual = exact({"geometric": 1 / 13, "planned": 1 / 16, "split": 0.01, "table": 1}[schedule])
        due = [64 * 4**j for j in range(12)]
        if schedule == "split":
            usual, due = exact((1.0 - 0.01) / 3), [max(1, round(share * planned)) for share in (0.04, 0.08, 0.16)]
        last = {"successes": [0] * len(self.trials), "trials": [0] * len(self.trials)}
        self.marks = [(first, Fraction(0), last["successes"], list[int]())]
        need(len(data["marks"]) <= MOST_MARKS, f"there are more than {MOST_MARKS:,} marks")
        for mark in data["marks"]:
            weight, share = exact(mark["weight"]), exact(mark["progress"])
            need(weight >= 0 <= share <= 1, "the weight or the share of a mark is out of range")
            for name, now in (("successes", self.successes), ("trials", self.trials))[: 2 if share else 1]:
                found = [0] * len(now)
                for f, n in mark[name]:
                    found[f] = n
                inside = all(isinstance(n, int) and a <= n <= b for a, n, b in zip(last[name], found, now))
                need(inside, f"a mark counts fewer {name} than the one before it, or more than all data")
                last[name] = found
            need(sum(last["successes"]) == mark["total"], "the transitions of a mark are counted otherwise")
            self.marks.append((weight, share, last["successes"], last["trials"] if share else []))
        windows = [(mark[0], sum(mark[2])) for mark in self.marks if mark[0]]
        need(sum(weight for weight, _ in windows) <= 1 + Fraction(1, 2**40), "the marks' weights exceed 1")
        if schedule == "geometric" or planned:  # else marks are the reader's own
            need(all(w == usual for w, _ in windows[1:]), "the weights of the marks are not those of their schedule")
            for (_, before), (_, total) in pairwise(windows):
                need(any(before < d <= total for d in due), f"no mark is due after {total} transitions")

    def is_start_of(self, other: Data) -> bool:
        """Whether these data are the beginning of others, as far as counts and marks show."""
        same = self.marks == [mark for mark in other.marks if sum(mark[2]) <= self.total]
        grown = all(a <= b for one, two in zip(self.rows, other.rows) for a, b in zip(one, two))
        return same and grown

    def fits(self, line: Coordinates) -> list[list[float]]:
        """x of every mark: a function of the data before it."""
        if not self.fitted:
            last = line.start, 0
            for _, _, counts, _ in self.marks:
                last = line.next_fit(counts, *last)
                self.fitted.append(last[0])
        return self.fitted


# ====================================================================== 2. intervals of single expressions
Observed = tuple[int, list[int], bool]  # an event, outcomes of a row, whether these are the event or its complement


class Unions:
    """Events f that a row observes as several outcomes, of probability f[u] together: those whose expressions consist
    of terms of f, if they add up to f; else those that consist of terms of 1 − f, if they add up to 1 − f."""

    def __init__(self, table: list[Polynomial], events: list[int]) -> None:
        self.table, self.wanted = table, dict[tuple[int, bool], Polynomial]()
        self.of_part: dict[int, list[tuple[int, bool]]] = {}
        self.looks = 0
        labels = table if len(table) <= MOST_SHARED else []
        often, by_rarest = Counter(term for terms in labels for term in terms.items()), dict[Any, list[int]]()
        for f, terms in enumerate(labels):
            if terms:
                by_rarest.setdefault(min(terms.items(), key=often.__getitem__), []).append(f)
        for f in events:
            other = combined([(Fraction(1), {(): Fraction(1)}), (Fraction(-1), table[f])])
            for happened, wanted in ((True, table[f]), (False, other)):
                near = [g for term in wanted.items() for g in by_rarest.get(term, ())]
                self._count(len(near))
                parts = [g for g in near if table[g].items() <= wanted.items()]
                for g in parts if len(parts) > 1 else []:
                    self.wanted[f, happened] = wanted
                    self.of_part.setdefault(g, []).append((f, happened))

    def _count(self, looks: int) -> None:
        self.looks += looks
        need(self.looks <= MOST_PARTS, f"unions of outcomes take more than {MOST_PARTS:,} looks")

    def of(self, labels: tuple[int, ...], known: set[int]) -> list[Observed]:
        """The unions of a row with these expressions, but for events that are ``known`` there already."""
        places: dict[tuple[int, bool], list[int]] = {}
        for k, f in enumerate(labels):
            self._count(len(self.of_part.get(f, ())))
            for key in self.of_part.get(f, ()):
                places.setdefault(key, []).append(k)
        found = dict[int, Observed]()
        for key in sorted(places, reverse=True):  # an event before its complement
            total = combined([(Fraction(1), self.table[labels[k]]) for k in places[key]])
            if key[0] not in known | set(found) and total == self.wanted[key]:
                found[key[0]] = (key[0], places[key], key[1])
        return list(found.values())


class Intervals:
    """lo ≤ f[u] ≤ hi for every expression, in units of 2^-BITS, on an event of probability ≥ 1 − its share of δ.

    Theorem (anytime interval). A Bernoulli event of probability p is observed at times that may depend on the past.
    With K successes and J failures, M = ∫ q^K (1−q)^J dBeta(½,½)(q) / (p^K (1−p)^J) is a non-negative martingale that
    starts at 1, so P(M ever ≥ 1/γ) ≤ γ (Ville). ln M is convex in p with its minimum at K/(K+J): an end l < K/(K+J)
    with M(l) ≥ 1/γ excludes all p ≤ l, and the same above. The integral is (2K)! (2J)! / (4^(K+J) K! J! (K+J)!).

    The event of f: "f happened", in all rows that carry f on one transition. Each f has γ = share / number of them, but
    of f and 1 − f only the first one counts: the other one's interval follows, and in rows that carry only the other,
    on one transition, the event is that it did not happen. `Unions` adds rows in which several outcomes are the event.
    The model alone decides which rows and outcomes are meant.
    """

    def __init__(self, data: Data, share: Fraction, ends: dict[str, Any]) -> None:
        self.model, self.seen, self.lines = data.model, data.successes, dict[int, Any]()
        self.low, self.high = [0] * len(self.seen), [ONE] * len(self.seen)
        for f, terms in enumerate(self.model.table):
            self.cut(f, *self.model.range_over_box(terms))
            if self.model.constant[f] is None:  # c + k d, d the terms without c over the first one's factor
                k = terms[min(m for m in terms if m)]
                d = frozenset((m, x / k) for m, x in terms.items() if m)
                self.lines[f] = terms.get((), Fraction(0)), k, d
        self.events = self._events(data)
        threshold = ln(max(1, len(self.events)) / share)[1]
        for name, pair in ends.items():
            f, (low, high) = int(name), (exact(x) for x in pair)
            need(f in self.events, f"the interval of expression {f} belongs to no event of the model")
            self._check(f, low, high, *self.events[f], threshold)
            self.cut(f, down(low), up(high))
        self._propagate()
        self.check_rows()

    def _propagate(self) -> None:
        """f = c + k d with one polynomial d for several f: an interval of each is one of d, and so of all others."""
        bounds: dict[Any, list[Fraction]] = {}
        for f, (c, k, d) in 2 * list(self.lines.items()):  # the second time with what the first one has found
            ends = sorted((Fraction(x, ONE) - c) / k for x in (self.low[f], self.high[f]))
            known = bounds.get(d, ends)
            bounds[d] = [max(known[0], ends[0]), min(known[1], ends[1])]
            low, high = sorted(c + k * x for x in bounds[d])
            self.cut(f, down(low), up(high))

    def _check(self, f: int, low: Fraction, high: Fraction, K: int, J: int, threshold: int) -> None:
        """Refuse an interval of f unless K successes and J failures exclude everything beyond its ends."""
        both = ln_factorial(2 * K)[0] + ln_factorial(2 * J)[0] - (K + J) * ln(Fraction(4))[1]
        both -= ln_factorial(K)[1] + ln_factorial(J)[1] + ln_factorial(K + J)[1]
        need(low * (K + J) <= K <= high * (K + J), f"the interval of expression {f} does not hold {K}/{K + J}")
        for end in ([low] if low > 0 else []) + ([high] if high < 1 else []):  # 0 and 1 claim nothing
            excluded = 0 < end < 1 and both - (K * ln(end)[1] + J * ln(1 - end)[1]) >= threshold
            need(excluded, f"the end {float(end):.9g} of expression {f} is not excluded by the data")

    def cut(self, f: int, low: int, high: int) -> None:
        self.low[f], self.high[f] = max(self.low[f], low), min(self.high[f], high)
        need(self.low[f] <= self.high[f], f"no value is left for expression {f}: the data contradict the model")

    def _events(self, data: Data) -> dict[int, tuple[int, int]]:
        """(successes, failures) of the event of f."""
        known = {line: f for f, line in reversed(self.lines.items())}
        mate = {f: known.get((1 - c, -k, d), f) for f, (c, k, d) in self.lines.items()}
        events = {f: (0, 0) for f, other in mate.items() if other >= f}
        unions, observed = Unions(self.model.table, list(events)), dict[tuple[int, ...], list[Observed]]()
        for moves, counts in zip(self.model.moves, data.rows):
            labels, total = tuple(f for _, f in moves), sum(counts)
            if labels not in observed:
                single = self.single(labels, events, mate)
                observed[labels] = single + unions.of(labels, {event for event, *_ in single})
            for event, places, happened in observed[labels]:
                n = sum(counts[k] for k in places)
                won = n if happened else total - n
                events[event] = events[event][0] + won, events[event][1] + total - won
        return events

    @staticmethod
    def single(labels: tuple[int, ...], events: Any, mate: dict[int, int]) -> list[Observed]:
        """The events that are one outcome of a row with these expressions, or the complement of one."""
        found = []
        for k, f in enumerate(labels):
            event = f if f in events else mate.get(f, -1)
            if event in events and labels.count(f) == 1 and (event == f or event not in labels):
                found.append((event, [k], event == f))
        return found

    def check_rows(self) -> None:
        for row, moves in enumerate(self.model.moves):
            fits = sum(self.low[f] for _, f in moves) <= ONE <= sum(self.high[f] for _, f in moves)
            need(fits, f"no distribution is left for {self.model.name[row]}: the data contradict the model")

    def is_possible(self, f: int) -> bool:
        """Whether f[u] > 0: by its interval, or because it was observed (impossible events almost surely are not)."""
        return self.low[f] > 0 or self.seen[f] > 0


# ====================================================================== 3. the joint likelihood
class Coordinates:
    """f[θ] = c_f + w_f·x with x polynomials of θ, chosen with the model; c_f and w_f are numerators over `den`.

    Expressions see θ only through x, so the likelihood is a function of x. Rows sum to 1 for every x, so each x at
    which all f ≥ 0 makes a Markov decision process, whether or not it is one of some θ: the theorems below need no
    more, so polynomials are treated like affine expressions.
    """

    def __init__(self, data: dict[str, Any], parameters: int) -> None:
        given, domain = ([ratios(terms) for terms in data[name]] for name in ("terms", "domain"))
        self.x, self.domain = [polynomial(terms, parameters) for terms in data["x"]], domain  # c + w·x ≥ 0 there
        self.dimension, self.is_product = len(self.x), "blocks" in data
        self.blocks: list[list[int]] = data["blocks"] if self.is_product else [list(range(self.dimension))]
        sizes = {len(terms) for terms in given + domain}
        most = MOST_OF_BLOCKS if self.is_product else MOST_COORDINATES
        need(0 < self.dimension <= most and sizes == {self.dimension + 1}, "coordinates of a wrong size")
        need(sorted(i for block in self.blocks for i in block) == list(range(self.dimension)), "blocks that overlap")
        self.den = common_den(y for terms in given for y in terms)
        self.table = [combined(list(zip(terms, [{(): Fraction(1)}, *self.x]))) for terms in given]
        self.terms = [[int(y * self.den) for y in terms] for terms in given]
        self.free = [f for f, (_, *w) in enumerate(self.terms) if any(w)]
        self.floats = [[y / self.den for y in self.terms[f]] for f in self.free]
        self.walls = [[float(y) for y in terms] for terms in domain]
        self.start = [float(y) for y in data["start"]]
        self.tau = (self.dimension + 1) / (2 * len(self.free))
        self.size = PARTICLES[min(self.dimension, len(PARTICLES) - 1)]

    def next_fit(self, counts: list[int], x: list[float], known: int) -> tuple[list[float], int]:
        """The fit at a mark, and the number of steps that it was found with; x and ``known``: those before."""
        total = sum(counts)
        if total and 4 * total < 5 * known:
            return x, known
        return self.fit([counts[f] + self.tau for f in self.free] + [WALL] * len(self.walls), x), total

    def fit(self, counts: list[float], x: list[float]) -> list[float]:
        """Near the minimiser of −Σ K_f ln f over expressions (and, with their own K, rows of the domain), by Newton.

        With m = max |w_f·s| / f, steps s of length 1/(1 + m) keep all f > 0 and descend. Validity does not depend on
        the result: it only has to be a function of the counts, and floats that are added (`fsum` rounds once),
        multiplied, divided and rooted give the same numbers everywhere.
        """
        rows = (self.floats + self.walls)[: len(counts)]
        for _ in range(64):
            p = self.chances(x, rows)
            need(min(p) > 0, "an expression is not positive at an estimate")
            pull = [n / q for n, q in zip(counts, p)]
            score = [fsum(y * w[i] for y, (_, *w) in zip(pull, rows)) for i in range(self.dimension)]
            s = solved(self.information([y / q for y, q in zip(pull, p)], rows), score)
            if s is None:
                break
            size = max(abs(fsum(a * b for a, b in zip(w, s))) / q for q, (_, *w) in zip(p, rows))
            x = [a + b / (1 + size) for a, b in zip(x, s)]
            if size < 2.0**-30:
                break
        return x

    def spread(self, counts: list[int], x: list[float]) -> list[list[float]]:
        """L, lower triangular: LL' is the curvature at x of what `next_fit` minimises."""
        rows, r = self.floats + self.walls, range(self.dimension)
        p = self.chances(x, rows)
        need(min(p) > 0, "an expression is not positive at an estimate")
        weights = [counts[f] + self.tau for f in self.free] + [WALL] * len(self.walls)
        L = self.information([n / q / q for n, q in zip(weights, p)], rows)
        for j in r:  # Cholesky's factor in place
            for i in r[j:]:
                rest = L[i][j] - fsum(L[i][k] * L[j][k] for k in r[:j])
                need(i > j or rest > 0, "the data before a mark leave a direction open")
                L[i][j] = sqrt(rest) if i == j else rest / L[j][j]
        return L

    def particles(self, counts: list[int], x: list[float]) -> dict[int, list[float]]:
        """Points of the domain, spread around x as the counts determine them: a prior for the data after a mark.

        They are x + s, L's the k-th point of a sequence with Student's law of two degrees of freedom.
        """
        L, r, found = self.spread(counts, x), range(self.dimension), dict[int, list[float]]()
        for number in range(1, self.size + 1):
            s = [0.0 for _ in r]
            for i in reversed(r):
                u = number * STEPS[i] % 1.0
                s[i] = ((2 * u - 1) / sqrt(2 * u * (1 - u)) - fsum(L[k][i] * s[k] for k in r[i + 1 :])) / L[i][i]
            point = [a + b for a, b in zip(x, s)]
            if min(self.chances(point, self.walls), default=0.0) >= 0:
                found[number] = point
        return found

    def at(self, point: list[Any]) -> tuple[list[int], int]:
        """All expressions at a point: numerators, and their denominator."""
        z = [exact(x) for x in point]
        scale = common_den(z)
        whole = [int(x * scale) for x in z]
        return [c * scale + sum(a * b for a, b in zip(w, whole, strict=True)) for c, *w in self.terms], self.den * scale

    def chances(self, x: list[float], rows: list[list[float]] | None = None) -> list[float]:
        """The free expressions at x, or other rows c + w·x."""
        return [fsum([c, *(a * b for a, b in zip(w, x))]) for c, *w in (self.floats if rows is None else rows)]

    def information(self, weights: list[float], rows: list[list[float]] | None = None) -> list[list[float]]:
        """Σ weight · w_f w_f'."""
        r, pairs = range(self.dimension), [(y, w[1:]) for y, w in zip(weights, self.floats if rows is None else rows)]
        used = [[(y, w) for y, w in pairs if w[i]] for i in r]
        return [[fsum(y * w[i] * w[j] for y, w in used[i] if w[j]) for j in r] for i in r]


class Ball:
    """x = center + factor y, |y| ≤ 1: every expression is p_f + s_f·y, whole numbers over one denominator `den`."""

    def __init__(self, coordinates: Coordinates, data: dict[str, Any]) -> None:
        r, center, factor = coordinates.dimension, data["center"], data["factor"]
        need(len(center) == r and len(factor) == r and all(len(row) == r for row in factor), "a frame of a wrong size")
        self._expand(coordinates, [exact(x) for x in center], [[exact(x) for x in row] for row in factor])

    def _expand(self, coordinates: Coordinates, center: list[Fraction], factor: list[list[Fraction]]) -> None:
        self.center, self.factor = center, factor
        scale = common_den([*self.center, *(x for row in self.factor for x in row)])
        start, *columns = ([int(x * scale) for x in column] for column in (self.center, *zip(*self.factor)))
        self.den = coordinates.den * scale
        self.p = [c * scale + sum(a * b for a, b in zip(w, start)) for c, *w in coordinates.terms]
        self.s = [[sum(a * b for a, b in zip(w, column)) for column in columns] for _, *w in coordinates.terms]


class Box(Ball):
    """low ≤ x ≤ high, with |y_i| ≤ 1 for every i in place of |y| ≤ 1."""

    def __init__(self, coordinates: Coordinates, ends: list[list[Fraction]]) -> None:
        half = [(high - low) / 2 for low, high in ends]
        factor = [[x if i == j else Fraction(0) for j in range(len(half))] for i, x in enumerate(half)]
        self._expand(coordinates, [(low + high) / 2 for low, high in ends], factor)


def farthest(around: Ball | None, g: list[int]) -> int:
    """max g·y over a ball or a box, or more."""
    return sum(map(abs, g)) if isinstance(around, Box) else root_up(sum(x * x for x in g))


def highest(around: Ball, A: list[list[int]], B: list[list[int]]) -> int:
    """max −y'My, M = (A B; B' 0), or more: over a ball by Gershgorin's theorem, over a box term by term."""
    if isinstance(around, Box):
        squares = [max(-row[i], 0) for i, row in enumerate(A)]
        mixed = [abs(x) for i, row in enumerate(A) for j, x in enumerate(row) if i != j]
        return sum(squares) + sum(mixed) + 2 * sum(abs(x) for row in B for x in row)
    sums = [sum(map(abs, row + more)) for row, more in zip(A, B)] + [sum(map(abs, column)) for column in zip(*B)]
    return max(sums, default=0)


class Likelihood:
    """C: a convex set of x that contains the truth at all times simultaneously, except with probability α.

    Theorem. Let x_ji be points with all f ≥ 0, functions of the data before mark j, with weights Σ_ji w_ji ≤ 1. For the
    steps k after mark j let L_j(x) = Π f_k[x], f_k the label of step k. Then E = Σ_ji w_ji L_j(x_ji) / L_j(u) is a
    supermartingale that starts at ≤ 1: a step multiplies a term by f_k[x_ji] / f_k[u], of conditional mean
    ≤ Σ_i P[x_ji]_i = 1. So P(E ever ≥ 1/α) ≤ α (Ville). On the rest, for any shares λ_ji ≥ 0 that sum to 1,
    ln 1/α > ln E ≥ Σ λ_ji ln (w_ji L_j(x_ji) / (λ_ji L_j(u))), because ln is concave: with K = Σ_ji λ_ji K_j, K_j the
    counts after mark j,

        g(u) = −Σ_f K_f ln f[u]  <  bound  =  ln 1/α − Σ_ji λ_ji (ln w_ji/λ_ji + ln L_j(x_ji)).

    So u lies in C = {x : g(x) ≤ bound}: convex, because f is affine in x. The x_ji are the `particles` of a mark,
    which share its weight; λ and what is left out are anyone's choice. K and λ are whole numbers over `whole`. Models
    of blocks have a density in place of particles, see `_of_blocks`.
    """

    def __init__(self, line: Coordinates, data: Data, alpha: Fraction, parts: Any) -> None:
        self.line, self.K, self.whole = line, [0] * len(data.successes), 1
        bound = self._of_blocks(data, parts) if line.is_product else self._of_particles(data, parts)
        self.used = [f for f in line.free if self.K[f] > 0]
        self.bound = Fraction(bound, ONE * self.whole) + Fraction(ln(1 / alpha)[1], ONE)

    def _of_blocks(self, data: Data, part: dict[str, Any]) -> int:
        """The bound without ln 1/α for one mark, with W_j = N(x0, (LL')⁻¹) where all f ≥ 0, 0 elsewhere, as its prior.

        x0 and L: fit and spread of the data before the mark. For ρ, in every block of d coordinates uniform on an
        ellipsoid m + Tz, |z| ≤ 1, where all f > 0: ln ∫ L_j dW_j ≥ E_ρ[ln L_j + ln W_j − ln ρ] (Jensen), T and L are
        triangular, E zz' = I/(d + 2) and vol(Ball) / (2π)^(d/2) = √(2/π)^(d mod 2) / (d (d − 2) (d − 4) …). With
        e = w_f·Tz / f[m], e² ≤ y = |T'w_f|² / f[m]² < 1: by symmetry E ln(1 + e) = E ln(1 − e²) / 2
        ≥ −(E e² + E e⁴ / (2 − 2y)) / 2, E e² = y/(d + 2), E e⁴ = 3y² / ((d + 2)(d + 4)).
        """
        line, mark, r = self.line, part["mark"], range(self.line.dimension)
        need(0 <= mark < len(data.marks) and data.marks[mark][0] > 0, "no window of the likelihood begins there")
        weight, _, before, _ = data.marks[mark]
        x0, self.K = data.fits(line)[mark], [n - m for n, m in zip(data.successes, before)]
        L, (p, den) = [[exact(y) for y in row] for row in line.spread(before, x0)], line.at(part["center"])
        shift = [exact(a) - exact(b) for a, b in zip(part["center"], x0, strict=True)]
        squares = Fraction(sum(sum(L[i][j] * shift[i] for i in r[j:]) ** 2 for j in r))  # E |L'(x − x0)|²
        gained, free = ln(weight)[0], 0
        for block, rows in zip(line.blocks, part["factors"], strict=True):
            T, d = [[exact(y) for y in row] for row in rows], len(block)
            need([len(row) for row in T] == list(range(1, d + 1)), "an ellipsoid of a wrong size")
            columns = [[(i, T[k][j]) for k, i in enumerate(block) if k >= j] for j in range(d)]
            turned = (sum(L[i][j] * t for i, t in c if i >= j) for c in columns for j in r)
            squares += Fraction(sum(x * x for x in turned)) / (d + 2)
            gained += sum(ln(T[k][k] * L[i][i])[0] for k, i in enumerate(block))
            gained -= ln(Fraction(prod(range(d, 0, -2))))[1] + (ln(PI[1] / 2)[1] + 1) // 2 * (d % 2)
            for f in (f for f in line.free if any(line.terms[f][i + 1] for i in block)):
                chance, free = Fraction(p[f], den), free + 1
                n = [Fraction(sum(line.terms[f][i + 1] * t for i, t in c)) / line.den for c in columns]
                y = Fraction(up(sum(x * x for x in n) / chance**2), ONE) if chance > 0 else Fraction(1)
                need(y < 1, f"expression {f} is not positive on an ellipsoid")
                lost = up(y / (2 * d + 4) + 3 * y * y / (4 * (1 - y) * (d + 2) * (d + 4)))
                gained += self.K[f] * (ln(chance)[0] - lost)
        need(free == len(line.free), "an expression has coordinates of several blocks")
        return up(squares / 2) - gained

    def _of_particles(self, data: Data, parts: list[Any]) -> int:
        """The bound without ln 1/α, times `whole`."""
        line = self.line
        self.whole, bound = sum(m for _, chosen in parts for _, m in chosen), 0
        need(len({mark for mark, _ in parts}) == len(parts) and self.whole > 0, "windows of the likelihood repeat")
        logarithms = sum(len(chosen) for _, chosen in parts) * len(line.free)
        need(logarithms <= MOST_LOGARITHMS, f"the particles need more than {MOST_LOGARITHMS:,} logarithms")
        work = len(parts) * line.size * (line.dimension + len(line.walls))
        need(work <= MOST_WORK, f"the windows' particles need more than {MOST_WORK:,} products of rows and points")
        for mark, chosen in parts:
            need(0 <= mark < len(data.marks) and data.marks[mark][0] > 0, "no window of the likelihood begins there")
            weight, _, before, _ = data.marks[mark]
            cloud = line.particles(before, data.fits(line)[mark])
            known = len({number for number, _ in chosen} & set(cloud)) == len(chosen)
            need(known and all(isinstance(m, int) and m > 0 for _, m in chosen), "particles repeat, or do not exist")
            hits = [n - m for n, m in zip(data.successes, before)]
            for number, m in chosen:
                p, den = line.at(cloud[number])
                need(all(p[f] > 0 for f in line.free), "an expression is not positive at a particle")
                gained = ln(weight * self.whole / (m * len(cloud)))[0]
                gained += sum(hits[f] * ln(Fraction(p[f], den))[0] for f in line.free if hits[f])
                bound -= m * gained
                self.K = [k + m * n for k, n in zip(self.K, hits)]
        return bound

    def cut(self, point: list[Any]) -> Cut:
        """(a, b) with a·x ≤ b on C. For any t > 0, −ln f ≥ ln t + 1 − t f; t ≈ 1/f at the point makes it a tangent."""
        (p, den), scale = self.line.at(point), self.whole * self.line.den << 64
        sums, level = [0] * (self.line.dimension + 1), 0  # Σ K t f = sums[0] + sums[1:]·x over `scale`; Σ K (1 + ln t)
        for f in self.used:
            need(p[f] > 0, f"expression {f} is not positive at a point of the likelihood")
            t = (den << 64) // p[f] + 1  # over 2^64
            sums = [x + self.K[f] * t * y for x, y in zip(sums, self.line.terms[f])]
            level += self.K[f] * (ONE + ln(Fraction(t, 1 << 64))[0])
        b = self.bound + Fraction(sums[0], scale) - Fraction(level, ONE * self.whole)
        return [Fraction(-x, scale) for x in sums[1:]], b

    def check_ball(self, frame: Ball, slabs: list[Slab]) -> None:
        """The points of C in all slabs lie in the ball {center + factor y : |y| ≤ 1}.

        With t ≈ 1/f[center] and e = t f − 1 = e0 + n·y: on the ball e ≤ ε = e0 + |n|, and φ(ε) = 2(ε − ln(1+ε))/ε²
        decreases, so −ln f = ln t − ln(1+e) ≥ ln t − e + ½ φ(ε) e². Summed over f: g ≥ A0 + A1·y + y'A2 y on the ball.
        φ(ε) ≥ 1/(1 + 2ε/3), because ln(1+ε) ≤ ε(6+ε)/(6+4ε) for ε ≥ 0 (compare derivatives).
        If A0 − |A1| + λ_min(A2) > bound, g > bound on the sphere. If also g(center) ≤ bound, no point of C is
        outside: g ≤ bound on the segment to the centre (convexity), which crosses the sphere.
        In a slab low ≤ h·x ≤ high, (high − h·x)(h·x − low) ≥ 0: at the points in question g minus multiples μ ≥ 0 of
        this is ≤ bound, too, and convex. With u = high − h·center, v = h·center − low and n = factor'h the product is
        (u − n·y)(v + n·y) = uv + (u − v) n·y − (n·y)².
        """
        r, den, level, height = self.line.dimension, frame.den << 64, Fraction(0), Fraction(0)
        linear, square = [Fraction(0)] * r, [[Fraction(0)] * r for _ in range(r)]
        for f in self.used:
            need(frame.p[f] > 0, f"expression {f} is not positive at the centre of the ball")
            t, K = den // frame.p[f] + 1, Fraction(self.K[f], self.whole)  # t over 2^64
            e, *n = (Fraction(x, den) for x in (t * frame.p[f] - den, *(t * x for x in frame.s[f])))
            low, high = (Fraction(x, ONE) for x in ln(Fraction(t, 1 << 64)))
            level += K * (low - e)
            height += K * (high - e + e * e)  # ln(1+e) ≥ e − e² for e ≥ 0
            phi = Fraction(int((1 << 32) / (1 + (e + norm_up(n)) * 2 / 3)), 1 << 32)
            linear = [x + K * (phi * e - 1) * y for x, y in zip(linear, n)]
            square = [[x + K * phi / 2 * y * z for x, z in zip(row, n)] if y else row for row, y in zip(square, n)]
        for mu, h, low, high in slabs:
            at, *n = (sum(map(mul, h, x), Fraction(0)) for x in (frame.center, *zip(*frame.factor)))
            u, v = high - at, at - low
            level, height = level - mu * u * v, height - mu * u * v
            linear = [x - mu * (u - v) * y for x, y in zip(linear, n)]
            square = [[x + mu * y * z for x, z in zip(row, n)] for row, y in zip(square, n)]
        need(height <= self.bound, "the centre of the ball is no point of the likelihood's set")
        encloses = is_positive(shifted(square, level - self.bound - norm_up(linear)))
        need(encloses, "the ball does not enclose the likelihood's set")


def stake(level: float, share: float) -> float:
    """λ in standard deviations at the end of a plan, of which a share is done, for a log wealth of ``level`` nats."""
    z2 = max(2 * (level - 2), 1.0)
    late = sqrt(z2 + 2.5464790894703255 / max(1 - share, 2.0**-20))
    early = sqrt(sqrt(sqrt(max(0.5 / share, 1.0))))
    return min((sqrt(z2) + late) / 2 * early, 2 * sqrt(z2))


def stake_level(level: int) -> float:
    """The level for stakes, rounded so that a share of δ that differs in its last digits has the same payoffs."""
    return (level >> BITS - 16) / (1 << 16)


def rivals(x: list[float], old: list[list[float]], sign: int, solve: Map, slope: Map, chances: Map) -> list[Any]:
    """Gradients of the best value where one of two policies is best, and where the other one is.

    Where policies compete, the gradient at x jumps between theirs, and bets on both in turn are bets on neither. These
    are the slopes 4 standard deviations from x, for and against the difference of the ``old`` two, of policies that
    differ: one is best at either end. While they are alike: the slopes at x, and where what is best at x disappoints.
    """

    def dot(a: list[float], b: list[float]) -> float:
        return fsum(map(mul, a, b))

    def along(direction: list[float]) -> list[float]:
        shift = solve(direction)
        size = dot(direction, shift)
        scale = 4 / sqrt(size) if 0 < size < 1e300 else 0.0
        for _ in range(12):
            point = [a + scale * b for a, b in zip(x, shift)]
            if min(chances(point)) >= 0:
                return slope(point)
            scale /= 2
        return slope(x)

    one, other = old
    shifts = solve(one), solve(other)
    if dot(one, shifts[1]) ** 2 >= 0.81 * dot(one, shifts[0]) * dot(other, shifts[1]):
        here = slope(x)
        return [here, along([-sign * a for a in here])]
    return [along([way * (a - b) for a, b in zip(one, other)]) for way in (sign, -sign)]


class Bets:
    """Cuts a·x ≤ b of slabs that contain the truth at all marks simultaneously, except with probability α.

    Theorem. At a mark payoffs u_f ∈ (−1, 1) are fixed, a function of the data before it. From then on a step labelled f
    multiplies M by (1 + u_f) exp(−Σ_i u_i f_i[x]), i over the successors of its row. At the truth the mean of this,
    given the past and the row, is m e^(1−m) ≤ 1, m = 1 + Σ u_i f_i: so P(M ever ≥ 2/α) ≤ α/2 (Ville), and the same for
    −u. With K_f the steps labelled f between a mark and the next, N_f those that could have been (visits of rows, once
    for each successor with f), ln M = Σ_marks Σ_f (K_f ln(1 + u_f) − N_f u_f f[x]) is affine in x, so that always

        Σ K ln(1 + u) − ln 2/α  <  Σ_f (Σ_marks N_f u_f) f[truth]  <  ln 2/α − Σ K ln(1 − u).

    Any payoffs are valid. These test x against a shift along I⁻¹G, I the curvature and G the gradient of the best value
    at the `fit` of the data before the mark, or −G, or the last G that was not 0: computed here, so that nobody can
    choose them afterwards. Models of blocks have two series of bets, with α/2 each, along the gradients of `rivals`.
    """

    GRID = 1 << 26  # payoffs are whole numbers over this

    def __init__(self, model: Model, objective: Objective, line: Coordinates, alpha: Fraction) -> None:
        self.model, self.objective, self.line, series = model, objective, line, 2 if line.is_product else 1
        self.level = ln(2 * series / alpha)[1]
        self.aimed = self.found_with = 0  # transitions with which directions and slopes were found
        self.slopes, self.gradients, self.shifts = ([[0.0] * line.dimension] * series for _ in range(3))

    def payoffs(self, x: list[float], share: float, K: list[int], N: list[int]) -> list[list[int]]:
        """u of the free expressions from a mark on, of every series: a function of the data before it."""
        if 4 * sum(K) >= 5 * self.aimed:
            self._aim(x, K, N)
        size = stake(stake_level(self.level), share) * sqrt(share)
        return [[round(max(-0.5, min(0.5, size * y)) * self.GRID) for y in unit] for unit in self.units]

    def cuts(self, data: Data) -> list[Cut]:
        """Two of each series for each mark after the first one with bets, and two for all the data."""
        line, found = self.line, list[Cut]()
        # per series Σ N u f = sums[0] + sums[1:]·x over `den`; ln of u and −u
        series = [([0] * (line.dimension + 1), 0, 0) for _ in self.shifts]
        marks = [(x, *mark[1:]) for x, mark in zip(data.fits(line), data.marks) if mark[1]]
        den, now = line.den * self.GRID, (line.start, Fraction(1), data.successes, data.trials)
        for (x, share, K, N), (_, _, later, tried) in pairwise([*marks, now]):
            for k, payoffs in enumerate(self.payoffs(x, float(share), K, N)):
                sums, gain, loss = series[k]
                for f, u in zip(line.free, payoffs):
                    hits, staked = later[f] - K[f], (tried[f] - N[f]) * u
                    sums = [a + staked * x for a, x in zip(sums, line.terms[f])]
                    if hits and u:
                        gain, loss = (
                            y + hits * ln(Fraction(self.GRID + z, self.GRID))[0] for y, z in ((gain, u), (loss, -u))
                        )
                series[k] = sums, gain, loss
                for sign, won in ((1, loss), (-1, gain)):
                    b = Fraction(self.level - won, ONE) - Fraction(sign * sums[0], den)
                    found.append(([Fraction(sign * a, den) for a in sums[1:]], b))
        return found

    def _aim(self, x: list[float], K: list[int], N: list[int]) -> None:
        """units: payoffs for shifts by one standard deviation of the value."""
        free, self.aimed = self.line.free, sum(K)
        p = [max(q, (K[f] + 0.5) / (4 * N[f] + 4)) for f, q in zip(free, self.line.chances(x))]
        information = self.line.information([N[f] / q for f, q in zip(free, p)])
        ridge = fsum(information[i][i] for i in range(len(x))) * 2.0**-30 + 1e-300
        matrix = shifted(information, ridge)

        def solve(gradient: list[float]) -> list[float]:
            return solved(matrix, gradient) or [0.0] * len(x)

        if len(self.slopes) > 1 or self.aimed >= 2 * self.found_with:  # of blocks the best policy changes more often
            self.found_with, self.slopes = self.aimed, self._slopes(x, solve)
            backs = [fsum(map(mul, *pair)) < 0 for pair in zip(self.slopes, self.shifts)]  # bets both ways would cancel
            given = zip(self.slopes, backs, self.gradients)
            self.gradients = [[-a for a in new] if back else new if any(new) else old for new, back, old in given]
        self.shifts, self.units = [solve(gradient) for gradient in self.gradients], list[list[float]]()
        for gradient, shift in zip(self.gradients, self.shifts):
            size = fsum(map(mul, gradient, shift))
            scale, rows = 1 / sqrt(size) if 0 < size < 1e300 else 0.0, zip(p, self.line.floats)
            self.units.append([scale * fsum(a * b for a, b in zip(w, shift)) / q for q, (_, *w) in rows])

    def _slopes(self, x: list[float], solve: Map) -> list[list[float]]:
        """Of every series."""
        if len(self.slopes) == 1:
            return [self._slope(x)]
        sign = 1 if self.objective.maximising else -1
        return rivals(x, self.slopes, sign, solve, self._slope, self.line.chances)

    def _slope(self, x: list[float]) -> list[float]:
        """The gradient of the best value at x: Σ over transitions of expected passages · value behind them · w_f."""
        model, horizon = self.model, self.objective.horizon
        weight, mass = [0.0] * len(model.table), [float(s == model.initial) for s in range(model.states)]
        chance = [float(c or 0) for c in model.constant]
        for f, q in zip(self.line.free, self.line.chances(x)):
            chance[f] = max(0.0, min(1.0, q))
        for behind, rule in self._plan(chance):
            moved = mass if horizon is None else [0.0] * model.states
            for s, row in rule:
                here, mass[s] = mass[s], 0.0
                for t, f in model.moves[row] if here else ():
                    passed = here * self.objective.factor(s, t) / self.objective.discount.denominator
                    weight[f] += passed * behind[t]
                    moved[t] += passed * chance[f]
            mass = moved
            if fsum(mass[s] for s, _ in rule) < 2.0**-8:
                break
        return [fsum(weight[f] * w[i] for f, (_, *w) in zip(self.line.free, self.line.floats)) for i in range(len(x))]

    def _plan(self, chance: list[float]) -> list[tuple[list[float], list[tuple[int, int]]]]:
        """Per step (values behind it, best rows), the first step first, by sweeps over the states."""
        model, objective, rule, plan = self.model, self.objective, dict[int, int](), list[Any]()
        den, best = objective.discount.denominator, max if objective.maximising else min
        order = [s for s in reversed(range(model.states)) if s not in objective.decided]
        rows = [(float(r), s, moves) for r, s, moves in zip(objective.reward, model.row_state, model.moves)]
        steps = [(r, [(t, chance[f] * objective.factor(s, t) / den) for t, f in moves]) for r, s, moves in rows]
        v = [float(objective.decided.get(s, end)) for s, end in enumerate(objective.final)]
        sweeps = objective.horizon or max(16, min(1024, 2**24 // sum(map(len, model.moves))))
        for _ in range(sweeps):
            old = list(v)
            behind = v if objective.horizon is None else old
            for s in order:
                found = []
                for value, moves in map(steps.__getitem__, model.rows_of[s]):
                    for t, q in moves:
                        value += q * behind[t]
                    found.append(value)
                value = best(found)
                if value != v[s] or s not in rule:  # of rows that are equally good the one that led there stays
                    v[s], rule[s] = value, model.rows_of[s][found.index(value)]
            if objective.horizon is not None:
                plan.append((old, sorted(rule.items())))
            if objective.horizon is None and all(abs(a - b) <= 2.0**-12 * abs(a) for a, b in zip(v, old)):
                break
        return plan[::-1] or [(v, sorted(rule.items()))] * sweeps


# ====================================================================== 4. value functions
def shares(model: Model, method: str, delta: Fraction) -> list[Fraction]:
    """The shares of bets, joint likelihood and intervals."""
    joint = model.coordinates is not None or method == "graph"
    if model.coordinates is not None and model.coordinates.is_product:
        method = "likelihood with bets, of blocks" if method == "likelihood with bets" else "anytime"
    return [delta * Fraction(part, 10_000) for part in SHARES[method if joint and model.box else "anytime"]]


class Known:
    """What is known of u: intervals of expressions; where the likelihood is used also cuts a·x ≤ b, and a ball."""

    def __init__(self, objective: Objective, data: Data, delta: Fraction, method: str, proof: Any) -> None:
        self.model, self.objective, self.cuts = data.model, objective, list[Cut]()
        self.ball: Ball | None = None
        self.box: Box | None = None
        line, part = self.model.coordinates, proof["likelihood"]
        bets, joint, single = shares(self.model, method, delta)
        self.intervals = Intervals(data, single, proof["ends"])
        self.ends = {"low": list(self.intervals.low), "high": list(self.intervals.high)}
        if part is None:
            return
        if line is None or not (joint or part["parts"] is None):
            raise Refused("the joint likelihood is part of the proof, and not of its model and method")
        self.line, self.reach = line, [[Fraction(end, ONE) for end in self.model.range_over_box(x)] for x in line.x]
        if part["parts"] is not None:  # else cuts are those of intervals and the domain
            self.likelihood = Likelihood(line, data, joint, part["parts"])
            logarithms = len(part["cuts"]) * len(self.likelihood.used)
            need(logarithms <= MOST_LOGARITHMS, f"the cuts need more than {MOST_LOGARITHMS:,} logarithms")
        any_bet = any(isinstance(k, int) for k in part["cuts"])
        need(bets > 0 or not any_bet, "bets are part of the proof, and not of its method")
        self.bet_cuts = Bets(self.model, objective, line, bets).cuts(data) if any_bet else []
        self.names, self.cuts = part["cuts"], [self.cut(name) for name in part["cuts"]]
        for f, low, high in part.get("bounds", ()):
            self.tighten(f, low, high)
        if part["ball"] is not None:
            self.enclose(Ball(line, part["ball"]), part["ball"].get("slabs", []))

    def enclose(self, ball: Ball, slabs: list[Any]) -> None:
        """Use a ball that holds all that is left: by likelihood and slabs, or, in one coordinate, by the cuts."""
        if self.line.dimension == 1:
            for way in (1, -1):
                end = ball.center[0] + way * abs(ball.factor[0][0])
                enforced = any(way * a > 0 and a * end >= b for (a,), b in self.cuts)
                need(enforced, "the interval of the only coordinate is not enforced by its cuts")
        else:
            need(len(slabs) <= MOST_SLABS, f"the ball has more than {MOST_SLABS} slabs")
            self.likelihood.check_ball(ball, [self.slab(*given) for given in slabs])
        self.ball = ball
        for f in self.line.free:
            p, width = ball.p[f], farthest(ball, ball.s[f])
            self.intervals.cut(f, down(Fraction(p - width, ball.den)), up(Fraction(p + width, ball.den)))
        self.intervals.check_rows()

    def halves(self, i: int, end: Fraction) -> list[Known]:
        """What is left where x_i ≤ end, and where x_i ≥ end: together all of it. Each in a box of its own."""
        need(i in range(len(self.reach)) and self.reach[i][0] < end < self.reach[i][1], "a piece is split outside it")
        found = []
        for ends in ([self.reach[i][0], end], [end, self.reach[i][1]]):
            half = copy(self)
            half.reach = [*self.reach[:i], ends, *self.reach[i + 1 :]]
            half.ball = Box(self.line, half.reach)
            found.append(half)
        return found

    def sides(self, f: int, end: Fraction) -> list[Known]:
        """What is left where the chance of f is at most ``end``, and where it is at least that: together all of it.
        Each has its own cut by this end of f's interval."""
        need(f in self.line.free, "a piece is split by an expression that does not vary")
        found = []
        for kind, own in (("high", min(up(end), self.ends["high"][f])), ("low", max(down(end), self.ends["low"][f]))):
            half = copy(self)
            half.ends = self.ends | {kind: [*self.ends[kind][:f], own, *self.ends[kind][f + 1 :]]}
            half.cuts = [half.cut(x) if x == f"{kind} {f}" else a for x, a in zip(self.names, self.cuts, strict=True)]
            found.append(half)
        return found

    def boxed(self) -> Box:
        """A box that holds all that is left, by the intervals of expressions of one coordinate."""
        if self.box is None:
            ends = [list(pair) for pair in self.reach]
            for f in self.line.free:
                (i, w), *more = [(i, w) for i, w in enumerate(self.line.terms[f][1:]) if w]
                scaled = [Fraction(y[f] * self.line.den, ONE) for y in (self.intervals.low, self.intervals.high)]
                low, high = sorted((y - self.line.terms[f][0]) / w for y in scaled)
                ends[i] = ends[i] if more else [max(ends[i][0], low), min(ends[i][1], high)]
            self.box = Box(self.line, ends)
        return self.box

    def cut(self, name: Any) -> Cut:
        """Of a bet: its number; of the likelihood: a point; of an interval: "low 3", "high 3"; else "domain 3"."""
        if not isinstance(name, str):
            return self.bet_cuts[name] if isinstance(name, int) else self.likelihood.cut(name)
        kind, k = name.split()[0], int(name.split()[1])
        c, *w = self.line.domain[k] if kind == "domain" else [Fraction(y, self.line.den) for y in self.line.terms[k]]
        if kind == "high":
            return w, Fraction(self.ends["high"][k], ONE) - c
        return [-y for y in w], c - (0 if kind == "domain" else Fraction(self.ends["low"][k], ONE))

    def tighten(self, f: int, low: list[Any], high: list[Any]) -> None:
        """An interval of an expression by multipliers of cuts."""
        c, *w = (Fraction(y, self.line.den) for y in self.line.terms[f])
        self.intervals.cut(f, down(c - self.most([-y for y in w], low)), up(c + self.most(w, high)))

    def slab(self, multiple: Any, direction: list[Any], low: list[Any], high: list[Any]) -> Slab:
        """Ends of h·x by multipliers of cuts."""
        mu, h = exact(multiple), [exact(y) for y in direction]
        need(mu >= 0 and len(h) == self.line.dimension, "a slab of a negative multiple, or of a wrong size")
        return mu, h, -self.most([-y for y in h], low), self.most(h, high)

    def most(self, h: list[Fraction], multipliers: list[Any]) -> Fraction:
        """max h·x over the cuts, or more: Σ m b + max (h − Σ m a)·x over the parameters' bounds."""
        a, b = self.joined(multipliers)
        rest = [x - y for x, y in zip(h, a)]
        return b + sum(max(x * low, x * high) for x, (low, high) in zip(rest, self.reach))

    def joined(self, multipliers: list[Any]) -> Cut:
        """Σ m (a·x ≤ b), m ≥ 0."""
        a, b = [Fraction(0)] * self.line.dimension, Fraction(0)
        for i, given in multipliers:
            m = exact(given)
            need(m >= 0 and 0 <= i < len(self.cuts), "a multiplier is negative or belongs to no cut")
            a, b = [x + m * y for x, y in zip(a, self.cuts[i][0])], b + m * self.cuts[i][1]
        return a, b


class Claim:
    """One side of the claim: U(s, y) = v + g·y for every state (and number of steps to go); g = 0 for plain numbers.

    Lower bounds are upper bounds of the negated problem: everything below is about U ≥ r + γ P U. At the truth, which
    the region contains, U then bounds the value by induction over steps (horizon), by contraction (discount), or as
    shown in `plays_end`. States without a number claim nothing, and no play that counts may get there.
    """

    def __init__(self, region: Known, policy: Policy | None, upper: bool, proof: Any, objective: Any = None) -> None:
        self.model, self.objective, self.region = region.model, objective or region.objective, region
        model, objective, self.policy = self.model, self.objective, policy
        self.upper, self.sign, self.side = upper, 1 if upper else -1, "upper" if upper else "lower"
        values = [proof["values"]] if objective.horizon is None else proof["values"]
        around = region.boxed() if proof.get("box") else region.ball
        self.ball = around if max(len(U or ()) for row in values for U in row) > 1 else None
        size = 1 + len(self.ball.center) if self.ball else 1
        fits = len(values) == (objective.horizon or 0) + 1 and all(len(row) == model.states for row in values)
        need(fits, "values of a wrong number of steps or states")
        need(all(U is None or len(U) == size for row in values for U in row), "a function that does not fit its ball")
        known = {x: exact(x) for row in values for U in row for x in U or ()}
        self.den = common_den([*known.values(), *objective.reward, *objective.decided.values(), *objective.final])
        whole = {x: self.scaled(number) for x, number in known.items()}
        #: (v, g) by steps to go and states, whole numbers over `den`
        self.U = [[None if U is None else (whole[U[0]], [whole[x] for x in U[1:]]) for U in row] for row in values]
        self.rank: list[Any] = proof.get("rank") or [0] * model.states
        need(all(isinstance(rank, int) for rank in self.rank), "a rank is not an integer")
        #: multipliers of cuts, by "start" and by "steps to go after it, row"
        self.duals: dict[str, list[Any]] = proof.get("duals", {})
        #: by the same, for functions over a ball or a box: t and [μ, cut or two], … of `_under_cuts`; and rooms, by cut
        self.rows: dict[str, list[Any]] = proof.get("rows", {})
        self.rooms: dict[int, list[int]] = {}
        work = sum(size ** (len(product) - 1) for _, products in self.rows.values() for product in products)
        need(work <= MOST_WORK, f"the products of cuts need more than {MOST_WORK:,} multiplications")

    def scaled(self, x: Fraction) -> int:
        return self.sign * x.numerator * (self.den // x.denominator)

    def _least(self, k: int, s: int) -> int:
        """The minimum of U(s, ·) over the ball, or less."""
        v, g = self.U[k][s] or (0, [])
        return v - farthest(self.ball, g)

    def bound(self) -> Fraction:
        """The proved bound of the initial state's value."""
        last = len(self.U) - 1
        for k in range(last + 1):
            spent, self.active = self.inequalities(k, max(k - 1, 0), last - k)
        if self.objective.horizon is None and self.objective.discount == 1:
            self.plays_end(spent, self.active)
        return self.at_start()

    def at_start(self) -> Fraction:
        return self.sign * at_most([self], self.duals.get("start", []))

    def played(self, state: int, step: int) -> list[list[tuple[int, Fraction]]]:
        """Groups of rows with their probabilities: that of the policy, or each row by itself."""
        if self.policy is not None:
            return [self.policy.at(state, step)]
        return [[(row, Fraction(1))] for row in self.model.rows_of[state]]

    def inequalities(self, k: int, after: int, step: int) -> tuple[dict[int, bool], set[int]]:
        """Check every state with k steps to go, for every u of the region; return (spent rows, active states).

        Not active: decided states, states without a claim, probabilities bounded by 1, lower bounds ≤ 0 of values ≥ 0.
        """
        model, objective = self.model, self.objective
        spent, active = dict[int, bool](), set[int]()
        settled = objective.is_reach if self.upper else objective.is_positive
        for s in range(model.states):
            if self.U[k][s] is None:
                continue
            least = self._least(k, s)
            if s in objective.decided or (objective.horizon is not None and k == 0):
                worth = self.scaled(objective.decided.get(s, objective.final[s]))
                need(least >= worth, f"state {s}: the {self.side} bound of a play that is over is wrong")
            elif not (settled and least >= (self.den if self.upper else 0)):
                active.add(s)
        for s in active:
            for group in self.played(s, step):
                excess = self.excess(group, self.U[k][s] or (0, []), after)
                if excess > 0:
                    at = model.name[group[0][0]] + (f", {k} steps to go" if objective.horizon is not None else "")
                    by = min(excess / self.den, Fraction(10**99))
                    raise Refused(f"{at}: the {self.side} bound misses its inequality by {float(by):.3g}")
                for row, _ in group:
                    spent[row] = not objective.is_signed and (excess < 0 or objective.reward[row] > 0)
        return spent, active

    def excess(self, group: list[tuple[int, Fraction]], here: tuple[int, list[int]], after: int) -> Fraction:
        """The most by which r + γ P U exceeds a function v + g·y, over the region; times `den`."""
        paid = sum((w * self.scaled(self.objective.reward[row]) for row, w in group), Fraction(-here[0]))
        if self.ball is None:
            return paid + sum(w * self.most(row, after) for row, w in group)
        return self._quadratic(self.ball, group, paid, here[1], after)

    def successors(self, row: int, after: int) -> list[tuple[int, int, list[int]]]:
        """(expression, v, g) of the successors, times γ over its denominator where a step ends there."""
        model, objective, found = self.model, self.objective, []
        for target, f in model.moves[row]:
            if self.region.intervals.high[f] <= 0:
                continue
            U = self.U[after][target]
            if U is None:
                raise Refused(f"{model.name[row]}: no {self.side} bound for its successor {target}")
            factor = objective.factor(model.row_state[row], target)
            found.append((f, U[0], U[1]) if factor == 1 else (f, factor * U[0], [factor * x for x in U[1]]))
        return found

    def most(self, row: int, after: int) -> Fraction:
        """max Σ p_i U_i over distributions with lo ≤ p ≤ hi: start at lo, then fill the largest first."""
        low, high = self.region.intervals.low, self.region.intervals.high
        successors = self.successors(row, after)
        if (multipliers := self.duals.get(f"{after} {row}")) is not None:
            return self._over_cuts(successors, multipliers) / self.objective.discount.denominator
        total, room = sum(low[f] * v for f, v, _ in successors), ONE - sum(low[f] for f, _, _ in successors)
        for v, width in sorted(((v, high[f] - low[f]) for f, v, _ in successors), reverse=True):
            part = min(room, width)
            total, room = total + part * v, room - part
        return Fraction(total, ONE * self.objective.discount.denominator)

    def _over_cuts(self, successors: list[tuple[int, int, list[int]]], multipliers: list[Any]) -> Fraction:
        """max Σ f_i[x] U_i = c + h·x over the cuts."""
        line = self.region.line
        sums = [sum(v * line.terms[f][k] for f, v, _ in successors) for k in range(line.dimension + 1)]
        c, *h = (Fraction(x, line.den * self.den) for x in sums)
        return self.den * (c + self.region.most(h, multipliers))

    def _quadratic(self, ball: Ball, group: list[Any], a: Fraction, here: list[int], after: int) -> Fraction:
        """a + l·y + y'My ≤ a + |l| + max(0, λ_max(M)) on the ball; λ_max < t where tI − M is positive definite.

        M_jk = 0 unless j or k is among the coordinates `own` of the rows' expressions. With M = (A B; B' 0), own ones
        first, tI − M is positive definite if t > 0 and tI − A − BB'/t is (Schur's complement).
        """
        parts, moves = common_den(weight for _, weight in group), list[Any]()
        den = ball.den * self.objective.discount.denominator * parts
        a0, l = -(-a * den // 1), [-x * den for x in here]
        for row, weight in group:
            w = int(weight * parts)
            for f, v, g in self.successors(row, after):
                p, slope = w * ball.p[f], ball.s[f]
                a0, l = a0 + p * v, [x + p * y + w * v * z for x, y, z in zip(l, g, slope)]
                moves += [(w, slope, g)] if any(g) and any(slope) else []
        own = [i for i in range(len(here)) if any(slope[i] for _, slope, _ in moves)]
        pulls = [[-w * slope[i] for w, slope, _ in moves] for i in own]
        turn = [[sum(map(mul, pull, column)) for column in zip(*(g for _, _, g in moves))] for pull in pulls]
        minus = [[row[j] + other[i] for j, other in zip(own, turn)] for i, row in zip(own, turn)]  # −A over 2 den
        rest = [[x for j, x in enumerate(row) if j not in own] for row in turn]  # −B over 2 den
        linear, rough = a0 + farthest(ball, l), highest(ball, minus, rest)
        if (given := self.rows.get(f"{after} {group[0][0]}")) is not None:
            form = {0: [a0, *l]} | {i + 1: [0, *(-x for x in row)] for i, row in zip(own, turn)}
            if self._under_cuts(ball, given, den * self.den, form):
                return Fraction(0)
        if 2 * linear + rough > 0 > linear and not isinstance(ball, Box):
            t = Fraction(-2 * linear)
            less = [[x - sum(map(mul, b, c)) / t for x, c in zip(row, rest)] for row, b in zip(minus, rest)]
            if is_positive(shifted(less, t)):
                return Fraction(0)
        return Fraction(2 * linear + rough, 2 * den)

    def _under_cuts(self, ball: Ball, given: list[Any], whole: int, form: dict[int, list[int]]) -> bool:
        """Whether Σ_k z_k form_k·z < 0 where z = (1, y) has y in the ball and in all cuts, proved by t, μ ≥ 0 with

            −Σ_k z_k form_k·z − t (1 − |y|²) − Σ μ c c'  =  z'Nz,    N positive definite:

        the rooms c of cuts are ≥ 0 there; c' = 1 for one cut alone. With the k of `form` first, N = (A B; B' tI) is
        positive definite if t > 0 and A − BB'/t is (Schur's complement). All are whole numbers over whole · ONE².
        On a box t = 0, and z'Nz > 0 if N_00 exceeds the magnitudes of all other terms: |y_k| ≤ 1.
        """
        is_box, rows = isinstance(ball, Box), {k: [x << 2 * BITS for x in row] for k, row in form.items()}
        part = exact(given[0]) * whole // 1 * (not is_box)
        need(is_box or part > 0, "a row over cuts without a multiple of the ball")
        t = part << 2 * BITS
        rows[0][0] += t
        for multiple, *cuts in given[1]:
            mu, (last, *more) = exact(multiple) * whole // 1, [self.room(ball, i) for i in cuts]
            need(mu >= 0 and len(more) < 2, "a multiple of a product is negative, or of more than two cuts")
            for k, x in ((k, x) for other in more or [[ONE]] for k, x in enumerate(other) if x):
                added = [mu * x * y for y in last]
                rows[k] = [y + z for y, z in zip(rows[k], added)] if k in rows else added
        if is_box:
            terms = dict[tuple[int, int], list[int]]()
            for i, j, x in ((i, j, x) for i, row in rows.items() for j, x in enumerate(row)):
                terms.setdefault((min(i, j), max(i, j)), []).append(x)
            return sum(abs(sum(same)) for pair, same in terms.items() if any(pair)) < -rows[0][0]
        rest = [k for k in range(len(rows[0])) if k not in rows]
        B = [(i, [row[k] for k in rest]) for i, row in sorted(rows.items())]
        twice = [[Fraction(sum(map(mul, b, c)), -2 * t) - rows[i][j] - rows[j][i] for j, c in B] for i, b in B]
        return is_positive([[x + 2 * t * (i == j > 0) for j, x in enumerate(row)] for i, row in enumerate(twice)])

    def room(self, ball: Ball, i: int) -> list[int]:
        """b − a·x of a cut as c0 + c·y over 2^BITS, rounded up: each c_k is less than 1 off, and |y_k| ≤ 1."""
        if i not in self.rooms:
            need(0 <= i < len(self.region.cuts), "a room belongs to no cut")
            a, b = self.region.cuts[i]
            at, *n = (sum(x * y for x, y in zip(a, column) if x) for column in (ball.center, *zip(*ball.factor)))
            self.rooms[i] = [up(b - at) + len(n), *(down(-x) for x in n)]
        return self.rooms[i]

    # ------------------------------------------------------------------ 5. plays that never end
    def plays_end(self, spent: dict[int, bool], active: set[int]) -> None:
        """Without discount and horizon. Iterating U ≥ r + P U along plays at the truth gives, for every n,

            U(s) ≥ E[rewards of n steps, values of states that are not active] + E[U(s_n); active all the time],

        and the last term must not be negative in the limit.
        - Lower bounds where such a play is worth infinity (U = −L): infinite plays need no proof.
        - Upper bounds where it is worth what it collects, rewards ≥ 0: U(s_n) plus what was collected is bounded from
          below and falls on average, so that it converges. Only plays that stay where U < 0 can do harm.
        - Otherwise, and there, plays must leave the active states almost surely. It is enough that in each state every
          row (of a policy: one row that is played) is spent, i.e. its inequality is strict or it pays, or leads out:
          some successor of positive probability, or every one, is not active or of smaller rank. Rows that are not
          spent lead out with a probability bounded from below. Those that are spent take something from U each time,
          which is bounded, so they are played finitely often (of a lower bound: or the rewards are infinite). For
          rewards of both signs rows must lead out: steps then have a finite mean, and without one whoever plays fair
          bets until he is ahead gains on average.
        """
        active = self.harmful(active)
        for group in (group for s in active for group in self.played(s, 0)):
            ends, name = [spent[row] or self.leads_out(row, active) for row, _ in group], self.model.name[group[0][0]]
            need(any(ends), f"{name}: plays may stay forever, and the {self.side} bound fails")

    def harmful(self, active: set[int]) -> set[int]:
        """The states in which plays must not stay."""
        if self.objective.is_signed or self.objective.must_reach == self.upper:
            return active
        return {s for s in active if self._least(0, s) < 0} if self.upper else set()

    def leads_out(self, row: int, active: set[int]) -> bool:
        """Whether all successors, or one of positive probability, are not active or have a smaller rank."""
        rank, here, moves = self.rank, self.rank[self.model.row_state[row]], self.model.moves[row]
        out = [f for t, f in moves if t not in active or rank[t] < here]
        return len(out) == len(moves) or any(map(self.region.intervals.is_possible, out))


# ====================================================================== 6. claims that compare
def at_most(claims: list[Claim], multipliers: list[Any]) -> Fraction:
    """max over the region of the sum of their U(s0, ·): the values that they bound are those at one parameter.
    On the ball v + g·y ≤ v + |g|; and by weak duality, with multipliers m ≥ 0 of the cuts a·x ≤ b,
    v + g·y = v + Σ m (a·x − a·c) + (g − F'Σ m a)·y ≤ v + Σ m (b − a·c) + |g − F'Σ m a|. On a box |g| is Σ |g_i|.
    """
    region, value, slope = claims[0].region, Fraction(0), list[Fraction]()
    for claim in claims:
        need(claim.U[-1][claim.model.initial] is not None, f"no {claim.side} bound for the initial state")
        v, whole = claim.U[-1][claim.model.initial] or (0, [])
        value, g = value + Fraction(v, claim.den), [Fraction(x, claim.den) for x in whole]
        slope = [x + y for x, y in zip(slope, g)] if slope and g else slope or g
    ball = next((claim.ball for claim in claims if claim.ball), None)
    need(all(claim.ball in (None, ball) for claim in claims), "functions over a ball and over a box are compared")
    if ball is not None:
        a, b = region.joined(multipliers)
        value += b - sum(x * y for x, y in zip(a, ball.center))
        slope = [x - sum(y * z for y, z in zip(a, column)) for x, column in zip(slope, zip(*ball.factor))]
    return value + (sum(map(abs, slope)) if isinstance(ball, Box) else norm_up(slope))


def check_optimal(best: Claim, mine: Claim, fates: list[Any]) -> None:
    """No policy is better than π. Rows with r + γ P U ≤ L(s), U a bound of every policy and L one of π, are *beaten*:
    whoever plays π instead, and ever after, does as well. The other rows, where they lead, must be π's or *ties*, with
    r + γ P V(π) = V(π) for every u. States of one class are worth the same: the row of π pays the same and leads to the
    same classes with the same probabilities, as polynomials; or it pays nothing and leads to its own class, up to a
    number of times, the `delay`. A tie does what its state's class does, or stays in it.

    With ties, what is collected plus the V(π) that is left is V(π) on average. A play that never ends must not be
    better: if rewards ≥ 0 are maximised, V(π) ≥ 0 is left; a target that must be reached makes it infinite; else plays
    leave the states that are active for `best`, by `plays_end`, and where they are then V(π) must be 0, or decided.
    """
    model, objective, decided, L = best.model, best.objective, best.objective.decided, mine.U[0]
    plays = [mine.played(s, 0)[0] for s in range(model.states)]
    own, fits = [group[0][0] for group in plays], all(isinstance(x, int) for fate in fates for x in fate)
    fits = fits and len(fates) == model.states and objective.horizon is None and best.ball is mine.ball
    need(fits and all(len(group) == 1 for group in plays), "optimality is covered for one row per state")

    def is_left(s: int, row: int) -> bool:
        if L[s] is None or s in decided or row == own[s]:
            return s not in decided
        (v, g), scale = L[s] or (0, []), Fraction(-best.den, mine.den)
        here = int(scale * v // 1) - sum(map(bool, g)), [int(scale * x // 1) for x in g]  # ≤ L(s) on the ball
        return best.excess([(row, Fraction(1))], here, 0) > 0

    def leads(row: int) -> tuple[Fraction, dict[int, Polynomial]]:
        """What a row pays, and γ times the probability with which it leads to each class."""
        found, s = dict[int, Polynomial](), model.row_state[row]
        for t, f in model.moves[row]:
            share = Fraction(objective.factor(s, t), objective.discount.denominator)
            found[fates[t][0]] = combined([(Fraction(1), found.get(fates[t][0], {})), (share, model.table[f])])
        return objective.reward[row], {c: total for c, total in found.items() if total}

    left = [[row for row in rows if is_left(s, row)] for s, rows in enumerate(model.rows_of)]
    states = reached([model.initial], [[t for row in rows for t, _ in model.moves[row]] for rows in left])
    stays, stands = [(Fraction(0), {c: {(): Fraction(1)}}) for c, _ in fates], dict[int, Any]()
    for s in states:
        (c, delay), here = fates[s], (decided[s], {}) if s in decided else leads(own[s])
        known = stays[s] if delay else stands.setdefault(c, here)
        soon = not delay or all(fates[t][1] < delay for t, _ in model.moves[own[s]])
        need(here == known and soon, f"state {s} is not worth the same as its class")
    ties = [(s, row) for s in states for row in left[s] if row != own[s]]
    for s, row in ties:
        need(leads(row) in (stands[fates[s][0]], stays[s]), f"{model.name[row]} is neither beaten nor a tie")
    harmless = objective.discount < 1 or objective.maximising or objective.is_signed or not ties
    for s in () if harmless else states - set(decided):
        v, g = L[s] or (1, [])
        ends = objective.must_reach or s in best.active or v + farthest(mine.ball, g) <= 0
        need(ends and L[s] is not None, f"state {s}: ties may be played forever")


# ====================================================================== the statement
class Statement:
    """A file: what it is about, and by name what it claims, and as "… proved" what it proves, in `found`."""

    def __init__(self, proof: dict[str, Any]) -> None:
        beside = "the proof of a certificate is beside it, and its name ends in proof.json.gz"
        need(proof.get("format") == FORMAT, f"not a proof: format {proof.get('format')!r}, not {FORMAT!r}; {beside}")
        need("refused" not in proof, str(proof.get("refused")))
        model = self.model = Model(proof["model"])
        objective = self.objective = Objective(model, proof["objective"])
        self.proof, self.policy, data = proof, Policy(model, proof["policy"]), Data(model, proof["data"])
        self.baseline = None if proof.get("baseline") is None else Policy(model, proof["baseline"])
        limits = [(limit["objective"], exact(limit["threshold"])) for limit in proof["objective"].get("limits") or []]
        self.limits = [(Objective(model, asked), threshold) for asked, threshold in limits]
        delta, method, self.given = exact(proof["delta"]), proof["confidence"], proof["evaluated"]
        error = self.error = exact(proof["reward_error"])
        endless = None in [asked.horizon for asked in (objective, *(limit for limit, _ in self.limits))]
        steady = all(len(policy.rules or [0]) == 1 for policy in (self.policy, self.baseline or self.policy))
        need(steady or not endless, "the policy changes with time: not covered")
        fits = 0 < delta < 1 and 0 <= error <= (1 if objective.is_positive else 0 if objective.is_signed else error)
        need(fits, f"delta is {float(delta)}, the error of rewards {float(error)}")
        need(error == 0 or not (limits or self.baseline), "an error of rewards, and limits or a baseline")
        need(method in SHARES or not model.box, f"confidence {method!r} is not covered")
        need(isinstance(self.given, bool) and (self.given or not self.baseline), "evaluated must be true or false")
        self.found: dict[str, Any] = {"objective": objective, "data": data, "evaluated": self.given}
        self.delta, self.method = delta, method
        self.regions, self.claims = dict[int, Known](), dict[str, Claim]()

    def region(self, number: int) -> Known:
        """What the data, or those of an earlier time, leave."""
        if number not in self.regions:
            part, data = self.proof["regions"][number], self.found["data"]
            then = data if part["data"] is None else Data(self.model, part["data"])
            need(then.is_start_of(data), "the data behind a bound are not the beginning of the data")
            self.regions[number] = Known(self.objective, then, self.delta, self.method, part)
        return self.regions[number]

    def bounds(self) -> None:
        """Of the policy or every one (None), of the baseline, of limits; and what no policy can keep better."""
        for side, upper in SIDES:
            own = self.policy if self.given or self.objective.maximising != upper else None
            self.bound(side, self.objective, own, upper)
            if self.baseline is not None:
                self.bound(f"baseline {side}", self.objective, self.baseline, upper)
            for k, (limit, _) in enumerate(self.limits):
                self.bound(f"limit {k} {side}", limit, self.policy, upper)
                if limit.maximising == upper:
                    self.bound(f"limit {k} best", limit, None, upper)

    def bound(self, name: str, objective: Objective, policy: Policy | None, upper: bool) -> None:
        """With weights: for policies that keep the limits V_k ≤ c_k. Minimising, V ≥ V + Σ w (V_k − c_k) for w ≥ 0."""
        known = [Fraction(upper)] if (objective.is_reach if upper else objective.is_positive) else []
        if (part := self.proof.get(name)) is not None:
            fits = objective.horizon is None or "split" in part or len(part["values"]) == objective.horizon + 1
            need(fits, "values of a wrong number of steps")  # before bets are placed, which plan as many
            total, rest = objective, Fraction(0)
            if (given := part.get("weights")) is not None:
                need(policy is None and objective is self.objective, "weights of limits in a bound of one value")
                weights = [(exact(w), *limit) for w, limit in zip(given, self.limits, strict=True)]
                signs = [w >= 0 if limit.maximising == objective.maximising else w <= 0 for w, limit, _ in weights]
                need(all(signs), "the weight of a limit has a wrong sign")
                parts = [(Fraction(1), objective), *((w, limit) for w, limit, _ in weights if w)]
                total, rest = Sum(self.model, parts), sum((w * c for w, _, c in weights), rest)
            claims = [Claim(region, policy, upper, piece, total) for region, piece in self.pieces(part)]
            worst = (max if upper else min)(claim.bound() for claim in claims)
            self.claims[name] = claims[0]  # comparisons use it only over its own region
            known.append(objective.off(worst, self.error, upper) - rest)
        self.settle(name, known, upper)

    def pieces(self, part: dict[str, Any]) -> list[tuple[Known, dict[str, Any]]]:
        """The pieces of a region, or it alone, that may hold the truth; each with its part of the file."""
        self.splits = 0
        found = self.leaves(self.region(part["region"]), part)
        need(bool(found), "all pieces of the region are empty: the data contradict the model")
        return found

    def leaves(self, region: Known, part: dict[str, Any]) -> list[tuple[Known, dict[str, Any]]]:
        """A region is split in two by a coordinate or an event, empty as cuts contradict each other, or one piece."""
        if (split := part.get("split", part.get("event"))) is not None:
            self.splits += 1
            need(self.splits < MOST_PIECES, f"the region has more than {MOST_PIECES} pieces")
            halve = region.halves if "split" in part else region.sides
            halves = zip(halve(split[0], exact(split[1])), part["pieces"], strict=True)
            return [found for half, piece in halves for found in self.leaves(half, piece)]
        if (multipliers := part.get("empty")) is not None:
            need(region.most([Fraction(0)] * len(region.reach), multipliers) < 0, "a piece is not empty")
            return []
        return [(region, part)]

    def differences(self, part: dict[str, Any], *asked: tuple[str, Policy | None]) -> list[Any]:
        """(the most that a value exceeds another, at one parameter; the functions that say so) of each piece."""
        return [self.compared(region, piece, asked) for region, piece in self.pieces(part)]

    def compared(self, region: Known, part: dict[str, Any], asked: Any) -> tuple[Fraction, list[Claim]]:
        """By functions of the piece's own, or by those of bounds."""
        claims = list[Claim]()
        for given, (name, policy) in zip(part["functions"], asked, strict=True):
            claim = self.claims.get(name)
            if given is not None:
                claim = Claim(region, policy, name.endswith("upper"), given, self.objective)
                claim.bound()
            if not claim or (claim.region, claim.policy, claim.objective) != (region, policy, self.objective):
                raise Refused(f"the {name} bound is used, and there is none on this value")
            claims.append(claim)
        return at_most(claims, part["start"]), claims

    def regret(self) -> None:
        """By two functions, or by the gap of the bounds; 0 of an optimal policy. If rewards deviate, each value moves,
        by at most as much as the larger one can: that of the upper function."""
        lower, upper, optimal = self.found["lower proved"], self.found["upper proved"], False
        known = [upper - lower] if not self.given and None not in (lower, upper) else []
        if (part := self.proof.get("regret")) is not None:
            need(not self.limits, "the regret among policies that keep limits is the gap: no functions are covered")
            own = None if self.objective.maximising else self.policy
            found = self.differences(part, ("upper", own), ("lower", self.policy if own is None else None))
            ends = [(most, pair[0].at_start()) for most, pair in found]
            moved = [most + 2 * (self.objective.off(end, self.error, True) - end) for most, end in ends]
            known.append(max(*moved, Fraction(0)))
            if part.get("fates") is not None:
                need(self.error == 0, "an error of rewards leaves no policy optimal")
                [(_, pair)] = found
                best, mine = pair if own is None else reversed(pair)
                check_optimal(best, mine, part["fates"])
                known, optimal = [Fraction(0)], True
        self.settle("regret", known, True)
        self.found["optimal"] = self.proof["claim"].get("optimal", False)
        need(self.found["optimal"] in (False, optimal), "the policy is claimed to be optimal: that is not proved")

    def gain(self) -> None:
        """V(π) − V(β), where costs are minimised V(β) − V(π): at a common parameter, or by bounds on both values."""
        for side, upper in SIDES if self.baseline is not None else ():
            pair: list[Any] = [("baseline upper", self.baseline), ("lower", self.policy)]
            if upper == self.objective.maximising:
                pair = [("upper", self.policy), ("baseline lower", self.baseline)]
            ends = [self.found[f"{name} proved"] for name, _ in pair]
            known = [ends[0] - ends[1]] if None not in ends else []
            if (part := self.proof.get(f"gain {side}")) is not None:
                known.append(max(most for most, _ in self.differences(part, *pair)))
            self.settle(f"gain {side}", known if upper else [-x for x in known], upper)

    def settle(self, name: str, known: list[Fraction], upper: bool) -> None:
        """Note the best of the proved numbers under a name; refuse a claim that is better."""
        claimed, proved = self.proof["claim"].get(name), (min if upper else max)(known, default=None)
        self.found[name], self.found[f"{name} proved"] = claimed, proved
        if claimed is not None:
            holds = proved is not None and (exact(claimed) >= proved if upper else exact(claimed) <= proved)
            shown, word = "nothing" if proved is None else float(proved), name if name == "regret" else f"{name} bound"
            need(holds, f"the {word} {claimed!r} is claimed, but {shown!r} is proved")


def check(proof: dict[str, Any]) -> dict[str, Any]:
    """What the file proves; raises `Refused` with the reason if something fails."""
    statement = Statement(proof)
    statement.bounds()
    statement.regret()
    statement.gain()
    return statement.found


def sentence(proof: dict[str, Any], found: dict[str, Any]) -> str:
    told = {name: "unknown" if number is None else number for name, number in found.items()}
    limits, low, high = proof["objective"].get("limits") or [], told["lower"], told["upper"]
    other = "no policy that keeps the limits" if limits else "no policy"
    if found["evaluated"]:
        text = f"the value of the policy lies in [{low}, {high}]"
    elif found["objective"].maximising:
        text = f"the policy achieves at least {low}; {other} achieves more than {high}"
    else:
        text = f"the policy costs at most {high}; {other} costs less than {low}"
    if found["regret"] is not None:
        text += f"; {other} is better" + ("" if found["optimal"] else f" by more than {found['regret']}")
    if proof.get("baseline") is not None:
        text += f"; it is better than the baseline by at least {told['gain lower']}, by at most {told['gain upper']}"
        text += f"; the value of the baseline lies in [{told['baseline lower']}, {told['baseline upper']}]"
    for k, _ in enumerate(limits):
        low, high, best = (told[f"limit {k} {part}"] for part in ("lower", "upper", "best"))
        text += f"; limit {k} has a value in [{low}, {high}] for the policy, and none better than {best} for any"
    graph = "" if proof["confidence"] != "graph" else " (only the model's graph is trusted)"
    return f"proved with probability ≥ 1 − {proof['delta']} over {found['data'].total:,} transitions: {text}{graph}"


def question(proof: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What was asked, one line each: the same sentence about another question is another statement.

    Names are the file's; they are quoted and cut, so that none of them can imitate a line.
    """
    model, asked, told = found["data"].model, proof["objective"], proof["model"]
    boxes = [f"{quoted(name)} in [{low}, {high}]" for name, low, high in zip(*map(told.get, BOX), strict=True)]
    boxes = boxes[:20] + [f"{len(boxes) - 20:,} more"] * (len(boxes) > 20)
    rows = len(model.coordinates.domain) if model.coordinates else 0
    content = {k: part for k, part in told.items() if k not in ("name", "hash")}
    limits, baseline = list[str](), proof.get("baseline")
    for k, limit in enumerate(asked.get("limits") or []):
        lines = goal_lines(model, limit["objective"], Objective(model, limit["objective"]).must_reach)
        limits.append(f"limit {k}: {'; '.join(lines)}; threshold: {limit['threshold']}")
    rules = [] if baseline is None else [f"baseline: a policy, SHA-256 of its content {digest(baseline)}"]
    return [
        *goal_lines(model, asked, found["objective"].must_reach),
        *limits,
        *rules,
        f"error of rewards: {proof['reward_error']}",
        f"model: {quoted(told['name'])}, {model.states:,} states, {model.rows:,} rows, {len(told['successor']):,} "
        f"transitions; {len(model.silent):,} states take no time",
        f"hash: {quoted(told['hash'])} by the file; SHA-256 of its content {digest(content)}",
        f"parameters: {', '.join(boxes) or 'none'}; linear inequalities of the domain: {rows}",
        f"delta: {proof['delta']}, method {quoted(proof['confidence'])}",
    ]


def goal_lines(model: Model, asked: dict[str, Any], must_reach: bool) -> list[str]:
    """An objective, one line for each of its parts."""
    goal = "probability of reaching the target" if asked["kind"] == "reach" else quoted(asked["reward_name"])
    labels = [asked.get(name) for name in ("target", "avoid")]
    shown = ["none" if one is None else f"{quoted(one)}, {len(model.labels[one]):,} states" for one in labels]
    return [
        f"objective: {asked['sense']} {goal}{' at the horizon' if asked['kind'] == 'instant' else ''}",
        f"target: {shown[0]}{'; a play that misses it costs infinity' * must_reach}",
        f"avoid: {shown[1]}",
        f"horizon: {'none' if asked.get('horizon') is None else asked['horizon']}",
        f"discount: {asked.get('discount', 1)}",
    ]


def digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def quoted(name: Any) -> str:
    return shortened(json.dumps(str(name)))


def shortened(text: str) -> str:
    """One line of limited length, without control characters."""
    plain = "".join(c if c.isprintable() else " " for c in text[:LONGEST])
    return plain if len(text) <= LONGEST else plain + "…"


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    need(len(dict(pairs)) == len(pairs), "a name stands twice in one object")
    return dict(pairs)


def read(path: str) -> dict[str, Any]:
    """The content of a file. Unpacking stops at the limit, so that a small file cannot fill the memory."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        try:
            raw = (gzip.GzipFile(fileobj=file) if packed else file).read(MOST_BYTES + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise Refused(f"the file is damaged: {error}") from None
    need(len(raw) <= MOST_BYTES, f"the file has more than {MOST_BYTES:,} bytes")
    need(sum(map(raw.count, (b",", b"[", b"{"))) <= MOST_ENTRIES, f"the file has more than {MOST_ENTRIES:,} entries")
    try:
        return json.loads(raw, object_pairs_hook=unique)  # type: ignore[no-any-return]
    except (ValueError, RecursionError) as error:
        raise Refused(f"the file is not JSON: {error}") from None


def main(arguments: list[str]) -> int:
    """Return 0 if proved, 1 if refused, 2 if there is no file to read."""
    if len(arguments) != 1:
        print(__doc__)
        return 2
    try:
        proof = read(arguments[0])
        found = check(proof)
        lines = [sentence(proof, found), *question(proof, found)]
    except (Refused, *MALFORMED) as error:
        text = str(error) if isinstance(error, Refused) else f"the file is malformed: {error!r}"
        print(f"refused: {shortened(text)}")
        return 1
    except OSError as error:
        print(error)
        return 2
    print("\n  ".join(lines))
    return 0


if __name__ == "__main__":
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end quietly when the reader closes, as with `| head`
    sys.exit(main(sys.argv[1:]))
