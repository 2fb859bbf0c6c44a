"""One round of the polynomial fuzz: a random model, a region of its parameters, and exact values at many points of it.

Bounds over a region must hold at every parameter of it. `round_of` draws a model (degree up to 6, up to 6 parameters,
with and without cycles) and a box, polytope or ellipsoid of parameters, asks the rectangular relaxation and the coupled
bounds, and compares the sides that certificates take with values in rational numbers (`oracle`) at rational points.
"""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np

from rpl_agent.core.coupled.bounds import coupled_bounds
from rpl_agent.core.model import Nature, Objective, ParametricMDP, Polynomial, Sense
from rpl_agent.core.model.unused import used_parameters, without_unused
from rpl_agent.core.regions import Box, Ellipsoid, Intersection, Polytope
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.parameter_region import ParameterRegion
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.core.solver import solve_both
from tests.reference.fuzz import Dice, Tally, above, below, objectives, question_of, random_policy, values_of
from tests.reference.oracle import best_values
from tests.reference.random_models import Sample, skeleton

Point = tuple[Fraction, ...]
MOST_DEGREE = 6
#: questions about one model, points of its region, and tries to find one
QUESTIONS, POINTS, TRIES = 4, 10, 60


def _share(random: Random) -> Fraction:
    return Fraction(random.randint(1, 15), 16)


def piece(random: Random, names: list[str], depth: int = 2) -> Polynomial:
    """A polynomial that is a probability on the unit cube."""
    kind = random.random()
    if depth == 0 or kind < 0.4:
        x = Polynomial.parameter(random.choice(names))
        c = _share(random)
        return random.choice([x, 1 - x, c * x, c + (1 - c) * x, c - c * x])
    first = piece(random, names, depth - 1)
    if kind < 0.6:
        return first * piece(random, names, depth - 1)
    if kind < 0.7:
        return 1 - (1 - first) * (1 - first)
    if kind < 0.85:
        c = _share(random)
        return c * first + (1 - c) * piece(random, names, depth - 1)
    second = piece(random, names, depth - 1)
    return first * second + (1 - first) * piece(random, names, 0)


def row(random: Random, names: list[str], successors: list[int]) -> dict[int, Polynomial]:
    """Probabilities by breaking a stick; of degree at most MOST_DEGREE."""
    while True:
        left, found = Polynomial.constant(1), {}
        for s in successors[:-1]:
            part = piece(random, names)
            found[s] = left * part
            left = left * (1 - part)
        found[successors[-1]] = left
        if all(f.degree <= MOST_DEGREE for f in found.values()):
            return {s: f for s, f in found.items() if f.terms}


def model(random: Random) -> tuple:
    """What `skeleton` gives, and the rows of polynomials."""
    names = [f"t{j}" for j in range(random.randint(1, 6))]
    states, forward = random.randint(2, 4), random.random() < 0.4
    rows = []
    for s in range(states):
        choices = []
        for _ in range(random.choice([1, 1, 2])):
            open_to = [j for j in range(states) if j > s or not forward] or [s]
            chosen = random.sample(open_to, random.randint(1, len(open_to)))
            choices.append(row(random, names, chosen))
        rows.append(choices)
    return (*skeleton(random, rows, tuple(names)), rows)


def region(random: Random, d: int) -> tuple[Region, list[Point]]:
    """A region of d parameters within the unit cube, and rational points of it."""
    center = [Fraction(random.randint(16, 112), 128) for _ in range(d)]
    half = [min(c, 1 - c, Fraction(random.choice([1, 2, 4, 8, 16, 48]), 128)) for c in center]
    low, high = [c - h for c, h in zip(center, half)], [c + h for c, h in zip(center, half)]
    box = np.array([float(x) for x in low]), np.array([float(x) for x in high])
    normals = [[random.randint(-2, 2) for _ in range(d)] for _ in range(random.randint(1, 3))]
    right = [sum((n * c for n, c in zip(normal, center)), Fraction(random.randint(0, 8), 256)) for normal in normals]
    kind = random.choice(["box", "polytope", "ellipsoid", "both"])
    found: list[Region] = []
    if kind == "box":
        found.append(Box(*box))
    if kind in ("polytope", "both"):
        found.append(Polytope(np.array(normals, float), np.array([float(b) for b in right]), *box))
    if kind in ("ellipsoid", "both"):
        H = np.diag([float(1 / h) ** 2 for h in half])
        found.append(Ellipsoid(np.array([float(c) for c in center]), H, 1.0))

    def inside(theta: Point) -> bool:
        cut = all(sum(n * x for n, x in zip(normal, theta)) <= b for normal, b in zip(normals, right))
        round_ = sum(((x - c) / h) ** 2 for x, c, h in zip(theta, center, half)) <= 1
        return (cut or kind not in ("polytope", "both")) and (round_ or kind not in ("ellipsoid", "both"))

    points = [p for p in (tuple(center),) if inside(p)]
    for _ in range(TRIES):
        steps = [random.choice([-16, 16, random.randint(-16, 16)]) for _ in range(d)]
        shrink = Fraction(1, random.choice([1, 1, 2])) if kind == "box" else Fraction(random.randint(4, 16), 16)
        theta = tuple(c + shrink * h * s / 16 for c, h, s in zip(center, half, steps))
        if inside(theta):
            points.append(theta)
    return (found[0] if len(found) == 1 else Intersection(found)), points[:1] + points[-POINTS:]


def at(rows: list, names: tuple[str, ...], theta: Point) -> list[list[list[dict[int, Fraction]]]]:
    """The model at one parameter, for the oracle."""
    values = dict(zip(names, theta))
    return [[[{j: f.at(values) for j, f in row.items()}] for row in choices] for choices in rows]


def round_of(seed: int) -> Tally:
    """One model, one region, some questions."""
    random, tally = Dice(seed), Tally()
    pmdp, target, avoid, cost, signed, rows = model(random)
    used = used_parameters(pmdp.table)
    if not used.any() or pmdp.table.is_affine:
        return tally
    inner, points = region(random, int(used.sum()))
    names = tuple(name for name, keep in zip(pmdp.table.parameters, used) if keep)
    if inner.is_empty or not points:
        return tally
    found = ParameterRegion(inner, without_unused(pmdp).table)
    relaxation = Rectangular(pmdp, found)
    samples = [
        Sample("polynomial", relaxation, at(rows, names, theta), True, target, avoid, cost, signed) for theta in points
    ]
    for objective in random.sample(objectives(random, bool(avoid)), QUESTIONS):
        name = f"seed {seed}, {objective.describe()}"
        tally.problems["polynomial"] += 1
        tally.failures += [f"{name}: {text}" for text in _wrong(random, pmdp, relaxation, found, samples, objective)]
    return tally


def _wrong(
    random: Dice, pmdp: ParametricMDP, relaxation: Rectangular, found: ParameterRegion, samples: list[Sample],
    objective: Objective,
) -> list[str]:  # fmt: skip
    """What is claimed of a region and does not hold at some point of it."""
    policy = random_policy(random, samples[0])
    robust, optimistic = solve_both(relaxation, objective, policy=policy)
    issues = [f"check: {text}" for text in robust.check([objective.sense is Sense.MIN])]
    issues += [f"check: {text}" for text in optimistic.check([objective.sense is Sense.MAX])]
    maximise = objective.sense is Sense.MAX
    claims = [(robust.lower, optimistic.upper, robust.policy) if maximise else
              (optimistic.lower, robust.upper, robust.policy)]  # fmt: skip
    coupled = coupled_bounds(relaxation, found, objective, policy, robust.policy, pieces=random.choice([1, 4]))
    if coupled is not None:
        claims.append((coupled.lower, coupled.upper, coupled.policy))
    for sample in samples:
        question = question_of(sample, objective, Nature.ADVERSARIAL)
        best = best_values(sample.corners, question)[pmdp.initial_state]
        for k, (lower, upper, chosen) in enumerate(claims):
            own = values_of(sample, question, policy if policy is not None else chosen)[pmdp.initial_state]
            least, most = (own, own) if policy is not None else (own, best) if maximise else (best, own)
            if not below(float(lower), least):
                issues.append(f"{('rectangular', 'coupled')[k]} lower {lower!r} > {float(least)!r}")
            if not above(float(upper), most):
                issues.append(f"{('rectangular', 'coupled')[k]} upper {upper!r} < {float(most)!r}")
    return issues
