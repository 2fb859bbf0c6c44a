"""Compiled support queries: certified lower bounds of min c.x over polytopes and ellipsoids.

Symbols
-------
n        dimension of the polytope's coordinates
B        (n, n) rows of the constraints that are tight at a vertex ("basis"), B x = b_B there
y        (n,) multipliers of those rows; any y >= 0 gives a true bound, the optimal ones a tight bound
r        c + B'y, the residual of the multipliers (zero but for rounding)

For every x with A x <= b and lo <= x <= hi, and every y >= 0 (Neumaier and Shcherbina):

    c.x = (c + A'y).x - y.(A x) >= sum_j min(r_j lo_j, r_j hi_j) - y.b

The floating-point evaluation of the right side is made safe by subtracting ``(4n + 16) u`` times the sum of the
absolute values that enter it (u = 2**-53), more than the standard bounds for sums of 2n products need. Hence neither
the inverse of a basis nor the vertex table need be accurate: they decide how tight an answer is, never whether it is
a bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

UNIT_ROUNDOFF = 2.0**-53
#: a multiplier above -DUAL_TOLERANCE * max |y| counts as nonnegative; it is clipped, so this costs no soundness
DUAL_TOLERANCE = 1e-12
#: pivots of one query before it settles for the bound of the vertex it has reached (which is still a bound)
MAX_PIVOTS = 5000
#: the smallest rate of change along an edge that the ratio test divides by
PIVOT_TOLERANCE = 1e-11


class PolytopeData(NamedTuple):
    """The vertex graph of {x : rows x <= rhs, lower <= x <= upper}, arrays only.

    Read-only in queries, so any number of threads may share it. A table without vertices stands for the box
    [lower, upper] alone. Where the table is not complete (``counts[1] == 0``) an edge that was never walked has
    neighbour -1 and a query continues from there by plain simplex on its own memory.

    Attributes
    ----------
    basis : (V, n) int32
        Row numbers tight at each vertex, ascending.
    inverse : (V, n, n) float64
        Transposed inverse of each basis matrix: ``inverse[v, k]`` is column k of B^-1.
    point : (V, n) float64
        The vertex of the slightly loosened polytope (see ``loose``).
    neighbour : (V, n) int32
        Vertex at the other end of the edge that leaves constraint ``basis[v, k]``; -1 where unknown.
    rows : (m, n) float64
    rhs : (m,) float64
        The constraints; bounds use these.
    loose : (m,) float64
        ``rhs`` perturbed outward so that no vertex is degenerate; walks use these.
    lower, upper : (n,) float64
        An outer box.
    counts : (2,) int64
        Number of vertices in the table; 1 if the table holds every vertex and edge.
    slots : (power of two,) int32
        Hash table from a basis to its vertex, -1 where free (used only while the table grows).
    """

    basis: np.ndarray
    inverse: np.ndarray
    point: np.ndarray
    neighbour: np.ndarray
    rows: np.ndarray
    rhs: np.ndarray
    loose: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    counts: np.ndarray
    slots: np.ndarray


def empty_polytope_data(lower: np.ndarray, upper: np.ndarray) -> PolytopeData:
    """The box [lower, upper] as a table without vertices.

    Parameters
    ----------
    lower, upper : (n,) float64
    """
    n = len(lower)
    return PolytopeData(
        np.zeros((0, n), np.int32), np.zeros((0, n, n)), np.zeros((0, n)), np.zeros((0, n), np.int32),
        np.zeros((0, n)), np.zeros(0), np.zeros(0),
        np.ascontiguousarray(lower, np.float64), np.ascontiguousarray(upper, np.float64),
        np.array([0, 1], np.int64), np.full(1, -1, np.int32),
    )  # fmt: skip


@njit(cache=True)
def support_box(lower, upper, direction):
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


@njit(cache=True)
def _safe_bound(data, basis, direction, y, residual):
    """The Neumaier-Shcherbina bound for multipliers y >= 0 of the rows in basis, rounding subtracted."""
    n = direction.shape[0]
    total = 0.0
    size = 0.0
    for j in range(n):
        residual[j] = direction[j]
    for k in range(n):
        if y[k] > 0.0:
            term = y[k] * data.rhs[basis[k]]
            total -= term
            size += abs(term)
            for j in range(n):
                part = y[k] * data.rows[basis[k], j]
                residual[j] += part
                size += abs(part) * max(abs(data.lower[j]), abs(data.upper[j]))
    for j in range(n):
        r = residual[j]
        if r >= 0.0:
            total += r * data.lower[j]
        else:
            total += r * data.upper[j]
        size += abs(direction[j]) * max(abs(data.lower[j]), abs(data.upper[j]))
    return total - (4.0 * n + 16.0) * UNIT_ROUNDOFF * size - 1e-300


@njit(cache=True)
def invert(matrix, inverse):
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


@njit(cache=True)
def entering_row(data, basis, inverse, point, leaving):
    """Ratio test: the row that stops the walk along the edge that leaves basis[leaving]; -1 if none does.

    ``inverse`` is transposed, so ``inverse[leaving]`` is the column of B^-1 along which that constraint changes.
    """
    n = point.shape[0]
    best = np.inf
    entering = -1
    best_rate = 0.0
    for i in range(data.rows.shape[0]):
        rate = 0.0
        for j in range(n):
            rate -= data.rows[i, j] * inverse[leaving, j]
        if rate <= PIVOT_TOLERANCE:
            continue
        in_basis = False
        for k in range(n):
            if basis[k] == i:
                in_basis = True
        if in_basis:
            continue
        gap = data.loose[i]
        for j in range(n):
            gap -= data.rows[i, j] * point[j]
        step = max(gap, 0.0) / rate
        if step < best or (step == best and rate > best_rate):
            best = step
            best_rate = rate
            entering = i
    return entering


@njit(cache=True)
def pivot(data, basis, leaving, entering, inverse, point):
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
            matrix[k, j] = data.rows[basis[k], j]
    if not invert(matrix, inverse):
        return False
    for j in range(n):
        point[j] = 0.0
        for k in range(n):
            point[j] += inverse[k, j] * data.loose[basis[k]]
    return True


@njit(cache=True)
def multipliers(inverse, direction, y):
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


@njit(cache=True)
def _plain_simplex(data, direction, vertex, y, residual):
    """Continue a walk from a table vertex without the table (read-only): the bound where it ends."""
    basis = data.basis[vertex].copy()
    inverse = data.inverse[vertex].copy()
    point = data.point[vertex].copy()
    best = -np.inf
    for _ in range(MAX_PIVOTS):
        leaving = multipliers(inverse, direction, y)
        bound = _safe_bound(data, basis, direction, y, residual)
        best = max(best, bound)
        if leaving < 0:
            break
        entering = entering_row(data, basis, inverse, point, leaving)
        if entering < 0 or not pivot(data, basis, leaving, entering, inverse, point):
            break
    return best


@njit(cache=True)
def support_polytope(data, direction, start):
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
    n = direction.shape[0]
    vertex = start
    if vertex < 0 or vertex >= count:
        vertex = 0
    scratch = np.empty((2, n))
    y = scratch[0]
    residual = scratch[1]
    for _ in range(MAX_PIVOTS):
        leaving = multipliers(data.inverse[vertex], direction, y)
        if leaving < 0:
            break
        following = data.neighbour[vertex, leaving]
        if following < 0:
            return _plain_simplex(data, direction, vertex, y, residual), vertex
        vertex = following
    return _safe_bound(data, data.basis[vertex], direction, y, residual), vertex


@njit(cache=True)
def support_ellipsoid(center, factor, radius, direction):
    """A certified lower bound of min c.x over {center + radius * factor z : |z| <= 1}.

    Parameters
    ----------
    center : (n,) float64
    factor : (n, n) float64
        L with H^-1 <= L L' in the order of symmetric matrices (the Ellipsoid class sees to it).
    radius : float
    direction : (n,) float64
    """
    n = direction.shape[0]
    total = 0.0
    size = 0.0
    squares = 0.0
    sizes = 0.0
    for j in range(n):
        term = direction[j] * center[j]
        total += term
        size += abs(term)
    for k in range(n):
        entry = 0.0
        entry_size = 0.0
        for j in range(n):
            term = factor[j, k] * direction[j]
            entry += term
            entry_size += abs(term)
        squares += entry * entry
        sizes += entry_size * entry_size
    total -= radius * np.sqrt(squares)
    size += radius * np.sqrt(sizes)
    return total - (4.0 * n + 16.0) * UNIT_ROUNDOFF * size - 1e-300


@njit(cache=True)
def support_polytope_many(data, directions, start, out):
    """``out[i]`` = bound for ``directions[i]``; ``start`` is the first vertex, each query hands its own on."""
    vertex = start
    for i in range(directions.shape[0]):
        out[i], vertex = support_polytope(data, directions[i], vertex)
    return vertex


@njit(cache=True)
def support_ellipsoid_many(center, factor, radius, directions, out):
    """``out[i]`` = bound for ``directions[i]``."""
    for i in range(directions.shape[0]):
        out[i] = support_ellipsoid(center, factor, radius, directions[i])
