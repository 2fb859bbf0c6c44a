"""Compressed rows: gathering and the best row, against loops."""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np

from rpl_agent.core.model.csr import best_rows, gather


def test_gather_lists_the_entries_of_rows_one_after_the_other():
    ptr = np.array([0, 2, 2, 5, 6])
    for rows in ([2, 0, 2], [1], [], [0, 1, 2, 3], [3, 1, 1, 0]):
        places, own = gather(ptr, np.array(rows, dtype=np.int64))
        wanted = [list(range(ptr[r], ptr[r + 1])) for r in rows]
        assert places.tolist() == list(chain(*wanted)) and len(own) == len(rows) + 1
        assert [places[a:b].tolist() for a, b in pairwise(own)] == wanted


def test_the_first_best_row_of_every_state():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 5, size=40)
    ptr, state = np.concatenate([[0], np.cumsum(sizes)]), np.repeat(np.arange(40), sizes)
    q = rng.integers(0, 3, size=ptr[-1]).astype(float)  # many ties
    q[ptr[7] : ptr[8]], q[ptr[9] : ptr[10]] = np.nan, -np.inf
    wanted = [a if s == 7 else a + int(np.argmax(q[a:b])) for s, (a, b) in enumerate(pairwise(ptr))]
    assert best_rows(q, ptr, state).tolist() == wanted
