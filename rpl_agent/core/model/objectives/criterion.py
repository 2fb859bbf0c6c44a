"""What a play is worth: one class per criterion, which answers everything that depends on it.

A criterion knows the range of its values, what a step counts, what a play without end is worth, and its own text. A
solver asks these questions and never which criterion it has, so a new criterion is a new class here.

========== =========================================== ======================= ====================
class      a play is worth                              range without proof     without end
========== =========================================== ======================= ====================
Reach      1 if it meets the target, avoiding a label   [0, 1]                  0
Total      the sum of what it pays until the target     [0, ∞), or any number   the sum, or infinity
Discounted the sum of discount^t times payment t        any number              the sum
Horizon    one of these, for a number of steps          that of the criterion   –
Instant    the reward of the state after some steps     any number              –
========== =========================================== ======================= ====================

Text: each class writes each of its fields, names in quotes, and no two classes use the same operator with the same
fields. So two criteria with one text are equal: `tests/model` reads every text back.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model.objectives.sense import Sense


@dataclass(frozen=True)
class Criterion(ABC):
    """The answers of a criterion whose values can be any numbers and whose plays end."""

    #: value of target states; other decided states are worth 0
    at_target: ClassVar[float] = 0.0
    #: whether later steps count ever less, so that an inequality alone bounds a value, with or without an end
    contracts: ClassVar[bool] = False
    #: whether steps pay
    pays: ClassVar[bool] = True
    #: whether errors of rewards are shares of them, because the number of payments has no bound
    is_open_ended: ClassVar[bool] = False

    @property
    def least(self) -> float:
        """A number that no value falls below, for rewards as they are rounded."""
        return -math.inf

    @property
    def most(self) -> float:
        """A number that no value exceeds, for rewards as they are rounded."""
        return math.inf

    @property
    def exact_range(self) -> tuple[float, float]:
        """The range of values for exact rewards, of which the model's may be roundings."""
        return (-math.inf, math.inf) if self.pays else (self.least, self.most)

    @property
    def must_reach(self) -> bool:
        """Whether a play that never reaches the target is worth infinity."""
        return False

    @property
    def signed(self) -> bool:
        """Whether this is a sum without end of gains and losses."""
        return False

    @property
    def sums_endlessly(self) -> bool:
        """Whether a play without end is worth the gains and losses that it pays, which need not have a sum."""
        return self.signed and not self.must_reach

    @property
    def can_be_infinite(self) -> bool:
        """Whether a play can be worth infinity."""
        return False

    @property
    def payments(self) -> float:
        """The most payments of a play, each counted by its discount."""
        return math.inf

    def proper_max(self, sense: Sense) -> bool:
        """Whether the maximiser is the *proper* side, the one whose plays without end are worthless to it."""
        return True

    @property
    def sink_bounds(self) -> tuple[float, float] | None:
        """Bounds on a state that the play never leaves; None if they depend on what it pays there."""
        return None

    def endless_never_wins(self, sense: Sense) -> bool:
        """Whether no agent prefers a play without end: it counts nothing, gains nothing or costs infinity."""
        return self.contracts or self.must_reach is not (sense is Sense.MAX)

    def clip(self, values: np.ndarray) -> None:
        """Move values into the range that holds without proof, in place."""
        if self.least > -math.inf:
            np.maximum(values, self.least, out=values)
        if self.most < math.inf:
            np.minimum(values, self.most, out=values)

    def trivial(self, upward: bool, payment: float, end: float) -> float:
        """A bound that needs no proof, if a step pays at most ``payment`` in size and a play ends with ``end``."""
        return self.most if upward else self.least

    def spent(self, strict: np.ndarray, reward: np.ndarray) -> np.ndarray:
        """(R,) rows that no play takes forever: those with a strict inequality, or a payment that adds up."""
        return strict | (reward > 0.0)

    def moved(self, lower: float, upper: float, error: float) -> tuple[float, float]:
        """Bounds on a value for rewards that differ from the model's by at most ``error`` per payment."""
        if error == 0.0 or not self.pays:
            return lower, upper
        total = error * self.payments * (1.0 + 1e-12)
        return math.nextafter(lower - total, -math.inf), math.nextafter(upper + total, math.inf)

    @abstractmethod
    def text(self, sense: Sense, bound: str = "") -> str:
        """The question for the best value; ``bound`` (`<=k`) limits its steps."""

    def in_prism(self, sense: Sense, is_always_reached: bool) -> str:
        """The question for PRISM and Storm; an error if they have none that means the same."""
        return self.text(sense)


@dataclass(frozen=True)
class Reach(Criterion):
    """The probability of meeting a label without meeting another one before."""

    at_target: ClassVar[float] = 1.0
    pays: ClassVar[bool] = False
    target: str
    avoid: str | None = None

    @property
    def least(self) -> float:
        return 0.0

    @property
    def most(self) -> float:
        return 1.0

    @property
    def sink_bounds(self) -> tuple[float, float] | None:
        return 0.0, 0.0

    def text(self, sense: Sense, bound: str = "") -> str:
        path = f"F{bound} {_quoted(self.target)}"
        if self.avoid is not None:
            path = f"!{_quoted(self.avoid)} U{bound} {_quoted(self.target)}"
        return f"P{sense.value}=? [ {path} ]"


@dataclass(frozen=True)
class Total(Criterion):
    """The sum of all payments until a label, which a play may have to meet."""

    is_open_ended: ClassVar[bool] = True
    reward: str
    target: str | None
    is_infinite_if_missed: bool = False
    has_losses: bool = False  # known when the model is

    @property
    def least(self) -> float:
        return -math.inf if self.has_losses else 0.0

    @property
    def must_reach(self) -> bool:
        return self.is_infinite_if_missed

    @property
    def signed(self) -> bool:
        return self.has_losses

    @property
    def can_be_infinite(self) -> bool:
        return not self.sums_endlessly

    @property
    def sink_bounds(self) -> tuple[float, float] | None:
        if self.must_reach:
            return math.inf, math.inf
        return (0.0, math.inf) if self.signed else None

    def proper_max(self, sense: Sense) -> bool:
        return not (self.must_reach or self.signed)  # a play that goes on costs a minimiser

    def endless_never_wins(self, sense: Sense) -> bool:
        return not self.signed and super().endless_never_wins(sense)

    def spent(self, strict: np.ndarray, reward: np.ndarray) -> np.ndarray:
        if self.signed:  # payments of both signs need not add up
            return strict & (not self.must_reach)
        return super().spent(strict, reward)

    def moved(self, lower: float, upper: float, error: float) -> tuple[float, float]:
        """Here ``error`` is a share of each reward: for rewards ≥ 0 values differ by the same share, and otherwise
        the solver counts it (`Problem.of`)."""
        if error == 0.0:
            return lower, upper
        return math.nextafter(lower * (1.0 - error), -math.inf), math.nextafter(upper * (1.0 + error), math.inf)

    def text(self, sense: Sense, bound: str = "") -> str:
        if self.target is None:
            return _reward_text(self.reward, sense, f"C{bound}")
        counts_missed = not bound and not self.is_infinite_if_missed
        return _reward_text(self.reward, sense, f"{'Fc' if counts_missed else 'F'}{bound} {_quoted(self.target)}")

    def in_prism(self, sense: Sense, is_always_reached: bool) -> str:
        if self.target is None or self.is_infinite_if_missed:
            return self.text(sense)
        if not is_always_reached:
            raise ModelError(
                f"in PRISM a play that misses the target is worth infinity: {self.text(sense)} cannot be exported, "
                "because some plays miss it"
            )
        return replace(self, is_infinite_if_missed=True).text(sense)


@dataclass(frozen=True)
class Discounted(Criterion):
    """The sum of discount^t times payment t, until a label if there is one."""

    contracts: ClassVar[bool] = True
    reward: str
    target: str | None
    discount: float

    @property
    def payments(self) -> float:
        return 1.0 / (1.0 - self.discount)

    def proper_max(self, sense: Sense) -> bool:
        return sense is Sense.MAX  # either would do

    def trivial(self, upward: bool, payment: float, end: float) -> float:
        size = payment / (1.0 - self.discount) + end
        return (1.0 if upward else -1.0) * size * (1.0 + 1e-9)

    def text(self, sense: Sense, bound: str = "") -> str:
        path = f"C{bound}" if self.target is None else f"F{bound} {_quoted(self.target)}"
        return f"{_reward_text(self.reward, sense, path)} discount {self.discount!r}"

    def in_prism(self, sense: Sense, is_always_reached: bool) -> str:
        raise ModelError(f"PRISM has no discounted rewards: {self.text(sense)} cannot be exported")


@dataclass(frozen=True)
class Horizon(Criterion):
    """Another criterion for a number of steps."""

    of: Reach | Total | Discounted
    steps: int

    @property
    def at_target(self) -> float:  # type: ignore[override]
        return self.of.at_target

    @property
    def pays(self) -> bool:  # type: ignore[override]
        return self.of.pays

    @property
    def least(self) -> float:
        return -math.inf if self.pays else self.of.least  # within a number of steps any rewards have a sum

    @property
    def most(self) -> float:
        return self.of.most

    @property
    def payments(self) -> float:
        return min(self.of.payments, float(self.steps))

    def text(self, sense: Sense, bound: str = "") -> str:
        return self.of.text(sense, f"<={self.steps}")

    def in_prism(self, sense: Sense, is_always_reached: bool) -> str:
        if self.of.contracts:
            return self.of.in_prism(sense, is_always_reached)
        if self.pays and self.of.target is not None:
            raise ModelError(
                f"PRISM has no reward until a target within a number of steps: {self.text(sense)} cannot be exported; "
                "leave out the target or the horizon"
            )
        return self.text(sense)


@dataclass(frozen=True)
class Instant(Criterion):
    """The reward of the state after exactly so many steps."""

    pays: ClassVar[bool] = False
    reward: str
    steps: int

    @property
    def payments(self) -> float:
        return 1.0

    def text(self, sense: Sense, bound: str = "") -> str:
        return _reward_text(self.reward, sense, f"I={self.steps}")


def _reward_text(name: str, sense: Sense, path: str) -> str:
    return f"R{{{_quoted(name)}}}{sense.value}=? [ {path} ]"


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
