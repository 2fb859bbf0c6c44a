"""What every exported model shares: an interval MDP in plain lists, with names that other tools accept; UMB files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from rpl_agent.errors import ModelError
from rpl_agent.model.objective import Objective
from rpl_agent.model.pmdp import ParametricMDP


def identifiers(names: Iterable[str], reserved: Iterable[str] = ()) -> dict[str, str]:
    """Names made into identifiers, distinct ones into distinct ones: ``"bet 0"`` becomes ``bet_0``."""
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
    is_point : every bound is a single number: an ordinary MDP.
    actions, labels, rewards : name in the model -> name in the file.
    """

    def __init__(self, pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray):
        lower, upper = np.asarray(lower, dtype=float), np.asarray(upper, dtype=float)
        if lower.shape != (pmdp.num_expressions,) or upper.shape != lower.shape:
            raise ModelError(
                f"bounds have shapes {lower.shape} and {upper.shape}; the model has {pmdp.num_expressions} expressions"
            )
        bad = ~((0.0 <= lower) & (lower <= upper) & (upper <= 1.0))
        if bad.any():
            f = int(np.argmax(bad))
            raise ModelError(
                f"[{lower[f]}, {upper[f]}] are not valid bounds for the expression {pmdp.table.polynomial(f)}"
            )
        self.pmdp = pmdp
        self.lower, self.upper = lower[pmdp.expression], upper[pmdp.expression]
        self.is_point = bool((lower == upper).all())
        self.actions = identifiers(pmdp.action_names)
        # "init" and "deadlock" are every tool's own labels: ours are written from the structure
        shown = [name for name in pmdp.labels if name not in ("init", "deadlock")]
        self.labels = identifiers(shown, reserved=("init", "deadlock"))
        for name, reward in pmdp.rewards.items():
            if not reward.is_known:
                raise ModelError(f"the reward {name!r} depends on the parameters: there are no numbers to write")
        self.rewards = identifiers(pmdp.rewards)

    def label_mask(self, name: str) -> np.ndarray:
        """(S,) bool of a label by its name in the file; "init" included."""
        if name == "init":
            return np.arange(self.pmdp.num_states) == self.pmdp.initial_state
        original = next(old for old, new in self.labels.items() if new == name)
        return np.asarray(self.pmdp.labels[original], dtype=bool)

    def property_text(self, objective: Objective) -> str:
        """The objective in PRISM's notation, with the names of the file."""
        renamed = replace(
            objective,
            target=None if objective.target is None else self.labels.get(objective.target, objective.target),
            avoid=None if objective.avoid is None else self.labels.get(objective.avoid, objective.avoid),
            reward_name=None if objective.reward_name is None else self.rewards[objective.reward_name],
        )
        return renamed.describe()

    def probability_texts(self) -> list[str]:
        """One text per transition: ``0.5``, or ``[0.4, 0.6]`` in an interval model. Floats are written exactly."""
        if self.is_point:
            return [repr(v) for v in self.lower.tolist()]
        return [f"[{low!r}, {high!r}]" for low, high in zip(self.lower.tolist(), self.upper.tolist(), strict=True)]


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
