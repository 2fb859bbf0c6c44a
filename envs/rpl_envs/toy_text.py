"""Gymnasium's own toy-text worlds as parametric MDPs: structure from the map, parameters unknown.

`frozen_lake` and `taxi` return a `ToyTextEnv`: a wrapper around the *original* environment that adds the model
(``pmdp``), what is wanted (``objective``) and the number of the model's state as observation. An agent learns by
stepping the original; the tables of true probabilities (``P``) and ``info["prob"]`` are never read, and ``info`` is
not passed on.

Objectives, chosen so that undiscounted values are sound:

FrozenLake  the probability of reaching the goal without falling into a hole, over an unbounded horizon.
            (Gymnasium also cuts episodes after 100 steps; with that limit the optimum at ``success_rate = 1/3`` is
            0.74, without it 0.82.)
Taxi        the expected cost until the passenger is delivered: 1 per step, 10 for an illegal pickup or drop-off,
            0 for the delivery. Gymnasium's own return of a delivered episode is 20 minus this cost: the same
            policies are best, and costs are ≥ 0, which a total reward with a bonus at the end is not.

Taxi draws its start among 300 states and, with ``fickle_passenger``, decides in secret at the start whether the
passenger will change the destination at the first move. The model has one state ``start`` before the draw (its only
action draws) and one bit of memory, "has moved with the passenger": the change of mind then happens at that move with
the unknown probability, which is the law of the observable process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from rpl_agent.errors import ModelError
from rpl_agent.model import Domain, Objective, ParametricMDP, Polynomial, StateIndex, build

Row = dict[Any, Polynomial]  # successor -> probability


class ToyTextEnv(gym.Wrapper):
    """The original environment, observed as states of its model.

    Attributes
    ----------
    pmdp, objective : what an agent may know.
    """

    observation_to_state = StateIndex

    def __init__(
        self,
        env: gym.Env,
        pmdp: ParametricMDP,
        objective: Objective,
        read: Callable[[Any, tuple[int, ...] | None], tuple[int, ...]],
        reward: Callable[[float, bool], float],
        start: tuple[int, ...] | None = None,
    ):
        super().__init__(env)
        self.pmdp = pmdp
        self.objective = objective
        self._read, self._reward, self._start = read, reward, start
        columns = [np.asarray(c).tolist() for c in pmdp.variables.values()]
        self._number = {values: s for s, values in enumerate(zip(*columns, strict=True))}
        self._values: tuple[int, ...] | None = None
        self._pending: Any = None
        self.observation_space = gym.spaces.Discrete(pmdp.num_states)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        observation, _ = self.env.reset(seed=seed, options=options)
        if self._start is not None:
            self._values, self._pending = self._start, observation
        else:
            self._values = self._read(observation, None)
        return self._observe()

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if self._pending is not None:  # the draw of the first state is the model's first transition
            observation, self._pending = self._pending, None
            self._values = self._read(observation, None)
            state, info = self._observe()
            return state, 0.0, False, False, info
        observation, reward, terminated, truncated, _ = self.env.step(action)
        self._values = self._read(observation, self._values)
        state, info = self._observe()
        return state, self._reward(float(reward), terminated), terminated, truncated, info

    def _observe(self) -> tuple[int, dict[str, Any]]:
        assert self._values is not None
        state = self._number.get(self._values)
        if state is None:
            raise ModelError(f"the environment is in {self._values}, which the model does not have")
        return state, {"action_mask": self.pmdp.action_mask(state)}

    def action_masks(self) -> np.ndarray:
        """(A,) int8, 1 where the model enables an action."""
        assert self._values is not None
        return self.pmdp.action_mask(self._number[self._values])


# -- FrozenLake -------------------------------------------------------------------------------------------------------
MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}  # in the order of FrozenLake's actions


def frozen_lake_model(desc: Sequence[str]) -> tuple[ParametricMDP, Objective]:
    """The parametric MDP of a map (rows of the letters S, F, H, G) with unknown ``success_rate``."""
    tiles = [str(line) for line in desc]
    if not tiles or any(len(line) != len(tiles[0]) or set(line) - set("SFHG") for line in tiles):
        raise ModelError("a FrozenLake map is a list of equally long rows of the letters S, F, H, G")
    starts = [(r, c) for r, line in enumerate(tiles) for c, tile in enumerate(line) if tile == "S"]
    if len(starts) != 1:
        raise ModelError(f"the map has {len(starts)} start tiles S; the model needs exactly one")
    forward = Polynomial.parameter("success_rate")
    sideways = (1 - forward) / 2
    names = list(MOVES)

    def move(cell: tuple[int, int], name: str) -> tuple[int, int]:
        row, column = cell[0] + MOVES[name][0], cell[1] + MOVES[name][1]
        return (row, column) if 0 <= row < len(tiles) and 0 <= column < len(tiles[0]) else cell

    def tile(cell: tuple[int, int]) -> str:
        return tiles[cell[0]][cell[1]]

    def actions(cell: tuple[int, int]) -> Mapping[str, Row]:
        if tile(cell) in "GH":
            return {name: {cell: Polynomial.constant(1)} for name in names}
        choices: dict[str, Row] = {}
        for i, name in enumerate(names):
            row: Row = {}
            for turned, chance in ((names[i - 1], sideways), (name, forward), (names[(i + 1) % 4], sideways)):
                successor = move(cell, turned)
                row[successor] = row.get(successor, Polynomial({})) + chance
            choices[name] = row
        return choices

    pmdp = build(
        starts[0], actions, domain=Domain.box(("success_rate",)), variables=("row", "column"), action_names=names,
        labels={"goal": lambda cell: tile(cell) == "G", "hole": lambda cell: tile(cell) == "H"},
        name=f"FrozenLake-{len(tiles)}x{len(tiles[0])}",
    )  # fmt: skip
    return pmdp, Objective.reach("goal", avoid="hole")


def frozen_lake(env: gym.Env | None = None, **keywords: Any) -> ToyTextEnv:
    """FrozenLake-v1 with unknown ``success_rate``: an environment of yours, or one made with these keywords.

    The model is read from the map (``desc``), which a player sees too.
    """
    env = gym.make("FrozenLake-v1", **{"is_slippery": True, **keywords}) if env is None else env
    desc = ["".join(letter.decode() for letter in line) for line in env.get_wrapper_attr("desc").tolist()]
    pmdp, objective = frozen_lake_model(desc)
    width = len(desc[0])

    def read(observation: Any, _previous: tuple[int, ...] | None) -> tuple[int, ...]:
        return divmod(int(observation), width)

    return ToyTextEnv(env, pmdp, objective, read, lambda reward, _: reward)


# -- Taxi -------------------------------------------------------------------------------------------------------------
TAXI_ACTIONS = ("south", "north", "east", "west", "pickup", "dropoff")
#: Heading -> (row, column) change of moving on, drifting to the left and to the right.
HEADINGS = {
    "south": ((1, 0), (0, 1), (0, -1)), "north": ((-1, 0), (0, -1), (0, 1)),
    "east": ((0, 1), (-1, 0), (1, 0)), "west": ((0, -1), (1, 0), (-1, 0)),
}  # fmt: skip
STANDS = ((0, 0), (0, 4), (4, 0), (4, 3))
IN_TAXI = 4
START = (0, 0, -1, -1, 0)  # no taxi is there before the draw
DELIVERY_BONUS = 20.0


def taxi_model(desc: Sequence[str], rainy: bool = True, fickle: bool = True) -> tuple[ParametricMDP, Objective]:
    """The parametric MDP of Taxi-v4's map; state (row, column, passenger, destination, moved with the passenger)."""
    if not (rainy or fickle):
        raise ModelError("a dry taxi with a firm passenger has no unknown parameter")
    one = Polynomial.constant(1)
    rain = Polynomial.parameter("rainy_probability") if rainy else one
    mind = Polynomial.parameter("fickle_probability") if fickle else Polynomial.constant(0)

    def shift(cell: tuple[int, int], change: tuple[int, int]) -> tuple[int, int]:
        row, column = cell[0] + change[0], cell[1] + change[1]
        wall = 2 * max(cell[1], column)
        if not (0 <= row < 5 and 0 <= column < 5) or (change[1] and desc[1 + cell[0]][wall] != ":"):
            return cell
        return row, column

    def driven(cell: tuple[int, int], heading: str) -> dict[tuple[int, int], Polynomial]:
        ahead, left, right = HEADINGS[heading]
        if shift(cell, ahead) == cell:
            return {cell: one}  # where the way ahead is blocked the taxi does not drift either
        cells: dict[tuple[int, int], Polynomial] = {}
        for change, chance in ((ahead, rain), (left, (1 - rain) / 2), (right, (1 - rain) / 2)):
            cells[shift(cell, change)] = cells.get(shift(cell, change), Polynomial({})) + chance
        return cells

    def actions(state: tuple[int, ...]) -> Mapping[str, Row]:
        row, column, passenger, destination, moved = state
        if state == START:
            return {"south": {s: Polynomial.constant("1/300") for s in beginnings()}}
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

    def beginnings() -> list[tuple[int, ...]]:
        return [(r, c, p, d, 0) for r in range(5) for c in range(5) for p in range(4) for d in range(4) if p != d]

    def cost(state: tuple[int, ...], action: str) -> float:
        row, column, passenger, destination, _ = state
        if state == START or passenger == destination:
            return 0.0
        if action == "pickup":
            return 1.0 if passenger < IN_TAXI and (row, column) == STANDS[passenger] else 10.0
        if action == "dropoff":
            if passenger != IN_TAXI or (row, column) not in STANDS:
                return 10.0
            return 0.0 if (row, column) == STANDS[destination] else 1.0
        return 1.0

    names = [name for name, unknown in (("rainy_probability", rainy), ("fickle_probability", fickle)) if unknown]
    pmdp = build(
        START, actions, domain=Domain.box(tuple(names)), action_names=TAXI_ACTIONS,
        variables=("row", "column", "passenger", "destination", "moved"), rewards={"cost": cost},
        labels={"delivered": lambda s: s != START and s[2] == s[3]}, name="Taxi",
    )  # fmt: skip
    return pmdp, Objective.cost("cost", target="delivered")


def taxi(env: gym.Env | None = None, **keywords: Any) -> ToyTextEnv:
    """Taxi-v4 in the rain with a fickle passenger, both probabilities unknown; or an environment of yours.

    The reward that the wrapper passes on is Gymnasium's, less 20 on delivery (see the module's docstring).
    """
    env = gym.make("Taxi-v4", **{"is_rainy": True, "fickle_passenger": True, **keywords}) if env is None else env
    settings = env.spec.kwargs if env.spec is not None else {}
    rainy, fickle = bool(settings.get("is_rainy", False)), bool(settings.get("fickle_passenger", False))
    desc = ["".join(letter.decode() for letter in line) for line in env.get_wrapper_attr("desc").tolist()]
    pmdp, objective = taxi_model(desc, rainy, fickle)

    def read(observation: Any, previous: tuple[int, ...] | None) -> tuple[int, ...]:
        rest, destination = divmod(int(observation), 4)
        rest, passenger = divmod(rest, 5)
        row, column = divmod(rest, 5)
        moved = 0
        if previous is not None and fickle:
            on_board = previous[2] == IN_TAXI and (row, column) != previous[:2]
            moved = 1 if previous[4] or on_board else 0
        return row, column, passenger, destination, moved

    def reward(paid: float, terminated: bool) -> float:
        return paid - DELIVERY_BONUS if terminated else paid

    return ToyTextEnv(env, pmdp, objective, read, reward, START)
