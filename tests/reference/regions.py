"""Slow, obvious twins for regions: exact rational optima by enumeration, and random models to ask about."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np

from rpl_agent.core.model import Domain, ParametricMDP, Polynomial, build
from rpl_agent.core.model.unused import used_parameters
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.parameter_region import ParameterRegion
from tests.reference.linear import solve_linear


def exact_minimum(A, b, lower, upper, c) -> Fraction | None:
    """min c.x over {A x <= b, lower <= x <= upper} in exact rationals, None if infeasible: try every basis."""
    n = len(lower)
    rows = [[Fraction(float(v)) for v in row] for row in A]
    rhs = [Fraction(float(v)) for v in b]
    for j in range(n):
        unit = [Fraction(int(i == j)) for i in range(n)]
        rows += [unit, [-v for v in unit]]
        rhs += [Fraction(float(upper[j])), -Fraction(float(lower[j]))]
    cost = [Fraction(float(v)) for v in c]
    best = None
    for basis in combinations(range(len(rows)), n):
        x = solve_linear([rows[i] for i in basis], [rhs[i] for i in basis])
        if x is not None and all(sum(a * v for a, v in zip(row, x)) <= r for row, r in zip(rows, rhs)):
            value = sum(a * v for a, v in zip(cost, x))
            best = value if best is None else min(best, value)
    return best


def affine_model(seed: int, d: int = 2, states: int = 6) -> ParametricMDP:
    """Rows are mixtures of d + 1 random distributions with unknown weights (the last is 1 minus the others)."""
    rng = np.random.default_rng(seed)
    names = [f"w{k}" for k in range(d)]
    weights = [Polynomial.parameter(name) for name in names]
    weights.append(Polynomial.constant(1) - sum(weights[1:], weights[0]))

    def actions(state):
        if state >= states - 2:
            return {"stay": {state: 1}}
        found = {}
        for a in range(2):
            others = rng.choice([s for s in range(states) if s != states - 2], size=2, replace=False)
            successors = [states - 2, *others]  # every row may fail, so that values differ
            parts = [rng.multinomial(20, np.ones(3) / 3) for _ in weights]
            row = {
                int(s): sum((w * Fraction(int(p[i]), 20) for w, p in zip(weights, parts)), Polynomial.constant(0))
                for i, s in enumerate(successors)
            }
            found[f"a{a}"] = {s: f for s, f in row.items() if f != Polynomial.constant(0)}
        return found

    return _built(actions, Domain.box(names).with_simplex(), states)


def polynomial_model(seed: int, degree: int = 2, states: int = 6) -> ParametricMDP:
    """Rows are products of independent coins with affine biases; degree 2 to 4 in two parameters."""
    rng = np.random.default_rng(seed)
    names = ["u", "v"]

    def coin(name: str) -> Polynomial:
        a, b = int(rng.integers(0, 6)), int(rng.integers(2, 6))
        return Polynomial.constant(Fraction(a, 10)) + Polynomial.parameter(name) * Fraction(
            b, 10 + int(rng.integers(0, 4))
        )

    def actions(state):
        if state >= states - 2:
            return {"stay": {state: 1}}
        found = {}
        for a in range(2):
            coins = [coin(names[k % 2]) for k in range(degree)]
            row: dict[int, Polynomial] = {}
            for outcome in product((0, 1), repeat=degree):
                chance = Polynomial.constant(1)
                for side, bias in zip(outcome, coins):
                    chance = chance * (bias if side else 1 - bias)
                s = int(rng.integers(0, states))
                row[s] = row.get(s, Polynomial.constant(0)) + chance
            found[f"a{a}"] = row
        return found

    return _built(actions, Domain.box(names), states)


def _built(actions, domain: Domain, states: int) -> ParametricMDP:
    table = {s: actions(s) for s in range(states)}  # one draw per state
    start = {s: Polynomial.constant(Fraction(1, states)) for s in range(states)}
    table[-1] = {"start": start}
    return build(-1, lambda s: table[s], domain=domain, labels={"goal": lambda s: s == states - 1})


def intervals_around(pmdp: ParametricMDP, theta: np.ndarray, seed: int, width: float = 0.1):
    """Random intervals (F,) that contain f[theta]."""
    rng = np.random.default_rng(seed)
    f = pmdp.table.at(theta)
    lower = np.clip(f - rng.uniform(0, width, len(f)), 0, 1)
    upper = np.clip(f + rng.uniform(0, width, len(f)), 0, 1)
    constant = pmdp.table.is_constant
    return np.where(constant, f, lower), np.where(constant, f, upper)


def coordinates_in(region: Region, pmdp: ParametricMDP, theta: np.ndarray) -> np.ndarray:
    """(n, r) parameter vectors (n, d) of a model in the coordinates of a region of it."""
    theta = np.atleast_2d(np.asarray(theta, dtype=float))
    if not isinstance(region, ParameterRegion):
        return pmdp.table.reduction.coordinates(theta)
    return theta[:, used_parameters(pmdp.table)] if theta.shape[1] > region.dimension else theta
