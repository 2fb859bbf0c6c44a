"""Slow, obvious twins of the evidence layer: exact polynomials, dictionaries and loops."""

from __future__ import annotations

from itertools import product
from math import inf, lgamma, log, pi

import numpy as np

from rpl_agent.core.model import Polynomial


def pooled(pmdp, transitions):
    """{frozenset{f, 1−f}: (successes of the smaller by text, trials)} straight from the definition."""
    table = pmdp.table
    result: dict = {}
    for r in range(pmdp.num_rows):
        span = range(pmdp.row_ptr[r], pmdp.row_ptr[r + 1])
        visits = int(sum(transitions[t] for t in span))
        groups: dict[int, list[int]] = {}
        for t in span:
            groups.setdefault(int(pmdp.expression[t]), []).append(t)
        done = set()
        for f, members in groups.items():
            event = table.polynomial(f) * len(members)
            if event.is_constant:
                continue
            other = Polynomial.constant(1) - event
            pair = frozenset((event, other))
            if pair in done:
                continue
            done.add(pair)
            hits = int(sum(transitions[t] for t in members))
            leader = min((event, other), key=str)
            successes, trials = result.get(pair, (0, 0))
            result[pair] = (successes + (hits if event == leader else visits - hits), trials + visits)
    return result


def anytime_log_martingale(p, k, n):
    """log M(p) of the Beta(½,½) mixture."""
    value = lgamma(k + 0.5) + lgamma(n - k + 0.5) - lgamma(n + 1) - log(pi)
    if k:
        value -= k * log(p) if p > 0 else -inf
    if n - k:
        value -= (n - k) * log(1 - p) if p < 1 else -inf
    return value


def negative_log_likelihood(constant, weights, counts, x):
    """g(x) = −Σ K_f ln f[x], term by term."""
    total = 0.0
    for c, b, k in zip(constant, weights, counts):
        if k:
            value = c + float(np.dot(b, x))
            total -= k * log(value) if value > 0 else -inf
    return total


def sequences(actions, outcomes, steps):
    """All sequences of outcome indices under an adaptive rule ``actions(history) -> row``."""
    for choice in product(range(outcomes), repeat=steps):
        history, rows = [], []
        for outcome in choice:
            rows.append(actions(history))
            history.append((rows[-1], outcome))
        yield history
