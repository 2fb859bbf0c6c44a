"""Data from a `gymnasium.vector.VectorEnv`, under every autoreset mode.

NEXT_STEP (Gymnasium's default): the step after a done is a reset, not a transition. SAME_STEP: the step that ends an
episode already shows the next one's first observation; the last one is in ``final_obs``. DISABLED: we reset.
Counting a reset as a transition would bias the data and break the guarantee.

Sub-environments run on across calls. An episode is started only if the budget has room for it: a sub-environment
without an episode still steps (a VectorEnv moves as one) but what it does is not data.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from rpl_agent.agent.sampling import Collected, Order, StepBook, _require_kind
from rpl_agent.errors import ModelError


class VectorSource:
    """Steps n sub-environments at once."""

    def __init__(self, env: Any, book: StepBook, rng: np.random.Generator, seed: int | None, action_start: int = 0):
        self._env = env
        self._book = book
        self._rng = rng
        self._seed = seed
        self._action_start = action_start
        self._mode = _autoreset_mode(env)
        self._count = int(env.num_envs)
        self._states: np.ndarray | None = None  # (n,) current states; None: reset first
        self._fresh = np.ones(self._count, dtype=bool)  # at the start of an episode that is not yet claimed
        self._active = np.zeros(self._count, dtype=bool)  # in the middle of an episode that counts
        self._resetting = np.zeros(self._count, dtype=bool)  # NEXT_STEP: the coming step is a reset
        self._total = np.zeros(self._count)
        self._length = np.zeros(self._count, dtype=np.int64)
        self._tick = 0

    def collect(self, order: Order, done: Collected) -> None:
        self._book.use(order.policy)
        if self._states is None:
            self._reset()
        seen: list[int] = []
        try:
            while done.episodes < min(order.pause, order.episodes_left) and done.steps < order.steps_left:
                ended = done.episodes
                self._claim(order.episodes_left - done.episodes)
                self._step(order, done, seen)
                done.interrupted = order.interrupted()
                if done.interrupted or (done.due and done.episodes > ended):
                    break
        finally:
            if seen:
                self._book.experience.add_steps(seen)

    def _reset(self) -> None:
        observations, _ = self._env.reset(seed=self._seed)
        self._seed = None
        self._states = np.array([self._state(observations, i, "reset") for i in range(self._count)])
        self._fresh[:] = True
        self._active[:] = self._resetting[:] = False

    def _claim(self, episodes_left: int) -> None:
        """Start episodes in fresh sub-environments while the budget has room."""
        room = episodes_left - int(self._active.sum())
        for i in np.flatnonzero(self._fresh):
            if room <= 0:
                break
            self._active[i], self._fresh[i] = True, False
            self._total[i], self._length[i] = 0.0, 0
            room -= 1

    def _step(self, order: Order, done: Collected, seen: list[int]) -> None:
        assert self._states is not None
        book, pmdp = self._book, self._book.pmdp
        self._tick += 1
        uniform = self._rng.random(self._count)
        rows = [book.choose(int(s), float(u)) for s, u in zip(self._states, uniform)]
        actions = self._action_start + pmdp.action[rows].astype(np.int64)
        observations, rewards, terminated, truncated, info = self._env.step(actions)
        over = np.asarray(terminated) | np.asarray(truncated)
        final = info.get("final_obs") if self._mode == "SAME_STEP" else None
        for i in range(self._count):
            if self._resetting[i]:  # this step was a reset
                self._states[i] = self._state(observations, i, "reset")
                self._resetting[i], self._fresh[i] = False, True
                continue
            last = final if final is not None and over[i] else observations
            successor = self._state(last, i, "step")
            if self._active[i] and done.steps < order.steps_left:
                t = book.check(rows[i], successor, rewards[i], partial(self._where, i, "step"))
                seen.append(t)
                done.steps += 1
                done.due |= book.count(rows[i], t, order.limits)
                self._total[i] += float(rewards[i])
                self._length[i] += 1
                if over[i]:
                    done.episodes += 1
                    done.returns.append(float(self._total[i]))
                    done.lengths.append(int(self._length[i]))
            elif self._active[i]:
                self._active[i] = False  # the budget of steps ended just before this one
            self._states[i] = successor
            if over[i]:
                self._end(i, observations)
            elif not self._active[i]:
                self._fresh[i] = False  # it moved on outside any episode of ours: wait for its next reset
        if self._mode == "DISABLED" and over.any():
            self._reset_some(over)

    def _end(self, i: int, observations: Any) -> None:
        assert self._states is not None
        self._active[i] = False
        if self._mode == "NEXT_STEP":
            self._resetting[i], self._fresh[i] = True, False
        elif self._mode == "SAME_STEP":
            self._states[i] = self._state(observations, i, "reset")
            self._fresh[i] = True

    def _reset_some(self, over: np.ndarray) -> None:
        assert self._states is not None
        observations, _ = self._env.reset(options={"reset_mask": over})
        for i in np.flatnonzero(over):
            self._states[i] = self._state(observations, int(i), "reset")
            self._fresh[i] = True

    def _state(self, observations: Any, i: int, what: str) -> int:
        return self._book.state(observations[i], lambda: self._where(i, what))

    def _where(self, i: int, what: str) -> str:
        return f"vector step {self._tick}, sub-environment {i}, {what} {self._length[i] + 1}"

    def get_state(self) -> dict[str, Any]:
        """Sub-environments are in mid-episode and cannot be stored: a resumed run starts new episodes in them."""
        return {"kind": "vector", "seed": int(np.random.SeedSequence([self._tick]).generate_state(1)[0] >> 1)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        _require_kind(state, "vector")
        self._seed = int(state["seed"])
        self._states = None


def _autoreset_mode(env: Any) -> str:
    mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    name = getattr(mode, "name", mode)
    if name not in ("NEXT_STEP", "SAME_STEP", "DISABLED"):
        raise ModelError(
            "the vector environment does not say how it resets (metadata['autoreset_mode']): "
            "resets cannot be told from transitions"
        )
    return str(name)
