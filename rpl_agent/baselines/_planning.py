"""Compiled planning of the tabular baselines: Gauss-Seidel value iteration."""

from __future__ import annotations

import numpy as np

from rpl_agent.jit import Bools, Floats, Ints, njit


@njit()
def postorder(state_ptr: Ints, row_ptr: Ints, successor: Ints, initial: int) -> Ints:
    """States in depth-first postorder, the initial state's tree first: in an acyclic model successors come first."""
    n = len(state_ptr) - 1
    order = np.empty(n, dtype=np.int64)
    seen = np.zeros(n, dtype=np.bool_)
    stack = np.empty(n, dtype=np.int64)
    cursor = np.empty(n, dtype=np.int64)
    done = 0
    for k in range(n + 1):
        root = initial if k == 0 else k - 1
        if seen[root]:
            continue
        depth = 0
        stack[0] = root
        cursor[0] = row_ptr[state_ptr[root]]
        seen[root] = True
        while depth >= 0:
            s = stack[depth]
            t = cursor[depth]
            if t < row_ptr[state_ptr[s + 1]]:
                cursor[depth] = t + 1
                following = successor[t]
                if not seen[following]:
                    seen[following] = True
                    depth += 1
                    stack[depth] = following
                    cursor[depth] = row_ptr[state_ptr[following]]
            else:
                order[done] = s
                done += 1
                depth -= 1
    return order


@njit(allocates=False)
def optimistic_expectation(
    low: int,
    high: int,
    successor: Ints,
    probability: Floats,
    values: Floats,
    radius: float,
    bonus: float,
    maximise: bool,
    work: Floats,
) -> float:
    """Best expectation of ``values`` over the L1 ball of a radius around a row's distribution, plus a bonus.

    The L1 part is UCRL2's inner maximisation: move radius/2 of mass to the best successor, taking it from
    the worst ones. The bonus is multiplied with the range of values and never leads past the best successor.
    ``work`` is scratch of at least the row's length.
    """
    best = low
    worst = low
    for t in range(low, high):
        work[t - low] = probability[t]
        v = values[successor[t]]
        if (v > values[successor[best]]) == maximise and v != values[successor[best]]:
            best = t
        if (v < values[successor[worst]]) == maximise and v != values[successor[worst]]:
            worst = t
    top = values[successor[best]]
    bottom = values[successor[worst]]
    if top == bottom:
        return top
    if radius > 0.0:
        excess = min(0.5 * radius, 1.0 - work[best - low])
        work[best - low] += excess
        while excess > 1e-15:
            # the worst successor that still has mass to give
            giver = -1
            for t in range(low, high):
                if t != best and work[t - low] > 0.0:
                    if giver < 0 or (values[successor[t]] < values[successor[giver]]) == maximise:
                        giver = t
            if giver < 0:
                break
            taken = min(excess, work[giver - low])
            work[giver - low] -= taken
            excess -= taken
            if taken <= 0.0:
                break
    total = 0.0
    for t in range(low, high):
        total += work[t - low] * values[successor[t]]
    if bonus > 0.0:
        total += bonus * (top - bottom)
        if maximise:
            total = min(total, top)
        else:
            total = max(total, top)
    return total


@njit()
def value_iteration(
    state_ptr: Ints,
    row_ptr: Ints,
    successor: Ints,
    order: Ints,
    decided: Bools,
    reward: Floats,
    discount: float,
    probability: Floats,
    radius: Floats,
    bonus: Floats,
    maximise: bool,
    tolerance: float,
    max_sweeps: int,
    values: Floats,
    rows: Ints,
) -> int:
    """Gauss-Seidel sweeps in ``order`` until nothing moves; writes ``values`` (S,) and the greedy ``rows`` (S,).

    ``values`` holds the start and the fixed values of decided states. Returns the number of sweeps.
    """
    longest = 0
    for r in range(len(row_ptr) - 1):
        longest = max(longest, row_ptr[r + 1] - row_ptr[r])
    work = np.empty(longest)
    for sweep in range(max_sweeps):
        change = 0.0
        scale = 1.0
        for i in range(len(order)):
            s = order[i]
            if decided[s]:
                rows[s] = state_ptr[s]
                continue
            best_row = state_ptr[s]
            best = 0.0
            for r in range(state_ptr[s], state_ptr[s + 1]):
                value = reward[r] + discount * optimistic_expectation(
                    row_ptr[r], row_ptr[r + 1], successor, probability, values, radius[r], bonus[r], maximise, work
                )
                better = value > best + 1e-12 if maximise else value < best - 1e-12
                if r == state_ptr[s] or better:
                    best = value
                    best_row = r
            rows[s] = best_row
            change = max(change, abs(best - values[s]))
            scale = max(scale, abs(best))
            values[s] = best
        if change <= tolerance * scale:
            return sweep + 1
    return max_sweeps
