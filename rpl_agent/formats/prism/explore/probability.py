"""Probabilities: polynomials in the parameters whose coefficients depend on the state, evaluated exactly and interned.

Each is evaluated once per combination of its variables, and is an id into a `Pool` of distinct polynomials. Products
(synchronisation) and sums (equal successors) of pooled polynomials are computed once per distinct pair.

An interval model (``[low, high] : update``) is an uncertain MDP that is given, not learned. Synchronised intervals
multiply, intervals of equal successors add, bound by bound, as in PRISM. The skeleton has one artificial parameter per
distinct interval; it only marks where the intervals are, and is not a parametric MDP to learn (its rows sum to one
only for some of its parameters). Bounds may contain the file's own parameters.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial, reduce

import numpy as np

from rpl_agent.core.errors import ModelError, listed
from rpl_agent.core.model import Domain, ExpressionTable, Polynomial, as_polynomial
from rpl_agent.core.model.algebra.ranges import RangeEnclosure, enclosure
from rpl_agent.core.model.building.validation import RANGE_TOLERANCE
from rpl_agent.core.model.polynomial import ONE, Monomial
from rpl_agent.formats.prism.explore.code import Bytecode, Columns, NotVectorisable, Projection, Scaled, exact_values
from rpl_agent.formats.prism.language.grammar import PrismError
from rpl_agent.formats.prism.language.scope import StateVariable
from rpl_agent.formats.prism.language.typed import MAX_TERMS, Node


@dataclass(frozen=True)
class IntervalBounds:
    """Bounds on the skeleton's F expressions as polynomials in the file's parameters; data may not narrow them."""

    low: ExpressionTable
    high: ExpressionTable
    low_id: np.ndarray  # (F,)
    high_id: np.ndarray  # (F,)
    merged: np.ndarray  # (F,) bool: several ways to one successor, whose upper bounds may sum to more than 1
    domain: Domain
    is_learnable = False

    def at(self, theta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """(lower, upper) bounds (F,) at parameters; without them, the hull over their domain, rounded outward."""
        if theta is None and self.domain.parameters:
            box = self.domain.lower, self.domain.upper
            least, most = _outward(enclosure(self.low, *box))[0], _outward(enclosure(self.high, *box))[1]
        else:
            point = np.zeros(0) if theta is None else np.asarray(theta, dtype=float)
            if point.shape != (len(self.domain.parameters),) or not self.domain.contains(point):
                raise ModelError(f"θ must be a point of the domain of {listed(self.domain.parameters)}")
            least, most = self.low.bounds_at(point)[0], self.high.bounds_at(point)[1]
        lower, upper = least[self.low_id], most[self.high_id]
        upper = np.where(self.merged, np.minimum(upper, 1.0), upper)
        return np.where(lower > upper, upper, lower), upper


@dataclass(frozen=True)
class FileBounds:
    """Bounds (F,) on the probabilities, as given in a file without parameters; data may narrow them."""

    lower: np.ndarray
    upper: np.ndarray
    domain: Domain = field(default_factory=lambda: Domain.box({}))
    is_learnable = True

    def at(self, theta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """(lower, upper); the file has no parameters."""
        return self.lower, self.upper


Bounds = IntervalBounds | FileBounds


def _outward(found: RangeEnclosure) -> tuple[np.ndarray, np.ndarray]:
    """Bounds rounded outward, kept within [0, 1]."""
    lower, upper = found.lower - found.slack, found.upper + found.slack
    lower = np.where((lower < 0.0) & (found.lower >= -RANGE_TOLERANCE), 0.0, lower)
    return lower, np.where((upper > 1.0) & (found.upper <= 1.0 + RANGE_TOLERANCE), 1.0, upper)


def skeleton(
    pool: Pool, low: np.ndarray, high: np.ndarray, merged: np.ndarray, parameters: Sequence[str], domain: Domain
) -> tuple[ExpressionTable, Domain, np.ndarray, IntervalBounds]:
    """Table and domain of the skeleton, (T,) expression ids, and the bounds, from pool ids of both ends (T,)."""
    pairs, expression = np.unique(np.column_stack([low, high, merged]), axis=0, return_inverse=True)
    low_table, low_id = pool.table(parameters, pairs[:, 0])
    high_table, high_id = pool.table(parameters, pairs[:, 1])
    bounds = IntervalBounds(low_table, high_table, low_id, high_id, pairs[:, 2] > 0, domain)
    names = [f"interval{k}" for k in range(len(pairs))]
    numerators = np.hstack([np.zeros((len(pairs), 1), dtype=np.int64), np.eye(len(pairs), dtype=np.int64)])
    exponents = np.vstack([np.zeros((1, len(pairs)), dtype=np.int32), np.eye(len(pairs), dtype=np.int32)])
    table = ExpressionTable.from_integers(names, exponents, numerators, [1] * (len(pairs) + 1))
    made = Domain.box({name: (0.0, 1.0) for name in names})
    return table, made, expression.reshape(-1).astype(np.int32), bounds


def attainable_ends(pool: Pool, row: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pool ids (T,) of the least and the most that a distribution of each row can give to a successor.

    In exact numbers: beside lower ends that sum to 1 there is no room, where ends that are rounded outward would leave
    some. Rows with parameters, and those with wrong ends, which are refused later, keep theirs.
    """
    low, high = low.copy(), high.copy()
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], list[np.ndarray]] = {}
    for first, last in zip(starts.tolist(), [*starts[1:].tolist(), len(row)]):
        key = tuple(low[first:last].tolist()), tuple(high[first:last].tolist())
        if key not in known:
            known[key] = [pool.intern(ends) for ends in _attainable(*([pool[i] for i in part] for part in key))]
        low[first:last], high[first:last] = known[key]
    return low, high


def _attainable(low: list[Polynomial], high: list[Polynomial]) -> tuple[list[Polynomial], list[Polynomial]]:
    """The ends that distributions of a row attain; the given ones where they are not numbers, or there is none."""
    if any(monomial != ONE for end in (*low, *high) for monomial in end.terms):
        return low, high
    least, most = ([end.terms.get(ONE, Fraction(0)) for end in ends] for ends in (low, high))
    room, excess = 1 - sum(least), sum(most) - 1
    if room < 0 or excess < 0 or max(most) > 1:
        return low, high
    attained = [(max(a, b - excess), min(b, a + room)) for a, b in zip(least, most)]
    return [Polynomial.constant(a) for a, _ in attained], [Polynomial.constant(b) for _, b in attained]


def times(left: Monomial, right: Monomial) -> Monomial:
    powers = dict(left)
    for name, power in right:
        powers[name] = powers.get(name, 0) + power
    return tuple(sorted(powers.items()))


class Pool:
    """Distinct polynomials by id. Id 0 is zero, id 1 is one."""

    def __init__(self) -> None:
        self._ids: dict[Polynomial, int] = {}
        self._polynomials: list[Polynomial] = []
        self.intern([Polynomial({}), Polynomial.constant(1)])

    def __getitem__(self, number: int) -> Polynomial:
        return self._polynomials[number]

    def intern(self, polynomials: Iterable[Polynomial]) -> np.ndarray:
        """Ids (n,) int32 of polynomials."""
        ids = []
        for polynomial in polynomials:
            ids.append(self._ids.setdefault(polynomial, len(self._ids)))
            if len(self._ids) > len(self._polynomials):
                self._polynomials.append(polynomial)
        return np.array(ids, dtype=np.int32)

    def multiply(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Ids of the products of polynomials left (n,) and right (n,)."""
        return self._pairs(operator.mul, left, right)

    def add(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Ids of the sums."""
        return self._pairs(operator.add, left, right)

    def _pairs(self, operation: Callable, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        size, known = len(self._ids), self._polynomials
        pairs, inverse = np.unique(left.astype(np.int64) * size + right, return_inverse=True)
        found = [operation(known[pair // size], known[pair % size]) for pair in pairs.tolist()]
        return self.intern(found)[inverse.reshape(-1)]

    def sums(self, ids: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Ids of the sums of groups of polynomials, each from a start to the next."""
        sizes, total = np.diff(np.append(starts, len(ids))), ids[starts]
        for k in range(1, int(sizes.max(initial=1))):
            more = np.flatnonzero(sizes > k)
            total[more] = self.add(total[more], ids[starts[more] + k])
        return total

    def scale(self, ids: np.ndarray, divisors: np.ndarray) -> np.ndarray:
        """Ids of the polynomials divided by positive integers (n,)."""
        distinct, inverse = np.unique(divisors, return_inverse=True)
        reciprocal = self.intern([Polynomial.constant(Fraction(1, k)) for k in distinct.tolist()])
        return self.multiply(ids, reciprocal[inverse.reshape(-1)])

    def table(self, parameters: Sequence[str], used: np.ndarray) -> tuple[ExpressionTable, np.ndarray]:
        """Λ of the used ids in canonical order, and the (n,) expression id of each entry of ``used``."""
        distinct, inverse = np.unique(used, return_inverse=True)
        chosen = [self._polynomials[i] for i in distinct]
        table, rank = ExpressionTable.from_polynomials(chosen, parameters).sorted()
        return table, rank[inverse.reshape(-1)].astype(np.int32)


def probability_ids(
    node: Node | None, variables: Sequence[StateVariable], pool: Pool, columns: Columns, n: int
) -> np.ndarray:
    """(n,) int32 ids of a probability in n states; each combination of its variables is evaluated once."""
    if node is None:
        return np.ones(n, dtype=np.int32)
    if node.is_literal:
        return np.repeat(pool.intern(map(as_polynomial, exact_values(node, variables, [], 1))), n)
    some, inverse = Projection(node.support, variables).distinct(columns, n)
    size, bytecode = int(inverse.max(initial=-1)) + 1, Bytecode(variables)
    try:
        terms = polynomial_terms(node, bytecode)
    except NotVectorisable:
        return pool.intern(map(as_polynomial, exact_values(node, variables, some, size)))[inverse]
    numerators = bytecode.run(some, list(terms.values()), size).T
    rows, of = np.unique(numerators, axis=0, return_inverse=True)  # most states share their polynomials
    scales = [(monomial, term.denominator) for monomial, term in terms.items()]
    found = (Polynomial({m: Fraction(v, q) for v, (m, q) in zip(row, scales)}) for row in rows.tolist())
    return pool.intern(found)[of.reshape(-1)[inverse]]


def polynomial_terms(
    node: Node, bytecode: Bytecode, memo: dict[int, dict[Monomial, Scaled]] | None = None
) -> dict[Monomial, Scaled]:
    """An expression compiled to one scaled integer per monomial of its parameters."""
    memo = {} if memo is None else memo
    if id(node) not in memo:
        memo[id(node)] = _terms(node, bytecode, memo)
        if len(memo[id(node)]) > MAX_TERMS:
            raise PrismError(f"polynomial with more than {MAX_TERMS} terms", node.position)
    return memo[id(node)]


def _terms(node: Node, bytecode: Bytecode, memo: dict[int, dict[Monomial, Scaled]]) -> dict[Monomial, Scaled]:
    if not node.parametric:
        return {ONE: bytecode.value(node)}
    if node.operator == "parameter":
        return {((str(node.value), 1),): bytecode.constant(1)}
    parts = [polynomial_terms(a, bytecode, memo) for a in node.arguments]
    if node.operator == "+":
        grouped: dict[Monomial, list[Scaled]] = {}
        for part in parts:
            for monomial, value in part.items():
                grouped.setdefault(monomial, []).append(value)
        return {m: bytecode.add(values) for m, values in grouped.items()}
    if node.operator in ("neg", "*", "pow", "/"):
        last = node.arguments[-1]
        if node.operator in ("pow", "/") and (not last.is_literal or (node.operator == "/" and last.value == 0)):
            raise NotVectorisable  # which monomials occur, or the denominator, depends on the state
        if node.operator == "neg":
            parts.insert(0, {ONE: bytecode.constant(-1)})
        elif node.operator == "pow":
            parts = [{ONE: bytecode.constant(1)}, *[parts[0]] * int(last.value)]
        elif node.operator == "/":
            parts[1] = {ONE: bytecode.constant(1 / Fraction(last.value))}
        return reduce(partial(_product, bytecode), parts)
    assert node.operator == "?:"
    condition, zero = bytecode.value(node.arguments[0]), bytecode.constant(0)
    monomials = dict.fromkeys([*parts[1], *parts[2]])
    return {m: bytecode.choose(condition, parts[1].get(m, zero), parts[2].get(m, zero)) for m in monomials}


def _product(bytecode: Bytecode, left: dict[Monomial, Scaled], right: dict[Monomial, Scaled]) -> dict[Monomial, Scaled]:
    grouped: dict[Monomial, list[Scaled]] = {}
    for m1, v1 in left.items():
        for m2, v2 in right.items():
            grouped.setdefault(times(m1, m2), []).append(bytecode.multiply(v1, v2))
    if len(grouped) > MAX_TERMS:
        raise NotVectorisable
    return {m: bytecode.add(values) for m, values in grouped.items()}
