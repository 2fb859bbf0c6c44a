"""Compiled care for nature's witness: distributions in floating point that stand for exact ones.

A row of floats rarely sums to 1. It stands for an exact distribution with the same support within nature's bounds if
the bounds allow one there, and both means differ by at most (mass to be moved) * (span of the values).
"""

from __future__ import annotations

import numpy as np

from rpl_agent.jit import FAINT, UNIT_ROUNDOFF, Floats, Ints, njit
from rpl_agent.relaxations._interval_rows import FEASIBILITY_TOLERANCE, at_least_one
from rpl_agent.relaxations._region_rows import TRACE

#: Mass for a successor that must get some, but less than an ulp of the others'.
SPECK = 2.0**-60


@njit()
def _allows(a: int, b: int, p: Floats, least: float, expression: Ints, upper: Floats) -> bool:
    """Whether the upper bounds of the transitions with p > least admit a distribution on them alone, exactly."""
    count = 0
    total = 0.0
    leaves = False
    for t in range(a, b):
        if p[t] > least:
            total += upper[expression[t]]
            count += 1
        elif upper[expression[t]] > 0.0:
            leaves = True
    if not leaves:
        return total >= 1.0 - FEASIBILITY_TOLERANCE
    if abs(total - 1.0) > 4.0 * count * UNIT_ROUNDOFF:
        return total > 1.0
    terms = np.empty(count)
    count = 0
    for t in range(a, b):
        if p[t] > least:
            terms[count] = upper[expression[t]]
            count += 1
    return at_least_one(terms)


@njit(allocates=False)
def _open_best(
    a: int, b: int, p: Floats, values: Floats, sign: float, successor: Ints, expression: Ints, upper: Floats
) -> bool:
    """Give a trace to the best successor without mass that may have some; False if there is none of finite value."""
    best = -1
    for t in range(a, b):
        if p[t] == 0.0 and upper[expression[t]] > 0.0 and values[successor[t]] < np.inf:
            if best < 0 or sign * values[successor[t]] < sign * values[successor[best]]:
                best = t
    if best >= 0:
        p[best] = min(upper[expression[best]], SPECK)
    return best >= 0


@njit(nogil=True, allocates=False)
def tidy(
    p: Floats,
    values: Floats,
    maximise: bool,
    successor: Ints,
    lower: Floats,
    upper: Floats,
    expression: Ints,
    row_ptr: Ints,
) -> None:
    """Make p (T,), nature's greedy answer to values, stand for an exact one.

    Rounding leaves traces on successors that the row can do without: they are dropped. It also hides the speck that
    must leave a support whose upper bounds miss 1 by less than an ulp: it is given to the next best successor.
    """
    sign = -1.0 if maximise else 1.0
    for row in range(row_ptr.shape[0] - 1):
        a, b = row_ptr[row], row_ptr[row + 1]
        if b - a == 1:
            continue
        traces = False
        holes = False
        for t in range(a, b):
            f = expression[t]
            p[t] = min(max(p[t], lower[f]), upper[f])
            traces = traces or (0.0 < p[t] <= TRACE and lower[f] == 0.0)
            holes = holes or p[t] == 0.0
        if traces and _allows(a, b, p, TRACE, expression, upper):
            for t in range(a, b):
                if p[t] <= TRACE and lower[expression[t]] == 0.0:
                    p[t] = 0.0
            continue
        while holes and not _allows(a, b, p, 0.0, expression, upper):
            holes = _open_best(a, b, p, values, sign, successor, expression, upper)


@njit()
def _has_exact(a: int, b: int, p: Floats, lower: Floats, upper: Floats, expression: Ints) -> bool:
    """Whether the bounds of a row allow an exact distribution whose support is that of p.

    Nothing may be left out that has a lower bound, nothing be in that has an upper bound of 0; the upper bounds on the
    support must reach 1, and the lower bounds must leave some mass for a member without one.
    """
    count = 0
    holes = False
    unbound = False
    for t in range(a, b):
        f = expression[t]
        if not (0.0 <= p[t] < np.inf) or (p[t] > 0.0 and upper[f] == 0.0) or (p[t] == 0.0 and lower[f] > 0.0):
            return False
        if p[t] > 0.0:
            count += 1
            unbound = unbound or lower[f] == 0.0
        else:
            holes = True
    if count == 0 or (holes and not _allows(a, b, p, 0.0, expression, upper)):
        return False
    if not unbound:
        return True
    terms = np.empty(count)
    count = 0
    for t in range(a, b):
        if p[t] > 0.0:
            terms[count] = lower[expression[t]]
            count += 1
    return not at_least_one(terms)


@njit(nogil=True)
def mass_to_move(p: Floats, lower: Floats, upper: Floats, expression: Ints, row_ptr: Ints) -> Floats:
    """(R,) a bound on the mass between each row of p and an exact distribution on its support; inf if there is none.

    A row with one successor has one distribution, whatever p says.
    """
    out = np.zeros(row_ptr.shape[0] - 1)
    for row in range(row_ptr.shape[0] - 1):
        a, b = row_ptr[row], row_ptr[row + 1]
        if b - a == 1:
            continue
        if not _has_exact(a, b, p, lower, upper, expression):
            out[row] = np.inf
            continue
        moved = (b - a) * UNIT_ROUNDOFF
        total = 0.0
        for t in range(a, b):
            f = expression[t]
            inside = min(max(p[t], lower[f]), upper[f])
            moved += abs(p[t] - inside)
            total += inside
        out[row] = 2.0 * (moved + abs(1.0 - total))
    return out


@njit(nogil=True)
def moving_costs(values: Floats, p: Floats, mass: Floats, row_ptr: Ints, successor: Ints) -> Floats:
    """(R,) how much moving ``mass`` (R,) within the support of p (T,) can change the mean of finite values."""
    out = np.empty(mass.shape[0])
    for row in range(mass.shape[0]):
        low = np.inf
        high = -np.inf
        for t in range(row_ptr[row], row_ptr[row + 1]):
            v = values[successor[t]]
            if p[t] > 0.0 and v < np.inf:
                low = min(low, v)
                high = max(high, v)
        out[row] = mass[row]
        if mass[row] < np.inf:
            some = mass[row] > 0.0 and high > low
            out[row] = mass[row] * (high - low) + UNIT_ROUNDOFF * FAINT if some else 0.0
    return out
