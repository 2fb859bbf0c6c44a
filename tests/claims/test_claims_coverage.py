"""All statements of improvements, of certificates within limits and of curves hold at once, at every look of a run."""

from __future__ import annotations

import pytest

from tests.claims import coverage

pytestmark = pytest.mark.short_runs


@pytest.mark.parametrize("runs", [3, pytest.param(1000, marks=pytest.mark.nightly)])
def test_no_more_runs_miss_than_delta_allows(runs):
    delta = 0.1
    missed = list(coverage.runs(runs, delta, seed=100))
    assert sum(map(any, missed)) <= delta * runs
