"""PRISM's explicit files: ``.tra`` transitions, ``.sta`` states, ``.lab`` labels, ``.srew`` and ``.trew`` rewards."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rpl_agent.formats.explicit import ExplicitModel


def write_tra(path: Path, model: ExplicitModel) -> list[Path]:
    """Write an (interval) MDP; returns all files written."""
    pmdp = model.pmdp
    written = [path]
    probabilities = model.probability_texts()
    if not model.is_point:
        probabilities = [text.replace(" ", "") for text in probabilities]  # PRISM writes [l,u]
    row_of = np.repeat(np.arange(pmdp.num_rows), np.diff(pmdp.row_ptr))
    state = pmdp.row_state[row_of]
    choice = row_of - pmdp.state_ptr[state]
    actions = [model.actions[name] for name in pmdp.action_names]
    with open(path, "w", encoding="utf-8") as file:
        if not model.is_point:
            file.write("# Transitions (IMDP)\n")
        file.write(f"{pmdp.num_states} {pmdp.num_rows} {pmdp.num_transitions}\n")
        rows = zip(
            state.tolist(),
            choice.tolist(),
            pmdp.successor.tolist(),
            probabilities,
            pmdp.action[row_of].tolist(),
            strict=True,
        )
        file.writelines(f"{s} {c} {t} {p} {actions[a]}\n" for s, c, t, p, a in rows)
    if pmdp.variables:
        written.append(path.with_suffix(".sta"))
        columns = [np.asarray(c).tolist() for c in pmdp.variables.values()]
        with open(written[-1], "w", encoding="utf-8") as file:
            file.write(f"({','.join(pmdp.variables)})\n")
            file.writelines(
                f"{s}:({','.join(map(str, values))})\n" for s, values in enumerate(zip(*columns, strict=True))
            )
    written.append(path.with_suffix(".lab"))
    _write_labels(written[-1], model)
    for name, shown in model.rewards.items():
        reward = pmdp.rewards[name]
        stem = path.with_suffix("").name + (f".{shown}" if len(model.rewards) > 1 else "")
        if np.any(reward.state):
            written.append(path.with_name(stem + ".srew"))
            at = np.flatnonzero(reward.state)
            values = np.asarray(reward.state, dtype=float)[at].tolist()
            with open(written[-1], "w", encoding="utf-8") as file:
                file.write(f'# Reward structure "{shown}"\n# State rewards\n{pmdp.num_states} {len(at)}\n')
                file.writelines(f"{s} {v!r}\n" for s, v in zip(at.tolist(), values, strict=True))
        if np.any(reward.row):
            written.append(path.with_name(stem + ".trew"))
            at = np.flatnonzero(reward.row[row_of])
            values = np.asarray(reward.row, dtype=float)[row_of[at]].tolist()
            with open(written[-1], "w", encoding="utf-8") as file:
                file.write(
                    f'# Reward structure "{shown}"\n# Transition rewards\n{pmdp.num_states} {pmdp.num_rows} {len(at)}\n'
                )
                paid = zip(state[at].tolist(), choice[at].tolist(), pmdp.successor[at].tolist(), values, strict=True)
                file.writelines(f"{s} {c} {t} {v!r}\n" for s, c, t, v in paid)
    return written


def _write_labels(path: Path, model: ExplicitModel) -> None:
    names = ["init", "deadlock", *model.labels.values()]
    numbers: list[list[int]] = [[] for _ in range(model.pmdp.num_states)]
    for k, name in enumerate(names):
        if name == "deadlock":
            continue  # every state has an action
        for s in model.label_mask(name).nonzero()[0]:
            numbers[s].append(k)
    with open(path, "w", encoding="utf-8") as file:
        file.write(" ".join(f'{k}="{name}"' for k, name in enumerate(names)) + "\n")
        file.writelines(f"{s}: {' '.join(map(str, ks))}\n" for s, ks in enumerate(numbers) if ks)
