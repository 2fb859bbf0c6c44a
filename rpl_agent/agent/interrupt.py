"""Ctrl-C: once asks the run to finish, twice stops it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class _Shield:
    """Lets a second Ctrl-C wait until what was observed has been counted; `with shield:` around the counting."""

    def __init__(self) -> None:
        self.depth = 0
        self.pending = False

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if self.pending and not self.depth:
            self.pending = False
            raise KeyboardInterrupt


shield = _shield = _Shield()


class Interrupt:
    """Context manager; ``requested`` becomes true at the first SIGINT, the second raises KeyboardInterrupt.

    Outside the main thread signals cannot be caught: then nothing is installed.
    """

    def __init__(self, notify: Callable[[str], None] | None = None):
        self.requested = False
        self._notify = notify
        self._previous: Any = None
        self._installed = False

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
            self._installed = True
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            if _shield.depth:  # data are being counted: a moment later
                _shield.pending = True
                return
            raise KeyboardInterrupt
        self.requested = True
        if self._notify is not None:
            self._notify("interrupted: certifying what there is, then saving (Ctrl-C again stops at once)")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._previous)
            self._installed = False
