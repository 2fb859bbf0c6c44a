"""`rpl reproduce`, `compare`, `report`: the paper's tables and figures, and comparisons with other agents."""

from __future__ import annotations

import argparse
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from rpl_agent.cli.common import OWN_ENV, POLICY_FILE, refuse_given
from rpl_agent.cli.emit import emit
from rpl_agent.cli.parser import Options, add_call, call, output_file

API = "rpl_agent.studies.experiments.api"
#: options of each kind of sweep, and of both
HELP: dict[str, dict[str, Any]] = {
    "reproduce": {
        "suite": "parts to run: sizes uniform online (default: all)",
        "seeds": "runs of each learning curve",
        "quick": "small instances and budgets: minutes instead of hours",
        "budget": "episodes per run (default: the paper's 10^5)",
    },
    "compare": {
        "agents": "agents to compare",
        "seeds": "runs of each agent",
        "budget": "episodes per run",
        "policy": (f"draw this policy as a level line beside the agents: {POLICY_FILE}", {"metavar": "FILE"}),
        "measured": "episodes that measure a policy where the true parameters are not known (default 1000)",
    },
}
SWEEP: dict[str, Any] = {
    "output": "folder for rows, tables and figures; a sweep found there is resumed",
    "jobs": "parallel runs (default 2, or 1 if joblib is not installed)",
    "executor": ("ray uses RAY_ADDRESS, or starts a local one", {"choices": ("joblib", "ray")}),
}


def register(commands: Any) -> None:
    reproduce = commands.add_parser(
        "reproduce", run=run_sweep, help="the paper's tables and figures, beside our own sets"
    )
    compare = commands.add_parser(
        "compare",
        run=run_sweep,
        help="agents side by side on the same worlds and budgets",
        description="Learning curves of several agents. Values are exact where the true parameters are known (our "
        "worlds, and your own if its factory returns them as theta), otherwise means of further episodes.",
    )
    compare.add_argument(
        "ids",
        nargs="+",
        metavar="ID",
        help=f"a world of ours, a world of Gymnasium whose structure is known (FrozenLake-v1), or {OWN_ENV}",
    )
    for sweep, name in ((reproduce, "reproduce"), (compare, "compare")):
        sweep.later(partial(_add_sweep, sweep, name))
        sweep.add_argument("--no-progress", action="store_true", help="show no progress bar")
    compare.add_argument(
        "--plot",
        type=output_file(".png", ".pdf", ".svg"),
        metavar="FILE",
        help="draw all worlds, like the README's first picture: .png, .pdf or .svg",
    )
    report = commands.add_parser(
        "report", run=run_report, help="one self-contained, interactive HTML page of a run or of a sweep"
    )
    report.add_argument("run_folder", nargs="?", metavar="RUN", help="a run folder (default: the sweep in --results)")
    report.add_argument("--results", default="results", help="folder with rows (default results)")
    report.add_argument(
        "--output",
        type=output_file(".html"),
        metavar="FILE.html",
        help="page to write (default: report.html in RUN or in the results folder)",
    )


def _add_sweep(parser: Options, name: str) -> None:
    """The options of a function in `experiments.api`, which is imported when its command is chosen."""
    add_call(parser, getattr(import_module(API), name), HELP[name] | SWEEP)


def run_sweep(arguments: argparse.Namespace) -> None:
    sweep = getattr(import_module(API), arguments.command)
    result = call(sweep, arguments, progress=not (arguments.no_progress or arguments.json))
    if getattr(arguments, "plot", None) is not None:
        import_module(API).plot_comparison(result, arguments.plot)
        result["files"].append(arguments.plot)
    emit(arguments, result, "sweep")


def run_report(arguments: argparse.Namespace) -> None:
    from rpl_agent.studies.experiments.api import report, report_run
    from rpl_agent.studies.experiments.runner import ROWS

    if arguments.run_folder is not None and any(Path(arguments.run_folder).glob(f"{ROWS}*")):  # a sweep, not a run
        arguments.results, arguments.run_folder = arguments.run_folder, None
    if arguments.run_folder is None:
        result = report(arguments.results, arguments.output or f"{arguments.results}/report.html")
    else:
        refuse_given(arguments, {"--results"}, f"the page is about the run {arguments.run_folder}")
        result = report_run(arguments.run_folder, arguments.output)
    emit(arguments, result, "report")
