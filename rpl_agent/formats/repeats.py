"""Blocks of rows that a log holds twice: the same chance counted again is not more data.

Every window of W rows has a fingerprint; one in `SAMPLED` of them, chosen by the fingerprint itself, is remembered. W
is such that a window carries about `BITS` bits of chance by the frequencies seen. That two windows which carry so much
agree by accident has, over all pairs in a log of 10^9 rows, probability below 2^-40, so what agrees was copied.

Fingerprint: Σ_k c(row_{i+k}) r^k modulo 2^64, with c a fixed random code of transitions; from running sums it
takes a few vector operations for all windows of a block at once.
"""

from __future__ import annotations

import numpy as np

from rpl_agent.evidence.counts import Counts

#: Chance (bits) that a window must carry: 40, and twice log2 of the longest log (10^9 rows).
BITS = 100.0
SAMPLED = 16
#: Longer windows are not looked for (the log is nearly deterministic), and so many fingerprints are kept at most.
LONGEST = 1 << 14
KEPT = 1 << 21
_CODE = np.uint64(0x9E3779B97F4A7C15)
_RADIX = 0xD1342543DE82EF95  # odd, hence invertible modulo 2^64


class Repeats:
    """Looks through a log as it is read."""

    def __init__(self) -> None:
        self._window = 0  # W; 0: not yet chosen
        self._rows = np.zeros(0, dtype=np.int64)  # the end of what was read, shorter than a window
        self._bits = np.zeros(0)
        self._first = 0  # number of the row at its beginning
        self._seen: dict[int, int] = {}

    def add(self, transitions: np.ndarray, counts: Counts) -> tuple[int, int, int] | None:
        """The next rows (n,) as transition numbers, already in ``counts``.

        Returns (earlier row, later row, length of the window) of the first repeated block, or None.
        """
        bits = information(transitions, counts)
        if not self._window and len(bits):
            mean = float(bits.mean())
            self._window = int(min(np.ceil(1.5 * BITS / mean), LONGEST + 1)) if mean > 0 else LONGEST + 1
        if not self._window or self._window > LONGEST:
            return None
        rows = np.concatenate([self._rows, transitions])
        bits = np.concatenate([self._bits, bits])
        found = self._look(rows, bits)
        kept = min(len(rows), self._window - 1)
        self._first += len(rows) - kept
        self._rows, self._bits = rows[len(rows) - kept :], bits[len(bits) - kept :]
        return found

    def _look(self, rows: np.ndarray, bits: np.ndarray) -> tuple[int, int, int] | None:
        width = self._window
        if len(rows) < width:
            return None
        carried = np.concatenate([[0.0], np.cumsum(bits)])
        prints = fingerprints(rows, width)
        telling = (carried[width:] - carried[:-width] >= BITS) & (prints % np.uint64(SAMPLED) == 0)
        for i in np.flatnonzero(telling).tolist():
            key, place = int(prints[i]), self._first + i
            earlier = self._seen.get(key)
            if earlier is not None and earlier + width <= place:
                return earlier, place, width
            if len(self._seen) < KEPT:
                self._seen.setdefault(key, place)
        return None


def information(transitions: np.ndarray, counts: Counts) -> np.ndarray:
    """(n,) bits of chance in each row: −log2 of its frequency within its state and action."""
    rows = counts.pmdp.transition_row[transitions]
    return -np.log2(counts.transitions[transitions] / counts.row_totals[rows])


def fingerprints(rows: np.ndarray, width: int) -> np.ndarray:
    """(n − width + 1,) uint64 of all windows."""
    n = len(rows)
    powers, inverse = _powers(_RADIX, n), _powers(pow(_RADIX, -1, 2**64), n)
    terms = _mix(rows.astype(np.uint64)) * powers[:n]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    return _mix((sums[width:] - sums[:-width]) * inverse[: n - width + 1])


def _powers(base: int, n: int) -> np.ndarray:
    """(n + 1,) base^0, base^1, … modulo 2^64."""
    factors = np.full(n + 1, base, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)


def _mix(words: np.ndarray) -> np.ndarray:
    """A fixed random-looking code of 64-bit words (the finaliser of splitmix64)."""
    words = (words + np.uint64(1)) * _CODE
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
