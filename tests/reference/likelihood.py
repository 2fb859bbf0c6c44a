"""Slow twins of the likelihood's C functions: definitions written with numpy, one sum after another."""

from itertools import permutations
from math import lgamma

import numpy as np


def taylor_coefficients(constant, weights, counts, x):
    """(value (J,), linear (J, r), quadratic (J, r, r), cubic (J, r, r, r)) of g_j at x, the forms as whole tensors."""
    f = constant + weights @ x
    b = weights / f[:, None]
    return (
        -counts @ np.log(f), -counts @ b, np.einsum("jf,fc,fd->jcd", counts, b, b),
        np.einsum("jf,fc,fd,fe->jcde", counts, b, b, b),
    )  # fmt: skip


def folded(cubic):
    """A symmetric tensor (r, r, r) with the sum of all permutations of (c, d, e) at c ≥ d ≥ e, zeros elsewhere."""
    out = np.zeros_like(cubic)
    for place in np.ndindex(cubic.shape):
        if list(place) == sorted(place, reverse=True):
            out[place] = sum(cubic[p] for p in set(permutations(place)))
    return out


def coordinates(exponents, matrix, z):
    """x = matrix @ Π_j z_j ** exponents[:, j]; z itself without monomials."""
    return matrix @ np.prod(z**exponents, axis=1) if len(exponents) else np.array(z)


def dirichlet_log_marginal(rows):
    """Σ over rows of counts of ln Γ(k/2)/Γ(n + k/2) Π Γ(n_i + ½)/Γ(½)."""
    total = 0.0
    for counts in rows:
        if len(counts) > 1:
            total += lgamma(len(counts) / 2) - lgamma(sum(counts) + len(counts) / 2)
            total += sum(lgamma(n + 0.5) - lgamma(0.5) for n in counts)
    return total
