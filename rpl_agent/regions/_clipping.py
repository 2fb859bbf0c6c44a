"""Compiled construction of vertex graphs: cutting a simple polytope by one half-space at a time.

A polytope is *simple* if exactly n constraints are tight at every vertex. Then each vertex has n edges, one per
constraint that it may leave, and cutting by a new half-space touches only the vertices it removes: every edge from a
removed to a kept vertex yields one new vertex, and two new vertices are joined when they share all but one of their
constraints. Perturbing the right sides makes every polytope simple, so no degenerate case is left to treat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpl_agent.jit import Floats, Ints, Words, njit
from rpl_agent.regions._support import (
    invert,
    multipliers,
    safe_bound,
    write_record,
)

if TYPE_CHECKING:
    from rpl_agent.regions.polytope_data import PolytopeData


UNCHANGED, CUT, EMPTY, FULL, INCONSISTENT = 0, 1, 2, 3, 4
#: what `most_violated` makes of a row: cut by it next, ask again later, never again
CHOSEN, VIOLATED, REDUNDANT = 2, 1, 0


@njit(allocates=False)
def subset_key(basis: Ints, without: int) -> np.uint64:
    """A 64-bit hash of the basis with one slot left out."""
    key = np.uint64(1469598103934665603)
    for k in range(basis.shape[0]):
        if k != without:
            key ^= np.uint64(basis[k] + 1)
            key *= np.uint64(1099511628211)
            key ^= key >> np.uint64(29)
    return key


@njit(allocates=False)
def sort_numbers(keys: Floats | Words, order: Ints) -> None:
    """Sort the numbers in ``order`` in place by their keys, then by themselves (numpy's sorts compile for seconds)."""
    n = order.shape[0]
    stride = 1
    while stride < n // 9:
        stride = 3 * stride + 1
    while stride > 0:
        for i in range(stride, n):
            e = order[i]
            j = i - stride
            while j >= 0 and (keys[order[j]] > keys[e] or (keys[order[j]] == keys[e] and order[j] > e)):
                order[j + stride] = order[j]
                j -= stride
            order[j + stride] = e
        stride //= 3


@njit(allocates=False)
def _sides(row: Floats, bound: float, point: Floats, alive: Ints, excess: Floats) -> tuple[int, int]:
    """row.x - bound of the vertices in use into ``excess``; the numbers of those inside and outside."""
    kept = 0
    removed = 0
    for v in range(excess.shape[0]):
        if alive[v]:
            value = -bound
            for j in range(row.shape[0]):
                value += row[j] * point[v, j]
            excess[v] = value
            if value > 0.0:
                removed += 1
            else:
                kept += 1
    return kept, removed


@njit()
def _join(keys: Words, neighbour: Ints) -> bool:
    """Make new vertices (k, n) neighbours that share all but one of their constraints; False if not in pairs.

    keys : (k * (n - 1),) of the constraints that are left when vertex e // (n - 1) leaves its constraint e % (n - 1).
    """
    edges = neighbour.shape[1] - 1
    order = np.arange(keys.shape[0])
    sort_numbers(keys, order)
    if order.shape[0] % 2 == 1:
        return False
    for pair in range(0, order.shape[0], 2):
        e = order[pair]
        g = order[pair + 1]
        if keys[e] != keys[g] or (pair + 2 < order.shape[0] and keys[order[pair + 2]] == keys[e]):
            return False
        neighbour[e // edges, e % edges] = g // edges
        neighbour[g // edges, g % edges] = e // edges
    return True


@njit()
def _insert(
    new_basis: Ints,
    new_point: Floats,
    new_neighbour: Ints,
    kept_slot: Ints,
    basis: Ints,
    neighbour: Ints,
    point: Floats,
    alive: Ints,
    state: Ints,
) -> None:
    """Put new vertices (k, n) into slots of dead ones, then behind the others.

    Their last neighbour is a vertex that was kept, which leaves its constraint ``kept_slot``; the others are new ones.
    """
    number, n = new_basis.shape
    used = state[0]
    slot = np.empty(number, np.int64)
    at = 0
    for v in range(used):
        if not alive[v] and at < number:
            slot[at] = v
            at += 1
    while at < number:
        slot[at] = used
        used += 1
        at += 1
    state[0] = used
    for i in range(number):
        v = slot[i]
        alive[v] = 1
        u = new_neighbour[i, n - 1]
        neighbour[u, kept_slot[i]] = v
        for k in range(n):
            basis[v, k] = new_basis[i, k]
            point[v, k] = new_point[i, k]
            neighbour[v, k] = u if k == n - 1 else slot[new_neighbour[i, k]]


@njit()
def clip(
    row_id: int, row: Floats, bound: float, basis: Ints, neighbour: Ints, point: Floats, alive: Ints, state: Ints
) -> int:
    """Intersect a simple polytope with {x : row.x <= bound}, in place; nothing changes unless CUT is returned.

    Parameters
    ----------
    row_id : int
        Number of the new constraint, larger than every number in use (so that bases stay sorted).
    row : (n,) float64
    bound : float
    basis, neighbour : (cap, n) int32
    point : (cap, n) float64
    alive : (cap,) uint8
    state : (1,) int64
        Slots in use, dead ones included.

    Returns
    -------
    int
        UNCHANGED (the half-space is redundant), CUT, EMPTY (no vertex satisfies it), FULL (the table is too small)
        or INCONSISTENT (rounding has spoilt the combinatorics: perturb more).
    """
    used = state[0]
    cap, n = basis.shape
    excess = np.empty(used)
    kept, removed = _sides(row, bound, point, alive, excess)
    if removed == 0:
        return UNCHANGED
    if kept == 0:
        return EMPTY
    crossing = 0
    for v in range(used):
        if alive[v] and excess[v] > 0.0:
            for k in range(n):
                if excess[neighbour[v, k]] <= 0.0:
                    crossing += 1
    if crossing < n:
        return INCONSISTENT
    if kept + crossing > cap:
        return FULL
    new_basis = np.empty((crossing, n), np.int32)
    new_point = np.empty((crossing, n))
    new_neighbour = np.full((crossing, n), -1, np.int32)
    kept_slot = np.empty(crossing, np.int32)
    keys = np.empty(crossing * (n - 1), np.uint64)
    i = 0
    for v in range(used):
        if not (alive[v] and excess[v] > 0.0):
            continue
        for k in range(n):
            u = neighbour[v, k]
            if excess[u] > 0.0:
                continue
            at = 0
            for q in range(n):
                if q != k:
                    new_basis[i, at] = basis[v, q]
                    at += 1
            new_basis[i, n - 1] = row_id
            # The convex combination never leaves the edge, whatever the condition of the new basis.
            share = excess[v] / (excess[v] - excess[u])
            for j in range(n):
                new_point[i, j] = share * point[u, j] + (1.0 - share) * point[v, j]
            new_neighbour[i, n - 1] = u
            kept_slot[i] = -1
            for q in range(n):
                if neighbour[u, q] == v:
                    kept_slot[i] = q
            if kept_slot[i] < 0:
                return INCONSISTENT
            for q in range(n - 1):
                keys[i * (n - 1) + q] = subset_key(new_basis[i], q)
            i += 1
    if not _join(keys, new_neighbour):
        return INCONSISTENT
    for v in range(used):
        if alive[v] and excess[v] > 0.0:
            alive[v] = 0
    _insert(new_basis, new_point, new_neighbour, kept_slot, basis, neighbour, point, alive, state)
    return CUT


@njit()
def most_violated(
    rows: Floats, loose: Floats, tolerance: Floats, point: Floats, alive: Ints, state: Ints, status: Ints, worst: Floats
) -> int:
    """One look at every row whose ``status`` is not REDUNDANT, over all vertices.

    ``worst`` (m,) becomes the largest violation over its tolerance. A row that no vertex violates is REDUNDANT, one
    that is the most violated row of some vertex is CHOSEN; the number of the latter is returned.
    """
    used = state[0]
    n = rows.shape[1]
    best = np.zeros(used)
    row_of = np.full(used, -1, np.int64)
    low, high = np.full(n, np.inf), np.full(n, -np.inf)
    for v in range(used):
        if alive[v]:
            for j in range(n):
                low[j] = min(low[j], point[v, j])
                high[j] = max(high[j], point[v, j])
    for i in range(rows.shape[0]):
        if status[i] == REDUNDANT:
            continue
        largest = -loose[i]
        for j in range(n):  # rows beyond the box of all vertices, usually most, need no look at each of them
            largest += rows[i, j] * (high[j] if rows[i, j] > 0.0 else low[j])
        if largest <= 0.0:
            status[i] = REDUNDANT
            continue
        largest = -np.inf
        for v in range(used):
            if alive[v]:
                excess = -loose[i]
                for j in range(n):
                    excess += rows[i, j] * point[v, j]
                if excess > largest:
                    largest = excess
                if excess > best[v]:
                    best[v] = excess
                    row_of[v] = i
        worst[i] = largest / tolerance[i]
        status[i] = VIOLATED if largest > tolerance[i] else REDUNDANT
    count = 0
    for v in range(used):
        i = row_of[v]
        if i >= 0 and status[i] == VIOLATED:
            status[i] = CHOSEN
            count += 1
    return count


@njit()
def cut_by_rows(
    rows: Floats,
    rhs: Floats,
    loose: Floats,
    tolerance: Floats,
    status: Ints,
    held: Floats,
    held_rhs: Floats,
    held_loose: Floats,
    size: Ints,
    basis: Ints,
    neighbour: Ints,
    point: Floats,
    alive: Ints,
    state: Ints,
) -> tuple[int, int]:
    """Cut by the most violated rows until no row is violated; stops early at a row that `clip` refuses.

    Parameters
    ----------
    rows : (m, n), rhs, loose, tolerance : (m,) float64
    status : (m,) uint8
        VIOLATED for every row at first; kept between calls.
    held : (cap, n), held_rhs, held_loose : (cap,) float64
        The rows of the graph, to which those that cut are added.
    size : (1,) int64
        How many there are.
    basis, neighbour, point, alive, state : as in `clip`

    Returns
    -------
    int, int
        CUT when done, otherwise what `clip` said and of which row, which then is REDUNDANT.
    """
    worst = np.empty(rows.shape[0])
    while True:
        count = most_violated(rows, loose, tolerance, point, alive, state, status, worst)
        if count == 0:
            return CUT, -1
        chosen = np.empty(count, np.int64)
        count = 0
        for i in range(rows.shape[0]):
            if status[i] == CHOSEN:
                worst[i] = -worst[i]  # descending; most_violated writes it anew
                chosen[count] = i
                count += 1
        sort_numbers(worst, chosen)
        for k in range(count):
            i = chosen[k]
            status[i] = REDUNDANT
            outcome = clip(size[0], rows[i], loose[i], basis, neighbour, point, alive, state)
            if outcome == CUT:
                for j in range(held.shape[1]):
                    held[size[0], j] = rows[i, j]
                held_rhs[size[0]] = rhs[i]
                held_loose[size[0]] = loose[i]
                size[0] += 1
            elif outcome != UNCHANGED:
                for j in range(count):
                    if status[chosen[j]] == CHOSEN:
                        status[chosen[j]] = VIOLATED
                return outcome, i


@njit(allocates=False)
def box_graph(loose: Floats, basis: Ints, neighbour: Ints, point: Floats, alive: Ints, state: Ints) -> None:
    """The 2**n vertices of a box whose rows are (x_j <= loose[2j], -x_j <= loose[2j + 1])."""
    n = basis.shape[1]
    for v in range(1 << n):
        alive[v] = 1
        for j in range(n):
            side = (v >> j) & 1
            basis[v, j] = 2 * j + side
            point[v, j] = -loose[2 * j + 1] if side else loose[2 * j]
            neighbour[v, j] = v ^ (1 << j)
    state[0] = 1 << n


@njit()
def tighten_box(
    rows: Floats, rhs: Floats, basis: Ints, point: Floats, alive: Ints, state: Ints, low: Floats, high: Floats
) -> None:
    """Raise low and lower high (n,), an outer box, to certified bounds of the polytope's coordinates.

    Each is the bound that the basis of the vertex gives that goes furthest.
    """
    lower, upper = low.copy(), high.copy()
    n = low.shape[0]
    matrix, inverse, y = np.empty((n, n)), np.empty((n, n)), np.empty(n)
    for j in range(n):
        for sign in (1.0, -1.0):
            best = -1
            for v in range(state[0]):
                if alive[v] and (best < 0 or sign * point[v, j] < sign * point[best, j]):
                    best = v
            if best < 0:
                continue
            for k in range(n):
                for c in range(n):
                    matrix[k, c] = rows[basis[best, k], c]
            if not invert(matrix, inverse):
                continue
            direction = np.zeros(n)
            direction[j] = sign
            multipliers(inverse, direction, y)
            bound = safe_bound(rows, rhs, lower, upper, basis[best], direction, y)
            if sign > 0.0:
                low[j] = max(low[j], bound)
            else:
                high[j] = min(high[j], -bound)


@njit()
def fill_table(data: PolytopeData, basis: Ints, point: Floats, neighbour: Ints) -> int:
    """Write a complete graph into an empty table; the number of singular bases is returned."""
    count, n = basis.shape
    width = n * n + 4 * n
    matrix = np.empty((n, n))
    inverse = np.empty((n, n))
    singular = 0
    for v in range(count):
        for k in range(n):
            for j in range(n):
                matrix[k, j] = data.rows[basis[v, k], j]
        if not invert(matrix, inverse):
            singular += 1
            continue
        write_record(data, v, basis[v], inverse, point[v])
        for k in range(n):
            data.table[v * width + n * n + 3 * n + k] = neighbour[v, k]
    data.counts[0] = count
    return singular
