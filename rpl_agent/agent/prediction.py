"""From observations to actions: SB3's ``predict`` for one observation or a batch of them, and a policy that counts."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from rpl_agent.agent.world.env_facts import observation_space
from rpl_agent.agent.world.observations import StateReader
from rpl_agent.errors import ModelError, RPLWarning

if TYPE_CHECKING:
    from rpl_agent.agent.rpl import RPLAgent

LOOP = "policy = agent.as_policy(); policy.reset() with every env.reset(), and action = policy(observation)"


class ActingPolicy:
    """The agent's policy with its own count of steps, for policies that depend on how many steps have been made.

    Call `reset` with every ``env.reset()``, then the object itself with every observation.
    """

    def __init__(self, agent: RPLAgent, deterministic: bool = True):
        self._agent = agent
        self._deterministic = deterministic
        self._memory: Any = None

    def reset(self) -> None:
        """An episode begins."""
        self._memory = None

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool | None = None
    ) -> tuple[np.ndarray, Any]:
        """As `RPLAgent.predict`, for `evaluate_policy` of Stable-Baselines3: the steps are counted in ``state``."""
        chosen = self._deterministic if deterministic is None else deterministic
        return predict(self._agent, observation, state, episode_start, chosen)

    def __call__(self, observation: Any) -> Any:
        """The action for the next observation of the episode."""
        horizon = self._agent.objective.horizon
        if horizon is not None and self._memory is not None and self._memory[0][0] >= horizon:
            raise ModelError(f"{horizon} steps have been made: call reset() with every env.reset()")
        start = np.array([self._memory is None])
        action, self._memory = predict(self._agent, observation, self._memory, start, self._deterministic)
        return action


def predict(
    agent: RPLAgent, observation: Any, state: Any, episode_start: Any, deterministic: bool
) -> tuple[np.ndarray, Any]:
    """See `RPLAgent.predict`."""
    single = not _is_batch(agent, observation)
    observations = [observation] if single else _split(observation)
    policy, rng = agent.policy, None
    if state is None and episode_start is None:
        _need_memory(agent, policy, single)
    steps = np.zeros(len(observations), dtype=np.int64) if state is None else np.atleast_1d(state[0]).copy()
    if episode_start is not None:
        steps[np.atleast_1d(np.asarray(episode_start, dtype=bool))] = 0
    if agent.mode == "optimistic" and not deterministic and policy.is_deterministic:
        policy, rng = policy.at(0).mixed(agent.pmdp, agent.weight), agent.acting_rng
    before = None if state is None else state[1:]
    states = [_state(agent, item, int(k), before, i) for i, (item, k) in enumerate(zip(observations, steps))]
    rows = [policy.row(agent.pmdp, s, rng, agent.pmdp.solver_step(int(k))) for s, k in zip(states, steps)]
    actions = agent.pmdp.action[rows].astype(np.int64)
    result = actions if agent.world is None else agent.world.actions[actions]
    return (result[0] if single else result), (steps + 1, np.array(states), actions)


def _need_memory(agent: RPLAgent, policy: Any, single: bool) -> None:
    """A policy with a rule per step cannot be played without a count of steps."""
    if policy.rows is None or policy.rows.ndim == 1:
        return
    why = "the policy depends on the number of steps made, and predict() was not given its state"
    if not single:
        raise ModelError(f"{why}: pass the state it returned, or episode_start for first steps")
    if not agent.warned_of_steps:
        agent.warned_of_steps = True
        warnings.warn(f"{why}: this is the decision of the first step only. Right is: {LOOP}", RPLWarning, stacklevel=4)


def _is_batch(agent: RPLAgent, observation: Any) -> bool:
    """Whether the observation has one more dimension than the environment's observations have."""
    space = None if agent.world is None else observation_space(agent.world.env)
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


def _split(observation: Any) -> list[Any]:
    if isinstance(observation, dict):
        count = len(next(iter(observation.values())))
        return [{key: value[i] for key, value in observation.items()} for i in range(count)]
    if isinstance(observation, tuple):
        return [tuple(value[i] for value in observation) for i in range(len(observation[0]))]
    return list(observation)


def _state(agent: RPLAgent, observation: Any, step: int, before: Any, i: int) -> int:
    reader = StateReader(agent.pmdp, agent.observation_to_state) if agent.world is None else agent.world.reader
    try:
        if step == 0 or before is None:
            return reader.first(observation)
        return reader.next(int(before[0][i]), int(before[1][i]), observation)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"observation {observation!r} is not a state of {agent.pmdp!r}: {error}") from error
