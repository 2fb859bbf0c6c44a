"""One self-contained HTML page from rows: tables, figures, pictures of the worlds and the configuration.

Images are embedded, nothing is fetched: the page opens anywhere. PNG and CSV files are written beside it.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from rpl_agent.experiments import plots
from rpl_agent.experiments.store import Row, require_rows
from rpl_agent.experiments.tables import Table, tables
from rpl_envs import INSTANCES

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
    page = Path(output)
    folder = page.parent / "figures"
    made = tables(rows)
    written = write_tables(made, page.parent / "tables")
    pictures = plots.figures(rows, folder)
    worlds = [(name, plots.world_picture(name, folder / "worlds" / f"{name}.png")) for name in _pictured(rows)]
    template = Template(files("rpl_agent.experiments").joinpath("report.html").read_text())
    headings = [(table.name, table.title) for table in made]
    headings += [("worlds", "The worlds"), ("configuration", "Configuration")]
    text = template.substitute(
        title=TITLE,
        summary=html.escape(_summary(rows)),
        links="".join(f"<a href='#{anchor}'>{html.escape(title)}</a>" for anchor, title in headings),
        figures="".join(_figure(caption, path) for caption, path in pictures),
        tables="".join(f"<section id='{table.name}'>{table.to_html()}</section>" for table in made),
        worlds="".join(_figure(name, path) for name, path in worlds),
        configuration=html.escape(_configuration(rows)),
    )
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text)
    written += [path for _, path in pictures] + [path for _, path in worlds]
    return {
        "page": os.fspath(page), "rows": len(rows), "tables": len(made), "figures": len(pictures),
        "files": [os.fspath(path) for path in written],
    }  # fmt: skip


def _figure(caption: str, path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    text = html.escape(caption)
    return f"<figure><img alt='{text}' src='data:image/png;base64,{data}'><figcaption>{text}</figcaption></figure>"


def _pictured(rows: Sequence[Row]) -> list[str]:
    """One world per family among the rows: the smallest instance."""
    used = {re.sub(r"^rpl/|-v\d+$", "", row["task"]["instance"]) for row in rows if "instance" in row["task"]}
    families = {INSTANCES[name].family for name in used if name in INSTANCES}
    return [next(n for n, i in INSTANCES.items() if i.family == family) for family in _in_order(families)]


def _in_order(families: set[str]) -> list[str]:
    return [f for f in dict.fromkeys(i.family for i in INSTANCES.values()) if f in families]


def _summary(rows: Sequence[Row]) -> str:
    kinds = Counter(row["task"]["kind"] for row in rows)
    commits = sorted({(row["run"].get("commit") or "unknown")[:10] for row in rows})
    known = [row["run"]["machine"] for row in rows]
    machines = sorted({f"{m.get('cpus')} cores, {m.get('architecture')}, {m.get('system')}" for m in known})
    counted = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
    return f"{len(rows)} runs ({counted}); commit {', '.join(commits)}; machine: {'; '.join(machines)}."


def _configuration(rows: Sequence[Row]) -> str:
    """What decides the numbers: the settings that occur, and the versions."""
    settings: dict[str, set] = {}
    for row in rows:
        for field, value in row["task"].items():
            settings.setdefault(field, set()).add(json.dumps(value))
    shown = {field: [json.loads(v) for v in sorted(values)] for field, values in settings.items()}
    versions = [json.loads(v) for v in sorted({json.dumps(row["run"]["versions"], sort_keys=True) for row in rows})]
    return json.dumps({"tasks": shown, "versions": versions}, indent=1)
