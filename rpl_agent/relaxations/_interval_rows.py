"""Compiled rows of interval models and known MDPs; closed forms for two and three successors.

Rounding, with u = 2**-53. A sum of n terms of one sign has a relative error of at most (n + 3) u; the last addition
adds u |result|. Products may underflow: u `FAINT` covers that wherever mass lies above the smallest value, so that no
bound from above is 0 where the mean is not. Filling up intervals computes the remaining mass with an absolute error of
at most n u (none where the subtractions are exact), which lands on the successor where the mass ran out. So rows that
put all their mass on equal values are exact: end components and sinks keep their values to the last bit. A row whose
bounds miss a distribution by rounding leaves a little mass undecided: it goes to the side that is being bounded.

A ``part`` becomes part of the loop that calls it, because a call would cost more than the arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpl_agent.jit import FAINT, UNIT_ROUNDOFF, Floats, Ints, njit

if TYPE_CHECKING:
    from rpl_agent.relaxations.row_set import Scratch


#: Bounds of a whole row may miss a distribution by this much: rounding of data, never used to decide between sets.
FEASIBILITY_TOLERANCE = 1e-9
#: Rows up to this length are sorted by plain insertion; longer ones in larger strides first.
INSERTION_LIMIT = 48


@njit(allocates=False)
def _sign_of_sum(terms: Floats) -> float:
    """The sign of a sum of floats, without rounding; ``terms`` is overwritten.

    Each pass replaces neighbours by their rounded sum and its exact error, which leaves the sum unchanged, until the
    last term outweighs all errors.
    """
    n = terms.shape[0]
    while True:
        rest = 0.0
        for i in range(1, n):
            a, b = terms[i - 1], terms[i]
            total = a + b
            part = total - a
            terms[i - 1] = (a - (total - part)) + (b - part)
            terms[i] = total
            rest += abs(terms[i - 1])
        if rest == 0.0 or abs(terms[n - 1]) > 2.0 * rest:
            return np.sign(terms[n - 1])


@njit()
def at_least_one(terms: Floats) -> bool:
    """Whether non-negative floats sum to at least 1, exactly: which plays never end must not hang on rounding."""
    n = terms.shape[0]
    total = 0.0
    for i in range(n):
        total += terms[i]
    if abs(total - 1.0) > 4.0 * n * UNIT_ROUNDOFF:
        return total > 1.0
    exact = np.empty(n + 1)
    exact[0] = -1.0
    for i in range(n):
        exact[i + 1] = terms[i]
    return _sign_of_sum(exact) >= 0.0


@njit(part=True)
def sort_row(
    a: int,
    b: int,
    values: Floats,
    cap: float,
    sign: float,
    successor: Ints,
    expression: Ints,
    upper: Floats,
    keys: Floats,
    order: Ints,
) -> int:
    """Sort sign * min(value, cap) of the possible transitions of a..b ascending into keys, their numbers into order.

    Returns how many there are: successors with upper bound 0 do not count.
    """
    n = 0
    short = b - a <= INSERTION_LIMIT
    for t in range(a, b):
        if upper[expression[t]] > 0.0:
            x = values[successor[t]]
            x = sign * (cap if x > cap else x)
            j = n - 1
            while short and j >= 0 and keys[j] > x:
                keys[j + 1] = keys[j]
                order[j + 1] = order[j]
                j -= 1
            keys[j + 1] = x
            order[j + 1] = t
            n += 1
    if short:
        return n
    stride = 1
    while stride < n // INSERTION_LIMIT:
        stride = 3 * stride + 1
    while stride > 0:
        for i in range(stride, n):
            x = keys[i]
            t = order[i]
            j = i - stride
            while j >= 0 and keys[j] > x:
                keys[j + stride] = keys[j]
                order[j + stride] = order[j]
                j -= stride
            keys[j + stride] = x
            order[j + stride] = t
        stride //= 3
    return n


@njit(allocates=False)
def pair_bound(
    x: float, y: float, lower_x: float, upper_x: float, lower_y: float, upper_y: float, maximise: bool, upward: bool
) -> float:
    """The bound of a row with two successors of finite values x and y, in closed form; numbers only.

    The share of the larger value carries a relative error only, so a share of 0 gives an exact result.
    """
    if maximise:
        x, y = -x, -y
    # which one is larger is not foreseeable: numbers are selected, not branches
    low, high = x if x < y else y, y if x < y else x
    lower_low, upper_low = lower_x if x < y else lower_y, upper_x if x < y else upper_y
    lower_high, upper_high = lower_y if x < y else lower_x, upper_y if x < y else upper_x
    # the larger value gets as little as its own lower bound and the other's upper bound allow
    share = max(lower_high, 1.0 - upper_low)
    most = min(upper_high, 1.0 - lower_low)
    total = share * (high - low)
    result = low + total
    error = UNIT_ROUNDOFF * (8.0 * total + 2.0 * abs(result) + FAINT)
    if share > most:  # bounds that miss a distribution by rounding
        error += (share - most) * (high - low)
    if share == 0.0 or high == low:
        error = 0.0
    if upper_low == 0.0 or (lower_high >= 1.0 and lower_low == 0.0):  # beside 1e-20, 1 is 1 - 1e-20, rounded
        result = high
        error = 0.0
    result = result - error if upward == maximise else result + error
    result = high if result > high else result
    result = low if result < low else result
    return -result if maximise else result


@njit(allocates=False)
def _surely_one(x: float, y: float, z: float) -> bool:
    """Whether x + y + z >= 1, exactly; False in cases too close to call. Numbers only, for `triple_bound`."""
    total = x + y
    part = total - x
    first = (x - (total - part)) + (y - part)
    whole = total + z
    part = whole - total
    second = (total - (whole - part)) + (z - part)
    surplus = (whole - 1.0) + (first + second)
    return surplus > 1e-30 or (surplus >= 0.0 and (first == 0.0 or second == 0.0))


@njit(allocates=False)
def triple_bound(
    x: float,
    y: float,
    z: float,
    lx: float,
    ux: float,
    ly: float,
    uy: float,
    lz: float,
    uz: float,
    maximise: bool,
    upward: bool,
) -> float:
    """The bound of a row with three possible successors of finite values, in closed form; numbers only.

    NaN where it does not apply: a value is infinite, a successor impossible, or the lower bounds leave nothing over.
    Sorted by value, the largest gets the least it can, then the middle one. The two subtractions are exact or carry
    an absolute error of a few u, which is charged to the span over which that mass may move.
    """
    if not (ux > 0.0 and uy > 0.0 and uz > 0.0 and lx + ly + lz < 1.0 and x < np.inf and y < np.inf and z < np.inf):
        return np.nan
    if maximise:
        x, y, z = -x, -y, -z
    if y < x:
        x, lx, ux, y, ly, uy = y, ly, uy, x, lx, ux
    if z < y:
        y, ly, uy, z, lz, uz = z, lz, uz, y, ly, uy
    if y < x:
        x, lx, ux, y, ly, uy = y, ly, uy, x, lx, ux
    left = 1.0 - ux
    top = max(lz, left - uy)
    middle = max(ly, left - top)
    total = middle * (y - x) + top * (z - x)
    error = 12.0 * UNIT_ROUNDOFF * total
    if top > uz:  # upper bounds that miss a distribution by rounding
        error += (top - uz) * (z - x)
    if not (1.0 - left == ux and (top == lz or left - top == uy) and (middle == ly or left - middle == top)):
        error += 8.0 * UNIT_ROUNDOFF * (y - x)
        if not _surely_one(ux, uy, lz):  # else the largest gets its lower bound
            error += 8.0 * UNIT_ROUNDOFF * (z - x)
    result = x
    if error > 0.0 or (middle > 0.0 and y > x) or (top > 0.0 and z > x):
        result = x + total
        error += UNIT_ROUNDOFF * (2.0 * abs(result) + FAINT)
        result = result - error if upward == maximise else result + error
        result = z if result > z else result
        result = x if result < x else result
    return -result if maximise else result


@njit()
def _last_filled(i: int, n: int, expression: Ints, lower: Floats, upper: Floats, order: Ints) -> int:
    """Where the mass of a sorted row runs out, exactly, if not before position i."""
    terms = np.empty(n)
    for j in range(n):
        f = expression[order[j]]
        terms[j] = upper[f] if j <= i else lower[f]
    while i + 1 < n and not at_least_one(terms):
        i += 1
        terms[i] = upper[expression[order[i]]]
    return i


@njit(part=True)
def fill_row(n: int, upward: bool, expression: Ints, lower: Floats, upper: Floats, keys: Floats, order: Ints) -> float:
    """Bound of min sum p_i keys_i over the intervals of a sorted row, from below or (``upward``) from above.

    ``exact`` follows whether every subtraction from the remaining mass was exact; if not, the mass is off by at most
    n u, which moves between the successors up to the one where it runs out, exactly.
    """
    low = keys[0]
    high = keys[n - 1]
    rest = 1.0
    total = 0.0
    exact = True
    forced = low  # the largest value that must get mass
    for i in range(n):
        lo = lower[expression[order[i]]]
        if lo > 0.0:
            forced = keys[i]
            exact = exact and rest - (rest - lo) == lo
            rest -= lo
            total += lo * (keys[i] - low)
    if rest == 0.0 and exact:  # nothing to distribute: successors with lower bound 0 get nothing
        high = -np.inf
        for i in range(n):
            if lower[expression[order[i]]] > 0.0:
                if high == -np.inf:
                    low = keys[i]
                    total = 0.0
                high = keys[i]
                total += lower[expression[order[i]]] * (high - low)
    moved = high
    undecided = max(-rest, 0.0)  # by lower bounds; further down, by upper bounds
    for i in range(n):
        f = expression[order[i]]
        room = upper[f] - lower[f]
        share = min(room, max(rest, 0.0))
        total += share * (keys[i] - low)
        exact = exact and (lower[f] == 0.0 or room + lower[f] == upper[f])
        if share >= rest:
            slack = room - share
            rest = 0.0
            moved = keys[i]
            if slack <= 8.0 * n * UNIT_ROUNDOFF and not exact:
                moved = keys[_last_filled(i, n, expression, lower, upper, order)]
            break
        exact = exact and rest - (rest - share) == share
        rest -= share
    undecided = max(undecided, rest)
    error = UNIT_ROUNDOFF * (2.0 * n + 12.0) * total
    if not exact:
        error += UNIT_ROUNDOFF * 4.0 * n * (moved - low)
    error += undecided * (high - low)
    result = low
    if low < high and (forced > low or moved > low or undecided > 0.0):
        result = low + total
        error += UNIT_ROUNDOFF * (2.0 * abs(result) + FAINT)
        result = min(result + error, high) if upward else min(max(result - error, low), high)
    return result


@njit()
def largest_finite(
    a: int, b: int, values: Floats, maximise: bool, successor: Ints, expression: Ints, lower: Floats, upper: Floats
) -> tuple[bool, float]:
    """(infinite, cap) of a row with infinite successors.

    ``infinite``: the extremum over the intervals is inf. Nature minimising: mass must go there. Maximising: it can.
    ``cap``: the largest finite value, by which others may be replaced where the extremum is finite; -inf: none.
    """
    terms = np.empty(b - a)  # bounds of successors of finite value: can the mass go there alone?
    kept = 0
    forced = False
    possible = False
    cap = -np.inf
    for t in range(a, b):
        f = expression[t]
        v = values[successor[t]]
        if v == np.inf:
            forced = forced or lower[f] > 0.0
            possible = possible or upper[f] > 0.0
        else:
            terms[kept] = lower[f] if maximise else upper[f]
            kept += 1
            cap = max(cap, v)
    if kept == 0:
        return True, cap
    if forced or not possible:
        return forced, cap
    return not at_least_one(terms[:kept]), cap


@njit(part=True)
def hull_bound(
    a: int,
    b: int,
    values: Floats,
    cap: float,
    maximise: bool,
    upward: bool,
    successor: Ints,
    expression: Ints,
    lower: Floats,
    upper: Floats,
    scratch: Scratch,
) -> float:
    """Bound of the extremum of sum p_i min(values, cap) over intervals, for a row of three or more; inf as in
    `largest_finite`, unless values above ``cap`` have been dealt with."""
    sign = -1.0 if maximise else 1.0
    bound = np.nan
    if b - a == 3:
        f, g, h = expression[a], expression[a + 1], expression[a + 2]
        x, y, z = values[successor[a]], values[successor[a + 1]], values[successor[a + 2]]
        bound = triple_bound(
            cap if x > cap else x, cap if y > cap else y, cap if z > cap else z, lower[f], upper[f], lower[g],
            upper[g], lower[h], upper[h], maximise, upward,
        )  # fmt: skip
    keys, order = scratch.keys, scratch.order
    for _ in range(2):  # the second time without infinities
        if bound == bound:
            break
        n = sort_row(a, b, values, cap, sign, successor, expression, upper, keys, order)
        if keys[n - 1] < np.inf and keys[0] > -np.inf:
            bound = sign * fill_row(n, upward != maximise, expression, lower, upper, keys, order)
        else:
            infinite, cap = largest_finite(a, b, values, maximise, successor, expression, lower, upper)
            bound = np.inf if infinite else np.nan
    return bound


@njit(part=True)
def interval_bound(
    a: int,
    b: int,
    values: Floats,
    maximise: bool,
    upward: bool,
    successor: Ints,
    expression: Ints,
    lower: Floats,
    upper: Floats,
    scratch: Scratch,
) -> float:
    """`row_bound` of an interval model for transitions a..b."""
    if b - a == 1:
        bound = values[successor[a]]
    else:
        x, y = values[successor[a]], values[successor[a + 1]]
        if b - a == 2 and x < np.inf and y < np.inf:
            f, g = expression[a], expression[a + 1]
            bound = pair_bound(x, y, lower[f], upper[f], lower[g], upper[g], maximise, upward)
        else:
            bound = hull_bound(a, b, values, np.inf, maximise, upward, successor, expression, lower, upper, scratch)
    return bound


@njit(part=True)
def point_bound(
    a: int, b: int, values: Floats, maximise: bool, upward: bool, successor: Ints, expression: Ints, probability: Floats
) -> float:
    """`row_bound` of a known MDP for transitions a..b: inf where an infinite value has probability."""
    sign = -1.0 if maximise else 1.0
    low = np.inf
    high = -np.inf
    infinite = False
    for t in range(a, b):
        if probability[expression[t]] > 0.0:
            x = sign * values[successor[t]]
            infinite = infinite or abs(x) == np.inf
            low = x if x < low else low
            high = x if x > high else high
    bound = sign * low
    if b - a == 1:
        bound = values[successor[a]]
    elif infinite:
        bound = np.inf
    elif b - a == 2 and low < high:
        f, g = probability[expression[a]], probability[expression[a + 1]]
        bound = pair_bound(values[successor[a]], values[successor[a + 1]], f, f, g, g, maximise, upward)
    elif low < high:
        total = 0.0
        for t in range(a, b):
            if probability[expression[t]] > 0.0:
                total += probability[expression[t]] * (sign * values[successor[t]] - low)
        result = low + total
        error = UNIT_ROUNDOFF * ((2.0 * (b - a) + 12.0) * total + 2.0 * abs(result) + FAINT)
        if upward != maximise:  # bounding max v from above is bounding min -v from below
            result = min(result + error, high)
        else:
            result = min(max(result - error, low), high)
        bound = sign * result
    return bound
