"""Read a policy; the file's suffix determines the format.

========== ==========================================================================================
``.csv``   a table: state (or the state variables), action, weight
``.json``  what `export.write_policy` writes, or a scheduler of Storm (``--exportscheduler FILE.json``)
``.strat`` PRISM's list of actions, ``(values of the variables):action``
========== ==========================================================================================

A policy of Stable-Baselines3 (``.zip``) needs its environment: `rpl_agent.studies.baselines.sb3.from_sb3`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from rpl_agent.core.errors import DataError, ModelError, as_path, require_kind, text_of
from rpl_agent.core.model import ParametricMDP, Policy, StateIndex
from rpl_agent.core.model.building.policy_table import Entry
from rpl_agent.formats.export import identifiers

#: of files that may hold a policy; the last one is that of Stable-Baselines3
ENDINGS = (".csv", ".json", ".strat", ".zip")
#: what Python raises where JSON has another shape
MALFORMED = (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError)


def read_policy(path: str | Path, pmdp: ParametricMDP) -> Policy:
    """The policy in a file, as a policy of the model.

    Raises
    ------
    DataError or ModelError
        The file is not one of the formats, names a state or action that the model does not have, or says nothing
        about a state that the policy reaches.

    >>> import tempfile, pathlib
    >>> toss = lambda s: {"safe": {1: 1}, "bold": {1: "p", 2: "1 - p"}} if s == 0 else {"stay": {s: 1}}
    >>> model, path = build(0, toss, domain=["p"]), pathlib.Path(tempfile.mkdtemp()) / "policy.csv"
    >>> _ = path.write_text("state,action,weight\\n0,bold,1\\n")
    >>> read_policy(path, model).to_table(model)[0]
    ('0', 'bold', 1.0)
    """
    path = as_path(path, "path")
    require_kind("pmdp", pmdp, ParametricMDP)
    require_policy_ending(path)
    if path.suffix == ".zip":
        raise DataError(f"{path.name}: from_sb3(path, env) reads a model of Stable-Baselines3")
    return {".csv": _table, ".json": _json, ".strat": _strategy}[path.suffix](path, pmdp)


def require_policy_ending(path: Path) -> None:
    """Raise unless a file of this name may hold a policy."""
    if path.suffix not in ENDINGS:
        named = path.with_name(path.name + ".zip")
        hint = f"; did you mean {named.name}?" if named.is_file() else ""
        raise DataError(
            f"{path.name}: a policy is a file ending in {', '.join(ENDINGS[:-1])}, or .zip of Stable-Baselines3{hint}"
        )


def _table(path: Path, pmdp: ParametricMDP) -> Policy:
    return Policy.from_table(pmdp, path)


def _json(path: Path, pmdp: ParametricMDP) -> Policy:
    text = text_of(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise DataError(f"{path} is not JSON") from None
    if isinstance(content, list):
        return Policy.from_table(pmdp, _storm(path, pmdp, content))
    if isinstance(content, dict) and "states" in content:
        return _own(path, pmdp, content)
    raise DataError(f"{path} is neither a policy that rpl wrote nor a scheduler of Storm")


def _own(path: Path, pmdp: ParametricMDP, content: dict[str, Any]) -> Policy:
    """``{"model_hash", "states": {number of the state: {action: weight}}}``; one "states" per step of a horizon."""
    if content.get("model_hash", pmdp.content_hash) != pmdp.content_hash:
        raise DataError(f"{path} is a policy of another model, {content.get('model')!r}")
    states = content["states"]
    if isinstance(states, list):
        return Policy.from_rules(pmdp, {step: _rule(path, rule) for step, rule in enumerate(states)})
    return Policy.from_table(pmdp, _rule(path, states))


def _rule(path: Path, states: Any) -> Iterator[Entry]:
    if not isinstance(states, dict):
        raise DataError(f"{path}: {states!r} are not states with a weight for each action")
    for state, choice in states.items():
        try:
            entries = [(StateIndex(int(state)), action, float(weight)) for action, weight in choice.items()]
        except MALFORMED:
            raise DataError(f"{path}: state {state!r} has {choice!r}, not a weight for each action") from None
        yield from entries


def _storm(path: Path, pmdp: ParametricMDP, content: list[Any]) -> Iterator[Entry]:
    """``[{"s": number or {variable: value}, "c": [{"origin": {"action-label": a}, "labels": [a], "prob": p}]}]``."""
    actions = {clean: name for name, clean in identifiers(pmdp.action_names).items()}
    for entry in content:
        try:
            entries = _storm_entry(path, pmdp, actions, entry)
        except (DataError, ModelError):
            raise
        except MALFORMED:
            raise DataError(f"{path}: the entry {entry!r} is not a state 's' with its choices 'c'") from None
        yield from entries


def _storm_entry(path: Path, pmdp: ParametricMDP, actions: dict[str, str], entry: dict[str, Any]) -> list[Entry]:
    given, choices = entry["s"], entry["c"]
    if int(entry.get("m", 0)) > 0:
        raise DataError(f"{path}: the scheduler has memory; a policy of the model chooses by its state alone")
    state = _storm_state(path, pmdp, given)
    if choices == "undefined":
        return []
    entries: list[Entry] = []
    for choice in choices:
        label = _storm_action(choice, pmdp, state)
        if label is None:
            raise DataError(f"{path}: a choice of state {given} has no action label: export with choice labels")
        entries.append((state, actions.get(label, label), float(Fraction(str(choice.get("prob", 1))))))
    return entries


def _storm_state(path: Path, pmdp: ParametricMDP, given: Any) -> StateIndex:
    if not isinstance(given, dict):
        return StateIndex(pmdp.state_index(StateIndex(int(given))))
    if set(pmdp.variables) - set(given):
        missing = sorted(set(pmdp.variables) - set(given))
        raise DataError(f"{path}: the state {given} has no value for the variable {missing[0]!r}")
    return StateIndex(pmdp.state_index(tuple(int(given[name]) for name in pmdp.variables)))


def _storm_action(choice: dict[str, Any], pmdp: ParametricMDP, state: int) -> str | None:
    """The label of a choice; where a state has one action only, that one."""
    labels = [choice.get("origin", {}).get("action-label"), *choice.get("labels", [])]
    found = next((label for label in labels if label), None)
    if found is None and pmdp.state_ptr[state + 1] - pmdp.state_ptr[state] == 1:
        return pmdp.action_names[pmdp.action[pmdp.state_ptr[state]]]
    return found


_LINE = re.compile(r"\((?P<state>.*)\)\s*[:=]\s*(?P<action>.+)")


def _strategy(path: Path, pmdp: ParametricMDP) -> Policy:
    """A policy in PRISM's list of actions."""
    return Policy.from_table(pmdp, _lines(path, pmdp))


def _lines(path: Path, pmdp: ParametricMDP) -> Iterator[Entry]:
    for number, line in enumerate(text_of(path).splitlines(), start=1):
        if not line.strip():
            continue
        found = _LINE.fullmatch(line.strip())
        if found is None:
            raise DataError(f"{path}, line {number}: expected (values):action, found {line.strip()!r}")
        texts = [text.strip() for text in found["state"].split(",")]
        try:
            numbers = tuple(int({"true": "1", "false": "0"}.get(text, text)) for text in texts)
        except ValueError:
            raise DataError(f"{path}, line {number}: ({found['state']}) are not whole numbers") from None
        state = pmdp.state_index(numbers) if pmdp.variables else numbers[0]
        yield StateIndex(state), found["action"], 1.0
