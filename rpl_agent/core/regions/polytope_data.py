"""`PolytopeData`: the vertex graph of {x : rows x <= rhs, lower <= x <= upper} as the core's struct (`polytope`).

Read-only in queries, so any number of threads may share it. A table without vertices means the box
[lower, upper] alone. If the table is incomplete (``counts[1] == 0``), an edge that was never walked has
neighbour -1, and a query continues from there by plain simplex steps in its own memory.

basis : (V, n) int32
    Row numbers tight at each vertex, ascending.
table : (V * (n * n + 4 n),) float64
    The data of a query, one record per vertex: G (row k is column k of B^-1), b, mass, e and the n neighbours, the
    vertices at the other ends of the edges that leave constraint ``basis[v, k]`` (-1 if unknown). One flat
    array, because a compiled call has a cost per array.
point : (V, n) float64
    The vertex of the slightly loosened polytope (see ``loose``).
rows : (m, n) float64
rhs : (m,) float64
    The constraints; bounds use these.
loose : (m,) float64
    ``rhs`` perturbed outward so that no vertex is degenerate; walks use these.
lower, upper : (n,) float64
    An outer box.
counts : (2,) int64
    Number of vertices in the table; 1 if the table has every vertex and edge.
slots : (power of two,) int32
    Hash table from a basis to its vertex, -1 where free (used only while the table grows).
reach : (n,) float64
    max(|lower|, |upper|).
mass : (m,) float64
    |rhs| + |rows| reach: the contribution of a unit multiplier of the row to the rounding term.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.native import Struct, core

PolytopeData: TypeAlias = Struct


def empty_polytope_data(lower: np.ndarray, upper: np.ndarray) -> PolytopeData:
    """The box [lower, upper], (n,) each, as a table without vertices."""
    n = len(lower)
    return polytope_data(0, np.zeros((0, n)), np.zeros(0), np.zeros(0), lower, upper, complete=True)


def polytope_data(
    capacity: int,
    rows: np.ndarray,
    rhs: np.ndarray,
    loose: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    complete: bool,
    slots: int = 1,
) -> PolytopeData:
    """An empty table with room for ``capacity`` vertices (see PolytopeData)."""
    n = len(lower)
    if capacity and n > core.MAX_DIMENSION:
        raise ModelError(f"a vertex graph of {n} coordinates, more than {core.MAX_DIMENSION}")
    reach = np.maximum(np.abs(lower), np.abs(upper))
    mass = np.abs(rhs) + np.abs(rows) @ reach
    rows, rhs, loose, lower, upper = (np.ascontiguousarray(a, np.float64) for a in (rows, rhs, loose, lower, upper))
    return core.Polytope(
        n=n,
        m=len(rhs),
        capacity=capacity,
        slot_count=slots,
        basis=np.zeros((capacity, n), np.int32),
        table=np.zeros(capacity * (n * n + 4 * n)),
        point=np.zeros((capacity, n)),
        rows=rows,
        rhs=rhs,
        loose=loose,
        lower=lower,
        upper=upper,
        counts=np.array([0, int(complete)], np.int64),
        slots=np.full(slots, -1, np.int32),
        reach=reach,
        mass=mass,
    )
