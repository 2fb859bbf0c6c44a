"""Curves of two objectives beside the Pareto fronts that MO-Gymnasium publishes for its tabular worlds.

The model of a world is made by playing every action in every state of MO-Gymnasium's own code (`mo_worlds`); enemies
attack with an unknown probability. ``outside``: by how much at most a half plane of the curve lies beyond the front, in
the direction of its weights: 0 is the best possible, and a negative number would be false. ``inside``: by how much the
certified values of the curve's policies fall short of the front. Both vanish as data grow. The front of four rooms (in
a smaller maze: the published one has millions of states) is computed here by value iteration, for each weight.
"""

from __future__ import annotations

import importlib.util
import time
from typing import Any

import numpy as np

from benchmarks import mo_worlds
from benchmarks.mo_worlds import FrontWorld
from rpl_agent import Counts, curve
from rpl_agent.core.evidence.sampling import uniform_counts

DISCOUNT, DELTA = 0.95, 0.001
#: error of the values, which are solved to a relative precision
SOLVED = 1e-5
#: worlds, pairs of their objectives, and episodes
FRONTS: tuple[tuple[str, tuple[int, int], tuple[int, ...]], ...] = (
    ("deep_sea_treasure", (0, 1), (0,)),
    ("resource_gathering", (0, 1), (100, 10_000)),
    ("resource_gathering", (1, 2), (100, 10_000)),
    ("four_room", (0, 1), (0,)),
    ("four_room", (1, 2), (0,)),
)


def rows(smoke: bool = False, full: bool = False) -> list[dict[str, Any]]:
    if importlib.util.find_spec("mo_gymnasium") is None:
        return [{"world": "none", "note": "pip install mo-gymnasium"}]
    return [row for part in (FRONTS[:2] if smoke else FRONTS) for row in _front(*part, smoke, 21 if full else 13)]


def _front(name: str, pair: tuple[int, int], episodes: tuple[int, ...], smoke: bool, points: int) -> list[Any]:
    world: FrontWorld = getattr(mo_worlds, name)(DISCOUNT)
    return [_row(name, world, pair, number, points) for number in (episodes[:1] if smoke else episodes)]


def _row(name: str, world: FrontWorld, pair: tuple[int, int], episodes: int, points: int) -> dict[str, Any]:
    began, objectives = time.process_time(), [world.objectives[k] for k in pair]
    counts = Counts(world.pmdp)
    if episodes:
        counts = uniform_counts(world.pmdp, objectives[0], world.theta, episodes, 100, 0)
    found = curve(world.pmdp, counts, objectives, delta=DELTA, points=points)
    outside, inside = [], []
    for plane in found.half_planes:
        weights = np.array(plane.weights) / np.abs(plane.weights).max()
        most = support(world, pair, weights)
        outside.append(float(plane.most / np.abs(plane.weights).max() - most))
        inside.append(most - max(float(weights @ point.lower) for point in found.points))
    row: dict[str, Any] = {
        "world": name.replace("_", " "),
        "states": world.pmdp.num_states,
        "objectives": " and ".join(str(objective.reward_name) for objective in objectives),
        "episodes": episodes,
        "policies": len(found.points),
        "outside": max(outside),
        "inside": max(inside),
        "CPU s": time.process_time() - began,
    }
    wrong = min(*outside, *inside) < -SOLVED * (1.0 + abs(support(world, pair, np.ones(2))))
    return {**row, "failure": "beyond the front"} if wrong else row


def support(world: FrontWorld, pair: tuple[int, int], weights: np.ndarray) -> float:
    """The most of a weighted sum of two values: on the published front, or else by value iteration."""
    if world.front is not None:
        return float((world.front[:, pair] @ weights).max())
    pmdp = world.pmdp
    paid = np.array([pmdp.row_reward(str(world.objectives[k].reward_name)) for k in pair])
    p, values = pmdp.instantiate(world.theta).probability, np.zeros(pmdp.num_states)
    for _ in range(2_000):
        ahead = np.add.reduceat(p * values[pmdp.successor], pmdp.row_ptr[:-1])
        values = np.maximum.reduceat(weights @ paid + DISCOUNT * ahead, pmdp.state_ptr[:-1])
    return float(values[pmdp.initial_state])
