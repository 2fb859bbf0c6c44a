"""HiGHS, the linear programming solver: the one file that imports it.

`regions.lp` turns its answers into certified bounds; `minimiser` is for points that need no certificate: starting
points, or points that the caller verifies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: columns up to which the simplex method is used: on the flow of many states it takes minutes where others take seconds
SIMPLEX_COLUMNS = 5_000


def new_solver(
    A: tuple[np.ndarray, np.ndarray, np.ndarray], b: np.ndarray, lower: np.ndarray, upper: np.ndarray, time_limit: float
) -> Any:
    """A silent, single-threaded ``Highs`` for {x : A x ≤ b, lower ≤ x ≤ upper}; A as (indptr, indices, data) of CSR."""
    import highspy

    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("presolve", "off")  # it would discard the warm basis
    solver.setOptionValue("time_limit", float(time_limit))
    start, index, value = A
    solver.passModel(  # twice as fast as with a HighsLp, whose arrays are copied number by number
        len(lower),
        len(b),
        len(value),
        int(highspy.MatrixFormat.kRowwise),
        int(highspy.ObjSense.kMinimize),
        0.0,
        np.zeros(len(lower)),
        lower,
        upper,
        np.full(len(b), -np.inf),
        b,
        start.astype(np.int32),
        index.astype(np.int32),
        value,
        np.zeros(len(lower), dtype=np.int32),  # all variables are continuous
    )
    return solver


def add_rows(solver: Any, A: tuple[np.ndarray, np.ndarray, np.ndarray], b: np.ndarray) -> None:
    """Add the rows A x ≤ b; A as in `new_solver`."""
    start, index, value = A
    solver.addRows(len(b), np.full(len(b), -np.inf), b, len(value), start[:-1], index, value)


def move_box(solver: Any, lower: np.ndarray, upper: np.ndarray) -> None:
    """Replace the bounds of x by lower ≤ x ≤ upper."""
    solver.changeColsBounds(len(lower), np.arange(len(lower), dtype=np.int32), lower, upper)


def solved(solver: Any, c: np.ndarray) -> tuple[np.ndarray, np.ndarray | None, str]:
    """(minimiser (n,) of c·x, multipliers (m,) y ≥ 0 of the rows, None unless optimal, and the status)."""
    solver.changeColsCost(len(c), np.arange(len(c), dtype=np.int32), c)
    solver.run()
    solution = solver.getSolution()
    if not is_optimal(solver):
        status = solver.modelStatusToString(solver.getModelStatus())
        solver.clearSolver()  # forget a basis that led nowhere
        return np.zeros(len(c)), None, status
    return np.array(solution.col_value), np.maximum(-np.array(solution.row_dual), 0.0), "Optimal"


def is_optimal(solver: Any) -> bool:
    import highspy

    return solver.getModelStatus() == highspy.HighsModelStatus.kOptimal


def tight(solver: Any) -> tuple[list[int], list[int], list[int]]:
    """Rows at their bound, columns at their upper and columns at their lower bound, in the final basis."""
    import highspy

    kind, basis = highspy.HighsBasisStatus, solver.getBasis()
    columns = list(enumerate(basis.col_status))
    return (
        [i for i, s in enumerate(basis.row_status) if s == kind.kUpper],
        [j for j, s in columns if s == kind.kUpper],
        [j for j, s in columns if s == kind.kLower],
    )


def minimiser(c: np.ndarray, A: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """A minimiser (n,) of c·x over {A x ≤ b} with dense A (m, n), up to HiGHS' tolerances; None unless optimal."""
    m, n = A.shape
    dense = (np.arange(0, m * n + 1, n), np.tile(np.arange(n), m), np.ascontiguousarray(A, dtype=float).ravel())
    solver = new_solver(dense, np.asarray(b, dtype=float), np.full(n, -np.inf), np.full(n, np.inf), 60.0)
    solver.changeColsCost(n, np.arange(n, dtype=np.int32), np.asarray(c, dtype=float))
    solver.run()
    return np.array(solver.getSolution().col_value) if is_optimal(solver) else None


def linear_program(
    c: np.ndarray,
    A: tuple[np.ndarray, np.ndarray, np.ndarray],
    lower: np.ndarray,
    upper: np.ndarray,
    tolerance: float = 1e-7,
) -> tuple[np.ndarray, np.ndarray] | None:
    """(x (n,), multipliers of the rows (m,)) of min c·x over {x ≥ 0, lower ≤ A x ≤ upper}; None unless optimal."""
    import highspy

    n = len(c)
    solver = new_solver(A, upper, np.zeros(n), np.full(n, np.inf), 60.0)
    solver.setOptionValue("presolve", "on")
    if n > SIMPLEX_COLUMNS:
        solver.setOptionValue("solver", "ipm")  # ends in a vertex, too
    for side in ("primal", "dual"):
        solver.setOptionValue(f"{side}_feasibility_tolerance", tolerance)
    solver.changeColsCost(n, np.arange(n, dtype=np.int32), np.asarray(c, dtype=float))
    for row in np.flatnonzero(np.isfinite(lower)).tolist():
        solver.changeRowBounds(row, float(lower[row]), float(upper[row]))
    solver.run()
    if (
        not is_optimal(solver)
        or solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible
    ):
        return None
    found = solver.getSolution()
    return np.array(found.col_value), np.array(found.row_dual)
