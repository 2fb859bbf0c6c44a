"""`World`: a benchmark at its true parameters, as arrays for a single environment and for a vector of lanes.

Reward of an environment (Gymnasium maximises): for a reward objective the reward of the pair that was left, with a
minus sign for costs; for a reachability objective 1 on entering the target (−1 when it is to be minimised).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.error import InvalidAction

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Kind, Objective, ParametricMDP, Sense, Simulator, StateIndex
from rpl_agent.core.model.simulate import absorbing_states, running_sums
from rpl_envs.benchmark import Benchmark, benchmark

Theta = Sequence[float] | Mapping[str, float]


class DisabledAction(ModelError, InvalidAction):
    """The action is not enabled in the state; `info["action_mask"]` says which are."""


class World:
    """A benchmark at its true parameters. The parameters are private to the simulation."""

    def __init__(self, source: Benchmark, theta: tuple[float, ...]):
        pmdp = source.pmdp
        self.pmdp = pmdp
        self._mdp = pmdp.instantiate(np.array(theta))
        task = source.objective.resolve(self._mdp.pmdp)  # rewards that depend on the parameters: at the true ones
        self.objective = source.objective
        self.renderer = source.renderer
        self.max_episode_steps = source.max_episode_steps
        sign = 1.0 if source.objective.sense is Sense.MAX else -1.0
        self.reward = sign * task.paid(pmdp) + 0.0  # (R,); + 0.0 turns −0.0 into 0.0
        self.arrival = np.where(task.target, sign if source.objective.kind is Kind.REACH else 0.0, 0.0)  # (S,)
        self.terminal = task.decided | absorbing_states(pmdp)
        self._cumulative = running_sums(pmdp.row_ptr, self._mdp.probability)
        low = np.array([v.min() for v in pmdp.variables.values()], dtype=float)
        high = np.array([v.max() for v in pmdp.variables.values()], dtype=float)
        self._low, self._width = low, np.where(high > low, high - low, 1.0)

    def features(self, states: int | np.ndarray) -> np.ndarray:
        """(..., V) float32 state variables scaled to [0, 1]."""
        values = np.stack([np.asarray(v[states], dtype=float) for v in self.pmdp.variables.values()], axis=-1)
        return ((values - self._low) / self._width).astype(np.float32)

    def state_of_features(self, observation: np.ndarray) -> StateIndex:
        """The inverse of `features`."""
        values = np.rint(np.asarray(observation, dtype=float) * self._width + self._low).astype(np.int64)
        state = StateIndex(self.pmdp.state_index(tuple(values.tolist())))
        if not np.array_equal(self.features(state), observation):
            raise ModelError(f"no state has the features {observation}")
        return state

    def observation_space(self, observation: str) -> spaces.Space[Any]:
        if observation == "discrete":
            return spaces.Discrete(self.pmdp.num_states)
        if observation == "features":
            if not self.pmdp.variables:
                raise ModelError(f"model {self.pmdp.name!r} has no state variables to observe as features")
            return spaces.Box(0.0, 1.0, (len(self.pmdp.variables),), np.float32)
        raise ModelError(f'observation {observation!r} is neither "discrete" nor "features"')

    def disabled(self, state: int, action: int) -> DisabledAction:
        """The error for an action that the state does not have."""
        pmdp = self.pmdp
        names = [f"{i} ({pmdp.action_names[i]!r})" for i in np.flatnonzero(pmdp.action_mask(state))]
        known = 0 <= action < pmdp.num_actions
        given = f"action {action} ({pmdp.action_names[action]!r})" if known else f"action {action}"
        return DisabledAction(
            f"{given} is not enabled in state {state} = {pmdp.state_name(state)}; enabled are {', '.join(names)}"
        )

    def pass_silent(self, state: int, rng: np.random.Generator) -> tuple[int, float]:
        """(state, reward) after skipping the silent states that start here (random starts, intermediate payments)."""
        pmdp, paid = self.pmdp, 0.0
        while pmdp.is_silent[state]:
            row = int(pmdp.state_ptr[state])
            paid += float(self.reward[row])
            low, high = pmdp.row_ptr[row], pmdp.row_ptr[row + 1]
            drawn = rng.random() if high - low > 1 else 0.0
            state = int(pmdp.successor[low + int(np.searchsorted(self._cumulative[low:high], drawn, side="right"))])
        return state, paid

    def simulator(self, seed: int, max_steps: int | None = None) -> Simulator:
        """Compiled episodes of this world, under its law and with its returns."""
        steps = self.max_episode_steps if max_steps is None else max_steps
        return Simulator(self._mdp, self.terminal, steps, seed, self.reward, self.arrival)


class PublicKnowledge:
    """What an environment, or each lane of a vector, reveals about its world: everything but the parameters."""

    _world: World
    _features: bool

    @property
    def pmdp(self) -> ParametricMDP:
        """The known structure; the parameters are not in it."""
        return self._world.pmdp

    @property
    def objective(self) -> Objective:
        return self._world.objective

    def observation_to_state(self, observation: Any) -> StateIndex:
        """The observed state, given by its number or its features."""
        return self._world.state_of_features(observation) if self._features else StateIndex(observation)

    def simulator(self, seed: int = 0, max_steps: int | None = None) -> Simulator:
        """Compiled episodes with the law of the environment; use its ``run`` only, its parameters are hidden."""
        return self._world.simulator(seed, max_steps)


def world(source: str | Benchmark, theta: Theta | None = None, **size: Any) -> World:
    """The world of a benchmark (by name, id or object), at its own parameters or at ``theta``."""
    if isinstance(source, Benchmark):
        if size:
            raise ModelError(f"size keywords {sorted(size)} need a benchmark's name, not an object")
    else:
        source = benchmark(source, **size)
    if isinstance(theta, Mapping):
        missing = set(source.pmdp.table.parameters) ^ set(theta)
        if missing:
            raise ModelError(f"theta and the model differ in parameters {sorted(missing)}")
        theta = [theta[name] for name in source.pmdp.table.parameters]
    chosen = source.theta if theta is None else theta
    return _cached(source, tuple(float(v) for v in chosen))


@lru_cache(maxsize=16)
def _cached(source: Benchmark, theta: tuple[float, ...]) -> World:
    return World(source, theta)
