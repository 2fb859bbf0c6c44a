"""Random small models over the regions that are made of others: products, images, hulls, polynomials, many coordinates.

A `Space` lists, block by block of coordinates, points whose hull is the block (or lies in it), in rational numbers; a
row's distributions are those at all combinations of points of the blocks that it looks at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

import numpy as np

from rpl_agent.core.model.pmdp import ParametricMDP
from rpl_agent.core.model.polynomial import Polynomial
from rpl_agent.core.regions import Box, Image, Polytope, Product, Region, build_region
from rpl_agent.core.regions.product import Hull
from rpl_agent.core.relaxations.base import INTERVAL
from rpl_agent.core.relaxations.rectangular import Rectangular
from tests.reference.oracle import Distribution
from tests.reference.random_models import Sample, Uncompiled, interval_corners, skeleton, value_at

Point = tuple[Fraction, ...]
#: sides of coordinates in eighths: two of them leave room for a rest
EIGHTHS = ((0, 1), (0, 2), (0, 4), (1, 2), (1, 3), (2, 4), (3, 4))
ONE = Fraction(1)


@dataclass(frozen=True)
class Space:
    """Coordinates x0, x1, ... and where they can be; ``region`` is made for a model."""

    kind: str
    dimension: int
    blocks: list[tuple[tuple[int, ...], list[Point]]]
    region: Callable[[ParametricMDP], Region]
    exact: bool = True


def _sides(random: Random, count: int) -> list[tuple[Fraction, Fraction]]:
    return [(Fraction(a, 8), Fraction(b, 8)) for a, b in random.choices(EIGHTHS, k=count)]


def _ends(sides: list[tuple[Fraction, Fraction]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([float(a) for a, _ in sides]), np.array([float(b) for _, b in sides])


def _cut_corner(sides: list[tuple[Fraction, Fraction]], most: Fraction) -> list[Point]:
    """Vertices of {x, y in their sides : x + y <= most}; most is at least the sum of the lower ends."""
    (a, b), (c, d) = sides
    found = {(x, y) for x in (a, b) for y in (c, d) if x + y <= most}
    found |= {(x, most - x) for x in (a, b) if c <= most - x <= d} | {
        (most - y, y) for y in (c, d) if a <= most - y <= b
    }
    return sorted(found)


def _linear_programs(random: Random) -> Space:
    """Eight coordinates, too many for a vertex graph; each pair has a corner cut off."""
    sides = _sides(random, 8)
    low, high = _ends(sides)
    A, b, blocks = np.zeros((4, 8)), np.zeros(4), []
    for k in range(4):
        pair = sides[2 * k : 2 * k + 2]
        least, most = sum(s[0] for s in pair), sum(s[1] for s in pair)
        bound = least + (most - least) * Fraction(random.choice([1, 2, 3, 4]), 4)
        A[k, 2 * k : 2 * k + 2], b[k] = 1.0, float(bound)
        blocks.append(((2 * k, 2 * k + 1), _cut_corner(pair, bound)))
    return Space("linear programs, cut", 8, blocks, lambda _: Polytope(A, b, low, high))


def _product(random: Random) -> Space:
    """One or two pairs of coordinates, each an interval row without its last entry, a box or a triangle."""
    count = random.choice([1, 2, 2])
    blocks, regions, bounds, rests = [], {}, [], []
    for k in range(count):
        pair = _sides(random, 2)
        least, most = 1 - sum(s[1] for s in pair), 1 - sum(s[0] for s in pair)
        what = random.choice(["interval", "interval", "box", "triangle"])
        rest = (least, most)
        if what == "interval":
            rest = random.choice([(least, most), (least, (least + most) / 2), ((least + most) / 2, most)])
            points = interval_corners({0: pair[0], 1: pair[1], 2: rest})
            vertices = [(p[0], p[1]) for p in points]
        elif what == "box":
            regions[k], vertices = Box(*_ends(pair)), list(product(*pair))
        else:
            bound = sum(s[0] for s in pair) + (most - least) / 2
            regions[k] = Polytope(np.ones((1, 2)), np.array([float(bound)]), *_ends(pair))
            vertices = _cut_corner(pair, bound)
        blocks.append(((2 * k, 2 * k + 1), vertices))
        bounds += pair
        rests.append(rest)
    pointer = 2 * np.arange(count + 1)
    return Space("product", 2 * count, blocks, lambda _: Product(pointer, *_ends(bounds), *_ends(rests), regions))


def _image(random: Random) -> Space:
    """Two coordinates that are mixtures of three others."""
    sides = _sides(random, 3)
    matrix = [[Fraction(1, 2), random.choice([Fraction(1, 4), Fraction(-1, 8)]), Fraction(0)],
              [Fraction(0), Fraction(1, 4), Fraction(1, 2)]]  # fmt: skip
    if random.random() < 0.3:
        matrix[1] = [Fraction(1, 4), Fraction(0), Fraction(1, 2)]
    offset = max(Fraction(0), -min(sum(m * z for m, z in zip(matrix[0], corner)) for corner in product(*sides)))
    sides[0] = (sides[0][0] + 2 * offset, sides[0][1] + 2 * offset)  # probabilities are not negative
    points = [tuple(sum(m * z for m, z in zip(row, corner)) for row in matrix) for corner in product(*sides)]
    inner = Polytope(np.zeros((0, 3)), np.zeros(0), *_ends(sides))
    embedding = np.array([[float(m) for m in row] for row in matrix])
    return Space("image", 2, [((0, 1), points)], lambda _: Image(inner, embedding))


def _hull(random: Random) -> Space:
    """A box of which only the model's own expressions are known: more than the box may be allowed, never less."""
    d = random.choice([1, 2, 3])
    sides = _sides(random, d)
    corners = list(product(*sides))

    def region(pmdp: ParametricMDP) -> Region:
        table = pmdp.table
        values = np.array([[float(x) for x in corner] for corner in corners]) @ table.reduction.weights.T
        low, high = table.constant + values.min(axis=0), table.constant + values.max(axis=0)
        return Hull(table.constant, table.reduction.weights, low, high, _ends(sides))

    return Space("hull", d, [((k,), [(a,), (b,)]) for k, (a, b) in enumerate(sides)], region, exact=False)


def _polynomials(random: Random) -> Space:
    """Two parameters in a box and expressions of degree two, between bounds that the box attains."""
    sides = _sides(random, 2)
    points = [*product(*sides), tuple((a + b) / 2 for a, b in sides)]

    def region(pmdp: ParametricMDP) -> Region:
        low, high = [], []
        for f in range(pmdp.num_expressions):
            polynomial = pmdp.table.polynomial(f)
            values = [value_at(polynomial, {"x0": x, "x1": y}) for x, y in points]
            low.append(np.nextafter(float(min(values)), -1.0))
            high.append(np.nextafter(float(max(values)), 2.0))
        return build_region(pmdp, np.array(low), np.array(high))

    return Space("polynomials", 2, [((0, 1), points)], region, exact=False)


# ---------------------------------------------------------------------- models
def _parts(random: Random, x: list[Polynomial], i: int, j: int, size: int, squared: bool) -> list[Polynomial]:
    """The expressions of a row with two to four successors, nonnegative where x_i + x_j <= 1 and x_i <= 1/2."""
    if squared and size == 2:
        return [x[i] * x[j], 1 - x[i] * x[j]]
    if squared:
        parts = [x[i] * x[j], x[i] * (1 - x[j]), 1 - x[i]]
    elif size == 2:
        return [x[i], 1 - x[i]]
    elif i == j:
        parts = [x[i], x[i] * Fraction(1, 2), 1 - x[i] * Fraction(3, 2)]
    else:
        parts = [x[i], x[j], 1 - x[i] - x[j]]
    return parts if size == 3 else [p * Fraction(1, 2) for p in parts] + [Polynomial.constant(Fraction(1, 2))]


def space_sample(random: Random) -> Sample:
    """Rows of two to four successors over the coordinates of a random space."""
    space = random.choice([_linear_programs, _product, _product, _image, _hull, _polynomials])(random)
    d, states = space.dimension, random.choice([2, 3, 3, 4])
    names = tuple(f"x{k}" for k in range(d))
    x = [Polynomial.parameter(name) for name in names]
    squared = space.kind == "polynomials"
    rows: list[list[dict[int, Polynomial]]] = []
    unused = list(range(d))
    random.shuffle(unused)
    for _ in range(states):
        choices = []
        for _ in range(random.choice([1, 2]) if d < 5 else 2):
            i = unused.pop() if unused else random.randrange(d)
            j = min(i ^ 1, d - 1) if random.random() < 0.7 else random.randrange(d)
            size = random.randint(2, min(states, 3 + (states > 3)))
            if size > 2 and j in unused and not squared:
                unused.remove(j)
            choices.append(dict(zip(random.sample(range(states), size), _parts(random, x, i, j, size, squared))))
        rows.append(choices)
    for i in unused:  # every parameter is a coordinate: it stands alone somewhere
        rows[random.randrange(states)][0] = {0: x[i], 1: 1 - x[i]}
    pmdp, target, avoid, cost, signed = skeleton(random, rows, names)
    if not squared and not pmdp.table.reduction.is_identity:
        return space_sample(random)
    relaxation = Rectangular(pmdp, space.region(pmdp))
    corners = _corners(space, pmdp, relaxation, rows)
    return Sample(space.kind, relaxation, corners, space.exact, target, avoid, cost, signed)


def mixture_rows(
    random: Random,
) -> tuple[list[list[dict[int, Polynomial]]], int, list[tuple[Fraction, Fraction]]]:
    """Rows that first toss a coin and then play x_i or x_j: the hull lets nature put all mass on two of the four.

    Where nature can hold a play, or keep a cost from ending, is a question to the region, not to its hull.
    Returns (rows, number of parameters, their sides).
    """
    d, states, share = random.choice([2, 2, 2, 3]), random.choice([4, 4, 5]), Fraction(1, random.choice([2, 2, 4]))
    sides = [random.choice([(0, 8)] * 5 + [(0, 4), (4, 8), (0, 1)]) for _ in range(d)]
    bounds = [(Fraction(a, 8), Fraction(b, 8)) for a, b in sides]
    x = [Polynomial.parameter(f"x{k}") for k in range(d)]

    def row() -> dict[int, Polynomial]:
        i, j = random.sample(range(d), 2)
        kind = random.random()
        if kind < 0.25:
            return {random.randrange(states): Polynomial.constant(ONE)}
        if kind < 0.35:
            return dict(zip(random.sample(range(states), 2), (x[i], 1 - x[i])))
        parts = [x[i] * share, (1 - x[i]) * share, x[j] * (1 - share), (1 - x[j]) * (1 - share)]
        return dict(zip(random.sample(range(states), 4), parts))

    rows = [[row() for _ in range(random.choice([1, 1, 2]))] for _ in range(states)]
    if random.random() < 0.8:  # the case itself: two states to hold the play in, and a coin that leaves them
        a, b, c, e = random.sample(range(states), 4)
        parts = [x[0] * share, (1 - x[0]) * share, x[1] * (1 - share), (1 - x[1]) * (1 - share)]
        rows[a], rows[b] = [dict(zip((c, e, a, b), parts))], [{random.choice([a, a, b]): Polynomial.constant(ONE)}]
        if random.random() < 0.7:
            rows[c], rows[e] = [{e: Polynomial.constant(ONE)}], [{c: Polynomial.constant(ONE)}]
    return rows, d, bounds


def mixture_sample(random: Random) -> Sample:
    rows, d, bounds = mixture_rows(random)
    pmdp, target, avoid, cost, signed = skeleton(random, rows, tuple(f"x{k}" for k in range(d)))
    if pmdp.table.reduction.rank < d or not pmdp.table.reduction.is_identity:
        return mixture_sample(random)
    low, high = _ends(bounds)
    blocks: list[tuple[tuple[int, ...], list[Point]]] = [((k,), [(a,), (b,)]) for k, (a, b) in enumerate(bounds)]
    space = Space("mixtures", d, blocks, lambda _: Polytope(np.zeros((0, d)), np.zeros(0), low, high))
    relaxation: Any = Rectangular(pmdp, space.region(pmdp))
    corners = _corners(space, pmdp, relaxation, rows)
    if random.random() < 0.2:
        relaxation = Uncompiled(relaxation)
    return Sample(space.kind, relaxation, corners, space.exact, target, avoid, cost, signed)


def _corners(space: Space, pmdp: ParametricMDP, relaxation: Rectangular, rows: list) -> list[list[list[Distribution]]]:
    """Nature's distributions, row by row."""
    lower, upper = relaxation.bounds()
    compiled = relaxation.compiled()
    is_hull = compiled is not None and compiled.kind == INTERVAL
    corners: list[list[list[Distribution]]] = []
    t = 0
    for choices in rows:
        corners.append([])
        for row in choices:
            found = _row_corners(row, space)
            if space.exact and (len(row) == 2 or is_hull):  # what the relaxation means is the hull, with its rounding
                f = pmdp.expression[t : t + len(row)]
                found = interval_corners({j: (Fraction(lower[k]), Fraction(upper[k])) for j, k in zip(sorted(row), f)})
            corners[-1].append(found)
            t += len(row)
    return corners


def _row_corners(row: dict[int, Polynomial], space: Space) -> list[Distribution]:
    used = {int(name[1:]) for f in row.values() for name in f.parameters}
    touched = [(members, points) for members, points in space.blocks if used & set(members)]
    found = {}
    for choice in product(*(points for _, points in touched)):
        theta = {f"x{k}": Fraction(v) for (members, _), point in zip(touched, choice) for k, v in zip(members, point)}
        p = {j: value_at(f, theta) for j, f in row.items()}
        found[tuple(sorted(p.items()))] = p
    return list(found.values())
