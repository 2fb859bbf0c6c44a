"""Taxi: the expected cost until the passenger is delivered, in the rain and with a fickle passenger.

A step costs 1, an illegal pickup or drop-off 10, the delivery nothing. The reward "return" is what Gymnasium pays:
minus these costs, and 20 for the delivery. It is the objective within a time limit; without one the cost is, because a
total of gains and costs over plays that may never end need not exist.

Taxi draws its start among 300 states and, with ``fickle_passenger``, secretly decides at the start whether the
passenger will change the destination at the first move. The model has one bit of memory, "has moved with the
passenger": the change of mind then happens at that move with the unknown probability, which is the law of the
observable process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from rpl_agent.core.model import Binding, Domain, Objective, ParametricMDP, Polynomial, build
from rpl_envs.toy.frozen_lake import map_of
from rpl_envs.toy.grid import Row

TAXI_ACTIONS = ("south", "north", "east", "west", "pickup", "dropoff")
#: Heading -> (row, column) change of moving on, drifting to the left and to the right.
HEADINGS = {
    "south": ((1, 0), (0, 1), (0, -1)),
    "north": ((-1, 0), (0, -1), (0, 1)),
    "east": ((0, 1), (-1, 0), (1, 0)),
    "west": ((0, -1), (1, 0), (-1, 0)),
}
STANDS = ((0, 0), (0, 4), (4, 0), (4, 3))
IN_TAXI = 4
DELIVERY_BONUS = 20.0


def shift(desc: Sequence[str], cell: tuple[int, int], change: tuple[int, int]) -> tuple[int, int]:
    """The cell after a change of (row, column), which a wall or the border may prevent."""
    row, column = cell[0] + change[0], cell[1] + change[1]
    wall = 2 * max(cell[1], column)
    if not (0 <= row < 5 and 0 <= column < 5) or (change[1] and desc[1 + cell[0]][wall] != ":"):
        return cell
    return row, column


def beginnings() -> list[tuple[int, ...]]:
    """The states in which Taxi starts, all of them equally likely."""
    return [(r, c, p, d, 0) for r in range(5) for c in range(5) for p in range(4) for d in range(4) if p != d]


def cost(state: tuple[int, ...], action: str) -> float:
    """What an action costs: 10 if it is illegal, nothing for the delivery, otherwise 1."""
    row, column, passenger, destination, _ = state
    if passenger == destination:
        return 0.0
    if action == "pickup":
        return 1.0 if passenger < IN_TAXI and (row, column) == STANDS[passenger] else 10.0
    if action == "dropoff":
        if passenger != IN_TAXI or (row, column) not in STANDS:
            return 10.0
        return 0.0 if delivers(state, action) else 1.0
    return 1.0


def delivers(state: tuple[int, ...], action: str) -> bool:
    row, column, passenger, destination, _ = state
    return action == "dropoff" and passenger == IN_TAXI and (row, column) == STANDS[destination]


def taxi_model(desc: Sequence[str], rainy: bool = True, fickle: bool = True) -> tuple[ParametricMDP, Objective]:
    """The parametric MDP of Taxi-v4's map; state (row, column, passenger, destination, moved with the passenger)."""
    return _model_of(tuple(desc), rainy or not fickle, fickle)  # in dry weather the probability happens to be 1


@lru_cache
def _model_of(desc: tuple[str, ...], rainy: bool, fickle: bool) -> tuple[ParametricMDP, Objective]:
    """Built once: every copy of the environment is attached to it."""
    one = Polynomial.constant(1)
    rain = Polynomial.parameter("rainy_probability") if rainy else one
    mind = Polynomial.parameter("fickle_probability") if fickle else Polynomial.constant(0)

    def driven(cell: tuple[int, int], heading: str) -> dict[tuple[int, int], Polynomial]:
        ahead, left, right = HEADINGS[heading]
        if shift(desc, cell, ahead) == cell:
            return {cell: one}  # where the way ahead is blocked the taxi does not drift either
        cells: dict[tuple[int, int], Polynomial] = {}
        for change, chance in ((ahead, rain), (left, (1 - rain) / 2), (right, (1 - rain) / 2)):
            cells[shift(desc, cell, change)] = cells.get(shift(desc, cell, change), Polynomial({})) + chance
        return cells

    def actions(state: tuple[int, ...]) -> Mapping[str, Row]:
        row, column, passenger, destination, moved = state
        if passenger == destination:
            return {"south": {state: one}}
        cell, choices = (row, column), {}
        for heading in HEADINGS:
            outcome: Row = {}
            for there, chance in driven(cell, heading).items():
                if there != cell and passenger == IN_TAXI and not moved and fickle:
                    for other in range(4):
                        share = 1 - mind if other == destination else mind / 3
                        outcome[(*there, passenger, other, 1)] = chance * share
                else:
                    outcome[(*there, passenger, destination, moved)] = chance
            choices[heading] = outcome
        waiting = passenger < IN_TAXI and cell == STANDS[passenger]
        choices["pickup"] = {(row, column, IN_TAXI if waiting else passenger, destination, moved): one}
        stand = STANDS.index(cell) if cell in STANDS and passenger == IN_TAXI else passenger
        choices["dropoff"] = {(row, column, stand, destination, moved): one}
        return choices

    names = [name for name, unknown in (("rainy_probability", rainy), ("fickle_probability", fickle)) if unknown]
    pmdp = build(
        {s: Polynomial.constant("1/300") for s in beginnings()},
        actions,
        domain=Domain.box(tuple(names)),
        action_names=TAXI_ACTIONS,
        variables=("row", "column", "passenger", "destination", "moved"),
        rewards={"cost": cost, "return": lambda s, a: (DELIVERY_BONUS if delivers(s, a) else 0.0) - cost(s, a)},
        labels={"delivered": lambda s: s[2] == s[3]},
        name="Taxi",
    )
    return pmdp, Objective.cost("cost", target="delivered")


def bind_taxi(env: Any) -> Binding:
    """Taxi-v4; the spec says whether it rains and whether the passenger is fickle, the probabilities are not read."""
    settings = env.spec.kwargs if env.spec is not None else {}
    rainy, fickle = bool(settings.get("is_rainy", False)), bool(settings.get("fickle_passenger", False))
    pmdp, objective = taxi_model(map_of(env), rainy, fickle)

    def first(observation: Any) -> tuple[int, ...]:
        rest, destination = divmod(observation.__index__(), 4)
        rest, passenger = divmod(rest, 5)
        return (*divmod(rest, 5), passenger, destination, 0)

    def following(
        before: tuple[int, ...], action: int, observation: Any, reward: float | None, terminated: bool
    ) -> tuple[int, ...]:
        after = first(observation)
        on_board = before[2] == IN_TAXI and after[:2] != before[:2]
        return (*after[:4], int(fickle and bool(before[4] or on_board)))

    paid = pmdp.on_transitions(pmdp.row_reward("return"))
    return Binding(pmdp, objective, first, following, paid, returns=Objective.reward("return", target="delivered"))
