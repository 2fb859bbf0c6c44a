"""`PMDPEnv`: a Gymnasium environment over any parametric MDP at its true, hidden parameters."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from rpl_agent.core.errors import ModelError
from rpl_envs.benchmark import Benchmark
from rpl_envs.rendering.window import Window
from rpl_envs.world import PublicKnowledge, Theta, world


class EnabledActions(spaces.Discrete):
    """`Discrete` whose plain ``sample()`` draws an action that is enabled in the environment's current state."""

    def __init__(self, n: int, enabled: np.ndarray):
        super().__init__(n)
        self.enabled = enabled  # (n,) int8, kept up to date by the environment

    def sample(self, mask: np.ndarray | None = None, probability: np.ndarray | None = None) -> Any:
        if mask is None and probability is None:
            mask = self.enabled
        return super().sample(mask=mask, probability=probability)


class PMDPEnv(PublicKnowledge, gym.Env[Any, Any]):
    """One environment for every benchmark and every model of your own.

    Parameters
    ----------
    benchmark : name, id or `Benchmark` object; further keywords are the benchmark's size.
    theta : true parameters (sequence or mapping by name); by default the benchmark's own. Never shown to the agent.
    observation : "discrete" (the number of the state) or "features" (its variables, scaled to [0, 1]).
    render_mode : "rgb_array", "ansi" or "human".

    ``pmdp``, ``objective`` and ``simulator`` are there for agents through ``env.get_wrapper_attr``.
    """

    action_space: EnabledActions
    metadata = {"render_modes": ["human", "rgb_array", "ansi"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's own form)

    def __init__(
        self,
        benchmark: str | Benchmark,
        *,
        theta: Theta | None = None,
        observation: str = "discrete",
        render_mode: str | None = None,
        **size: Any,
    ):
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ModelError(f"render_mode {render_mode!r} is not one of {self.metadata['render_modes']}")
        self._world = world(benchmark, theta, **size)
        self.observation_space = self._world.observation_space(observation)
        self._features = observation == "features"
        self._state = self.pmdp.initial_state
        self._over = False
        self.action_space = EnabledActions(self.pmdp.num_actions, self.action_masks())
        self.render_mode = render_mode
        self._trail = [self._state]
        self._window: Window | None = None

    @property
    def max_episode_steps(self) -> int:
        """The benchmark's episode length, which the registered ids hand to Gymnasium's TimeLimit."""
        return self._world.max_episode_steps

    def action_masks(self) -> np.ndarray:
        """(A,) int8, 1 where an action is enabled now (the method that sb3-contrib's MaskablePPO asks for)."""
        return self.pmdp.action_mask(self._state)

    # ------------------------------------------------------------------ Gymnasium
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, _ = self._world.pass_silent(self.pmdp.initial_state, self.np_random)
        self._over = False
        self._trail = [self._state]
        return self._observe()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        here, pmdp = self._world, self.pmdp
        if self._over:
            name = pmdp.state_name(self._state)
            raise ResetNeeded(f"the episode ended in state {self._state} = {name}: call reset()")
        row = pmdp.find_row(self._state, int(action))
        if row < 0:
            raise here.disabled(self._state, int(action))
        paid = 0.0
        if not here.terminal[self._state]:  # else the start is an end: the first step stays there
            low, high = pmdp.row_ptr[row], pmdp.row_ptr[row + 1]
            t = low + int(np.searchsorted(here._cumulative[low:high], self.np_random.random(), side="right"))
            self._state, paid = here.pass_silent(int(pmdp.successor[t]), self.np_random)
            paid += float(here.reward[row])
            if self.render_mode is not None:  # an episode may be long: keep its way only where it is drawn
                self._trail.append(self._state)
        self._over = bool(here.terminal[self._state])
        reward = paid + float(here.arrival[self._state])
        observation, info = self._observe()
        return observation, reward, self._over, False, info

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        mask = self.action_masks()
        self.action_space.enabled = mask
        if self.render_mode == "human":
            self.render()
        info = {"action_mask": mask.copy(), "state": self._state}
        return (self._world.features(self._state) if self._features else self._state), info

    def render(self) -> Any:
        """A picture (rgb_array), a text (ansi), or None after showing it (human)."""
        renderer = self._world.renderer
        if self.render_mode is None:
            gym.logger.warn('render() does nothing without a render_mode, e.g. gym.make(id, render_mode="rgb_array")')
            return None
        if self.render_mode == "rgb_array":
            return renderer.rgb(self.pmdp, self._trail)
        if self.render_mode == "ansi":
            return renderer.text(self.pmdp, self._trail)
        if self._window is None:
            self._window = Window(self.pmdp.name, self.metadata["render_fps"])
        self._window.show(lambda: renderer.rgb(self.pmdp, self._trail), lambda: renderer.text(self.pmdp, self._trail))
        return None

    def close(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None
