"""The world of a stored run or certificate, which a file may name, but whose code it never chooses."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpl_agent.cli.common import ModelSource, load_source, source_defaults, world_source
from rpl_agent.core.errors import DataError

if TYPE_CHECKING:
    import numpy as np


def stored_source(run_folder: str, env: str | None = None) -> ModelSource:
    """How to make the world of a run: from ``env``, or from the run folder, which never names code."""
    from rpl_agent.agent.runs import is_without_model, read_source, refuse_refuted

    stored, folder = read_source(run_folder), Path(run_folder)
    refuse_refuted(folder)  # first: no environment could help such a run
    return named_source(run_folder, stored, env, without_model=is_without_model(folder))


def named_source(
    place: str, stored: dict[str, Any], env: str | None = None, *, without_model: bool = False
) -> ModelSource:
    """The source in ``env``, the reader's own word, or the one that a run folder or a certificate file names.

    A file may come from a stranger: it is never a reason to run code.
    """
    import gymnasium as gym

    import rpl_envs  # noqa: F401  (registers our ids)
    from rpl_agent.agent.world.named_env import names_code

    if env is not None:
        return world_source(env) if without_model else source_of({"id": env})
    name = stored.get("id")
    if not isinstance(name, str | None):
        raise DataError(f"{place} names an environment that is not a string: {name!r}")
    by_keywords = "kwargs" in stored  # made in Python
    is_named = bool(name) if without_model else bool(stored)
    if not is_named or (name and names_code(name)) or (by_keywords and (name not in gym.registry or _wraps(name))):
        known = f"--env {name}" if name and names_code(name) else "--env module:Id or --env path/to/file.py:factory"
        raise DataError(f"the environment of {place} is code, which runs only if you name it yourself: add {known}")
    if without_model:
        return world_source(str(name), stored.get("kwargs") or {})
    return _made_in_python(place, stored) if by_keywords else source_of(_options(place, stored))


def _wraps(name: str) -> bool:
    """Whether a registered environment makes another one, which its keywords name."""
    return name.startswith("GymV")


def _options(place: str, stored: dict[str, Any]) -> dict[str, Any]:
    """The options of `add_source` in a file, each of the type that the command line gives it."""
    from rpl_agent.core import schema

    kinds: dict[str, Any] = dict.fromkeys(("param", "const", "theta"), list[str]) | {"unknown": list[str] | None}
    kinds |= dict.fromkeys(("max_steps", "max_states"), int | None) | {"normalise": bool}
    return {
        option: schema.read(stored[option], kinds.get(option, str | None), f"the {option} of {place}")
        for option in source_defaults()
        if option in stored
    }


def true_parameters(folder: str) -> np.ndarray | None:
    """The true parameters of a run's simulator, to mark in a picture; None if they were not stored."""
    try:
        return stored_source(folder).theta
    except DataError:  # made in Python with an environment without an id
        return None


def source_of(stored: dict, *, needs_model: bool = False) -> ModelSource:
    """The source described by stored options."""
    return load_source(argparse.Namespace(**(source_defaults() | stored), given=set()), needs_model=needs_model)


def _made_in_python(run_folder: str, stored: dict) -> ModelSource:
    """The source of a run whose environment was made from an id and keywords; its model is the run's own."""
    import gymnasium as gym
    import numpy as np

    import rpl_envs
    from rpl_agent.agent.runs import load_run

    agent, name, kwargs = load_run(Path(run_folder)), stored["id"], stored["kwargs"] or {}
    theta = kwargs.get("theta")
    if theta is None and name.startswith("rpl/"):
        theta = rpl_envs.benchmark(name).theta
    truth, make = None if theta is None else np.asarray(theta, dtype=float), partial(gym.make, name, **kwargs)
    return ModelSource(name, agent.pmdp, agent.objective, truth, agent.session.time_limit or 0, make)
