"""What an environment shows: facts about it, read without disturbing it, and the state of the model that it is in.

A vector environment is queried through one of its sub-environments. Asking an `AsyncVectorEnv` for a missing
attribute would end its worker processes, so a sub-environment is made from the same function and closed again.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Binding, ParametricMDP, StateIndex

if TYPE_CHECKING:
    import gymnasium as gym

#: One environment of Gymnasium, or a vector of copies.
Env: TypeAlias = "gym.Env | gym.vector.VectorEnv"


def name_of(env: Any) -> str:
    spec = getattr(env, "spec", None)
    return spec.id if spec is not None else type(getattr(env, "unwrapped", env)).__name__


def is_vector(env: Any) -> TypeGuard[gym.vector.VectorEnv]:
    return hasattr(env, "num_envs")


def observation_space(env: Any) -> Any:
    """The observation space of one environment."""
    return env.single_observation_space if is_vector(env) else env.observation_space


def part(batch: Any, i: int, space: Any) -> Any:
    """One observation of a batch, of this space (None: unknown).

    Dictionaries and tuples are batched part by part. A tuple of any other space has an observation per environment.
    """
    if isinstance(batch, Mapping):
        return {key: part(value, i, None if space is None else space[key]) for key, value in batch.items()}
    if isinstance(batch, tuple):
        from gymnasium.spaces import Tuple

        if isinstance(space, Tuple):
            return tuple(part(value, i, inner) for value, inner in zip(batch, space.spaces))
    return batch[i]


def make_registered(identifier: Any, /, **keywords: Any) -> gym.Env | None:
    """The environment with a registered id; None if there is none."""
    import gymnasium as gym

    import rpl_envs  # noqa: F401  (registers our ids)

    return gym.make(identifier, **keywords) if isinstance(identifier, str) and identifier in gym.registry else None


def environment_spec(env: Env) -> dict[str, Any] | None:
    """Id and keyword arguments, if the environment is a registered one and they are plain data."""
    spec = getattr(env, "spec", None)
    if spec is None:
        return None
    kwargs = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in spec.kwargs.items() if k != "render_mode"}
    try:
        return json.loads(json.dumps({"id": spec.id, "kwargs": kwargs}))
    except TypeError:
        return {"id": spec.id, "kwargs": None}


def make_env(spec: dict[str, Any] | None) -> Any:
    """Remake the environment of a checkpoint, or None. Only registered ids: a file cannot name code to run."""
    kwargs = (spec or {}).get("kwargs")
    return make_registered((spec or {}).get("id"), **kwargs) if isinstance(kwargs, dict) else None


def refuse_policy_network(env: Any, others: tuple[Any, ...]) -> None:
    """Help users of Stable-Baselines3 who write ``RPLAgent("MlpPolicy", env)``."""
    if others or env in ("MlpPolicy", "CnnPolicy", "MultiInputPolicy"):
        raise ModelError(
            "RPLAgent takes the environment first and no policy network: its policy is a table computed from a "
            "model with unknown probabilities. Use RPLAgent(env).learn(total_timesteps=...), other settings by keyword"
        )


def require_environment(env: Any) -> None:
    """Raise unless this is a Gymnasium environment or vector environment."""
    if isinstance(env, type):
        raise ModelError(f"{env.__name__} is a class: pass an environment, {env.__name__}()")
    if isinstance(env, str):
        raise ModelError(f"{env!r} is a string: pass the environment, gymnasium.make({env!r})")
    if isinstance(env, int | float):
        raise ModelError(
            f"learn({env}): the environment comes first. A budget in steps, as in Stable-Baselines3: "
            f"learn(total_timesteps={env}); in episodes: learn(env, {env}), or learn(budget={env}) if the agent has "
            "an environment"
        )
    if is_vector(env) and hasattr(env, "step_wait") and not hasattr(env, "single_action_space"):
        raise ModelError(
            f"{type(env).__name__} is a VecEnv of Stable-Baselines3, whose resets hide the last observation: "
            "pass the environment itself, or gymnasium.make_vec(id, num_envs=...)"
        )
    if not (hasattr(env, "step") and hasattr(env, "reset") and hasattr(env, "action_space")):
        instead = ": call it and pass what it makes" if callable(env) else ""
        raise ModelError(f"{type(env).__name__} is not a Gymnasium environment{instead}")


@contextmanager
def representative(env: Any) -> Iterator[Any]:
    """One environment with the facts of all of them."""
    if not is_vector(env):
        yield env
        return
    base: Any = env.unwrapped
    if getattr(base, "envs", None):
        yield base.envs[0]
    elif getattr(base, "env_fns", None):
        made = base.env_fns[0]()
        try:
            yield made
        finally:
            made.close()
    else:
        yield base


def attribute(env: Any, name: str) -> Any:
    """An attribute of an environment, through its wrappers; None if there is none."""
    if not hasattr(env, "get_wrapper_attr"):
        return getattr(env, name, None)
    try:
        return env.get_wrapper_attr(name)
    except AttributeError:
        return None


def layers(env: Any) -> Iterator[Any]:
    """The wrappers from the outermost inward, then the environment itself."""
    while True:
        yield env
        inner = getattr(env, "env", None)
        if inner is None or env is getattr(env, "unwrapped", env):
            return
        env = inner


def changing_wrapper(env: Any, inner: Any, name: str | None, what: str) -> str | None:
    """The name of a wrapper around the owner of the attribute ``name`` that changes ``what``, or None.

    Without a name the owner is the innermost environment.

    ``what`` is "Observation" or "Action", as in the names of Gymnasium's base classes of such wrappers. ``env`` may be
    a vector environment, ``inner`` is what represents it.
    """
    bases = {f"{what}Wrapper", f"Vector{what}Wrapper"}
    outside = layers(env) if is_vector(env) else ()
    for layer in (*outside, *layers(inner)):
        if name is not None and (name in vars(layer) or hasattr(type(layer), name)):
            return None
        if bases & {base.__name__ for base in type(layer).__mro__}:
            return type(layer).__name__
    return None


def refuse_changes(env: Env, inner: Any, owner: str | None, mapped: bool) -> None:
    """Refuse wrappers around the model's environment that change observations or actions.

    Observations that the user maps (``mapped``) are the user's responsibility.
    """
    seen = None if mapped else changing_wrapper(env, inner, owner, "Observation")
    if seen is not None:
        raise ModelError(
            f"the model is about the observations of {name_of(env)}, but the wrapper {seen} changes what is observed: "
            "pass pmdp=... and observation_to_state=... that maps it to a state"
        )
    done = changing_wrapper(env, inner, owner, "Action")
    if done is not None:
        raise ModelError(
            f"the model is about the actions of {name_of(env)}, but the wrapper {done} changes what actions mean: "
            "pass a pmdp=... over the changed actions"
        )


def time_limit(env: Any, inner: Any) -> int | None:
    """Steps after which episodes are cut, according to wrappers, specs and vector environments."""
    limits = []
    for layer in layers(inner):
        if type(layer).__name__ == "TimeLimit":
            limits.append(int(layer._max_episode_steps))
    own = getattr(env, "max_episode_steps", None) if is_vector(env) else None
    if isinstance(own, int) and own > 0:
        limits.append(own)
    return min(limits, default=None)


#: A user's mapping: observation -> value of a state, or StateIndex(number) of it. If it has parameters called
#: ``terminated`` or ``info``, it gets them too (False and the info of the reset for the first state of an episode).
StateOf = Callable[..., Any]
#: The most states to compare with the observation space when attaching an environment.
CHECKED_STATES = 10_000


class StateReader:
    """Determines the state of the model: by its value, through the user's mapping, by its number, or by rules.

    end : the state that ``terminated`` means, whatever is observed then.
    binding : the rules of a world, which may depend on the previous state.
    """

    def __init__(
        self,
        pmdp: ParametricMDP,
        state_of: StateOf | None,
        start: int = 0,
        end: int | None = None,
        binding: Binding | None = None,
    ):
        self.pmdp, self.binding = pmdp, binding
        self.state_of = state_of
        self.start = start  # the first number of a Discrete space, if states are only numbered
        self.end = end
        self._asks = asked_of(state_of)

    def first(self, observation: Any, info: Any = None, terminated: bool = False) -> int:
        """State index after a reset."""
        if self.binding is not None:
            return self.pmdp.state_index(self.binding.first(observation))
        if self.state_of is not None:
            given = {"terminated": terminated, "info": info}
            return self.pmdp.state_index(self.state_of(observation, **{name: given[name] for name in self._asks}))
        if self.pmdp.states is None and self.start:
            return self.pmdp.state_index(StateIndex(observation.__index__() - self.start))
        return self.pmdp.state_index(observation)

    def next(
        self, state: int, action: int, observation: Any, reward: Any = None, terminated: bool = False, info: Any = None
    ) -> int:
        """State index after a step from ``state``; the reward is unknown when only acting."""
        if self.binding is not None:
            before = self.pmdp.state_value(state)
            return self.pmdp.state_index(self.binding.next(before, action, observation, reward, terminated))
        return self.end if terminated and self.end is not None else self.first(observation, info, terminated)


def asked_of(state_of: StateOf | None) -> list[str]:
    """Extra arguments of a user's mapping beside the observation."""
    try:
        names = inspect.signature(state_of).parameters if state_of is not None else ()
    except (TypeError, ValueError):  # of a class or function written in C
        names = ()
    return [name for name in ("terminated", "info") if name in names]


def check_observations(env: Any, pmdp: ParametricMDP, end: int | None = None) -> None:
    """Refuse a space in which some state of the model could never be observed (except the one for ``terminated``)."""
    from gymnasium.spaces import Dict, Discrete, Text

    space = observation_space(env)
    seen = f"the observation space of {name_of(env)} is {space}"
    if pmdp.states is None:
        if not isinstance(space, Discrete) or space.n != pmdp.num_states:
            raise ModelError(
                f"{seen}, but the model has {pmdp.num_states} states without values: it must be "
                f"Discrete({pmdp.num_states}), or pass observation_to_state=... that maps it to a state"
            )
        return
    for index in np.flatnonzero(~pmdp.is_silent[:CHECKED_STATES]).tolist():
        value = pmdp.state_value(index)
        if index == end:
            continue
        if pmdp.variables and isinstance(value, tuple) and len(value) == 1:
            value = value[0]
        if isinstance(space, Discrete):
            fits = hasattr(value, "__index__") and space.start <= int(value) < space.start + space.n
        elif isinstance(space, Dict):
            fits = isinstance(value, tuple) and len(value) == len(space.spaces)
        elif isinstance(space, Text):
            fits = isinstance(value, str)
        else:  # values are looked up when they are observed
            fits = not space.shape or np.shape(value) == space.shape
        if not fits:
            raise ModelError(
                f"{seen}, but the model has the state {pmdp.state_value(index)!r}: observations must be state values, "
                "or pass observation_to_state=... that maps them (return StateIndex(i) where they number the states)"
            )
