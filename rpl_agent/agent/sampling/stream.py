"""`Stream`: the episodes of a run, and how they go on after a checkpoint without chance being drawn twice.

The guarantee is about independent samples. A stored run may go on in three ways:

- **exact.** The simulator's random state is restored; or a single environment, made again with its generator restored,
  answers the last recorded calls as it did then: it stands where it stood, and the run goes on bit for bit.
- **sound.** Everything else (vector environments in mid-episode, generators of the environment's own) is reset with a
  seed that was never used before. The law is the same, the bits are not, and a warning says so.
- **refused.** The environment ignores ``reset(seed=...)`` and, made again, repeats the first calls of the run: going on
  would count the same chance twice. A new environment given to an agent that has learned is looked at in the same way.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rpl_agent.agent.sampling.experience import Experience, Request, SampledBatch, Source, require_kind
from rpl_agent.agent.sampling.recorder import Recorder, plays_again, reseeded
from rpl_agent.agent.sampling.sources import EnvSource, SimulatorSource
from rpl_agent.agent.sampling.step_checker import StepChecker
from rpl_agent.agent.sampling.vector import VectorSource
from rpl_agent.agent.world.attach import Attachment
from rpl_agent.agent.world.env_facts import attribute
from rpl_agent.errors import DataError, ModelError, RPLWarning
from rpl_agent.model.simulate import seed_state

#: Recorded calls that carry fewer bits of chance than this show nothing: they could agree by accident.
MIN_BITS = 30.0


def open_source(world: Attachment, experience: Experience, rng: np.random.Generator, seed: int) -> Source:
    """A fresh stream of episodes."""
    if world.compiled:
        simulator = attribute(world.env, "simulator")(seed)
        if world.limit is not None:
            simulator.max_steps = min(simulator.max_steps, world.limit)
        return SimulatorSource(simulator, experience, world.objective)
    checker = StepChecker(experience, world.reader, world.objective, world.paid, world.reward_error, world.longest)
    kind = VectorSource if world.is_vector else EnvSource
    return kind(world.env, checker, rng, int(seed % 2**31), world.actions)


class Stream:
    """A source of episodes that can be stored.

    Parameters
    ----------
    fresh_seed : gives a seed that was never used before.
    opening : the first calls of the run, where it has begun (see `Recorder`).
    stored : the state of an earlier stream to go on from.
    """

    def __init__(
        self, world: Attachment, experience: Experience, rng: np.random.Generator, fresh_seed: Callable[[], int],
        opening: list[Any], stored: Mapping[str, Any] | None = None,
    ):  # fmt: skip
        self._world, self._experience, self._rng, self._fresh_seed = world, experience, rng, fresh_seed
        self._recorder = Recorder(world.env, keep_tail=not world.is_vector)
        #: Whether the run went on bit for bit whenever it was resumed.
        self.exact = True if stored is None else bool(stored["exact"])
        whole = stored is not None and bool(stored["whole"])  # every call is on record: nothing else need be asked
        if opening and not world.compiled and not whole:
            self._refuse_a_repetition(opening)  # first, while a generator of its own is where it was made
        if stored is not None:
            if self._stands_there(stored):
                self._source = self._open()
                try:
                    self._source.set_state(stored["source"])
                except (KeyError, TypeError, AttributeError, OverflowError) as error:
                    raise DataError(f"the checkpoint's stream of episodes is not readable: {error!r}") from None
                self._recorder.opening = [tuple(call) for call in opening]
                return
            require_kind(stored["source"], "vector" if world.is_vector else "env")
        self._source = self._open()
        self._recorder.opening = [tuple(call) for call in opening]
        if stored is not None:
            self.exact = False
            _warn(
                "the environment goes on with a fresh seed, because its state cannot be restored (it is a vector "
                "environment, or has random numbers of its own): the certificate stays right, but the run is not bit "
                "for bit what it would have been without the interruption"
            )

    def _open(self) -> Source:
        """A new source with a seed of its own, whatever the environment does with seeds."""
        seed = self._fresh_seed()
        if self._world.compiled:
            source = open_source(self._world, self._experience, self._rng, seed)
            words = [int(word) for word in seed_state(seed)]
            source.set_state({"kind": "simulator", "rng": words})
            return source
        return open_source(replace(self._world, env=self._recorder), self._experience, self._rng, seed)

    @property
    def opening(self) -> list[Any]:
        return self._recorder.opening

    @property
    def simulator(self) -> Any:
        """The compiled simulator, for learners with loops of their own; None where there is none."""
        return self._source.simulator if isinstance(self._source, SimulatorSource) else None

    def collect(self, request: Request, done: SampledBatch) -> None:
        self._source.collect(request, done)

    def get_state(self) -> dict[str, Any]:
        """JSON."""
        return {"source": self._source.get_state(), "exact": self.exact, **self._recorder.get_state()}

    # ------------------------------------------------------------------ going on
    def _stands_there(self, stored: Mapping[str, Any]) -> bool:
        """Whether the stored state can be restored: the environment answers the last calls as it did."""
        if self._world.compiled or (stored["whole"] and not stored["tail"]):
            return True  # a simulator's state is all there is; or nothing was drawn yet
        telling = stored["whole"] or self._bits(stored["tail"]) >= MIN_BITS
        if not stored["tail"] or not telling or stored["anchor"] is None:
            return False
        return self._plays_again(stored["tail"], stored["anchor"])

    def _plays_again(self, calls: list[Any], anchor: Any = None) -> bool:
        try:
            return plays_again(self._world.env, calls, anchor)
        except DataError:
            raise
        except Exception:  # an environment may refuse an action in a state it was not in then: so it differs
            return False

    def _refuse_a_repetition(self, opening: list[Any]) -> None:
        if not self._plays_again(reseeded(opening, self._fresh_seed() % 2**31)):
            return
        if self._bits(opening) >= MIN_BITS:
            raise ModelError(
                "this environment ignores reset(seed=...) and begins with the same random numbers whenever it is made: "
                "going on would count the same chance twice; let reset(seed=...) seed its generator"
            )
        _warn(
            "the first episodes carry too little chance to tell whether this environment repeats them: the certificate "
            "holds only if reset(seed=...) gives it new random numbers"
        )

    def _bits(self, calls: list[Any]) -> float:
        """Chance in recorded calls: steps times the mean entropy of a step, by the frequencies seen."""
        counts = self._experience.counts
        seen = counts.transitions > 0
        if not seen.any():
            return 0.0
        share = counts.transitions[seen] / counts.row_totals[counts.pmdp.transition_row[seen]]
        mean = -float(counts.transitions[seen] @ np.log2(share)) / counts.total
        return mean * sum(np.size(call[1]) for call in calls if call[0] == "step")


def _warn(text: str) -> None:
    warnings.warn(text, RPLWarning, stacklevel=5)
