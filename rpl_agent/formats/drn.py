"""Models in Storm's explicit format (DRN): MDPs and DTMCs with numbers, intervals, or polynomials of parameters.

`load_drn` turns a file into a model that accepts properties, like one in the PRISM language; `export` writes DRN.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.core.errors import ModelError, listed
from rpl_agent.core.model import Domain, ParametricMDP, Polynomial, Reward, restrict_domain, validate
from rpl_agent.core.model.building.unknown import hide_parameters
from rpl_agent.core.model.building.validation import (
    TOLERANCE,
    normalised,
    raise_problems,
    scaling_hint,
    warn_of_scaling,
)
from rpl_agent.core.native.memory import give_back_memory
from rpl_agent.core.relaxations.umdp import UncertainMDP
from rpl_agent.formats.prism.explore.assemble import rewards_at
from rpl_agent.formats.prism.explore.probability import FileBounds, Pool
from rpl_agent.formats.prism.language.parser import parse_model
from rpl_agent.formats.prism.language.scope import Program
from rpl_agent.formats.prism.language.unknown import link_unknown
from rpl_agent.formats.prism.reader import PrismModel, load_properties

#: tolerance for sums of doubles that represent a distribution
ROUNDING = Fraction(1, 10**12)


def load_drn(
    path: str | Path,
    parameters: Mapping[str, tuple[float, float]] | None = None,
    *,
    normalise: bool = False,
    hide_rows: bool = False,
) -> PrismModel:
    """Read a DRN file, and the properties file beside it.

    Properties may use the file's labels and, as in PRISM's explicit models, the variable ``x``, the number of a state.
    For a file with intervals the model's ``pmdp`` has one parameter per transition except the last of each row, within
    the bounds of the file; for one with numbers or polynomials it has the file's parameters.

    Parameters
    ----------
    parameters : ranges of the file's parameters; [0, 1] for those without one.
    normalise : scale rows whose rounded numbers sum to 1 only up to 1e-5; a warning says how many.
    hide_rows : hide the probabilities of a file without parameters from the learner, each row separately.
    """
    path, file = Path(path), DrnFile(path)
    states = np.arange(file.num_states)
    truth = bounds = None
    later: dict[str, Callable[[np.ndarray], Reward]] = {}
    if file.has_intervals:
        given = file.uncertain()
        pmdp, bounds = given.pmdp, FileBounds(*given.relaxation().bounds())
        if parameters or hide_rows:
            raise ModelError(f"{file.name}: an interval model has no parameters and no known rows")
    else:
        pmdp, later = _exact(file, parameters or {}, normalise)
        if hide_rows:
            hidden = hide_parameters(pmdp)
            pmdp, truth = hidden.pmdp, hidden.theta
    labels = {"init": states == pmdp.initial_state, "deadlock": np.zeros(len(states), dtype=bool), **pmdp.labels}
    pmdp = replace(pmdp, labels=labels, variables={"x": states})
    program = _program(file.type, len(states), file.reward_names)
    model = PrismModel(pmdp, program, path.name, [], bounds, later, truth)
    beside = path.with_suffix(".props")
    if beside.is_file():
        load_properties(model, beside)
    del file
    give_back_memory(model.pmdp.num_transitions)
    return model


def _exact(
    file: DrnFile, ranges: Mapping[str, tuple[float, float]], normalise: bool
) -> tuple[ParametricMDP, dict[str, Callable[[np.ndarray], Reward]]]:
    """The file with numbers as exact fractions and expressions as polynomials, and its rewards with parameters."""
    for name in ranges:
        if name not in file.parameters:
            raise ModelError(f"{file.name} has no parameter {name!r} (parameters: {listed(file.parameters)})")
    domain = Domain.box({name: ranges.get(name, (0.0, 1.0)) for name in file.parameters})
    known, named = {"0": Polynomial.constant(0)}, frozenset(file.parameters)

    def polynomial(text: str) -> Polynomial:
        known[text] = Polynomial.parse(text.replace("^", "**"))
        if strange := known[text].parameters - named:
            raise ModelError(f"{text} contains {listed(sorted(strange))}, not a parameter of the file")
        return known[text]

    transitions = [low for low, _ in file.bounds]
    file.values(transitions, polynomial)
    for text in {text for texts in (*file.state_rewards, *file.row_rewards) for text in texts}:
        file.reward(text, polynomial)
    pool = Pool()

    def ids(texts: Sequence[str]) -> np.ndarray:
        return pool.intern(known[text] for text in texts)

    expression_ids = ids([transitions[t] for t in file.order[1]])
    table, expression = pool.table(file.parameters, expression_ids)
    names, anywhere = file.parameters, np.zeros(len(file.parameters))
    later: dict[str, Callable[[np.ndarray], Reward]]
    earned = file.rewards(ids)
    later = {name: partial(rewards_at, pool, *parts, names) for name, parts in earned.items()}
    plain = [
        name for name, parts in earned.items() if all(pool[i].is_constant for i in np.unique(np.concatenate(parts)))
    ]
    rewards = {name: later.pop(name)(anywhere) for name in plain}
    pmdp = ParametricMDP(**file.structure(), expression=expression, table=table, domain=domain, rewards=rewards)
    # numbers of type "double" are floats, and sum to 1 only up to rounding
    pmdp, sums = normalised(pmdp, TOLERANCE if normalise else ROUNDING if file.is_double else Fraction(0))
    warn_of_scaling(file.name, [total for total in sums if abs(total - 1) > ROUNDING])
    if pmdp.table.is_affine and pmdp.num_parameters:
        pmdp = replace(pmdp, domain=restrict_domain(pmdp.table, pmdp.domain))
    defects = [defect for defect in validate(pmdp) if defect.kind != "unreachable"]
    try:
        raise_problems(file.name, defects)
    except ModelError as error:
        raise ModelError(f"{error}{scaling_hint(pmdp)}") from None
    return pmdp, later


def _program(kind: str, states: int, rewards: Iterable[str]) -> Program:
    """The names that properties may use: the number of the state and the rewards."""
    lines = [kind.lower(), "module states", f"  x : [0..{max(states - 1, 1)}];", "endmodule"]
    for name in rewards:
        lines += [f'rewards "{name}"', "  true : 0;", "endrewards"]
    return link_unknown(parse_model("\n".join(lines) + "\n", "<drn>"), {}, None, False)[0]


_TRANSITION = re.compile(r"(\d+)\s*:\s*(?:\[\s*(\S+?)\s*,\s*(\S+?)\s*\]|(\S.*))$")
_PLACEHOLDER = re.compile(r"(\$\d+)\s*:\s*(.*)$")
_VALUES = ("double", "double-interval", "rational", "parametric")
_STATE = re.compile(r"state\s+(\d+)\s*([^\[]*)(?:\[([^\]]*)\])?\s*([^\[\]]*)$")
_ACTION = re.compile(r"action\s+(\S+)\s*(?:\[([^\]]*)\])?\s*$")


def read_drn(path: str | Path) -> UncertainMDP:
    """Read an MDP or a DTMC with probabilities or intervals; every problem names its line."""
    return DrnFile(path).uncertain()


class DrnFile:
    """The file, line by line: structure as arrays, probabilities and rewards as text.

    Attributes
    ----------
    parameters : names under @parameters.
    bounds : (low, high) of every transition as text; equal if it is not an interval.
    order : rows of a state by action, and transitions of a row by successor, as in models.
    """

    def __init__(self, path: str | Path) -> None:
        self.name, self.section, self.type, self.is_double = Path(path).name, "", "", False
        self.has_intervals = False
        self.parameters: list[str] = []
        self.reward_names: list[str] = []
        self.state_ptr, self.row_ptr = [0], [0]
        self.actions: dict[str, int] = {}
        self.action: list[int] = []
        self.successor: list[int] = []
        self.bounds: list[tuple[str, str]] = []
        self.labels: dict[str, list[int]] = {}
        self.state_rewards: list[list[str]] = []
        self.row_rewards: list[list[str]] = []
        self._lines: list[int] = []  # of every transition
        self._placeholders: dict[str, str] = {}
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"{path}: {error}") from None
        for number, line in enumerate(lines, start=1):
            self._line(number, line.strip())
        self._check()
        self.order = self._sorted()

    @property
    def num_states(self) -> int:
        return len(self.state_ptr) - 1

    def _line(self, number: int, line: str) -> None:
        if not line or line.startswith("//"):
            return
        try:
            if line.startswith("@"):
                self._header(line)
            elif self.section == "reward_models":
                self.reward_names = line.split()
            elif self.section == "parameters":
                self.parameters += line.split()
            elif self.section == "placeholders":
                if not (match := _PLACEHOLDER.match(line)):
                    raise ModelError(f"cannot read {line[:60]!r}")
                self._placeholders[match[1]] = match[2]
            elif self.section == "model":
                self._model(line, number)
        except (ModelError, ValueError) as error:
            raise ModelError(f"{self.name}:{number}: {error}") from None

    def _header(self, line: str) -> None:
        key, _, value = line[1:].partition(":")
        self.section, value = key.strip(), value.strip()
        if self.section == "type":
            self.type = value
            if self.type not in ("MDP", "DTMC"):
                raise ModelError(f"models of type {self.type} are not supported, only MDP and DTMC")
        elif self.section == "value_type":
            self.is_double = value == "double"
            if value not in _VALUES:
                raise ModelError(f"values of type {value} are not supported, only {', '.join(_VALUES)}")

    def _model(self, line: str, number: int) -> None:
        if match := _STATE.match(line):
            if int(match[1]) != self.num_states:
                raise ModelError(f"state {match[1]} where state {self.num_states} was expected")
            self.state_ptr.append(self.state_ptr[-1])
            self.state_rewards.append(self._values(match[3]))
            for label in (*match[2].split(), *match[4].split()):
                self.labels.setdefault(label, []).append(int(match[1]))
        elif match := _ACTION.match(line):
            if not self.num_states:
                raise ModelError("an action before the first state")
            name = match[1]
            self.action.append(self.actions.setdefault(name, len(self.actions)))
            self.row_rewards.append(self._values(match[2]))
            self.state_ptr[-1] += 1
            self.row_ptr.append(self.row_ptr[-1])
        elif match := _TRANSITION.match(line):
            if len(self.row_ptr) < 2 or self.state_ptr[-1] == 0:
                raise ModelError("a transition before the first action")
            low, high = (match[2], match[3]) if match[2] else (match[4], match[4])
            self.has_intervals |= match[2] is not None
            self.successor.append(int(match[1]))
            self.bounds.append((self._placeholders.get(low, low), self._placeholders.get(high, high)))
            self._lines.append(number)
            self.row_ptr[-1] += 1
        else:
            raise ModelError(f"cannot read {line[:60]!r}")

    def _values(self, text: str | None) -> list[str]:
        parts = text.split(",") if text and text.strip() else []
        return [self._placeholders.get(part.strip(), part.strip()) for part in parts]

    def _check(self) -> None:
        if not self.num_states or not self.row_ptr[-1]:
            raise ModelError(f"{self.name}: no states and transitions")
        empty = np.flatnonzero(np.diff(self.state_ptr) == 0)
        if len(empty):
            raise ModelError(f"{self.name}: state {empty[0]} has no action")
        bad = [s for s in self.successor if s >= self.num_states]
        if bad:
            raise ModelError(f"{self.name}: there is no state {bad[0]}")
        if len(self.labels.get("init", [0])) != 1:
            raise ModelError(f"{self.name}: {len(self.labels['init'])} initial states; one is needed")
        rewards = [*self.state_rewards, *self.row_rewards]
        if not self.reward_names and any(rewards):  # one without a name, as in PRISM
            self.reward_names = ["rewards_1"]
        most = max(map(len, rewards))
        if most > len(self.reward_names):
            raise ModelError(f"{self.name}: {most} rewards in one line, but the file names {listed(self.reward_names)}")

    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        state = np.repeat(np.arange(self.num_states), np.diff(self.state_ptr))
        rows = np.lexsort((np.asarray(self.action), state))
        if len(np.unique(np.stack([state, self.action]), axis=1).T) != len(rows):
            raise ModelError(f"{self.name}: a state has two actions with the same name")
        place = np.empty(len(rows), dtype=np.int64)
        place[rows] = np.arange(len(rows))
        row = np.repeat(place, np.diff(self.row_ptr))
        transitions = np.lexsort((np.asarray(self.successor), row))
        pairs = np.stack([row, self.successor])
        if len(np.unique(pairs, axis=1).T) != len(transitions):
            raise ModelError(f"{self.name}: an action lists a successor twice")
        return rows, transitions

    # ------------------------------------------------------------------ as a model
    def structure(self) -> dict[str, Any]:
        """The constructor arguments that all kinds of models share."""
        rows, transitions = self.order
        masks = {name: np.zeros(self.num_states, dtype=bool) for name in self.labels if name != "init"}
        for name, mask in masks.items():
            mask[self.labels[name]] = True
        return {
            "state_ptr": np.array(self.state_ptr),
            "action": np.array(self.action, np.int32)[rows],
            "row_ptr": np.concatenate([[0], np.cumsum(np.diff(self.row_ptr)[rows])]),
            "successor": np.array(self.successor, np.int32)[transitions],
            "initial_state": self.labels.get("init", [0])[0],
            "labels": masks,
            "action_names": tuple(self.actions),
            "name": Path(self.name).stem,
        }

    def rewards(self, of: Callable[[list[str]], np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """name -> (states (S,), rows (R,)) of every reward; ``of`` converts texts."""
        kinds = (self.state_rewards, [self.row_rewards[r] for r in self.order[0]])
        return {name: (of(_column(kinds[0], k)), of(_column(kinds[1], k))) for k, name in enumerate(self.reward_names)}

    def values(self, texts: Sequence[str], of: Callable[[str], Any]) -> list[Any]:
        """Apply a function to every transition's text, in file order; an error names the line."""
        known: dict[str, Any] = {}
        for text, line in zip(texts, self._lines, strict=True):
            if text not in known:
                try:
                    known[text] = of(text)
                except (ModelError, ValueError) as error:
                    raise ModelError(f"{self.name}:{line}: {error}") from None
        return [known[text] for text in texts]

    def reward(self, text: str, of: Callable[[str], Any]) -> Any:
        """Apply a function to the text of a reward; an error names the file."""
        try:
            return of(text)
        except (ModelError, ValueError) as error:
            raise ModelError(f"{self.name}: the reward {text!r}: {error}") from None

    def uncertain(self) -> UncertainMDP:
        """The file with its numbers or intervals."""
        if self.parameters:
            raise ModelError(f"{self.name}: the model has parameters, read_drn needs numbers: use load_drn")
        lower, upper = (np.array(self.values(texts, _number)) for texts in zip(*self.bounds, strict=True))
        order = self.order[1]
        rewards = self.rewards(lambda texts: np.array([self.reward(text, _number) for text in texts]))
        return UncertainMDP(
            **self.structure(),
            lower=lower[order],
            upper=upper[order],
            rewards={name: Reward(*parts) for name, parts in rewards.items()},
        )


def _column(values: list[list[str]], k: int) -> list[str]:
    return [row[k] if k < len(row) else "0" for row in values]


def _number(text: str) -> float:
    """A decimal or a fraction such as 1/3."""
    top, slash, bottom = text.strip().partition("/")
    try:
        value = float(top) / float(bottom) if slash else float(top)
    except (ValueError, ZeroDivisionError):
        value = np.nan
    if not np.isfinite(value):
        raise ModelError(f"{text} is not a finite number")
    return value
