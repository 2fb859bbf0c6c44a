"""A product of independent blocks of coordinates, each with its own small set: the region of an uncertain MDP.

Thousands of parameters, few per block. A support query decomposes into one per block that its direction touches, so
no vertex graph or linear program ever sees more than one block. `Hull` stands for a block that is too large for a
polytope: bounds on its expressions, and a box.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy

from rpl_agent.core.errors import ModelError
from rpl_agent.core.native import UNIT_ROUNDOFF, core
from rpl_agent.core.regions.base import (
    CONTAINS_TOLERANCE,
    Region,
    box_minimum,
    checked_box,
    checked_directions,
    checked_points,
)


class Hull(Region):
    """{x in a box : lower_f <= constant_f + weights_f.x <= upper_f}, with exact answers in the directions ±f only.

    A query in the direction of some f, or its opposite, is answered by the bound on f; any other by the box.

    constant : (n,)
    weights : (n, r)
    lower, upper : (n,)
    box : (lower (r,), upper (r,))
    """

    def __init__(
        self,
        constant: np.ndarray,
        weights: np.ndarray,
        lower: np.ndarray,
        upper: np.ndarray,
        box: tuple[np.ndarray, np.ndarray],
    ) -> None:
        self._constant, self._weights, self._lower, self._upper = constant, weights, lower, upper
        self._box = checked_box(*box)
        slack = 2 * UNIT_ROUNDOFF * (1.0 + np.abs(constant))
        self._known: dict[bytes, float] = {}
        for w, low, high in zip(weights, lower - constant - slack, constant - upper - slack):
            for direction, bound in ((w, low), (-w, high)):
                key = (direction + 0.0).tobytes()  # + 0.0 turns -0.0 into 0.0
                self._known[key] = max(bound, self._known.get(key, -np.inf))

    @property
    def dimension(self) -> int:
        return len(self._box[0])

    @property
    def is_empty(self) -> bool:
        return bool((self._lower > self._upper).any() or (self._box[0] > self._box[1]).any())

    def minimize(self, directions: np.ndarray) -> np.ndarray:
        directions = checked_directions(directions, self.dimension) + 0.0
        if self.is_empty:
            return np.full(len(directions), np.inf)
        known = [self._known.get(direction.tobytes(), -np.inf) for direction in directions]
        return np.maximum(box_minimum(directions, *self._box), known)

    def contains(self, points: np.ndarray) -> np.ndarray:
        points = checked_points(points, self.dimension)
        values = self._constant + points @ self._weights.T
        inside = (values >= self._lower - CONTAINS_TOLERANCE) & (values <= self._upper + CONTAINS_TOLERANCE)
        return np.asarray(inside.all(axis=1))

    def box(self) -> tuple[np.ndarray, np.ndarray]:
        return self._box[0].copy(), self._box[1].copy()


class Product(Region):
    """Blocks of coordinates, block k being ``block_ptr[k]:block_ptr[k + 1]``.

    An *interval block* is {x : lower <= x <= upper, rest_lower <= 1 - sum x <= rest_upper}: all but the last of the
    probabilities of an interval row. Any other block is a region over its coordinates.

    block_ptr : (B+1,) int array
    lower, upper : (r,) block after block
    rest_lower, rest_upper : (B,) bounds on the probability left for the last successor
    regions : mapping from block to Region
        Blocks that are not interval blocks; ``lower`` and ``upper`` are outer boxes there.
    order : (r,) int array, optional
        The coordinates in the order of the blocks; by default blocks are ranges of coordinates.
    """

    def __init__(
        self,
        block_ptr: np.ndarray,
        lower: np.ndarray,
        upper: np.ndarray,
        rest_lower: np.ndarray,
        rest_upper: np.ndarray,
        regions: Mapping[int, Region] | None = None,
        order: np.ndarray | None = None,
    ) -> None:
        self.block_ptr = np.ascontiguousarray(block_ptr, dtype=np.int64)
        self.lower, self.upper = checked_box(lower, upper)
        self.rest_lower, self.rest_upper = checked_box(rest_lower, rest_upper)
        self.regions = dict(regions or {})
        blocks = len(self.block_ptr) - 1
        if self.block_ptr[0] != 0 or self.block_ptr[-1] != len(self.lower) or len(self.rest_lower) != blocks:
            raise ModelError("the blocks of a product do not fit its coordinates")
        for k, region in self.regions.items():
            size = self.block_ptr[k + 1] - self.block_ptr[k]
            if region.dimension != size:
                raise ModelError(f"block {k} of a product has {size} coordinates, its region {region.dimension}")
        self._closed = np.ones(blocks, bool)
        self._closed[list(self.regions)] = False
        self._block = np.repeat(np.arange(blocks), np.diff(self.block_ptr))
        self.order = np.arange(self.dimension) if order is None else np.asarray(order, dtype=np.int64)
        if not np.array_equal(np.sort(self.order), np.arange(self.dimension)):
            raise ModelError("the order of a product's coordinates is not a permutation")
        self.block_of = np.empty(self.dimension, dtype=np.int64)
        self.block_of[self.order] = self._block
        self._blocks = core.IntervalBlocks(
            block_of=self._block,
            block_ptr=self.block_ptr,
            closed=self._closed,
            lower=self.lower,
            upper=self.upper,
            rest_lower=self.rest_lower,
            rest_upper=self.rest_upper,
        )

    def is_interval_block(self, blocks: np.ndarray) -> np.ndarray:
        """Whether each of some blocks is a single distribution bounded by intervals."""
        return self._closed[blocks]

    @property
    def dimension(self) -> int:
        return len(self.lower)

    @property
    def is_empty(self) -> bool:
        if (self.lower > self.upper).any() or any(p.is_empty for p in self.regions.values()):
            return True
        least, most = self._totals()
        # The sums are rounded; a gap within their rounding error proves nothing.
        slack = 4 * UNIT_ROUNDOFF * (np.diff(self.block_ptr) + 4)
        empty = (least > 1 + slack) | (most < 1 - slack) | (self.rest_lower > self.rest_upper)
        return bool((empty & self._closed).any())

    def _totals(self) -> tuple[np.ndarray, np.ndarray]:
        blocks = len(self.block_ptr) - 1
        least = np.bincount(self._block, self.lower, blocks) + self.rest_lower
        return least, np.bincount(self._block, self.upper, blocks) + self.rest_upper

    def minimize(self, directions: np.ndarray | scipy.sparse.csr_array) -> np.ndarray:
        """Lower bounds (n,) for directions (n, r), dense or sparse."""
        directions = scipy.sparse.csr_array(directions)
        if directions.shape[1] != self.dimension or not np.isfinite(directions.data).all():
            raise ModelError(f"directions of shape {directions.shape} for a region of dimension {self.dimension}")
        if self.is_empty:
            return np.full(directions.shape[0], np.inf)
        directions = scipy.sparse.csr_array(directions[:, self.order])
        directions.sum_duplicates()
        values = np.zeros(directions.shape[0])
        scratch = np.empty(2 * (int(np.diff(self.block_ptr).max(initial=0)) + 1))
        indptr, indices = directions.indptr.astype(np.int64), directions.indices.astype(np.int64)
        core.minimize_interval_blocks(self._blocks, len(values), indptr, indices, directions.data, scratch, values)
        if self.regions:
            self._add_regions(scipy.sparse.csc_array(directions), values)
        return values

    def _add_regions(self, columns: scipy.sparse.csc_array, values: np.ndarray) -> None:
        """Add to values (n,) the minima over the blocks that are regions, in one pass over the entries."""
        for k, region in self.regions.items():
            first, last = self.block_ptr[k], self.block_ptr[k + 1]
            span = slice(columns.indptr[first], columns.indptr[last])
            if span.start == span.stop:
                continue
            touched, row = np.unique(columns.indices[span], return_inverse=True)
            part = np.zeros((len(touched), last - first))
            own = np.repeat(np.arange(last - first), np.diff(columns.indptr[first : last + 1]))
            part[row, own] = columns.data[span]
            bound = region.minimize(part)
            values[touched] += bound
            values[touched] -= 2 * UNIT_ROUNDOFF * (np.abs(values[touched]) + np.abs(bound))

    def rest_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """(A, b) with A x <= b: the bounds on the probability that interval blocks leave for their last successor."""
        sums = np.zeros((len(self.block_ptr) - 1, self.dimension))
        sums[self.block_of, np.arange(self.dimension)] = 1.0
        sums = sums[self._closed]
        ends = [1.0 - self.rest_lower[self._closed], self.rest_upper[self._closed] - 1.0]
        return np.vstack([sums, -sums]), np.concatenate(ends)

    def contains(self, points: np.ndarray) -> np.ndarray:
        points = checked_points(points, self.dimension)[:, self.order]
        inside = (points >= self.lower - CONTAINS_TOLERANCE) & (points <= self.upper + CONTAINS_TOLERANCE)
        result = np.asarray(inside.all(axis=1))
        blocks = len(self.block_ptr) - 1
        for i, x in enumerate(points):
            rest = 1.0 - np.bincount(self._block, x, blocks)
            fits = (rest >= self.rest_lower - CONTAINS_TOLERANCE) & (rest <= self.rest_upper + CONTAINS_TOLERANCE)
            result[i] &= bool((fits | ~self._closed).all())
        for k, region in self.regions.items():
            result &= region.contains(points[:, self.block_ptr[k] : self.block_ptr[k + 1]])
        return result

    def box(self) -> tuple[np.ndarray, np.ndarray]:
        least, most = self._totals()
        slack = 4 * UNIT_ROUNDOFF * (np.diff(self.block_ptr) + 4)
        k = self._block
        # A coordinate leaves the others at least their lower and at most their upper bounds.
        low = np.where(self._closed[k], np.maximum(self.lower, 1 - (most[k] - self.upper) - slack[k]), self.lower)
        high = np.where(self._closed[k], np.minimum(self.upper, 1 - (least[k] - self.lower) + slack[k]), self.upper)
        for block, region in self.regions.items():
            span = slice(self.block_ptr[block], self.block_ptr[block + 1])
            low[span], high[span] = region.box()
        lower, upper = np.empty(self.dimension), np.empty(self.dimension)
        lower[self.order], upper[self.order] = low, high
        return lower, upper
