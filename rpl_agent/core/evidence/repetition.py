"""Detect repeated chance: the same draws counted twice are not more data.

A copied log, an environment that reseeds itself in every reset, or sixteen copies with one seed all make the
next outcome predictable: it is the one observed in the same *context* before. A context is determined before the
outcome: the row (state and action) together with

- ``row``: nothing else (each line of a log written several times in a row),
- ``step``: the number of the step in its episode (episodes with the same random numbers),
- ``episode``: the episode so far (the same, if steps consume different amounts of randomness),
- ``tick``: the number of the draw since the environment was made (copies with one seed; a resumed run),
- ``last w``: the last w transitions (blocks of a log that occur elsewhere too).

For one kind of context, consider the steps whose context occurred before. Let h of them have the same outcome as the
last time, m another one. The prediction "the same with probability r, else one of the row's k − 1 others", r mixed over
Beta(½, ½), gives them the probability N = B(h + ½, m + ½) / B(½, ½) · Π_misses 1 / (k − 1); independent draws give them
at most L = Π_rows Π_i (n_i / n)^n_i, whatever the rows' probabilities are. If outcomes are independent given state and
action, N / L is at most a supermartingale started at 1 (the lemma of docs/guarantees.md), and so is the average over
kinds: it ever reaches 10^6 with probability at most 10^-6, under any sampling.
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from rpl_agent.core.errors import DataError
from rpl_agent.core.model import ParametricMDP
from rpl_agent.core.native import Struct, core

#: ln of the e-value at which data are refused: one false alarm in a million runs or logs.
ALARM = math.log(1e6)
#: Contexts to store per kind, a power of two; beyond this, only those whose code is a multiple of 2, 4, … are stored.
KEPT = 1 << 17
#: Slots of a new table, a power of two.
FIRST_SLOTS = 1 << 10


class RepeatedChanceError(DataError):
    """The same chance was observed more than once."""


class RepetitionTest:
    """The average of the e-processes of several kinds of contexts.

    kinds : names of the kinds of contexts.
    """

    def __init__(self, pmdp: ParametricMDP, kinds: tuple[str, ...]):
        self._tables = {kind: _Contexts(pmdp) for kind in kinds}
        self.total = 0  # steps added so far

    def add(self, transitions: np.ndarray, contexts: dict[str, np.ndarray]) -> None:
        """Add the next steps (n,) in order, with the codes (n,) uint64 of each context apart from the row."""
        steps = np.ascontiguousarray(transitions, np.int64)
        for kind, codes in contexts.items():
            self._tables[kind].add(np.ascontiguousarray(codes, np.uint64), steps, self.total)
        self.total += len(steps)

    def alarm(self) -> tuple[str, int, int, int, int] | None:
        """(kind, hits, compared, an earlier step, the later one that repeats it) once the e-value reaches 10^6."""
        found = {kind: table.log_e_value() for kind, table in self._tables.items()}
        if scipy.special.logsumexp(list(found.values())) - math.log(len(found)) < ALARM:
            return None
        kind = max(found, key=found.__getitem__)
        table = self._tables[kind]
        return kind, table.hits, table.hits + table.misses, *table.example


class _Contexts:
    """The table of the last observation in each context of one kind."""

    def __init__(self, pmdp: ParametricMDP):
        self._pmdp, self._matched = pmdp, np.zeros(pmdp.num_transitions, dtype=np.int64)
        self._tally, self._others = np.array([0, 1, 0, 0, 0, 0]), np.zeros(1)
        self._table = self._empty(min(FIRST_SLOTS, 2 * KEPT))

    def _empty(self, slots: int) -> Struct:
        return core.Contexts(
            slots=slots,
            code=np.empty(slots, np.uint64),
            last=np.full(slots, -1),
            place=np.empty(slots, np.int64),
            matched=self._matched,
            tally=self._tally,
            others=self._others,
        )

    @property
    def hits(self) -> int:
        return int(self._tally[2])

    @property
    def misses(self) -> int:
        return int(self._tally[3])

    @property
    def example(self) -> tuple[int, int]:
        """Places of an earlier step and of a later one with the same outcome."""
        return int(self._tally[4]), int(self._tally[5])

    def add(self, codes: np.ndarray, transitions: np.ndarray, place: int) -> None:
        """Compare the next steps (n,), from this place in the data on; codes (n,) of their contexts without the row."""
        model, done = (self._pmdp.transition_row, self._pmdp.row_ptr), 0
        while done < len(codes):
            rest = (len(codes) - done, codes[done:], transitions[done:], place + done)
            done += core.compare_contexts(self._table, *rest, *model)
            if done < len(codes):
                self._make_room()

    def _make_room(self) -> None:
        """A larger table, or, beyond `KEPT` contexts, one for half of the codes."""
        slots = self._table.slots
        if slots < 2 * KEPT:
            slots *= 2
        else:
            self._tally[1] *= 2
        old, self._table = self._table, self._empty(slots)
        core.move_contexts(old, self._table)

    def log_e_value(self) -> float:
        seen = np.flatnonzero(self._matched)
        count, rows = self._matched[seen].astype(float), self._pmdp.transition_row[seen]
        totals = np.bincount(rows, count, 1)[rows]
        likelihood = float(count @ np.log(count / totals)) if len(seen) else 0.0
        prediction = (
            scipy.special.betaln(self.hits + 0.5, self.misses + 0.5) - scipy.special.betaln(0.5, 0.5) - self._others[0]
        )
        return float(prediction) - likelihood


# ---------------------------------------------------------------------- codes of contexts
class EpisodeCodes:
    """Codes of ``step`` and ``episode`` contexts along a sequence that arrives in pieces."""

    def __init__(self) -> None:
        self._state = np.array([0, 0, 1], dtype=np.uint64)  # at the end of the last piece

    def add(self, transitions: np.ndarray, starts: np.ndarray) -> dict[str, np.ndarray]:
        """Codes (n,) of the next steps (n,) by kind; ``starts`` (n,) is true where an episode begins."""
        steps, episodes = np.empty(len(transitions), np.uint64), np.empty(len(transitions), np.uint64)
        given = np.ascontiguousarray(transitions, np.int64), np.ascontiguousarray(starts, np.bool_)
        core.episode_codes(len(steps), *given, self._state, steps, episodes)
        return {"step": steps, "episode": episodes}


class WindowCodes:
    """Codes of the last w transitions along a sequence that arrives in pieces."""

    def __init__(self, width: int):
        self._width, self._tail = width, np.zeros(0, dtype=np.int64)

    def add(self, transitions: np.ndarray) -> np.ndarray:
        """(n,) codes of the w transitions before each of the next steps; each of the first w has its own code."""
        joined, before = np.concatenate([self._tail, transitions]), len(self._tail)
        codes = np.empty(len(transitions), np.uint64)
        core.window_codes(len(codes), before, self._width, joined, codes)
        self._tail = joined[max(len(joined) - self._width, 0) :]
        return codes


def mix(words: np.ndarray) -> np.ndarray:
    """Hash 64-bit words (the finaliser of splitmix64)."""
    words = np.ascontiguousarray(words).astype(np.uint64, casting="unsafe")
    out = np.empty(words.shape, np.uint64)
    core.mix_words(out.size, words.reshape(-1), out.reshape(-1))
    return out


# ---------------------------------------------------------------------- whole copies, shuffled
def equal_parts(pmdp: ParametricMDP, transitions: np.ndarray, most: int = 64) -> int | None:
    """m, if a sequence (n,) splits into m ≤ ``most`` equal parts with the same counts, which chance does not produce.

    Given the first part, predict each other one as draws without replacement from it: that has probability 1 / the
    number of orderings of its counts, for every part but the first, against at most Π (n_i / n)^n_i for independence.
    """
    codes = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mix(transitions), dtype=np.uint64)])
    for m in range(2, most + 1):
        size, rest = divmod(len(transitions), m)
        if rest or not size or len(np.unique(np.diff(codes[::size]))) > 1:
            continue
        parts = np.sort(transitions.reshape(m, size), axis=1)
        if (parts != parts[0]).any():
            continue
        seen, count = np.unique(parts[0], return_counts=True)
        rows = np.unique(pmdp.transition_row[seen], return_inverse=True)[1]
        total = np.bincount(rows, count)
        orders = scipy.special.gammaln(total + 1.0).sum() - scipy.special.gammaln(count + 1.0).sum()
        if (m - 1) * (-orders - count @ np.log(count / total[rows])) - math.log(most) >= ALARM:
            return m
    return None
