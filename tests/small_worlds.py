"""The worlds of the paper at a small size, under their own ids: proofs and plans of them take a moment."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import pytest

from rpl_envs.benchmark import INSTANCES

SIZES = {
    "Aircraft-20x10": {"X": 6, "Y": 4},
    "Betting-25": {"n": 4},
    "Engagement-50": {"L": 8},
    "Glider-11x9": {"w": 5, "h": 4},
    "MarsRover-10x10": {"X": 5, "Y": 5},
    "ParallelBetting-5": {"n": 2},
}


def make_worlds_small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in SIZES.items():
        instance = replace(INSTANCES[name], size=size, counts=None, value=None)
        monkeypatch.setitem(INSTANCES, name, instance)
        for key, value in size.items():
            monkeypatch.setitem(gym.registry[instance.id].kwargs, key, value)
