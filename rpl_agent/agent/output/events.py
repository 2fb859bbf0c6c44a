"""An event file of TensorBoard, written at once and without a thread: logging never blocks learning.

The format is TensorFlow's record file: length, masked CRC-32C of the length, data, masked CRC-32C of the data.
tensorboardX makes the summaries and the checksum; its own writer keeps a queue that stays full for ever when its thread
has died (a full disk), so it is not used.

A record that could not be written is dropped, and the file is cut back to its last whole record. Files are bounded.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

#: No file grows beyond this; a run of 10^6 episodes with the usual log points has about a megabyte.
MAX_BYTES = 64 << 20


class EventFile:
    """Appends summaries to a new file in a folder.

    ``purge_step`` hides what earlier files of the folder hold from that step on.
    """

    def __init__(self, folder: Path, purge_step: int | None = None):
        self._path = folder / f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
        self._size = 0  # bytes of whole records
        self._purge_step = purge_step
        self._begun = False

    def add(self, summary: Any, step: int = 0) -> None:
        """Append one summary; OSError if the disk does not take it (nothing is left half written)."""
        event_pb2 = tensorboardx().proto.event_pb2
        now = time.time()
        data = b""
        if not self._begun:
            data += record(event_pb2.Event(wall_time=now, file_version="brain.Event:2"))
            if self._purge_step is not None:
                start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
                data += record(event_pb2.Event(wall_time=now, step=self._purge_step, session_log=start))
        data += record(event_pb2.Event(wall_time=now, step=step, summary=summary))
        if self._size + len(data) > MAX_BYTES:
            raise OSError(f"{self._path.name} has reached {MAX_BYTES >> 20} MiB")
        self._append(data)
        self._size += len(data)
        self._begun = True

    def _append(self, data: bytes) -> None:
        self._path.parent.mkdir(exist_ok=True)
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.ftruncate(handle, self._size)  # what an earlier failure left
            os.lseek(handle, self._size, os.SEEK_SET)
            while data:
                data = data[os.write(handle, data) :]
        finally:
            os.close(handle)


def record(event: Any) -> bytes:
    """One record of the file."""
    checksum = tensorboardx().record_writer.masked_crc32c
    data = event.SerializeToString()
    header = struct.pack("<Q", len(data))
    return header + struct.pack("<I", checksum(header)) + data + struct.pack("<I", checksum(data))


def tensorboardx() -> Any:
    """tensorboardX, which loads torch where that is installed: seconds of start that nothing here has a use for."""
    hidden = "torch" not in sys.modules
    if hidden:
        sys.modules["torch"] = None  # type: ignore[assignment]  # "not installed", for the next lines
    try:
        import tensorboardX
        import tensorboardX.proto.event_pb2
        import tensorboardX.record_writer
        import tensorboardX.summary
        import tensorboardX.utils
    finally:
        if hidden:
            del sys.modules["torch"]
    return tensorboardX
