"""Which action of an environment an action of the model is: by name, by number, or by order.

Tried in this order:

1. what the user says (``action_to_env={"left": 0, …}``);
2. an environment that names the model, or is known by its rules, has its actions in the model's order;
3. actions of the model that are whole numbers are the numbers of the action space, its ``start`` included;
4. an environment that names its actions (an attribute ``action_names`` or ``action_meanings``, or ALE's
   ``get_action_meanings()``) has the model's under the same names, whatever their order;
5. otherwise the n-th action of the space is the n-th of the model, if the model has an order: given by
   ``build(action_names=[...])``, or the only one that fits the orders in which all states list their actions.

Anything else is refused: a permutation of actions that stays inside the graph would be seen by statistics alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rpl_agent.agent.world.env_facts import attribute, changing_wrapper, is_vector, name_of
from rpl_agent.errors import ModelError
from rpl_agent.model.building.action_order import whole_numbers
from rpl_agent.model.pmdp import ParametricMDP

#: A user's mapping: action of the model (as it was written, or its name) -> its number in the environment.
ActionToEnv = Mapping[Any, int]
#: Where environments name their actions.
NAMED_BY = ("action_names", "action_meanings", "get_action_meanings")


def match_actions(env: Any, inner: Any, pmdp: ParametricMDP, own: bool, given: ActionToEnv | None) -> np.ndarray:
    """(A,) int64: the environment's number of each action of the model.

    Parameters
    ----------
    inner : the environment, or one that represents a vector of them.
    own : whether the model belongs to the environment (it names it, or is known by its rules).
    """
    space, name = _space(env), name_of(env)
    low, high = int(space.start), int(space.start + space.n)
    if given is not None:
        return _given(pmdp, given, low, high, name)
    numbers = None if own else whole_numbers(pmdp.action_keys) or _number_names(pmdp.action_names)
    if numbers is not None:
        bad = [n for n in numbers if not low <= n < high]
        if bad:
            raise ModelError(
                f"the model has the action {bad[0]}, the action space of {name} the numbers {low} to {high - 1}: use "
                "its numbers, or pass action_to_env={name: number}"
            )
        return np.array(numbers, dtype=np.int64)
    called = None if own else _names(env, inner, pmdp)
    if called is not None:
        return low + called
    if space.n != pmdp.num_actions:
        raise ModelError(
            f"the action space of {name} is {space}, the model has {pmdp.num_actions} actions "
            f"{pmdp.action_names[:8]}: it must be Discrete({pmdp.num_actions}), or pass action_to_env={{name: number}}"
        )
    if not own and not pmdp.actions_ordered:
        raise ModelError(
            f"which action of {name} is which of {pmdp.action_names[:8]}? The model's states do not list them in one "
            "order: pass action_names=[...] to build, in the order of the action space, or action_to_env={name: number}"
        )
    return np.arange(low, high, dtype=np.int64)


def _space(env: Any) -> Any:
    """The action space, which must be a finite list of actions."""
    from gymnasium.spaces import Discrete

    space = env.single_action_space if is_vector(env) else env.action_space
    if not isinstance(space, Discrete):
        raise ModelError(
            f"the action space of {name_of(env)} is {space}: it must be Discrete; a wrapper that numbers the "
            "combinations of actions (gymnasium.wrappers.TransformAction) makes it so"
        )
    return space


def _given(pmdp: ParametricMDP, given: ActionToEnv, low: int, high: int, name: str) -> np.ndarray:
    ways = (pmdp.action_keys, pmdp.action_names) if isinstance(given, Mapping) else ()
    actions = next((actions for actions in ways if set(given) == set(actions)), None)
    if actions is None:
        raise ModelError(f"action_to_env must map every action of the model, {pmdp.action_keys[:8]}, to its number")
    found = [given[action] for action in actions]
    whole = all(hasattr(n, "__index__") and low <= int(n) < high for n in found)
    if not whole or len({int(n) for n in found}) < len(found):
        raise ModelError(f"action_to_env must give different numbers from {low} to {high - 1}, those of {name}")
    return np.array([int(n) for n in found], dtype=np.int64)


def _number_names(names: Sequence[str]) -> list[int] | None:
    """Names that are whole numbers, all of them; None otherwise."""
    if not names or not all(n.removeprefix("-").isdecimal() and str(int(n)) == n for n in names):
        return None
    return [int(n) for n in names]


def _names(env: Any, inner: Any, pmdp: ParametricMDP) -> np.ndarray | None:
    """(A,) places of the model's actions among the names that the environment gives its own; None: it gives none."""
    from rpl_envs.toy import known_actions

    declared, source = _declared(inner)
    binding = declared is not None
    if declared is None:
        declared, source = known_actions(inner), None
    if declared is None:
        return None
    place = {_plain(action): i for i, action in enumerate(declared)}
    missing = [action for action in pmdp.action_names if _plain(action) not in place]
    if missing and not binding and len(missing) == pmdp.num_actions:
        return None  # somebody's own names for the actions of a world that does not name them itself
    if missing or len(place) < len(declared):
        raise ModelError(
            f"{name_of(env)} calls its actions {declared[:8]}, the model {pmdp.action_names[:8]}: use its "
            "names, or pass action_to_env={name: number}"
        )
    wrapper = changing_wrapper(env, inner, source, "Action")
    if wrapper is not None:
        raise ModelError(
            f"{name_of(env)} names its actions, but the wrapper {wrapper} changes what they mean: pass "
            "action_to_env={name: number}"
        )
    return np.array([place[_plain(action)] for action in pmdp.action_names], dtype=np.int64)


def _declared(inner: Any) -> tuple[tuple[str, ...] | None, str | None]:
    """The names that an environment gives its actions, in their order, and the attribute that says so."""
    for source in NAMED_BY:
        names = attribute(inner, source)
        names = names() if callable(names) else names
        if isinstance(names, Mapping):  # number -> name, or name -> number
            turned = {v: k for k, v in names.items()} if all(isinstance(k, str) for k in names) else names
            names = [turned[number] for number in sorted(turned)]
        if isinstance(names, Sequence) and not isinstance(names, str) and all(isinstance(n, str) for n in names):
            return tuple(names), source
    return None, None


def _plain(name: str) -> str:
    return name.strip().casefold()
