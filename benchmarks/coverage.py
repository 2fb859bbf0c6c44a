"""Coverage under adaptive sampling, simulated in compiled code: who keeps a stated δ when the data decide.

Two samplers over 50 Bernoulli events:

- *stop when certified*: an event is sampled until its interval excludes the truth's own value (the worst
  a stopping rule can do) or the budget per event is spent; the joint statement fails if any event's does.
- *optimism and doubling*: the event of largest upper bound is sampled until its count doubles, repeatedly.

`interval_failures` counts runs in which the union-bounded intervals ever (at the moments an agent looks)
exclude the truth. `likelihood_failures` runs the joint likelihood e-process of 50 events whose probabilities
are affine in one parameter, with the windows and weights of `rpl_agent.likelihood`, looking after every sample.
"""

from __future__ import annotations

from functools import lru_cache
from math import log, sqrt

import numpy as np
from scipy.special import ndtri

from rpl_agent.evidence import intervals
from rpl_agent.jit import njit

EVENTS = 50
METHODS = ("clopper-pearson", "anytime")
#: True probabilities of the interval samplers' events, ten events each.
LEVELS = (0.1, 0.25, 0.4, 0.55, 0.7)


@lru_cache
def critical_counts(method: str, probability: float, budget: int, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """(low, high), each (budget+1,): the interval of K successes in n trials holds p iff low[n] ≤ K ≤ high[n]."""
    function = {"clopper-pearson": intervals.clopper_pearson, "anytime": intervals.anytime}[method]
    low, high = np.zeros(budget + 1, dtype=np.int64), np.arange(budget + 1)
    n = np.arange(1, budget + 1)
    for side in (0, 1):  # the interval's ends increase with K: bisect for the last K that still holds p
        inside = np.rint(n * probability).astype(np.int64)
        outside = np.full(budget, -1) if side == 0 else n + 1
        while (np.abs(inside - outside) > 1).any():
            middle = (inside + outside) // 2
            clipped = np.clip(middle, 0, n)
            lower, upper = function(clipped, n, gamma)
            holds = (lower <= probability) & (probability <= upper) & (middle == clipped)
            inside, outside = np.where(holds, middle, inside), np.where(holds, outside, middle)
        (low if side == 0 else high)[1:] = inside
    return low, high


@njit()
def _stop_when_certified(probability, low, high, runs, rng):
    """Runs in which some event's interval excluded the truth at some n ≤ budget."""
    failures = 0
    budget = low.shape[1] - 1
    for _ in range(runs):
        failed = False
        for i in range(len(probability)):
            k = 0
            for n in range(1, budget + 1):
                k += rng.random() < probability[i]
                if k < low[i, n] or k > high[i, n]:
                    failed = True
                    break
            if failed:
                break
        failures += failed
    return failures


@njit()
def _optimism_and_doubling(probability, low, high, runs, steps, rng):
    """Runs whose intervals, at one of the moments of recomputation, exclude the truth.

    The upper bound that guides the choice is p̂ + √(ln n/ n), as good a guide as any: validity must not
    depend on it.
    """
    failures = 0
    events, budget = len(probability), low.shape[1] - 1
    for _ in range(runs):
        n = np.zeros(events, dtype=np.int64)
        k = np.zeros(events, dtype=np.int64)
        failed = False
        for _ in range(steps):
            best, arm = -1.0, 0
            for i in range(events):
                bound = 2.0 if n[i] == 0 else k[i] / n[i] + sqrt(log(n[i] + 1.0) / n[i])
                if bound > best:
                    best, arm = bound, i
            for _ in range(max(1, n[arm])):
                if n[arm] < budget:
                    n[arm] += 1
                    k[arm] += rng.random() < probability[arm]
            if k[arm] < low[arm, n[arm]] or k[arm] > high[arm, n[arm]]:
                failed = True
                break
        failures += failed
    return failures


def interval_failures(method: str, sampler: str, delta: float, runs: int, budget: int, seed: int) -> int:
    """Runs of ``runs`` in which the joint statement at δ was false when the agent looked."""
    rng = np.random.default_rng(seed)
    probability = np.repeat(LEVELS, EVENTS // len(LEVELS))
    tables = [critical_counts(method, p, budget, delta / EVENTS) for p in LEVELS]
    low = np.repeat([t[0] for t in tables], EVENTS // len(LEVELS), axis=0)
    high = np.repeat([t[1] for t in tables], EVENTS // len(LEVELS), axis=0)
    if sampler == "stop when certified":
        return int(_stop_when_certified(probability, low, high, runs, rng))
    return int(_optimism_and_doubling(probability, low, high, runs, 600, rng))


def family() -> tuple[np.ndarray, np.ndarray, float]:
    """(a (50,), b (50,), true p): affine expressions between 0 and 1 on [0, 1]."""
    rng = np.random.default_rng(11)
    a = rng.uniform(0.05, 0.5, EVENTS)
    return a, rng.uniform(0.1, 0.95 - a), 0.4


@njit()
def _likelihood_runs(a, b, truth, level, runs, steps, normals, starts, shares, adaptive, rng):
    """Runs in which ln Σ_j w_j M_j(truth) ever reaches ``level``; also the mean of the final e-value.

    Windows start at ``starts`` with weights ``shares``: the first with particles uniform on [0, 1], the
    others with particles normal around the maximum-likelihood point of the data so far. Weight that is not
    invested yet is worth itself.
    """
    m = len(normals)
    failures, mean = 0, 0.0
    events = len(a)
    particle = np.empty((len(starts), m))
    score = np.empty((len(starts), m))
    ratios = np.empty((len(starts), m, events, 2))
    hits = np.empty((events, 2))
    for _ in range(runs):
        hits[:] = 0.0
        used = 0
        crossed = False
        e_value = 0.0
        arm = 0
        for step in range(steps):
            if used < len(starts) and step == starts[used]:
                point, spread = 0.5, 0.0
                if used > 0:
                    for _ in range(30):
                        gradient = 1.0 / point - 1.0 / (1.0 - point)
                        curvature = 1.0 / point**2 + 1.0 / (1.0 - point) ** 2
                        for i in range(events):
                            f = a[i] + b[i] * point
                            gradient += b[i] * (hits[i, 1] / f - hits[i, 0] / (1.0 - f))
                            curvature += b[i] ** 2 * (hits[i, 1] / f**2 + hits[i, 0] / (1.0 - f) ** 2)
                        point = min(max(point + gradient / curvature, 0.3 * point), 1.0 - 0.3 * (1.0 - point))
                        spread = sqrt(1.5 / curvature)
                for k in range(m):
                    z = (k + 0.5) / m if used == 0 else point + spread * normals[k]
                    particle[used, k] = min(max(z, 1e-6), 1.0 - 1e-6)
                    score[used, k] = 1.0
                    for i in range(events):
                        f, p = a[i] + b[i] * particle[used, k], a[i] + b[i] * truth
                        ratios[used, k, i, 1] = f / p
                        ratios[used, k, i, 0] = (1.0 - f) / (1.0 - p)
                used += 1
            if adaptive:  # stay on an event while it disagrees with the truth, the worst a sampler can do
                n = hits[arm, 0] + hits[arm, 1]
                p = a[arm] + b[arm] * truth
                if n > 0 and abs(hits[arm, 1] - n * p) < sqrt(n * p * (1.0 - p)):
                    arm = (arm + 1) % events
            else:
                arm = rng.integers(0, events)
            p = a[arm] + b[arm] * truth
            success = rng.random() < p
            hits[arm, 1 if success else 0] += 1.0
            e_value = 0.0
            for j in range(len(starts)):
                total = 0.0 if j < used else float(m)
                for k in range(m if j < used else 0):
                    score[j, k] *= ratios[j, k, arm, 1 if success else 0]
                    total += score[j, k]
                e_value += shares[j] * total / m
            if log(e_value) >= level:
                crossed = True
                break
        failures += crossed
        mean += e_value / runs
    return failures, mean


def likelihood_failures(
    schedule: str, delta: float, runs: int, steps: int, seed: int, adaptive: bool = True
) -> tuple[int, float]:
    """(runs that exclude the truth after any sample, mean final e-value)."""
    a, b, truth = family()
    normals = ndtri((np.arange(32) + 0.5) / 32)
    if schedule == "geometric":
        starts, shares = np.array([0, 64, 256, 1024]), np.full(4, 1.0 / 13.0)
    else:
        starts, shares = np.array([0, steps // 12]), np.array([0.02, 0.98])
    rng = np.random.default_rng(seed)
    return _likelihood_runs(a, b, truth, -np.log(delta), runs, steps, normals, starts, shares, adaptive, rng)


def rows(smoke: bool) -> list[dict]:
    """The coverage table: stated and observed failure rates."""
    delta, runs, budget, steps = (0.05, 200, 1000, 500) if smoke else (0.05, 2000, 10000, 2000)
    table = []
    for sampler in ("stop when certified", "optimism and doubling"):
        for method in METHODS:
            failures = interval_failures(method, sampler, delta, runs, budget, seed=1)
            table.append(_row(sampler, method, delta, failures, runs))
    for schedule in ("geometric", "split"):
        for adaptive in (True, False):
            failures, _ = likelihood_failures(schedule, delta, runs, steps, seed=2, adaptive=adaptive)
            sampler = "stay where it disagrees" if adaptive else "uniform, a look after every sample"
            table.append(_row(sampler, f"likelihood, {schedule}", delta, failures, runs))
    return table


def _row(sampler: str, name: str, delta: float, failures: int, runs: int) -> dict:
    return {"sampler": sampler, "set": name, "stated": delta, "observed": failures / runs, "runs": runs}
