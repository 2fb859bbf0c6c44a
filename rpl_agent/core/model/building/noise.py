"""`build_noise`: a model from named noise: which rows share an unknown chance, and what it does in each.

All pairs with one key draw a label from one unknown distribution; ``effect`` says where a label leads. That is a tied
model without a polynomial: a key with n labels has n − 1 parameters on a simplex. Where several labels lead to the same
state (at a wall, with a demand that exceeds the stock), the row gets the sum of their probabilities.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model.building.builder import build
from rpl_agent.core.model.domain import Domain
from rpl_agent.core.model.pmdp import ParametricMDP
from rpl_agent.core.model.polynomial import Polynomial


def build_noise(
    initial_state: Any,
    actions: Callable[[Any], Iterable[Any]],
    *,
    noise: Mapping[Hashable, Sequence[Any]],
    effect: Callable[[Any, Any, Any], Any],
    key: Callable[[Any, Any], Hashable] | None = None,
    labels: Mapping[str, Callable[[Any], bool]] | None = None,
    rewards: Mapping[str, Callable[..., float]] | None = None,
    **options: Any,
) -> ParametricMDP:
    """Explore from the start and return the model.

    Parameters
    ----------
    initial_state : as in `build`.
    actions : state -> its actions.
    noise : key -> the labels that may be drawn; at least two.
    effect : (state, action, label) -> the successor.
    key : (state, action) -> the key of its noise, or None if nothing is drawn (the label is None then). May be left out
        if there is one key only.
    labels, rewards, options : as in `build`.

    >>> def push(position, action, wind):
    ...     return min(max(position + (action == "right") + (wind == "gust"), 0), 4)
    >>> build_noise(0, lambda position: ["left", "right"] if position < 4 else ["stay"],
    ...     noise={"wind": ["calm", "gust"]}, effect=push, labels={"there": lambda position: position == 4})
    ParametricMDP('model', states=5, transitions=16, expressions=3, parameters=('wind_calm',))
    """
    chances, domain = chances_of(noise)
    if key is None and len(noise) != 1:
        raise ModelError(f"noise has {len(noise)} keys: pass key=..., a function of (state, action)")
    only = next(iter(noise))

    def rows(state: Any) -> dict[Any, dict[Any, Any]]:
        found: dict[Any, dict[Any, Any]] = {}
        for action in actions(state):
            drawn = only if key is None else key(state, action)
            if drawn is None:
                found[action] = {effect(state, action, None): 1}
                continue
            if drawn not in chances:
                raise ModelError(f"key({state!r}, {action!r}) is {drawn!r}, which noise does not list")
            row: dict[Any, Any] = {}
            for label, chance in chances[drawn]:
                successor = effect(state, action, label)
                row[successor] = row[successor] + chance if successor in row else chance
            found[action] = row
        return found

    return build(initial_state, rows, domain=domain, labels=labels, rewards=rewards, **options)


def chances_of(
    noise: Mapping[Hashable, Sequence[Any]],
) -> tuple[dict[Hashable, list[tuple[Any, Polynomial]]], Domain]:
    """Labels with their probabilities by key, and the domain: a simplex per key."""
    if not isinstance(noise, Mapping):
        raise ModelError(f"noise={noise!r} must map keys to their labels: write noise={{'wind': ['calm', 'gust']}}")
    if not noise:
        raise ModelError("noise is empty: give at least one key with its labels")
    found: dict[Hashable, list[tuple[Any, Polynomial]]] = {}
    names: dict[str, None] = {}  # in order
    group: list[int] = []
    for number, (drawn, listed) in enumerate(noise.items()):
        outcomes = list(listed) if hasattr(listed, "__iter__") else [listed]
        if len(set(outcomes)) < max(len(outcomes), 2):
            raise ModelError(f"noise[{drawn!r}] is {outcomes}: it needs two or more different labels")
        own: list[str] = []
        for label in outcomes[:-1]:
            own.append(_name(f"{drawn}_{label}", names))
            names[own[-1]] = None
        group += [number] * len(own)
        parts = [Polynomial.parameter(name) for name in own]
        rest = Polynomial.constant(1)
        for part in parts:
            rest = rest - part
        found[drawn] = list(zip(outcomes, [*parts, rest]))
    return found, Domain.box(list(names)).with_sums(np.array(group))


def _name(text: str, taken: Container[str]) -> str:
    """A name for a parameter, like the text and not yet taken."""
    plain = re.sub(r"\W+", "_", text).strip("_") or "p"
    plain = plain if not plain[0].isdigit() else f"p{plain}"
    unique, number = plain, 2
    while unique in taken:
        unique, number = f"{plain}_{number}", number + 1
    return unique
