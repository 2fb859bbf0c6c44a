"""Residuals of affine value functions against exact rationals, on rows made to need each term of their error."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from rpl_agent.core.native import core


def residual(p, slope, reward, gamma, sign, u, g) -> float:
    """Of one row from state 0 to states 1, 2, …; slope (n,), u and g (n + 1,) of one coordinate."""
    n = len(p)
    chances = core.RowChances(
        r=1,
        is_box=False,
        row_ptr=np.array([0, n]),
        successor=np.arange(1, n + 1, dtype=np.int32),
        expression=np.arange(n, dtype=np.int32),
        p=np.array(p, dtype=float),
        slope=np.array(slope, dtype=float),
        error=np.zeros(n),
        curvature=None,
        bend=None,
    )
    out = np.empty(1)
    values = np.array(u, dtype=float), np.array(g, dtype=float)
    core.row_residuals(1, np.zeros(1, np.int32), chances, np.array([reward]), gamma, sign, *values, np.empty(4), out)
    return float(out[0])


def exact(p, slope, reward, gamma, sign, u, g) -> Fraction:
    """The largest sign (T U − U)(y) over −1 ≤ y ≤ 1: of a + l y + m y² at the ends and at its vertex."""
    p, slope, u, g = ([Fraction(x) for x in values] for values in (p, slope, u, g))
    reward, gamma, sign = Fraction(reward), Fraction(gamma), Fraction(sign)
    D, G = [v - u[0] for v in u[1:]], [v - g[0] for v in g[1:]]
    a = reward - (1 - gamma) * u[0] + gamma * sum(x * d for x, d in zip(p, D))
    linear = -(1 - gamma) * g[0] + gamma * sum(d * b + x * t for x, b, d, t in zip(p, slope, D, G))
    square = gamma * sum(b * t for b, t in zip(slope, G))
    a, linear, square = sign * a, sign * linear, sign * square
    points = [Fraction(-1), Fraction(1)]
    if square < 0 and abs(linear) <= -2 * square:
        points.append(-linear / (2 * square))
    return max(a + linear * y + square * y * y for y in points)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("other", [-1.0, -0.5, -0.999, 0.0, 1.0])
def test_the_slopes_of_a_pair_need_not_cancel(other, sign):
    """They do up to rounding; what is left of b + c turns both functions in the same way, which b and d do not show."""
    row = ([0.5, 0.5], [1.0, other], 0.0, 1.0, sign, [0.0, 0.0, 0.0], [0.0, 2.0 * sign, 2.0 * sign])
    assert Fraction(residual(*row)) >= exact(*row)


def test_no_residual_is_below_the_exact_one():
    """Rows whose terms cancel, so that the result is little more than rounding error."""
    rng = np.random.default_rng(20)
    tight = 0
    for _ in range(3000):
        p, b = rng.random(), rng.normal()
        u, g = rng.normal(size=3) * 10.0 ** rng.integers(-3, 4), rng.normal(size=3) * 10.0 ** rng.integers(-3, 4)
        gamma, sign = float(rng.choice([1.0, 0.9])), float(rng.choice([1.0, -1.0]))
        reward = -float(gamma * (p * u[1] + (1 - p) * u[2]) - u[0])  # about what makes the row an equation
        row = ([p, 1 - p], [b, -b], reward, gamma, sign, u.tolist(), g.tolist())
        found, truth = Fraction(residual(*row)), exact(*row)
        assert found >= truth
        size = max(abs(float(truth)), float(np.abs(u).max() + np.abs(g).max()) * (1 + abs(b)))
        tight += float(found - truth) <= 1e-13 * size
    assert tight > 100  # the bound is attained up to rounding, so the comparison means something
