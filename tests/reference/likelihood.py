"""Slow twins of the likelihood's C functions: definitions written with numpy, one sum after another."""

from math import lgamma

import numpy as np


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
