"""Certified curves coincide with the fronts that MO-Gymnasium publishes for its tabular worlds."""

from __future__ import annotations

import pytest

pytest.importorskip("mo_gymnasium")

from benchmarks import bench_fronts


@pytest.mark.parametrize("part", bench_fronts.FRONTS, ids=lambda part: f"{part[0]} {part[1]}")
def test_curves_are_the_published_fronts(part):
    name, pair, episodes = part
    found = bench_fronts._front(name, pair, episodes, smoke=False, points=7)
    assert not any("failure" in row for row in found)
    last = found[-1]
    assert last["outside"] < (1e-4 if name != "resource_gathering" else 0.02)
    assert last["inside"] < (1e-4 if name != "resource_gathering" else 0.02)
    if len(found) > 1:  # closer with more data
        assert last["outside"] < found[0]["outside"] and last["inside"] <= found[0]["inside"]
