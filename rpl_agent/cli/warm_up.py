"""`rpl warm-up`: make the machine code ahead of time, for containers, images and classrooms."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable

from rpl_agent.cli.common import add_json, emit

#: Small worlds whose runs ask for all that default runs on any registered world ask for: affine and reach-avoid,
#: polynomial and cost.
WORLDS = ("rpl/Aircraft-20x10-v0", "rpl/Glider-11x9-v0")
EPISODES = 300
#: Kernels that these runs ask for by themselves, for the display only (a test compares it with a run).
KERNELS = 51


def register(commands) -> None:
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
    from rpl_agent.jit import cache_base

    compiled, seconds = compile_all(None if arguments.json else lambda text: print(text, flush=True))
    result = {"folder": cache_base(), "compiled": compiled, "loaded": loaded(), "seconds": seconds}
    text = f"machine code is ready in {cache_base()}: {compiled} kernels compiled in {seconds:.0f} s"
    emit(arguments, result, "machine code", f"{text}, {result['loaded']} were there already")
    return 0


def compile_all(tell: Callable[[str], None] | None) -> tuple[int, float]:
    """(kernels compiled, seconds that took)."""
    import gymnasium as gym

    import rpl_envs  # noqa: F401 (registers the ids)
    from rpl_agent.agent.runs import train
    from rpl_agent.compiling import Compilation

    def notify(compilation: Compilation) -> None:
        if tell is not None and compilation.current is not None:
            tell(f"{compilation.text}: {compilation.current}")

    compilation = Compilation(notify, total=KERNELS)
    compilation.start()
    try:
        for world in WORLDS:
            with tempfile.TemporaryDirectory() as folder:
                train(gym.make(world), log_dir=folder, budget=EPISODES, quiet=True)
    finally:
        compilation.stop()
    return compilation.compiled, compilation.seconds
