"""The players' directions: `Sense` of the agent, `Nature` for or against it."""

from __future__ import annotations

from enum import Enum


class Sense(Enum):
    """The direction in which the agent optimises the value.

    >>> Sense.MAX.opposite
    <Sense.MIN: 'min'>
    """

    MAX = "max"
    MIN = "min"

    @property
    def opposite(self) -> Sense:
        return Sense.MIN if self is Sense.MAX else Sense.MAX


class Nature(Enum):
    """Whether nature chooses against the agent or with it.

    >>> Nature.ADVERSARIAL.direction(Sense.MAX)
    <Sense.MIN: 'min'>
    """

    ADVERSARIAL = "adversarial"
    COOPERATIVE = "cooperative"

    def direction(self, sense: Sense) -> Sense:
        """The direction in which nature moves the value, given the agent's."""
        return sense if self is Nature.COOPERATIVE else sense.opposite
