"""Every rounding and every condition of the checker, by small direct calls: fast, so that its mutants are found soon.

Logarithms are enclosed so narrowly that no proof could tell a wrong direction of rounding from a right one. Here they
are made wide: then what is accepted moves by exactly the sum of the widths, and a single wrong direction shows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from decimal import localcontext
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from rpl_agent.core.model import Objective, build
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.likelihood.checked_model import model_content
from tests.certify.test_checker_thresholds import decimal, level_of, mark, passes, tosses, tossing

ONE = checker.ONE
#: Half of the width of an enclosure that is made wide.
WIDE = 1 << 100
ln, ln_factorial = checker.ln, checker.ln_factorial


@pytest.fixture
def wide(monkeypatch):
    """Enclosures of logarithms and factorials that are much wider than needed."""

    def widened(function):
        return lambda x: (function(x)[0] - WIDE, function(x)[0] + WIDE)

    monkeypatch.setattr(checker, "ln", widened(ln))
    monkeypatch.setattr(checker, "ln_factorial", widened(ln_factorial))


def low(x: Fraction | int) -> int:
    return ln(Fraction(x))[0] - WIDE


def high(x: Fraction | int) -> int:
    return ln(Fraction(x))[0] + WIDE


# ---------------------------------------------------------------------- numbers
@pytest.mark.parametrize("number", [True, False, "1", None, [1], math.inf, -math.inf, math.nan])
def test_other_things_are_no_numbers(number):
    with pytest.raises(checker.Refused, match=r"is not a (finite )?number"):
        checker.exact(number)
    with pytest.raises(checker.Refused, match=r"is not a (finite )?number"):
        checker.ratios([number])


def test_numbers_are_read_exactly():
    assert checker.exact(0.1) == Fraction(0.1) and checker.exact(-3) == -3
    assert checker.ratios(["-1/3", 0.5, 2, "1/03"]) == [Fraction(-1, 3), Fraction(1, 2), 2, Fraction(1, 3)]
    for text in ("1/0", "1/00", "1", "1/-3", "a/b", "1/2 ", ""):
        with pytest.raises(checker.Refused, match="is not a number"):
            checker.ratios([text])


def test_digits_and_denominators_are_bounded():
    longest = "1/" + "0" * (checker.MOST_DIGITS - 3) + "3"
    assert len(longest) == checker.MOST_DIGITS and checker.ratios([longest]) == [Fraction(1, 3)]
    with pytest.raises(checker.Refused, match="more than"):
        checker.ratios([longest.replace("/", "/0")])
    assert checker.common_den([]) == 1 and checker.common_den([Fraction(1, 4), Fraction(5, 6)]) == 12
    largest = 1 << (checker.MOST_BITS - 1)
    assert checker.common_den([Fraction(1, largest)]) == largest
    with pytest.raises(checker.Refused, match="bits"):
        checker.common_den([Fraction(1, 2 * largest)])


def test_logarithms_end_where_their_error_would_grow():
    """ln x has an error of |e| units of its guard bits: |e| < 2^20."""
    two = ln(Fraction(2))
    for e in (2**20 - 1, 1 - 2**20):
        least, most = ln(Fraction(2) ** e)
        ends = sorted((e * two[0], e * two[1]))
        assert ends[0] <= most and least <= ends[1] and most - least == 3
    for x in (Fraction(2) ** 2**20, Fraction(1, 2) ** 2**20, Fraction(0), Fraction(-1), Fraction(-1, 3)):
        with pytest.raises(checker.Refused, match="logarithm"):
            ln(x)


def test_logarithms_near_the_ends_of_their_series():
    with localcontext() as context:
        context.prec = 100
        for numerator, denominator, e in itertools.product((1, 2, 3, 4, 5, 7, 8, 15, 16, 17), (3, 4, 5, 9), (-3, 0, 5)):
            x = Fraction(numerator, denominator) * Fraction(2) ** e
            least, most = ln(x)
            assert least <= decimal(x).ln() * ONE <= most


def test_roots_of_zero_are_zero_and_others_are_above():
    assert checker.root_up(0) == 0 and checker.root_up(-5) == 0
    assert [checker.root_up(n) for n in (1, 2, 3, 4, 8, 9)] == [2, 2, 2, 3, 3, 4]
    assert checker.norm_up([Fraction(0), Fraction(0)]) == 0
    assert checker.norm_up([Fraction(3, 7), Fraction(-4, 7)]) == Fraction(6, 7)


def test_matrices_that_are_not_positive_definite_have_no_solution():
    zero, one = Fraction(0), Fraction(1)
    for matrix in ([[zero]], [[-one]], [[one, one], [one, one]], [[one, 2 * one], [2 * one, one]]):
        assert checker.solved(matrix, [one] * len(matrix)) is None
    assert checker.solved([[2 * one, one], [one, 2 * one]], [one, zero]) == [Fraction(2, 3), Fraction(-1, 3)]
    assert checker.shifted([[one, 2 * one], [3 * one, 4 * one]], 5) == [[6, 2], [3, 9]]


def test_series_are_used_where_they_converge(monkeypatch):
    """2 atanh(n/d) has the promised error for |n/d| ≤ 1/3."""
    series = checker._atanh_series

    def within(n: int, d: int, bits: int) -> int:
        assert 3 * abs(n) <= d
        return series(n, d, bits)

    monkeypatch.setattr(checker, "_atanh_series", within)
    for numerator, denominator in itertools.product((1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 1000), (1, 3, 4, 5, 9, 1001)):
        ln(Fraction(numerator, denominator))


@pytest.mark.parametrize("off", [1023, -1023])
def test_logarithms_hold_whatever_the_error_of_the_series_is(off, monkeypatch):
    """It is below 2^10 units of the guard bits, and ln 2 is taken up to 2^20 times."""
    monkeypatch.setattr(checker, "_LN2", checker._LN2 + off)
    with localcontext() as context:
        context.prec = 120
        two = decimal(2).ln() * ONE
        for e in range(2**20 - 60, 2**20):
            least, most = ln(Fraction(1 << e))
            assert least <= e * two <= most


@pytest.mark.parametrize("n", [0, 1, 10, 255])
def test_small_factorials_are_multiplied_out(n, wide):
    assert ln_factorial(n) == (low(math.factorial(n)), high(math.factorial(n)))


@pytest.mark.parametrize("n", [257, 300, 10**6])
def test_large_factorials_have_every_error_on_its_side(n, wide, monkeypatch):
    """ln n! = n ln n − n + ½ ln 2πn + 1/12n − 1/360n³ + …, with π between 3 and 4."""
    monkeypatch.setattr(checker, "PI", [Fraction(3), Fraction(4)])
    series = Fraction(1, 12 * n) - Fraction(1, 360 * n**3)
    least = n * low(n) - n * ONE + low(6 * n) // 2 + checker.down(series)
    most = n * high(n) - n * ONE + high(8 * n) // 2 + 1 + checker.up(series + Fraction(1, 1260 * n**5))
    assert ln_factorial(n) == (least, most)


# ---------------------------------------------------------------------- intervals
@pytest.mark.parametrize(("K", "J"), [(5, 3), (0, 4), (4, 0), (1, 1)])
def test_ends_are_excluded_at_the_threshold_with_every_error_against_them(K, J, wide):
    def fact(n: int, way: int) -> int:
        return ln_factorial(n)[0] + way * WIDE

    free = checker.Intervals.__new__(checker.Intervals)
    both = fact(2 * K, -1) + fact(2 * J, -1) - (K + J) * high(4) - fact(K, 1) - fact(J, 1) - fact(K + J, 1)
    mean = Fraction(K, K + J)
    for end, is_low in ((mean / 2, True), ((1 + mean) / 2, False)):
        if not 0 < end < 1:
            continue
        level = both - K * high(end) - J * high(1 - end)
        ends = (end, Fraction(1)) if is_low else (Fraction(0), end)
        free._check(0, *ends, K, J, level)
        with pytest.raises(checker.Refused, match="is not excluded by the data"):
            free._check(0, *ends, K, J, level + 1)
    free._check(0, Fraction(0), Fraction(1), K, J, 1 << 300)  # claims nothing
    free._check(0, mean * 0, mean * 0 + 1, K, J, 1 << 300)
    tiny = Fraction(1, 10**9)
    for ends in ((mean + tiny, Fraction(1)), (Fraction(0), mean - tiny)):
        with pytest.raises(checker.Refused, match="does not hold"):
            free._check(0, *ends, K, J, -(1 << 300))


@pytest.mark.parametrize("end", [Fraction(-1, 2), Fraction(3, 2)])
def test_ends_outside_of_probabilities_claim_nothing_but_must_not_pass_for_more(end):
    free = checker.Intervals.__new__(checker.Intervals)
    ends = (end, Fraction(1)) if end < 0 else (Fraction(0), end)
    free._check(0, *ends, 1, 1, 1 << 300)


def test_the_threshold_is_the_upper_end_of_a_logarithm(wide, monkeypatch):
    seen = []
    monkeypatch.setattr(checker.Intervals, "_check", lambda self, f, *rest: seen.append(rest[-1]))
    for coins in (1, 3):
        data = tosses(tossing(coins), [(3, 3)] * coins)
        (f, *_) = checker.Intervals(data, Fraction(1, 7), {}).events
        checker.Intervals(data, Fraction(1, 7), {str(f): [0.0, 1.0]})
        assert seen.pop() == high(coins / Fraction(1, 7))


def test_a_model_without_events_has_intervals():
    pmdp = build(
        0, lambda s: {"go": {1: 1}} if s == 0 else {"stay": {1: 1}}, domain=[], labels={"won": lambda s: s == 1}
    )
    one = checker.Model(model_content(pmdp, Objective.reach("won"), graph=False))
    data = checker.Data(one, {"schedule": "split", "planned": 0, "transitions": [], "marks": []})
    found = checker.Intervals(data, Fraction(1, 2), {})
    assert found.events == {} and (found.low, found.high) == ([ONE], [ONE])


def test_probabilities_begin_between_zero_and_one():
    """Whatever the parameters' bounds are."""
    data = tosses(tossing(), [(0, 0)])
    data.model.box = [(Fraction(-1), Fraction(2))]
    found = checker.Intervals(data, Fraction(1, 2), {})
    free = [f for f, constant in enumerate(data.model.constant) if constant is None]
    assert [(found.low[f], found.high[f]) for f in free] == [(0, ONE)] * len(free)
    assert not any(found.is_possible(f) for f in free)


def thirds() -> dict[str, Any]:
    """p, (1 − p)/3 and 2(1 − p)/3 in one row."""
    pmdp = build(
        0, lambda s: {"go": {1: "p", 2: "(1 - p)/3", 3: "2*(1 - p)/3"}} if s == 0 else {"stay": {s: 1}}, domain=["p"],
        labels={"won": lambda s: s == 1},
    )  # fmt: skip
    return model_content(pmdp, Objective.reach("won"), graph=False)


@pytest.mark.parametrize(("low_end", "high_end"), [(0.25, 0.75), (0.1, 0.9), (2.0**-140, 1 - 2.0**-53)])
def test_an_interval_bounds_all_expressions_of_its_polynomial(low_end, high_end):
    one = checker.Model(thirds())
    p = next(f for f, terms in enumerate(one.table) if terms == {((0, 1),): 1})
    transitions = [[t, 10**4 if f == p else 5 * 10**3] for t, (_, f) in enumerate(one.moves[0])]
    data = checker.Data(one, {"schedule": "split", "planned": 0, "transitions": transitions, "marks": []})
    found = checker.Intervals(data, Fraction(1, 10), {str(p): [low_end, high_end]})
    bounds = [Fraction(checker.down(Fraction(low_end)), ONE), Fraction(checker.up(Fraction(high_end)), ONE)]
    for f, terms in enumerate(one.table):
        if one.constant[f] is None and f != p:
            c, k = terms[()], terms[((0, 1),)]
            ends = sorted(c + k * x for x in bounds)
            assert (found.low[f], found.high[f]) == (checker.down(ends[0]), checker.up(ends[1]))
    assert (found.low[p], found.high[p]) == (checker.down(Fraction(low_end)), checker.up(Fraction(high_end)))


def test_small_high_ends_are_rounded_up():
    seen = set()
    for counts in ((0, 10**36), (10**36, 0)):
        data = tosses(tossing(), [counts])
        ((f, (K, _)),) = checker.Intervals(data, Fraction(1, 10), {}).events.items()
        seen.add(K)
        if K == 0:
            found = checker.Intervals(data, Fraction(1, 10), {str(f): [0.0, 1e-33]})
            assert (found.low[f], found.high[f]) == (0, checker.up(Fraction(1e-33)))
    assert seen == {0, 10**36}


def test_probabilities_begin_at_zero_without_a_complement():
    one = checker.Model(thirds())
    data = checker.Data(one, {"schedule": "split", "planned": 0, "transitions": [], "marks": []})
    one.box = [(Fraction(-1), Fraction(2))]
    found = checker.Intervals(data, Fraction(1, 2), {})
    assert {found.low[f] for f in found.lines} == {0}


@pytest.mark.parametrize(("K", "J", "ends"), [(0, 3, (0, 0)), (3, 0, (1, 1))])
def test_ends_that_would_exclude_everything_are_refused_as_such(K, J, ends):
    free = checker.Intervals.__new__(checker.Intervals)
    with pytest.raises(checker.Refused, match="is not excluded by the data"):
        free._check(0, Fraction(ends[0]), Fraction(ends[1]), K, J, 0)


def test_events_of_several_rows_are_added():
    table = {s: {"go": {s + 1: "p", 9: "1 - p"}} for s in range(3)} | {s: {"a": {s: 1}} for s in (3, 9)}
    pmdp = build(0, table.__getitem__, domain=["p"], labels={"won": lambda s: s == 3})
    one = checker.Model(model_content(pmdp, Objective.reach("won"), graph=False))
    transitions = [[t, 10**t] for t in range(7)]
    data = checker.Data(one, {"schedule": "split", "planned": 0, "transitions": transitions, "marks": []})
    ((f, counts),) = checker.Intervals(data, Fraction(1, 10), {}).events.items()
    rows = [(moves, seen) for moves, seen in zip(one.moves, data.rows) if f in [label for _, label in moves]]
    hits = sum(n for moves, seen in rows for (_, label), n in zip(moves, seen) if label == f)
    assert len(rows) == 3 and counts == (hits, sum(sum(seen) for _, seen in rows) - hits)


def test_what_was_seen_once_is_possible():
    found = checker.Intervals(tosses(tossing(), [(1, 5)]), Fraction(1, 10), {})
    assert sorted(n for n in found.seen if n) == [1, 5] and all(found.is_possible(f) for _, f in found.model.moves[0])


def test_the_second_bound_of_two_narrows_the_first():
    """Both (1 − p)/3 and 2(1 − p)/3 have an interval: the intersection counts, for all three."""
    one = checker.Model(thirds())
    transitions = [[t, 10**4] for t in range(3)]
    data = checker.Data(one, {"schedule": "split", "planned": 0, "transitions": transitions, "marks": []})
    events = checker.Intervals(data, Fraction(1, 10), {}).events
    given = {f: [0.2 + 0.01 * k, 0.5 - 0.02 * k] for k, f in enumerate(events)}
    found = checker.Intervals(data, Fraction(1, 10), {str(f): ends for f, ends in given.items()})
    lines = {f: (one.table[f][()] if () in one.table[f] else Fraction(0), one.table[f][((0, 1),)]) for f in events}
    ends = [sorted((Fraction(x) - lines[f][0]) / lines[f][1] for x in given[f]) for f in events]
    p = max(low for low, _ in ends), min(high for _, high in ends)
    for f, (c, k) in lines.items():
        exact = sorted(c + k * x for x in p)
        assert abs(Fraction(found.low[f], ONE) - exact[0]) < Fraction(4, ONE)
        assert abs(Fraction(found.high[f], ONE) - exact[1]) < Fraction(4, ONE)
        assert Fraction(found.low[f], ONE) <= exact[0] and exact[1] <= Fraction(found.high[f], ONE)


def test_events_count_rows_that_carry_an_expression_once():
    """p/2 stands twice in its row and says nothing of itself; f and 1 − f are one event, in rows of either alone."""
    rows = {
        0: {"once": {1: "p", 2: "1 - p"}, "twice": {1: "p/2", 2: "p/2", 3: "1 - p"}},
        1: {"a": {1: 1}}, 2: {"a": {2: 1}}, 3: {"a": {3: 1}},
    }  # fmt: skip
    pmdp = build(0, rows.__getitem__, domain=["p"], labels={"won": lambda s: s == 1})
    one = checker.Model(model_content(pmdp, Objective.reach("won"), graph=False))
    transitions = [[t, 10 ** (t + 1)] for t in range(5)]
    data = checker.Data(one, {"schedule": "split", "planned": 0, "transitions": transitions, "marks": []})
    found = checker.Intervals(data, Fraction(1, 10), {})
    halves = [f for f in found.events if one.table[f] == {((0, 1),): Fraction(1, 2)}]
    whole = [f for f in found.events if f not in halves]
    assert [found.events[f] for f in halves] == [(0, 0)]  # p/2 stands twice in its row
    # "once" tells of p by both; "twice" by 1 − p alone, which happened 10^5 times, and did not 11,000 times
    assert len(whole) == 1 and sorted(found.events[whole[0]]) == [10 + 11_000, 100 + 100_000]


@pytest.mark.parametrize("method", ["likelihood with bets", "likelihood", "likelihood of a table", "anytime", "graph"])
def test_shares_are_those_of_the_table(method):
    one, delta = checker.Model(tossing()), Fraction(1, 3)
    assert checker.shares(one, method, delta) == [delta * Fraction(x, 10_000) for x in checker.SHARES[method]]
    one.coordinates = None
    other = method if method == "graph" else "anytime"
    assert checker.shares(one, method, delta) == [delta * Fraction(x, 10_000) for x in checker.SHARES[other]]
    one.box = []
    assert checker.shares(one, method, delta) == [delta * Fraction(x, 10_000) for x in checker.SHARES["anytime"]]


def test_the_table_of_shares():
    assert checker.SHARES == {
        "likelihood with bets": (7220, 2090, 190),
        "likelihood": (0, 9215, 285),
        "likelihood of a table": (0, 4750, 4750),
        "anytime": (0, 0, 9500),
        "graph": (0, 0, 99),
        "likelihood with bets, of blocks": (8000, 500, 1000),
    }


# ---------------------------------------------------------------------- the joint likelihood
@pytest.mark.parametrize("shares", [[1], [3], [2, 5]])
def test_the_level_of_a_likelihood_has_every_error_against_it(shares, wide):
    data = tosses(tossing(), [(7, 4)], [mark(4, 0.25, 3)])
    line = data.model.coordinates
    assert line is not None
    windows = [0, 1][: len(shares)]
    clouds = [line.particles(data.marks[j][2], data.fits(line)[j]) for j in windows]
    numbers = [min(cloud) for cloud in clouds]
    parts = [[j, [[number, m]]] for j, number, m in zip(windows, numbers, shares)]
    found = checker.Likelihood(line, data, Fraction(1, 100), parts)
    whole, bound, K = sum(shares), Fraction(0), [0] * len(data.successes)
    for j, number, m, cloud in zip(windows, numbers, shares, clouds):
        hits = [n - k for n, k in zip(data.successes, data.marks[j][2])]
        p, den = line.at(cloud[number])
        gained = low(data.marks[j][0] * whole / (m * len(cloud)))
        gained += sum(hits[f] * low(Fraction(p[f], den)) for f in line.free if hits[f])
        bound -= Fraction(m, whole) * Fraction(gained, ONE)
        K = [k + m * n for k, n in zip(K, hits)]
    assert found.bound == bound + Fraction(high(100), ONE) and found.K == K and found.whole == whole
    assert found.used == [f for f in line.free if K[f] > 0]


def test_tangents_have_every_error_against_them(wide):
    level = level_of(40, 60, 3.0)
    (a,), b = level.cut([0.35])
    p, den = level.line.at([0.35])
    slope, right = Fraction(0), level.bound
    for f in level.used:
        t = Fraction((den << 64) // p[f] + 1, 1 << 64)
        c, w = (Fraction(y, level.line.den) for y in level.line.terms[f])
        K = Fraction(level.K[f], level.whole)
        slope -= K * t * w
        right += K * t * c - K * (1 + Fraction(low(t), ONE))
    assert (a, b) == (slope, right)


def test_tangents_need_positive_probabilities():
    level = level_of(40, 60, 3.0)
    for point in (0.0, 1.0, -0.1):
        with pytest.raises(checker.Refused, match="is not positive at a point"):
            level.cut([point])


def ball_terms(level: checker.Likelihood, frame: checker.Ball) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """(level, height, linear, square) of the quadratic bound in one coordinate."""
    den, found = frame.den << 64, [Fraction(0)] * 4
    for f in level.used:
        t, K = den // frame.p[f] + 1, Fraction(level.K[f], level.whole)
        e, n = Fraction(t * frame.p[f] - den, den), Fraction(t * frame.s[f][0], den)
        found[0] += K * (Fraction(low(Fraction(t, 1 << 64)), ONE) - e)
        found[1] += K * (Fraction(high(Fraction(t, 1 << 64)), ONE) - e + e * e)
        phi = Fraction(int((1 << 32) / (1 + (e + checker.norm_up([n])) * 2 / 3)), 1 << 32)
        found[2] += K * (phi * e - 1) * n
        found[3] += K * phi / 2 * n * n
    return found[0], found[1], found[2], found[3]


def likeliest_ball(half: float) -> tuple[checker.Likelihood, checker.Ball]:
    """A likelihood, and a ball around its likeliest point."""
    level = level_of(40, 60, 0.0)
    (c, w), f = level.line.terms[level.used[0]], level.used[0]
    center = float((Fraction(level.K[f], sum(level.K)) * level.line.den - c) / w)
    return level, checker.Ball(level.line, {"center": [center], "factor": [[half]]})


@pytest.mark.parametrize("half", [0.05, 0.3])
def test_balls_have_every_error_against_them(half, wide):
    level, frame = likeliest_ball(half)
    base, height, linear, square = ball_terms(level, frame)
    smallest = base - checker.norm_up([linear]) + square  # g is larger on the sphere
    assert height < smallest
    tiny = Fraction(1, 10**50)
    for bound, said in (
        (smallest - tiny, ""),
        (smallest, "does not enclose"),
        (height, ""),
        (height - tiny, "centre of the ball"),
    ):
        level.bound = bound
        assert passes(lambda: level.check_ball(frame, []), said) is (said == "")


def test_the_centre_of_a_ball_has_positive_probabilities():
    level = level_of(40, 60, 1.0)
    for center in (0.0, 1.0, 1.5):
        frame = checker.Ball(level.line, {"center": [center], "factor": [[0.1]]})
        with pytest.raises(checker.Refused, match="not positive at the centre"):
            level.check_ball(frame, [])


Slab = tuple[Fraction, list[Fraction], Fraction, Fraction]


def slabs_alone(bound: Fraction, center: list[int], half: Any, slabs: list[Slab]) -> Callable[[], None]:
    """`check_ball` where no expression was observed: g = 0, and a ball of a given half-width."""
    level = object.__new__(checker.Likelihood)
    level.line = SimpleNamespace(dimension=2)  # type: ignore[assignment]
    level.used, level.bound = [], bound
    factor = [[Fraction(half), Fraction(0)], [Fraction(0), Fraction(half)]]
    frame: Any = SimpleNamespace(den=1, center=[Fraction(x) for x in center], factor=factor, p=[], s=[])
    return lambda: level.check_ball(frame, slabs)


def slab(mu: Any, h: list[int], low: Any, high: Any) -> Slab:
    return Fraction(mu), [Fraction(y) for y in h], Fraction(low), Fraction(high)


TINY = Fraction(1, 10**20)


@pytest.mark.parametrize(
    ("center", "slabs", "square"),
    [
        # Σ μ (u − n·y)(v + n·y) ≥ −bound on a ball of this radius², and on none that is smaller
        ([0, 0], [slab(1, [1, 0], -1, 1), slab(1, [0, 1], -1, 1)], 2),  # a square: the circle through its corners
        ([0, 0], [slab(1, [1, 1], -1, 1), slab(1, [1, -1], -1, 1)], 1),  # the same, turned
        ([0, 0], [slab(1, [1, 0], -3, 3), slab(9, [0, 1], -1, 1), slab(8, [1, 0], -1, 1)], Fraction(26, 9)),
        ([3, 5], [slab(1, [1, 0], 2, 4), slab(1, [0, 1], 4, 6)], 2),
        ([0, 0], [slab(2, [1, 0], -2, 2), slab(1, [0, 2], -2, 2)], Fraction(12, 2)),
    ],
)
def test_slabs_alone_need_a_ball_of_a_size(center, slabs, square):
    """|y| = 1: −Σ μ (uv − (n·y)²) is least in the direction that bends least."""
    larger, smaller = (Fraction(math.isqrt(int(square * 10**24)) + k, 10**12) for k in (1, 0))
    slabs_alone(Fraction(0), center, larger, slabs)()
    with pytest.raises(checker.Refused, match="does not enclose"):
        slabs_alone(Fraction(0), center, smaller, slabs)()


@pytest.mark.parametrize("shift", [Fraction(1, 8), Fraction(-1, 8), Fraction(1, 3)])
@pytest.mark.parametrize("turned", [False, True])
def test_a_ball_beside_the_middle_of_its_slabs_pays_for_the_tilt(shift, turned):
    """At a distance c from the middle, uv = 1 − c² and u − v = −2c."""
    own = slab(3, [0, 1] if turned else [1, 0], shift - 1, shift + 1)
    other = slab(3, [1, 0] if turned else [0, 1], -1, 1)
    half = Fraction(2)
    tilt = checker.norm_up([3 * 2 * abs(shift) * half, Fraction(0)])
    enough = -3 * (1 - shift**2) - 3 - tilt + 3 * half**2
    for bound, said in ((enough - TINY, ""), (enough, "does not enclose")):
        assert passes(slabs_alone(bound, [0, 0], half, [own, other]), said) is (said == "")
    least = -3 * (1 - shift**2) - 3  # at the centre
    for bound, said in ((least, ""), (least - TINY, "centre of the ball")):
        assert passes(slabs_alone(bound, [0, 0], half, [own, other]), said) is (said == "")


@pytest.mark.parametrize("half", [0.05, 0.3])
def test_slabs_add_to_what_the_likelihood_says(half, wide):
    level, frame = likeliest_ball(half)
    base, height, linear, square = ball_terms(level, frame)
    mu, h, least, most = slab("1/3", [2], "1/2", "9/10")
    u, v, n = most - 2 * frame.center[0], 2 * frame.center[0] - least, 2 * frame.factor[0][0]
    linear, square = linear - mu * (u - v) * n, square + mu * n * n
    smallest, height = base - mu * u * v - checker.norm_up([linear]) + square, height - mu * u * v
    assert height < smallest
    for bound, said in (
        (smallest - TINY, ""),
        (smallest, "does not enclose"),
        (height, ""),
        (height - TINY, "centre of the ball"),
    ):
        level.bound = bound
        assert passes(lambda: level.check_ball(frame, [(mu, h, least, most)]), said) is (said == "")


def test_frames_are_the_expressions_in_coordinates_of_the_ball():
    line = level_of(1, 1, 0.0).line
    frame = checker.Ball(line, {"center": [0.375], "factor": [[0.25]]})
    for f, (c, w) in enumerate(line.terms):
        assert Fraction(frame.p[f], frame.den) == Fraction(c, line.den) + Fraction(w, line.den) * Fraction(3, 8)
        assert Fraction(frame.s[f][0], frame.den) == Fraction(w, line.den) * Fraction(1, 4)


# ---------------------------------------------------------------------- bets
def betting() -> tuple[checker.Bets, checker.Data]:
    content = tossing()
    one = checker.Model(content)
    objective = checker.Objective(one, {"kind": "reach", "sense": "max", "target": "won"})
    data = tosses(content, [(9, 6)], [mark(4, 0.1, 2, 0.25), mark(8, 0.1, 5, 0.5)])
    assert one.coordinates is not None
    return checker.Bets(one, objective, one.coordinates, Fraction(1, 50)), data


def test_slabs_have_every_error_against_them(wide):
    bets, data = betting()
    line, grid = bets.line, checker.Bets.GRID
    assert bets.level == high(100)  # ln 2/α
    found = bets.cuts(data)
    twin = checker.Bets(bets.model, bets.objective, line, Fraction(1, 50))
    marks = [(x, *m[1:]) for x, m in zip(data.fits(line), data.marks) if m[1]]
    now = (None, Fraction(1), data.successes, data.trials)
    sums, gain, loss, expected = [Fraction(0), Fraction(0)], 0, 0, []
    for (x, share, K, N), (_, _, later, tried) in itertools.pairwise([*marks, now]):
        for f, u in zip(line.free, twin.payoffs(x, float(share), K, N)[0]):
            hits, trials = later[f] - K[f], tried[f] - N[f]
            sums = [a + Fraction(trials * u * y, grid * line.den) for a, y in zip(sums, line.terms[f])]
            if hits and u:
                gain += hits * low(1 + Fraction(u, grid))
                loss += hits * low(1 - Fraction(u, grid))
        expected.append(([sums[1]], Fraction(bets.level - loss, ONE) - sums[0]))
        expected.append(([-sums[1]], Fraction(bets.level - gain, ONE) + sums[0]))
    assert found == expected and len(found) == 4 and any(a != [0] for a, _ in found)


def test_payoffs_are_at_most_a_half():
    bets, data = betting()
    (x, K, N) = data.fits(bets.line)[1], data.marks[1][2], data.marks[1][3]
    assert max(map(abs, bets.payoffs(x, 0.25, K, N)[0])) <= checker.Bets.GRID // 2
    bets.units = [[1e9, -1e9]]
    bets.aimed = 10**9  # keep these
    assert bets.payoffs(x, 0.25, K, N) == [[checker.Bets.GRID // 2, -(checker.Bets.GRID // 2)]]


def test_the_first_mark_finds_a_direction():
    """With no transitions before it, too; then one after five times, and gradients after a quarter, as many more."""
    bets, data = betting()
    assert (bets.aimed, bets.found_with) == (0, 0)
    x = data.fits(bets.line)[0]
    bets.payoffs(x, 0.25, [0, 0, 0], [0, 0, 0])
    assert bets.units and bets.aimed == 0


def test_particles_are_bounded_by_what_they_cost(monkeypatch):
    data = tosses(tossing(), [(7, 4)], [mark(4, 0.25, 3)])
    line = data.model.coordinates
    assert line is not None
    number = min(line.particles(data.marks[0][2], data.fits(line)[0]))
    parts = [[0, [[number, 1]]]]
    for name, least in (("MOST_LOGARITHMS", len(line.free)), ("MOST_WORK", line.size * (1 + len(line.walls)))):
        monkeypatch.setattr(checker, name, least)
        checker.Likelihood(line, data, Fraction(1, 2), parts)
        monkeypatch.setattr(checker, name, least - 1)
        with pytest.raises(checker.Refused, match="need more than"):
            checker.Likelihood(line, data, Fraction(1, 2), parts)
        monkeypatch.undo()


# ---------------------------------------------------------------------- marks
def test_marks_are_counted_and_their_first_window_has_its_weight():
    content = tossing()
    for schedule, weight in (("geometric", 1 / 13), ("planned", 1 / 16), ("split", 0.01), ("table", 1.0)):
        assert tosses(content, [(1, 1)], schedule=schedule).marks[0][:3] == (Fraction(weight), 0, [0, 0, 0])
    with pytest.raises(checker.Refused, match="transitions were planned"):
        tosses(content, [(1, 1)], planned=0.0)
    many = [mark(0, 0.0, 0)] * checker.MOST_MARKS
    tosses(content, [(1, 1)], many)
    with pytest.raises(checker.Refused, match="marks"):
        tosses(content, [(1, 1)], [*many, mark(0, 0.0, 0)])


def test_a_plan_has_marks_at_its_shares():
    content = tossing()
    for due in (40, 80, 160):
        data = tosses(content, [(400, 400)], [mark(due, 0.33, 9)], schedule="split", planned=1000)
        assert len(data.marks) == 2
    for total in (39, 1):
        with pytest.raises(checker.Refused, match="no mark is due"):
            tosses(content, [(400, 400)], [mark(total, 0.33, 1)], schedule="split", planned=1000)
    every = [mark(due, 0.33, 9) for due in (40, 80, 160)]
    assert len(tosses(content, [(400, 400)], every, schedule="split", planned=1000).marks) == 4
    tosses(content, [(1, 1)], [mark(1, 0.33, 1)], schedule="split", planned=1)  # after one transition at least


def test_geometric_marks_are_due_after_four_times_as_many():
    content = tossing()
    every = [mark(64 * 4**j, 1 / 13, 1) for j in range(12)]
    big = tosses(content, [(64 * 4**11, 64 * 4**11)], every, schedule="geometric")
    assert len(big.marks) == 13
    with pytest.raises(checker.Refused, match=r"exceed 1|no mark is due"):
        tosses(content, [(64 * 4**12, 64 * 4**12)], [*every, mark(64 * 4**12, 1 / 13, 1)], schedule="geometric")


def test_successes_and_trials_add_up():
    data = tosses(tossing(2), [(3, 2), (1, 4)])
    assert data.total == 10 and sum(data.successes) == 10
    for f, n in enumerate(data.successes):
        rows = [counts for moves, counts in zip(data.model.moves, data.rows) if f in [g for _, g in moves]]
        assert data.trials[f] == sum(map(sum, rows)) and data.trials[f] >= n


def test_data_are_counted_once_and_by_whole_numbers():
    one = checker.Model(tossing())
    for transitions, said in (
        ([[0, 1], [0, 1]], "counted twice"),
        ([[0, 0]], "0 counts"),
        ([[0, 1.0]], "1.0 counts"),
        ([[-1, 1]], "counts of transition -1"),
    ):
        with pytest.raises(checker.Refused, match=said):
            checker.Data(one, {"schedule": "split", "planned": 0, "transitions": transitions, "marks": []})
    with pytest.raises(checker.MALFORMED):
        transitions = [[99, 1]]
        checker.Data(one, {"schedule": "split", "planned": 0, "transitions": transitions, "marks": []})
    assert checker.Data(one, {"schedule": "split", "planned": 0, "transitions": [[0, 1]], "marks": []}).total == 1


def test_times_between_geometric_marks_and_after_the_last_are_not_due():
    many = 64 * 4**12
    for first, second, due in (
        (64, 192, False), (64, 255, False), (64, 256, True), (64 * 4**10, 64 * 4**11, True), (64 * 4**11, many, False),
    ):  # fmt: skip
        marks = [mark(first, 1 / 13, 1), mark(second, 1 / 13, 2)]
        found = passes(lambda m=marks: tosses(tossing(), [(many, many)], m, schedule="geometric"), "no mark is due")
        assert found is due


def test_a_plan_of_a_budget_tells_its_own_weights():
    """Of schedule "planned" without a number the weights are told at the mark, with one they are sixteenths."""
    content, marks = tossing(), [mark(64, 1 / 16, 1), mark(300, 1 / 16, 2)]
    assert len(tosses(content, [(400, 400)], marks, schedule="planned", planned=1000).marks) == 3
    with pytest.raises(checker.Refused, match="not those of their schedule"):
        tosses(content, [(400, 400)], [mark(64, 1 / 17, 1)], schedule="planned", planned=1000)
    assert len(tosses(content, [(400, 400)], [mark(5, 0.2, 1)], schedule="planned").marks) == 2


def test_weights_may_sum_to_one_and_what_rounding_adds():
    content = tossing()
    tosses(content, [(4, 4)], [mark(2, 2.0**-40, 1)], schedule="table")
    with pytest.raises(checker.Refused, match="the marks' weights exceed 1"):
        tosses(content, [(4, 4)], [mark(2, 2.0**-40 * (1 + 2.0**-50), 1)], schedule="table")


def test_marks_count_from_zero_and_have_trials_if_bets_begin_there():
    content = tossing()
    below = mark(4, 0.1, 2) | {"successes": [[0, -1], [1, 5]]}
    with pytest.raises(checker.Refused, match="a mark counts fewer successes"):
        tosses(content, [(5, 5)], [below])
    below = mark(4, 0.1, 2, 0.5) | {"trials": [[0, -1], [1, 4]]}
    with pytest.raises(checker.Refused, match="a mark counts fewer trials"):
        tosses(content, [(5, 5)], [below])
    without = mark(4, 0.1, 2)
    del without["trials"]
    data = tosses(content, [(5, 5)], [without, mark(5, 0.1, 3, 0.5)])
    assert [m[3] for m in data.marks] == [[], [], [5, 5, 0]]
    with pytest.raises(KeyError):
        tosses(content, [(5, 5)], [without | {"progress": 0.5}])


# ---------------------------------------------------------------------- parts of the likelihood
def parts_of(data: checker.Data, parts: list[Any]) -> checker.Likelihood:
    line = data.model.coordinates
    assert line is not None
    return checker.Likelihood(line, data, Fraction(1, 2), parts)


def test_windows_begin_at_marks_with_a_weight():
    data = tosses(tossing(), [(7, 4)], [mark(4, 0.25, 3), mark(6, 0.0, 4, 0.5)])
    line = data.model.coordinates
    assert line is not None
    first, second = sorted(line.particles(data.marks[1][2], data.fits(line)[1]))[:2]
    assert parts_of(data, [[1, [[first, 1], [second, 2]]]]).whole == 3
    for parts, said in (
        ([[-1, [[first, 1]]]], "no window"),
        ([[2, [[first, 1]]]], "no window"),
        ([[3, [[first, 1]]]], "no window"),
        ([[1, [[first, 1], [second, 0]]]], "or do not exist"),
        ([[1, [[first, 0], [second, 1]]]], "or do not exist"),
        ([[1, [[first, 1], [second, 0.5]]]], "or do not exist"),
        ([[1, [[first, 2], [second, -1]]]], "or do not exist"),
    ):
        with pytest.raises(checker.Refused, match=said):
            parts_of(data, parts)


@pytest.mark.parametrize(("point", "good"), [(0.5, True), (2.0**-10, True), (0.0, False), (1.0, False), (-0.5, False)])
def test_particles_have_positive_probabilities(point, good, monkeypatch):
    monkeypatch.setattr(checker.Coordinates, "particles", lambda *_: {1: [point]})
    data = tosses(tossing(), [(7, 4)])
    assert passes(lambda: parts_of(data, [[0, [[1, 1]]]]), "not positive at a particle") is good


@pytest.mark.parametrize(("counts", "used"), [((7, 0), 1), ((7, 1), 2), ((0, 7), 1)])
def test_expressions_that_did_not_happen_are_not_part_of_the_sum(counts, used):
    data = tosses(tossing(), [counts])
    line = data.model.coordinates
    assert line is not None
    number = min(line.particles(data.marks[0][2], data.fits(line)[0]))
    assert len(parts_of(data, [[0, [[number, 1]]]]).used) == used


def test_the_smallest_numerators_are_positive():
    level = level_of(40, 60, 3.0)
    level.cut([2.0**-10])
    frame = checker.Ball(level.line, {"center": [2.0**-10], "factor": [[2.0**-10]]})
    assert 1 in frame.p
    with pytest.raises(checker.Refused, match=r"centre of the ball is no point|does not enclose"):
        level.check_ball(frame, [])


def test_frames_have_one_row_and_column_per_coordinate():
    line = level_of(1, 1, 0.0).line
    for center, factor in (
        ([0.4, 0.5], [[0.1]]),
        ([0.4], [[0.1], [0.1]]),
        ([0.4], [[0.1, 0.2]]),
        ([], [[0.1]]),
        ([0.4], []),
        ([0.4], [[]]),
    ):
        with pytest.raises(checker.Refused, match="a frame of a wrong size"):
            checker.Ball(line, {"center": center, "factor": factor})


def test_regions_use_what_their_method_has(monkeypatch):
    content = tossing()
    data = tosses(content, [(7, 4)])
    line = data.model.coordinates
    assert line is not None
    asked = checker.Objective(data.model, {"kind": "reach", "sense": "max", "target": "won"})
    number = min(line.particles(data.marks[0][2], data.fits(line)[0]))
    part: dict[str, Any] = {"parts": [[0, [[number, 1]]]], "cuts": [[0.5], "domain 0"], "ball": None}

    def region(method: str, likelihood: Any) -> checker.Known:
        return checker.Known(asked, data, Fraction(1, 10), method, {"ends": {}, "likelihood": likelihood})

    found = region("likelihood", part)
    assert len(found.cuts) == 2 and found.ball is None and region("likelihood", None).cuts == []
    assert found.reach == [[0, 1]]
    with pytest.raises(checker.Refused, match="not of its model and method"):
        region("anytime", part)
    with pytest.raises(checker.Refused, match="bets are part of the proof, and not of its method"):
        region("likelihood", part | {"cuts": [[0.5], 0]})
    with pytest.raises(LookupError):  # there is no mark at which bets begin
        region("likelihood with bets", part | {"cuts": [[0.5], 0]})
    monkeypatch.setattr(checker, "MOST_LOGARITHMS", 2 * len(found.likelihood.used))
    region("likelihood", part)
    with pytest.raises(checker.Refused, match="the cuts need more than"):
        region("likelihood", part | {"cuts": [[0.5]] * 3})
    data.model.coordinates = None
    with pytest.raises(checker.Refused, match="not of its model and method"):
        region("likelihood", part)


# ---------------------------------------------------------------------- models
def test_ranges_over_a_box_are_rounded_outward():
    bounds = checker.Model.__new__(checker.Model)
    bounds.box = [(Fraction(0), Fraction(1)), (Fraction(-1, 2), Fraction(1))]
    third = Fraction(1, 3)
    assert bounds.range_over_box({((0, 1),): third}) == (0, checker.up(third))
    assert bounds.range_over_box({((0, 1),): -third}) == (checker.down(-third), 0)
    assert bounds.range_over_box({((1, 2),): Fraction(1)}) == (0, ONE)


def test_powers_are_positive_and_degrees_bounded():
    most = checker.MOST_DEGREE
    assert checker.polynomial([[1, [[0, most - 1], [1, 1]]]], 2) == {((0, most - 1), (1, 1)): 1}
    with pytest.raises(checker.Refused, match="degree above"):
        checker.polynomial([[1, [[0, most], [1, 1]]]], 2)
    for monomial in ([[0, 0]], [[0, -1]], [[2, 1]], [[-1, 1]], [[0, 1.0]]):
        with pytest.raises(checker.Refused, match="a monomial has an unknown parameter, or a power"):
            checker.polynomial([[1, monomial]], 2)


def world() -> checker.Model:
    """0 → goal or bad; rewards that are ≥ 0, and of both signs."""
    table = {0: {"a": {1: "p", 2: "1 - p"}, "b": {0: 1}}, 1: {"a": {1: 1}}, 2: {"a": {2: 1}}}
    pmdp = build(
        0, table.__getitem__, domain=["p"], labels={"goal": lambda s: s == 1, "bad": lambda s: s >= 1},
        rewards={"gain": lambda s, a: 2.0 * (s == 0), "mixed": lambda s, a: 1.0 if a == "a" else -1.0},
    )  # fmt: skip
    content = model_content(pmdp, Objective.reach("goal"), graph=False)
    rewards = {
        "gain": {"state": [[1, 5.0]], "row": [[0, 2.0], [1, 2.0]]},
        "mixed": {"state": [], "row": [[0, 1.0], [1, -1.0]]},
    }
    return checker.Model(content | {"rewards": rewards, "labels": {"goal": [1], "bad": [1, 2]}})


@pytest.mark.parametrize(
    ("asked", "positive", "signed", "must_reach", "decided"),
    [
        ({"kind": "reach", "target": "goal"}, True, False, False, {1: 1}),
        ({"kind": "reach", "target": "goal", "avoid": "bad"}, True, False, False, {1: 1, 2: 0}),
        ({"kind": "reach", "target": "goal", "horizon": 3}, True, False, False, {1: 1}),
        ({"kind": "reward", "reward_name": "gain", "target": "goal"}, True, False, False, {1: 0}),
        ({"kind": "reward", "reward_name": "gain", "target": "goal", "sense": "min"}, True, False, True, {1: 0}),
        ({"kind": "reward", "reward_name": "gain", "target": "goal", "horizon": 3}, False, False, False, {1: 0}),
        ({"kind": "reward", "reward_name": "gain", "discount": 0.5}, False, False, False, {}),
        ({"kind": "reward", "reward_name": "mixed", "target": "goal"}, False, True, False, {1: 0}),
        ({"kind": "reward", "reward_name": "mixed", "target": "goal", "sense": "min"}, False, True, True, {1: 0}),
        ({"kind": "reward", "reward_name": "mixed", "discount": 0.5}, False, False, False, {}),
        ({"kind": "reward", "reward_name": "gain", "unreached": "infinite"}, True, False, False, {}),
        ({"kind": "instant", "reward_name": "gain", "horizon": 3}, False, False, False, {}),
    ],
)
def test_what_is_known_of_a_question(asked, positive, signed, must_reach, decided):
    found = checker.Objective(world(), {"sense": "max"} | asked)
    assert (found.is_positive, found.is_signed, found.must_reach, found.decided) == (
        positive,
        signed,
        must_reach,
        decided,
    )
    assert (found.is_reach, found.pays) == (asked["kind"] == "reach", asked["kind"] == "reward")
    assert found.maximising is (asked.get("sense") != "min") and found.discount == Fraction(asked.get("discount", 1))
    assert found.steps == ([Fraction(3)] if "horizon" in asked else [])
    if asked["kind"] == "reach":
        assert set(found.reward) == {0} and set(found.final) == {0}
    elif asked["kind"] == "instant":
        assert found.final == [0, 5, 0] and set(found.reward) == {0}
    elif asked["reward_name"] == "gain":
        assert found.reward == [2, 2, 0 if decided else 5, 0]


def test_questions_that_are_not_covered():
    one = world()
    for asked, said in (
        ({"kind": "instant", "reward_name": "gain"}, "an instant reward"),
        ({"kind": "instant", "reward_name": "gain", "horizon": 2, "target": "goal"}, "an instant reward"),
        ({"kind": "reward", "reward_name": "gain", "target": "goal", "avoid": "bad"}, "states to avoid"),
        ({"kind": "reward", "reward_name": "gold"}, "no reward 'gold'"),
        ({"kind": "reach", "target": "goal", "horizon": -1}, "the horizon is -1"),
        ({"kind": "reach", "target": "goal", "horizon": checker.MOST_STEPS + 1}, "the horizon is"),
    ):
        with pytest.raises(checker.Refused, match=said):
            checker.Objective(one, {"sense": "max"} | asked)
    assert checker.Objective(one, {"kind": "reach", "sense": "max", "target": "goal", "horizon": 0}).horizon == 0
