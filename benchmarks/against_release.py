"""Processor time of certificates and of cold solves against an older version, in turns, on the same data.

    git worktree add ../old 10e0d86a                      # 0.3.0
    python -m venv ../old-env && ../old-env/bin/pip install ../old
    python -m benchmarks.against_release ../old ../old-env/bin/python

Every line is the least of all turns, so that a busy moment does not count. Certificates: without bets, from the same
counts again and again; in brackets without the regret, which 0.3.0 does not bound. Solves: an interval model, its graph
analysed anew every time. Horizons: 600 steps of a disk. Only public names are used, which both versions have: modules
move.

`--gaps` compares the gaps of `rpl certify ID --episodes N` instead: the mean of three seeds, the smallest, the largest.
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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent import Config, Counts, Nature, Policy, Simulator, UncertainMDP, certify, load_prism, solve
from rpl_envs import benchmark

CERTIFIED = (
    "Aircraft-20x10", "Betting-25", "Engagement-50", "MarsRover-10x10",
    "Glider-11x9", "Glider-21x17", "ParallelBetting-5", "ParallelBetting-6",
)  # fmt: skip
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
GAPS_AT, GAP_SEEDS = (100, 1_000, 10_000, 100_000), (1, 2, 3)
Sides = tuple[tuple[Path, str], tuple[Path, str]]  # folder and Python, of the older version first
WITHOUT_BETS = Config(bets=False)
WITHOUT_REGRET = "without the regret"


def uniform_counts(pmdp: Any, objective: Any, theta: np.ndarray, episodes: int, max_steps: int, seed: int) -> Counts:
    """Counts of episodes under the uniform policy, with the windows of a split at 4, 8 and 16 % of them."""
    decided = np.zeros(pmdp.num_states, dtype=bool)
    for label in (objective.target, objective.avoid):
        if label is not None:
            decided |= pmdp.labels[label]
    simulator = Simulator(pmdp.instantiate(theta), decided, max_steps, seed)
    counts, policy, done = Counts(pmdp, schedule="shares"), Policy.uniform(pmdp), 0
    for share in (0.04, 0.08, 0.16, 1.0):
        batch, end = np.zeros(pmdp.num_transitions, dtype=np.int64), max(1, round(share * episodes))
        if end > done:
            simulator.run(policy, end - done, batch)
        counts.add_batch(batch)
        done = end
        if share < 1.0:
            counts.mark(0.33)
    return counts


def certificates(name: str) -> Iterator[tuple[str, float]]:
    """(what, milliseconds) of certificates of a world."""
    world = benchmark(name)
    for episodes in EPISODES:
        total, of_regret = 0.0, 0.0
        for seed in SEEDS:
            data = (np.array(world.theta), episodes, world.max_episode_steps, seed)
            counts = uniform_counts(world.pmdp, world.objective, *data)
            call = partial(certify, world.pmdp, counts, world.objective, config=WITHOUT_BETS)
            total += _least(call)
            of_regret += 1e3 * min(call().timings.get("regret", 0.0) for _ in range(REPEATS))
        what = f"certificate, {name}, {episodes:,} episodes"
        yield what, total / len(SEEDS)
        yield f"{what}, {WITHOUT_REGRET}", (total - of_regret) / len(SEEDS)


def solves(name: str) -> Iterator[tuple[str, float]]:
    """(what, milliseconds) of solves of a world with intervals around its probabilities."""
    world = benchmark(name)
    p = np.zeros(world.pmdp.num_expressions)
    p[world.pmdp.expression] = world.pmdp.instantiate(np.array(world.theta)).probability
    slack = 0.02 * np.minimum(p, 1 - p)
    model = UncertainMDP.from_intervals(world.pmdp, np.clip(p - slack, 0, 1), np.clip(p + slack, 0, 1))

    def cold() -> tuple[Any, ...]:  # a new relaxation has a new model, of which nothing is known
        return replace(model).relaxation(), world.objective

    for nature in Nature:
        yield f"solve, {name}, {nature.value}", _least(partial(solve, nature=nature), cold)


def horizons(name: str) -> Iterator[tuple[str, float]]:
    """(what, milliseconds) of a certificate of a disk with 600 steps."""
    path, truth = DISKS[name]
    pmdp, objective = load_prism(path).objective('R{"cost"}min=? [ C<=600 ]')
    theta = np.array([truth[parameter] for parameter in pmdp.table.parameters])
    counts = uniform_counts(pmdp, objective, theta, 30, 600, 1)
    yield f"certificate, {name}, 600 steps", _least(partial(certify, pmdp, counts, objective, config=WITHOUT_BETS))


def _least(call: Callable[..., Any], prepare: Callable[[], tuple[Any, ...]] = tuple) -> float:
    """Milliseconds of the fastest call, without preparing its arguments; the first one fills caches."""
    call(*prepare())
    times = []
    for _ in range(REPEATS):
        arguments = prepare()
        start = time.process_time()
        call(*arguments)
        times.append(time.process_time() - start)
    return 1e3 * min(times)


def compare_gaps(sides: Sides, names: list[str]) -> None:
    """Print the gaps of what a user certifies, over those of the older version."""
    for name in names:
        for episodes in GAPS_AT:
            gaps = [[_gap(side, name, episodes, seed) for seed in GAP_SEEDS] for side in sides]
            ratios = np.array(gaps[1]) / np.array(gaps[0])
            what, ends = f"gap, {name}, {episodes:,} episodes", f"{ratios.min():.3f} to {ratios.max():.3f}"
            print(f"{what:50} {ratios.mean():.3f} of the older one ({ends})", flush=True)


def _gap(side: tuple[Path, str], name: str, episodes: int, seed: int) -> float:
    options = ["--episodes", str(episodes), "--seed", str(seed), "--json"]
    return float(_json_of(side, ["-m", "rpl_agent.cli", "certify", name, *options])["gap"])


def _json_of(side: tuple[Path, str], arguments: list[str]) -> dict[str, Any]:
    """What a version prints, in a process of its own."""
    folder, python = side
    environment = os.environ | {"PYTHONPATH": f"{folder}:{folder / 'envs'}"}
    command = [python, *arguments]
    found = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return dict(json.loads(found.stdout))


def compare_times(sides: Sides, only: list[str], turns: int) -> None:
    """Print processor times and their ratios."""
    least = [dict[str, float](), dict[str, float]()]
    for _ in range(turns):
        for best, side in zip(least, sides):
            for key, value in _json_of(side, [__file__, "--only", *only]).items():
                best[key] = min(value, best.get(key, value))
    before, now = least
    for key in before:
        if WITHOUT_REGRET not in key:
            alone = f"{key}, {WITHOUT_REGRET}"
            rest = f" ({now[alone] / before[alone]:.2f} {WITHOUT_REGRET})" if alone in now else ""
            print(f"{key:50} {before[key]:8.1f} ms before {now[key]:8.1f} ms now  {now[key] / before[key]:.2f}{rest}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", help="folder of the older version")
    parser.add_argument("python", nargs="?", help="a Python that has what that version needs")
    parser.add_argument("--turns", type=int, default=5, help="how often both versions are measured")
    parser.add_argument("--only", nargs="*", default=[], help="these worlds")
    parser.add_argument("--gaps", action="store_true", help="compare gaps, not times")
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
    here = Path(__file__).resolve().parents[1]
    sides = ((Path(arguments.checkout).resolve(), arguments.python), (here, sys.executable))
    if arguments.gaps:
        compare_gaps(sides, arguments.only or list(CERTIFIED))
    else:
        compare_times(sides, arguments.only, arguments.turns)


if __name__ == "__main__":
    main()
