"""The first five minutes: processor seconds of imports, help, compilation and a first run, beside `import numpy`.

Every row is a process of its own; ``ratio`` is to `import numpy` in the same run, since seconds depend on the machine.
The cold rows compile into a fresh cache folder: minutes, so they are left out at smoke size. Compilation is what a cold
cache costs a brief run: on two cores, where a second process has to import everything too, and in one process.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

TRAIN = ("-m", "rpl_agent.cli", "train", "rpl/Aircraft-20x10-v0", "--seed", "0", "--log-dir")
#: Episodes of a run that compiles what `make train` does and then does little else, and how often it is measured.
BRIEF, REPEATS = "300", 3
#: (name, arguments of python, most processor seconds wanted)
QUICK = [
    ("import numpy", ("-c", "import numpy"), None),
    ("import rpl_agent", ("-c", "import rpl_agent"), 0.9),
    ("rpl --help", ("-m", "rpl_agent.cli", "--help"), 0.4),
    ("rpl --version", ("-m", "rpl_agent.cli", "--version"), 0.4),
    ("from rpl_agent import RPLAgent", ("-c", "from rpl_agent import RPLAgent"), None),
    ("rpl info rpl/Aircraft-20x10-v0", ("-m", "rpl_agent.cli", "info", "rpl/Aircraft-20x10-v0"), None),
]


def rows(smoke: bool = False, full: bool = False) -> list[dict]:
    found = []
    for name, line, limit in QUICK:
        seconds, wall = zip(*(_run(line) for _ in range(1 if smoke else 5)))
        found.append(_row(name, statistics.median(seconds), min(wall), limit, found))
    if smoke:
        return found
    for name, seconds, wall in zip(("cold cache", "warm cache"), *zip(*_pair("--budget", "20000"))):
        found.append(_row(f"make train, {name}", seconds, wall, None, found))
    for name, options in (("on two cores", ()), ("in one process", ("--quiet",))):
        seconds, wall = zip(*(_difference(*_pair("--budget", BRIEF, *options)) for _ in range(REPEATS)))
        found.append(_row(f"compilation {name}", statistics.median(seconds), min(wall), 25.0, found))
    return found


def _pair(*options: str) -> list[tuple[float, float]]:
    """`make train` with a cold cache and again with a warm one."""
    with tempfile.TemporaryDirectory() as folder:
        cache = {"NUMBA_CACHE_DIR": os.path.join(folder, "cache")}
        return [_run((*TRAIN, os.path.join(folder, "logs"), *options), cache) for _ in range(2)]


def _difference(cold: tuple[float, float], warm: tuple[float, float]) -> tuple[float, float]:
    return cold[0] - warm[0], cold[1] - warm[1]


def _row(name: str, seconds: float, wall: float, limit: float | None, before: list[dict]) -> dict:
    numpy = before[0]["cpu_seconds"] if before else seconds
    holds = "" if limit is None else "yes" if seconds <= limit else "no"
    return {
        "what": name, "cpu_seconds": seconds, "ratio": seconds / numpy, "least_wall_seconds": wall,
        "wanted": "" if limit is None else limit, "holds": holds,
    }  # fmt: skip


def _run(line: tuple[str, ...], environment: dict[str, str] | None = None) -> tuple[float, float]:
    """(processor seconds, wall seconds) of one python process, children included."""
    whole = {**os.environ, **(environment or {})}
    whole.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation has its bytecode
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *line], check=True, stdout=subprocess.DEVNULL, env=whole)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.perf_counter() - start
