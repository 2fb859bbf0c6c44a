"""Machine code on two cores: the signatures that default runs ask for, and a second process that compiles them.

Numba compiles one kernel at a time in a process. A run that finds no machine code starts a second process, which makes
the sweeps first and then goes through the recorded list from its end, while the run goes through it from its beginning;
what either has made, the other finds in the cache folder (`rpl_agent.jit`). Nothing else passes between them: without
the second process, or when it fails, the run compiles everything itself.

`python -m rpl_agent.preparing RUN…` compiles the lists of these runs. They are made by `tests/project/signatures.py`,
which has to be run again when a kernel's arguments have changed (a test says so).
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from numba.core import types

RECORD = Path(__file__).with_name("signatures.json")
#: what the default runs on these worlds ask for: affine and reach-avoid, polynomial and cost
RUNS = ("rpl/Aircraft-20x10-v0", "rpl/Glider-11x9-v0")
#: folders whose kernels are loops over rows
SWEEPS = ("relaxations", "solver")


@cache
def recorded(runs: tuple[str, ...]) -> list[list[Any]]:
    """[module, function, arguments] of every kernel that one of these runs calls, in the order of first use."""
    lists = json.loads(RECORD.read_text())
    return [json.loads(text) for text in dict.fromkeys(json.dumps(entry) for run in runs for entry in lists[run])]


def encode(kind: Any) -> Any:
    """A type of numba as JSON: arrays as in "readonly float64 2C", named tuples as [class, fields]."""
    if isinstance(kind, types.BaseNamedTuple):
        fields: Any = kind
        cls = fields.instance_class
        return [f"{cls.__module__}:{cls.__name__}", [encode(field) for field in fields]]
    if isinstance(kind, types.Array):
        return f"{'' if kind.mutable else 'readonly '}{kind.dtype} {kind.ndim}{kind.layout}"
    return str(kind)


def decode(text: Any) -> types.Type:
    if isinstance(text, list):
        module, name = text[0].split(":")
        fields = tuple(decode(field) for field in text[1])
        cls = getattr(importlib.import_module(module), name)
        same = len(set(fields)) == 1
        return types.NamedUniTuple(fields[0], len(fields), cls) if same else types.NamedTuple(fields, cls)
    *readonly, name, shape = text.split() if " " in text else (text, "")
    kind: Any = types.boolean if name == "bool" else getattr(types, name)
    layout: Any = shape[-1:]
    return types.Array(kind, int(shape[:-1]), layout, readonly=bool(readonly)) if shape else kind


def second_order(runs: tuple[str, ...]) -> list[list[Any]]:
    """The recorded kernels as the second process takes them: sweeps as the run asks for them, others from the end.

    Sweeps consist of the same parts, which only one of the two processes should have to compile.
    """
    entries = recorded(runs)
    sweeps = [entry for entry in entries if entry[0].split(".")[1] in SWEEPS]
    return sweeps + [entry for entry in reversed(entries) if entry not in sweeps]


def find(entry: list[Any]) -> tuple[Any, tuple[types.Type, ...]]:
    """(kernel, types of its arguments) of a recorded entry."""
    module, name, arguments = entry
    return getattr(importlib.import_module(module), name), tuple(decode(kind) for kind in arguments)


def compile_recorded(runs: tuple[str, ...], parent: int) -> None:
    """Have machine code for every recorded kernel, for as long as the process that asked for it lives.

    Where the two processes meet, one waits for the other's kernel.
    """
    for entry in second_order(runs):
        if os.getppid() != parent:
            return
        kernel, arguments = find(entry)
        if not kernel.is_kept(arguments):
            kernel.compile(arguments)


class Helper:
    """The second process, if the machine has a core for it."""

    def __init__(self, runs: tuple[str, ...] = RUNS[:1]) -> None:
        self._runs = runs
        self._process: subprocess.Popen | None = None

    @property
    def cores(self) -> int:
        """How many compile now."""
        return 2 if self._process is not None and self._process.poll() is None else 1

    def start(self) -> None:
        if self._process is not None or (os.cpu_count() or 1) < 2:
            return
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        line = [sys.executable, "-m", "rpl_agent.preparing", *self._runs]
        try:
            self._process = subprocess.Popen(line, **quiet)  # type: ignore[call-overload]
        except OSError:  # it would only have been quicker
            pass

    def stop(self) -> None:
        """Nothing is left running; what it has written is whole (`jit` renames finished files)."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


def _skip_packages() -> None:
    """Import kernels without the rest of their packages: a package's own file asks for everything in it, and scipy."""
    for file in RECORD.parent.rglob("__init__.py"):
        name = ".".join(("rpl_agent", *file.parent.relative_to(RECORD.parent).parts))
        if name not in sys.modules:
            sys.modules[name] = ModuleType(name)
            sys.modules[name].__path__ = [str(file.parent)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m rpl_agent.preparing", description=__doc__)
    parser.add_argument("runs", nargs="+", choices=RUNS, metavar="RUN")
    runs = tuple(parser.parse_args().runs)
    _skip_packages()
    gc.disable()  # the process ends with its last kernel: nothing is gained by looking for garbage
    compile_recorded(runs, os.getppid())


if __name__ == "__main__":
    main()
