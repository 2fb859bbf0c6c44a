"""How a result is printed: one JSON object, a small table, or text."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

from rpl_agent.core.printed import Sides, ceil_text, floor_text

#: What only rows of tables have: spaces that align columns.
COLUMNS = re.compile(r"\S {3,}\S")

#: Fields that are bounds, or their last words, with what rounds them outward.
BOUNDS: Sides = {"lower": floor_text, "upper": ceil_text, "regret": ceil_text, "share": floor_text}


def emit(
    arguments: argparse.Namespace, data: Mapping[str, Any], title: str, text: str | None = None, bounds: Sides = BOUNDS
) -> None:
    """Print one JSON object, or a small table for people (``text``, or ``data["text"]``, replaces it)."""
    data = dict(data)
    text = data.pop("text", text)
    if text is not None and not arguments.json:
        print("\n".join(map(_wrapped, text.splitlines())) if sys.stdout.isatty() else text)
        return
    from rpl_agent.core.schema import jsonable  # imports numpy: only if there is a result to print

    plain = jsonable(data)
    if arguments.json:
        print(json.dumps(plain, allow_nan=False))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, show_header=False, title_justify="left")
    for key, value in plain.items():
        side = bounds.get(key, bounds.get(key.rpartition("_")[2])) if isinstance(value, float) else None
        table.add_row(key.replace("_", " "), escape(side(value) if side else _shown(value)))
    Console().print(table)


def _wrapped(line: str) -> str:
    """Wrap a line of prose at the terminal's width, never inside a number; rows of tables stay."""
    width, indent = shutil.get_terminal_size().columns, " " * (len(line) - len(line.lstrip()) + 2)
    if len(line) <= width or line.startswith("|") or COLUMNS.search(line):
        return line
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float | int):
        return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_shown(entry)}" for key, entry in value.items())
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return "–" if value is None else str(value)
