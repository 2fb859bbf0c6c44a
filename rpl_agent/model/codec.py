"""Mixed-radix codes: a tuple of bounded integers as one int64 key, in lexicographic order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rpl_agent.errors import ModelError

Columns = Mapping[str, np.ndarray]
#: Keys are int64; two bits are kept so that sums and comparisons of keys cannot overflow.
KEY_LIMIT = 2**62


class Codec:
    """Keys of states whose variables, by name or number, lie in inclusive ranges."""

    def __init__(self, bounds: Mapping[Any, tuple[int, int]]):
        self.bounds = dict(bounds)
        self.size = 1
        for low, high in self.bounds.values():
            self.size *= high - low + 1
        if self.size >= KEY_LIMIT:
            raise ModelError("the state variables have too large ranges for 64-bit keys")

    def encode(self, columns: Columns, n: int | None = None) -> np.ndarray:
        """(n,) int64 keys of the columns; a value outside its range is an error."""
        for variable, (low, high) in self.bounds.items():
            value = np.asarray(columns[variable], dtype=np.int64)
            if value.size and (value.min() < low or value.max() > high):
                raise ModelError(
                    f"variable {variable} leaves its range [{low}, {high}]: {int(value.min())}..{int(value.max())}"
                )
        return self.key(columns, 1 if n is None else n)

    def key(self, columns: Columns | Sequence[np.ndarray], n: int) -> np.ndarray:
        """`encode` for values that are known to lie in their ranges."""
        key: np.ndarray = np.zeros(n, dtype=np.int64)
        for variable, (low, high) in self.bounds.items():
            key = key * (high - low + 1) + (np.asarray(columns[variable], dtype=np.int64) - low)
        return key

    def encode_inside(self, columns: Columns, n: int) -> tuple[np.ndarray, np.ndarray]:
        """(n,) keys, and (n,) bool where all values lie in their ranges (the other keys mean nothing)."""
        inside = np.ones(n, dtype=bool)
        clipped = {}
        for variable, (low, high) in self.bounds.items():
            value = np.asarray(columns[variable], dtype=np.int64)
            inside &= (value >= low) & (value <= high)
            clipped[variable] = np.clip(value, low, high)
        return self.key(clipped, n), inside

    def decode(self, key: np.ndarray) -> dict[Any, np.ndarray]:
        """Columns of keys, the inverse of `encode`."""
        columns = {}
        for variable, (low, high) in reversed(self.bounds.items()):
            key, digit = np.divmod(key, high - low + 1)
            columns[variable] = digit + low
        return dict(reversed(columns.items()))
