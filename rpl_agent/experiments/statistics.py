"""Interquartile means with bootstrap intervals, and when a learning curve has arrived."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

#: An agent has arrived when it is this close to V*, relatively, and stays there.
CLOSE = 0.05
BOOTSTRAP_SAMPLES = 2000
LEVEL = 0.95


class Estimate(NamedTuple):
    """A point with a confidence interval over seeds."""

    point: float
    low: float
    high: float


def interquartile_mean(values: Sequence[float] | np.ndarray, axis: int = -1) -> np.ndarray:
    """Mean of the middle half; fractional weights at its ends, so that every sample size is treated alike.

    An infinite value inside the middle half makes the mean infinite; outside it does not matter.
    """
    ordered = np.sort(np.moveaxis(np.asarray(values, dtype=float), axis, -1), axis=-1)
    n = ordered.shape[-1]
    if n == 0:
        raise ValueError("no values to average")
    edges = np.arange(n + 1) / n
    weights = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0.0, None)
    inside = weights > 1e-12
    return (ordered[..., inside] * weights[inside]).sum(axis=-1) / weights[inside].sum()


def bootstrap(values: Sequence[float], seed: int = 0, samples: int = BOOTSTRAP_SAMPLES) -> Estimate:
    """Interquartile mean with a percentile bootstrap interval over runs; seeded, so tables are reproducible."""
    data = np.asarray([v for v in values if not math.isnan(v)], dtype=float)
    if len(data) == 0:
        return Estimate(math.nan, math.nan, math.nan)
    point = float(interquartile_mean(data))
    if len(data) == 1:
        return Estimate(point, point, point)
    rng = np.random.default_rng(seed)
    means = interquartile_mean(data[rng.integers(0, len(data), (samples, len(data)))])
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means, [tail, 1 - tail], method="inverted_cdf")  # no arithmetic between infinities
    return Estimate(point, float(low), float(high))


def is_close(value: float, optimum: float, maximise: bool, tolerance: float = CLOSE) -> bool:
    """Whether a value is at most ``tolerance`` · |V*| worse than V*."""
    loss = optimum - value if maximise else value - optimum
    return bool(loss <= tolerance * abs(optimum))


def arrival(
    episodes: Sequence[int], values: Sequence[float | None], optimum: float, maximise: bool, tolerance: float = CLOSE
) -> float:
    """First measured number of episodes from which on the curve stays close to the optimum; inf if it never does."""
    arrived = math.inf
    for n, value in zip(reversed(episodes), reversed(values)):
        if value is None or not is_close(float(value), optimum, maximise, tolerance):
            break
        arrived = float(n)
    return arrived
