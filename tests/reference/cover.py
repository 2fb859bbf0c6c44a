"""Slow twin of `cover_boxes` in C: the quadratic models of a likelihood on boxes, by numpy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from rpl_agent.core.model.algebra.ranges import taylor_shifts
from rpl_agent.core.model.expressions import ExpressionTable
from rpl_agent.guarantee.likelihood.level_set import LevelSet

FLATTEST = 1e-4


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


def kept(target: LevelSet, center: np.ndarray, half: np.ndarray) -> _Boxes:
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


def taylor_terms(table: ExpressionTable, chosen: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(exponents α (A, d), f_α (k, n, A)) of n chosen expressions around each of the centers (k, d), without bounds."""
    shifts = taylor_shifts(table)
    matrix = np.zeros((len(centers), table.num_monomials, len(shifts.alpha)))
    powers = np.prod(centers[:, None, :] ** shifts.rest, axis=2)
    matrix[:, shifts.monomial, shifts.term] = shifts.binomial * powers
    return shifts.alpha, np.asarray(table.coefficients[chosen].todense()) @ matrix
