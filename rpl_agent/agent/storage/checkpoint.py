"""Files of a run, one format for Python and the command line.

A run folder has ``run.json`` (which world, so that it can be made again), ``checkpoint.zip`` and the one before it,
``certificate.json``, ``progress.csv`` and the TensorBoard events. A folder of `rpl train` appears whole, with its first
checkpoint in it. A checkpoint is one zip of JSON and npz (no pickle), written atomically, checked when read:

    manifest.json   format, version, sha256 of the other members
    state.json      counters, settings, random states, certificate
    arrays.npz      counts and their marks, policies, warm starts

Writing: a temporary file beside the target is flushed to disk and then renamed onto it; the file that was there stays
as ``NAME.previous``. Whenever the process dies, at least one whole checkpoint exists. Reading: a file that is cut,
damaged or not ours is a `CheckpointError`; `read_latest` then falls back to the previous one.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent import schema
from rpl_agent.errors import DataError, ModelError, RPLWarning
from rpl_agent.schema import jsonable

CHECKPOINT = "checkpoint.zip"


@dataclass(frozen=True)
class StoredRun:
    """run.json; ``source`` has options of the command line, which checks them, or id and keywords of an environment."""

    source: dict[str, Any]
    seed: schema.Natural


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
    return schema.read(schema.read_json(text, str(path)), StoredRun, str(path)).source


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


FORMAT = "rpl-agent-checkpoint"
VERSION = 2
_MEMBERS = ("manifest.json", "state.json", "arrays.npz")
#: No honest checkpoint is larger (10^8 transitions fit); stops archives made to fill the memory.
MAX_BYTES = 8 << 30
#: What broken or hostile archives make zipfile, json and numpy raise.
UNREADABLE = (
    OSError, EOFError, zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, ValueError, KeyError, AttributeError,
    TypeError, NotImplementedError, RuntimeError, MemoryError,
)  # fmt: skip
#: Deflate cannot expand honest arrays much further than runs of zeros do.
MAX_RATIO = 1100


class CheckpointError(DataError):
    """A checkpoint is missing, damaged, hostile or of another model."""


def previous_path(path: Path) -> Path:
    return path.with_name(path.name + ".previous")


def write(path: str | os.PathLike, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a checkpoint atomically: a complete one exists at all times. Raises `CheckpointError` if writing fails."""
    path = Path(path)
    blob = pack(state, arrays)
    try:
        _write(path, blob)
    except OSError as error:
        kept = "; the last one stays good" if path.is_file() else ""
        raise CheckpointError(f"{path} could not be written: {error.strerror or error}{kept}") from error


def _write(path: Path, blob: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=path.name + ".", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(blob)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp makes it private; a checkpoint is as readable as the logs beside it
        with suppress(CheckpointError):  # never let a damaged file take the place of a good previous one
            read(path)
            _keep_previous(path)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def pack(state: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """The bytes of a checkpoint; equal contents give equal bytes."""
    text = json.dumps(state, sort_keys=True, allow_nan=False).encode()
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)  # type: ignore[arg-type]
    members = {"state.json": text, "arrays.npz": buffer.getvalue()}
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in {"manifest.json": json.dumps(manifest).encode(), **members}.items():
            archive.writestr(zipfile.ZipInfo(name), data, compress_type=zipfile.ZIP_DEFLATED)
    return out.getvalue()


def read(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """State and arrays of a checkpoint; `CheckpointError` says what is wrong with a bad one."""
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"no checkpoint at {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            members = _read_members(archive, path)
        manifest = json.loads(members["manifest.json"])
        if manifest.get("format") != FORMAT:
            raise CheckpointError(f"{path} is not a checkpoint of rpl_agent")
        if manifest.get("version") != VERSION:
            raise CheckpointError(f"{path} has version {manifest.get('version')}; this package reads version {VERSION}")
        for name in _MEMBERS[1:]:
            if hashlib.sha256(members[name]).hexdigest() != manifest["sha256"].get(name):
                raise CheckpointError(f"{path} is damaged: the checksum of {name} is wrong")
        state = json.loads(members["state.json"])
        if not isinstance(state, dict):
            raise CheckpointError(f"{path} is damaged: its state is not an object")
        with np.load(io.BytesIO(members["arrays.npz"]), allow_pickle=False) as data:
            arrays = {name: data[name] for name in data.files}
    except CheckpointError:
        raise
    except UNREADABLE as error:
        raise CheckpointError(f"{path} is damaged or not a checkpoint: {error}") from None
    return state, arrays


def read_latest(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The newest whole checkpoint: ``path`` or, with a warning, the one before it."""
    path = Path(path)
    try:
        return read(path)
    except CheckpointError as error:
        older = previous_path(path)
        if not older.is_file():
            raise
        result = read(older)
        warnings.warn(f"{error}; using the previous checkpoint {older.name}", RPLWarning, stacklevel=2)
        return result


def _read_members(archive: zipfile.ZipFile, path: Path) -> dict[str, bytes]:
    names = [info.filename for info in archive.infolist()]
    if sorted(names) != sorted(_MEMBERS):
        raise CheckpointError(f"{path} is not a checkpoint of rpl_agent: it holds {sorted(names)[:5]}")
    for info in archive.infolist():
        if info.file_size > MAX_BYTES or info.file_size > MAX_RATIO * max(info.compress_size, 1) + 4096:
            raise CheckpointError(f"{path}: {info.filename} claims {info.file_size} bytes, refused")
    return {name: archive.read(name) for name in names}


def _keep_previous(path: Path) -> None:
    """``path`` also becomes the previous file, without a moment at which ``path`` is missing."""
    older = previous_path(path)
    link = path.with_name(path.name + ".link")
    try:
        link.unlink(missing_ok=True)
        os.link(path, link)
        os.replace(link, older)
    except OSError:  # a file system without hard links: the previous file is found by read_latest
        os.replace(path, older)


def _sync_folder(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # folders cannot be opened on every system
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
