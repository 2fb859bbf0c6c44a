"""FrozenLake with unknown ``success_rate``: the probability of reaching the goal, or the return of another schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Binding, Domain, Objective, ParametricMDP, Polynomial, build
from rpl_envs.toy.grid import Cell, Row, slipping

#: What Gymnasium pays for entering a goal, a hole and ice.
USUAL = (1.0, 0.0, 0.0)
MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}  # in the order of FrozenLake's actions


def frozen_lake_model(
    desc: Sequence[str], schedule: tuple[float, float, float] = USUAL
) -> tuple[ParametricMDP, Objective]:
    """The parametric MDP of a map (rows of the letters S, F, H, G) with unknown ``success_rate``.

    What entering a goal, a hole or ice pays (``schedule``) is the reward "return", where it is not the usual one.
    A map with several starts S draws one of them, each with the same probability.
    """
    return _model_of(tuple(str(line) for line in desc), schedule)


@lru_cache(maxsize=8)  # maps may be drawn
def _model_of(tiles: tuple[str, ...], schedule: tuple[float, float, float]) -> tuple[ParametricMDP, Objective]:
    """Built once: every copy of the environment is attached to it."""
    if not tiles or any(len(line) != len(tiles[0]) or set(line) - set("SFHG") for line in tiles):
        raise ModelError("a FrozenLake map is a list of equally long rows of the letters S, F, H, G")
    starts = [(r, c) for r, line in enumerate(tiles) for c, tile in enumerate(line) if tile == "S"]
    if not starts:
        raise ModelError("the map has no start tile S")
    forward = Polynomial.parameter("success_rate")
    names = list(MOVES)

    def move(cell: Cell, name: str) -> Cell:
        row, column = cell[0] + MOVES[name][0], cell[1] + MOVES[name][1]
        return (row, column) if 0 <= row < len(tiles) and 0 <= column < len(tiles[0]) else cell

    def tile(cell: Cell) -> str:
        return tiles[cell[0]][cell[1]]

    def actions(cell: Cell) -> Mapping[str, Row]:
        if tile(cell) in "GH":
            return {name: {cell: Polynomial.constant(1)} for name in names}
        return slipping(names, lambda name: move(cell, name), forward, (1 - forward) / 2)

    goal, hole, ice = schedule
    paid = {"G": goal, "H": hole}

    def entering(before: Cell, _: str, cell: Cell) -> float:
        return 0.0 if tile(before) in "GH" else paid.get(tile(cell), ice)

    start: Any = starts[0] if len(starts) == 1 else {cell: Polynomial.constant(f"1/{len(starts)}") for cell in starts}
    pmdp = build(
        start,
        actions,
        domain=Domain.box(("success_rate",)),
        variables=("row", "column"),
        action_names=names,
        labels={
            "goal": lambda cell: tile(cell) == "G",
            "hole": lambda cell: tile(cell) == "H",
            "over": lambda cell: tile(cell) in "GH",
        },
        rewards={} if schedule == USUAL else {"return": entering},
        name=f"FrozenLake-{len(tiles)}x{len(tiles[0])}",
    )
    return pmdp, Objective.reach("goal", avoid="hole")


def map_of(env: Any) -> list[str]:
    """The map of an environment as text, which a player sees too."""
    return ["".join(letter.decode() for letter in line) for line in env.get_wrapper_attr("desc").tolist()]


def bind_frozen_lake(env: Any) -> Binding:
    """FrozenLake-v1 with any map; without slipping the unknown ``success_rate`` happens to be 1."""
    desc = map_of(env)
    settings = env.spec.kwargs if env.spec is not None else {}
    goal, hole, ice = (float(x) for x in settings.get("reward_schedule", USUAL))
    pmdp, objective = frozen_lake_model(desc, (goal, hole, ice))
    width = len(desc[0])
    paid = pmdp.on_transitions(pmdp.row_reward("return")) if pmdp.rewards else None
    returns = Objective.reward("return", target="over") if pmdp.rewards else None

    def read(observation: Any, *_: Any) -> Cell:
        return divmod(observation.__index__(), width)

    return Binding(
        pmdp,
        objective,
        read,
        lambda before, action, observation, *_: read(observation),
        paid,
        returns=returns,
    )
