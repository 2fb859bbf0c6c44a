"""Files of a run, one format for Python and the command line.

A run folder has ``run.json`` (how to remake the world), ``checkpoint.zip`` and its predecessor,
``certificate.json``, ``progress.csv`` and the TensorBoard events. A folder of `rpl train` appears complete, with its
first checkpoint. A checkpoint is one zip of JSON and npz (no pickle), written atomically and checked when read:

    manifest.json   format, version, sha256 of the other members, types of integers that were stored in smaller ones
    state.json      counters, settings, random states, certificate
    arrays.npz      counts and their marks, policies, warm starts

Writing: a temporary file beside the target is flushed to disk and then renamed onto it; the old file is kept
as ``NAME.previous``. Whenever the process dies, at least one complete checkpoint exists. Reading: a truncated,
damaged or foreign file raises `CheckpointError`; `read_latest` then falls back to the previous one.
"""

from __future__ import annotations

import glob
import hashlib
import io
import json
import os
import shutil
import tempfile
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.core import schema
from rpl_agent.core.errors import DataError, ModelError, RPLWarning, as_path
from rpl_agent.core.files import make_folder, write_whole
from rpl_agent.core.schema import jsonable

CHECKPOINT = "checkpoint.zip"


@dataclass(frozen=True)
class StoredRun:
    """run.json; ``source`` has command-line options, which the CLI checks, or id and keywords of an environment."""

    source: dict[str, Any]
    seed: schema.Natural


def write_run(folder: Path, source: Mapping[str, Any], seed: int) -> None:
    write_whole(folder / "run.json", json.dumps(jsonable({"source": source, "seed": seed})) + "\n")


def read_source(folder: str | Path) -> dict[str, Any]:
    """How the world of a run was made; empty if it was made in Python without a registered id."""
    path = Path(folder) / "run.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is not a run folder: it has no run.json")
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is damaged: {error}") from None
    return schema.read(schema.read_json(text, str(path)), StoredRun, str(path)).source


def new_folder(log_dir: Path, name: str | None, default: str, fill: Callable[[Path], None]) -> Path:
    """Create a new folder filled by ``fill``; it appears with all of its files, or not at all.

    Without a name it is called ``default`` with the next unused number.
    """
    if name is not None and (log_dir / name).resolve().parent != log_dir.resolve():
        raise ModelError(f"the run's name {name!r} must be a plain folder name")
    make_folder(log_dir)
    remove_stale(log_dir, ".*.part")
    temporary = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=log_dir))
    try:
        os.chmod(temporary, 0o755)
        fill(temporary)
        if name is not None:
            if not _rename(temporary, log_dir / name):
                raise ModelError(f"{log_dir / name} exists: choose another --name, or use rpl resume {log_dir / name}")
            return log_dir / name
        return next(folder for n in count(1) if _rename(temporary, folder := log_dir / f"{default}_{n}"))
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def remove_stale(folder: Path, pattern: str) -> None:
    """Remove temporary files and folders that killed processes left behind."""
    for path in folder.glob(pattern):
        with suppress(OSError):  # another process was faster, or it is not ours to remove
            if time.time() - path.stat().st_mtime < STALE_SECONDS:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def _rename(folder: Path, to: Path) -> bool:
    """Rename a folder; return whether the name was free (an empty folder, left by an interrupted start, is free)."""
    if to.is_dir() and any(to.iterdir()):
        return False
    try:
        os.rename(folder, to)
    except (FileExistsError, NotADirectoryError):
        return False
    except OSError as error:
        if to.exists():  # no longer empty: another process was faster
            return False
        raise ModelError(f"{to} cannot be made: {error.strerror or error}") from error
    return True


FORMAT = "rpl-agent-checkpoint"
VERSION = 3
#: Version 2 has all integers in their own types.
READABLE = (2, 3)
_MEMBERS = ("manifest.json", "state.json", "arrays.npz")
#: No genuine checkpoint is larger (10^8 transitions fit); stops archives made to fill the memory.
MAX_BYTES = 8 << 30
#: Exceptions that broken or hostile archives raise in zipfile, json and numpy; RuntimeError is what zipfile says of
#: encryption, and in a class below it of compression that it does not know.
UNREADABLE = (
    OSError,
    EOFError,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    ValueError,
    KeyError,
    AttributeError,
    TypeError,
    RuntimeError,
    MemoryError,
)
#: A file may expand to FREE_BYTES and MAX_RATIO times its size; deflate alone reaches 1,032 times.
FREE_BYTES = 64 << 20
MAX_RATIO = 200
#: A temporary file or folder of this age is left over from a process that was killed.
STALE_SECONDS = 3600.0


#: checksums of the checkpoints that this process wrote last
_WRITTEN: dict[Path, int] = {}


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
        kept = "; the last one remains valid" if path.is_file() else ""
        raise CheckpointError(f"{path} could not be written: {error.strerror or error}{kept}") from error


def _write(path: Path, blob: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_stale(path.parent, f"{glob.escape(path.name)}.*.part")
    handle, name = tempfile.mkstemp(prefix=path.name + ".", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(blob)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp makes it private; a checkpoint is as readable as the logs beside it
        with suppress(CheckpointError):  # never replace a good previous file by a damaged one
            if not _is_as_written(path):
                read(path)
            _keep_previous(path)
        os.replace(name, path)
        _WRITTEN[path.resolve()] = zlib.crc32(blob)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _is_as_written(path: Path) -> bool:
    """Whether the file is still the checkpoint that this process wrote last, so that it need not be unpacked."""
    known = _WRITTEN.get(path.resolve())
    try:
        return known is not None and zlib.crc32(path.read_bytes()) == known
    except OSError:
        return False


def pack(state: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """The bytes of a checkpoint; equal contents give equal bytes."""
    text = json.dumps(state, sort_keys=True, allow_nan=False).encode()
    buffer, small = io.BytesIO(), {name: _narrowed(array) for name, array in arrays.items()}
    np.savez(buffer, allow_pickle=False, **small)  # type: ignore[arg-type]
    members = {"state.json": text, "arrays.npz": buffer.getvalue()}
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
        "types": {name: array.dtype.str for name, array in arrays.items() if array.dtype != small[name].dtype},
    }
    members = {"manifest.json": json.dumps(manifest).encode(), **members}
    packed = _zip(members, zipfile.ZIP_DEFLATED)
    expands = sum(map(len, members.values())) > _most_bytes(len(packed))
    return _zip(members, zipfile.ZIP_STORED) if expands else packed


def _zip(members: Mapping[str, bytes], method: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members.items():  # the level of the archive does not count for members with a ZipInfo
            archive.writestr(zipfile.ZipInfo(name), data, compress_type=method, compresslevel=1)
    return out.getvalue()


def _most_bytes(size: int) -> int:
    """Bytes to which a file of this size may expand."""
    return min(MAX_BYTES, FREE_BYTES + MAX_RATIO * size)


def _narrowed(array: np.ndarray) -> np.ndarray:
    """Integers in the smallest type that holds them: most counts are small, and hashing and deflating take time."""
    if array.dtype.kind not in "iu" or array.itemsize == 1 or not array.size:
        return array
    small = np.promote_types(np.min_scalar_type(array.min()), np.min_scalar_type(array.max()))
    return array.astype(small) if small.kind in "iu" else array  # a negative number beside one of 2^32 or more


def _widened(array: np.ndarray, kind: str) -> np.ndarray:
    """The integers in their own type."""
    if array.dtype.kind not in "iu" or np.dtype(kind).kind not in "iu":
        raise ValueError(f"an array of type {array.dtype} is not one of {kind}")
    return array.astype(np.dtype(kind))


def read(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """State and arrays of a checkpoint; raises `CheckpointError` with the reason if it is bad."""
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"no checkpoint at {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            members = _read_members(archive, path)
        manifest = json.loads(members["manifest.json"])
        if manifest.get("format") != FORMAT:
            raise CheckpointError(f"{path} is not a checkpoint of rpl_agent")
        if manifest.get("version") not in READABLE:
            raise CheckpointError(
                f"{path} has version {manifest.get('version')}; this package reads versions up to {VERSION}"
            )
        for name in _MEMBERS[1:]:
            if hashlib.sha256(members[name]).hexdigest() != manifest["sha256"].get(name):
                raise CheckpointError(f"{path} is damaged: the checksum of {name} is wrong")
        state = json.loads(members["state.json"])
        if not isinstance(state, dict):
            raise CheckpointError(f"{path} is damaged: its state is not an object")
        arrays = _read_arrays(members["arrays.npz"], path)
        arrays |= {name: _widened(arrays[name], kind) for name, kind in manifest.get("types", {}).items()}
    except CheckpointError:
        raise
    except UNREADABLE as error:
        raise CheckpointError(f"{path} is damaged or not a checkpoint: {error}") from None
    return state, arrays


def read_latest(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The newest complete checkpoint: ``path`` or, with a warning, its predecessor."""
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
    size, total = path.stat().st_size, sum(info.file_size for info in archive.infolist())
    if total > _most_bytes(size):
        raise CheckpointError(f"{path} has {size:,} bytes and would expand to {total:,}: refused")
    return {name: archive.read(name) for name in names}


def _read_arrays(data: bytes, path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file, which must not be compressed again: its size bounds theirs."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
            raise CheckpointError(f"{path}: its arrays are compressed twice: refused")
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _keep_previous(path: Path) -> None:
    """Also make ``path`` the previous file; ``path`` exists at all times."""
    older = previous_path(path)
    link = path.with_name(path.name + ".link")
    try:
        link.unlink(missing_ok=True)
        os.link(path, link)
        os.replace(link, older)
    except OSError:  # no hard links on this file system: read_latest finds the previous file
        os.replace(path, older)


def _sync_folder(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # not every system can open folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def zipped(path: str | os.PathLike) -> Path:
    """The path, with ``.zip`` added if it has no ending."""
    path = as_path(path, "path")
    return Path(path) if Path(path).suffix else Path(f"{os.fspath(path)}.zip")
