"""Values of states, as given by the user, and how an observation is matched to its state.

A model numbers its states internally. Users know their *values*: numbers, strings, tuples, or tuples of
named variables. An observation belongs to the state whose value it equals, where

- numpy scalars and arrays count as the Python numbers and (nested) tuples that they contain,
- a mapping is read by the names of the model's variables, or by its own sorted keys if there are none,
- numbers are compared exactly: 2.0 equals 2, and the string "2" does not; an observation in single precision is
  compared with the values rounded to single precision.

Only a model without values is observed by state numbers. To map an observation to a state number in any other model,
return `StateIndex(number)`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model.csr import compact_parts

UNKNOWN = -1
#: keys up to this number are looked up in a table
FEW_KEYS = 1 << 18
Columns = Mapping[str, np.ndarray]
#: Keys are int64; two spare bits keep sums and comparisons of keys from overflowing.
KEY_LIMIT = 2**62


class StateIndex(int):
    """The number of a state in its model, where a bare integer would be taken for a state's value.

    >>> StateIndex(3) == 3
    True
    """

    def __new__(cls, number: Any) -> StateIndex:
        if not hasattr(number, "__index__"):  # int() would also accept 2.9 and "2"
            raise ModelError(f"the number of a state must be an integer, not {number!r}")
        return super().__new__(cls, number.__index__())


class _Start:
    """The value of the silent state before a random start."""

    def __repr__(self) -> str:
        return "start"


START = _Start()


@dataclass(frozen=True)
class Paid:
    """The value of a silent state on the way to ``successor``, which pays ``extra`` rewards by name."""

    successor: Hashable
    extra: tuple[tuple[str, float], ...]

    def __repr__(self) -> str:
        more = ", ".join(f"{amount:g} {name}" for name, amount in self.extra)
        return f"{self.successor!r} paying {more or 'nothing'} more"


def paying(successor: Hashable, **extra: float) -> Hashable:
    """A successor for a row of `build` that pays these rewards on top of the row's own."""
    amounts = tuple((name, float(amount)) for name, amount in sorted(extra.items()) if amount)
    return Paid(successor, amounts) if amounts else successor


def canonical(value: Any, names: Sequence[str] = ()) -> Hashable:
    """A value as plain Python numbers, strings and tuples; mappings by ``names`` or by their sorted keys."""
    if isinstance(value, np.ndarray):
        return _nested(value.tolist())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        if names and set(value) == set(names):
            return tuple(canonical(value[name]) for name in names)
        return tuple((str(key), canonical(value[key])) for key in sorted(value, key=str))
    if isinstance(value, (tuple, list)):
        return tuple(canonical(item) for item in value)
    return value


def _nested(value: Any) -> Any:
    return tuple(_nested(item) for item in value) if isinstance(value, list) else value


class ListedStates:
    """Any hashable values, one per state."""

    def __init__(self, values: Sequence[Hashable], names: Sequence[str] = ()):
        self.values = values
        self.names = tuple(names) or tuple(getattr(values[0], "_fields", ()))

    @cached_property
    def _index(self) -> dict[Hashable, int]:
        index = {canonical(value, self.names): i for i, value in enumerate(self.values)}
        if len(index) < len(self.values):
            raise ModelError("two states of the model have equal values")
        return index

    @cached_property
    def _single(self) -> dict[Hashable, int]:
        """Values rounded to single precision; if two coincide, the observation is ambiguous."""
        index: dict[Hashable, int] = {}
        for key, i in self._index.items():
            rounded = _rounded(key)
            index[rounded] = UNKNOWN if rounded in index else i
        return index

    def find(self, value: Any) -> int:
        """Index of the state with this value, or −1."""
        try:
            found = self._index.get(value, UNKNOWN)
        except TypeError:  # arrays and mappings are not hashable
            found = UNKNOWN
        if found != UNKNOWN:
            return found
        key = canonical(value, self.names)
        try:
            found = self._index.get(key, UNKNOWN)
        except TypeError:
            return UNKNOWN
        return self._single.get(_rounded(key), UNKNOWN) if found == UNKNOWN and _is_single(value) else found

    def value(self, index: int) -> Any:
        return self.values[index]

    def fingerprint(self) -> Iterator[bytes | memoryview]:
        """Bytes for a hash: the same in every process for the same values in the same order."""
        text = repr([canonical(value, self.names) for value in self.values])
        yield b"" if " at 0x" in text else text.encode()  # addresses differ between processes


class VariableStates:
    """Tuples of integers, stored as one column per variable, without a Python object per state."""

    def __init__(self, columns: Mapping[str, np.ndarray]):
        self.columns = columns
        self.names = tuple(columns)

    @cached_property
    def _codec(self) -> Codec:
        return Codec({name: (int(c.min()), int(c.max())) for name, c in self.columns.items()})

    @cached_property
    def _keys(self) -> tuple[np.ndarray, np.ndarray]:
        """(S,) sorted keys, and (S,) the state of each."""
        keys = self._codec.encode(self.columns, len(next(iter(self.columns.values()))))
        order = np.argsort(keys, kind="stable").astype(np.int32)
        return keys[order], order

    @cached_property
    def _state_of_key(self) -> np.ndarray | None:
        """(keys,) the state of every key, UNKNOWN if there is none; None if there are many keys."""
        if self._codec.size > FEW_KEYS:
            return None
        keys, order = self._keys
        found = np.full(self._codec.size, UNKNOWN, np.int32)
        found[keys[::-1]] = order[::-1]  # of equal keys the first
        return found

    def find(self, value: Any) -> int:
        key = canonical(value, self.names)
        if len(self.names) == 1 and not isinstance(key, tuple):
            key = (key,)
        if not isinstance(key, tuple) or len(key) != len(self.names):
            return UNKNOWN
        # plain numbers: every observation of an environment is looked up, and arrays of one element cost far more
        wanted = 0
        for item, (low, high) in zip(key, self._codec.bounds.values(), strict=True):
            if isinstance(item, float) and item.is_integer():
                item = int(item)
            if not isinstance(item, int) or not low <= item <= high:
                return UNKNOWN
            wanted = wanted * (high - low + 1) + item - low
        keys, order = self._keys
        place = int(keys.searchsorted(wanted))
        return int(order[place]) if place < len(keys) and keys[place] == wanted else UNKNOWN

    def find_all(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """(n,) indices of the states with these values of their variables; −1 if there is none."""
        wanted, inside = self._codec.encode_inside(columns, len(next(iter(columns.values()))))
        if self._state_of_key is not None:
            found = self._state_of_key[wanted]
            return found if inside.all() else np.where(inside, found, UNKNOWN)
        keys, order = self._keys
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(inside & (keys[place] == wanted), order[place], UNKNOWN)

    def value(self, index: int) -> tuple[int, ...]:
        return tuple(int(column[index]) for column in self.columns.values())

    def fingerprint(self) -> Iterator[bytes | memoryview]:
        yield repr(self.names).encode()
        for column in self.columns.values():
            yield from compact_parts(column)


NamedStates = ListedStates | VariableStates


def named_states(
    values: Sequence[Hashable] | None, variables: Mapping[str, np.ndarray], names: Sequence[str] = ()
) -> NamedStates | None:
    """The values of a model's states; None if they are numbers only."""
    if values is not None:
        return ListedStates(values, names)
    if variables and all(np.asarray(c).dtype.kind in "biu" for c in variables.values()):
        return VariableStates(variables)
    return None


def _is_single(value: Any) -> bool:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype == np.float32
    if isinstance(value, Mapping):
        return any(_is_single(item) for item in value.values())
    return isinstance(value, (tuple, list)) and any(_is_single(item) for item in value)


def _rounded(key: Hashable) -> Hashable:
    if isinstance(key, tuple):
        return tuple(_rounded(item) for item in key)
    return float(np.float32(key)) if isinstance(key, float) else key


class Codec:
    """Encodes states as ordered int64 keys in mixed radix; variables, by name or number, have inclusive ranges."""

    def __init__(self, bounds: Mapping[Any, tuple[int, int]]):
        self.bounds = dict(bounds)
        self.size = 1
        for low, high in self.bounds.values():
            self.size *= high - low + 1
        if self.size >= KEY_LIMIT:
            raise ModelError("the ranges of the state variables are too large for 64-bit keys")

    def encode(self, columns: Columns, n: int | None = None) -> np.ndarray:
        """(n,) int64 keys of states in columns; raises if a value is outside its range."""
        for variable, (low, high) in self.bounds.items():
            value = np.asarray(columns[variable], dtype=np.int64)
            if value.size and (value.min() < low or value.max() > high):
                raise ModelError(
                    f"variable {variable} leaves its range [{low}, {high}]: {int(value.min())}..{int(value.max())}"
                )
        return self.key(columns, 1 if n is None else n)

    def key(self, columns: Columns | Sequence[np.ndarray], n: int) -> np.ndarray:
        """`encode` for values known to lie in their ranges."""
        key: np.ndarray = np.zeros(n, dtype=np.int64)
        for variable, (low, high) in self.bounds.items():
            key *= high - low + 1
            key += np.asarray(columns[variable], dtype=np.int64)
            key -= low
        return key

    def encode_inside(self, columns: Columns, n: int) -> tuple[np.ndarray, np.ndarray]:
        """(n,) keys, and (n,) bool whether all values lie in their ranges (other keys are meaningless)."""
        inside = np.ones(n, dtype=bool)
        clipped = {}
        for variable, (low, high) in self.bounds.items():
            clipped[variable] = value = np.asarray(columns[variable], dtype=np.int64)
            if value.min(initial=low) < low or value.max(initial=high) > high:  # mostly none is outside
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
