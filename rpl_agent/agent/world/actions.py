"""The actions of an environment, and those of them that states of the model lack.

A certificate says what no policy achieves. Policies of the model choose among its actions, so that sentence is about
every policy of the environment only if each state has every action that the environment allows there.

The action of the environment for an action of the model is found in this order:

1. the user's mapping (``action_to_env={"left": 0, …}``);
2. an environment that provides the model, or is known by its rules, has its actions in the model's order;
3. actions of the model that are integers are the numbers of the action space, including its ``start``;
4. an environment that names its actions (an attribute ``action_names`` or ``action_meanings``, or ALE's
   ``get_action_meanings()``) has the model's under the same names, whatever their order;
5. otherwise the n-th action of the space is the n-th of the model, if the model has an order: given by
   ``build(action_names=[...])``, or the only one that fits the orders in which all states list their actions.

Anything else is refused: a permutation of actions that stays within the graph could be detected by statistics only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpl_agent.agent.world.observations import Env, attribute, changing_wrapper, is_vector, name_of
from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import ParametricMDP
from rpl_agent.core.model.building.builder import whole_numbers

#: A user's mapping: action of the model (as it was written, or its name) -> its number in the environment.
ActionToEnv = Mapping[Any, int]
#: Attributes in which environments name their actions.
NAMED_BY = ("action_names", "action_meanings", "get_action_meanings")


@dataclass(frozen=True, eq=False)
class EnvActions:
    """The actions of an environment beside the model's."""

    numbers: np.ndarray  # (A,) the environment's number of each action of the model
    first: int  # the first number of the action space
    count: int  # how many it has
    own: bool  # whether the model belongs to the environment, so that states have all actions that are allowed there

    def place(self, action: int) -> int:
        """Index in a mask of an action of the model."""
        return int(self.numbers[action]) - self.first

    def lacking(self, pmdp: ParametricMDP, state: int, mask: Any = None) -> list[int]:
        """Numbers of the actions that the environment allows and the state of the model lacks."""
        if self.own:
            return []
        allowed = np.ones(self.count, dtype=bool) if mask is None else np.asarray(mask).astype(bool).ravel()
        known = pmdp.action[pmdp.state_ptr[state] : pmdp.state_ptr[state + 1]]
        enabled = {int(number) for number in self.numbers[known]}
        return [self.first + k for k in np.flatnonzero(allowed).tolist() if self.first + k not in enabled]


def lacking_note(pmdp: ParametricMDP, state: int, number: int) -> str:
    """One line for readers of a certificate."""
    return (
        "all this is among policies that use the model's actions: the environment also has others, for example "
        f"{number} in {pmdp.state_name(state)}"
    )


def match_actions(env: Env, inner: Any, pmdp: ParametricMDP, own: bool, given: ActionToEnv | None) -> EnvActions:
    """The environment's number of each action of the model.

    inner : the environment, or one representing a vector of them.
    own : whether the model belongs to the environment (which provides it, or is known by its rules).
    """
    space, name = _space(env), name_of(env)
    low, high = int(space.start), int(space.start + space.n)
    if given is not None:
        return EnvActions(_given(pmdp, given, low, high, name), low, high - low, own)
    found = _matched(env, inner, pmdp, own)
    used = np.unique(pmdp.action[~pmdp.is_silent[pmdp.row_state]])
    forgotten = sorted(set(range(low, high)) - set(found[used].tolist()))
    if forgotten and not own:
        raise ModelError(
            f"the action space of {name} is {low} to {high - 1}, but no state of the model has the action "
            f"{forgotten[0]}: a policy that plays it could be better than any that the model knows. Add its rows, or "
            "leave it out knowingly with action_to_env={name: number}"
        )
    return EnvActions(found, low, high - low, own)


def _matched(env: Env, inner: Any, pmdp: ParametricMDP, own: bool) -> np.ndarray:
    """(A,) int64: the numbers, by numbers, names or order."""
    space, name = _space(env), name_of(env)
    low, high = int(space.start), int(space.start + space.n)
    numbers = None if own else whole_numbers(pmdp.action_keys) or _number_names(pmdp.action_names)
    if numbers is not None:
        bad = [n for n in numbers if not low <= n < high]
        if bad:
            raise ModelError(
                f"the model has the action {bad[0]}, but the action space of {name} is {low} to {high - 1}: use "
                "its numbers, or pass action_to_env={name: number}"
            )
        return np.array(numbers, dtype=np.int64)
    called = None if own else _names(env, inner, pmdp)
    if called is not None:
        return low + called
    if space.n != pmdp.num_actions:
        raise ModelError(
            f"the action space of {name} is {space}, but the model has {pmdp.num_actions} actions "
            f"{pmdp.action_names[:8]}: it must be Discrete({pmdp.num_actions}), or pass action_to_env={{name: number}}"
        )
    if not own and not pmdp.actions_ordered:
        raise ModelError(
            f"cannot match actions of {name} to {pmdp.action_names[:8]}: the model's states do not list them in one "
            "order. Pass action_names=[...] to build, in the action space's order, or action_to_env={name: number}"
        )
    return np.arange(low, high, dtype=np.int64)


def _space(env: Env) -> Any:
    """The action space, which must be finite."""
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
    """Names that are integers, if all are; None otherwise."""
    if not names or not all(n.removeprefix("-").isdecimal() and str(int(n)) == n for n in names):
        return None
    return [int(n) for n in names]


def _names(env: Env, inner: Any, pmdp: ParametricMDP) -> np.ndarray | None:
    """(A,) indices of the model's actions among the environment's action names; None if it has none."""
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
        return None  # the user's own names for the actions of a world that does not name them
    if missing or len(place) < len(declared):
        raise ModelError(
            f"{name_of(env)} calls its actions {declared[:8]}, but the model {pmdp.action_names[:8]}: use its "
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
    """The environment's action names in order, and the attribute that has them."""
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
