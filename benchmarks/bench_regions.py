"""Support queries and relaxations: the vertex graph against HiGHS, and the four relaxations of every benchmark.

Queries are those of a value-iteration stream: every row asks again in each sweep, in a direction that has moved a
little. HiGHS answers a sample of the same stream, warm-started, in the same process. Expression-wise is the time to
find all bounds, region included; sweeps are one Bellman update of all rows over random values.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from rpl_agent.core.model import Sense
from rpl_agent.core.native import core
from rpl_agent.core.regions import Ellipsoid, Polytope, build_region
from rpl_agent.core.regions.lp import LinearProgram
from rpl_agent.core.relaxations.interval import expression_wise, parameter_wise, tied
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_envs import benchmark

SMOKE = ("Aircraft-20x10", "Betting-25", "Engagement-50", "MarsRover-10x10", "Glider-11x9", "ParallelBetting-5")
PAPER = (
    "Aircraft-50x10", "Aircraft-100x20", "Betting-100", "Engagement-1000", "MarsRover-50x50", "Glider-51x47",
    "ParallelBetting-10", "ParallelBetting-20",
)  # fmt: skip
FULL = ("Aircraft-200x40", "MarsRover-125x125")


def rows(smoke: bool = False, full: bool = False) -> list[dict]:
    """Speed of support queries by dimension, then of the relaxations by benchmark."""
    found = [queries(n, 200 if smoke else 1507, smoke) for n in (2, 3, 4, 6)]
    names = SMOKE if smoke else SMOKE + PAPER + (FULL if full else ())
    return found + [relaxations(name) for name in names]


def queries(n: int, constraints: int, smoke: bool) -> dict:
    """One stream of directions at dimension n: vertex graph, ellipsoid and warm HiGHS."""
    rng = np.random.default_rng(n)
    A = rng.normal(size=(constraints, n))
    A /= np.linalg.norm(A, axis=1)[:, None]
    b = A @ np.full(n, 0.5) + 0.3 * rng.uniform(0.1, 1.0, constraints)
    built, polytope = _timed(lambda: Polytope(A, b, np.zeros(n), np.ones(n)))
    base = rng.normal(size=(500 if smoke else 5000, n))
    stream = np.vstack([base * (1 + 0.1**k * rng.normal(size=base.shape)) for k in range(1, 11)])  # ten sweeps
    values, data, memory = np.empty(len(stream)), polytope.kernel().polytope, np.zeros(len(base), np.int32)
    query = core.support_polytope_many
    seconds, _ = _timed(lambda: query(data, len(stream), stream, len(memory), 0 * memory, values), repeats=3)
    ball = Ellipsoid(np.full(n, 0.5), 100 * np.eye(n), 1.0)
    ball.minimize(stream[:10])
    ball_seconds, _ = _timed(lambda: ball.minimize(stream), repeats=3)
    program = LinearProgram(A, b, np.zeros(n), np.ones(n))
    sample = stream[:: len(stream) // (50 if smoke else 200)]
    program.minimize(sample[:2])
    highs_seconds, bounds = _timed(lambda: program.minimize(sample))
    rate, highs_rate = len(stream) / seconds, len(sample) / highs_seconds
    return {
        "dimension": n, "rows": constraints, "vertices": int(data.counts[0]), "build s": built,
        "queries/s (asked >= 1e6)": rate, "HiGHS warm/s": highs_rate, "ratio (asked >= 1000)": rate / highs_rate,
        "ellipsoid/s": len(stream) / ball_seconds,
        "largest difference": float(np.abs(bounds - values[:: len(stream) // (50 if smoke else 200)]).max()),
    }  # fmt: skip


def relaxations(name: str) -> dict:
    """Build and sweep times of P_I, P_Theta, P_Lambda and P_R on intervals of width about 0.02 around the truth."""
    world = benchmark(name)
    pmdp, theta = world.pmdp, np.asarray(world.theta, dtype=float)
    reduction, _ = _timed(lambda: pmdp.table.reduction)
    f = pmdp.table.at(theta)
    width = 0.02 * np.random.default_rng(0).uniform(0.3, 1.0, len(f)) * ~pmdp.table.is_constant
    lower, upper = np.clip(f - width, 0, 1), np.clip(f + width, 0, 1)
    seconds, region = _timed(lambda: build_region(pmdp, lower, upper))
    tied_build, tied_set = _timed(lambda: tied(pmdp, lower, upper))
    parameter_build, _ = _timed(lambda: parameter_wise(region, pmdp))
    expression_build, expression_set = _timed(lambda: expression_wise(region, pmdp))
    rectangular_build, rectangular_set = _timed(lambda: Rectangular(pmdp, region))
    values, out = np.random.default_rng(1).random(pmdp.num_states), np.empty(pmdp.num_rows)
    sweeps = []
    for relaxation in (tied_set, expression_set, rectangular_set):
        relaxation.expectation(values, Sense.MIN, out)
        sweeps.append(_timed(lambda r=relaxation: r.expectation(values, Sense.MIN, out), repeats=5)[0])
    return {
        "benchmark": name, "expressions": pmdp.num_expressions, "rank": region.dimension, "reduce s": reduction,
        "region s": seconds, "tied s": tied_build, "parameter s": parameter_build, "expression s": expression_build,
        "rectangular s": rectangular_build, "tied sweep s": sweeps[0], "rectangular sweep s": sweeps[2],
        "sweep ratio": sweeps[2] / sweeps[0],
    }  # fmt: skip


def _timed(call: Callable, repeats: int = 1) -> tuple[float, object]:
    """(the shortest of some runs in seconds, the last result)."""
    best, result = np.inf, None
    for _ in range(repeats):
        start = time.perf_counter()
        result = call()
        best = min(best, time.perf_counter() - start)
    return best, result
