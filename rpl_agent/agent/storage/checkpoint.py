"""Checkpoints: one zip of JSON and npz (no pickle), written atomically, checked when read.

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
import tempfile
import warnings
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.errors import DataError, RPLWarning

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
