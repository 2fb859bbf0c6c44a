"""Gymnasium's tabular worlds, unmodified, bound to parametric models: structure from the rules, parameters unknown.

`bind(env)` recognises FrozenLake, Taxi, CliffWalking and Blackjack by their spec, and any other environment that has a
table ``P[s][a]`` by that table: its graph is known and every probability is a separate parameter. The probabilities
in ``P`` are not read.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rpl_agent.core.model import Binding

#: Class of a world -> the module that binds it, and what its documentation calls its actions, in their order.
WORLDS = {
    "gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv": ("frozen_lake", ("left", "down", "right", "up")),
    "gymnasium.envs.toy_text.taxi:TaxiEnv": ("taxi", ("south", "north", "east", "west", "pickup", "dropoff")),
    "gymnasium.envs.toy_text.cliffwalking:CliffWalkingEnv": ("cliff_walking", ("up", "right", "down", "left")),
    "gymnasium.envs.toy_text.blackjack:BlackjackEnv": ("blackjack", ("stick", "hit")),
}


def bind(env: Any) -> Binding | None:
    """The model of an environment, or None if it is not recognised."""
    module = _known(env)[0]
    if module is None and "P" in vars(env.unwrapped):  # an attribute; a property may compute hidden values
        module = "table"
    return None if module is None else getattr(import_module(f"rpl_envs.toy.{module}"), f"bind_{module}")(env)


def known_actions(env: Any) -> tuple[str, ...] | None:
    """The names of the actions of a world that is known by its rules."""
    return _known(env)[1]


def _known(env: Any) -> tuple[str | None, tuple[str, ...] | None]:
    """The entry of an environment in `WORLDS`."""
    found = (f"{base.__module__}:{base.__name__}" for base in type(env.unwrapped).__mro__)
    return next((WORLDS[name] for name in found if name in WORLDS), (None, None))
