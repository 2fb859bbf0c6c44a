"""Gymnasium's tabular worlds, unmodified, bound to parametric models: structure from the rules, parameters unknown.

`bind(env)` recognises FrozenLake, Taxi, CliffWalking and Blackjack by their spec, and any other environment that has a
table ``P[s][a]`` by that table: its graph is known and every probability is a separate parameter. The probabilities
in ``P`` are not read.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from rpl_agent.model import Binding

#: Entry point of an environment -> the function that binds it, as "module:function".
BINDERS = {
    "gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv": "rpl_envs.toy.frozen_lake:bind_frozen_lake",
    "gymnasium.envs.toy_text.taxi:TaxiEnv": "rpl_envs.toy.taxi:bind_taxi",
    "gymnasium.envs.toy_text.cliffwalking:CliffWalkingEnv": "rpl_envs.toy.cliff_walking:bind_cliff_walking",
    "gymnasium.envs.toy_text.blackjack:BlackjackEnv": "rpl_envs.toy.blackjack:bind_blackjack",
}


#: What the documentation of these worlds calls their actions, in their order.
ACTIONS = {
    "gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv": ("left", "down", "right", "up"),
    "gymnasium.envs.toy_text.taxi:TaxiEnv": ("south", "north", "east", "west", "pickup", "dropoff"),
    "gymnasium.envs.toy_text.cliffwalking:CliffWalkingEnv": ("up", "right", "down", "left"),
    "gymnasium.envs.toy_text.blackjack:BlackjackEnv": ("stick", "hit"),
}


def bind(env: Any) -> Binding | None:
    """The model of an environment, or None if it is not recognised."""
    entry_point = _entry_point(env)
    if entry_point is not None:
        return _function(BINDERS[entry_point])(env)
    if "P" in vars(env.unwrapped):  # an attribute; a property may compute hidden values
        return _function("rpl_envs.toy.table:bind_table")(env)
    return None


def known_actions(env: Any) -> tuple[str, ...] | None:
    """The names of the actions of a world that is known by its rules."""
    entry_point = _entry_point(env)
    return None if entry_point is None else ACTIONS[entry_point]


def _entry_point(env: Any) -> str | None:
    """Which of Gymnasium's worlds this is."""
    found = {f"{base.__module__}:{base.__name__}" for base in type(env.unwrapped).__mro__}
    return next((entry_point for entry_point in BINDERS if entry_point in found), None)


def _function(name: str) -> Callable[[Any], Binding]:
    module, function = name.split(":")
    return getattr(import_module(module), function)
