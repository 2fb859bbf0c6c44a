"""Bernstein enclosures: the range of a polynomial over a box lies between its least and greatest Bernstein coefficient.

Far tighter than adding up monomials (p − p² over [0, 1] gets [0, 0.5], not [−1, 1]), and exact whenever an extremum
lies at a corner. With x = lower + width·t, t ∈ [0, 1]^d, and degrees n per parameter, the coefficients are b_J = Σ_{I
≤ J} a_I ∏ C(J_i, I_i) / C(n_i, I_i): one small matrix per parameter.
"""

from __future__ import annotations

from math import comb

import numpy as np
from scipy import sparse

#: Coefficients held at a time; expressions are treated in groups of at most this many numbers.
MAX_NUMBERS = 4_000_000
#: Above this many coefficients per expression the enclosure is not worth its price.
MAX_COEFFICIENTS = 4096


def applies(monomials: np.ndarray) -> bool:
    """Whether the (M, d) monomials are few enough in degree."""
    return bool(np.prod(monomials.max(axis=0, initial=0) + 1.0) <= MAX_COEFFICIENTS)


def bernstein_range(
    coefficients: sparse.csr_array, monomials: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(F,), (F,) enclosures of polynomials with coefficients (F, M) over the box.

    Rounding errors are of the order of 1e-15 times the coefficients; callers compare with a tolerance.
    """
    degrees = monomials.max(axis=0, initial=0)
    shape = tuple(int(n) + 1 for n in degrees)
    transforms = [_transform(int(n), float(a), float(b)) for n, a, b in zip(degrees, lower, upper, strict=True)]
    count = coefficients.shape[0]
    low, high = np.empty(count), np.empty(count)
    place = np.ravel_multi_index(tuple(monomials.T), shape) if shape else np.zeros(len(monomials), dtype=np.int64)
    group = max(1, MAX_NUMBERS // int(np.prod(shape, dtype=np.int64)))
    for first in range(0, count, group):
        rows = np.asarray(coefficients[first : first + group].todense())
        tensor = np.zeros((len(rows), int(np.prod(shape, dtype=np.int64))))
        tensor[:, place] = rows
        tensor = tensor.reshape(len(rows), *shape)
        for axis, matrix in enumerate(transforms, start=1):
            tensor = np.moveaxis(np.tensordot(tensor, matrix, axes=([axis], [1])), -1, axis)
        flat = tensor.reshape(len(rows), -1)
        low[first : first + group], high[first : first + group] = flat.min(axis=1), flat.max(axis=1)
    return low, high


def _transform(degree: int, lower: float, upper: float) -> np.ndarray:
    """(n+1, n+1): power coefficients in x to Bernstein coefficients on [lower, upper]."""
    width = upper - lower
    to_unit = np.zeros((degree + 1, degree + 1))
    for i in range(degree + 1):
        for j in range(i + 1):
            to_unit[j, i] = comb(i, j) * lower ** (i - j) * width**j
    to_bernstein = np.array([[comb(j, i) / comb(degree, i) for i in range(degree + 1)] for j in range(degree + 1)])
    return to_bernstein @ to_unit
