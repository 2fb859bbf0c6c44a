"""`Line`: coordinates in which all expressions are affine, with the estimates and spreads of `checker.Coordinates`.

The numbers are the checker's, bit for bit, because proofs contain none of them: the checker computes them again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent.core.native import core
from rpl_agent.guarantee import checker

#: A point x (r,) and the number of transitions that it was estimated from.
Estimate = tuple[np.ndarray, int]


@dataclass(frozen=True, eq=False)
class Line:
    """f = c_f + w_f·x for every expression that is not constant, and c + w·x ≥ 0 for every row of the domain."""

    free: np.ndarray  # (n,) the expressions that are not constant
    floats: np.ndarray  # (n, r + 1) their (c, w)
    walls: np.ndarray  # (m, r + 1) rows of the domain
    start: np.ndarray  # (r,) a point at which all expressions and rows are positive
    rows: np.ndarray  # (n + m, r + 1) of expressions and domain
    blocks: list[list[int]]  # the coordinates of each block of a model that is learned in blocks; else none

    @classmethod
    def of(
        cls, expressions: np.ndarray, walls: np.ndarray, start: np.ndarray, blocks: list[list[int]] | None = None
    ) -> Line:
        """From (c, w) of all expressions (F, r + 1) and of the domain's rows."""
        free = np.flatnonzero(expressions[:, 1:].any(axis=1))
        floats, walls = np.ascontiguousarray(expressions[free]), np.ascontiguousarray(walls)
        rows = np.ascontiguousarray(np.vstack([floats, walls]))
        return cls(free, floats, walls, start, rows, blocks or [])

    @property
    def dimension(self) -> int:
        return len(self.start)

    @property
    def is_product(self) -> bool:
        """Whether the model is learned in blocks."""
        return bool(self.blocks)

    @property
    def constant(self) -> np.ndarray:
        """(n,) the value of every free expression at x = 0."""
        return self.floats[:, 0]

    @property
    def weights(self) -> np.ndarray:
        """(n, r) the slopes of the free expressions in x."""
        return self.floats[:, 1:]

    @property
    def tau(self) -> float:
        """What is added to every count."""
        return (self.dimension + 1) / (2 * len(self.free))

    @property
    def size(self) -> int:
        """The number of particles."""
        return checker.PARTICLES[min(self.dimension, len(checker.PARTICLES) - 1)]

    def chances(self, x: np.ndarray) -> np.ndarray:
        """(n,) the free expressions at x."""
        found = np.empty(len(self.free))
        core.rows_at(len(self.free), self.dimension, self.floats, x, found)
        return found

    def first_fit(self) -> Estimate:
        """The estimate without data."""
        return self._fit(np.zeros(len(self.free)), self.start), 0

    def next_fit(self, counts: np.ndarray, before: Estimate) -> Estimate:
        """The estimate at a mark, from the counts (F,) of all expressions; only the free ones enter the fit."""
        total = int(counts.sum())
        if total and 4 * total < 5 * before[1]:
            return before
        return self._fit(counts[self.free], before[0]), total

    def _fit(self, counts: np.ndarray, x: np.ndarray) -> np.ndarray:
        x = x.copy()
        if not core.fit_rows(len(self.rows), self.dimension, self.rows, self._weights(counts), None, x):
            raise checker.Refused("an expression is not positive at an estimate")
        return x

    def spread(self, counts: np.ndarray, x: np.ndarray) -> np.ndarray:
        """L (r, r), lower triangular: LL' is the curvature at x of what an estimate minimises; counts (n,)."""
        L = np.empty((self.dimension, self.dimension))
        if not core.spread_rows(len(self.rows), self.dimension, self.rows, self._weights(counts), x, None, L):
            raise checker.Refused("the data before a mark leave a direction open")
        return L

    def _weights(self, counts: np.ndarray) -> np.ndarray:
        """(n + m,) weights of the expressions and of the domain's rows."""
        return np.concatenate([counts + self.tau, np.full(len(self.walls), checker.WALL)])
