"""`one_blas_thread`: linear algebra in one thread, because our matrices are small."""

from __future__ import annotations

from contextlib import ContextDecorator
from functools import cache
from threading import Lock
from typing import Any


class OneBlasThread(ContextDecorator):
    """As a context or decorator: BLAS uses one thread inside, what it used before when the last one has left.

    OpenBLAS shares a product of 10^4 numbers among all cores, and its threads then wait for the next one busily: twice
    the processor time for nothing, three times where another process wants the core. Also, sums do not depend on the
    number of cores.
    """

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limit = _controller().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.restore_original_limits()


@cache
def _controller() -> Any:
    """Of the libraries loaded by now, so scipy's is loaded first."""
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


one_blas_thread = OneBlasThread()
