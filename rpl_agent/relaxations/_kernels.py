"""Compiled one-row bounds: the only code that knows what nature may do in a row.

``row_expectation`` bounds the extremum over nature's set of sum_i p_i v_i for one row, from the side that is asked
for: ``upward`` False gives a number <= the exact extremum, True a number >= it, rounding included. Everything is
computed as ``min v + sum_i p_i (v_i - min v)``: terms of one sign, exact when all values agree, and the result is
clipped to [min v, max v], which is a true bound because rows are distributions. Maximisation is minimisation of -v.

Rounding, with u = 2**-53. A sum of n terms of one sign has a relative error of at most (n + 3) u; the last addition
adds u |result|. Filling up intervals computes the remaining mass with an absolute error of at most n u (none where the
subtractions are exact), which lands on the successor where the mass ran out. So rows that put all their mass on equal
values are exact: end components and sinks keep their values to the last bit. A row whose upper bounds sum to less than
one by rounding leaves a little mass undecided: it goes to the side that is being bounded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rpl_agent.compiled import njit
from rpl_agent.regions._kernels import PolytopeData, empty_polytope_data, support_ellipsoid, support_polytope
from rpl_agent.relaxations._region_kernels import region_row

UNIT_ROUNDOFF = 2.0**-53
POINT, INTERVAL, POLYTOPE, ELLIPSOID, BEST = 0, 1, 2, 3, 4
#: Data carry rounding of their own: sums of bounds are compared with 1 up to this much.
MASS_TOLERANCE = 1e-12
#: Rows up to this length are sorted by insertion; longer ones by numpy.
INSERTION_LIMIT = 48


class CompiledSet(NamedTuple):
    """Nature's options as arrays; fields that a kind does not use are present but empty.

    Attributes
    ----------
    kind : int
        POINT, INTERVAL, POLYTOPE, ELLIPSOID or BEST (per row the better of polytope and ellipsoid).
    lower, upper : (F,) float64
        Interval hull of every expression; for POINT both are the probability.
    constant : (F,) float64
    weights : (F, r) float64
        Expressions in reduced coordinates: f = constant + weights @ x.
    polytope : PolytopeData
    center : (r,) float64
    factor : (r, r) float64
    radius : float
        The ellipsoid {center + radius * factor @ z : |z| <= 1}.
    tightness : float
        A bound from the far side (above a minimum, below a maximum) adds tightness * span of the row's values.
    mass : (F,) float64
        |constant| + |weights| max |x| over the region: the size of an expression's rounding terms.
    """

    kind: int
    lower: np.ndarray
    upper: np.ndarray
    constant: np.ndarray
    weights: np.ndarray
    polytope: PolytopeData
    center: np.ndarray
    factor: np.ndarray
    radius: float
    tightness: float
    mass: np.ndarray


def compiled_set(kind: int, lower: np.ndarray, upper: np.ndarray, **parts: object) -> CompiledSet:
    """A CompiledSet with every unused part empty but of the right type."""
    default = {
        "constant": np.zeros(0), "weights": np.zeros((0, 0)), "center": np.zeros(0), "factor": np.zeros((0, 0)),
        "radius": 0.0, "tightness": 0.0,
    }  # fmt: skip
    if "polytope" not in parts:
        default["polytope"] = empty_polytope_data(np.zeros(0), np.zeros(0))
    merged = default | parts
    merged.setdefault("mass", _mass(merged))
    arrays = {name: _read_only(value) for name, value in merged.items()}
    return CompiledSet(kind=int(kind), lower=_read_only(lower), upper=_read_only(upper), **arrays)


def _mass(parts: dict) -> np.ndarray:
    """|constant| + |weights| max |x|, from the box of the polytope or the ellipsoid."""
    constant, weights, polytope = parts["constant"], parts["weights"], parts["polytope"]
    reach = polytope.reach
    if not len(reach) and len(parts["center"]):
        extent = np.sqrt(np.square(parts["factor"]).sum(axis=1))
        reach = (np.abs(parts["center"]) + parts["radius"] * extent) * (1.0 + 1e-9)
    return np.abs(constant) + np.abs(weights) @ reach if len(constant) else np.zeros(0)


def _read_only(value: object) -> object:
    """Arrays as contiguous read-only floats, so that the kernels are compiled for one kind of argument."""
    if not isinstance(value, np.ndarray):
        return value
    array = np.ascontiguousarray(value, dtype=np.float64).view()
    array.setflags(write=False)
    return array


@njit(cache=True)
def scratch_size(row_ptr):
    """Length of the scratch columns that the row kernels need: the longest row."""
    longest = 1
    for row in range(row_ptr.shape[0] - 1):
        longest = max(longest, row_ptr[row + 1] - row_ptr[row])
    return longest


@njit(cache=True)
def _sort_row(a, b, values, sign, successor, expression, upper, scratch):
    """Sort sign * value of the possible transitions of a..b ascending into scratch[0], their numbers into scratch[1].

    Returns how many there are: successors with upper bound 0 do not count.
    """
    n = 0
    if b - a <= INSERTION_LIMIT:
        for t in range(a, b):
            if upper[expression[t]] == 0.0:
                continue
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
    total = share * (high - low)
    result = low + total
    error = UNIT_ROUNDOFF * (8.0 * total + 2.0 * abs(result))
    if total == 0.0:
        error = 0.0
    if share >= 1.0:
        result = high
        error = 0.0
    result = result - error if upward == maximise else result + error
    result = high if result > high else result
    result = low if result < low else result
    return -result if maximise else result


@njit(cache=True)
def triple_bound(x, y, z, lx, ux, ly, uy, lz, uz, maximise, upward):
    """`row_expectation` of a row with three possible successors of finite values, in closed form; numbers only.

    Sorted by value, the largest gets the least it can, then the middle one. The two subtractions are exact or carry
    an absolute error of a few u, which is charged to the whole span.
    """
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
    if not (1.0 - left == ux and (top == lz or left - top == uy) and (middle == ly or left - middle == top)):
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
def _interval_row(a, b, values, sign, upward, successor, expression, lower, upper, scratch):
    """Bound of min over intervals of sum p_i sign v_i, from below or (``upward``) from above; values finite.

    Fills the sorted row. ``exact`` follows whether every subtraction from the remaining mass was exact; if not, the
    mass is off by at most n u, which moves between the successor where it ran out and the next one.
    """
    n = _sort_row(a, b, values, sign, successor, expression, upper, scratch)
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
    for i in range(n):
        f = expression[np.int64(scratch[1, i])]
        room = upper[f] - lower[f]
        share = min(room, max(rest, 0.0))
        total += share * (scratch[0, i] - low)
        exact = exact and (lower[f] == 0.0 or room + lower[f] == upper[f])
        if share >= rest:
            slack = room - share
            rest = 0.0
            moved = scratch[0, i] if slack > 8.0 * n * UNIT_ROUNDOFF or i + 1 == n else scratch[0, i + 1]
            break
        exact = exact and rest - (rest - share) == share
        rest -= share
    error = UNIT_ROUNDOFF * (2.0 * n + 12.0) * total
    if not exact:
        error += UNIT_ROUNDOFF * 4.0 * n * (moved - low)
    if upward:
        error += rest * (high - low)  # mass that the upper bounds leave undecided
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
            infinite, capped = _without_infinity(
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


@njit(cache=True)
def _without_infinity(a, b, values, maximise, upward, successor, expression, lower, upper, exact):
    """(True, -) if the row's bound is inf, else (False, values of the row with inf capped at the largest finite one).

    ``exact``: lower and upper are the set itself, not only its hull.
    """
    inside_lo = 0.0  # inside = the successors of value inf
    inside_hi = 0.0
    outside_lo = 0.0
    outside_hi = 0.0
    largest = -np.inf
    for t in range(a, b):
        f = expression[t]
        v = values[successor[t]]
        if v == np.inf:
            inside_lo += lower[f]
            inside_hi += upper[f]
        else:
            outside_lo += lower[f]
            outside_hi += upper[f]
            largest = max(largest, v)
    capped = np.empty(b - a)
    for t in range(a, b):
        capped[t - a] = min(values[successor[t]], largest)
    if largest == -np.inf:
        return True, capped
    if maximise:
        # From above, any possibility counts; from below, only one that certainly exists.
        possible = inside_hi > 0.0 and outside_lo < 1.0 - MASS_TOLERANCE
        return possible and (exact or upward), capped
    return inside_lo > 0.0 or outside_hi < 1.0 - MASS_TOLERANCE, capped


@njit(cache=True)
def _gradient(a, b, values, sign, low, successor, expression, cs, direction):
    """The row as a linear function of x: direction @ x + constant; returns (constant, size of rounding terms)."""
    r = direction.shape[0]
    constant = 0.0
    size = 0.0
    for j in range(r):
        direction[j] = 0.0
    for t in range(a, b):
        f = expression[t]
        if cs.upper[f] == 0.0:
            continue
        d = sign * values[successor[t]] - low
        constant += cs.constant[f] * d
        size += abs(cs.constant[f]) * d
        for j in range(r):
            direction[j] += cs.weights[f, j] * d
    return constant, size


@njit(cache=True)
def _region_row(a, b, values, sign, upward, successor, expression, cs, scratch):
    """Bound of the minimum over a region of x; the interval hull is always among the candidates."""
    n = b - a
    low = np.inf
    high = -np.inf
    for t in range(a, b):
        if cs.upper[expression[t]] > 0.0:
            x = sign * values[successor[t]]
            low = min(low, x)
            high = max(high, x)
    span = high - low
    if span == 0.0:
        return low
    hull = _interval_row(a, b, values, sign, False, successor, expression, cs.lower, cs.upper, scratch)
    best = hull
    if n > 2:  # with two successors f and 1 - f the region is the interval
        direction = np.empty(cs.weights.shape[1])
        constant, size = _gradient(a, b, values, sign, low, successor, expression, cs, direction)
        # Rounding of the direction itself: each entry is a sum of n products, |x| is bounded through the rows.
        for j in range(direction.shape[0]):
            reach = 0.0
            if cs.kind != ELLIPSOID:
                reach = max(abs(cs.polytope.lower[j]), abs(cs.polytope.upper[j]))
            if cs.kind != POLYTOPE:
                extent = 0.0
                for k in range(direction.shape[0]):
                    extent += cs.factor[j, k] * cs.factor[j, k]
                other = abs(cs.center[j]) + cs.radius * np.sqrt(extent)
                reach = max(reach, other)
            weight = 0.0
            for t in range(a, b):
                weight = max(weight, abs(cs.weights[expression[t], j]))
            size += n * span * weight * reach
        error = (4.0 * n + 16.0) * UNIT_ROUNDOFF * (size + span) + 2.0 * UNIT_ROUNDOFF * abs(low)
        if cs.kind == POLYTOPE or cs.kind == BEST:
            bound, _ = support_polytope(cs.polytope, direction, 0)
            best = max(best, low + (constant + bound) - error)
        if cs.kind == ELLIPSOID or cs.kind == BEST:
            bound = support_ellipsoid(cs.center, cs.factor, cs.radius, direction)
            best = max(best, low + (constant + bound) - error)
    if upward:
        best += cs.tightness * span + (8.0 * n + 32.0) * UNIT_ROUNDOFF * (span + abs(best))
        return min(best, high)
    return min(best, high)


@njit(cache=True)
def row_expectation(row, values, maximise, upward, row_ptr, successor, expression, cs, scratch):
    """A bound of the extremum over nature's set of sum_i p_i values[successor_i].

    Parameters
    ----------
    row : int
    values : (S,) float64
        May be +inf. Nature minimising: inf if the hull forces mass there, else the minimum over distributions that
        avoid it (bounded with the inf replaced by the largest finite value: exact for intervals, a lower bound for
        regions). Nature maximising: inf if mass may go there.
    maximise, upward : bool
        Direction of nature; side of the bound. ``upward == maximise`` is the outward bound.
    row_ptr : (R+1,) int64
    successor, expression : (T,) integer
    cs : CompiledSet
    scratch : (2, longest row) float64
    """
    a, b = row_ptr[row], row_ptr[row + 1]
    if cs.kind <= INTERVAL or b - a <= 2:
        return interval_row(
            a, b, values, maximise, upward, successor, expression, cs.lower, cs.upper, cs.kind == POINT, scratch
        )
    sign = -1.0 if maximise else 1.0
    up = upward != maximise
    for t in range(a, b):
        if values[successor[t]] == np.inf:
            infinite, capped = _without_infinity(
                a, b, values, maximise, upward, successor, expression, cs.lower, cs.upper, False
            )
            if infinite:
                return np.inf
            index = np.arange(b - a)
            return sign * _region_row(0, b - a, capped, sign, up, index, expression[a:b], cs, scratch)
    return sign * _region_row(a, b, values, sign, up, successor, expression, cs, scratch)


@njit(cache=True)
def row_strategy(row, values, maximise, row_ptr, successor, expression, cs, scratch, out):
    """A distribution of nature that attains `row_expectation` up to rounding, written to out[row_ptr[row]:...].

    Successors of value +inf get no mass when nature minimises.
    """
    a, b = row_ptr[row], row_ptr[row + 1]
    n = b - a
    if cs.kind == POINT or n == 1:
        for t in range(a, b):
            out[t] = cs.lower[expression[t]] if n > 1 else 1.0
        return
    sign = -1.0 if maximise else 1.0
    n = _sort_row(a, b, values, sign, successor, expression, cs.upper, scratch)
    rest = 1.0
    for t in range(a, b):
        out[t] = cs.lower[expression[t]]
        rest -= out[t]
    total = 0.0
    finite = True
    for i in range(n):
        t = np.int64(scratch[1, i])
        share = max(min(cs.upper[expression[t]] - out[t], rest), 0.0)
        out[t] += share
        rest -= share
        finite = finite and abs(scratch[0, i]) < np.inf
        total += out[t] * (scratch[0, i] - scratch[0, 0])
    if cs.kind == INTERVAL or b - a == 2 or not finite:
        return
    low = scratch[0, 0]
    direction = np.empty(cs.weights.shape[1])
    constant, _ = _gradient(a, b, values, sign, low, successor, expression, cs, direction)
    if cs.kind == POLYTOPE or cs.kind == BEST:
        bound, vertex = support_polytope(cs.polytope, direction, 0)
        if constant + bound > total and cs.polytope.counts[0] > 0:
            total = constant + bound
            _distribution(a, b, expression, cs, cs.polytope.point[vertex], out)
    if cs.kind == ELLIPSOID or cs.kind == BEST:
        bound = support_ellipsoid(cs.center, cs.factor, cs.radius, direction)
        if constant + bound > total:
            scaled = cs.factor.T @ direction
            norm = np.sqrt(np.sum(scaled * scaled))
            point = cs.center.copy()
            if norm > 0.0:
                point -= cs.radius / norm * (cs.factor @ scaled)
            _distribution(a, b, expression, cs, point, out)


@njit(cache=True)
def _distribution(a, b, expression, cs, point, out):
    """Probabilities of a row at coordinates x, cleaned of rounding."""
    total = 0.0
    for t in range(a, b):
        f = expression[t]
        p = cs.constant[f]
        for j in range(point.shape[0]):
            p += cs.weights[f, j] * point[j]
        out[t] = p if p > MASS_TOLERANCE else 0.0
        total += out[t]
    for t in range(a, b):
        out[t] /= total


@njit(cache=True, nogil=True)
def row_range(first, last, values, maximise, upward, row_ptr, successor, expression, cs, longest, rows, out):
    """out[i] = row_expectation(rows[i]) for first <= i < last; row i itself when ``rows`` is empty.

    Parameters
    ----------
    rows : (k,) int64
    out : (k,) or (R,) float64
    """
    everything = rows.shape[0] == 0
    scratch = np.empty((2, longest))
    kind, lower, upper = cs.kind, cs.lower, cs.upper
    constant, weights, mass, tightness = cs.constant, cs.weights, cs.mass, cs.tightness
    table, box_lower, box_upper = cs.polytope.table, cs.polytope.lower, cs.polytope.upper
    center, factor, radius = cs.center, cs.factor, cs.radius
    memory = cs.polytope.memory
    direction = np.empty(weights.shape[1])
    for i in range(first, last):
        row = i if everything else rows[i]
        a, b = row_ptr[row], row_ptr[row + 1]
        if b - a == 2:
            x, y = values[successor[a]], values[successor[a + 1]]
            if x < np.inf and y < np.inf:
                f, g = expression[a], expression[a + 1]
                out[i] = pair_bound(x, y, lower[f], upper[f], lower[g], upper[g], maximise, upward)
                continue
        elif b - a == 3 and kind == INTERVAL:
            x, y, z = values[successor[a]], values[successor[a + 1]], values[successor[a + 2]]
            f, g, h = expression[a], expression[a + 1], expression[a + 2]
            proper = upper[f] > 0.0 and upper[g] > 0.0 and upper[h] > 0.0 and lower[f] + lower[g] + lower[h] < 1.0
            if proper and x < np.inf and y < np.inf and z < np.inf:
                out[i] = triple_bound(
                    x, y, z, lower[f], upper[f], lower[g], upper[g], lower[h], upper[h], maximise, upward
                )
                continue
        if b - a == 1:
            out[i] = values[successor[a]]
        elif kind <= INTERVAL:
            out[i] = interval_row(
                a, b, values, maximise, upward, successor, expression, lower, upper, kind == POINT, scratch
            )
        else:
            slot = row % memory.shape[0]
            bound, vertex = region_row(
                a, b, values, maximise, upward, successor, expression, upper, constant, weights, mass, tightness,
                kind != ELLIPSOID, table, box_lower, box_upper, kind != POLYTOPE, center, factor, radius, direction,
                memory[slot],
            )  # fmt: skip
            out[i] = bound
            memory[slot] = max(vertex, 0)
            if vertex < 0:
                out[i] = row_expectation(row, values, maximise, upward, row_ptr, successor, expression, cs, scratch)
            elif kind != POLYTOPE:
                hull = interval_row(a, b, values, maximise, upward, successor, expression, lower, upper, False, scratch)
                out[i] = min(out[i], hull) if maximise else max(out[i], hull)
