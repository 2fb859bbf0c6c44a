"""An environment over a model of your own: a PRISM file, or whatever the builders made."""

from __future__ import annotations

from collections.abc import Mapping

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TimeLimit

from rpl_agent.core.model import Objective, ParametricMDP
from rpl_envs.benchmark import Benchmark
from rpl_envs.pmdp_env import PMDPEnv
from rpl_envs.rendering.scene import StateRenderer
from rpl_envs.world import Theta


def make_own(
    pmdp: ParametricMDP,
    objective: Objective | str,
    theta: Theta,
    *,
    max_episode_steps: int,
    render_mode: str | None = None,
) -> gym.Env:
    """Simulate a model at true parameters (sequence or mapping by name), which the agent does not see."""
    task = Objective.parse(objective) if isinstance(objective, str) else objective
    given = theta if isinstance(theta, Mapping) else np.asarray(theta, dtype=float)
    point = pmdp.instantiate(given).theta  # checks them
    world = Benchmark(pmdp, task, tuple(point.tolist()), max_episode_steps, StateRenderer())
    return TimeLimit(PMDPEnv(world, render_mode=render_mode), max_episode_steps)
