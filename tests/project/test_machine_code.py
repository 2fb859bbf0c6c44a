"""Machine code: kept where it can be, never stale, safe to make in several processes; and people are told of it."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rpl_agent import jit, preparing
from rpl_agent.agent.output.views import LinesView, LiveView, Pace, Status
from rpl_agent.cli import main
from rpl_agent.compiling import Compilation

ROOT = Path(__file__).resolve().parents[2]
#: a small package with the one file that keeps machine code, a kernel, and a callee in another file
KERNEL = """
from rpl_agent.jit import njit
from rpl_agent.callee import callee

@njit()
def kernel(x):
    return callee(x) + 1.0
"""
CALLEE = """
from rpl_agent.jit import njit

@njit()
def callee(x):
    return {factor} * x
"""
CALL = "from rpl_agent.kernel import kernel; print(kernel(1.0), sum(kernel.stats.cache_hits.values()))"


@pytest.fixture
def package(tmp_path) -> Path:
    """A copy of `jit` with two kernels of its own: compiled in a second."""
    folder = tmp_path / "site" / "rpl_agent"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    for file in ("jit.py", "dispatcher.py", "lowering.py"):
        shutil.copy(ROOT / "rpl_agent" / file, folder)
    (folder / "kernel.py").write_text(KERNEL)
    (folder / "callee.py").write_text(CALLEE.format(factor=2.0))
    return folder


def start(package: Path, code: str = CALL, **environment: str) -> subprocess.Popen:
    inherited = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    return subprocess.Popen(
        [sys.executable, "-B", "-c", code], env=inherited | {"PYTHONPATH": str(package.parent)} | environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=package.parent,
    )  # fmt: skip


def alive(process: subprocess.Popen) -> bool:
    return process.poll() is None


def output(process: subprocess.Popen) -> list[float]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return [float(word) for word in out.split()]


def test_a_changed_callee_is_compiled_anew(package):
    assert output(start(package)) == [3.0, 0]
    assert output(start(package)) == [3.0, 1]  # from the cache
    (package / "callee.py").write_text(CALLEE.format(factor=5.0))
    assert output(start(package)) == [6.0, 0]  # numba's own cache would say 3.0: the kernel's file did not change
    (package / "callee.py").write_text(CALLEE.format(factor=2.0))
    assert output(start(package)) == [3.0, 1]  # and the first code is still there


def test_four_processes_on_a_cold_cache(package, tmp_path):
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert [output(p)[0] for p in [start(package, **cache) for _ in range(4)]] == [3.0] * 4
    assert output(start(package, **cache)) == [3.0, 1]
    files = [p.name for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert len(files) == 1 and files[0].endswith(".nbc"), files  # what Python calls; nothing half-written


HANG = """
import time
from numba.core import event
from rpl_agent.kernel import kernel

class Hang(event.Listener):
    def on_start(self, event):
        print("compiling", flush=True)
        time.sleep(600.0)
    def on_end(self, event):
        pass

event.register("numba:compile", Hang())
kernel(1.0)
"""
SLOWLY = """
import os, time
os.cpu_count = lambda: 1  # no second process of each
from numba.core import event
from rpl_agent.compiling import Compilation
from rpl_agent.kernel import kernel

class Slow(event.Listener):
    def on_start(self, event):
        time.sleep(4.0)  # so that all have asked before one has made it
    def on_end(self, event):
        pass

event.register("numba:compile", Slow())
seen = Compilation()
seen.start()
print(kernel(1.0), sum(kernel.stats.cache_hits.values()), seen.compiled, seen.seconds)
"""


def test_one_of_several_processes_compiles_and_the_others_wait(package, tmp_path):
    for file in ("compiling.py", "preparing.py", "signatures.json"):
        shutil.copy(ROOT / "rpl_agent" / file, package)
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    ended = [output(p) for p in [start(package, SLOWLY, **cache) for _ in range(4)]]
    assert [value for value, *_ in ended] == [3.0] * 4
    assert sorted((found, compiled) for _, found, compiled, _ in ended) == [(0, 1), (1, 0), (1, 0), (1, 0)]
    assert any(found and seconds > 0.5 for _, found, _, seconds in ended)  # waiting is told as compiling is
    assert not list((tmp_path / "cache").rglob("*.lock"))


def test_one_that_ends_while_compiling_keeps_nobody_waiting(package, tmp_path):
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    hangs = start(package, HANG, **cache)
    assert hangs.stdout.readline() == "compiling\n"
    waits = start(package, **cache)
    time.sleep(2.0)
    assert alive(waits)
    hangs.kill()
    assert output(waits) == [3.0, 0]
    hangs.communicate()


def test_patience_ends(package, tmp_path):
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    hangs = start(package, HANG, **cache)
    assert hangs.stdout.readline() == "compiling\n"
    assert output(start(package, "from rpl_agent import jit; jit.PATIENCE = 0.5; " + CALL, **cache)) == [3.0, 0]
    assert alive(hangs)
    hangs.kill()
    hangs.communicate()


def test_a_full_disk_keeps_nothing_and_ends_nothing(package, tmp_path):
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); "
    assert output(start(package, full + CALL, **cache)) == [3.0, 0]
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert output(start(package, **cache)) == [3.0, 0]


def test_a_folder_that_is_gone_ends_nothing(package, tmp_path):
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    gone = f"import rpl_agent.kernel, shutil; shutil.rmtree({cache['NUMBA_CACHE_DIR']!r}); "
    replaced = gone + f"open({cache['NUMBA_CACHE_DIR']!r}, 'w').close(); "
    assert output(start(package, **cache)) == [3.0, 0]
    assert output(start(package, gone + CALL, **cache)) == [3.0, 0]
    assert output(start(package, **cache)) == [3.0, 1]  # there was a new one
    assert output(start(package, replaced + CALL, **cache)) == [3.0, 0]


def test_a_damaged_file_is_made_again(package, tmp_path):
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert output(start(package, **cache)) == [3.0, 0]
    for file in (tmp_path / "cache").rglob("*.nbc"):
        file.write_bytes(file.read_bytes()[:50])
    assert output(start(package, **cache)) == [3.0, 0]
    assert output(start(package, **cache)) == [3.0, 1]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs users")
def test_a_read_only_install_uses_the_folder_of_the_user(package, tmp_path):
    """Root may write anywhere, so the package's own cache folder is made a file: no folder can be there."""
    home = {"XDG_CACHE_HOME": str(tmp_path / "user")}
    (package / "__pycache__").touch()
    os.chmod(package, stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert output(start(package, **home)) == [3.0, 0]
        assert output(start(package, **home)) == [3.0, 1]
    finally:
        os.chmod(package, stat.S_IRWXU)
    assert list((tmp_path / "user" / "rpl_agent").rglob("*.nbc"))


def test_what_an_image_was_given_is_used_where_nothing_can_be_written(package, tmp_path):
    """`rpl warm-up` by root while an image is built; then another user, or a file system without writing."""
    assert output(start(package)) == [3.0, 0]
    others = "import os; os.access = lambda *_: False; " + CALL
    assert output(start(package, others, XDG_CACHE_HOME=str(tmp_path / "user"))) == [3.0, 1]
    assert not (tmp_path / "user").exists()
    (tmp_path / "file").touch()
    assert output(start(package, others, XDG_CACHE_HOME=str(tmp_path / "file"))) == [3.0, 1]
    shutil.rmtree(package / "__pycache__")
    assert output(start(package, others, XDG_CACHE_HOME=str(tmp_path / "file"))) == [3.0, 0]
    assert output(start(package, others, XDG_CACHE_HOME=str(tmp_path / "user"))) == [3.0, 0]
    assert output(start(package, others, XDG_CACHE_HOME=str(tmp_path / "user"))) == [3.0, 1]


def test_people_are_told_what_is_compiled(capsys):
    view = LinesView()
    view.start()
    try:

        @jit.njit(cache=False)
        def helper(x):
            return 2 * x

        @jit.njit(cache=False)
        def outer(x):
            return helper(x) + 1

        outer.py_func.__module__ = "rpl_agent.example"
        assert outer(1) == 3
    finally:
        view.stop()
    told = capsys.readouterr().out.splitlines()  # at the beginning, and after that every few seconds
    assert told and re.match(r"preparing machine code \d+(/\d+)?( on 2 cores)?, once per installation", told[0])
    seen = view._compilation
    assert seen.compiled == 1 and seen.current is None and seen.seconds > 0.0  # the helper is a part of its caller


def test_the_live_view_waits_and_then_estimates():
    from rich.console import Console

    console = Console(force_terminal=True, width=80, record=True, file=open(os.devnull, "w"))
    view, compilation = LiveView(console), Compilation()
    compilation.current = "kernel"
    view.start()
    view._compiling(compilation)
    assert "preparing machine code" in console.export_text()
    view.stop()
    pace = Pace()

    def status(done, seconds, preparing=0.0):
        return Status(
            "t", "episodes", done, 1000, done, done, 1, seconds, 1.0, session_seconds=seconds, preparing=preparing
        )

    assert pace.left(status(1, 115.0, 114.0)) != pace.left(status(1, 115.0, 114.0))  # not a number: too early to say
    pace.left(status(100, 116.0, 114.0))
    assert pace.left(status(300, 118.0, 114.0)) == pytest.approx(7.0, rel=0.01)  # 200 in 2 seconds, 700 to go


RECORD_AGAIN = """
import json
from tests.project.signatures import record
from rpl_agent.compiling import kernels
from rpl_agent.preparing import RUNS, find, recorded
print(json.dumps(record()))
before = sum(len(kernel.overloads) for kernel in kernels())
for kernel, arguments in map(find, recorded(RUNS)):
    kernel.compile(arguments)
print(before, sum(len(kernel.overloads) for kernel in kernels()))
"""


def test_the_recorded_signatures_are_those_of_default_runs():
    """What the progress line counts and the second process compiles; if not, run python -m tests.project.signatures."""
    done = subprocess.run([sys.executable, "-c", RECORD_AGAIN], capture_output=True, text=True, timeout=900, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()[-2:]
    kept = json.loads(preparing.RECORD.read_text())
    for run, entries in json.loads(first).items():
        assert sorted(map(json.dumps, entries)) == sorted(map(json.dumps, kept[run])), run
    before, after = second.split()
    assert before == after  # the second process asks for the same types, to the letter


def test_the_second_process_makes_what_the_first_asks_for():
    """By itself and without what kernels do not need: a package that asked for more would be imported in vain."""
    code = "from rpl_agent import preparing; preparing.main(); import sys; print('scipy.sparse' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *preparing.RUNS], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0 and done.stdout == "False\n", done.stderr
    assert all(
        kernel.is_kept(arguments) for kernel, arguments in map(preparing.find, preparing.recorded(preparing.RUNS))
    )


def test_the_second_process_ends_with_the_first(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    helper = preparing.Helper()
    assert helper.cores == 1
    helper.start()
    assert helper.cores == 2
    helper.stop()
    assert helper.cores == 1 and not alive(helper._process)


def test_one_core_or_no_process_is_only_slower(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    helper = preparing.Helper()
    helper.start()
    assert helper.cores == 1 and helper._process is None
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    helper.start()
    helper.stop()
    assert helper.cores == 1


def test_an_orphan_stops(monkeypatch):
    asked = []
    monkeypatch.setattr(preparing.importlib, "import_module", asked.append)
    preparing.compile_recorded(preparing.RUNS, parent=-1)
    assert not asked


def test_the_second_process_begins_with_the_sweeps():
    order = preparing.second_order(preparing.RUNS)
    sweeps = [entry[0].split(".")[1] in preparing.SWEEPS for entry in order]
    assert sweeps == sorted(sweeps, reverse=True) and any(sweeps)
    assert sorted(map(json.dumps, order)) == sorted(map(json.dumps, preparing.recorded(preparing.RUNS)))


def test_a_file_of_machine_code_is_found():
    kernel, arguments = preparing.find(preparing.recorded(preparing.RUNS)[0])
    kernel.compile(arguments)
    assert kernel.is_kept(arguments) and not kernel.is_kept(())


def warm_up(**environment: str) -> subprocess.CompletedProcess:
    line = [sys.executable, "-m", "rpl_agent.cli", "warm-up", "--json"]
    return subprocess.run(line, env=os.environ | environment, capture_output=True, text=True, timeout=900)


def test_warm_up_leaves_nothing_to_compile():
    first, second = warm_up(), warm_up()
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    found = json.loads(second.stdout)
    assert found["compiled"] == 0 and found["loaded"] >= len(preparing.recorded(preparing.RUNS))


def test_warm_up_says_where_nothing_can_be_kept(tmp_path):
    (tmp_path / "file").touch()
    done = warm_up(NUMBA_CACHE_DIR=str(tmp_path / "file" / "cache"))
    assert done.returncode == 2 and "Not a directory" in json.loads(done.stdout)["error"]


def test_warm_up_says_what_was_not_kept(monkeypatch, capsys):
    monkeypatch.setattr("rpl_agent.cli.warm_up.compile_all", lambda tell: (0, 0.0))
    monkeypatch.setattr(jit.Kernel, "is_kept", lambda self, args: False)
    assert main(["warm-up"]) == 2
    count = len(preparing.recorded(preparing.RUNS))
    assert f"{count} of {count} kernels could not be kept" in capsys.readouterr().err
