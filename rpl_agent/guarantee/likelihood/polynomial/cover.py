"""A cover of the level set C by boxes, where the likelihood is not convex.

Expressions such as p q + (1 − p)(1 − q) are not products of affine terms: −ln f is not convex, and C may have several
parts. Boxes of parameters that cannot meet C are dropped, the others are split until they are small compared with C.

On a box θ = c + r y, |y_j| ≤ 1, every form is h = p + s·y + y'My up to ε (`algebra.taylor`). With e = h/p − 1 ≤ ē,
b = s/p, |b·y| ≤ β, and q the largest |y'My + rest|/p, e² ≥ (1 − κ)(b·y)² − (1 − κ)/κ q² for κ = min(1, q/β),
so that −Σ K ln h ≥ k + l·y + y'Hy (docs/guarantees.md, "Polynomial models") with

    k = −Σ K (ln p + ε/p + ½ φ (1 − κ)/κ q²),   l = −Σ K b,   H = Σ K (½ φ (1 − κ) b b' − M/p).

The error of that bound is cubic in the size of the boxes.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.model import cached_on
from rpl_agent.core.model.algebra.ranges import taylor_shifts
from rpl_agent.core.native import core, read_only
from rpl_agent.guarantee.likelihood.chart import ParameterChart
from rpl_agent.guarantee.likelihood.level_set import LevelSet

#: Boxes are split down to this half-width, in standard deviations of the likelihood and as a share of the domain, by d.
FINEST = {1: (0.05, 0.005), 2: (0.2, 0.02), 3: (0.5, 0.04)}
COARSE = (1.0, 0.08)
#: Boxes are cut into this many parts by d, and into two else: in one dimension rounds cost more than boxes.
PARTS = {1: 16}
#: Boxes that are looked at, at most.
MOST_BOXES = 6_000
#: More than the rounding of a few sums, relative to their summands.
ROUNDING = 1e-15


class _Boxes(NamedTuple):
    """Boxes center ± half (k, d) that together contain C; in each, (y − ball)'shape (y − ball) ≤ radius2 (k,) on C.

    An infinite radius2 says nothing. reach (k, m): upper bounds of a·θ over the part of C in each box.
    """

    center: np.ndarray
    half: np.ndarray
    ball: np.ndarray
    shape: np.ndarray
    radius2: np.ndarray
    reach: np.ndarray


class _Cover:
    """A level set, as C reads it."""

    def __init__(self, target: LevelSet, directions: np.ndarray) -> None:
        chart, d, n = target.chart, target.chart.dimension, len(target.expressions)
        table, self.directions = chart.forms, np.ascontiguousarray(directions, dtype=float)
        shifts, chosen = taylor_shifts(table), table.coefficients[target.expressions]
        highest, (windows, terms) = int(table.monomials.max(initial=0)), (len(target.offsets), len(shifts.alpha))
        self.set = core.LikelihoodCover(
            d=d,
            n=n,
            windows=windows,
            monomials=table.num_monomials,
            terms=terms,
            highest=highest,
            rows=len(chart.b),
            level=target.level + target.slack,
            entry_ptr=read_only(chosen.indptr, np.int64),
            monomial=read_only(chosen.indices, np.int64),
            coefficient=read_only(chosen.data),
            exponents=read_only(table.monomials, np.int64),
            term=read_only(shifts.term, np.int64),
            pair_ptr=np.searchsorted(shifts.monomial, np.arange(table.num_monomials + 1)).astype(np.int64),
            binomial=shifts.binomial,
            rest=read_only(shifts.rest, np.int64),
            alpha=read_only(shifts.alpha, np.int64),
            counts=read_only(target.observed.counts),
            offsets=read_only(target.offsets),
            A=chart.A,
            b=chart.b,
        )
        triangle = d * (d + 1) // 2
        numbers = 3 * d * (highest + 1) + len(shifts.term) + terms + windows + n * (5 + d + triangle)
        self._memory = np.empty(numbers + triangle + d + 2 * d * d)

    def kept(self, center: np.ndarray, half: np.ndarray) -> _Boxes:
        """Of boxes (k, d) those that may meet C."""
        (k, d), m = center.shape, len(self.directions)
        boxes = _Boxes(center, half, np.empty((k, d)), np.empty((k, d, d)), np.empty(k), np.empty((k, m)))
        keep = np.empty(k, dtype=bool)
        core.cover_boxes(self.set, k, center, half, m, self.directions, keep, *boxes[2:], self._memory)
        return _Boxes(*(array[keep] for array in boxes))


def cover(target: LevelSet, directions: np.ndarray) -> np.ndarray:
    """(m,) upper bounds of a·θ over C for directions a (m, d); −inf where C is empty.

    Only boxes that reach furthest in some direction are split.
    """
    chart, look, d = target.chart, _Cover(target, directions), target.chart.dimension
    low, high = -chart.b[-d:], chart.b[-2 * d : -d]  # its last rows are θ ≤ upper and −θ ≤ −lower
    center, half = (low + high)[None] / 2, (high - low)[None] / 2
    half = half + ROUNDING * (np.abs(center) + half)
    deviations, share = FINEST.get(d, COARSE)
    finest = np.minimum(deviations / np.sqrt(np.diag(target.center.precision)), share * (high - low))
    room = MOST_BOXES + PARTS.get(d, 2) * len(directions) + 1
    centers, halves, reach = np.empty((room, d)), np.empty((room, d)), np.empty((len(directions), room))
    found = live = looked_at = 0
    while len(center):
        looked_at += len(center)
        new = look.kept(center, half)
        added = slice(found, found + len(new.half))
        centers[added], halves[added], reach[:, added] = new.center, new.half, new.reach.T
        found, live = added.stop, live + len(new.half)
        if not live:
            return np.full(len(directions), -np.inf)
        furthest = np.unique(reach[:, :found].argmax(axis=1))
        ratio = halves[furthest] / finest
        wide = (ratio.max(axis=1) > 1.0) & (looked_at < MOST_BOXES)
        split = furthest[wide]
        center, half = _parts(centers[split], halves[split], ratio[wide].argmax(axis=1))
        reach[:, split], live = -np.inf, live - len(split)
    if looked_at >= MOST_BOXES:
        cached_on(chart, "warned of boxes", _warn)
    return reach[:, :found].max(axis=1, initial=-np.inf)


def _warn(chart: ParameterChart) -> bool:
    """Warn once per model."""
    forms = chart.forms
    worst = str(forms.polynomial(int(np.diff(forms.indptr).argmax())))
    warnings.warn(
        f"slow and wider than necessary: {worst if len(worst) <= 80 else worst[:79] + '…'} is not a product of affine "
        f"terms, so the likelihood in {chart.dimension} parameters is covered by boxes. Split such a step in two, "
        "one draw each, or give the parameters narrower bounds",
        RPLWarning,
        stacklevel=2,
    )
    return True


def around(target: LevelSet, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray, float] | None:
    """(centre, H, r²) of an ellipsoid that contains C ∩ [low, high], (d,) each; None if the model does not close."""
    center, half = (low + high) / 2, np.maximum(high - low, 1e-300) / 2
    half += ROUNDING * (np.abs(center) + half)
    found = _Cover(target, np.zeros((0, len(low)))).kept(center[None], half[None])
    if not len(found.half) or not np.isfinite(found.radius2[0]):
        return None
    ball, shape = found.ball[0], found.shape[0]
    moved = float((ROUNDING * (np.abs(center) + half * np.abs(ball)) / half).sum())  # the centre, by its rounding
    grown = np.abs(shape).sum() * moved * (2.0 * (1.0 + np.abs(ball).sum()) + moved)
    return center + half * ball, shape / np.outer(half, half), float(found.radius2[0] + grown)


def _parts(center: np.ndarray, half: np.ndarray, axis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equal parts of boxes (k, d), each cut across an axis (k,)."""
    number = PARTS.get(half.shape[1], 2)
    step, smaller, at = np.zeros_like(half), half.copy(), (np.arange(len(half)), axis)
    step[at] = half[at] / number
    # slightly wider, so that the parts together cover the whole
    smaller[at] = step[at] + 4.0 * ROUNDING * (np.abs(center[at]) + half[at])
    shifts = np.arange(1 - number, number, 2)
    return np.concatenate([center + k * step for k in shifts]), np.concatenate([smaller] * number)
