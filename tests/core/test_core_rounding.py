"""The compiler rounds every operation by itself and in order: the core against rationals, and builds that do not."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import cffi
import numpy as np
import pytest

from rpl_agent.core.native import build, core

ROOT = Path(__file__).resolve().parents[2]
SIZE = 64
RNG = np.random.default_rng(3)
A, B, C = (RNG.uniform(1.0, 2.0, SIZE) for _ in range(3))
C[1:] = A[1:] * B[1:]  # what is left is the rounding of the product: nothing where it is rounded
A[0] = 2.0**53


def exact() -> list[list[float]]:
    """What `rounded_once` must give, by rationals: `float` rounds one once, to the nearest."""
    a, b, c = ([Fraction(float(x)) for x in v] for v in (A, B, C))
    fused = [float(Fraction(float(x * y)) - z) for x, y, z in zip(a, b, c)]
    total = Fraction(0)
    for y in b:
        total = Fraction(float(total + y))
    return [fused, [float(x / c[0]) for x in a], [float(total), float(Fraction(float(a[0] + b[0])) - a[0])]]


def test_the_core_rounds_each_operation():
    found = np.empty(SIZE), np.empty(SIZE), np.empty(2)
    core.rounded_once(SIZE, A, B, C, *found)
    assert [f.tolist() for f in found] == exact()


def found_by(path: str) -> list[list[float]]:
    """What the function of a library gives."""
    ffi = cffi.FFI()
    ffi.cdef("void rounded_once(int64_t, double *, double *, double *, double *, double *, double *);")
    found = np.empty(SIZE), np.empty(SIZE), np.empty(2)
    pointers = [ffi.from_buffer("double[]", v) for v in (A, B, C, *found)]
    ffi.dlopen(path).rounded_once(SIZE, *pointers)
    return [f.tolist() for f in found]


def built(folder: Path, *options: str) -> list[list[float]]:
    """The same from a build with more options, in a process of its own: fast math turns off small numbers in it."""
    target = folder / "other.so"
    command = build.compiler() or pytest.skip("no compiler")
    subprocess.run([*command, *build.FLAGS, "-shared", *options, "-o", target, build.HERE / "rounding.c"], check=True)
    program = "import sys; from tests.core.test_core_rounding import found_by; print(found_by(sys.argv[1]))"
    made = subprocess.run([sys.executable, "-c", program, target], check=True, capture_output=True, text=True, cwd=ROOT)
    return json.loads(made.stdout)


def test_other_flags_would_be_seen(tmp_path):
    """The test above can fail: it does for a build that fuses, and for one that reorders."""
    expected = exact()
    assert built(tmp_path) == expected
    fast = built(tmp_path, "-ffast-math", "-O3")
    assert fast[2] != expected[2] and fast[1] != expected[1]


def test_fused_operations_would_be_seen(tmp_path):
    try:
        fused = built(tmp_path, "-ffp-contract=fast", "-march=native")
    except subprocess.CalledProcessError:
        pytest.skip("the compiler does not know -march=native")
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists() or not {"fma", "asimd"} & set(cpuinfo.read_text().split()):
        pytest.skip("this processor is not known to have a fused operation")
    assert fused[0] != exact()[0] and any(fused[0][1:])
