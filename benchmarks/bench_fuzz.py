"""Fuzz: random models of every kind against an exact oracle in rationals, and false solutions against the check.

`python -m benchmarks fuzz --minutes 10` runs rounds (one random model, all objectives, both natures) for so long and
prints problems per minute and failures; every failure names its seed. The oracle (`tests/reference/oracle.py`) shares
no code with the solver.
"""

from __future__ import annotations

import argparse
import time
from itertools import count
from typing import Any

from tests.reference.fuzz import Tally, round_of

Row = dict[str, Any]


def rows(smoke: bool = False, full: bool = False, minutes: float | None = None, first: int = 0) -> list[Row]:
    """One row per kind of model, one in all, one per failure."""
    limit = 60.0 * (minutes if minutes is not None else 10.0 if full else 1.0)
    began, tally, by_kind = time.perf_counter(), Tally(), {}
    for seed in count(first):
        result = round_of(seed)
        tally.add(result)
        for kind in result.problems:
            by_kind[kind] = by_kind.get(kind, 0) + len(result.failures)
        if (smoke and seed >= first + 3) or time.perf_counter() - began > limit:
            break
    spent = (time.perf_counter() - began) / 60.0
    found: list[Row] = [
        {"models": kind, "problems": number, "failures": by_kind[kind]} for kind, number in tally.problems.items()
    ]
    problems = sum(tally.problems.values())
    found.append({
        "seeds": f"{first} to {seed}", "problems": problems, "false solutions": tally.lies,
        "wider than asked": tally.wide,
        "problems per minute": problems / spent, "failures": len(tally.failures),
    })  # fmt: skip
    return found + [{"failure": text} for text in tally.failures]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    arguments = parser.parse_args()
    for row in rows(minutes=arguments.minutes, first=arguments.first):
        print(row, flush=True)
