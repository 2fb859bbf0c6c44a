"""Faults: kills, a full disk, hostile files, a race on a cold cache, a long run: tried, survived, lost.

- kill: a run is killed (SIGKILL) at a random moment, resumed until it is done, and compared bit for bit with one that
  was never killed. Lost would be a run that cannot be resumed or ends elsewhere.
- full disk: a run on a file system with little room. Survived: it ends by itself, its last checkpoint loads, and
  resuming that elsewhere gives the bits of an undisturbed run. Needs the right to mount a tmpfs; else files are limited
  in size.
- hostile files: every field of a checkpoint replaced by values of wrong type or range. Survived: refused in one line,
  or harmless; lost would be any other error.
- cold cache: processes that compile into one empty cache at once.
- long run: resident memory and log files of a run, second half against first.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import rpl_envs  # noqa: F401  (registers the ids)
from rpl_agent.agent import RPLAgent, checkpoint
from rpl_agent.errors import DataError, ModelError

KILLS = {"smoke": 2, "usual": 20, "full": 100}
EPISODES = {"smoke": 20_000, "usual": 100_000, "full": 1_000_000}
WRONG: tuple[Any, ...] = ("x", -1, 1 << 70, 1e300, None, True, [], {}, "inf")
ID = "rpl/Betting-25-v0"
#: Learns in a run folder, or goes on there: argv = folder, episodes, id.
PROGRAM = """
import sys, gymnasium as gym, rpl_envs
from pathlib import Path
from rpl_agent.agent import CheckpointCallback, RPLAgent
folder, budget, ID = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
kept = CheckpointCallback(folder / "checkpoint.zip", every=50, seconds=None)
if (folder / "checkpoint.zip").is_file():
    agent = RPLAgent.load(folder / "checkpoint.zip", gym.make(ID))
    agent.run_folder = folder
    agent.resume(kept)
else:
    agent = RPLAgent(seed=3).learn(gym.make(ID), budget=budget, log_interval=500, callback=kept, folder=folder)
print("done", agent.num_episodes, agent.certificate.lower.hex(), agent.experience.counts.transitions.sum(), flush=True)
"""
#: One kernel, compiled and called.
SMALL_PROGRAM = """
import gymnasium as gym
import numpy as np
from rpl_agent.model._kernels import seed_state
print("done", *seed_state(np.uint64(7)), flush=True)
"""


def rows(smoke: bool = False, full: bool = False) -> list[dict]:
    size = "smoke" if smoke else "full" if full else "usual"
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        return [
            kills(work / "kills", KILLS[size]), full_disk(work / "disk"), hostile_files(work / "c.zip", size),
            cold_cache(work / "cache", size), long_run(work / "long", EPISODES[size]),
        ]  # fmt: skip


def _row(fault: str, tried: int, survived: int, note: str) -> dict:
    return {"fault": fault, "tried": tried, "survived": survived, "lost": tried - survived, "note": note}


def start(folder: Path, episodes: int, program: str = PROGRAM, **environment: str) -> subprocess.Popen:
    command = [sys.executable, "-c", program, str(folder), str(episodes), ID]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables)


def finish(process: subprocess.Popen) -> str:
    """Its last line, or an empty text if it failed."""
    out, _ = process.communicate(timeout=600)
    return out.strip().splitlines()[-1] if process.returncode == 0 and out.strip() else ""


def kills(folder: Path, number: int, episodes: int = 3_000) -> dict:
    whole = finish(start(folder / "whole", episodes))
    rng, killed, survived, attempt = np.random.default_rng(0), 0, 0, 0
    while killed < number:
        attempt += 1
        place, in_this_run = folder / f"run{attempt}", 0
        while True:
            process = start(place, episodes)
            try:  # at most three kills in a run, so that it ends; they fall from the first import to the last write
                process.wait(timeout=rng.uniform(0.5, 8.0) if killed < number and in_this_run < 3 else 600)
                break
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.communicate()
                killed, in_this_run = killed + 1, in_this_run + 1
        same = finish(process) == whole != ""
        with (place / "progress.csv").open() as file:
            steps = [line.split(",")[0] for line in file][1:]
        survived += in_this_run if same and len(set(steps)) == len(steps) else 0
    return _row("kill -9", killed, survived, f"{attempt} runs, each bit for bit the undisturbed one, no row twice")


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[str]:
    """A folder on a file system with little room; says what it is."""
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
    whole, survived, sizes = finish(start(folder / "whole", episodes)), 0, (60, 90, 140)
    used = ""
    for kilobytes in sizes:
        with small_disk(folder / f"disk{kilobytes}", kilobytes) as kind:
            used = kind
            run = folder / f"disk{kilobytes}" / "run"
            if kind == "tmpfs":
                process = start(run, episodes)
            else:
                limit = (kilobytes * 512, kilobytes * 512)
                process = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, str(run), str(episodes), ID], stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                    preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
                )  # fmt: skip
            try:
                process.communicate(timeout=300)
            except subprocess.TimeoutExpired:
                process.kill()
                continue
            rescued = folder / f"rescued{kilobytes}"
            rescued.mkdir()
            if (run / "checkpoint.zip").is_file():
                shutil.copy(run / "checkpoint.zip", rescued)
            survived += finish(start(rescued, episodes)) == whole != ""
    return _row("full disk", len(sizes), survived, f"{used}; ends by itself, what is saved goes on bit for bit")


def leaves(value: Any, path: tuple = ()) -> Iterator[tuple]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    if path:
        yield path


def hostile_files(path: Path, size: str) -> dict:
    RPLAgent(seed=0).learn(gym.make(ID), budget=20, log_interval=20).save(path)
    state, arrays = checkpoint.read(path)
    env, tried, survived, refused = gym.make(ID), 0, 0, 0
    for place in list(leaves(state))[:: 9 if size == "smoke" else 1]:
        for wrong in WRONG:
            changed = _replaced(state, place, wrong)
            tried += 1
            try:
                checkpoint.write(path, changed, arrays)
                RPLAgent.load(path, env)
                survived += 1
            except (DataError, ModelError) as error:
                survived += "\n" not in str(error)
                refused += 1
            except Exception as error:
                print(f"{place} = {wrong!r}: {error!r}")
    return _row("hostile file", tried, survived, f"{refused} refused in one line, the others harmless")


def _replaced(value: Any, path: tuple, new: Any) -> Any:
    return new if not path else {**value, path[0]: _replaced(value[path[0]], path[1:], new)}


def cold_cache(folder: Path, size: str, processes: int = 4) -> dict:
    """A whole run each, or (smoke) one small kernel each: compiling all of them takes minutes."""
    folder.mkdir()
    program = SMALL_PROGRAM if size == "smoke" else PROGRAM
    running = [start(folder / f"run{k}", 50, program, NUMBA_CACHE_DIR=str(folder / "numba")) for k in range(processes)]
    ends = [finish(process) for process in running]
    survived = sum(end == ends[0] != "" for end in ends)
    return _row("cold cache", processes, survived, "processes that compile into one empty cache at once")


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
