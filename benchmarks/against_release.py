"""Processor time of certificates and of cold solves against an older version, in turns, on the same data.

    git worktree add ../old 699eeee                       # 0.2.0
    python -m venv ../old-env && ../old-env/bin/pip install ../old
    python -m benchmarks.against_release ../old ../old-env/bin/python

Every line is the least of all turns, so that a busy moment does not count. Certificates: without bets, which 0.2.0 does
not have, from the same counts again and again. Solves: an interval model, its graph analysed anew every time. Horizons:
600 steps of a disk, both bounds at the true parameters and a certificate. Modules that both versions name differently
are imported where they are used.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rpl_envs.benchmark import benchmark

CERTIFIED = ("ParallelBetting-5", "ParallelBetting-6", "Glider-11x9", "Glider-21x17")
SOLVED = (
    "Aircraft-100x20", "Betting-100", "Engagement-300", "MarsRover-75x75", "Glider-69x67", "ParallelBetting-10",
)  # fmt: skip
MODELS = (
    Path(__file__).parent / "polynomial_models" / "disk.prism",
    Path(__file__).parents[1] / "examples/models/disk.prism",
)
DISKS = {
    "disk": (MODELS[0], {"begin": 0.102, "stop": 0.454, "wake_standby": 0.09, "wake_sleep": 0.033}),
    "disk-affine": (MODELS[1], {"begins": 0.102, "ends": 0.454, "standby_moves": 0.1 / 2.2, "sleep_moves": 0.1 / 6}),
}
EPISODES, SEEDS, REPEATS = (100, 1_000, 10_000), (1, 2), 5


def certifier() -> Callable[..., Any]:
    """`certify` of this version, without bets."""
    try:
        from rpl_agent.guarantee.claims.limits import certify
        from rpl_agent.guarantee.pipeline import Config

        return partial(certify, config=Config(bets=False))
    except ImportError:  # 0.2.0
        from rpl_agent.certify import certify

        return certify


def certificates(name: str) -> Iterator[tuple[str, float]]:
    """(what, milliseconds) of certificates of a world."""
    from rpl_agent.core.evidence.sampling import uniform_counts

    certify, world = certifier(), benchmark(name)
    for episodes in EPISODES:
        total = 0.0
        for seed in SEEDS:
            data = (np.array(world.theta), episodes, world.max_episode_steps, seed)
            counts = uniform_counts(world.pmdp, world.objective, *data)
            total += _least(partial(certify, world.pmdp, counts, world.objective))
        yield f"certificate, {name}, {episodes:,} episodes", total / len(SEEDS)


def solves(name: str) -> Iterator[tuple[str, float]]:
    """(what, milliseconds) of solves of a world."""
    from rpl_agent.core.model import Nature
    from rpl_agent.core.relaxations import Intervals
    from rpl_agent.core.solver import solve
    from rpl_agent.core.solver.problem import structures

    try:
        from rpl_agent.core.model.objectives.objective import tasks
    except ImportError:  # 0.2.0 keeps none
        tasks = structures
    world = benchmark(name)
    table = world.pmdp.table
    p = (table.at if hasattr(table, "at") else table.evaluate)(np.array(world.theta))  # its name until 0.3.0
    slack = 0.02 * np.minimum(p, 1 - p)
    relaxation = Intervals(world.pmdp, np.clip(p - slack, 0, 1), np.clip(p + slack, 0, 1))

    def cold(nature: Nature) -> None:
        structures(world.pmdp).clear()
        tasks(world.pmdp).clear()
        solve(relaxation, world.objective, nature)

    for nature in Nature:
        yield f"solve, {name}, {nature.value}", _least(partial(cold, nature))


def horizons(name: str) -> Iterator[tuple[str, float]]:
    """(what, milliseconds) of a disk with 600 steps."""
    from rpl_agent.core.evidence.sampling import uniform_counts
    from rpl_agent.core.solver import solve_at
    from rpl_agent.formats import prism

    path, truth = DISKS[name]
    pmdp, objective = prism.load(path).objective('R{"cost"}min=? [ C<=600 ]')
    theta = np.array([truth[parameter] for parameter in pmdp.table.parameters])
    yield f"solve, {name}, 600 steps", _least(partial(solve_at, pmdp, theta, objective))
    counts = uniform_counts(pmdp, objective, theta, 30, 600, 1)
    yield f"certificate, {name}, 600 steps", _least(partial(certifier(), pmdp, counts, objective))


def _least(call: Callable[[], Any]) -> float:
    """Milliseconds of the fastest call; the first one fills caches."""
    call()
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return 1e3 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", help="folder of the older version")
    parser.add_argument("python", nargs="?", help="a Python that has what that version needs")
    parser.add_argument("--turns", type=int, default=5, help="how often both versions are measured")
    parser.add_argument("--only", nargs="*", default=[], help="these worlds")
    arguments = parser.parse_args()
    if arguments.checkout is None:  # one turn, as a process of its own
        warnings.simplefilter("ignore")
        parts = [(certificates, CERTIFIED), (solves, SOLVED), (horizons, tuple(DISKS))]
        print(json.dumps({
            what: milliseconds
            for measure, names in parts for name in names if name in (arguments.only or names)
            for what, milliseconds in measure(name)
        }))  # fmt: skip
        return
    here, least = Path(__file__).resolve().parents[1], [dict[str, float](), dict[str, float]()]
    sides = ((Path(arguments.checkout).resolve(), arguments.python), (here, sys.executable))
    for _ in range(arguments.turns):
        for best, (folder, python) in zip(least, sides):
            environment = os.environ | {"PYTHONPATH": f"{folder}:{folder / 'envs'}"}
            command = [python, __file__, "--only", *arguments.only]
            text = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
            for key, value in json.loads(text).items():
                best[key] = min(value, best.get(key, value))
    for key, before in least[0].items():
        print(f"{key:50} {before:8.1f} ms before {least[1][key]:8.1f} ms now  {least[1][key] / before:.2f}")


if __name__ == "__main__":
    main()
