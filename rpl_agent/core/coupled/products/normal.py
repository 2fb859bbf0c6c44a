"""`NormalMatrices`: matrix · weight · matrix' for the matrix of products of cuts, of many rows at once.

A product c c' has the coefficients a_i b_j, and a weighted sum over all of them

    Σ w_cc' a_i b_j a_k b_l = Σ_c a_i a_k Σ_c' w_cc' b_j b_l

needs far fewer operations in these two steps than as one over pairs of monomials. It is symmetric in i, k and in j, l.
"""

from __future__ import annotations

import numpy as np


class NormalMatrices:
    """left (n, D), right (m, W): the coefficients of cuts; at: where each product is in (n, m), as one number.

    place : (D, W) the monomial of each pair of coefficients, two pairs at most for one
    """

    def __init__(self, left: np.ndarray, right: np.ndarray, at: np.ndarray, place: np.ndarray) -> None:
        self.at, self.shape = at, (len(left), len(right))
        self.left, one = _squares(left)
        self.right, other = _squares(right)
        flat, width = place.ravel(), self.right.shape[1]
        first, last = np.unique(flat, return_index=True)[1], flat.size - 1 - np.unique(flat[::-1], return_index=True)[1]
        self.twice = np.flatnonzero(first != last)
        more = last[self.twice]

        def entries(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
            (i, j), (k, l) = (divmod(pairs, place.shape[1]) for pairs in (rows[:, None], columns))
            return one[i, k] * width + other[j, l]

        self.first, self.beside, self.both = entries(first, first), entries(more, first), entries(more, more)

    def of(self, weights: np.ndarray) -> np.ndarray:
        """(k, monomials, monomials) for weights (k, products)."""
        count, twice = len(weights), self.twice
        spread = np.zeros((count, self.shape[0] * self.shape[1]))
        spread[:, self.at] = weights
        summed = (self.left.T @ (spread.reshape(count, *self.shape) @ self.right)).reshape(count, -1)
        found = summed[:, self.first]
        beside = summed[:, self.beside]
        found[:, twice] += beside
        found[:, :, twice] += beside.transpose(0, 2, 1)
        found[:, twice[:, None], twice] += summed[:, self.both]
        return found


def _squares(forms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """((n, s) products of two coefficients of a cut, (d, d) which of them is that of two)."""
    i, j = np.triu_indices(forms.shape[1])
    number = np.empty((forms.shape[1],) * 2, dtype=int)
    number[i, j] = number[j, i] = np.arange(len(i))
    return forms[:, i] * forms[:, j], number
