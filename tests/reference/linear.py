"""Linear systems in rational numbers."""

from __future__ import annotations

from fractions import Fraction
from math import lcm


def solve_linear(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction] | None:
    """x with matrix·x = right, None where the matrix is singular.

    Elimination in integers (Bareiss): after step k every number is a minor of k + 1 rows, so the divisions are exact.
    The last pivot is the determinant, and its product with x are minors as well (Cramer).
    """
    n, last, rows = len(right), 1, []
    for row, b in zip(matrix, right):
        den = lcm(b.denominator, *(x.denominator for x in row))
        rows.append([x.numerator * (den // x.denominator) for x in (*row, b)])
    heads = []  # of step k: a row without its first k columns
    for _ in range(n):
        pivot = next((i for i, row in enumerate(rows) if row[0]), None)
        if pivot is None:
            return None
        head = rows.pop(pivot)
        scale = head[0]
        rows = [[(scale * x - row[0] * y) // last for x, y in zip(row[1:], head[1:])] for row in rows]
        heads.append(head)
        last = scale
    scaled: list[int] = []  # the determinant times x, from the end
    for head in reversed(heads):
        known = sum(a * x for a, x in zip(head[1:-1], reversed(scaled)))
        scaled.append((last * head[-1] - known) // head[0])
    return [Fraction(x, last) for x in reversed(scaled)]
