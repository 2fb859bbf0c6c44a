"""Compiled support queries: certified lower bounds of min c.x over polytopes (ellipsoids: `_ellipsoid`).

Symbols
-------
n        dimension of the polytope's coordinates
B        (n, n) rows of the constraints that are tight at a vertex ("basis"), B x = b there
G        (n, n) transposed inverse of B, as stored (only approximately an inverse)
y        (n,) multipliers -G c of those rows; p = max(y, 0) and q = max(-y, 0) are their parts
X        (n,) the reach max(|lo|, |hi|) of the outer box
u        2**-53, the unit roundoff

For every x with A x <= b and lo <= x <= hi, and every p >= 0 (Neumaier and Shcherbina):

    c.x = (c + A'p).x - p.(A x) >= -p.b - |c + A'p|.X

At a vertex of the table c + B'p = (I - B'G) c + B'(rounding of y) + B'q, so with the numbers

    e_i = sum_j X_j (|I - B'G|_ji + (2n + 8) u (1 + |B|'|G|)_ji),   mass_k = |b_k| + |B_k|.X

computed once per vertex, min c.x >= -p.b - |c|.e - q.mass, less the rounding of this sum itself. That costs one
product with G per query. Hence neither the inverse of a basis nor the table need be accurate: they decide how tight an
answer is, never whether it is a bound.
"""

from __future__ import annotations

from rpl_agent.jit import UNIT_ROUNDOFF, Floats, Ints, njit
from rpl_agent.regions.polytope_data import PolytopeData

#: a multiplier above -DUAL_TOLERANCE * max |y| counts as nonnegative; it is clipped, so this costs no soundness
DUAL_TOLERANCE = 1e-12
#: pivots of one query before it settles for the bound of the vertex it has reached (which is still a bound)
MAX_PIVOTS = 5000
#: the smallest rate of change along an edge that the ratio test divides by
PIVOT_TOLERANCE = 1e-11


@njit()
def safe_bound(
    rows: Floats, rhs: Floats, lower: Floats, upper: Floats, basis: Ints, direction: Floats, y: Floats
) -> float:
    """The Neumaier-Shcherbina bound for multipliers y of the rows in basis, those above 0, rounding subtracted."""
    n = direction.shape[0]
    residual = direction.copy()
    total = 0.0
    size = 0.0
    for j in range(n):
        size += abs(direction[j]) * max(abs(lower[j]), abs(upper[j]))
    for k in range(n):
        if y[k] > 0.0:
            row = basis[k]
            total -= y[k] * rhs[row]
            size += y[k] * abs(rhs[row])
            for j in range(n):
                residual[j] += y[k] * rows[row, j]
                size += y[k] * abs(rows[row, j]) * max(abs(lower[j]), abs(upper[j]))
    for j in range(n):
        if residual[j] >= 0.0:
            total += residual[j] * lower[j]
        else:
            total += residual[j] * upper[j]
    return total - (4.0 * n + 16.0) * UNIT_ROUNDOFF * size - 1e-300


@njit()
def invert(matrix: Floats, inverse: Floats) -> bool:
    """Invert matrix (n, n) into inverse *transposed*, by elimination with row pivoting; False where singular."""
    n = matrix.shape[0]
    work = matrix.copy()
    for i in range(n):
        for j in range(n):
            inverse[i, j] = 1.0 if i == j else 0.0
    # Rows of `work | identity` are eliminated; the identity side is stored transposed: inverse[j, i].
    for k in range(n):
        p = k
        for i in range(k + 1, n):
            if abs(work[i, k]) > abs(work[p, k]):
                p = i
        if abs(work[p, k]) < 1e-14:
            return False
        if p != k:
            for j in range(n):
                work[k, j], work[p, j] = work[p, j], work[k, j]
                inverse[j, k], inverse[j, p] = inverse[j, p], inverse[j, k]
        scale = 1.0 / work[k, k]
        for j in range(n):
            work[k, j] *= scale
            inverse[j, k] *= scale
        for i in range(n):
            if i != k and work[i, k] != 0.0:
                factor = work[i, k]
                for j in range(n):
                    work[i, j] -= factor * work[k, j]
                    inverse[j, i] -= factor * inverse[j, k]
    return True


@njit(allocates=False)
def write_record(data: PolytopeData, vertex: int, basis: Ints, inverse: Floats, point: Floats) -> None:
    """Store a vertex: its basis, its point and the numbers that queries read; neighbours unknown."""
    n = basis.shape[0]
    width = n * n + 4 * n
    record = data.table[vertex * width : (vertex + 1) * width]
    unit = (2.0 * n + 8.0) * UNIT_ROUNDOFF
    for i in range(n):
        total = 0.0
        for j in range(n):
            defect = 1.0 if i == j else 0.0
            size = 1.0
            for k in range(n):
                term = data.rows[basis[k], j] * inverse[k, i]
                defect -= term
                size += abs(term)
            total += data.reach[j] * (abs(defect) + 2.0 * unit * size)
        record[n * n + 2 * n + i] = total
    for k in range(n):
        data.basis[vertex, k] = basis[k]
        data.point[vertex, k] = point[k]
        for j in range(n):
            record[k * n + j] = inverse[k, j]
        record[n * n + k] = data.rhs[basis[k]]
        record[n * n + n + k] = data.mass[basis[k]]
        record[n * n + 3 * n + k] = -1.0


@njit(allocates=False)
def multipliers(inverse: Floats, direction: Floats, y: Floats) -> int:
    """y = -B^-T c; returns the index of the most negative one beyond tolerance, or -1 at an optimal vertex."""
    n = direction.shape[0]
    worst = -1
    largest = 0.0
    for k in range(n):
        total = 0.0
        for j in range(n):
            total -= inverse[k, j] * direction[j]
        y[k] = total
        largest = max(largest, abs(total))
    threshold = -DUAL_TOLERANCE * largest
    for k in range(n):
        if y[k] < threshold:
            threshold = y[k]
            worst = k
    return worst
