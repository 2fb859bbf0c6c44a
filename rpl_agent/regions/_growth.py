"""Compiled: a vertex graph that grows where queries walk, for polytopes with too many vertices to list."""

from __future__ import annotations

import numpy as np

from rpl_agent.jit import Floats, Ints, int64, njit
from rpl_agent.regions._clipping import subset_key
from rpl_agent.regions._support import (
    MAX_PIVOTS,
    entering_row,
    inverse_of,
    multipliers,
    pivot,
    write_record,
)
from rpl_agent.regions.polytope_data import PolytopeData


@njit(allocates=False)
def _same(first: Ints, second: Ints) -> bool:
    for k in range(first.shape[0]):
        if first[k] != second[k]:
            return False
    return True


@njit(allocates=False)
def insert_vertex(data: PolytopeData, basis: Ints, inverse: Floats, point: Floats) -> int:
    """The number of the vertex with this basis, added if new; -1 if the table is full."""
    mask = data.slots.shape[0] - 1
    at = int64(subset_key(basis, -1) & np.uint64(mask))
    while data.slots[at] >= 0:
        if _same(data.basis[data.slots[at]], basis):
            return data.slots[at]
        at = (at + 1) & mask
    vertex = data.counts[0]
    if vertex >= data.basis.shape[0]:
        return -1
    data.slots[at] = vertex
    data.counts[0] = vertex + 1
    write_record(data, vertex, basis, inverse, point)
    return vertex


@njit()
def first_vertex(data: PolytopeData, basis: Ints) -> bool:
    """Put the vertex with this basis into an empty table; False if the basis is singular."""
    n = basis.shape[0]
    inverse = np.empty((n, n))
    point = np.empty(n)
    if not pivot(data.rows, data.loose, basis, 0, basis[0], inverse, point):
        return False
    return insert_vertex(data, basis, inverse, point) == 0


@njit()
def grow(data: PolytopeData, directions: Floats, start: int) -> int:
    """Walk to the optimum of every direction and remember the vertices and edges met on the way (one thread only).

    Returns the last vertex; stops remembering, without harm, when the table is full.
    """
    n = directions.shape[1]
    width = n * n + 4 * n
    edges = n * n + 3 * n
    y = np.empty(n)
    vertex = start if 0 <= start < data.counts[0] else 0
    for i in range(directions.shape[0]):
        for _ in range(MAX_PIVOTS):
            leaving = multipliers(inverse_of(data.table, n, vertex), directions[i], y)
            if leaving < 0:
                break
            following = int(data.table[vertex * width + edges + leaving])
            if following < 0:
                basis = data.basis[vertex].copy()
                inverse = inverse_of(data.table, n, vertex)
                point = data.point[vertex].copy()
                entering = entering_row(data.rows, data.loose, basis, inverse, point, leaving)
                if entering < 0 or not pivot(data.rows, data.loose, basis, leaving, entering, inverse, point):
                    break
                following = insert_vertex(data, basis, inverse, point)
                if following < 0:
                    return vertex
                data.table[vertex * width + edges + leaving] = following
                # The same edge walked back leaves the row that has just entered.
                for k in range(n):
                    if data.basis[following, k] == entering:
                        data.table[following * width + edges + k] = vertex
            vertex = following
    return vertex
