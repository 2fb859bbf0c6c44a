"""Powers that are no rational numbers, such as pow(x, 0.5), for use in conditions and roundings.

A number is held between two rationals, `BITS` bits apart in precision. Comparisons are decided where the two sides do
not overlap; otherwise `Undecided` is raised rather than guessed. Probabilities, rewards and values of variables must be
rational: `evaluate` refuses an `Enclosure` there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

BITS = 256


class Undecided(ArithmeticError):
    """Two numbers are too close to be told apart."""


@dataclass(frozen=True, eq=False)
class Enclosure:
    """Some number between low and high."""

    low: Fraction
    high: Fraction

    @staticmethod
    def of(value: Enclosure | Fraction | int) -> Enclosure:
        return value if isinstance(value, Enclosure) else Enclosure(Fraction(value), Fraction(value))

    def _corners(self, other: Enclosure, operation: Callable[[Fraction, Fraction], Fraction]) -> Enclosure:
        values = [operation(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return Enclosure(min(values), max(values))

    def __add__(self, other: Enclosure | Fraction | int) -> Enclosure:
        return self._corners(Enclosure.of(other), lambda a, b: a + b)

    def __mul__(self, other: Enclosure | Fraction | int) -> Enclosure:
        return self._corners(Enclosure.of(other), lambda a, b: a * b)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Enclosure:
        return Enclosure(-self.high, -self.low)

    def __truediv__(self, other: Enclosure | Fraction | int) -> Enclosure:
        divisor = Enclosure.of(other)
        if divisor.low <= 0 <= divisor.high:
            raise Undecided
        return self._corners(divisor, lambda a, b: a / b)

    def __rtruediv__(self, other: Fraction | int) -> Enclosure:
        return Enclosure.of(other) / self

    def __lt__(self, other: Enclosure | Fraction | int) -> bool:
        right = Enclosure.of(other)
        if self.high < right.low:
            return True
        if self.low >= right.high:
            return False
        raise Undecided

    def __gt__(self, other: Enclosure | Fraction | int) -> bool:
        return Enclosure.of(other) < self

    def __le__(self, other: Enclosure | Fraction | int) -> bool:
        return not self > other

    def __ge__(self, other: Enclosure | Fraction | int) -> bool:
        return not self < other

    def __eq__(self, other: object) -> bool:
        right = Enclosure.of(other)  # type: ignore[arg-type]
        if self.high < right.low or right.high < self.low:
            return False
        raise Undecided

    __hash__ = None  # type: ignore[assignment]

    def __floor__(self) -> int:
        if floor(self.low) != floor(self.high):
            raise Undecided
        return floor(self.low)

    def __ceil__(self) -> int:
        if ceil(self.low) != ceil(self.high):
            raise Undecided
        return ceil(self.low)


def rational_power(base: Fraction, exponent: Fraction) -> Fraction | Enclosure:
    """base ** exponent for a positive base: exact where it is rational, else enclosed."""
    value = base**exponent.numerator
    degree = exponent.denominator
    top, bottom = _root(value.numerator, degree), _root(value.denominator, degree)
    if top**degree == value.numerator and bottom**degree == value.denominator:
        return Fraction(top, bottom)
    scale = 1 << BITS
    low = _root(value.numerator * scale**degree // value.denominator, degree)
    return Enclosure(Fraction(low, scale), Fraction(low + 2, scale))


def _root(value: int, degree: int) -> int:
    """The largest integer whose power is at most value, by bisection."""
    low, high = 0, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= value else (low, middle - 1)
    return low
