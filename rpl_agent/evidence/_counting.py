"""Compiled loops of the evidence layer: arrays in, ``out`` arrays written, no classes.

Skeleton arrays are those of `ParametricMDP`: ``state_ptr`` (S+1,), ``action`` (R,), ``row_ptr`` (R+1,),
``successor`` (T,), ``expression`` (T,).
"""

from __future__ import annotations

from math import exp, lgamma, log, log1p

import numpy as np

from rpl_agent.jit import Bools, Floats, Ints, int64, njit

NO_ROW = -1
NO_SUCCESSOR = -2


@njit(allocates=False)
def locate(
    states: Ints,
    actions: Ints,
    successors: Ints,
    state_ptr: Ints,
    action: Ints,
    row_ptr: Ints,
    successor: Ints,
    out: Ints,
) -> None:
    """Transition index of each record (s, a, s'); NO_ROW or NO_SUCCESSOR where the model has none."""
    for k in range(len(states)):
        s = states[k]
        found = int64(NO_ROW)
        if 0 <= s < len(state_ptr) - 1:
            for r in range(state_ptr[s], state_ptr[s + 1]):
                if action[r] == actions[k]:
                    found = int64(NO_SUCCESSOR)
                    for t in range(row_ptr[r], row_ptr[r + 1]):
                        if successor[t] == successors[k]:
                            found = t
                            break
                    break
        out[k] = found


@njit()
def multiplicities(row_ptr: Ints, expression: Ints, num_expressions: int, out: Ints) -> None:
    """out[t] = how many successors of t's row carry t's expression, at its first place; 0 at the others."""
    last = np.full(num_expressions, -1, dtype=np.int64)
    first = np.zeros(num_expressions, dtype=np.int64)
    for r in range(len(row_ptr) - 1):
        for t in range(row_ptr[r], row_ptr[r + 1]):
            f = expression[t]
            if last[f] == r:
                out[first[f]] += 1
                out[t] = 0
            else:
                last[f] = r
                first[f] = t
                out[t] = 1


@njit(allocates=False)
def pool_events(
    row_ptr: Ints,
    group_of: Ints,
    transitions: Ints,
    event_of: Ints,
    positive: Bools,
    hits: Ints,
    seen: Ints,
    successes: Ints,
    trials: Ints,
) -> None:
    """Pooled successes and trials per event.

    ``group_of`` (T,) group of a transition (its expression, or its expression with multiplicity);
    ``event_of`` (G,) event of a group or −1 (constant); ``positive`` (G,) whether observing the group is
    the event or its complement. ``hits`` (G,) zeros and ``seen`` (E,) filled with −1 are scratch. A row
    that carries both an event and its complement is one trial.
    """
    for r in range(len(row_ptr) - 1):
        n = 0
        for t in range(row_ptr[r], row_ptr[r + 1]):
            n += transitions[t]
            hits[group_of[t]] += transitions[t]
        if n == 0:
            continue
        for t in range(row_ptr[r], row_ptr[r + 1]):
            g = group_of[t]
            e = event_of[g]
            if e >= 0 and seen[e] != r:
                seen[e] = r
                trials[e] += n
                successes[e] += hits[g] if positive[g] else n - hits[g]
        for t in range(row_ptr[r], row_ptr[r + 1]):
            hits[group_of[t]] = 0


@njit(allocates=False)
def _anytime_lower(k: float, n: float, excess: float) -> float:
    """A point below {p : −k ln p − (n−k) ln(1−p) < excess}, at its end up to rounding, for k > 0.

    With q = ln p the left side is convex, and the start drops its second term, so it lies outside: Newton
    from outside a convex level set stays outside and converges monotonically.
    """
    q = min(-excess / k, -1e-300)
    for _ in range(60):
        p = exp(q)
        value = -k * q - (n - k) * log1p(-p) - excess
        slope = -k + (n - k) * p / (1.0 - p)
        if value <= 0.0 or slope >= 0.0:
            break
        q -= value / slope
        if value < 1e-4:  # what is left is about its square, in nats, and outside still
            break
    return exp(q)


@njit(allocates=False)
def anytime_bounds(successes: Floats, trials: Floats, log_threshold: float, lower: Floats, upper: Floats) -> None:
    """Ends of {p : log M(p) < log_threshold} for the Beta(½,½) mixture martingale M, on the outside."""
    for i in range(len(successes)):
        k = successes[i]
        n = trials[i]
        lower[i] = 0.0
        upper[i] = 1.0
        if n <= 0.0:
            continue
        log_beta = lgamma(k + 0.5) + lgamma(n - k + 0.5) - lgamma(n + 1.0) - log(np.pi)
        # lgamma and the logarithms carry relative errors of a few ulp of terms of size n: widen by more
        excess = log_threshold - log_beta + 1e-13 * n + 1e-12
        if k > 0.0:
            lower[i] = _anytime_lower(k, n, excess)
        if k < n:
            upper[i] = 1.0 - _anytime_lower(n - k, n, excess)


@njit(allocates=False)
def sort_rows(row_ptr: Ints, expression: Ints, out: Ints) -> None:
    """out (T,) the expressions of every row in ascending order."""
    for r in range(len(row_ptr) - 1):
        for t in range(row_ptr[r], row_ptr[r + 1]):
            k = t
            f = expression[t]
            while k > row_ptr[r] and out[k - 1] > f:
                out[k] = out[k - 1]
                k -= 1
            out[k] = f
