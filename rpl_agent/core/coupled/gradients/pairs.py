"""`Touched`, `CutPairs`: the coordinates that bend a row, and the products of two cuts that can straighten it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from rpl_agent.core.coupled.gradients.inequalities import Inequalities

#: Cuts have nearly the same direction if the cosine of their angle is more than this.
PARALLEL = 0.9


def summing(index: np.ndarray, count: int) -> scipy.sparse.csr_array:
    """(count, n) the matrix that adds up numbers (n,) by their index (n,)."""
    return scipy.sparse.csr_array((np.ones(len(index)), (index, np.arange(len(index)))), shape=(count, len(index)))


@dataclass(frozen=True, eq=False)
class Touched:
    """The coordinates on which the chances of a row depend, o in the row that has most of them."""

    inside: np.ndarray  # (R, r) which they are
    index: np.ndarray  # (R, o) the same as numbers, from the least; r where there are fewer

    @classmethod
    def of(cls, given: Inequalities, r: int, is_small: bool) -> Touched:
        """Of all rows; where the region is small, all r coordinates count."""
        inside = np.zeros((len(given.rows), r), dtype=bool)
        np.logical_or.at(inside, given.move_row, given.slope != 0.0)
        inside |= is_small
        most = max(int(inside.sum(axis=1).max(initial=0)), 1)
        return cls(inside, np.sort(np.where(inside, np.arange(r), r), axis=1)[:, :most])

    def part(self, vectors: np.ndarray, row: np.ndarray) -> np.ndarray:
        """(n, o) the entries of vectors (n, r) in the coordinates of their rows (n,); 0 where there are fewer."""
        padded = np.concatenate([vectors, np.zeros((len(vectors), 1))], axis=1)
        return np.take_along_axis(padded, self.index[row], axis=1)


@dataclass(frozen=True, eq=False)
class CutPairs:
    """Q products c c' of cuts of nearly opposite directions, in the rows where they touch no other coordinates.

    With c = c0 + n·y and c' = c0' + k·y a product is c0 c0' + (c0 k + c0' n)·y + (n·y)(k·y).
    """

    row: np.ndarray  # (Q,)
    cuts: np.ndarray  # (Q, 2)
    linear: np.ndarray  # (Q, 1 + r) the constant and the linear part
    form: np.ndarray  # (Q, o, o) the quadratic part, in the touched coordinates
    size: np.ndarray  # (Q,) |n| |k|

    @classmethod
    def of(cls, rooms: np.ndarray, lengths: np.ndarray, touched: Touched) -> CutPairs:
        """Of cuts with these rooms (K, 1 + r), whose linear parts have these lengths (K,)."""
        normals, used = rooms[:, 1:] / lengths[:, None], rooms[:, 1:] != 0.0
        one, other = np.nonzero(np.triu(normals @ normals.T < -PARALLEL))
        fits = ~((used[one] | used[other]) @ ~touched.inside.T)  # (pairs, R)
        pair, row = np.nonzero(fits)
        cuts = np.stack([one[pair], other[pair]], axis=1)
        first, second = (touched.part(rooms[cut, 1:], row) for cut in cuts.T)
        form = (first[:, :, None] * second[:, None, :] + second[:, :, None] * first[:, None, :]) / 2
        ends = rooms[cuts, 0]
        linear = ends[:, :1] * rooms[cuts[:, 1]] + ends[:, 1:] * rooms[cuts[:, 0]]
        linear[:, 0] = ends.prod(axis=1)
        return cls(row, cuts, linear, form, lengths[cuts].prod(axis=1))

    def __len__(self) -> int:
        return len(self.row)
