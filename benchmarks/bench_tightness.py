"""Gap over the ideal: what a certificate costs beyond a single look at the value after a fixed number of samples.

``ideal`` = 2 z σ, where z is the normal quantile of δ/2, δ = 0.001, and σ² = G'I⁻¹G. G is the gradient of the optimum
and I the Fisher information of the data, both at the truth.

First table: the Gaussian limit, simulated. It shows the mean half-width of bets on the value over z standard deviations
of the data at that moment: after half of the plan, at its end, and after twice as much with a new plan. The bets have
the stakes and looks of `rpl_agent`, or one look and the best constant stake, or bets of their own for every value
(cells of 0.1 σ).

Second table: 10^5 uniform episodes; third: 2·10^4 episodes of the agent. ``windows`` is the joint likelihood alone on
the same data, ``bets`` the default; means over seeds that were not used for tuning, and the largest.
``cost`` is the processor time of a first certificate with bets over that of one without (uniform), and of a second
one. ``held`` counts seeds whose interval contains the optimum. `--jobs N` runs N processes, `--only blocks` one table
(limit, uniform, online, blocks), `--first N` other seeds.

Fourth table: 7 to 64 unknowns in independent blocks, uniform plays (`block_worlds`), bridges and the random models at
δ = 0.001, wet chicken at 0.1. ``windows`` is the product of intervals without bets, ``attained`` how far values at two
parameters of the set with bets lie apart, at least, so that no method is tighter over it (`attained`), ``foreseen`` the
same if bets had known these values beforehand, ``fixed`` if it had also been known how many data there would be,
``proved`` the gap that the checker proves over the one computed. Each random model is one data set of 10^5 steps; their
median is the last row.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import gymnasium as gym
import numpy as np
from scipy import special

from benchmarks import block_worlds
from benchmarks.attained import attained
from rpl_agent.agent.rpl import RPLAgent
from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.ledger import MAIN_SHARE
from rpl_agent.core.evidence.marks import BET_SHARES
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model.expressions import monomial_slopes
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.checker import check, stake
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.likelihood.shares import WITH_BETS
from rpl_agent.guarantee.pipeline import Config
from rpl_agent.guarantee.proof import prove
from rpl_envs.benchmark import Benchmark, benchmark

DELTA = 1e-3
Z = -float(special.ndtri(DELTA / 2))
UNIFORM = ("Aircraft-50x10", "Betting-50", "Engagement-100", "MarsRover-10x10", "Glider-21x17", "ParallelBetting-5")
ONLINE = ("Aircraft-20x10", "Betting-25", "Engagement-50", "MarsRover-10x10", "Glider-11x9", "ParallelBetting-5")
#: Seeds 0 to 99 were used to choose shares, stakes and marks.
SEEDS = tuple(range(100, 110))
Row = dict[str, Any]


#: Worlds in blocks with their numbers of plays.
BLOCKS = (("bridges", 5_000), ("bridges", 50_000), ("wet chicken", 5_000), ("wet chicken", 50_000))
RANDOM_PLAYS = 2_000  # of 50 steps


def ideal(world: Benchmark | block_worlds.BlockWorld, counts: Counts, delta: float = DELTA) -> tuple[float, float]:
    """(2 z σ, the optimum), from the truth."""
    pmdp, theta, step = world.pmdp, np.array(world.theta), 1e-5

    def optimum(at: np.ndarray) -> float:
        return solve_at(pmdp, at, world.objective, precision=1e-10).middle

    G = np.array([(optimum(theta + e) - optimum(theta - e)) / (2 * step) for e in step * np.eye(len(theta))])
    f, slope = (
        pmdp.table.at(theta),
        np.asarray(pmdp.table.coefficients @ monomial_slopes(pmdp.table.monomials, theta)),
    )
    weight = np.where(counts.trials > 0, counts.trials / np.maximum(f, 1e-300), 0.0)
    information = slope.T @ (weight[:, None] * slope)
    z = -float(special.ndtri(delta / 2))
    return 2 * z * float(np.sqrt(G @ np.linalg.pinv(information, rcond=1e-12, hermitian=True) @ G)), optimum(theta)


def uniform(task: tuple[str, int, int]) -> Row:
    """One data set of the second table."""
    name, episodes, seed = task
    warnings.simplefilter("ignore", RPLWarning)
    world = benchmark(name)
    counts = uniform_counts(
        world.pmdp, world.objective, np.array(world.theta), episodes, world.max_episode_steps + 1, seed
    )  # fmt: skip
    unit, optimum = ideal(world, counts)
    found, seconds = {}, {}
    for bets in (True, False, False, True):
        fresh = Counts.from_arrays(world.pmdp, counts.to_arrays())
        for look in ("first", "second"):
            start = time.process_time()
            found[bets] = certify(world.pmdp, fresh, world.objective, Config(delta=DELTA, bets=bets))
            seconds[bets, look] = min(time.process_time() - start, seconds.get((bets, look), np.inf))
    return {
        "windows": found[False].gap / unit, "bets": found[True].gap / unit,
        "held": found[True].lower <= optimum <= found[True].upper,
        **{f"{look} cost": seconds[True, look] / seconds[False, look] for look in ("first", "second")},
    }  # fmt: skip


def online(task: tuple[str, int, int]) -> Row:
    """One run of the third table."""
    name, episodes, seed = task
    warnings.simplefilter("ignore", RPLWarning)
    world, agent = benchmark(name), RPLAgent(seed=seed, delta=DELTA)
    agent.learn(gym.make(f"rpl/{name}-v0"), episodes)
    counts, found = agent.session.experience.counts, agent.certificate
    unit, optimum = ideal(world, counts)
    windows = certify(world.pmdp, counts, world.objective, Config(delta=DELTA, bets=False))
    return {
        "windows": windows.gap / unit, "bets": found.gap / unit,
        "held": found.lower - 1e-9 <= optimum <= found.upper + 1e-9,
    }  # fmt: skip


def in_blocks(task: tuple[str, int, int]) -> Row:
    """One data set of the fourth table."""
    name, plays, seed = task
    warnings.simplefilter("ignore", RPLWarning)
    world = block_worlds.world(name)
    counts = uniform_counts(world.pmdp, world.objective, world.theta, plays, world.steps, seed)
    unit, optimum = ideal(world, counts, world.delta)
    found, plain = (
        certify(world.pmdp, counts, world.objective, Config(delta=world.delta, bets=bets)) for bets in (True, False)
    )
    proof = prove(world.pmdp, counts, found)
    check(proof)
    proved = proof["claim"]["upper"] - proof["claim"]["lower"]
    widths = attained(world.pmdp, counts, world.objective, world.delta, found.policy, unit)
    return {
        "windows": plain.gap / unit,
        "bets": found.gap / unit,
        **{name: width / unit for name, width in widths._asdict().items()},
        "proved": proved / found.gap,
        "held": found.lower <= optimum <= found.upper,
    }


def blocks(seeds: tuple[int, ...], jobs: int, smoke: bool) -> list[Row]:
    """The fourth table."""
    table = []
    for name, plays in BLOCKS[:1] if smoke else BLOCKS:
        table += _table("blocks", in_blocks, (name,), plays // 10 if smoke else plays, seeds, jobs)[:1]
    worlds = tuple(f"random {k}" for k in range(2 if smoke else len(block_worlds.UNKNOWNS)))
    return table + _table("blocks", in_blocks, worlds, RANDOM_PLAYS // (10 if smoke else 1), seeds[:1], jobs)


def _table(name: str, run: Any, worlds: tuple[str, ...], episodes: int, seeds: tuple[int, ...], jobs: int) -> list[Row]:
    tasks = [(world, episodes, seed) for world in worlds for seed in seeds]
    if jobs == 1:
        results = list(map(run, tasks))
    else:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            results = list(pool.map(run, tasks))
    table = []
    for k, world in enumerate(worlds):
        part = results[k * len(seeds) : (k + 1) * len(seeds)]
        row: Row = {"data": name, "world": world, "episodes": episodes, "seeds": len(seeds)}
        row |= {key: float(np.mean([r[key] for r in part])) for key in part[0] if key != "held"}
        table.append(row | {"largest": max(r["bets"] for r in part), "held": sum(r["held"] for r in part)})
    medians = {key: float(np.median([row[key] for row in table])) for key in results[0] if key != "held"}
    last = {"data": name, "world": "median", "episodes": episodes, "seeds": len(seeds)} | medians
    last |= {"largest": max(row["largest"] for row in table), "held": sum(row["held"] for row in table)}
    return [*table, last]


# ---------------------------------------------------------------------- the Gaussian limit
def gaussian(paths: int) -> list[Row]:
    """The first table."""
    level = -float(np.log(DELTA * MAIN_SHARE * WITH_BETS.bets / 2))
    shares = np.array(BET_SHARES)
    again = np.concatenate([[1.0], 2.0 * shares[shares > 0.5]])
    moments = np.concatenate([shares, again])
    stakes = [stake(level, t) for t in shares] + [stake(level, t / 2) / 2**0.5 for t in again]
    constant = np.full(len(moments), (2 * level) ** 0.5)
    moments = np.append(moments, 2.0)
    table = []
    for scheme, bet, looks in (("bets", np.array(stakes), True), ("constant stake, one look", constant, False)):
        bound = _half_widths(moments, bet, level, looks, paths)
        at = [int(np.searchsorted(moments, t - 1e-9)) - 1 for t in (0.5, 1.0, 2.0)]
        table.append({"Gaussian limit": scheme} | {
            when: float(bound[k] * moments[k + 1] ** 0.5 / Z) for when, k in zip(("half", "end", "twice"), at)
        })  # fmt: skip
    own = _own_strategies(np.append(shares, 1.0), level, max(paths // 10, 1)) / Z
    return [*table, {"Gaussian limit": "bets for every value", "half": np.nan, "end": float(own), "twice": np.nan}]


def _half_widths(moments: np.ndarray, bet: np.ndarray, level: float, looks: bool, paths: int) -> np.ndarray:
    """(m,) mean distance of the bound from the truth after every segment."""
    rng, length = np.random.default_rng(0), np.diff(moments)
    noise = rng.normal(size=(paths, len(length))) * np.sqrt(length)
    won = np.cumsum(bet * noise - bet**2 * length / 2, axis=1)
    bound = (won - level) / np.cumsum(bet * length)
    return -(np.maximum.accumulate(bound, axis=1) if looks else bound).mean(axis=0)


def _own_strategies(moments: np.ndarray, level: float, paths: int, cell: float = 0.1) -> float:
    """The same at the end if the values of every cell are bet against with what hedges their own option."""
    rng, length = np.random.default_rng(1), np.diff(moments)
    edges = np.arange(-7.0, 0.0, cell) + rng.uniform(0.0, cell, (paths, 1))
    won, slope, best = np.zeros(edges.shape), np.zeros(edges.shape), np.full(edges.shape, -np.inf)
    for t, step in zip(moments, length):
        missing = level - won + (edges + cell) * slope  # of the value nearest to the truth
        z = -special.ndtri(np.exp(-np.clip(missing, 1e-3, 500.0)))
        hazard = np.exp(-(z**2) / 2 - special.log_ndtr(-z)) / (2 * np.pi) ** 0.5
        bet = np.where(missing > 0.0, hazard / (1.0 - t) ** 0.5, 0.0)
        won += bet * rng.normal(size=(paths, 1)) * step**0.5 - bet**2 * step / 2
        slope += bet * step
        best = np.maximum(best, (won - level) / slope)
    first = np.argmin(best >= edges + cell, axis=1)
    each = np.arange(paths)
    return -float(np.maximum(edges[each, first], best[each, first]).mean())


def rows(
    smoke: bool = False, full: bool = False, jobs: int = 1, only: str | None = None, first: int = SEEDS[0]
) -> list[Row]:
    """All four tables, or ``only`` one of `TABLES`; seeds from ``first`` on."""
    seeds = tuple(range(first, first + (1 if smoke else len(SEEDS) if full else 3)))
    found: list[Row] = []
    for name in TABLES if only is None else (only,):
        found += TABLES[name](seeds, jobs, smoke)
    return found


def _uniform(seeds: tuple[int, ...], jobs: int, smoke: bool) -> list[Row]:
    return _table("uniform", uniform, *((UNIFORM[3:4], 500) if smoke else (UNIFORM, 100_000)), seeds, jobs)


def _online(seeds: tuple[int, ...], jobs: int, smoke: bool) -> list[Row]:
    return _table("online", online, *((ONLINE[3:4], 100) if smoke else (ONLINE, 20_000)), seeds, jobs)


#: by name, for ``--only``
TABLES: dict[str, Callable[[tuple[int, ...], int, bool], list[Row]]] = {
    "limit": lambda seeds, jobs, smoke: gaussian(500 if smoke else 20_000),
    "uniform": _uniform,
    "online": _online,
    "blocks": blocks,
}
