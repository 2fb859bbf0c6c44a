"""Where logged transitions come from: CSV, Parquet and Minari, each as a stream of blocks of bounded size.

A block holds one list or array per column, and can say where its k-th row stands in the source.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.errors import DataError

#: Rows held in memory at a time.
BLOCK = 1 << 16


@dataclass
class LogRows:
    """Some rows of a log; `broken` maps rows that could not be read at all to the reason."""

    columns: Mapping[str, Sequence[Any]]
    size: int
    place: Callable[[int], str]
    broken: dict[int, str] = field(default_factory=dict)


def open_log(source: str | Path) -> Iterator[LogRows]:
    """The blocks of ``log.csv``, ``log.parquet`` or ``minari:NAME``."""
    text = str(source)
    if text.startswith("minari:"):
        return _minari(text.removeprefix("minari:"))
    path = Path(text)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix in (".parquet", ".pq"):
        return _parquet(path)
    if path.suffix in (".csv", ".tsv", ".txt"):
        return _csv(path, "\t" if path.suffix == ".tsv" else ",")
    raise DataError(f"{path.name}: a log is a .csv, .tsv or .parquet file, or minari:NAME")


def length(source: str | Path) -> int:
    """Number of rows, without holding them."""
    text = str(source)
    if text.startswith("minari:"):
        return int(_minari_dataset(text.removeprefix("minari:")).total_steps)
    if Path(text).suffix in (".parquet", ".pq"):
        return int(_parquet_file(Path(text)).metadata.num_rows)
    return sum(block.size for block in open_log(source))


def _line(name: str, lines: list[int], k: int) -> str:
    return f"{name}:{lines[k]}"


def _row(name: str, first: int, k: int) -> str:
    return f"{name} row {first + k + 1}"


def _step(name: str, episode: int, k: int) -> str:
    return f"{name} episode {episode}, step {k}"


def _csv(path: Path, separator: str) -> Iterator[LogRows]:
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.reader(file, delimiter=separator, strict=True)
        try:
            header = next(reader, None)
            if not header or not any(name.strip() for name in header):
                raise DataError(f"{path}:1: no header line")
            names = [name.strip() for name in header]
            if len(set(names)) < len(names):
                raise DataError(f"{path}:1: the header names a column twice")
            while True:
                rows, lines, broken = _csv_rows(reader, len(names))
                if not rows:
                    return
                columns = dict(zip(names, zip(*rows, strict=True), strict=True))
                yield LogRows(columns, len(rows), partial(_line, path.name, lines), broken)
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(f"{path}:{reader.line_num}: {error}") from None


def _csv_rows(reader: Any, width: int) -> tuple[list[list[str]], list[int], dict[int, str]]:
    rows: list[list[str]] = []
    lines: list[int] = []
    broken: dict[int, str] = {}
    for row in reader:
        if not row:
            continue  # an empty line is not a row
        if len(row) != width:
            broken[len(rows)] = f"{len(row)} fields, the header has {width}"
            row = (row + [""] * width)[:width]
        rows.append(row)
        lines.append(reader.line_num)
        if len(rows) == BLOCK:
            break
    return rows, lines, broken


def _parquet_file(path: Path) -> Any:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError:
        raise DataError(f"{path.name}: reading Parquet needs the package pyarrow: pip install pyarrow") from None
    try:
        return parquet.ParquetFile(path)
    except ArrowInvalid as error:
        raise DataError(f"{path.name}: {error}") from None


def _parquet(path: Path) -> Iterator[LogRows]:
    first = 0
    for batch in _parquet_file(path).iter_batches(batch_size=BLOCK):
        columns = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            whole = str(column.type).startswith(("int", "uint")) and column.null_count == 0
            columns[name] = column.to_numpy(zero_copy_only=False) if whole else column.to_pylist()
        yield LogRows(columns, batch.num_rows, partial(_row, path.name, first))
        first += batch.num_rows


def _minari_dataset(name: str) -> Any:
    try:
        import minari
    except ImportError:
        raise DataError("reading minari:NAME needs the package minari: pip install minari") from None
    try:
        return minari.load_dataset(name)
    except (FileNotFoundError, ValueError, KeyError) as error:
        raise DataError(f"minari dataset {name!r}: {error}") from None


def _minari(name: str) -> Iterator[LogRows]:
    """One block per episode; observations are state numbers, or one number per state variable."""
    for number, episode in enumerate(_minari_dataset(name).iterate_episodes()):
        observations, actions = np.asarray(episode.observations), np.asarray(episode.actions)
        if observations.dtype.kind not in "iu" or observations.ndim > 2 or actions.dtype.kind not in "iu":
            raise DataError(f"minari dataset {name!r}: observations and actions must be whole numbers")
        steps = len(actions)
        actions = actions.reshape(steps, -1)
        if observations.shape[0] != steps + 1 or (steps and actions.shape[1] != 1):
            raise DataError(f"minari dataset {name!r}, episode {number}: observations and actions do not fit together")
        columns: dict[str, Any] = {"action": actions[:, 0] if steps else [], "episode": [number] * steps}
        if observations.ndim == 1 or observations.shape[1] == 1:
            flat = observations.reshape(-1)
            columns |= {"state": flat[:-1], "next_state": flat[1:]}
        else:
            for j in range(observations.shape[1]):
                columns |= {f"#{j}": observations[:-1, j], f"next_#{j}": observations[1:, j]}
        yield LogRows(columns, steps, partial(_step, name, number))
