"""A few rounds of the fuzz over polynomial models; `python -m benchmarks fuzz --polynomial` runs many."""

import pytest

from tests.reference.polynomials import round_of


@pytest.mark.parametrize("first", [0, *(pytest.param(k, marks=pytest.mark.nightly) for k in (20, 40))])
def test_bounds_hold_at_every_parameter_of_a_region(first):
    asked = 0
    for seed in range(first, first + 20):
        tally = round_of(seed)
        assert tally.failures == []
        asked += sum(tally.problems.values())
    assert asked >= 20
