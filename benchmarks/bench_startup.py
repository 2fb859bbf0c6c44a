"""The first minutes: processor seconds of imports, help and a first certificate, compared with `import numpy`.

Every row is a separate process; ``ratio`` is to `import numpy` in the same run, since seconds depend on the machine.
The cold rows start without bytecode, as right after an installation that does not compile it.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

#: `make train` up to the first certificate that its view shows.
FIRST = """
import os, sys
from rpl_agent.agent.output.views import LinesView
show = LinesView.certified
def certified(self, session):
    show(self, session)
    os._exit(0)
LinesView.certified = certified
from rpl_agent.cli import main
main(["train", "rpl/Aircraft-20x10-v0", "--budget", "20000", "--seed", "0", "--log-dir", sys.argv[1]])
"""
AGENT = "from rpl_agent import RPLAgent"
#: (name, arguments of python, most processor seconds wanted)
QUICK = [
    ("import numpy", ("-c", "import numpy"), None),
    ("import rpl_agent", ("-c", "import rpl_agent"), None),
    (AGENT, ("-c", AGENT), 0.5),
    ("rpl --help", ("-m", "rpl_agent.cli", "--help"), 0.4),
    ("rpl --version", ("-m", "rpl_agent.cli", "--version"), 0.4),
    ("rpl info rpl/Aircraft-20x10-v0", ("-m", "rpl_agent.cli", "info", "rpl/Aircraft-20x10-v0"), None),
]


def rows(smoke: bool = False, full: bool = False) -> list[dict]:
    found: list[dict] = []
    repeats = 1 if smoke else 5
    with tempfile.TemporaryDirectory() as folder:
        first = ("make train, first certificate", ("-c", FIRST, folder), 3.0)
        for name, line, limit in [*QUICK, first]:
            found.append(_row(name, [_run(line) for _ in range(repeats)], limit, found))
        for number, (name, line, limit) in enumerate([QUICK[2], first]):
            cold = [_run(line, {"PYTHONPYCACHEPREFIX": os.path.join(folder, f"{number}-{k}")}) for k in range(repeats)]
            found.append(_row(f"{name}, no bytecode", cold, limit if name != AGENT else None, found))
    return found


def _row(name: str, runs: list[tuple[float, float]], limit: float | None, before: list[dict]) -> dict:
    seconds, wall = statistics.median(cpu for cpu, _ in runs), min(wall for _, wall in runs)
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
