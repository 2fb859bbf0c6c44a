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


def _read(wanted: str) -> dict[tuple[str, str, str], Published]:
    """(instance, confidence, relaxation) -> cell of a table."""
    cells = {}
    lines = files("rpl_agent.experiments").joinpath("published.csv").read_text().splitlines()[1:]
    for table, instance, confidence, relaxation, *texts in csv.reader(lines):
        cell = Published(*(float(text) if text else None for text in texts))
        if cell.build is not None and cell.solve is not None:
            cell = cell._replace(total=cell.build + cell.solve)
        if table == wanted:
            cells[instance, confidence, relaxation] = cell
    return cells


TABLE_2, TABLE_3, TABLE_5 = map(_read, "235")


def published(instance: str, confidence: str, relaxation: str) -> Published | None:
    """The paper's cell for a set on an instance: the main table where it has one, else the ellipsoid table."""
    key = (instance, confidence, relaxation)
    return TABLE_2.get(key) or TABLE_5.get(key)
