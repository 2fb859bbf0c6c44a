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
import scipy

from rpl_agent.errors import RPLWarning
from rpl_agent.likelihood.chart import ParameterChart
from rpl_agent.likelihood.level_set import LevelSet
from rpl_agent.model import cached_on
from rpl_agent.model.algebra.ranges import taylor_terms

#: Boxes are split down to this half-width, in standard deviations of the likelihood and as a share of the domain, by d.
FINEST = {1: (0.05, 0.005), 2: (0.2, 0.02), 3: (0.5, 0.04)}
COARSE = (1.0, 0.08)
#: Boxes are cut into this many parts by d, otherwise into two: in one dimension rounds cost more than boxes.
PARTS = {1: 16}
#: The most boxes to examine, in all and at a time.
MOST_BOXES, BATCH = 6_000, 256
#: A model counts as convex if its least curvature exceeds this share of its size: its inverse is accurate to 1e-10.
FLATTEST = 1e-4
#: More than the rounding error of a few sums, relative to their summands.
ROUNDING = 1e-15


class _Forms(NamedTuple):
    """h = p + s·y + y'My up to ε on k boxes, n forms: p, ε (k, n), s (k, n, d), M (k, n, d, d)."""

    p: np.ndarray
    s: np.ndarray
    M: np.ndarray
    error: np.ndarray


class _Models(NamedTuple):
    """constant + linear·y + y'Hy ≤ −Σ K ln h on k boxes, at most ``bound`` where it meets C; crude: another bound."""

    constant: np.ndarray
    linear: np.ndarray
    H: np.ndarray
    bound: np.ndarray
    crude: np.ndarray


class _Boxes(NamedTuple):
    """Boxes center ± half (k, d) that together cover C; in each, (y − ball)'shape (y − ball) ≤ radius2 (k,) holds on C.

    An infinite radius2 is no constraint.
    """

    center: np.ndarray
    half: np.ndarray
    ball: np.ndarray
    shape: np.ndarray
    radius2: np.ndarray

    def chosen(self, which: np.ndarray) -> _Boxes:
        return _Boxes(*(array[which] for array in self))

    def support(self, directions: np.ndarray) -> np.ndarray:
        """(k, m) upper bounds on a·θ over the part of C in each box, for directions a (m, d)."""
        scaled = directions * self.half[:, None, :]
        squares = np.einsum("kmi,kij,kmj->km", scaled, np.linalg.inv(self.shape), scaled)
        with np.errstate(invalid="ignore"):
            reach = np.sqrt(np.maximum(self.radius2[:, None] * squares, 0.0)) * (1.0 + 1e-6)
        within = np.einsum("kmi,ki->km", scaled, self.ball) + reach
        corner = np.abs(scaled).sum(axis=2)
        size = np.abs(directions) @ (np.abs(self.center) + self.half).T
        return (directions @ self.center.T + 1e-12 * size).T + np.where(within < corner, within, corner)


def cover(target: LevelSet, directions: np.ndarray) -> np.ndarray:
    """(m,) upper bounds on a·θ over C for directions a (m, d); −inf where C is empty.

    Only the boxes that reach furthest in some direction are split.
    """
    chart = target.chart
    low, high = _domain_box(chart.A, chart.b)
    center, half = (low + high)[None] / 2, (high - low)[None] / 2
    half = half + ROUNDING * (np.abs(center) + half)
    deviations, share = FINEST.get(chart.dimension, COARSE)
    finest = np.minimum(deviations / np.sqrt(np.diag(target.center.precision)), share * (high - low))
    boxes, reach, looked_at = _kept(target, center[:0], half[:0]), np.zeros((0, len(directions))), 0
    while len(center):
        looked_at += len(center)
        found = [_kept(target, center[k : k + BATCH], half[k : k + BATCH]) for k in range(0, len(center), BATCH)]
        boxes = _Boxes(*(np.concatenate(arrays) for arrays in zip(boxes, *found)))
        reach = np.concatenate([reach, *(part.support(directions) for part in found)])
        if not len(reach):
            return np.full(len(directions), -np.inf)
        furthest = np.zeros(len(reach), dtype=bool)
        furthest[reach.argmax(axis=0)] = True
        ratio = boxes.half / finest
        split = furthest & (ratio.max(axis=1) > 1.0) & (looked_at < MOST_BOXES)
        center, half = _parts(boxes.center[split], boxes.half[split], ratio[split].argmax(axis=1))
        boxes, reach = boxes.chosen(~split), reach[~split]
        kept = reach.max(axis=0, initial=-np.inf)
    if looked_at >= MOST_BOXES:
        cached_on(chart, "warned of boxes", _warn)
    return kept


def _warn(chart: ParameterChart) -> bool:
    """Warn once per model."""
    forms = chart.forms
    worst = str(forms.polynomial(int(np.diff(forms.indptr).argmax())))
    warnings.warn(
        f"slow and wider than necessary: {worst if len(worst) <= 80 else worst[:79] + '…'} is not a product of affine "
        f"terms, so the likelihood in {chart.dimension} parameters is covered by boxes. Split such a step in two, "
        "one draw each, or give the parameters narrower bounds", RPLWarning, stacklevel=2,
    )  # fmt: skip
    return True


def around(target: LevelSet, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray, float] | None:
    """(centre, H, r²) of an ellipsoid containing C ∩ [low, high], (d,) each; None if the model there is not convex."""
    center, half = (low + high) / 2, np.maximum(high - low, 1e-300) / 2
    half += ROUNDING * (np.abs(center) + half)
    found = _kept(target, center[None], half[None])
    if not len(found.half) or not np.isfinite(found.radius2[0]):
        return None
    ball, shape = found.ball[0], found.shape[0]
    moved = float((ROUNDING * (np.abs(center) + half * np.abs(ball)) / half).sum())  # shift of the centre by rounding
    grown = np.abs(shape).sum() * moved * (2.0 * (1.0 + np.abs(ball).sum()) + moved)
    return center + half * ball, shape / np.outer(half, half), float(found.radius2[0] + grown)


def _domain_box(A: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    d = A.shape[1]  # the last rows of a chart of parameters are θ ≤ upper and −θ ≤ −lower
    return -b[-d:], b[-2 * d : -d].copy()


def _parts(center: np.ndarray, half: np.ndarray, axis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equal parts of boxes (k, d), each cut across an axis (k,)."""
    number = PARTS.get(half.shape[1], 2)
    step, smaller, at = np.zeros_like(half), half.copy(), (np.arange(len(half)), axis)
    step[at] = half[at] / number
    # slightly wider, so that the parts together cover the whole
    smaller[at] = step[at] + 4.0 * ROUNDING * (np.abs(center[at]) + half[at])
    shifts = np.arange(1 - number, number, 2)
    return np.concatenate([center + k * step for k in shifts]), np.concatenate([smaller] * number)


def _kept(target: LevelSet, center: np.ndarray, half: np.ndarray) -> _Boxes:
    """The boxes (k, d) that may meet C."""
    chart = target.chart
    outside = (center @ chart.A.T - half @ np.abs(chart.A).T > chart.b + 1e-12 * (1.0 + np.abs(chart.b))).any(axis=1)
    center, half = center[~outside], half[~outside]
    models = _models(target, _forms(target, center, half))
    d = chart.dimension
    slope = np.abs(models.linear).sum(axis=1)
    diagonal = np.einsum("kii->ki", models.H)
    mixed = np.abs(models.H).sum(axis=(1, 2)) - np.abs(diagonal).sum(axis=1)
    least = models.constant - slope + np.minimum(diagonal, 0.0).sum(axis=1) - mixed
    eigenvalues = np.linalg.eigvalsh(models.H) if len(center) else np.zeros((0, d))
    size = np.abs(models.H).sum(axis=(1, 2))
    bowl = eigenvalues[:, 0] > FLATTEST * size
    shape = np.where(bowl[:, None, None], models.H, np.eye(d))
    ball = -0.5 * np.linalg.solve(shape, models.linear[:, :, None])[:, :, 0] if len(center) else models.linear
    # for any y0, l·y + y'Hy = (y − y0)'H(y − y0) − y0'Hy0 + (l + 2Hy0)·y; here the last term is rounding
    turned = np.einsum("kij,kj->ki", shape, ball)
    missed = np.abs(models.linear + 2.0 * turned).sum(axis=1)
    rise, room = (ball * turned).sum(axis=1), models.bound - models.constant
    radius2 = np.where(
        bowl, room + rise + missed + 1e-12 * (np.abs(room) + size * (1.0 + np.abs(ball).sum(axis=1)) ** 2), np.inf
    )
    keep = (least <= models.bound) & (models.crude <= models.bound) & ~(radius2 < 0.0)
    return _Boxes(center, half, ball, shape, radius2).chosen(keep)


def _forms(target: LevelSet, center: np.ndarray, half: np.ndarray) -> _Forms:
    """The observed forms on boxes (k, d)."""
    assert target.chart.factors is not None
    table, d = target.chart.factors.forms, center.shape[1]
    alpha, terms = taylor_terms(table, target.expressions, center)
    terms = terms * np.prod(half[:, None, :] ** alpha, axis=2)[:, None, :]
    degree = alpha.sum(axis=1)
    s, M = np.zeros((*terms.shape[:2], d)), np.zeros((*terms.shape[:2], d, d))
    for a in np.flatnonzero(degree == 1):
        s[:, :, int(alpha[a].argmax())] = terms[:, :, a]
    for a in np.flatnonzero(degree == 2):
        i, j = np.repeat(np.arange(d), alpha[a])
        M[:, :, i, j] += terms[:, :, a] / 2
        M[:, :, j, i] += terms[:, :, a] / 2
    reach = np.prod((np.abs(center) + half)[:, None, :] ** table.monomials, axis=2)
    size = reach @ abs(table.coefficients[target.expressions]).T
    error = np.abs(terms[:, :, degree > 2]).sum(axis=2) + 1e-14 * (1 + len(degree)) * np.asarray(size)
    return _Forms(terms[:, :, 0], s, M, error)


def _models(target: LevelSet, forms: _Forms) -> _Models:
    """Second-order lower bounds on the mixture's −Σ K ln h."""
    p, s, M, error = forms
    beta, bend = np.abs(s).sum(axis=2), np.abs(M).sum(axis=(2, 3)) + error
    most = p + beta + bend
    possible = most > 0.0
    good = p > 0.02 * most  # elsewhere the logarithm is replaced by its largest value
    q = np.where(good, p, 1.0)
    log_most, log_p = np.log(np.where(possible, most, 1.0)), np.log(q)
    at_center = np.where(good, log_p, log_most)
    counts = target.observed.counts
    shares = scipy.special.softmax(target.offsets - at_center @ counts.T, axis=1)
    entropy = scipy.special.entr(shares).sum(axis=1)
    K = shares @ counts
    bound = target.level + target.slack - shares @ target.offsets - entropy
    b, bent, tail = s / q[:, :, None], M / q[:, :, None, None], error / q
    beta, bend = beta / q, bend / q
    top = np.where(good, most / q - 1.0, 1.0)
    phi = np.where(good, _phi(top), 0.0)
    kappa = np.minimum(1.0, bend / np.maximum(beta, 1e-300))
    loss = tail + 0.5 * phi * (1.0 - kappa) * bend * beta  # q²/κ = q β
    weight = np.where(good, K, 0.0)
    H = np.einsum("kn,kni,knj->kij", 0.5 * weight * phi * (1.0 - kappa), b, b) - np.einsum("kn,knij->kij", weight, bent)
    linear = -np.einsum("kn,kni->ki", weight, b)
    rounding = (
        64.0
        * np.finfo(float).eps
        * (16.0 + p.shape[1])
        * (K * (1.0 + np.abs(at_center) + np.where(good, top, 0.0))).sum(axis=1)
    )
    constant = -(K * at_center).sum(axis=1) - (weight * loss).sum(axis=1) - rounding
    impossible = ((K > 0.0) & ~possible).any(axis=1)
    crude = np.where(impossible, np.inf, -(K * log_most).sum(axis=1) - rounding)
    return _Models(constant, linear, H, bound, crude)


def _phi(e: np.ndarray) -> np.ndarray:
    """2 (e − ln(1 + e)) / e², rounded down slightly."""
    small = np.abs(e) < 1e-3
    safe = np.where(small, 1.0, e)
    return np.where(small, 1.0 - 2.0 / 3.0 * e, 2.0 * (safe - np.log1p(safe)) / safe**2) * (1.0 - 1e-9)
