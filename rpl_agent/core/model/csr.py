"""Compressed rows (CSR): entries of rows, the best row of every state, reachability, and bytes for hashes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy

#: numbers to process at a time: these, and a copy, stay in the cache
PART = 2**15


def gather(ptr: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(places (n,), own (k + 1,)): positions of the entries of rows (k,), row after row, and where each row begins.

    Entries of row i are at ptr[i], …, ptr[i + 1] − 1; in the result at own[i], …, own[i + 1] − 1.
    """
    first = ptr[rows]
    own = np.concatenate([[0], np.cumsum(ptr[rows + 1] - first)])
    return np.repeat(first - own[:-1], np.diff(own)) + np.arange(own[-1]), own


def owners(ptr: np.ndarray, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows (k,), first (k + 1,)): the rows that sorted entries (n,) belong to, and where those of each row begin."""
    row, new = np.searchsorted(ptr, entries, "right") - 1, np.ones(len(entries) + 1, dtype=bool)
    np.not_equal(row[1:], row[:-1], out=new[1:-1])
    first = np.flatnonzero(new)
    return row[first[:-1]], first


def best_rows(q: np.ndarray, state_ptr: np.ndarray, row_state: np.ndarray) -> np.ndarray:
    """(S,) the first row with the largest number q (R,) in every state; the first row of a state with NaN."""
    best = np.maximum.reduceat(q, state_ptr[:-1])
    hit = np.flatnonzero(q == best[row_state])[::-1]
    rows = state_ptr[:-1].astype(np.int64)
    rows[row_state[hit]] = hit
    return rows


def reached(tails: np.ndarray, heads: np.ndarray, starts: np.ndarray, nodes: int) -> np.ndarray:
    """(nodes,) bool: nodes reachable from the starts (k,) along edges from tails to heads (n,)."""
    first, size = np.full(len(starts), nodes), nodes + 1  # one more node before all starts
    edges = (np.concatenate([tails, first]), np.concatenate([heads, starts]))
    graph = scipy.sparse.csr_array((np.ones(len(edges[0]), dtype=np.int32), edges), shape=(size, size))
    found = np.zeros(size, dtype=bool)
    found[scipy.sparse.csgraph.breadth_first_order(graph, nodes, return_predecessors=False)] = True
    return found[:nodes]


def in_parts(array: np.ndarray, lengths: bool = False) -> Iterator[np.ndarray]:
    """Iterate over a flat array in parts that stay in the cache; with ``lengths``, over its differences instead."""
    for begin in range(0, len(array) - lengths, PART):
        part = array[begin : begin + PART + lengths]
        yield np.diff(part) if lengths else part


def compact_parts(array: np.ndarray, lengths: bool = False) -> Iterator[bytes | memoryview]:
    """The bytes of an array for a hash: type, shape and numbers; integers in the smallest type that holds them all."""
    array = np.ascontiguousarray(array)
    flat, dtype, shape = array.reshape(-1), array.dtype, (len(array) - 1,) if lengths else array.shape
    if dtype.kind in "iu" and (ends := [(part.min(), part.max()) for part in in_parts(flat, lengths)]):
        least, most = min(low for low, _ in ends), max(high for _, high in ends)
        dtype = np.promote_types(np.min_scalar_type(least), np.min_scalar_type(most))
    yield f"{dtype.str}{shape}".encode()
    for part in in_parts(flat, lengths):
        yield part.astype(dtype, copy=False).data
