"""Where data come from: one source per kind of environment, all with the same law.

`EnvSource` steps a `gymnasium.Env`, `SimulatorSource` runs the compiled simulator of our own environments, and
`VectorSource` (vector.py) steps a `VectorEnv`. Each adds to one `Experience`, so that whatever was observed before an
error or an interrupt is kept. Observed are states, actions and rewards: never ``info``, never the true probabilities.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rpl_agent.agent.sampling.experience import Experience, Request, SampledBatch, require_kind
from rpl_agent.agent.sampling.step_checker import StepChecker, mask_in, unpack_reset, unpack_step
from rpl_agent.errors import DataError
from rpl_agent.model.objective import Objective, Sense
from rpl_agent.model.simulate import Simulator

#: Steps of one call of the compiled simulator, so that interrupts and the live view wait a fraction of a second.
CHUNK_STEPS = 200_000
#: After the first Ctrl-C an episode may end by itself for so long; then it is cut after the current step.
GRACE_SECONDS = 2.0


class SimulatorSource:
    """The compiled path: many episodes per call."""

    def __init__(self, simulator: Simulator, experience: Experience, objective: Objective):
        self._simulator = simulator
        self._sign = 1.0 if objective.sense is Sense.MAX else -1.0  # environments pay costs as negative rewards
        self._can_cut = objective.horizon is None or simulator.max_steps < objective.horizon
        self._experience = experience
        self._batch = np.zeros(experience.pmdp.num_transitions, dtype=np.int64)
        self._max_steps = simulator.max_steps

    def collect(self, request: Request, done: SampledBatch) -> None:
        limits, experience, simulator = request.limits, self._experience, self._simulator
        while done.episodes < min(request.pause, request.episodes_left) and done.steps < request.steps_left:
            left = request.steps_left - done.steps
            # growing with the data, so that marks fall due close to where the geometric schedule wants them
            chunk = max(1, min(CHUNK_STEPS, left, 1 + experience.counts.total // 8) // self._max_steps)
            simulator.max_steps = min(self._max_steps, left)
            episodes = int(min(chunk, request.pause - done.episodes, request.episodes_left - done.episodes))
            batch = simulator.run(
                request.policy, episodes, self._batch, limits.rows, limits.expressions, experience.rows,
                experience.expressions,
            )  # fmt: skip
            experience.counts.add_batch(self._batch)
            self._batch[:] = 0
            if limits.rows is None:  # the kernel keeps running counts only of what it watches
                experience.rows[:] = experience.counts.row_totals
            if limits.expressions is None:
                experience.expressions[:] = experience.counts.successes
            done.episodes += batch.episodes
            done.steps += batch.steps
            done.returns.extend(batch.returns.tolist())
            done.lengths.extend(batch.lengths.tolist())
            done.values.extend((self._sign * batch.returns).tolist())
            if self._can_cut and simulator.max_steps == self._max_steps:  # else the budget ended it, not the limit
                done.cut += batch.cut
            done.due = batch.stopped
            done.interrupted = request.interrupted()
            if done.due or done.interrupted:
                break
        simulator.max_steps = self._max_steps

    @property
    def simulator(self) -> Simulator:
        return self._simulator

    def get_state(self) -> dict[str, Any]:
        return {"kind": "simulator", "rng": [int(word) for word in self._simulator.state]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        require_kind(state, "simulator")
        words = state.get("rng")
        if not (isinstance(words, list) and len(words) == 4 and all(type(w) is int and 0 <= w < 2**64 for w in words)):
            raise DataError("the checkpoint's simulator state is not four 64-bit integers")
        self._simulator.state = np.array(words, dtype=np.uint64)


class EnvSource:
    """Steps one `gymnasium.Env`, wrapped as it may be."""

    def __init__(
        self, env: Any, checker: StepChecker, rng: np.random.Generator, seed: int | None, actions: np.ndarray
    ):  # fmt: skip
        self._env = env
        self._checker = checker
        self._rng = rng
        self._seed = seed  # given to the first reset only
        self._actions = actions  # (A,) the environment's numbers of the model's
        self._places = actions - int(getattr(env.action_space, "start", 0))  # in an action mask
        self._episode = self._ticks = 0

    def collect(self, request: Request, done: SampledBatch) -> None:
        self._checker.use(request.policy)
        while done.episodes < min(request.pause, request.episodes_left) and done.steps < request.steps_left:
            self._run_episode(request, done)
            if done.due or done.interrupted:
                break

    def _run_episode(self, request: Request, done: SampledBatch) -> None:
        checker, uniform = self._checker, self._rng.random
        self._episode += 1
        episode, length, total, value, seen = self._episode, 0, 0.0, 0.0, []
        deadline = None

        def where() -> str:
            return f"episode {episode}, step {length + 1}"

        state, drawn, info = self._reset(lambda: f"episode {episode}, reset")
        if drawn is not None:
            seen.append(drawn)
            checker.count(checker.pmdp.transition_row[drawn], drawn, request.limits)
        try:
            while done.steps < request.steps_left:
                checker.compare_mask(state, mask_in(info), self._places, where)
                row = checker.choose(state, uniform(), length)
                returned = self._env.step(int(self._actions[checker.pmdp.action[row]]))
                observation, reward, terminated, truncated, info = unpack_step(returned, where)
                state, t = checker.follow(state, row, observation, reward, terminated, where, length, info)
                seen.append(t)
                total += reward
                value += checker.gain(t, length, reward)
                length += 1
                done.steps += 1
                done.due |= checker.count(row, t, request.limits)
                if terminated or truncated or checker.is_too_long(length):
                    done.end(total, length, value, not terminated and checker.is_cut(state, length))
                    done.interrupted = request.interrupted()
                    return
                if request.interrupted():
                    deadline = deadline or time.monotonic() + GRACE_SECONDS
                    if time.monotonic() >= deadline:
                        done.interrupted = True
                        return
        finally:
            for k, t in enumerate(seen):
                checker.experience.watch.add(t, 0, k == 0, self._ticks + k)
            self._ticks += len(seen)
            if seen:
                checker.experience.add_steps(seen)

    def _reset(self, where: Callable[[], str]) -> tuple[int, int | None, Any]:
        if self._seed is not None:
            returned = self._env.reset(seed=self._seed)
        else:
            before = generator_state(self._env)
            returned = self._env.reset()
            self._checker.experience.watch.reset(before, generator_state(self._env))
        self._seed = None
        observation, info = unpack_reset(returned, where)
        return *self._checker.begin(observation, where, info), info

    def get_state(self) -> dict[str, Any]:
        """The environment's generator; kept at episode boundaries, where nothing else matters."""
        return {"kind": "env", "rng": generator_state(self._env), "episode": self._episode, "seed": self._seed}

    def set_state(self, state: Mapping[str, Any]) -> None:
        require_kind(state, "env")
        self._episode = int(state["episode"])
        self._seed = None if state["seed"] is None else int(state["seed"])
        if state["rng"] is not None:
            generator = self._env.unwrapped.np_random
            set_generator(generator, state["rng"])


def generator_state(env: Any) -> Any:
    """Of Gymnasium's own generator, as JSON; None where there is none."""
    generator = getattr(getattr(env, "unwrapped", env), "np_random", None)
    return plain_state(generator.bit_generator.state) if isinstance(generator, np.random.Generator) else None


def plain_state(state: Any) -> Any:
    """A bit generator's state as JSON."""
    if isinstance(state, Mapping):
        return {key: plain_state(value) for key, value in state.items()}
    if isinstance(state, np.ndarray):
        return {"array": state.tolist(), "dtype": str(state.dtype)}
    return state.item() if isinstance(state, np.generic) else state


def set_generator(generator: np.random.Generator, state: Any) -> None:
    """Inverse of `plain_state`; only a state of the same kind of generator is accepted."""

    def restore(value: Any) -> Any:
        if isinstance(value, Mapping) and set(value) == {"array", "dtype"}:
            return np.array(value["array"], dtype=np.dtype(str(value["dtype"])))
        return {key: restore(item) for key, item in value.items()} if isinstance(value, Mapping) else value

    try:
        generator.bit_generator.state = restore(state)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise DataError(f"the checkpoint's random state does not fit this environment: {error}") from None
