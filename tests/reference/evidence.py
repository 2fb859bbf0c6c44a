"""Slow, obvious twins of the evidence layer: exact polynomials, dictionaries and loops."""

from __future__ import annotations

from itertools import product
from math import inf, lgamma, log, pi

import numpy as np

from rpl_agent.core.model import Polynomial


def parts(table, labels, event):
    """The places of a row whose expressions consist of terms of the event, if they add up to it; else none."""
    terms = dict(event.terms)
    owns = [dict(table.polynomial(f).terms) for f in labels]
    places = [k for k, own in enumerate(owns) if own and all(terms.get(m) == c for m, c in own.items())]
    total = sum((table.polynomial(labels[k]) for k in places), start=Polynomial.constant(0))
    return places if total == event else []


def pooled(pmdp, transitions):
    """{frozenset{f, 1−f}: (successes of the smaller by text, trials)} straight from the definition."""
    result = pooled_alone(pmdp, transitions)
    alone = {r: set(pooled_alone(pmdp, transitions, (r,))) for r in range(pmdp.num_rows)}
    for pair in list(result):
        leader = min(pair, key=str)
        for r in range(pmdp.num_rows):
            span = range(pmdp.row_ptr[r], pmdp.row_ptr[r + 1])
            labels, visits = [int(pmdp.expression[t]) for t in span], int(sum(transitions[t] for t in span))
            for event in () if pair in alone[r] else sorted(pair, key=str):
                places = parts(pmdp.table, labels, event)
                if places:
                    hits = int(sum(transitions[span[k]] for k in places))
                    successes, trials = result[pair]
                    result[pair] = (successes + (hits if event == leader else visits - hits), trials + visits)
                    break
    return result


def pooled_alone(pmdp, transitions, rows=None):
    """The same from rows that have an event, or its complement, on one expression."""
    table = pmdp.table
    result: dict = {}
    for r in range(pmdp.num_rows) if rows is None else rows:
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
