"""Worlds without a model, slowly and exactly: the two theorems of `guarantee.open_world` in rational numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from rpl_agent.guarantee.stakes import STAKES, WEIGHTS

#: (reward, successor or None after an end) -> how often
Outcomes = Mapping[tuple[Fraction, object], int]


def wealth(x: list[Fraction], counts: list[int], m: Fraction) -> Fraction:
    """Σ w_i Π (1 + b_i (m − x_k) / (1 − m))^c_k, exactly."""
    total = Fraction(0)
    for b, w in zip(map(Fraction, STAKES.tolist()), map(Fraction, WEIGHTS.tolist())):
        product = w
        for number, count in zip(x, counts):
            product *= (1 + b * (m - number) / (1 - m)) ** count
        total += product
    return total


def upper(x: list[Fraction], counts: list[int], share: Fraction, steps: int = 40) -> Fraction:
    """The infimum of the theorem up to 2^-steps, from above; 1 if there is none."""
    low, high = Fraction(0), Fraction(1)
    for _ in range(steps):
        middle = (low + high) / 2
        if wealth(x, counts, middle) >= 1 / share:
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
        values = {
            s: min(values[s], max(_row(row, values, discount, bounds, share(s)) for row in actions))
            for s, actions in rows.items()
        }
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
