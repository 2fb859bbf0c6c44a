"""TensorBoard's part of a run folder, written immediately and without a thread: logging never blocks learning.

Records and summaries are TensorBoard's own. Its writer is not used, because its queue stays full forever once its
thread has died (a full disk). A record that could not be written is dropped, and the file is cut back to its
last complete record. File sizes are bounded.
"""

from __future__ import annotations

import io
import math
import os
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.custom_scalar import layout_pb2 as layout
from tensorboard.plugins.custom_scalar import metadata as custom_scalar
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams import metadata as hparams
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer import event_file_writer
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util.tensor_util import make_tensor_proto

from rpl_agent.agent.output.dropping import dropping

#: The largest file; a run of 10^6 episodes with the usual log points has about a megabyte.
MAX_BYTES = 64 << 20
#: Tags that are also logged over time steps.
BY_STEPS, STEPS = ("lower", "upper", "gap", "regret"), "samples/steps"
_TEXT, _NUMBER = api_pb2.DATA_TYPE_STRING, api_pb2.DATA_TYPE_FLOAT64


class EventFile:
    """Appends summaries to a new file in a folder.

    ``purge_step`` hides the contents of the folder's earlier files from that step on.
    """

    def __init__(self, folder: Path, purge_step: int | None = None):
        # the board reads files by name: one made in the same second, or under a clock set back, must still come last
        earlier = (path.name.split(".")[3] for path in folder.glob("events.out.tfevents.*"))
        second = max([int(time.time()), *(1 + int(text) for text in earlier if text.isdecimal())])
        self._path = folder / f"events.out.tfevents.{second:010d}.{socket.gethostname()}.{os.getpid()}"
        self._size = 0  # bytes of complete records
        self._purge_step = purge_step

    def add(self, summary: Any, step: int = 0) -> None:
        """Append one summary; OSError if writing fails (no partial record remains)."""
        now, events = time.time(), []
        if not self._size:
            events.append(Event(wall_time=now, file_version="brain.Event:2"))
            if self._purge_step is not None:
                start = SessionLog(status=SessionLog.START)
                events.append(Event(wall_time=now, step=self._purge_step, session_log=start))
        events.append(Event(wall_time=now, step=step, summary=summary))
        data = io.BytesIO()
        for event in events:
            RecordWriter(data).write(event.SerializeToString())
        if self._size + data.tell() > MAX_BYTES:
            raise OSError(f"{self._path.name} has reached {MAX_BYTES >> 20} MiB")
        self._append(data.getvalue())
        self._size += data.tell()

    def _append(self, data: bytes) -> None:
        self._path.parent.mkdir(exist_ok=True)
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.ftruncate(handle, self._size)  # remains of an earlier failure
            os.lseek(handle, self._size, os.SEEK_SET)
            while data:
                data = data[os.write(handle, data) :]
        finally:
            os.close(handle)


class TensorBoardWriter:
    """Scalars, the margin chart, figures and hyper-parameters.

    ``resume_at`` hides what was logged after this many episodes; ``earlier`` are the rows of the table up to there,
    which are logged again only over time steps, where hidden points have larger numbers.
    """

    def __init__(self, folder: Path, resume_at: int | None = None, earlier: Sequence[Mapping[str, Any]] = ()):
        if "wandb" in sys.modules:  # if asked to sync, it watches the folder of each of these writers
            event_file_writer.EventFileWriter(str(folder)).close()
        self._file = EventFile(folder, None if resume_at is None else resume_at + 1)
        self._hidden = [row for row in earlier if float(row.get(STEPS) or 0) > (resume_at or 0)]
        self._logged = int(earlier[-1]["episodes"]) if earlier else -1
        self._begun = False

    def write(self, values: Mapping[str, float], step: int) -> None:
        if step <= self._logged:
            return
        if not self._begun:
            self._file.add(_layout("oracle/optimum" in values))
            for row in self._hidden:
                self._over_steps(row)
            self._begun = True
        self._file.add(_scalars(values), step)
        self._over_steps(values)
        self._logged = step

    def _over_steps(self, values: Mapping[str, Any]) -> None:
        found = {f"guarantee_by_steps/{name}": float(values.get(f"guarantee/{name}") or "nan") for name in BY_STEPS}
        self._file.add(_scalars(found), int(values[STEPS]))

    def text(self, tag: str, text: str, step: int) -> None:
        """A text in Markdown, for the TEXT tab."""
        with dropping("a text"):
            self._file.add(text_pb(f"{tag}/text_summary", text), step)

    def figure(self, tag: str, figure: Any, step: int) -> None:
        """A matplotlib figure, as an image."""
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=figure.dpi)
        width, height = figure.canvas.get_width_height()
        image = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=picture.getvalue())
        with dropping("a figure"):
            self._file.add(Summary(value=[Summary.Value(tag=tag, image=image)]), step)

    def hyperparameters(self, settings: Mapping[str, Any], metrics: Iterable[str]) -> None:
        """Settings of this run and the tags of its results, in its own folder (so that runs can be compared)."""
        plain = {k: v if isinstance(v, (int, float, str)) else str(v) for k, v in settings.items()}
        with dropping("the settings of the run"):
            kinds = {name: _TEXT if isinstance(value, str) else _NUMBER for name, value in plain.items()}
            infos = [api_pb2.HParamInfo(name=name, type=kind) for name, kind in kinds.items()]
            results = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag)) for tag in metrics]
            experiment = api_pb2.Experiment(hparam_infos=infos, metric_infos=results)
            self._file.add(_hparams(hparams.EXPERIMENT_TAG, experiment=experiment))
            self._file.add(hparams_pb(plain))
            end = SessionEndInfo(status=api_pb2.STATUS_SUCCESS)
            self._file.add(_hparams(hparams.SESSION_END_INFO_TAG, session_end_info=end))


def _scalars(values: Mapping[str, float]) -> Any:
    """TensorBoard cannot draw infinite costs; the CSV has them."""
    finite = {tag: value for tag, value in values.items() if math.isfinite(value)}
    return Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in finite.items()])


def charts(with_optimum: bool) -> dict[str, dict[str, Any]]:
    """The charts of a guarantee: V* (if the simulator's owner knows it) and the estimate within their band.

    Titles are short, because TensorBoard cuts them: the TEXT tab says that curves are smoothed and has exact numbers.
    """
    band = partial(layout.MarginChartContent.Series, lower="guarantee/lower", upper="guarantee/upper")
    centres = {"V*": "oracle/optimum"} if with_optimum else {}
    centres["estimate"] = "guarantee/estimate"
    return {
        "guarantee": {
            f"{name} in its interval": {"margin": layout.MarginChartContent(series=[band(value=tag)])}
            for name, tag in centres.items()
        },
        "tightness": {
            "gap": _lines("guarantee/gap", "momentary/gap"),
            "regret": _lines("guarantee/regret"),
            "best so far, and now": _lines("(guarantee|momentary)/(lower|upper)"),
            "where the gap comes from": _lines("share_of_gap/.*"),
            "gap over steps": _lines("guarantee_by_steps/gap"),
            "bounds and truth": _lines("guarantee/(lower|upper|estimate)", "oracle/(value|optimum)"),
        },
        "time": {"seconds per stage": _lines("time/(sampling|intervals|region|relaxation|solve|logging)")},
    }


def _hparams(tag: str, **content: Any) -> Any:
    kind = hparams.create_summary_metadata(HParamsPluginData(**content))
    return Summary(value=[Summary.Value(tag=tag, metadata=kind, tensor=hparams.NULL_TENSOR)])


def _lines(*tags: str) -> dict[str, Any]:
    return {"multiline": layout.MultilineChartContent(tag=tags)}


def _layout(with_optimum: bool) -> Any:
    """The charts for the CUSTOM SCALARS tab."""
    groups = {g: [layout.Chart(title=n, **c) for n, c in part.items()] for g, part in charts(with_optimum).items()}
    found = layout.Layout(category=[layout.Category(title=g, chart=part) for g, part in groups.items()])
    tensor, kind = make_tensor_proto(found.SerializeToString()), custom_scalar.create_summary_metadata()
    return Summary(value=[Summary.Value(tag=custom_scalar.CONFIG_SUMMARY_TAG, tensor=tensor, metadata=kind)])
