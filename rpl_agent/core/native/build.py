"""Compile the core into one shared library beside its sources: `python rpl_agent/core/native/build.py`.

Imports nothing but cffi, because the build back end runs this file before the package is installed. The library's name
carries a digest of its sources and flags, so a stale one is never loaded: the loader looks for the digest of the
sources it sees, and builds what is missing. `bindings_DIGEST.py` beside it holds cffi's types of the header (made here,
so that no process parses C when it starts).
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
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Objects of single C files, so that one changed file is compiled alone; those that nobody used for a day are removed.
OBJECTS = HERE / "objects"
KEPT_SECONDS = 86_400.0
#: Every operation is rounded once, on every platform: no fused multiply-add, no reordering. Bounds rely on it. Nobody
#: reads errno or the processor's exception flags, so that numbers may be selected without branches, several at a time.
ROUNDED_ONCE = ["-ffp-contract=off", "-fno-fast-math", "-fno-math-errno", "-fno-trapping-math"]
#: Only what core.h declares is visible outside the library; -UNDEBUG in `RPL_CORE_FLAGS` turns assertions on.
FLAGS = ["-std=c99", "-O2", *ROUNDED_ONCE, "-fPIC", "-fvisibility=hidden", "-DNDEBUG", "-pthread"]
#: What a compiler must be able to compile: some machines have one without the system's headers.
TRIAL = "#include <math.h>\n#include <pthread.h>\ndouble root(double x) { return sqrt(x); }\n"


def sources() -> list[Path]:
    """The C files and their headers, sorted by name."""
    return sorted([*HERE.glob("*.c"), *HERE.glob("*.h")])


def flags() -> list[str]:
    """The compiler's flags; `RPL_CORE_FLAGS` adds more (`make sanitize`)."""
    return FLAGS + os.environ.get("RPL_CORE_FLAGS", "").split()


def products() -> tuple[Path, Path]:
    """Where the library and the bindings of these sources and flags belong."""
    hashed = hashlib.sha256(" ".join(flags()).encode())
    for path in sources():
        hashed.update(path.name.encode() + b"\0" + path.read_bytes())
    digest = hashed.hexdigest()[:16]
    # the second dot: what walks over the package must not take it for an extension module of Python
    library = HERE / f"core-{digest}.{sys.platform}-{platform.machine().lower()}.so"
    return library, HERE / f"bindings_{digest}.py"


def compiler() -> list[str] | None:
    """The command of a C compiler: $CC, the system's, else the one of the `ziglang` package; None if none works."""
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / "trial.c"
        trial.write_text(TRIAL)
        for command in (os.environ.get("CC", "").split(), ["cc"], ["gcc"], ["clang"]):
            works = command and shutil.which(command[0]) and _run([*command, *FLAGS, "-shared"], [trial], folder)
            if works and works.returncode == 0:
                return command
    if importlib.util.find_spec("ziglang"):  # without -mcpu it compiles for this very processor
        return [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"]
    return None


def _run(
    command: list[str], files: list[Path], folder: str, name: str = "trial.so"
) -> subprocess.CompletedProcess[str]:
    """Compile or link files into folder/name; what zig keeps for later, 50 MB, goes with the folder."""
    names, target = [str(path) for path in files], os.path.join(folder, name)
    environment = {"ZIG_GLOBAL_CACHE_DIR": os.path.join(folder, "zig"), **os.environ}
    libraries = [] if "-c" in command else ["-lm"]
    return subprocess.run([*command, "-o", target, *names, *libraries], capture_output=True, text=True, env=environment)


def _included(path: Path, known: dict[Path, None]) -> dict[Path, None]:
    """A file and the headers of ours that it includes, directly or not."""
    if path not in known and path.exists():
        known[path] = None
        for name in re.findall(r'^#include "(.+)"$', path.read_text(), re.MULTILINE):
            _included(path.parent / name, known)
    return known


def _object(source: Path, command: list[str]) -> Path:
    """Where the object of a C file belongs: its name changes with whatever it is made of."""
    hashed = hashlib.sha256(" ".join([*command, *flags()]).encode())
    for path in _included(source, {}):
        hashed.update(path.name.encode() + b"\0" + path.read_bytes())
    return OBJECTS / f"{source.stem}-{hashed.hexdigest()[:16]}.o"


def _objects(command: list[str], folder: str) -> list[Path]:
    """The objects of all C files; only those of changed files are compiled, on all processors."""
    files = {_object(path, command): path for path in sources() if path.suffix == ".c"}
    from concurrent.futures import ThreadPoolExecutor  # most processes compile nothing

    OBJECTS.mkdir(exist_ok=True)

    def make(target: Path) -> None:
        done = _run([*command, *flags(), "-c"], [files[target]], folder, target.name)
        if done.returncode != 0:
            raise RuntimeError(f"compiling the core of rpl_agent failed ({' '.join(command)}):\n{done.stderr.strip()}")
        os.replace(Path(folder) / target.name, target)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(make, [target for target in files if not target.exists()]))
    for old in {*OBJECTS.glob("*.o")} - set(files):
        if time.time() - old.stat().st_mtime > KEPT_SECONDS:  # another process may be linking it, or have other flags
            with contextlib.suppress(OSError):
                old.unlink()
    return list(files)


def declarations(header: str | None = None) -> str:
    """The header without comments and preprocessor lines."""
    header = (HERE / "core.h").read_text() if header is None else header
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    return re.sub(r"^#.*$", "", text, flags=re.MULTILINE)


def _write_bindings(path: Path) -> None:
    import cffi  # most processes find the library and its bindings

    builder = cffi.FFI()
    builder.set_source(path.stem, None)
    builder.cdef(re.sub(r"\b(OPTIONAL|SCRATCH)\b", "", declarations()))
    with contextlib.redirect_stdout(None):  # cffi prints what it writes
        builder.emit_python_code(str(path))


def _compile(library: Path, bindings: Path) -> None:
    command = compiler()
    if command is None:
        raise RuntimeError(
            "rpl_agent needs a C compiler to build its core, and none was found that works: install gcc or clang, "
            "set CC, or run `pip install ziglang`, which brings one"
        )
    with tempfile.TemporaryDirectory(dir=HERE) as folder:  # on the same disk, so that the move is atomic
        done = _run([*command, *flags(), "-shared"], _objects(command, folder), folder, library.name)
        if done.returncode != 0:
            raise RuntimeError(f"linking the core of rpl_agent failed ({' '.join(command)}):\n{done.stderr.strip()}")
        _write_bindings(Path(folder) / bindings.name)
        for made in (bindings, library):
            os.replace(Path(folder) / made.name, made)


def build_core() -> tuple[Path, Path]:
    """(library, bindings) of the sources as they are: made unless they are there; those of older sources go."""
    library, bindings = products()
    if library.exists() and bindings.exists():
        return library, bindings
    try:
        _compile(library, bindings)
    except OSError as error:
        raise RuntimeError(
            f"the compiled core of rpl_agent is missing or older than its sources in {HERE}, and building it there "
            f"failed: {error.strerror or error}. Mend that and import it again, or install the package again"
        ) from error
    if "RPL_CORE_FLAGS" not in os.environ:
        remove_others(library, bindings)
    return library, bindings


def remove_others(*kept: Path) -> None:
    """Libraries of older sources or other flags."""
    for old in {*HERE.glob("core-*.so"), *HERE.glob("bindings*.py")} - set(kept):
        with contextlib.suppress(OSError):  # another process may have removed it, or have it open
            old.unlink()


if __name__ == "__main__":
    print(build_core()[0])
