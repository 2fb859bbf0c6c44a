"""The page of a sweep: everything that its rows say."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rpl_agent.experiments.report.charts import ReportChart, charts, policy_chart
from rpl_agent.experiments.report.figures import figures, world_picture
from rpl_agent.experiments.report.headline import headline
from rpl_agent.experiments.report.page import chart_section, data_section, page, pictures_section, table_section
from rpl_agent.experiments.store import Row, require_rows
from rpl_agent.experiments.tables import Table, tables
from rpl_agent.plotting.policy_map import PolicyMap, policy_map
from rpl_agent.solver import solve_at
from rpl_envs import INSTANCES, benchmark

TITLE = "Robust parameter learning: measured results"


def write_tables(made: Sequence[Table], folder: Path) -> list[Path]:
    """CSV per table and one text file with all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for table in made:
        written.append(folder / f"{table.name}.csv")
        written[-1].write_text(table.to_csv())
    written.append(folder / "tables.md")
    written[-1].write_text("\n".join(table.to_markdown() for table in made))
    return written


def write_report(results: str | os.PathLike, output: str | os.PathLike) -> dict[str, object]:
    """Make the page; returns what was written."""
    rows = require_rows(results).all()
    target = Path(output)
    folder = target.parent / "figures"
    made = tables(rows)
    drawn = charts(rows)
    written = write_tables(made, target.parent / "tables") + figures(drawn, folder)
    worlds = [(name, world_picture(name, folder / "worlds" / f"{name}.png")) for name in _pictured(rows)]
    drawn += _policies([name for name, _ in worlds])
    sections = [chart_section(chart) for chart in drawn] + [table_section(table) for table in made]
    if worlds:
        sections.append(pictures_section("worlds", "The worlds", worlds))
    raw = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
    sections.append(data_section([("rows.jsonl", raw)], _settings(rows)))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(TITLE, headline(rows), sections, drawn))
    written += [path for _, path in worlds]
    return {
        "page": os.fspath(target), "rows": len(rows), "tables": len(made), "charts": len(drawn),
        "files": [os.fspath(path) for path in written],
    }  # fmt: skip


def _policies(names: Sequence[str]) -> list[ReportChart]:
    """The policy that is optimal at the true parameters, for one world per family."""
    maps: dict[str, PolicyMap] = {}
    for name in names:
        world = benchmark(name)
        best = solve_at(world.pmdp, world.theta, world.objective).policy
        shown = policy_map(world.pmdp.instantiate(np.array(world.theta)), best)
        if shown is not None:
            maps[name] = shown
    return [policy_chart(maps, "The optimal policy at the true parameters.")] if maps else []


def _pictured(rows: Sequence[Row]) -> list[str]:
    """One world per family among the rows: the smallest instance."""
    used = {re.sub(r"^rpl/|-v\d+$", "", row["task"]["instance"]) for row in rows if "instance" in row["task"]}
    families = {INSTANCES[name].family for name in used if name in INSTANCES}
    ordered = [f for f in dict.fromkeys(i.family for i in INSTANCES.values()) if f in families]
    return [next(n for n, i in INSTANCES.items() if i.family == family) for family in ordered]


def _settings(rows: Sequence[Row]) -> dict:
    """What decides the numbers: the settings that occur, and the versions."""
    settings: dict[str, set] = {}
    for row in rows:
        for field, value in row["task"].items():
            settings.setdefault(field, set()).add(json.dumps(value))
    shown = {field: [json.loads(v) for v in sorted(values)] for field, values in settings.items()}
    versions = [json.loads(v) for v in sorted({json.dumps(row["run"]["versions"], sort_keys=True) for row in rows})]
    return {"tasks": shown, "versions": versions}
