"""The likelihood of blocks in the checker: its bound against the same in plain numbers, and what it refuses."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import mpmath
import pytest

from rpl_agent.guarantee import checker

#: Blocks of 3, 1 and 2 coordinates, in disorder; expressions with coordinates of one block each, over 12.
BLOCKS = [[4, 0, 2], [1], [5, 3]]
TERMS = [
    [3, 2, 0, 1, 0, 0, 0],
    [4, 0, 0, -2, 0, 3, 0],
    [5, -1, 0, 0, 0, 1, 0],
    [6, 0, 5, 0, 0, 0, 0],
    [2, 0, 0, 0, 1, 0, 1],
    [7, 0, 0, 0, -2, 0, 3],
    [12, 0, 0, 0, 0, 0, 0],
]
CENTER, START = [0.25, 0.125, 0.5, 0.25, 0.0625, 0.5], [0.125, 0.25, 0.375, 0.5, 0.25, 0.25]
FACTORS = [
    [[0.0625], [0.015625, 0.125], [-0.03125, 0.03125, 0.0625]],
    [[0.25]],
    [[0.125], [0.0625, 0.03125]],
]
COUNTS, BEFORE = [9, 14, 11, 30, 8, 6, 5], [2, 4, 1, 10, 3, 1, 2]
WEIGHT, DEN = Fraction(1, 13), 12
#: The factor of the curvature at the mark.
L = [
    [4.0, 0, 0, 0, 0, 0],
    [0.5, 3.0, 0, 0, 0, 0],
    [-1.0, 0.25, 5.0, 0, 0, 0],
    [0.75, 0.5, 0.5, 2.0, 0, 0],
    [0.25, -0.5, 1.0, 0.5, 6.0, 0],
    [1.0, 1.0, -0.25, 0.5, 0.125, 3.0],
]


def line_of(terms: list[list[int]] = TERMS, blocks: list[list[int]] = BLOCKS) -> Any:
    def at(point: list[float]) -> tuple[list[int], int]:
        return [int(16 * (c + sum(a * Fraction(x) for a, x in zip(w, point)))) for c, *w in terms], 16 * DEN

    free = [f for f, (_, *w) in enumerate(terms) if any(w)]
    return SimpleNamespace(
        dimension=6, blocks=blocks, is_product=True, terms=terms, den=DEN, free=free, at=at,
        spread=lambda before, x0: L if (before, x0) == (BEFORE, START) else None,
    )  # fmt: skip


def data_of(weight: Fraction = WEIGHT) -> Any:
    marks = [(Fraction(0), None, None, None), (weight, None, BEFORE, None)]
    return SimpleNamespace(marks=marks, successes=COUNTS, fits=lambda line: [None, START])


def part_of(**changes: Any) -> dict[str, Any]:
    return {"mark": 1, "center": CENTER, "factors": FACTORS} | changes


def bound_of(line: Any = None, data: Any = None, **changes: Any) -> tuple[int, list[int]]:
    level = checker.Likelihood.__new__(checker.Likelihood)
    level.line = line or line_of()
    found = level._of_blocks(data or data_of(), part_of(**changes))
    return found, level.K


def parts(f: int, block: list[int], rows: list[list[float]]) -> tuple[Fraction, Fraction]:
    """(the expression at the centre, the square of its largest relative change on the ellipsoid)."""
    chance = Fraction(TERMS[f][0], DEN) + sum(Fraction(a, DEN) * Fraction(x) for a, x in zip(TERMS[f][1:], CENTER))
    turned = [
        sum(Fraction(TERMS[f][i + 1], DEN) * Fraction(rows[k][j]) for k, i in enumerate(block) if k >= j)
        for j in range(len(block))
    ]
    return chance, sum((x * x for x in turned), Fraction(0)) / chance**2


def squares() -> Fraction:
    """E |L'(x − x0)|² for x uniform on the ellipsoids."""
    r = range(6)
    shift = [Fraction(a) - Fraction(b) for a, b in zip(CENTER, START)]
    total = sum((sum((Fraction(L[i][j]) * shift[i] for i in r), Fraction(0)) ** 2 for j in r), Fraction(0))
    for block, rows in zip(BLOCKS, FACTORS):
        d = len(block)
        for j in range(d):
            column = [Fraction(0)] * 6
            for k in range(j, d):
                column[block[k]] = Fraction(rows[k][j])
            turned = [sum((Fraction(L[i][m]) * column[i] for i in r), Fraction(0)) for m in r]
            total += sum((x * x for x in turned), Fraction(0)) / (d + 2)
    return total


def test_the_bound_is_that_of_the_theorem():
    """With volumes of balls by the gamma function, determinants, and 100 digits."""
    with mpmath.workdps(100):
        number = lambda x: mpmath.mpf(Fraction(x).numerator) / Fraction(x).denominator  # noqa: E731
        gained = mpmath.log(number(WEIGHT)) - 3 * mpmath.log(2 * mpmath.pi)
        gained += sum(mpmath.log(number(L[i][i])) for i in range(6))
        for block, rows in zip(BLOCKS, FACTORS):
            d = len(block)
            gained += mpmath.log(mpmath.pi ** (mpmath.mpf(d) / 2) / mpmath.gamma(mpmath.mpf(d) / 2 + 1))
            gained += sum(mpmath.log(number(rows[k][k])) for k in range(d))
            for f, (_, *w) in enumerate(TERMS):
                if any(w[i] for i in block):
                    chance, square = parts(f, block, rows)
                    y = number(square)
                    lost = (y / (d + 2) + 3 * y**2 / ((d + 2) * (d + 4)) / (2 - 2 * y)) / 2
                    gained += (COUNTS[f] - BEFORE[f]) * (mpmath.log(number(chance)) - lost)
        exact = number(squares()) / 2 - gained
        found, K = bound_of()
        assert 0 <= mpmath.mpf(found) / checker.ONE - exact < mpmath.mpf(2) ** -110
    assert K == [n - m for n, m in zip(COUNTS, BEFORE)]


@pytest.mark.parametrize("d", range(1, 10))
def test_blocks_of_any_size_have_the_volume_of_their_ball(d):
    """One block without expressions, the unit ball around the fit, and a curvature of 1."""
    unit = [[1.0 if i == j else 0.0 for j in range(d)] for i in range(d)]
    level = checker.Likelihood.__new__(checker.Likelihood)
    level.line = SimpleNamespace(
        dimension=d, blocks=[list(range(d))], terms=[], den=1, free=[], at=lambda point: ([], 1),
        spread=lambda before, x0: unit,
    )  # fmt: skip
    data = SimpleNamespace(marks=[(Fraction(1), None, [], None)], successes=[], fits=lambda line: [[0.0] * d])
    factors = [[row[: k + 1] for k, row in enumerate(unit)]]
    found = level._of_blocks(data, {"mark": 0, "center": [0.0] * d, "factors": factors})
    with mpmath.workdps(60):
        half = mpmath.mpf(d) / 2
        volume = mpmath.log(mpmath.pi**half / mpmath.gamma(half + 1) / (2 * mpmath.pi) ** half)
        exact = half / (d + 2) - volume
        assert 0 <= mpmath.mpf(found) / checker.ONE - exact < mpmath.mpf(2) ** -110


def test_every_error_is_against_the_bound(monkeypatch):
    """The same from the checker's own enclosures, number by number, with π known badly and nothing rounded down."""
    monkeypatch.setattr(checker, "PI", [Fraction(3), Fraction(4)])
    up, ln = checker.up, checker.ln
    monkeypatch.setattr(checker, "down", None)
    gained = ln(WEIGHT)[0]
    for block, rows in zip(BLOCKS, FACTORS):
        d = len(block)
        for k, i in enumerate(block):
            gained += ln(Fraction(rows[k][k]) * Fraction(L[i][i]))[0]
        gained -= ln(Fraction({1: 1, 2: 2, 3: 3}[d]))[1]  # 1, 2, and 3 · 1
        if d % 2:
            gained -= -(-ln(Fraction(2))[1] // 2)  # half of ln 4/2, rounded up
        for f, (_, *w) in enumerate(TERMS):
            if any(w[i] for i in block):
                chance, square = parts(f, block, rows)
                y = Fraction(up(square), checker.ONE)
                lost = up(y / (2 * (d + 2)) + 3 * y**2 / (4 * (d + 2) * (d + 4) * (1 - y)))
                gained += (COUNTS[f] - BEFORE[f]) * (ln(chance)[0] - lost)
    assert bound_of()[0] == up(squares() / 2) - gained


def test_the_bound_of_a_likelihood_adds_its_share(monkeypatch):
    level = checker.Likelihood(line_of(), data_of(), Fraction(1, 100), part_of())
    assert level.whole == 1 and level.used == [0, 1, 2, 3, 4, 5]
    assert level.bound == Fraction(bound_of()[0] + checker.ln(Fraction(100))[1], checker.ONE)


@pytest.mark.parametrize("mark", [-1, 0, 2, 3])
def test_a_window_begins_at_a_mark_with_a_weight(mark):
    with pytest.raises(checker.Refused, match="no window of the likelihood begins there"):
        bound_of(mark=mark)


def test_weights_are_positive():
    assert bound_of(data=data_of(Fraction(1, 10**6)))[0] > bound_of()[0]
    with pytest.raises(checker.Refused, match="no window of the likelihood begins there"):
        bound_of(data=data_of(Fraction(0)))


@pytest.mark.parametrize(
    "first", [[[0.1], [0.1, 0.1]], [[0.1], [0.1], [0.1]], [[0.1], [0.1, 0.1], [0.1, 0.1, 0.1, 0.1]], []]
)
def test_ellipsoids_are_triangular(first):
    with pytest.raises(checker.Refused, match="an ellipsoid of a wrong size"):
        bound_of(factors=[first, *FACTORS[1:]])


def test_expressions_are_positive_on_their_ellipsoid():
    """Of the second block: 6 + 5 x over 12, which is 0 at −6/5."""
    edge = float(Fraction(6 + 5 * Fraction(CENTER[1])) / 5)
    bound_of(factors=[FACTORS[0], [[0.999 * edge]], FACTORS[2]])
    for size in (edge * (1 + 1e-12), 2.0):
        with pytest.raises(checker.Refused, match="expression 3 is not positive on an ellipsoid"):
            bound_of(factors=[FACTORS[0], [[size]], FACTORS[2]])
    for there in (-1.2, -2.0):  # not even at the centre
        with pytest.raises(checker.Refused, match="expression 3 is not positive on an ellipsoid"):
            bound_of(center=[CENTER[0], there, *CENTER[2:]])
    one = [[6, 0, 6, 0, 0, 0, 0] if f == 3 else terms for f, terms in enumerate(TERMS)]
    with pytest.raises(checker.Refused, match="expression 3 is not positive on an ellipsoid"):  # 0 at its very edge
        bound_of(line_of(one), center=[CENTER[0], 0.0, *CENTER[2:]], factors=[FACTORS[0], [[1.0]], FACTORS[2]])


def test_an_expression_has_coordinates_of_one_block():
    both = [[3, 2, 1, 0, 0, 0, 0], *TERMS[1:]]
    with pytest.raises(checker.Refused, match="an expression has coordinates of several blocks"):
        bound_of(line_of(both))


# ---------------------------------------------------------------------- coordinates
def coordinates(**changes: Any) -> checker.Coordinates:
    """x and y, of two parameters, in a block each; f = x, 1 − x, y/2 + 1/4, 3/4 − y/2."""
    terms = [[0, 1, 0], [1, -1, 0], ["1/4", 0, "1/2"], ["3/4", 0, "-1/2"]]
    x = [[[1, [[0, 1]]]], [[1, [[1, 1]]]]]
    given = {"terms": terms, "domain": [], "x": x, "start": [0.5, 0.5], "blocks": [[0], [1]]} | changes
    return checker.Coordinates({k: v for k, v in given.items() if v is not None}, 2)


@pytest.mark.parametrize("blocks", [[[0]], [[0], [0, 1]], [[0], [1], [1]], [[0], [2]], [[0, 1], [2]], []])
def test_blocks_divide_the_coordinates(blocks):
    assert coordinates().blocks == [[0], [1]] and coordinates(blocks=[[1, 0]]).is_product
    with pytest.raises(checker.Refused, match="blocks that overlap"):
        coordinates(blocks=blocks)


def test_there_are_coordinates_and_not_too_many():
    one, count = [[1, [[0, 1]]]], checker.MOST_COORDINATES
    for size, blocks, good in (
        (0, None, False),
        (count, None, True),
        (count + 1, None, False),
        (count + 1, "one", True),
        (checker.MOST_OF_BLOCKS, "one", True),
        (checker.MOST_OF_BLOCKS + 1, "one", False),
    ):
        given = {"terms": [[0, *[1] * size], [1, *[-1] * size]], "x": [one] * size, "start": [0.1] * size}
        given["blocks"] = [list(range(size))] if blocks else None
        if good:
            assert coordinates(**given).dimension == size
            continue
        with pytest.raises(checker.Refused, match="coordinates of a wrong size"):
            coordinates(**given)


def test_estimates_have_positive_probabilities_and_a_curvature_in_every_direction():
    counts = [3, 4, 5, 6]
    line = coordinates()
    assert min(line.chances(line.fit([3.0, 4.0, 5.0, 6.0], line.start))) > 0 and line.spread(counts, line.start)
    for start in ([0.0, 0.5], [1.5, 0.5], [0.5, -0.5]):
        with pytest.raises(checker.Refused, match="not positive at an estimate"):
            line.fit([3.0, 4.0, 5.0, 6.0], start)
        with pytest.raises(checker.Refused, match="not positive at an estimate"):
            line.spread(counts, start)
    same = coordinates(terms=[[0, 1, 1], [1, -1, -1]], start=[0.25, 0.25], blocks=None)
    same.tau = 0.0  # 4 = √(2/½² + 2/½²), so that nothing is rounded
    with pytest.raises(checker.Refused, match="leave a direction open"):
        same.spread([2, 2], same.start)


def test_factors_of_balls_have_rows_of_one_size():
    line = coordinates()
    checker.Ball(line, {"center": [0.5, 0.5], "factor": [[0.1, 0.0], [0.0, 0.1]]})
    for factor in ([[0.1, 0.0], [0.1]], [[0.1], [0.0, 0.1]], [[0.1, 0.0], [0.0, 0.1, 0.2]]):
        with pytest.raises(checker.Refused, match="a frame of a wrong size"):
            checker.Ball(line, {"center": [0.5, 0.5], "factor": factor})


@pytest.mark.parametrize(
    ("method", "product", "expected"),
    [
        ("likelihood with bets", True, "likelihood with bets, of blocks"),
        ("likelihood", True, "anytime"),
        ("likelihood of a table", True, "anytime"),
        ("likelihood with bets", False, "likelihood with bets"),
        ("likelihood", False, "likelihood"),
    ],
)
def test_blocks_have_shares_of_their_own(method, product, expected):
    model = SimpleNamespace(coordinates=SimpleNamespace(is_product=product), box=["p"])
    assert checker.shares(model, method, Fraction(1, 10)) == [
        Fraction(part, 10**5) for part in checker.SHARES[expected]
    ]


def test_an_interval_by_multipliers_is_rounded_outward():
    region, seen = checker.Known.__new__(checker.Known), list[Any]()
    region.line = SimpleNamespace(den=7, terms=[[2, 3, -5]])  # type: ignore[assignment]
    region.intervals = SimpleNamespace(cut=lambda *given: seen.append(given))  # type: ignore[assignment]
    w = [Fraction(3, 7), Fraction(-5, 7)]
    known = {"low": ([-x for x in w], Fraction(-1, 3)), "high": (w, Fraction(5, 9))}

    def most(h: list[Fraction], multipliers: Any) -> Fraction:
        assert h == known[multipliers][0]
        return known[multipliers][1]

    region.most = most  # type: ignore[assignment, method-assign]
    region.tighten(0, "low", "high")  # type: ignore[arg-type]
    low, high = Fraction(2, 7) + Fraction(1, 3), Fraction(2, 7) + Fraction(5, 9)
    assert seen == [(0, checker.down(low), checker.up(high))] and checker.down(low) < low * checker.ONE
