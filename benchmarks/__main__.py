"""`python -m benchmarks`: run every bench_*.py beside this file and print its tables.

--smoke runs each at the smallest size (so that benchmarks cannot rot), --full adds the long ones,
--json prints one JSON object per row instead of tables. Names select single benchmarks.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import time

from rich.console import Console
from rich.table import Table

import benchmarks


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="benchmarks to run, e.g. solver regions (default: all)")
    parser.add_argument("--smoke", action="store_true", help="smallest sizes")
    parser.add_argument("--full", action="store_true", help="largest sizes")
    parser.add_argument("--minutes", type=float, help="how long the fuzz runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    arguments = parser.parse_args()
    console = Console(width=160)
    for info in sorted(pkgutil.iter_modules(benchmarks.__path__), key=lambda m: m.name):
        name = info.name.removeprefix("bench_")
        if not info.name.startswith("bench_") or (arguments.names and name not in arguments.names):
            continue
        module = importlib.import_module(f"benchmarks.{info.name}")
        more = {"minutes": arguments.minutes} if name == "fuzz" and arguments.minutes is not None else {}
        start = time.perf_counter()
        rows = module.rows(smoke=arguments.smoke, full=arguments.full, **more)
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


if __name__ == "__main__":
    main()
