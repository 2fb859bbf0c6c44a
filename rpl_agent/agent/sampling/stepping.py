"""Data from environments that are stepped in Python: one, or the n of a `gymnasium.vector.VectorEnv`.

A single environment is a vector of one that we reset. A vector environment declares how it resets. NEXT_STEP
(Gymnasium's default): the step after a done is a reset, not a transition. SAME_STEP: the step that ends an episode
already shows the first observation of the next; the last one is in ``final_obs``. DISABLED: we reset. Counting a reset
as a transition would bias the data and break the guarantee.

Sub-environments keep running across calls. An episode starts only if the budget has room for it: a sub-environment
without an episode still steps (a VectorEnv moves as one), but its steps are not data.
"""

from __future__ import annotations

import hashlib
import pickle
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any

import numpy as np

from rpl_agent.agent.sampling.experience import Request, SampledBatch
from rpl_agent.agent.sampling.interrupt import interruptible
from rpl_agent.agent.sampling.step_checker import StepChecker, checked_flag, checked_reward, unpack_reset, unpack_step
from rpl_agent.agent.world.observations import Env, is_vector, observation_space, part
from rpl_agent.core.errors import ModelError
from rpl_agent.core.model.states import canonical

#: After the first Ctrl-C an episode may run to its end for this long; then it is cut after the current step.
GRACE_SECONDS = 2.0
#: Resets before and after which the generator's states are taken: all of the first ones, then one in so many.
FIRST_RESETS, THEN_ONE_IN = 256, 16
#: Number of calls recorded at the start of a run.
OPENING = 512


class Phase(Enum):
    """The meaning of the next step of a lane."""

    FRESH = auto()  # first step of an episode that the budget may not have room for
    ACTIVE = auto()  # a step of an episode that counts
    OUTSIDE = auto()  # a step outside our episodes, until the environment resets itself
    RESETTING = auto()  # a reset (NEXT_STEP)
    OVER = auto()  # none: needs a reset first


#: Names of their own, because looking one up in an Enum takes longer than half a step of a small environment.
FRESH, ACTIVE, OUTSIDE, RESETTING, OVER = Phase
#: Phases of a lane that has no episode and needs a reset, by us or by the environment itself.
WAITING = OVER, OUTSIDE


@dataclass
class Lane:
    """One environment and its episode."""

    phase: Phase = OVER
    number: int = 0  # of its episode, by start
    state: int = 0
    drawn: int | None = None  # transition of a random start
    length: int = 0
    total: float = 0.0
    value: float = 0.0
    draws: int = 0  # random draws since it was made


class EnvSource:
    """Steps n ≥ 1 environments, with any wrappers.

    seed : for the first reset only.
    opening : receives the first calls, (kind, seed or actions, digest of the answer), for `plays_again`.
    """

    def __init__(
        self,
        env: Env,
        checker: StepChecker,
        rng: np.random.Generator,
        seed: int | None,
        opening: list[Any],
    ):
        self._prepare(env, checker, rng, seed, opening)
        numbers = checker.actions.numbers[checker.pmdp.action]
        self._numbers: Any = numbers.tolist()  # plain numbers, one per row: looked up in every step

    def _prepare(self, env: Env, checker: Any, rng: np.random.Generator, seed: int | None, opening: list[Any]) -> None:
        """Set what does not depend on a model."""
        self._env, self._checker, self._rng, self._seed = env, checker, rng, seed
        self._opening = opening
        self._records = not opening  # record the first calls of a run only
        self._single, self._space = not is_vector(env), observation_space(env)
        self._mode = "DISABLED" if self._single else _autoreset_mode(env)
        self._lanes = [Lane() for _ in range(int(env.num_envs) if is_vector(env) else 1)]
        self._wheres = [partial(self._where, i) for i in range(len(self._lanes))]
        self._begun = False
        self._info: Mapping[str, Any] = {}
        self._tick = self._resets = self._started = 0

    def collect(self, request: Request, done: SampledBatch) -> None:
        self._checker.use(request.policy)
        if self._single:  # its owner may have used it meanwhile
            self._begun = False
        seen: list[int] = []
        deadline = None
        episodes, steps = min(request.pause, request.episodes_left), request.steps_left
        try:
            while done.episodes < episodes and done.steps < steps:
                ended = done.episodes
                if not self._begun or not self._all((ACTIVE,)):
                    self._start(request, done, seen)
                if done.episodes == ended:  # else some were over at once, and may need a reset before the next step
                    self._step(request, done, seen)
                if request.interrupted():
                    deadline = deadline or time.monotonic() + GRACE_SECONDS
                    done.interrupted = done.episodes > ended or time.monotonic() >= deadline
                if done.interrupted or (done.due and done.episodes > ended):
                    break
        except BaseException:
            self._begun = False  # its state is unknown
            raise
        finally:
            if seen:
                self._checker.experience.add_steps(seen)

    # ------------------------------------------------------------------ beginning episodes
    def _start(self, request: Request, done: SampledBatch, seen: list[int]) -> None:
        """Reset where necessary, and start episodes while the budget has room."""
        lanes = self._lanes
        if not self._begun or self._all(WAITING):
            self._reset({} if self._seed is None else {"seed": self._seed}, range(len(lanes)))
            self._begun = True
        elif over := [i for i, lane in enumerate(lanes) if lane.phase is OVER]:
            self._records = False  # such a reset cannot be replayed
            self._reset({"options": {"reset_mask": np.isin(np.arange(len(lanes)), over)}}, over)
        room = request.episodes_left - done.episodes
        if not self._single:
            room -= [lane.phase for lane in lanes].count(ACTIVE)
        for i, lane in enumerate(lanes):
            if lane.phase is FRESH and room > 0:
                room -= 1
                lane.phase, lane.total, lane.value = ACTIVE, 0.0, 0.0
                lane.number = self._started
                self._started += 1
                done.begun += 1
                self._enter(i, request, done, seen)

    def _all(self, phases: tuple[Phase, ...]) -> bool:
        """Whether all lanes are in one of these phases."""
        return self._lanes[0].phase in phases and (self._single or all(lane.phase in phases for lane in self._lanes))

    def _enter(self, i: int, request: Request, done: SampledBatch, seen: list[int]) -> None:
        """An episode that counts begins in a lane."""
        checker, lane = self._checker, self._lanes[i]
        if lane.drawn is not None:  # the draw of a random start is the episode's first transition
            lane.value = checker.gain(lane.drawn, 0)
            seen.append(lane.drawn)
            checker.experience.watch.add(lane.drawn, i, True, lane.draws)
            done.due |= checker.count(checker.pmdp.transition_row[lane.drawn], lane.drawn, request.limits)
        if checker.over_at_once[lane.state]:
            done.end(lane.number, checker.sign * lane.value, 0, lane.value, False)
            lane.phase = OVER if self._mode == "DISABLED" else OUTSIDE

    def _reset(self, keywords: dict[str, Any], lanes: Any) -> None:
        self._resets += 1
        self._tick += 1
        watched = self._single and "seed" not in keywords
        watched &= self._resets <= FIRST_RESETS or self._resets % THEN_ONE_IN == 0
        before = generator_state(self._env) if watched else None
        returned, self._seed = self._env.reset(**keywords), None
        if watched:
            self._checker.experience.watch.reset(before, generator_state(self._env))
        if self._records:
            self._record("reset", keywords.get("seed"), returned)
        observations, self._info = unpack_reset(returned, lambda: f"{self._place()}reset")
        for i in lanes:
            self._begin(observations, i)

    def _begin(self, observations: Any, i: int) -> None:
        lane = self._lanes[i]
        where = lambda: f"{self._place(i)}reset"  # noqa: E731
        seen, info = (observations, self._info) if self._single else (part(observations, i, self._space), None)
        lane.state, lane.drawn = self._checker.begin(seen, where, info)
        lane.phase, lane.length = FRESH, 0
        lane.draws += lane.drawn is not None

    # ------------------------------------------------------------------ steps
    def _step(self, request: Request, done: SampledBatch, seen: list[int]) -> None:
        lanes, single = self._lanes, self._single
        self._tick += 1
        rows = [self._choose(i) for i in range(len(lanes))]
        actions = [self._numbers[row] for row in rows]
        returned = self._env.step(actions[0] if single else np.array(actions))
        if self._records:
            self._record("step", actions, returned)
        observations, rewards, terminated, truncated, self._info = unpack_step(returned, self._wheres[0])
        final = self._info.get("final_obs") if self._mode == "SAME_STEP" else None
        for i, lane in enumerate(lanes):
            if lane.phase is RESETTING:
                self._begin(observations, i)
                continue
            where = self._wheres[i]
            ended = checked_flag(terminated if single else terminated[i], "terminated", where)
            cut = checked_flag(truncated if single else truncated[i], "truncated", where)
            reward = checked_reward(rewards if single else rewards[i], where)
            last = observations if final is None or not (ended or cut) else final
            last = last if single else part(last, i, self._space)
            self._advance(i, rows[i], last, reward, (ended, cut), request, done, seen)
            if ended or cut:
                lane.phase = RESETTING if self._mode == "NEXT_STEP" else OVER
                if self._mode == "SAME_STEP":
                    self._begin(observations, i)

    def _choose(self, i: int) -> int:
        """Draw the row that a lane takes next; in a new state, compare its actions with the model's first."""
        checker, lane = self._checker, self._lanes[i]
        if lane.state not in checker.compared and lane.phase is not RESETTING:
            checker.compare_actions(lane.state, self._mask(i), self._wheres[i])
        step = lane.length if lane.phase is ACTIVE else 0
        return checker.choose(lane.state, self._rng.random(), step)

    def _advance(
        self,
        i: int,
        row: int,
        observation: Any,
        reward: float,
        ends: tuple[bool, bool],
        request: Request,
        done: SampledBatch,
        seen: list[int],
    ) -> None:
        """Process one transition of a lane; it counts if it belongs to one of our episodes."""
        checker, lane, (terminated, truncated) = self._checker, self._lanes[i], ends
        info, where = self._info if self._single else None, self._wheres[i]
        lane.state, t = checker.follow(lane.state, row, observation, reward, terminated, where, lane.length, info)
        lane.draws += t >= 0
        if t < 0 or lane.phase is not ACTIVE or done.steps >= request.steps_left:
            lane.phase = OUTSIDE
            return
        seen.append(t)
        checker.experience.watch.add(t, i, lane.length == 0 and lane.drawn is None, lane.draws)
        done.steps += 1
        done.due |= checker.count(row, t, request.limits)
        lane.total += reward
        lane.value += checker.gain(t, lane.length)
        lane.length += 1
        if terminated or truncated or checker.is_too_long(lane.length):
            at_horizon = checker.horizon is not None and lane.length >= checker.horizon
            undecided = not (terminated or at_horizon or checker.ends(lane.state))
            done.end(lane.number, lane.total, lane.length, lane.value, undecided)
            lane.phase = OVER if self._mode == "DISABLED" else OUTSIDE

    # ------------------------------------------------------------------ of one lane
    def _mask(self, i: int) -> Any:
        """Gymnasium's action mask of a lane, the only part of ``info`` that we read; None if there is none."""
        if not isinstance(self._info, Mapping) or "action_mask" not in self._info:
            return None
        masks, given = self._info["action_mask"], self._info.get("_action_mask")
        if self._single:
            return masks
        return masks[i] if given is not None and given[i] else None

    def _place(self, i: int | None = None) -> str:
        if self._single:
            return f"episode {self._resets}, "
        return f"vector step {self._tick}, " + ("" if i is None else f"sub-environment {i}, ")

    def _where(self, i: int) -> str:
        return f"{self._place(i)}step {self._lanes[i].length + 1}"

    # ------------------------------------------------------------------ the first calls of a run
    def _record(self, kind: str, value: Any, returned: Any) -> None:
        if self._records and len(self._opening) < OPENING:
            self._opening.append((kind, value, _digest(kind, returned)))


@interruptible
def plays_again(env: Env, calls: list[Any], seed: int) -> bool:
    """Whether an environment repeats recorded answers with another seed; stops at the first difference."""
    single = not is_vector(env)
    returned: Any
    for k, (kind, value, expected) in enumerate(calls):
        if kind == "reset":
            value = seed if k == 0 else value
            returned = env.reset() if value is None else env.reset(seed=value)
        else:
            returned = env.step(value[0] if single else np.asarray(value))
        if _digest(kind, returned) != expected:
            return False
    return True


def _digest(kind: str, returned: Any) -> str:
    """A short digest of what happened; never includes ``info``."""
    seen = returned
    if isinstance(returned, tuple):  # improper answers are reported by the reader
        seen = returned[: 1 if kind == "reset" else 4]
    return hashlib.blake2b(repr(canonical(seen)).encode(), digest_size=8).hexdigest()


def generator_state(env: Env) -> Any:
    """The state of Gymnasium's own generator, to be compared; None if there is none."""
    generator = getattr(getattr(env, "unwrapped", env), "np_random", None)
    return pickle.dumps(generator.bit_generator.state) if isinstance(generator, np.random.Generator) else None


def _autoreset_mode(env: Env) -> str:
    mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    name = getattr(mode, "name", mode)
    if name not in ("NEXT_STEP", "SAME_STEP", "DISABLED"):
        raise ModelError(
            "the vector environment does not say how it resets (metadata['autoreset_mode']): "
            "resets cannot be distinguished from transitions"
        )
    return str(name)
