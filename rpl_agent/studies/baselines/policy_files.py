"""A policy in a file of any kind: ours, a table, a scheduler of Storm, or a model of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rpl_agent.agent.world.named_env import attach_keywords
from rpl_agent.core.model import ParametricMDP, Policy
from rpl_agent.formats.policies import read_policy

if TYPE_CHECKING:
    import gymnasium as gym


def policy_from_file(
    path: str, pmdp: ParametricMDP, make_env: Callable[[], gym.Env], options: Mapping[str, Any] | None = None
) -> Policy:
    """The policy as one of the model.

    make_env : makes the environment of a model of Stable-Baselines3; ``options`` are the agent's keywords for it
    """
    if not path.endswith(".zip"):
        return read_policy(path, pmdp)
    from rpl_agent.studies.baselines.sb3 import from_sb3  # torch is loaded only where it is used

    known = {"pmdp": pmdp, **attach_keywords(options or {})}
    return from_sb3(path, make_env(), attachment=known)
