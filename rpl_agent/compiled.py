"""`njit`: numba's, cached in a folder that is named by the content of all kernels; and what all kernels round by.

Numba notices a changed file, but not a changed callee in another file: it would then run stale machine
code, in the worst case with another memory layout. A folder per state of the sources cannot go stale.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config
from numba.core.options import DefaultOptions

PACKAGE = Path(__file__).resolve().parent
#: of floats: one operation is off by at most this share of its result
UNIT_ROUNDOFF = 2.0**-53
Function = TypeVar("Function", bound=Callable[..., Any])


@cache
def cache_folder() -> str:
    """Beside the package, or under NUMBA_CACHE_DIR where that is set."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_bytes()
        if b"njit" in source:
            digest.update(path.name.encode() + source)
    base = os.environ.get("NUMBA_CACHE_DIR") or str(PACKAGE / "__pycache__")
    return os.path.join(base, f"kernels-{digest.hexdigest()[:16]}")


def njit(borrows: bool = False, **options: Any) -> Callable[[Function], Function]:
    """Decorator: compile on first use, keep the machine code (options as numba's).

    A function that ``borrows`` does not count references to the arrays it is given, and so cannot allocate any. Helpers
    that become part of a loop take and drop a reference to each of their arrays for every row, which costs more than
    the row itself; the caller holds them all anyway.
    """
    if hasattr(DefaultOptions, "_nrt"):  # not a documented option: do without where numba has lost it
        options["_nrt"] = not borrows  # said of both kinds, because callees take it over from their first caller

    def decorate(function: Function) -> Function:
        # numba chooses the folder when it decorates; other users of numba keep theirs
        previous, config.CACHE_DIR = config.CACHE_DIR, cache_folder()  # type: ignore[attr-defined]
        try:
            return numba.njit(**options)(function)
        finally:
            config.CACHE_DIR = previous  # type: ignore[attr-defined]

    return decorate
