"""A small boat above a waterfall: three lanes with a current each, eight unknowns in three blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from benchmarks import improvement_worlds as worlds
from rpl_agent.core.coupled.difference import Comparison
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Objective, ParametricMDP, Policy, build
from rpl_agent.guarantee.pipeline import Config, uncertainty_from

GAIN = Objective.discounted("gain", 0.9)
#: drifts of each lane, and their true chances
DRIFTS = (((-1, 0, 1, 2), (0.3, 0.3, 0.2, 0.2)), ((-1, 0, 1, 2), (0.2, 0.4, 0.2, 0.2)), ((0, 1, 2), (0.3, 0.4, 0.3)))


def small_river(start: object = (0, 0)) -> tuple[ParametricMDP, np.ndarray]:
    """(model, true parameters): the gain is the place, and beyond place 2 the boat falls back to place 0 of lane 0."""
    names = [[f"d{y}{i}" for i in range(len(steps) - 1)] for y, (steps, _) in enumerate(DRIFTS)]

    def actions(state: tuple[int, int]) -> Mapping[str, Mapping[object, str]]:
        x, y = state
        found = {}
        for name, (dx, dy) in {"drift": (0, 0), "back": (-1, 0), "left": (0, -1), "right": (0, 1)}.items():
            row: dict[object, str] = {}
            for k, chance in zip(DRIFTS[y][0], [*names[y], " - ".join(["1", *names[y]])]):
                to = (0, 0) if x + dx + k > 2 else (max(x + dx + k, 0), min(max(y + dy, 0), 2))
                row[to] = f"{row[to]} + {chance}" if to in row else chance
            found[name] = row
        return found

    pmdp = build(start, actions, domain=worlds.simplices(names), rewards={"gain": lambda s, a: s[0]}, name="river")
    truth = {name: p for group, (_, chances) in zip(names, DRIFTS) for name, p in zip(group, chances)}
    return pmdp, np.array([truth[name] for name in pmdp.table.parameters])


def river_log(pmdp: ParametricMDP, theta: np.ndarray, used: Policy, episodes: int, seed: int = 7) -> Counts:
    return worlds.logged(pmdp, theta, GAIN, used, episodes, seed, 10)


def compared(pmdp: ParametricMDP, counts: Counts, objective: Objective, one: Policy, other: Policy) -> Comparison:
    """Two policies over the region of a log."""
    found = uncertainty_from(pmdp, counts, replace(Config(delta=0.1), bets=False), objective)
    assert found.region is not None
    return Comparison(found.relaxation, found.region, objective, one, other)
