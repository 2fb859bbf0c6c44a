"""`dropping`: what cannot be written is dropped, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from rpl_agent.core.errors import RPLWarning


@contextmanager
def dropping(what: str) -> Iterator[None]:
    """A full disk must not stop learning: warn and drop."""
    try:
        yield
    except OSError as error:
        warnings.warn(f"{what} could not be logged: {error.strerror or error}", RPLWarning, stacklevel=4)
