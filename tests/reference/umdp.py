"""From a parametric MDP back to the uncertain one that it induces (the paper, App. B): the inverse of `to_pmdp`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy import sparse
from scipy.linalg import qr

from rpl_agent.core.model.pmdp import ParametricMDP
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.intersection import Intersection
from rpl_agent.core.regions.polytope import Polytope
from rpl_agent.core.relaxations.interval import expression_bounds
from rpl_agent.core.relaxations.umdp import UncertainMDP


def to_umdp(pmdp: ParametricMDP, region: Region, slack: float = 1e-12) -> UncertainMDP:
    """The uncertain MDP that a pMDP and a set of admissible parameters induce, with explicit linear constraints.

    r transitions whose expressions are independent determine x; the region's rows become rows over them, and every
    other probability is tied to them by an equality. Exact, up to ``slack`` per row, for a polytope of an affine
    model; for other regions the polytope part and the interval hull, a superset.
    """
    table = pmdp.table
    weights, constant = table.reduction.weights, table.constant
    lower, upper = expression_bounds(region, pmdp)
    r, size = table.reduction.rank, pmdp.num_transitions
    A = sparse.csr_array((0, size))
    b = np.zeros(0)
    used, first = np.unique(pmdp.expression, return_index=True)
    if r and np.linalg.matrix_rank(weights[used]) == r:
        chosen = qr(weights[used].T, pivoting=True, mode="economic")[2][:r]
        basis, at = used[chosen], first[chosen]
        inverse = np.linalg.inv(weights[basis])  # x = inverse (p_at - constant_basis)
        select = sparse.csr_array((np.ones(r), (np.arange(r), at)), shape=(r, size))
        to_x = sparse.csr_array(inverse) @ select
        members = region.members if isinstance(region, Intersection) else [region]
        rows = [m for m in members if isinstance(m, Polytope)]
        parts, right = [], []
        for m in rows:
            parts.append(sparse.csr_array(m.A) @ to_x)
            right.append(m.b + m.A @ (inverse @ constant[basis]))
        low, high = region.box()
        shift = inverse @ constant[basis]
        parts += [to_x, -to_x]
        right += [high + shift, -low - shift]
        tie = sparse.eye_array(size, format="csr") - sparse.csr_array(weights[pmdp.expression]) @ to_x
        value = constant[pmdp.expression] - weights[pmdp.expression] @ shift
        free = ~(table.is_constant[pmdp.expression]) & ~np.isin(np.arange(size), at)
        parts += [sparse.csr_array(tie)[free], -sparse.csr_array(tie)[free]]
        right += [value[free], -value[free]]
        A = sparse.csr_array(sparse.vstack(parts))
        A.data[np.abs(A.data) < 1e-15] = 0.0
        A.eliminate_zeros()
        b = np.concatenate(right) + slack
    f = pmdp.expression
    return UncertainMDP(
        pmdp.state_ptr, pmdp.action, pmdp.row_ptr, pmdp.successor, lower[f], upper[f], A, b, pmdp.initial_state,
        pmdp.labels, pmdp.rewards, pmdp.action_names, pmdp.name,
    )  # fmt: skip


def is_rectangular(umdp: UncertainMDP) -> bool:
    """Whether every constraint involves one state-action pair only."""
    rows = [set(umdp.row_of[umdp.A.indices[a:b]].tolist()) for a, b in pairwise(umdp.A.indptr.tolist())]
    return all(len(some) <= 1 for some in rows)


def contains(umdp: UncertainMDP, p: np.ndarray, tol: float = 1e-9) -> bool:
    """Whether the kernel p (T,) is admissible."""
    sums = np.bincount(umdp.row_of, p, len(umdp.row_ptr) - 1)
    inside = (p >= umdp.lower - tol).all() and (p <= umdp.upper + tol).all() and np.abs(sums - 1).max() <= tol
    return bool(inside and (umdp.A @ p <= umdp.b + tol).all())
