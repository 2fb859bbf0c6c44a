"""How far the machine code is: which kernel is being compiled, how many are ready, and the seconds that it took.

The first run of an installation compiles its kernels and keeps the machine code (`rpl_agent.jit`); whoever waits for
that is told so. `Compilation` listens to numba's compile events, so nothing of this stands in the way of a warm start.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from numba.core import event
from numba.core.dispatcher import Dispatcher

from rpl_agent.dispatcher import WAITING
from rpl_agent.preparing import RUNS, Helper, recorded

_COMPILING = "numba:compile"
_KINDS = (_COMPILING, WAITING)
_PACKAGES = ("rpl_agent", "rpl_envs")


class Compilation(event.Listener):
    """Counts and times the package's kernels while it is installed (`start` … `stop`).

    A kernel that another process is making is waited for, and the time counts; how many are there, counts it then.
    """

    def __init__(self, notify: Callable[[Compilation], None] | None = None, runs: tuple[str, ...] = RUNS[:1]):
        self._notify, self._runs = notify, runs
        self._helper = Helper(runs)
        self.compiled = 0
        self.current: str | None = None  # the kernel that is being compiled now, here or elsewhere
        self._seconds = 0.0
        self._begun = 0.0
        self._depth = 0

    def start(self) -> None:
        for kind in _KINDS:
            event.register(kind, self)

    def stop(self) -> None:
        for kind in _KINDS:
            event.unregister(kind, self)
        self._helper.stop()

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        self._depth += 1
        if self._depth == 1:
            self.current, self._begun = function.__name__, time.perf_counter()
            if self.compiled == 0 and loaded() == 0 and _is_ours(function):  # nothing is there yet
                self._helper.start()
            self._tell(function)

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._seconds = self.seconds
            self.current = None
            if event.kind == _COMPILING:
                self.compiled += 1
                self._tell(event.data["dispatcher"].py_func)

    def _tell(self, function: Any) -> None:
        if self._notify is not None and _is_ours(function):
            self._notify(self)

    @property
    def seconds(self) -> float:
        """Spent compiling, and waiting for others to compile, so far."""
        return self._seconds + (time.perf_counter() - self._begun if self.current is not None else 0.0)

    @property
    def text(self) -> str:
        """For people: what is being compiled, and how far that is."""
        number, total = self.compiled + (self.current is not None) + loaded(), len(recorded(self._runs))
        of = f"{number}/{total}" if number <= total else str(number)
        cores = " on 2 cores" if self._helper.cores == 2 else ""
        return f"preparing machine code {of}{cores}, once per installation"


def _is_ours(function: Any) -> bool:
    return function.__module__.split(".")[0] in _PACKAGES


def kernels() -> list[Dispatcher]:
    """All compiled functions of the modules of this package that are loaded."""
    found: dict[int, Dispatcher] = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in _PACKAGES:
            found |= {id(thing): thing for thing in vars(module).values() if isinstance(thing, Dispatcher)}
    return list(found.values())


def loaded() -> int:
    """Kernels whose machine code was there already."""
    return sum(sum(kernel.stats.cache_hits.values()) for kernel in kernels())
