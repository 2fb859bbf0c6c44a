"""Exact bounds on a polynomial over the box of its parameters, for rewards that depend on parameters."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache, reduce
from math import comb

import numpy as np

from rpl_agent.core.model import Domain, Polynomial
from rpl_agent.core.model.algebra.ranges import MAX_BERNSTEIN
from rpl_agent.core.model.polynomial import exact
from rpl_agent.formats.prism.language.grammar import NOWHERE, PrismError

Box = Mapping[str, tuple[Fraction, Fraction]]


def exact_box(domain: Domain) -> Box:
    """The bounds of the parameters, as the decimals in which they are written."""
    return {
        name: (min(Fraction(low), exact(low)), max(Fraction(high), exact(high)))
        for name, low, high in zip(domain.parameters, domain.lower.tolist(), domain.upper.tolist())
    }


def exact_range(polynomial: Polynomial, box: Box) -> tuple[Fraction, Fraction]:
    """The least and the largest Bernstein coefficient, between which the polynomial lies."""
    names = sorted(polynomial.parameters)
    degrees = [max(dict(m).get(name, 0) for m in polynomial.terms) for name in names]
    if np.prod([n + 1.0 for n in degrees]) > MAX_BERNSTEIN:
        raise PrismError(f"the reward {polynomial} has too high a degree", NOWHERE)
    coefficients = _bernstein(polynomial, names, degrees, box)
    return coefficients.min(), coefficients.max()


def _bernstein(polynomial: Polynomial, names: list[str], degrees: list[int], box: Box) -> np.ndarray:
    """Exact Bernstein coefficients of all degrees on the box, flat (see `rpl_agent.core.model.algebra.ranges`)."""
    total = np.full(int(np.prod([n + 1 for n in degrees])), Fraction(0))
    for monomial, coefficient in polynomial.terms.items():
        powers = dict(monomial)
        factors = [_power(powers.get(name, 0), n, *box[name]) for name, n in zip(names, degrees)]
        total = total + reduce(np.multiply.outer, factors, np.array(coefficient, dtype=object)).reshape(-1)
    return total


@lru_cache(maxsize=10_000)
def _power(p: int, n: int, low: Fraction, high: Fraction) -> np.ndarray:
    """Bernstein coefficients of degree n of the p-th power on [low, high]."""
    return np.array(
        [
            sum(
                comb(p, q) * low ** (p - q) * (high - low) ** q * Fraction(comb(i, q), comb(n, q))
                for q in range(min(i, p) + 1)
            )
            for i in range(n + 1)
        ],
        dtype=object,
    )
