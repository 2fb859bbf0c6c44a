"""The surface that all baselines share with the agent: learn, predict, save, load.

A budget is an exact number of episodes. ``checkpoints`` are numbers of episodes (counted over all calls of
`learn`) at which ``callback(agent)`` is called, and once more when the budget is spent: learning curves are
drawn from there, outside the learner.
"""

from __future__ import annotations

import json
import os
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rpl_agent.baselines.sampling import World, world
from rpl_agent.errors import DataError, ModelError
from rpl_agent.model import Policy

FORMAT = 1


class Baseline(ABC):
    """A learner of policies for a parametric MDP's skeleton.

    Parameters
    ----------
    seed : of everything random in the learner and in the compiled simulator.
    compiled : use the environment's compiled simulator where it has one (same law, far faster).
    """

    name: ClassVar[str] = "baseline"

    def __init__(self, *, seed: int = 0, compiled: bool = True):
        self.seed = seed
        self.compiled = compiled
        self.num_episodes = 0
        self.num_timesteps = 0
        self.num_updates = 0
        self.planned_episodes = 0  # where this call of learn will end; schedules may depend on it
        self.certificate: Any = None  # only learners with guarantees have one
        self._world: World | None = None
        self._env: Any = None
        self._rng = np.random.default_rng(seed)
        self._pending: dict[str, Any] | None = None

    # ------------------------------------------------------------------ surface
    def learn(
        self,
        env: Any,
        budget: int,
        *,
        checkpoints: Sequence[int] = (),
        callback: Callable[[Baseline], None] | None = None,
    ) -> Baseline:
        """Learn from exactly ``budget`` further episodes."""
        if budget < 1:
            raise ModelError(f"budget {budget} must be at least one episode")
        self.set_env(env)
        end = self.num_episodes + int(budget)
        stops = sorted({int(c) for c in checkpoints if self.num_episodes < c < end} | {end})
        self.planned_episodes = max(self.planned_episodes, end)
        for stop in stops:
            self._learn_until(stop)
            if callback is not None:
                callback(self)
        return self

    def set_env(self, env: Any) -> None:
        """Attach an environment; a learner keeps what it knows when the model is the same one."""
        if self._world is not None and env is self._env:
            return
        attached = world(env, self.seed, self.compiled)
        if self._world is not None and self._world.pmdp.content_hash != attached.pmdp.content_hash:
            raise ModelError(f"the environment's model {attached.pmdp!r} differs from the one learned so far")
        fresh = self._world is None
        self._env, self._world = env, attached
        if fresh:
            self._reset()
        if self._pending is not None:
            self._restore(self._pending)
            self._pending = None

    @property
    def world(self) -> World:
        if self._world is None:
            raise ModelError("no environment yet: call learn or set_env first")
        return self._world

    @property
    @abstractmethod
    def policy(self) -> Policy:
        """The policy the learner recommends now."""

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_masks: Any = None,
    ) -> tuple[np.ndarray, Any]:
        """Action(s) for state index observation(s); the other arguments are those of SB3."""
        policy, pmdp = self.policy, self.world.pmdp
        rng = None if deterministic else self._rng
        states = np.atleast_1d(np.asarray(observation, dtype=np.int64))
        actions = np.array([policy.action(pmdp, int(s), rng) for s in states])
        return (actions if np.ndim(observation) else actions[0]), state

    # ------------------------------------------------------------------ for subclasses
    @abstractmethod
    def _reset(self) -> None:
        """Make the arrays for a model seen for the first time."""

    @abstractmethod
    def _learn_until(self, episodes: int) -> None:
        """Continue until exactly so many episodes are done."""

    @abstractmethod
    def _config(self) -> dict[str, Any]:
        """Constructor arguments, as JSON."""

    @abstractmethod
    def _arrays(self) -> dict[str, np.ndarray]:
        """Everything learned, as arrays."""

    @abstractmethod
    def _set_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        """Inverse of `_arrays`."""

    # ------------------------------------------------------------------ files: JSON and npz in a zip, no pickle
    def save(self, path: str | os.PathLike) -> None:
        """Write everything learned; the file appears whole or not at all."""
        meta = {
            "format": FORMAT, "class": type(self).__name__, "config": self._config(),
            "model": self.world.pmdp.content_hash, "episodes": self.num_episodes, "timesteps": self.num_timesteps,
            "updates": self.num_updates, "planned": self.planned_episodes, "rng": self._rng.bit_generator.state,
            "sampler": self.world.sampler.get_state(),
        }  # fmt: skip
        buffer = BytesIO()
        np.savez(buffer, **self._arrays())  # type: ignore[arg-type]  # taken for allow_pickle by the stubs
        target = Path(path)
        temporary = target.with_name(target.name + ".part")
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("meta.json", json.dumps(meta))
            archive.writestr("arrays.npz", buffer.getvalue())
        os.replace(temporary, target)

    @classmethod
    def load(cls, path: str | os.PathLike, env: Any = None) -> Baseline:
        """Read a saved learner; without an environment it waits for `set_env`."""
        try:
            with zipfile.ZipFile(path) as archive:
                meta = json.loads(archive.read("meta.json"))
                with np.load(BytesIO(archive.read("arrays.npz")), allow_pickle=False) as data:
                    arrays = {key: data[key] for key in data.files}
        except (zipfile.BadZipFile, KeyError, ValueError, OSError) as error:
            raise DataError(f"{os.fspath(path)!r} is not a saved baseline: {error}") from None
        if meta.get("class") != cls.__name__ or meta.get("format") != FORMAT:
            raise DataError(f"{os.fspath(path)!r} holds a {meta.get('class')}, not a {cls.__name__}")
        agent = cls(**meta["config"])
        agent._pending = {"meta": meta, "arrays": arrays}
        if env is not None:
            agent.set_env(env)
        return agent

    def _restore(self, pending: dict[str, Any]) -> None:
        meta = pending["meta"]
        if meta["model"] != self.world.pmdp.content_hash:
            raise DataError(f"the saved learner is for another model than {self.world.pmdp!r}")
        self.num_episodes, self.num_timesteps = meta["episodes"], meta["timesteps"]
        self.num_updates, self.planned_episodes = meta["updates"], meta["planned"]
        self._rng.bit_generator.state = meta["rng"]
        self.world.sampler.set_state(meta["sampler"])
        self._set_arrays(pending["arrays"])
