"""Settings of the agent: what they mean, and those that make no sense, each refused with what to write instead."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rpl_agent.core.errors import ModelError, require_kind
from rpl_agent.core.model import Limit, Objective
from rpl_agent.core.model.objectives.words import LIMIT_EXAMPLE
from rpl_agent.guarantee.pipeline import Config

#: Settings of other agents, and what takes their place here.
ELSEWHERE = {
    "gamma": 'the discount is part of the objective, "maximise discounted gain, gamma 0.9"',
    "learning_rate": "nothing is tuned here: counts need no learning rate",
    "epsilon": "weight=0.9 is the probability of the planned action while exploring",
    "total_timesteps": "pass it to learn(total_timesteps=...)",
    "budget": "pass it to learn(budget=...)",
    "device": "there is no network, and no GPU is used",
    "policy_kwargs": "there is no network: the policy is a table",
    "model": "pass the model as pmdp=...",
}


#: Arguments that others' `learn` has, and what takes their place here.
OF_LEARN = {
    "episodes": "write budget=... for a number of episodes",
    "n_episodes": "write budget=... for a number of episodes",
    "steps": "write total_timesteps=... for a number of steps",
    "timesteps": "write total_timesteps=... for a number of steps",
    "eval_env": "pass callback=EvalCallback(env)",
    "delta": "it belongs to the agent, RPLAgent(env, delta=...)",
}


def refuse_settings(unknown: dict[str, Any], agent: type) -> None:
    """Raise for a setting that the agent does not have, with the one that was meant."""
    _refuse(unknown, agent, f"{agent.__name__} has no setting", ELSEWHERE)


def refuse_arguments(unknown: dict[str, Any], learn: Callable[..., Any]) -> None:
    """Raise for an argument that ``learn`` does not have, with the one that was meant."""
    _refuse(unknown, learn, "learn has no argument", OF_LEARN)


def _refuse(unknown: dict[str, Any], function: Callable[..., Any], words: str, elsewhere: dict[str, str]) -> None:
    if not unknown:
        return
    name = next(iter(unknown))
    known = [p for p in inspect.signature(function).parameters if p not in ("others", "unknown", "self")]
    near = difflib.get_close_matches(name, known, 1)
    hint = elsewhere.get(name) or (f"the nearest is {near[0]!r}" if near else f"it has {', '.join(known)}")
    raise ModelError(f"{words} {name!r}: {hint}")


def goal_with_limits(objective: Any, subject_to: Any) -> tuple[Objective | None, tuple[Limit, ...]]:
    """(the objective without its limits, all limits)."""
    goal = Objective.parse(objective) if isinstance(objective, str) else objective
    if goal is not None:
        require_kind("objective", goal, Objective, str)
    if isinstance(subject_to, str | Limit):
        raise ModelError(f"subject_to={subject_to!r} must be a list of limits: write [{LIMIT_EXAMPLE!r}]")
    limits = tuple(Limit.parse(given) if isinstance(given, str) else given for given in subject_to)
    for limit in limits:
        require_kind("a limit of subject_to", limit, Limit, str)
    return (None, limits) if goal is None else (goal.free, goal.limits + limits)


def require_count(name: str, number: Any, unit: str) -> None:
    """Raise unless this is a whole number, at least 1."""
    if not hasattr(number, "__index__") or isinstance(number, bool) or number < 1:
        raise ModelError(f"{name} = {number!r} must be a whole number of {unit}, at least 1")


def takes(function: Callable[..., Any], number: int) -> bool:
    """Whether a function can be called with so many arguments; True where that cannot be known."""
    try:
        inspect.signature(function).bind(*[None] * number)
    except TypeError:
        return False
    except ValueError:  # of a function without a signature
        return True
    return True


def check_seed(seed: Any) -> None:
    """Raise unless this can be a seed."""
    if seed is not None and (not hasattr(seed, "__index__") or isinstance(seed, bool) or seed < 0):
        raise ModelError(f"seed {seed!r} must be a whole number, at least 0, or None")


def check_settings(weight: Any, config: Any, schedule: Any, seed: Any) -> None:
    """Raise unless these are what `RPLAgent` takes."""
    if not isinstance(weight, float | int) or not 0.0 <= weight <= 1.0:
        raise ModelError(f"weight {weight!r} is not a number from 0 to 1")
    if config is not None and not isinstance(config, Config):
        raise ModelError(f"config={config!r} is not a Config: write config=Config(delta=0.05), or delta=0.05 alone")
    if schedule is not None and (isinstance(schedule, type) or not hasattr(schedule, "limits")):
        raise ModelError(f"schedule={schedule!r} is not a schedule: write for example EveryN(100) or Doubling()")
    check_seed(seed)


def suited(config: Config, suits: tuple[str, str] | None) -> Config:
    """The method that suits an environment, in place of the defaults; the user's choice takes precedence."""
    default = Config(delta=config.delta, precision=config.precision)
    return config if suits is None or config != default else replace(config, confidence=suits[0], relaxation=suits[1])
