"""`Stream`: the episodes of a run, and how to continue them after a checkpoint without repeating chance.

Episodes come from the compiled simulator of our own environments (`SimulatorSource`) or from environments that are
stepped (`EnvSource`), with the same law. Both add to one `Experience`, so that everything observed before an error
or an interrupt is kept. They observe states, actions and rewards: never the true probabilities.

The guarantee requires independent samples. A stored run can continue in three ways:

- **exact.** The compiled simulator's random state is restored, and the run continues bit for bit.
- **sound.** An environment is reset with a seed that was never used before. The law is the same, the bits are not,
  and a warning says so.
- **refused.** The environment ignores ``reset(seed=...)`` and, made again, repeats the first calls of the run:
  continuing would count the same chance twice. A new environment for an agent that has learned is tested likewise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from rpl_agent.agent.sampling.experience import Experience, Request, SampledBatch, StreamState
from rpl_agent.agent.sampling.step_checker import StepChecker
from rpl_agent.agent.sampling.stepping import EnvSource, plays_again
from rpl_agent.agent.schedule import NEVER
from rpl_agent.agent.world.attach import Attachment
from rpl_agent.agent.world.observations import attribute
from rpl_agent.agent.world.plays import finished, gains
from rpl_agent.core.errors import DataError, ModelError, RPLWarning
from rpl_agent.core.model import Objective, Simulator
from rpl_agent.core.model.simulate import seed_state

#: Steps per call of the compiled simulator, so that interrupts and the live view wait a fraction of a second.
CHUNK_STEPS = 200_000


class SimulatorSource:
    """The compiled path: many episodes per call."""

    def __init__(self, simulator: Simulator, experience: Experience, objective: Objective):
        self.simulator = simulator
        pmdp, task = experience.pmdp, objective.resolve(experience.pmdp)
        simulator.set_worth(gains(pmdp, task), objective.discount, objective.horizon)
        self._ends = task.decided | finished(pmdp, task)
        self._horizon = NEVER if objective.horizon is None else objective.horizon
        self._experience = experience
        self._batch = np.zeros(experience.pmdp.num_transitions, dtype=np.int64)
        self._max_steps = simulator.max_steps

    def collect(self, request: Request, done: SampledBatch) -> None:
        limits, experience, simulator = request.limits, self._experience, self.simulator
        while done.episodes < min(request.pause, request.episodes_left) and done.steps < request.steps_left:
            left = request.steps_left - done.steps
            # growing with the data, so that marks are due close to the geometric schedule
            chunk = max(1, min(CHUNK_STEPS, left, 1 + experience.counts.total // 8) // self._max_steps)
            simulator.max_steps = min(self._max_steps, left)
            episodes = int(min(chunk, request.pause - done.episodes, request.episodes_left - done.episodes))
            batch = simulator.run(
                request.policy,
                episodes,
                self._batch,
                limits.rows,
                limits.expressions,
                experience.rows,
                experience.expressions,
            )
            experience.counts.add_batch(self._batch)
            self._batch[:] = 0
            if limits.rows is None:  # the kernel keeps running counts only of what it watches
                experience.rows[:] = experience.counts.row_totals
            if limits.expressions is None:
                experience.expressions[:] = experience.counts.successes
            done.episodes += batch.episodes
            done.begun += batch.episodes
            done.steps += batch.steps
            done.returns.extend(batch.returns.tolist())
            done.lengths.extend(batch.lengths.tolist())
            done.values.extend(batch.values.tolist())
            undecided = ~self._ends[batch.last] & (batch.lengths < self._horizon)
            done.undecided.extend(undecided.tolist())
            if simulator.max_steps == self._max_steps:  # else the budget ended it, not the limit
                done.cut += int((undecided & (batch.lengths == self._max_steps)).sum())
            done.due = batch.stopped
            done.interrupted = request.interrupted()
            if done.due or done.interrupted:
                break
        simulator.max_steps = self._max_steps


def set_generator(generator: np.random.Generator, state: Any) -> None:
    """Restore a stored state; accepts only the same kind of generator."""
    try:
        generator.bit_generator.state = state
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise DataError(f"the checkpoint's random state does not fit: {error}") from None


#: Recorded calls with fewer bits of chance than this prove nothing: they could agree by accident.
MIN_BITS = 30.0


def open_source(
    world: Attachment, experience: Experience, rng: np.random.Generator, seed: int, opening: list[Any] | None = None
) -> SimulatorSource | EnvSource:
    """A fresh stream of episodes."""
    if world.compiled:
        simulator = attribute(world.env, "simulator")(seed)
        if world.limit is not None:
            simulator.max_steps = min(simulator.max_steps, world.limit)
        return SimulatorSource(simulator, experience, world.objective)
    checker = StepChecker(
        experience, world.reader, world.objective, world.paid, world.reward_error, world.longest, world.actions
    )
    return EnvSource(world.env, checker, rng, int(seed % 2**31), [] if opening is None else opening)


class Stream:
    """A source of episodes that can be stored.

    fresh_seed : returns a seed that was never used before.
    opening : the first calls of the run (see `EnvSource`); empty at its start.
    stored : the state of an earlier stream to continue.
    opens : makes the source.
    """

    def __init__(
        self,
        world: Attachment,
        experience: Experience,
        rng: np.random.Generator,
        fresh_seed: Callable[[], int],
        opening: list[Any],
        stored: StreamState | None = None,
        opens: Callable[..., SimulatorSource | EnvSource] = open_source,
    ):
        self._world, self._experience, self.opening = world, experience, opening
        if opening and not world.compiled:
            self._refuse_a_repetition(fresh_seed() % 2**31)
        seed = fresh_seed()
        self._source = opens(world, experience, rng, seed, opening)
        words = None if stored is None else stored.simulator
        if self.simulator is not None:  # whatever the environment does with seeds
            self.simulator.state = seed_state(seed) if words is None else _random_state(words)
        elif stored is not None and experience.total:
            _warn(
                "the environment continues with a fresh seed, because its state cannot be restored: the certificate "
                "remains valid, but the run is not bit for bit what it would have been without the interruption"
            )

    @property
    def simulator(self) -> Simulator | None:
        """The compiled simulator, for learners with their own loops; None if there is none."""
        return self._source.simulator if isinstance(self._source, SimulatorSource) else None

    def collect(self, request: Request, done: SampledBatch) -> None:
        self._source.collect(request, done)

    def get_state(self) -> StreamState:
        return StreamState(None if self.simulator is None else self.simulator.state.tolist(), self.opening)

    # ------------------------------------------------------------------ going on
    def _refuse_a_repetition(self, seed: int) -> None:
        try:
            if not plays_again(self._world.env, self.opening, seed):
                return
        except Exception:  # an environment may refuse an action that was possible then: so it differs
            return
        if self._bits() >= MIN_BITS:
            raise ModelError(
                "this environment ignores reset(seed=...) and begins with the same random numbers whenever it is made: "
                "continuing would count the same chance twice; make reset(seed=...) seed its generator"
            )
        _warn(
            "the first episodes have too little randomness to show if this environment repeats them: the certificate "
            "holds only if reset(seed=...) gives it new random numbers"
        )

    def _bits(self) -> float:
        """Bits of chance in the first calls: steps times the mean entropy of a step, by observed frequencies."""
        return self._experience.entropy() * sum(np.size(value) for kind, value, _ in self.opening if kind == "step")


def _random_state(words: list[int]) -> np.ndarray:
    if len(words) != 4 or not all(0 <= word < 2**64 for word in words):
        raise DataError("the checkpoint's simulator state is not four 64-bit integers")
    return np.array(words, dtype=np.uint64)


def _warn(text: str) -> None:
    warnings.warn(text, RPLWarning, stacklevel=5)
