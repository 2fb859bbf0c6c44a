"""The joint likelihood's set, as `checker.Likelihood` defines and proves it, searched for in floats.

    C = {x : g(x) = −Σ_f K_f ln f[x] ≤ bound},    x the `checked_model.joint_coordinates`

The checker has the theorem, and defines K and the bound. Only the shares λ of particles may be chosen here: any choice
is valid. They are the shares of the terms of E near the boundary of C, where Jensen's inequality then loses least.

Every number is moved outward by more than its rounding error. So the checker's set, which has no rounding error, lies
inside this one: whatever holds on the set here is proved there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.marks import Mark
from rpl_agent.core.model import cached_fact, cached_on
from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.core.regions.intersection import Ellipsoid
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.likelihood.chart import Observations, ParameterChart, fit
from rpl_agent.guarantee.likelihood.line import Estimate, Line

#: Rows (A, b): A x ≤ b.
Rows = tuple[np.ndarray, np.ndarray]
Tally = Callable[[np.ndarray], np.ndarray]

#: Shares of particles are multiples of the first number. The smallest ones, up to the second number of all, are left
#: out. The third is the most logarithms of the particles that are used, because the checker computes each of them.
SHARE, NEGLIGIBLE, MOST_LOGARITHMS = 2.0**-20, 0.005, 40_000
#: Likelihoods of all particles are computed if that takes at most this many logarithms; else only those of the nearest
#: ones, at least the second number per dimension. Up to the last number, logarithms are kept with their mark.
MOST_EVALUATED, NEAREST, MOST_KEPT = 1_000_000, 64, 400_000
#: Windows that begin before this share of the data have too vague a prior to matter.
EARLIEST = 1e-3
#: Weight of the barrier, relative to the usual one, that keeps the likeliest point inside {f > 0}.
INNER_BARRIER = 2.0**-20
#: Rounds in which a ball settles, and its margin.
BALL_ROUNDS, BALL_MARGIN = 60, 1e-7
#: Most steps of Newton's method to the boundary, and the relative length of a step that is the last.
BOUNDARY_STEPS, BOUNDARY_NEAR = 12, 1e-9
#: Tangents by dimension.
CUTS = {1: 2, 2: 32, 3: 60, 4: 60}
MANY_DIMENSIONS_CUTS = 4


class Strip(NamedTuple):
    """A slab beside the likelihood, with the names that its two cuts have in a proof."""

    multiple: float  # μ ≥ 0
    normal: list[float]  # (r,)
    low: Any
    high: Any


class Ball(NamedTuple):
    """{center + factor y : |y| ≤ 1} holds all of C that lies in the slabs."""

    center: np.ndarray  # (r,)
    factor: np.ndarray  # (r, r)
    slabs: Sequence[Strip] = ()


class Prior(NamedTuple):
    """The particles of a mark."""

    numbers: np.ndarray  # (m,) as the checker counts them
    points: np.ndarray  # (m, r)
    logarithms: np.ndarray | None  # (m, n) ln f of the free expressions, 0 where some f ≤ 0; None if they are many
    inside: np.ndarray  # (m,) whether all f > 0


class Forms(NamedTuple):
    """The free expressions of a line, f = constant + weights·x."""

    free: np.ndarray  # (n,)
    constant: np.ndarray  # (n,)
    weights: np.ndarray  # (n, r)

    def at(self, points: np.ndarray) -> np.ndarray:
        """(k, n) at points (k, r)."""
        return self.constant + points @ self.weights.T


@dataclass(frozen=True, eq=False)
class JointSet:
    """C = {x : −Σ K_f ln f[x] ≤ bound}, over the observed expressions f."""

    line: Line
    observed: Observations  # with counts K
    bound: float
    parts: Any  # as in a proof: [[mark, [[particle, whole share], …]], …], or a window of `block_set`
    center: np.ndarray  # (r,) near the likeliest point

    @property
    def dimension(self) -> int:
        return self.line.dimension

    @property
    def slack(self) -> float:
        """More than the rounding error of g near C, in nats."""
        f = self.observed.values(self.center)
        size = float(self.observed.counts @ (np.abs(np.log(f)) + 1.0))
        return (64.0 + 4.0 * len(f)) * UNIT_ROUNDOFF * size + 1e-9

    def values(self, points: np.ndarray) -> np.ndarray:
        """(k,) g at points (k, r); inf where an observed expression is not positive."""
        f = self.observed.constant + points @ self.observed.weights.T
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where((f > 0.0).all(axis=1), -np.log(f) @ self.observed.counts, np.inf)

    def contains(self, points: np.ndarray) -> np.ndarray:
        """(k,) whether g ≤ bound; True in doubt."""
        return self.values(np.atleast_2d(points)) <= self.bound + self.slack

    def tangents(self, points: np.ndarray) -> Rows:
        """A x ≤ b on C, from points (k, r) at which all observed expressions are positive."""
        f = self.observed.constant + points @ self.observed.weights.T
        pull = self.observed.counts / f
        A = -pull @ self.observed.weights
        b = self.bound + np.log(f) @ self.observed.counts + (A * points).sum(axis=1)
        size = pull @ (np.abs(self.observed.weights) @ (1.0 + np.abs(points).max(axis=0, initial=0.0)))
        return A, b + self.slack + (64.0 + len(f.T)) * UNIT_ROUNDOFF * size

    def ball(self) -> Ball | None:
        """An ellipsoid around C that passes the checker's `check_ball`; None if the data leave a direction open."""
        counts = self.observed.counts
        f = self.observed.values(self.center)
        relative = self.observed.weights / f[:, None]
        room = max(self.bound + self.slack + float(counts @ np.log(f)), 1e-12)
        phi = np.ones(len(counts))
        for _ in range(BALL_ROUNDS):
            curvature = 0.5 * (relative * (counts * phi)[:, None]).T @ relative
            try:
                factor = np.linalg.cholesky(np.linalg.inv(curvature)) * math.sqrt(room)
            except np.linalg.LinAlgError:
                return None
            n_f = relative @ factor
            tilt = float(np.linalg.norm(counts @ n_f))
            factor *= math.sqrt(1.0 + tilt / room) * (1.0 + 1e-9)  # so that λ_min exceeds room + |A1|
            new = 1.0 / (1.0 + 2.0 / 3.0 * np.linalg.norm(relative @ factor, axis=1))
            if np.abs(new - phi).max() < 1e-10:
                break
            phi = np.minimum(phi, new)
        factor *= 1.0 + BALL_MARGIN
        return Ball(self.center, factor) if np.isfinite(factor).all() and self._is_enclosed(factor, room) else None

    def _is_enclosed(self, factor: np.ndarray, room: float) -> bool:
        """The checker's check, in floats, with room for their rounding errors."""
        counts = self.observed.counts
        n_f = self.observed.weights @ factor / self.observed.values(self.center)[:, None]
        phi = 1.0 / (1.0 + 2.0 / 3.0 * np.linalg.norm(n_f, axis=1))
        square = 0.5 * (n_f * (counts * phi)[:, None]).T @ n_f
        least = float(np.linalg.eigvalsh(square)[0])
        return least * (1.0 - 1e-8) > room + float(np.linalg.norm(counts @ n_f))

    def boundary(self, factor: np.ndarray) -> np.ndarray:
        """(k, r) points near the boundary of C, in directions that ``factor`` spreads evenly; |factor y| reaches it."""
        return self.on_rays(cut_directions(self.dimension) @ factor.T)

    def on_rays(self, rays: np.ndarray) -> np.ndarray:
        """(k, r) points near the boundary of C on rays (n, r) from the centre, each as long as it may have to be."""
        f, slope = self.observed.values(self.center), rays @ self.observed.weights.T
        with np.errstate(divide="ignore", invalid="ignore"):
            exits = np.where(slope < 0.0, -f / slope, np.inf).min(axis=1)
            t = np.minimum(1.0, (1.0 - 1e-6) * exits)
            for _ in range(BOUNDARY_STEPS):  # from outside, g is convex
                here = f + t[:, None] * slope
                excess = -np.log(here) @ self.observed.counts - self.bound
                rise = -(slope / here) @ self.observed.counts
                step = np.where((excess > 0.0) & (rise > 0.0), excess / rise, 0.0)
                t = t - step
                if not (step > BOUNDARY_NEAR * t).any():
                    break
        found = self.center + t[:, None] * rays
        return found[np.isfinite(found).all(axis=1) & np.isfinite(self.values(found))]


def tangent_points(joint: JointSet, ball: Ball | None) -> np.ndarray:
    """(k, r) points at which tangents cut C out of the domain, near its boundary."""
    if ball is not None:
        return joint.boundary(ball.factor)
    if joint.values(joint.center[None])[0] > joint.bound:  # nothing is left: the tangent at the best point says so
        return joint.center[None]
    f = joint.observed.values(joint.center)
    scaled = joint.observed.weights * (np.sqrt(joint.observed.counts) / f)[:, None]
    curvature = scaled.T @ scaled
    curvature.flat[:: joint.dimension + 1] += 1e-9 * np.trace(curvature)
    return joint.boundary(3.0 * np.linalg.inv(np.linalg.cholesky(curvature)).T)


def ellipsoid_of(ball: Ball) -> Ellipsoid:
    """The ball as a region, a hair larger."""
    inverse = np.linalg.inv(ball.factor)
    return Ellipsoid(ball.center, inverse.T @ inverse, 1.0 + 1e-9)


@cache
def cut_directions(dimension: int) -> np.ndarray:
    """(k, dimension) evenly spread unit vectors, always the same."""
    count = CUTS.get(dimension, MANY_DIMENSIONS_CUTS * dimension)
    if dimension == 1:
        return np.array([[1.0], [-1.0]])
    if dimension == 2:
        angle = 2.0 * np.pi * np.arange(count) / count
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    eye = np.eye(dimension)
    half = np.random.default_rng(5).normal(size=(max(count // 2 - dimension, 0), dimension))
    half = np.vstack([eye, half / np.linalg.norm(half, axis=1)[:, None]])
    return np.vstack([half, -half])


# ---------------------------------------------------------------------- fits and priors, by mark
def as_counted(successes: np.ndarray) -> np.ndarray:
    """The counts of a line whose expressions are those of the model."""
    return successes


def fits(line: Line, counts: Counts, tally: Tally = as_counted) -> list[np.ndarray]:
    """x (r,) of the start and of every mark, as `checker.Data.fits`; known ones are kept with their mark."""
    known: WeakKeyDictionary[Mark, Estimate] = cached_on(line, "fits", lambda _: WeakKeyDictionary())
    last = _first_fit(line)
    found = [last[0]]
    for mark in counts.marks:
        if mark not in known:
            known[mark] = line.next_fit(tally(mark.successes), last)
        last = known[mark]
        found.append(last[0])
    return found


@cached_fact
def _first_fit(line: Line) -> Estimate:
    return line.first_fit()


def _prior(line: Line, mark: Mark | None, x: np.ndarray, tally: Tally = as_counted) -> Prior:
    """The `checker.Coordinates.particles`, in arrays."""
    if mark is None:
        return _first_prior(line)
    known: WeakKeyDictionary[Mark, Prior] = cached_on(line, "priors", lambda _: WeakKeyDictionary())
    if mark not in known:
        known[mark] = _particles(line, tally(mark.successes)[line.free], x)
    return known[mark]


@cached_fact
def _first_prior(line: Line) -> Prior:
    return _particles(line, np.zeros(len(line.free)), _first_fit(line)[0])


def _particles(line: Line, counts: np.ndarray, x: np.ndarray) -> Prior:
    """The particles of a mark with these counts (n,) and the estimate x (r,)."""
    L, r = line.spread(counts, x), line.dimension
    number = np.arange(1, line.size + 1)
    u = number[:, None] * np.array(checker.STEPS[:r]) % 1.0
    s = (2 * u - 1) / np.sqrt(2 * u * (1 - u))
    for i in reversed(range(r)):
        for k in range(i + 1, r):
            s[:, i] -= L[k, i] * s[:, k]
        s[:, i] /= L[i, i]
    points = x + s
    inside = (line.walls[:, 0] + points @ line.walls[:, 1:].T >= 0.0).all(axis=1)
    number, points = number[inside], points[inside]
    if len(points) * len(line.free) > MOST_KEPT:
        return Prior(number, points, None, np.zeros(0, bool))
    return Prior(number, points, *_logarithms(forms_of(line), points))


# ---------------------------------------------------------------------- the set
def joint_set(line: Line, counts: Counts, alpha: float, tally: Tally = as_counted) -> JointSet | None:
    """C at level α from all of ``counts``; None without data, or where a domain is too narrow to fit.

    tally : the counts of the line's expressions, from those of the model's.
    """
    forms = forms_of(line)
    free, constant, weights = forms
    everything = tally(counts.successes)[free].astype(float)
    center = likeliest(line, everything)
    chances = constant + weights @ center
    found: list[tuple[int, np.ndarray, np.ndarray, np.ndarray, float]] = []
    try:
        fitted = fits(line, counts, tally)
    except checker.Refused:
        return None
    for j, mark, weight in windows(counts):
        K = everything - (0.0 if mark is None else tally(mark.successes)[free])
        if not K.any():
            continue
        try:
            prior = _prior(line, mark, fitted[j], tally)
        except checker.Refused:
            continue
        chosen, gained = _log_likelihoods(prior, forms, K, center)
        at_center = float(scipy.special.xlogy(K, chances).sum())
        terms_j = gained - at_center + math.log(weight / max(len(prior.numbers), 1))
        found.append((j, K, prior.numbers[chosen], terms_j, at_center))
    found = [window for window in found if np.isfinite(window[3]).any()]
    if not found:
        return None
    shares = _shares([w[3] for w in found], np.array([w[1].sum() for w in found]), alpha)
    shares = _whole_shares(shares, MOST_LOGARITHMS // max(int((everything > 0).sum()), 1))
    whole = sum(int(m.sum()) for m in shares)
    mixed, bound, parts = np.zeros(len(free)), math.log(1.0 / alpha), list[list[object]]()
    for (j, K, numbers, terms_j, at_center), m in zip(found, shares):
        used = np.flatnonzero(m)
        if not len(used):
            continue
        share = m[used] / whole
        mixed += share.sum() * K
        bound -= float(share @ (terms_j[used] + at_center - np.log(share)))
        parts.append([j, [[int(i), int(n)] for i, n in zip(numbers[used], m[used])]])
    seen = np.flatnonzero(mixed > 0.0)
    observed = Observations(constant[seen], np.ascontiguousarray(weights[seen]), mixed[seen])
    found_center = likeliest(line, mixed)
    set_ = JointSet(line, observed, bound, parts, found_center)
    return JointSet(line, observed, bound + set_.slack, parts, found_center)


def windows(counts: Counts) -> list[tuple[int, Mark | None, float]]:
    """(number among the checker's marks, mark, weight) of windows worth computing; any choice is valid."""
    marks: list[tuple[int, Mark | None, float]] = [
        (k + 1, mark, mark.weight)
        for k, mark in enumerate(counts.marks)
        if mark.weight > 0.0 and EARLIEST * counts.total <= mark.total < counts.total
    ]
    early = counts.total > 0 and (not marks or counts.total * EARLIEST < 16)
    return [(0, None, counts.origin_weight), *marks] if early else marks


@cached_fact
def forms_of(line: Line) -> Forms:
    return Forms(line.free, line.constant.copy(), np.ascontiguousarray(line.weights))


def _logarithms(forms: Forms, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(ln f (k, n), 0 where some f ≤ 0; whether all f > 0 (k,)) at points (k, r)."""
    f = forms.at(points)
    inside = np.asarray((f > 0.0).all(axis=1))
    return np.log(np.where(inside[:, None], f, 1.0)), inside


def _log_likelihoods(prior: Prior, forms: Forms, K: np.ndarray, center: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(places of particles, Σ K ln f there), for all particles or those nearest to the centre; −inf outside {f > 0}."""
    places, seen = np.arange(len(prior.points)), np.flatnonzero(K)
    if prior.logarithms is not None:
        return places, np.where(prior.inside, prior.logarithms @ K, -np.inf)
    constant, weights = forms.constant, forms.weights
    most = max(MOST_EVALUATED // max(len(seen), 1), NEAREST * len(center))
    if len(places) > most:
        f = constant[seen] + weights[seen] @ center
        scaled = weights[seen] * np.sqrt(K[seen])[:, None] / f[:, None]
        distance = np.square((prior.points - center) @ scaled.T).sum(axis=1)
        places = np.sort(np.argpartition(distance, most)[:most])
    logarithms, inside = _logarithms(forms, prior.points[places])
    return places, np.where(inside, logarithms @ K, -np.inf)


def _shares(terms: list[np.ndarray], sizes: np.ndarray, alpha: float) -> list[np.ndarray]:
    """The share of each particle in E where ln E = ln 1/α: there ln L_j of window j has fallen by h size_j / max size.

    terms : per window (m_j,) the logarithms of the terms of E at the centre.
    """
    windows = np.array([_log_sum(part) for part in terms])
    fall, level, low, high = sizes / sizes.max(), math.log(1.0 / alpha), 0.0, 1e4
    for _ in range(40):
        h = (low + high) / 2
        low, high = (low, h) if _log_sum(windows + h * fall) > level else (h, high)
    total = _log_sum(windows + low * fall)
    return [np.exp(part + low * drop - total) for part, drop in zip(terms, fall)]


def _log_sum(terms: np.ndarray) -> float:
    """ln Σ e^terms."""
    largest = float(terms.max())
    return largest + math.log(np.exp(terms - largest).sum())


def _whole_shares(shares: list[np.ndarray], most: int) -> list[np.ndarray]:
    """The shares as whole multiples of `SHARE`; 0 for particles that are left out."""
    every = np.concatenate(shares)
    order = np.argsort(-every, kind="stable")
    needed = int(np.searchsorted(np.cumsum(every[order]), (1.0 - NEGLIGIBLE) * every.sum())) + 1
    kept = np.zeros(len(every), dtype=bool)
    kept[order[: max(1, min(needed, most))]] = True
    whole = np.where(kept & (every > 0.0), np.maximum(np.rint(every / SHARE), 1.0), 0.0).astype(np.int64)
    return np.split(whole, np.cumsum([len(part) for part in shares])[:-1])


def likeliest(line: Line, K: np.ndarray) -> np.ndarray:
    """(r,) near the maximiser of Σ K ln f over {f > 0}: any point will do."""
    chart = cached_on(line, "chart", _positive_chart)
    return fit(chart.observations(np.arange(len(K)), K), chart, barrier=INNER_BARRIER * line.tau).z


def _positive_chart(line: Line) -> ParameterChart:
    """The points at which all expressions are positive."""
    return ParameterChart(-line.weights, line.constant, line.start, constant=line.constant, weights=line.weights)
