"""`python -m benchmarks`: run every bench_*.py beside this file and print its tables.

--smoke runs each at the smallest size (so that benchmarks keep working), --full adds the long ones,
--json prints one JSON object per row instead of tables. Names select single benchmarks. --compare FILE reads what
--json printed before a change and lists the rows that differ (for results; times always do), with status 1 if any does.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
import time
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from types import ModuleType

from rich.console import Console
from rich.table import Table

import benchmarks

#: options that only some benchmarks take
OPTIONS = {
    "fuzz": ("minutes", "problems", "jobs", "first", "polynomial", "proofs", "regrets", "claims"),
    "faults": ("only",),
    "tightness": ("jobs", "only", "first"), "bets": ("jobs", "first"), "polynomial": ("only", "first", "problems"),
    "solver": ("only",),
    "paths": ("only",), "cyclic": ("only", "folder"), "no_model": ("only", "first"),
    "scale": ("only",), "improvement": ("only", "first"),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="benchmarks to run, e.g. solver regions (default: all)")
    parser.add_argument("--smoke", action="store_true", help="smallest sizes")
    parser.add_argument("--full", action="store_true", help="largest sizes")
    parser.add_argument("--minutes", type=float, help="how long the fuzz runs")
    parser.add_argument(
        "--problems", type=int, help="how many problems the fuzz solves at least, however long it takes"
    )
    parser.add_argument("--jobs", type=int, help="processes of the fuzz, of tightness and of bets")
    parser.add_argument("--first", type=int, help="first seed of the fuzz, tightness, bets, improvement and no_model")
    parser.add_argument("--polynomial", action="store_true", default=None, help="fuzz over polynomial models")
    parser.add_argument("--proofs", action="store_true", default=None, help="fuzz of certificates and their proofs")
    parser.add_argument("--regrets", action="store_true", default=None, help="fuzz of regrets and of what is optimal")
    parser.add_argument("--claims", action="store_true", default=None, help="fuzz of improvements, limits and curves")
    parser.add_argument("--only", help="one part of a benchmark that has parts, e.g. kills of faults")
    parser.add_argument("--folder", metavar="FOLDER", help="where cyclic finds public models")
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--compare", metavar="FILE", help="rows of an earlier run with --json")
    arguments = parser.parse_args()
    if arguments.compare:
        sys.exit(_compare(Path(arguments.compare), arguments))
    console, failed = Console(width=160), False
    for name, module in _chosen(arguments.names):
        more = {key: getattr(arguments, key) for key in OPTIONS.get(name, ()) if getattr(arguments, key) is not None}
        start = time.perf_counter()
        rows = module.rows(smoke=arguments.smoke, full=arguments.full, **more)
        failed |= any("failure" in row for row in rows)
        if arguments.json:
            for row in rows:
                print(json.dumps({"benchmark": name, **row}, default=str))
            continue
        console.rule(f"{name}: {(module.__doc__ or '').strip().splitlines()[0]} ({time.perf_counter() - start:.0f} s)")
        # rows of different kinds share a list: one table per set of columns
        groups: dict[tuple[str, ...], list[dict]] = {}
        for row in rows:
            groups.setdefault(tuple(row), []).append(row)
        for columns, group in groups.items():
            table = Table(*columns)
            for row in group:
                table.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()))
            console.print(table)
    sys.exit(int(failed))  # the fuzz of a night must not pass unnoticed


def _chosen(names: list[str]) -> Iterator[tuple[str, ModuleType]]:
    for info in sorted(pkgutil.iter_modules(benchmarks.__path__), key=lambda m: m.name):
        name = info.name.removeprefix("bench_")
        if info.name.startswith("bench_") and (not names or name in names):
            yield name, importlib.import_module(f"benchmarks.{info.name}")


def _compare(path: Path, arguments: argparse.Namespace) -> int:
    """Print rows that are not exactly those of the file; the exit status."""
    before = [line for line in path.read_text().splitlines() if line.startswith("{")]
    now = [
        json.dumps({"benchmark": name, **row}, default=str)
        for name, module in _chosen(arguments.names)
        for row in module.rows(smoke=arguments.smoke, full=arguments.full)
    ]
    differing = [(old, new) for old, new in zip_longest(before, now, fillvalue="(no row)") if old != new]
    for old, new in differing:
        print(f"- {old}\n+ {new}")
    print(f"{len(now)} rows, {len(differing)} differ from {path}")
    return int(bool(differing))


if __name__ == "__main__":
    main()
