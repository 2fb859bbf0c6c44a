"""What the agent wants: the property of the paper's Sec. 2.1, small and serialisable.

Semantics
---------
REACH   the probability of reaching ``target`` without visiting ``avoid`` before (avoid states that
        are not targets have value 0).
REWARD  expected accumulated reward until ``target``. The reward of a state-action pair is paid on
        leaving the state; targets pay nothing. For MIN (a cost) a play that never reaches the target
        costs infinity; for MAX reward simply accumulates. Undiscounted rewards must be ≥ 0.
``discount`` < 1 makes rewards discounted (any sign, target optional); ``horizon`` k counts k steps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from rpl_agent.errors import ModelError

if TYPE_CHECKING:
    from rpl_agent.model.pmdp import ParametricMDP


class Sense(Enum):
    MAX = "max"
    MIN = "min"

    @property
    def opposite(self) -> Sense:
        return Sense.MIN if self is Sense.MAX else Sense.MAX


class Nature(Enum):
    ADVERSARIAL = "adversarial"
    COOPERATIVE = "cooperative"

    def direction(self, sense: Sense) -> Sense:
        """Which way nature pulls the value, given what the agent wants."""
        return sense if self is Nature.COOPERATIVE else sense.opposite


class Kind(Enum):
    REACH = "reach"
    REWARD = "reward"


@dataclass(frozen=True)
class Objective:
    """A property over labels and reward names of a model."""

    kind: Kind
    sense: Sense
    target: str | None
    avoid: str | None = None
    reward_name: str | None = None
    discount: float = 1.0
    horizon: int | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.discount <= 1.0:
            raise ModelError(f"discount {self.discount} is outside (0, 1]")
        if self.horizon is not None and self.horizon < 1:
            raise ModelError(f"horizon {self.horizon} must be at least 1 step")
        if self.kind is Kind.REACH and self.target is None:
            raise ModelError("a reachability objective needs a target label")
        if self.kind is Kind.REACH and self.discount != 1.0:
            raise ModelError("a reachability objective has no discount")
        if self.kind is Kind.REWARD and self.reward_name is None:
            raise ModelError("a reward objective needs the name of a reward")
        if self.kind is Kind.REWARD and self.avoid is not None:
            raise ModelError("a reward objective takes no avoid label")
        if self.target is None and self.discount == 1.0 and self.horizon is None:
            raise ModelError("an undiscounted reward without horizon needs a target label")

    @classmethod
    def reach(
        cls, target: str, *, avoid: str | None = None, sense: Sense = Sense.MAX, horizon: int | None = None
    ) -> Objective:
        return cls(Kind.REACH, sense, target, avoid=avoid, horizon=horizon)

    @classmethod
    def reward(
        cls, name: str, *, target: str | None, sense: Sense = Sense.MAX, horizon: int | None = None
    ) -> Objective:
        return cls(Kind.REWARD, sense, target, reward_name=name, horizon=horizon)

    @classmethod
    def cost(cls, name: str, *, target: str | None, horizon: int | None = None) -> Objective:
        return cls.reward(name, target=target, sense=Sense.MIN, horizon=horizon)

    @classmethod
    def discounted(
        cls, name: str, discount: float, *, target: str | None = None, sense: Sense = Sense.MAX
    ) -> Objective:
        return cls(Kind.REWARD, sense, target, reward_name=name, discount=discount)

    def describe(self) -> str:
        """PRISM's way of writing it, with the discount beside it."""
        bound = f"<={self.horizon}" if self.horizon is not None else ""
        if self.kind is Kind.REACH:
            path = f'F{bound} "{self.target}"' if self.avoid is None else f'!"{self.avoid}" U{bound} "{self.target}"'
            return f"P{self.sense.value}=? [ {path} ]"
        path = f'F "{self.target}"' if self.horizon is None and self.target else f"C{bound}"
        suffix = f" discount {self.discount}" if self.discount < 1 else ""
        return f'R{{"{self.reward_name}"}}{self.sense.value}=? [ {path} ]{suffix}'

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"kind": self.kind.value, "sense": self.sense.value}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Objective:
        return cls(**(data | {"kind": Kind(data["kind"]), "sense": Sense(data["sense"])}))

    def resolve(self, pmdp: ParametricMDP) -> Task:
        """The objective as arrays over a model; errors here come before any iteration."""
        target = self._mask(pmdp, self.target, "target")
        avoid = self._mask(pmdp, self.avoid, "avoid") & ~target
        if self.target is not None and not target.any():
            raise ModelError(f"the target label {self.target!r} holds in no state")
        if self.kind is Kind.REACH:
            return Task(self, target, avoid, np.zeros(pmdp.num_rows))
        if self.reward_name is None or self.reward_name not in pmdp.rewards:
            raise ModelError(f"no reward named {self.reward_name!r}; the model has {sorted(pmdp.rewards)}")
        reward = pmdp.row_reward(self.reward_name).copy()
        reward[target[pmdp.row_state]] = 0.0
        if not np.isfinite(reward).all():
            row = int(np.flatnonzero(~np.isfinite(reward))[0])
            raise ModelError(f"reward {self.reward_name!r} is not finite at {pmdp.row_name(row)}")
        if self.discount == 1.0 and self.horizon is None and (reward < 0).any():
            row = int(np.flatnonzero(reward < 0)[0])
            raise ModelError(
                f"reward {self.reward_name!r} is negative ({reward[row]}) at {pmdp.row_name(row)}: "
                "undiscounted totals need rewards ≥ 0"
            )
        return Task(self, target, avoid, reward)

    @staticmethod
    def _mask(pmdp: ParametricMDP, label: str | None, role: str) -> np.ndarray:
        if label is None:
            return np.zeros(pmdp.num_states, dtype=bool)
        if label not in pmdp.labels:
            raise ModelError(f"no label {label!r} for the {role}; the model has {sorted(pmdp.labels)}")
        return pmdp.labels[label]


@dataclass(frozen=True)
class Task:
    """An objective resolved against a model."""

    objective: Objective
    target: np.ndarray  # (S,) bool
    avoid: np.ndarray  # (S,) bool, disjoint from target
    reward: np.ndarray  # (R,) float64, 0 on rows of target states

    @property
    def decided(self) -> np.ndarray:
        """(S,) states whose value is known: an episode may end there."""
        return self.target | self.avoid
