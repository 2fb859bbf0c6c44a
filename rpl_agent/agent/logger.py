"""Where figures go: TensorBoard events, ``progress.csv``, ``certificate.json``; SB3's ``record`` / ``dump`` surface.

The x axis everywhere is the number of episodes. TensorBoard stores 32-bit floats, so the exact numbers are in the CSV
and JSON beside it. A resumed run hides what was logged after its checkpoint, so no point appears twice.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rpl_agent.certificate import Certificate

#: The chart of a PAC guarantee: the estimate inside its band, and what the policy really achieves where that is known.
LAYOUT = {
    "PAC guarantee": {
        "V(s0): estimate within [lower, upper]": [
            "Margin",
            ["guarantee/estimate", "guarantee/lower", "guarantee/upper"],
        ],
    },
    "how tight, how true": {
        "gap": ["Multiline", ["guarantee/gap"]],
        "bounds and truth": ["Multiline", ["guarantee/(lower|upper|estimate)", "oracle/value"]],
    },
    "time": {"seconds per stage": ["Multiline", ["time/(sampling|intervals|region|relaxation|solve)"]]},
}


class Writer(Protocol):
    def write(self, values: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


class Logger:
    """Collects values by name; `dump` hands them to every writer."""

    def __init__(self, folder: Path | None = None, writers: list[Writer] | None = None):
        self.dir = folder
        self.writers: list[Writer] = writers or []
        self.name_to_value: dict[str, float] = {}

    def record(self, key: str, value: Any, exclude: Any = None) -> None:
        """Remember a number under a tag until the next `dump` (``exclude`` is SB3's, unused)."""
        self.name_to_value[key] = float(value)

    def dump(self, step: int = 0) -> None:
        for writer in self.writers:
            writer.write(self.name_to_value, step)
        self.name_to_value = {}

    def forward_to(self, logger: Any) -> None:
        """From now on also hand everything to another logger, e.g. SB3's."""
        self.writers.append(Forward(logger))

    def get_dir(self) -> str | None:
        return None if self.dir is None else str(self.dir)

    @property
    def tensorboard(self) -> TensorBoardWriter | None:
        return next((w for w in self.writers if isinstance(w, TensorBoardWriter)), None)

    def close(self) -> None:
        for writer in self.writers:
            writer.close()


class Forward:
    """To another logger with SB3's ``record`` and ``dump``."""

    def __init__(self, logger: Any):
        self._logger = logger

    def write(self, values: Mapping[str, float], step: int) -> None:
        for key, value in values.items():
            self._logger.record(key, value)
        self._logger.dump(step)

    def close(self) -> None:
        """Its owner closes it."""


class TensorBoardWriter:
    """Scalars, the margin chart, figures and hyper-parameters, through tensorboardX (no torch)."""

    def __init__(self, folder: Path, resume_at: int | None = None):
        SummaryWriter = _tensorboardx().SummaryWriter
        self._writer = SummaryWriter(str(folder), purge_step=None if resume_at is None else resume_at + 1, flush_secs=5)
        self._writer.add_custom_scalars(LAYOUT)

    def write(self, values: Mapping[str, float], step: int) -> None:
        for tag, value in values.items():
            if math.isfinite(value):  # TensorBoard cannot draw an infinite cost; the CSV has it
                self._writer.add_scalar(tag, value, step)
        self._writer.flush()

    def figure(self, tag: str, figure: Any, step: int) -> None:
        """A matplotlib figure, as an image."""
        self._writer.add_figure(tag, figure, step)

    def hyperparameters(self, settings: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """Settings and result of this run, in its own folder (so that runs can be compared)."""
        hparams = _tensorboardx().summary.hparams
        plain = {k: v if isinstance(v, (bool, int, float, str)) else str(v) for k, v in settings.items()}
        for summary in hparams(plain, {k: float(v) for k, v in metrics.items()}):
            self._writer._get_file_writer().add_summary(summary)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def _tensorboardx() -> Any:
    """tensorboardX, which loads torch where that is installed: seconds of start that nothing here has a use for."""
    hidden = "torch" not in sys.modules
    if hidden:
        sys.modules["torch"] = None  # type: ignore[assignment]  # "not installed", for the next lines
    try:
        import tensorboardX
        import tensorboardX.summary
    finally:
        if hidden:
            del sys.modules["torch"]
    return tensorboardX


class CSVWriter:
    """``progress.csv``: one row per log point; a new tag becomes a new column."""

    def __init__(self, path: Path, resume_at: int | None = None):
        self._path = path
        self._columns: list[str] = ["episodes"]
        self._rows: list[dict[str, Any]] = []
        if resume_at is not None and path.is_file():
            with path.open(newline="") as file:
                reader = csv.DictReader(file)
                self._columns = list(reader.fieldnames or self._columns)
                self._rows = [row for row in reader if _int(row.get("episodes")) <= resume_at]
            self._rewrite()

    def write(self, values: Mapping[str, float], step: int) -> None:
        row = {"episodes": step, **{k: _number(v) for k, v in values.items()}}
        self._rows.append(row)
        new = [name for name in row if name not in self._columns]
        if new or not self._path.is_file():
            self._columns += new
            self._rewrite()
            return
        with self._path.open("a", newline="") as file:
            csv.DictWriter(file, self._columns).writerow(row)

    def _rewrite(self) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, self._columns, restval="")
        writer.writeheader()
        writer.writerows(self._rows)
        write_text(self._path, text.getvalue())

    def close(self) -> None:
        pass


def write_text(path: Path, text: str) -> None:
    """The file appears whole or not at all."""
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(text)
    os.replace(temporary, path)


def write_certificate(folder: Path, certificate: Certificate) -> None:
    write_text(folder / "certificate.json", json.dumps(certificate.to_dict(), allow_nan=False, indent=1) + "\n")


def run_folder(parent: str | os.PathLike, name: str) -> Path:
    """The next unused ``parent/name_1``, ``parent/name_2``, …, created."""
    parent = Path(parent)
    parent.mkdir(parents=True, exist_ok=True)
    taken = [_int(p.name.removeprefix(f"{name}_")) for p in parent.glob(f"{name}_*")]
    number = max([n for n in taken if n < np.iinfo(np.int64).max], default=0)
    while True:
        number += 1
        folder = parent / f"{name}_{number}"
        try:
            folder.mkdir()
            return folder
        except FileExistsError:  # another process was faster
            continue


def _int(text: Any) -> int:
    try:
        return int(text)
    except (TypeError, ValueError):
        return int(np.iinfo(np.int64).max)


def _number(value: float) -> Any:
    return int(value) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))
