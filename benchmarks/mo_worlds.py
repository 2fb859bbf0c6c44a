"""Tabular worlds of MO-Gymnasium as models: every state and action is tried in the world itself, which must be
installed (`pip install mo-gymnasium`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from rpl_agent import Objective, build
from rpl_agent.core.model import ParametricMDP, Sense

#: two numbers that a world may draw: what happens with the chance of an attack, and what happens otherwise
DRAWN = (0.0, 1.0 - 2.0**-53)
#: four rooms with four shapes: the published ones have 14, hence millions of states
ROOMS = ("1  X 2G", "   X   ", "       ", "XX XX X", "   X  3", "       ", "_ 2X   ")


@dataclass(frozen=True)
class FrontWorld:
    """A model of a world, its rewards by name, and the front of all values that it publishes."""

    pmdp: ParametricMDP
    theta: np.ndarray
    objectives: tuple[Objective, ...]  # one for each reward, to be maximised
    front: np.ndarray | None  # (n, rewards); None if it publishes none


def deep_sea_treasure(discount: float) -> FrontWorld:
    """Dive for treasures; the deeper ones are worth more and take longer."""
    from mo_gymnasium.envs.deep_sea_treasure.deep_sea_treasure import DeepSeaTreasure

    world = DeepSeaTreasure()
    world.reset(seed=0)

    def put(state: Any) -> None:
        world.current_state = np.array(state, dtype=np.int32)

    front = np.array(world.pareto_front(discount))
    return _front_world(world, put, lambda: tuple(map(int, world.current_state)), ("treasure", "time"), discount, front)


def resource_gathering(discount: float) -> FrontWorld:
    """Fetch gold and a gem past two enemies, who attack with an unknown probability."""
    from mo_gymnasium.envs.resource_gathering.resource_gathering import ResourceGathering

    world = ResourceGathering()
    world.reset(seed=0)

    def put(state: Any) -> None:
        world.current_pos, world.has_gold, world.has_gem = np.array(state[:2], dtype=np.int32), *state[2:]

    def get() -> Any:
        return (*map(int, world.current_pos), int(world.has_gold), int(world.has_gem))

    front = np.array(world.pareto_front(discount)) / discount  # published with a discounted first step
    return _front_world(world, put, get, ("death", "gold", "gem"), discount, front)


def four_room(discount: float) -> FrontWorld:
    """Collect shapes of three kinds on the way to the goal: in smaller rooms than the published ones."""
    from mo_gymnasium.envs.four_room.four_room import FourRoom

    world = FourRoom(maze=np.array([list(row) for row in ROOMS]))
    world.reset(seed=0)

    def put(state: Any) -> None:
        world.state = state

    return _front_world(world, put, lambda: world.state, ("squares", "circles", "triangles"), discount, None)


def _front_world(
    world: Any,
    put: Callable[[Any], None],
    get: Callable[[], Any],
    names: tuple[str, ...],
    discount: float,
    front: np.ndarray | None,
) -> FrontWorld:
    """The model of a world: from each state each action is played with either number drawn."""
    start, paid = (get(), False), dict[Any, tuple[float, ...]]()

    def actions(state: Any) -> Mapping[Any, Mapping[Any, str]]:
        if state[1]:
            return {0: {state: "1"}}
        found = {}
        for action in range(int(world.action_space.n)):
            after = []
            for number in DRAWN:
                put(state[0])
                world.np_random = SimpleNamespace(random=lambda number=number: number)
                _, reward, over, _, _ = world.step(action)
                after.append((get(), bool(over), tuple(map(float, reward))) if over else (get(), False))
                paid[state, action, after[-1]] = tuple(map(float, reward))
            hit, missed = after
            found[action] = {hit: "1"} if hit == missed else {hit: "attack", missed: "1 - attack"}
        return found

    def reward(k: int) -> Callable[[Any, Any, Any], float]:
        return lambda state, action, after: paid.get((state, action, after), (0.0,) * len(names))[k]

    rewards = {name: reward(k) for k, name in enumerate(names)}
    pmdp = build(
        start, actions, domain={"attack": (0.0, 0.5)}, labels={"over": lambda s: s[1]}, rewards=rewards, name="front"
    )
    objectives = tuple(Objective.discounted(name, discount, target="over", sense=Sense.MAX) for name in names)
    return FrontWorld(pmdp, np.array([0.1]), objectives, front)
