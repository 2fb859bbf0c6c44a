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

#: ln of the e-value at which data are refused: one false alarm in a million runs or logs.
ALARM = math.log(1e6)
#: Contexts to store per kind; beyond this, only those whose code is a multiple of 2, 4, … are stored.
KEPT = 1 << 17
_CODE = np.uint64(0x9E3779B97F4A7C15)
_ROWS = np.int64(1 << 40)  # rows are mixed differently from steps: row 3 in step 5 is not row 5 in step 3
_RADIX = 0xD1342543DE82EF95  # odd, hence invertible modulo 2^64


class RepeatedChanceError(DataError):
    """The same chance was observed more than once."""


class RepetitionTest:
    """The average of the e-processes of several kinds of contexts.

    kinds : names of the kinds of contexts.
    """

    def __init__(self, pmdp: ParametricMDP, kinds: tuple[str, ...]):
        self._pmdp, self._sizes = pmdp, np.diff(pmdp.row_ptr)
        self._tables = {kind: _Contexts(pmdp, self._sizes) for kind in kinds}
        self.total = 0  # steps looked at

    def add(self, transitions: np.ndarray, contexts: dict[str, np.ndarray]) -> None:
        """Add the next steps (n,) in order, with the codes (n,) uint64 of each context apart from the row."""
        rows = self._pmdp.transition_row[transitions]
        places = self.total + np.arange(len(transitions))
        self.total += len(transitions)
        open_rows = self._sizes[rows] > 1  # the others are deterministic
        for kind, codes in contexts.items():
            mixed = mix(codes.astype(np.uint64) ^ mix(rows + _ROWS))
            self._tables[kind].add(mixed[open_rows], transitions[open_rows], places[open_rows])

    def alarm(self) -> tuple[str, int, int, int, int] | None:
        """(kind, hits, compared, an earlier step, the later one that repeats it) once the e-value reaches 10^6."""
        found = {kind: table.log_e_value() for kind, table in self._tables.items()}
        if scipy.special.logsumexp(list(found.values())) - math.log(len(found)) < ALARM:
            return None
        kind = max(found, key=found.__getitem__)
        table = self._tables[kind]
        return kind, table.hits, table.hits + table.misses, *table.example


class _Contexts:
    """The last observation in each context of one kind."""

    def __init__(self, pmdp: ParametricMDP, sizes: np.ndarray):
        self._pmdp, self._sizes = pmdp, sizes
        self._codes = np.zeros(0, dtype=np.uint64)  # sorted; the transition and the place of each are below
        self._last = np.zeros((2, 0), dtype=np.int64)
        self._rate = 1
        self._matched = np.zeros(pmdp.num_transitions, dtype=np.int64)
        self.hits = self.misses = 0
        self._others = 0.0  # Σ ln(k − 1) over misses
        self.example = (0, 0)

    def add(self, codes: np.ndarray, transitions: np.ndarray, places: np.ndarray) -> None:
        kept = codes % np.uint64(self._rate) == 0
        old = len(self._codes)
        codes = np.concatenate([self._codes, codes[kept]])
        last = np.hstack([self._last, [transitions[kept], places[kept]]])
        order = np.argsort(codes, kind="stable")  # within a context by time
        codes, last, new = codes[order], last[:, order], order >= old
        same = np.append(False, codes[1:] == codes[:-1])
        self._compare(last, np.flatnonzero(same & new))
        final = np.append(~same[1:], True) if len(codes) else same[:0]
        self._codes, self._last = codes[final], last[:, final]
        while len(self._codes) > KEPT:
            self._rate *= 2
            kept = self._codes % np.uint64(self._rate) == 0
            self._codes, self._last = self._codes[kept], self._last[:, kept]

    def _compare(self, last: np.ndarray, at: np.ndarray) -> None:
        """Compare steps at columns ``at`` of (transition, place) with the previous occurrence in the column before."""
        of = self._pmdp.transition_row
        at = at[of[last[0, at]] == of[last[0, at - 1]]]  # codes of different rows may collide
        seen, before = last[0, at], last[0, at - 1]
        np.add.at(self._matched, seen, 1)
        same = seen == before
        self.hits += int(same.sum())
        self.misses += int((~same).sum())
        self._others += float(np.log(self._sizes[self._pmdp.transition_row[seen[~same]]] - 1.0).sum())
        if same.any():
            latest = at[same][np.argmax(last[1, at[same]])]
            self.example = int(last[1, latest - 1]), int(last[1, latest])

    def log_e_value(self) -> float:
        seen = np.flatnonzero(self._matched)
        count, rows = self._matched[seen].astype(float), self._pmdp.transition_row[seen]
        totals = np.bincount(rows, count, 1)[rows]
        likelihood = float(count @ np.log(count / totals)) if len(seen) else 0.0
        prediction = (
            scipy.special.betaln(self.hits + 0.5, self.misses + 0.5) - scipy.special.betaln(0.5, 0.5) - self._others
        )
        return float(prediction) - likelihood


# ---------------------------------------------------------------------- codes of contexts
class EpisodeCodes:
    """Codes of ``step`` and ``episode`` contexts along a sequence that arrives in pieces."""

    def __init__(self) -> None:
        self._step, self._prefix = 0, np.uint64(0)  # at the end of the last piece

    def add(self, transitions: np.ndarray, starts: np.ndarray) -> dict[str, np.ndarray]:
        """For the next steps (n,), with ``starts`` (n,) true where an episode begins."""
        n, place = len(transitions), np.arange(len(transitions))
        begin = np.maximum.accumulate(np.where(starts, place, -1))
        step = np.where(begin >= 0, place - begin, place + self._step)
        powers, inverse = _powers(_RADIX, n), _powers(pow(_RADIX, -1, 2**64), n)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mix(transitions) * powers[:n], dtype=np.uint64)])
        here = np.arange(n + 1)
        start = np.append(begin, begin[-1] if n else -1)  # the last entry is what comes after this piece
        late = np.uint64(pow(_RADIX, self._step, 2**64))
        prefix = np.where(
            start >= 0,
            (sums[here] - sums[np.maximum(start, 0)]) * inverse[np.maximum(start, 0)],
            self._prefix + sums * late,
        )
        if n:
            self._step, self._prefix = int(step[-1]) + 1, prefix[n]
        return {"step": mix(step), "episode": mix(prefix[:n] + mix(step))}


class WindowCodes:
    """Codes of the last w transitions along a sequence that arrives in pieces."""

    def __init__(self, width: int):
        self._width, self._tail = width, np.zeros(0, dtype=np.int64)

    def add(self, transitions: np.ndarray) -> np.ndarray:
        """(n,) codes of the w transitions before each of the next steps; each of the first w has its own code."""
        joined, before = np.concatenate([self._tail, transitions]), len(self._tail)
        place = before + np.arange(len(transitions)) - self._width
        windows = fingerprints(joined, self._width) if len(joined) >= self._width else np.zeros(1, dtype=np.uint64)
        self._tail = joined[max(len(joined) - self._width, 0) :]
        return np.where(place >= 0, windows[np.maximum(place, 0)], mix(place))


def fingerprints(rows: np.ndarray, width: int) -> np.ndarray:
    """(n − width + 1,) uint64 of all windows: Σ_k code(row_{i+k}) r^k modulo 2^64, from running sums."""
    n = len(rows)
    powers, inverse = _powers(_RADIX, n), _powers(pow(_RADIX, -1, 2**64), n)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mix(rows) * powers[:n], dtype=np.uint64)])
    return mix((sums[width:] - sums[:-width]) * inverse[: n - width + 1])


def _powers(base: int, n: int) -> np.ndarray:
    """(n + 1,) base^0, base^1, … modulo 2^64."""
    factors = np.full(n + 1, base, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)


def mix(words: np.ndarray) -> np.ndarray:
    """Hash 64-bit words (the finaliser of splitmix64)."""
    words = (np.asarray(words).astype(np.uint64, casting="unsafe") + np.uint64(1)) * _CODE
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


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
