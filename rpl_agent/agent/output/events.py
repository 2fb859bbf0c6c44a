"""TensorBoard's part of a run folder, written immediately and without a thread: logging never blocks learning.

Only TensorBoard's file messages and its framing of records are used. Its writer is not, because its queue stays full
forever once its thread has died (a full disk). A record that could not be written is dropped, and the
file is cut back to its last complete record. File sizes are bounded.
"""

from __future__ import annotations

import hashlib
import io
import json
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
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_FLOAT, DT_STRING
from tensorboard.plugins.custom_scalar import layout_pb2 as layout
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo
from tensorboard.summary.writer import event_file_writer
from tensorboard.summary.writer.record_writer import RecordWriter

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

    ``resume_at`` hides what was logged after this many episodes. ``earlier`` are the rows of the table up to there.
    TensorBoard hides by step number, so rows with more than ``resume_at`` time steps are logged again over time steps.
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
            self._file.add(_texts("text", f"{tag}/text_summary", text.encode()), step)

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
            self._file.add(_hparams(experiment=experiment))
            self._file.add(_hparams(session_start_info=_session_start(plain)))
            self._file.add(_hparams(session_end_info=SessionEndInfo(status=api_pb2.STATUS_SUCCESS)))


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
        "time": {"seconds per stage": _lines("time/(sampling|intervals|region|relaxation|solve|proof|logging)")},
    }


def _of_plugin(plugin: str, tag: str, tensor: TensorProto, content: bytes = b"") -> Summary:
    """A summary that one of TensorBoard's plugins reads."""
    data = SummaryMetadata.PluginData(plugin_name=plugin, content=content)
    return Summary(value=[Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=data), tensor=tensor)])


def _texts(plugin: str, tag: str, text: bytes) -> Summary:
    """A summary whose content is one text, or one message."""
    return _of_plugin(plugin, tag, TensorProto(dtype=DT_STRING, tensor_shape=TensorShapeProto(), string_val=[text]))


def _hparams(**content: Any) -> Summary:
    """A message for the HPARAMS tab; its tag has the same name."""
    (name,) = content
    nothing = TensorProto(dtype=DT_FLOAT, tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=0)]))
    return _of_plugin("hparams", f"_hparams_/{name}", nothing, HParamsPluginData(**content).SerializeToString())


def _session_start(settings: Mapping[str, Any]) -> SessionStartInfo:
    """The settings of a run; runs with the same settings are one group."""
    group = hashlib.sha256(json.dumps(settings, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    start = SessionStartInfo(group_name=group, start_time_secs=time.time())
    for name, value in settings.items():
        kind = "bool" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"
        setattr(start.hparams[name], f"{kind}_value", value)
    return start


def _lines(*tags: str) -> dict[str, Any]:
    return {"multiline": layout.MultilineChartContent(tag=tags)}


def _layout(with_optimum: bool) -> Any:
    """The charts for the CUSTOM SCALARS tab."""
    groups = {g: [layout.Chart(title=n, **c) for n, c in part.items()] for g, part in charts(with_optimum).items()}
    found = layout.Layout(category=[layout.Category(title=g, chart=part) for g, part in groups.items()])
    return _texts("custom_scalars", "custom_scalars__config__", found.SerializeToString())
