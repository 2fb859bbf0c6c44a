"""Bounds on values in the checker, each formula by itself: with small numbers, against the same in plain fractions."""

from __future__ import annotations

from fractions import Fraction
from types import MethodType, SimpleNamespace
from typing import Any

import pytest

from rpl_agent.guarantee import checker
from tests.certify.test_checker_thresholds import chain, passes


def fractions(*numbers: Any) -> list[Fraction]:
    return [Fraction(x) for x in numbers]


def claim(**attributes: Any) -> checker.Claim:
    """A claim with only these parts."""
    found = checker.Claim.__new__(checker.Claim)
    usual = {"upper": True, "sign": 1, "side": "upper", "den": 1, "duals": {}, "rows": {}, "ball": None}
    vars(found).update(usual | attributes)
    return found


# ---------------------------------------------------------------------- objectives
@pytest.mark.parametrize(
    ("steps", "discount", "positive", "pays", "bound", "moved"),
    [
        ([], 1, True, True, 8, 2),
        ([], 1, True, True, -8, 0),
        ([], 1, True, False, 8, 0),
        ([], 1, False, True, 8, 0),
        ([5], 1, False, True, 8, Fraction(5, 4)),
        ([5], "1/2", False, True, 8, Fraction(1, 2)),
        ([1], "1/2", False, True, 8, Fraction(1, 4)),
        ([], "9/10", False, True, 8, Fraction(5, 2)),
        ([0], 1, False, True, 8, 0),
    ],
)
def test_errors_of_rewards_move_bounds_by_their_share_or_per_step(steps, discount, positive, pays, bound, moved):
    asked = checker.Objective.__new__(checker.Objective)
    asked.steps, asked.discount, asked.is_positive, asked.pays = fractions(*steps), Fraction(discount), positive, pays
    assert asked.off(Fraction(bound), Fraction(1, 4), True) == bound + moved
    assert asked.off(Fraction(bound), Fraction(1, 4), False) == bound - moved


def test_only_steps_to_states_that_take_time_are_discounted():
    asked = checker.Objective.__new__(checker.Objective)
    asked.discount, asked.visible, asked.undiscounted = Fraction(9, 10), [True, False, True], 0
    assert [[asked.factor(s, t) for t in range(3)] for s in range(3)] == [[10, 10, 10], [9, 10, 9], [9, 10, 9]]


# ---------------------------------------------------------------------- functions of the parameters
def test_the_least_of_a_function_on_the_ball():
    found = claim(U=[[(5, [3, 4]), None, (7, [])]])
    assert [found._least(0, s) for s in range(3)] == [-1, 0, 7]  # lengths are rounded up


def test_numbers_are_scaled_with_the_sign_of_their_side():
    assert claim(den=12).scaled(Fraction(5, 4)) == 15 and claim(den=12, sign=-1).scaled(Fraction(5, 4)) == -15


WHERE = SimpleNamespace(initial=1)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_bound_at_the_start(sign):
    asked = []

    def joined(multipliers: list[Any]) -> checker.Cut:
        asked.append(multipliers)
        return (fractions("1/2", -1), Fraction(3)) if multipliers else (fractions(0, 0), Fraction(0))

    ball = SimpleNamespace(center=fractions(1, 2), factor=[fractions(2, 1), fractions(0, 3)])
    whole, flat = SimpleNamespace(ball=None), SimpleNamespace(ball=ball, joined=joined)
    by_cuts = Fraction("19/2") + checker.norm_up(fractions(2, "13/2"))
    by_ball = 5 + checker.norm_up(fractions(6, 15))
    for region, duals, expected in (
        (whole, {}, Fraction(11)),  # 5 + |(3, 4)|, rounded up
        (whole, {"start": [[0, 1]]}, Fraction(11)),
        (flat, {"start": [[0, 1]]}, by_cuts),
        (flat, {"1 0": [[0, 1]]}, Fraction(11)),
    ):
        parts = {"region": region, "ball": region.ball, "duals": duals}
        found = claim(model=WHERE, U=[[None, (10, [6, 8])]], den=2, sign=sign, **parts)
        assert found.at_start() == sign * expected
    assert asked == [[[0, 1]], []] and by_ball > 0
    with pytest.raises(checker.Refused, match="for the initial state"):
        claim(model=WHERE, U=[[(1, []), None]], region=whole).at_start()
    last = claim(model=WHERE, U=[[None, (1, [])], [None, (4, [])]], region=whole)  # with all steps to go
    assert last.at_start() == 4
    with pytest.raises(checker.Refused, match="for the initial state"):
        claim(model=WHERE, U=[[None, (1, [])], [None, None]], region=whole).at_start()
    plain = claim(model=WHERE, U=[[None, (10, [])]], den=2, sign=sign, region=flat, duals={"start": [[0, 1]]})
    assert plain.at_start() == sign * 5  # a number needs no cuts


def test_functions_at_one_parameter_are_added_before_they_are_bounded():
    region = SimpleNamespace(ball=None)
    one = claim(model=WHERE, U=[[None, (9, [6, 8])]], den=2, region=region)
    other = claim(model=WHERE, U=[[None, (-4, [0, -4])]], den=1, region=region)
    number = claim(model=WHERE, U=[[None, (7, [])]], den=1, region=region)
    assert checker.at_most([one, other], []) == Fraction(1, 2) + checker.norm_up(fractions(3, 0))
    assert checker.at_most([one, number], []) == Fraction(23, 2) + checker.norm_up(fractions(3, 4))
    assert checker.at_most([number, one], []) == Fraction(23, 2) + checker.norm_up(fractions(3, 4))
    assert checker.at_most([number], []) == 7


def test_multipliers_of_cuts_are_not_negative_and_belong_to_one():
    region = checker.Known.__new__(checker.Known)
    region.line = SimpleNamespace(dimension=2)  # type: ignore[assignment]
    region.cuts = [(fractions(1, 2), Fraction(3)), (fractions(-1, 4), Fraction(5))]
    assert region.joined([[0, 2], [1, 0.5]]) == (fractions("3/2", 6), Fraction("17/2"))
    assert region.joined([[0, 0]]) == (fractions(0, 0), 0)
    for multipliers in ([[0, -1e-300]], [[2, 1]], [[-1, 1]]):
        with pytest.raises(checker.Refused, match="a multiplier is negative or belongs to no cut"):
            region.joined(multipliers)


def test_rows_over_cuts_by_weak_duality():
    line = SimpleNamespace(dimension=1, den=4, terms=[[1, 2], [3, -2]])
    region = SimpleNamespace(
        line=line, reach=[fractions("1/4", "3/4")], joined=lambda given: (fractions(5), Fraction(2))
    )
    region.most = MethodType(checker.Known.most, region)
    found = claim(region=region, den=10)
    successors = [(0, 7, []), (1, 11, [])]
    c, h = Fraction(7 * 1 + 11 * 3, 4), Fraction(7 * 2 - 11 * 2, 4)
    rest = h - 10 * 5
    assert found._over_cuts(successors, []) == c + 10 * 2 + max(rest * Fraction(1, 4), rest * Fraction(3, 4))
    region.joined = lambda given: (fractions(-5), Fraction(2))
    rest = h + 50
    assert found._over_cuts(successors, []) == c + 20 + rest * Fraction(3, 4)


def test_multipliers_of_a_row_are_used_where_they_are_given():
    line = SimpleNamespace(dimension=1, den=1, terms=[[0, 1], [1, -1]])
    model = SimpleNamespace(moves=[[(0, 0), (1, 1)]], row_state=[0], name=["row"])
    objective = SimpleNamespace(discount=Fraction(1, 3), factor=lambda s, t: 1)
    half = checker.ONE // 2
    intervals = SimpleNamespace(low=[0, 0], high=[half, checker.ONE])
    region = SimpleNamespace(
        line=line, reach=[fractions(0, 1)], joined=lambda given: (fractions(1), Fraction(1, 4)), intervals=intervals
    )
    region.most = MethodType(checker.Known.most, region)
    base = {"model": model, "objective": objective, "region": region, "U": [[(6, []), (0, [])]], "den": 6}
    assert claim(**base).most(0, 0) == Fraction(6, 2 * 3)
    assert claim(**base, duals={"0 0": [[0, 1]]}).most(0, 0) == Fraction(6, 4 * 3)
    assert claim(**base, duals={"1 0": [[0, 1]], "0 1": []}).most(0, 0) == Fraction(6, 2 * 3)


def test_successors_that_are_impossible_need_no_bound():
    model = SimpleNamespace(moves=[[(0, 0), (1, 1)]], row_state=[0], name=["row"])
    objective = SimpleNamespace(factor=lambda s, t: 3 if t == 0 else 1)
    intervals = SimpleNamespace(low=[0, 0], high=[checker.ONE, 0])
    found = claim(model=model, objective=objective, region=SimpleNamespace(intervals=intervals), U=[[(2, [5]), None]])
    assert found.successors(0, 0) == [(0, 6, [15])]
    intervals.high[1] = 1
    with pytest.raises(checker.Refused, match="no upper bound for its successor 1"):
        found.successors(0, 0)
    found.U[0][1] = (4, [7])
    assert found.successors(0, 0) == [(0, 6, [15]), (1, 4, [7])]
    objective.factor = lambda s, t: 2
    assert found.successors(0, 0) == [(0, 4, [10]), (1, 8, [14])]


def quadratic(a: int, here: list[int], group: list[Any], moves: dict[int, Any], ball: Any) -> tuple[Any, ...]:
    """(code's answer, whole constant, |l|, bound on the quadratic part, common denominator) in plain fractions."""
    found = claim(objective=SimpleNamespace(discount=Fraction(1, 3)), successors=lambda row, after: moves[row])
    answer = found._quadratic(ball, group, a, here, 0)
    r, parts = range(len(here)), checker.common_den(w for _, w in group)
    den = ball.den * 3 * parts
    constant, linear = Fraction(a), [-Fraction(x) for x in here]
    square = [[Fraction(0) for _ in r] for _ in r]
    for row, weight in group:
        for f, v, g in moves[row]:
            p, s = Fraction(ball.p[f], ball.den), [Fraction(x, ball.den) for x in ball.s[f]]
            constant += weight * p * v / 3
            linear = [x + weight * (p * y + v * z) / 3 for x, y, z in zip(linear, g, s)]
            square = [[square[i][j] + weight * (s[i] * g[j] + s[j] * g[i]) / 6 for j in r] for i in r]
    size = checker.root_up(int(sum((x * den) ** 2 for x in linear)))
    rough = max(sum(abs(x) for x in row) for row in square) * 2 * den
    return answer, constant * den, size, rough, den, square


@pytest.mark.parametrize("a", [5, 0, -3])
def test_a_quadratic_is_bounded_by_its_parts(a):
    ball = SimpleNamespace(den=8, p=[3, 5], s=[[1, -2], [-1, 2]])
    moves = {0: [(0, 4, [1, 2]), (1, 6, [3, -1])], 1: [(0, 2, [0, 5]), (1, 1, [2, 2])]}
    for group in ([(0, 1)], [(0, Fraction(1, 3)), (1, Fraction(2, 3))]):
        answer, constant, size, rough, den, _ = quadratic(a, [2, -1], group, moves, ball)
        assert constant == int(constant) and rough > 0
        assert answer == Fraction(2 * (int(constant) + size) + rough, 2 * den) and answer != 0


def test_a_quadratic_without_slopes_is_its_constant():
    ball = SimpleNamespace(den=4, p=[3, 1], s=[[1], [-1]])
    flat = {0: [(0, 8, [0]), (1, 8, [0])]}
    answer, constant, size, rough, den, _ = quadratic(-9, [0], [(0, 1)], flat, ball)
    assert (size, rough) == (0, 0) and answer == Fraction(int(constant), den)
    still = {0: [(0, 8, [4]), (1, 8, [4])]}
    fixed = SimpleNamespace(den=4, p=[3, 1], s=[[0], [0]])
    assert quadratic(-9, [0], [(0, 1)], still, fixed)[3] == 0


def test_a_quadratic_is_not_positive_where_its_matrix_is_small():
    """Where Gershgorin's bound is too rough, the exact one decides: −M − a − |l| positive definite."""
    ball = SimpleNamespace(den=8, p=[4, 4], s=[[1, 0], [-1, 0]])
    moves = {0: [(0, 8, [0, 12]), (1, 8, [0, -12])]}
    answers = {}
    for a in range(-12, 1):
        answer, constant, size, rough, den, square = quadratic(a, [0, 0], [(0, 1)], moves, ball)
        top = int(constant) + size
        largest = abs(square[0][1]) * den  # of the symmetric matrix with two equal entries
        exact = top + largest < 0
        if 2 * top + rough <= 0:
            assert answer == Fraction(2 * top + rough, 2 * den) <= 0
        else:
            assert (answer == 0) is (top < 0 and exact)
        answers[a] = answer
    assert min(answers.values()) < 0 < max(answers.values())


def test_a_matrix_between_the_two_bounds():
    """Entries (1, 1; 1, 0): Gershgorin says 2, the largest eigenvalue is 1.618."""
    ball = SimpleNamespace(den=1, p=[1], s=[[1, 0]])
    moves = {0: [(0, 0, [6, 12])]}  # M = (6, 6; 6, 0) / 3
    for a, is_zero in ((-3, False), (Fraction(-7, 2), True), (-4, True), (-5, False)):  # −7/2 is −10/3, rounded up
        found = claim(objective=SimpleNamespace(discount=Fraction(1, 3)), successors=lambda row, after: moves[row])
        here = [2, 4]  # so that l = 0
        answer = found._quadratic(ball, [(0, 1)], a, here, 0)
        assert (answer == 0) is is_zero, (a, answer)


# ---------------------------------------------------------------------- plays that never end
def ending(
    upper: bool, *, signed: bool = False, must_reach: bool = False, policy: Any = None, possible: bool = True,
    rank: tuple[int, ...] = (1, 0), least: int = 0,
) -> checker.Claim:  # fmt: skip
    """State 0 has two rows: one stays, one may lead to state 1."""
    model = SimpleNamespace(
        rows_of=[range(2), range(2, 3)], row_state=[0, 0, 1], name=["stay", "go", "end"],
        moves=[[(0, 0)], [(0, 1), (1, 2)], [(1, 0)]],
    )  # fmt: skip
    return claim(
        upper=upper, model=model, policy=policy, rank=list(rank), U=[[(least, []), (0, [])]],
        objective=SimpleNamespace(is_signed=signed, must_reach=must_reach),
        region=SimpleNamespace(intervals=SimpleNamespace(is_possible=lambda f: possible and f == 2)),
    )  # fmt: skip


def fine(found: checker.Claim, spent: dict[int, bool], active: set[int]) -> bool:
    return passes(lambda: found.plays_end(spent, active), "plays may stay forever")


def test_rows_lead_out_to_smaller_ranks_or_states_that_are_not_active():
    both = {0, 1}
    found = ending(True)
    assert not found.leads_out(0, both) and found.leads_out(1, both) and found.leads_out(1, {0})
    assert not ending(True, possible=False).leads_out(1, both)
    assert not ending(True, rank=(0, 0)).leads_out(1, both) and ending(True, rank=(0, 0)).leads_out(1, {0})
    assert not ending(True, rank=(0, 1)).leads_out(1, both)
    assert ending(True, possible=False).leads_out(0, set())  # all of its successors are out


def test_who_needs_a_proof_that_plays_end():
    stay = {0: False, 1: False, 2: True}
    go = {0: True, 1: False, 2: True}
    for upper, must_reach, needs in ((True, False, 0), (True, True, 1), (False, True, 0), (False, False, 1)):
        assert fine(ending(upper, must_reach=must_reach), stay, {0}) is not bool(needs)
        assert fine(ending(upper, must_reach=must_reach), go, {0})  # the row that stays is spent
    assert not fine(ending(True, least=-1), stay, {0})  # from above, plays may stay where the bound is not negative
    assert fine(ending(True, least=-1), go, {0}) and fine(ending(True, least=-1), stay, set())
    assert not fine(ending(True, signed=True), stay, {0}) and not fine(ending(False, signed=True), stay, {0})


def test_a_policy_needs_one_row_that_leads_out_and_all_policies_need_every_row():
    stay = {0: False, 1: False, 2: True}
    for rows, good in (([(0, 1)], False), ([(1, 1)], True), ([(0, 1), (1, 1)], True)):
        policy = SimpleNamespace(at=lambda s, step, rows=rows: rows)
        assert fine(ending(False, policy=policy), stay, {0}) is good
    assert not fine(ending(False), stay, {0})


# ---------------------------------------------------------------------- regret
def test_regrets_are_claimed_no_smaller_than_they_are_proved():
    proof = chain()
    assert checker.check(proof)["regret proved"] == 0
    for regret, good in ((0.0, True), (-5e-324, False), (1.0, True)):
        changed = proof | {"claim": proof["claim"] | {"regret": regret}}
        assert passes(lambda p=changed: checker.check(p), "the regret") is good
    evaluated = proof | {"evaluated": True, "claim": {"lower": 3.0, "upper": 3.0, "regret": 9.0}}
    assert not passes(lambda: checker.check(evaluated), "the regret 9.0 is claimed, but 'nothing' is proved")
    without = proof | {"lower": None, "claim": {"lower": None, "upper": 3.0, "regret": 3.0}}
    assert passes(lambda: checker.check(without), "")  # costs are at least 0


# ---------------------------------------------------------------------- claims
def region_of(ball: Any = None, states: int = 2, horizon: int | None = None) -> Any:
    asked = SimpleNamespace(
        horizon=horizon, reward=fractions("1/3"), decided={}, final=fractions(0, 0), discount=Fraction(1)
    )
    return SimpleNamespace(model=SimpleNamespace(states=states), objective=asked, ball=ball)


def test_values_are_numbers_or_functions_on_the_ball():
    ball = SimpleNamespace(center=fractions(0))
    plain = checker.Claim(region_of(ball), None, True, {"values": [[0.5], None]})
    assert plain.ball is None and plain.U == [[(3, []), None]] and plain.den == 6
    assert (plain.side, plain.sign, plain.rank, plain.duals) == ("upper", 1, [0, 0], {})
    slopes = checker.Claim(
        region_of(ball), None, False, {"values": [[0.5, 1], [2, -1]], "rank": [3, 1], "duals": {"a": 1}}
    )
    assert slopes.ball is ball and slopes.U == [[(-3, [-6]), (-12, [6])]]
    assert (slopes.side, slopes.sign, slopes.rank, slopes.duals) == ("lower", -1, [3, 1], {"a": 1})
    for values in ([[0.5, 1], [2]], [[0.5], [2, 1]], [[0.5, 1, 1], [2, 1, 1]], [[], []]):
        with pytest.raises((checker.Refused, *checker.MALFORMED)):
            checker.Claim(region_of(ball), None, True, {"values": values})
    with pytest.raises(checker.Refused, match="does not fit its ball"):
        checker.Claim(region_of(None), None, True, {"values": [[0.5, 1], [2, 1]]})


def test_values_are_given_for_every_step_and_state():
    for values, good in (
        ([[[1], [1]], [[2], [2]]], True), ([[[1], [1]], [[2]]], False), ([[[1]], [[2], [2]]], False),
        ([[[1], [1]]], False), ([[[1], [1]]] * 3, False),
    ):  # fmt: skip
        made = {"values": values}
        said = "wrong number of steps or states"
        assert passes(lambda m=made: checker.Claim(region_of(horizon=1), None, True, m), said) is good
    for rank in ([0, 0.5], [0.5, 0], ["a", 1]):
        with pytest.raises(checker.Refused, match="a rank is not an integer"):
            checker.Claim(region_of(), None, True, {"values": [[1], [1]], "rank": rank})


def test_steps_are_checked_from_the_last_to_the_first():
    for horizon, discount, ends in ((2, 1, False), (None, 1, True), (None, Fraction(1, 2), False)):
        seen: list[Any] = []
        found = claim(
            objective=SimpleNamespace(horizon=horizon, discount=Fraction(discount)),
            inequalities=lambda *call, seen=seen: seen.append(call) or ({}, set()),
            plays_end=lambda *_, seen=seen: seen.append("ends"),
            at_start=lambda: Fraction(7), U=[[None]] * (1 if horizon is None else 3),
        )  # fmt: skip
        assert found.bound() == 7
        steps = [(0, 0, 0)] if horizon is None else [(0, 0, 2), (1, 0, 1), (2, 1, 0)]
        assert seen == steps + ["ends"] * ends


def looked_at(
    values: list[int | None], *, upper: bool = True, excess: int = 0, reward: int = 0, horizon: int | None = None,
    k: int = 0, **asked: Any,
) -> tuple[dict[int, bool], set[int]]:  # fmt: skip
    """`inequalities` of states with one row each, of which each misses its inequality by ``excess``."""
    states = len(values)
    objective = SimpleNamespace(
        **{"is_reach": False, "is_positive": False, "is_signed": False, "decided": {}} | asked,
        horizon=horizon, final=fractions(*[1] * states), reward=fractions(*[reward] * states),
    )  # fmt: skip
    model = SimpleNamespace(
        states=states, name=[f"row {s}" for s in range(states)], rows_of=[[s] for s in range(states)]
    )
    U = [[None if v is None else (v, []) for v in values]] * (k + 1)
    found = claim(
        model=model, objective=objective, policy=None, upper=upper, sign=1 if upper else -1, den=4, U=U,
        excess=lambda *_: Fraction(excess),
    )  # fmt: skip
    return found.inequalities(k, 0, 0)


def test_every_state_that_is_open_has_its_inequality():
    assert looked_at([5, None, 3])[1] == {0, 2}
    with pytest.raises(checker.Refused, match=r"row 0: the upper bound misses its inequality by 0\.25"):
        looked_at([5], excess=1)
    assert looked_at([5], excess=0)[0] == {0: False} and looked_at([5], excess=-1)[0] == {0: True}
    assert looked_at([5], reward=1)[0] == {0: True}  # what pays is spent
    assert looked_at([5], reward=1, excess=-1, is_signed=True)[0] == {0: False}


def test_plays_that_are_over_are_worth_what_they_were():
    decided = {0: Fraction(1, 2)}
    assert looked_at([2], decided=decided) == ({}, set())
    with pytest.raises(checker.Refused, match="state 0: the upper bound of a play that is over is wrong"):
        looked_at([1], decided=decided)
    assert looked_at([-2], upper=False, decided=decided) == ({}, set())
    with pytest.raises(checker.Refused, match="of a play that is over"):
        looked_at([-3], upper=False, decided=decided)
    assert looked_at([4], horizon=3) == ({}, set())  # no step is left: the value of the state, 1
    with pytest.raises(checker.Refused, match="of a play that is over"):
        looked_at([3], horizon=3)
    assert looked_at([3], horizon=3, k=1)[1] == {0}
    assert looked_at([3])[1] == {0}


def test_bounds_that_hold_anyway_need_no_inequality():
    assert looked_at([4, 3], is_reach=True)[1] == {1}  # probabilities are at most 1
    assert looked_at([4, 3], is_positive=True)[1] == {0, 1}
    assert looked_at([0, -1, 1], upper=False, is_positive=True)[1] == {1}  # values are at least 0
    assert looked_at([0, -1, 1], upper=False, is_reach=True)[1] == {0, 1, 2}


# ---------------------------------------------------------------------- regions
def bare_region(dimension: int, cuts: list[Any]) -> tuple[Any, list[Any]]:
    region, told = checker.Known.__new__(checker.Known), list[Any]()
    line = SimpleNamespace(dimension=dimension, free=[0], den=4, terms=[[1, 2], [3, -2]], domain=[fractions(1, -1)])
    parts = {
        "line": line, "cuts": cuts, "ball": None, "bet_cuts": ["bet 0", "bet 1"],
        "likelihood": SimpleNamespace(
            check_ball=lambda ball, slabs: told.append(("ball", slabs)), cut=lambda point: ("at", point)
        ),
        "intervals": SimpleNamespace(
            cut=lambda *call: told.append(call), check_rows=lambda: told.append("rows"),
            low=[checker.ONE // 4, 0], high=[checker.ONE // 2, 0],
        ),
    }  # fmt: skip
    vars(region).update(parts)
    region.ends = {"low": [checker.ONE // 4, 0], "high": [checker.ONE // 2, 0]}
    return region, told


def interval(center: Any, half: Any) -> Any:
    return SimpleNamespace(center=fractions(center), factor=[fractions(half)], p=[5], s=[[3, -4]], den=7)


@pytest.mark.parametrize("half", ["1/2", "-1/2"])
def test_the_ball_of_one_coordinate_is_enforced_by_its_cuts(half):
    """Ends at 1 ± 1/2: 2x ≤ 3 and −x ≤ −1/2 are enough, and nothing weaker."""
    high, low = (fractions(2), Fraction(3)), (fractions(-1), Fraction(-1, 2))
    idle = (fractions(0), Fraction(-1))
    tiny = Fraction(1, 10**30)
    region, told = bare_region(1, [idle, high, low])
    region.enclose(interval(1, half), [])
    assert region.ball is not None
    width = 6  # |(3, −4)|, rounded up
    assert told == [(0, checker.down(Fraction(5 - width, 7)), checker.up(Fraction(5 + width, 7))), "rows"]
    for cuts in (
        [high],
        [low],
        [idle],
        [(fractions(2), 3 + tiny), low],
        [high, (fractions(-1), tiny - Fraction(1, 2))],
    ):
        with pytest.raises(checker.Refused, match="is not enforced by its cuts"):
            bare_region(1, cuts)[0].enclose(interval(1, half), [])


def test_the_ball_of_more_coordinates_is_the_likelihood_s():
    region, told = bare_region(2, [])
    region.enclose(interval(1, 1), [])
    assert told[0] == ("ball", [])


def test_slabs_have_ends_by_cuts(monkeypatch):
    """x + y ≤ 3 and −x ≤ 1, in 0 ≤ x ≤ 9, −5 ≤ y ≤ 5: what multipliers leave over is bounded by the box."""
    region, told = bare_region(2, [(fractions(1, 1), Fraction(3)), (fractions(-1, 0), Fraction(1))])
    region.reach = [fractions(0, 9), fractions(-5, 5)]
    assert region.slab(2.0, [1.0, 2.0], [[1, 1.0]], [[0, 1.0]]) == (2, fractions(1, 2), -1 - 10, 3 + 5)
    assert region.slab(0, [1, 0.5], [], []) == (0, fractions(1, "1/2"), Fraction(-5, 2), 9 + Fraction(5, 2))
    given = [2.0, [1.0, 2.0], [[1, 1.0]], [[0, 1.0]]]
    region.enclose(interval(1, 1), [given, given])
    assert told[0] == ("ball", [(2, fractions(1, 2), -11, 8)] * 2)
    for wrong in ([-TINY, *given[1:]], [2.0, [1.0], *given[2:]], [2.0, [1.0, 2.0, 0.0], *given[2:]]):
        with pytest.raises(checker.Refused, match="negative multiple, or of a wrong size"):
            region.slab(*wrong)
    monkeypatch.setattr(checker, "MOST_SLABS", 1)
    region.enclose(interval(1, 1), [given])
    with pytest.raises(checker.Refused, match="more than 1 slabs"):
        region.enclose(interval(1, 1), [given, given])


def test_cuts_have_names():
    region, _ = bare_region(1, [])
    assert region.cut(1) == "bet 1" and region.cut([0.5]) == ("at", [0.5])
    assert region.cut("high 0") == (fractions("1/2"), Fraction(1, 2) - Fraction(1, 4))
    assert region.cut("low 0") == (fractions("-1/2"), Fraction(1, 4) - Fraction(1, 4))
    assert region.cut("low 1") == (fractions("1/2"), Fraction(3, 4))
    assert region.cut("domain 0") == (fractions(1), Fraction(1))


# ---------------------------------------------------------------------- weights of limits
TINY = 2.0**-1074


def weighed(monkeypatch: pytest.MonkeyPatch, *limits: tuple[bool, float, Any], maximising: bool = False) -> Any:
    """(the bound, what it adds, the statement) of limits: (whether it is maximised, weight, threshold)."""
    found = SimpleNamespace(parts=[], known=None)
    statement = object.__new__(checker.Statement)
    statement.objective = SimpleNamespace(
        maximising=maximising, is_reach=False, is_positive=False, horizon=None, off=lambda bound, error, upper: bound
    )
    statement.limits = [(SimpleNamespace(maximising=most), Fraction(c)) for most, _, c in limits]
    statement.proof = {"lower": {"weights": [w for _, w, _ in limits], "region": 0, "values": []}}
    statement.model, statement.error, statement.claims = None, Fraction(0), {}
    monkeypatch.setattr(checker, "Sum", lambda model, parts: found.parts.extend(parts))
    monkeypatch.setattr(checker, "Claim", lambda *given: SimpleNamespace(bound=lambda: Fraction(7)))
    monkeypatch.setattr(checker.Statement, "region", lambda self, number: None)
    monkeypatch.setattr(checker.Statement, "settle", lambda self, name, known, upper: setattr(found, "known", known))
    statement.bound("lower", statement.objective, None, False)
    return found.known, found.parts, statement


@pytest.mark.parametrize("maximising", [False, True])
def test_a_limit_that_points_like_the_objective_has_no_negative_weight(monkeypatch, maximising):
    """Maximised values are limited from below: both terms change their sign."""
    for weight in (0.0, TINY, 0.5):
        weighed(monkeypatch, (maximising, weight, 3), maximising=maximising)
        weighed(monkeypatch, (not maximising, -weight, 3), maximising=maximising)
    for weight in (TINY, 0.5):
        with pytest.raises(checker.Refused, match="the weight of a limit has a wrong sign"):
            weighed(monkeypatch, (maximising, -weight, 3), maximising=maximising)
        with pytest.raises(checker.Refused, match="the weight of a limit has a wrong sign"):
            weighed(monkeypatch, (not maximising, weight, 3), maximising=maximising)


def test_every_weight_of_a_limit_has_its_sign(monkeypatch):
    with pytest.raises(checker.Refused, match="the weight of a limit has a wrong sign"):
        weighed(monkeypatch, (False, 0.5, 3), (False, -0.5, 3))


def test_the_objective_counts_once_and_thresholds_are_taken_off(monkeypatch):
    known, parts, statement = weighed(monkeypatch, (False, 0.5, 3), (True, -0.25, 8), (False, 0.0, 5))
    first, second, _ = (limit for limit, _ in statement.limits)
    assert parts == [(1, statement.objective), (Fraction(1, 2), first), (Fraction(-1, 4), second)]
    assert known == [7 - (Fraction(3, 2) - 2)]
