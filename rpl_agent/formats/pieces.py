"""`count_pieces`: the pieces of a long log, counted by Ray on a cluster; the same integers on any number of workers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.core.errors import DataError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import ParametricMDP
from rpl_agent.formats.logs import Log, read_log


@contextmanager
def ray_session(jobs: int | None = None) -> Iterator[None]:
    """Connect to RAY_ADDRESS, or start a local cluster of ``jobs`` workers (default: one per core) for a while."""
    import ray

    started = not ray.is_initialized()
    if started:
        address = os.environ.get("RAY_ADDRESS")
        local: dict[str, Any] = {} if address else {"num_cpus": jobs, "include_dashboard": False}
        ray.init(address=address, log_to_driver=False, configure_logging=False, **local)
    try:
        yield
    finally:
        if started:
            ray.shutdown()


def count_pieces(pmdp: ParametricMDP, pieces: Sequence[str | Path], *, jobs: int | None = None) -> Log:
    """Counts of a log in pieces, each read by one worker of Ray (the extra `ray`).

    The result is that of `Counts.merge` over the pieces in the order given, however many workers there are: marks are
    taken where pieces end. Each piece is tested for repeated chance. Two pieces are compared only as whole files,
    so a log that may have copied rows in several pieces belongs to `read_log`.

    Raises
    ------
    DataError
        As `read_log`, for the first piece that cannot be used; a piece given twice.
    """
    import ray
    from ray.exceptions import RayTaskError

    if isinstance(pieces, str | Path) or not pieces:
        raise DataError("count_pieces needs a list of files")
    names = [str(piece) for piece in pieces]
    with ray_session(jobs):
        model, task = ray.put(pmdp), ray.remote(_counted)
        waiting = [task.remote(model, name) for name in names]
        try:
            found = ray.get(waiting)
        except RayTaskError as error:
            if isinstance(error.cause, DataError):
                raise error.cause from None
            raise
    counts, rows = Counts(pmdp, schedule="geometric"), 0
    seen: dict[str, str] = {}
    for name, (at, amounts, size, digest) in zip(names, found, strict=True):
        if digest in seen:
            raise DataError(f"{name} has the same contents as {seen[digest]}; nothing was used")
        seen[digest] = name
        batch = np.zeros(pmdp.num_transitions, dtype=np.int64)
        batch[at] = amounts
        counts.add_batch(batch)
        rows += size
    return Log(counts, rows, 0)


def _counted(pmdp: ParametricMDP, piece: str) -> tuple[np.ndarray, np.ndarray, int, str]:
    """(transitions that occur, how often, rows, digest) of one piece."""
    log = read_log(pmdp, piece)
    at = np.flatnonzero(log.counts.transitions)
    path = Path(piece)
    contents = path.read_bytes() if path.is_file() else piece.encode()
    return at, log.counts.transitions[at], log.rows, hashlib.sha256(contents).hexdigest()
