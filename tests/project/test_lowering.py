"""Kernels do what the same Python does, in every case that `rpl_agent.lowering` writes in its own way."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from numba.core.errors import TypingError
from numba.core.runtime import _nrt_python, rtsys

from rpl_agent.jit import njit

EVEN = 2


def element(a, i):
    return a[i]


def corner(a, i, j):
    return a[i, j], a[i][j], a[-1, 0]


def write(a, i, x):
    a[i] = x
    a[0] = x
    return a.copy()


def write_corner(a, i, j, x):
    a[i, j] = x
    a[0, -1] = x
    return a.copy()


def counted(n):
    seen = 0
    for i in range(n):
        for j in range(i, n):
            seen += 10 * i + j
    return seen


def stepped(start, stop, step):
    seen = 0
    for i in range(start, stop, step):
        seen = 3 * seen + i
    return seen


def left_early(n):
    last = -1
    for i in range(n):
        last = i
        if i == 3:
            break
    for _ in range(2):
        for i in range(n):
            if i == 1:
                continue
            last += i
    return last


def iterated_twice(n):
    numbers = range(n)
    seen = 0
    for i in numbers:
        for j in numbers:
            seen = seen * 7 + i - j
    return seen


def arithmetic(x, y, n):
    half = x / EVEN
    more = n + 1
    more -= 2
    return half + y, x - y, x * y, x < y, x <= y, x == y, x != n, n >= more, more * x, more > EVEN


def shapes(a):
    rows, columns = a.shape
    return rows, columns, a.shape[1], len(a), a.T.shape[0]


def swapped(a, b):
    for _ in range(3):
        a, b = b, a
    return a[0], b[0]


CASES = [
    (element, np.array([1.5, 2.5, 3.5]), 1),
    (element, np.array([1.5, 2.5, 3.5]), -1),
    (element, np.array([True, False]), 0),
    (element, np.arange(5, dtype=np.int32), np.int32(-2)),
    (element, np.arange(5, dtype=np.int8), np.uint8(4)),
    (element, np.arange(10.0)[::3], 2),
    (element, np.arange(6.0).reshape(2, 3), 1),
    (corner, np.arange(6.0).reshape(2, 3), 1, 2),
    (corner, np.asfortranarray(np.arange(6.0).reshape(2, 3)), 1, -2),
    (corner, np.arange(24.0).reshape(4, 6)[::2, ::3], -1, 1),
    (write, np.zeros(3), 2, 1),
    (write, np.zeros(3, dtype=np.bool_), -1, True),
    (write, np.zeros(3, dtype=np.int32), np.int32(1), 7),
    (write, np.zeros((3, 2)), 1, 4.0),
    (write_corner, np.zeros((2, 3)), -1, 1, 2.5),
    (write_corner, np.zeros((2, 3), order="F"), 1, 2, np.float32(0.5)),
    (counted, 0),
    (counted, 9),
    (counted, -3),
    (counted, np.int32(6)),
    (stepped, 0, 10, 3),
    (stepped, 10, 0, -3),
    (stepped, 0, 0, 1),
    (stepped, 5, 0, 1),
    (left_early, 0),
    (left_early, 9),
    (iterated_twice, 4),
    (arithmetic, 0.1, 0.3, 5),
    (arithmetic, 2, 3.0, 2),
    (arithmetic, -0.0, 0.0, 0),
    (shapes, np.zeros((2, 5))),
    (swapped, np.ones(2), np.zeros(2)),
]


@pytest.mark.parametrize(("function", "arguments"), [(case[0], case[1:]) for case in CASES])
def test_a_kernel_does_what_python_does(function, arguments):
    given = [a.copy(order="K") if isinstance(a, np.ndarray) else a for a in arguments]
    kernel = njit(cache=False)(function)
    np.testing.assert_array_equal(np.hstack(np.ravel(kernel(*arguments))), np.hstack(np.ravel(function(*given))))


def test_a_range_that_another_function_made_keeps_its_step():
    @njit(cache=False)
    def odd(n):
        return range(1, n, 2)

    @njit(cache=False)
    def digits(n):
        seen = 0
        for i in odd(n):
            seen = 10 * seen + i
        return seen

    assert digits(8) == 1357


def test_without_references_arrays_change_places_too():
    assert njit(cache=False, allocates=False)(swapped)(np.ones(2), np.zeros(2)) == (0.0, 1.0)


def test_arrays_that_cannot_be_written_are_read_and_not_written():
    fixed = np.arange(3.0)
    fixed.setflags(write=False)
    assert njit(cache=False)(element)(fixed, -1) == 2.0
    with pytest.raises(TypingError, match="readonly"):
        njit(cache=False)(write)(fixed, 0, 1.0)


def test_a_step_of_zero_and_a_division_by_zero_are_errors():
    with pytest.raises(ValueError, match="range"):
        njit(cache=False)(stepped)(0, 3, 0)
    with pytest.raises(ZeroDivisionError):
        njit(cache=False)(lambda x, y: x / y)(1.0, 0.0)


def test_arrays_that_are_overwritten_or_left_behind_are_freed():
    @njit(cache=False)
    def grown(n):
        kept = np.zeros(1)
        total = 0.0
        for i in range(n):
            kept = np.empty(i + 1)
            kept[i] = 1.0 * i
            row = np.zeros((2, i + 1))[1]
            total += kept[-1] + row[0]
            if i % 3 == 2:
                continue
            kept = row
        return kept, total

    grown(2)
    gc.collect()
    _nrt_python.memsys_enable_stats()
    before = rtsys.get_allocation_stats()
    for _ in range(50):
        kept, total = grown(10)
    assert total == 45.0 and kept.shape == (10,)
    del kept
    gc.collect()
    after = rtsys.get_allocation_stats()
    _nrt_python.memsys_disable_stats()
    assert after.alloc - before.alloc == after.free - before.free > 500


def test_errors_name_their_line():
    @njit(cache=False)
    def wrong(a):
        return a[0].nothing

    with pytest.raises(TypingError, match=r"test_lowering\.py"):
        wrong(np.zeros(2))
