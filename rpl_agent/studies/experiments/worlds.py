"""The worlds of a comparison: one of ours, one of Gymnasium's with known structure, or the user's own.

What an agent learns is measured from outside. If the true parameters are known (of our worlds, and where the user's
code returns ``theta``), a policy's value is computed; otherwise it is the mean of episodes that nobody learns from.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np

import rpl_envs
from rpl_agent.agent.evaluation import Evaluation, monte_carlo
from rpl_agent.agent.world.attach import attach
from rpl_agent.agent.world.named_env import absolute, attach_keywords, make_named, named_world, names_code
from rpl_agent.agent.world.observations import time_limit
from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.model import Objective, ParametricMDP, Policy
from rpl_agent.core.solver import Solution, solve_at
from rpl_agent.guarantee.shown import true_value
from rpl_agent.studies.baselines.policy_files import policy_from_file
from rpl_agent.studies.experiments.suites import MEASURED_STEPS, Task

#: Solver precision of the tables: far below what the paper prints.
PRECISION = 1e-6
#: The widest bracket of an optimum, as a share of it.
WIDEST_BRACKET = 1e-3
#: Episodes that show how long a given policy plays.
TIMED = 100


@dataclass(frozen=True, eq=False)
class ComparedWorld:
    """A world by name, with what is known of it."""

    name: str
    make: Callable[[], gym.Env]
    pmdp: ParametricMDP
    objective: Objective
    theta: np.ndarray | None  # the truth, where it is known
    options: Mapping[str, Any]  # keywords for the agent, from the user's factory

    @property
    def attachment(self) -> dict[str, Any]:
        """Keywords of `attach` for learners of stationary policies, which plan without a horizon."""
        given = attach_keywords({name: value for name, value in self.options.items() if name != "horizon"})
        if self.objective.horizon is not None:
            given["objective"] = replace(self.objective, horizon=None)
        return given

    def optimum(self) -> float | None:
        """V* at the truth; None if the truth is not known."""
        if self.theta is None:
            return None
        return narrow_optimum(self.name, self.pmdp, self.theta, self.objective).middle

    def value(self, policy: Policy, episodes: int, seed: int) -> float:
        """The value of a policy: exact, or the mean of this many episodes."""
        if self.theta is not None:
            return true_value(self.pmdp, self.objective, policy, self.theta)
        return float(self.played(policy, episodes, seed).values.mean())

    def steps(self, policy: Policy, seed: int) -> float:
        """Mean length of an episode."""
        return float(self.played(policy, TIMED, seed).lengths.mean())

    def played(self, policy: Policy, episodes: int, seed: int) -> Evaluation:
        """Episodes that nobody learns from."""
        player = SimpleNamespace(**{**self.options, "pmdp": self.pmdp, "objective": self.objective, "compiled": True})
        env = self._ending()
        try:
            return monte_carlo(player, env, episodes, seed=seed, policy=policy)
        finally:
            env.close()

    def _ending(self) -> gym.Env:
        """The environment, whose plays end even if the policy walks into a wall for ever."""
        env, horizon = self.make(), self.objective.horizon or 0
        if time_limit(env, env) is not None:
            return env
        return gym.wrappers.TimeLimit(env, max(MEASURED_STEPS, horizon))


def narrow_optimum(name: str, pmdp: ParametricMDP, theta: np.ndarray, objective: Objective) -> Solution:
    """The solution at the true parameters θ (d,); raise if its bracket is too wide to compare anything with."""
    found = solve_at(pmdp, theta, objective, precision=PRECISION)
    if not found.upper - found.lower <= WIDEST_BRACKET * abs(found.upper):
        raise DataError(f"the optimum of {name} is only known to lie in [{found.lower}, {found.upper}]")
    return found


def policy_in(path: str, world: ComparedWorld) -> Policy:
    """The policy in a file, for the model of a world."""
    return policy_from_file(path, world.pmdp, world.make, world.options)


def instance_name(name: str) -> str:
    """ "rpl/Aircraft-20x10-v0" and "Aircraft-20x10" are the same world."""
    return re.sub(r"^(rpl_envs:)?(rpl/)?|-v\d+$", "", name)


def world_task(name: str) -> Task:
    """The part of a task that names its world, checked before anything is run.

    ``instance`` is shown; the user's code is found by ``code``, and a changed file is another task.
    """
    if instance_name(name) in rpl_envs.INSTANCES:
        return {"instance": instance_name(name)}
    named = absolute(name) if names_code(name) else name
    compared_world(named)
    if named == name and not names_code(name):
        return {"instance": name}
    place, _, factory = named.rpartition(":")
    if not place.endswith(".py"):
        return {"instance": name, "code": named}
    digest = hashlib.sha256(Path(place).read_bytes()).hexdigest()[:16]
    return {"instance": f"{Path(place).name}:{factory}", "code": named, "digest": digest}


def world_of(task: Task) -> ComparedWorld:
    return compared_world(task.get("code", task["instance"]))


@lru_cache(maxsize=4)
def compared_world(name: str) -> ComparedWorld:
    if instance_name(name) in rpl_envs.INSTANCES:
        world = rpl_envs.benchmark(instance_name(name))
        make = partial(gym.make, f"rpl/{instance_name(name)}-v0")
        return ComparedWorld(name, make, world.pmdp, world.objective, np.asarray(world.theta), {})
    if names_code(name):
        return _own(name)
    if name not in gym.registry:
        ids = [instance.id for instance in rpl_envs.INSTANCES.values()]
        raise ModelError(
            f"no world {name!r}: give a registered id, module:Id, path/to/file.py:factory, or one of ours, {ids}"
        )
    make = partial(gym.make, name)
    env = make()
    try:
        known = attach(env)
    finally:
        env.close()
    return ComparedWorld(name, make, known.pmdp, known.objective, None, {})


def _own(name: str) -> ComparedWorld:
    """The environment that the user's code makes."""
    env, options, truth = named_world(name)
    if "returns" in options or "rewards" in options:
        raise ModelError(f"{name} has no model, which most agents of a comparison need: add pmdp and objective")
    known = attach(env, **attach_keywords(options))
    theta = None if truth is None else known.pmdp.instantiate(truth).theta
    return ComparedWorld(name, lambda: make_named(name)[0], known.pmdp, known.objective, theta, options)
