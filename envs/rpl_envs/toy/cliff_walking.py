"""CliffWalking: the expected cost until the goal, 1 per step and 100 for a fall, with unknown ``success_rate``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from rpl_agent.core.model import Binding, Domain, Objective, ParametricMDP, Polynomial, build, paying
from rpl_envs.toy.grid import Cell, Row, slipping

MOVES = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}  # in the order of CliffWalking's actions
HEIGHT, WIDTH = 4, 12
START, GOAL = (3, 0), (3, 11)
FALL = 100.0


@lru_cache
def cliff_walking_model() -> tuple[ParametricMDP, Objective]:
    """A slippery cliff; if it is not slippery, the unknown ``success_rate`` happens to be 1."""
    forward = Polynomial.parameter("success_rate")
    names = list(MOVES)

    def move(cell: Cell, name: str) -> Any:
        row = min(max(cell[0] + MOVES[name][0], 0), HEIGHT - 1)
        column = min(max(cell[1] + MOVES[name][1], 0), WIDTH - 1)
        fallen = row == HEIGHT - 1 and 0 < column < WIDTH - 1
        return paying(START, cost=FALL - 1.0, **{"return": 1.0 - FALL}) if fallen else (row, column)

    def actions(cell: Cell) -> Mapping[str, Row]:
        if cell == GOAL:
            return {name: {cell: Polynomial.constant(1)} for name in names}
        return slipping(names, lambda name: move(cell, name), forward, (1 - forward) / 2)

    pmdp = build(
        START,
        actions,
        domain=Domain.box(("success_rate",)),
        variables=("row", "column"),
        action_names=names,
        labels={"goal": lambda cell: cell == GOAL},
        name="CliffWalking",
        rewards={"cost": lambda cell, action: float(cell != GOAL), "return": lambda cell, action: -float(cell != GOAL)},
    )
    return pmdp, Objective.cost("cost", target="goal")


def bind_cliff_walking(env: Any) -> Binding:
    """CliffWalking-v1 and CliffWalkingSlippery-v1."""
    pmdp, objective = cliff_walking_model()

    def read(observation: Any) -> Cell:
        return divmod(observation.__index__(), WIDTH)

    return Binding(
        pmdp,
        objective,
        read,
        lambda before, action, observation, *_: read(observation),
        returns=Objective.reward("return", target="goal"),
    )
