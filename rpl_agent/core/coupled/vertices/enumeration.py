"""All vertices of a small region, checked to be all."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.core.regions.base import Box, Region
from rpl_agent.core.regions.polytope import Polytope


class Vertices(NamedTuple):
    """The region lies in the convex hull of points that differ from these by at most ``error`` in each coordinate."""

    points: np.ndarray  # (n, d)
    error: float


def vertices_of(region: Region, most: int) -> Vertices | None:
    """The vertices of a box or a polytope; None if there are more than ``most``, or if they cannot be found."""
    if region.dimension == 1 or isinstance(region, Box):
        low, high = region.box()
        if 2 ** len(low) > most:
            return None
        picks = np.indices((2,) * len(low)).reshape(len(low), -1).T
        return Vertices(np.where(picks == 1, high, low), 0.0)
    kernel = region.kernel() if isinstance(region, Polytope) and region.method == "vertices" else None
    table = None if kernel is None or region.is_empty else kernel.polytope
    if table is None or table.counts[0] > most:
        return None
    count = int(table.counts[0])
    return _checked(table.rows, table.loose, np.asarray(table.basis[:count]), np.asarray(table.point[:count]))


def _checked(rows: np.ndarray, rhs: np.ndarray, basis: np.ndarray, points: np.ndarray) -> Vertices | None:
    """The vertices of {rows x ≤ rhs} where ``basis`` (n, d) is tight; None if some may be missing.

    The solutions of feasible bases are vertices. If no vertex is degenerate, every edge, which is a basis without one
    of its rows, ends in two of them; so if each edge of these vertices is found twice, no edge leads to a further one,
    and as the graph of a polytope is connected, there is none.
    """
    d = basis.shape[1]
    try:
        inverse = np.linalg.inv(rows[basis])
    except np.linalg.LinAlgError:
        return None
    size = np.abs(rows) @ np.abs(points).T + np.abs(rhs)[:, None]
    room = rhs[:, None] - rows @ points.T  # (m, n)
    lost = 4.0 * (d + 2.0) * UNIT_ROUNDOFF * size
    tight = np.take_along_axis(room, basis.T, axis=0).T
    missed = np.abs(tight) + np.take_along_axis(lost, basis.T, axis=0).T
    error = 2.0 * float(np.einsum("nij,nj->ni", np.abs(inverse), missed).max(initial=0.0))
    defect = np.abs(inverse @ rows[basis] - np.eye(d)).sum(axis=2).max(initial=0.0)
    loose = np.ones(room.shape, bool)
    np.put_along_axis(loose, basis.T, False, axis=0)
    reach = error * np.abs(rows).sum(axis=1)[:, None] + lost
    if not (defect < 0.1 and (room > reach)[loose].all()):  # every other row has room: feasible, and not degenerate
        return None
    edges = np.sort(np.concatenate([np.delete(basis, k, axis=1) for k in range(d)]), axis=1)
    _, times = np.unique(edges, axis=0, return_counts=True)
    return Vertices(points, error) if (times == 2).all() else None
