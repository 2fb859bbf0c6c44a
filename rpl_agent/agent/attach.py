"""From an environment to what the agent may use of it: the model, the objective, a source of data.

Read from an environment are: its ``pmdp``, ``objective`` and ``simulator`` attributes, its spaces and its spec. True
parameters, kernels (``P``) and ``info`` are never touched.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpl_agent.agent.sampling import EnvSource, Experience, SimulatorSource, Source, StateOf, StepBook
from rpl_agent.agent.vector_sampling import VectorSource
from rpl_agent.errors import ModelError
from rpl_agent.model.objective import Kind, Objective, Sense
from rpl_agent.model.pmdp import ParametricMDP

#: Wrappers that change nothing about the law of an episode (TimeLimit's length is taken over).
TRANSPARENT = ("TimeLimit", "OrderEnforcing", "PassiveEnvChecker")


@dataclass(frozen=True)
class World:
    """An environment with the model that explains it."""

    env: Any
    pmdp: ParametricMDP
    objective: Objective
    is_vector: bool
    spec: dict[str, Any] | None  # how to make the environment again, as JSON
    rewards: np.ndarray | None  # (T,) what a transition pays according to the model, None where it does not say
    state_of: StateOf | None
    action_start: int
    compiled: bool

    def source(self, experience: Experience, rng: np.random.Generator, seed: int) -> Source:
        """A fresh stream of episodes."""
        if self.compiled:
            simulator = attribute(self.env, "simulator")(seed)
            limit = _time_limit(self.env)
            if limit is not None:
                simulator.max_steps = min(simulator.max_steps, limit)
            return SimulatorSource(simulator, experience)
        book = StepBook(experience, self.state_of, self.rewards)
        kind = VectorSource if self.is_vector else EnvSource
        return kind(self.env, book, rng, int(seed % 2**31), self.action_start)


def attribute(env: Any, name: str) -> Any:
    """An attribute of an environment, through wrappers and vector environments; None if there is none."""
    if hasattr(env, "num_envs"):
        found = getattr(env, name, None)
        if found is None and hasattr(env, "get_attr"):
            try:
                found = env.get_attr(name)[0]
            except AttributeError:
                return None
        return found
    try:
        return env.get_wrapper_attr(name)
    except AttributeError:
        return None


def attach(
    env: Any,
    *,
    pmdp: ParametricMDP | None = None,
    objective: Objective | None = None,
    state_of: StateOf | None = None,
    compiled: bool = True,
    check_rewards: bool | None = None,
) -> World:
    """Check an environment against the model; errors say what to pass.

    Rewards are checked by default where the environment names model and objective itself: then it promises
    `model_rewards`. With a model passed in, its rewards may be anything.
    """
    if not (hasattr(env, "step") and hasattr(env, "reset") and hasattr(env, "action_space")):
        raise ModelError(f"{type(env).__name__} is not a Gymnasium environment")
    model = pmdp if pmdp is not None else attribute(env, "pmdp")
    if not isinstance(model, ParametricMDP):
        raise ModelError(f"{_name(env)} has no attribute 'pmdp': pass the ParametricMDP that explains it as pmdp=...")
    goal = objective if objective is not None else attribute(env, "objective")
    if not isinstance(goal, Objective):
        raise ModelError(f"{_name(env)} has no attribute 'objective': pass what is wanted as objective=...")
    goal.resolve(model)
    state_of = state_of if state_of is not None else attribute(env, "observation_to_state")
    is_vector = hasattr(env, "num_envs")
    action_start, observation_start = _check_spaces(env, model, state_of, is_vector)
    if state_of is None and observation_start:
        state_of = lambda observation: int(observation) - observation_start  # noqa: E731
    fast = compiled and not is_vector and attribute(env, "simulator") is not None and _is_transparent(env)
    if check_rewards is None:
        check_rewards = attribute(env, "pmdp") is not None and attribute(env, "objective") == goal
    rewards = model_rewards(model, goal) if check_rewards else None
    return World(env, model, goal, is_vector, _spec(env), rewards, state_of, action_start, fast)


def _check_spaces(env: Any, pmdp: ParametricMDP, state_of: StateOf | None, is_vector: bool) -> tuple[int, int]:
    from gymnasium.spaces import Discrete

    action_space = env.single_action_space if is_vector else env.action_space
    observation_space = env.single_observation_space if is_vector else env.observation_space
    if not isinstance(action_space, Discrete) or action_space.n != pmdp.num_actions:
        raise ModelError(
            f"the action space of {_name(env)} is {action_space}, the model has {pmdp.num_actions} actions "
            f"{pmdp.action_names[:8]}: it must be Discrete({pmdp.num_actions})"
        )
    if state_of is not None:
        return int(action_space.start), 0
    if not isinstance(observation_space, Discrete) or observation_space.n != pmdp.num_states:
        raise ModelError(
            f"the observation space of {_name(env)} is {observation_space}, the model has {pmdp.num_states} states: "
            f"it must be Discrete({pmdp.num_states}), or pass observation_to_state=... that maps it to a state index"
        )
    return int(action_space.start), int(observation_space.start)


def model_rewards(pmdp: ParametricMDP, objective: Objective) -> np.ndarray:
    """(T,) what an environment pays per transition: the reward of the pair that was left (negative for costs), or,
    for reachability, ±1 on entering the target."""
    task = objective.resolve(pmdp)
    sign = 1.0 if objective.sense is Sense.MAX else -1.0
    arrival = np.where(task.target, sign if objective.kind is Kind.REACH else 0.0, 0.0)
    return sign * task.reward[pmdp.transition_row] + arrival[pmdp.successor]


def _is_transparent(env: Any) -> bool:
    """Whether nothing stands between us and the simulator that could change the law."""
    while env is not env.unwrapped:
        if type(env).__name__ not in TRANSPARENT:
            return False
        env = env.env
    return True


def _time_limit(env: Any) -> int | None:
    limits = []
    while env is not env.unwrapped:
        if type(env).__name__ == "TimeLimit":
            limits.append(int(env._max_episode_steps))
        env = env.env
    return min(limits, default=None)


def _spec(env: Any) -> dict[str, Any] | None:
    """Id and keyword arguments, where the environment is a registered one and they are plain data."""
    spec = getattr(env, "spec", None)
    if spec is None:
        return None
    kwargs = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in spec.kwargs.items() if k != "render_mode"}
    try:
        return json.loads(json.dumps({"id": spec.id, "kwargs": kwargs}))
    except TypeError:
        return {"id": spec.id, "kwargs": None}


def _name(env: Any) -> str:
    spec = getattr(env, "spec", None)
    return spec.id if spec is not None else type(getattr(env, "unwrapped", env)).__name__


def make_env(spec: dict[str, Any] | None) -> Any:
    """The environment of a checkpoint. Only registered ids are made: a file cannot name code to run."""
    import gymnasium as gym

    import rpl_envs  # noqa: F401  (registers our ids)

    spec = spec or {}
    identifier, kwargs = spec.get("id"), spec.get("kwargs")
    if not isinstance(identifier, str) or identifier not in gym.registry or not isinstance(kwargs, dict):
        raise ModelError(f"the environment {identifier!r} of the checkpoint cannot be made again: pass env=...")
    return gym.make(identifier, **kwargs)
