"""Ctrl-C: once asks the run to finish, twice stops it at once; no observed step is lost by either.

The handler sets flags. The second Ctrl-C is raised where it arrives only inside a function that counts nothing
(`interruptible`: the planner, the callbacks). Anywhere else, between a step of the environment and the checkpoint that
contains it, it waits: the run checks for it (`Interrupt.asked`) as soon as the last step is counted. An environment
that does not answer keeps it waiting; after `PATIENCE` seconds one more Ctrl-C gives the step in progress up.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])
#: Seconds that a second Ctrl-C waits for the environment before another one gives the step up.
PATIENCE = 5.0


class _Sections(threading.local):
    """How many interruptible functions this thread is in."""

    depth = 0


_sections = _Sections()


def interruptible(function: Function) -> Function:
    """Mark a function that may be aborted at any point, because it counts nothing."""

    @wraps(function)
    def section(*arguments: Any, **keywords: Any) -> Any:
        _sections.depth += 1
        try:
            return function(*arguments, **keywords)
        finally:
            _sections.depth -= 1

    return cast(Function, section)


class Interrupt:
    """Context manager; ``requested`` becomes true at the first SIGINT, the second raises KeyboardInterrupt.

    Outside the main thread signals cannot be caught, and nothing is installed.
    """

    def __init__(self, notify: Callable[[str], None] | None = None):
        self.requested = self._unsaid = False
        self._waiting_since: float | None = None  # a second signal that has not been raised yet
        self._raised = False  # what follows saves the run, and is not to be aborted in turn
        self._notify = notify
        self._previous: Any = None
        self._depth = 0

    def __enter__(self) -> Interrupt:
        # A callback may learn, too: what it observes there has to be counted.
        self._depth, _sections.depth = _sections.depth, 0
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def _handle(self, number: int, frame: Any) -> None:
        if not self.requested:
            self.requested = self._unsaid = True
            self._tell()
        elif self._may_leave():
            self._raised = True
            raise KeyboardInterrupt
        elif self._waiting_since is None:
            self._waiting_since = time.monotonic()

    def _may_leave(self) -> bool:
        """Whether a second signal may abort what it interrupted."""
        if self._raised:
            return False
        unanswered = self._waiting_since is not None and time.monotonic() - self._waiting_since > PATIENCE
        return _sections.depth > 0 or unanswered

    def _tell(self) -> None:
        unsaid, self._unsaid = self._unsaid, False
        try:
            if unsaid and self._notify is not None:
                self._notify("interrupted: certifying what there is, then saving (Ctrl-C again stops at once)")
        except RuntimeError:  # the signal came while a line was being written: `asked` says it
            self._unsaid = True

    def asked(self) -> bool:
        """Whether the run should finish; raises KeyboardInterrupt if a second Ctrl-C had to wait."""
        if self._waiting_since is not None and not self._raised:
            self._raised = True
            raise KeyboardInterrupt
        self._tell()
        return self.requested

    def __exit__(self, *error: object) -> None:
        _sections.depth = self._depth
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
