"""A DRN file as a model that properties can be asked of, like one in the PRISM language."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from rpl_agent.formats.drn import read_drn
from rpl_agent.formats.prism.language.parser import parse_model
from rpl_agent.formats.prism.language.scope import Program
from rpl_agent.formats.prism.language.unknown import link_unknown
from rpl_agent.formats.prism.reader import PrismModel, load_properties
from rpl_agent.model.domain import Domain


@dataclass(frozen=True)
class FileBounds:
    """Bounds (F,) of the probabilities as the file gives them; data may narrow them."""

    lower: np.ndarray
    upper: np.ndarray
    domain: Domain = field(default_factory=lambda: Domain.box({}))
    is_learnable = True

    def at(self, theta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """(lower, upper); the file has no parameters."""
        return self.lower, self.upper


def load_drn(path: str | Path) -> PrismModel:
    """Read a DRN file with numbers or intervals, and the properties file beside it.

    Properties may use the file's labels and, as in PRISM's explicit models, the variable ``x``, the number of a state.
    The model's ``pmdp`` has one parameter per transition but the last of each row, within the bounds of the file.
    """
    path = Path(path)
    given = read_drn(path)
    relaxation = given.relaxation()
    states = np.arange(len(given.state_ptr) - 1)
    labels = {"init": states == given.initial_state, "deadlock": np.zeros(len(states), dtype=bool), **given.labels}
    pmdp = replace(given.pmdp, labels=labels, variables={"x": states})
    model = PrismModel(pmdp, _program(len(states), given.rewards), path.name, bounds=FileBounds(*relaxation.bounds()))
    beside = path.with_suffix(".props")
    if beside.is_file():
        load_properties(model, beside)
    return model


def _program(states: int, rewards: Iterable[str]) -> Program:
    """What properties may speak of: the number of the state and the names of the rewards."""
    lines = ["mdp", "module states", f"  x : [0..{max(states - 1, 1)}];", "endmodule"]
    for name in rewards:
        lines += [f'rewards "{name}"', "  true : 0;", "endrewards"]
    return link_unknown(parse_model("\n".join(lines) + "\n", "<drn>"), {}, None, False)[0]
