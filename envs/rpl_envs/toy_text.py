"""Gymnasium's FrozenLake and Taxi as environments that carry their own model.

`frozen_lake` and `taxi` return a `BoundEnv`: a wrapper around the *original* environment that adds the model
(``pmdp``) and the goal (``objective``), observes the number of the model's state and pays what the objective
counts. An agent learns the originals just as well (see `rpl_envs.toy`); these are for baselines that need state
numbers. The tables of true probabilities (``P``) and ``info["prob"]`` are never read, and ``info`` is not passed on.

(Gymnasium also cuts FrozenLake's episodes after 100 steps; with that limit the optimum at ``success_rate = 1/3`` is
0.74, without it 0.82.)
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from rpl_agent.core.model import Binding, StateIndex
from rpl_envs.toy.frozen_lake import bind_frozen_lake, frozen_lake_model
from rpl_envs.toy.taxi import DELIVERY_BONUS, bind_taxi, taxi_model

__all__ = ["BoundEnv", "frozen_lake", "frozen_lake_model", "taxi", "taxi_model"]


class BoundEnv(gym.Wrapper):
    """The original environment, observed as states of its model.

    Attributes
    ----------
    pmdp, objective : what an agent may know.
    """

    observation_to_state = StateIndex

    def __init__(self, env: gym.Env, binding: Binding, bonus: float = 0.0):
        super().__init__(env)
        self.pmdp = binding.pmdp
        self.objective = binding.objective
        self._binding, self._bonus = binding, bonus
        self._value: Any = None
        self.observation_space = gym.spaces.Discrete(binding.pmdp.num_states)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        observation, _ = self.env.reset(seed=seed, options=options)
        self._value = self._binding.first(observation)
        return self._observe()

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = self.env.step(action)
        self._value = self._binding.next(self._value, int(action), observation, float(reward), terminated)
        state, info = self._observe()
        return state, float(reward) - (self._bonus if terminated else 0.0), terminated, truncated, info

    def _observe(self) -> tuple[int, dict[str, Any]]:
        state = self.pmdp.state_index(self._value)
        return state, {"action_mask": self.pmdp.action_mask(state)}

    def action_masks(self) -> np.ndarray:
        """(A,) int8, 1 where the model enables an action."""
        return self.pmdp.action_mask(self.pmdp.state_index(self._value))


def frozen_lake(env: gym.Env | None = None, **keywords: Any) -> BoundEnv:
    """FrozenLake-v1 with unknown ``success_rate``: an environment of yours, or one made with these keywords.

    The model is read from the map (``desc``), which a player sees too.
    """
    env = gym.make("FrozenLake-v1", **{"is_slippery": True, **keywords}) if env is None else env
    return BoundEnv(env, bind_frozen_lake(env))


def taxi(env: gym.Env | None = None, **keywords: Any) -> BoundEnv:
    """Taxi-v4 in the rain with a fickle passenger, both probabilities unknown; or an environment of yours.

    The reward that the wrapper passes on is Gymnasium's, less 20 on delivery (see `rpl_envs.toy.taxi`).
    """
    env = gym.make("Taxi-v4", **{"is_rainy": True, "fickle_passenger": True, **keywords}) if env is None else env
    return BoundEnv(env, bind_taxi(env), DELIVERY_BONUS)
