"""Rows on disk: one JSON object per line, each the whole story of one run; figures and tables need nothing else.

    {"key", "task": what was asked, "result": what came out (equal for equal tasks), "timing": seconds, "run": by what}

Lines are only ever appended. A torn last line (the process died while writing) is ignored and its task run again.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import platform
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any

from rpl_agent.certificate import versions
from rpl_agent.errors import DataError
from rpl_agent.schema import jsonable

Row = dict[str, Any]
ROWS = "rows.jsonl"
FAILURES = "failures.jsonl"
SPOOL = ".spool"


def number(value: Any) -> float:
    """A number of a row: a float, "inf", "nan", or None for "not there"."""
    return math.nan if value is None else float(value)


def grouped(rows: Iterable[Row], by: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """Rows by what a function says of them, in the order in which they come."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[by(row)].append(row)
    return groups


def by_kind(rows: Iterable[Row]) -> dict[str, list[Row]]:
    return grouped(rows, lambda row: row["task"]["kind"])


@lru_cache(maxsize=1)
def provenance() -> dict[str, Any]:
    """What the code and the machine are, without naming the machine."""
    here = Path(__file__).resolve().parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, timeout=10, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    commit = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no")
    return {
        "commit": commit,
        "modified": None if changed is None else bool(changed),
        "versions": versions(),
        "machine": {"system": platform.system(), "architecture": platform.machine(), "cpus": os.cpu_count()},
    }


def make_row(key: str, task: dict[str, Any], result: dict[str, Any], timing: dict[str, float]) -> Row:
    finished = datetime.now(timezone.utc).isoformat(timespec="seconds")
    row = {"key": key, "task": task, "result": result, "timing": timing, "run": provenance() | {"finished": finished}}
    return jsonable(row)


def has_rows(folder: str | Path) -> bool:
    """Whether a folder holds the results of a sweep."""
    return any((Path(folder) / name).is_file() for name in (ROWS, f"{ROWS}.gz"))


def append(path: Path, rows: Iterable[Row]) -> None:
    """Append whole lines and force them to disk; a torn line of a killed process is closed first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        for row in rows:
            file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> list[Row]:
    """All whole rows of a file (compressed if its name ends with .gz); unreadable lines are skipped."""
    if not path.exists():
        return []
    data = path.read_bytes()
    rows = []
    for line in (gzip.decompress(data) if path.suffix == ".gz" else data).decode(errors="replace").split("\n"):
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict) and {"key", "task", "result"} <= set(row):
            rows.append(row)
    return rows


class Store:
    """The rows of one results folder: rows.jsonl, to which new ones are appended, and rows.jsonl.gz if there is one."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        self.path = self.folder / ROWS
        parts = (self.folder / f"{ROWS}.gz", self.path)
        self._rows: dict[str, Row] = {row["key"]: row for part in parts for row in read(part)}

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Iterable[Row]) -> int:
        """Append rows that are not there yet; returns how many were new."""
        new = {row["key"]: row for row in rows if row["key"] not in self._rows}
        if new:
            append(self.path, new.values())
            self._rows.update(new)
        return len(new)

    def get(self, keys: Iterable[str]) -> list[Row]:
        return [self._rows[k] for k in keys if k in self._rows]

    def all(self, kind: str | None = None) -> list[Row]:
        return [row for row in self._rows.values() if kind is None or row["task"]["kind"] == kind]

    @property
    def spool(self) -> Path:
        return self.folder / SPOOL

    def absorb_spool(self) -> int:
        """Take over what workers of an interrupted sweep had finished."""
        taken = 0
        if self.spool.is_dir():
            for part in sorted(self.spool.glob("*.jsonl")):
                taken += self.add(row for row in read(part) if "error" not in row)
                part.unlink(missing_ok=True)
            try:
                self.spool.rmdir()
            except OSError:
                pass  # another worker's file came in between: the next sweep takes it
        return taken


def require_rows(folder: str | os.PathLike) -> Store:
    """A store that has rows, or an error that says where they were looked for."""
    store = Store(folder)
    if not len(store):
        raise DataError(f"no rows in {os.fspath(folder)!r}: run `rpl reproduce` or `rpl compare` into it first")
    return store
