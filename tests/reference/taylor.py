"""Taylor terms of expressions, for comparison."""

from __future__ import annotations

import numpy as np

from rpl_agent.core.model.algebra.ranges import taylor_shifts
from rpl_agent.core.model.expressions import ExpressionTable


def taylor_terms(table: ExpressionTable, chosen: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(exponents α (A, d), f_α (k, n, A)) of n chosen expressions around each of the centers (k, d), without bounds."""
    shifts = taylor_shifts(table)
    matrix = np.zeros((len(centers), table.num_monomials, len(shifts.alpha)))
    powers = np.prod(centers[:, None, :] ** shifts.rest, axis=2)
    matrix[:, shifts.monomial, shifts.term] = shifts.binomial * powers
    return shifts.alpha, np.asarray(table.coefficients[chosen].todense()) @ matrix
