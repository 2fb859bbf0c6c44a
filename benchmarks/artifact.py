"""`make artifact`: every headline number again: claim, command, expected, measured, minutes.

Each line runs one benchmark as the command beside it does, and reads the claim off its rows. --smoke runs the smallest
sizes, where numbers mean nothing: it shows that the lines work. --only TEXT runs the lines whose claim contains it.
"""

from __future__ import annotations

import argparse
import importlib
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from rich.console import Console
from rich.table import Table

Rows = Sequence[dict[str, Any]]


@cache
def rows_of(benchmark: str, smoke: bool) -> Rows:
    """What a benchmark printed, once for all claims that are read off it."""
    return importlib.import_module(f"benchmarks.bench_{benchmark}").rows(smoke=smoke)


@dataclass(frozen=True)
class Claim:
    """A sentence, the benchmark that shows it, and how it is read off the rows."""

    says: str
    benchmark: str
    expected: str
    measured: Callable[[Rows], str]

    @property
    def command(self) -> str:
        return f"python -m benchmarks {self.benchmark}"

    def run(self, smoke: bool) -> str:
        return self.measured(rows_of(self.benchmark, smoke))


def _medians(rows: Rows, column: str, kept: Callable[[dict[str, Any]], bool]) -> str:
    """The median of a column for each number of episodes."""
    sizes: dict[int, list[float]] = {}
    for row in rows:
        if column in row and kept(row):
            sizes.setdefault(row["episodes"], []).append(float(row[column]))
    return ", ".join(f"{statistics.median(found):.3g} at {size:,}" for size, found in sorted(sizes.items()))


def _ideal(rows: Rows) -> str:
    return _medians(rows, "bets", lambda row: row.get("data") == "uniform" and row["world"] == "median")


def _blocks(rows: Rows) -> str:
    kept = [row for row in rows if row.get("data") == "blocks" and "bets" in row]
    return ", ".join(f"{row['world']} {row['bets']:.3g} at {row['episodes']:,}" for row in kept)


def _regret(rows: Rows) -> str:
    return _medians(rows, "gap / regret", lambda row: "cost" in row)


def _storm(rows: Rows) -> str:
    last = rows[-1]
    return f"median {last['median ratio']:.2g} of {last['questions']}" if "median ratio" in last else "no Storm"


def _nothing(rows: Rows) -> str:
    rows = [row for row in rows if "missed" in row]  # the others measure memory
    missed = sum(bool(row["missed"]) for row in rows)
    most = max(row["episodes"] for row in rows)
    gaps = ", ".join(f"{row['world']} {row['gap']:.3g}" for row in rows if row["episodes"] == most)
    return f"{gaps}; {missed} of {len(rows)} missed"


def _improvement(rows: Rows) -> str:
    shown = [f"{row['world']} {row['ours']:g}" for row in rows if "ours" in row]
    false = sum("failure" in row for row in rows)
    return f"{', '.join(shown)}; {false} false"


def _pump(rows: Rows) -> str:
    lower, upper = math.floor(100 * rows[0]["lower"]) / 100, math.ceil(100 * rows[0]["upper"]) / 100  # as in the README
    return f"[{lower:.2f}, {upper:.2f}], {rows[0]['regret']:.3g}"


def _table(rows: Rows) -> str:
    return ", ".join(f"{row['world']} {row['gap / V*']:.3g}" for row in rows if "gap / V*" in row)


def _sepsis(rows: Rows) -> str:
    return ", ".join(row["skipped"] if "skipped" in row else f"{row['bounds']} {row['width']:.3g}" for row in rows)


CLAIMS = (
    Claim("guarantee and regret of README's first program", "readme", "[10.88, 11.64], 0.0167", _pump),
    Claim("relative gaps of README's table, 10^5 uniform episodes", "readme", "the table's coupled column", _table),
    Claim("width on ICU-Sepsis, 2,241 unknown rows, 10^6 stays", "sepsis", "docs/cases/sepsis.md", _sepsis),
    Claim("gap over the statistical ideal, six worlds, 10^5 episodes", "tightness", "at most 1.20", _ideal),
    Claim("gap over the ideal with 7 to 64 unknowns", "tightness", "about 2, from 10^4 plays on", _blocks),
    Claim("the regret is far below the gap (median gap / regret)", "regret", "10, 40, 100", _regret),
    Claim("time over Storm's on cyclic models, precision 1e-6", "cyclic", "at most 1", _storm),
    Claim("gap with nothing known but a range of returns", "no_model", "docs/tutorials/from_nothing.md", _nothing),
    Claim("trajectories until the first proved improvement", "improvement", "10^1 to 10^3, none false", _improvement),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.artifact", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="smallest sizes: the lines work, the numbers mean nothing")
    parser.add_argument("--only", default="", metavar="TEXT", help="claims that contain this text")
    given = parser.parse_args(arguments)
    table, failed = Table("claim", "command", "expected", "measured", "minutes", show_lines=True), False
    for claim in CLAIMS:
        if given.only not in claim.says:
            continue
        start = time.perf_counter()
        try:
            measured = claim.run(given.smoke)
        except Exception as error:  # one that fails must not hide the others
            measured, failed = f"FAILED: {error}", True
        minutes = (time.perf_counter() - start) / 60
        table.add_row(claim.says, claim.command, claim.expected, measured, f"{minutes:.1f}")
        print(f"{claim.says}: {measured} ({minutes:.1f} minutes)", file=sys.stderr)
    Console(width=160).print(table)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
