"""Options of numba that `rpl_agent.jit.njit` needs and numba does not promise: they exist and do what they should."""

from __future__ import annotations

import numpy as np
import pytest
from numba.core.options import DefaultOptions

from rpl_agent.jit import njit


def alternating_sum(low, high):
    """Chooses between arrays, as the kernels do: numba counts references to the one that is chosen."""
    total = 0.0
    for i in range(low.shape[0]):
        values = high if i % 2 == 1 else low
        total += values[i]
    return total


def machine_code(**options):
    """(result, LLVM code) of `alternating_sum` compiled with options of our njit."""
    kernel = njit(cache=False, **options)(alternating_sum)
    result = kernel(np.zeros(6), np.ones(6))
    return result, kernel.inspect_llvm(kernel.signatures[0])


@pytest.mark.parametrize("option", ["_nrt", "forceinline"])
def test_numba_still_has_the_option(option):
    assert hasattr(DefaultOptions, option)


def test_borrowing_leaves_out_reference_counts():
    counted, plain = machine_code()
    borrowed, lean = machine_code(borrows=True)
    assert counted == borrowed == 3.0
    assert "NRT_decref" in plain  # else this test says nothing about the option
    assert "NRT_incref" not in lean and "NRT_decref" not in lean


def test_a_part_is_always_inlined_and_borrows():
    assert "alwaysinline" not in machine_code(borrows=True)[1]
    result, code = machine_code(part=True)
    assert result == 3.0
    assert "alwaysinline" in code and "NRT_decref" not in code
