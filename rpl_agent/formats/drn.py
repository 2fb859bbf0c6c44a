"""Storm's explicit format (DRN)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rpl_agent.formats.explicit import ExplicitModel


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
