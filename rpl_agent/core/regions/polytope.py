"""A bounded polytope, with a support method chosen by dimension.

dimension 1: an interval. Up to `GRAPH_DIMENSION`: the vertex graph, complete if it has at most
`vertex_graph.MAX_VERTICES` vertices, else grown by queries. Beyond: HiGHS.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.native import core
from rpl_agent.core.regions import vertex_graph
from rpl_agent.core.regions.base import (
    CONTAINS_TOLERANCE,
    Region,
    RegionKernel,
    checked_box,
    checked_directions,
    checked_points,
)
from rpl_agent.core.regions.lp import LinearProgram
from rpl_agent.core.regions.polytope_data import PolytopeData, empty_polytope_data

#: above this dimension a vertex graph is too large and HiGHS answers
GRAPH_DIMENSION = 7
#: a growing table must not be read by another thread (complete tables are read-only and need no lock)
_GROWING = threading.Lock()


class Polytope(Region):
    """{x : A x <= b, lower <= x <= upper}.

    A : (m, r)
    b : (m,)
    lower, upper : (r,) finite bounds; crossing bounds make an empty region
    graph_dimension : largest dimension for a vertex graph
    max_vertices : largest complete vertex table

    Attributes
    ----------
    A, b : the constraints that are tight somewhere (all of them with HiGHS)
    lower, upper : (r,) the outer box, as given
    method : "interval", "vertices" (complete graph), "walk" (growing graph) or "highs"
    """

    def __init__(
        self,
        A: np.ndarray,
        b: np.ndarray,
        lower: np.ndarray,
        upper: np.ndarray,
        graph_dimension: int = GRAPH_DIMENSION,
        max_vertices: int = vertex_graph.MAX_VERTICES,
    ) -> None:
        self.lower, self.upper = checked_box(lower, upper)
        A = np.asarray(A, dtype=np.float64).reshape(-1, self.dimension)
        b = np.asarray(b, dtype=np.float64).ravel()
        if len(A) != len(b):
            raise ModelError(f"{len(A)} constraint rows and {len(b)} right sides")
        if not (np.isfinite(A).all() and np.isfinite(b).all()):
            raise ModelError("the constraints of a polytope must be finite")
        zero = ~A.any(axis=1)
        self._empty = bool((self.lower > self.upper).any() or (b[zero] < 0).any())
        self.A, self.b = scaled_rows(A[~zero], b[~zero])
        self._data: PolytopeData | None = None
        self._program: LinearProgram | None = None
        self._box: tuple[np.ndarray, np.ndarray] | None = None
        if self._empty or self.dimension == 0:
            self.method = "interval"
            self._data = empty_polytope_data(self.lower, self.upper)
        elif self.dimension == 1:
            self._as_interval()
        elif self.dimension <= min(graph_dimension, core.MAX_DIMENSION):
            self._as_graph(max_vertices)
        else:
            self._as_program()

    # ------------------------------------------------------------------ the three methods
    def _as_interval(self) -> None:
        self.method = "interval"
        a = self.A[:, 0]
        ends = self.b / a
        # One division is correctly rounded, so a step of one ulp outward covers it.
        high = np.nextafter(ends[a > 0], np.inf).min(initial=self.upper[0])
        low = np.nextafter(ends[a < 0], -np.inf).max(initial=self.lower[0])
        self._empty = bool(low > high)
        self._data = empty_polytope_data(np.array([low]), np.array([high]))

    def _as_graph(self, max_vertices: int) -> None:
        try:
            graph = vertex_graph.complete_graph(self.A, self.b, self.lower, self.upper, max_vertices)
        except vertex_graph.GraphError:
            self._as_walk(max_vertices)
            return
        self.__dict__.update(Polytope.from_graph(graph).__dict__)

    def _as_walk(self, capacity: int) -> None:
        n = self.dimension
        program = LinearProgram(self.A, self.b, self.lower, self.upper)
        eye = np.eye(n)
        rows = np.vstack([self.A, np.stack([eye, -eye], axis=1).reshape(2 * n, n)])
        rhs = np.concatenate([self.b, np.stack([self.upper, -self.lower], axis=1).ravel()])
        size = float(np.max(self.upper - self.lower)) or 1.0
        rng = np.random.default_rng(20240607)
        loose = rhs + 10 * vertex_graph.PERTURBATION * size * np.abs(rows).sum(axis=1) * rng.uniform(0.5, 1, len(rhs))
        m = len(self.b)
        start = LinearProgram(self.A, loose[:m], -loose[m + 1 :: 2], loose[m::2]).tight_rows(rng.normal(size=n))
        self._empty = program.proves_empty()
        try:
            if self._empty or start is None:
                raise vertex_graph.GraphError("no first vertex")
            self._data = vertex_graph.lazy_graph(rows, rhs, self.lower, self.upper, start, loose, capacity)
            self.method = "walk"
        except vertex_graph.GraphError:
            self._as_program()

    def _as_program(self) -> None:
        self.method = "highs"
        self._program = LinearProgram(self.A, self.b, self.lower, self.upper)
        self._empty = self._program.proves_empty()

    # ------------------------------------------------------------------ Region
    @property
    def dimension(self) -> int:
        return len(self.lower)

    @property
    def is_empty(self) -> bool:
        return self._empty

    def minimize(self, directions: np.ndarray) -> np.ndarray:
        """Certified lower bounds (n,) for directions (n, r); inf if the polytope is empty."""
        directions = checked_directions(directions, self.dimension)
        if self._empty:
            return np.full(len(directions), np.inf)
        if self._data is None:
            assert self._program is not None
            return self._program.minimize(directions)
        values, data = np.empty(len(directions)), self._data
        with _GROWING if self.method == "walk" else nullcontext():
            if self.method == "walk":
                core.grow_table(data, len(directions), directions)
            core.support_polytope_many(data, len(directions), directions, 1, np.zeros(1, np.int32), values)
        return values

    def contains(self, points: np.ndarray) -> np.ndarray:
        points = checked_points(points, self.dimension)
        inside = (points >= self.lower - CONTAINS_TOLERANCE) & (points <= self.upper + CONTAINS_TOLERANCE)
        scale = np.abs(self.A).sum(axis=1)
        rows = (points @ self.A.T <= self.b + CONTAINS_TOLERANCE * scale).all(axis=1)
        return inside.all(axis=1) & rows & (not self._empty)

    def box(self) -> tuple[np.ndarray, np.ndarray]:
        if self._empty:
            return self.lower.copy(), self.upper.copy()
        if self._box is None:
            self._box = super().box()
        return self._box[0].copy(), self._box[1].copy()

    def kernel(self) -> RegionKernel | None:
        return None if self._data is None else RegionKernel(self._data, None, None)

    def corners(self) -> np.ndarray | None:
        """(V, n) the vertices, moved outward by a hair; None if they are not all known."""
        return np.asarray(self._data.point) if self._data is not None and self.method == "vertices" else None

    # ------------------------------------------------------------------ making new ones
    @classmethod
    def from_graph(cls, graph: vertex_graph.VertexGraph, box: tuple[np.ndarray, np.ndarray] | None = None) -> Polytope:
        """The polytope of a vertex graph, with its box if known; later cuts of the graph do not change it."""
        data = graph.data()
        region = cls.__new__(cls)
        region.lower, region.upper = graph.lower, graph.upper
        region.A, region.b, region.method = data.rows, data.rhs, "vertices"
        region._data, region._program, region._empty, region._box = data, None, graph.empty, box
        return region


def scaled_rows(A: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows scaled to a largest entry in [1, 2) by powers of two, which is exact."""
    size = np.abs(A).max(axis=1, initial=0.0)
    scale = np.exp2(-np.floor(np.log2(size))) if len(A) else size
    return np.ascontiguousarray(A * scale[:, None]), b * scale
