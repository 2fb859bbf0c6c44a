"""Write a learned uncertain model or a policy; the ending of the file name decides the format.

========== ==========================================================================================
``.drn``   Storm's explicit format, value type double-interval (double if every bound is a point)
``.umb``   the unified Markov binary format, through the package ``umbi``
``.csv``   policy: one line per state and action with positive probability
``.json``  policy, with the model's hash
``.strat`` policy as a PRISM strategy: ``(values of the variables):action``
========== ==========================================================================================

Bounds are written as they are. A lower bound 0 means that nature may delete the transition; Storm refuses such
models, and replacing 0 by a small number would be unsound, so that is not done here.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rpl_agent.errors import ModelError
from rpl_agent.formats.drn import write_drn
from rpl_agent.formats.explicit import ExplicitModel, write_umb
from rpl_agent.model.objective import Objective
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.policy import Policy


def write_uncertain(
    path: str | Path, pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray, objective: Objective | None = None
) -> list[Path]:
    """Write the interval MDP with bounds (F,) per expression; returns the files written.

    The objective's target and avoid labels are part of the file like all labels; the property itself is written
    beside it (``.props``), with the names as the file has them.
    """
    path = Path(path)
    writers = {".drn": write_drn, ".umb": write_umb}
    if path.suffix not in writers:
        raise ModelError(f"{path.name}: the ending must be one of {', '.join(writers)}")
    model = ExplicitModel(pmdp, lower, upper)
    written = writers[path.suffix](path, model)
    if objective is not None:
        properties = path.with_suffix(".props")
        properties.write_text(model.property_text(objective) + "\n", encoding="utf-8")
        written.append(properties)
    return written


def write_policy(path: str | Path, pmdp: ParametricMDP, policy: Policy) -> Path:
    """Write a policy as ``.csv``, ``.json`` or ``.strat``."""
    path = Path(path)
    writers = {".csv": write_csv, ".json": write_json, ".strat": write_strategy}
    if path.suffix not in writers:
        raise ModelError(f"{path.name}: the ending must be one of {', '.join(writers)}")
    policy.check(pmdp)
    writers[path.suffix](path, pmdp, policy)
    return path


# -- policies --------------------------------------------------------------------------------------------------------
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
