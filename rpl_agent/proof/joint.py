"""The likelihood part of a proof: a window, a ball around its set, cuts; found in floats, proved by the checker."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from rpl_agent import checker


class JointProof:
    """The parts of a proof that speak of the likelihood, for one model and its data."""

    def __init__(self, coordinates: checker.Coordinates, data: checker.Data, alpha: Fraction):
        self.coordinates, self.data, self.alpha = coordinates, data, alpha
        self.free, terms = np.array(coordinates.free, dtype=int), np.array(coordinates.floats)
        self.constant, self.weights = terms[:, 0], np.ascontiguousarray(terms[:, 1:])

    def window(self) -> tuple[int, checker.Likelihood]:
        """The number of the window that leaves least, and its set."""
        found = []
        for number, weight in enumerate([self.data.origin_weight, *(mark[0] for mark in self.data.marks)]):
            if weight > 0:
                level = checker.Likelihood(self.coordinates, self.data, self.alpha, number)
                counts = np.array(level.K, dtype=float)[self.free]
                seen, room = float(counts.sum()), float(level.bound) - self._value(self._fit(level), counts)
                found.append((room / seen if seen else np.inf, number, level))
        return min(found, key=lambda item: item[0])[1:]

    def _fit(self, level: checker.Likelihood) -> np.ndarray:
        """(r,) the likeliest point: counts are so large that τ does not matter."""
        return np.array(self.coordinates.fit([n << 20 for n in level.K], self.coordinates.start))

    def _value(self, x: np.ndarray, counts: np.ndarray) -> float:
        """−Σ K ln f."""
        used = counts > 0
        return -float(counts[used] @ np.log((self.constant + self.weights @ x)[used]))

    def ball(self, likelihood: checker.Likelihood) -> tuple[np.ndarray, np.ndarray]:
        """(center, factor) of an ellipsoid around the set {−Σ K ln f ≤ bound}."""
        counts, center = np.array(likelihood.K, dtype=float)[self.free], self._fit(likelihood)
        f = self.constant + self.weights @ center
        room = max(float(likelihood.bound) - self._value(center, counts), 1e-12)
        phi = np.ones(len(f))
        for _ in range(60):
            A = 0.5 * (self.weights * (counts * phi / f**2)[:, None]).T @ self.weights
            factor = np.linalg.cholesky(np.linalg.inv(A)) * np.sqrt(room) * (1 + 1e-9)
            epsilon = np.linalg.norm(self.weights @ factor, axis=1) / f
            new = 1 / (1 + 2 * epsilon / 3)
            if np.abs(new - phi).max() < 1e-10:
                break
            phi = np.minimum(phi, new)
        return center, factor * (1 + 1e-7)
