"""The joint likelihood's set of a model of blocks, as `checker.Likelihood` proves it with a Gaussian prior.

Particles would have to fill all coordinates at once; a density has to fill only its own block. The checker
(`_of_blocks`) has the theorem. This module chooses the mark and the ellipsoids ρ, for which any choice is valid, and
computes their bound in floats, moved outward by more than its rounding error.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.marks import Mark
from rpl_agent.core.model import cached_fact, cached_on
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.likelihood.chart import Observations
from rpl_agent.guarantee.likelihood.joint_set import Forms, JointSet, fits, forms_of, likeliest, windows
from rpl_agent.guarantee.likelihood.line import Line

#: Steps of Newton's method to the likeliest point after a mark, and the decrement at which they end.
STEPS, CLOSE = 60, 1e-9
#: The largest change of an expression over an ellipsoid, relative to its value at the centre, squared.
MOST_SPREAD = 0.7
#: Observations that the search adds to every expression without any, which would else be driven to 0.
UNSEEN = 2.0


class Density(NamedTuple):
    """N(mean, (LL')⁻¹): what the data before a mark tell."""

    mean: np.ndarray  # (r,)
    L: np.ndarray  # (r, r) lower triangular


class BlockWindow(NamedTuple):
    """The set from the data after one mark."""

    part: dict[str, Any]  # as in a proof
    counts: np.ndarray  # (n,) of the free expressions
    bound: float  # without ln 1/α
    center: np.ndarray  # (r,) likeliest point
    level: float  # −Σ K ln f there


def block_set(line: Line, counts: Counts, alpha: float) -> JointSet | None:
    """C at level α from all of ``counts``, by the best window; None where no window has data and a density."""
    found = [_window(line, counts, j, mark, weight) for j, mark, weight in windows(counts)]
    known = [window for window in found if window is not None]
    if not known:
        return None
    needed = math.log(1.0 / alpha)
    best = min(known, key=lambda w: (w.bound + needed - w.level) / w.counts.sum())
    forms, seen = forms_of(line), np.flatnonzero(best.counts > 0.0)
    observed = Observations(forms.constant[seen], np.ascontiguousarray(forms.weights[seen]), best.counts[seen])
    rough = JointSet(line, observed, best.bound + needed, best.part, best.center)
    return JointSet(line, observed, rough.bound + rough.slack, best.part, best.center)


def _window(line: Line, counts: Counts, number: int, mark: Mark | None, weight: float) -> BlockWindow | None:
    forms = forms_of(line)
    K = counts.successes[forms.free].astype(float)
    K -= 0.0 if mark is None else mark.successes[forms.free]
    if not K.any():
        return None
    try:
        prior = _prior(line, mark, fits(line, counts)[number])
    except checker.Refused:
        return None
    searched = np.where(K > 0.0, K, UNSEEN)
    m = _posterior(forms, prior, searched)
    factors = None if m is None else _ellipsoids(line, forms, prior, searched, m)
    if m is None or factors is None:
        return None
    bound = -math.log(weight) - _gained(line, forms, prior, K, m, factors)
    center = likeliest(line, K)
    level = -float(K @ np.log(forms.at(center[None])[0]))
    shown = [[row[: k + 1] for k, row in enumerate(T.tolist())] for T in factors]
    part = {"mark": number, "center": m.tolist(), "factors": shown}
    return BlockWindow(part, K, bound, center, level) if math.isfinite(bound) else None


def _prior(line: Line, mark: Mark | None, x: np.ndarray) -> Density:
    """`checker.Coordinates.spread` of the data before a mark, kept with it."""
    if mark is None:
        return _first_prior(line)
    known: WeakKeyDictionary[Mark, Density] = cached_on(line, "densities", lambda _: WeakKeyDictionary())
    if mark not in known:
        known[mark] = Density(x, np.tril(line.spread(mark.successes[line.free], x)))
    return known[mark]


@cached_fact
def _first_prior(line: Line) -> Density:
    x = line.first_fit()[0]
    return Density(x, np.tril(line.spread(np.zeros(len(line.free)), x)))


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _posterior(forms: Forms, prior: Density, K: np.ndarray) -> np.ndarray | None:
    """(r,) near the maximiser of Σ K ln f + ln W, from the prior's mean; None if numbers overflow."""
    precision, x = prior.L @ prior.L.T, prior.mean.copy()
    for _ in range(STEPS):
        f = forms.at(x[None])[0]
        score = (K / f) @ forms.weights - precision @ (x - prior.mean)
        scaled = forms.weights * (np.sqrt(K) / f)[:, None]
        try:
            step = np.linalg.solve(scaled.T @ scaled + precision, score)
        except np.linalg.LinAlgError:
            return None
        change = forms.weights @ step / f
        x = x + step / (1.0 + np.abs(change).max())  # keeps every f > 0
        if float(score @ step) < CLOSE:
            break
    return x if np.isfinite(x).all() and (forms.at(x[None]) > 0.0).all() else None


def _ellipsoids(line: Line, forms: Forms, prior: Density, K: np.ndarray, m: np.ndarray) -> list[np.ndarray] | None:
    """T of each block: TT' is (d + 2) times the posterior's variance, or less to keep all expressions positive."""
    f, found = forms.at(m[None])[0], []
    scaled = forms.weights * (np.sqrt(K) / f)[:, None]
    precision = scaled.T @ scaled + prior.L @ prior.L.T
    for block in line.blocks:
        own = np.ix_(block, block)
        try:
            T = np.linalg.cholesky((len(block) + 2.0) * np.linalg.inv(precision[own]))
        except np.linalg.LinAlgError:
            return None
        spread = float((np.square(forms.weights[:, block] @ T).sum(axis=1) / f**2).max())
        found.append(T * min(1.0, math.sqrt(MOST_SPREAD / spread)))
    return found


def _gained(
    line: Line,
    forms: Forms,
    prior: Density,
    K: np.ndarray,
    m: np.ndarray,
    factors: list[np.ndarray],
) -> float:
    """The bound below ln ∫ L dW of the checker's `_of_blocks`."""
    f = forms.at(m[None])[0]
    squares = float(np.square(prior.L.T @ (m - prior.mean)).sum())
    total = float(K @ np.log(f))
    for block, T in zip(line.blocks, factors):
        d = len(block)
        y = np.square(forms.weights[:, block] @ T).sum(axis=1) / f**2
        total -= float(K @ (y / (2 * d + 4) + 3.0 * y * y / (4.0 * (1.0 - y) * (d + 2) * (d + 4))))
        squares += float(np.square(prior.L[block].T @ T).sum()) / (d + 2)
        total += float(np.log(np.diag(T) * np.diag(prior.L)[block]).sum())
        total -= math.log(math.prod(range(d, 0, -2))) + 0.5 * math.log(math.pi / 2.0) * (d % 2)
    return total - squares / 2.0
