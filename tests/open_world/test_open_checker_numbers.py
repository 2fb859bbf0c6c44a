"""`open_checker` number by number: shares, ranges, bets and values against the theorem, a hair inside and outside."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction

import pytest

from rpl_agent.core.evidence import ledger
from rpl_agent.guarantee import checker, open_checker, stakes
from rpl_agent.guarantee.checker import ONE
from rpl_agent.guarantee.open_checker import END, Assumed, Bet, Data, Discounts, Statement, Values, plan_shows

F = Fraction
FACTS = {
    "discount": 0.5, "horizon": None, "deterministic": False, "returns": [0, 1], "rewards": None,
    "state_returns": None, "overall": None, "successors": None, "known_states": None,
}  # fmt: skip


def assumed(states: int = 2, **facts) -> Assumed:
    return Assumed({**FACTS, **facts}, states)


def ends(found: tuple[int, int]) -> tuple[Fraction, Fraction]:
    return F(found[0], ONE), F(found[1], ONE)


def refusal(act, *given) -> str:
    with pytest.raises((checker.Refused, *checker.MALFORMED)) as error:
        act(*given)
    return str(error.value)


# ====================================================================== shares
def test_shares_are_those_of_the_ledger_and_sum_to_less_than_one():
    names = "ROWS", "START", "POLICIES", "PLANNED", "PLAYS", "REST"
    shares = tuple(getattr(open_checker, name) for name in names)
    assert shares == (F(1, 2), F(1, 20), F(449, 1000), F(17, 20), F(1, 20), F(99, 1000))
    of_ledger = [getattr(ledger, f"OPEN_{name}") for name in (*names[:4], "EPISODES", "REST")]
    assert list(map(float, shares)) == of_ledger
    assert sum(shares[:3]) < 1 and sum(shares[3:]) < 1
    assert (open_checker.END, open_checker.PRECISION) == (-1, 96)
    assert (open_checker.MOST_TESTS, open_checker.MOST_WORK) == (5_000_000, 20_000_000)


def test_stakes_are_constants_inside_the_unit_interval():
    assert len(open_checker.STAKES) == 11
    assert open_checker.STAKES[0] == F(97, 100) and open_checker.STAKES[10] == F(97, 100) * F(2, 5) ** 10
    assert all(b / a == F(2, 5) for a, b in zip(open_checker.STAKES, open_checker.STAKES[1:]))
    planned = open_checker.PLANNED_STAKES
    assert len(planned) == 64 and planned[0] == F(99, 100)
    assert all(b == F(4, 5) * a for a, b in itertools.pairwise(planned))
    of_search = stakes.MOST_PLANNED * stakes.PLANNED_PARTS
    assert list(map(float, planned)) == pytest.approx(of_search.tolist(), rel=1e-15)


def test_weights_are_those_of_the_search_and_sum_to_less_than_one():
    weights = [F(w, open_checker.WHOLE) for w in open_checker.WEIGHTS]
    assert weights == [F(1, 3) * F(2, 3) ** k for k in range(11)] and sum(weights) == 1 - F(2, 3) ** 11
    assert [float(w) for w in weights] == pytest.approx(stakes.WEIGHTS.tolist(), rel=1e-15)


def test_states_share_by_first_visit_or_equally():
    free, known = assumed(), assumed(known_states=7)
    assert [free.share(k) for k in range(5)] == [F(1, 2), F(1, 12), F(1, 12), F(1, 48), F(1, 48)]
    assert {known.share(k) for k in range(7)} == {F(1, 7)}
    assert "more states than there are" in refusal(lambda: assumed(3, known_states=2))
    assert assumed(2, known_states=2).known == 2 and assumed(1, known_states=1).known == 1
    assert "known_states is 0" in refusal(lambda: assumed(0, known_states=0))


@pytest.mark.parametrize("horizon, layers", [(None, 1), (3, 3)])
def test_rows_divide_their_share_by_actions_steps_and_states(horizon, layers):
    facts = assumed(horizon=horizon)
    two = Values(facts, [[], [], [], []], [[[0, 1], [2, 3]]] * layers, F(1, 10))
    one = Values(facts, [[], []], [[[0], [1]]] * layers, F(1, 10), -1)
    assert two.shares == [F(1, 10) / (2 * layers) * w for w in (F(1, 2), F(1, 12))]
    assert one.shares == [F(1, 10) / layers * w for w in (F(1, 2), F(1, 12))]


# ====================================================================== ranges
@pytest.mark.parametrize(
    "facts, layer, expected",
    [
        ({}, 0, (0, 1)),
        ({"returns": [-2, 3]}, 0, (-2, 3)),
        ({"returns": None, "rewards": [-1, 3]}, 0, (-2, 6)),  # discount 1/2: a weight of 2
        ({"returns": None, "rewards": [1, 3]}, 0, (1, 6)),
        ({"returns": None, "rewards": [-3, -1]}, 0, (-6, -1)),
        ({"returns": None, "rewards": [0.5, 3]}, 0, (0.5, 6)),  # one step may be all
        ({"returns": None, "rewards": [-3, -0.5]}, 0, (-6, -0.5)),
        ({"returns": None, "rewards": [0, 0.5]}, 0, (0, 1)),
        ({"returns": None, "rewards": [-0.5, 0]}, 0, (-1, 0)),
        ({"returns": [-9, 9], "rewards": [-1, 3]}, 0, (-2, 6)),  # the narrower ends of both
        ({"returns": [-1, 9], "rewards": [-1, 3]}, 0, (-1, 6)),
        ({"returns": [-9, 5], "rewards": [-1, 3]}, 0, (-2, 5)),
        ({"returns": [-1, 2], "rewards": [-5, 5], "discount": 1}, 0, (-1, 2)),  # rewards alone bound nothing
        ({"returns": None, "rewards": [-1, 3], "horizon": 3}, 0, (-1, 3)),
        ({"returns": None, "rewards": [-1, 3], "horizon": 3}, 1, (F(-3, 2), F(9, 2))),
        ({"returns": None, "rewards": [-1, 3], "horizon": 3}, 2, (F(-7, 4), F(21, 4))),
        ({"returns": None, "rewards": [-1, 3], "horizon": 3, "discount": 1}, 2, (-3, 9)),
        ({"returns": [2, 3], "horizon": 3}, 2, (2, 3)),
        ({"returns": [2, 3], "horizon": 3}, 1, (0, 3)),  # nearly over
        ({"returns": [2, 3], "horizon": 3}, 0, (0, 3)),
        ({"returns": [-3, -2], "horizon": 3}, 1, (-3, 0)),
    ],
)
def test_ranges_hold_what_a_play_can_return(facts, layer, expected):
    assert ends(assumed(**facts).range_of(None, layer)) == expected


def test_states_may_have_ranges_of_their_own():
    own = assumed(returns=None, rewards=[-9, 9], state_returns=[[0, 1], [-2, 2], [5, 6]])
    assert [ends(own.range_of(s, 0)) for s in (0, 1, 2, None)] == [(0, 1), (-2, 2), (5, 6), (-18, 18)]
    upper, lower = (Values(own, [[], []], [[[0], [1]]], F(1), side) for side in (1, -1))
    assert upper.ceilings(0) == [ONE, 2 * ONE] and lower.ceilings(0) == [0, 2 * ONE]
    plain = assumed(returns=[-2, 3])
    assert Values(plain, [[], []], [[[0], [1]]], F(1)).ceilings(0) == [3 * ONE, 3 * ONE]
    assert Values(plain, [[], []], [[[0], [1]]], F(1), -1).ceilings(0) == [2 * ONE, 2 * ONE]


def test_ranges_are_rounded_outward():
    third = assumed(returns=None, rewards=[-1, 1], discount=0.7)
    low, high = ends(third.range_of(None, 0))
    exact = 1 / (1 - F(0.7))
    assert low < -exact and exact < high and high - exact < F(1, 2**120) and -low - exact < F(1, 2**120)
    steps = assumed(returns=None, rewards=[0, 1], discount=0.7, horizon=4)
    assert 0 <= ends(steps.range_of(None, 3))[1] - sum(F(0.7) ** k for k in range(4)) < F(1, 2**120)


def test_facts_that_bound_nothing_or_make_no_sense_are_refused():
    assert "neither returns nor rewards" in refusal(lambda: assumed(returns=None))
    assert "bound nothing" in refusal(lambda: assumed(returns=None, rewards=[0, 1], discount=1))
    assert "the discount is 0" in refusal(lambda: assumed(discount=0))
    assert "the discount is" in refusal(lambda: assumed(discount=1.0000001))
    assert assumed(horizon=1).layers == 1 and "the horizon is 0" in refusal(lambda: assumed(horizon=0))
    assert "the horizon is True" in refusal(lambda: assumed(horizon=True))
    assert "wrong order" in refusal(lambda: assumed(rewards=[1, 0.5]))
    assert "exclude each other" in refusal(lambda: assumed(rewards=[4, 5]).range_of(None, 0))
    assert ends(assumed(returns=[1, 1], discount=1).range_of(None, 0)) == (1, 1)  # one value is a range
    assert "a state has no range" in refusal(
        lambda: assumed(3, returns=None, rewards=[0, 1], state_returns=[[0, 1]] * 2)
    )
    assert assumed(2, returns=None, rewards=[0, 1], state_returns=[[0, 1]] * 2).own is not None


# ====================================================================== bets
def wealth(numbers: list[tuple[Fraction, int]], m: Fraction, ceiling: Fraction) -> Fraction:
    """Σ w Π (1 + b (m − y)/(ceiling − m)), exactly; the weights w are 1/3, 2/9, 4/27, …"""
    total = F(0)
    for k, b in enumerate(open_checker.STAKES):
        product = F(1, 3) * F(2, 3) ** k
        for y, count in numbers:
            product *= (1 + b * (m - min(y, ceiling)) / (ceiling - m)) ** count
        total += product
    return total


@pytest.mark.parametrize(
    "numbers, ceiling",
    [
        ([(F(0), 9)], F(1)),
        ([(F(0), 30), (F(1), 3)], F(1)),
        ([(F(-7, 2), 40), (F(3, 4), 10), (F(9), 2)], F(5)),  # a number above the ceiling counts as the ceiling
        ([(F(1, 2), 40), (F(5, 8), 30)], F(1)),
        ([(F(-40), 3), (F(-39), 70)], F(-1)),
    ],
)
@pytest.mark.parametrize("share", [F(1, 3), F(1, 1000)])
def test_bets_show_what_the_theorem_shows_and_not_a_hair_more(numbers, ceiling, share):
    low = sum(min(y, ceiling) * n for y, n in numbers) / sum(n for _, n in numbers)
    high = ceiling
    for _ in range(44):
        m = (low + high) / 2
        low, high = (low, m) if wealth(numbers, m, ceiling) >= 1 / share else (m, high)
    scaled = [(int(y * ONE), count) for y, count in numbers]
    assert Bet().shows(scaled, checker.up(high + F(1, 2**36)), int(ceiling * ONE), share)
    assert not Bet().shows(scaled, checker.down(low), int(ceiling * ONE), share)


def test_nothing_is_below_the_ceiling_without_wealth():
    assert Bet().shows([], ONE, ONE, F(1, 10)) and Bet().shows([], ONE + 1, ONE, F(1, 10))
    assert not Bet().shows([], ONE - 1, ONE, F(1, 10))
    assert not Bet().shows([(ONE, 10**6)], ONE - 1, ONE, F(1, 2))
    begins = 1 - F(2, 3) ** 11  # the sum of the weights
    little = F(1, 3**11 << 64)
    assert Bet().shows([], ONE // 2, ONE, 1 / begins) and not Bet().shows([], ONE // 2, ONE, 1 / (begins + little))
    assert not Bet().shows([], ONE // 2, ONE, F(11 << 64, (11 << 64) + 1))  # and not a hair more
    assert plan_shows([], ONE // 2, ONE, F(1)) and not plan_shows([], ONE // 2, ONE, F(1 << 64, (1 << 64) + 1))


def test_products_of_many_factors_are_cut_and_not_lost():
    assert open_checker.times((3, 1), (5, -4)) == (15, -3)
    long = (1 << 95) + 1
    assert open_checker.times((long, 0), (long, 0)) == (long * long >> 95, 95)
    assert open_checker.power((3, 0), 0) == (1, 0) and open_checker.power((3, 1), 5) == (243, 5)
    # more wealth or loss than any share needs
    assert Bet().shows([(0, 10**6)], ONE // 2, ONE, F(1, 10**9))
    assert not Bet().shows([(ONE, 10**6), (0, 1)], ONE // 2, ONE, F(1, 2))


# ====================================================================== values of rows
def values(outcomes, facts=None, rows=None, turned: int = 1, successors=None) -> Values:
    """Rows of one action a state unless ``rows`` says otherwise; rewards in whole numbers of 1."""
    facts = assumed(len(outcomes)) if facts is None else facts
    scaled = [[(int(F(reward) * ONE), after, count) for reward, after, count in row] for row in outcomes]
    rows = [[[s] for s in range(len(outcomes))]] * facts.layers if rows is None else rows
    found = Values(facts, scaled, rows, F(1, 10), turned)
    found.successors = successors
    return found


def test_one_outcome_is_worth_its_reward_and_what_follows():
    facts = assumed(2, deterministic=True, returns=[-4, 4])
    upper = values([[(1, 1, 1)], [(F(1, 4), END, 1)]], facts)
    after = [0, ONE // 2]
    assert upper.holds(0, 0, 5 * ONE // 4, 4 * ONE, after, 0) and not upper.holds(
        0, 0, 5 * ONE // 4 - 1, 4 * ONE, after, 0
    )
    assert upper.holds(1, 1, ONE // 4, 4 * ONE, after, 0) and not upper.holds(1, 1, ONE // 4 - 1, 4 * ONE, after, 0)
    lower = values([[(1, 1, 1)], []], facts, turned=-1)  # after: minus the values
    assert lower.holds(0, 0, -3 * ONE // 4 + 1, 4 * ONE, after, 0)
    assert not lower.holds(0, 0, -3 * ONE // 4 - 1, 4 * ONE, after, 0)
    assert not lower.holds(1, 1, 4 * ONE - 1, 4 * ONE, after, 0) and lower.holds(1, 1, 4 * ONE, 4 * ONE, after, 0)


def test_rewards_are_rounded_against_the_claim():
    data = Data({"states": 1, "actions": 1, "starts": [[0, 1]], "outcomes": [[0, 0.1, END, 1], [0, 0.2, 0, 2]]})
    assert data.by_row([1, 0]) == [[(checker.up(F(0.1)), END, 1)]]
    fine = 2.0**-140  # below the last bit of 2^-128
    rounded = Data({"states": 1, "actions": 1, "starts": [[0, 1]], "outcomes": [[0, fine, END, 1]]})
    assert rounded.by_row([1]) == [[(1, END, 1)]]
    turned = Values(assumed(1, deterministic=True), rounded.by_row([1]), [[[0]]], F(1), -1)
    assert turned.holds(0, 0, 0, ONE, [0], 0) and not turned.holds(0, 0, -1, ONE, [0], 0)  # at least 0, not 2^-128
    assert open_checker.up_times(F(1, 3), 1) == 1 and open_checker.up_times(F(1, 3), -1) == 0
    assert open_checker.up_times(F(1, 2), 3) == 2 and open_checker.up_times(F(1, 2), 4) == 2


TINY = 2.0**-128  # the last bit


def test_nothing_follows_an_end_or_the_last_step():
    facts = {"discount": 1, "returns": None, "rewards": [-1, 1], "deterministic": True}
    one = assumed(1, **facts, horizon=1)
    assert values([[(0, 0, 1)]], one).layered([[0.0]]) == [[0]]
    assert "does not follow" in refusal(values([[(0, 0, 1)]], one).layered, [[-TINY]])
    two = assumed(1, **facts, horizon=2)
    assert values([[(0, END, 1)]], two).layered([[0.0], [0.0]]) == [[0], [0]]
    assert "with 2 steps" in refusal(values([[(0, END, 1)]], two).layered, [[0.0], [-TINY]])
    assert (
        values([[]], one, successors=[[5]]).cap(0, [0], 0)
        == ONE
        == values([[]], one, successors=[[END]]).cap(0, [0], 0)
    )


@pytest.mark.parametrize("horizon", [None, 3])
def test_known_successors_cap_a_row_that_was_never_tried(horizon):
    facts = assumed(2, returns=None, rewards=[0, 1], horizon=horizon)
    after, layer = [ONE // 4, ONE // 2], 2 if horizon else 0

    def cap(*following: int) -> Fraction:
        return F(values([[], []], facts, successors=[list(following), [0]]).cap(0, after, layer), ONE)

    assert cap(END) == 1 and cap(0) == F(9, 8) and cap(0, 1) == F(5, 4) and cap(1, 0, END) == F(5, 4)
    strange = F(2) if horizon is None else F(3, 2)  # two steps to go
    assert cap(2) == 1 + strange / 2 and cap(0, 7) == 1 + strange / 2
    if horizon:
        first = values([[], []], facts, successors=[[7], [0]])
        assert first.cap(0, [0, 0], 0) == ONE and first.cap(0, [0, 0], 1) == 3 * ONE // 2
    row = values([[], []], facts, successors=[[0], [0]])
    small = assumed(1, returns=[0, 1], rewards=[0, TINY / 8])
    assert values([[]], small, successors=[[END]]).cap(0, [0], 0) == 1  # rounded up
    assert row.holds(0, 0, 9 * ONE // 8, 2 * ONE, after, layer)
    assert not row.holds(0, 0, 9 * ONE // 8 - 1, 2 * ONE, after, layer)


def test_states_never_visited_have_their_own_ranges():
    own = assumed(1, returns=None, rewards=[0, 1], state_returns=[[0, 2], [0, 0.5]])
    assert values([[]], own, successors=[[1]]).cap(0, [2 * ONE], 0) == 5 * ONE // 4
    steps = assumed(1, returns=None, rewards=[0, 1], state_returns=[[0, 2], [0, 0.5]], horizon=2)
    assert values([[]], steps, successors=[[1]]).cap(0, [0], 1) == 5 * ONE // 4


def test_steps_follow_from_earlier_ones_and_a_state_is_worth_its_best_row():
    facts = assumed(2, deterministic=True, discount=1, returns=[0, 4])
    rows = [[[0, 1], [2, 3]]]
    outcomes = [[(0, 1, 1)], [(1, END, 1)], [(2, END, 1)], [(3, END, 1)]]
    found = values(outcomes, facts, rows)
    assert found.settled([[2, 2], [3, 3], [0, 3], [1, 1]]) == [3 * ONE, 3 * ONE]
    assert found.settled([[2, 2], [3, 3], [0, 3], [1, 2], [1, 3]]) == [3 * ONE, 3 * ONE]  # the least is kept
    assert found.settled([[2, 2], [3, 3], [1, 1]]) == [4 * ONE, 3 * ONE]  # a row without a step
    assert found.settled([]) == [4 * ONE, 4 * ONE]
    assert "of row 0 does not follow" in refusal(found.settled, [[0, 3]])
    assert "of row 3 does not follow" in refusal(found.settled, [[3, 2.9999999]])
    assert "row 4 does not exist" in refusal(found.settled, [[4, 4]])


def test_values_with_steps_to_go_follow_from_one_step_less():
    facts = assumed(2, deterministic=True, discount=0.5, returns=None, rewards=[0, 1], horizon=2)
    rows = [[[0, 1], [2]], [[0, 1], [2]]]
    found = values([[(0, 1, 1)], [(F(1, 4), 0, 1)], [(1, 0, 1)]], facts, rows)
    assert found.layered([[0.25, 1], [0.5, 1.125]]) == [[ONE // 4, ONE], [ONE // 2, 9 * ONE // 8]]
    assert found.layered([[None, None], [None, None]]) == [[ONE, ONE], [3 * ONE // 2] * 2]
    assert found.layered([[7, 1], [7, 7]]) == [[ONE, ONE], [3 * ONE // 2] * 2]  # never above the range
    assert "state 0 with 1 steps to go does not follow in row 1" in refusal(found.layered, [[0.2499, 1], [1, 1.5]])
    assert "state 0 with 2 steps to go does not follow in row 0" in refusal(found.layered, [[0.25, 1], [0.4999, 1.5]])
    assert "state 1 with 2 steps to go does not follow in row 2" in refusal(found.layered, [[0.25, 1], [0.5, 1.1249]])


# ====================================================================== data
BASE = {"states": 2, "actions": 2, "starts": [[0, 3], [1, 1]], "outcomes": [[0, 0.5, 1, 4], [3, 0.0, END, 2]]}


def test_data_are_counted_and_nothing_outside_of_them_is_read():
    data = Data(BASE)
    assert (data.episodes, data.steps) == (4, 6)
    for name, false, sentence in (
        ("outcomes", [[4, 0.0, 0, 1]], "does not exist"),
        ("starts", [[2, 1]], "a start does not exist"),
        ("starts", [], "there is no start"),
        ("starts", [[0, 1], [0, 1]], "one is counted twice"),
        ("outcomes", [[0, 0.0, 0, 1], [0, 0.0, 0, 1]], "counted twice"),
        ("states", 2.0, "states is 2.0"),
        ("states", 0, "states is 0"),
        ("actions", 0, "actions is 0"),
    ):
        assert sentence in refusal(Data, {**BASE, name: false})
    for outcome in (
        [-1, 0.0, 0, 1],
        [0, 0.0, 2, 1],
        [0, 0.0, -2, 1],
        [0, 0.0, 0, 0],
        [0, 0.0, 0.0, 1],
        [1.0, 0.0, 0, 1],
    ):
        assert refusal(Data, {**BASE, "outcomes": [outcome]}), outcome
    for start in ([-1, 1], [0, 0]):
        assert refusal(Data, {**BASE, "starts": [start]})
    assert refusal(Data, {**BASE, "starts": [[0, 1], [2, 1]]})  # each of them must exist
    assert Data({**BASE, "outcomes": [[3, 0.0, 1, 1]]}).outcomes[0].row == 3


def test_facts_are_compared_with_the_data_up_to_rounding():
    data = Data({**BASE, "outcomes": [[0, 0.5, 1, 4], [0, 1.0, 1, 1]]})
    for rewards, fits in (([0.5, 1], True), ([0.5 + 1e-10, 1 - 1e-10], True), ([0.5 + 2e-9, 1], False)):
        facts = assumed(rewards=rewards)
        assert (
            (data.respects(facts, None) is None) if fits else "outside its range" in refusal(data.respects, facts, None)
        )
    assert "outside its range" in refusal(data.respects, assumed(rewards=[0, 1 - 2e-9]), None)
    large = Data({**BASE, "outcomes": [[0, 1000.0 + 5e-7, 1, 1]]})
    large.respects(assumed(returns=[0, 9999], rewards=[0, 1000]), None)  # a share of the range
    assert "outside" in refusal(large.respects, assumed(returns=[0, 9999], rewards=[0, 999.99]), None)
    for extra, fits in ((8e-10, True), (1.5e-9, False)):  # one billionth of the range, at least of 1
        near = Data({**BASE, "outcomes": [[0, 0.25 + extra, 1, 1]]})
        if fits:
            near.respects(assumed(rewards=[0, 0.25]), None)
        else:
            assert "outside" in refusal(near.respects, assumed(rewards=[0, 0.25]), None)
    data.respects(assumed(), [[1], [], [], []])
    assert "not among the given" in refusal(data.respects, assumed(), [[0], [], [], []])
    assert "row 0 has two outcomes" in refusal(data.respects, assumed(deterministic=True), None)
    Data(BASE).respects(assumed(deterministic=True), None)


def test_each_limit_of_the_work_is_kept(monkeypatch):
    plain, steps = assumed(2), assumed(2, horizon=3)

    def limited(most: int, act) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(open_checker, "MOST_TESTS", most)
            patch.setattr(open_checker, "MOST_WORK", most)
            return refusal(act)

    outcomes = [[(0, END, 1)], [(0, END, 1)]]
    for least, act, sentence in (
        (6, lambda: assumed(2, horizon=3), "5 states times steps to go"),
        (4, lambda: Data(BASE), "3 rows"),
        (6, lambda: values(outcomes, steps), "5 values"),
        (3, lambda: values(outcomes, plain).settled([[0, 1]] * 3), "2 steps"),
        (6, lambda: values(outcomes, steps).proved({"values": [[None, None]] * 3}), "5 "),
    ):
        assert f"more than {sentence}" in limited(least - 1, act)
        with monkeypatch.context() as patch:
            patch.setattr(open_checker, "MOST_TESTS", least)
            patch.setattr(open_checker, "MOST_WORK", least)
            act()


# ====================================================================== the whole statement
def statement(lower=None, upper=None, data=None, **facts) -> dict:
    told = {**FACTS, "deterministic": True, "returns": [0, 4], "known_states": 2, **facts}
    data = data or {"states": 1, "actions": 1, "starts": [[0, 50]], "outcomes": [[0, 0.5, END, 60]]}
    proof = {"format": open_checker.FORMAT, "world": "w", "delta": 0.1, "assumed": told, "data": data}
    return proof | {"lower": lower, "upper": upper, "claim": {"lower": 0.0, "upper": 4.0}}


def tightest(found, low: Fraction, high: Fraction) -> Fraction:
    """The end between them at which ``found`` begins to hold."""
    for _ in range(40):
        m = (low + high) / 2
        low, high = (low, m) if found(m) else (m, high)
    return high


@pytest.mark.parametrize("deterministic, share", [(False, F(1, 20)), (True, F(11, 20))])
def test_the_start_spends_its_own_share(deterministic, share):
    """A start worth 1/2 in each of 50 episodes, with a ceiling of 4; the share of rows too, where these do not bet."""
    data = {"states": 1, "actions": 1, "starts": [[0, 50]], "outcomes": [[0, 0.25, END, 6_000]]}
    exact = tightest(lambda m: wealth([(F(1, 2), 50)], m, F(4)) >= 1 / (share * F(0.1)), F(1, 2), F(4))
    for start, fits in ((float(exact) + 1e-9, True), (float(exact) - 1e-9, False)):
        proof = statement(upper={"steps": [[0, 0.5]], "start": start}, data=data, deterministic=deterministic)
        if fits:
            assert Statement(proof).upper() == checker.down(F(start))
        else:
            assert "of the start does not follow" in refusal(Statement(proof).upper)
    assert Statement(statement()).upper() == 4 * ONE and Statement(statement()).lower() == 0


def test_the_start_has_all_steps_to_go():
    """One paid step after the other: with two steps to go the start is worth 2, with one only 1."""
    data = {"states": 1, "actions": 1, "starts": [[0, 5000]], "outcomes": [[0, 1.0, 0, 60]]}
    facts = {"horizon": 2, "discount": 1, "returns": None, "rewards": [0, 1.5], "data": data}
    assert Statement(statement(upper={"values": [[1.0], [2.0]], "start": 2.1}, **facts)).upper() == checker.down(F(2.1))
    short = Statement(statement(upper={"values": [[1.0], [2.0]], "start": 1.9}, **facts))
    assert "of the start does not follow" in refusal(short.upper)


def planned_wealth(plays: list[tuple[Fraction, int, int]], m: Fraction, ceiling: Fraction) -> Fraction:
    """Π (1 + c (m − y)/(ceiling − m)), exactly, for plays (y, how often, k) with stakes c = 99/100 · (4/5)^k."""
    total = F(1)
    for y, count, k in plays:
        total *= (1 + F(99, 100) * F(4, 5) ** k * (m - min(y, ceiling)) / (ceiling - m)) ** count
    return total


NOTHING = 63  # the place of the least stake, with which nothing is won
PLAYED = {
    "fixed stakes": ([[3.0, 2, END, 40, NOTHING]], F(1, 20), lambda m: wealth([(F(-3), 40)], m, F(0))),
    "planned ones": (
        [[3.0, 2, END, 20, 0], [2.0, 2, END, 4, 1], [3.0, 2, END, 16, 3]],
        F(17, 20),
        lambda m: planned_wealth([(F(-3), 20, 0), (F(-2), 4, 1), (F(-3), 16, 3)], m, F(0)),
    ),
}


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("kind", PLAYED)
def test_plays_spend_the_share_of_their_policy(number, kind):
    """40 plays, turned round, with 1/20 or 17/20 of 449/1000 of 4/(j (j + 1)(j + 2)) of δ."""
    plays, part_of, won = PLAYED[kind]
    share = part_of * F(449, 1000) * F(0.1) * {1: F(2, 3), 3: F(1, 15)}[number]
    exact = -tightest(lambda m: won(m) >= 1 / share, F(-29, 10), F(0))
    for start, fits in ((float(exact) - 1e-9, True), (float(exact) + 1e-9, False)):
        part = {"policy_number": number, "rules": [[0]], "unseen": 0, "rest": None, "since": []}
        part |= {"plays": plays, "start": start}
        found = Statement(statement(lower=part))
        if fits:
            assert found.lower() == checker.up(F(start))
        else:
            assert "of the policy does not follow from its plays" in refusal(found.lower)
    assert Statement(statement(lower={**part, "start": 0.0, "plays": []})).lower() == 0  # the floor needs no play
    assert "more plays" in refusal(Statement(statement(lower={**part, "plays": [[3.0, 2, END, 51, 0]]})).lower)
    Statement(statement(lower={**part, "start": 1.0, "plays": [[3.0, 2, END, 50, 0]]})).lower()


def test_what_follows_a_cut_is_bounded_with_its_share_from_steps_since_the_policy_was_fixed():
    """One state that earns 1 for ever with discount 1/2; the 60 steps since π was fixed bound V = 2 from below."""
    data = {"states": 1, "actions": 2, "starts": [[0, 50]], "outcomes": [[0, 0.0, END, 9], [1, 1.0, 0, 70]]}
    part = {"policy_number": 2, "rules": [[1]], "unseen": 0, "since": [[1, 60]], "plays": [[1.5, 2, 0, 40, 0]]}
    share = F(99, 1000) * F(449, 1000) * F(0.1) / 6 / 2  # the second policy has a sixth, half for each of two states
    bound = tightest(lambda m: wealth([(F(-1), 60)], m, F(0)) >= 1 / share, F(-1), F(0))  # −Lo, at first 0 follows

    def lower(step: float, **changed) -> Statement:
        facts = {"deterministic": False, "data": data}
        given = {**part, "rest": {"steps": [[1, step]]}, "start": 0.0, **changed}
        return Statement(statement(lower=given, **facts))

    assert lower(float(bound) + 1e-9).lower() == 0
    assert "of row 1 does not follow" in refusal(lower(float(bound) - 1e-9).lower)
    assert "of row 1 does not follow" in refusal(lower(float(bound) + 1e-9, since=[[1, 59]]).lower)
    assert "row 0 does not exist" in refusal(lower(-0.5, rest={"steps": [[0, -0.5]]}).lower)  # π does not play it
    for since in ([[1, 71]], [[2, 1]], [[1, 1], [1, 1]], [[1, 0]], [[-1, 1]]):
        assert refusal(lower(-0.5, since=since).lower)
    assert lower(float(bound) + 1e-9, since=[[1, 70]]).lower() == 0 == lower(0.0, since=[]).lower()


def test_a_cut_play_adds_what_is_left_and_no_more():
    facts = {"discount": 0.5, "deterministic": False, "returns": [-4, 4]}
    found = Statement(statement(**facts))
    assert found._after(2, 0, [[-3 * ONE]]) == -3 * ONE // 4 and found._after(2, 0, [[3 * ONE]]) == 3 * ONE // 4
    assert found._after(0, 0, [[5]]) == 5 and found._after(1, 0, [[5]]) == 3 and found._after(1, 0, [[-5]]) == -2
    assert found._after(3, 0, [[0]]) == 0
    steps = Statement(statement(**facts, horizon=3))
    rest = [[10 * ONE], [20 * ONE], [40 * ONE]]
    assert [steps._after(t, 0, rest) for t in (0, 1, 2)] == [40 * ONE, 10 * ONE, 5 * ONE // 2]
    assert "after its horizon" in refusal(steps._after, 3, 0, rest)
    assert "does not exist" in refusal(steps._after, 1, 1, rest)
    assert "no bounds of what follows" in refusal(steps._after, 1, 0, None)
    assert found._after(200, 0, [[1]]) == 1 and found._after(200, 0, [[-1]]) == 0  # 2^-200 of a last bit
    odd = Statement(statement(**{**facts, "discount": 0.7}))  # whose fifth power has more bits than numbers have here
    for value in (1 << 250, -1 << 250):
        assert 0 < odd._after(5, 0, [[value]]) - F(0.7) ** 5 * value < abs(value) >> 120


def test_plays_are_numbers_that_are_rounded_against_the_claim():
    found = Statement(statement(discount=0.5, deterministic=False, returns=[-4, 4]))
    rest = [[3 * ONE]]
    plays = [[TINY / 8, 0, END, 1, 0], [-TINY / 8, 0, END, 2, 63], [1.5, 0, 0, 1, 5], [1.5, 1, 0, 7, 5]]
    assert [found._play(play, rest) for play in plays] == [(0, 1, 0), (1, 2, 63), (3 * ONE // 2, 1, 5), (0, 7, 5)]
    for play, sentence in (
        ([1.0, -1, 0, 1, 0], "the steps of a play is -1"),
        ([1.0, 1, -2, 1, 0], "the state of a cut is -2"),
        ([1.0, 1, END, 0, 0], "a number of plays is 0"),
        ([1.0, 1, END, 1, -1], "the stake of a play is -1"),
        ([1.0, 1, END, 1, 64], "the stake of a play does not exist"),
    ):
        assert sentence in refusal(found._play, play, rest)


@pytest.mark.parametrize("low, high, slack", [(-4, 3, 4e-9), (-3, 4, 4e-9), (-0.25, 0.5, 1e-9)])
def test_plays_respect_the_stated_range_of_returns(low, high, slack):
    """Up to the rounding of sums of floats; what follows a cut counts as little as is proved, so it may be less."""
    found = Statement(statement(discount=0.5, deterministic=False, returns=[low, high]))
    rest = [[int(-low * ONE)]]

    def play(earned: float, cut: int = END) -> list:
        return [earned, 1, cut, 1, 0]

    for earned in (low, high, low - 0.99 * slack, high + 0.99 * slack):
        assert found._play(play(earned), None).worth == -checker.down(F(earned))
    assert "less than any play can" in refusal(found._play, play(low - 1.01 * slack), None)
    assert "more than any play can" in refusal(found._play, play(high + 1.01 * slack), None)
    assert found._play(play(2 * low, 0), rest).worth == -2.5 * low * ONE
    assert "more than any play can" in refusal(found._play, play(high - low / 2 + 1.01 * slack, 0), rest)
    found.slack = 0
    assert [found._play(play(end), None).often for end in (low, high)] == [1, 1]


def test_a_policy_returns_no_more_than_any_policy_can():
    """Plays that return 4 and one row that returns 1/2: the facts or the data are false, whatever is claimed."""
    part = {"policy_number": 1, "rules": [[0]], "unseen": 0, "rest": None, "since": []}
    data = {"states": 1, "actions": 1, "starts": [[0, 6_000]], "outcomes": [[0, 0.5, END, 6_000]]}
    upper, lower = {"steps": [[0, 0.5]], "start": 0.625}, {**part, "plays": [[4.0, 1, END, 500, 0]]}
    for start, fits in ((0.625, True), (0.625 + 2**-40, False)):
        proof = statement(upper=upper, lower={**lower, "start": start}, data=data)
        if fits:
            assert open_checker.check(proof)["lower"] == 0.0
        else:
            assert "more than any policy can" in refusal(open_checker.check, proof)


@pytest.mark.parametrize("discount", [0.3, 0.97, 1.0])
def test_powers_are_enclosed_from_both_sides(discount):
    for steps in (0, 1, 2, 3, 11, 64):
        low, high = Discounts(F(discount)).enclosed(steps)
        assert low <= F(discount) ** steps * ONE <= high and high - low <= 4 * steps
    half = Discounts(F(2**127 + 1, 2**128))  # its square is a whole number of 2^-128 and one of 2^-256
    assert half.enclosed(2) == (2**126 + 1, 2**126 + 2)
    third = Discounts(F(1, 3))  # not a multiple of 2^-128
    for steps in (1, 2, 5):
        low, high = third.enclosed(steps)
        assert low < F(1, 3) ** steps * ONE < high and high - low <= 4 * steps


def test_policies_and_files_are_complete():
    part = {"policy_number": 1, "rules": [[0]], "unseen": 0, "rest": None, "since": [], "plays": [], "start": 0.0}
    for rules, sentence in {
        "[[1]]": "plays what does not exist", "[[-1]]": "plays what does not exist", "[[0, 0]]": "plays what does not",
        "[[0.0]]": "plays what does not exist", "[[0], [0]]": "wrong number of steps", "[[]]": "plays what does not",
    }.items():  # fmt: skip
        assert sentence in refusal(Statement(statement(lower={**part, "rules": json.loads(rules)})).lower)
    pair = {"states": 2, "actions": 1, "starts": [[0, 50]], "outcomes": [[0, 0.5, END, 60]]}
    for rules in ([[0, 1]], [[1, 0]], [[0, -1]], [[0, None]], [[0]]):
        assert "plays what does not exist" in refusal(
            Statement(statement(lower={**part, "rules": rules}, data=pair)).lower
        )
    two = statement(lower={**part, "rules": [[0], [0, 0]]}, horizon=2)
    assert "plays what does not exist" in refusal(Statement(two).lower)
    for delta in (0, 1, 1.0):
        assert "delta is" in refusal(Statement, {**statement(), "delta": delta})


def test_all_returns_lie_in_the_range_of_the_start():
    own = {"returns": None, "rewards": [0, 2], "state_returns": [[0, 3]]}
    assert Statement(statement(**own)).overall == (0, 4 * ONE)  # of rewards
    assert Statement(statement(**own, overall=[0, 3])).overall == (0, 3 * ONE)
    for overall in ([0, 2.999], [0.001, 3], [1, 2]):
        assert "outside the range of all returns" in refusal(Statement, statement(**own, overall=overall))
    fine = {**own, "state_returns": [[0, 0]], "overall": [-TINY / 8, TINY / 8]}
    assert Statement(statement(**fine, deterministic=False)).overall == (-1, 1)  # rounded outward
    both = {**own, "state_returns": [[0, 3], [1, 4]]}
    assert "outside" in refusal(Statement, statement(**both, overall=[0, 3]))
    plain = {**own, "state_returns": None}
    assert Statement(statement(**plain, overall=[0, 1])).overall == (0, 4 * ONE)  # of rewards; nothing else has a range
    steps = statement(**plain, horizon=2)
    assert Statement(steps).overall == (0, 3 * ONE)
    steps = statement(**own, horizon=2)
    assert Statement(steps).overall == (0, 3 * ONE)


def test_successors_are_states_ends_or_have_ranges():
    rewards = {"returns": [0, 4], "rewards": [0, 2]}
    assert Statement(statement(**rewards, successors=[[END, 0, 9]])).successors == [[END, 0, 9]]
    own = {"returns": None, "rewards": [0, 2], "state_returns": [[0, 3], [0, 1]]}
    assert Statement(statement(**own, successors=[[END, 1]])).successors == [[END, 1]]
    for facts, following in ((own, [2]), (rewards, [-2]), (rewards, [0.0]), (rewards, [])):
        assert refusal(Statement, statement(**facts, successors=[[END, *following] if following else []]))
    assert "a wrong number of rows" in refusal(Statement, statement(**rewards, successors=[[END], [END]]))


def test_claims_may_be_weaker_than_what_is_proved_and_not_stronger():
    proof = statement()
    assert open_checker.check(proof)["plays"] == 0
    for claim, sentence in (
        ({"lower": 0.0, "upper": 3.999}, "upper 3.999"),
        ({"lower": 0.001, "upper": 4.0}, "lower 0.001"),
    ):
        assert f"{sentence} is claimed" in refusal(open_checker.check, {**proof, "claim": claim})
    open_checker.check({**proof, "claim": {"lower": -1, "upper": 5}})
