"""`make sanitize`: the compiled core under the address and undefined-behaviour sanitizers of gcc.

`python -m tests.sanitize` builds the core with them and runs through it: a read past the end of an array and a division
by zero (which must be caught, else nothing below means anything), the tests of what the core computes, 10,000 problems
of the fuzz against exact rationals, and files that are damaged on purpose. `--smoke` runs a little of each. The first
error ends it with status 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from rpl_agent.core.native.build import compiler

ROOT = Path(__file__).resolve().parents[1]
FLAGS = "-UNDEBUG -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
#: What is wrong on purpose, and what must be said of it.
ALARMS = {
    "heap-buffer-overflow": (  # lengths are right, but an index in an array is not
        "rows = core.RowArrays(count=1, row_ptr=numpy.array([0, 1]), successor=numpy.zeros(1, dtype='i4'),"
        " expression=numpy.array([9], dtype='i4')); core.sum_rows(rows, numpy.zeros(3), numpy.zeros(1))"
    ),
    "division by zero": (
        "code = numpy.array([core.OP_CONSTANT, 1, 0, 0, core.OP_CONSTANT, 0, 0, 0, core.OP_MOD, 0, 1, 0]);"
        "core.run_code_columns(1, 0, code, 3, code, 1, code, numpy.zeros(3, dtype='i8'), numpy.zeros(1, dtype='i8'))"
    ),
}
KERNELS = [
    "core",
    "coupled",
    "evidence",
    "likelihood",
    "regions",
    "relaxations",
    "solver",
    "model/test_model_simulate.py",
]
PRISM = ["test_prism_models.py", "test_prism_errors.py", "test_prism_fuzz.py"]


def environment() -> dict[str, str]:
    """Python itself is not instrumented, so the sanitizers' libraries come first; its leaks are not ours."""
    command = compiler()
    if command is None or "ziglang" in command:
        raise SystemExit("make sanitize needs gcc: the compiler found here does not bring the sanitizers' libraries")
    libraries = [
        subprocess.run(
            [*command, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so", "libstdc++.so.6")  # the last: exceptions of C++ in other libraries
    ]
    if not all(map(os.path.isabs, libraries)):
        raise SystemExit(f"make sanitize needs gcc's libasan and libubsan, found {libraries}")
    return {
        **os.environ, "RPL_CORE_FLAGS": FLAGS, "LD_PRELOAD": " ".join(libraries), "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "envs")]),
    }  # fmt: skip


def build() -> None:
    """Build the core before the sanitizers' libraries are there, under which the compiler would take minutes."""
    flags = {**os.environ, "RPL_CORE_FLAGS": FLAGS, "PYTHONPATH": str(ROOT)}
    program = "import rpl_agent.core.native"  # builds the core, then cannot load it without the libraries
    subprocess.run([sys.executable, "-c", program], env=flags, cwd=ROOT, stderr=subprocess.DEVNULL)


def main() -> None:
    smoke, under = "--smoke" in sys.argv[1:], environment()
    build()
    for expected, program in ALARMS.items():
        program = f"import numpy; from rpl_agent.core.native import core; {program}"
        caught = subprocess.run([sys.executable, "-c", program], env=under, cwd=ROOT, capture_output=True, text=True)
        if caught.returncode == 0 or expected not in caught.stderr:
            raise SystemExit(f"the sanitizers did not see a {expected}:\n{caught.stderr}")
        print(f"caught on purpose: {expected}", flush=True)
    tests = [f"tests/{name}" for name in KERNELS] + [f"tests/formats/{name}" for name in PRISM]
    lane = ["tests/core"] if smoke else tests
    for command in (
        ["pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", *lane],
        ["benchmarks", "fuzz", "--problems", "200" if smoke else "10000"],
        ["benchmarks", "faults", "--only", "files", *(["--smoke"] if smoke else [])],
    ):
        began = time.perf_counter()
        if subprocess.run([sys.executable, "-m", *command], env=under, cwd=ROOT).returncode != 0:
            raise SystemExit(f"failed under the sanitizers: python -m {' '.join(command)}")
        print(f"clean: python -m {' '.join(command)} ({time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
