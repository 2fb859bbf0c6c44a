"""Bounds as short texts, rounded outward: what holds of the number also holds of its text."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Mapping

#: Digits of a bound, and of a regret; the most of a probability.
DIGITS, FEW, MOST = 6, 4, 15
#: For names of bounds, what rounds them outward.
Sides = Mapping[str, Callable[[float], str]]


def floor_text(value: float, digits: int = DIGITS) -> str:
    """At most the value.

    >>> floor_text(10.885493), floor_text(0.25949, 3), floor_text(-1.2345, 3), floor_text(0.1)
    ('10.8854', '0.259', '-1.24', '0.1')
    """
    return _rounded(value, digits, decimal.ROUND_FLOOR)


def ceil_text(value: float, digits: int = DIGITS) -> str:
    """At least the value.

    >>> ceil_text(11.630653), ceil_text(0.31496, 3), ceil_text(1234.5, 3), ceil_text(0.0)
    ('11.6307', '0.315', '1240', '0')
    """
    return _rounded(value, digits, decimal.ROUND_CEILING)


def interval_text(lower: float, upper: float, digits: int = DIGITS) -> str:
    """
    >>> interval_text(10.885493, 11.630653)
    '[10.8854, 11.6307]'
    """
    return f"[{floor_text(lower, digits)}, {ceil_text(upper, digits)}]"


def chance_text(delta: float) -> str:
    """At most 1 − δ, which is never 1: a small δ leaves more nines.

    >>> chance_text(0.001), chance_text(1e-9), chance_text(1 / 3)
    ('0.999', '0.999999999', '0.666666')
    """
    error = decimal.Decimal(repr(float(delta)))
    context = decimal.Context(prec=min(max(DIGITS, 1 - error.adjusted()), MOST), rounding=decimal.ROUND_FLOOR)
    return str(context.subtract(decimal.Decimal(1), error))


def _rounded(value: float, digits: int, rounding: str) -> str:
    """The shortest decimal number of this float, which is that of stored files, with few digits."""
    if not math.isfinite(value):
        return f"{value:g}"
    context = decimal.Context(prec=digits, rounding=rounding)
    return f"{float(context.create_decimal(repr(float(value)))):.{digits + 3}g}"
