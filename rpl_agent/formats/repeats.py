"""Steps that a log holds more than once: `evidence.repetition` with the contexts that a sequence of rows has."""

from __future__ import annotations

import numpy as np

from rpl_agent.evidence.repetition import (
    EpisodeCodes,
    RepeatedChanceError,
    RepetitionTest,
    WindowCodes,
    equal_parts,
)
from rpl_agent.model.pmdp import ParametricMDP

#: Lengths of the windows that are looked for elsewhere in the log: short ones where rows carry much chance.
WIDTHS = (16, 64, 256)
#: Rows are looked at in pieces of at least this size, and whole copies are compared in logs of at most this many rows.
PIECE = 1 << 14
ORDERED = 1 << 20
_MEANING = {
    "row": "what it was there the last time",
    "step": "what it was in the same step of an episode before",
    "episode": "what it was in an episode that began in the same way",
}


class RepeatedRows:
    """Looks through a log as it is read."""

    def __init__(self, pmdp: ParametricMDP):
        self._pmdp = pmdp
        self._episodes, self._windows = EpisodeCodes(), {f"last {w}": WindowCodes(w) for w in WIDTHS}
        self._test = RepetitionTest(pmdp, ("row", "step", "episode", *self._windows))
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self._order: list[np.ndarray] = []

    def add(self, transitions: np.ndarray, starts: np.ndarray) -> None:
        """The next usable rows (n,) as transitions; ``starts`` (n,) is true where an episode begins."""
        self._waiting.append((transitions, starts))
        if sum(len(piece) for piece, _ in self._waiting) >= PIECE:
            self._look()

    def finish(self) -> None:
        """The log is over."""
        self._look()
        if self._test.total <= ORDERED and self._test.total:
            copies = equal_parts(self._pmdp, np.concatenate(self._order))
            if copies is not None:
                raise RepeatedChanceError(f"the rows are {copies} copies of one log, each in another order: {_REASON}")

    def _look(self) -> None:
        if not self._waiting:
            return
        transitions, starts = (np.concatenate(parts) for parts in zip(*self._waiting))
        self._waiting.clear()
        if self._test.total + len(transitions) <= ORDERED:
            self._order.append(transitions.astype(np.int32))
        contexts = {"row": np.zeros(len(transitions), dtype=np.uint64), **self._episodes.add(transitions, starts)}
        contexts |= {kind: windows.add(transitions) for kind, windows in self._windows.items()}
        self._test.add(transitions, contexts)
        found = self._test.alarm()
        if found is not None:
            kind, hits, compared, earlier, later = found
            meaning = _MEANING.get(kind, f"what followed the same {kind.removeprefix('last ')} rows before")
            raise RepeatedChanceError(
                f"the outcome of {hits:,} of {compared:,} rows is {meaning} (usable row {later + 1} repeats row "
                f"{earlier + 1}): {_REASON}"
            )


_REASON = "the same chance counted twice is not more data, or the next state depends on more than state and action"
