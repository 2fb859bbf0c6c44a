"""Outputs of a run: TensorBoard events, ``progress.csv``, ``certificate.json``; with SB3's ``record`` / ``dump``.

The x axis is the number of episodes (bounds are also logged over time steps). TensorBoard stores 32-bit floats, so
the exact numbers are in the CSV and JSON beside it. A resumed run hides what was logged after its checkpoint, so no
point appears twice.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rpl_agent.agent.output.dropping import dropping
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.files import write_whole
from rpl_agent.core.model import ParametricMDP
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.open_world.certificate import OpenCertificate
from rpl_agent.guarantee.proof import proof_path, prove, stated, write_proof
from rpl_agent.guarantee.proof.open_world import stated_open

if TYPE_CHECKING:
    from rpl_agent.agent.output.events import TensorBoardWriter  # imports tensorboard


class Logger:
    """Collects values by name; `dump` hands them to every writer, and to the loggers of the user."""

    def __init__(self, folder: Path | None = None, writers: Sequence[Any] = (), others: Sequence[Any] = ()):
        self.dir = folder
        self.writers, self.others = list(writers), list(others)
        self.name_to_value: dict[str, float] = {}

    def record(self, key: str, value: Any, exclude: Any = None) -> None:
        """Keep a number under a tag until the next `dump` (``exclude`` is SB3's, unused)."""
        self.name_to_value[key] = float(value)

    def dump(self, step: int = 0) -> None:
        """Pass everything on; what cannot be written is dropped with a warning."""
        what = f"the figures of {step:,} episodes"
        for writer in self.writers:
            with dropping(what):
                writer.write(self.name_to_value, step)
        for logger in self.others:
            with dropping(what):
                for key, value in self.name_to_value.items():
                    logger.record(key, value)
                logger.dump(step)
        self.name_to_value = {}

    @property
    def tensorboard(self) -> TensorBoardWriter | None:
        """The writer for texts and figures, if any."""
        return next((w for w in self.writers if hasattr(w, "figure")), None)


class CSVWriter:
    """``progress.csv``: one row per log point; a new tag becomes a new column, a repeated step replaces its row.

    ``resume_at`` drops what was logged after this many episodes.
    """

    def __init__(self, path: Path, resume_at: int | None = None):
        self._path = path
        self._columns: list[str] = ["episodes"]
        self._last: tuple[int, int] | None = None  # step of the last row, and its offset in the file
        self.earlier: list[dict[str, Any]] = []  # rows up to ``resume_at``
        if resume_at is not None and path.is_file():
            self.earlier = self._rewrite(until=resume_at)

    def write(self, values: Mapping[str, float], step: int) -> None:
        row = {"episodes": step, **{k: _number(v) for k, v in values.items()}}
        new = [name for name in row if name not in self._columns]
        if new or not self._path.is_file():
            self._columns += new
            self._rewrite()
        again = self._last is not None and self._last[0] == step
        begin = self._last[1] if again and self._last is not None else self._path.stat().st_size
        try:
            self._append(row, begin)
        except OSError:
            with suppress(OSError):
                os.truncate(self._path, begin)  # no partial row
            raise
        self._last = (step, begin)

    def _append(self, row: Mapping[str, Any], begin: int) -> None:
        with self._path.open("r+", newline="") as file:
            file.truncate(begin)
            file.seek(begin)
            csv.DictWriter(file, self._columns, restval="").writerow(row)

    def _rewrite(self, until: int | None = None) -> list[dict[str, Any]]:
        """Rewrite the file with the current columns, without rows after ``until``; rows are not kept in memory."""
        rows: list[dict[str, Any]] = []
        if self._path.is_file():
            with self._path.open(newline="") as file:
                reader = csv.DictReader(file)
                rows = [row for row in reader if None not in row and (until is None or _int(row["episodes"]) <= until)]
                self._columns = list(dict.fromkeys([*(reader.fieldnames or []), *self._columns]))
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self._columns, restval="")
        writer.writeheader()
        for row in rows:
            self._last = (_int(row["episodes"]), text.tell())  # bytes equal characters: tags are ASCII
            writer.writerow(row)
        write_whole(self._path, text.getvalue())
        return rows


def write_certificate(folder: Path, certificate: Certificate | OpenCertificate) -> None:
    """Write ``certificate.json``; dropped with a warning if writing fails."""
    with dropping("the certificate"):
        fields = (f"{json.dumps(k)}: {json.dumps(v, allow_nan=False)}" for k, v in certificate.to_dict().items())
        write_whole(folder / "certificate.json", "{" + ",\n ".join(fields) + "}\n")  # one line per field, at C speed


def withdraw_certificate(folder: Path) -> None:
    """Remove the certificate and the proof of a run whose assumptions are refuted: they claim what is false."""
    path = folder / "certificate.json"
    path.unlink(missing_ok=True)
    proof_path(path).unlink(missing_ok=True)


def write_proved(
    folder: Path,
    pmdp: ParametricMDP,
    counts: Counts,
    certificate: Certificate,
    earlier: Mapping[str, Counts],
    most: float = np.inf,
) -> Certificate:
    """Write ``certificate.json`` and ``proof.json.gz`` beside it; return the certificate with the proof's numbers.

    A proof of more than ``most`` inequalities is refused: then the certificate does not claim to be proved.
    """
    with dropping("the proof"):
        proof = prove(pmdp, counts, certificate, earlier, most)
        write_proof(proof_path(folder / "certificate.json"), proof)
        certificate = stated(certificate, proof)
    write_certificate(folder, certificate)
    return certificate


def write_open_proved(
    folder: Path, session: Any, certificate: OpenCertificate, most: float = np.inf
) -> OpenCertificate:
    """`write_proved` for a session without a model."""
    with dropping("the proof"):
        proof = session.prove(certificate, most)
        write_proof(proof_path(folder / "certificate.json"), proof)
        certificate = stated_open(certificate, proof)
    write_certificate(folder, certificate)
    return certificate


def _int(text: Any) -> int:
    try:
        return int(text)
    except (TypeError, ValueError):
        return int(np.iinfo(np.int64).max)


def _number(value: float) -> Any:
    return int(value) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))
