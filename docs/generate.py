"""Write what can be derived: `python docs/generate.py`.

docs/index.md is the README, with links as seen from docs/; docs/cli.md comes from the parser; the result tables
between the marks `<!-- results:NAME -->` and `<!-- /results -->` of README.md, docs/choosing.md and
docs/experiments.md, and results/tables, come from results/rows.jsonl.gz.
`--check` writes nothing and fails if a page is out of date (run by the tests).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from functools import cache
from pathlib import Path
from runpy import run_path

os.environ["COLUMNS"] = "110"  # help texts are wrapped to the terminal: fix its width

from rpl_agent.cli import build_parser
from rpl_agent.studies.experiments import suites
from rpl_agent.studies.experiments.runner import read
from rpl_agent.studies.experiments.tables import Table, online_table, published, short, tables

DOCS = Path(__file__).resolve().parent
relative = run_path(str(DOCS / "address.py"))["relative"]


RESULTS = DOCS.parent / "results" / "rows.jsonl.gz"
TABLES = RESULTS.parent / "tables"
TIMES = ("seconds", "build [s]", "solve [s]", "paper [s]")
BLOCK = re.compile(r"(<!-- results:(\w+) -->\n).*?(<!-- /results -->)", re.S)
THEIRS = ("clopper-pearson", "rectangular")
#: our set with one parameter per row, and with one for all of them (the default)
OURS, DEFAULT = ("likelihood", "rectangular"), ("likelihood", "coupled")


@cache
def all_results() -> list[dict]:
    return list(read(RESULTS)) if RESULTS.exists() else []


def results(kind: str) -> list[dict]:
    return [row for row in all_results() if row["task"]["kind"] == kind]


def gap_block() -> str:
    """Relative gap of the true-optimal policy after 10^5 uniform episodes: published, the paper's sets here, ours."""
    rows = {(r["task"]["instance"], r["task"]["confidence"], r["task"]["relaxation"]): r for r in results("uniform")}
    lines = []
    for name in suites.TABLE_2_INSTANCES:
        mine = rows.get((name, *OURS))
        if mine is None:
            continue
        line = [name]
        for method in (("clopper-pearson", "tied"), THEIRS):
            paper = published(name, *method)
            theirs = "–" if paper is None else "time-out" if paper.timed_out else short(paper.gap)
            line += [theirs, short(float(rows[(name, *method)]["result"]["relative_gap"]))]
        gap = float(mine["result"]["relative_gap"])
        ratio = gap / float(rows[(name, *THEIRS)]["result"]["relative_gap"])
        coupled = rows.get((name, *DEFAULT))
        best = "–" if coupled is None else f"**{short(float(coupled['result']['relative_gap']))}**"
        lines.append([*line, short(gap), f"{ratio:.2f}", best])
    columns = (
        "world", "P_I published", "P_I here", "P_R published", "P_R here", "ours, rectangular", "ours / P_R",
        "ours, coupled",
    )  # fmt: skip
    return _table(columns, lines)


SMALLEST = ("Aircraft-50x10", "Betting-50", "Engagement-100", "MarsRover-50x50", "Glider-21x17", "ParallelBetting-5")


def summary_block() -> str:
    """The smallest instance of each benchmark: the paper's best set and ours."""
    rows = {(r["task"]["instance"], r["task"]["confidence"], r["task"]["relaxation"]): r for r in results("uniform")}
    lines = []
    for name in SMALLEST:
        found = [rows.get((name, *method)) for method in (THEIRS, OURS, DEFAULT)]
        if any(row is None for row in found):
            continue
        theirs, mine, coupled = (float(row["result"]["relative_gap"]) for row in found if row is not None)
        paper = published(name, *THEIRS)
        said = "–" if paper is None else "time-out" if paper.timed_out else short(paper.gap)
        lines.append([name, said, short(theirs), short(mine), f"**{short(coupled)}**", f"{coupled / theirs:.2f}"])
    columns = ("world", "P_R published", "P_R here", "ours, rectangular", "ours (coupled)", "ours / P_R")
    return _table(columns, lines)


def method_block() -> str:
    """Relative gaps of every set on the smallest instance of each benchmark."""
    rows = {(r["task"]["instance"], r["task"]["confidence"], r["task"]["relaxation"]): r for r in results("uniform")}
    names = [n for n in suites.TABLE_2_INSTANCES if n in SMALLEST]
    lines = []
    for confidence, relaxation in suites.UNIFORM_SETS:
        found = [rows.get((n, confidence, relaxation)) for n in names]
        gaps = ["–" if r is None else short(float(r["result"]["relative_gap"])) for r in found]
        lines.append([f"`{confidence}`", f"`{relaxation}`", *gaps])
    return _table(("confidence", "relaxation", *names), lines)


def online_block() -> str:
    return online_table(results("online")).without(TIMES).to_markdown().split("\n\n", 2)[2]


def stored_tables() -> dict[Path, str]:
    """The tables beside the stored rows. Rows were measured beside other work, so no table shows times."""
    made = [table.without(TIMES) for table in tables(all_results()) if table.name != "table3_seconds"]
    pages = {TABLES / f"{table.name}.csv": table.to_csv() for table in made}
    return pages | {TABLES / "tables.md": "\n".join(table.to_markdown() for table in made)}


def _table(columns, lines) -> str:
    return Table("", "", columns, lines).to_markdown().split("\n\n", 1)[1]


def with_results(text: str) -> str:
    blocks = {"summary": summary_block, "gaps": gap_block, "methods": method_block, "online": online_block}
    return BLOCK.sub(lambda m: m[1] + blocks[m[2]]() + m[3], text)


def index_page(readme: str) -> str:
    """The README as the first page of the site; what the site lacks is named without a link."""
    inside = relative(readme).replace("](docs/", "](")
    return re.sub(r"\[([^\]]+)\]\((?:CONTRIBUTING|SECURITY|LICENSE)[^)]*\)", r"\1", inside)


def cli_page() -> str:
    parser = build_parser()
    commands = next(a for a in parser._actions if a.dest == "command").choices
    parts = [
        "# Command line\n",
        "Generated from `rpl --help`; see [training](training.md) and [formats](formats.md) for walks through.\n",
    ]
    for name, command in commands.items():
        parts.append(f"## rpl {name}\n\n```text\n{command.format_help().strip()}\n```\n")
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    pages = {DOCS / "cli.md": cli_page()}
    for page in (DOCS.parent / "README.md", DOCS / "choosing.md", DOCS / "experiments.md"):
        pages[page] = with_results(page.read_text())
    pages[DOCS / "index.md"] = index_page(pages[DOCS.parent / "README.md"])
    pages |= stored_tables()
    for path, text in pages.items():
        if check:
            if not path.exists() or path.read_text() != text:
                stale.append(path.name)
        else:
            path.write_text(text)
    if stale:
        print(f"out of date: {stale}; run python docs/generate.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
