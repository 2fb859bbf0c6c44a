"""The vertex graph of a low-dimensional polytope: complete if small, otherwise grown on demand.

There may be a hundred thousand constraints (two per expression), while a region of dimension r <= 6 has a few dozen
facets. So the graph starts as a box and is cut by the most violated rows at its vertices until none is
violated; a row that no vertex violates stays redundant, because the polytope only shrinks. Stopping early is
sound: fewer rows describe a larger set.
"""

from __future__ import annotations

import numpy as np

from rpl_agent.core.native import Struct, core
from rpl_agent.core.regions.polytope_data import PolytopeData, polytope_data

#: right-hand sides are loosened by up to this times the size of the box: far above rounding, far below any data
PERTURBATION = 1e-10
#: retries if rounding spoils the combinatorics, each with ten times the perturbation
ATTEMPTS = 4
#: skip a row that is violated by less than this times its scale (a superset by as much)
VIOLATION = 1e-12
#: the most vertices of a complete table (d = 6: 50,000 vertices take 25 MB)
MAX_VERTICES = 50_000
#: initial capacity: few graphs have more vertices, and fresh memory costs more than the cuts of a small one
FIRST_VERTICES = 2_000
#: room for the rows of a few more cuts, like those of OBBT
ROOM = 128


class GraphError(RuntimeError):
    """The graph could not be built (rounding, or too many vertices); callers use another method."""


_NOISE: list[np.ndarray] = [np.zeros(0)]


def _noise(count: int) -> np.ndarray:
    """At least ``count`` numbers in [0.5, 1), always the same, so that the same rows give the same graph."""
    noise = _NOISE[0]
    if len(noise) < count:
        noise = _NOISE[0] = np.random.default_rng(20240607).uniform(0.5, 1.0, max(2 * count, 4096))
    return noise  # not the global: another thread may have replaced it by a shorter one


class VertexGraph:
    """Complete vertex graph of a box cut by half-spaces.

    lower, upper : (n,) the box to start from, n >= 2
    perturbation : how far, relative to the box, right-hand sides are loosened against degeneracy

    Attributes
    ----------
    empty : true once a certified bound shows that no point satisfies all rows
    """

    def __init__(
        self,
        lower: np.ndarray,
        upper: np.ndarray,
        perturbation: float = PERTURBATION,
        max_vertices: int = MAX_VERTICES,
    ):
        n = len(lower)
        if not 2 <= n <= core.MAX_DIMENSION:
            raise GraphError(f"a vertex graph of {n} coordinates")
        self.lower, self.upper = np.array(lower, float), np.array(upper, float)
        self._size = float(np.max(self.upper - self.lower)) or 1.0
        self._perturbation, self._max_vertices = perturbation, max(max_vertices, 2**n)
        self._data: PolytopeData | None = None
        self.empty = False
        self._sizes = np.array([0, 2 * n])  # vertices and rows in use; the arrays have room for more
        self._rows, self._rhs, self._loose = np.zeros((2 * n + ROOM, n)), np.zeros(2 * n + ROOM), np.zeros(2 * n + ROOM)
        for j in range(n):
            self._rows[2 * j, j], self._rhs[2 * j] = 1.0, self.upper[j]
            self._rows[2 * j + 1, j], self._rhs[2 * j + 1] = -1.0, -self.lower[j]
        self._drawn = 0  # number of perturbations used
        self._loose[: 2 * n] = self._loosened(self._rhs[: 2 * n], np.ones(2 * n))
        self._basis = self._neighbour = np.empty((0, n), np.int32)
        self._point, self._alive = np.empty((0, n)), np.empty(0, np.uint8)
        self._reserve(min(max(FIRST_VERTICES, 2**n), self._max_vertices))
        core.box_graph(self._graph)

    def _reserve(self, capacity: int) -> None:
        """Reserve room for this many vertices, and the scratch space of a cut that could create all of them."""
        held: tuple[np.ndarray, ...] = (self._basis, self._neighbour, self._point, self._alive)
        n, longer = len(self.lower), [np.empty((capacity, *a.shape[1:]), a.dtype) for a in held]
        for new, old in zip(longer, held):
            new[: len(old)] = old
        self._basis, self._neighbour, self._point, self._alive = longer
        self._scratch = core.VertexScratch(
            excess=np.empty(capacity),
            basis=np.empty((capacity, n), np.int32),
            point=np.empty((capacity, n)),
            neighbour=np.empty((capacity, n), np.int32),
            slot=np.empty(capacity, np.int32),
            leaving=np.empty(capacity, np.int32),
            keys=np.empty((capacity, n - 1), np.uint64),
            table=np.empty(4 * capacity * (n - 1), np.int32),
        )
        self._graph = self._as_struct()

    def _as_struct(self) -> Struct:
        return core.VertexGraph(
            n=len(self.lower),
            capacity=len(self._alive),
            basis=self._basis,
            neighbour=self._neighbour,
            point=self._point,
            alive=self._alive,
            sizes=self._sizes,
            rows=self._rows,
            rhs=self._rhs,
            loose=self._loose,
        )

    def _loosened(self, rhs: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """Right-hand sides of rows whose absolute entries sum to ``scale``, moved outward."""
        first, self._drawn = self._drawn, self._drawn + len(rhs)
        return rhs + self._perturbation * self._size * scale * _noise(self._drawn)[first : self._drawn]

    def cut(self, rows: np.ndarray, rhs: np.ndarray) -> None:
        """Intersect with {x : rows x <= rhs}, rows (m, n); raises GraphError if the result does not fit the table."""
        rows, rhs = np.ascontiguousarray(rows, np.float64), np.ascontiguousarray(rhs, np.float64)
        scale = np.abs(rows).sum(axis=1)
        loose, tolerance = self._loosened(rhs, scale), VIOLATION * self._size * scale
        status = np.multiply(tolerance > 0, core.ROW_VIOLATED, dtype=np.uint8)  # rows of zeros are redundant
        self._make_room(len(rhs))
        self._data = None
        new = core.NewRows(m=len(rhs), rows=rows, rhs=rhs, loose=loose, tolerance=tolerance, status=status)
        ranks, refused = np.empty(3 * len(rhs)), np.empty(1, np.int64)
        while not self.empty:
            outcome = core.cut_by_rows(self._graph, self._scratch, new, ranks, refused)
            if outcome == core.CLIP_CUT:
                return
            i = int(refused[0])
            if outcome == core.CLIP_FULL and len(self._alive) < self._max_vertices:
                self._reserve(min(8 * len(self._alive), self._max_vertices))
                status[i] = core.ROW_VIOLATED
            else:
                self._refused(outcome, rows[i], float(rhs[i]))

    def _make_room(self, count: int) -> None:
        """Reserve room for ``count`` more rows."""
        held = int(self._sizes[1])
        if held + count > len(self._rhs):
            self._rows, self._rhs, self._loose = (
                np.concatenate([a[:held], np.empty((count + ROOM, *a.shape[1:]))])
                for a in (self._rows, self._rhs, self._loose)
            )
            self._graph = self._as_struct()

    def _refused(self, outcome: int, row: np.ndarray, rhs: float) -> None:
        """Handle a row that could not cut: only a certified bound proves emptiness, else it is skipped (sound)."""
        if outcome == core.CLIP_FULL:
            raise GraphError(f"more than {len(self._alive)} vertices")
        if outcome == core.CLIP_INCONSISTENT:
            raise GraphError("rounding has spoilt the vertex graph")
        bound = np.empty(1)
        core.support_polytope_many(self._table(), 1, row, 1, np.zeros(1, np.int32), bound)
        self.empty = bool(bound[0] > rhs)

    def box(self) -> tuple[np.ndarray, np.ndarray]:
        """Certified outer bounds (n,) on the polytope; cheaper than the table of `data`."""
        low, high = self.lower.copy(), self.upper.copy()
        core.tighten_box(self._graph, self.lower, self.upper, low, high)
        return low, high

    def data(self) -> PolytopeData:
        """The graph as arrays: only live vertices, only rows that are tight somewhere."""
        if self._data is None:
            self._data = self._table()
        return self._data

    def _table(self) -> PolytopeData:
        live = np.flatnonzero(self._alive[: self._sizes[0]])
        number = np.full(self._sizes[0], -1, np.int32)
        number[live] = np.arange(len(live), dtype=np.int32)
        basis = self._basis[live]
        tight = np.zeros(self._sizes[1], bool)
        tight[basis] = True
        used = np.flatnonzero(tight)
        basis = (np.cumsum(tight, dtype=np.int32) - 1)[basis].astype(np.int32)
        rows = self._rows[used]
        data = polytope_data(len(live), rows, self._rhs[used], self._loose[used], self.lower, self.upper, complete=True)
        if core.fill_table(data, len(live), basis, self._point[live], number[self._neighbour[live]]):
            raise GraphError("a basis of the vertex graph is singular")
        return data


def complete_graph(
    rows: np.ndarray, rhs: np.ndarray, lower: np.ndarray, upper: np.ndarray, max_vertices: int = MAX_VERTICES
) -> VertexGraph:
    """The vertex graph of {rows x <= rhs, lower <= x <= upper}, rows (m, n); GraphError if it cannot be built."""
    for attempt in range(ATTEMPTS):
        graph = VertexGraph(lower, upper, PERTURBATION * 10.0**attempt, max_vertices)
        try:
            graph.cut(rows, rhs)
            graph.data()
        except GraphError as error:
            if attempt == ATTEMPTS - 1 or "more than" in str(error):
                raise
        else:
            return graph
    raise AssertionError("unreachable: the last attempt returns or raises")


def lazy_graph(
    rows: np.ndarray,
    rhs: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    tight: np.ndarray,
    loose: np.ndarray,
    capacity: int = MAX_VERTICES,
) -> PolytopeData:
    """A table with one vertex of rows (m, n), where ``tight`` (n,) are tight; queries extend it by `grow_table`.

    rhs, loose : (m,) right-hand sides, true and loosened; the vertex is one of the loosened polytope.
    """
    slots = 1 << int(np.ceil(np.log2(2 * capacity)))
    data = polytope_data(capacity, rows, rhs, loose, lower, upper, complete=False, slots=slots)
    if not core.first_vertex(data, np.sort(tight).astype(np.int32)):
        raise GraphError("the first basis is singular")
    return data
