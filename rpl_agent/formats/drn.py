"""Storm's explicit format (DRN), out and in: MDPs with numbers or intervals."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from rpl_agent.errors import ModelError
from rpl_agent.formats.explicit import ExplicitModel
from rpl_agent.model.pmdp import Reward
from rpl_agent.relaxations.umdp import UncertainMDP

_TRANSITION = re.compile(r"(\d+)\s*:\s*(?:\[\s*(\S+?)\s*,\s*(\S+?)\s*\]|(\S+))$")
_STATE = re.compile(r"state\s+(\d+)\s*(?:\[([^\]]*)\])?\s*(.*)$")
_ACTION = re.compile(r"action\s+(\S+)\s*(?:\[([^\]]*)\])?\s*$")


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


def read_drn(path: str | Path) -> UncertainMDP:
    """Read an MDP or a DTMC with probabilities or intervals of them; every problem names its line."""
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: {error}") from None
    reader = _DrnReader(path.name)
    for number, line in enumerate(lines, start=1):
        reader.line(number, line.strip())
    return reader.model()


class _DrnReader:
    """The file, line by line."""

    def __init__(self, name: str) -> None:
        self.name, self.section, self.type = name, "", ""
        self.reward_names: list[str] = []
        self.state_ptr, self.row_ptr = [0], [0]
        self.actions: dict[str, int] = {}
        self.action: list[int] = []
        self.successor: list[int] = []
        self.bounds: list[tuple[float, float]] = []
        self.labels: dict[str, list[int]] = {}
        self.state_rewards: list[list[float]] = []
        self.row_rewards: list[list[float]] = []

    def line(self, number: int, line: str) -> None:
        if not line or line.startswith("//"):
            return
        try:
            if line.startswith("@"):
                self._header(line)
            elif self.section == "reward_models":
                self.reward_names = line.split()
            elif self.section == "parameters":
                raise ModelError("a parametric model: only numbers and intervals are read")
            elif self.section == "model":
                self._model(line)
        except (ModelError, ValueError) as error:
            raise ModelError(f"{self.name}:{number}: {error}") from None

    def _header(self, line: str) -> None:
        key, _, value = line[1:].partition(":")
        self.section = key.strip()
        if self.section == "type":
            self.type = value.strip()
            if self.type not in ("MDP", "DTMC"):
                raise ModelError(f"models of type {self.type} are not read, only MDP and DTMC")
        elif self.section == "value_type" and value.strip() not in ("double", "double-interval", "rational"):
            raise ModelError(f"values of type {value.strip()} are not read, only numbers and intervals")

    def _model(self, line: str) -> None:
        if match := _STATE.match(line):
            if int(match[1]) != len(self.state_ptr) - 1:
                raise ModelError(f"state {match[1]} where state {len(self.state_ptr) - 1} was expected")
            self.state_ptr.append(self.state_ptr[-1])
            self.state_rewards.append(_numbers(match[2]))
            for label in match[3].split():
                self.labels.setdefault(label, []).append(int(match[1]))
        elif match := _ACTION.match(line):
            if len(self.state_ptr) < 2:
                raise ModelError("an action before the first state")
            name = match[1]
            self.action.append(self.actions.setdefault(name, len(self.actions)))
            self.row_rewards.append(_numbers(match[2]))
            self.state_ptr[-1] += 1
            self.row_ptr.append(self.row_ptr[-1])
        elif match := _TRANSITION.match(line):
            if len(self.row_ptr) < 2 or self.state_ptr[-1] == 0:
                raise ModelError("a transition before the first action")
            low, high = (match[2], match[3]) if match[2] else (match[4], match[4])
            self.successor.append(int(match[1]))
            self.bounds.append((_number(low), _number(high)))
            self.row_ptr[-1] += 1
        else:
            raise ModelError(f"cannot read {line[:60]!r}")

    def model(self) -> UncertainMDP:
        states = len(self.state_ptr) - 1
        if not states or not self.row_ptr[-1]:
            raise ModelError(f"{self.name}: no states and transitions")
        empty = np.flatnonzero(np.diff(self.state_ptr) == 0)
        if len(empty):
            raise ModelError(f"{self.name}: state {empty[0]} has no action")
        bad = [s for s in self.successor if s >= states]
        if bad:
            raise ModelError(f"{self.name}: there is no state {bad[0]}")
        lower, upper = np.array(self.bounds).T
        masks = {name: np.isin(np.arange(states), members) for name, members in self.labels.items()}
        initial = np.flatnonzero(masks.pop("init", np.arange(states) == 0))
        if len(initial) != 1:
            raise ModelError(f"{self.name}: {len(initial)} initial states; one is needed")
        order = self._sorted()
        rewards = {
            name: Reward(_column(self.state_rewards, k), _column(self.row_rewards, k)[order[0]])
            for k, name in enumerate(self.reward_names)
        }
        row_ptr = np.concatenate([[0], np.cumsum(np.diff(self.row_ptr)[order[0]])])
        return UncertainMDP(
            np.array(self.state_ptr), np.array(self.action, np.int32)[order[0]], row_ptr,
            np.array(self.successor, np.int32)[order[1]], lower[order[1]], upper[order[1]],
            initial_state=int(initial[0]), labels=masks, rewards=rewards, action_names=tuple(self.actions),
            name=Path(self.name).stem,
        )  # fmt: skip

    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of a state by action, transitions of a row by successor, as models have them."""
        state = np.repeat(np.arange(len(self.state_ptr) - 1), np.diff(self.state_ptr))
        rows = np.lexsort((np.asarray(self.action), state))
        if len(np.unique(np.stack([state, self.action]), axis=1).T) != len(rows):
            raise ModelError(f"{self.name}: a state has two actions of one name")
        place = np.empty(len(rows), dtype=np.int64)
        place[rows] = np.arange(len(rows))
        row = np.repeat(place, np.diff(self.row_ptr))
        transitions = np.lexsort((np.asarray(self.successor), row))
        pairs = np.stack([row, self.successor])
        if len(np.unique(pairs, axis=1).T) != len(transitions):
            raise ModelError(f"{self.name}: an action names a successor twice")
        return rows, transitions


def _column(values: list[list[float]], k: int) -> np.ndarray:
    return np.array([row[k] if k < len(row) else 0.0 for row in values])


def _numbers(text: str | None) -> list[float]:
    return [_number(part) for part in text.split(",")] if text and text.strip() else []


def _number(text: str) -> float:
    """A decimal or a fraction such as 1/3."""
    top, slash, bottom = text.strip().partition("/")
    value = float(top) / float(bottom) if slash else float(top)
    if not np.isfinite(value):
        raise ModelError(f"{text} is not a finite number")
    return value
