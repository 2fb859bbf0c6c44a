"""Our own format of a model: plain data and arrays that say everything, so that a run is read without an environment.

Numbers stay exact: coefficients are integers, floats keep every bit. States and actions that are not plain data
(numbers, strings, tuples, named tuples) keep their text: such a model answers every question about itself, but no
observation finds its state in it.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np

from rpl_agent.errors import DataError
from rpl_agent.jsonable import jsonable
from rpl_agent.model.expressions import ExpressionTable
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.states import START, Paid
from rpl_agent.schema import UNREADABLE, read

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Shown:
    """A state or an action of which only the text is known."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class StoredTable:
    """`ExpressionTable.stored_parts`."""

    parameters: tuple[str, ...]
    monomials: np.ndarray | None
    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray | None
    denominators: tuple[int, ...]
    large: list[int] | None  # numerators that do not fit 64 bits


def model_to_data(pmdp: ParametricMDP) -> tuple[dict[str, Any], Arrays]:
    """(plain data, arrays) of a model."""
    arrays: Arrays = {}
    parts = {f.name: getattr(pmdp, f.name) for f in fields(pmdp)}
    for name in ("state_values", "own_actions"):
        parts[name] = None if parts[name] is None else [_key(value) for value in parts[name]]
    order = list(pmdp.variables)  # objects in files have none
    return jsonable(parts, arrays) | {"hash": pmdp.content_hash, "order": order}, arrays


def model_from_data(data: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> ParametricMDP:
    """The model that `model_to_data` was given; anything else is an error."""
    place = "the stored model is not readable"

    def table(value: Any) -> ExpressionTable:
        found = read(value, StoredTable, place, arrays)
        numbers = found.data if found.large is None else np.array(found.large, dtype=object)
        return ExpressionTable(
            found.parameters, found.monomials, (found.indptr, found.indices, numbers), found.denominators
        )

    makers: dict[Any, Any] = {ExpressionTable: table, Hashable: _value}
    model = read(data, ParametricMDP, place, arrays, makers=makers)
    try:
        model = replace(model, variables={name: model.variables[name] for name in data["order"]})
        found, expected = model.content_hash, data["hash"]
    except UNREADABLE as error:
        raise DataError(f"{place}: {error!r}") from None
    if found != expected:
        raise DataError(f"the stored model {model.name!r} is damaged: its hash is {found}, not {expected}")
    return model


# ---------------------------------------------------------------------- values of states and keys of actions
def _key(value: Any) -> Any:
    """Plain data for a value: what is no number or text is a list that begins with its kind."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is START:
        return ["start"]
    if isinstance(value, Paid):
        return ["paid", _key(value.successor), [[name, amount.hex()] for name, amount in value.extra]]
    if type(value) is float:
        return ["float", value.hex()]
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is tuple:
        return ["tuple", [_key(item) for item in value]]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ["named", type(value).__name__, list(value._fields), [_key(item) for item in value]]
    return ["shown", repr(value)]


def _value(key: Any) -> Hashable:
    if not isinstance(key, list):
        return key
    kind, *rest = key
    if kind == "start":
        return START
    if kind == "paid":
        return Paid(_value(rest[0]), tuple((name, float.fromhex(amount)) for name, amount in rest[1]))
    if kind == "float":
        return float.fromhex(rest[0])
    if kind == "tuple":
        return tuple(map(_value, rest[0]))
    if kind == "named":
        return _named(rest[0], tuple(rest[1]))(*map(_value, rest[2]))
    return Shown(rest[0])


@cache
def _named(name: str, fields: Sequence[str]) -> Any:
    return namedtuple(name, fields)
