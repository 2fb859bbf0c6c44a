"""`Ledger`: the one place where δ is divided. Every share is fixed before any data are seen.

    δ  ≥  (bets + level set + intervals) + fallback + refutation

- *bets*, *level set* and *intervals*: the configured confidence set, `main`. The joint likelihood divides it further
  (`split_main`, in the proportions of `guarantee.likelihood.shares`): most of it goes to bets on the value if there
  are any, else to its level set, and a little to union-bounded intervals that the set is intersected with. Every other
  set uses it undivided.
- *fallback*: intervals per transition that rely only on the model's graph, used if no parameter fits the data or
  if the model is refuted. They hold on an event of their own, so how the choice is made does not matter.
- *refutation*: the model is declared refuted when an e-value reaches 1 / refutation.
- *rows*, *plays* and *visits*: in models whose rows are unknown distributions of their own, bets on the best value's
  rows, on whole plays of a policy, and on visits of its rows (`guarantee.untied`); `main` is smaller there.

An unknown initial distribution is one more row of the model and needs no share: its data enter the same set. The union
over an interval set's events is the second and last kind of division, `per_event`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from rpl_agent.core.errors import DataError

#: Shares of δ. They sum to slightly less than 1: the rest covers the rounding of `per_event`.
MAIN_SHARE, FALLBACK_SHARE, REFUTATION_SHARE = 0.95, 0.0099, 0.04
#: Where rows are untied, in place of the main share.
UNTIED_SHARES = {"main": 0.4, "rows": 0.25, "plays": 0.2, "visits": 0.1}
#: Shares of δ for whole paths: those of a chain, and those of a policy, which bound one side only.
PATH_SHARE, POLICY_SHARE = 0.5, 0.2


class MainShares(NamedTuple):
    """How the likelihood divides the share of the confidence set."""

    bets: float
    level_set: float
    intervals: float


#: The least δ: its shares for 10^40 events keep full precision, and their quantiles can be computed.
LEAST_DELTA = 1e-100


class Ledger:
    """Shares of one δ, each the error probability of one statement; checked to sum to at most δ, exactly.

    A share can be taken once: two statements that both spend the same share would fail twice as often.

    >>> ledger = Ledger.of(0.1)
    >>> ledger.take("main")
    0.095
    >>> ledger.take("main")
    Traceback (most recent call last):
    rpl_agent.core.errors.DataError: the share 'main' of delta is spent: each statement needs a share of its own
    """

    def __init__(self, delta: float, shares: Mapping[str, float]) -> None:
        _check(tuple(shares.values()), delta)
        self._left = dict(shares)

    @classmethod
    def of(cls, delta: float) -> Ledger:
        """Divide δ by the shares above."""
        check_delta(delta, LEAST_DELTA)
        shares = {"main": MAIN_SHARE, "fallback": FALLBACK_SHARE, "refutation": REFUTATION_SHARE}
        return cls(delta, {name: delta * share for name, share in shares.items()})

    @staticmethod
    def of_untied(delta: float) -> Ledger:
        """Divide δ where every row of the model is an unknown distribution of its own."""
        check_delta(delta, LEAST_DELTA)
        shares = {"fallback": FALLBACK_SHARE, "refutation": REFUTATION_SHARE} | UNTIED_SHARES
        return Ledger(delta, {name: delta * share for name, share in shares.items()})

    def take(self, name: str) -> float:
        """The error probability of a statement: "main", "fallback", "refutation", one of `UNTIED_SHARES`; each once."""
        if name not in self._left:
            raise DataError(f"the share {name!r} of delta is spent: each statement needs a share of its own")
        return self._left.pop(name)


def refuting_log_e_value(share: float) -> float:
    """The logarithm of the least e-value that refutes a model, for the share of refutation."""
    return -math.log(share)


def split_main(main: float, shares: MainShares) -> MainShares:
    """Divide the main share among the likelihood's parts."""
    parts = MainShares(*(share * main for share in shares))
    _check(parts, main)
    return parts


def _check(parts: tuple[float, ...], whole: float) -> None:
    if min(parts) < 0 or sum(map(Fraction, parts)) > Fraction(whole):
        raise DataError(f"the shares {parts} are negative, or sum to more than the error probability {whole}")


def split_paths(delta: float, share: float = PATH_SHARE) -> tuple[float, float]:
    """(model, paths): what certificates may spend where paths are bounded beside them (`agent.smc`)."""
    check_delta(delta, LEAST_DELTA)
    paths = share * delta
    parts = math.nextafter(delta - paths, -math.inf), paths  # the difference is rounded by less than that
    _check(parts, delta)
    return parts


def per_event(delta: float, events: int) -> float:
    """The error γ of each of ``events`` intervals that hold simultaneously except with probability δ (union bound)."""
    return delta / max(events, 1)


def check_delta(delta: float, least: float = 0.0) -> None:
    """Check that 0 < δ < 1, and that δ is at least ``least`` if it is to be divided."""
    if not (isinstance(delta, (int, float, np.floating)) and 0.0 < delta < 1.0):
        raise DataError(f"delta = {delta!r} must lie strictly between 0 and 1")
    if delta < least:
        raise DataError(f"delta = {delta!r} is too small to be divided: at least {least:g}")


def check_stated_delta(delta: float) -> None:
    """Check a δ that a user states: below one half, because who writes 0.95 means a confidence of 95 %."""
    check_delta(delta, LEAST_DELTA)
    if delta >= 0.5:
        meant = f": for a confidence of {100 * delta:.12g} % write delta = {1 - delta:.12g}" if delta > 0.5 else ""
        raise DataError(f"delta = {delta!r} is the probability that bounds are wrong, and must be below 0.5{meant}")


#: Shares of δ without a model: rows of all states, the start, and policies that are fixed and played. They sum to a
#: little less than 1, for rounding.
OPEN_ROWS, OPEN_START, OPEN_POLICIES = 0.5, 0.05, 0.449
#: Parts of a policy's share: bets on its episodes with planned stakes, with fixed stakes, and what cut episodes miss.
OPEN_PLANNED, OPEN_EPISODES, OPEN_REST = 0.85, 0.05, 0.099


class OpenLedger(Ledger):
    """Shares of one δ without a model ("rows", "start"), for any number of states and policies.

    The k-th state by first visit, with 2^j ≤ k < 2^(j + 1), gets 2^−j / ((j + 1)(j + 2)), the j-th policy
    4/(j (j + 1)(j + 2)): from 1 on, both sum to 1. The first policy, two thirds, is most often the one that is
    returned. Where a number of states is known, all get the same.
    """

    def __init__(self, delta: float, shares: Mapping[str, float]) -> None:
        super().__init__(delta, shares)
        self._policies, self._last = self.take("policies"), 0

    @classmethod
    def of(cls, delta: float) -> OpenLedger:
        """Divide δ by the shares above."""
        check_delta(delta, LEAST_DELTA)
        shares = {"rows": OPEN_ROWS, "start": OPEN_START, "policies": OPEN_POLICIES}
        return cls(delta, {name: delta * share for name, share in shares.items()})

    def take_policy(self, number: int) -> float:
        """The share of the policy that is fixed as this number, from 1. Numbers grow, so none is taken twice."""
        if number <= self._last:
            raise DataError(f"the share of policy {number} is spent: a policy that is fixed needs a new number")
        self._last = number
        return 4.0 * self._policies / (number * (number + 1) * (number + 2))


def of_states(share: float, first: int, last: int, known: int | None) -> np.ndarray:
    """Shares of the states numbered ``first`` to ``last`` − 1 (from 0, by first visit), of ``share`` for all."""
    share *= 1.0 - 1e-9  # far more than what rounding may add
    if known is not None:
        return np.full(last - first, share / known)
    j = np.frexp(np.arange(first, last) + 1.0)[1] - 1.0
    return share / (np.exp2(j) * (j + 1.0) * (j + 2.0))
