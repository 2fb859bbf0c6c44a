"""Random small models of every kind for the fuzz: interval models with hard numbers, and models over regions."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations, product
from random import Random

import numpy as np

from rpl_agent.core.model import Sense
from rpl_agent.core.model.domain import Domain
from rpl_agent.core.model.expressions import ExpressionTable
from rpl_agent.core.model.pmdp import ParametricMDP, Reward
from rpl_agent.core.model.polynomial import Polynomial
from rpl_agent.core.regions import Box, Ellipsoid, Intersection, Polytope
from rpl_agent.core.relaxations import Intervals
from rpl_agent.core.relaxations.base import Relaxation
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.core.relaxations.rectangular import Rectangular
from tests.reference.oracle import Distribution

TINY = Fraction(1e-300)
ALMOST = Fraction(1.0 - 1e-16)
#: probabilities are these, or sixteenths, or thirds as floats
HARD = (Fraction(0), TINY, Fraction(1e-16), Fraction(1e-9), Fraction(1 / 3), Fraction(1, 2), ALMOST, Fraction(1))


@dataclass(frozen=True)
class Sample:
    """A model, what nature may do in it, and the same for the oracle."""

    kind: str
    relaxation: Relaxation
    corners: list[list[list[Distribution]]]
    #: False: the corners are only some points of nature's set, so they test the outward bounds alone
    exact: bool
    target: frozenset[int]
    avoid: frozenset[int]
    cost: list[list[float]]
    signed: list[list[float]]


class Uncompiled:
    """A relaxation behind its protocol alone: the solver's second engine takes it."""

    def __init__(self, inner: Relaxation) -> None:
        self.inner, self.pmdp, self.name = inner, inner.pmdp, inner.name
        self.tightness = max(getattr(inner, "tightness", 0.0), 1e-12)

    def expectation(self, values: np.ndarray, extremum: Sense, out: np.ndarray, rows: np.ndarray | None = None) -> None:
        self.inner.expectation(values, extremum, out, rows)

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return self.inner.bounds()

    def compiled(self) -> None:
        return None


def skeleton(random: Random, rows: list[list[dict[int, Polynomial]]], names: tuple[str, ...]):
    """(pmdp, target, avoid, cost, signed) for rows of polynomials; targets may have rows that leave them."""
    states = len(rows)
    flat = [row for choices in rows for row in choices]
    polynomials = [row[j] for row in flat for j in sorted(row)]
    distinct = list(dict.fromkeys(polynomials))
    number = {f: k for k, f in enumerate(distinct)}
    target = frozenset(random.sample(range(states), random.choice([1, 1, 1, 2]) if states > 2 else 1))
    rest = [s for s in range(states) if s not in target]
    avoid = frozenset(random.sample(rest, 1)) if rest and random.random() < 0.3 else frozenset()
    cost = [[random.choice([0.0, 0.0, 1.0, 2.0, 0.1]) for _ in choices] for choices in rows]
    signed = [[random.choice([-1.0, 0.0, 0.5, 1.0, 3.0]) for _ in choices] for choices in rows]

    def mask(members: frozenset[int]) -> np.ndarray:
        return np.isin(np.arange(states), list(members))

    def reward(table: list[list[float]]) -> Reward:
        return Reward(np.zeros(states), np.array([c for choice in table for c in choice]))

    pmdp = ParametricMDP(
        state_ptr=np.concatenate([[0], np.cumsum([len(choices) for choices in rows])]),
        action=np.concatenate([np.arange(len(choices)) for choices in rows]),
        row_ptr=np.concatenate([[0], np.cumsum([len(row) for row in flat])]),
        successor=np.array([j for row in flat for j in sorted(row)]),
        expression=np.array([number[f] for f in polynomials]),
        table=ExpressionTable.from_polynomials(distinct, names),
        domain=Domain.box(names),
        initial_state=random.randrange(states),
        labels={"goal": mask(target), "bad": mask(avoid)},
        rewards={"cost": reward(cost), "signed": reward(signed)},
        action_names=tuple(f"a{k}" for k in range(max(2, *map(len, rows)))),
    )
    return pmdp, target, avoid, cost, signed


# ---------------------------------------------------------------------- intervals
def _bounds(random: Random, size: int, style: str) -> list[tuple[Fraction, Fraction]]:
    """Bounds that admit a distribution, exactly."""
    while True:
        if style == "hard":
            pairs = [sorted(random.choices(HARD, k=2)) for _ in range(size)]
            if random.random() < 0.5:
                pairs[random.randrange(size)][1] = Fraction(1)
        else:
            cuts = sorted(random.randint(0, 16) for _ in range(size - 1))
            masses = [b - a for a, b in zip([0, *cuts], [*cuts, 16])]
            lows = [random.choice([0, max(0, m - 2), m, m]) if style == "wide" else m for m in masses]
            highs = [random.choice([16, min(16, m + 3), m, m]) if style == "wide" else m for m in masses]
            pairs = [[Fraction(lo, 16), Fraction(hi, 16)] for lo, hi in zip(lows, highs)]
        if sum(lo for lo, _ in pairs) <= 1 <= sum(hi for _, hi in pairs):
            return [(lo, hi) for lo, hi in pairs]


def interval_corners(row: dict[int, tuple[Fraction, Fraction]]) -> list[Distribution]:
    """All vertices of {p : lower <= p <= upper, sum p = 1}: fill up in every order."""
    found = {}
    for order in permutations(sorted(row)):
        p = {j: lo for j, (lo, _) in row.items()}
        rest = 1 - sum(p.values())
        for j in order:
            share = min(row[j][1] - row[j][0], rest)
            p[j] += share
            rest -= share
        found[tuple(sorted(p.items()))] = p
    return list(found.values())


def interval_sample(random: Random) -> Sample:
    """Two to four states, one or two actions, up to three successors, bounds from sixteenths to 1e-300."""
    states = random.choice([2, 3, 3, 3, 4])
    style = random.choice(["wide", "wide", "hard", "known"])
    bounds, rows, names = [], [], []
    for _ in range(states):
        choices, polynomials = [], []
        for _ in range(random.choice([1, 2])):
            successors = random.sample(range(states), min(states, random.choice([1, 2, 2, 3])))
            choices.append(dict(zip(successors, _bounds(random, len(successors), style))))
            row = {}
            for j in sorted(successors):
                names.append(f"t{len(names)}")
                row[j] = Polynomial.parameter(names[-1])
            polynomials.append(row)
        bounds.append(choices)
        rows.append(polynomials)
    pmdp, target, avoid, cost, signed = skeleton(random, rows, tuple(names))
    flat = [row[j] for choices in bounds for row in choices for j in sorted(row)]
    relaxation = Intervals(pmdp, np.array([float(lo) for lo, _ in flat]), np.array([float(hi) for _, hi in flat]))
    corners = [[interval_corners(row) for row in choices] for choices in bounds]
    second = random.random() < 0.3
    return Sample(
        "intervals, second engine" if second else "intervals",
        Uncompiled(relaxation) if second else relaxation, corners, True, target, avoid, cost, signed,
    )  # fmt: skip


# ---------------------------------------------------------------------- known models
def known_sample(random: Random) -> Sample:
    """Two to seven states of a known MDP, mostly with cycles; probabilities are sixteenths, or nearly 0 and 1."""
    states = random.choice([2, 3, 4, 5, 6, 7])
    parts = random.choice([16, 16, 16, 1 << 20])
    corners: list[list[list[Distribution]]] = []
    for _ in range(states):
        choices = []
        for _ in range(random.choice([1, 2])):
            successors = random.sample(range(states), min(states, random.choice([1, 2, 2, 3])))
            cuts = sorted(random.choice([1, 2, random.randrange(parts), parts - 1]) for _ in successors[1:])
            masses = [b - a for a, b in zip([0, *cuts], [*cuts, parts])]
            choices.append([{j: Fraction(mass, parts) for j, mass in zip(successors, masses)}])
        corners.append(choices)
    rows = [[{j: Polynomial.constant(p) for j, p in row.items()} for [row] in choices] for choices in corners]
    pmdp, target, avoid, cost, signed = skeleton(random, rows, ())
    return Sample("known", Point(pmdp.instantiate(np.zeros(0))), corners, True, target, avoid, cost, signed)


# ---------------------------------------------------------------------- regions
def _region(random: Random, d: int):
    """(kind, region, points (rational) whose hull is the region or lies in it, whether it is the hull)."""
    # widths are powers of two, so that all rows of the region are exact floats
    eighths = [random.choice([(0, 1), (0, 2), (0, 4), (1, 2), (1, 3), (2, 4), (3, 4)]) for _ in range(d)]
    low, high = np.array([a / 8 for a, _ in eighths]), np.array([b / 8 for _, b in eighths])
    kind = random.choice(["box", "polytope", "ellipsoid", "polytope and ellipsoid"]) if d <= 3 else "linear programs"
    sides = [(Fraction(a, 8), Fraction(b, 8)) for a, b in eighths]
    middle = [(a + b) / 2 for a, b in sides]
    if kind == "box":
        return kind, Box(low, high), list(product(*sides)), True
    if kind == "linear programs":
        A = np.vstack([np.eye(d), np.ones((1, d))])
        return kind, Polytope(A, np.append(high, 4.0 * d), low, high), sides, True
    if kind == "polytope":  # a cross-polytope around the middle: |x - m| / r summed <= 1
        radius = (high - low) / 2
        signs = np.array(list(product([-1.0, 1.0], repeat=d)))
        A = signs / radius
        points = [[m + (s * (b - a) / 2 if i == k else 0) for k, (m, (a, b)) in enumerate(zip(middle, sides))]
                  for i in range(d) for s in (-1, 1)]  # fmt: skip
        return kind, Polytope(A, 1.0 + A @ ((low + high) / 2), low, high), points, True
    around = Ellipsoid((low + high) / 2, np.diag((2 / (high - low)) ** 2), 1.0)
    points = [[m + (s * Fraction(4095, 4096) * (b - a) / 2 if i == k else 0)
               for k, (m, (a, b)) in enumerate(zip(middle, sides))] for i in range(d) for s in (-1, 1)]  # fmt: skip
    if kind == "ellipsoid":
        return kind, around, points, False
    return kind, Intersection([Polytope(np.eye(d), high, low, high), around]), points, False


def region_sample(random: Random) -> Sample:
    """Rows of two to four successors over one to three shared parameters; eight and more for the second engine."""
    d = random.choice([1, 2, 2, 3, 9])
    names = tuple(f"x{k}" for k in range(d))
    states = random.choice([2, 3, 3, 4])
    x = [Polynomial.parameter(name) for name in names]
    rows: list[list[dict[int, Polynomial]]] = []
    unused = list(range(d))
    for _ in range(states):
        choices = []
        for _ in range(random.choice([1, 2]) if d < 9 else 2):
            i = unused.pop() if unused else random.randrange(d)
            j = unused.pop() if unused and states > 2 else random.randrange(d)
            size = random.randint(2, min(states, 3 + (states > 3)))
            successors = random.sample(range(states), size)
            if size == 2:
                parts = [x[i], 1 - x[i]]
            elif i == j:
                parts = [x[i], x[i] * Fraction(1, 2), 1 - x[i] * Fraction(3, 2)]
            else:
                parts = [x[i], x[j], 1 - x[i] - x[j]]
            if size == 4:
                parts = [p * Fraction(1, 2) for p in parts] + [Polynomial.constant(Fraction(1, 2))]
            choices.append(dict(zip(successors, parts)))
        rows.append(choices)
    for i in unused:  # every parameter is a coordinate: it stands alone somewhere
        rows[random.randrange(states)][0] = {0: x[i], 1: 1 - x[i]}
    pmdp, target, avoid, cost, signed = skeleton(random, rows, names)
    if not pmdp.table.reduction.is_identity:
        return region_sample(random)
    kind, region, points, exact = _region(random, d)
    relaxation = Rectangular(pmdp, region)
    lower, upper = relaxation.bounds()
    corners, t = [], 0
    for choices in rows:
        corners.append([])
        for row in choices:
            found = _row_corners(row, points, d)
            if len(row) == 2 and exact:  # of two successors the hull, with its rounding, is what the relaxation means
                f = pmdp.expression[t : t + 2]
                found = interval_corners({j: (Fraction(lower[k]), Fraction(upper[k])) for j, k in zip(sorted(row), f)})
            corners[-1].append(found)
            t += len(row)
    return Sample(kind, relaxation, corners, exact, target, avoid, cost, signed)


def _row_corners(row: dict[int, Polynomial], points: list, d: int) -> list[Distribution]:
    """The distributions of a row at the points; for nine parameters at the corners of those that it uses."""
    names = sorted({name for f in row.values() for name in f.parameters})
    if d >= 9:
        chosen = [dict(zip(names, values)) for values in product(*(points[int(name[1:])] for name in names))]
    else:
        chosen = [{name: Fraction(point[int(name[1:])]) for name in names} for point in points]
    found = {}
    for theta in chosen or [{}]:
        p = {j: value_at(f, theta) for j, f in row.items()}
        found[tuple(sorted(p.items()))] = p
    return list(found.values())


def value_at(f: Polynomial, theta: dict[str, Fraction]) -> Fraction:
    total = Fraction(0)
    for monomial, coefficient in f.terms.items():
        term = Fraction(coefficient)
        for name, power in monomial:
            term *= theta[name] ** power
        total += term
    return total
