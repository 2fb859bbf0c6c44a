"""All vertices of small polytopes: against Qhull, and what is noticed if one is missing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import ConvexHull, HalfspaceIntersection

from rpl_agent.core.coupled.vertices import enumeration as vertices
from rpl_agent.core.coupled.vertices.enumeration import vertices_of
from rpl_agent.core.regions.base import Box
from rpl_agent.core.regions.polytope import Polytope


def drawn(d: int, seed: int) -> Polytope:
    """A polytope around 0."""
    rng = np.random.default_rng(seed)
    return Polytope(rng.normal(size=(3 * d, d)), rng.uniform(0.5, 2.0, 3 * d), -np.ones(d), np.ones(d))


@pytest.mark.parametrize("d", [2, 3, 5])
def test_vertices_are_those_of_qhull(d):
    region = drawn(d, d)
    found = vertices_of(region, 10_000)
    rows = np.vstack([region.A, np.eye(d), -np.eye(d)])
    ends = np.concatenate([region.b, np.ones(2 * d)])
    expected = HalfspaceIntersection(np.column_stack([rows, -ends]), np.zeros(d)).intersections
    assert len(found.points) == len(np.unique(expected.round(7), axis=0)) and found.error < 1e-11
    distance = np.abs(found.points[:, None] - expected[None]).max(axis=2).min(axis=1)
    assert distance.max() < 1e-8  # rows are loosened by less
    assert np.isclose(ConvexHull(found.points).volume, ConvexHull(expected).volume, rtol=1e-7)


def test_a_missing_vertex_is_noticed():
    table = drawn(4, 7).kernel().polytope
    count = int(table.counts[0])
    given = [np.asarray(part[:count]) for part in (table.basis, table.point)]
    assert vertices._checked(table.rows, table.loose, *given) is not None
    for k in range(count):
        assert vertices._checked(table.rows, table.loose, *(np.delete(part, k, axis=0) for part in given)) is None


def test_a_vertex_that_is_cut_off_is_noticed():
    table = drawn(3, 2).kernel().polytope
    count = int(table.counts[0])
    basis, points = np.asarray(table.basis[:count]), np.asarray(table.point[:count])
    rows, ends = np.vstack([table.rows, points[0]]), np.append(table.loose, points[0] @ points[0] - 1e-3)
    assert vertices._checked(rows, ends, basis, points) is None


def test_boxes_and_what_is_refused():
    found = vertices_of(Box(np.array([0.0, 2.0]), np.array([1.0, 3.0])), 4)
    assert sorted(map(tuple, found.points)) == [(0.0, 2.0), (0.0, 3.0), (1.0, 2.0), (1.0, 3.0)]
    assert vertices_of(Box(np.zeros(3), np.ones(3)), 4) is None
    assert vertices_of(drawn(3, 1), 3) is None
    empty = Polytope(np.array([[1.0, 1.0]]), np.array([-1.0]), np.zeros(2), np.ones(2))
    assert vertices_of(empty, 100) is None
