"""`Ledger`: the one place where δ is divided. Every share is fixed before any data are seen.

    δ  ≥  level set + intervals + fallback + refutation

- *level set* and *intervals*: the configured confidence set. The joint likelihood spends most of this part on its
  level set and a little on union-bounded intervals that it is intersected with; every other set takes the two together
  (`main`).
- *fallback*: intervals per transition that trust nothing but the model's graph, used if no parameter fits the data or
  if the model is refuted. They are valid on an event of their own, so it does not matter how the choice is made.
- *refutation*: the statement "the model is refuted" is made when an e-value reaches 1 / refutation.

An unknown initial distribution is one more row of the model and needs no share: its data enter the same set. The union
over an interval set's events is the second and last kind of division, `per_event`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from rpl_agent.errors import DataError

#: Shares of δ. They sum to a little less than 1: the rest pays for the rounding of `per_event`.
MAIN_SHARE, FALLBACK_SHARE, REFUTATION_SHARE = 0.95, 0.04, 0.00999
#: Of the main share, what the likelihood gives to intervals: they matter for small data only.
INTERVAL_SHARE = 0.03
#: Of all of δ, what paths get where they are counted beside transitions: each needs few samples more than alone.
PATH_SHARE = 0.5

#: The least δ: its shares for 10^40 events are numbers of full precision, for which quantiles can be computed.
LEAST_DELTA = 1e-100


@dataclass(frozen=True)
class Ledger:
    """Amounts of one δ, each the error probability of one statement; asserted to sum to at most δ, exactly."""

    delta: float
    level_set: float
    intervals: float
    fallback: float
    refutation: float

    @classmethod
    def of(cls, delta: float) -> Ledger:
        """δ divided by the shares above."""
        check_delta(delta, LEAST_DELTA)
        level_set, intervals = split_main(delta * MAIN_SHARE)
        return cls(delta, level_set, intervals, delta * FALLBACK_SHARE, delta * REFUTATION_SHARE)

    def __post_init__(self) -> None:
        parts = (self.level_set, self.intervals, self.fallback, self.refutation)
        if min(parts) < 0 or sum(map(Fraction, parts)) > Fraction(self.delta):
            raise DataError(f"shares {parts} of an error probability of {self.delta}")

    @property
    def main(self) -> float:
        """What a confidence set that is not divided further may spend."""
        return self.delta * MAIN_SHARE


def split_main(main: float) -> tuple[float, float]:
    """(level set, intervals): how the likelihood divides what the confidence set may spend."""
    return (1.0 - INTERVAL_SHARE) * main, INTERVAL_SHARE * main


def split_paths(delta: float) -> tuple[float, float]:
    """(model, paths): what certificates may spend where the paths of a chain are bounded beside them (`paths`)."""
    check_delta(delta, LEAST_DELTA)
    return (1.0 - PATH_SHARE) * delta, PATH_SHARE * delta


def per_event(delta: float, events: int) -> float:
    """The error γ of each of ``events`` intervals that hold together except with probability δ (the union bound)."""
    return delta / max(events, 1)


def check_delta(delta: float, least: float = 0.0) -> None:
    """δ must be a probability strictly between 0 and 1, and at least ``least`` where it is to be divided."""
    if not (isinstance(delta, (int, float, np.floating)) and 0.0 < delta < 1.0):
        raise DataError(f"delta = {delta!r} must lie strictly between 0 and 1")
    if delta < least:
        raise DataError(f"delta = {delta!r} is too small to be divided: at least {least:g}")
