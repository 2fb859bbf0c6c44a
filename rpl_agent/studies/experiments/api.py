"""`reproduce`, `compare`, `report`: the functions behind the commands, with plain arguments and JSON-able results."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rpl_agent.core.errors import ModelError
from rpl_agent.studies.experiments import suites
from rpl_agent.studies.experiments.report.charts import compare_chart
from rpl_agent.studies.experiments.report.drawing import draw
from rpl_agent.studies.experiments.report.run import report_run as report_run
from rpl_agent.studies.experiments.report.sweep import report as report
from rpl_agent.studies.experiments.report.sweep import write_tables
from rpl_agent.studies.experiments.runner import Row, require_rows, run_sweep
from rpl_agent.studies.experiments.tables import tables
from rpl_agent.studies.experiments.tasks import AGENTS, require_installed
from rpl_agent.studies.experiments.worlds import instance_name, policy_in, world_of, world_task
from rpl_envs import INSTANCES


def reproduce(
    *,
    output: str | os.PathLike = "results",
    suite: Sequence[str] | None = None,
    quick: bool = False,
    jobs: int | None = None,
    executor: str = "joblib",
    seeds: int = 3,
    budget: int | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """The paper's tables and figures; ``suite`` picks parts ("sizes", "uniform", "online") or single instances.

    Rows go to ``output``/rows.jsonl; existing runs are not repeated.
    """
    parts = [name for name in suite or () if name in suites.PARTS] or None
    chosen = [instance_name(name) for name in suite or () if name not in suites.PARTS]
    unknown = [name for name in chosen if name not in INSTANCES]
    if unknown:
        raise ModelError(f"no part or instance {unknown}; parts are {list(suites.PARTS)}, instances {list(INSTANCES)}")
    tasks = suites.paper(parts, quick, seeds, budget)
    if chosen:
        tasks = [task for task in tasks if task["instance"] in chosen]
    if not tasks:
        raise ModelError(f"nothing to run: {chosen} is not in the chosen parts")
    return _run(tasks, output, jobs, executor, progress)


def compare(
    ids: Sequence[str],
    *,
    agents: Sequence[str] = ("rpl", "interval-tied", "q-learning", "ucrl2", "psrl"),
    seeds: int = 5,
    budget: int = 10_000,
    policy: str | os.PathLike | None = None,
    measured: int | None = None,
    output: str | os.PathLike = "results",
    jobs: int | None = None,
    executor: str = "joblib",
    progress: bool = False,
) -> dict[str, Any]:
    """Agents side by side on the same worlds with the same number of episodes.

    Parameters
    ----------
    ids : worlds of ours, of Gymnasium with known structure, or your own: module:Id or path/to/file.py:factory.
    policy : a file with a policy to show beside them, the same in every episode.
    measured : episodes by which policies are measured where the true parameters are not known.
    """
    missing = [name for name in agents if name not in AGENTS]
    if missing:
        raise ModelError(f"no agent {missing}; there are {sorted(AGENTS)}")
    require_installed(agents)
    if seeds < 1 or budget < 1:
        raise ModelError(f"seeds {seeds} and budget {budget} must be at least 1")
    worlds = [world_task(name) for name in ids]
    compared: list[suites.Task] = [{"agent": name} for name in agents]
    if policy is not None:
        compared.append(_policy_task(os.fspath(policy), worlds))
    tasks = suites.compare(worlds, compared, seeds, budget)
    if measured is not None:
        tasks = [{**task, "measured": measured} if world_of(task).theta is None else task for task in tasks]
    return _run(tasks, output, jobs, executor, progress)


def plot_comparison(result: dict[str, Any], path: str | os.PathLike) -> None:
    """Draw what `compare` returned, as the first picture of the README."""
    keys = {suites.key(row["task"]) for row in result["rows"]}
    draw(compare_chart([row for row in require_rows(result["output"]).all() if row["key"] in keys]), Path(path))


def _policy_task(path: str, worlds: Sequence[suites.Task]) -> suites.Task:
    """The part of a task that names a policy: read once before anything is run; a changed file is another policy."""
    for world in worlds:
        policy_in(path, world_of(world))
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
    return {"agent": Path(path).name, "policy": os.path.abspath(path), "policy_digest": digest}


def _run(tasks: list[suites.Task], output: Any, jobs: int | None, executor: str, progress: bool) -> dict[str, Any]:
    rows = run_sweep(tasks, output, jobs=jobs, executor=executor, progress=progress)
    made = tables(rows)
    written = write_tables(made, Path(output) / "tables")
    return {
        "runs": len(rows),
        "output": os.fspath(output),
        "files": [os.fspath(path) for path in written],
        "rows": [_brief(row) for row in rows],
        "text": "\n".join(table.to_markdown() for table in made),
    }


def _brief(row: Row) -> dict[str, Any]:
    """A row without its curve: for --json."""
    result = {k: v for k, v in row["result"].items() if k != "curve"}
    if "curve" in row["result"]:
        result["final"] = row["result"]["curve"][-1]
    return {"task": row["task"], "result": result, "timing": {k: v for k, v in row["timing"].items() if k != "curve"}}
