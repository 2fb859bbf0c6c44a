"""From observations to actions, as in Stable-Baselines3: for the agent, with a model or without, and for baselines."""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import numpy as np

from rpl_agent.agent.world.observations import StateOf, StateReader, observation_space, part
from rpl_agent.core.errors import ModelError, RPLWarning
from rpl_agent.core.model import Objective, ParametricMDP, Policy

LOOP = "policy = agent.as_policy(); policy.reset() at every env.reset(), and action = policy(observation)"


class Actor(Protocol):
    """Anything with a policy and an environment to act in."""

    warned_of_steps: bool  # that a policy depends on the step

    @property
    def mode(self) -> str: ...

    @property
    def policy(self) -> Policy: ...

    @property
    def pmdp(self) -> ParametricMDP: ...

    @property
    def objective(self) -> Objective: ...

    @property
    def world(self) -> Any: ...

    @property
    def observation_to_state(self) -> StateOf | None: ...

    @property
    def weight(self) -> float: ...

    @property
    def acting_rng(self) -> np.random.Generator: ...

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]: ...


class ActingPolicy:
    """The agent's policy with its own step counter, for policies that depend on the step.

    Call `reset` at every ``env.reset()``, then the object itself with every observation.
    """

    def __init__(self, agent: Actor, deterministic: bool = True):
        self._agent = agent
        self._deterministic = deterministic
        self._memory: Any = None

    def reset(self) -> None:
        """Begin an episode."""
        self._memory = None

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool | None = None
    ) -> tuple[np.ndarray, Any]:
        """As `RPLAgent.predict`, for `evaluate_policy` of Stable-Baselines3; ``state`` counts the steps."""
        chosen = self._deterministic if deterministic is None else deterministic
        return self._agent.predict(observation, state, episode_start, chosen)

    def __call__(self, observation: Any) -> Any:
        """The action for the next observation of the episode."""
        horizon = self._agent.objective.horizon
        if horizon is not None and self._memory is not None and self._memory[0][0] >= horizon:
            raise ModelError(f"the horizon of {horizon} steps is over: call reset() at every env.reset()")
        start = np.array([self._memory is None])
        action, self._memory = self._agent.predict(observation, self._memory, start, self._deterministic)
        return action


def predict_action(
    actor: Actor, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
) -> tuple[np.ndarray, Any]:
    """Action(s) for one observation or a batch of them, and the number of steps of each episode so far.

    A randomised policy is always drawn from: its mode is another policy.
    """
    single = not _is_batch(actor, observation)
    observations = [observation] if single else _split(actor, observation)
    policy, pmdp, rng = actor.policy, actor.pmdp, None
    if state is None and episode_start is None and policy.rows is not None and policy.rows.ndim > 1:
        _need_memory(actor, single)
    steps = _steps(state, episode_start, len(observations))
    if actor.mode == "optimistic" and not deterministic and policy.is_deterministic:
        policy, rng = policy.at(0).mixed(pmdp, actor.weight), actor.acting_rng
    rng = rng if policy.is_deterministic else actor.acting_rng
    before = None if state is None else state[1:]
    states = [_state(actor, item, int(k), before, i) for i, (item, k) in enumerate(zip(observations, steps))]
    rows = [policy.row(pmdp, s, rng, pmdp.solver_step(int(k))) for s, k in zip(states, steps)]
    actions = pmdp.action[rows].astype(np.int64)
    result = actions if actor.world is None else actor.world.actions.numbers[actions]
    return (result[0] if single else result), (steps + 1, np.array(states), actions)


def _steps(state: Any, episode_start: Any, number: int) -> np.ndarray:
    """(n,) steps that each episode has taken so far."""
    steps = np.zeros(number, dtype=np.int64) if state is None else np.atleast_1d(state[0]).copy()
    if episode_start is not None:
        steps[np.atleast_1d(np.asarray(episode_start, dtype=bool))] = 0
    return steps


def predict_open(agent: Any, observation: Any, state: Any, episode_start: Any) -> tuple[Any, Any]:
    """As `predict_action`, for an agent without a model; states never seen get the policy's action for these."""
    session, world = agent.session, agent.session.world
    single = not _is_batch(agent, observation)
    observations = [observation] if single else _split(agent, observation)
    horizon = session.assumptions.horizon
    if state is None and episode_start is None and horizon is not None:
        _need_memory(agent, single)
    steps = _steps(state, episode_start, len(observations))
    chosen = []
    for item, step in zip(observations, steps.tolist()):
        found = session.experience.data.find(world.state(item, lambda: "predict"))
        layer = 0 if horizon is None else max(horizon - 1 - step, 0)
        if agent.mode == "optimistic":
            chosen.append(0 if found is None else session.experience.explore(found, layer))
        else:
            chosen.append(session.policy.action(found, layer))
    commands = [world.actions[action] for action in chosen]
    return (commands[0] if single else np.array(commands)), (steps + 1,)


def _need_memory(actor: Actor, single: bool) -> None:
    """Require a step count for a policy with a rule per step."""
    why = "the policy depends on the step, and predict() was called without state"
    if not single:
        raise ModelError(f"{why}: pass the state that it returned, or episode_start for first steps")
    if not actor.warned_of_steps:
        actor.warned_of_steps = True
        warnings.warn(f"{why}: this is the action for the first step only. Use: {LOOP}", RPLWarning, stacklevel=4)


def _is_batch(actor: Actor, observation: Any) -> bool:
    """Whether the observation has one more dimension than the environment's observations."""
    space = None if actor.world is None else observation_space(actor.world.env)
    part, shape = observation, getattr(space, "shape", None)
    if isinstance(observation, dict) and hasattr(space, "spaces"):
        key = next(iter(observation))
        part, shape = observation[key], getattr(space.spaces[key], "shape", None)  # type: ignore[union-attr]
    elif isinstance(observation, tuple):
        if space is None or not hasattr(space, "spaces"):
            return False
        part, shape = observation[0], getattr(space.spaces[0], "shape", None)
    if isinstance(part, (str, bytes)):
        return False
    return np.ndim(part) > (0 if shape is None else len(shape))


def _split(actor: Actor, observation: Any) -> list[Any]:
    space = None if actor.world is None else observation_space(actor.world.env)
    leaf = observation
    while isinstance(leaf, (dict, tuple)):
        leaf = next(iter(leaf.values())) if isinstance(leaf, dict) else leaf[0]
    return [part(observation, i, space) for i in range(len(leaf))]


def _state(actor: Actor, observation: Any, step: int, before: Any, i: int) -> int:
    reader = StateReader(actor.pmdp, actor.observation_to_state) if actor.world is None else actor.world.reader
    try:
        if step == 0 or before is None:
            return reader.first(observation)
        return reader.next(int(before[0][i]), int(before[1][i]), observation)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"observation {observation!r} is not a state of {actor.pmdp!r}: {error}") from error
