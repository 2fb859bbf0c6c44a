"""The compiled core: `core.name` is the C function, `core.Name` makes the struct `name`, `core.NAME` is the constant.

`core.h` is the single source of signatures. cffi in ABI mode, because it turns an array into a pointer five times
faster than ctypes, needs no Python.h, and so serves all versions of Python with one library. A pointer takes a
C-contiguous array of exactly its type; anything else is a TypeError that names function and parameter, because in C it
would be memory corruption. `const` arrays may be read-only; only a pointer marked OPTIONAL may be None. The GIL is
released while a function runs.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rpl_agent.core.native.build import HERE, build_core, declarations

#: What an array holds for a pointer to this type of the header.
DTYPES: dict[str, Any] = {
    "double": np.float64,
    "bool": np.bool_,
    "int8_t": np.int8,
    "int32_t": np.int32,
    "int64_t": np.int64,
    "uint8_t": np.uint8,
    "uint64_t": np.uint64,
}
_STRUCT = re.compile(r"typedef struct \w*\s*\{(.*?)\}\s*(\w+);", re.DOTALL)
_FUNCTION = re.compile(r"^(\w+) (\w+)\(([^)]*)\);", re.MULTILINE)
_CONSTANT = re.compile(r"^#define (\w+) (\S+)(?: +/\*.*)?$", re.MULTILINE)
_PARAMETER = re.compile(r"^(const )?(\w+) (\*?)(\w+)( OPTIONAL)?$")
Convert = Callable[[Any], Any]


class Struct:
    """A struct of the header: ``pointer`` for C, its arrays kept alive, its fields readable."""

    def __init__(self, name: str, pointer: Any, fields: dict[str, Any]) -> None:
        self.__dict__.update(fields)
        self.struct_name, self.pointer, self._fields = name, pointer, fields

    if TYPE_CHECKING:

        def __getattr__(self, field: str) -> Any: ...

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (self.struct_name, self._fields)


def _remake(name: str, fields: dict[str, Any]) -> Struct:
    """A struct from its pickle."""
    return getattr(core, _maker_name(name))(**fields)


def _number(text: str) -> float:
    if text.startswith("0x"):
        return float.fromhex(text)
    return float(text) if "." in text or "e" in text else int(text)


def _maker_name(struct: str) -> str:
    return struct.title().replace("_", "")


@cache
def threads() -> int:
    """Threads that a loop over a large model may use: `RPL_THREADS`, by default as many as there are processors."""
    chosen = os.environ.get("RPL_THREADS", "")
    if chosen:
        if not chosen.isdecimal() or int(chosen) < 1:
            raise ValueError(f"RPL_THREADS is {chosen!r}, not a positive number")
        return int(chosen)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Core:
    """The functions and structs of `core.h` as attributes."""

    def __init__(self) -> None:
        library, bindings = build_core()  # only where sources have changed since
        importlib.invalidate_caches()  # the bindings may be new
        self._ffi = importlib.import_module(f"rpl_agent.core.native.{bindings.stem}").ffi
        self._compiled = self._ffi.dlopen(str(library))
        self._structs: set[str] = set()
        for name, value in _CONSTANT.findall((HERE / "core.h").read_text()):
            setattr(self, name, _number(value))
        text = declarations()
        for body, name in _STRUCT.findall(text):
            fields = dict(self._parameter(name, field) for field in body.split(";") if field.strip())
            self._structs.add(name)
            setattr(self, _maker_name(name), self._maker(name, fields))
        for _, name, parameters in _FUNCTION.findall(_STRUCT.sub("", text)):
            listed = [self._parameter(name, p)[1] for p in parameters.split(",") if p.strip() != "void"]
            setattr(self, name, self._caller(getattr(self._compiled, name), listed))

    def _parameter(self, where: str, declared: str) -> tuple[str, Convert | None]:
        """(name, conversion) of a parameter or field; no conversion for what is passed by value."""
        found = _PARAMETER.match(" ".join(declared.split()))
        if found is None:
            raise ValueError(f"core.h: {where}: cannot read {declared.strip()!r}")
        const, c_type, pointer, name, optional = found.groups()
        if not pointer:
            return name, None
        make = self._struct_pointer if c_type in self._structs else self._array_pointer
        convert = make(f"{where}: {name}", c_type, const is None)
        null = self._ffi.NULL
        return name, (lambda value: null if value is None else convert(value)) if optional else convert

    def _struct_pointer(self, where: str, c_type: str, written: bool) -> Convert:
        def convert(value: Any) -> Any:
            if not isinstance(value, Struct) or value.struct_name != c_type:
                raise TypeError(f"{where} needs a struct {c_type}, got {value!r}")
            return value.pointer

        return convert

    def _array_pointer(self, where: str, c_type: str, written: bool) -> Convert:
        dtype, kind, from_buffer = np.dtype(DTYPES[c_type]), self._ffi.typeof(f"{c_type}[]"), self._ffi.from_buffer

        def convert(array: Any) -> Any:
            if not isinstance(array, np.ndarray) or array.dtype != dtype:
                got = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else repr(array)
                raise TypeError(f"{where} needs a {dtype} array, got {got}")
            try:
                return from_buffer(kind, array, written)
            except (BufferError, ValueError) as error:  # not contiguous, or read-only
                raise TypeError(f"{where}: {error}") from None

        return convert

    def _maker(self, name: str, fields: dict[str, Convert | None]) -> Callable[..., Struct]:
        def make(**values: Any) -> Struct:
            if values.keys() != fields.keys():
                raise TypeError(f"{name}: fields missing or unknown: {sorted(values.keys() ^ fields.keys())}")
            held = {f: v if (convert := fields[f]) is None else convert(v) for f, v in values.items()}
            return Struct(name, self._ffi.new(f"{name} *", held), values)

        return make

    def _caller(self, function: Any, conversions: list[Convert | None]) -> Callable[..., Any]:
        count = len(conversions)

        def call(*arguments: Any) -> Any:
            if len(arguments) != count:
                raise TypeError(f"{function} takes {count} arguments, got {len(arguments)}")
            return function(*[a if c is None else c(a) for a, c in zip(arguments, conversions)])

        return call

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"core.h declares no {name!r}")


core = Core()
#: Unit roundoff of float64: the relative error bound of one operation.
UNIT_ROUNDOFF: float = core.UNIT_ROUNDOFF


def read_only(values: Any, dtype: Any = np.float64) -> np.ndarray:
    """What C only reads: a contiguous array that cannot be written."""
    array = np.ascontiguousarray(values, dtype=dtype).view()
    array.setflags(write=False)
    return array
