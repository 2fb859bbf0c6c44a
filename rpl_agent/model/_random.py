"""Compiled sampling: xoshiro256++ with its state in a plain array, so that a run can be resumed bit-exactly."""

from __future__ import annotations

import numpy as np
from numba import uint64

from rpl_agent.jit import Bools, Floats, Ints, Words, njit


@njit(part=True)
def _rotate(x: np.uint64, k: int) -> np.uint64:
    return (x << uint64(k)) | (x >> uint64(64 - k))


@njit(allocates=False)
def next_double(state: Words) -> float:
    """Uniform in [0, 1) with 53 random bits; advances state (4,) uint64."""
    result = _rotate(state[0] + state[3], 23) + state[0]
    t = state[1] << uint64(17)
    state[2] ^= state[0]
    state[3] ^= state[1]
    state[1] ^= state[2]
    state[0] ^= state[3]
    state[2] ^= t
    state[3] = _rotate(state[3], 45)
    return (result >> uint64(11)) * (1.0 / 9007199254740992.0)


@njit()
def seed_state(seed: np.uint64) -> Words:
    """(4,) uint64 from a seed by splitmix64, the generator xoshiro's authors recommend for this."""
    state = np.empty(4, dtype=np.uint64)
    x = uint64(seed)
    for i in range(4):
        x += uint64(0x9E3779B97F4A7C15)
        z = x
        z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
        state[i] = z ^ (z >> uint64(31))
    return state


@njit(allocates=False)
def cumulate(pointer: Ints, weights: Floats, out: Floats) -> None:
    """Running sums of weights within each segment; the last positive one is exactly 1 so a draw always lands."""
    for i in range(len(pointer) - 1):
        total = 0.0
        last = pointer[i]
        for k in range(pointer[i], pointer[i + 1]):
            total += weights[k]
            out[k] = total
            if weights[k] > 0.0:
                last = k
        for k in range(last, pointer[i + 1]):
            out[k] = 1.0


@njit(allocates=False)
def draw(cumulative: Floats, low: int, high: int, u: float) -> int:
    """First index in [low, high) whose running sum exceeds u."""
    k = low
    while k < high - 1 and cumulative[k] <= u:
        k += 1
    return k


@njit(allocates=False)
def run_episodes(
    state_ptr: Ints,
    row_ptr: Ints,
    successor: Ints,
    expression: Ints,
    policy_cumulative: Floats,
    cumulative: Floats,
    reward: Floats,
    arrival: Floats,
    stop: Bools,
    silent: Bools,
    initial: int,
    max_steps: int,
    episodes: int,
    rng: Words,
    counts: Ints,
    row_count: Ints,
    row_limit: Ints,
    expression_count: Ints,
    expression_limit: Ints,
    returns: Floats,
    lengths: Ints,
) -> tuple[int, bool, int]:
    """Simulate until ``episodes`` are done or a count reached its limit; returns (episodes, stopped, cut).

    A silent state is passed without a step. ``cut`` counts the episodes that ended by ``max_steps``, in no stop state.

    A limit array of length 0 is not checked. The episode in which a limit is reached is finished.
    """
    watch_rows = len(row_limit) > 0
    watch_expressions = len(expression_limit) > 0
    stopped = False
    done = 0
    cut = 0
    while done < episodes and not stopped:
        s = initial
        total = 0.0
        steps = 0
        while (steps < max_steps or silent[s]) and not stop[s]:
            r = draw(policy_cumulative, state_ptr[s], state_ptr[s + 1], next_double(rng))
            t = draw(cumulative, row_ptr[r], row_ptr[r + 1], next_double(rng))
            counts[t] += 1
            total += reward[r]
            if watch_rows:
                row_count[r] += 1
                if row_count[r] >= row_limit[r]:
                    stopped = True
            if watch_expressions:
                f = expression[t]
                expression_count[f] += 1
                if expression_count[f] >= expression_limit[f]:
                    stopped = True
            if not silent[s]:
                steps += 1
            s = successor[t]
        if not stop[s]:
            cut += 1
        elif steps > 0:
            total += arrival[s]
        returns[done] = total
        lengths[done] = steps
        done += 1
    return done, stopped, cut
