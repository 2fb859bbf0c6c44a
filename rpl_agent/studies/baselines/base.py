"""The interface that all baselines share with the agent: learn, predict, save, load.

They use the agent's own parts: one attachment (wrappers, time limits, observation_to_state, checked rewards),
one stream of episodes, one checkpoint format. So comparisons differ only in the learner.

A budget is an exact number of episodes. ``checkpoints`` are numbers of episodes (counted over all calls of
`learn`) at which ``callback(agent)`` is called, and once more at the end of the budget: learning curves are
computed there, outside the learner.
"""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from rpl_agent.agent.sampling.experience import Experience, Request, SampledBatch, StreamState
from rpl_agent.agent.sampling.stream import Stream, set_generator
from rpl_agent.agent.schedule import Limits
from rpl_agent.agent.storage import checkpoint
from rpl_agent.agent.world.acting import ActingPolicy, predict_action
from rpl_agent.agent.world.attach import Attachment, attach
from rpl_agent.agent.world.observations import Env, StateOf
from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Objective, ParametricMDP, Policy
from rpl_agent.core.schema import Whole, jsonable, read

#: Arguments that are code or models of the user's.
NOT_STORED = {"observation_to_state", "attachment"}


@dataclass
class SavedLearner:
    """state.json of a learner."""

    learner: str
    config: dict[str, Any]
    model: str
    rng: dict[str, Any]
    source: StreamState
    episodes: Whole
    timesteps: Whole
    updates: Whole
    planned: Whole
    sources: Whole


class Baseline(ABC):
    """A learner of policies for a parametric MDP's skeleton.

    seed : for everything random in the learner and in the stream of episodes.
    compiled : use the environment's compiled simulator if it has one (same law, far faster).
    observation_to_state : maps an observation to a state, if the environment's observations are not states.
    attachment : further keywords of `attach`, such as ``pmdp`` and ``objective``; not stored in files.
    """

    name: ClassVar[str] = "baseline"
    certificate: Any = None  # only learners with guarantees have one
    mode: str = "robust"  # `predict` uses the policy that the learner recommends
    weight: float = 1.0  # of its action while sampling

    def __init__(
        self,
        *,
        seed: int = 0,
        compiled: bool = True,
        observation_to_state: StateOf | None = None,
        attachment: Mapping[str, Any] | None = None,
    ):
        self.seed = seed
        self.compiled = compiled
        self.observation_to_state = observation_to_state
        self.attachment = {"state_of": observation_to_state, **(attachment or {})}
        if isinstance(self.attachment.get("objective"), str):
            self.attachment["objective"] = Objective.parse(self.attachment["objective"])
        self.num_episodes = 0
        self.num_timesteps = 0
        self.num_updates = 0
        self.planned_episodes = 0  # the end of this call of learn; schedules may depend on it
        self.experience: Experience
        self._world: Attachment | None = None
        self._stream: Stream
        self._sources = 0
        self._rng = np.random.default_rng(seed)
        self.acting_rng = np.random.default_rng([seed, 1])  # separate: acting does not change what is learned
        self.warned_of_steps = False
        self._pending: tuple[SavedLearner, dict[str, np.ndarray]] | None = None

    # ------------------------------------------------------------------ surface
    def learn(
        self,
        env: Env,
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

    def set_env(self, env: Env) -> None:
        """Attach an environment; a learner keeps what it knows if the model is the same."""
        if self._world is not None and env is self._world.env:
            return
        attached = self._without_added_horizon(attach(env, **self.attachment, compiled=self.compiled))
        if attached.objective.horizon is not None:
            raise ModelError("baselines plan stationary policies: finite-horizon objectives are not supported")
        if attached.limits:
            raise ModelError("baselines keep no limits: leave them out, or learn with RPLAgent(subject_to=...)")
        if self._world is not None and self._world.pmdp.content_hash != attached.pmdp.content_hash:
            raise ModelError(f"the environment's model {attached.pmdp!r} differs from the one learned so far")
        fresh, opening = self._world is None, [] if self._world is None else self._stream.opening
        self._world = attached
        stored = None
        if fresh:
            self.experience = Experience(attached.pmdp)
            self._reset()
            if self._pending is not None:
                stored = self._restore(*self._pending)
                opening, self._pending = stored.opening, None
        self._stream = Stream(attached, self.experience, self._rng, self._fresh_seed, opening, stored)

    def _without_added_horizon(self, attached: Attachment) -> Attachment:
        """Without the horizon that `attach` gives to totals of gains and costs, if every play is over before it."""
        asked, horizon = self.attachment.get("objective"), attached.objective.horizon
        cuts = horizon is not None and attached.limit is not None and horizon >= attached.limit
        if asked is None or asked.horizon is not None or cuts:
            return attached
        return replace(attached, objective=replace(attached.objective, horizon=None))

    def _fresh_seed(self) -> int:
        """As `Session.fresh_seed`: never one that was used to draw data before."""
        sequence = np.random.SeedSequence([self.seed, 2, self.num_timesteps, self._sources])
        self._sources += 1
        return int(sequence.generate_state(1, np.uint64)[0])

    @property
    def world(self) -> Attachment:
        if self._world is None:
            raise ModelError("no environment yet: call learn or set_env first")
        return self._world

    @property
    def pmdp(self) -> ParametricMDP:
        return self.world.pmdp

    @property
    def objective(self) -> Objective:
        return self.world.objective

    @property
    @abstractmethod
    def policy(self) -> Policy:
        """The policy that the learner recommends now."""

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[np.ndarray, Any]:
        """Action(s) for one observation or a batch of them, as `RPLAgent.predict`."""
        return predict_action(self, observation, state, episode_start, deterministic)

    def as_policy(self, deterministic: bool = True) -> ActingPolicy:
        """The policy as a function of observations, as `RPLAgent.as_policy`."""
        return ActingPolicy(self, deterministic)

    # ------------------------------------------------------------------ for subclasses
    def _sample(self, policy: Policy, episodes: int, row_limit: np.ndarray | None = None) -> None:
        """Sample up to this many episodes; stop after one in which a row's visits reach its limit (R,)."""
        done = SampledBatch()
        try:
            self._stream.collect(Request(policy, Limits(rows=row_limit), episodes, episodes), done)
        finally:
            self.num_episodes += done.episodes
            self.num_timesteps += done.steps

    @abstractmethod
    def _reset(self) -> None:
        """Allocate the arrays for a new model."""

    @abstractmethod
    def _learn_until(self, episodes: int) -> None:
        """Continue until exactly this many episodes are done."""

    @abstractmethod
    def _arrays(self) -> dict[str, np.ndarray]:
        """Everything learned besides the counts, as arrays."""

    @abstractmethod
    def _set_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        """Inverse of `_arrays`."""

    # ------------------------------------------------------------------ files
    def _config(self) -> dict[str, Any]:
        """Constructor arguments by name; a learner keeps each as an attribute, as in scikit-learn."""
        signatures = [inspect.signature(kind) for kind in type(self).__mro__ if issubclass(kind, Baseline)]
        keywords = {p.name for s in signatures for p in s.parameters.values() if p.kind is p.KEYWORD_ONLY}
        return {name: getattr(self, name) for name in sorted(keywords - NOT_STORED)}

    def save(self, path: str | os.PathLike) -> None:
        """Write everything learned, in the agent's format, atomically."""
        state = SavedLearner(
            type(self).__name__,
            self._config(),
            self.world.pmdp.content_hash,
            dict(self._rng.bit_generator.state),
            self._stream.get_state(),
            self.num_episodes,
            self.num_timesteps,
            self.num_updates,
            self.planned_episodes,
            self._sources,
        )
        counts = {f"counts.{name}": array for name, array in self.experience.counts.to_arrays().items()}
        checkpoint.write(path, jsonable(state), self._arrays() | counts)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        env: Env | None = None,
        *,
        observation_to_state: StateOf | None = None,
        attachment: Mapping[str, Any] | None = None,
    ) -> Baseline:
        """Load a saved learner; without an environment it waits for `set_env`."""
        state, arrays = checkpoint.read_latest(path)
        saved = read(state, SavedLearner, os.fspath(path))
        if saved.learner != cls.__name__:
            raise DataError(f"{os.fspath(path)!r} holds a {saved.learner}, not a {cls.__name__}")
        try:
            # version 0.2 wrote greedy_weight
            config = {"weight" if key == "greedy_weight" else key: value for key, value in saved.config.items()}
            agent = cls(**config, observation_to_state=observation_to_state, attachment=attachment)
        except TypeError as error:
            raise DataError(f"{os.fspath(path)!r}: {error}") from None
        agent._pending = (saved, arrays)
        if env is not None:
            agent.set_env(env)
        return agent

    def _restore(self, saved: SavedLearner, arrays: dict[str, np.ndarray]) -> StreamState:
        """Restore everything but the stream, whose state is returned."""
        if saved.model != self.world.pmdp.content_hash:
            self._world = None
            raise DataError("the saved learner belongs to another model than this environment's")
        self.num_episodes, self.num_timesteps, self.num_updates = saved.episodes, saved.timesteps, saved.updates
        self.planned_episodes, self._sources = saved.planned, saved.sources
        set_generator(self._rng, saved.rng)
        counts = {k.removeprefix("counts."): v for k, v in arrays.items() if k.startswith("counts.")}
        try:
            self.experience = Experience(self.world.pmdp, Counts.from_arrays(self.world.pmdp, counts))
            self._set_arrays(arrays)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"the saved learner is not readable: {error}") from None
        return saved.source
