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

from rpl_agent.agent.sampling.experience import Request, SampledBatch, require_kind
from rpl_agent.agent.sampling.step_checker import StepChecker, flag, number, unpack_reset
from rpl_agent.errors import ModelError


class VectorSource:
    """Steps n sub-environments at once."""

    def __init__(self, env: Any, checker: StepChecker, rng: np.random.Generator, seed: int | None, actions: np.ndarray):
        self._env = env
        self._checker = checker
        self._rng = rng
        self._seed = seed
        self._actions = actions  # (A,) the environment's numbers of the model's
        self._places = actions - int(env.single_action_space.start)  # in an action mask
        self._info: Mapping[str, Any] = {}
        self._mode = _autoreset_mode(env)
        self._count = int(env.num_envs)
        self._states: np.ndarray | None = None  # (n,) current states; None: reset first
        self._drawn: list[int | None] = [None] * self._count  # transitions of random starts
        self._fresh = np.ones(self._count, dtype=bool)  # at the start of an episode that is not yet claimed
        self._active = np.zeros(self._count, dtype=bool)  # in the middle of an episode that counts
        self._resetting = np.zeros(self._count, dtype=bool)  # NEXT_STEP: the coming step is a reset
        self._total = np.zeros(self._count)
        self._value = np.zeros(self._count)
        self._length = np.zeros(self._count, dtype=np.int64)
        self._draws = np.zeros(self._count, dtype=np.int64)  # steps since it was made
        self._tick = 0

    def collect(self, request: Request, done: SampledBatch) -> None:
        self._checker.use(request.policy)
        if self._states is None:
            self._reset()
        seen: list[int] = []
        try:
            while done.episodes < min(request.pause, request.episodes_left) and done.steps < request.steps_left:
                ended = done.episodes
                self._claim(request, request.episodes_left - done.episodes, seen)
                self._step(request, done, seen)
                done.interrupted = request.interrupted()
                if done.interrupted or (done.due and done.episodes > ended):
                    break
        finally:
            if seen:
                self._checker.experience.add_steps(seen)

    def _reset(self) -> None:
        self._tick += 1
        returned = self._env.reset(seed=self._seed)
        observations, _ = unpack_reset(returned, lambda: f"vector step {self._tick}, reset")
        self._info = returned[1]
        self._seed = None
        self._states = np.zeros(self._count, dtype=np.int64)
        for i in range(self._count):
            self._begin(observations, i)
        self._fresh[:] = True
        self._active[:] = self._resetting[:] = False

    def _claim(self, request: Request, episodes_left: int, seen: list[int]) -> None:
        """Start episodes in fresh sub-environments while the budget has room."""
        room = episodes_left - int(self._active.sum())
        for i in np.flatnonzero(self._fresh):
            if room <= 0:
                break
            self._active[i], self._fresh[i] = True, False
            self._total[i] = self._value[i] = 0.0
            self._length[i] = 0
            room -= 1
            drawn = self._drawn[i]
            if drawn is not None:  # the draw of a random start is the episode's first transition
                seen.append(drawn)
                self._checker.experience.watch.add(drawn, int(i), True, int(self._draws[i]))
                self._checker.count(self._checker.pmdp.transition_row[drawn], drawn, request.limits)

    def _step(self, request: Request, done: SampledBatch, seen: list[int]) -> None:
        assert self._states is not None
        checker, pmdp = self._checker, self._checker.pmdp
        self._tick += 1
        for i in np.flatnonzero(~self._resetting).tolist():
            checker.compare_mask(int(self._states[i]), self._mask(i), self._places, partial(self._where, i))
        uniform = self._rng.random(self._count)
        steps = np.where(self._active, self._length, 0)
        rows = [checker.choose(int(s), float(u), int(k)) for s, u, k in zip(self._states, uniform, steps)]
        actions = self._actions[pmdp.action[rows]]
        observations, rewards, terminated, truncated, info = self._env.step(actions)
        self._info = info
        final = info.get("final_obs") if self._mode == "SAME_STEP" else None
        over = np.zeros(self._count, dtype=bool)
        for i in range(self._count):
            if self._resetting[i]:  # this step was a reset
                self._begin(observations, i)
                self._resetting[i], self._fresh[i] = False, True
                continue
            where = partial(self._where, i)
            ended, cut = flag(terminated[i], "terminated", where), flag(truncated[i], "truncated", where)
            over[i] = ended or cut
            self._draws[i] += 1
            last = _part(final if final is not None and over[i] else observations, i)
            self._advance(i, rows[i], last, number(rewards[i], where), (ended, cut), request, done, seen)
            if over[i]:
                self._end(i, observations)
            elif self._active[i] and checker.is_too_long(int(self._length[i])):
                cut = checker.is_cut(int(self._states[i]), int(self._length[i]))
                done.end(float(self._total[i]), int(self._length[i]), float(self._value[i]), cut)
                self._active[i] = self._fresh[i] = False
            elif not self._active[i]:
                self._fresh[i] = False  # it moved on outside any episode of ours: wait for its next reset
        if self._mode == "DISABLED" and over.any():
            self._reset_some(over)
        if not (self._active | self._fresh | self._resetting).any():
            self._reset()  # only all of them can be reset before they end by themselves

    def _mask(self, i: int) -> Any:
        """The action mask of one sub-environment, where it gave one."""
        given = "action_mask" in self._info and "_action_mask" in self._info and self._info["_action_mask"][i]
        return self._info["action_mask"][i] if given else None

    def _advance(
        self, i: int, row: int, observation: Any, reward: float, ends: tuple[bool, bool], request: Request,
        done: SampledBatch, seen: list[int],
    ) -> None:  # fmt: skip
        """One transition of a sub-environment; it counts if it belongs to an episode of ours."""
        assert self._states is not None
        checker, (terminated, truncated) = self._checker, ends
        where, step = partial(self._where, i), int(self._length[i])
        state, t = checker.follow(int(self._states[i]), row, observation, reward, terminated, where, step)
        if self._active[i] and done.steps < request.steps_left:
            seen.append(t)
            begins = self._length[i] == 0 and self._drawn[i] is None
            checker.experience.watch.add(t, i, bool(begins), int(self._draws[i]))
            done.steps += 1
            done.due |= checker.count(row, t, request.limits)
            self._total[i] += reward
            self._value[i] += checker.gain(t, int(self._length[i]), reward)
            self._length[i] += 1
            if terminated or truncated:
                cut = not terminated and checker.is_cut(state, int(self._length[i]))
                done.end(float(self._total[i]), int(self._length[i]), float(self._value[i]), cut)
        elif self._active[i]:
            self._active[i] = False  # the budget of steps ended just before this one
        self._states[i] = state

    def _end(self, i: int, observations: Any) -> None:
        assert self._states is not None
        self._active[i] = False
        if self._mode == "NEXT_STEP":
            self._resetting[i], self._fresh[i] = True, False
        elif self._mode == "SAME_STEP":
            self._begin(observations, i)
            self._fresh[i] = True

    def _reset_some(self, over: np.ndarray) -> None:
        assert self._states is not None
        returned = self._env.reset(options={"reset_mask": over})
        observations, _ = unpack_reset(returned, lambda: f"vector step {self._tick}, reset")
        self._info = returned[1]
        for i in np.flatnonzero(over):
            self._begin(observations, int(i))
            self._fresh[i] = True

    def _begin(self, observations: Any, i: int) -> None:
        assert self._states is not None
        where = lambda: f"vector step {self._tick}, sub-environment {i}, reset"  # noqa: E731
        self._states[i], self._drawn[i] = self._checker.begin(_part(observations, i), where)

    def _where(self, i: int) -> str:
        return f"vector step {self._tick}, sub-environment {i}, step {self._length[i] + 1}"

    def get_state(self) -> dict[str, Any]:
        """Sub-environments are in mid-episode and cannot be stored: a resumed run starts new episodes in them."""
        return {"kind": "vector", "seed": int(np.random.SeedSequence([self._tick]).generate_state(1)[0] >> 1)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        require_kind(state, "vector")
        self._seed = int(state["seed"])
        self._states = None


def _part(observations: Any, i: int) -> Any:
    """The observation of one sub-environment; dictionaries and tuples of arrays are batched part by part."""
    if isinstance(observations, Mapping):
        return {key: _part(value, i) for key, value in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_part(value, i) for value in observations)
    return observations[i]


def _autoreset_mode(env: Any) -> str:
    mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    name = getattr(mode, "name", mode)
    if name not in ("NEXT_STEP", "SAME_STEP", "DISABLED"):
        raise ModelError(
            "the vector environment does not say how it resets (metadata['autoreset_mode']): "
            "resets cannot be told from transitions"
        )
    return str(name)
