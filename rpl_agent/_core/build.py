"""Compile the core into one shared library beside its sources: `python rpl_agent/_core/build.py`.

Imports nothing but cffi, because `setup.py` runs this file before the package is installed. The library's name carries
a digest of its sources and flags, so a stale one is never loaded: the loader looks for the digest of the sources it
sees, and builds what is missing. `bindings.py` holds cffi's types of the header (made here, so that no process parses
C when it starts).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import cffi

HERE = Path(__file__).resolve().parent
#: Every operation is rounded once, on every platform: no fused multiply-add, no reordering. Bounds rely on it.
FLAGS = ["-std=c99", "-O2", "-ffp-contract=off", "-fno-fast-math", "-fno-math-errno", "-fPIC", "-shared", "-pthread"]


def sources() -> list[Path]:
    """The C files and their header, sorted by name."""
    return sorted([*HERE.glob("*.c"), *HERE.glob("*.h")])


def flags() -> list[str]:
    """The compiler's flags; `RPL_CORE_FLAGS` adds more (`make sanitize`)."""
    return FLAGS + os.environ.get("RPL_CORE_FLAGS", "").split()


def library() -> Path:
    """Where the library of these sources and flags belongs."""
    digest = hashlib.sha256(" ".join(flags()).encode())
    for path in sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    # the second dot: what walks over the package must not take it for an extension module of Python
    return HERE / f"core-{digest.hexdigest()[:16]}.{sys.platform}-{platform.machine().lower()}.so"


def compiler() -> list[str] | None:
    """The command of a C compiler: $CC, the system's, else the one of the `ziglang` package; None if there is none."""
    chosen = os.environ.get("CC", "").split()
    if chosen and shutil.which(chosen[0]):
        return chosen
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    return [sys.executable, "-m", "ziglang", "cc"] if importlib.util.find_spec("ziglang") else None


def declarations() -> str:
    """The header without comments and preprocessor lines."""
    text = re.sub(r"/\*.*?\*/", "", (HERE / "core.h").read_text(), flags=re.DOTALL)
    return re.sub(r"^#.*$", "", text, flags=re.MULTILINE)


def _write_bindings(path: Path) -> None:
    builder = cffi.FFI()
    builder.set_source("bindings", None)
    builder.cdef(re.sub(r"\bOPTIONAL\b", "", declarations()))
    with contextlib.redirect_stdout(None):  # cffi prints what it writes
        builder.emit_python_code(str(path))


def build() -> Path:
    """Compile the library and its bindings unless they are there, and remove those of older sources."""
    target, bindings = library(), HERE / "bindings.py"
    if target.exists() and bindings.exists():
        return target
    command = compiler()
    if command is None:
        raise RuntimeError(
            "rpl_agent needs a C compiler to build its core, and none was found: install gcc or clang, set CC, "
            "or run `pip install ziglang`, which brings one"
        )
    with tempfile.TemporaryDirectory(dir=HERE) as folder:  # on the same disk, so that the move is atomic
        made = Path(folder) / target.name
        files = [str(path) for path in sources() if path.suffix == ".c"]
        done = subprocess.run([*command, *flags(), "-o", str(made), *files, "-lm"], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"compiling the core failed ({' '.join(command)}):\n{done.stderr.strip()}")
        _write_bindings(Path(folder) / "bindings.py")
        os.replace(Path(folder) / "bindings.py", bindings)
        os.replace(made, target)
    if "RPL_CORE_FLAGS" not in os.environ:
        for old in HERE.glob("core-*.so"):
            if old != target:
                old.unlink(missing_ok=True)
    return target


if __name__ == "__main__":
    print(build())
