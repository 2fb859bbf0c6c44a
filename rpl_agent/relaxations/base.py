"""`Relaxation`: what nature may do, seen by the solver through one method."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from threading import current_thread
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from rpl_agent._core import core
from rpl_agent.model import ParametricMDP, Sense
from rpl_agent.relaxations.row_set import CompiledSet, longest_row, model_rows, workspace

#: rows that are worth a thread of their own
_BLOCK = 20_000
_WORKER = "rpl-worker"
Result = TypeVar("Result")


@lru_cache(maxsize=1)
def _workers(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix=_WORKER)


def in_threads(*calls: Callable[[], Result]) -> list[Result]:
    """Run calls that release the interpreter lock side by side (in one thread where there is one core)."""
    # A worker that waited for the pool it belongs to would wait forever: within one, calls run in turn.
    if len(calls) == 1 or (os.cpu_count() or 1) == 1 or current_thread().name.startswith(_WORKER):
        return [call() for call in calls]
    # Keyed by process: a pool does not survive a fork.
    return [future.result() for future in [_workers(os.getpid()).submit(call) for call in calls]]


@runtime_checkable
class Relaxation(Protocol):
    """An (s, a)-rectangular uncertainty set over a model.

    A relaxation may carry ``tightness`` (default 1e-9): its bounds are within tightness * (max v - min v) of the
    exact extremum, which the solver uses for the bound from the far side.
    """

    pmdp: ParametricMDP
    name: str

    def expectation(self, values: np.ndarray, extremum: Sense, out: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Per row, a guaranteed outward bound of the extremum of sum_i p_i values[successor_i].

        Parameters
        ----------
        values : (S,) float64
        extremum : Sense
            Direction of nature. MIN: out <= true minimum; MAX: out >= true maximum.
        out : (R,) or (k,) float64
        rows : (k,) int64, optional
        """

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """(lower (F,), upper (F,)): the interval hull of every expression."""

    def compiled(self) -> CompiledSet | None:
        """Arrays for the solver's compiled sweeps, or None (the solver then calls `expectation`)."""


class CompiledRelaxation:
    """A relaxation whose set is a `CompiledSet`: everything else follows from it."""

    def __init__(self, pmdp: ParametricMDP, compiled: CompiledSet, name: str) -> None:
        self.pmdp = pmdp
        self.name = name
        self._set = compiled

    def expectation(self, values: np.ndarray, extremum: Sense, out: np.ndarray, rows: np.ndarray | None = None) -> None:
        self.directed_expectation(values, extremum, extremum is Sense.MAX, out, rows)

    def directed_expectation(
        self, values: np.ndarray, extremum: Sense, upward: bool, out: np.ndarray, rows: np.ndarray | None = None
    ) -> None:
        """Like `expectation`, with the side of the bound chosen: <= the extremum, or (upward) >= it."""
        model, compiled = model_rows(self.pmdp), self._set
        values = np.ascontiguousarray(values, dtype=np.float64)
        blocks = max(1, min(os.cpu_count() or 1, len(out) // _BLOCK))
        ends = np.linspace(0, len(out), blocks + 1).astype(np.int64)

        def block(first: int, last: int) -> None:
            scratch = workspace(compiled, longest_row(self.pmdp))
            core.row_bounds(first, last, values, extremum is Sense.MAX, upward, model, compiled, scratch, rows, out)

        in_threads(*(lambda a=a, b=b: block(a, b) for a, b in pairwise(ends)))

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return self._set.lower, self._set.upper

    def compiled(self) -> CompiledSet | None:
        return self._set
