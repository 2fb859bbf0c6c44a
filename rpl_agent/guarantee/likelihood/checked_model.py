"""The model as `guarantee.checker` reads it: plain numbers, and coordinates in which all expressions are affine."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy

from rpl_agent.core.model import Objective, ParametricMDP, cached_fact
from rpl_agent.core.regions.blocks import factorisation, is_blockwise
from rpl_agent.core.regions.lp import LinearProgram
from rpl_agent.core.regions.polytope import GRAPH_DIMENSION
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.likelihood.line import Line


class Basis(NamedTuple):
    """Coordinates x in which all expressions are affine, exactly: a fact of the model, never of data."""

    x: dict[checker.Monomial, checker.Polynomial]  # by the monomial whose coefficients are the weights of x
    domain: list[list[Fraction]]  # (c, w) with c + w·x ≥ 0 in the domain
    start: list[Fraction]  # x of a point where all expressions are positive
    blocks: list[list[int]]  # the coordinates of each block, if the model is learned in blocks; else empty


@cached_fact
def joint_coordinates(pmdp: ParametricMDP) -> Line | None:
    """The coordinates of the joint likelihood; None for models that are known by intervals alone."""
    basis = _basis(pmdp)
    if basis is None:
        return None
    expressions = np.column_stack([pmdp.table.constant, pmdp.table.reduction.dense()])  # each number rounded once
    walls = np.array([[float(y) for y in row] for row in basis.domain]).reshape(-1, expressions.shape[1])
    return Line.of(expressions, walls, np.array([float(y) for y in basis.start]), basis.blocks)


def model_content(pmdp: ParametricMDP, objective: Objective, graph: bool) -> dict[str, Any]:
    """The model with the labels and rewards of the objective and its limits, and those expressions that are trusted.

    If only the ``graph`` is trusted, every row has its own distribution.
    """
    asked = (objective, *(limit.objective for limit in objective.limits))
    named = {name: None for one in asked for name in (one.target, one.avoid) if name}
    labels = {name: np.flatnonzero(pmdp.labels[name]).tolist() for name in named}
    paid = {one.reward_name: pmdp.rewards[one.reward_name] for one in asked if one.reward_name is not None}
    rewards = {name: {"state": sparse(reward.state), "row": sparse(reward.row)} for name, reward in paid.items()}
    found = {
        "name": pmdp.name,
        "hash": pmdp.content_hash,
        "state_ptr": pmdp.state_ptr.tolist(),
        "row_ptr": pmdp.row_ptr.tolist(),
        "action": pmdp.action.tolist(),
        "actions": list(pmdp.action_names),
        "successor": pmdp.successor.tolist(),
        "initial": pmdp.initial_state,
        "silent": np.flatnonzero(pmdp.is_silent).tolist(),
        "labels": labels,
        "rewards": rewards,
    }
    if graph:
        return found | _free_rows(pmdp)
    coordinates = _coordinates(pmdp)
    return found | {
        "expression": pmdp.expression.tolist(),
        "expressions": None if coordinates else _expressions(pmdp),
        "parameters": list(pmdp.table.parameters),
        "lower": pmdp.domain.lower.tolist(),
        "upper": pmdp.domain.upper.tolist(),
        "coordinates": coordinates,
    }


def _free_rows(pmdp: ParametricMDP) -> dict[str, Any]:
    """One parameter for each successor of a row except the last."""
    expressions: list[list[Any]] = []
    number = 0
    for begin, end in pairwise(pmdp.row_ptr.tolist()):
        own = list(range(number, number + end - begin - 1))
        number += len(own)
        expressions += [[[1, [[k, 1]]]] for k in own]
        expressions.append([[1, []], *([-1, [[k, 1]]] for k in own)])
    return {
        "expression": list(range(pmdp.num_transitions)),
        "expressions": expressions,
        "parameters": [f"p{k}" for k in range(number)],
        "lower": [0.0] * number,
        "upper": [1.0] * number,
        "coordinates": None,
    }


@cached_fact
def _coordinates(pmdp: ParametricMDP) -> dict[str, Any] | None:
    """The coordinates as a proof has them."""
    basis = _basis(pmdp)
    if basis is None:
        return None
    terms = [[Fraction(0)] * (len(basis.x) + 1) for _ in range(pmdp.num_expressions)]
    table, places = pmdp.table, {0: 0} | {k + 1: i + 1 for i, k in enumerate(pmdp.table.reduction.pivots)}
    for f, k, n in zip(table.owner.tolist(), table.indices.tolist(), table.data.tolist()):
        if k in places:
            terms[f][places[k]] = Fraction(n, table.denominators[k])
    return {
        "x": [[[_whole(c), [list(pair) for pair in m]] for m, c in x.items()] for x in basis.x.values()],
        "terms": [[_whole(c) for c in row] for row in terms],
        "domain": [[_whole(y) for y in row] for row in basis.domain],
        "start": [float(y) for y in basis.start],
    } | ({"blocks": basis.blocks} if basis.blocks else {})


@cached_fact
def _basis(pmdp: ParametricMDP) -> Basis | None:
    """The reduced coordinates of the model, and a point where all expressions are positive.

    None for models of many independent blocks, and for polynomials of many coordinates: for these, sets of the
    parameters are tighter, though not proved, and need no linear programs.
    """
    table, blocks = pmdp.table, _blocks(pmdp)
    most = checker.MOST_COORDINATES if table.is_affine else GRAPH_DIMENSION
    most = checker.MOST_OF_BLOCKS if blocks else most
    if not 0 < table.reduction.rank <= most or (is_blockwise(pmdp) and not blocks):
        return None
    monomials = [tuple((i, p) for i, p in enumerate(row) if p) for row in np.asarray(table.monomials)[1:].tolist()]
    matrix: Any = table.reduction.matrix
    dense = matrix.toarray() if scipy.sparse.issparse(matrix) else np.asarray(matrix)
    exact = [[Fraction(c).limit_denominator(10**9) for c in row] for row in dense.tolist()]
    if not table.reduction.is_identity and not _is_exact(pmdp, exact):
        return None
    pivots = [monomials[k] for k in table.reduction.pivots]
    x = {pivot: {m: c for m, c in zip(monomials, row) if c} for pivot, row in zip(pivots, exact)}
    rows, center = _domain_rows(pmdp, x), pmdp.domain.center()
    for theta in (np.rint(center * 1024) / 1024, center):  # round numbers are the same on all machines
        point = [Fraction(t) for t in theta.tolist()]
        start = [_at(terms, point) for terms in x.values()]
        inside = all(c + sum(a * b for a, b in zip(w, start)) > 0 for c, *w in rows)
        if inside and _are_positive(pmdp, theta, point):
            return Basis(x, rows, start, blocks)
    return None


def _blocks(pmdp: ParametricMDP) -> list[list[int]]:
    """The coordinates of each block of a model that is learned in blocks; empty for others, and if there are too many.

    A single block of more coordinates than particles can fill is learned as a block, too.
    """
    rank = pmdp.table.reduction.rank
    if rank > checker.MOST_OF_BLOCKS:
        return []
    if not is_blockwise(pmdp):
        return [list(range(rank))] if pmdp.table.is_affine and rank > checker.MOST_COORDINATES else []
    found = factorisation(pmdp)
    return [sorted(found.order[i:j].tolist()) for i, j in pairwise(found.block_ptr.tolist())]


def _is_exact(pmdp: ParametricMDP, matrix: list[list[Fraction]]) -> bool:
    """Whether the coordinates give every coefficient exactly: all numerators = numerators of the pivots @ matrix."""
    table = pmdp.table
    whole = math.lcm(*table.denominators)
    scale = math.lcm(*(c.denominator for row in matrix for c in row))
    numerators = np.zeros((table.num_expressions, table.num_monomials), dtype=object)
    numerators[table.owner, table.indices] = [
        n * (whole // table.denominators[k]) for n, k in zip(table.data.tolist(), table.indices.tolist())
    ]
    numerators = numerators[:, 1:]
    rows = np.array([[int(c * scale) for c in row] for row in matrix], dtype=object)
    return bool((numerators[:, list(table.reduction.pivots)] @ rows == numerators * scale).all())


def _are_positive(pmdp: ParametricMDP, theta: np.ndarray, point: list[Fraction]) -> bool:
    """Whether all expressions are positive at θ; those that are small in floats are computed exactly."""
    places = {name: i for i, name in enumerate(pmdp.table.parameters)}
    for f in np.flatnonzero(pmdp.table.at(theta) < 1e-6).tolist():
        terms = pmdp.table.polynomial(f).terms.items()
        value = sum(c * math.prod(point[places[name]] ** p for name, p in powers) for powers, c in terms)
        if not value > 0:
            return False
    return True


def _domain_rows(pmdp: ParametricMDP, basis: dict[checker.Monomial, checker.Polynomial]) -> list[list[Fraction]]:
    """(c, w) with c + w·x ≥ 0 in the domain: bounds and rows that are functions of x, McCormick's inequalities."""
    found = []
    rows: list[checker.Polynomial] = [
        {(): Fraction(c)} | {((i, 1),): -Fraction(y) for i, y in enumerate(row) if y}
        for row, c in zip(*(part.tolist() for part in pmdp.domain.constraints()))
    ]
    for terms in [*rows, *_products(pmdp, basis)]:
        c, w = terms.get((), Fraction(0)), [terms.get(pivot, Fraction(0)) for pivot in basis]
        if checker.combined([(Fraction(1), {(): c}), *zip(w, basis.values())]) == checker.combined(
            [(Fraction(1), terms)]
        ):
            found.append([c, *w])
    for i, (pivot, terms) in enumerate(basis.items()):
        if terms == {pivot: 1} and len(pivot) == 1 and pivot[0][1] == 1:
            continue  # a parameter: its bounds are among the rows already
        unit = [Fraction(i == j) for j in range(len(basis))]
        low, high = -_most(pmdp, {m: -c for m, c in terms.items()}), _most(pmdp, terms)
        found += [[-low, *unit], [high, *(-y for y in unit)]]
    return found


def _products(pmdp: ParametricMDP, basis: dict[checker.Monomial, checker.Polynomial]) -> list[checker.Polynomial]:
    """(y − a)(z − b) ≥ 0 for products y z among the monomials, a and b ends of y and z in the domain."""
    found = []
    monomials = {m for terms in basis.values() for m in terms}
    for monomial in sorted(monomials):
        powers = dict(monomial)
        for i in powers if sum(powers.values()) > 1 else ():
            rest = tuple((k, p - (k == i)) for k, p in monomial if p > (k == i))
            y, z, both = ((i, 1),), rest, _ends(pmdp, {rest: Fraction(1)})
            for a, sign in zip(_ends(pmdp, {y: Fraction(1)}), (1, -1)):
                for b, other in zip(both, (1, -1)):
                    parts: list[checker.Polynomial] = [{monomial: Fraction(1)}, {z: -a}, {y: -b}, {(): a * b}]
                    found.append(checker.combined([(Fraction(sign * other), part) for part in parts]))
    return found


def _ends(pmdp: ParametricMDP, terms: checker.Polynomial) -> tuple[Fraction, Fraction]:
    """Bounds of a polynomial over those of the parameters, term by term."""
    low = high = Fraction(0)
    for monomial, c in terms.items():
        ends = [c]
        for i, power in monomial:
            a, b = Fraction(float(pmdp.domain.lower[i])), Fraction(float(pmdp.domain.upper[i]))
            ends = [x * end for x in ends for end in (a**power, b**power, *([Fraction(0)] if a < 0 < b else []))]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _most(pmdp: ParametricMDP, terms: checker.Polynomial) -> Fraction:
    """An upper bound of a polynomial over the domain; of an affine one by multipliers m ≥ 0 of the domain's rows.

    g·θ = Σ m_i (Aθ)_i + (g − A'm)·θ ≤ m·b + max (g − A'm)·θ over the parameters' bounds. Multipliers are rounded, so
    that they are the same on all machines.
    """
    domain, affine = pmdp.domain, all(sum(p for _, p in monomial) == 1 for monomial in terms)
    if not affine or not len(domain.b) or scipy.sparse.issparse(domain.A):
        return _ends(pmdp, terms)[1]
    g = np.zeros(domain.dimension)
    for ((i, _),), c in terms.items():
        g[i] = float(c)
    m = LinearProgram(domain.A, domain.b, domain.lower, domain.upper).optimum(-g)[1]
    best = _ends(pmdp, terms)[1]
    if m is None:
        return best
    bound, rest = Fraction(0), dict(terms)
    for y, row, b in zip((np.rint(m * 2.0**20) / 2.0**20).tolist(), domain.A.tolist(), domain.b.tolist()):
        bound += Fraction(y) * Fraction(b)
        terms_of_row: checker.Polynomial = {((i, 1),): Fraction(a) for i, a in enumerate(row) if a}
        rest = checker.combined([(Fraction(1), rest), (-Fraction(y), terms_of_row)])
    return min(best, bound + _ends(pmdp, rest)[1])


def _at(terms: checker.Polynomial, point: list[Fraction]) -> Fraction:
    return sum((c * math.prod(point[i] ** power for i, power in m) for m, c in terms.items()), Fraction(0))


def _whole(number: Fraction) -> int | str:
    return int(number) if number.denominator == 1 else str(number)


def _expressions(pmdp: ParametricMDP) -> list[list[Any]]:
    """The terms of each expression (coefficient, [[parameter, power], …]); coefficients are integers or "p/q"."""
    places = {name: i for i, name in enumerate(pmdp.table.parameters)}
    found = (pmdp.table.polynomial(f).terms.items() for f in range(pmdp.num_expressions))
    return [[[_whole(c), sorted([places[name], p] for name, p in powers)] for powers, c in terms] for terms in found]


def sparse(numbers: np.ndarray) -> list[list[Any]]:
    places = np.flatnonzero(numbers)
    return [[k, x] for k, x in zip(places.tolist(), np.asarray(numbers)[places].tolist())]
