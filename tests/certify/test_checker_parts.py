"""Numbers, bets, predictions and coordinates of the checker, compared with others' or counted out."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import special

from rpl_agent.core.model import Objective, build
from rpl_agent.core.schema import jsonable
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.likelihood.checked_model import model_content

pytestmark = pytest.mark.usefixtures("shared_particles")


def test_logarithms_are_enclosed():
    draw = random.Random(1)
    for _ in range(300):
        x = Fraction(draw.randrange(1, 2 ** draw.randrange(1, 400)), draw.randrange(1, 2 ** draw.randrange(1, 400)))
        low, high = checker.ln(x)
        assert low < high <= low + 3
        value = math.log(x.numerator) - math.log(x.denominator)
        assert abs(low / checker.ONE - value) <= 1e-12 * max(1.0, abs(value))
    one, two, six = (checker.ln(Fraction(x)) for x in (3, 2, 6))  # ln 3 + ln 2 = ln 6, to the last bits
    assert six[0] <= one[1] + two[1] and one[0] + two[0] <= six[1]
    for x in ("0", "-1", "1e-400000"):  # of the last one the error would exceed the enclosure
        with pytest.raises(checker.Refused, match="logarithm"):
            checker.ln(Fraction(x))


@pytest.mark.parametrize("n", [0, 1, 5, 255, 256, 1000, 10**6, 10**15])
def test_factorials_are_enclosed(n):
    low, high = checker.ln_factorial(n)
    assert low <= high and (high - low) / checker.ONE <= 1e-14
    assert low / checker.ONE == pytest.approx(float(special.gammaln(n + 1.0)), rel=1e-13, abs=1e-13)


def test_matrices_near_the_edge_are_proved_on_the_right_side():
    """Least eigenvalues of ±2^-30 with many coordinates, huge and tiny units; exactly singular ones never pass."""
    rng = np.random.default_rng(4)
    for size, scale in ((1, 1), (2, 10**40), (24, Fraction(1, 10**30)), (40, 1)):
        B = [[Fraction(int(x)) for x in row] for row in rng.integers(-99, 100, (size, size - 1 or 1))]
        square = [[scale * sum(a * b for a, b in zip(row, other)) for other in B] for row in B]  # of rank size − 1
        singular = square if size > 1 else [[Fraction(0)]]
        assert not checker.is_positive(singular)
        for amount in (Fraction(1, 2**30), Fraction(1, 2**10), Fraction(1000)):
            assert checker.is_positive(checker.shifted(singular, scale * amount))
            assert not checker.is_positive(checker.shifted(singular, -scale * amount))
    assert checker.is_positive([])


def test_positive_definite_matrices():
    draw, found = random.Random(2), set()
    for _ in range(50):
        matrix = [[Fraction(draw.randrange(-9, 10)) for _ in range(3)] for _ in range(3)]
        matrix = [[matrix[i][j] + matrix[j][i] for j in range(3)] for i in range(3)]
        matrix = checker.shifted(matrix, Fraction(draw.randrange(0, 40)))
        floats, right = np.array(matrix, dtype=float), [Fraction(1), Fraction(2), Fraction(3)]
        solution = checker.solved(matrix, right)
        found.add(solution is None)
        assert (solution is not None) == bool((np.linalg.eigvalsh(floats) > 1e-9).all())
        assert checker.is_positive(matrix) == (solution is not None)
        if solution is not None:
            assert np.array(solution, dtype=float) == pytest.approx(np.linalg.solve(floats, [1.0, 2.0, 3.0]))
    assert found == {True, False}


def coin() -> tuple[checker.Model, checker.Objective]:
    pmdp = build("a", lambda s: {"go": {"b": "p", "c": "1 - p"}} if s == "a" else {"stay": {s: 1}}, domain=["p"],
                 labels={"b": lambda s: s == "b"})  # fmt: skip
    content = model_content(pmdp, Objective.reach("b"), graph=False)
    return checker.Model(content), checker.Objective(checker.Model(content), jsonable(Objective.reach("b")))


def tossed(model: checker.Model, tosses: tuple[int, ...]) -> checker.Data:
    """Data of a coin with marks after the second and the fourth toss."""

    def counts(n: int) -> list[list[int]]:
        return [[t, k] for t, k in enumerate((sum(tosses[:n]), n - sum(tosses[:n]))) if k]

    marks = [
        {"total": n, "weight": 0.3, "progress": share, "successes": counts(n), "trials": [[0, n], [1, n]]}
        for n, share in ((2, 0.25), (4, 0.5))
    ]
    data = {"schedule": "split", "planned": 0, "transitions": counts(len(tosses)), "marks": marks}
    return checker.Data(model, data)


class PeekingBets(checker.Bets):
    """Payoffs that know the tosses that they are settled with."""

    p = 0.5

    def cuts(self, data):
        self.final = data.successes, data.trials
        return super().cuts(data)

    def _aim(self, x, K, N):
        super()._aim(x, K, N)
        ahead = 1 if self.final[0][0] > self.p * self.final[1][0] else -1
        self.units = [[ahead * abs(unit[0]), -ahead * abs(unit[1])] for unit in self.units]


@pytest.mark.parametrize("p", [0.2, 0.85, pytest.param(0.5, marks=pytest.mark.nightly)])
def test_money_is_a_supermartingale(p):
    """E[M] ≤ 1 over all eight tosses, for both sides of the bets and for particles; peeking is seen."""
    model, objective = coin()
    line, alpha, PeekingBets.p = model.coordinates, Fraction(1, 100), p
    assert line is not None
    bound = {"bets": [0.0, 0.0], "peeking": [0.0, 0.0], "likelihood": [0.0, 0.0, 0.0], "mixture": [0.0]}
    alike = Counter(
        (sum(tosses[:2]), sum(tosses[2:4]), sum(tosses[4:])) for tosses in itertools.product((0, 1), repeat=8)
    )
    for heads, number in alike.items():  # what lies between two marks is counted, whatever its order
        tosses = tuple(int(k < n) for n, length in zip(heads, (2, 2, 4)) for k in range(length))
        chance, data = number * p ** sum(tosses) * (1 - p) ** (8 - sum(tosses)), tossed(model, tosses)
        for name, kind in (("bets", checker.Bets), ("peeking", PeekingBets)):
            for k, (a, b) in enumerate(kind(model, objective, line, alpha).cuts(data)[-2:]):  # of all data
                bound[name][k] += chance * math.exp(math.log(2 / alpha) - float(b - a[0] * Fraction(p)))
        clouds = [sorted(line.particles(mark[2], x)) for mark, x in zip(data.marks, data.fits(line))]
        for window, weight in enumerate((0.01, 0.3, 0.3)):
            wealth = money(checker.Likelihood(line, data, alpha, [[window, [[clouds[window][0], 1]]]]), p)
            bound["likelihood"][window] += chance * wealth / float(alpha) / weight * len(clouds[window])
        every = [[window, [[number, 1 + number % 7] for number in cloud]] for window, cloud in enumerate(clouds)]
        bound["mixture"][0] += chance * money(checker.Likelihood(line, data, alpha, every), p) / float(alpha)
    assert max(bound["bets"]) <= 1 + 1e-9 and min(bound["bets"]) > 0.5
    assert max(bound["likelihood"]) <= 1 + 1e-9 and min(bound["likelihood"]) > 1 - 1e-9
    assert 0.0 < bound["mixture"][0] <= 0.61 + 1e-9  # the weights of the windows
    assert max(bound["peeking"]) > 1.05


def plane() -> checker.Coordinates:
    """Three outcomes, of two unknown probabilities."""
    terms = {"terms": [[0, 1, 0], [0, 0, 1], [1, -1, -1]], "domain": [], "start": [0.25, 0.25]}
    return checker.Coordinates(terms | {"x": [[[1, [[0, 1]]]], [[1, [[1, 1]]]]]}, 2)


@pytest.mark.parametrize(
    ("slope", "gradient"),
    [
        ([-1.0, 3.0], [1.0, -3.0]),  # against the shift before, of (2, 1/2)
        ([1.0, -4.0], [1.0, -4.0]),  # across it
        ([0.0, 0.5], [0.0, 0.5]),
        ([0.0, 0.0], [7.0, 8.0]),  # the value depends on nothing: as before
    ],
)
def test_bets_stay_on_one_side(slope, gradient):
    """Bets that x is larger and bets that it is smaller would leave a slab without end."""
    bets, counts = checker.Bets(*coin(), plane(), Fraction(1, 100)), ([5, 5, 10], [20, 20, 20])
    assert bets.gradients == bets.shifts == bets.slopes == [[0.0, 0.0]]
    bets.shifts, bets.gradients = [[2.0, 0.5]], [[7.0, 8.0]]
    bets._slope = lambda x: slope  # type: ignore[method-assign]
    bets._aim([0.25, 0.25], *counts)
    assert bets.gradients == [gradient] and bets.slopes == [slope] and bets.found_with == bets.aimed == 20
    assert sum(a * b for a, b in zip(bets.shifts[0], gradient)) > 0
    bets._slope = None  # type: ignore[assignment, method-assign]
    bets._aim([0.25, 0.25], [9, 9, 21], [39, 39, 39])  # too little is new
    assert bets.gradients == [gradient]


def test_without_any_slope_nothing_is_bet():
    bets = checker.Bets(*coin(), plane(), Fraction(1, 100))
    bets._slope = lambda x: [0.0, 0.0]  # type: ignore[method-assign]
    bets._aim([0.25, 0.25], [5, 5, 10], [20, 20, 20])
    assert bets.units == [[0.0, 0.0, 0.0]]


def money(level: checker.Likelihood, p: float) -> float:
    """α E at p, or less."""
    g = -sum(n * math.log(q) for n, q in zip(level.K, (p, 1 - p))) / level.whole
    return math.exp(g - float(level.bound))


def test_what_rounding_hides_is_not_positive():
    """Beside a large entry, 4 and −7/5 are rounded to 4 and −1: 4 − 3 · 7/5 < 0 < 4 − 3 · 1."""
    for diagonal, good in ((4, False), (40, True)):
        block = [[Fraction(diagonal) if i == j else Fraction(-7, 5) for j in range(4)] for i in range(4)]
        matrix = [[Fraction(2**80), 0, 0, 0, 0], *([Fraction(0), *row] for row in block)]
        assert checker.is_positive(matrix) is good
    assert not checker.is_positive([[Fraction(0)]]) and not checker.is_positive([[Fraction(0), 0], [0, Fraction(0)]])


def test_multipliers_that_miss_prove_nothing(monkeypatch):
    """They are found in floats; if these are wrong (here without what is beside the diagonal) nothing is dominant."""
    for beside, good in ((Fraction(1, 2), True), (Fraction(3, 2), False), (Fraction(9, 10), True)):
        matrix = [[Fraction(1), beside], [beside, Fraction(1)]]
        unit = Fraction(2**80) / max(1, beside)
        rounded = int(beside * unit)
        monkeypatch.setattr(checker, "float", lambda x, y=rounded: 0.0 if x == y else float(x), raising=False)
        assert checker.is_positive(matrix) is good


def test_particles_count_once():
    """What repeats, or does not exist, would be counted twice, or chosen after the data."""
    model, _ = coin()
    line, data = model.coordinates, tossed(model, (1, 0, 1, 1, 0, 1, 0, 1))
    assert line is not None
    number = min(line.particles(data.marks[1][2], data.fits(line)[1]))
    one = checker.Likelihood(line, data, Fraction(1, 100), [[1, [[number, 3]]]])
    assert one.whole == 3 and [k / 3 for k in one.K] == [n - m for n, m in zip(data.successes, data.marks[1][2])]
    for parts, problem in (
        ([[1, [[number, 3], [number, 1]]]], "repeat"),
        ([[1, [[number, 3]]], [1, [[number, 1]]]], "repeat"),
        ([[1, [[100_000, 1]]]], "do not exist"),
        ([[1, [[number, -1]]], [2, [[number, 2]]]], "do not exist"),
        ([[3, [[number, 1]]]], "no window"),
        ([], "repeat"),
    ):
        with pytest.raises(checker.Refused, match=problem):
            checker.Likelihood(line, data, Fraction(1, 100), parts)


def test_rows_sum_to_one_in_coordinates_that_depend_on_each_other():
    """Two coordinates that are both p: p and 1 − p sum to 1, x₁ and 1 − x₂ do not, and estimates are made of x."""
    rows = {"s": {"a": {"t": "p", "s": "1 - p"}}, "t": {"a": {"t": 1}}}
    pmdp = build("s", rows.__getitem__, domain=["p"], labels={"t": lambda s: s == "t"})
    content = model_content(pmdp, Objective.reach("t"), False)
    checker.Model(content)
    forms = content["coordinates"]
    first, second = (k for k, terms in enumerate(forms["terms"]) if terms[1])
    forms["x"], forms["start"], forms["domain"] = 2 * forms["x"], [0.9, 0.1], []
    forms["terms"] = [[c, w, 0] if k == first else [c, 0, w] for k, (c, w) in enumerate(forms["terms"])]
    assert second != first
    with pytest.raises(checker.Refused, match="do not sum to 1"):
        checker.Model(content)


@pytest.mark.parametrize("place", [1, 2])
def test_rows_sum_to_one_in_a_coordinate_that_is_always_zero(place):
    """θ does not show it, but the estimates of x are made of what the terms say."""
    rows = {"s": {"a": {"t": "p", "s": "1 - p"}}, "t": {"a": {"t": 1}}}
    pmdp = build("s", rows.__getitem__, domain=["p"], labels={"t": lambda s: s == "t"})
    for more, good in ((0, True), (1, False)):
        content = model_content(pmdp, Objective.reach("t"), False)
        forms = content["coordinates"]
        for name, zero in (("x", []), ("start", 0.0)):
            forms[name].insert(place - 1, zero)
        for terms in forms["terms"] + forms["domain"]:
            terms.insert(place, 0)
        forms["terms"][0][place] = more
        if good:
            checker.Model(content)
            continue
        with pytest.raises(checker.Refused, match="do not sum to 1"):
            checker.Model(content)
