"""Sources of logged transitions: CSV, Parquet and Minari, each as a stream of blocks of bounded size.

A block has one list or array per column, and the place of its k-th row in the source. `RepeatedRows` finds
steps that occur in a log more than once: `evidence.repetition` with the contexts of a sequence of rows.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.core.errors import DataError, require_file
from rpl_agent.core.evidence.repetition import (
    EpisodeCodes,
    RepeatedChanceError,
    RepetitionTest,
    WindowCodes,
    equal_parts,
)
from rpl_agent.core.model import ParametricMDP

#: Lengths of the windows to search for elsewhere in the log: short ones if rows carry much chance.
WIDTHS = (16, 64, 256)
#: Rows are tested in pieces of at least this size, and whole copies are compared in logs of at most this many rows.
PIECE = 1 << 14
ORDERED = 1 << 20
#: In longer logs, rows are tested whenever their number has grown by this factor, and at the end.
LOOK_AGAIN = 1.1
_MEANING = {
    "row": "what it was there the last time",
    "step": "what it was in the same step of an episode before",
    "episode": "what it was in an episode that began in the same way",
}


class RepeatedRows:
    """Tests a log for repetitions while it is read."""

    def __init__(self, pmdp: ParametricMDP):
        self._pmdp = pmdp
        self._episodes, self._windows = EpisodeCodes(), {f"last {w}": WindowCodes(w) for w in WIDTHS}
        self._test = RepetitionTest(pmdp, ("row", "step", "episode", *self._windows))
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self._order: list[np.ndarray] = []
        self._next_look = 0.0

    def add(self, transitions: np.ndarray, starts: np.ndarray) -> None:
        """Add the next usable rows (n,) as transitions; ``starts`` (n,) is true where an episode begins."""
        self._waiting.append((transitions, starts))
        if sum(len(piece) for piece, _ in self._waiting) >= PIECE:
            self._look()

    def finish(self) -> None:
        """Finish the tests at the end of the log."""
        self._look()
        self._refuse_alarm()
        if self._test.total <= ORDERED and self._test.total:
            copies = equal_parts(self._pmdp, np.concatenate(self._order))
            if copies is not None:
                raise RepeatedChanceError(f"the rows are {copies} copies of one log, each in another order: {_REASON}")

    def _look(self) -> None:
        if not self._waiting:
            return
        transitions, starts = (np.concatenate(parts) for parts in zip(*self._waiting))
        self._waiting.clear()
        if self._test.total + len(transitions) <= ORDERED:
            self._order.append(transitions.astype(np.int32))
        contexts = {"row": np.zeros(len(transitions), dtype=np.uint64), **self._episodes.add(transitions, starts)}
        contexts |= {kind: windows.add(transitions) for kind, windows in self._windows.items()}
        self._test.add(transitions, contexts)
        if self._test.total >= self._next_look:  # a look is valid at any time: look as often as is cheap
            self._next_look = LOOK_AGAIN * self._test.total if self._test.total > ORDERED else 0.0
            self._refuse_alarm()

    def _refuse_alarm(self) -> None:
        found = self._test.alarm()
        if found is not None:
            kind, hits, compared, earlier, later = found
            meaning = _MEANING.get(kind, f"what followed the same {kind.removeprefix('last ')} rows before")
            raise RepeatedChanceError(
                f"the outcome of {hits:,} of {compared:,} rows is {meaning} (usable row {later + 1} repeats row "
                f"{earlier + 1}): {_REASON}"
            )


_REASON = "the same chance is counted twice, or the next state depends on more than state and action"


#: Rows in memory at a time.
BLOCK = 1 << 16


class Coded(Sequence[Any]):
    """A column of texts: the distinct ones, and (n,) the number of each row's text among them."""

    def __init__(self, values: list[Any], codes: np.ndarray) -> None:
        self.values, self.codes = values, codes

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, k: Any) -> Any:
        return self.values[self.codes[k]]


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
    require_file(path)
    if path.suffix in (".parquet", ".pq"):
        return _parquet(path)
    if path.suffix in (".csv", ".tsv", ".txt"):
        return _csv(path, "\t" if path.suffix == ".tsv" else ",")
    raise DataError(f"{path.name}: a log is a .csv, .tsv or .parquet file, or minari:NAME")


def require_distinct(pieces: Sequence[str | Path]) -> None:
    """Refuse a piece that is given twice, under whatever names: a short one has too little chance to show it."""
    seen = set[Any]()
    for piece in pieces:
        status = os.stat(piece) if os.path.exists(piece) else None
        own = str(piece) if status is None else (status.st_dev, status.st_ino)
        if own in seen:
            raise DataError(f"{piece} is given twice: its rows repeat, and are not more data; nothing was used")
        seen.add(own)


def length(source: str | Path) -> int:
    """Number of rows, without loading them."""
    text = str(source)
    if text.startswith("minari:"):
        return int(_minari_dataset(text.removeprefix("minari:")).total_steps)
    if Path(text).suffix in (".parquet", ".pq"):
        return int(_parquet_file(Path(text)).metadata.num_rows)
    return sum(block.size for block in open_log(source))


def _csv(path: Path, separator: str) -> Iterator[LogRows]:
    with open(path, encoding="utf-8-sig", newline="") as file:  # spreadsheets begin their tables with a mark
        reader = csv.reader(file, delimiter=separator, strict=True, skipinitialspace=True)
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
                yield LogRows(columns, len(rows), partial(lambda lines, k: f"{path.name}:{lines[k]}", lines), broken)
        except csv.Error as error:
            raise DataError(f"{path}:{reader.line_num}: {error}") from None
        except UnicodeDecodeError:
            raise DataError(f"{path} is not a text file in UTF-8") from None


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
        from pyarrow import parquet
    except ImportError:
        raise DataError(f"{path.name}: reading Parquet needs the package pyarrow: pip install pyarrow") from None
    with _undamaged(path):
        file = parquet.ParquetFile(path)
        if len(set(file.schema_arrow.names)) < len(file.schema_arrow.names):
            raise DataError(f"{path.name} names a column twice")
        texts = [field.name for field in file.schema_arrow if str(field.type) in ("string", "large_string")]
        # as codes, which the file mostly has already; nested columns have other names
        return parquet.ParquetFile(path, metadata=file.metadata, read_dictionary=texts) if texts else file


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    """Name the file where pyarrow cannot read it."""
    from pyarrow import ArrowException

    try:
        yield
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path.name}: {str(error).strip()}") from None


def _parquet(path: Path) -> Iterator[LogRows]:
    first, file = 0, _parquet_file(path)
    with _undamaged(path):
        for batch in file.iter_batches(batch_size=BLOCK):
            batch.validate(full=True)  # codes and texts, which nothing else checks
            columns = {
                name: _parquet_column(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
            yield LogRows(columns, batch.num_rows, partial(lambda first, k: f"{path.name} row {first + k + 1}", first))
            first += batch.num_rows


#: texts as codes
CODED = tuple(f"dictionary<values={kind}, indices=int32, ordered=0>" for kind in ("string", "large_string"))


def _parquet_column(column: Any) -> Sequence[Any]:
    kind = str(column.type)
    if column.null_count == 0 and kind.startswith(("int", "uint")):
        return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    if column.null_count == 0 and kind in ("string", "large_string", *CODED):
        coded = column if kind in CODED else column.dictionary_encode()
        return Coded(coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False))
    return column.to_pylist()  # type: ignore[no-any-return]


def _minari_dataset(name: str) -> Any:
    try:
        import minari
    except ImportError:
        raise DataError("reading minari:NAME needs the package minari: pip install 'minari[hdf5]'") from None
    try:
        return minari.load_dataset(name)
    except ImportError as error:  # minari without the reader of its own files
        raise DataError(f"reading minari:NAME needs more of minari ({error}): pip install 'minari[hdf5]'") from None
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
        yield LogRows(columns, steps, partial(lambda number, k: f"{name} episode {number}, step {k}", number))
