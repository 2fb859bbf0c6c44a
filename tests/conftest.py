"""The fast lane: `pytest -m "not slow"` runs the tests that tests/fast.txt names, some of every file.

All other tests are marked slow here, so a new test is slow until somebody adds it to the list. One list instead of a
marker on most tests: what the lane costs can be seen, and changed, in one place.

The last line of a run says what it compiled, in processor seconds: nothing when the cache of machine code was full.
Where tests run in several processes (`make test`), it is what all of them compiled.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from numba.core import event

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
