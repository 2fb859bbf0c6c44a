"""User code gets back exactly the keys it wrote; names are for display."""

from __future__ import annotations

from enum import Enum

import numpy as np
import pytest

from rpl_agent import Objective, certify
from rpl_agent.core.errors import ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Block, Domain, build, build_vectorized


class Move(Enum):
    STAY = "stay"
    GO = "go"


def chain(keys, rewards, **options):
    """From 0 the first action flips a coin of p, the second goes to 1, where everything rests."""
    return build(
        0, lambda s: {keys[0]: {0: "p", 1: "1 - p"}, keys[1]: {1: 1}}, domain=["p"], rewards=rewards, **options
    )


def test_integer_actions_reach_the_reward_as_integers():
    """The lambda compares with the number that was written: it saw '0' and '1', and 15 was certified as 10."""
    pmdp = chain([0, 1], {"r": lambda s, a: 1.5 if a == 1 else 1.0})
    certificate = certify(pmdp, Counts(pmdp), Objective.discounted("r", 0.9))
    assert certificate.lower == pytest.approx(15.0) and certificate.upper == pytest.approx(15.0)


@pytest.mark.parametrize(
    "keys", [(0, 1), ("go", "stay"), (Move.GO, Move.STAY), ((0, 1), (1, 0)), (True, False), (1.5, 2)]
)
@pytest.mark.parametrize("arrival", [False, True])
def test_rewards_and_labels_see_the_objects_that_were_written(keys, arrival):
    seen = []

    def of_row(state, action):
        seen.append((state, action))
        return 1.0

    def of_transition(state, action, successor):
        seen.append((state, action, successor))
        return float(successor == 1)

    pmdp = chain(keys, {"r": of_transition if arrival else of_row}, labels={"one": lambda s: s == 1})
    assert all(any(call[1] is key for key in keys) for call in seen)
    assert {type(value) for call in seen for value in (call[0], *call[2:])} == {int}
    assert set(pmdp.action_names) == {str(key) for key in keys}
    assert set(map(id, pmdp.action_keys)) == set(map(id, keys)) or set(pmdp.action_keys) == set(keys)


def test_equal_keys_are_one_action_whatever_their_type():
    kinds = iter([(0, 1), (np.int64(0), 1.0)])
    told = {}

    def actions(state):
        if state not in told:
            told[state] = next(kinds)
        first, second = told[state]
        return {first: {0: "p", 1: "1 - p"}, second: {1: 1}}

    seen = []
    pmdp = build(0, actions, domain=["p"], rewards={"r": lambda s, a: seen.append((s, a)) or 0.0})
    assert pmdp.action_names == ("0", "1")
    assert [type(a) for s, a in seen] == [int, int, np.int64, float]


def test_two_keys_of_one_name_are_refused():
    with pytest.raises(ModelError, match="actions 1 and '1' would have one name"):
        build(0, lambda s: {1: {0: "p", 1: "1 - p"}, "1": {1: 1}}, domain=["p"])


def test_a_nameless_action_is_an_action():
    """The draw of the start used the same name, and took its place among the actions."""
    pmdp = build(
        {"a": "p", "b": "1 - p"}, lambda s: {"x": {s: 1}, "": {"a": 1}}, domain=["p"],
        rewards={"r": lambda s, a: 2.0 if a == "" else 1.0},
    )  # fmt: skip
    assert pmdp.action_names == ("x", "")
    shown = np.flatnonzero(~pmdp.is_silent[pmdp.row_state])
    assert pmdp.row_reward("r")[shown].tolist() == [1.0, 2.0, 1.0, 2.0]


def test_the_order_of_actions_may_be_given_by_their_keys():
    for order in ([1, 0], ["1", "0"]):
        pmdp = chain([0, 1], {}, action_names=order)
        assert pmdp.action_names == ("1", "0") and pmdp.action_keys == (1, 0) and pmdp.actions_ordered
    named = chain([0, 1], {}, action_names=["flip", "leave"])  # names of the numbers, for display
    assert named.action_names == ("flip", "leave") and named.action_keys == (0, 1) and named.actions_ordered
    assert chain([0, 1], {}, action_names=["flip", "leave", "never enabled"]).num_actions == 3
    with pytest.raises(ModelError, match="1 names for the actions 0 to 1"):
        chain([0, 1], {}, action_names=["flip"])


def test_the_vectorised_builder_gives_back_its_actions():
    seen = []

    def reward(columns, action):
        seen.append(action)
        return np.full(len(columns["x"]), 1.5 if action == 1 else 1.0)

    def expand(columns):
        n = np.arange(len(columns["x"]))
        yield Block(0, n, {"x": columns["x"]}, np.tile([0, 1], (len(n), 1)))
        yield Block(0, n, {"x": 1 + 0 * n}, np.tile([1, -1], (len(n), 1)))
        yield Block(1, n, {"x": 1 + 0 * n}, np.tile([1, 0], (len(n), 1)))

    pmdp = build_vectorized(
        {"x": 0}, {"x": (0, 1)}, expand, domain=Domain.box(["p"]), monomials=[[0], [1]], denominators=[1, 1],
        action_names=[0, 1], action_rewards={"r": reward},
    )  # fmt: skip
    assert seen == [0, 1] and pmdp.action_names == ("0", "1") and pmdp.action_keys == (0, 1)
    assert pmdp.row_name(0) == "state 0 = (x=0), action '0'"
    assert pmdp.row_reward("r").tolist() == [1.0, 1.5, 1.0, 1.5]
