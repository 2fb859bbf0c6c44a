"""Reading facts about an environment without disturbing it: attributes, wrappers, time limits.

A vector environment is asked through one of its sub-environments. Asking an `AsyncVectorEnv` for an attribute that it
lacks would end its worker processes, so a sub-environment is made anew from the same function and closed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rpl_agent.errors import ModelError


def name_of(env: Any) -> str:
    spec = getattr(env, "spec", None)
    return spec.id if spec is not None else type(getattr(env, "unwrapped", env)).__name__


def is_vector(env: Any) -> bool:
    return hasattr(env, "num_envs")


def observation_space(env: Any) -> Any:
    """Of one environment."""
    return env.single_observation_space if is_vector(env) else env.observation_space


def make_registered(identifier: Any, /, **keywords: Any) -> Any:
    """The environment with a registered id; None if there is none."""
    import gymnasium as gym

    import rpl_envs  # noqa: F401  (registers our ids)

    return gym.make(identifier, **keywords) if isinstance(identifier, str) and identifier in gym.registry else None


def refuse_policy_network(env: Any, others: tuple[Any, ...]) -> None:
    """Answer the first line of a user of Stable-Baselines3, ``RPLAgent("MlpPolicy", env)``."""
    if others or env in ("MlpPolicy", "CnnPolicy", "MultiInputPolicy"):
        raise ModelError(
            "RPLAgent takes the environment first, and no policy network: its policy is a table, computed from a "
            "model with unknown probabilities; RPLAgent(env).learn(total_timesteps=...), and other settings by name"
        )


def require_environment(env: Any) -> None:
    """Raise unless this is a Gymnasium environment or vector environment."""
    if isinstance(env, int | float):
        raise ModelError(
            f"learn({env}): the environment comes first. A budget in steps, as in Stable-Baselines3: "
            f"learn(total_timesteps={env}); in episodes: learn(env, {env}), or learn(budget={env}) where the agent has "
            "its environment"
        )
    if is_vector(env) and hasattr(env, "step_wait") and not hasattr(env, "single_action_space"):
        raise ModelError(
            f"{type(env).__name__} is a VecEnv of Stable-Baselines3, whose resets hide the last observation: "
            "pass the environment itself, or gymnasium.make_vec(id, num_envs=...)"
        )
    if not (hasattr(env, "step") and hasattr(env, "reset") and hasattr(env, "action_space")):
        raise ModelError(f"{type(env).__name__} is not a Gymnasium environment")


@contextmanager
def representative(env: Any) -> Iterator[Any]:
    """One environment that has the facts of all of them."""
    if not is_vector(env):
        yield env
        return
    base = env.unwrapped
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


def time_limit(env: Any, inner: Any) -> int | None:
    """Steps after which episodes are cut, as far as wrappers, specs and vector environments tell."""
    limits = []
    for layer in layers(inner):
        if type(layer).__name__ == "TimeLimit":
            limits.append(int(layer._max_episode_steps))
    own = getattr(env, "max_episode_steps", None) if is_vector(env) else None
    if isinstance(own, int) and own > 0:
        limits.append(own)
    return min(limits, default=None)
