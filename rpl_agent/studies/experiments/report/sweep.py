"""The page of a sweep: five sentences first, then its charts, tables and worlds, from rows alone."""

from __future__ import annotations

import html
import json
import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from rpl_agent.agent.output.plotting.policy_map import PolicyMap, policy_map
from rpl_agent.core.solver import solve_at
from rpl_agent.studies.experiments import suites
from rpl_agent.studies.experiments.report.charts import ReportChart, charts, policy_chart, world_picture
from rpl_agent.studies.experiments.report.drawing import figures
from rpl_agent.studies.experiments.report.page import (
    Section,
    chart_section,
    counted,
    data_section,
    page,
    picture,
    table_section,
)
from rpl_agent.studies.experiments.runner import Row, by_kind, number, require_rows
from rpl_agent.studies.experiments.tables import Table, share, tables
from rpl_envs import INSTANCES, benchmark

OURS = ("likelihood", "coupled")
#: as the agent learns by default
AGENT = (*OURS, "certificate")
THEIRS = ("clopper-pearson", "rectangular")


def headline(rows: Sequence[Row]) -> list[str]:
    """What was run, how tight, how sample-efficient, whether it held, and how the agents compare."""
    groups = by_kind(rows)
    sentences = [_what(rows), _tightness(groups["uniform"]), _samples(groups["online"])]
    sentences += [_held(groups["uniform"], groups["online"]), _agents(groups["compare"])]
    return [sentence for sentence in sentences if sentence]


def _of(rows: Sequence[Row], chosen: tuple[str, ...]) -> dict[tuple, Row]:
    return {
        (r["task"]["instance"], r["task"]["seed"], r["task"]["episodes"]): r
        for r in rows
        if suites.set_of(r["task"]) == chosen
    }


def _what(rows: Sequence[Row]) -> str:
    worlds = {row["task"]["instance"] for row in rows if "instance" in row["task"]}
    commits = sorted({(row["run"].get("commit") or "unknown")[:10] for row in rows})
    cores = {row["run"]["machine"].get("cpus") for row in rows}
    machines = sorted(counted(number, "core") if number else "unknown cores" for number in cores)
    ran = f"{counted(len(rows), 'run')} on {counted(len(worlds), 'world')}"
    return f"{ran}, measured on {', '.join(machines)} at {', '.join(commits)}."


def _tightness(rows: Sequence[Row]) -> str:
    ours, theirs = _of(rows, OURS), _of(rows, THEIRS)
    ratios = [
        number(ours[k]["result"]["relative_gap"]) / number(theirs[k]["result"]["relative_gap"])
        for k in ours.keys() & theirs.keys()
    ]
    ratios = [ratio for ratio in ratios if math.isfinite(ratio)]
    if not ratios:
        return ""
    return (
        f"On the same data the certified interval of {suites.set_name(*OURS)} is {median(ratios):.2f} times as wide as "
        f"that of the paper's tightest set in the median of {counted(len(ratios), 'instance')} (from "
        f"{min(ratios):.2f} to {max(ratios):.2f})."
    )


def _samples(rows: Sequence[Row]) -> str:
    shares = {}
    for name in sorted({row["task"]["instance"] for row in rows}):
        some = [row for row in rows if row["task"]["instance"] == name]
        mine, goal = list(_of(some, AGENT).values()), list(_of(some, ("anytime", "rectangular")).values())
        found = share(mine, goal) if mine and goal else None
        if found is not None:
            shares[name] = found
    if not shares:
        return ""
    best, worst = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
    return (
        f"Learning online it needs {100 * median(shares.values()):.0f} % of the episodes (median) for the guarantee "
        f"with which the paper's set, made valid online, ends: {100 * shares[best]:.0f} % on {best}, "
        f"{100 * shares[worst]:.0f} % on {worst}."
    )


def _held(uniform: Sequence[Row], online: Sequence[Row]) -> str:
    valid = [row for row in online if row["task"]["confidence"] in ("likelihood", "anytime")]
    broken = sum(not row["result"]["covered"] for row in uniform) + sum(_violated(row) for row in valid)
    total = len(uniform) + len(valid)
    if not total:
        return ""
    held = "every one of them held" if not broken else f"{broken} of them did not hold"
    return f"Compared with the true values: {counted(total, 'certified interval')}; {held}."


def _violated(row: Row) -> bool:
    """Whether a guarantee during the run exceeded the policy's true value."""
    sign = 1.0 if row["result"]["sense"] == "max" else -1.0
    tolerance = 1e-9 * max(1.0, abs(number(row["result"]["value"])))
    return any(
        sign * number(p["certified"]) > sign * number(p["true"]) + tolerance
        for p in row["result"]["curve"]
        if p["certified"] is not None and p["true"] is not None
    )


def _agents(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    certified = {r["task"]["agent"] for r in rows if r["result"]["curve"][-1]["certified"] is not None}
    agents = {row["task"]["agent"] for row in rows}
    runs = {(row["task"]["instance"], row["task"]["agent"], row["task"]["seed"]) for row in rows}
    seeds = min(Counter((world, agent) for world, agent, _ in runs).values())
    return (
        f"{counted(len(agents), 'agent')} ran with at least {counted(seeds, 'seed')} each; "
        f"without any guarantee at the end: {len(agents - certified)}."
    )


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


def report(results: str | os.PathLike = "results", output: str | os.PathLike = "results/report.html") -> dict[str, Any]:
    """One HTML page from all rows of a folder, with PNG and CSV beside it."""
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
        pictures = "".join(picture(name, path) for name, path in worlds)
        sections.append(Section("worlds", "The worlds", f"<div class='worlds'>{pictures}</div>"))
    raw = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
    sections.append(data_section([("rows.jsonl", raw)], _settings(rows)))
    target.parent.mkdir(parents=True, exist_ok=True)
    sentences = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in headline(rows))
    target.write_text(page(TITLE, sentences, sections, drawn))
    written += [path for _, path in worlds]
    shown = f"{counted(len(made), 'table')}, {counted(len(drawn), 'chart')}"
    return {
        "page": os.fspath(target),
        "rows": len(rows),
        "tables": len(made),
        "charts": len(drawn),
        "files": [os.fspath(path) for path in written],
        "text": f"{target}: {shown} from {counted(len(rows), 'run')}",
    }


def _policies(names: Sequence[str]) -> list[ReportChart]:
    """The policy that is optimal at the true parameters, for one world per family."""
    maps: dict[str, PolicyMap] = {}
    for name in names:
        world = benchmark(name)
        best = solve_at(world.pmdp, world.theta, world.objective).policy
        shown = policy_map(world.pmdp.instantiate(np.array(world.theta)), best)
        if shown is not None:
            maps[name] = shown
    return (
        [policy_chart(maps, "Policies on their worlds", "The optimal policy at the true parameters.")] if maps else []
    )


def _pictured(rows: Sequence[Row]) -> list[str]:
    """The smallest instance of each family among the rows."""
    used = {re.sub(r"^rpl/|-v\d+$", "", row["task"]["instance"]) for row in rows if "instance" in row["task"]}
    families = {INSTANCES[name].family for name in used if name in INSTANCES}
    ordered = [f for f in dict.fromkeys(i.family for i in INSTANCES.values()) if f in families]
    return [next(n for n, i in INSTANCES.items() if i.family == family) for family in ordered]


def _settings(rows: Sequence[Row]) -> dict:
    """Everything that determines the numbers: the settings that occur, and the versions."""
    settings: dict[str, set] = {}
    for row in rows:
        for field, value in row["task"].items():
            settings.setdefault(field, set()).add(json.dumps(value))
    shown = {field: [json.loads(v) for v in sorted(values)] for field, values in settings.items()}
    versions = [json.loads(v) for v in sorted({json.dumps(row["run"]["versions"], sort_keys=True) for row in rows})]
    return {"tasks": shown, "versions": versions}
