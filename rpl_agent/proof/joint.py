"""The likelihood part of a proof: priors and balls of windows, a ball around the set, cuts.

Everything is found in floats here and proved by `rpl_agent.checker`, which also says what each number is for.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from rpl_agent import checker
from rpl_agent.evidence.counts import Counts
from rpl_agent.model.pmdp import ParametricMDP

#: windows that start after this share of the data, or count for less than this in the mixture, are left out
LATEST, LEAST_SHARE = 0.9, 1e-3
#: mixing weights are multiples of this
GRID = 2**20
#: how far a window's ball may reach towards the zeros of expressions
REACH = 0.9
STEPS = 80


@dataclass(frozen=True)
class AffineExpressions:
    """f = constant + weights·x of the expressions that are not constant, counts (n,) beside them."""

    constant: np.ndarray
    weights: np.ndarray

    def minimise(
        self, counts: np.ndarray, start: np.ndarray, precision: np.ndarray | None = None,
        mean: np.ndarray | None = None, slope: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        """(r,) the minimiser of −Σ K ln f + ½ (x − mean)' precision (x − mean) − slope·x, by damped Newton steps."""
        x, r = start.copy(), len(start)
        P, mean = (np.zeros((r, r)), start) if precision is None or mean is None else (precision, mean)
        pull = np.zeros(r) if slope is None else slope
        for _ in range(STEPS):
            f = self.constant + self.weights @ x
            gradient = -self.weights.T @ (counts / f) + P @ (x - mean) - pull
            step = np.linalg.solve(self.curvature(x, counts) + P, -gradient)
            fall = float(-gradient @ step)
            change = self.weights @ step / f
            size = min(1.0, 0.95 / max(float(-change.min()), 1e-300))
            while size > 1e-9:  # until the function falls by a part of what its slope promises
                move = x + size * step - mean
                now = -float(counts @ np.log1p(size * change)) - size * float(pull @ step)
                now += 0.5 * float(move @ P @ move - (x - mean) @ P @ (x - mean))
                if now <= -0.1 * size * fall or fall < 1e-9:
                    break
                size *= 0.5
            x = x + size * step
            if fall < 1e-26:
                break
        return x

    def curvature(self, x: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """(r, r) Σ K ∇f∇f'/f²."""
        f = self.constant + self.weights @ x
        return (self.weights * (counts / f**2)[:, None]).T @ self.weights

    def value(self, x: np.ndarray, counts: np.ndarray) -> float:
        """−Σ K ln f, infinite where some f ≤ 0."""
        f = self.constant + self.weights @ x
        used = counts > 0
        return -float(counts[used] @ np.log(f[used])) if (f > 0).all() else np.inf

    def room(self, x: np.ndarray, factor: np.ndarray) -> float:
        """The largest |s_f| / f of an ellipsoid x + factor·Ball."""
        f = self.constant + self.weights @ x
        return float((np.linalg.norm(self.weights @ factor, axis=1) / f).max())


class JointProof:
    """The parts of a proof that speak of the likelihood, for one model and its data."""

    def __init__(self, pmdp: ParametricMDP, counts: Counts, model: checker.Model, data: checker.Data, alpha: Fraction):
        self.coordinates = checker.Coordinates(model)
        self.model, self.data, self.alpha, self.counts = model, data, alpha, counts
        self.free = np.array(self.coordinates.free, dtype=int)
        terms = np.array([self.coordinates.terms[f] for f in self.free], dtype=object) / self.coordinates.den
        constant, weights = terms[:, 0].astype(float), terms[:, 1:].astype(float)
        if not np.allclose(weights, np.asarray(pmdp.table.reduction.weights)[self.free], rtol=1e-12, atol=0.0):
            raise checker.Refused("the coordinates of the model and of the proof differ")
        self.affine = AffineExpressions(constant, np.ascontiguousarray(weights))
        theta = pmdp.domain.center()
        self.start = np.asarray(pmdp.table.reduction.coordinates(theta))[0]
        self.tau = (weights.shape[1] + 1) / (2 * len(self.free))

    def windows(self) -> dict[str, Any]:
        """Windows with their mixing weights, largest shares first in the mixture."""
        total = np.asarray(self.counts.successes)[self.free].astype(float)
        marks: list[tuple[int | None, np.ndarray]] = [(None, np.zeros(len(self.free)))]
        marks += [
            (k, np.asarray(m.successes)[self.free].astype(float))
            for k, m in enumerate(mark for mark in self.counts.marks if mark.weight > 0.0)
            if m.total <= LATEST * self.counts.total
        ]
        marks = marks[:1] if len(marks) == 1 else marks[1:]
        center, candidates = self.affine.minimise(total + self.tau, self.start), []
        for mark, before in marks:
            window = self._window(mark, before, total - before)
            try:
                bound = self.likelihood([window | {"mixing": 1}]).bound
            except checker.Refused:
                continue
            candidates.append((window, float(bound) - self.affine.value(center, total - before)))
        if not candidates:
            raise checker.Refused("no window of the data has a prior")
        slack = np.array([room for _, room in candidates])  # the smaller, the more a window excludes at the centre
        shares = np.exp(-(slack - slack.min()))
        shares = np.where(shares / shares.sum() >= LEAST_SHARE, shares / shares.sum(), 0.0)
        whole = np.floor(GRID * shares / shares.sum()).astype(int)
        whole[int(np.argmax(whole))] += GRID - whole.sum()
        kept = [window | {"mixing": int(n) / GRID} for (window, _), n in zip(candidates, whole) if n > 0]
        return {"windows": kept, "cuts": []}

    def _window(self, mark: int | None, before: np.ndarray, counts: np.ndarray) -> dict[str, Any]:
        prior = self.affine.minimise(before + self.tau, self.start)
        precision = self.affine.curvature(prior, before + self.tau) / float(checker.KAPPA)
        middle = self.affine.minimise(counts, prior, precision, prior)
        root = np.linalg.cholesky(np.linalg.inv(self.affine.curvature(middle, counts) + precision))
        factor = np.sqrt(len(prior) + 2.0) * root
        factor *= min(1.0, REACH / self.affine.room(middle, factor))
        return {"mark": mark, "prior": prior.tolist(), "center": middle.tolist(), "factor": factor.tolist()}

    def likelihood(self, windows: list[dict[str, Any]]) -> checker.Likelihood:
        return checker.Likelihood(self.coordinates, self.data, self.alpha, windows)

    def ball(self, likelihood: checker.Likelihood) -> tuple[np.ndarray, np.ndarray]:
        """(center, factor) of an ellipsoid around the set {−Σ K ln f ≤ bound}."""
        counts = np.array([float(likelihood.K[f]) for f in self.free])
        bound, r = float(likelihood.bound), self.affine.weights.shape[1]
        center = self.affine.minimise(counts + 1e-6 * self.tau, self.start)
        if r == 1:
            ends = [self._end(counts, bound, center, side) for side in (-1.0, 1.0)]
            middle = 0.5 * (ends[0] + ends[1])
            half = max(ends[1] - middle, middle - ends[0])
            return np.array([middle]), np.array([[half * (1 + 1e-12) + 1e-15]])
        room = max(bound - self.affine.value(center, counts), 1e-12)
        f = self.affine.constant + self.affine.weights @ center
        phi, used = np.ones(len(f)), counts > 0
        for _ in range(60):
            A = 0.5 * self.affine.curvature(center, np.where(used, counts * phi, 0.0))
            factor = np.linalg.cholesky(np.linalg.inv(A)) * np.sqrt(room) * (1 + 1e-9)
            epsilon = np.linalg.norm(self.affine.weights @ factor, axis=1) / f
            new = 2 * (epsilon - np.log1p(epsilon)) / np.maximum(epsilon, 1e-9) ** 2
            new = np.where(epsilon < 1e-4, 1 - 2 * epsilon / 3, new)
            if np.abs(new - phi).max() < 1e-10:
                break
            phi = np.minimum(phi, new)
        return center, factor * (1 + 1e-7)

    def _end(self, counts: np.ndarray, bound: float, center: np.ndarray, side: float) -> float:
        """The end of the set in its only coordinate, by bisection."""
        step = 1.0 / np.sqrt(max(self.affine.curvature(center, counts + self.tau)[0, 0], 1e-300))
        inside, outside = 0.0, step
        while self.affine.value(center + side * outside, counts) <= bound:
            inside, outside = outside, 2 * outside
            if outside > 1e3:
                break
        for _ in range(80):
            middle = 0.5 * (inside + outside)
            good = self.affine.value(center + side * middle, counts) <= bound
            inside, outside = (middle, outside) if good else (inside, middle)
        return float(center[0] + side * outside)

    def extreme(self, likelihood: checker.Likelihood, direction: np.ndarray) -> np.ndarray | None:
        """(r,) the point of the set that is farthest in a direction, just outside; None where it was not found."""
        counts = np.array([float(likelihood.K[f]) for f in self.free]) + 1e-6 * self.tau
        bound, x = float(likelihood.bound), self.affine.minimise(counts, self.start)
        if self.affine.value(x, counts) > bound or not np.any(direction):
            return None
        low, high = 0.0, 1.0
        scale = np.sqrt(direction @ np.linalg.solve(self.affine.curvature(x, counts), direction))
        unit = direction / scale
        for _ in range(60):  # the pull at which the minimiser reaches the boundary
            if self.affine.value(self.affine.minimise(counts, x, slope=high * unit), counts) > bound:
                break
            low, high = high, 2 * high
        for _ in range(50):
            middle = 0.5 * (low + high)
            point = self.affine.minimise(counts, x, slope=middle * unit)
            low, high = (middle, high) if self.affine.value(point, counts) <= bound else (low, middle)
        return point
