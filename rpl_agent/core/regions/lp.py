"""The HiGHS adapter: linear programs with valid bounds whatever the solver's tolerances.

Used for polytopes of high dimension, for checks, and for emptiness. A floating-point optimum is not a bound, but its
multipliers give one (Neumaier and Shcherbina): for y >= 0 and s = c + A'y,

    min {c.x : A x <= b, lo <= x <= hi} >= -y.b + sum_j min(s_j lo_j, s_j hi_j)

Directions are scaled to unit norm first, because HiGHS' dual tolerance is absolute. Any HiGHS status other than
"optimal" (a limit, unbounded, infeasible by tolerance) yields the bound of the box and a warning, never a wrong bound.
"""

from __future__ import annotations

import threading
import warnings
from functools import cached_property
from typing import Any

import numpy as np
import scipy

from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.highs import add_rows, move_box, new_solver, solved, tight
from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.core.regions.base import box_minimum

#: seconds for one linear program; after that the bound of the box is used
TIME_LIMIT = 60.0
#: rows with larger entries are scaled: HiGHS silently drops rows with entries beyond 1e15
LARGE = 1e12


def compressed(A: np.ndarray | scipy.sparse.csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(start, index, value) of the rows of a matrix (m, n), in the layout of a CSR array.

    Making a sparse array of scipy takes longer than solving a small program.
    """
    if not isinstance(A, np.ndarray):
        sparse = scipy.sparse.csr_array(A)
        return sparse.indptr, sparse.indices, sparse.data
    row, index = np.nonzero(A)
    start = np.searchsorted(row, np.arange(len(A) + 1))
    return start.astype(np.int32), index.astype(np.int32), np.asarray(A[row, index], np.float64)


class LinearProgram:
    """min c.x over {A x <= b, lower <= x <= upper} for many c, warm-started, one HiGHS instance per thread.

    A : (m, n) array or sparse array
    b : (m,)
    lower, upper : (n,) finite, lower <= upper
    time_limit : seconds for one query
    """

    def __init__(
        self,
        A: np.ndarray | scipy.sparse.csr_array,
        b: np.ndarray,
        lower: np.ndarray,
        upper: np.ndarray,
        time_limit: float = TIME_LIMIT,
    ) -> None:
        self._rows, self._shape = compressed(A), A.shape
        self.b, self.lower, self.upper = (np.array(a, np.float64) for a in (b, lower, upper))
        self.time_limit = time_limit
        self._local = threading.local()

    @cached_property
    def A(self) -> scipy.sparse.csr_array:
        """(m, n)."""
        start, index, value = self._rows
        return scipy.sparse.csr_array((value, index, start), shape=self._shape)

    @cached_property
    def _columns(self) -> scipy.sparse.csc_array:
        """(n, m) the transpose, cached: making it costs more than a product with it."""
        return self.A.T

    @cached_property
    def _sizes(self) -> scipy.sparse.csc_array:
        """(n, m) magnitudes of the transpose."""
        return abs(self.A).T

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_local"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._local = threading.local()

    def minimize(self, directions: np.ndarray) -> np.ndarray:
        """Certified lower bounds (k,) for directions (k, n)."""
        values = np.empty(len(directions))
        for i, c in enumerate(directions):
            values[i] = self.solve(c)[0]
        return values

    def solve(self, c: np.ndarray) -> tuple[float, np.ndarray]:
        """(certified lower bound, HiGHS' minimiser) of c.x; the minimiser is approximate, or the box corner."""
        largest = float(np.abs(c).max(initial=0.0))
        norm = largest * float(np.linalg.norm(c / largest)) if largest > 0.0 else 0.0  # squares may underflow
        trivial = float(box_minimum(c[None], self.lower, self.upper)[0])
        corner = np.where(c >= 0, self.lower, self.upper)
        if norm == 0.0 or not len(self.b):
            return trivial, corner
        # A power of two, so that scaling there and back is exact.
        scale = 2.0 ** np.floor(np.log2(norm))
        point, multipliers, status = self._run(c / scale)
        if multipliers is None:
            warnings.warn(
                f"HiGHS ended a linear program with status {status!r}; the bound of the box is used instead",
                RPLWarning,
                stacklevel=3,
            )
            return trivial, corner
        return max(trivial, scale * self._safe(c / scale, multipliers)), point

    def proves_empty(self) -> bool:
        """Whether a certified bound shows that no x satisfies all constraints.

        The least t >= 0 with A x <= b + t (scaled rows) has a certified lower bound above 0.
        """
        if (self.lower > self.upper).any():
            return True
        if not len(self.b):
            return False
        size = self._sizes.T @ np.maximum(np.abs(self.lower), np.abs(self.upper)) + np.abs(self.b)
        weight = np.where(size > 0, 2.0 ** np.ceil(np.log2(np.where(size > 0, size, 1.0))), 1.0)
        elastic = LinearProgram(
            scipy.sparse.hstack([self.A, scipy.sparse.csr_array(-weight[:, None])]),
            self.b,
            np.append(self.lower, 0.0),
            np.append(self.upper, 2.0),
            self.time_limit,
        )
        cost = np.zeros(self._shape[1] + 1)
        cost[-1] = 1.0
        return elastic.solve(cost)[0] > 0.0

    def tight_rows(self, c: np.ndarray) -> np.ndarray | None:
        """Ids of n rows tight at a minimiser of c.x; None if HiGHS finds none.

        Rows are numbered as in A, followed by x_j <= upper_j (m + 2j) and -x_j <= -lower_j (m + 2j + 1).
        """
        if self._run(c)[1] is None:
            return None
        m = self._shape[0]
        rows, at_upper, at_lower = tight(self._solver())
        rows += sorted([m + 2 * j for j in at_upper] + [m + 2 * j + 1 for j in at_lower])
        return np.array(rows) if len(rows) == self._shape[1] else None

    def optimum(self, c: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """(minimiser (n,) of c.x, multipliers (m,) y ≥ 0 of the rows, None unless HiGHS says optimal)."""
        found = self._run(c)[:2]
        return found if found[1] is not None else self._run(c)[:2]  # again, from a fresh basis

    def _run(self, c: np.ndarray) -> tuple[np.ndarray, np.ndarray | None, str]:
        return solved(self._solver(), c)

    def _solver(self) -> Any:
        if not hasattr(self._local, "highs"):
            self._local.highs = new_solver(self._rows, self.b, self.lower, self.upper, self.time_limit)
        return self._local.highs

    def _safe(self, c: np.ndarray, y: np.ndarray) -> float:
        """The bound of the module docstring for multipliers y (m,), rounding subtracted."""
        used = np.flatnonzero(y)
        reach = np.maximum(np.abs(self.lower), np.abs(self.upper))
        residual = c + self._columns @ y
        size = (np.abs(c) + self._sizes @ y) @ reach + y[used] @ np.abs(self.b[used])
        value = -(y[used] @ self.b[used]) + np.minimum(residual * self.lower, residual * self.upper).sum()
        terms = 2 * (len(used) + len(c)) + 16
        return float(value - terms * UNIT_ROUNDOFF * size * (1.0 + 1e-9))


class GrowingProgram:
    """min c.x over {A x <= b} and a box, for many boxes and ever more rows: each solve starts from the last one.

    For multipliers that are checked elsewhere: nothing here is a certified bound.
    """

    def __init__(self) -> None:
        self._solver: Any = None
        self._known = 0  # rows so far

    def optimum(
        self, c: np.ndarray, A: np.ndarray, b: np.ndarray, lower: np.ndarray, upper: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """`LinearProgram.optimum`; the first rows are those of the last call."""
        size = np.abs(A).max(axis=1, initial=0.0)
        size = np.where(size > LARGE, size, 1.0)
        A, b = A / size[:, None], b / size
        if self._solver is None:
            self._solver = new_solver(compressed(A), b, lower, upper, TIME_LIMIT)
        elif len(b) > self._known:
            add_rows(self._solver, compressed(A[self._known :]), b[self._known :])
        self._known = len(b)
        move_box(self._solver, lower, upper)
        x, multipliers, _ = solved(self._solver, c)
        if multipliers is None:
            x, multipliers, _ = solved(self._solver, c)
        return x, None if multipliers is None else multipliers / size
