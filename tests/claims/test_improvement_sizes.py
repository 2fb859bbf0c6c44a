"""How long a log has to grow until an improvement is certified, as the benchmark reads it."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from benchmarks import bench_improvement as benchmark


@pytest.mark.parametrize("needed", [0, 1, 3, 7, 10, 51, 73, 99, 130, 4321, math.inf])
def test_the_size_of_a_log_is_found_to_a_tenth(needed, monkeypatch):
    tried = []

    def found(_, size, *__, **___):
        tried.append(size)
        return SimpleNamespace(improves=size >= needed, policy=None, lower=0.0)

    monkeypatch.setattr(benchmark.worlds, "logged", lambda *given: given[4])
    monkeypatch.setattr(benchmark, "improve", found)
    monkeypatch.setattr(benchmark, "true_value", lambda *_: 1.0)
    size, holds = benchmark._first(None, None, None, None, benchmark.SIZES, 0, 10)
    assert holds
    if math.isinf(needed):
        assert math.isinf(size)
        return
    fails = max((one for one in tried if one < needed), default=-1)
    assert fails < needed <= size in tried
    assert size - fails <= max(1, size / 10)
