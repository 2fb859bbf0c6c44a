"""Two series of bets where two policies compete: which gradients they follow, and what each has to win."""

import itertools
import math
from fractions import Fraction

import pytest

from rpl_agent.guarantee import checker
from tests.certify.test_checker_parts import coin

SAFE, RISKY = [1.0, 0.0], [0.2, 6.0]
NONE = [[0.0, 0.0], [0.0, 0.0]]


def slope_of(sign, behind):
    """The gradient of the better one of SAFE·x and RISKY·x − behind."""

    def slope(x):
        safe, risky = (sum(a * b for a, b in zip(g, x)) for g in (SAFE, RISKY))
        return SAFE if sign * safe >= sign * (risky - sign * behind) else RISKY

    return slope


def found(x, old, sign=1, behind=1.0, scale=(1.0, 1.0), seen=None, chances=lambda point: [1.0]):
    """The gradients, with variances ``scale`` of the coordinates; ``seen`` collects the points of slopes."""
    slope = slope_of(sign, behind)

    def noted(point):
        if seen is not None:
            seen.append(point)
        return slope(point)

    return checker.rivals(x, old, sign, lambda d: [a * b for a, b in zip(scale, d)], noted, chances)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_other_policy_is_found_where_the_best_one_disappoints(sign):
    seen = []
    assert found([0.0, 0.0], NONE, sign, seen=seen) == [SAFE, RISKY]
    length = math.hypot(*SAFE)
    assert seen[0] == [0.0, 0.0] and seen[1] == pytest.approx([-sign * 4 * a / length for a in SAFE])
    assert found([0.0, 0.0], NONE, sign, behind=99.0) == [SAFE, SAFE]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("x", [[0.0, 0.0], [0.0, 0.9], [0.0, -0.9]])
def test_series_keep_their_policies(x, sign):
    """Whichever is best at the estimate, and whichever series it had."""
    for old in ([SAFE, RISKY], [RISKY, SAFE]):
        assert found(x, old, sign) == old


def test_slopes_are_four_deviations_away_along_the_difference():
    seen, scale = [], (4.0, 0.25)
    found([1.0, 2.0], [SAFE, RISKY], scale=scale, seen=seen)
    apart = [a - b for a, b in zip(SAFE, RISKY)]
    size = math.sqrt(sum(v * a * a for v, a in zip(scale, apart)))
    for way, point in zip((1, -1), seen, strict=True):
        assert point == pytest.approx([x + way * 4 * v * a / size for x, v, a in zip([1.0, 2.0], scale, apart)])


@pytest.mark.parametrize(("cosine", "alike"), [(0.89, False), (0.91, True), (-0.89, False), (-0.91, True), (1.0, True)])
def test_gradients_are_alike_from_a_cosine_of_nine_tenths_on(cosine, alike):
    seen, old = [], [[2.0, 0.0], [3 * cosine, 3 * math.sqrt(1 - cosine**2)]]
    found([0.0, 0.0], old, seen=seen)
    assert (seen[0] == [0.0, 0.0]) is alike


def test_points_are_models():
    """Steps are halved until every expression is at least 0, and after twelve of them x is taken."""
    seen = []
    found([0.0, 0.0], [SAFE, RISKY], seen=seen, chances=lambda point: [1.0, 1.5 - math.hypot(*point)])
    assert [math.hypot(*point) for point in seen] == pytest.approx([1.0, 1.0])
    seen.clear()
    found([0.0, 0.0], [SAFE, RISKY], seen=seen, chances=lambda point: [2.0, 1.0 - math.hypot(*point)])
    assert [math.hypot(*point) for point in seen] == pytest.approx([1.0, 1.0])
    seen.clear()
    found([0.0, 0.0], [SAFE, RISKY], seen=seen, chances=lambda point: [4 * 0.51**11 - math.hypot(*point)])
    assert [math.hypot(*point) for point in seen] == pytest.approx([4 * 0.5**11] * 2)
    seen.clear()
    found([0.0, 0.0], [SAFE, RISKY], seen=seen, chances=lambda point: [-1.0])
    assert seen == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("scale", [(0.0, 0.0), (1e305, 1e305)])
def test_without_a_direction_both_are_those_of_the_estimate(scale):
    seen = []
    assert found([0.5, 0.5], NONE, scale=scale, seen=seen) == [RISKY, RISKY]
    assert seen == [[0.5, 0.5], [0.5, 0.5]]


# ---------------------------------------------------------------------- in bets
def blocks() -> checker.Coordinates:
    """Two coins."""
    terms = {"terms": [[0, 1, 0], [1, -1, 0], [0, 0, 1], [1, 0, -1]], "domain": [], "start": [0.5, 0.5]}
    return checker.Coordinates(terms | {"x": [[[1, [[0, 1]]]], [[1, [[1, 1]]]]], "blocks": [[0], [1]]}, 2)


@pytest.mark.parametrize("maximising", [True, False])
def test_a_model_of_blocks_has_two_series_and_each_half_of_the_risk(maximising, monkeypatch):
    model, objective = coin()
    objective.maximising = maximising
    bets, one = (checker.Bets(model, objective, line, Fraction(1, 100)) for line in (blocks(), model.coordinates))
    assert bets.level == checker.ln(Fraction(400))[1] and one.level == checker.ln(Fraction(200))[1]
    assert bets.slopes == bets.gradients == bets.shifts == NONE and len(one.shifts) == 1
    given = []

    def noted(x, old, sign, solve, slope, chances):
        given.append((x, old, sign, solve([1.0, 2.0]), slope, chances))
        return [[-1.0, 1.0], [0.0, 0.0]]

    monkeypatch.setattr(checker, "rivals", noted)
    bets.shifts, bets.gradients = [[2.0, 0.5], [1.0, 1.0]], [[7.0, 8.0], [9.0, 3.0]]
    bets._aim([0.5, 0.5], [10, 10, 20, 20], [20, 20, 40, 40])
    ((x, old, sign, solved, slope, chances),) = given
    assert (x, old, sign) == ([0.5, 0.5], NONE, 1 if maximising else -1)
    assert solved == pytest.approx([1 / 80, 2 / 160])  # I = N / p + N / (1 − p)
    assert slope == bets._slope and chances == bets.line.chances
    assert bets.slopes == [[-1.0, 1.0], [0.0, 0.0]] and bets.gradients == [[1.0, -1.0], [9.0, 3.0]]
    for gradient, shift, unit in zip(bets.gradients, bets.shifts, bets.units, strict=True):
        assert shift == pytest.approx([gradient[0] / 80, gradient[1] / 160])
        size = math.sqrt(sum(a * b for a, b in zip(gradient, shift)))
        assert unit == pytest.approx([2 * way * shift[i] / size for i, way in ((0, 1), (0, -1), (1, 1), (1, -1))])


def test_series_are_settled_apart(monkeypatch):
    """Payoffs of the first series win where those of the second one, on the other coin, know nothing."""
    model, objective = coin()
    line = blocks()
    bets = checker.Bets(model, objective, line, Fraction(1, 100))
    half = checker.Bets.GRID // 2
    payoffs = [[half, -half, 0, 0], [0, 0, half, 0]]
    monkeypatch.setattr(bets, "payoffs", lambda *given: payoffs)
    marks = [(Fraction(0), Fraction(1, 2), [1, 1, 2, 2], [2, 2, 4, 4])]
    data = type("Data", (), {"fits": lambda self, line: [[0.5, 0.5]]})()
    data.marks, data.successes, data.trials = marks, [7, 3, 2, 6], [10, 10, 8, 8]
    cuts, log = bets.cuts(data), lambda x: checker.ln(Fraction(x))[0]
    level, up, down = bets.level, log(Fraction(3, 2)), log(Fraction(1, 2))
    expected = [
        ([Fraction(8), Fraction(0)], Fraction(level - 6 * down - 2 * up, checker.ONE) + 4),
        ([Fraction(-8), Fraction(0)], Fraction(level - 6 * up - 2 * down, checker.ONE) - 4),
        ([Fraction(0), Fraction(2)], Fraction(level, checker.ONE)),
        ([Fraction(0), Fraction(-2)], Fraction(level, checker.ONE)),
    ]
    assert cuts == expected


def test_the_truth_is_cut_off_with_the_promised_chance_at_most():
    """All outcomes of ten tosses of each coin: P(any of the four cuts fails), with payoffs of ±1/2 and α = 1/2."""
    model, objective = coin()
    line, alpha, p = blocks(), Fraction(1, 2), (Fraction(1, 2), Fraction(4, 5))
    half, failed = checker.Bets.GRID // 2, Fraction(0)
    for heads in itertools.product(range(11), repeat=2):
        bets = checker.Bets(model, objective, line, alpha)
        bets.payoffs = lambda *given: [[half, -half, 0, 0], [0, 0, half, -half]]  # type: ignore[method-assign]
        data = type("Data", (), {"fits": lambda self, line: [[0.5, 0.5]]})()
        data.marks = [(Fraction(0), Fraction(1, 2), [0] * 4, [0] * 4)]
        data.successes = [heads[0], 10 - heads[0], heads[1], 10 - heads[1]]
        data.trials = [10] * 4
        if any(sum(x * y for x, y in zip(a, p)) >= b for a, b in bets.cuts(data)):
            failed += math.prod(math.comb(10, n) * q**n * (1 - q) ** (10 - n) for n, q in zip(heads, p))
    assert 0 < failed <= alpha
