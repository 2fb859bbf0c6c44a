"""Interval models (``[low, high] : update``): an uncertain MDP that is given, not learned.

Synchronised intervals multiply, intervals of equal successors add, bound by bound, as in PRISM. The skeleton has one
made-up parameter per distinct interval; it says where the intervals stand and is no parametric MDP to learn (its rows
sum to one only for some of its parameters). Bounds may contain the file's own parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rpl_agent.errors import ModelError, listed
from rpl_agent.formats.prism.explore.probability import Pool
from rpl_agent.model.algebra.ranges import RangeEnclosure, enclosure
from rpl_agent.model.building.validation import RANGE_TOLERANCE
from rpl_agent.model.domain import Domain
from rpl_agent.model.expressions import ExpressionTable


@dataclass(frozen=True)
class IntervalBounds:
    """Bounds of the skeleton's F expressions as polynomials in the file's parameters; data may not narrow them."""

    low: ExpressionTable
    high: ExpressionTable
    low_id: np.ndarray  # (F,)
    high_id: np.ndarray  # (F,)
    domain: Domain
    is_learnable = False

    def at(self, theta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """(lower, upper) bounds (F,) at parameters; without, the hull over their domain, rounded outward."""
        if theta is None and self.domain.parameters:
            box = self.domain.lower, self.domain.upper
            least, most = _outward(enclosure(self.low, *box))[0], _outward(enclosure(self.high, *box))[1]
        else:
            point = np.zeros(0) if theta is None else np.asarray(theta, dtype=float)
            if point.shape != (len(self.domain.parameters),) or not self.domain.contains(point):
                raise ModelError(f"θ must be a point of the domain of {listed(self.domain.parameters)}")
            least, most = self.low.bounds_at(point)[0], self.high.bounds_at(point)[1]
        lower, upper = least[self.low_id], most[self.high_id]
        return np.where(lower > upper, upper, lower), upper


@dataclass(frozen=True)
class FileBounds:
    """Bounds (F,) of the probabilities as a file without parameters gives them; data may narrow them."""

    lower: np.ndarray
    upper: np.ndarray
    domain: Domain = field(default_factory=lambda: Domain.box({}))
    is_learnable = True

    def at(self, theta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """(lower, upper); the file has no parameters."""
        return self.lower, self.upper


Bounds = IntervalBounds | FileBounds


def _outward(found: RangeEnclosure) -> tuple[np.ndarray, np.ndarray]:
    """Bounds past rounding, which may not leave [0, 1] by rounding alone."""
    lower, upper = found.lower - found.slack, found.upper + found.slack
    lower = np.where((lower < 0.0) & (found.lower >= -RANGE_TOLERANCE), 0.0, lower)
    return lower, np.where((upper > 1.0) & (found.upper <= 1.0 + RANGE_TOLERANCE), 1.0, upper)


def skeleton(
    pool: Pool, low: np.ndarray, high: np.ndarray, parameters: Sequence[str], domain: Domain
) -> tuple[ExpressionTable, Domain, np.ndarray, IntervalBounds]:
    """Table and domain of the skeleton, (T,) expression ids, and the bounds, from pool ids of both ends (T,)."""
    pairs, expression = np.unique(np.column_stack([low, high]), axis=0, return_inverse=True)
    low_table, low_id = pool.table(parameters, pairs[:, 0])
    high_table, high_id = pool.table(parameters, pairs[:, 1])
    bounds = IntervalBounds(low_table, high_table, low_id, high_id, domain)
    names = [f"interval{k}" for k in range(len(pairs))]
    numerators = np.hstack([np.zeros((len(pairs), 1), dtype=np.int64), np.eye(len(pairs), dtype=np.int64)])
    exponents = np.vstack([np.zeros((1, len(pairs)), dtype=np.int32), np.eye(len(pairs), dtype=np.int32)])
    table = ExpressionTable.from_integers(names, exponents, numerators, [1] * (len(pairs) + 1))
    made = Domain.box({name: (0.0, 1.0) for name in names})
    return table, made, expression.reshape(-1).astype(np.int32), bounds
