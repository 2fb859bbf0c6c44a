"""The unified Markov binary format (UMB), through the package ``umbi`` (the only importer of it)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rpl_agent.errors import ModelError
from rpl_agent.formats.explicit import ExplicitModel


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
