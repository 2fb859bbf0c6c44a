"""Worlds without a model, slowly and exactly: the two theorems of `guarantee.open_world` in rational numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

from rpl_agent.guarantee.stakes import STAKES, WEIGHTS

#: (reward, successor or None after an end) -> how often
Outcomes = Mapping[tuple[Fraction, object], int]


def wealth(x: list[Fraction], counts: list[int], m: Fraction) -> Fraction:
    """Σ w_i Π (1 + b_i (m − x_k) / (1 − m))^c_k, exactly."""
    return Fraction(*_wealth(x, counts, m))


def _wealth(x: list[Fraction], counts: list[int], m: Fraction) -> tuple[int, int]:
    """(numerator, denominator), in integers: fractions would be reduced after every step."""
    stakes, stake_unit = over_one_denominator(list(map(Fraction, STAKES.tolist())))
    weights, weight_unit = over_one_denominator(list(map(Fraction, WEIGHTS.tolist())))
    (top, *numbers), unit = over_one_denominator([m, *x])
    room = stake_unit * (unit - top)
    total = sum(
        w * math.prod((room + b * (top - number)) ** count for number, count in zip(numbers, counts))
        for b, w in zip(stakes, weights)
    )
    return total, weight_unit * room ** sum(counts)


def over_one_denominator(numbers: list[Fraction]) -> tuple[list[int], int]:
    """(numerators, denominator)."""
    unit = math.lcm(*(number.denominator for number in numbers))
    return [number.numerator * (unit // number.denominator) for number in numbers], unit


def upper(x: list[Fraction], counts: list[int], share: Fraction, steps: int = 40) -> Fraction:
    """The infimum of the theorem up to 2^-steps, from above; 1 if there is none."""
    low, high = Fraction(0), Fraction(1)
    for _ in range(steps):
        middle = (low + high) / 2
        numerator, denominator = _wealth(x, counts, middle)
        if numerator * share.numerator >= denominator * share.denominator:
            high = middle
        else:
            low = middle
    return high


def mean_above(numbers: list[Fraction], counts: list[int], low: Fraction, high: Fraction, share: Fraction) -> Fraction:
    """The bound on the mean of numbers in [low, high]."""
    x = [min(Fraction(1), max(Fraction(0), (number - low) / (high - low))) for number in numbers]
    return low + upper(x, counts, share, 24) * (high - low)


def best_values(
    rows: Mapping[object, list[Outcomes]],
    discount: Fraction,
    bounds: tuple[Fraction, Fraction],
    share: Callable[[object], Fraction],
    sweeps: int,
) -> dict[object, Fraction]:
    """U of Theorem 1 without a horizon; rows never tried count as the most."""
    high = bounds[1]
    values = dict.fromkeys(rows, high)
    for _ in range(sweeps):
        before, values = (
            values,
            {
                s: min(values[s], max(_row(row, values, discount, bounds, share(s)) for row in actions))
                for s, actions in rows.items()
            },
        )
        if values == before:  # so would be all that follow
            break
    return values


def values_to_go(
    rows: Mapping[object, list[Outcomes]],
    discount: Fraction,
    bounds: tuple[Fraction, Fraction],
    share: Callable[[object], Fraction],
    horizon: int,
) -> list[dict[object, Fraction]]:
    """U of Theorem 1 with 1 … horizon steps to go."""
    found, after = [], dict.fromkeys(rows, Fraction(0))
    for _ in range(horizon):
        after = {s: max(_row(row, after, discount, bounds, share(s)) for row in actions) for s, actions in rows.items()}
        found.append(after)
    return found


def _row(
    row: Outcomes,
    values: Mapping[object, Fraction],
    discount: Fraction,
    bounds: tuple[Fraction, Fraction],
    share: Fraction,
) -> Fraction:
    if not row:
        return bounds[1]
    numbers = [reward + (discount * values[after] if after is not None else 0) for reward, after in row]
    return mean_above(numbers, list(row.values()), *bounds, share)
