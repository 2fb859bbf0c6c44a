"""The actions of an environment, and those of them that states of the model lack.

A certificate says what no policy achieves. Policies of the model choose among its actions, so that sentence is about
every policy of the environment only if each state has every action that the environment allows there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rpl_agent.core.model import ParametricMDP


@dataclass(frozen=True, eq=False)
class EnvActions:
    """The actions of an environment beside the model's."""

    numbers: np.ndarray  # (A,) the environment's number of each action of the model
    first: int  # the first number of the action space
    count: int  # how many it has
    own: bool  # whether the model belongs to the environment, so that states have all actions that are allowed there

    def place(self, action: int) -> int:
        """Index in a mask of an action of the model."""
        return int(self.numbers[action]) - self.first

    def lacking(self, pmdp: ParametricMDP, state: int, mask: Any = None) -> list[int]:
        """Numbers of the actions that the environment allows and the state of the model lacks."""
        if self.own:
            return []
        allowed = np.ones(self.count, dtype=bool) if mask is None else np.asarray(mask).astype(bool).ravel()
        known = pmdp.action[pmdp.state_ptr[state] : pmdp.state_ptr[state + 1]]
        enabled = {int(number) for number in self.numbers[known]}
        return [self.first + k for k in np.flatnonzero(allowed).tolist() if self.first + k not in enabled]


def lacking_note(pmdp: ParametricMDP, state: int, number: int) -> str:
    """One line for readers of a certificate."""
    return (
        "all this is among policies that use the model's actions: the environment also has others, for example "
        f"{number} in {pmdp.state_name(state)}"
    )
