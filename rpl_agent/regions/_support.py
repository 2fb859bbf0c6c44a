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

import numpy as np

from rpl_agent.jit import UNIT_ROUNDOFF, Floats, Ints, int64, njit
from rpl_agent.regions._ellipsoid import support_ellipsoid as support_ellipsoid
from rpl_agent.regions.polytope_data import PolytopeData, Walk

#: a multiplier above -DUAL_TOLERANCE * max |y| counts as nonnegative; it is clipped, so this costs no soundness
DUAL_TOLERANCE = 1e-12
#: pivots of one query before it settles for the bound of the vertex it has reached (which is still a bound)
MAX_PIVOTS = 5000
#: the smallest rate of change along an edge that the ratio test divides by
PIVOT_TOLERANCE = 1e-11


@njit(allocates=False)
def support_box(lower: Floats, upper: Floats, direction: Floats) -> float:
    """A lower bound of min c.x over the box [lower, upper]."""
    n = direction.shape[0]
    total = 0.0
    size = 0.0
    for j in range(n):
        c = direction[j]
        if c >= 0.0:
            total += c * lower[j]
        else:
            total += c * upper[j]
        size += abs(c) * max(abs(lower[j]), abs(upper[j]))
    return total - (2.0 * n + 8.0) * UNIT_ROUNDOFF * size - 1e-300 * (size > 0.0)


@njit(allocates=False)
def support_box_many(lower: Floats, upper: Floats, directions: Floats, out: Floats) -> None:
    """``out[i]`` = bound for ``directions[i]``."""
    for i in range(directions.shape[0]):
        out[i] = support_box(lower, upper, directions[i])


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
def entering_row(rows: Floats, loose: Floats, basis: Ints, inverse: Floats, point: Floats, leaving: int) -> int:
    """Ratio test: the row that stops the walk along the edge that leaves basis[leaving]; -1 if none does.

    ``inverse`` is transposed, so ``inverse[leaving]`` is the column of B^-1 along which that constraint changes.
    """
    n = point.shape[0]
    best = np.inf
    entering = -1
    best_rate = 0.0
    for i in range(rows.shape[0]):
        rate = 0.0
        for j in range(n):
            rate -= rows[i, j] * inverse[leaving, j]
        if rate <= PIVOT_TOLERANCE:
            continue
        in_basis = False
        for k in range(n):
            if basis[k] == i:
                in_basis = True
        if in_basis:
            continue
        gap = loose[i]
        for j in range(n):
            gap -= rows[i, j] * point[j]
        step = max(gap, 0.0) / rate
        if step < best or (step == best and rate > best_rate):
            best = step
            best_rate = rate
            entering = i
    return entering


@njit()
def pivot(
    rows: Floats, loose: Floats, basis: Ints, leaving: int, entering: int, inverse: Floats, point: Floats
) -> bool:
    """Exchange a row of the basis, keep it sorted, refresh inverse and point; False if the new basis is singular."""
    n = basis.shape[0]
    basis[leaving] = entering
    for k in range(1, n):
        value = basis[k]
        i = k - 1
        while i >= 0 and basis[i] > value:
            basis[i + 1] = basis[i]
            i -= 1
        basis[i + 1] = value
    matrix = np.empty((n, n))
    for k in range(n):
        for j in range(n):
            matrix[k, j] = rows[basis[k], j]
    if not invert(matrix, inverse):
        return False
    for j in range(n):
        point[j] = 0.0
        for k in range(n):
            point[j] += inverse[k, j] * loose[basis[k]]
    return True


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


@njit()
def inverse_of(table: Floats, n: int, vertex: int) -> Floats:
    """A copy of G of a vertex."""
    base = vertex * (n * n + 4 * n)
    inverse = np.empty((n, n))
    for k in range(n):
        for j in range(n):
            inverse[k, j] = table[base + k * n + j]
    return inverse


@njit()
def plain_simplex(walk: Walk, table: Floats, lower: Floats, upper: Floats, direction: Floats, vertex: int) -> float:
    """Continue a walk from a table vertex without the table (read-only): the bound where it ends."""
    n = direction.shape[0]
    basis, point, y = np.empty(n, np.int32), np.empty(n), np.empty(n)
    for j in range(n):
        basis[j] = walk.basis[vertex, j]
        point[j] = walk.point[vertex, j]
    inverse = inverse_of(table, n, vertex)
    best = support_box(lower, upper, direction)
    for _ in range(MAX_PIVOTS):
        leaving = multipliers(inverse, direction, y)
        best = max(best, safe_bound(walk.rows, walk.rhs, lower, upper, basis, direction, y))
        if leaving < 0:
            break
        entering = entering_row(walk.rows, walk.loose, basis, inverse, point, leaving)
        if entering < 0 or not pivot(walk.rows, walk.loose, basis, leaving, entering, inverse, point):
            break
    return best


@njit(part=True)
def walk_table(table: Floats, direction: Floats, vertex: int) -> tuple[float, int, float]:
    """`support_polytope` on a non-empty table alone; the bound is -inf where the walk leaves the table.

    Also returned: a bound on how far c.x at the vertex where the walk ended is above the bound. There c.x = -y.b up to
    |c|.e, so it is the rounding and, once more, what the clipped multipliers and the inverse's error took away.
    The hot spot of value iteration: no allocation, no views, one array.
    """
    n = direction.shape[0]
    square = n * n
    width = square + 4 * n
    bound = 0.0
    size = 0.0
    slack = 0.0
    for _ in range(MAX_PIVOTS):
        base = vertex * width
        at = base + square
        bound = 0.0
        size = 0.0
        slack = 0.0
        lowest = 0.0
        largest = 0.0
        leaving = -1
        for k in range(n):
            y = 0.0
            for j in range(n):
                y -= table[base + k * n + j] * direction[j]
            if y >= 0.0:
                term = y * table[at + k]
                bound -= term
                size += abs(term)
                if y > largest:
                    largest = y
            else:
                slack -= y * table[at + n + k]
                if y < lowest:
                    lowest = y
                    leaving = k
            slack += abs(direction[k]) * table[at + 2 * n + k]
        if lowest >= -DUAL_TOLERANCE * largest:
            break
        following = int(table[at + 3 * n + leaving])
        if following < 0:
            return -np.inf, vertex, 0.0
        vertex = following
    slack = (3.0 * n + 8.0) * UNIT_ROUNDOFF * size + (1.0 + 1e-9) * slack + 1e-300
    return bound - slack, vertex, 2.0 * slack


@njit(allocates=False)
def support_polytope(data: PolytopeData, direction: Floats, start: int) -> tuple[float, int]:
    """A certified lower bound of min c.x over the polytope, by walking the vertex graph.

    Parameters
    ----------
    data : PolytopeData
    direction : (n,) float64
    start : int
        Vertex to start from, usually the answer to the last query of the same row; any integer is accepted.

    Returns
    -------
    bound : float
    vertex : int
        Where the walk ended: the start for the next query of this row.
    """
    count = data.counts[0]
    if count == 0:
        return support_box(data.lower, data.upper, direction), 0
    bound, vertex, _ = walk_table(data.table, direction, start if 0 <= start < count else 0)
    if bound == -np.inf:
        walk = Walk(data.basis, data.point, data.rows, data.rhs, data.loose)
        bound = plain_simplex(walk, data.table, data.lower, data.upper, direction, vertex)
    return bound, vertex


@njit(allocates=False)
def support_polytope_many(data: PolytopeData, directions: Floats, memory: Ints, out: Floats) -> None:
    """``out[i]`` = bound for ``directions[i]``, started at and remembered in ``memory[i % len(memory)]``.

    Parameters
    ----------
    directions : (k, n) float64
    memory : (any length >= 1,) int32
        Vertices of the table. One entry: each query hands its vertex on to the next.
    out : (k,) float64
    """
    count, table = data.counts[0], data.table
    walk = Walk(data.basis, data.point, data.rows, data.rhs, data.loose)
    for i in range(directions.shape[0]):
        direction = directions[i]
        if count == 0:
            out[i] = support_box(data.lower, data.upper, direction)
        else:
            slot = i % memory.shape[0]
            bound, vertex, _ = walk_table(table, direction, int64(memory[slot]))
            memory[slot] = vertex
            if bound == -np.inf:
                bound = plain_simplex(walk, table, data.lower, data.upper, direction, vertex)
            out[i] = bound
