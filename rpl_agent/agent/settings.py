"""Settings of the agent that make no sense, each refused with one sentence that says what to write instead."""

from __future__ import annotations

import difflib
import inspect
import os
from pathlib import Path
from typing import Any

from rpl_agent.core.errors import ModelError
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


def refuse_settings(unknown: dict[str, Any], agent: type) -> None:
    """Raise for a setting that the agent does not have, with the one that was meant."""
    if not unknown:
        return
    name = next(iter(unknown))
    known = [p for p in inspect.signature(agent).parameters if p not in ("others", "unknown")]
    near = difflib.get_close_matches(name, known, 1)
    hint = ELSEWHERE.get(name) or (f"the nearest is {near[0]!r}" if near else f"it has {', '.join(known)}")
    raise ModelError(f"{agent.__name__} has no setting {name!r}: {hint}")


def as_path(given: Any, name: str) -> Path:
    """The path in a setting."""
    if not isinstance(given, str | os.PathLike):
        raise ModelError(f"{name}={given!r} is not a path: write a text, for example 'logs/demo'")
    return Path(given)


def check_settings(weight: Any, config: Any, schedule: Any, seed: Any) -> None:
    """Raise unless these are what `RPLAgent` takes."""
    if not isinstance(weight, float | int) or not 0.0 <= weight <= 1.0:
        raise ModelError(f"weight {weight!r} is not a number from 0 to 1")
    if config is not None and not isinstance(config, Config):
        raise ModelError(f"config={config!r} is not a Config: write config=Config(delta=0.05), or delta=0.05 alone")
    if schedule is not None and (isinstance(schedule, type) or not hasattr(schedule, "limits")):
        raise ModelError(f"schedule={schedule!r} is not a schedule: write for example EveryN(100) or Doubling()")
    if seed is not None and (not hasattr(seed, "__index__") or isinstance(seed, bool) or seed < 0):
        raise ModelError(f"seed {seed!r} must be a whole number, at least 0, or None")
