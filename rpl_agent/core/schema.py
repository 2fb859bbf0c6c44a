"""The format of our files: `jsonable` makes plain JSON from dataclasses, numpy and numbers that JSON lacks;
`read` makes dataclasses from JSON and checks their types and ranges.

Fields that a class does not have are ignored, so that newer files stay readable; fields with a default may be missing.
"""

from __future__ import annotations

import json
import math
from abc import ABC
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import numpy as np

from rpl_agent.core.errors import DataError, text_of
from rpl_agent.core.files import write_whole


def jsonable(value: Any, arrays: dict[str, np.ndarray] | None = None, place: str = "") -> Any:
    """A JSON-able version of a value; infinities and NaN become the strings "inf", "-inf" and "nan".

    Arrays become lists. With ``arrays`` they are put there, under the names of their places, and replaced by
    ``{"array": name}``. An object with a method ``stored_parts()`` becomes what that returns. Inverse: `schema.read`.
    """
    if hasattr(value, "stored_parts"):
        value = value.stored_parts()
    elif is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, Mapping):
        names = {key: f"{place}.{key}" if place else str(key) for key in value}
        return {str(key): jsonable(item, arrays, names[key]) for key, item in value.items()}
    if isinstance(value, (list, tuple, deque)):
        return [jsonable(item, arrays, f"{place}.{k}") for k, item in enumerate(value)]
    if isinstance(value, np.ndarray):
        if arrays is None:
            is_plain = value.dtype.kind in "biu" or (value.dtype.kind == "f" and np.isfinite(value).all())
            return value.tolist() if is_plain else jsonable(value.tolist())
        arrays[place] = value
        return {"array": place}
    if hasattr(value, "tocsr"):
        csr = value.tocsr()
        return {"shape": list(csr.shape), **jsonable({k: getattr(csr, k) for k in CSR}, arrays, place)}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


#: Arrays of a sparse matrix.
CSR = ("data", "indices", "indptr")

if TYPE_CHECKING:
    Matrix = np.ndarray
else:

    class Matrix(ABC):  # noqa: B024  (never instantiated: a name for two types)
        """The type of a field that holds an array or a sparse matrix, so that `read` can check it."""

        @classmethod
        def __subclasshook__(cls, kind: type) -> bool:
            return kind is np.ndarray or kind.__name__ == "csr_array"  # by name: importing scipy is slow


Stored = TypeVar("Stored")
#: For seeds, which may exceed 64 bits.
Natural = Annotated[int, msgspec.Meta(ge=0)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Signed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Positive = Annotated[float, msgspec.Meta(ge=0.0)]
#: Exceptions that constructors raise for values of the wrong kind.
UNREADABLE = (
    msgspec.ValidationError,
    KeyError,
    TypeError,
    AttributeError,
    ValueError,
    IndexError,
    OverflowError,
    RecursionError,
)


def read(
    data: Any,
    kind: type[Stored],
    place: str,
    arrays: Mapping[str, np.ndarray] | None = None,
    error: type[DataError] = DataError,
    makers: Mapping[type, Callable[[Any], Any]] | None = None,
) -> Stored:
    """A dataclass object from the output of `jsonable`; ``error`` names the first field that does not fit.

    ``makers`` are functions from JSON for types that are not dataclasses.
    """

    def make(wanted: type, value: Any) -> Any:
        is_array = wanted in (np.ndarray, Matrix)
        return read_array(value, arrays or {}) if is_array else (makers or {})[wanted](value)

    try:
        return msgspec.convert(data, kind, strict=False, dec_hook=make)
    except UNREADABLE as problem:
        text = " ".join(str(problem).split())
        raise error(f"{place}: {text if len(text) < 300 else text[:297] + '...'}") from None


def read_array(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Convert what `jsonable` wrote to an array: a list, the name of an array, or those of a sparse matrix."""
    if isinstance(value, Mapping) and "shape" in value:
        import scipy

        parts = tuple(read_array(value[name], arrays) for name in CSR)
        return scipy.sparse.csr_array(parts, shape=tuple(value["shape"]))
    found = arrays[value["array"]] if isinstance(value, Mapping) else np.array(value)
    if found.dtype.kind not in "biuf":
        raise ValueError(f"contains {found.dtype} where numbers are expected")
    if found.dtype.kind == "f" and np.isnan(found).any():
        raise ValueError("contains NaN")
    return found


def read_json(text: str, place: str) -> dict[str, Any]:
    """Parse a JSON object; errors call it ``place``."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise DataError(f"{place} is damaged: it is not JSON") from None
    if not isinstance(data, dict):
        raise DataError(f"{place} is damaged: it is not an object")
    return data


def read_document(source: str | Path, kind: type[Stored], format: str, name: str) -> Stored:
    """Read a dataclass object from JSON text or a file with the field "format"; errors call it ``name``."""
    text = source if isinstance(source, str) and source.lstrip().startswith("{") else text_of(Path(source))
    data = read_json(text, f"the {name}")
    if data.get("format") != format:
        article = "an" if name[0] in "aeiou" else "a"
        raise DataError(f"not {article} {name}: format is {data.get('format')!r}, expected {format!r}")
    return read(data, kind, f"the {name}")


def write_document(data: dict[str, Any], path: str | Path | None) -> str:
    """Return the JSON text that `read_document` reads, and write it to ``path`` unless that is None."""
    text = json.dumps(data, allow_nan=False)
    if path is not None:
        write_whole(Path(path), text)
    return text
