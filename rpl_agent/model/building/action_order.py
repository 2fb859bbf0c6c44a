"""Which actions a description has, in which order, and what they are called.

An action's *key* is what a user wrote: a name, a number, an enum's member, anything hashable. User code gets the key
back, messages and files show its *name*, ``str(key)``. Equal keys are one action, whatever their types.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import numpy as np

from rpl_agent.errors import ModelError, RPLWarning


@dataclass(frozen=True)
class ActionOrder:
    """``keys`` and ``names`` (A,) in the order of the environment's action space.

    is_known : whether that order is the only possible one; if not, which action of an environment is meant is open.
    """

    keys: tuple[Hashable, ...]
    names: tuple[str, ...]
    is_known: bool


def action_order(listed: Iterable[Sequence[Hashable]], declared: Sequence[Hashable] | None, model: str) -> ActionOrder:
    """The order of all actions of a model.

    It is given by ``declared`` (keys or names), by the actions' numbers, or by the orders in which states list their
    actions (``listed``), if only one order of all actions fits them.
    """
    listed = list(listed)
    keys = tuple(dict.fromkeys(key for order in listed for key in order))
    numbers = whole_numbers(keys)
    if declared is not None:
        return _declared(keys, numbers, declared)
    if numbers is not None:
        return named_actions(range(min(numbers), max(numbers) + 1))
    before: dict[Hashable, set[Hashable]] = {key: set() for key in keys}
    for order in listed:
        for key, following in pairwise(order):
            before[following].add(key)
    try:
        sorted_keys = tuple(TopologicalSorter(before).static_order())
    except CycleError:
        found = named_actions(keys, is_known=False)
        warnings.warn(
            f"{model}: states list their actions in different orders, the model takes {found.names}: pass "
            "action_names=[...] in the order of the environment's action space",
            RPLWarning, stacklevel=3,
        )  # fmt: skip
        return found
    only = all(key in before[following] for key, following in pairwise(sorted_keys))
    return named_actions(sorted_keys if only else keys, is_known=only)


def named_actions(keys: Iterable[Hashable], is_known: bool = True) -> ActionOrder:
    """Keys in a given order, called by their texts; two keys of one text are an error."""
    keys = tuple(keys)
    first: dict[str, Hashable] = {}
    for key in keys:
        if first.setdefault(str(key), key) != key:
            raise ModelError(f"the actions {first[str(key)]!r} and {key!r} would have one name, {str(key)!r}")
    return ActionOrder(keys, tuple(first), is_known)


def whole_numbers(keys: Sequence[Hashable]) -> list[int] | None:
    """The keys as integers, if all of them are (truth values are not); None otherwise."""
    if not keys or not all(isinstance(key, (int, np.integer)) and not isinstance(key, bool) for key in keys):
        return None
    return [int(key) for key in keys]  # type: ignore[call-overload]


def _declared(keys: tuple[Hashable, ...], numbers: list[int] | None, declared: Sequence[Hashable]) -> ActionOrder:
    called = {str(key): key for key in keys}
    found = tuple(key if key in keys else called.get(str(key), key) for key in declared)
    if numbers is not None and not set(found) & set(keys):  # other names for numbered actions
        if not 0 <= min(numbers) <= max(numbers) < len(found) or len(set(found)) < len(found):
            raise ModelError(f"{len(found)} names for the actions {min(numbers)} to {max(numbers)}: {found}")
        return ActionOrder(tuple(range(len(found))), tuple(map(str, found)), True)
    return named_actions(dict.fromkeys((*found, *keys)), is_known=set(keys) <= set(found))
