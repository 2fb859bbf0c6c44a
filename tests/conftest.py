"""The fast lane: `pytest -m "not slow"` runs the tests that tests/fast.txt names, some of every file.

All other tests are marked slow here, so a new test is slow until somebody adds it to the list. One list instead of a
marker on most tests: what the lane costs can be seen, and changed, in one place.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    fast = set((HERE / "fast.txt").read_text().split())
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name.removeprefix("tests/") not in fast:
            item.add_marker(pytest.mark.slow)
