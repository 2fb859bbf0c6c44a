"""Slow, obvious twins of the baselines' kernels."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog


def best_in_l1_ball(probability, values, radius, maximise):
    """max / min of p·values over ‖p − probability‖₁ ≤ radius within the simplex, as a linear programme."""
    n = len(values)
    sign = -1.0 if maximise else 1.0
    cost = np.concatenate([sign * np.asarray(values), np.zeros(n)])
    eye = np.eye(n)
    A = np.vstack([np.hstack([eye, -eye]), np.hstack([-eye, -eye]), np.concatenate([np.zeros(n), np.ones(n)])])
    b = np.concatenate([probability, -np.asarray(probability), [radius]])
    total = np.concatenate([np.ones(n), np.zeros(n)])[None]
    # HiGHS is feasible to 1e-7 unless told otherwise, which is more than a small ball
    exact = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    bounds = [(0, 1)] * n + [(0, None)] * n
    result = linprog(cost, A_ub=A, b_ub=b, A_eq=total, b_eq=[1.0], bounds=bounds, options=exact)
    assert result.status == 0
    return sign * result.fun
