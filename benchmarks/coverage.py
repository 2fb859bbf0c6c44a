"""Coverage under adaptive sampling, many runs at once: which sets keep a stated δ when the data decide when to stop.

Two samplers over 50 Bernoulli events:

- *stop when certified*: an event is sampled until its interval excludes the truth's own value (the worst
  a stopping rule can do) or the budget per event is spent; the joint statement fails if any event's does.
- *optimism and doubling*: the event of largest upper bound is sampled until its count doubles, repeatedly.

`interval_failures` counts runs in which the union-bounded intervals ever (at the moments an agent looks)
exclude the truth. `likelihood_failures` runs the joint likelihood e-process of 50 events whose probabilities
are affine in one parameter, with the windows and weights of `guarantee.likelihood`, looking after every sample.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from rpl_agent.core.evidence import intervals

EVENTS = 50
METHODS = ("clopper-pearson", "anytime")
#: Random numbers drawn at once.
BLOCK = 1 << 20
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


def _stop_when_certified(
    probability: np.ndarray, low: np.ndarray, high: np.ndarray, runs: int, rng: np.random.Generator
) -> int:
    """Runs in which some event's interval excluded the truth at some n ≤ budget."""
    failed = np.zeros(runs, dtype=bool)
    budget = low.shape[1] - 1
    for i, p in enumerate(probability):
        for some in np.array_split(np.flatnonzero(~failed), 1 + runs * budget // BLOCK):
            k = np.cumsum(rng.random((len(some), budget)) < p, axis=1)
            failed[some] = ((k < low[i, 1:]) | (k > high[i, 1:])).any(axis=1)
    return int(failed.sum())


def _optimism_and_doubling(
    probability: np.ndarray, low: np.ndarray, high: np.ndarray, runs: int, steps: int, rng: np.random.Generator
) -> int:
    """Runs whose intervals, at one of the moments of recomputation, exclude the truth.

    The upper bound that guides the choice is p̂ + √(ln n/ n), as good a guide as any: validity must not
    depend on it.
    """
    budget, at = low.shape[1] - 1, np.arange(runs)
    n = np.zeros((runs, len(probability)), dtype=np.int64)
    k, bound = n.copy(), np.full(n.shape, 2.0)
    failed = np.zeros(runs, dtype=bool)
    for _ in range(steps):
        arm = bound.argmax(axis=1)
        more = np.minimum(np.maximum(1, n[at, arm]), budget - n[at, arm])
        k[at, arm] += rng.binomial(more, probability[arm])
        n[at, arm] += more
        hits, trials = k[at, arm], n[at, arm]
        bound[at, arm] = hits / trials + np.sqrt(np.log(trials + 1.0) / trials)
        failed |= (hits < low[arm, trials]) | (hits > high[arm, trials])
    return int(failed.sum())


def interval_failures(method: str, sampler: str, delta: float, runs: int, budget: int, seed: int) -> int:
    """Runs of ``runs`` in which the joint statement at δ was false when the agent looked."""
    rng = np.random.default_rng(seed)
    probability = np.repeat(LEVELS, EVENTS // len(LEVELS))
    tables = [critical_counts(method, p, budget, delta / EVENTS) for p in LEVELS]
    low = np.repeat([t[0] for t in tables], EVENTS // len(LEVELS), axis=0)
    high = np.repeat([t[1] for t in tables], EVENTS // len(LEVELS), axis=0)
    if sampler == "stop when certified":
        return _stop_when_certified(probability, low, high, runs, rng)
    return _optimism_and_doubling(probability, low, high, runs, 600, rng)


def family() -> tuple[np.ndarray, np.ndarray, float]:
    """(a (50,), b (50,), true p): affine expressions between 0 and 1 on [0, 1]."""
    rng = np.random.default_rng(11)
    a = rng.uniform(0.05, 0.5, EVENTS)
    return a, rng.uniform(0.1, 0.95 - a), 0.4


class _LikelihoodRuns:
    """Runs of ln Σ_j w_j M_j(truth), side by side.

    Windows start at ``starts`` with weights ``shares``: the first with particles uniform on [0, 1], the
    others with particles normal around the maximum-likelihood point of the data so far. Weight that is not
    invested yet is worth itself.
    """

    def __init__(self, runs: int, starts: np.ndarray, shares: np.ndarray, rng: np.random.Generator):
        self.a, self.b, self.truth = family()
        self.starts, self.shares, self.rng, self.at = starts, shares, rng, np.arange(runs)
        self.normals = ndtri((np.arange(32) + 0.5) / 32)
        self.hits = np.zeros((runs, EVENTS, 2))
        self.particle = np.empty((runs, len(starts), len(self.normals)))
        self.score = np.ones(self.particle.shape)
        self.used = 0

    def failures(self, level: float, steps: int, adaptive: bool) -> tuple[int, float]:
        """(runs that ever reach the level, mean of the e-value at the end or when they did)."""
        arm, runs = np.zeros(len(self.at), dtype=np.int64), len(self.at)
        e_value, crossed = np.ones(runs), np.zeros(runs, dtype=bool)
        for step in range(steps):
            if self.used < len(self.starts) and step == self.starts[self.used]:
                self._open_window()
            arm = self._stay_where_it_disagrees(arm) if adaptive else self.rng.integers(0, EVENTS, runs)
            self._sample(arm)
            invested = self.shares[: self.used] @ self.score[:, : self.used].mean(axis=2).T
            now = invested + self.shares[self.used :].sum()
            e_value = np.where(crossed, e_value, now)
            crossed |= np.log(e_value) >= level
        return int(crossed.sum()), float(e_value.mean())

    def _sample(self, arm: np.ndarray) -> None:
        """Draw once from these events and pay every particle by its likelihood ratio to the truth."""
        p = self.a[arm] + self.b[arm] * self.truth
        success = self.rng.random(len(arm)) < p
        self.hits[self.at, arm, success.astype(int)] += 1.0
        f = self.a[arm, None, None] + self.b[arm, None, None] * self.particle[:, : self.used]
        ratio = np.where(success[:, None, None], f / p[:, None, None], (1.0 - f) / (1.0 - p)[:, None, None])
        self.score[:, : self.used] *= ratio

    def _stay_where_it_disagrees(self, arm: np.ndarray) -> np.ndarray:
        """Leave an event only when it agrees with the truth: the worst a sampler can do."""
        p, seen = self.a[arm] + self.b[arm] * self.truth, self.hits[self.at, arm]
        n = seen.sum(axis=1)
        agrees = (n > 0) & (np.abs(seen[:, 1] - n * p) < np.sqrt(n * p * (1.0 - p)))
        return np.where(agrees, (arm + 1) % EVENTS, arm)

    def _open_window(self) -> None:
        if self.used == 0:
            particle = np.broadcast_to((np.arange(32) + 0.5) / 32, (len(self.at), 32))
        else:
            point, spread = self._most_likely()
            particle = point[:, None] + spread[:, None] * self.normals
        self.particle[:, self.used] = np.clip(particle, 1e-6, 1.0 - 1e-6)
        self.used += 1

    def _most_likely(self) -> tuple[np.ndarray, np.ndarray]:
        """(maximum-likelihood point of each run, standard deviation of the particles around it)."""
        point = np.full(len(self.at), 0.5)
        no, yes = self.hits[..., 0], self.hits[..., 1]
        for _ in range(30):
            f = self.a + self.b * point[:, None]
            gradient = 1.0 / point - 1.0 / (1.0 - point) + (yes / f - no / (1.0 - f)) @ self.b
            curvature = 1.0 / point**2 + 1.0 / (1.0 - point) ** 2 + (yes / f**2 + no / (1.0 - f) ** 2) @ self.b**2
            point = np.clip(point + gradient / curvature, 0.3 * point, 1.0 - 0.3 * (1.0 - point))
        return point, np.sqrt(1.5 / curvature)


def likelihood_failures(
    schedule: str, delta: float, runs: int, steps: int, seed: int, adaptive: bool = True
) -> tuple[int, float]:
    """(runs that exclude the truth after any sample, mean final e-value)."""
    if schedule == "geometric":
        starts, shares = np.array([0, 64, 256, 1024]), np.full(4, 1.0 / 13.0)
    else:
        starts, shares = np.array([0, steps // 12]), np.array([0.02, 0.98])
    return _LikelihoodRuns(runs, starts, shares, np.random.default_rng(seed)).failures(-np.log(delta), steps, adaptive)


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
