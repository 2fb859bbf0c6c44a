"""The compiled step of many lanes at once. Every lane has a random state of its own."""

from __future__ import annotations

from rpl_agent.jit import Bools, Floats, Ints, Words, njit
from rpl_agent.model._random import draw, next_double

NEXT_STEP, SAME_STEP, DISABLED = 0, 1, 2


@njit(allocates=False)
def find_rows(state_ptr: Ints, row_action: Ints, states: Ints, actions: Ints, skip: Bools, rows: Ints) -> int:
    """Row of every lane's state and action; −1 where it is not enabled. Returns the first such lane, or −1."""
    bad = -1
    for i in range(len(states)):
        rows[i] = -1
        if skip[i]:
            continue
        for r in range(state_ptr[states[i]], state_ptr[states[i] + 1]):
            if row_action[r] == actions[i]:
                rows[i] = r
        if rows[i] < 0 and bad < 0:
            bad = i
    return bad


@njit(allocates=False)
def pass_silent(
    state_ptr: Ints,
    row_ptr: Ints,
    successor: Ints,
    cumulative: Floats,
    reward: Floats,
    silent: Bools,
    s: int,
    rng: Words,
) -> tuple[int, float]:
    """(state, reward) after the silent states that begin at s: a drawn start, or what is paid on the way."""
    paid = 0.0
    while silent[s]:
        r = state_ptr[s]
        paid += reward[r]
        u = next_double(rng) if row_ptr[r + 1] - row_ptr[r] > 1 else 0.0
        s = successor[draw(cumulative, row_ptr[r], row_ptr[r + 1], u)]
    return s, paid


@njit(allocates=False)
def step_lanes(
    state_ptr: Ints,
    row_ptr: Ints,
    successor: Ints,
    cumulative: Floats,
    reward: Floats,
    arrival: Floats,
    terminal: Bools,
    silent: Bools,
    initial: int,
    max_steps: int,
    mode: int,
    rows: Ints,
    rng: Words,
    states: Ints,
    steps: Ints,
    over: Bools,
    final: Ints,
    rewards: Floats,
    terminations: Bools,
    truncations: Bools,
) -> None:
    """Advance every lane by one step; a row of −1 is a lane that only resets (NEXT_STEP).

    ``over`` (N,) says which lanes ended with this step; ``final`` (N,) their last states, also where SAME_STEP has
    reset them already.
    """
    for i in range(len(states)):
        r = rows[i]
        if r < 0:
            s, _ = pass_silent(state_ptr, row_ptr, successor, cumulative, reward, silent, initial, rng[i])
            states[i] = final[i] = s
            steps[i] = 0
            rewards[i] = 0.0
            terminations[i] = truncations[i] = over[i] = False
            continue
        s = successor[draw(cumulative, row_ptr[r], row_ptr[r + 1], next_double(rng[i]))]
        s, paid = pass_silent(state_ptr, row_ptr, successor, cumulative, reward, silent, s, rng[i])
        steps[i] += 1
        rewards[i] = reward[r] + paid + arrival[s]
        terminations[i] = terminal[s]
        truncations[i] = max_steps > 0 and steps[i] >= max_steps
        over[i] = terminations[i] or truncations[i]
        final[i] = s
        if over[i] and mode == SAME_STEP:
            s, _ = pass_silent(state_ptr, row_ptr, successor, cumulative, reward, silent, initial, rng[i])
            steps[i] = 0
        states[i] = s


@njit(allocates=False)
def action_masks(state_ptr: Ints, row_action: Ints, states: Ints, out: Ints) -> None:
    """out (N, A) int8: 1 where an action is enabled."""
    out[:] = 0
    for i in range(len(states)):
        for r in range(state_ptr[states[i]], state_ptr[states[i] + 1]):
            out[i, row_action[r]] = 1
