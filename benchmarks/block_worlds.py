"""Worlds of 7 to 64 unknowns in independent blocks: the bridges of the case study, wet chicken, and random ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks import improvement_worlds
from rpl_agent.core.model import Objective, ParametricMDP
from rpl_agent.formats import prism
from tests.reference.block_models import DISCOUNTED, block_model

BRIDGE = Path(__file__).parent.parent / "examples" / "models" / "bridge.prism"
#: the rates of the case study
BOOK = {"wear1": 0.03, "wear2": 0.03, "wear3": 0.08, "wear4": 0.13, "heal": 0.62, "slip": 0.04, "renew": 0.85}
#: unknowns of the random models; the number is its seed
UNKNOWNS = (7, 9, 12, 15, 18, 24, 32, 40, 50, 64)


@dataclass(frozen=True)
class BlockWorld:
    """A model, its truth, and how it is asked about."""

    pmdp: ParametricMDP
    theta: np.ndarray
    objective: Objective
    steps: int  # of a play
    delta: float


@cache
def bridges() -> BlockWorld:
    """Seven coins; least cost over 30 years."""
    pmdp, cost = prism.load(BRIDGE).objective()
    return BlockWorld(pmdp, np.array([BOOK[name] for name in pmdp.table.parameters]), cost, 30, 1e-3)


def wet_chicken() -> BlockWorld:
    """Five currents of three to eight outcomes, which the edges of the river censor."""
    pmdp, truth = improvement_worlds.wet_chicken()
    objective = Objective.discounted("gain", improvement_worlds.RIVER_DISCOUNT)
    return BlockWorld(pmdp, np.array([truth[name] for name in pmdp.table.parameters]), objective, 10, 0.1)


def random_world(number: int) -> BlockWorld:
    """Coins and dice of up to four sides, shared by 90 actions in 30 states."""
    return BlockWorld(*block_model(number, UNKNOWNS[number]), DISCOUNTED, 50, 1e-3)


def small_world(number: int) -> BlockWorld:
    """One of many, of 7 to 40 unknowns, seeds apart from those of `random_world`."""
    seed = 1_000 + number
    unknowns = int(np.random.default_rng(seed).integers(7, 41))
    return BlockWorld(*block_model(seed, unknowns), DISCOUNTED, 50, 1e-3)


def world(name: str) -> BlockWorld:
    """By name: "bridges", "wet chicken", "random 3" or "block 3"."""
    if name.startswith("random"):
        return random_world(int(name.split()[1]))
    if name.startswith("block"):
        return small_world(int(name.split()[1]))
    return {"bridges": bridges, "wet chicken": wet_chicken}[name]()
