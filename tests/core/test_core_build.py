"""Building the core: once per state of its sources, by a compiler that works, and a clear word where it cannot be."""

from __future__ import annotations

import errno
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rpl_agent.core.native import build

HEADER = (
    "#include <stdint.h>\n#pragma GCC visibility push(default)\n#define UNIT_ROUNDOFF 0x1p-53\n"
    "/* Twice x. */\nint64_t twice(int64_t x);\n"
)
SOURCE = '#include "core.h"\nint64_t twice(int64_t x)\n{\n    return 2 * x;\n}\n'
PROGRAM = "from rpl_agent.core.native import core; print(core.twice(21))"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with the loader and a core of one function; needs a compiler on the machine."""
    if build.compiler() is None:
        pytest.skip("no compiler")
    monkeypatch.delenv("RPL_CORE_FLAGS", raising=False)
    folder = tmp_path / "rpl_agent" / "core" / "native"
    folder.mkdir(parents=True)
    for room in (tmp_path / "rpl_agent", folder.parent):
        (room / "__init__.py").touch()
    for name in ("__init__.py", "build.py"):
        shutil.copy(build.HERE / name, folder)
    (folder / "core.h").write_text(HEADER)
    (folder / "twice.c").write_text(SOURCE)
    return folder


def load(package: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A new process that imports the core."""
    environment = {**os.environ, "PYTHONPATH": "", **environment}
    command, home = [sys.executable, "-c", PROGRAM], package.parents[2]
    return subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True)


def made(package: Path) -> list[str]:
    return sorted(p.name for p in package.iterdir() if p.name.startswith(("core-", "bindings")))


def test_the_loader_builds_what_has_changed(package):
    assert load(package).stdout == "42\n"
    first = made(package)
    assert len(first) == 2
    before = [(package / name).stat().st_mtime_ns for name in first]
    assert load(package, PATH="").stdout == "42\n"  # nothing to build: no compiler is asked for
    assert [(package / name).stat().st_mtime_ns for name in first] == before
    (package / "twice.c").write_text(SOURCE.replace("2 * x", "4 * x"))
    assert load(package).stdout == "84\n"
    second = made(package)
    assert len(second) == 2 and not set(first) & set(second)
    (package / "core.h").write_text(HEADER.replace("twice", "thrice"))
    (package / "twice.c").write_text(SOURCE.replace("twice", "thrice").replace("2 *", "3 *"))
    assert "core.h declares no 'twice'" in load(package).stderr
    assert len(made(package)) == 2


def test_flags_make_a_library_of_their_own(package):
    assert load(package).stdout == load(package, RPL_CORE_FLAGS="-g -O0").stdout == "42\n"
    assert len(made(package)) == 4


def test_no_compiler_is_told(package):
    silent = load(package, PATH="", CC="")
    if "ziglang" in silent.stderr:
        assert "needs a C compiler" in silent.stderr and "pip install ziglang" in silent.stderr
    else:  # the package of that name is installed here
        assert silent.stdout == "42\n"


def test_compilers_that_do_not_work_are_passed_over(package):
    assert load(package, CC="false").stdout == "42\n"
    assert load(package, CC="no-such-compiler -x").stdout == "42\n"


def test_errors_of_the_compiler_are_shown(package):
    (package / "twice.c").write_text(SOURCE.replace("return", "returns"))
    wrong = load(package).stderr
    assert "compiling the core of rpl_agent failed" in wrong and "twice.c:4" in wrong
    assert made(package) == []


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_folders_that_cannot_be_written_are_named(package, number, monkeypatch):
    functions = runpy.run_path(str(package / "build.py"))
    whole = functions["tempfile"].TemporaryDirectory

    def refuse(dir=None):
        if dir is None:
            return whole()
        raise OSError(number, os.strerror(number), str(dir))

    monkeypatch.setattr(functions["tempfile"], "TemporaryDirectory", refuse)
    with pytest.raises(RuntimeError, match=f"older than its sources in {package}.*{os.strerror(number)}"):
        functions["build_core"]()
    assert made(package) == []
