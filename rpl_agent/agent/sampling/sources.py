"""The compiled simulator of our own environments as a source of data, and random states as JSON.

`EnvSource` (stepping.py) steps environments, with the same law. Each adds to one `Experience`, so that whatever was
observed before an error or an interrupt is kept. Observed are states, actions and rewards: never the true
probabilities.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rpl_agent.agent.sampling.experience import Experience, Request, SampledBatch
from rpl_agent.errors import DataError
from rpl_agent.jsonable import jsonable
from rpl_agent.model.objective import Objective, Sense
from rpl_agent.model.simulate import Simulator

#: Steps of one call of the compiled simulator, so that interrupts and the live view wait a fraction of a second.
CHUNK_STEPS = 200_000


class SimulatorSource:
    """The compiled path: many episodes per call."""

    def __init__(self, simulator: Simulator, experience: Experience, objective: Objective):
        self.simulator = simulator
        self._sign = 1.0 if objective.sense is Sense.MAX else -1.0  # environments pay costs as negative rewards
        self._can_cut = objective.horizon is None or simulator.max_steps < objective.horizon
        self._experience = experience
        self._batch = np.zeros(experience.pmdp.num_transitions, dtype=np.int64)
        self._max_steps = simulator.max_steps

    def collect(self, request: Request, done: SampledBatch) -> None:
        limits, experience, simulator = request.limits, self._experience, self.simulator
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


def generator_state(env: Any) -> Any:
    """Of Gymnasium's own generator, as JSON; None where there is none."""
    generator = getattr(getattr(env, "unwrapped", env), "np_random", None)
    return jsonable(generator.bit_generator.state) if isinstance(generator, np.random.Generator) else None


def set_generator(generator: np.random.Generator, state: Any) -> None:
    """Go on with a stored state; only one of the same kind of generator is accepted."""
    try:
        generator.bit_generator.state = state
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise DataError(f"the checkpoint's random state does not fit: {error}") from None
