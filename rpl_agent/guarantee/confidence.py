"""Confidence sets for θ, given the data. One protocol, one registry.

Theorem 1 of the paper is the contract of every set: the truth lies in it with probability at least 1 − δ.
A set spends the δ that `evidence.ledger` gives it, and nothing else. Its `region` supports every relaxation based on a
region, its `intervals` the tied one. To add a set, write a class here or anywhere and call `register`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.intervals import ANYTIME_METHODS, confidence_intervals
from rpl_agent.core.model import Objective, ParametricMDP
from rpl_agent.core.regions.base import Region
from rpl_agent.core.registry import Registry
from rpl_agent.guarantee.likelihood.region import interval_region, likelihood_region

Bounds = tuple[np.ndarray, np.ndarray]


class ConfidenceSet(Protocol):
    """A set of parameters that contains the truth except with probability δ.

    name : in configurations and certificates
    anytime : whether the statement holds at all times simultaneously, under any sampling
    region_of_intervals : whether `region` is a function of `intervals`, so that both hold on one event
    untied : the interval method to fall back to, see `evidence.intervals.untied_intervals`
    """

    @property
    def name(self) -> str: ...
    @property
    def anytime(self) -> bool: ...
    @property
    def region_of_intervals(self) -> bool: ...
    @property
    def untied(self) -> str: ...

    def intervals(self, pmdp: ParametricMDP, counts: Counts, delta: float) -> Bounds:
        """Simultaneous intervals (lower (F,), upper (F,)) for the expressions; ModelError if there are none."""

    def region(
        self,
        pmdp: ParametricMDP,
        counts: Counts,
        delta: float,
        warm: np.ndarray | None,
        bounds: Bounds | None,
        objective: Objective | None = None,
    ) -> Region:
        """The set as a region in reduced coordinates.

        ``warm`` is a point estimate (d,) to start searches from; ``bounds`` are this set's own `intervals` for the
        same data if they are known already. ``objective`` was chosen before the data: a set may be tight in the
        direction of its value.
        """


@dataclass(frozen=True)
class IntervalSet:
    """U: the domain cut by one interval per event, by union bound (the paper's Sec. 2 and 3)."""

    name: str
    region_of_intervals: ClassVar[bool] = True

    @property
    def anytime(self) -> bool:
        return self.name in ANYTIME_METHODS

    @property
    def untied(self) -> str:
        return self.name

    def intervals(self, pmdp: ParametricMDP, counts: Counts, delta: float) -> Bounds:
        return confidence_intervals(pmdp, counts, self.name, delta)

    def region(
        self,
        pmdp: ParametricMDP,
        counts: Counts,
        delta: float,
        warm: np.ndarray | None,
        bounds: Bounds | None,
        objective: Objective | None = None,
    ) -> Region:
        return interval_region(pmdp, *(bounds if bounds is not None else self.intervals(pmdp, counts, delta)))


@dataclass(frozen=True)
class Likelihood:
    """C: the joint likelihood's level set (package `likelihood`), bets on the value, anytime intervals."""

    name: ClassVar[str] = "likelihood"
    anytime: ClassVar[bool] = True
    region_of_intervals: ClassVar[bool] = False
    untied: ClassVar[str] = "anytime"

    def intervals(self, pmdp: ParametricMDP, counts: Counts, delta: float) -> Bounds:
        return confidence_intervals(pmdp, counts, "anytime", delta)

    def region(
        self,
        pmdp: ParametricMDP,
        counts: Counts,
        delta: float,
        warm: np.ndarray | None,
        bounds: Bounds | None,
        objective: Objective | None = None,
    ) -> Region:
        return likelihood_region(pmdp, counts, delta, objective=objective)


_registry: Registry[ConfidenceSet] = Registry("confidence set", "rpl_agent.confidence_sets")


def register(kind: ConfidenceSet) -> None:
    """Register a confidence set under its name.

    >>> from rpl_agent.guarantee.confidence import IntervalSet
    >>> register_confidence_set(IntervalSet("clopper-pearson"))
    Traceback (most recent call last):
        ...
    rpl_agent.core.errors.ModelError: the confidence set 'clopper-pearson' exists already
    """
    _registry.register(kind)


def confidence_set(name: str) -> ConfidenceSet:
    """The set with that name."""
    return _registry.get(name)


def confidence_names() -> tuple[str, ...]:
    """Names of all sets, the default first."""
    return _registry.names()


register(Likelihood())
for _method in ("anytime", "clopper-pearson", "hoeffding"):
    register(IntervalSet(_method))
