"""`rpl warm-up`: make the machine code ahead of time, for containers, images and classrooms."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from typing import Any

from rpl_agent.cli.common import add_json, emit
from rpl_agent.cli.parser import UsageError

EPISODES = 300


def register(commands: Any) -> None:
    warm_up = commands.add_parser(
        "warm-up",
        help="compile the kernels now, so that no run waits for it",
        description="Compile what default runs need and keep it in the cache folder (NUMBA_CACHE_DIR if that is set, "
        "else beside the package, else the user's cache folder). Once per installation and processor.",
    )
    add_json(warm_up)
    warm_up.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from rpl_agent.compiling import loaded
    from rpl_agent.jit import cache_bases
    from rpl_agent.preparing import RUNS, find, recorded

    folder = cache_bases()[-1]
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass  # can be written: said before anything is compiled in vain
    compiled, seconds = compile_all(None if arguments.json else lambda text: print(text, flush=True))
    kept = [kernel.is_kept(kinds) for kernel, kinds in map(find, recorded(RUNS))]
    if not all(kept):
        raise UsageError(f"{kept.count(False)} of {len(kept)} kernels could not be kept in {folder}: is the disk full?")
    result = {"folder": folder, "compiled": compiled, "loaded": loaded(), "seconds": seconds}
    text = f"machine code is ready in {folder}: {compiled} kernels compiled in {seconds:.0f} s"
    emit(arguments, result, "machine code", f"{text}, {result['loaded']} were there already")
    return 0


def compile_all(tell: Callable[[str], None] | None) -> tuple[int, float]:
    """(kernels compiled here, seconds that took)."""
    from rpl_agent.compiling import Compilation
    from rpl_agent.preparing import RUNS

    def notify(compilation: Compilation) -> None:
        if tell is not None and compilation.current is not None:
            tell(f"{compilation.text}: {compilation.current}")

    compilation = Compilation(notify, RUNS)
    compilation.start()
    try:
        for world in RUNS:
            run_briefly(world)
    finally:
        compilation.stop()
    return compilation.compiled, compilation.seconds


def run_briefly(world: str) -> None:
    """A default run, long enough to ask for every kernel that longer ones do."""
    import gymnasium as gym

    import rpl_envs  # noqa: F401 (registers the ids)
    from rpl_agent.agent.runs import train

    with tempfile.TemporaryDirectory() as folder:
        train(gym.make(world), log_dir=folder, budget=EPISODES, quiet=True)
