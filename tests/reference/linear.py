"""Linear systems in rational numbers."""

from __future__ import annotations

from fractions import Fraction
from math import lcm


def solve_linear(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction] | None:
    """x with matrix·x = right, None where the matrix is singular.

    Elimination in integers (Bareiss): after step k every number is a minor of k + 1 rows, so the divisions are exact.
    """
    n, last, rows = len(right), 1, []
    for row, b in zip(matrix, right):
        den = lcm(b.denominator, *(x.denominator for x in row))
        rows.append([x.numerator * (den // x.denominator) for x in (*row, b)])
    for k in range(n):
        pivot = next((i for i in range(k, n) if rows[i][k]), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        head = rows[k]
        scale = head[k]
        for i in range(n):
            if i != k:
                factor = rows[i][k]
                rows[i] = [(scale * x - factor * y) // last for x, y in zip(rows[i], head)]
        last = scale
    return [Fraction(row[n], last) for row in rows]
