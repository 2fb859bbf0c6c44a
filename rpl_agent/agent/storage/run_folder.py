"""Run folders, one format for Python and the command line.

``run.json`` (which world, so that it can be made again), ``checkpoint.zip`` and the one before it,
``certificate.json``, ``progress.csv`` and the TensorBoard events. A folder of `rpl train` appears whole, with its first
checkpoint in it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpl_agent.errors import DataError, ModelError
from rpl_agent.jsonable import jsonable
from rpl_agent.schema import Natural, read, read_json

CHECKPOINT = "checkpoint.zip"


@dataclass(frozen=True)
class StoredRun:
    """run.json; ``source`` has options of the command line, which checks them, or id and keywords of an environment."""

    source: dict[str, Any]
    seed: Natural


def write_text(path: Path, text: str) -> None:
    """The file appears whole or not at all."""
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_text(text, newline="")
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_run(folder: Path, source: Mapping[str, Any], seed: int) -> None:
    write_text(folder / "run.json", json.dumps(jsonable({"source": source, "seed": seed})) + "\n")


def read_source(folder: str | Path) -> dict[str, Any]:
    """How the world of a run was made; empty where it was made in Python and has no registered id."""
    path = Path(folder) / "run.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is not a run folder: it has no run.json")
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is damaged: {error}") from None
    return read(read_json(text, str(path)), StoredRun, str(path)).source


def new_folder(log_dir: Path, name: str | None, model: str, fill: Callable[[Path], None]) -> Path:
    """A new folder that ``fill`` has put files into; it appears at once with all of them, or not at all.

    Without a name it is the model's with the next unused number.
    """
    if name is not None and (log_dir / name).resolve().parent != log_dir.resolve():
        raise ModelError(f"the run's name {name!r} must be a plain folder name")
    log_dir.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=log_dir))
    try:
        os.chmod(temporary, 0o755)
        fill(temporary)
        if name is not None:
            if not _rename(temporary, log_dir / name):
                raise ModelError(f"{log_dir / name} exists: choose another --name, or use rpl resume {log_dir / name}")
            return log_dir / name
        plain = "".join(c if c.isalnum() or c in "-." else "-" for c in model)
        number = 1
        while not _rename(temporary, log_dir / f"{plain}_{number}"):
            number += 1
        return log_dir / f"{plain}_{number}"
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _rename(folder: Path, to: Path) -> bool:
    """Whether the name was free (an empty folder, which an interrupted start leaves, is free)."""
    if to.is_dir() and any(to.iterdir()):
        return False
    try:
        os.rename(folder, to)
    except (FileExistsError, NotADirectoryError):
        return False
    except OSError as error:
        if to.exists():  # not empty any more: another process was faster
            return False
        raise ModelError(f"{to} cannot be made: {error.strerror or error}") from error
    return True


def next_folder(parent: str | os.PathLike, name: str) -> Path:
    """The next unused ``parent/name_1``, ``parent/name_2``, …, created."""
    parent = Path(parent)
    parent.mkdir(parents=True, exist_ok=True)
    taken = (p.name.removeprefix(f"{name}_") for p in parent.glob(f"{name}_*"))
    number = max((int(n) for n in taken if n.isdecimal() and len(n) < 19), default=0)
    while True:
        number += 1
        folder = parent / f"{name}_{number}"
        try:
            folder.mkdir()
            return folder
        except FileExistsError:  # another process was faster
            continue
