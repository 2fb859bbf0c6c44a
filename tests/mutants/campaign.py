"""Tests of mutants: a session of pytest that is collected once, and forked for every mutant.

A first child runs all tests and says how long each takes and which lines it runs. Then, for each mutant, the child's
functions get the changed code and the tests that run the changed statement begin, the shortest first, those that
noticed a mutant of the same function before all others; the first that fails ends the child. What runs no test
survives at once. For a change of C the child compiles that file and calls it in place of the other.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import math
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

from rpl_agent.core.native import build, core
from tests.mutants.changes import ROOT, Mutant, tests_of

#: Processor seconds for a test of a mutant (beside five times what it takes without one), and seconds of any kind for
#: all of them, after which it counts as noticed: it does not end.
SECONDS, WALL_SECONDS = 3, 3600
#: Bytes of memory after which it counts as noticed.
MEMORY = 1 << 33
OPTIONS = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
Lines = dict[str, list[int]]  # by path


@dataclass
class Known:
    """What a test does without a change."""

    seconds: float
    lines: Lines
    passed: bool


@dataclass
class Campaign:
    """A plugin of pytest that takes the place of its loop over tests."""

    mutants: list[Mutant]
    told: Callable[[Mutant, str, float], None]  # a mutant; the test that noticed it, or ""; processor seconds
    slowest: float  # tests that take longer are left out
    minutes: float | None = None
    known: dict[str, Known] = field(default_factory=dict)
    failed: bool = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        self.known = self._baseline(session)
        broken = [name for name, known in self.known.items() if not known.passed]
        if broken:
            raise pytest.UsageError(f"tests fail without a change: {' '.join(broken)}")
        start, last = time.monotonic(), dict[tuple[str, str], str]()
        for mutant in self.mutants:
            if self.minutes is not None and time.monotonic() - start > 60 * self.minutes:
                break
            names = self.tests(mutant, last.get((mutant.path, mutant.place)))
            noticed, seconds = self._noticed(mutant, [items[name] for name in names])
            if noticed:
                last[mutant.path, mutant.place] = noticed
            self.told(mutant, noticed, seconds)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed

    def tests(self, mutant: Mutant, first: str | None) -> list[str]:
        """The tests that run a mutant's statement, in the order of its nearest files; slow ones last."""
        wanted, files = set(range(mutant.statement[0], mutant.statement[1] + 1)), tests_of(mutant.path)
        found = [
            name
            for name, known in self.known.items()
            if known.seconds <= self.slowest and (mutant.is_of_module or wanted & set(known.lines.get(mutant.path, ())))
        ]

        def order(name: str) -> tuple[bool, bool, int, float]:
            seconds, file = self.known[name].seconds, name.partition("::")[0]
            return name != first, seconds > 2.0, files.index(file) if file in files else len(files), seconds

        return sorted(found, key=order)

    def _baseline(self, session: pytest.Session) -> dict[str, Known]:
        """All tests without a change."""
        paths = {str(ROOT / mutant.path): mutant.path for mutant in self.mutants}
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "known.json"
            if (child := os.fork()) == 0:
                self._begin_child(session)
                for mutant in {m.path: m for m in self.mutants if m.path.endswith(".c")}.values():
                    transplant(replace(mutant, new=mutant.old))  # else every mutant that fails to load is "noticed"
                found = {}
                for name, seconds, lines in self._traced(session.items, paths):
                    found[name] = {"seconds": seconds, "lines": lines, "passed": not self.failed}
                    self.failed = False
                place.write_text(json.dumps(found))
                os._exit(0)
            if os.waitpid(child, 0)[1] != 0:
                raise pytest.UsageError("the tests did not end without a change")
            return {name: Known(**known) for name, known in json.loads(place.read_text()).items()}

    def _traced(self, items: list[pytest.Item], paths: dict[str, str]) -> Iterator[tuple[str, float, Lines]]:
        for k, item in enumerate(items):
            tracer, begun = Tracer(set(paths)), time.process_time()
            sys.settrace(tracer.called)
            self._protocol(item, items[k + 1] if k + 1 < len(items) else None)
            sys.settrace(None)
            lines = {paths[file]: sorted(found) for file, found in tracer.lines.items() if found}
            yield item.nodeid, time.process_time() - begun, lines

    def _noticed(self, mutant: Mutant, items: list[pytest.Item]) -> tuple[str, float]:
        """(the test that notices a mutant, or "", processor seconds)."""
        if not items:
            return "", 0.0
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            self._begin_child(items[0].session)
            limit_time(0.0)
            try:
                if not transplant(mutant):
                    os._exit(0)  # nothing that is loaded has changed: no test could notice
            except (Exception, SystemExit):  # it does not even load
                os._exit(1)
            for k, item in enumerate(items):
                os.write(writer, item.nodeid.encode() + b"\n")
                limit_time(5 * self.known[item.nodeid].seconds)
                self._protocol(item, items[k + 1] if k + 1 < len(items) else None)
                if self.failed:
                    os._exit(1)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as told:
            ran = told.read().split("\n")
        survived = os.waitpid(child, 0)[1] == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return "" if survived else (ran[-2] if len(ran) > 1 else "it does not load"), seconds

    def _begin_child(self, session: pytest.Session) -> None:
        """Limits; and silence."""
        session.config.pluginmanager.unregister(name="terminalreporter")
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.alarm(WALL_SECONDS)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)

    def _protocol(self, item: pytest.Item, following: pytest.Item | None) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def limit_time(more: float) -> None:
    """End this process after so many processor seconds from now, and a few."""
    soft = math.ceil(time.process_time() + SECONDS + more)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


class Tracer:
    """The lines of some files that run."""

    def __init__(self, files: set[str]) -> None:
        self.lines: dict[str, set[int]] = {file: set() for file in files}

    def called(self, frame: FrameType, event: str, argument: object) -> Any:
        lines = self.lines.get(frame.f_code.co_filename)
        if lines is None or lines_in(frame.f_code) <= lines:
            return None
        lines.add(frame.f_lineno)
        return self.line

    def line(self, frame: FrameType, event: str, argument: object) -> Any:
        self.lines[frame.f_code.co_filename].add(frame.f_lineno)
        return self.line


@functools.cache
def lines_in(code: CodeType) -> frozenset[int]:
    return frozenset(line for _, _, line in code.co_lines() if line is not None)


# ---------------------------------------------------------------------- changes of what is loaded
def transplant(mutant: Mutant) -> int:
    """Give the functions and constants of a loaded module those of its mutant, wherever they were imported to.

    Returns the number of changes.
    """
    if mutant.path.endswith(".c"):
        return relink(mutant)
    name = mutant.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    module, text = importlib.import_module(name), (ROOT / mutant.path).read_text()
    fresh = ModuleType(name)
    vars(fresh).update({key: vars(module)[key] for key in ("__file__", "__package__", "__spec__")})
    exec(compile(mutant.applied(text), str(ROOT / mutant.path), "exec"), vars(fresh))
    return replace_in(vars(module), vars(fresh), name)


def replace_in(old: Any, new: Any, module: str) -> int:
    """The number of changes in a namespace."""
    changed = 0
    for name, after in list(new.items()):
        before = old.get(name)
        if before is None or before is after or name in ("__builtins__", "__dict__", "__weakref__"):
            continue
        if inspect.isclass(after):
            changed += replace_in(vars(before), vars(after), module) if after.__module__ == module else 0
        elif (function := function_of(before)) is not None:
            changed += replace_function(function, function_of(after), module)
        elif not is_same(before, after):
            changed += 1
            replace_constant(name, before, after, old)
    return changed


def function_of(thing: Any) -> FunctionType | None:
    """The function behind a method, a property, a cache or a wrapper."""
    for name in ("fget", "func", "__func__"):
        thing = getattr(thing, name, None) or thing
    thing = inspect.unwrap(thing) if callable(thing) else thing
    return thing if isinstance(thing, FunctionType) else None


def replace_function(before: FunctionType, after: FunctionType | None, module: str) -> int:
    if after is None or after.__module__ != module or before.__code__ == after.__code__:
        return 0
    before.__code__ = after.__code__
    return 1


def is_same(before: Any, after: Any) -> bool:
    """Whether constants are equal; objects that cannot tell are."""
    if isinstance(before, np.ndarray):
        return bool(np.array_equal(before, after))
    plain = type(before).__eq__ is not object.__eq__
    return not plain or bool(before == after)


def replace_constant(name: str, before: Any, after: Any, namespace: Any) -> None:
    """A constant in its namespace, and in all modules that have imported it."""
    if not isinstance(namespace, dict):  # of a class
        owner = next(c for c in classes() if vars(c) == namespace)
        setattr(owner, name, after)
        return
    for key, module in list(sys.modules.items()):
        if key.partition(".")[0] in ("rpl_agent", "rpl_envs", "tests") and vars(module).get(name) is before:
            setattr(module, name, after)


def classes() -> Iterator[type]:
    for key, module in list(sys.modules.items()):
        if key.startswith("rpl_agent"):
            yield from (thing for thing in vars(module).values() if inspect.isclass(thing))


# ---------------------------------------------------------------------- changes of C
def relink(mutant: Mutant) -> int:
    """Let `core` call a library with the mutant of one C file, compiled in a hurry; other files stay as they are.

    Returns the number of functions.
    """
    command, native = build.compiler(), ROOT / "rpl_agent/core/native"
    assert command is not None
    with tempfile.TemporaryDirectory() as folder:
        changed = Path(folder) / Path(mutant.path).name
        changed.write_text(mutant.applied((ROOT / mutant.path).read_text()))
        others = [made for made in build._objects(command, folder) if not made.name.startswith(f"{changed.stem}-")]
        flags = [*build.flags(), "-O0", "-shared", "-I", str(native)]
        done = build._run([*command, *flags], [changed, *others], folder, "mutant.so")
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        library = core._compiled = core._ffi.dlopen(str(Path(folder) / "mutant.so"))  # kept: it ends with its last name
    callers = {name: thing for name, thing in vars(core).items() if hasattr(library, name)}
    for name, caller in callers.items():
        caller.__globals__["function"] = getattr(library, name)
    return len(callers)
