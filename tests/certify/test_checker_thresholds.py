"""Thresholds of the checker: what lies just inside is accepted, what lies just outside is refused.

Ends are bisected down to neighbouring floats and compared with `decimal`, which knows nothing of the checker's
logarithms. A threshold that is off by a nat, or a factor, moves them by far more than that.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import random
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest

from rpl_agent.core.model import Objective, build
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.likelihood.checked_model import model_content
from rpl_agent.guarantee.pipeline import Config
from rpl_agent.guarantee.proof import prove
from tests.certify.proved import OBJECTIVES, known, model, sampled

pytestmark = pytest.mark.usefixtures("shared_particles")

DIGITS = 80


def decimal(x: Fraction | float | int) -> Decimal:
    fraction = Fraction(x)
    return Decimal(fraction.numerator) / Decimal(fraction.denominator)


def boundary(accepted: Callable[[float], bool], good: float, bad: float) -> tuple[float, float]:
    """(the last accepted, the first refused) float between one that is accepted and one that is not."""
    assert accepted(good) and not accepted(bad)
    while True:
        middle = (good + bad) / 2
        if middle in (good, bad):
            return good, bad
        good, bad = (middle, bad) if accepted(middle) else (good, middle)


def passes(action: Callable[[], Any], sentence: str) -> bool:
    """Whether nothing is refused; if something is, it is for this reason."""
    try:
        action()
    except checker.Refused as refused:
        assert sentence in str(refused), refused
        return False
    return True


# ---------------------------------------------------------------------- numbers
def test_logarithms_are_enclosed_to_the_last_bits():
    draw = random.Random(4)
    numbers = [Fraction(draw.randrange(1, 2**k), draw.randrange(1, 2**j)) for k in (3, 60, 300) for j in (3, 60, 300)]
    numbers += [Fraction(4, 3), Fraction(2, 3), Fraction(1), Fraction(1, 2), Fraction(2**1000 + 1, 2**1000)]
    with localcontext() as context:
        context.prec = 400
        for x in numbers:
            low, high = checker.ln(x)
            assert low <= decimal(x).ln() * checker.ONE <= high <= low + 3, x


@pytest.mark.parametrize("n", [0, 1, 2, 255, 256, 257, 300, 2000])
def test_factorials_are_enclosed_to_the_last_bits(n):
    with localcontext() as context:
        context.prec = 200
        low, high = checker.ln_factorial(n)
        assert low <= Decimal(math.factorial(n)).ln() * checker.ONE <= high
        series = Fraction(1, 1260 * n**5) * checker.ONE if n >= 256 else 0  # the last term of the series
        assert high - low <= 4 * n + 8 + series


def test_roots_and_lengths_are_not_below():
    for n in (0, 1, 2, 3, 4, 8, 9, 10**20, 10**20 + 1, 10**20 - 1):
        root = checker.root_up(n)
        assert root * root >= n and (n == 0 or (root - 2) ** 2 < n)
    draw = random.Random(5)
    for _ in range(50):
        vector = [Fraction(draw.randrange(-(10**9), 10**9), draw.randrange(1, 10**9)) for _ in range(3)]
        length = checker.norm_up(vector)
        assert length**2 >= sum(x * x for x in vector) and length**2 <= sum(x * x for x in vector) * 1.001 + 1


@pytest.mark.parametrize(("x", "up"), [(Fraction(1, 3), 1), (Fraction(-1, 3), 1), (Fraction(5), 0), (Fraction(0), 0)])
def test_roundings_are_outward_by_less_than_a_unit(x, up):
    assert checker.up(x) - checker.down(x) == up and checker.down(x) <= x * checker.ONE <= checker.up(x)


def test_ranges_over_a_box_are_exact():
    """Signs, odd and even powers, and products, against the corners (and 0 where a parameter passes it)."""
    box = [(Fraction(-2), Fraction(1)), (Fraction(1, 4), Fraction(3)), (Fraction(-3), Fraction(-1))]
    bounds = checker.Model.__new__(checker.Model)
    bounds.box = box
    cases = [((0, 1),), ((0, 2),), ((0, 3), (1, 1)), ((0, 2), (2, 1)), ((2, 3), (1, 2)), ((0, 1), (1, 1), (2, 1))]
    for monomial in cases:
        for c in (Fraction(3), Fraction(-2)):
            values = [c]
            for i, power in monomial:
                points = [*box[i], *([Fraction(0)] if box[i][0] < 0 < box[i][1] else [])]
                values = [v * x**power for v in values for x in points]
            low, high = bounds.range_over_box({monomial: c, (): Fraction(1)})
            assert (low, high) == ((min(values) + 1) * checker.ONE, (max(values) + 1) * checker.ONE)


# ---------------------------------------------------------------------- intervals
def tossing(coins: int = 1) -> dict[str, Any]:
    """The content of a model with coins that are tossed one after the other."""

    def actions(state: int) -> dict[str, dict[int, Any]]:
        return {"go": {state + 1: f"p{state}", -1: f"1 - p{state}"}} if 0 <= state < coins else {"stay": {state: 1}}

    pmdp = build(0, actions, domain=[f"p{k}" for k in range(coins)], labels={"won": lambda s: s == coins})
    return model_content(pmdp, Objective.reach("won"), graph=False)


def tosses(
    content: dict[str, Any], counts: list[tuple[int, int]], marks: list[dict[str, Any]] | None = None, **more: Any
):
    """The data of coins with (successes, failures), in the order of the model's first transitions."""
    one, transitions = checker.Model(content), []
    for row, (won, lost) in zip((r for r, moves in enumerate(one.moves) if len(moves) == 2), counts):
        first = content["row_ptr"][row]
        ups = [t == one.row_state[row] + 1 or t not in (0, one.states - 1) for t, _ in one.moves[row]]
        heads = ups.index(True) if sum(ups) == 1 else 0
        transitions += [[first + heads, won], [first + 1 - heads, lost]]
    data = {"schedule": "split", "planned": 0, "transitions": [pair for pair in transitions if pair[1]], "marks": []}
    return checker.Data(one, data | {"marks": marks or []} | more)


def evidence(K: int, J: int, p: Fraction) -> Decimal:
    """ln of the Beta(½, ½) martingale of the theorem, in 80 digits."""
    top = math.factorial(2 * K) * math.factorial(2 * J)
    bottom = 4 ** (K + J) * math.factorial(K) * math.factorial(J) * math.factorial(K + J)
    return decimal(Fraction(top, bottom)).ln() - K * decimal(p).ln() - J * decimal(1 - p).ln()


@pytest.mark.parametrize(("K", "J"), [(5, 5), (1, 40), (120, 3), (150, 140), (0, 30), (30, 0)])
@pytest.mark.parametrize(("share", "coins"), [(Fraction(1, 1000), 1), (Fraction(1, 20), 3)])
def test_ends_of_intervals_are_excluded_exactly_where_the_martingale_is_large(K, J, share, coins):
    content = tossing(coins)
    data = tosses(content, [(K, J)] * coins)
    (f, *rest) = checker.Intervals(data, share, {}).events
    assert len(rest) == coins - 1
    events = checker.Intervals(data, share, {}).events
    assert all(set(pair) == {K, J} for pair in events.values())
    K, J = events[f]

    def holds(low: float, high: float) -> bool:
        return passes(lambda: checker.Intervals(data, share, {str(f): [low, high]}), "is not excluded by the data")

    mean = K / (K + J)
    with localcontext() as context:
        context.prec = DIGITS
        level = decimal(coins / share).ln()
        if K:  # the low end, from 0 (claims nothing) to the mean
            inside, outside = boundary(lambda x: holds(x, 1.0), 1e-300, mean * (1 - 1e-9))
            assert evidence(K, J, Fraction(outside)) <= level <= evidence(K, J, Fraction(inside))
        if J:
            inside, outside = boundary(lambda x: holds(0.0, x), 1 - 2.0**-53, mean + (1 - mean) * 1e-9)
            assert evidence(K, J, Fraction(outside)) <= level <= evidence(K, J, Fraction(inside))


def test_intervals_hold_what_was_observed():
    data = tosses(tossing(), [(3, 1)])
    (f,) = checker.Intervals(data, Fraction(1, 10), {}).events
    K, _ = checker.Intervals(data, Fraction(1, 10), {}).events[f]
    for low, high in ((math.nextafter(K / 4, 1), 1.0), (0.0, math.nextafter(K / 4, 0)), (0.99, 0.01)):
        with pytest.raises(checker.Refused, match="does not hold"):
            checker.Intervals(data, Fraction(1, 10), {str(f): [low, high]})


def test_rows_without_a_distribution_are_refused():
    """Ends that leave exactly one distribution pass, and nothing narrower."""
    data = tosses(tossing(), [(3, 1)])
    found = checker.Intervals(data, Fraction(1, 10), {})
    first, second = (f for _, f in found.model.moves[0])
    found.low[first], found.low[second] = checker.ONE // 2, checker.ONE // 2
    found.check_rows()
    found.low[second] += 1
    with pytest.raises(checker.Refused, match="no distribution"):
        found.check_rows()
    found.low[first] = found.low[second] = 0
    found.high[first], found.high[second] = checker.ONE // 2, checker.ONE // 2
    found.check_rows()
    found.high[second] -= 1
    with pytest.raises(checker.Refused, match="no distribution"):
        found.check_rows()
    found.cut(first, checker.ONE // 2, checker.ONE)
    with pytest.raises(checker.Refused, match="no value is left"):
        found.cut(first, checker.ONE // 2 + 1, checker.ONE)


def test_events_are_possible_if_they_were_seen_or_have_a_positive_end():
    found = checker.Intervals(tosses(tossing(), [(0, 5)]), Fraction(1, 10), {})
    never, seen = sorted((f for _, f in found.model.moves[0]), key=lambda f: found.seen[f])
    assert (found.seen[never], found.seen[seen]) == (0, 5)
    found.low[never] = found.low[seen] = 0
    assert found.is_possible(seen) and not found.is_possible(never)
    found.low[never] = 1
    assert found.is_possible(never)


def test_shares_of_a_method_are_at_most_delta():
    """0.95 of δ, so that weights of marks whose sum is rounded above 1 still fit; a graph has what is left."""
    for method, parts in checker.SHARES.items():
        assert sum(parts) == (99 if method == "graph" else 9500)
    content = tossing()
    one, delta = checker.Model(content), Fraction(1, 7)
    assert sum(checker.shares(one, "likelihood with bets", delta)) == delta * Fraction(95, 100)
    one.coordinates = None
    assert checker.shares(one, "likelihood", delta) == [0, 0, delta * Fraction(95, 100)]


# ---------------------------------------------------------------------- marks
def mark(total: int, weight: float, won: int, progress: float = 0.0) -> dict[str, Any]:
    return {"total": total, "weight": weight, "progress": progress, "successes": [[0, won], [1, total - won]],
            "trials": [[0, total], [1, total]]}  # fmt: skip


def test_weights_of_marks_sum_to_one():
    content = tossing()

    def holds(weight: float) -> bool:
        marks = [mark(2, 0.5, 1), mark(4, weight, 2)]
        return passes(lambda: tosses(content, [(9, 9)], marks), "the marks' weights exceed 1")

    inside, outside = boundary(holds, 0.1, 0.9)
    most = 1 + Fraction(1, 2**40) - Fraction(0.01) - Fraction(0.5)
    assert Fraction(inside) <= most < Fraction(outside)


@pytest.mark.parametrize(("schedule", "planned", "weight"), [("geometric", 0, 1 / 13), ("split", 1000, 0.33)])
def test_marks_are_due_at_their_times_with_their_weights(schedule, planned, weight):
    content = tossing()
    first = 64 if schedule == "geometric" else 40

    def data(*marks: dict[str, Any]) -> checker.Data:
        return tosses(content, [(400, 400)], list(marks), schedule=schedule, planned=planned)

    data(mark(first, weight, 9))
    data(mark(4 * first if schedule == "geometric" else 2 * first, weight, 9))
    data(mark(first, weight, 9), mark(4 * first, weight, 40))
    data(mark(first - 1, 0.0, 9, 0.1))  # a mark of bets alone may come at any time
    for total in (first - 1, 1):
        with pytest.raises(checker.Refused, match="no mark is due"):
            data(mark(total, weight, 1))
    with pytest.raises(checker.Refused, match="no mark is due"):
        data(mark(first, weight, 9), mark(first + 1, weight, 10))
    for other in (math.nextafter(weight, 1), math.nextafter(weight, 0)):
        with pytest.raises(checker.Refused, match="not those of their schedule"):
            data(mark(first, other, 9))


def test_marks_are_part_of_the_data_after_them():
    content = tossing()

    def holds(*marks: dict[str, Any]) -> bool:
        reason = "or more than all data" if marks[-1]["total"] <= 10 else "counted otherwise"
        return passes(lambda: tosses(content, [(5, 5)], list(marks)), reason)

    assert holds(mark(5, 0.1, 5)) and not holds(mark(6, 0.1, 6))  # five of each were seen
    assert holds(mark(4, 0.1, 2), mark(5, 0.1, 3)) and not holds(mark(4, 0.1, 2), mark(5, 0.1, 1))
    for total in (3, 5):
        with pytest.raises(checker.Refused, match="counted otherwise"):
            tosses(content, [(5, 5)], [mark(4, 0.1, 2) | {"total": total}])
    for change in ({"progress": 1.0 + 2**-52}, {"progress": -0.1}, {"weight": -1e-300}):
        with pytest.raises(checker.Refused, match="out of range"):
            tosses(content, [(5, 5)], [mark(4, 0.1, 2) | change])
    for trials in ([[0, 11], [1, 10]], [[0, 10], [1, 11]]):
        with pytest.raises(checker.Refused, match="a mark counts fewer trials"):
            tosses(content, [(5, 5)], [mark(4, 0.1, 2, 0.5) | {"trials": trials}])


def test_data_of_an_earlier_time_are_a_beginning():
    content = tossing()
    late = tosses(content, [(5, 5)], [mark(4, 0.1, 2)])
    assert late.is_start_of(late) and tosses(content, [(3, 5)], [mark(4, 0.1, 2)]).is_start_of(late)
    assert tosses(content, [(2, 1)]).is_start_of(late)  # before the mark
    for other in (tosses(content, [(6, 5)], [mark(4, 0.1, 2)]), tosses(content, [(3, 5)]),
                  tosses(content, [(5, 5)], [mark(4, 0.2, 2)]), tosses(content, [(2, 2)])):  # fmt: skip
        assert not other.is_start_of(late)


# ---------------------------------------------------------------------- the likelihood and its ball
def level_of(K: int, J: int, bound: float) -> checker.Likelihood:
    """The likelihood of a coin, with a bound of its own."""
    content = tossing()
    data = tosses(content, [(K, J)])
    line = data.model.coordinates
    assert line is not None
    level = checker.Likelihood(line, data, Fraction(1, 100), [[0, [[1, 1]]]])
    level.bound = Fraction(bound)
    return level


def fall(level: checker.Likelihood, x: Fraction) -> Decimal:
    """g(x) = −Σ K ln f[x], infinite where an f is not positive."""
    chances = [
        Fraction(c * x.denominator + w * x.numerator, level.line.den * x.denominator) for c, w in level.line.terms
    ]
    if min(chances[f] for f in level.used) <= 0:
        return Decimal("Infinity")
    return sum((-level.K[f] * decimal(chances[f]).ln() for f in level.used), Decimal(0))


@pytest.mark.parametrize(("K", "J"), [(5, 10**6), (40, 60), (3, 3), (2, 10**4)])
@pytest.mark.parametrize("room", [0.01, 1.0, 6.0])
def test_balls_that_are_accepted_enclose_the_set(K, J, room):
    """The smallest accepted half-width reaches both ends of {g ≤ bound}, and not much further."""
    with localcontext() as context:
        context.prec = DIGITS
        level = level_of(K, J, 0.0)
        seen = [level.K[f] for f in level.used]
        chance = {f: Fraction(n, sum(seen)) for f, n in zip(level.used, seen)}
        (c, w), f = level.line.terms[level.used[0]], level.used[0]
        center = float((chance[f] * level.line.den - c) / w)
        level.bound = Fraction(fall(level, Fraction(center))) + Fraction(room)

        def encloses(half: float) -> bool:
            frame = checker.Ball(level.line, {"center": [center], "factor": [[half]]})
            return passes(lambda: level.check_ball(frame, []), "does not enclose")

        small = min(center, 1 - center)
        half, _ = boundary(encloses, 100 * small, small * 1e-9)
        ends = [Fraction(center) + way * Fraction(half) for way in (-1, 1)]
        assert min(fall(level, end) for end in ends) > decimal(level.bound), "the ball ends inside the set"
        nearer = [Fraction(center) + way * Fraction(half) / 3 for way in (-1, 1)]
        assert min(fall(level, end) for end in nearer) < decimal(level.bound), "the ball is far too large"


def test_the_inequality_of_the_ball():
    """φ(ε) = 2(ε − ln(1+ε))/ε² ≥ 1/(1 + 2ε/3): true, and false for any smaller factor of ε."""
    with localcontext() as context:
        context.prec = DIGITS
        for k in range(-30, 8):
            e = Decimal(2) ** k
            phi = 2 * (e - (1 + e).ln()) / (e * e)
            assert phi >= 1 / (1 + 2 * e / 3)
        e = Decimal(2) ** -10
        assert 2 * (e - (1 + e).ln()) / (e * e) < 1 / (1 + Decimal("0.665") * e)


def test_the_centre_of_a_ball_is_in_the_set():
    level = level_of(40, 60, 0.0)
    with localcontext() as context:
        context.prec = DIGITS
        height = Fraction(fall(level, Fraction(0.4)))
    for factor, good in ((1 + Fraction(1, 2**50), True), (1 - Fraction(1, 2**50), False)):
        level.bound = height * factor
        frame = checker.Ball(level.line, {"center": [0.4], "factor": [[0.4]]})
        try:
            level.check_ball(frame, [])
            said = ""
        except checker.Refused as refused:
            said = str(refused)
        assert ("centre of the ball" in said) is not good, (factor, said)


def test_tangents_touch_the_set():
    """a·x ≤ b holds where g ≤ bound, at its ends with equality up to rounding."""
    level = level_of(40, 60, 0.0)
    with localcontext() as context:
        context.prec = DIGITS
        for point in (0.2, 0.35, 0.5):
            level.bound = Fraction(fall(level, Fraction(point)))
            (a,), b = level.cut([point])
            assert 0 <= b - a * Fraction(point) <= Fraction(1, 2**40)
            for x in (Fraction(k, 50) for k in range(1, 50)):
                if fall(level, x) <= decimal(level.bound):
                    assert a * x <= b


def test_the_interval_of_an_only_coordinate_is_enforced():
    pmdp = build("a", lambda s: {"go": {"b": "p", "a": "1 - p"}} if s == "a" else {"stay": {s: 1}}, domain=["p"],
                 labels={"b": lambda s: s == "b"}, rewards={"cost": lambda s, a: float(s == "a")})  # fmt: skip
    counts = sampled_coin(pmdp)
    proof = prove(pmdp, counts, certify(pmdp, counts, Objective.cost("cost", target="b")))
    part = proof["regions"][0]["likelihood"]
    one = checker.Model(proof["model"])
    objective = checker.Objective(one, proof["objective"])
    data = checker.Data(one, proof["data"])

    def region(center: float, half: float) -> checker.Known:
        ball = {"center": [center], "factor": [[half]]}
        changed = proof["regions"][0] | {"likelihood": part | {"ball": ball}}
        return checker.Known(objective, data, Fraction(proof["delta"]), proof["confidence"], changed)

    center, half = part["ball"]["center"][0], part["ball"]["factor"][0][0]
    found = region(center, half)
    high = min(b / a for (a,), b in found.cuts if a > 0)
    low = max(b / a for (a,), b in found.cuts if a < 0)

    def enforced(half: float, center: float) -> bool:
        return passes(lambda: region(center, half), "is not enforced by its cuts")

    for end, middle in ((high, float(low) + 1e-3), (low, float(high) - 1e-3)):
        inside, outside = boundary(lambda h, m=middle: enforced(h, m), 1.0, 1e-9)
        way = 1 if end == high else -1
        reached = [way * (Fraction(middle) + way * Fraction(h) - end) for h in (inside, outside)]
        assert reached[0] >= 0 > reached[1]
    assert enforced(-half, center)  # a factor may be negative


def sampled_coin(pmdp: Any) -> Any:
    from rpl_agent.core.evidence.counts import Counts

    counts, draw = Counts(pmdp), random.Random(3)
    for _ in range(300):
        counts.add(0, 0, 1 if draw.random() < 0.6 else 0)
    return counts


# ---------------------------------------------------------------------- claims
def chain() -> dict[str, Any]:
    """Costs 1 and then 2 to the goal, for certain: all numbers are exact."""
    pmdp = build(0, lambda s: {"go": {min(s + 1, 2): 1}}, domain=[], labels={"goal": lambda s: s == 2},
                 rewards={"cost": lambda s, a: s + 1.0 if s < 2 else 0.0})  # fmt: skip
    proof = known(pmdp, Objective.cost("cost", target="goal"))
    for side in ("lower", "upper"):
        proof[side]["values"] = [[3.0], [2.0], [0.0]]
    proof["claim"] = {"lower": 3.0, "upper": 3.0}
    checker.check(proof)
    return proof


@pytest.mark.parametrize("state", [0, 1, 2])
@pytest.mark.parametrize("side", ["lower", "upper"])
def test_values_that_are_off_by_one_bit_are_refused(state, side):
    proof = chain()
    way = math.inf if side == "lower" else -math.inf
    value = proof[side]["values"][state][0]
    proof[side]["values"][state] = [math.nextafter(value, way)]
    with pytest.raises(checker.Refused, match=r"misses its inequality|of a play that is over"):
        checker.check(proof)
    if state == 0:  # weaker by one bit is no problem of the values, but proves less
        proof[side]["values"][state] = [math.nextafter(value, -way)]
        with pytest.raises(checker.Refused, match="is claimed, but"):
            checker.check(proof)


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_claims_that_are_off_by_one_bit_are_refused(side):
    proof = chain()
    way = math.inf if side == "lower" else -math.inf
    proof["claim"][side] = math.nextafter(3.0, -way)
    checker.check(proof)
    proof["claim"][side] = math.nextafter(3.0, way)
    with pytest.raises(checker.Refused, match="is claimed, but"):
        checker.check(proof)
    proof[side] = None  # then costs are only known to be at least 0
    with pytest.raises(checker.Refused, match="is claimed, but"):
        checker.check(proof)


def test_numbers_of_the_statement_have_ranges():
    proof = chain()
    for change in ({"delta": 0.0}, {"delta": 1.0}, {"delta": -0.1}, {"reward_error": -1e-300},
                   {"reward_error": math.nextafter(1.0, 2)}):  # fmt: skip
        with pytest.raises(checker.Refused, match="delta is"):
            checker.check(copy.deepcopy(proof) | change)
    checker.check(proof | {"delta": 5e-324, "reward_error": 0.0})
    for discount, good in ((1.0, True), (math.nextafter(1, 2), False), (0.0, False), (-0.5, False)):
        changed = proof | {"objective": proof["objective"] | {"discount": discount}}
        assert passes(lambda p=changed: checker.check(p), "the discount is") is good
    for horizon in (-1, 2.0, "2"):
        changed = proof | {"objective": proof["objective"] | {"horizon": horizon}}
        with pytest.raises(checker.Refused, match="the horizon is"):
            checker.check(changed)


def test_error_of_rewards_moves_both_ends():
    proof = chain()
    for side, error, good in (("lower", 0.25, 2.25), ("upper", 0.25, 3.75)):
        changed = copy.deepcopy(proof) | {"reward_error": error, "claim": {"lower": None, "upper": None}}
        changed["claim"][side] = good
        checker.check(changed)
        changed["claim"][side] = math.nextafter(good, 3.0)
        with pytest.raises(checker.Refused, match="is claimed, but"):
            checker.check(changed)


def test_signed_rewards_have_no_error():
    proof = chain()
    proof["model"]["rewards"]["cost"]["row"] = [[0, -1.0]]
    assert passes(lambda: checker.check(proof | {"reward_error": 1e-300}), "the error of rewards") is False


@pytest.fixture(scope="module")
def reaching() -> str:
    """A proof about the small model, as it stands in a file."""
    pmdp = model()
    counts = sampled(pmdp, 400)
    return json.dumps(prove(pmdp, counts, certify(pmdp, counts, OBJECTIVES["Pmax"])))


def test_policies_play_rows_of_their_state(reaching):
    proof = json.loads(reaching)
    one = checker.Model(proof["model"])
    for weights, good in (
        ([1, 0, 1, 1, 1], True), ([0.5, 0.5, 1, 1, 1], True), ([0, 0, 1, 1, 1], False), ([1, -0.5, 1, 1, 1], False),
        ([-1, 2, 1, 1, 1], False),
    ):  # fmt: skip
        policy = checker.Policy(one, {"rules": None, "weights": weights})
        assert passes(lambda p=policy: p.at(0, 0), "the policy plays nothing") is good
    assert sum(w for _, w in checker.Policy(one, {"rules": None, "weights": [3, 1, 1, 1, 1]}).at(0, 0)) == 1
    for row in (-1, 2, 99):
        policy = checker.Policy(one, {"rules": [[row, 2, 3, 4]], "weights": None})
        assert not passes(lambda p=policy: p.at(0, 0), "the policy plays nothing")
    later = checker.Policy(one, {"rules": [[0, 2, 3, 4], [1, 2, 3, 4]], "weights": None})
    assert [later.at(0, step)[0][0] for step in (0, 1, 2, 9)] == [0, 1, 1, 1]


def test_nature_moves_as_much_as_intervals_allow():
    """`most` is the maximum over the vertices of lo ≤ p ≤ hi, Σ p = 1; for lower bounds of the negated values."""
    pmdp = model()
    counts = sampled(pmdp, 400)
    proof = prove(pmdp, counts, certify(pmdp, counts, OBJECTIVES["cost"], Config("anytime")))
    one = checker.Model(proof["model"])
    objective, data = checker.Objective(one, proof["objective"]), checker.Data(one, proof["data"])
    region = checker.Known(objective, data, Fraction(proof["delta"]), proof["confidence"], proof["regions"][0])
    draw, seen = random.Random(8), 0
    for upper in (True, False):
        values = [[draw.uniform(-5, 5)] for _ in range(one.states)]
        claim = checker.Claim(region, None, upper, {"values": values})
        for row, moves in enumerate(one.moves):
            ends = [
                [Fraction(side[f], checker.ONE) for _, f in moves]
                for side in (region.intervals.low, region.intervals.high)
            ]
            worth = [claim.sign * Fraction(values[t][0]) for t, _ in moves]
            best = max(
                sum(p * v for p, v in zip(point, worth))
                for order in itertools.permutations(range(len(moves)))
                for point in [filled(order, *ends)]
            )
            seen += len(moves) > 2
            assert claim.most(row, 0) / claim.den == best
    assert seen == 2


def filled(order: tuple[int, ...], low: list[Fraction], high: list[Fraction]) -> list[Fraction]:
    """The distribution that starts at lo and fills up to hi, in this order."""
    point, room = list(low), 1 - sum(low)
    for i in order:
        part = min(room, high[i] - low[i])
        point[i], room = point[i] + part, room - part
    return point


def test_quadratics_are_bounded_on_the_ball(reaching):
    """`_quadratic` is at least a + l·y + y'My on points of the unit ball, and not far above the largest of them."""
    proof = json.loads(reaching)
    one = checker.Model(proof["model"])
    objective, data = checker.Objective(one, proof["objective"]), checker.Data(one, proof["data"])
    region = checker.Known(objective, data, Fraction(proof["delta"]), proof["confidence"], proof["regions"][0])
    ball, draw = region.ball, random.Random(9)
    assert ball is not None
    values = [[draw.uniform(-1, 1) for _ in range(3)] for _ in range(one.states)]
    claim = checker.Claim(region, None, True, {"values": values})
    for row in (0, 2):
        _, here = claim.U[0][one.row_state[row]]
        found = claim._quadratic(ball, [(row, Fraction(1))], 0, here, 0) / claim.den
        points = [(math.cos(k / 10), math.sin(k / 10)) for k in range(63)] + [(0.0, 0.0)]
        at = [spread(ball, one.moves[row], values, values[one.row_state[row]], y) for y in points]
        assert max(at) <= float(found) + 1e-12 and float(found) <= max(at) + 2.0


def test_bounds_at_the_start_are_those_of_the_worst_point_of_the_ball(reaching):
    """v + |g| above and v − |g| below, for functions v + g·y."""
    proof = json.loads(reaching)
    one = checker.Model(proof["model"])
    objective, data = checker.Objective(one, proof["objective"]), checker.Data(one, proof["data"])
    region = checker.Known(objective, data, Fraction(proof["delta"]), proof["confidence"], proof["regions"][0])
    values = [[0.25, 3.0 + 2.0**-40, -4.0] for _ in range(one.states)]  # lengths are rounded up to the numbers' scale
    for upper, worst in ((True, 5.25), (False, -4.75)):
        bound = checker.Claim(region, None, upper, {"values": values}).at_start()
        assert float(bound) == pytest.approx(worst, rel=1e-11) and (bound >= worst if upper else bound <= worst)


def spread(
    ball: checker.Ball, moves: list[Any], values: list[list[float]], here: list[float], y: tuple[float, ...]
) -> float:
    """Σ f[y] U(t, y) − g·y in floats."""
    chance = {f: (ball.p[f] + sum(a * b for a, b in zip(ball.s[f], y))) / ball.den for _, f in moves}
    worth = {t: values[t][0] + sum(a * b for a, b in zip(values[t][1:], y)) for t, _ in moves}
    return sum(chance[f] * worth[t] for t, f in moves) - sum(a * b for a, b in zip(here[1:], y))
