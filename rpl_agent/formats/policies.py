"""Policies out: CSV, JSON and PRISM strategies. Finite-horizon policies carry the step."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rpl_agent.errors import ModelError
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.policy import Policy

#: Columns with a meaning of their own; a state variable of such a name gets an underscore.
COLUMNS = ("time_step", "state", "value", "action", "probability")


def _decisions(pmdp: ParametricMDP, policy: Policy) -> Iterator[tuple[int | None, int, int, float]]:
    """(step, state, row, probability) wherever the probability is positive; step is None for a stationary policy."""
    rules = (
        [(None, policy)]
        if policy.rows is None or policy.rows.ndim == 1
        else [(k, policy.at(m)) for k in range(len(policy.rows)) if (m := pmdp.solver_step(k)) < len(policy.rows)]
    )
    for step, rule in rules:
        weights = rule.as_weights(pmdp)
        for row in np.flatnonzero(weights > 0):
            yield step, int(pmdp.row_state[row]), int(row), float(weights[row])


def write_csv(path: Path, pmdp: ParametricMDP, policy: Policy) -> None:
    """Columns: [time_step,] state, its variables (or its value, where it has none), action, probability."""
    stationary = policy.rows is None or policy.rows.ndim == 1
    columns = {f"{n}_" if n in COLUMNS else n: np.asarray(values).tolist() for n, values in pmdp.variables.items()}
    if not columns and pmdp.state_values is not None:
        columns = {"value": list(map(repr, pmdp.state_values))}
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*([] if stationary else ["time_step"]), "state", *columns, "action", "probability"])
        for step, state, row, probability in _decisions(pmdp, policy):
            head = [] if stationary else [step]
            values = [c[state] for c in columns.values()]
            writer.writerow([*head, state, *values, pmdp.action_names[pmdp.action[row]], repr(probability)])


def write_json(path: Path, pmdp: ParametricMDP, policy: Policy) -> None:
    """``{"model", "model_hash", "states": {state: {action: probability}}}``; one "states" per step of a horizon."""
    steps: dict[int | None, dict[str, dict[str, float]]] = {}
    for step, state, row, probability in _decisions(pmdp, policy):
        decision = steps.setdefault(step, {}).setdefault(str(state), {})
        decision[pmdp.action_names[pmdp.action[row]]] = probability
    content = {
        "model": pmdp.name,
        "model_hash": pmdp.content_hash,
        "states": steps[None] if None in steps else [steps[k] for k in sorted(k for k in steps if k is not None)],
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def write_strategy(path: Path, pmdp: ParametricMDP, policy: Policy) -> None:
    """PRISM's list of actions, ``(1,0):go`` by the values of the variables (the state's number without any)."""
    if policy.rows is None or policy.rows.ndim != 1:
        raise ModelError("a PRISM strategy file holds deterministic stationary policies; write .csv or .json instead")
    columns = [np.asarray(values).tolist() for values in pmdp.variables.values()]
    with open(path, "w", encoding="utf-8") as file:
        for state, row in enumerate(policy.rows.tolist()):
            shown = ",".join(str(c[state]) for c in columns) if columns else str(state)
            file.write(f"({shown}):{pmdp.action_names[pmdp.action[row]]}\n")


def read_csv(path: Path | str, pmdp: ParametricMDP) -> Policy:
    """A stationary policy written by `write_csv`, as weights (R,)."""
    weights = np.zeros(pmdp.num_rows)
    number = {name: i for i, name in enumerate(pmdp.action_names)}
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if (
            reader.fieldnames is None
            or not {"state", "action", "probability"} <= set(reader.fieldnames)
            or "time_step" in reader.fieldnames
        ):
            raise ModelError(f"{path}: not a stationary policy with the columns state, action, probability")
        for line in reader:
            if line["action"] not in number:
                raise ModelError(f"{path}:{reader.line_num}: the model has no action {line['action']!r}")
            try:
                state, probability = int(line["state"]), float(line["probability"])
            except (TypeError, ValueError):
                raise ModelError(f"{path}:{reader.line_num}: the state or the probability is not a number") from None
            row = pmdp.find_row(state, number[line["action"]]) if 0 <= state < pmdp.num_states else -1
            if row < 0:
                raise ModelError(f"{path}:{reader.line_num}: action {line['action']!r} is not enabled in state {state}")
            weights[row] = probability
    policy = Policy.randomised(weights)
    policy.check(pmdp)
    return policy
