"""`PMDPVectorEnv`: many lanes of one world, stepped by one compiled loop.

Autoreset as Gymnasium specifies. NEXT_STEP (the default): the call after a lane's end ignores its action and returns
the first observation of a new episode with reward 0; it is not a transition and must not be counted as one.
SAME_STEP: a lane that ends is reset within the call, and its last observation is in ``info["final_obs"]``.
DISABLED: the caller resets lanes with ``reset(options={"reset_mask": mask})``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model.simulate import sampling_world, seed_state
from rpl_agent.core.native import core, threads
from rpl_envs.benchmark import Benchmark
from rpl_envs.world import PublicKnowledge, Theta, world


class PMDPVectorEnv(PublicKnowledge, VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """N lanes of a benchmark (see `PMDPEnv` for the common parameters).

    Parameters
    ----------
    num_envs : number of lanes.
    max_episode_steps : lanes are truncated after this many steps (by default the benchmark's own number; −1: never).
    autoreset_mode : an `AutoresetMode` or its value ("NextStep", "SameStep", "Disabled").

    Lane i draws from its own generator, seeded with ``seed + i``, so it does not depend on the number of
    lanes.
    """

    def __init__(
        self,
        num_envs: int,
        benchmark: str | Benchmark,
        *,
        theta: Theta | None = None,
        observation: str = "discrete",
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **size: Any,
    ):
        if num_envs < 1:
            raise ModelError(f"num_envs {num_envs} must be at least 1")
        if render_mode not in (None, "rgb_array", "ansi"):
            raise ModelError(f"render_mode {render_mode!r} is not one of rgb_array, ansi")
        self._mode = AutoresetMode(autoreset_mode)
        self.metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4, "autoreset_mode": self._mode}
        self.render_mode = render_mode
        self._world = world(benchmark, theta, **size)
        self.max_episode_steps = self._world.max_episode_steps if max_episode_steps is None else max_episode_steps
        self.num_envs = num_envs
        self._features = observation == "features"
        self.single_observation_space = self._world.observation_space(observation)
        self.single_action_space = spaces.Discrete(self.pmdp.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._states = np.full(num_envs, self.pmdp.initial_state, dtype=np.int64)
        self._steps = np.zeros(num_envs, dtype=np.int64)
        self._over = np.zeros(num_envs, dtype=bool)
        self._rng = np.zeros((num_envs, 4), dtype=np.uint64)
        here = self._world
        self._sampled = sampling_world(self.pmdp, here._cumulative, here.reward, here.arrival, here.terminal)
        self._lanes = core.Lanes(
            count=num_envs,
            max_steps=self.max_episode_steps,
            rng=self._rng,
            row=np.empty(num_envs, dtype=np.int64),
            state=self._states,
            steps=self._steps,
            over=self._over,
        )
        self._started = False

    def action_masks(self) -> np.ndarray:
        """(N, A) int8, 1 where a lane's action is enabled."""
        return self._masks(self._states)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        lanes = self._reset_mask(options)
        seeds: list[int | None]
        if seed is None:
            seeds = [None] * self.num_envs
        elif isinstance(seed, (int, np.integer)):
            super().reset(seed=int(seed))
            seeds = [int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
            if len(seeds) != self.num_envs:
                raise ModelError(f"{len(seeds)} seeds were given for {self.num_envs} lanes")
        for i in np.flatnonzero(lanes):
            lane_seed = seeds[i]
            if lane_seed is None and self._rng[i].any():
                continue  # a seeded lane goes on with its stream
            if lane_seed is None:
                lane_seed = int(self.np_random.integers(2**63))
            self._rng[i] = seed_state(lane_seed)
        core.reset_lanes(self._sampled, self._lanes, lanes)
        self._started = True
        return self._observe(self._states), self._info()

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if not self._started:
            raise ResetNeeded("call reset() before the first step()")
        n = self.num_envs
        actions = np.ascontiguousarray(actions, dtype=np.int64)
        if actions.shape != (n,):
            raise ModelError(f"actions have shape {actions.shape}, not ({n},)")
        if self._mode is AutoresetMode.DISABLED and self._over.any():
            lane = int(np.argmax(self._over))
            raise ResetNeeded(f'lane {lane} has ended: reset it with reset(options={{"reset_mask": mask}})')
        skip = self._over if self._mode is AutoresetMode.NEXT_STEP else np.zeros(n, dtype=bool)
        bad = core.find_rows(self._sampled, self.pmdp.action, self._lanes, actions, skip)
        if bad >= 0:  # nothing has moved yet
            raise self._world.disabled(int(self._states[bad]), int(actions[bad]))
        rewards, final = np.empty(n), np.empty(n, dtype=np.int64)
        terminations, truncations = np.empty(n, dtype=bool), np.empty(n, dtype=bool)
        same_step = self._mode is AutoresetMode.SAME_STEP
        core.step_lanes(self._sampled, self._lanes, same_step, threads(), final, rewards, terminations, truncations)
        info = self._info()
        if same_step and self._over.any():
            info |= self._final_info(final)
            self._over[:] = False  # these lanes have started over
        return self._observe(self._states), rewards, terminations, truncations, info

    def render(self) -> tuple[Any, ...] | None:
        """One picture or text per lane."""
        if self.render_mode is None:
            return None
        draw = self._world.renderer.rgb if self.render_mode == "rgb_array" else self._world.renderer.text
        return tuple(draw(self.pmdp, [int(s)]) for s in self._states)

    # ------------------------------------------------------------------ parts
    def _observe(self, states: np.ndarray) -> np.ndarray:
        return self._world.features(states) if self._features else states.copy()

    def _masks(self, states: np.ndarray) -> np.ndarray:
        pmdp, masks = self.pmdp, np.empty((len(states), self.pmdp.num_actions), dtype=np.int8)
        core.action_masks(len(states), pmdp.num_actions, pmdp.state_ptr, pmdp.action, states, masks)
        return masks

    def _info(self) -> dict[str, Any]:
        present = np.ones(self.num_envs, dtype=bool)
        return {
            "action_mask": self.action_masks(),
            "_action_mask": present,
            "state": self._states.copy(),
            "_state": present.copy(),
        }

    def _final_info(self, final: np.ndarray) -> dict[str, Any]:
        """Gymnasium's form: an object array with None where a lane continues."""
        ended = self._over.copy()
        observations = np.full(self.num_envs, None, dtype=object)
        seen = self._observe(final)
        for i in np.flatnonzero(ended):
            observations[i] = seen[i]
        details = {
            "action_mask": self._masks(final),
            "_action_mask": ended.copy(),
            "state": final.copy(),
            "_state": ended.copy(),
        }
        return {
            "final_obs": observations,
            "_final_obs": ended.copy(),
            "final_info": details,
            "_final_info": ended.copy(),
        }

    def _reset_mask(self, options: dict[str, Any] | None) -> np.ndarray:
        mask = (options or {}).get("reset_mask")
        if mask is None:
            return np.ones(self.num_envs, dtype=bool)
        mask = np.ascontiguousarray(mask)
        if mask.shape != (self.num_envs,) or mask.dtype != bool or not mask.any():
            raise ModelError(f"reset_mask must be ({self.num_envs},) booleans with at least one True")
        return mask
