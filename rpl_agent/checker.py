"""A checker for certificates of learned Markov decision processes: `python checker.py PROOF.json[.gz]`.

One file, Python's standard library, exact arithmetic (big integers and `fractions`), nothing imported of the package.
It reads a model M with unknown parameters θ, what was counted, a policy π and a claim, and proves

    with probability ≥ 1 − δ over the data:   lower ≤ V(π)  and  V(best policy) ≤ upper       (maximising),
                                              lower ≤ V(best policy)  and  V(π) ≤ upper       (minimising),
                                              lower ≤ V(π) ≤ upper                            (a policy that was given),

or names the first inequality that fails. It does not search: all values, centres and ranks stand in the file, and
how they were found does not matter.

Trusted: this file; that `model`, `objective`, `delta`, `confidence` (the method, chosen before any data) and `data` in
the proof are the reader's; and the reader's assumptions: the data come from M[u] with one u in the domain, at which
every expression is a probability; given state and action the successor is drawn independently of everything before;
marks were taken when their data arrived. Nothing is assumed about which actions were chosen, or when sampling stopped.

Floats in the file are the exact dyadic numbers that they are. Irrational numbers (logarithms, roots) are enclosed.
The proof is in five steps: model and objective (1), intervals of expressions (2), the likelihood (3), value functions
(4), plays that never end (5). What is not covered is refused with a sentence.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from math import factorial, isqrt, lcm
from typing import Any

FORMAT = "rpl-proof/1"
#: Scale of enclosures: a number t stands for t / 2^BITS.
BITS = 128
ONE = 1 << BITS
#: Shares of δ, fixed before any data: expressions that are tied to each other, and a graph whose expressions are not
#: trusted. The first is divided once more where the joint likelihood is used, which model and method decide.
TIED, UNTIED = Fraction(95, 100), Fraction(4, 100)  # the rest pays for the rounding of 1/13 + 1/13 + …
LIKELIHOOD, INTERVALS = Fraction(97, 100), Fraction(3, 100)
#: The joint likelihood is used up to this number of coordinates.
MOST_COORDINATES = 6
#: Inflation of a prior's covariance.
KAPPA = Fraction(6, 5)
#: The volume of the unit ball in r dimensions is p/q π^k.
VOLUME = {1: (2, 1, 0), 2: (1, 1, 1), 3: (4, 3, 1), 4: (1, 2, 2), 5: (8, 15, 2), 6: (1, 6, 3)}


class Refused(Exception):
    """A sentence: what is false, or not covered."""


#: What a file that is no proof leads to.
MALFORMED = (KeyError, TypeError, IndexError, ValueError, AttributeError, ArithmeticError, AssertionError)


def need(holds: bool, sentence: str) -> None:
    """Refuse unless a condition holds."""
    if not holds:
        raise Refused(sentence)


# ====================================================================== numbers
def exact(number: Any) -> Fraction:
    """The rational number that stands in the file: a whole number, a float (a dyadic number), or "p/q"."""
    need(isinstance(number, int | float | str) and not isinstance(number, bool), f"{number!r} is not a number")
    try:
        return Fraction(number)
    except (ValueError, OverflowError, ZeroDivisionError):
        raise Refused(f"{number!r} is not a finite number") from None


def over_one_denominator(numbers: list[Fraction]) -> tuple[list[int], int]:
    """Numerators over the common denominator."""
    den = lcm(1, *{x.denominator for x in numbers})
    return [x.numerator * (den // x.denominator) for x in numbers], den


def up(x: Fraction) -> int:
    """x rounded up to a multiple of 2^-BITS."""
    return -((-x.numerator << BITS) // x.denominator)


def down(x: Fraction) -> int:
    return (x.numerator << BITS) // x.denominator


def _atanh_series(n: int, d: int, bits: int) -> int:
    """2 atanh(n/d) · 2^bits for |n/d| ≤ 1/3, off by less than 2^10: every term is rounded by less than 2 units."""
    t = (n << bits) // d
    square, power, total, k = t * t >> bits, t, t, 1
    while power:
        power = power * square >> bits
        if power == -1:  # rounding towards −∞ never ends at 0
            break
        k += 2
        total += power // k
    return 2 * total


_GUARD = BITS + 32
_LN2 = _atanh_series(1, 3, _GUARD)


def ln(x: Fraction) -> tuple[int, int]:
    """ln x enclosed, both ends times 2^BITS. x = m 2^e with m in [2/3, 4/3], ln m = 2 atanh((m − 1)/(m + 1))."""
    need(x > 0, "the logarithm of a number that is not positive")
    n, d = x.numerator, x.denominator
    e = n.bit_length() - d.bit_length()
    n, d = (n, d << e) if e >= 0 else (n << -e, d)
    if 3 * n > 4 * d:
        e, d = e + 1, 2 * d
    elif 3 * n < 2 * d:
        e, n = e - 1, 2 * n
    value = (_atanh_series(n - d, n + d, _GUARD) + e * _LN2) >> 32  # |e| < 2^20, so 2^10 (|e| + 1) < 2^31
    return value - 1, value + 2


def root_up(square: int) -> int:
    """A whole number that is at least the root of a whole number."""
    return isqrt(square) + 1 if square > 0 else 0


def norm_up(vector: list[Fraction]) -> Fraction:
    """At least the length of a vector."""
    whole, den = over_one_denominator(vector)
    return Fraction(root_up(sum(x * x for x in whole)), den)


def dot(x: Iterable[Fraction], y: Iterable[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(x, y)), Fraction(0))


def shifted(matrix: list[list[Fraction]], amount: Fraction) -> list[list[Fraction]]:
    """matrix + amount · I."""
    return [[x + (amount if i == j else 0) for j, x in enumerate(row)] for i, row in enumerate(matrix)]


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


def ldl(matrix: list[list[Fraction]], vector: list[Fraction] | None = None) -> tuple[Fraction, Fraction] | None:
    """(determinant, v' matrix⁻¹ v) of a matrix that is positive definite, None of any other: LDL' in exact numbers."""
    a = [[*row, x] for row, x in zip(matrix, vector or [Fraction(0)] * len(matrix))]
    det, form = Fraction(1), Fraction(0)
    for k, row in enumerate(a):
        if row[k] <= 0:
            return None
        det, form = det * row[k], form + row[-1] ** 2 / row[k]
        for i in range(k + 1, len(a)):
            factor = a[i][k] / row[k]
            a[i] = [x - factor * y for x, y in zip(a[i], row)]
    return det, form


# ====================================================================== 1. model, objective, data
Monomial = tuple[tuple[int, int], ...]  # (parameter, power), …
Polynomial = dict[Monomial, Fraction]


class Model:
    """States, rows (an action in a state), transitions, and for each transition an expression in the parameters."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.state_ptr, self.row_ptr = data["state_ptr"], data["row_ptr"]
        self.successor, self.expression = data["successor"], data["expression"]
        self.initial, self.action, self.actions = data["initial"], data["action"], data["actions"]
        self.states, self.rows = len(self.state_ptr) - 1, len(self.row_ptr) - 1
        self.silent = set(data["silent"])
        self.labels = {name: set(states) for name, states in data["labels"].items()}
        self.rewards = data["rewards"]
        self.box = [(exact(low), exact(high)) for low, high in zip(data["lower"], data["upper"], strict=True)]
        table = data["expressions"]
        self.table: list[Polynomial] = [{tuple((i, p) for i, p in m): exact(c) for c, m in terms} for terms in table]
        for name, ptr, size in (("states", self.state_ptr, self.rows), ("rows", self.row_ptr, len(self.successor))):
            grows = all(isinstance(p, int) and p < q for p, q in pairwise(ptr))
            need(bool(ptr) and ptr[0] == 0 and ptr[-1] == size and grows, f"the {name} of the model are out of order")
        need(len(self.expression) == len(self.successor) and len(self.action) == self.rows, "the model's lists differ")
        need(all(0 <= s < self.states for s in [*self.successor, self.initial, *self.silent]), "a state does not exist")
        need(set(self.expression) == set(range(len(self.table))), "an expression does not exist, or is not used")
        self.row_state = [s for s in range(self.states) for _ in range(self.state_ptr[s], self.state_ptr[s + 1])]
        self.constant = [terms.get((), Fraction(0)) if not set(terms) - {()} else None for terms in self.table]
        self._check_rows()

    def _check_rows(self) -> None:
        """Every row sums to 1 identically, so that M[v] is a decision process wherever its expressions are ≥ 0."""
        known: set[tuple[int, ...]] = set()
        for row in range(self.rows):
            ids = tuple(sorted(self.expression[self.row_ptr[row] : self.row_ptr[row + 1]]))
            if ids in known:
                continue
            total: Polynomial = {(): Fraction(-1)}
            for f in ids:
                for monomial, c in self.table[f].items():
                    total[monomial] = total.get(monomial, Fraction(0)) + c
            need(not any(total.values()), f"the probabilities of {self.row_name(row)} do not sum to 1")
            known.add(ids)

    def row_name(self, row: int) -> str:
        return f"state {self.row_state[row]}, action {self.actions[self.action[row]]!r}"

    def range_over_box(self, f: int) -> tuple[Fraction, Fraction]:
        """An expression over the parameters' bounds, term by term."""
        low = high = Fraction(0)
        for monomial, c in self.table[f].items():
            ends = [c]
            for i, power in monomial:
                a, b = self.box[i]
                ends = [x * end for x in ends for end in (a**power, b**power, *([Fraction(0)] if a < 0 < b else []))]
            low, high = low + min(ends), high + max(ends)
        return low, high


class Objective:
    """What a play is worth. `decided` states end it, with a value; without a target it never ends."""

    def __init__(self, model: Model, data: dict[str, Any]) -> None:
        known = data["kind"] in ("reach", "reward", "instant") and data["sense"] in ("max", "min")
        need(known, f"the objective {data['sense']} {data['kind']} is not covered")
        self.maximising, self.is_reach = data["sense"] == "max", data["kind"] == "reach"
        target: set[int] = model.labels[data["target"]] if data.get("target") is not None else set()
        avoid: set[int] = model.labels[data["avoid"]] - target if data.get("avoid") is not None else set()
        self.decided = dict.fromkeys(avoid, Fraction(0)) | dict.fromkeys(target, Fraction(int(self.is_reach)))
        self.discount = exact(data.get("discount", 1))
        need(0 < self.discount <= 1, f"the discount is {float(self.discount)}")
        self._rewards(model, data)
        self._times(model, data.get("horizon"))
        summed = not self.is_reach and self.discount == 1 and self.horizon is None
        need(not summed or all(r >= 0 for r in self.reward), "a reward is negative, without a discount or a horizon")
        #: whether no value is negative, and whether a play that never ends is worth infinity, or what it collects
        self.is_positive = self.is_reach or summed
        unreached = data.get("unreached")
        need(unreached in (None, "infinite", "accumulate"), f"unreached = {unreached!r} is not covered")
        infinite = unreached == "infinite" or (unreached is None and not self.maximising)
        self.must_reach = summed and data.get("target") is not None and infinite

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
            following = model.successor[model.row_ptr[model.state_ptr[s]] : model.row_ptr[model.state_ptr[s + 1]]]
            need(not any(t in model.silent for t in following), f"the silent state {s} leads to a silent one")
        self.undiscounted = model.initial if start else -1
        self.visible = [s not in model.silent for s in range(model.states)]
        self.horizon: int | None = None
        if horizon is None:
            return
        need(isinstance(horizon, int) and horizon >= 0, f"the horizon is {horizon!r}")
        if between:
            for row, s in enumerate(model.row_state):
                if self.visible[s] and s not in self.decided:
                    following = model.successor[model.row_ptr[row] : model.row_ptr[row + 1]]
                    even = set(following) == {s} or not any(self.visible[t] for t in following)
                    need(even, f"{model.row_name(row)} passes no silent state")
        self.horizon = int(start) + (2 if between else 1) * horizon

    def factor(self, state: int, target: int) -> int:
        """What a successor's value is multiplied with, over the discount's denominator."""
        takes_time = self.visible[target] and state != self.undiscounted
        return self.discount.numerator if takes_time else self.discount.denominator


class Policy:
    """What is played: one row per state, one per state and step, or weights of rows."""

    def __init__(self, model: Model, data: dict[str, Any]) -> None:
        rows, weights = data["rows"], data["weights"]
        need((rows is None) != (weights is None), "a policy has either rows or weights")
        self.model, self.weights = model, [exact(w) for w in weights or []]
        self.rules: list[list[int]] = [] if rows is None else rows if rows and isinstance(rows[0], list) else [rows]
        valid = rows is not None or (len(self.weights) == model.rows and all(w >= 0 for w in self.weights))
        need(valid, "the policy's weights are no weights")
        for rule in self.rules:
            need(len(rule) == model.states, "the policy does not choose one row per state")
            for s, row in enumerate(rule):
                need(model.state_ptr[s] <= row < model.state_ptr[s + 1], f"the policy chooses row {row} in state {s}")

    def at(self, state: int, step: int) -> list[tuple[int, Fraction]]:
        """(row, probability) in a step; the last rule persists."""
        if self.rules:
            return [(self.rules[min(step, len(self.rules) - 1)][state], Fraction(1))]
        rows = range(self.model.state_ptr[state], self.model.state_ptr[state + 1])
        total = sum(self.weights[row] for row in rows)
        need(total > 0, f"the policy plays nothing in state {state}")
        return [(row, self.weights[row] / total) for row in rows if self.weights[row] > 0]


class Data:
    """Counts of transitions, and per mark the counts of expressions of the data before it."""

    def __init__(self, model: Model, data: dict[str, Any]) -> None:
        self.transitions = [0] * len(model.successor)
        for t, n in data["transitions"]:
            need(0 <= t < len(self.transitions) and isinstance(n, int) and n > 0, f"{n!r} counts of transition {t!r}")
            need(self.transitions[t] == 0, f"transition {t} is counted twice")
            self.transitions[t] = n
        self.total = sum(self.transitions)
        self.successes = [0] * len(model.table)
        for t, n in enumerate(self.transitions):
            self.successes[model.expression[t]] += n
        self.marks: list[tuple[dict[int, int], Fraction]] = []
        before: dict[int, int] = {}
        for mark in data["marks"]:
            counts = {f: n for f, n in mark["successes"]}
            inside = all(0 <= f < len(self.successes) and 0 <= n <= self.successes[f] for f, n in counts.items())
            later = all(counts.get(f, 0) >= n for f, n in before.items())
            need(inside and later and sum(counts.values()) == mark["total"], "a mark is no part of the data after it")
            self.marks.append((counts, exact(mark["weight"])))
            before = counts
        self._check_weights(data)

    def _check_weights(self, data: dict[str, Any]) -> None:
        """The windows' weights sum to 1, and are those of the schedule, which was fixed before any data."""
        schedule, planned = data["schedule"], data["planned"]
        need(schedule in ("geometric", "split"), f"the schedule of marks {schedule!r} is not covered")
        need(isinstance(planned, int) and planned >= 0, f"{planned!r} transitions were planned")
        geometric = schedule == "geometric"
        self.origin_weight = exact(1 / 13 if geometric else 0.01)
        weights, totals = [w for _, w in self.marks], [sum(counts.values()) for counts, _ in self.marks]
        most = 1 + Fraction(1, 2**40)
        need(all(w > 0 for w in weights) and sum(weights, self.origin_weight) <= most, "the marks' weights exceed 1")
        if not geometric and not planned:
            return  # the reader's own marks: when and with which weight is for the reader to know
        usual, due = exact(1 / 13), [64 * 4**j for j in range(12)]
        if not geometric:
            usual, due = exact((1.0 - 0.01) / 3), [max(1, round(share * planned)) for share in (0.04, 0.08, 0.16)]
        need(all(w == usual for w in weights), "the weights of the marks are not those of their schedule")
        for last, now in zip([0, *totals], totals):
            need(any(last < d <= now for d in due), f"no mark is due after {now} transitions")


# ====================================================================== 2. intervals of single expressions
class Intervals:
    """lo ≤ f[u] ≤ hi for every expression, in units of 2^-BITS, on an event of probability ≥ 1 − its share of δ.

    Theorem (anytime interval). A Bernoulli event of probability p is observed at times that may depend on the past.
    With K successes and J failures, M = ∫ q^K (1−q)^J dBeta(½,½)(q) / (p^K (1−p)^J) is a non-negative martingale that
    starts at 1, so P(M ever ≥ 1/γ) ≤ γ (Ville). ln M is convex in p with its minimum at K/(K+J): an end l < K/(K+J)
    with M(l) ≥ 1/γ excludes all p ≤ l, and the same above. The integral is (2K)! (2J)! / (4^(K+J) K! J! (K+J)!).

    The event of f: "f happened", in all rows that carry f on one transition; "1 − f did not", in rows that carry 1 − f
    on one and f on none. So f and 1 − f are one event. Each has γ = share / number of events of the model.
    """

    def __init__(self, model: Model, data: Data, share: Fraction, ends: dict[str, Any], tied: bool) -> None:
        self.model, self.data = model, data
        if not tied:  # every transition is an expression of its own: only the graph is trusted
            model.expression = list(range(len(model.successor)))
        self.seen = data.successes if tied else data.transitions
        self.low, self.high = [0] * len(self.seen), [ONE] * len(self.seen)
        partner, self.events = self._events(tied)
        threshold = ln(max(1, len(self.events)) / share)[1]
        for name, pair in ends.items():
            f, (low, high) = int(name), (exact(x) for x in pair)
            need(f in self.events, f"the interval of expression {f} belongs to no event of the model")
            self._check(f, low, high, *self.events[f], threshold)
            self.cut(f, down(low), up(high))
            if f in partner:
                self.cut(partner[f], down(1 - high), up(1 - low))
        self._propagate(model.table if tied else [])
        self.check_rows()

    def _propagate(self, table: list[Polynomial]) -> None:
        """Expressions f = c + k d with one polynomial d: an interval of each is one of d, and so of all others."""
        alike: dict[frozenset[tuple[Monomial, Fraction]], list[tuple[int, Fraction, Fraction]]] = {}
        for f, terms in enumerate(table):
            if self.model.constant[f] is None:
                k = terms[min(m for m in terms if m)]
                d = frozenset((m, c / k) for m, c in terms.items() if m)
                alike.setdefault(d, []).append((f, terms.get((), Fraction(0)), k))
        for group in alike.values():
            ends = [sorted((Fraction(x, ONE) - c) / k for x in (self.low[f], self.high[f])) for f, c, k in group]
            low, high = max(end[0] for end in ends), min(end[1] for end in ends)
            for f, c, k in group:
                first, last = sorted((c + k * low, c + k * high))
                self.cut(f, down(first), up(last))

    def _check(self, f: int, low: Fraction, high: Fraction, K: int, J: int, threshold: int) -> None:
        both = ln_factorial(2 * K)[0] + ln_factorial(2 * J)[0] - (K + J) * ln(Fraction(4))[1]
        both -= ln_factorial(K)[1] + ln_factorial(J)[1] + ln_factorial(K + J)[1]
        need(low * (K + J) <= K <= high * (K + J), f"the interval of expression {f} does not hold {K}/{K + J}")
        for end in ([low] if low > 0 else []) + ([high] if high < 1 else []):  # 0 and 1 say nothing
            excluded = 0 < end < 1 and both - (K * ln(end)[1] + J * ln(1 - end)[1]) >= threshold
            need(excluded, f"the end {float(end):.9g} of expression {f} is not excluded by the data")

    def cut(self, f: int, low: int, high: int) -> None:
        """Intersect with an interval."""
        self.low[f], self.high[f] = max(self.low[f], low), min(self.high[f], high)
        need(self.low[f] <= self.high[f], f"no value is left for expression {f}: the data contradict the model")

    def _events(self, tied: bool) -> tuple[dict[int, int], dict[int, tuple[int, int]]]:
        """The complement of f where it is an expression, too; (successes, failures) of the event of f."""
        model, counts = self.model, self.data.transitions
        rows = [range(model.row_ptr[r], model.row_ptr[r + 1]) for r in range(model.rows)]
        partner: dict[int, int] = {}
        if tied:
            known = {frozenset(terms.items()): f for f, terms in enumerate(model.table)}
            for f, terms in enumerate(model.table):
                if (c := model.constant[f]) is not None:
                    self.low[f], self.high[f] = down(c), up(c)
                    continue
                low, high = model.range_over_box(f)
                self.cut(f, down(max(low, Fraction(0))), up(min(high, Fraction(1))))
                opposite = {m: -c for m, c in terms.items()} | {(): 1 - terms.get((), Fraction(0))}
                other = known.get(frozenset((m, c) for m, c in opposite.items() if c))
                if other is not None:
                    partner[f] = other
            candidates = {f for f in model.expression if model.constant[f] is None}
        else:
            for row in rows:
                if len(row) == 2:
                    partner[row[0]], partner[row[1]] = row[1], row[0]
                if len(row) == 1:
                    self.low[row[0]] = ONE
            candidates = {t for row in rows if len(row) > 1 for t in row}
        events = {f: [0, 0] for f in candidates if not (f in partner and partner[f] < f and partner[f] in candidates)}
        for row in rows:
            total = sum(counts[t] for t in row)
            places: dict[int, list[int]] = {}
            for t in row:
                places.setdefault(model.expression[t], []).append(t)
            for f, where in places.items():
                if f in events and len(where) == 1:
                    hits = counts[where[0]]
                elif partner.get(f) in events and partner[f] not in places and len(where) == 1:
                    f, hits = partner[f], total - counts[where[0]]
                else:
                    continue
                events[f][0] += hits
                events[f][1] += total - hits
        return partner, {f: (hits, misses) for f, (hits, misses) in events.items()}

    def check_rows(self) -> None:
        """Every row must have a distribution left."""
        for r in range(self.model.rows):
            ids = self.model.expression[self.model.row_ptr[r] : self.model.row_ptr[r + 1]]
            fits = sum(self.low[f] for f in ids) <= ONE <= sum(self.high[f] for f in ids)
            need(fits, f"no distribution is left for {self.model.row_name(r)}: the data contradict the model")

    def is_possible(self, f: int) -> bool:
        """Whether f[u] > 0: its interval says so, or it was seen to happen (almost surely nothing else is seen)."""
        return self.low[f] > 0 or self.seen[f] > 0


# ====================================================================== 3. the joint likelihood
class Coordinates:
    """f[θ] = c_f + w_f·x: x is the reduced row echelon form of all coefficients, applied to the monomials of θ.

    Numerators over one denominator. Expressions see θ only through x, so the likelihood is a function of x. Rows sum
    to 1 for every x, so each x at which all f ≥ 0 makes a Markov decision process, whether or not it is one of some θ:
    the theorems below ask for no more, and polynomials need no other treatment than affine expressions.
    """

    def __init__(self, model: Model) -> None:
        basis: dict[Monomial, Polynomial] = {}
        for terms in model.table:
            row = {m: c for m, c in terms.items() if m and c}
            for pivot in sorted(set(row) & set(basis), key=_order):
                row = _combined(row, -row[pivot], basis[pivot])
            if row:
                pivot = min(row, key=_order)
                row = {m: c / row[pivot] for m, c in row.items()}
                basis = {p: _combined(b, -b[pivot], row) if pivot in b else b for p, b in basis.items()} | {pivot: row}
            if len(basis) > MOST_COORDINATES:
                break
        pivots = sorted(basis, key=_order)
        self.dimension = len(pivots)
        self.is_covered = 0 < self.dimension <= MOST_COORDINATES
        if self.is_covered:
            numbers = [terms.get(m, Fraction(0)) for terms in model.table for m in [(), *pivots]]
            flat, self.den = over_one_denominator(numbers)
            step = self.dimension + 1
            self.terms = [flat[i : i + step] for i in range(0, len(flat), step)]  # (c_f, w_f)
            self.free = [f for f in range(len(model.table)) if any(self.terms[f][1:])]


def _order(monomial: Monomial) -> tuple[int, tuple[tuple[int, int], ...]]:
    """By degree, then by parameters."""
    return sum(p for _, p in monomial), tuple((i, -p) for i, p in monomial)


def _combined(row: Polynomial, factor: Fraction, other: Polynomial) -> Polynomial:
    """row + factor · other, without zeros."""
    found = {m: row.get(m, Fraction(0)) + factor * other.get(m, Fraction(0)) for m in {*row, *other}}
    return {m: c for m, c in found.items() if c}


class Frame:
    """x = center + factor y: every expression is p_f + s_f·y, whole numbers over one denominator `den`."""

    def __init__(self, coordinates: Coordinates, data: dict[str, Any]) -> None:
        r = coordinates.dimension
        center, factor = data["center"], data["factor"]
        need(len(center) == r and len(factor) == r and all(len(row) == r for row in factor), "a frame of a wrong size")
        self.center, self.factor = [exact(x) for x in center], [[exact(x) for x in row] for row in factor]
        flat, scale = over_one_denominator([*self.center, *(x for row in self.factor for x in row)])
        rows = [flat[r + r * k : r + r * (k + 1)] for k in range(r)]
        self.den = coordinates.den * scale
        self.p = [c * scale + sum(a * b for a, b in zip(w, flat)) for c, *w in coordinates.terms]
        self.s = [[sum(w[k] * rows[k][j] for k in range(r)) for j in range(r)] for _, *w in coordinates.terms]

    def length(self, f: int) -> int:
        """At least |s_f|: how far f moves over the unit ball."""
        return root_up(sum(x * x for x in self.s[f]))


class Likelihood:
    """C: a convex set of x that holds the truth at all times together, except with probability α.

    Theorem. For the window j of steps after mark j let g_j(x) = −Σ_f K_jf ln f[x]. Let W_j be a measure with W_j ≤ 1 on
    {x : all f ≥ 0} that is a function of the data before the mark, Q_j = ∫ exp(−g_j) dW_j, and let w_j be weights,
    Σ w_j ≤ 1. Then E = Σ_j w_j Q_j exp(g_j(u)) is a supermartingale that starts at ≤ 1 (each step multiplies
    f[x]/f[u], of conditional mean ≤ Σ_i P[x]_i = 1), so P(E ever ≥ 1/α) ≤ α. Less than Q_j will do, and windows
    may be left out. With any λ_j ≥ 0, Σ λ_j = 1, concavity of ln gives, wherever E < 1/α,

        Σ_j λ_j g_j(u)  <  bound  =  ln 1/α − Σ_j λ_j (ln w_j + ln Q_j) + Σ_j λ_j ln λ_j.

    So u lies in C = {x : g(x) ≤ bound}, g = −Σ_f K_f ln f, K = Σ_j λ_j K_j: convex, because f is affine in x.
    """

    def __init__(self, coordinates: Coordinates, data: Data, alpha: Fraction, windows: list[dict[str, Any]]) -> None:
        self.coordinates = coordinates
        self.tau = Fraction(coordinates.dimension + 1, 2 * len(coordinates.free))
        mixing = [exact(window["mixing"]) for window in windows]
        need(all(m > 0 for m in mixing) and sum(mixing) == 1, "the mixing of windows does not sum to 1")
        marks = [window["mark"] for window in windows]
        known = all(m is None or (isinstance(m, int) and 0 <= m < len(data.marks)) for m in marks)
        need(known and len(set(marks)) == len(marks), "a window has no mark, or two have one")
        self.bound = Fraction(ln(1 / alpha)[1], ONE)
        self.K = [Fraction(0)] * len(data.successes)
        for window, share in zip(windows, mixing):
            before, weight = ({}, data.origin_weight) if window["mark"] is None else data.marks[window["mark"]]
            counts = [n - before.get(f, 0) for f, n in enumerate(data.successes)]
            log_q = self._log_mixture(before, counts, window)
            self.bound -= share * Fraction(log_q + ln(weight)[0] - ln(share)[1], ONE)
            for f in coordinates.free:
                self.K[f] += share * counts[f]
        self.used = [f for f in coordinates.free if self.K[f] > 0]

    def _log_mixture(self, before: dict[int, int], counts: list[int], window: dict[str, Any]) -> int:
        """A lower bound of ln Q for the Gaussian prior of the data before the mark.

        Prior. Let h = −Σ (K_f + τ) ln f over the data before the mark and x* its minimiser: τ is a number of the model.
        W is the Gaussian of mean x* and precision h''(x*)/κ where all f ≥ 0. The file gives a point z near x*: h is
        self-concordant (constant 2/√τ), so a Newton decrement λ ≤ 2^-26 √τ at z gives |z − x*| ≤ 2^-25 in the norm
        of h''(z) and h''(x*) = h''(z) up to factors 1 ± 2^-23: in what follows that costs less than the `charge`.

        Bound. For ρ uniform on the ellipsoid m + F·Ball, on which all f ≥ 0, Jensen's inequality gives
        ln Q ≥ E_ρ[−g] + E_ρ[ln w] + ln vol(F·Ball). By symmetry E ln(1+t) = ½ E ln(1−t²) for t = s_f·y / f[m], and
        −ln(1−t²) ≤ t² + t⁴/(2(1−q)) for t² ≤ q = |s_f|²/f[m]², with E t² = q/(r+2), E t⁴ = 3q²/((r+2)(r+4)).
        """
        r = self.coordinates.dimension
        z = [exact(x) for x in window["prior"]]
        precision, determinant = self._prior(before, z)
        frame = Frame(self.coordinates, window)
        triangular = not any(x for k, row in enumerate(frame.factor) for x in row[k + 1 :])
        need(triangular, "the factor of a window's ball is not triangular")  # its volume is that of its diagonal
        total = Fraction(0)
        for f in self.coordinates.free:
            need(frame.p[f] > 0 and frame.length(f) <= frame.p[f], f"expression {f} may be negative in a window's ball")
            if counts[f]:
                q = Fraction((sum(x * x for x in frame.s[f]) << BITS) // frame.p[f] ** 2 + 1, ONE)
                need(q < 1, f"a window's ball is too large for expression {f}")
                lost = q / (r + 2) + 3 * q * q / ((r + 2) * (r + 4) * 2 * (1 - q))
                total += counts[f] * Fraction(ln(Fraction(frame.p[f], frame.den))[0] - up(lost / 2), ONE)
        columns = [[m - x for m, x in zip(frame.center, z)], *zip(*frame.factor)]
        forms = [dot(c, [dot(row, c) for row in precision]) for c in columns]
        away = forms[0] + sum(forms[1:], Fraction(0)) / (r + 2)  # E_ρ (x − z)' precision (x − z)
        charge = Fraction(1, 2**20) * (r + 1 + away)
        over, under, power = VOLUME[r]
        logs = ln(Fraction(over, under))[0] + power * ln(PI[0])[0] + sum(ln(frame.factor[k][k])[0] for k in range(r))
        logs += (ln(determinant)[0] - r * ln(2 * PI[1])[1]) // 2
        return logs + down(total - away / 2 - charge)

    def _prior(self, before: dict[int, int], z: list[Fraction]) -> tuple[list[list[Fraction]], Fraction]:
        """The precision at z and its determinant; z is checked to be near the minimiser of h."""
        r, terms = self.coordinates.dimension, self.coordinates.terms
        point, scale = over_one_denominator(z)
        gradient, hessian = [0] * r, [[0] * r for _ in range(r)]
        for f in self.coordinates.free:
            c, *w = terms[f]
            value = c * scale + sum(a * b for a, b in zip(w, point, strict=True))  # f[z] · den · scale
            need(value > 0, f"expression {f} is not positive at a prior's centre")
            weight = self.tau + before.get(f, 0)
            slope = [(x * scale << BITS) // value for x in w]  # ∇f / f, off by one unit of 2^-BITS
            n, d = weight.numerator, weight.denominator
            for i in range(r):
                gradient[i] -= n * slope[i] // d
                for j in range(r):
                    hessian[i][j] += (n * slope[i] * slope[j] // d) >> BITS
        H = [[Fraction(hessian[i][j] + hessian[j][i], 2 * ONE) for j in range(r)] for i in range(r)]
        found = ldl(H, [Fraction(x, ONE) for x in gradient])
        if found is None or ldl(shifted(H, Fraction(-1, 2**30))) is None:
            raise Refused("the curvature of a prior is too small")
        need(2 * found[1] + Fraction(1, 2**70) <= self.tau / 2**52, "a prior's centre is not what its data say")
        return [[x / KAPPA for x in row] for row in H], found[0] / KAPPA**r

    def cut(self, point: list[Any]) -> tuple[list[Fraction], Fraction]:
        """(a, b) with a·x ≤ b on C. For any t > 0, −ln f ≥ ln t + 1 − t f; t ≈ 1/f at the point makes it a tangent."""
        z, den = [exact(x) for x in point], self.coordinates.den
        a, b = [Fraction(0)] * len(z), self.bound
        for f in self.used:
            c, *w = self.coordinates.terms[f]
            value = (c + sum(x * y for x, y in zip(w, z, strict=True))) / den
            need(value > 0, f"expression {f} is not positive at a point of the likelihood")
            t = Fraction(int((1 << 64) / value) + 1, 1 << 64)
            weight = self.K[f] * t / den
            b += weight * c - self.K[f] * (1 + Fraction(ln(t)[0], ONE))
            a = [x - weight * y for x, y in zip(a, w)]
        return a, b

    def check_ball(self, frame: Frame) -> None:
        """C lies in the ball {center + factor y : |y| ≤ 1}.

        With t ≈ 1/f[center] and e = t f − 1 = e0 + n·y: on the ball e ≤ ε = e0 + |n|, and φ(ε) = 2(ε − ln(1+ε))/ε²
        decreases, so −ln f = ln t − ln(1+e) ≥ ln t − e + ½ φ(ε) e². Summed over f: g ≥ A0 + A1·y + y'A2 y on the ball.
        If A0 − |A1| + λ_min(A2) > bound, g > bound on the sphere. If also g(center) ≤ bound, no point of C is
        outside: g ≤ bound on the segment to the centre (convexity), which crosses the sphere.
        """
        r, den = self.coordinates.dimension, frame.den << 64
        level, height = Fraction(0), Fraction(0)
        linear, square = [Fraction(0)] * r, [[Fraction(0)] * r for _ in range(r)]
        for f in self.used:
            need(frame.p[f] > 0, f"expression {f} is not positive at the centre of the ball")
            t = den // frame.p[f] + 1  # over 2^64
            e0, n = t * frame.p[f] - den, [t * x for x in frame.s[f]]  # over den
            low, high = ln(Fraction(t, 1 << 64))
            phi = _phi(Fraction(e0 + root_up(sum(x * x for x in n)), den))
            K, e = self.K[f], Fraction(e0, den)
            need(abs(e) < Fraction(1, 2**20), "a number of the likelihood is out of range")
            level += K * (Fraction(low, ONE) - e)
            height += K * (Fraction(high, ONE) - e + e * e)  # ln(1+e) ≥ e − e²
            for i in range(r):
                linear[i] += K * (phi * e - 1) * Fraction(n[i], den)
                for j in range(r):
                    square[i][j] += K * phi / 2 * Fraction(n[i] * n[j], den * den)
        need(height <= self.bound, "the centre of the ball is no point of the likelihood's set")
        encloses = ldl(shifted(square, level - self.bound - norm_up(linear))) is not None
        need(encloses, "the ball does not enclose the likelihood's set")


def _phi(epsilon: Fraction) -> Fraction:
    """At most φ(ε) = 2(ε − ln(1+ε))/ε², rounded down; ln(1+ε) ≤ ε − ε²/2 + ε³/3 for small ε."""
    if epsilon < Fraction(1, 2**20):
        return 1 - max(epsilon, Fraction(0)) * 2 / 3
    rest = 2 * (epsilon - Fraction(ln(1 + epsilon)[1], ONE)) / epsilon**2
    return Fraction(int(rest * 2**32), 2**32)


# ====================================================================== 4. value functions
class Region:
    """What is known of u: intervals of expressions; where the likelihood is used also a ball, and cuts a·x ≤ b."""

    def __init__(self, model: Model, data: Data, delta: Fraction, joint: bool, proof: dict[str, Any]) -> None:
        need(isinstance(proof["tied"], bool), "tied must be true or false")
        self.ball: Frame | None = None
        self.cuts: list[tuple[list[Fraction], Fraction]] = []
        if not proof["tied"]:
            self.intervals = Intervals(model, data, delta * UNTIED, proof["ends"], tied=False)
            return
        coordinates, part = Coordinates(model), proof["likelihood"]
        share = delta * TIED * (INTERVALS if joint and coordinates.is_covered else 1)
        self.intervals = Intervals(model, data, share, proof["ends"], tied=True)
        if part is None:
            return
        need(
            joint and coordinates.is_covered,
            f"the joint likelihood of more than {MOST_COORDINATES} coordinates is not covered",
        )
        likelihood = Likelihood(coordinates, data, delta * TIED * LIKELIHOOD, part["windows"])
        self.cuts = [likelihood.cut(point) for point in part["cuts"]]
        self.ball = Frame(coordinates, part["ball"])
        if coordinates.dimension == 1:
            self._check_interval(coordinates, self.ball)
        else:
            likelihood.check_ball(self.ball)
        for f in coordinates.free:
            p, width = self.ball.p[f], self.ball.length(f)
            self.intervals.cut(f, down(Fraction(p - width, self.ball.den)), up(Fraction(p + width, self.ball.den)))
        self.intervals.check_rows()

    def _check_interval(self, coordinates: Coordinates, ball: Frame) -> None:
        """One coordinate: the ball is an interval, which cuts and intervals of expressions must enforce."""
        low, high = list[Fraction](), list[Fraction]()
        for (a,), b in self.cuts:
            if a:
                (high if a > 0 else low).append(b / a)
        for f in coordinates.free:
            c, w = (Fraction(x, coordinates.den) for x in coordinates.terms[f])
            ends = sorted((Fraction(end, ONE) - c) / w for end in (self.intervals.low[f], self.intervals.high[f]))
            low.append(ends[0])
            high.append(ends[1])
        half = abs(ball.factor[0][0])
        holds = ball.center[0] - half <= max(low) and min(high) <= ball.center[0] + half
        need(holds, "the interval of the only coordinate is not enforced by the likelihood")


class Claim:
    """One side of the claim: U(s, y) = v + g·y for every state (and number of steps to go); g = 0 for plain numbers.

    Lower bounds are upper bounds of the negated problem: everything below is about U ≥ r + γ P U. At the truth, which
    the region holds, U then bounds the value by induction over steps (horizon), by contraction (discount), or as
    said in `plays_end`. States without a number claim nothing, and no play that counts may get there.
    """

    def __init__(
        self, model: Model, objective: Objective, region: Region, policy: Policy | None, upper: bool, proof: Any
    ) -> None:
        self.model, self.objective, self.region, self.policy = model, objective, region, policy
        self.upper, self.sign, self.side = upper, 1 if upper else -1, "upper" if upper else "lower"
        need(proof["kind"] in ("intervals", "affine"), f"value functions of kind {proof['kind']!r} are not covered")
        self.ball = region.ball if proof["kind"] == "affine" else None
        need(self.ball is not None or proof["kind"] == "intervals", "affine functions need the ball of a likelihood")
        r = len(self.ball.center) if self.ball else 0
        values, slopes = proof["values"], proof["gradient"] if r else []
        if objective.horizon is None:
            values, slopes = [values], [slopes]
        need(len(values) == (objective.horizon or 0) + 1, "values of a wrong number of steps")
        need(all(len(row) == model.states for row in values), "values of a wrong number of states")
        zero: list[Any] = [[]] * model.states
        pairs = [list(zip(row, slopes[k] if r else zero, strict=True)) for k, row in enumerate(values)]
        need(all(len(g) == r for row in pairs for _, g in row), "gradients of a wrong size")
        known = {x: exact(x) for row in pairs for v, g in row for x in (v, *g) if x is not None}
        numbers = [*known.values(), *objective.reward, *objective.decided.values(), *objective.final]
        self.den = lcm(1, *{x.denominator for x in numbers})
        whole = {x: self._scaled(number) for x, number in known.items()}
        #: (v, g) by steps to go and states, whole numbers over `den`
        self.U = [[None if v is None else (whole[v], [whole[x] for x in g]) for v, g in row] for row in pairs]
        self.rank: list[Any] = proof.get("rank") or [None] * model.states
        self.multipliers = [(i, exact(m)) for i, m in proof.get("multipliers", [])]

    def _scaled(self, x: Fraction) -> int:
        return self.sign * x.numerator * (self.den // x.denominator)

    def _least(self, k: int, s: int) -> int:
        """The minimum of U(s, ·) over the ball, or less."""
        v, g = self.U[k][s] or (0, [])
        return v - root_up(sum(x * x for x in g))

    def bound(self) -> Fraction | None:
        """The proved bound of the initial state's value; None: nothing is claimed."""
        last = len(self.U) - 1
        if self.U[last][self.model.initial] is None:
            return None
        if self.objective.horizon is None:
            spent, active = self.inequalities(0, 0, 0)
            if self.objective.discount == 1:
                self.plays_end(spent, active)
        else:
            for k in range(last + 1):
                self.inequalities(k, max(k - 1, 0), last - k)
        return self.at_start()

    def at_start(self) -> Fraction:
        """max over the region of U(s0, ·): the ball's, or by weak duality with multipliers m ≥ 0 of the cuts a·x ≤ b.

        v + g·y = v + Σ m (a·x − a·c) + (g − F'Σ m a)·y ≤ v + Σ m (b − a·c) + |g − F'Σ m a|.
        """
        v, g = self.U[-1][self.model.initial] or (0, [])
        value, rest = Fraction(v, self.den), [Fraction(x, self.den) for x in g]
        for i, m in self.multipliers:
            need(m >= 0 and 0 <= i < len(self.region.cuts), "a multiplier is negative or belongs to no cut")
            assert self.ball is not None, "only affine functions have multipliers"
            (a, b), F = self.region.cuts[i], self.ball.factor
            value += m * (b - dot(a, self.ball.center))
            rest = [x - m * dot(a, column) for x, column in zip(rest, zip(*F))]
        return self.sign * (value + norm_up(rest))

    # ------------------------------------------------------------------ U ≥ r + γ P U
    def inequalities(self, k: int, after: int, step: int) -> tuple[dict[int, bool], set[int]]:
        """Check every state with k steps to go; (which rows lose something in every visit, active states).

        Not active: decided states, states without a claim, probabilities bounded by 1, lower bounds ≤ 0 of values ≥ 0.
        """
        model, objective = self.model, self.objective
        spent: dict[int, bool] = {}
        active: set[int] = set()
        settled = objective.is_reach if self.upper else objective.is_positive
        for s in range(model.states):
            if self.U[k][s] is None:
                continue
            least = self._least(k, s)
            if s in objective.decided or (objective.horizon is not None and k == 0):
                worth = self._scaled(objective.decided.get(s, objective.final[s]))
                need(least >= worth, f"state {s}: the {self.side} bound of a play that is over is wrong")
            elif not (settled and least >= (self.den if self.upper else 0)):
                active.add(s)
        for s in active:
            rows = range(model.state_ptr[s], model.state_ptr[s + 1])
            for group in [[(row, Fraction(1))] for row in rows] if self.policy is None else [self.policy.at(s, step)]:
                excess = self._excess(s, group, k, after)
                if excess > 0:
                    by = float(excess / self.den) if excess < self.den << 900 else float("inf")
                    at = f", {k} steps to go" if objective.horizon is not None else ""
                    name = model.row_name(group[0][0])
                    raise Refused(f"{name}{at}: the {self.side} bound misses its inequality by {by:.3g}")
                for row, _ in group:
                    spent[row] = excess < 0 or (objective.reward[row] > 0 and objective.is_positive)
        return spent, active

    def _excess(self, s: int, group: list[tuple[int, Fraction]], k: int, after: int) -> Fraction:
        """At least r + γ P U − U in units of 1/den, for every u of the region; a group is a mixture of rows."""
        v, g = self.U[k][s] or (0, [])
        paid = sum((weight * self._scaled(self.objective.reward[row]) for row, weight in group), Fraction(-v))
        if self.ball is None:
            return paid + sum(weight * self._most(row, after) for row, weight in group)
        return self._quadratic(group, paid, g, after)

    def _successors(self, row: int, after: int) -> list[tuple[int, int, list[int]]]:
        """(expression, v, g) of the successors, times γ over its denominator where a step ends there."""
        model, objective = self.model, self.objective
        found = []
        for t in range(model.row_ptr[row], model.row_ptr[row + 1]):
            target, f = model.successor[t], model.expression[t]
            if self.region.intervals.high[f] <= 0:
                continue
            U = self.U[after][target]
            if U is None:
                raise Refused(f"{model.row_name(row)}: no {self.side} bound for its successor {target}")
            factor = objective.factor(model.row_state[row], target)
            found.append((f, U[0], U[1]) if factor == 1 else (f, factor * U[0], [factor * x for x in U[1]]))
        return found

    def _most(self, row: int, after: int) -> Fraction:
        """max Σ p_i U_i over distributions with lo ≤ p ≤ hi: start at lo, then fill the largest first."""
        low, high = self.region.intervals.low, self.region.intervals.high
        successors = self._successors(row, after)
        total, room = sum(low[f] * v for f, v, _ in successors), ONE - sum(low[f] for f, _, _ in successors)
        for v, width in sorted(((v, high[f] - low[f]) for f, v, _ in successors), reverse=True):
            part = min(room, width)
            total, room = total + part * v, room - part
        return Fraction(total, ONE * self.objective.discount.denominator)

    def _quadratic(self, group: list[tuple[int, Fraction]], a: Fraction, here: list[int], after: int) -> Fraction:
        """a + l·y + y'My ≤ a + |l| + max(0, λ_max(M)) on the ball; λ_max < t where tI − M is positive definite."""
        ball, r = self.ball, len(here)
        assert ball is not None
        l, M = [Fraction(-x) for x in here], [[Fraction(0)] * r for _ in range(r)]
        for row, weight in group:
            a0, l0, M0 = 0, [0] * r, [[0] * r for _ in range(r)]
            for f, v, g in self._successors(row, after):
                p, slope = ball.p[f], ball.s[f]
                a0, l0 = a0 + p * v, [x + p * y + v * z for x, y, z in zip(l0, g, slope)]
                if any(g) and any(slope):
                    M0 = [[M0[i][j] + slope[i] * g[j] + slope[j] * g[i] for j in range(r)] for i in range(r)]
            w = weight / (ball.den * self.objective.discount.denominator)
            a, l = a + w * a0, [x + w * y for x, y in zip(l, l0)]
            M = [[x + w / 2 * y for x, y in zip(old, new)] for old, new in zip(M, M0)]
        linear, rough = a + norm_up(l), max(sum(map(abs, row)) for row in M)  # Gershgorin's bound of λ_max
        fits = linear + rough > 0 > linear and ldl(shifted([[-x for x in row] for row in M], -linear)) is not None
        return Fraction(0) if fits else linear + rough

    # ------------------------------------------------------------------ 5. plays that never end
    def plays_end(self, spent: dict[int, bool], active: set[int]) -> None:
        """Without discount and horizon. Iterating U ≥ r + P U along plays at the truth gives, for every n,

            U(s) ≥ E[rewards of n steps, values of states that are not active] + E[U(s_n); active all the time],

        and the last term must not be negative in the limit.
        - Upper bounds where a play that never ends is worth what it collects: enough that U ≥ 0 everywhere.
        - Lower bounds where such a play is worth infinity (U = −L): they hold for plays that end, and there is nothing
          to show for the others.
        - Otherwise plays must leave the active states almost surely. It is enough that in every active state each row
          (of a policy: one row that is played) either is spent or has a successor of positive probability that is not
          active or has a smaller rank: rows that are not spent lead out with a probability bounded from below, and a
          row is spent if its inequality is strict or it pays. U is bounded on one side, so that in a play of positive
          probability rows are spent for ever only where the rewards are infinite, and then L is below them; for upper
          bounds U ≥ 0 is used, and without it a row is not spent.
        """
        model = self.model
        if self.is_harmless(active):
            return
        counts = self.counts_spent(active)
        for s in active:
            rows = range(model.state_ptr[s], model.state_ptr[s + 1])
            played = rows if self.policy is None else [row for row, _ in self.policy.at(s, 0)]
            ends = [(counts and spent[row]) or self.leads_out(s, row, active) for row in played]
            name = model.row_name(played[ends.index(False)]) if False in ends else ""
            holds = all(ends) if self.policy is None else any(ends)
            need(holds, f"{name}: plays may stay for ever, and the {self.side} bound fails")

    def is_harmless(self, active: set[int]) -> bool:
        """Whether plays that never end need no further proof."""
        return self.objective.must_reach != self.upper and (not self.upper or self.counts_spent(active))

    def counts_spent(self, active: set[int]) -> bool:
        """Whether rows that are spent need not lead out: U ≥ 0, or lower bounds."""
        return not self.upper or all(self._least(0, s) >= 0 for s in active)

    def leads_out(self, s: int, row: int, active: set[int]) -> bool:
        """Whether a successor of positive probability is not active or has a smaller rank."""
        for t in range(self.model.row_ptr[row], self.model.row_ptr[row + 1]):
            target = self.model.successor[t]
            here, there = self.rank[s], self.rank[target]
            if target not in active or (here is not None and there is not None and there < here):
                if self.region.intervals.is_possible(self.model.expression[t]):
                    return True
        return False


# ====================================================================== the statement
def check(proof: dict[str, Any]) -> dict[str, Any]:
    """What the file proves; `Refused` names what fails."""
    need(proof.get("format") == FORMAT, f"not a proof: format {proof.get('format')!r}")
    if "refused" in proof:
        raise Refused(str(proof["refused"]))
    model = Model(proof["model"])
    objective = Objective(model, proof["objective"])
    policy, data = Policy(model, proof["policy"]), Data(model, proof["data"])
    delta = exact(proof["delta"])
    need(0 < delta < 1, f"delta is {float(delta)}")
    method = proof["confidence"]
    need(method in ("likelihood", "anytime") or not model.box, f"confidence {method!r} is not covered")
    region = Region(model, data, delta, method == "likelihood", proof["region"])
    given = proof["evaluated"]
    need(isinstance(given, bool), "evaluated must be true or false")
    found: dict[str, Any] = {"objective": objective, "data": data, "region": region, "evaluated": given}
    for side, upper in (("lower", False), ("upper", True)):
        known = Fraction(upper) if (objective.is_reach if upper else objective.is_positive) else None
        if proof[side] is not None:
            own = given or objective.maximising != upper
            bound = Claim(model, objective, region, policy if own else None, upper, proof[side]).bound()
            if bound is not None:
                known = bound if known is None else min(known, bound) if upper else max(known, bound)
        found[side] = claimed = proof["claim"][side]
        if claimed is not None:
            holds = known is not None and (exact(claimed) >= known if upper else exact(claimed) <= known)
            proved = "nothing" if known is None else float(known)
            need(holds, f"the {side} bound {claimed!r} is claimed, and {proved!r} is proved")
    return found


def sentence(proof: dict[str, Any], found: dict[str, Any]) -> str:
    """What was proved, in words."""
    low, high = "−∞" if found["lower"] is None else found["lower"], "∞" if found["upper"] is None else found["upper"]
    if found["evaluated"]:
        text = f"the value of the policy lies in [{low}, {high}]"
    elif found["objective"].maximising:
        text = f"the policy achieves at least {low}; no policy achieves more than {high}"
    else:
        text = f"the policy costs at most {high}; no policy costs less than {low}"
    graph = "" if proof["region"]["tied"] else " (of the model only its graph is trusted)"
    return f"proved with probability ≥ 1 − {proof['delta']} over {found['data'].total:,} transitions: {text}{graph}"


def read(path: str) -> dict[str, Any]:
    """A proof from a file, gzipped or not."""
    with open(path, "rb") as file:
        raw = file.read()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    return json.loads(text)  # type: ignore[no-any-return]


def main(arguments: list[str]) -> int:
    """0: proved, 1: refused, 2: no file to read."""
    if len(arguments) != 1:
        print(__doc__)
        return 2
    try:
        proof = read(arguments[0])
        print(sentence(proof, check(proof)))
    except (Refused, *MALFORMED) as error:
        print(f"refused: {error if isinstance(error, Refused) else f'the file is malformed: {error!r}'}")
        return 1
    except OSError as error:
        print(error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
