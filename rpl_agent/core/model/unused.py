"""Parameters that no expression uses: projected away before anything is learned.

A file or a domain may name a parameter that no transition depends on. The data carry no information about it and no
value depends on it, so regions are built for the model without it, over the projection of D onto the used parameters.
Regions are in the reduced coordinates x of the expressions, which are the same for both models.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy

from rpl_agent.core.model.caching import cached_on
from rpl_agent.core.model.domain import Domain
from rpl_agent.core.model.expressions import ExpressionTable
from rpl_agent.core.model.pmdp import ParametricMDP
from rpl_agent.core.native import UNIT_ROUNDOFF

#: elimination stops at this many rows: a larger domain is kept unchanged
MOST_ROWS = 2_000


def used_parameters(table: ExpressionTable) -> np.ndarray:
    """(d,) bool: the parameters that occur in some expression."""
    if table.is_plain:
        return np.ones(table.num_parameters, dtype=bool)
    return np.asarray((table.monomials != 0).any(axis=0))


def without_unused(pmdp: ParametricMDP) -> ParametricMDP:
    """The model over the used parameters, or the model itself if all (or none) of them are used."""
    used = used_parameters(pmdp.table)
    if used.all() or not used.any():
        return pmdp
    found = cached_on(pmdp, "without unused parameters", _projected)
    return pmdp if found is None else found


def _projected(pmdp: ParametricMDP) -> ParametricMDP | None:
    used, table = used_parameters(pmdp.table), pmdp.table
    domain = projection(pmdp.domain, used)
    if domain is None:
        return None
    smaller = ExpressionTable(
        domain.parameters, table.monomials[:, used], (table.indptr, table.indices, table.data), table.denominators
    )
    return replace(pmdp, table=smaller, domain=domain)


def projection(domain: Domain, used: np.ndarray) -> Domain | None:
    """The projection of D onto the parameters in ``used`` (d,), rounded outward; None if it has too many rows.

    Fourier-Motzkin: a parameter is eliminated by adding every row that bounds it from above to every row that bounds
    it from below, scaled so that it cancels. Bounds alone leave nothing behind.
    """
    if scipy.sparse.issparse(domain.A):
        return _projection_by_groups(domain, used)
    A, b = domain.A, domain.b
    for j in np.flatnonzero(~used):
        unit = np.eye(domain.dimension)[j]
        rows = np.vstack([A, unit, -unit])
        right = np.concatenate([b, [domain.upper[j], -domain.lower[j]]])
        above, below = np.flatnonzero(rows[:, j] > 0), np.flatnonzero(rows[:, j] < 0)
        kept = np.flatnonzero(rows[:, j] == 0)
        if len(kept) + len(above) * len(below) > MOST_ROWS:
            return None
        first, second = np.repeat(above, len(below)), np.tile(below, len(above))
        factor, other = -rows[second, j][:, None], rows[first, j][:, None]
        sums = factor * rows[first] + other * rows[second]
        sums[:, j] = 0.0
        totals = factor[:, 0] * right[first] + other[:, 0] * right[second]
        size = np.abs(factor[:, 0] * right[first]) + np.abs(other[:, 0] * right[second])
        reach = np.maximum(np.abs(domain.lower), np.abs(domain.upper))
        size += (np.abs(factor * rows[first]) + np.abs(other * rows[second])) @ reach
        totals += 8.0 * UNIT_ROUNDOFF * size
        real = sums.any(axis=1)
        A, b = np.vstack([rows[kept], sums[real]]), np.concatenate([right[kept], totals[real]])
    names = tuple(name for name, keep in zip(domain.parameters, used) if keep)
    return Domain(names, domain.lower[used], domain.upper[used], A[:, used], b)


def _projection_by_groups(domain: Domain, used: np.ndarray) -> Domain | None:
    """`projection` of a domain with sparse rows: each group of linked parameters on its own, with dense rows."""
    A: Any = domain.A
    has_unused = np.isin(domain.linked, domain.linked[~used])  # (d,) parameters linked to one that is not used
    untouched = np.flatnonzero(~(A != 0)[:, np.flatnonzero(has_unused)].sum(axis=1).astype(bool))
    rows, right = [A[untouched]], [domain.b[untouched]]
    for label in np.unique(domain.linked[has_unused]):
        own = np.flatnonzero(domain.linked == label)
        smaller = projection(domain.part(own), used[own])
        if smaller is None:
            return None
        place = own[used[own]]
        entries = scipy.sparse.coo_array(smaller.A)
        shape = (len(smaller.b), domain.dimension)
        rows.append(scipy.sparse.csr_array((entries.data, (entries.row, place[entries.col])), shape=shape))
        right.append(smaller.b)
    kept = scipy.sparse.csr_array(scipy.sparse.vstack(rows))[:, np.flatnonzero(used)]
    names = tuple(name for name, keep in zip(domain.parameters, used) if keep)
    return Domain(names, domain.lower[used], domain.upper[used], scipy.sparse.csr_array(kept), np.concatenate(right))
