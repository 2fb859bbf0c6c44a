"""Bounds on the coordinates of a model over its domain."""

from __future__ import annotations

import numpy as np

from rpl_agent.model.pmdp import ParametricMDP


def coordinate_box(pmdp: ParametricMDP) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper), each (r,): interval arithmetic over the parameters' bounds, rounded outward."""
    reduction, domain = pmdp.table.reduction, pmdp.domain
    if pmdp.table.is_plain:
        return domain.lower.copy(), domain.upper.copy()
    exponents = reduction.exponents
    low, high = np.ones(len(exponents)), np.ones(len(exponents))
    for j in range(exponents.shape[1]):
        power = exponents[:, j]
        a, b = domain.lower[j] ** power, domain.upper[j] ** power
        # an even power of an interval around 0 begins at 0
        crosses = (domain.lower[j] < 0 < domain.upper[j]) & (power > 0) & (power % 2 == 0)
        a, b = np.where(crosses, 0.0, np.minimum(a, b)), np.maximum(a, b)
        products = np.stack([low * a, low * b, high * a, high * b])
        low, high = products.min(axis=0), products.max(axis=0)
    matrix = reduction.matrix
    middle, radius = matrix @ ((low + high) / 2), abs(matrix) @ ((high - low) / 2)
    margin = 1e-12 * (1.0 + abs(middle) + radius)
    return middle - radius - margin, middle + radius + margin
