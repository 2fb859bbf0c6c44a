"""Misses of bets on the value and of whole runs that use them, at δ = 0.1 and under the worst sampling.

First table: slabs. A world is sampled in batches by a rule that knows the truth and stays where data disagree with
it; a *miss* is a data set for which some slab, at any mark or at the end, excludes the truth. At most a share δ is
allowed. Some plans end early, some are extended once or twice, and some are stored and read in between.

Second table: whole runs of the agent on small worlds, inspected often: a miss is a run in which some certificate,
including the narrowest, was wrong about its policy's value or about the optimum. A fifth of the runs each:
the whole budget; stop at a gap; stop half way, save, load and continue with a larger budget; four environments at once;
six calls of a sixth.

`--jobs N` runs N processes, `--first SEED` chooses the seeds, `--full` makes 10^4 runs of each kind.
"""

from __future__ import annotations

import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.bench_coupled import Truth
from rpl_agent.agent.rpl import RPLAgent
from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Nature
from rpl_agent.core.model.policy import Policy
from rpl_agent.core.model.simulate import Simulator
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.core.solver import solve
from rpl_agent.guarantee.likelihood.bets.slabs import slabs
from rpl_envs.benchmark import Benchmark, benchmark
from rpl_envs.registration import make_sized

DELTA = 0.1
#: Small worlds with one, two (polynomial) and four parameters: name, sizes, episodes of a plan.
WORLDS = (("Betting", {"n": 3}, 120), ("ParallelBetting", {"n": 2}, 120), ("Engagement", {"L": 7}, 60))
KINDS = ("whole budget", "stop at a gap", "save, load, extend", "four environments", "short calls")
Row = dict[str, Any]


@lru_cache
def _world(name: str, **size: int) -> tuple[Benchmark, float]:
    """A world and its optimum."""
    world = benchmark(name, **size)
    point = Point(world.pmdp.instantiate(np.array(world.theta)))
    return world, solve(point, world.objective, Nature.COOPERATIVE, precision=1e-10).middle


# ---------------------------------------------------------------------- slabs
def slab_data(world: Benchmark, episodes: int, seed: int) -> Counts:
    """Data of a plan that may change, sampled where they disagree with the truth."""
    pmdp, rng = world.pmdp, np.random.default_rng(seed)
    mdp = pmdp.instantiate(np.array(world.theta))
    simulator = Simulator(mdp, world.objective.resolve(pmdp).decided, world.max_episode_steps + 1, seed)
    counts, done, goal, kind = Counts(pmdp, schedule="planned"), 0, episodes, seed % 4
    end = {0: episodes, 1: int(rng.integers(1, episodes + 1)), 2: 2 * episodes, 3: 3 * episodes}[kind]
    last = rng.permutation(pmdp.num_rows)
    while done < end:
        if done >= goal:
            goal = min(goal + episodes, end)
        batch = np.zeros(pmdp.num_transitions, dtype=np.int64)
        simulator.run(_disagreeing(world, counts, mdp.probability, last), 1, batch)
        counts.add_batch(batch)
        done += 1
        counts.bet(done / goal)
        if kind >= 2 and rng.random() < 0.02:
            counts = Counts.from_arrays(pmdp, counts.to_arrays())
    return counts


def _disagreeing(world: Benchmark, counts: Counts, truth: np.ndarray, order: np.ndarray) -> Policy:
    """In every state the action whose data lie farthest from the truth, any at first."""
    pmdp, visits = world.pmdp, counts.row_totals
    expected = truth * visits[pmdp.transition_row]
    size = (counts.transitions - expected) ** 2 / np.maximum(expected, 0.5)
    score = np.add.reduceat(size, pmdp.row_ptr[:-1]) + 1e-9 * order
    chosen = np.zeros(pmdp.num_states, dtype=np.int64)
    by_score = np.argsort(score, kind="stable")
    chosen[pmdp.row_state[by_score]] = by_score  # the last one written has the largest
    return Policy.deterministic(chosen)


def misses_slab(task: tuple[int, int]) -> bool:
    """Whether some slab of a data set excludes the truth."""
    index, seed = task
    name, size, episodes = WORLDS[index]
    world, _ = _world(name, **size)
    counts = slab_data(world, episodes, seed)
    found = slabs(world.pmdp, counts, world.objective, DELTA)
    return bool((found.A @ world.pmdp.table.reduction.coordinates(np.array(world.theta))[0] > found.b).any())


# ---------------------------------------------------------------------- whole runs
def misses_run(task: tuple[int, int]) -> bool:
    """Whether some certificate of a run was wrong."""
    warnings.simplefilter("ignore", RPLWarning)
    index, seed = task
    name, size, episodes = WORLDS[index]
    world, optimum = _world(name, **size)
    kind, truth = KINDS[seed % len(KINDS)], Truth(world, optimum)
    agent = RPLAgent(seed=seed, delta=DELTA)
    env: Any = make_sized(name, **size)
    options: dict[str, Any] = {"log_interval": max(episodes // 8, 1), "callback": truth}
    if kind == "stop at a gap":
        options["stop_when_gap"] = 0.3 * abs(optimum)
    if kind == "four environments":
        env = gym.vector.SyncVectorEnv([lambda: make_sized(name, **size)] * 4)
        episodes //= 2
    calls = {"save, load, extend": [episodes // 2], "short calls": [episodes // 6] * 6}.get(kind, [episodes])
    for budget in calls:
        agent.learn(env, budget, **options)
    if kind == "save, load, extend":
        with tempfile.TemporaryDirectory() as folder:
            agent.save(Path(folder) / "run.zip")
            agent = RPLAgent.load(Path(folder) / "run.zip", env=make_sized(name, **size))
        agent.learn(agent.world.env if agent.world is not None else env, episodes, **options)
    return not truth.right


def _count(run: Any, tasks: list[tuple[int, int]], jobs: int) -> list[bool]:
    if jobs == 1:
        return list(map(run, tasks))
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return list(pool.map(run, tasks, chunksize=4))


def rows(smoke: bool = False, full: bool = False, jobs: int = 1, first: int = 0) -> list[Row]:
    """Both tables."""
    table = []
    runs = 8 if smoke else 10_000 if full else 400
    for what, run in (("slabs", misses_slab), ("runs", misses_run)):
        each = runs // len(WORLDS) + 1
        tasks = [(index, first + seed) for index in range(len(WORLDS)) for seed in range(each)]
        found = _count(run, tasks, jobs)
        for index, (name, size, episodes) in enumerate(WORLDS):
            missed = sum(found[index * each : (index + 1) * each])
            label = f"{name}-{'x'.join(map(str, size.values()))}"
            table.append({
                "of": what, "world": label, "episodes": episodes, "number": each, "misses": missed,
                "share": missed / each, "allowed": DELTA,
            })  # fmt: skip
    return table
