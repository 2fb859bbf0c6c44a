"""Faults: kills, a full disk, hostile files, a race to build the core, a long run: tried, survived, lost.

`python -m benchmarks faults --only kills` runs one part: kills, disk, files, build or long.

- kills: a run is killed (SIGKILL) at a random moment, resumed until it is done, and compared bit for bit with one that
  was never killed. A run counts as lost if it cannot be resumed or ends differently.
- disk: a run on a file system with little room. Survived: it ends by itself, its last checkpoint loads, and
  resuming that elsewhere gives the bits of an undisturbed run. Needs permission to mount a tmpfs; otherwise file
  sizes are limited.
- files: every field of a checkpoint replaced by values of wrong type or range, and its bytes changed or cut.
  Survived: refused in one line, or harmless; any other error counts as lost.
- build: processes that find the core not compiled and compile it at once.
- long: resident memory and log files of a run, second half against first.
"""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import rpl_agent
import rpl_envs  # noqa: F401  (registers the ids)
from rpl_agent.agent import CheckpointCallback, RPLAgent
from rpl_agent.agent.storage import checkpoint
from rpl_agent.core.errors import DataError, ModelError

KILLS = {"smoke": 2, "usual": 20, "full": 100}
EPISODES = {"smoke": 20_000, "usual": 100_000, "full": 1_000_000}
WRONG: tuple[Any, ...] = ("x", -1, 1 << 70, 1e300, None, True, [], {}, "inf")
ID = "rpl/Betting-25-v0"


def rows(smoke: bool = False, full: bool = False, only: str | None = None) -> list[dict]:
    size = "smoke" if smoke else "full" if full else "usual"
    parts: dict[str, Callable[[Path], dict]] = {
        "kills": lambda work: kills(work / "kills", KILLS[size]),
        "disk": lambda work: full_disk(work / "disk"),
        "files": lambda work: hostile_files(work / "c.zip", size),
        "build": lambda work: race_to_build(work / "build"),
        "long": lambda work: long_run(work / "long", EPISODES[size]),
    }
    if only is not None and only not in parts:
        raise SystemExit(f"faults: no part {only!r}; parts: {', '.join(parts)}")
    found = []
    for name, part in parts.items():
        if only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                found.append(part(Path(folder)))
    return found


def _row(fault: str, tried: int, survived: int, note: str) -> dict:
    return {"fault": fault, "tried": tried, "survived": survived, "lost": tried - survived, "note": note}


def learn(folder: Path, episodes: int) -> str:
    """Learn in a run folder, or resume there; return a digest of everything that was learned."""
    kept = CheckpointCallback(50, folder / "checkpoint.zip", seconds=None)
    if (folder / "checkpoint.zip").is_file():
        agent = RPLAgent.load(folder / "checkpoint.zip", gym.make(ID))
        agent.run_folder = folder
        agent.resume(kept)
    else:
        agent = RPLAgent(seed=3).learn(gym.make(ID), budget=episodes, log_interval=500, callback=kept, folder=folder)
    certificate = agent.certificate
    assert certificate is not None
    learned = hashlib.sha256(agent.counts.transitions.tobytes())
    learned.update(certificate.policy.as_weights(agent.pmdp).tobytes())
    return f"{agent.num_episodes} {certificate.lower.hex()} {certificate.upper.hex()} {learned.hexdigest()[:16]}"


def _child(folder: Path, episodes: int, result: Path, file_size: int | None) -> None:
    warnings.simplefilter("ignore")
    if file_size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    try:
        result.write_text(learn(folder, episodes))
    except DataError as error:
        raise SystemExit(str(error)) from None


def start(folder: Path, episodes: int, result: Path, file_size: int | None = None) -> ForkProcess:
    """Start a process that learns in a folder; it is forked, so that kills hit learning and saving, not imports."""
    result.unlink(missing_ok=True)
    process = get_context("fork").Process(target=_child, args=(folder, episodes, result, file_size))
    sys.stderr.flush()
    process.start()
    return process


def finish(process: ForkProcess, result: Path, limit: float = 600.0) -> str:
    """The digest of what it learned, or an empty string if it failed or never ended."""
    process.join(limit)
    if process.is_alive():
        process.kill()
    process.join()
    return result.read_text() if process.exitcode == 0 else ""


def kills(folder: Path, number: int, episodes: int = 3_000) -> dict:
    folder.mkdir()
    result = folder / "result"
    learn(folder / "compiled", 500)
    began = time.perf_counter()
    whole = finish(start(folder / "whole", episodes, result), result)
    usual = time.perf_counter() - began
    rng, killed, survived, attempt = np.random.default_rng(0), 0, 0, 0
    while killed < number:
        attempt += 1
        place, in_this_run = folder / f"run{attempt}", 0
        while True:
            process = start(place, episodes, result)
            if killed < number and in_this_run < 3:  # at most three kills, so that the run ends
                process.join(rng.uniform(0.0, usual))
                if process.is_alive():
                    process.kill()
                    process.join()
                    killed, in_this_run = killed + 1, in_this_run + 1
                    continue
            break
        same = finish(process, result) == whole != "" and _logged(place) == _logged(folder / "whole")
        survived += in_this_run if same else 0
    return _row("kill -9", killed, survived, f"{attempt} runs; the others bit for bit the undisturbed one, row by row")


def _logged(folder: Path) -> list[str]:
    """The log points of a run."""
    with (folder / "progress.csv").open() as file:
        return [line.split(",")[0] for line in file]


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[str]:
    """Make the folder a small file system; yield a description of it."""
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)], capture_output=True
    ).returncode == 0  # fmt: skip
    try:
        yield "tmpfs" if mounted else "limit of file size"
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


def full_disk(folder: Path, episodes: int = 3_000) -> dict:
    folder.mkdir()
    result, survived, sizes = folder / "result", 0, (28, 40, 60, 90, 140)
    whole = finish(start(folder / "whole", episodes, result), result)
    for kilobytes in sizes:
        with small_disk(folder / f"disk{kilobytes}", kilobytes) as kind:
            run = folder / f"disk{kilobytes}" / "run"
            process = start(run, episodes, result, None if kind == "tmpfs" else kilobytes * 512)
            process.join(300.0)
            if process.is_alive():
                process.kill()
                process.join()
                continue
            rescued = folder / f"rescued{kilobytes}"
            rescued.mkdir()
            if (run / "checkpoint.zip").is_file():
                shutil.copy(run / "checkpoint.zip", rescued)
            survived += finish(start(rescued, episodes, result), result) == whole != ""
    return _row("full disk", len(sizes), survived, f"{kind}; ends by itself, what is saved goes on bit for bit")


def leaves(value: Any, path: tuple = ()) -> Iterator[tuple]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    if path:
        yield path


def hostile_files(path: Path, size: str) -> dict:
    RPLAgent(seed=0).learn(gym.make(ID), budget=20, log_interval=20).save(path)
    state, arrays = checkpoint.read(path)
    good, rng = path.read_bytes(), np.random.default_rng(0)
    tried, survived, refused = 0, 0, 0
    cases = [(place, wrong) for place in list(leaves(state))[:: 9 if size == "smoke" else 1] for wrong in WRONG]
    for place, wrong in cases + [(None, k) for k in range(20 if size == "smoke" else 300)]:
        tried += 1
        blob = _damaged(good, rng) if place is None else checkpoint.pack(_replaced(state, place, wrong), arrays)
        path.write_bytes(blob)
        try:
            RPLAgent.load(path, gym.make(ID))
            survived += 1
        except (DataError, ModelError) as error:
            survived += "\n" not in str(error)
            refused += 1
        except Exception as error:
            print(f"{place} = {wrong!r}: {error!r}")
    return _row("hostile file", tried, survived, f"{refused} refused in one line, the others harmless")


def _damaged(blob: bytes, rng: np.random.Generator) -> bytes:
    """Some bytes changed, or the end cut off."""
    if rng.random() < 0.3:
        return blob[: rng.integers(len(blob))]
    changed = bytearray(blob)
    for place in rng.integers(len(blob), size=rng.integers(1, 9)):
        changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _replaced(value: Any, path: tuple, new: Any) -> Any:
    return new if not path else {**value, path[0]: _replaced(value[path[0]], path[1:], new)}


def race_to_build(folder: Path, processes: int = 4) -> dict:
    package = folder / "rpl_agent" / "core" / "native"
    made = shutil.ignore_patterns("core-*", "bindings_*", "__pycache__")
    shutil.copytree(Path(rpl_agent.__file__).parent / "core" / "native", package, ignore=made)
    for room in (folder / "rpl_agent", package.parent):
        (room / "__init__.py").touch()
    program = "from rpl_agent.core.native import core; print('done', core.UNIT_ROUNDOFF)"
    command, variables = [sys.executable, "-c", program], {**os.environ, "PYTHONPATH": ""}
    running = [
        subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    ends = [process.communicate(timeout=3600)[0].strip() for process in running]
    survived = sum(end == ends[0] and end.startswith("done") for end in ends)
    left = sorted(p.suffix for p in package.iterdir() if p.name.startswith(("core-", "bindings_")))
    survived *= left == [".py", ".so"]
    return _row("race to build", processes, survived, "processes that compile the core at once")


def long_run(folder: Path, episodes: int) -> dict:
    sizes: list[tuple[int, int]] = []

    def look(local: dict, _: dict) -> None:
        files = sum(p.stat().st_size for p in folder.glob("events*"))
        sizes.append((_resident(), files))

    begin = time.process_time()
    agent = RPLAgent(seed=0).learn(gym.make(ID), budget=episodes, callback=look, folder=folder)
    middle = sizes[len(sizes) // 2][0]
    growth, events = sizes[-1][0] / middle, sizes[-1][1] / 2**20
    note = (
        f"{agent.num_episodes:,} episodes: memory at the end {growth:.3f} of that at half, events {events:.2f} MiB, "
        f"{time.process_time() - begin:.0f} CPU s"
    )
    return _row("long run", 1, int(growth < 1.1 and events < 16), note)


def _resident() -> int:
    """Bytes of memory that this process has now."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
