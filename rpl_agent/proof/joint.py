"""The likelihood part of a proof: priors and balls of windows, a ball around the set, cuts.

Everything is found in floats here and proved by `rpl_agent.checker`, which also says what each number is for.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from rpl_agent import checker

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


class JointProof:
    """The parts of a proof that speak of the likelihood, for one model and its data."""

    def __init__(self, coordinates: checker.Coordinates, data: checker.Data, alpha: Fraction):
        self.coordinates, self.data, self.alpha = coordinates, data, alpha
        self.free = np.array(coordinates.free, dtype=int)
        self.totals = np.array(data.successes, dtype=float)[self.free]
        terms = np.array(coordinates.floats)
        self.affine = AffineExpressions(terms[:, 0], np.ascontiguousarray(terms[:, 1:]))
        self.start, self.tau = np.array(coordinates.start), coordinates.tau

    def window(self) -> tuple[int, checker.Likelihood]:
        """The number of the window that leaves least, and its set."""
        found = []
        for number, weight in enumerate([self.data.origin_weight, *(mark[0] for mark in self.data.marks)]):
            if weight > 0:
                level = checker.Likelihood(self.coordinates, self.data, self.alpha, number)
                counts = np.array(level.K, dtype=float)[self.free]
                center = self.affine.minimise(counts + self.tau, self.start)
                room = float(level.bound) - self.affine.value(center, counts)
                seen = float(counts.sum())
                found.append((room / seen if seen else np.inf, number, level))
        return min(found, key=lambda item: item[0])[1:]

    def ball(self, likelihood: checker.Likelihood) -> tuple[np.ndarray, np.ndarray]:
        """(center, factor) of an ellipsoid around the set {−Σ K ln f ≤ bound}."""
        counts = np.array([float(likelihood.K[f]) for f in self.free])
        bound = float(likelihood.bound)
        center = self.affine.minimise(counts + 1e-6 * self.tau, self.start)
        room = max(bound - self.affine.value(center, counts), 1e-12)
        f = self.affine.constant + self.affine.weights @ center
        phi, used = np.ones(len(f)), counts > 0
        for _ in range(60):
            A = 0.5 * self.affine.curvature(center, np.where(used, counts * phi, 0.0))
            factor = np.linalg.cholesky(np.linalg.inv(A)) * np.sqrt(room) * (1 + 1e-9)
            epsilon = np.linalg.norm(self.affine.weights @ factor, axis=1) / f
            new = 1 / (1 + 2 * epsilon / 3)
            if np.abs(new - phi).max() < 1e-10:
                break
            phi = np.minimum(phi, new)
        return center, factor * (1 + 1e-7)

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
