"""`rpl reproduce`, `compare`, `report`: the paper's tables and figures, and how other agents do."""

from __future__ import annotations

import argparse
from typing import Any

from rpl_agent.cli.common import add_json, emit
from rpl_agent.cli.parser import call, count, output_file


def register(commands: Any) -> None:
    reproduce = commands.add_parser("reproduce", help="the paper's tables and figures, beside our own sets")
    reproduce.add_argument(
        "--suite", nargs="+", metavar="NAME", help="parts to run: sizes uniform online (default: all)"
    )
    reproduce.add_argument("--quick", action="store_true", help="small instances and budgets: minutes instead of hours")
    reproduce.add_argument("--seeds", type=count, metavar="N", default=3)
    reproduce.add_argument("--budget", type=count, metavar="N", help="episodes per run (default: the paper's 10^5)")
    _add_sweep(reproduce)
    reproduce.set_defaults(run=run_reproduce)

    compare = commands.add_parser("compare", help="agents side by side on the same worlds and budgets")
    compare.add_argument("ids", nargs="+", metavar="ID")
    compare.add_argument(
        "--agents", nargs="+", default=["rpl", "interval-tied", "q-learning", "ucrl2", "psrl"], metavar="NAME"
    )
    compare.add_argument("--seeds", type=count, metavar="N", default=5)
    compare.add_argument("--budget", type=count, metavar="N", default=10_000, help="episodes per run (default 10000)")
    _add_sweep(compare)
    compare.set_defaults(run=run_compare)

    report = commands.add_parser("report", help="one self-contained, interactive HTML page of a run or of a sweep")
    report.add_argument("run_folder", nargs="?", metavar="RUN", help="a run folder (default: the sweep in --results)")
    report.add_argument("--results", default="results", help="folder with rows (default results)")
    report.add_argument(
        "--output", type=output_file(".html"), metavar="FILE.html",
        help="default: report.html in RUN or in the results folder",
    )  # fmt: skip
    add_json(report)
    report.set_defaults(run=run_report)


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output", default="results", help="folder for rows, tables and figures; a sweep found there is resumed"
    )
    parser.add_argument("--jobs", type=count, metavar="N", default=2, help="parallel runs (default 2)")
    parser.add_argument(
        "--executor", choices=("joblib", "ray"), default="joblib", help="ray uses RAY_ADDRESS, or starts a local one"
    )
    parser.add_argument("--no-progress", action="store_true")
    add_json(parser)


def run_reproduce(arguments: argparse.Namespace) -> int:
    from rpl_agent.experiments.api import reproduce

    result = call(reproduce, arguments, progress=not (arguments.no_progress or arguments.json))
    emit(arguments, result, "reproduction")
    return 0


def run_compare(arguments: argparse.Namespace) -> int:
    from rpl_agent.experiments.api import compare

    result = call(compare, arguments, progress=not (arguments.no_progress or arguments.json))
    emit(arguments, result, "comparison")
    return 0


def run_report(arguments: argparse.Namespace) -> int:
    from rpl_agent.experiments.api import report, report_run
    from rpl_agent.experiments.store import has_rows

    if arguments.run_folder is not None and has_rows(arguments.run_folder):  # a sweep's folder in the place of a run
        arguments.results, arguments.run_folder = arguments.run_folder, None
    if arguments.run_folder is None:
        result = report(arguments.results, arguments.output or f"{arguments.results}/report.html")
    else:
        result = report_run(arguments.run_folder, arguments.output)
    emit(arguments, result, "report")
    return 0
