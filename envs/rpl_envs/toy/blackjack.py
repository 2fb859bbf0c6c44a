"""Blackjack: the expected return with an unknown share of cards that count ten.

All other cards are equally likely, and the deck is infinite: what a player sums up and what the dealer ends with are
polynomials in that share. The reward "return" is what Gymnasium pays: −1 for a loss, 0 for a draw, 1 for a win.

A state is (sum, dealer's card, usable ace, whether the hand is a natural); natural hands exist only at the start. The
reward shows how a game ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import product
from typing import Any

from rpl_agent.core.model import Binding, Domain, Objective, ParametricMDP, Polynomial, build, paying
from rpl_envs.toy.grid import Row

OVER = "over"
ACTIONS = ("stick", "hit")
CARDS = range(1, 11)
ONE, NONE = Polynomial.constant(1), Polynomial({})


@lru_cache
def card(value: int) -> Polynomial:
    ten = Polynomial.parameter("ten")
    return ten if value == 10 else (1 - ten) / 9


def add(total: int, ace: int, value: int) -> tuple[int, int]:
    """(sum, usable ace) after one more card; sums above 21 are busts."""
    total, ace = (total + 11, 1) if value == 1 and total + 11 <= 21 else (total + value, ace)
    return (total - 10, 0) if total > 21 and ace else (total, ace)


@lru_cache
def dealer_ends(total: int, ace: int) -> dict[int, Polynomial]:
    """Distribution of the dealer's score (0 for a bust); draws up to 17."""
    if total >= 17:
        return {total if total <= 21 else 0: ONE}
    ends: dict[int, Polynomial] = {}
    for value in CARDS:
        for score, chance in dealer_ends(*add(total, ace, value)).items():
            ends[score] = ends.get(score, NONE) + card(value) * chance
    return ends


def ends_with(gain: float) -> Any:
    return paying(OVER, **{"return": gain})


@lru_cache
def blackjack_model(natural: bool = False, sab: bool = False) -> tuple[ParametricMDP, Objective]:
    """The game with the rules of ``gym.make("Blackjack-v1", natural=..., sab=...)``."""

    def actions(state: Any) -> Mapping[str, Row]:
        if state == OVER:
            return {name: {OVER: ONE} for name in ACTIONS}
        total, dealer, _, is_natural = state
        return {"stick": stick(max(total, 16), dealer, is_natural), "hit": hit(*state)}  # the dealer has 17 or more

    def hit(total: int, dealer: int, ace: int, _: int) -> Row:
        row: Row = {}
        for value in CARDS:
            after, usable = add(total, ace, value)
            successor = (after, dealer, usable, 0) if after <= 21 else ends_with(-1.0)
            row[successor] = row.get(successor, NONE) + card(value)
        return row

    @lru_cache
    def stick(total: int, dealer: int, is_natural: int) -> Row:
        row: Row = {}
        for score, chance in dealer_ends(*add(0, 0, dealer)).items():
            gain = 1.0 if total > score else 0.0 if total == score else -1.0
            if is_natural and sab:
                gain = 1.0
            elif is_natural and natural and gain == 1.0:
                gain = 1.5
            row[gain] = row.get(gain, NONE) + chance
        if is_natural and sab and dealer in (1, 10):  # only a natural of the dealer's own makes a draw
            twin = card(10 if dealer == 1 else 1)
            row = {1.0: 1 - twin, 0.0: twin}
        return {ends_with(gain): chance for gain, chance in row.items()}

    initial: Row = {}
    for dealer, first, second in product(CARDS, repeat=3):
        total, ace = add(*add(0, 0, first), second)
        state = (total, dealer, ace, int(total == 21))
        initial[state] = initial.get(state, NONE) + card(dealer) * card(first) * card(second)
    pmdp = build(
        initial,
        actions,
        domain=Domain.box(("ten",)),
        action_names=ACTIONS,
        labels={"over": lambda s: s == OVER},
        rewards={"return": lambda state, action: 0.0},
        name="Blackjack",
    )
    return pmdp, Objective.reward("return", target="over")


def bind_blackjack(env: Any) -> Binding:
    """Blackjack-v1 under its rules ``natural`` and ``sab``."""
    settings = env.spec.kwargs if env.spec is not None else {}
    pmdp, objective = blackjack_model(bool(settings.get("natural", False)), bool(settings.get("sab", False)))

    def first(observation: Any) -> tuple[int, int, int, int]:
        total, dealer, ace = (int(part) for part in observation)
        return total, dealer, ace, int(total == 21)

    def following(before: Any, action: int, observation: Any, reward: float | None, terminated: bool) -> Any:
        return OVER if terminated else (*first(observation)[:3], 0)

    return Binding(pmdp, objective, first, following, pmdp.on_transitions(pmdp.row_reward("return")))
