"""Write a learned uncertain model or a policy; the file's suffix determines the format.

========== ==========================================================================================
``.drn``   Storm's explicit format, value type double-interval (double if every bound is a point)
``.umb``   the unified Markov binary format, through the package ``umbi``
``.csv``   policy: one line per state and action with positive probability
``.json``  policy, with the model's hash
``.strat`` policy as a PRISM strategy: ``(values of the variables):action``
========== ==========================================================================================

Models get names that other tools accept (`ExplicitModel`). Bounds are written unchanged. A lower bound 0 means that
nature may delete the transition; Storm refuses such models, and replacing 0 by a small number would be unsound, so
this is not done.
"""

from __future__ import annotations

import csv
import json
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from rpl_agent.core.errors import ModelError, RPLWarning
from rpl_agent.core.model import Kind, Nature, Objective, ParametricMDP, Policy, Reward, Sense, Unreached
from rpl_agent.core.regions.lifting import checked_bounds
from rpl_agent.core.relaxations.interval import Intervals
from rpl_agent.core.solver import solve


def identifiers(names: Iterable[str], reserved: Iterable[str] = ()) -> dict[str, str]:
    """Turn names into identifiers, keeping them distinct: ``"bet 0"`` becomes ``bet_0``."""
    taken, result = set(reserved), {}
    names = list(names)
    for name in sorted(names, key=lambda n: not n.isidentifier()):  # proper identifiers keep their names
        base = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "unnamed"
        if base[0].isdigit():
            base = "_" + base
        candidate, number = base, 2
        while candidate in taken:
            candidate, number = f"{base}_{number}", number + 1
        taken.add(candidate)
        result[name] = candidate
    return {name: result[name] for name in names}


class ExplicitModel:
    """Bounds per transition and clean names.

    Attributes
    ----------
    lower, upper : (T,) bounds of every transition.
    is_point : whether every bound is a single number: an ordinary MDP.
    actions, labels, rewards : name in the model -> name in the file.
    """

    def __init__(self, pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray):
        lower, upper = checked_bounds(pmdp, lower, upper, tolerance=0.0)
        self.pmdp = pmdp
        self._bounds = lower, upper
        self.lower, self.upper = lower[pmdp.expression], upper[pmdp.expression]
        self.is_point = bool((lower == upper).all())
        self.actions = identifiers(pmdp.action_names)
        # "init" and "deadlock" are labels of the tools: ours are written from the structure
        shown = [name for name in pmdp.labels if name not in ("init", "deadlock")]
        self.labels = identifiers(shown, reserved=("init", "deadlock"))
        self.rewards = identifiers(pmdp.rewards)

    def label_mask(self, name: str) -> np.ndarray:
        """(S,) bool of a label by its name in the file; "init" included."""
        if name == "init":
            return np.arange(self.pmdp.num_states) == self.pmdp.initial_state
        original = next(old for old, new in self.labels.items() if new == name)
        return np.asarray(self.pmdp.labels[original], dtype=bool)

    def property_text(self, objective: Objective) -> str:
        """The objective in PRISM's notation, with the names in the file; ModelError if PRISM has none."""
        renamed = replace(
            objective,
            target=None if objective.target is None else self.labels.get(objective.target, objective.target),
            avoid=None if objective.avoid is None else self.labels.get(objective.avoid, objective.avoid),
            reward_name=None if objective.reward_name is None else self.rewards[objective.reward_name],
        )
        return renamed.in_prism(objective.target is not None and self._always_reached(objective.target))

    def _always_reached(self, target: str) -> bool:
        """Whether every play reaches a label: then a cost of 0, infinite if the label is missed, is finite."""
        free = replace(
            self.pmdp, rewards={"free": Reward(np.zeros(self.pmdp.num_states), np.zeros(self.pmdp.num_rows))}
        )
        missed = Objective(Kind.REWARD, Sense.MAX, target, reward_name="free", unreached=Unreached.INFINITE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RPLWarning)
            found = solve(Intervals(free, *self._bounds), missed, Nature.COOPERATIVE)
        return bool(np.isfinite(found.upper))

    def probability_texts(self) -> list[str]:
        """One text per transition: ``0.5``, or ``[0.4, 0.6]`` in an interval model. Floats are written exactly."""
        if self.is_point:
            return [repr(v) for v in self.lower.tolist()]
        return [f"[{low!r}, {high!r}]" for low, high in zip(self.lower.tolist(), self.upper.tolist(), strict=True)]


def write_drn(path: Path, model: ExplicitModel) -> list[Path]:
    """Write an (interval) MDP as DRN."""
    pmdp = model.pmdp
    probabilities = model.probability_texts()
    labels: list[list[str]] = [[] for _ in range(pmdp.num_states)]
    for name in ("init", *model.labels.values()):
        for marked in model.label_mask(name).nonzero()[0].tolist():
            labels[marked].append(name)
    state_rewards = [np.asarray(pmdp.rewards[name].state, dtype=float).tolist() for name in model.rewards]
    row_rewards = [np.asarray(pmdp.rewards[name].row, dtype=float).tolist() for name in model.rewards]
    state_ptr, row_ptr = pmdp.state_ptr.tolist(), pmdp.row_ptr.tolist()
    actions = [model.actions[pmdp.action_names[a]] for a in pmdp.action.tolist()]
    successors = pmdp.successor.tolist()
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"// Exported by rpl-agent: {pmdp.name}\n@type: MDP\n")
        file.write(f"@value_type: {'double' if model.is_point else 'double-interval'}\n")
        file.write(f"@parameters\n\n@reward_models\n{' '.join(model.rewards.values())}\n")
        file.write(f"@nr_states\n{pmdp.num_states}\n@nr_choices\n{pmdp.num_rows}\n@model\n")
        for s in range(pmdp.num_states):
            rewards = f" [{', '.join(repr(r[s]) for r in state_rewards)}]" if state_rewards else ""
            file.write(f"state {s}{rewards}{''.join(' ' + name for name in labels[s])}\n")
            for row in range(state_ptr[s], state_ptr[s + 1]):
                rewards = f" [{', '.join(repr(r[row]) for r in row_rewards)}]" if row_rewards else ""
                file.write(f"\taction {actions[row]}{rewards}\n")
                file.writelines(
                    f"\t\t{successors[t]} : {probabilities[t]}\n" for t in range(row_ptr[row], row_ptr[row + 1])
                )
    return [path]


def write_umb(path: Path, model: ExplicitModel) -> list[Path]:
    """Write an (interval) MDP as a UMB archive."""
    try:
        from umbi import ats
        from umbi.datatypes import Interval
    except ImportError:
        raise ModelError("writing .umb needs the package umbi: pip install umbi") from None
    pmdp = model.pmdp
    system = ats.ExplicitAts()
    system.time = ats.TimeType.DISCRETE
    system.num_players = 1
    system.model_info = ats.ModelInfo(name=pmdp.name)
    system.choice_action_to_name = [model.actions[name] for name in pmdp.action_names]
    system.num_choice_actions = pmdp.num_actions
    lower, upper = model.lower.tolist(), model.upper.tolist()
    state_ptr, row_ptr = pmdp.state_ptr.tolist(), pmdp.row_ptr.tolist()
    action, successor = pmdp.action.tolist(), pmdp.successor.tolist()
    for s in range(pmdp.num_states):
        system.add_state()
        for row in range(state_ptr[s], state_ptr[s + 1]):
            choice = system.add_state_choice(state=s)
            choice.action = action[row]
            for t in range(row_ptr[row], row_ptr[row + 1]):
                choice.add_branch(successor[t], lower[t] if model.is_point else Interval(lower[t], upper[t]))
    system.set_initial_states([pmdp.initial_state])
    system.state_to_player = [0] * pmdp.num_states
    for name in model.labels.values():
        system.add_ap_annotation(name=name).set_state_values(model.label_mask(name).tolist())
    for name, shown in model.rewards.items():
        annotation = system.add_reward_annotation(name=shown)
        annotation.set_state_values(np.asarray(pmdp.rewards[name].state, dtype=float).tolist())
        annotation.set_choice_values(np.asarray(pmdp.rewards[name].row, dtype=float).tolist())
    if pmdp.variables:
        system.variable_valuations = ats.EntityClassValuations()
        valuations = ats.EntityValuations()
        variables = [valuations.add_variable(name) for name in pmdp.variables]
        columns = [np.asarray(c).tolist() for c in pmdp.variables.values()]
        for s, values in enumerate(zip(*columns, strict=True)):
            valuations.set_entity_valuation(s, dict(zip(variables, values, strict=True)))
        system.variable_valuations.set_state_valuations(valuations)
    ats.write(system, path)
    return [path]


def write_uncertain(
    path: str | Path, pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray, objective: Objective | None = None
) -> list[Path]:
    """Write the interval MDP with bounds (F,) per expression; returns the files written.

    The objective's target and avoid labels are part of the file like all labels; the property itself is written
    to a ``.props`` file beside it, with the file's names. Where PRISM has no property that means the same, there is
    no such file, and a warning says why.
    """
    path = Path(path)
    writers = {".drn": write_drn, ".umb": write_umb}
    if path.suffix not in writers:
        raise ModelError(f"{path.name}: the ending must be one of {', '.join(writers)}")
    model = ExplicitModel(pmdp, lower, upper)
    written = writers[path.suffix](path, model)
    if objective is not None:
        properties = path.with_suffix(".props")
        try:
            text = model.property_text(objective)
        except ModelError as error:
            warnings.warn(f"{error}: there is no {properties.name}", RPLWarning, stacklevel=2)
            properties.unlink(missing_ok=True)  # an older one would be taken for this model's
            return written
        properties.write_text(text + "\n", encoding="utf-8")
        written.append(properties)
    return written


def write_policy(path: str | Path, pmdp: ParametricMDP, policy: Policy) -> Path:
    """Write a policy as ``.csv``, ``.json`` or ``.strat``."""
    path = Path(path)
    writers = {".csv": write_csv, ".json": write_json, ".strat": write_strategy}
    if path.suffix not in writers:
        raise ModelError(f"{path.name}: the ending must be one of {', '.join(writers)}")
    policy.require_fit(pmdp)
    writers[path.suffix](path, pmdp, policy)
    return path


# -- policies --------------------------------------------------------------------------------------------------------
#: Reserved column names; a state variable with such a name gets an underscore.
COLUMNS = ("time_step", "state", "value", "action", "probability")


def _decisions(pmdp: ParametricMDP, policy: Policy) -> Iterator[tuple[int | None, int, int, float]]:
    """(step, state, row, probability) for every positive probability; step is None for a stationary policy.

    Silent states are left out: nothing is chosen there, and no environment shows them.
    """
    rules = (
        [(None, policy)]
        if policy.rows is None or policy.rows.ndim == 1
        else [(k, policy.at(m)) for k in range(len(policy.rows)) if (m := pmdp.solver_step(k)) < len(policy.rows)]
    )
    for step, rule in rules:
        weights = rule.as_weights(pmdp)
        for row in np.flatnonzero((weights > 0) & ~pmdp.is_silent[pmdp.row_state]):
            yield step, int(pmdp.row_state[row]), int(row), float(weights[row])


def write_csv(path: Path, pmdp: ParametricMDP, policy: Policy) -> None:
    """Columns: [time_step,] state, its variables (or its value if it has none), action, probability."""
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
        raise ModelError("a PRISM strategy file needs a deterministic stationary policy; write .csv or .json instead")
    columns = [np.asarray(values).tolist() for values in pmdp.variables.values()]
    with open(path, "w", encoding="utf-8") as file:
        for state, row in enumerate(policy.rows.tolist()):
            shown = ",".join(str(c[state]) for c in columns) if columns else str(state)
            file.write(f"({shown}):{pmdp.action_names[pmdp.action[row]]}\n")
