"""The paper's published figures: published.csv has Tables 2 and 3 (uniform sampling) and 5 (ellipsoids).

Instances are named by what they are: the paper's Betting "(150)" is n = 140 in Tables 2 and 3 and n = 135 in
Tables 1 and 5; its Glider "(106, 99)" is 69x67 in Tables 2 and 3 and 71x67 in Tables 1 and 5; its Glider "(51, 47)"
has a region as target in Tables 2 and 3 and a cell in Tables 1 and 5. Lines without numbers are
time-outs after 2 hours.
"""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import NamedTuple


class Published(NamedTuple):
    """One cell of the paper; None where it timed out or is not given."""

    lower: float | None
    upper: float | None
    gap: float | None
    build: float | None
    solve: float | None
    total: float | None

    @property
    def timed_out(self) -> bool:
        return self.lower is None


def _read() -> dict[str, dict[tuple[str, str, str], Published]]:
    tables: dict[str, dict[tuple[str, str, str], Published]] = {}
    lines = files("rpl_agent.experiments").joinpath("published.csv").read_text().splitlines()[1:]
    for table, instance, confidence, relaxation, *cells in csv.reader(lines):
        lower, upper, gap, build, solve, total = (float(cell) if cell else None for cell in cells)
        if build is not None and solve is not None:
            total = build + solve
        tables.setdefault(table, {})[instance, confidence, relaxation] = Published(
            lower, upper, gap, build, solve, total
        )
    return tables


#: (instance, confidence, relaxation) -> cell.
TABLE_2, TABLE_3, TABLE_5 = _read().values()


def published(instance: str, confidence: str, relaxation: str) -> Published | None:
    """The paper's cell for a set on an instance: the main table where it has one, else the ellipsoid table."""
    key = (instance, confidence, relaxation)
    return TABLE_2.get(key) or TABLE_5.get(key)
