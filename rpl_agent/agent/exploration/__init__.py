"""Sampling policies. Any sampling policy is sound, so which one is used is a matter of speed.

In a few episodes (in half of them, if a model has many unknowns) the agent plays the optimistic policy (`optimism`),
which finds the best one. In the others it plays what an `Exploration` plans: an object with a name, chosen by that name
or handed to the agent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from rpl_agent.agent.exploration.design import informative_policy
from rpl_agent.agent.exploration.goal import SamplingGoal
from rpl_agent.core.errors import ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Objective, ParametricMDP, Policy
from rpl_agent.core.regions.blocks import has_few_coordinates
from rpl_agent.core.registry import Registry
from rpl_agent.guarantee.pipeline import Uncertainty


class Exploration(Protocol):
    """How to sample when the aim is not (only) to find the best policy.

    name : in settings, logs and checkpoints
    """

    @property
    def name(self) -> str: ...

    def plan(
        self, counts: Counts, uncertainty: Uncertainty, objective: Objective, optimistic: Policy, goal: SamplingGoal
    ) -> Policy | None:
        """The policy for the next episodes, from all data so far; None to play the optimistic one in all of them."""


@dataclass(frozen=True)
class Optimistic:
    """Optimism throughout, as in the paper: look for the best policy."""

    name: str = "optimistic"

    def plan(
        self, counts: Counts, uncertainty: Uncertainty, objective: Objective, optimistic: Policy, goal: SamplingGoal
    ) -> Policy | None:
        return None


@dataclass(frozen=True)
class ForCertificate:
    """Sample where episodes narrow the certificate fastest (`design`)."""

    name: str = "certificate"

    def plan(
        self, counts: Counts, uncertainty: Uncertainty, objective: Objective, optimistic: Policy, goal: SamplingGoal
    ) -> Policy | None:
        if uncertainty.estimate is None or uncertainty.fallback is not None:
            return None
        return informative_policy(uncertainty.relaxation, objective, counts, uncertainty.estimate, optimistic, goal)


@dataclass(frozen=True)
class ForRegret:
    """Sample where it is undecided which policy is best: where the difference between the values of the optimistic
    policy and of the best one at the estimate is uncertain. If the two are equal, sample for the certificate.

    Optimism plays what may still be better than the best policy at the estimate; what is undecided lies between them.
    """

    name: str = "regret"

    def plan(
        self, counts: Counts, uncertainty: Uncertainty, objective: Objective, optimistic: Policy, goal: SamplingGoal
    ) -> Policy | None:
        if uncertainty.estimate is None or uncertainty.fallback is not None:
            return None
        return informative_policy(
            uncertainty.relaxation, objective, counts, uncertainty.estimate, optimistic, goal, against=True
        )


explorations: Registry[Exploration] = Registry("exploration", "rpl_agent.explorations")
explorations.register(ForCertificate())
explorations.register(ForRegret())
explorations.register(Optimistic())


def register_exploration(kind: Exploration) -> None:
    """Register a way to explore under its name.

    >>> from rpl_agent.agent.exploration import Optimistic
    >>> register_exploration(Optimistic())
    Traceback (most recent call last):
        ...
    rpl_agent.core.errors.ModelError: the exploration 'optimistic' exists already
    """
    explorations.register(kind)


def exploration_of(chosen: str | Exploration) -> Exploration:
    """The exploration with that name, or the object itself."""
    if isinstance(chosen, str):
        return explorations.get(chosen)
    if isinstance(chosen, type):
        raise ModelError(f"{chosen.__name__} is a class: pass an exploration, {chosen.__name__}()")
    if not hasattr(chosen, "plan"):
        raise ModelError(
            f"exploration {chosen!r} is not a name, and has no method plan: write one of {explorations.names()}"
        )
    return chosen


def alternates(pmdp: ParametricMDP) -> bool:
    """Whether half of all episodes are optimistic: if the model has many unknowns.

    A design knows only the value's own direction. With many unknowns much of a certificate's width is what the set
    leaves open in other directions: whether a row that is rarely played is better, and products of two errors. Optimism
    plays where these matter.
    """
    return not has_few_coordinates(pmdp)


def block_of(episodes: int, evenly: bool = False) -> tuple[bool, int]:
    """(whether the next episode is optimistic, episodes until that changes).

    One episode in ⌈√t⌉ is: the first two of every block k² … (k + 1)² − 1; if ``evenly``, the first half of each.
    Depends on the number of episodes alone, so that a resumed run continues in the same block.
    """
    root = math.isqrt(episodes)
    position, length = episodes - root * root, 2 * root + 1
    first = min(root + 1 if evenly else 2, length)
    return (True, first - position) if position < first else (False, length - position)


def optimistic_share(first: int, last: int, evenly: bool = False) -> float:
    """The share of optimistic episodes among episodes first … last − 1."""
    return 0.5 if evenly else min(2.0 * (math.sqrt(last) - math.sqrt(first)) / (last - first), 1.0)
