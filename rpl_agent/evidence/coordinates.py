"""Bounds on the coordinates of a model over its domain."""

from __future__ import annotations

import numpy as np

from rpl_agent.model import Domain, ExpressionTable
from rpl_agent.model.algebra.ranges import monomial_range


def coordinate_box(table: ExpressionTable, domain: Domain) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper), each (r,): interval arithmetic over the parameters' bounds, rounded outward."""
    reduction = table.reduction
    if table.is_plain:
        return domain.lower.copy(), domain.upper.copy()
    low, high = monomial_range(reduction.exponents, domain.lower, domain.upper)
    matrix = reduction.matrix
    middle, radius = matrix @ ((low + high) / 2), abs(matrix) @ ((high - low) / 2)
    margin = 1e-12 * (1.0 + abs(middle) + radius)
    return middle - radius - margin, middle + radius + margin
