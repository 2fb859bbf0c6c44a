"""What a file of ours may hold, checked once when it is read: types and ranges, with an error that names the field.

A schema is a dictionary of fields (`Maybe` for ones that may be None), a list of one schema for lists, or one of the
small classes below. Fields that a schema does not name are ignored, so that newer files stay readable.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpl_agent.errors import DataError

LARGE = 2**63 - 1


@dataclass(frozen=True)
class Whole:
    """An integer in a range."""

    low: int = 0
    high: int = LARGE

    def problem(self, value: Any) -> str | None:
        if type(value) is not int or not self.low <= value <= self.high:
            return f"a whole number from {self.low} to {self.high}"
        return None


@dataclass(frozen=True)
class Number:
    """A float in a closed range; "inf", "-inf" and "nan" stand for themselves where they are allowed."""

    low: float = -math.inf
    high: float = math.inf
    nan: bool = False

    def problem(self, value: Any) -> str | None:
        if isinstance(value, str) and value in ("inf", "-inf", "nan"):
            value = float(value)
        if (isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 1.7e308) or value in (
            math.inf, -math.inf
        ):  # fmt: skip
            return None if self.low <= value <= self.high else f"a number from {self.low} to {self.high}"
        return None if self.nan and isinstance(value, float) and math.isnan(value) else "a number"


@dataclass(frozen=True)
class Text:
    """A string; ``hexadecimal``: one that `float.fromhex` reads."""

    longest: int = 1 << 20
    hexadecimal: bool = False

    def problem(self, value: Any) -> str | None:
        if not isinstance(value, str) or len(value) > self.longest:
            return f"a text of at most {self.longest} characters"
        if self.hexadecimal:
            try:
                float.fromhex(value)
            except (ValueError, OverflowError):
                return "a hexadecimal float"
        return None


@dataclass(frozen=True)
class Flag:
    def problem(self, value: Any) -> str | None:
        return None if isinstance(value, bool) else "true or false"


@dataclass(frozen=True)
class Anything:
    """Checked where it is used."""

    def problem(self, value: Any) -> str | None:
        return None


@dataclass(frozen=True)
class Maybe:
    """The schema, or null."""

    schema: Any


def check(value: Any, schema: Any, place: str, error: type[DataError] = DataError) -> None:
    """Raise ``error`` naming the first field that does not fit."""
    if isinstance(schema, Maybe):
        if value is not None:
            check(value, schema.schema, place, error)
    elif isinstance(schema, dict):
        if not isinstance(value, dict):
            raise error(f"{place} is {_shown(value)}, expected an object")
        for name, part in schema.items():
            if name not in value and not isinstance(part, Maybe):
                raise error(f"{place} has no field {name!r}")
            check(value.get(name), part, f"{place}: {name}", error)
    elif isinstance(schema, list):
        if not isinstance(value, list):
            raise error(f"{place} is {_shown(value)}, expected a list")
        for k, item in enumerate(value):
            check(item, schema[0], f"{place}[{k}]", error)
    else:
        expected = schema.problem(value)
        if expected is not None:
            raise error(f"{place} is {_shown(value)}, expected {expected}")


def check_array(array: np.ndarray | None, kind: str, shape: tuple[int | None, ...], place: str) -> None:
    """Raise unless an array has the kind ("i" whole, "f" finite, "v" floats without NaN) and shape (None: any)."""
    if array is None:
        raise DataError(f"{place} is missing")
    if array.dtype.kind not in ("i" if kind == "i" else "f"):
        raise DataError(f"{place} holds {array.dtype}, expected {'whole numbers' if kind == 'i' else 'floats'}")
    if array.ndim != len(shape) or any(n is not None and n != m for n, m in zip(shape, array.shape)):
        raise DataError(f"{place} has shape {array.shape}, expected {shape}")
    if (kind == "f" and not np.isfinite(array).all()) or (kind == "v" and np.isnan(array).any()):
        raise DataError(f"{place} holds numbers that are not finite")


def read_json(text: str, schema: Any, place: str) -> dict[str, Any]:
    """A JSON object that fits a schema."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise DataError(f"{place} is damaged: it is not JSON") from None
    check(data, schema, place)
    return data


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
