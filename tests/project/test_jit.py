"""Options of numba that `rpl_agent.jit.njit` needs and numba does not promise: they exist and do what they should."""

from __future__ import annotations

import gc

import numba
import numpy as np
import pytest
from numba.core import base
from numba.core.errors import TypingError
from numba.core.ir import Inst
from numba.core.options import DefaultOptions
from numba.core.postproc import PostProcessor
from numba.core.types.functions import BaseFunction
from numba.core.typing.context import BaseContext
from numba.core.typing.templates import _OverloadFunctionTemplate
from numba.np import arrayobj

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


def test_without_allocation_no_references_are_counted():
    counted, plain = machine_code()
    same, lean = machine_code(allocates=False)
    assert counted == same == 3.0
    assert "NRT_decref" in plain  # else this test says nothing about the option
    assert "NRT_incref" not in lean and "NRT_decref" not in lean


def test_a_part_is_always_inlined_and_counts_no_references():
    assert "alwaysinline" not in machine_code(allocates=False)[1]
    result, code = machine_code(part=True)
    assert result == 3.0
    assert "alwaysinline" in code and "NRT_decref" not in code


def test_a_callee_is_a_part_of_its_callers_and_nothing_else():
    @njit(cache=False)
    def half(x, sign):
        return 0.5 * x * sign

    @njit(cache=False)
    def whole(x, sign):
        return half(x, sign) - half(x, -1)

    assert whole(3.0, 1) == 3.0
    assert len(half._parts) == 1  # -1 is an int64 like any other
    assert not half.overloads and len(whole.overloads) == 1
    assert half(3.0, 1) == 1.5 and len(half.overloads) == 1  # Python may call it all the same
    part = next(iter(half._parts.values())).library
    assert part._finalized and not hasattr(part, "_compiled_object")


def internals():
    """What a compilation exchanges for its time."""
    return (
        BaseFunction.get_call_type, _OverloadFunctionTemplate._get_jit_decorator, BaseContext.resolve_value_type,
        PostProcessor.run, Inst._rec_list_vars, base._has_loc, arrayobj.make_array, gc.isenabled(),
    )  # fmt: skip


def test_numba_is_left_as_it_was():
    """Also after an error: what is changed for the time of a compilation is changed back."""
    before = internals()

    @njit(cache=False)
    def wrong(x):
        return x.no_such_attribute

    with pytest.raises(TypingError, match="no_such_attribute"):
        wrong(1.0)
    assert machine_code()[0] == 3.0
    assert internals() == before
    assert numba.njit(lambda x: max(x, 2.0) + np.zeros(3).sum())(1.0) == 2.0  # and other kernels still compile


def test_both_kinds_find_their_own_implementations():
    """numba's functions are compiled for callers that count references and for callers that do not."""

    def filled(n, value):
        total = 0.0
        for _ in range(n):
            total = max(total + abs(value), value)
        return total

    def allocates(n, value):
        return np.full(n, max(value, 0.0)).sum()

    for _ in range(2):
        assert njit(cache=False, allocates=False)(filled)(3, -2.0) == 6.0
        assert njit(cache=False)(allocates)(3, 2.0) == 6.0
