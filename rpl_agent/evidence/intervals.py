"""Confidence intervals for pooled Bernoulli events, every bound rounded outward.

K successes in N trials, γ the error allowed for one interval:

- ``clopper-pearson`` (the paper's choice): exact beta quantiles, γ/2 per side. *Fixed N only*: not valid
  when the data decide how much data there is, as with an adaptive agent.
- ``anytime`` (the default for intervals): {p : log M(p) < ln 1/γ} for the Beta(½, ½) mixture martingale

      log M(p) = ln B(K+½, N−K+½) − ln B(½, ½) − K ln p − (N−K) ln(1−p).

  M is a non-negative martingale under p whatever rule decides on the next trial, so by Ville's
  inequality the interval holds at all times simultaneously. Price: 1.15-1.3 times the width.
- ``hoeffding``: p̂ ± √(ln(2/γ) / 2N). Fixed N only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy
from numpy.typing import ArrayLike

from rpl_agent._core import core
from rpl_agent.errors import DataError
from rpl_agent.evidence.counts import Counts
from rpl_agent.evidence.ledger import check_delta, per_event
from rpl_agent.evidence.pooling import event_table
from rpl_agent.model import ParametricMDP

#: Absolute outward rounding; larger than the error of the quantile routines and of the bisection.
ROUNDING = 1e-12
METHODS = ("anytime", "clopper-pearson", "hoeffding")
#: Methods whose intervals hold at every time, under any adaptive sampling.
ANYTIME_METHODS = ("anytime",)


def clopper_pearson(successes: ArrayLike, trials: ArrayLike, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Exact binomial interval for N fixed in advance; (lower, upper) of the shape of the inputs."""
    k, n = _check(successes, trials, gamma)
    lower, upper = np.zeros(k.shape), np.ones(k.shape)
    some = k > 0
    lower[some] = scipy.special.betaincinv(k[some], n[some] - k[some] + 1.0, gamma / 2.0)
    some = k < n
    # The complementary inverse keeps a small γ accurate where 1 − γ/2 would round it away.
    upper[some] = scipy.special.betainccinv(k[some] + 1.0, n[some] - k[some], gamma / 2.0)
    # Quantiles below 1e-150 may not be found: use the trivial bound on that side.
    return _outward(np.nan_to_num(lower, nan=0.0), np.nan_to_num(upper, nan=1.0))


def anytime(successes: ArrayLike, trials: ArrayLike, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Interval valid at all times simultaneously; l = 0 if K = 0 and u = 1 if K = N."""
    k, n = _check(successes, trials, gamma)
    lower, upper = np.empty(k.shape), np.empty(k.shape)
    core.anytime_bounds(k.size, k, n, -np.log(gamma), lower, upper)
    return _outward(lower, upper)


def hoeffding(successes: ArrayLike, trials: ArrayLike, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Interval from Hoeffding's inequality for N fixed in advance."""
    k, n = _check(successes, trials, gamma)
    safe = np.maximum(n, 1.0)
    radius = np.where(n > 0, np.sqrt(np.log(2.0 / gamma) / (2.0 * safe)), 1.0)
    return _outward(np.where(n > 0, k / safe, 0.5) - radius, np.where(n > 0, k / safe, 0.5) + radius)


_FUNCTIONS = {"anytime": anytime, "clopper-pearson": clopper_pearson, "hoeffding": hoeffding}


def confidence_intervals(
    pmdp: ParametricMDP, counts: Counts, method: str = "anytime", delta: float = 1e-3
) -> tuple[np.ndarray, np.ndarray]:
    """Simultaneous intervals per expression, (lower, upper) each (F,).

    δ is divided over the distinct non-constant events of the model; constants are exact, and expressions that
    were never observed get [0, 1].
    """
    check_delta(delta)
    return event_intervals(pmdp, counts, method, per_event(delta, event_table(pmdp).num_events))


def event_intervals(pmdp: ParametricMDP, counts: Counts, method: str, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Intervals per expression, (lower, upper) each (F,), each with error probability γ per event."""
    function = _function(method)
    table = event_table(pmdp)
    if table.num_events == 0:
        least, most = pmdp.table.constant_bounds
        return least.copy(), most.copy()
    evidence = table.pool(counts)
    lower, upper = function(evidence.successes, evidence.trials, gamma)
    return table.per_expression(lower, upper, pmdp.table)


def untied_intervals(
    pmdp: ParametricMDP, counts: Counts, method: str = "anytime", delta: float = 1e-3
) -> tuple[np.ndarray, np.ndarray]:
    """Intervals per transition, (lower, upper) each (T,), that rely only on the model's graph.

    The fallback if the data refute the expressions: every row with two or more successors is
    learned separately, constants included; a two-successor row is one event.
    """
    function = _function(method)
    check_delta(delta)
    length = np.diff(pmdp.row_ptr)
    row = np.repeat(np.arange(pmdp.num_rows), length)
    trials = counts.row_totals[row]
    events = int(length[length > 2].sum() + (length == 2).sum())
    lower, upper = function(counts.transitions, trials, per_event(delta, events))
    single = length[row] == 1
    lower[single], upper[single] = 1.0, 1.0
    return lower, upper


def _function(method: str) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    if method not in _FUNCTIONS:
        raise DataError(f"interval method {method!r} is not one of {METHODS}")
    return _FUNCTIONS[method]


def _check(successes: ArrayLike, trials: ArrayLike, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    check_delta(gamma)
    k = np.atleast_1d(np.array(successes, dtype=float, order="C"))
    n = np.atleast_1d(np.array(trials, dtype=float, order="C"))
    if k.shape != n.shape:
        raise DataError(f"{k.shape} successes for {n.shape} trials")
    if not (np.isfinite(n).all() and (k >= 0).all() and (k <= n).all()):
        raise DataError("counts must be finite with 0 ≤ successes ≤ trials")
    return k, n


def _outward(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.clip(lower - ROUNDING, 0.0, 1.0), np.clip(upper + ROUNDING, 0.0, 1.0)
