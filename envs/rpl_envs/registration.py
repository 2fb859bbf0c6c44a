"""The ids: one per instance of the paper, and one per family with size keywords."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.wrappers import TimeLimit

from rpl_envs.benchmark import FAMILIES, INSTANCES
from rpl_envs.pmdp_env import PMDPEnv

NAMESPACE = "rpl"


def make_sized(benchmark: str, **keywords: Any) -> TimeLimit:
    """A family with size keywords: the time limit depends on the size, so it cannot stand in the registry."""
    env = PMDPEnv(benchmark, **keywords)
    return TimeLimit(env, env.max_episode_steps)


make_sized.metadata = PMDPEnv.metadata  # type: ignore[attr-defined]  # Gymnasium reads the render modes here


def register_all() -> None:
    """Register every id once."""
    for family in FAMILIES:
        _register(f"{NAMESPACE}/{family}-v0", "rpl_envs.registration:make_sized", None, {"benchmark": family})
    for instance in INSTANCES.values():
        keywords = {"benchmark": instance.family, **instance.size}
        _register(instance.id, "rpl_envs.pmdp_env:PMDPEnv", instance.episode + 1, keywords)


def _register(id: str, entry_point: str, steps: int | None, keywords: dict[str, Any]) -> None:
    if id not in gym.registry:
        gym.register(
            id,
            entry_point=entry_point,
            vector_entry_point="rpl_envs.vector_env:PMDPVectorEnv",
            max_episode_steps=steps,
            kwargs=keywords,
        )
