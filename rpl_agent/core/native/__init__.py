"""The compiled core: `core.name` is the C function, `core.Name` makes the struct `name`, `core.NAME` is the constant.

`core.h` is the single source of signatures. cffi in ABI mode, because it turns an array into a pointer five times
faster than ctypes, needs no Python.h, and so serves all versions of Python with one library. A pointer takes a
C-contiguous array of exactly its type that is as long as the header says; anything else is a TypeError or ValueError
that names function and parameter, because in C it would be memory corruption. `const` arrays may be read-only; only a
pointer marked OPTIONAL or SCRATCH may be None, and scratch memory is then made here. The GIL is released while a
function runs.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

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
_LENGTH = re.compile(r"/\*\[(.*?)\]\*/", re.DOTALL)
_PARAMETER = re.compile(r"^(const )?(\w+) (\*?)(\w+)( OPTIONAL| SCRATCH)?( @\d+)?$")
_SIZE_OF = re.compile(r"#([\w.]+)")
_ENTRY_OF = re.compile(r"([\w.]+)\[([^\[\]]*)\]")
Convert = Callable[[Any], Any]


class Parameter(NamedTuple):
    """A parameter of a function or a field of a struct."""

    name: str
    convert: Convert | None = None  # from what Python has to what C takes; None if it is passed by value
    mark: str = ""  # OPTIONAL or SCRATCH
    length: str = ""  # of an array, in terms of the others; empty if it is not known
    dtype: Any = None  # of an array
    kind: Any = None  # the type in C of an array
    written: bool = False

    @property
    def converted(self) -> str:
        """What C takes, as an expression of Python: arrays of the usual kind without another call."""
        if self.dtype is None:
            return f"c_{self.name}({self.name})"
        usual = f"type({self.name}) is ndarray and {self.name}.dtype is t_{self.name}"
        return f"from_buffer(k_{self.name}, {self.name}, {self.written}) if {usual} else c_{self.name}({self.name})"


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


def _python(length: str) -> str:
    """A length of the header as an expression of Python; C divides whole numbers as // does.

    Entries of arrays are read as numbers of Python, with which it computes faster.
    """
    entries = 1
    while entries:  # from the inside out
        length, entries = _ENTRY_OF.subn(r"\1.item(\2)", length)
    return f"({_SIZE_OF.sub(lambda found: f'{found[1]}.size', length).replace('/', '//')})"


def _short(where: str, pointer: Any, needed: int, length: str) -> None:
    raise ValueError(f"{where} has {len(pointer)} numbers, and needs {needed} = {length}")


def _refuse(pairs: tuple[tuple[Convert, Any], ...]) -> None:
    """Raise an error that names the array of these that C cannot take."""
    for convert, array in pairs:
        if array is not None:
            convert(array)


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
        header = (HERE / "core.h").read_text()
        for name, value in _CONSTANT.findall(header):
            setattr(self, name, _number(value))
        self._lengths = [" ".join(length.replace("*/", "").split()) for length in _LENGTH.findall(header)]
        numbers = count()
        text = declarations(_LENGTH.sub(lambda _: f"@{next(numbers)}", header))
        for body, name in _STRUCT.findall(text):
            fields = [self._parameter(name, field) for field in body.split(";") if field.strip()]
            self._structs.add(name)
            setattr(self, _maker_name(name), self._maker(name, fields))
        for _, name, parameters in _FUNCTION.findall(_STRUCT.sub("", text)):
            listed = [self._parameter(name, p) for p in parameters.split(",") if p.strip() != "void"]
            setattr(self, name, self._caller(name, listed))

    def _parameter(self, where: str, declared: str) -> Parameter:
        """A parameter or field as it is declared, `@k` standing for the k-th length of the header."""
        found = _PARAMETER.match(" ".join(declared.split()))
        if found is None:
            raise ValueError(f"core.h: {where}: cannot read {declared.strip()!r}")
        const, c_type, pointer, name, mark, number = found.groups()
        if not pointer:
            return Parameter(name)
        is_struct = c_type in self._structs
        if is_struct == (number is not None):
            raise ValueError(f"core.h: {where}: arrays need a length and structs have none: {declared.strip()!r}")
        convert = (self._struct_pointer if is_struct else self._array_pointer)(
            f"{where}: {name}", c_type, const is None
        )
        if is_struct:
            return Parameter(name, convert, (mark or "").strip())
        length = self._lengths[int(number[2:])]
        kind, dtype = self._ffi.typeof(f"{c_type}[]"), np.dtype(DTYPES[c_type])
        return Parameter(
            name, convert, (mark or "").strip(), "" if length == "*" else length, dtype, kind, const is None
        )

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

    def _maker(self, name: str, fields: list[Parameter]) -> Callable[..., Struct]:
        passed = ", ".join(f"p_{field.name}" for field in fields)
        values = ", ".join(f"{field.name!r}: {field.name}" for field in fields)
        made = f"Struct({name!r}, new_struct(struct_kind, [{passed}]), {{{values}}})"
        return self._compile(name, fields, made, {"struct_kind": self._ffi.typeof(f"{name} *")}, "*")

    def _caller(self, name: str, parameters: list[Parameter]) -> Callable[..., Any]:
        passed = ", ".join(f"p_{p.name}" for p in parameters)
        return self._compile(name, parameters, f"function({passed})", {"function": getattr(self._compiled, name)})

    def _compile(
        self, name: str, parameters: list[Parameter], result: str, names: dict[str, Any], *first: str
    ) -> Callable[..., Any]:
        """A Python function that converts its arguments, checks their lengths and returns `result`, with these `names`.

        It is written out for these parameters, because a loop over them takes longer than most checks.
        """
        space = names | {"NULL": self._ffi.NULL, "from_buffer": self._ffi.from_buffer, "new_struct": self._ffi.new}
        space |= {"Struct": Struct, "empty": np.empty, "ndarray": np.ndarray, "short": _short, "refuse": _refuse}
        lines = [f"def {name}({', '.join([*first, *(p.name for p in parameters)])}):", "    try:", "        pass"]
        for p in parameters:
            if p.convert is None:
                lines.append(f"        p_{p.name} = {p.name}")
                continue
            space |= {f"c_{p.name}": p.convert, f"t_{p.name}": p.dtype, f"k_{p.name}": p.kind}
            if p.mark == "SCRATCH":
                lines.append(f"        m_{p.name} = {p.name} is None")
                lines.append(f"        if m_{p.name}: {p.name} = empty(max({_python(p.length)}, 1), t_{p.name})")
            otherwise = f"NULL if {p.name} is None else " if p.mark == "OPTIONAL" else ""
            lines.append(f"        p_{p.name} = {otherwise}{p.converted}")
        given = "".join(f"(c_{p.name}, {p.name}), " for p in parameters if p.dtype is not None)
        lines.append(f"    except (BufferError, ValueError): refuse(({given})); raise")
        for p in parameters:
            if p.length:
                given = {"OPTIONAL": f"{p.name} is not None and ", "SCRATCH": f"not m_{p.name} and "}.get(p.mark, "")
                needed, where = _python(p.length), f"{name}: {p.name}"
                lines.append(
                    f"    if {given}len(p_{p.name}) < {needed}: short({where!r}, p_{p.name}, {needed}, {p.length!r})"
                )
        exec("\n".join([*lines, f"    return {result}"]), space)
        return space[name]

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
