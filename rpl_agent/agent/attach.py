"""From an environment to what the agent may use of it: the model, the objective, a source of data.

Read from an environment are: its ``pmdp``, ``objective``, ``observation_to_state`` and ``simulator`` attributes, its
spaces, its wrappers and its spec. True parameters, the numbers in kernels (``P``) and ``info`` are never touched.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rpl_agent.agent.book import StepBook, gains
from rpl_agent.agent.probing import (
    attribute,
    changing_wrapper,
    is_vector,
    layers,
    name_of,
    representative,
    require_environment,
    time_limit,
)
from rpl_agent.agent.reading import Observed, Reader, StateOf, check_spaces
from rpl_agent.agent.sampling import EnvSource, Experience, SimulatorSource, Source
from rpl_agent.agent.vector_sampling import VectorSource
from rpl_agent.errors import ModelError
from rpl_agent.model.objective import Kind, Objective, Sense
from rpl_agent.model.pmdp import ParametricMDP

#: Wrappers that change nothing about the law of an episode (TimeLimit's length is taken over).
TRANSPARENT = ("TimeLimit", "OrderEnforcing", "PassiveEnvChecker")


@dataclass(frozen=True)
class Attachment:
    """An environment with the model that explains it."""

    env: Any
    pmdp: ParametricMDP
    objective: Objective
    is_vector: bool
    spec: dict[str, Any] | None  # how to make the environment again, as JSON
    paid: np.ndarray | None  # (T,) what the environment pays for a transition, None where it is not compared
    reader: Reader  # from observations to states
    action_start: int
    compiled: bool
    limit: int | None = None  # steps after which episodes are cut

    def source(self, experience: Experience, rng: np.random.Generator, seed: int) -> Source:
        """A fresh stream of episodes."""
        if self.compiled:
            simulator = attribute(self.env, "simulator")(seed)
            if self.limit is not None:
                simulator.max_steps = min(simulator.max_steps, self.limit)
            return SimulatorSource(simulator, experience, self.objective)
        book = StepBook(experience, self.reader, self.objective, self.paid)
        kind = VectorSource if self.is_vector else EnvSource
        return kind(self.env, book, rng, int(seed % 2**31), self.action_start)


def attach(
    env: Any,
    *,
    pmdp: ParametricMDP | None = None,
    objective: Objective | None = None,
    state_of: StateOf | None = None,
    compiled: bool = True,
    check_rewards: bool | None = None,
    horizon: int | str | None = None,
) -> Attachment:
    """Check an environment against the model; errors say what to pass.

    Rewards are compared by default where the objective is about rewards, and where the environment names model and
    objective itself: then it promises `model_rewards`.
    """
    require_environment(env)
    with representative(env) as inner:
        named = attribute(inner, "pmdp")
        model = pmdp if pmdp is not None else named
        if not isinstance(model, ParametricMDP):
            raise ModelError(
                f"{name_of(env)} has no attribute 'pmdp': pass the ParametricMDP that explains it as pmdp=..."
            )
        is_own = isinstance(named, ParametricMDP) and named.has_states_of(model)
        promised = attribute(inner, "objective")
        goal = objective if objective is not None else promised
        if not isinstance(goal, Objective):
            raise ModelError(f"{name_of(env)} has no attribute 'objective': pass what is wanted as objective=...")
        limit = time_limit(env, inner)
        goal = _with_horizon(goal, horizon, limit, name_of(env))
        goal.resolve(model)
        if is_own:
            state_of = state_of if state_of is not None else _own_mapping(env, inner)
            _refuse_changed_actions(env, inner)
        simulator = attribute(inner, "simulator") if is_own else None
    action_start = check_spaces(env, model, state_of is not None)
    fast = compiled and not is_vector(env) and simulator is not None and _is_transparent(env)
    if check_rewards is None:
        check_rewards = goal.kind is Kind.REWARD or (is_own and promised == goal)
    paid = model_rewards(model, goal) if check_rewards else None
    reader = Observed(model, state_of, _observation_start(env, model))
    return Attachment(env, model, goal, is_vector(env), _spec(env), paid, reader, action_start, fast, limit)


def _own_mapping(env: Any, inner: Any) -> StateOf | None:
    """How the environment that names the model maps its own observations; refused where they were changed since."""
    changed = changing_wrapper(env, inner, "pmdp", "Observation")
    if changed is not None:
        raise ModelError(
            f"{name_of(env)} names its own model, but the wrapper {changed} changes what is observed: pass "
            "observation_to_state=... that maps it to a state"
        )
    return attribute(inner, "observation_to_state")


def _refuse_changed_actions(env: Any, inner: Any) -> None:
    changed = changing_wrapper(env, inner, "pmdp", "Action")
    if changed is not None:
        raise ModelError(
            f"{name_of(env)} names its own model, but the wrapper {changed} changes what actions mean: pass a "
            "pmdp=... over the changed actions"
        )


def _with_horizon(goal: Objective, horizon: int | str | None, limit: int | None, name: str) -> Objective:
    """The objective with the horizon that was asked for; "env" takes over the environment's time limit."""
    if horizon is None:
        return goal
    if horizon == "env":
        if limit is None:
            raise ModelError(f"horizon='env': {name} has no TimeLimit to take the horizon from")
        return replace(goal, horizon=limit)
    if isinstance(horizon, str):
        raise ModelError(f"horizon {horizon!r} is neither 'env' nor a number of steps")
    return replace(goal, horizon=int(horizon))


def _observation_start(env: Any, pmdp: ParametricMDP) -> int:
    """The first number of a Discrete observation space, where observations number the states."""
    space = env.single_observation_space if is_vector(env) else env.observation_space
    return int(getattr(space, "start", 0)) if pmdp.states is None else 0


def model_rewards(pmdp: ParametricMDP, objective: Objective) -> np.ndarray:
    """(T,) what an environment pays per transition: the reward of the pair that was left (negative for costs), or,
    for reachability, ±1 on entering the target."""
    return (1.0 if objective.sense is Sense.MAX else -1.0) * gains(pmdp, objective.resolve(pmdp)) + 0.0


def _is_transparent(env: Any) -> bool:
    """Whether nothing stands between us and the simulator that could change the law."""
    return all(layer is env.unwrapped or type(layer).__name__ in TRANSPARENT for layer in layers(env))


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


def make_env(spec: dict[str, Any] | None) -> Any:
    """The environment of a checkpoint. Only registered ids are made: a file cannot name code to run."""
    import gymnasium as gym

    import rpl_envs  # noqa: F401  (registers our ids)

    spec = spec or {}
    identifier, kwargs = spec.get("id"), spec.get("kwargs")
    if not isinstance(identifier, str) or identifier not in gym.registry or not isinstance(kwargs, dict):
        raise ModelError(f"the environment {identifier!r} of the checkpoint cannot be made again: pass env=...")
    return gym.make(identifier, **kwargs)
