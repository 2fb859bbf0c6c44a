"""`jsonable`: plain JSON from dataclasses, numpy and numbers that JSON does not have."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np


def jsonable(value: Any, arrays: dict[str, np.ndarray] | None = None, place: str = "") -> Any:
    """The same value as JSON has it; infinities and NaN become the strings "inf", "-inf" and "nan".

    Arrays become lists. With ``arrays`` they are put there, under the names of their places, and ``{"array": name}``
    stands for them. An object with a method ``stored_parts()`` is what that returns. `schema.read` is the way back.
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
