"""`Pace`: spaces out repeated writes, so that a run spends its time on learning."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: the share of a run's time that a repeated write may take, and the seconds up to which a write counts as free
SHARE, CHEAP = 0.03, 0.02


class Pace:
    """When the next write is due: ``least`` seconds after the last, and later if the last one took long.

    >>> pace = Pace()
    >>> with pace.measured():
    ...     pass
    >>> pace.is_due()
    True
    """

    def __init__(self, least: float = 0.0):
        self.least = least
        self._took, self._ended = 0.0, -math.inf

    def is_due(self) -> bool:
        rest = self._took / SHARE if self._took > CHEAP else 0.0
        return time.monotonic() - self._ended >= max(self.least, rest)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure how long the writing inside takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._ended = time.monotonic()
            self._took = self._ended - began
