"""Tightness and coverage: the joint likelihood region against the paper's U and against the Wilks limit.

Tightness, δ = 0.001, uniform episodes, the policy that is optimal at the true parameters:

- *paper*: the paper's own U: Clopper-Pearson per expression at δ/|Λ_unk|, parameters in their box;
- *U*: the same with this package's pooling (f and 1 − f one event) and the domain's constraints;
- *likelihood*: the default.

Gaps are relative, under the rectangular relaxation. ``wilks`` is the mean width over expressions divided by
that of the ideal region {χ²_d quantile, Fisher information of all the data, fixed N}; no set that is valid at all times
reaches 1; ``worst`` is its largest value over the seeds. The rest are medians over seeds, of which there are many at
the largest size: the paper's own gap differs by 20 % from data set to data set.

``cost`` is the time of likelihood build and rectangular solve over tied build and solve. The second table has its
parts in milliseconds. Both pipelines run once to compile and to fill what is cached with the model, then in turn;
the least time of each part counts. Every run gets a copy of the counts, so that nothing derived from the data is
reused, priors included. It is processor time, which other programs do not disturb and threads do not hide. Where the
tied gap is infinite (Engagement) graph analysis has answered one side without numerical work: the ratio then compares
with a pipeline that gives no bound.

The third table breaks down the factor to the Wilks limit.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from scipy import stats

from benchmarks import coverage
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.intervals import clopper_pearson, confidence_intervals
from rpl_agent.core.evidence.ledger import WITHOUT_BETS, split_main
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Domain, Nature, ParametricMDP, Policy
from rpl_agent.core.model.algebra.ranges import taylor_table
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.lifting import build_region
from rpl_agent.core.relaxations.interval import Point, tied
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.core.solver import solve
from rpl_agent.guarantee.likelihood.chart import parameter_chart
from rpl_agent.guarantee.likelihood.region import likelihood_region
from rpl_agent.guarantee.likelihood.windows import likelihood_set
from rpl_envs.benchmark import Benchmark, benchmark

DELTA = 1e-3
INSTANCES = ("Aircraft-50x10", "Betting-50", "Engagement-100", "MarsRover-10x10", "Glider-21x17", "ParallelBetting-5")
FULL_INSTANCES = ("Aircraft-100x20", "Betting-100", "Engagement-300", "MarsRover-50x50", "ParallelBetting-10")
SMOKE_INSTANCES = ("Betting-25", "ParallelBetting-5")
#: Data sets per size, more at the largest; timed runs per data set.
SEEDS, MANY_SEEDS, RUNS = (5, 6, 7), tuple(range(5, 20)), 4
PARTS = ("tied build ms", "tied solve ms", "build ms", "solve ms", "cost")


def paper_region(pmdp: ParametricMDP, counts: Counts, delta: float) -> Region:
    """The paper's U: one Clopper-Pearson interval per distinct non-constant expression, over the box."""
    table = pmdp.table
    visits = counts.row_totals[pmdp.transition_row]
    trials = np.bincount(pmdp.expression, weights=visits, minlength=table.num_expressions)
    unknown = ~table.is_constant
    lower, upper = table.constant.copy(), table.constant.copy()
    gamma = delta / max(int(unknown.sum()), 1)
    lower[unknown], upper[unknown] = clopper_pearson(counts.successes[unknown], trials[unknown], gamma)
    bounds = {name: pair for name, *pair in zip(table.parameters, pmdp.domain.lower, pmdp.domain.upper)}
    return build_region(replace(pmdp, domain=Domain.box(bounds)), lower, upper)


def relative_gap(world: Benchmark, relaxation, policy, value: float) -> float:
    """(upper − lower) / true value of one policy under an uncertainty set."""
    sides = [solve(relaxation, world.objective, nature, policy=policy) for nature in Nature]
    return (max(s.upper for s in sides) - min(s.lower for s in sides)) / value


def widths(pmdp: ParametricMDP, region: Region) -> np.ndarray:
    """How far each expression that is not constant moves over a region."""
    lower, upper = Rectangular(pmdp, region).bounds()
    return (upper - lower)[~pmdp.table.is_constant]


def wilks_widths(pmdp: ParametricMDP, counts: Counts, theta: np.ndarray) -> np.ndarray:
    """The same over {v : (v−θ)'I(v−θ) ≤ χ²_d quantile}, I the Fisher information of all the data, to first order."""
    free, values = ~pmdp.table.is_constant, pmdp.table.evaluate(theta)
    slope = taylor_table(pmdp.table, theta, np.zeros(len(theta))).slope
    seen = (counts.successes > 0) & free
    information = (slope[seen] * (counts.successes[seen] / values[seen] ** 2)[:, None]).T @ slope[seen]
    spread = np.einsum("ij,jk,ik->i", slope[free], np.linalg.pinv(information), slope[free])
    return 2.0 * np.sqrt(stats.chi2.isf(DELTA, parameter_chart(pmdp).dimension) * spread)


def timings(world: Benchmark, counts: Counts, policy: Policy, runs: int = RUNS) -> dict[str, float]:
    """Processor time of both pipelines in milliseconds, build and solve, and their ratio."""
    pmdp = world.pmdp
    builds = {
        "tied ": lambda c: tied(pmdp, *confidence_intervals(pmdp, c, "clopper-pearson", DELTA)),
        "": lambda c: Rectangular(pmdp, likelihood_region(pmdp, c, DELTA)),
    }
    least: dict[str, float] = {}
    for run in range(runs + 1):
        for name, build in builds.items():
            copy = Counts.from_arrays(pmdp, counts.to_arrays())  # with its own marks
            start = time.process_time()
            relaxation = build(copy)
            built = time.process_time()
            relative_gap(world, relaxation, policy, 1.0)
            parts = {f"{name}build ms": built - start, f"{name}solve ms": time.process_time() - built}
            for part, seconds in parts.items():
                if run:  # the first run is not timed
                    least[part] = min(least.get(part, np.inf), 1e3 * seconds)
    total = least["tied build ms"] + least["tied solve ms"]
    return {**least, "cost": (least["build ms"] + least["solve ms"]) / total}


def measure(name: str, episodes: int, seed: int) -> dict:
    """All columns of the tightness and cost tables for one instance and data set."""
    world = benchmark(name)
    pmdp, theta = world.pmdp, np.array(world.theta)
    best = solve(Point(pmdp.instantiate(theta)), world.objective, Nature.COOPERATIVE)
    value = (best.lower + best.upper) / 2
    counts = uniform_counts(pmdp, world.objective, theta, episodes, world.max_episode_steps + 1, seed)
    intervals = confidence_intervals(pmdp, counts, "clopper-pearson", DELTA)
    tied_gap = relative_gap(world, tied(pmdp, *intervals), best.policy, value)
    ours = likelihood_region(pmdp, counts, DELTA)
    gap = relative_gap(world, Rectangular(pmdp, ours), best.policy, value)
    paper, pooled = paper_region(pmdp, counts, DELTA), build_region(pmdp, *intervals)
    mine, theirs = widths(pmdp, ours), widths(pmdp, paper)
    paper_gap = relative_gap(world, Rectangular(pmdp, paper), best.policy, value)
    return {
        "tied": tied_gap,
        "paper": paper_gap,
        "U": relative_gap(world, Rectangular(pmdp, pooled), best.policy, value),
        "likelihood": gap,
        "gap/paper": gap / paper_gap,
        "expressions": float((mine / theirs).mean()),
        "wilks": float((mine / wilks_widths(pmdp, counts, theta)).mean()),
        **timings(world, counts, best.policy),
    }


def explain(name: str, episodes: int, seed: int) -> dict:
    """Where the factor to the Wilks limit goes: each as a factor on the width, d dimensions of the mixture."""
    world = benchmark(name)
    pmdp, theta = world.pmdp, np.array(world.theta)
    counts = uniform_counts(pmdp, world.objective, theta, episodes, world.max_episode_steps + 1, seed)
    chart = parameter_chart(pmdp)
    found = likelihood_set(counts, split_main(DELTA, WITHOUT_BETS).level_set, chart)
    level = found.level - float(found.values(found.center.x)[0])
    quantile = stats.chi2.isf(DELTA, chart.dimension) / 2
    ideal = wilks_widths(pmdp, counts, theta)
    total = float((widths(pmdp, likelihood_region(pmdp, counts, DELTA)) / ideal).mean())
    markov, regret = np.sqrt(np.log(1 / DELTA) / quantile), np.sqrt(level / np.log(1 / DELTA))
    return {
        "instance": name,
        "d": chart.dimension,
        "Wilks nats": quantile,
        "our nats": level,
        "ln 1/δ for all times": markov,
        "regret of the mixture": regret,
        "split and outer approximation": total / (markov * regret),
        "all": total,
    }


def rows(smoke: bool = False, full: bool = False) -> list[dict]:
    """Tightness table, cost table, explanation of the former, coverage table."""
    instances = SMOKE_INSTANCES if smoke else INSTANCES + (FULL_INSTANCES if full else ())
    sizes = (1000,) if smoke else (1000, 10_000, 100_000)
    table, costs = [], []
    for name in instances:
        for episodes in sizes:
            seeds = SEEDS[:1] if smoke else MANY_SEEDS if episodes == sizes[-1] else SEEDS
            found = [measure(name, episodes, seed) for seed in seeds]
            middle = {key: float(np.median([f[key] for f in found])) for key in found[0]}
            middle = {"instance": name, "episodes": episodes, **middle}
            worst = max(f["wilks"] for f in found)
            table.append({k: v for k, v in middle.items() if k not in PARTS[:-1]} | {"worst": worst})
        costs.append({k: middle[k] for k in ("instance", "episodes", *PARTS)})
    table += costs
    table += [explain(name, sizes[-1], SEEDS[0]) for name in instances]
    return table + coverage.rows(smoke)
