"""`Task`: an objective resolved against a model, as arrays; `RewardError`: what its rewards lost to rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.native import read_only

if TYPE_CHECKING:
    from rpl_agent.core.model.objective import Objective  # for types only: it imports this file
    from rpl_agent.core.model.pmdp import ParametricMDP


@dataclass(frozen=True)
class RewardError:
    """How far the rewards of a task are from exact ones, which need not be doubles (1/10, or the sum of two doubles).

    >>> RewardError.of(np.array([0.5, 0.1]), np.array([0.0, 5.6e-18])).share <= 2.0**-53
    True
    """

    share: float = 0.0  # of each reward; infinite if one is 0 only after rounding
    amount: float = 0.0  # of a single payment
    any_negative: bool = False  # whether some reward is

    @classmethod
    def of(cls, reward: np.ndarray, error: np.ndarray | None) -> RewardError:
        """From rewards (n,) and bounds (n,) on their errors."""
        if error is None or not error.any():
            return EXACT
        at = np.flatnonzero(error)
        with np.errstate(divide="ignore"):
            share = float((error[at] / np.abs(reward[at])).max())
        return cls(
            math.nextafter(share, math.inf), math.nextafter(float(error.max()), math.inf), bool((reward < 0.0).any())
        )


EXACT = RewardError()


@dataclass(frozen=True, eq=False)
class Task:
    """An objective resolved against a model, in solver time.

    Silent states take a step in the solver but none in an environment. So with a random start the horizon is one
    step longer here, with rewards r(s, a, s') it is doubled and the discount is a square root, and discounted rewards
    are scaled (see `ParametricMDP.solver_step` and `Objective._scaled`).
    """

    objective: Objective
    target: np.ndarray  # (S,) bool
    avoid: np.ndarray  # (S,) bool, disjoint from target; of a total of both signs: where nothing more is paid
    reward: np.ndarray  # (R,) float64, 0 on rows of target states
    final: np.ndarray | None = None  # (S,) value of a state when no step is left, for INSTANT
    rounding: float = 0.0  # error of values at the start from the scaling of rewards
    reward_error: RewardError = EXACT  # how far rewards are from the exact ones
    depends_on_parameters: bool = False  # whether ``reward`` is only the most that can be paid
    signed: bool = False  # whether this is a total of rewards of which some are negative, without discount and horizon

    def paid(self, pmdp: ParametricMDP) -> np.ndarray:
        """(R,) what an environment pays for each row: the rewards without scaling."""
        discount = self.objective.discount
        late = int(pmdp.has_random_start) + pmdp.is_silent[pmdp.row_state]
        return self.reward if discount == 1.0 or not late.any() else self.reward * discount**late

    def outward(self, lower: Any, upper: Any) -> tuple[Any, Any]:
        """Bounds on values at the start (numbers or arrays) for exact rewards, from bounds for those of this task.

        The errors of a total of both signs are in the bounds already: nature chooses them, see `Problem.of`.
        """
        lower, upper = lower - self.rounding, upper + self.rounding
        error = self.reward_error
        if error.amount == 0.0 or self.signed:
            return lower, upper
        if not error.any_negative and math.isfinite(error.share):  # the value of every policy differs by the same share
            share = error.share * (1.0 + 1e-12)
            return _down(lower, np.maximum(lower, 0.0) * share), _up(upper, np.maximum(upper, 0.0) * share)
        most = error.amount * self._payments * (1.0 + 1e-12)
        return _down(lower, most), _up(upper, most)

    def difference(self, most: float) -> float:
        """How far a policy's value can be from that for exact rewards, where ``most`` is the largest value in size."""
        error = self.reward_error
        if error.amount == 0.0 or self.signed:
            return self.rounding
        if not error.any_negative and math.isfinite(error.share):
            return math.nextafter(self.rounding + most * error.share * (1.0 + 1e-12), math.inf)
        return math.nextafter(self.rounding + error.amount * self._payments * (1.0 + 1e-12), math.inf)

    def reward_end(self, share: float, upward: bool) -> np.ndarray:
        """(R,) rewards raised or lowered by a share of themselves, rounded outward."""
        side, signed_share = (np.inf, share) if upward else (-np.inf, -share)
        off = np.nextafter(self.reward + np.nextafter(signed_share * np.abs(self.reward), side), side)
        return np.where(self.reward == 0.0, 0.0, off)

    @property
    def _payments(self) -> float:
        """The most payments of a play, each counted by its discount."""
        objective = self.objective
        if self.final is not None:
            return 1.0
        endless = math.inf if objective.discount == 1.0 else 1.0 / (1.0 - objective.discount)
        return endless if objective.horizon is None else min(endless, float(objective.horizon))

    @cached_property
    def decided(self) -> np.ndarray:
        """(S,) states with known value, where an episode may end."""
        return read_only(self.target | self.avoid, np.bool_)

    def without_end(self, pmdp: ParametricMDP, reason: str) -> ModelError:
        """The error of a total of both signs that need not exist."""
        row, name = int(np.flatnonzero(self.reward < 0)[0]), self.objective.reward_name
        return ModelError(
            f"reward {name!r} is negative ({self.reward[row]}) at {pmdp.row_name(row)}: a total of gains and costs "
            f"needs a certain end, but {reason}. Give a horizon (Objective.total(…, horizon=N); for an agent "
            "horizon='env', the time limit of its environment), a discount (Objective.discounted), or costs ≥ 0 "
            "(Objective.cost)"
        )


def _down(value: Any, by: Any) -> Any:
    return np.where(by == 0.0, value, np.nextafter(value - by, -np.inf))[()]


def _up(value: Any, by: Any) -> Any:
    return np.where(by == 0.0, value, np.nextafter(value + by, np.inf))[()]
