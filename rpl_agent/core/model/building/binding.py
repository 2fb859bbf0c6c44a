"""`Binding`: a model for an environment that does not provide one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rpl_agent.core.model.objectives.objective import Objective
from rpl_agent.core.model.pmdp import ParametricMDP


@dataclass(frozen=True)
class Binding:
    """A model of an environment, and rules that find the state of the environment.

    next : (value of the state before, action, observation, reward, terminated) -> value of the state after a step;
        the reward is None when only acting.
    """

    pmdp: ParametricMDP
    objective: Objective | None  # of plays without a time limit; None if they never end
    first: Callable[[Any], Any]  # observation after a reset -> value of a state
    next: Callable[[Any, int, Any, float | None, bool], Any]
    paid: np.ndarray | None = (
        None  # (T,) the reward of each transition; None: what the objective counts, costs negative
    )
    method: tuple[str, str] | None = None  # (confidence, relaxation) that suits the model, if the defaults do not
    returns: Objective | None = (
        None  # what the environment's own rewards sum to, if that differs; its horizon is the time limit
    )

    def question(self, limit: int | None) -> Objective | None:
        """The environment's own objective: its undiscounted return, within its time limit if it has one."""
        asked = self.returns or self.objective
        return self.objective if limit is None or asked is None else replace(asked, horizon=limit)
