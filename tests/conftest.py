"""The fast lane: `pytest -m "not slow"` runs the tests that tests/fast.txt names, some of every file.

All other tests are marked slow here, so a new test is slow until somebody adds it to the list. One list instead of a
marker on most tests: what the lane costs can be seen, and changed, in one place.

The last line of a run says what it compiled, in processor seconds: nothing when the cache of machine code was full.
Where tests run in several processes (`make test`), it is what all of them compiled. No kernel may be compiled twice for
the same kind of arguments: a caller that makes a second kind is found at the end.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from numba.core import event, types

from rpl_agent.compiling import kernels

HERE = Path(__file__).resolve().parent


class CompileClock(event.Listener):
    """How many signatures were compiled in this process (its children not included), and for how long."""

    def __init__(self) -> None:
        self.count, self.seconds = 0, 0.0
        self._depth, self._begun = 0, 0.0

    def on_start(self, event: Any) -> None:
        if self._depth == 0:
            self._begun = time.process_time()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.count += 1
            self.seconds += time.process_time() - self._begun


def _kind(argument: types.Type) -> Any:
    """Of a kernel's argument, without what should not make a second kernel of it: layout, mutability, width."""
    if isinstance(argument, types.Array):
        return argument.ndim, type(argument.dtype)
    if isinstance(argument, types.BaseNamedTuple):
        return tuple(_kind(field) for field in argument)
    return argument


def _twins() -> list[str]:
    """Kernels that were compiled more than once for the same kind of arguments."""
    kinds = Counter((k.py_func.__qualname__, tuple(map(_kind, args))) for k in kernels() for args in k.overloads)
    return sorted({name for (name, _), count in kinds.items() if count > 1})


@pytest.fixture(scope="session", autouse=True)
def no_kernel_has_a_twin() -> Iterator[None]:
    yield
    assert not _twins(), "compiled twice, for arrays that differ in layout, mutability or width (see jit.read_only)"


clock = CompileClock()


def pytest_configure() -> None:
    event.register("numba:compile", clock)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # one of several processes
        session.config.workeroutput["compiled"] = clock.count, clock.seconds


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    count, seconds = getattr(node, "workeroutput", {}).get("compiled", (0, 0.0))  # nothing from one that crashed
    clock.count, clock.seconds = clock.count + count, clock.seconds + seconds


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"compiled {clock.count} signatures in {clock.seconds:.1f} CPU s")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    fast = set((HERE / "fast.txt").read_text().split())
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name.removeprefix("tests/") not in fast:
            item.add_marker(pytest.mark.slow)
