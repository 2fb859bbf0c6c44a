"""`njit`: numba's, with machine code that is kept by content; and the unit roundoff that all kernels round by.

Numba notices a changed file, but not a changed callee in another file: it would then run stale machine code, in the
worst case with another memory layout. Here the machine code of a kernel lies in a folder named by a digest of its file
and of every file of the package that it imports, so it cannot go stale, and a change recompiles only what it reaches.
Numba also numbers the files of one function, which two processes that start together can both do: one then loads the
other's code. Here each signature has a file of its own name, written atomically, and while one process makes it, others
that need it wait instead of making it too.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias, TypeVar

import numba
import numpy as np
from numba.core import caching
from numba.core.options import DefaultOptions

from rpl_agent.dispatcher import Kernel

try:
    import fcntl
except ImportError:  # no such locks in this system: processes that start together all compile
    fcntl = None  # type: ignore[assignment]

PACKAGE = Path(__file__).resolve().parent
#: of floats: one operation is off by at most this share of its result
UNIT_ROUNDOFF = 2.0**-53
#: added to the size of a rounding term: products of positive numbers may underflow, and no bound of them may be 0
FAINT = 1e-291
#: seconds after which a process no longer waits for another one to make the machine code of one kernel
PATIENCE = 60.0
#: Sums of squares above this have lost nothing that counts to underflow; below it, the numbers must be scaled first.
SAFE_SQUARES = 1e-280
Function = TypeVar("Function", bound=Callable[..., Any])
#: Arrays of kernels by what they hold, 32 and 64 bits alike; `Words` are bit patterns.
Floats: TypeAlias = np.ndarray
Ints: TypeAlias = np.ndarray
Bools: TypeAlias = np.ndarray
Words: TypeAlias = np.ndarray
if TYPE_CHECKING:
    int64 = int  # what numba makes of it
else:
    int64 = np.int64
_IMPORT = re.compile(rb"^\s*(?:from|import)\s+(rpl_agent[\w.]*)", re.MULTILINE)


def read_only(values: Any, dtype: Any = np.float64) -> np.ndarray:
    """What kernels only read, as a contiguous array that cannot be written: one kind, for which they are compiled."""
    array = np.ascontiguousarray(values, dtype=dtype).view()
    array.setflags(write=False)
    return array


@cache
def cache_bases() -> tuple[str, ...]:
    """Where machine code is looked for, and in the last of these written.

    NUMBA_CACHE_DIR if set, else beside the package, and where that cannot be written, the user's cache folder: what
    somebody else left beside the package (`rpl warm-up` in an image, an administrator) is used all the same.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return (chosen,)
    beside = PACKAGE / "__pycache__"
    try:
        beside.mkdir(exist_ok=True)
        if os.access(beside, os.W_OK):
            return (str(beside),)
    except OSError:
        pass
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return str(beside), os.path.join(user, "rpl_agent")


@cache
def _sources(path: str) -> tuple[tuple[str, bytes], ...]:
    """(module, source) of a file and of everything of this package that it imports."""
    found: dict[str, bytes] = {}
    pending = [Path(path)]
    while pending:
        file = pending.pop()
        name = file.name if not file.is_relative_to(PACKAGE) else str(file.relative_to(PACKAGE))
        if name in found:
            continue
        found[name] = source = file.read_bytes()
        for module in _IMPORT.findall(source):
            base = PACKAGE.joinpath(*module.decode().split(".")[1:])
            pending += [f for f in (base.with_suffix(".py"), base / "__init__.py") if f.is_file()]
    return tuple(sorted(found.items()))


@cache
def _digest(path: str) -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for name, source in _sources(path):
        digest.update(name.encode() + b"\0" + source + b"\0")
    return digest.hexdigest()[:24]


def _folders(path: str) -> list[str]:
    """Of the machine code of a file's kernels."""
    return [os.path.join(base, f"kernels-{_digest(path)}") for base in cache_bases()]


class _Locator(caching.UserProvidedCacheLocator):
    """Where the machine code of a function lies: a folder per state of the sources it was made from."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._py_file = py_file
        self._lineno = py_func.__code__.co_firstlineno
        self._cache_path = _folders(py_file)[-1]

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator:
        return cls(py_func, py_file)  # whether or not it can be written: there may be something to read


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012 (numba's own name and type)


def _locks(file: IO[bytes]) -> bool:
    """Whether the lock of a file could be taken; the end of the process lets go of it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


def _unlock(file: IO[bytes]) -> None:
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


def _remove(path: str) -> None:
    with suppress(OSError):
        os.remove(path)


class _Files:
    """One file per signature and processor, named by both: several processes can write at once.

    Found in any of the folders, written in the last.
    """

    def __init__(self, folders: list[str], base: str) -> None:
        self._folders, self._base = folders, base

    def _paths(self, key: Any) -> list[str]:
        name = f"{self._base}-{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}.nbc"
        return [os.path.join(folder, name) for folder in self._folders]

    def holds(self, key: Any) -> bool:
        return any(map(os.path.exists, self._paths(key)))

    @contextmanager
    def alone(self, key: Any, waiting: Callable[[], AbstractContextManager]) -> Iterator[None]:
        """No other process is in here with the same key; one that has ended or hangs keeps nobody waiting for ever."""
        path = self._paths(key)[-1].removesuffix(".nbc") + ".lock"
        try:
            os.makedirs(self._folders[-1], exist_ok=True)
            file = open(path, "wb")
        except OSError:  # nothing can be written: nothing will be kept
            yield
            return
        with file:
            if not _locks(file):
                until = time.monotonic() + PATIENCE
                with waiting():
                    while not _locks(file) and time.monotonic() < until:
                        time.sleep(0.02)
            try:
                yield
            finally:
                _remove(path)  # who waits for it has the file open, who comes now finds the machine code
                _unlock(file)  # also where a process that was forked meanwhile has it open

    def save(self, key: Any, data: Any) -> None:
        path = self._paths(key)[-1]
        partial = f"{path}.{os.getpid()}.tmp"
        try:
            with open(partial, "wb") as file:
                file.write(caching.dumps((repr(key), data)))
            os.replace(partial, path)
        except OSError:
            _remove(partial)
            raise

    def load(self, key: Any) -> Any:
        for path in self._paths(key):
            try:
                with open(path, "rb") as file:
                    stored, data = pickle.load(file)
            except (OSError, EOFError, pickle.UnpicklingError):
                continue
            if stored == repr(key):
                return data
        return None

    def flush(self) -> None:
        """Nothing to forget: a file can only be right or absent."""


class _Cache(caching.FunctionCache):
    _impl_class = _Implementation

    def __init__(self, py_func: Any) -> None:
        super().__init__(py_func)
        self._cache_file: Any = _Files(_folders(py_func.__code__.co_filename), self._impl.filename_base)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Where it cannot be kept (a full disk), this process has it all the same, and the next will make it again."""
        with suppress(OSError):
            super().save_overload(sig, data)

    def holds(self, sig: Any, target_context: Any) -> bool:
        """Whether `load_overload` would find something."""
        return self._cache_file.holds(self._index_key(sig, target_context.codegen()))

    def alone(
        self, sig: Any, target_context: Any, waiting: Callable[[], AbstractContextManager]
    ) -> AbstractContextManager[None]:
        """In it, no other process makes the machine code of this signature; ``waiting`` is around the wait for one."""
        return self._cache_file.alone(self._index_key(sig, target_context.codegen()), waiting)


def njit(
    allocates: bool = True, part: bool = False, cache: bool = True, **options: Any
) -> Callable[[Function], Function]:
    """Decorator: compile on first use, keep the machine code (other options as numba's).

    A function that does not allocate arrays need not count references to those it is given. Helpers that become part of
    a loop would take and drop a reference to each of their arrays for every row, which costs more than the row itself;
    the caller holds them all anyway.

    A ``part`` of a loop does not allocate, and LLVM makes it part of every function that calls it. (Numba's
    ``inline="always"`` does so before types are known, which compiles for ten times as long.)
    """
    allocates = allocates and not part
    options["forceinline"] = part  # like the next option, said of both kinds
    if hasattr(DefaultOptions, "_nrt"):  # not a documented option: do without where numba has lost it
        options["_nrt"] = allocates  # said of both kinds, because callees take it over from their first caller

    def decorate(function: Function) -> Function:
        dispatcher: Any = Kernel(function, targetoptions=options)
        if cache:
            dispatcher._cache = _Cache(function)
        return dispatcher

    return decorate
