"""Stable-Baselines3's own callbacks on our agent, with SB3's meaning of "every n calls".

SB3 calls a callback after every step of the environment. Our agent collects whole episodes, so `SB3Callback` makes up
for it: with such a callback episodes are collected one at a time, and the callback is then called once per step of
the episode, with ``num_timesteps``, ``n_calls`` and ``dones`` as they were at that step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rpl_agent.agent.callbacks import BaseCallback, CallbackList, FunctionCallback
from rpl_agent.errors import ModelError


def is_sb3(callback: Any) -> bool:
    """Whether a callback is one of Stable-Baselines3's (or derived from them)."""
    return any(base.__module__.split(".")[0] == "stable_baselines3" for base in type(callback).__mro__)


class SB3Callback(BaseCallback):
    """Adapter around one of SB3's callbacks."""

    every_episodes = 1

    def __init__(self, callback: Any):
        super().__init__()
        self._callback = callback
        self._episodes = self._steps = 0

    def _init_callback(self) -> None:
        self._callback.init_callback(Model(self.agent))

    def _on_training_start(self) -> None:
        target = self.agent.session.target
        steps = target.goal if target is not None and target.unit == "steps" else None
        if steps is None and "ProgressBarCallback" in {base.__name__ for base in type(self._callback).__mro__}:
            raise ModelError(
                "SB3's ProgressBarCallback counts steps: call learn(total_timesteps=...), or use progress_bar=True"
            )
        self._episodes, self._steps = self.agent.num_episodes, self.agent.num_timesteps
        self._callback.on_training_start({"self": self.agent, "total_timesteps": steps}, {})

    def _on_rollout_start(self) -> None:
        self._callback.on_rollout_start()

    def _on_step(self) -> bool:
        """One call for every step since the last time; the last step of every finished episode is done."""
        agent, callback = self.agent, self._callback
        finished = list(agent.session.lengths)[len(agent.session.lengths) - (agent.num_episodes - self._episodes) :]
        ends = np.cumsum(finished)
        go_on = True
        for k in range(1, agent.num_timesteps - self._steps + 1):
            callback.locals |= {"dones": np.array([k in ends]), "infos": [{}]}
            callback.model.num_timesteps = self._steps + k
            go_on = callback.on_step() is not False and go_on
        self._episodes, self._steps = agent.num_episodes, agent.num_timesteps
        return go_on

    def _on_rollout_end(self) -> None:
        self._callback.on_rollout_end()

    def _on_training_end(self) -> None:
        self._callback.on_training_end()


class Model:
    """The agent as SB3's callbacks expect a model: everything else is the agent's own."""

    def __init__(self, agent: Any):
        self._agent = agent
        self.num_timesteps: int = agent.num_timesteps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    @property
    def logger(self) -> Records:
        return Records(self._agent.logger)

    def get_env(self) -> Any:
        env = self._agent.get_env()
        return env if hasattr(env, "num_envs") else Single(env)

    def get_vec_normalize_env(self) -> None:
        """Observations are states: nothing is normalised."""


class Records:
    """SB3 callbacks record and dump at once; here what they record waits for the next log point."""

    def __init__(self, logger: Any):
        self._logger = logger

    def record(self, key: str, value: Any, exclude: Any = None) -> None:
        if isinstance(value, (int, float, np.number)):
            self._logger.record(key, value)

    def dump(self, step: int = 0) -> None:
        """Nothing: the x axis of our logs is the number of episodes."""


class Single:
    """One environment, counted as SB3 counts them."""

    num_envs = 1

    def __init__(self, env: Any):
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


def as_callback(callback: Any) -> Any:
    """None, one callback, a list, or a function, as one callback."""
    if callback is None:
        return CallbackList([])
    if isinstance(callback, (list, tuple)):
        return CallbackList([as_callback(item) for item in callback])
    if hasattr(callback, "on_step"):
        if isinstance(callback, BaseCallback):
            return callback
        return SB3Callback(callback) if is_sb3(callback) else callback
    if callable(callback):
        return FunctionCallback(callback)
    raise ModelError(f"{callback!r} is neither a callback, a list of callbacks nor a function")
