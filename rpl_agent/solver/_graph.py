"""Compiled graph analysis: the sets in which a player can hold the play, leave for sure, or keep totals finite.

A *local model* has states 0..n-1 with rows and exits n..n+m-1 without; arrays are those of ParametricMDP. Graph
questions see nature only through bounds per transition: ``lo`` and ``hi`` (T,). Nature *can stay* in a set X at a row
if lo is 0 outside X and the sum of hi inside X is at least 1; both are decided exactly (`at_least_one`), which is right
for intervals and an over-approximation of nature's power for regions (bounds are then the hull).
"""

from __future__ import annotations

import numpy as np

from rpl_agent.jit import UNIT_ROUNDOFF, Bools, Floats, Ints, njit
from rpl_agent.relaxations._interval_rows import FEASIBILITY_TOLERANCE, at_least_one

#: who chooses the row of a state: the other side, oneself, or a fixed policy that draws it
ALL_ROWS, ANY_ROW, DRAWN_ROW = 0, 1, 2


@njit()
def _others_reach_one(t: int, a: int, b: int, bound: Floats, expression: Ints) -> bool:
    """Whether the bounds of a row's other transitions sum to at least 1."""
    terms = np.empty(b - a - 1)
    for j in range(a, b):
        if j != t:
            terms[j - a if j < t else j - a - 1] = bound[expression[j]]
    return at_least_one(terms)


@njit(nogil=True)
def attainable(lower: Floats, upper: Floats, expression: Ints, row_ptr: Ints) -> tuple[Floats, Floats]:
    """(lo, hi) (T,): bounds per transition, hi = 0 and lo > 0 exactly where no and every distribution of its row says
    so. A transition gets no mass where the others' lower bounds sum to 1, and some where their upper bounds do not."""
    T = expression.shape[0]
    lo = np.empty(T)
    hi = np.empty(T)
    for row in range(row_ptr.shape[0] - 1):
        a, b = row_ptr[row], row_ptr[row + 1]
        least = 0.0
        most = 0.0
        for t in range(a, b):
            lo[t] = lower[expression[t]]
            hi[t] = upper[expression[t]]
            least += lo[t]
            most += hi[t]
        margin = 4.0 * (b - a) * UNIT_ROUNDOFF
        for t in range(a, b):
            if lower[expression[t]] > 0.0 or upper[expression[t]] == 0.0:
                continue
            if least < 1.0 - margin and most - hi[t] > 1.0 + margin:
                continue
            if _others_reach_one(t, a, b, lower, expression):
                hi[t] = 0.0
            elif not _others_reach_one(t, a, b, upper, expression):
                lo[t] = min(max(1.0 - (most - hi[t]), 1e-300), hi[t])
    return lo, hi


@njit()
def _stays_exactly(row: int, inside: Bools, row_ptr: Ints, successor: Ints, hi: Floats) -> bool:
    """Whether the upper bounds inside the set sum to at least 1, where rounding leaves that open."""
    terms = np.empty(row_ptr[row + 1] - row_ptr[row])
    count = 0
    for t in range(row_ptr[row], row_ptr[row + 1]):
        if inside[successor[t]]:
            terms[count] = hi[t]
            count += 1
    return at_least_one(terms[:count])


@njit(allocates=False)
def _stays(row: int, inside: Bools, row_ptr: Ints, successor: Ints, lo: Floats, hi: Floats) -> bool:
    """Whether nature can keep all mass of the row inside the set."""
    mass = 0.0
    leaves = False
    count = 0
    for t in range(row_ptr[row], row_ptr[row + 1]):
        if inside[successor[t]]:
            mass += hi[t]
            count += 1
        elif lo[t] > 0.0:
            return False
        elif hi[t] > 0.0:
            leaves = True
    if not leaves:  # all of the row's mass, whatever rounding made of its bounds
        return mass >= 1.0 - FEASIBILITY_TOLERANCE
    if abs(mass - 1.0) > 4.0 * count * UNIT_ROUNDOFF:
        return mass > 1.0
    return _stays_exactly(row, inside, row_ptr, successor, hi)


@njit(nogil=True)
def staying_rows(inside: Bools, row_ptr: Ints, lo: Floats, hi: Floats) -> Bools:
    """(R,) whether nature can keep all mass of each row on the transitions marked in ``inside`` (T,)."""
    each = np.arange(inside.shape[0])
    out = np.empty(row_ptr.shape[0] - 1, np.bool_)
    for row in range(row_ptr.shape[0] - 1):
        out[row] = _stays(row, inside, row_ptr, each, lo, hi)
    return out


@njit(allocates=False)
def _only(row: int, inside: Bools, row_ptr: Ints, successor: Ints, hi: Floats) -> bool:
    """Whether every distribution of the row stays inside the set."""
    for t in range(row_ptr[row], row_ptr[row + 1]):
        if hi[t] > 0.0 and not inside[successor[t]]:
            return False
    return True


@njit(allocates=False)
def _touches(row: int, inside: Bools, row_ptr: Ints, successor: Ints, hi: Floats) -> bool:
    """Whether some distribution of the row puts mass on the set."""
    for t in range(row_ptr[row], row_ptr[row + 1]):
        if hi[t] > 0.0 and inside[successor[t]]:
            return True
    return False


@njit()
def _sources(state_ptr: Ints, row_ptr: Ints, successor: Ints, size: int) -> tuple[Ints, Ints]:
    """The states that lead to each state j: sources[first[j]:first[j + 1]]."""
    first = np.zeros(size + 1, np.int64)
    for t in range(successor.shape[0]):
        first[successor[t] + 1] += 1
    for j in range(size):
        first[j + 1] += first[j]
    place = first[:-1].copy()
    sources = np.empty(successor.shape[0], np.int32)
    for s in range(state_ptr.shape[0] - 1):
        for t in range(row_ptr[state_ptr[s]], row_ptr[state_ptr[s + 1]]):
            sources[place[successor[t]]] = s
            place[successor[t]] += 1
    return first, sources


@njit()
def _everything(members: Bools, n: int) -> tuple[Ints, Bools, int]:
    """A queue (a ring of n) of all states that are members, with marks of those that wait in it."""
    queue = np.empty(n, np.int64)
    waiting = np.zeros(n, np.bool_)
    count = 0
    for s in range(n - 1, -1, -1):  # models are mostly numbered along the play: look at its end first
        if members[s]:
            queue[count] = s
            waiting[s] = True
            count += 1
    return queue, waiting, count


@njit(allocates=False)
def _pop(queue: Ints, waiting: Bools, head: int, count: int) -> tuple[int, int, int]:
    """(the state that waited longest, new head, new length)."""
    s = queue[head]
    waiting[s] = False
    return s, (head + 1) % queue.shape[0], count - 1


@njit(allocates=False)
def _enqueue(
    s: int, members: Bools, first: Ints, sources: Ints, queue: Ints, waiting: Bools, head: int, count: int
) -> int:
    """Look again at the members that lead to s; the new length of the queue."""
    for e in range(first[s], first[s + 1]):
        u = sources[e]
        if members[u] and not waiting[u]:
            queue[(head + count) % queue.shape[0]] = u
            waiting[u] = True
            count += 1
    return count


@njit(nogil=True)
def hold_set(
    state_ptr: Ints, row_ptr: Ints, successor: Ints, lo: Floats, hi: Floats, usable: Ints, quantifier: int, start: Bools
) -> Bools:
    """The largest subset of ``start`` in which the play can be held for ever.

    Parameters
    ----------
    lo, hi : (T,) float64
        Bounds of a nature that wants to hold; a nature that does not is given by lo = hi = its distribution, or by
        lo = hi > 0 wherever it may put mass.
    usable : (R,) int8
        2: the row may be used for holding, 1: it is played but never holds (it pays), 0: it is not played.
    quantifier : int
        ANY_ROW: one usable row per state suffices; ALL_ROWS: every played row must stay.
    start : (n + m,) bool

    Returns
    -------
    (n + m,) bool
    """
    inside = start.copy()
    first, sources = _sources(state_ptr, row_ptr, successor, start.shape[0])
    queue, waiting, count = _everything(inside, state_ptr.shape[0] - 1)
    head = 0
    while count > 0:
        s, head, count = _pop(queue, waiting, head, count)
        good = quantifier == ALL_ROWS
        for row in range(state_ptr[s], state_ptr[s + 1]):
            if usable[row] == 0:
                continue
            stays = usable[row] == 2 and _stays(row, inside, row_ptr, successor, lo, hi)
            if quantifier == ANY_ROW and stays:
                good = True
                break
            if quantifier == ALL_ROWS and not stays:
                good = False
                break
        if not good:
            inside[s] = False
            count = _enqueue(s, inside, first, sources, queue, waiting, head, count)
    return inside


@njit(allocates=False)
def _keeps_finite(
    s: int,
    state_ptr: Ints,
    row_ptr: Ints,
    successor: Ints,
    lo: Floats,
    hi: Floats,
    played: Bools,
    pays: Bools,
    quantifier: int,
    nature_helps: bool,
    must_reach: bool,
    X: Bools,
    Y: Bools,
    Z: Bools,
    elsewhere: Bools,
) -> bool:
    """Whether a state stays in X and comes nearer to Y or, where that suffices, loops in Z (which holds Y) unpaid."""
    good = quantifier != ANY_ROW
    progress = False
    quiet = True
    for row in range(state_ptr[s], state_ptr[s + 1]):
        if not played[row]:
            continue
        if nature_helps:
            safe = _stays(row, X, row_ptr, successor, lo, hi)
            hits = safe and _touches(row, Y, row_ptr, successor, hi)
        else:
            safe = _only(row, X, row_ptr, successor, hi)
            hits = not _stays(row, elsewhere, row_ptr, successor, lo, hi)
        loops = False
        if not must_reach and not pays[row]:
            if nature_helps:
                loops = _stays(row, Z, row_ptr, successor, lo, hi)
            else:
                loops = _only(row, Z, row_ptr, successor, hi)
        if quantifier == DRAWN_ROW:  # a policy that draws rows: all safe; one hits, or all are quiet
            good = good and safe
            progress = progress or hits
            quiet = quiet and loops
            continue
        fine = safe and (hits or loops)
        if quantifier == ANY_ROW and fine:
            return True
        if quantifier == ALL_ROWS and not fine:
            return False
    return good and (progress or quiet) if quantifier == DRAWN_ROW else good


@njit(nogil=True)
def finite_set(
    state_ptr: Ints,
    row_ptr: Ints,
    successor: Ints,
    lo: Floats,
    hi: Floats,
    played: Bools,
    pays: Bools,
    quantifier: int,
    nature_helps: bool,
    must_reach: bool,
    goal: Bools,
    start: Bools,
) -> Bools:
    """States from which the minimiser keeps the total finite.

    With ``must_reach``: it can reach the goal almost surely (nu X. mu Y). Without: it can almost surely reach the
    goal or, from some point on, loop without paying (nu X. mu Y. nu Z).

    Parameters
    ----------
    played : (R,) bool
        Rows in play (all of them, or those of a fixed policy).
    pays : (R,) bool
        Rows with a positive reward.
    quantifier : int
        ANY_ROW: the minimiser chooses the row. ALL_ROWS: the other side does. DRAWN_ROW: a fixed policy draws it.
    nature_helps : bool
        Whether nature is the minimiser.
    goal, start : (n + m,) bool
        goal: exits with finite value; start: states that may be finite (goal included).
    """
    n = state_ptr.shape[0] - 1
    X = start.copy()
    first, sources = _sources(state_ptr, row_ptr, successor, start.shape[0])
    possible = (hi > 0.0).astype(np.float64)  # a nature that does not help stays only where it has no way out
    held_lo, held_hi = (lo, hi) if nature_helps else (possible, possible)
    held_by = ANY_ROW if quantifier == ANY_ROW else ALL_ROWS
    usable = np.zeros(played.shape[0], np.int8)
    for row in range(played.shape[0]):  # np.where would compile numba's strings, for an error that cannot occur
        if played[row]:
            usable[row] = 2
    while True:
        Y = goal.copy()
        elsewhere = ~Y
        grown = True
        while grown:
            grown = False
            Z = X | Y
            open_states = Z & elsewhere  # still to be decided
            queue, waiting, count = _everything(open_states, n)
            head = 0
            while count > 0:
                s, head, count = _pop(queue, waiting, head, count)
                good = _keeps_finite(
                    s, state_ptr, row_ptr, successor, lo, hi, played, pays, quantifier, nature_helps, must_reach, X, Y,
                    Z, elsewhere,
                )  # fmt: skip
                if must_reach and good:
                    Y[s] = True
                    elsewhere[s] = False
                elif not must_reach and not good:
                    Z[s] = False
                else:
                    continue
                open_states[s] = False
                count = _enqueue(s, open_states, first, sources, queue, waiting, head, count)
            if not must_reach:
                for s in range(n):
                    if Z[s] and not Y[s]:
                        Y[s] = True
                        elsewhere[s] = False
                        grown = True
        same = True
        for s in range(n):
            if X[s] and not Y[s]:
                X[s] = False
                same = False
        if same:
            return X
        # States that cannot stay in X go at once, not layer by layer.
        X = hold_set(state_ptr, row_ptr, successor, held_lo, held_hi, usable, held_by, X)


@njit(nogil=True)
def progress_rows(
    state_ptr: Ints,
    row_ptr: Ints,
    successor: Ints,
    lo: Floats,
    hi: Floats,
    preferred: Bools,
    allowed: Bools,
    pays: Bools,
    adversary: bool,
    rows: Ints,
) -> int:
    """Choose rows that leave: extend an attractor of the exits, preferred rows first.

    Parameters
    ----------
    lo, hi : (T,) float64
        Bounds of nature; where nature is on the chooser's side, lo = hi = its distribution.
    preferred, allowed : (R,) bool
    pays : (R,) bool
        Rows that count as progress whatever follows.
    adversary : bool
        Whether nature may avoid the attractor (lo, hi are then its bounds).
    rows : (n,) int64
        Written: the row of every state that was attracted; the others keep their entry.

    Returns
    -------
    int
        Number of states not attracted.
    """
    n = state_ptr.shape[0] - 1
    size = n
    for t in range(successor.shape[0]):
        size = max(size, successor[t] + 1)
    inside = np.zeros(size, np.bool_)
    for s in range(n, size):
        inside[s] = True
    outside = ~inside
    left = n
    first, sources = _sources(state_ptr, row_ptr, successor, size)
    for stage in range(2):
        queue, waiting, count = _everything(outside, n)
        head = 0
        while count > 0:
            s, head, count = _pop(queue, waiting, head, count)
            for row in range(state_ptr[s], state_ptr[s + 1]):
                if not allowed[row] or (stage == 0 and not preferred[row]):
                    continue
                if adversary:
                    leaves = not _stays(row, outside, row_ptr, successor, lo, hi)
                else:
                    leaves = _touches(row, inside, row_ptr, successor, hi)
                if pays[row] or leaves:
                    rows[s] = row
                    inside[s] = True
                    outside[s] = False
                    left -= 1
                    count = _enqueue(s, outside, first, sources, queue, waiting, head, count)
                    break
    return left
