"""Our own format of a model: plain data and arrays that say everything, so that a run is read without an environment.

Numbers stay exact: coefficients are integers, floats keep every bit. States and actions that are not plain data
(numbers, strings, tuples, named tuples) keep their text: such a model answers every question about itself, but no
observation finds its state in it.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import scipy

from rpl_agent.errors import DataError
from rpl_agent.model.domain import Domain
from rpl_agent.model.expressions import ExpressionTable
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.reward import Reward, Spread
from rpl_agent.model.states import START, Paid

Arrays = dict[str, np.ndarray]
#: Arrays of floats, by the last part of their name.
FLOATS = ("lower", "upper", "b", "value", "state", "row", "width")
SKELETON = ("state_ptr", "action", "row_ptr", "successor", "expression")


class Shown:
    """A state or an action of which only the text is known."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shown) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def model_to_data(pmdp: ParametricMDP) -> tuple[dict[str, Any], Arrays]:
    """(plain data, arrays) of a model; names of labels, rewards and variables stand in the first, in order."""
    table, table_arrays = _table_to_data(pmdp.table)
    A: Any = pmdp.domain.A
    data: dict[str, Any] = {
        "hash": pmdp.content_hash, "name": pmdp.name, "initial_state": pmdp.initial_state, "table": table,
        "labels": list(pmdp.labels), "variables": list(pmdp.variables), "action_names": list(pmdp.action_names),
        "actions_ordered": pmdp.actions_ordered, "rewards": [],
        "states": None if pmdp.state_values is None else [_key(value) for value in pmdp.state_values],
        "actions": None if pmdp.own_actions is None else [_key(value) for value in pmdp.own_actions],
        "sparse_domain": bool(scipy.sparse.issparse(A)),
    }  # fmt: skip
    coo = scipy.sparse.coo_array(A)
    arrays = {name: getattr(pmdp, name) for name in SKELETON} | {f"table.{k}": v for k, v in table_arrays.items()}
    arrays |= {"domain.lower": pmdp.domain.lower, "domain.upper": pmdp.domain.upper, "domain.b": pmdp.domain.b}
    arrays |= {"domain.at_row": coo.row, "domain.at_column": coo.col, "domain.value": coo.data}
    arrays |= {f"labels.{i}": np.asarray(mask, dtype=bool) for i, mask in enumerate(pmdp.labels.values())}
    arrays |= {f"variables.{i}": np.asarray(column) for i, column in enumerate(pmdp.variables.values())}
    if pmdp.silent is not None:
        arrays["silent"] = pmdp.is_silent
    for i, (name, reward) in enumerate(pmdp.rewards.items()):
        spreads = {}
        arrays |= {f"rewards.{i}.state": reward.state, f"rewards.{i}.row": reward.row}
        for kind, spread in (("state", reward.state_spread), ("row", reward.row_spread)):
            if spread is not None:
                spreads[kind], some = _table_to_data(spread.table)
                some |= {key: getattr(spread, key) for key in ("expression", "linked", "width")}
                arrays |= {f"rewards.{i}.{kind}.{key}": value for key, value in some.items()}
        data["rewards"].append({"name": name, "spreads": spreads})
    return data, arrays


def model_from_data(data: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> ParametricMDP:
    """The model that `model_to_data` was given; anything else is an error."""
    try:
        _check_kinds(arrays)
        model = _model(data, arrays)
        found = model.content_hash
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError) as error:
        raise DataError(f"the stored model is not readable: {error!r}") from None
    if found != data["hash"]:
        raise DataError(f"the stored model {data['name']!r} is damaged: its hash is {found}, not {data['hash']}")
    return model


def _model(data: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> ParametricMDP:
    table = _table(data["table"], _within(arrays, "table."))
    shape = (len(arrays["domain.b"]), len(table.parameters))
    A: Any = scipy.sparse.csr_array(
        (arrays["domain.value"], (arrays["domain.at_row"], arrays["domain.at_column"])), shape=shape
    )  # fmt: skip
    domain = Domain(
        table.parameters, arrays["domain.lower"], arrays["domain.upper"], A if data["sparse_domain"] else A.toarray(),
        arrays["domain.b"],
    )  # fmt: skip
    rewards = {}
    for i, entry in enumerate(data["rewards"]):
        spreads = {
            kind: _spread(stored, _within(arrays, f"rewards.{i}.{kind}.")) for kind, stored in entry["spreads"].items()
        }
        rewards[entry["name"]] = Reward(
            arrays[f"rewards.{i}.state"], arrays[f"rewards.{i}.row"], spreads.get("state"), spreads.get("row")
        )
    states, actions = data["states"], data["actions"]
    state_ptr, action, row_ptr, successor, expression = (arrays[name] for name in SKELETON)
    return ParametricMDP(
        state_ptr, action, row_ptr, successor, expression, table, domain, int(data["initial_state"]),
        labels={name: arrays[f"labels.{i}"] for i, name in enumerate(data["labels"])}, rewards=rewards,
        action_names=tuple(data["action_names"]),
        variables={name: arrays[f"variables.{i}"] for i, name in enumerate(data["variables"])}, name=data["name"],
        state_values=None if states is None else tuple(map(_value, states)), silent=arrays.get("silent"),
        actions_ordered=bool(data["actions_ordered"]),
        own_actions=None if actions is None else tuple(map(_value, actions)),
    )  # fmt: skip


def _check_kinds(arrays: Mapping[str, np.ndarray]) -> None:
    """Numbers of the kind that the model has there: text and floats would be turned into whole numbers."""
    for name, array in arrays.items():
        last = name.rpartition(".")[2]
        kinds = "f" if last in FLOATS else "b" if name.startswith("labels.") or name == "silent" else "biu"
        if array.dtype.kind not in kinds + "f" * name.startswith("variables."):
            raise ValueError(f"{name} contains {array.dtype}")


def _within(arrays: Mapping[str, np.ndarray], prefix: str) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _table_to_data(table: ExpressionTable) -> tuple[dict[str, Any], Arrays]:
    """Numerators that do not fit 64 bits stand in the plain data, like all denominators."""
    big = table.data.dtype == object
    data = {
        "parameters": list(table.parameters), "denominators": [str(q) for q in table.denominators],
        "numerators": [str(v) for v in table.data] if big else None,
    }  # fmt: skip
    arrays = {"indptr": np.asarray(table.indptr), "indices": table.indices}
    if not big:
        arrays["data"] = table.data
    if not table.is_plain:
        arrays["monomials"] = table.monomials
    return data, arrays


def _table(data: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> ExpressionTable:
    big = data["numerators"]
    numbers = arrays["data"] if big is None else np.array([int(v) for v in big], dtype=object)
    return ExpressionTable(
        data["parameters"], arrays.get("monomials"), (arrays["indptr"], arrays["indices"], numbers),
        [int(q) for q in data["denominators"]],
    )  # fmt: skip


def _spread(data: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Spread:
    return Spread(_table(data, arrays), arrays["expression"], arrays["linked"], arrays["width"])


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
