"""PRISM's ``multi(…)``: one objective, and limits on other values of the same policy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Limit, Objective, ParametricMDP

if TYPE_CHECKING:
    from rpl_agent.formats.prism import PrismModel

_MULTI = re.compile(r"\s*multi\s*\((?P<parts>.*)\)\s*", re.S)
_LIMIT = re.compile(r"(?P<head>P|R(?:\{[^}]*\})?)\s*(?P<sign><=|>=)\s*(?P<number>[-+.\deE]+)\s*(?P<path>\[.*\])", re.S)


def is_multi(text: str | None) -> bool:
    return text is not None and _MULTI.fullmatch(text) is not None


@dataclass(frozen=True, eq=False)
class MultiQuery:
    """A property ``multi(…)``: objectives with =?, and limits, each in the order of the text."""

    pmdp: ParametricMDP
    goals: tuple[Objective, ...]
    limits: tuple[Limit, ...]


def multi_query(model: PrismModel, text: str) -> MultiQuery:
    """Read a property such as ``multi(Pmax=? [F "a"], P<=0.1 [F "b"])``."""
    found = _MULTI.fullmatch(text)
    parts = [] if found is None else list(_parts(found["parts"]))
    if len(parts) < 2:
        raise ModelError(f"{text}: multi(…) needs at least two properties")
    pmdp: ParametricMDP | None = None
    goals, limits = [], []
    for part in parts:
        limit = None if "=?" in part else _LIMIT.fullmatch(part)
        if limit is None and "=?" not in part:
            raise ModelError(f'the limit {part} is not understood: write, for example, P<=0.1 [ F "fail" ]')
        query = part
        if limit is not None:
            query = f"{limit['head']}{'min' if limit['sign'] == '<=' else 'max'}=? {limit['path']}"
        if model.query(query).complement:
            raise ModelError(f"{part} is answered as 1 minus another probability: limit that probability instead")
        own, objective = model.objective(query)
        pmdp = own if pmdp is None else _with_labels(pmdp, own, part)
        if limit is None:
            goals.append(objective)
        else:
            limits.append(Limit(objective, _threshold(limit["number"], part)))
    assert pmdp is not None
    return MultiQuery(pmdp, tuple(goals), tuple(limits))


def multi_objective(model: PrismModel, text: str) -> tuple[ParametricMDP, Objective]:
    """The model and the objective with its limits, for a property with one goal."""
    found = multi_query(model, text)
    if len(found.goals) != 1:
        raise ModelError(f'{text}: expected one property with =? and limits such as P<=0.1 [ F "fail" ]')
    return found.pmdp, found.goals[0].subject_to(*found.limits)


def _threshold(text: str, part: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ModelError(f"the limit {part} is not understood: {text!r} is not a number") from None


def _parts(text: str) -> Iterator[str]:
    """The properties in a text, split at the commas outside all brackets."""
    depth, begin = 0, 0
    for k, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            yield text[begin:k].strip()
            begin = k + 1
    yield text[begin:].strip()


def _with_labels(pmdp: ParametricMDP, other: ParametricMDP, part: str) -> ParametricMDP:
    """The model with the labels that another property gave to the same states."""
    if not other.has_states_of(pmdp):
        raise ModelError(f"the limit {part} has to remember what has happened: only F and U over states can be limited")
    for name, mask in other.labels.items():
        if name in pmdp.labels and not np.array_equal(pmdp.labels[name], mask):
            raise ModelError(f"two properties call different states {name!r}")
    return replace(pmdp, labels={**pmdp.labels, **other.labels})
