"""Compiled rows of interval models and known MDPs; closed forms for two and three successors.

Rounding, with u = 2**-53. A sum of n terms of one sign has a relative error of at most (n + 3) u; the last addition
adds u |result|. Filling up intervals computes the remaining mass with an absolute error of at most n u (none where the
subtractions are exact), which lands on the successor where the mass ran out. So rows that put all their mass on equal
values are exact: end components and sinks keep their values to the last bit. A row whose bounds miss a distribution by
rounding leaves a little mass undecided: it goes to the side that is being bounded.
"""

from __future__ import annotations

import numpy as np

from rpl_agent.jit import UNIT_ROUNDOFF, njit

#: Bounds of a whole row may miss a distribution by this much: rounding of data, never used to decide between sets.
FEASIBILITY_TOLERANCE = 1e-9
#: Rows up to this length are sorted by insertion; longer ones by numpy.
INSERTION_LIMIT = 48


@njit(cache=True)
def _sign_of_sum(terms):
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


@njit(cache=True)
def at_least_one(terms):
    """Whether non-negative floats sum to at least 1, exactly: which plays never end must not hang on rounding."""
    n = terms.shape[0]
    total = 0.0
    for i in range(n):
        total += terms[i]
    if abs(total - 1.0) > 4.0 * n * UNIT_ROUNDOFF:
        return total > 1.0
    exact = np.empty(n + 1)
    exact[0] = -1.0
    exact[1:] = terms
    return _sign_of_sum(exact) >= 0.0


@njit(cache=True, inline="always")
def insert_row(a, b, values, sign, successor, expression, upper, scratch):
    """`sort_row` for short rows, made part of the caller."""
    n = 0
    for t in range(a, b):
        if upper[expression[t]] > 0.0:
            x = sign * values[successor[t]]
            j = n - 1
            while j >= 0 and scratch[0, j] > x:
                scratch[0, j + 1] = scratch[0, j]
                scratch[1, j + 1] = scratch[1, j]
                j -= 1
            scratch[0, j + 1] = x
            scratch[1, j + 1] = t
            n += 1
    return n


@njit(cache=True)
def sort_row(a, b, values, sign, successor, expression, upper, scratch):
    """Sort sign * value of the possible transitions of a..b ascending into scratch[0], their numbers into scratch[1].

    Returns how many there are: successors with upper bound 0 do not count.
    """
    if b - a <= INSERTION_LIMIT:
        return insert_row(a, b, values, sign, successor, expression, upper, scratch)
    n = 0
    keys = np.empty(b - a)
    for t in range(a, b):
        keys[t - a] = sign * values[successor[t]]
    order = np.argsort(keys)
    for i in range(b - a):
        t = a + order[i]
        if upper[expression[t]] > 0.0:
            scratch[0, n] = keys[order[i]]
            scratch[1, n] = t
            n += 1
    return n


@njit(cache=True)
def pair_bound(x, y, lower_x, upper_x, lower_y, upper_y, maximise, upward):
    """`row_expectation` of a row with two successors of finite values x and y, in closed form.

    Numbers only: array arguments would cost more (reference counts) than the arithmetic, and most rows are pairs.
    The share of the larger value carries a relative error only, so a share of 0 gives an exact result.
    """
    if maximise:
        x, y = -x, -y
    low = x if x < y else y
    high = y if x < y else x
    # the larger value gets as little as its own lower bound and the other's upper bound allow
    share = max(lower_y, 1.0 - upper_x) if x < y else max(lower_x, 1.0 - upper_y)
    most = min(upper_y, 1.0 - lower_x) if x < y else min(upper_x, 1.0 - lower_y)
    total = share * (high - low)
    result = low + total
    error = UNIT_ROUNDOFF * (8.0 * total + 2.0 * abs(result))
    if share > most:  # bounds that miss a distribution by rounding
        error += (share - most) * (high - low)
    if share == 0.0 or high == low:
        error = 0.0
    if (upper_x == 0.0 or lower_y >= 1.0) if x < y else (upper_y == 0.0 or lower_x >= 1.0):
        result = high
        error = 0.0
    result = result - error if upward == maximise else result + error
    result = high if result > high else result
    result = low if result < low else result
    return -result if maximise else result


@njit(cache=True)
def _surely_one(x, y, z):
    """Whether x + y + z >= 1, exactly; False in cases too close to call. Numbers only, for `triple_bound`."""
    total = x + y
    part = total - x
    first = (x - (total - part)) + (y - part)
    whole = total + z
    part = whole - total
    second = (total - (whole - part)) + (z - part)
    surplus = (whole - 1.0) + (first + second)
    return surplus > 1e-30 or (surplus >= 0.0 and (first == 0.0 or second == 0.0))


@njit(cache=True)
def triple_bound(x, y, z, lx, ux, ly, uy, lz, uz, maximise, upward):
    """`row_expectation` of a row with three possible successors of finite values, in closed form; numbers only.

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
    if total > 0.0 or error > 0.0:
        result = x + total
        error += 2.0 * UNIT_ROUNDOFF * abs(result)
        result = result - error if upward == maximise else result + error
        result = z if result > z else result
        result = x if result < x else result
    return -result if maximise else result


@njit(cache=True)
def _last_filled(i, n, expression, lower, upper, scratch):
    """Where the mass of a sorted row runs out, exactly, if not before position i."""
    terms = np.empty(n)
    for j in range(n):
        f = expression[np.int64(scratch[1, j])]
        terms[j] = upper[f] if j <= i else lower[f]
    while i + 1 < n and not at_least_one(terms):
        i += 1
        terms[i] = upper[expression[np.int64(scratch[1, i])]]
    return i


@njit(cache=True)
def _interval_row(a, b, values, sign, upward, successor, expression, lower, upper, scratch):
    """Bound of min over intervals of sum p_i sign v_i, from below or (``upward``) from above; values finite.

    Fills the sorted row. ``exact`` follows whether every subtraction from the remaining mass was exact; if not, the
    mass is off by at most n u, which moves between the successors up to the one where it runs out, exactly.
    """
    n = sort_row(a, b, values, sign, successor, expression, upper, scratch)
    low = scratch[0, 0]
    high = scratch[0, n - 1]
    if low == high:
        return low
    rest = 1.0
    total = 0.0
    exact = True
    for i in range(n):
        lo = lower[expression[np.int64(scratch[1, i])]]
        if lo > 0.0:
            exact = exact and rest - (rest - lo) == lo
            rest -= lo
            total += lo * (scratch[0, i] - low)
    if rest == 0.0 and exact:  # nothing to distribute: successors with lower bound 0 get nothing
        first, last = n, 0
        for i in range(n):
            if lower[expression[np.int64(scratch[1, i])]] > 0.0:
                first = min(first, i)
                last = i
        low, high = scratch[0, first], scratch[0, last]
        total = 0.0
        for i in range(first, last + 1):
            total += lower[expression[np.int64(scratch[1, i])]] * (scratch[0, i] - low)
        if low == high:
            return low
    moved = high
    undecided = max(-rest, 0.0)  # by lower bounds; further down, by upper bounds
    for i in range(n):
        f = expression[np.int64(scratch[1, i])]
        room = upper[f] - lower[f]
        share = min(room, max(rest, 0.0))
        total += share * (scratch[0, i] - low)
        exact = exact and (lower[f] == 0.0 or room + lower[f] == upper[f])
        if share >= rest:
            slack = room - share
            rest = 0.0
            moved = scratch[0, i]
            if slack <= 8.0 * n * UNIT_ROUNDOFF and not exact:
                moved = scratch[0, _last_filled(i, n, expression, lower, upper, scratch)]
            break
        exact = exact and rest - (rest - share) == share
        rest -= share
    undecided = max(undecided, rest)
    error = UNIT_ROUNDOFF * (2.0 * n + 12.0) * total
    if not exact:
        error += UNIT_ROUNDOFF * 4.0 * n * (moved - low)
    error += undecided * (high - low)
    if total == 0.0 and error == 0.0:
        return low
    result = low + total
    error += 2.0 * UNIT_ROUNDOFF * abs(result)
    if upward:
        return min(result + error, high)
    return min(max(result - error, low), high)


@njit(cache=True)
def _point_row(a, b, values, sign, upward, successor, expression, probability):
    """Bound of sum p_i sign v_i for known p; values finite."""
    low = np.inf
    high = -np.inf
    for t in range(a, b):
        if probability[expression[t]] > 0.0:
            x = sign * values[successor[t]]
            low = min(low, x)
            high = max(high, x)
    if low == high:
        return low
    total = 0.0
    for t in range(a, b):
        if probability[expression[t]] > 0.0:
            total += probability[expression[t]] * (sign * values[successor[t]] - low)
    result = low + total
    error = UNIT_ROUNDOFF * ((2.0 * (b - a) + 12.0) * total + 2.0 * abs(result))
    if upward:
        return min(result + error, high)
    return min(max(result - error, low), high)


@njit(cache=True)
def interval_row(a, b, values, maximise, upward, successor, expression, lower, upper, point, scratch):
    """`row_expectation` for transitions a..b of an interval model (``point``: lower == upper)."""
    if b - a == 1:
        return values[successor[a]]
    sign = -1.0 if maximise else 1.0
    up = upward != maximise  # bounding max v from above is bounding min -v from below
    for t in range(a, b):
        if values[successor[t]] == np.inf:
            infinite, capped = without_infinity(
                a, b, values, maximise, upward, successor, expression, lower, upper, True
            )
            if infinite:
                return np.inf
            index = np.arange(b - a)
            if point:
                return sign * _point_row(0, b - a, capped, sign, up, index, expression[a:b], lower)
            return sign * _interval_row(0, b - a, capped, sign, up, index, expression[a:b], lower, upper, scratch)
    if point:
        return sign * _point_row(a, b, values, sign, up, successor, expression, lower)
    return sign * _interval_row(a, b, values, sign, up, successor, expression, lower, upper, scratch)


@njit(cache=True, inline="always")
def short_row(a, b, values, maximise, upward, successor, expression, lower, upper, scratch):
    """`interval_row`, made part of the caller; rows of three in closed form where that applies."""
    bound = np.nan
    if b - a == 3:
        f, g, h = expression[a], expression[a + 1], expression[a + 2]
        bound = triple_bound(
            values[successor[a]], values[successor[a + 1]], values[successor[a + 2]], lower[f], upper[f], lower[g],
            upper[g], lower[h], upper[h], maximise, upward,
        )  # fmt: skip
    if bound != bound:
        bound = interval_row(a, b, values, maximise, upward, successor, expression, lower, upper, False, scratch)
    return bound


@njit(cache=True)
def without_infinity(a, b, values, maximise, upward, successor, expression, lower, upper, exact):
    """(True, -) if the row's bound is inf, else (False, values of the row with inf capped at the largest finite one).

    ``exact``: lower and upper are the set itself, not only its hull.
    """
    n = b - a
    kept = 0  # successors of finite value: first in the arrays, their bounds decide whether mass can go there alone
    finite_lo = np.empty(n)
    finite_hi = np.empty(n)
    infinite_lo = False
    infinite_hi = False
    largest = -np.inf
    for t in range(a, b):
        f = expression[t]
        v = values[successor[t]]
        if v == np.inf:
            infinite_lo = infinite_lo or lower[f] > 0.0
            infinite_hi = infinite_hi or upper[f] > 0.0
        else:
            finite_lo[kept] = lower[f]
            finite_hi[kept] = upper[f]
            kept += 1
            largest = max(largest, v)
    capped = np.empty(n)
    for t in range(a, b):
        capped[t - a] = min(values[successor[t]], largest)
    if kept == 0:
        return True, capped
    if maximise:
        # From above, any possibility counts; from below, only one that certainly exists.
        possible = infinite_lo or (infinite_hi and not at_least_one(finite_lo[:kept]))
        return possible and (exact or upward), capped
    if upward and not exact:  # the hull may show a way around that the set does not have
        return infinite_hi, capped
    return infinite_lo or (infinite_hi and not at_least_one(finite_hi[:kept])), capped
