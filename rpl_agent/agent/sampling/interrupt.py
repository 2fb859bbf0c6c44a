"""Ctrl-C: once asks the run to finish, twice stops it at once; no observed step is lost by either.

The second is raised only while the environment, the planner or a callback runs (`interruptible`), when no
observation is waiting to be counted. Anywhere else, between a step of the environment and the checkpoint that
contains it, it waits: the run checks for it (`Interrupt.asked`) as soon as the last step is counted.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
_interruptible: set[CodeType] = set()
_calls_environment: set[CodeType] = set()


def interruptible(function: Function) -> Function:
    """Mark a function that may be aborted at any point, because it counts nothing."""
    _interruptible.add(function.__code__)  # type: ignore[attr-defined]
    return function


def calls_environment(function: Function) -> Function:
    """Mark a function that may be aborted only while the foreign code that it called is running.

    Once its environment has answered, the observation has to be counted.
    """
    _calls_environment.add(function.__code__)  # type: ignore[attr-defined]
    return function


def _may_leave(frame: FrameType | None) -> bool:
    """Whether the work that a signal interrupted in ``frame`` may be aborted there."""
    callee = None
    while frame is not None:
        if frame.f_code is Interrupt._handle.__code__:  # in an earlier signal's handler: judge by its frame
            callee, frame = None, frame.f_back
            continue
        if frame.f_code in _interruptible:
            return True
        if frame.f_code in _calls_environment:
            return callee is not None and callee.f_globals is not frame.f_globals
        callee, frame = frame, frame.f_back
    return False


class Interrupt:
    """Context manager; ``requested`` becomes true at the first SIGINT, the second raises KeyboardInterrupt.

    Outside the main thread signals cannot be caught, and nothing is installed.
    """

    def __init__(self, notify: Callable[[str], None] | None = None):
        self.requested = self._unsaid = False
        self._waiting = False  # a second signal that has not been raised yet
        self._notify = notify
        self._previous: Any = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            if _may_leave(frame):
                raise KeyboardInterrupt
            self._waiting = True
            return
        self.requested = self._unsaid = True
        self._tell()

    def _tell(self) -> None:
        unsaid, self._unsaid = self._unsaid, False
        try:
            if unsaid and self._notify is not None:
                self._notify("interrupted: certifying what there is, then saving (Ctrl-C again stops at once)")
        except RuntimeError:  # the signal came while a line was being written: `asked` says it
            self._unsaid = True

    def asked(self) -> bool:
        """Whether the run should finish; raises KeyboardInterrupt if a second Ctrl-C had to wait."""
        if self._waiting:
            raise KeyboardInterrupt
        self._tell()
        return self.requested

    def __exit__(self, *error: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
