"""`cached_on`, `cached_fact`: facts derived from an object, computed once and kept as long as it lives."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar

Fact = TypeVar("Fact")
Model = TypeVar("Model")
#: keyed by identity: comparing the arrays of models would cost more than most facts
_facts: dict[int, tuple[weakref.ref[Any], dict[str, Any]]] = {}


def cached_on(model: Model, name: str, make: Callable[[Model], Fact]) -> Fact:
    """make(model), computed once for a model, an expression table or any other frozen object."""
    key = id(model)
    entry = _facts.get(key)
    if entry is None or entry[0]() is not model:
        entry = (weakref.ref(model, partial(_forget, _facts, key)), {})
        _facts[key] = entry
    facts = entry[1]
    if name not in facts:
        facts[name] = make(model)
    return facts[name]


def cached_fact(make: Callable[[Model], Fact]) -> Callable[[Model], Fact]:
    """Decorate a function of one frozen object: it is computed once per object."""
    name = f"{make.__module__}.{make.__qualname__}"

    @wraps(make)
    def found(model: Model) -> Fact:
        return cached_on(model, name, make)

    return found


def _forget(facts: dict[int, Any], key: int, _: weakref.ref[Any]) -> None:
    """Takes the facts as an argument, because globals may be gone at interpreter shutdown."""
    facts.pop(key, None)
