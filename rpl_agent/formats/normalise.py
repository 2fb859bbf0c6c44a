"""Rows that sum to nearly 1 because the numbers of a file are rounded: scaled on request, exactly."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from rpl_agent.errors import RPLWarning
from rpl_agent.model import ExpressionTable, ParametricMDP, Polynomial
from rpl_agent.model.building.validation import row_sum, rows_off

#: the farthest from 1 that a sum is taken for a rounded one
TOLERANCE = Fraction(1, 10**5)


def normalised(pmdp: ParametricMDP, tolerance: Fraction = TOLERANCE) -> tuple[ParametricMDP, list[Fraction]]:
    """The model with every row that sums to a number within the tolerance of 1 divided by it, and those sums.

    Rows that are farther off, or whose sum depends on a parameter, stay as they are: validation refuses them.
    """
    off = rows_off(pmdp)
    if not off:
        return pmdp, []
    expression, sums = np.array(pmdp.expression), []
    known = [pmdp.table.polynomial(f) for f in range(pmdp.num_expressions)]
    number = {polynomial: f for f, polynomial in enumerate(known)}
    for row in off:
        part = slice(pmdp.row_ptr[row], pmdp.row_ptr[row + 1])
        total = row_sum(pmdp, row)
        if total.is_constant and abs(total.constant_value() - 1) <= tolerance:
            sums.append(total.constant_value())
            scaled = [known[f] * (1 / sums[-1]) for f in pmdp.expression[part]]
            expression[part] = [number.setdefault(polynomial, len(number)) for polynomial in scaled]
    if not sums:
        return pmdp, sums
    used, expression = np.unique(expression, return_inverse=True)
    polynomials = list(number)
    table, rank = ExpressionTable.from_polynomials([polynomials[f] for f in used], pmdp.table.parameters).sorted()
    return replace(pmdp, expression=rank[expression.reshape(-1)], table=table), sums


def tell(source: str, sums: Sequence[Fraction]) -> None:
    """Say how many rows were scaled, and by how much at most."""
    if sums:
        worst = max(sums, key=lambda total: abs(total - 1))
        warnings.warn(
            f"{source}: {len(sums)} row(s) scaled to sum to 1; the farthest off summed to {float(worst):.15g}",
            RPLWarning, stacklevel=3,
        )  # fmt: skip


def hint(sums_off: Sequence[Polynomial]) -> str:
    """What to do about rows that do not sum to 1, where rounding may be the reason."""
    rounded = all(t.is_constant and abs(t.constant_value() - 1) <= TOLERANCE for t in sums_off)
    return "\nrounded in the file? --normalise scales rows within 1e-5 of 1" if sums_off and rounded else ""
