"""All statements of improvements and of certificates within limits hold at once, at every look of a run."""

from __future__ import annotations

import pytest

from tests.claims import coverage


@pytest.mark.parametrize("runs", [2, pytest.param(1000, marks=pytest.mark.nightly)])
def test_no_more_runs_miss_than_delta_allows(runs):
    delta = 0.1
    missed = list(coverage.runs(runs, delta, seed=100))
    assert max(sum(gain for gain, _ in missed), sum(limit for _, limit in missed)) <= delta * runs
