"""Probabilities: polynomials in the parameters whose coefficients depend on the state, evaluated exactly and interned.

`ProbabilityColumn` is one probability expression of the file; asked for many states, it evaluates only combinations
of its variables that are new, and answers with ids into a `Pool` of distinct polynomials. Products (synchronisation)
and sums (equal successors) of pooled polynomials are taken once per distinct pair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import gcd, lcm

import numpy as np

from rpl_agent.formats.prism.explore.tape import LIMIT, Columns, NotVectorisable, Scaled, Tape
from rpl_agent.formats.prism.explore.vector import Projection
from rpl_agent.formats.prism.language.derived import DerivedParameters
from rpl_agent.formats.prism.language.errors import PrismError
from rpl_agent.formats.prism.language.scope import StateVariable
from rpl_agent.formats.prism.language.typed import MAX_TERMS, Node, evaluate
from rpl_agent.model.expressions import ExpressionTable
from rpl_agent.model.polynomial import ONE, Monomial, Polynomial

# Lookup tables by combination of variables are dense up to this size, sorted arrays beyond.
DENSE_LOOKUP = 1 << 18
EAGER_LOOKUP = 1 << 12


def times(left: Monomial, right: Monomial) -> Monomial:
    powers = dict(left)
    for name, power in right:
        powers[name] = powers.get(name, 0) + power
    return tuple(sorted(powers.items()))


class Pool:
    """Distinct polynomials as rows of integers, one denominator per monomial. Id 0 is zero, id 1 is one."""

    def __init__(self) -> None:
        self.columns: dict[Monomial, int] = {ONE: 0}
        self.denominators: list[int] = [1]
        self._numerators = np.zeros((16, 1), dtype=np.int64)  # rows beyond len(self) are spare
        self._index: dict[object, int] = {}
        self.derived = DerivedParameters()
        self._largest = [1]  # bound of the numerators, per column
        self.intern([ONE], [1], np.array([[0], [1]], dtype=np.int64))

    def __len__(self) -> int:
        return len(self._index)

    @property
    def parameters(self) -> frozenset[str]:
        """All names that occur in some monomial."""
        return frozenset(name for monomial in self.columns for name, _ in monomial)

    @property
    def numerators(self) -> np.ndarray:
        """(F, M) int64, or object when 62 bits do not suffice."""
        return self._numerators[: len(self)]

    def reserve(self, monomials: Sequence[Monomial], denominators: Sequence[int]) -> None:
        """Make room for these monomials and denominators; existing rows are rescaled if they must be."""
        changed = False
        for monomial, denominator in zip(monomials, denominators, strict=True):
            if monomial not in self.columns:
                self.columns[monomial] = len(self.columns)
                self.denominators.append(1)
                self._largest.append(0)
                spare = np.zeros((len(self._numerators), 1), dtype=self._numerators.dtype)
                self._numerators = np.hstack([self._numerators, spare])
                changed = True
            column = self.columns[monomial]
            factor = lcm(self.denominators[column], denominator) // self.denominators[column]
            if factor > 1:
                self._require(max(self._largest[column], 1) * factor)
                self._numerators[:, column] *= factor
                self._largest[column] *= factor
                self.denominators[column] *= factor
                changed = True
        if changed:
            self._index = {self._key(row): i for i, row in enumerate(self.numerators)}

    def intern(self, monomials: Sequence[Monomial], denominators: Sequence[int], numerators: np.ndarray) -> np.ndarray:
        """Ids (n,) int32 of the polynomials with these (n, len(monomials)) numerators."""
        self.reserve(monomials, denominators)
        factors = [self.denominators[self.columns[m]] // q for m, q in zip(monomials, denominators, strict=True)]
        for j, (monomial, factor) in enumerate(zip(monomials, factors, strict=True)):
            largest = int(np.abs(numerators[:, j]).max(initial=0)) * factor
            self._require(max(largest, factor))
            self._largest[self.columns[monomial]] = max(self._largest[self.columns[monomial]], largest)
        rows = np.zeros((len(numerators), len(self.columns)), dtype=self._numerators.dtype)
        for j, (monomial, factor) in enumerate(zip(monomials, factors, strict=True)):
            rows[:, self.columns[monomial]] += numerators[:, j].astype(rows.dtype) * factor
        inverse = None
        if rows.dtype != object and len(rows) > 1:  # most states share their polynomials: compare whole rows as bytes
            packed = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1] * rows.itemsize))).ravel()
            _, first, inverse = np.unique(packed, return_index=True, return_inverse=True)
            rows = rows[first]
        ids = np.empty(len(rows), dtype=np.int32)
        for i, row in enumerate(rows):
            key = self._key(row)
            found = self._index.get(key)
            if found is None:
                found = self._index[key] = self._append(row, len(self._index))
            ids[i] = found
        return ids if inverse is None else ids[inverse.reshape(-1)]

    def intern_all(self, polynomials: Sequence[Polynomial]) -> np.ndarray:
        """Ids (n,) int32 of polynomials, n ≥ 1."""
        monomials = list(dict.fromkeys(m for p in polynomials for m in p.terms)) or [ONE]
        column = {m: j for j, m in enumerate(monomials)}
        denominators = [1] * len(monomials)
        for p in polynomials:
            for m, c in p.terms.items():
                denominators[column[m]] = lcm(denominators[column[m]], c.denominator)
        exact = np.zeros((len(polynomials), len(monomials)), dtype=object)
        for i, p in enumerate(polynomials):
            for m, c in p.terms.items():
                exact[i, column[m]] = int(c * denominators[column[m]])
        small = max(abs(v) for v in exact.flat) < LIMIT
        return self.intern(monomials, denominators, exact.astype(np.int64) if small else exact)

    def occurring(self, ids: np.ndarray) -> frozenset[str]:
        """The names that stand in some of these polynomials."""
        columns = (self.numerators[np.unique(ids)] != 0).any(axis=0)
        return frozenset(name for monomial, k in self.columns.items() if columns[k] for name, _ in monomial)

    def _append(self, row: np.ndarray, number: int) -> int:
        if number >= len(self._numerators):
            spare = np.zeros((len(self._numerators), len(self.columns)), dtype=self._numerators.dtype)
            self._numerators = np.vstack([self._numerators, spare])
        self._numerators[number] = row
        return number

    def _require(self, largest: int) -> None:
        """Switch to Python's integers before 62 bits are exceeded."""
        if largest >= LIMIT and self._numerators.dtype != object:
            self._numerators = self._numerators.astype(object)
            self._index = {self._key(row): i for i, row in enumerate(self.numerators)}

    @staticmethod
    def _key(row: np.ndarray) -> object:
        return tuple(row) if row.dtype == object else row.tobytes()

    def multiply(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Ids of the products of polynomials left (n,) and right (n,)."""
        return self._pairs(left, right, self._products)

    def add(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Ids of the sums."""
        return self._pairs(left, right, self._sums)

    def _pairs(self, left: np.ndarray, right: np.ndarray, operation: Callable) -> np.ndarray:
        size = len(self)
        pairs, inverse = np.unique(left.astype(np.int64) * size + right, return_inverse=True)
        a, b = np.divmod(pairs, size)
        return operation(self.numerators[a], self.numerators[b])[inverse.reshape(-1)]

    def _sums(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.intern(list(self.columns), list(self.denominators), a + b)

    def _products(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        names = list(self.columns)
        left, right = self._reduced(a), self._reduced(b)
        pairs: dict[Monomial, list[tuple[int, int]]] = {}
        for i in left:
            for j in right:
                pairs.setdefault(times(names[i], names[j]), []).append((i, j))
        denominators = [lcm(*(left[i][1] * right[j][1] for i, j in group)) for group in pairs.values()]
        largest = [max((int(np.abs(v).max(initial=0)) for v, _ in side.values()), default=0) for side in (left, right)]
        bound = largest[0] * largest[1] * max(denominators, default=1) * max(map(len, pairs.values()), default=1)
        exact = np.int64 if bound < LIMIT else object
        out = np.zeros((len(a), len(pairs)), dtype=exact)
        for k, group in enumerate(pairs.values()):
            for i, j in group:
                factor = denominators[k] // (left[i][1] * right[j][1])
                out[:, k] += left[i][0].astype(exact) * right[j][0].astype(exact) * factor
        if exact is object and max((abs(v) for v in out.flat), default=0) < LIMIT:
            out = out.astype(np.int64)
        return self.intern(list(pairs), denominators, out)

    def _reduced(self, rows: np.ndarray) -> dict[int, tuple[np.ndarray, int]]:
        """The nonzero columns of some rows with the smallest denominator that serves them all."""
        result = {}
        for j in np.flatnonzero((rows != 0).any(axis=0)).tolist():
            divisor = gcd(self.denominators[j], *np.unique(rows[:, j]).tolist())
            result[j] = (rows[:, j] // divisor, self.denominators[j] // divisor)
        return result

    def scale(self, ids: np.ndarray, divisors: np.ndarray) -> np.ndarray:
        """Ids of the polynomials divided by positive integers (n,)."""
        distinct, inverse = np.unique(divisors, return_inverse=True)
        reciprocal = [int(self.intern([ONE], [int(k)], np.array([[1]]))[0]) for k in distinct]
        return self.multiply(ids, np.array(reciprocal, dtype=np.int32)[inverse.reshape(-1)])

    def table(self, parameters: Sequence[str], used: np.ndarray) -> tuple[ExpressionTable, np.ndarray]:
        """Λ of the used ids in canonical order, and the (n,) expression id of each entry of ``used``."""
        distinct, inverse = np.unique(used, return_inverse=True)
        numerators = self.numerators[distinct]
        position = {name: i for i, name in enumerate(parameters)}
        order = sorted(self.columns, key=lambda m: (sum(p for _, p in m), [(position[n], -p) for n, p in m]))
        exponents = np.zeros((len(order), len(parameters)), dtype=np.int32)
        for i, monomial in enumerate(order):
            for name, power in monomial:
                exponents[i, position[name]] = power
        columns = [self.columns[m] for m in order]
        table, rank = ExpressionTable.from_integers(
            parameters, exponents, numerators[:, columns], [self.denominators[c] for c in columns]
        ).sorted()
        return table, rank[inverse.reshape(-1)].astype(np.int32)


class ProbabilityColumn:
    """One probability expression, asked for whole columns of states."""

    def __init__(self, node: Node | None, variables: Sequence[StateVariable], pool: Pool):
        self.node = node
        self.pool = pool
        self.projection = Projection(node.support if node else frozenset(), variables)
        if node is not None and self.projection.size >= LIMIT:
            raise PrismError("this probability depends on too many variables at once", node.position)
        self.tape = Tape(variables)
        self.terms: dict[Monomial, Scaled] | None = None
        self._dense = (
            np.full(self.projection.size, -1, dtype=np.int32) if self.projection.size <= DENSE_LOOKUP else None
        )
        self._keys = np.zeros(0, dtype=np.int64)
        self._ids = np.zeros(0, dtype=np.int32)
        if node is None:
            return
        try:
            self.terms = polynomial_terms(node, self.tape)
        except NotVectorisable:
            self.terms = None
        else:
            pool.reserve(list(self.terms), [t.denominator for t in self.terms.values()])

    def ids(self, columns: Columns, n: int) -> np.ndarray:
        """(n,) int32 ids into the pool."""
        if self.node is None:
            return np.ones(n, dtype=np.int32)
        keys = self.projection.key(columns, n)
        found = self._lookup(keys)
        missing = found < 0
        if missing.any():
            # few combinations: all of them at once (a compiled expression is defined everywhere)
            few = self.terms is not None and self.projection.size <= EAGER_LOOKUP
            new = np.arange(self.projection.size) if few else np.unique(keys[missing])
            self._store(new, self._evaluate(new))
            found = self._lookup(keys)
        return found

    def _lookup(self, keys: np.ndarray) -> np.ndarray:
        if self._dense is not None:
            return self._dense[keys]
        if not len(self._keys):
            return np.full(len(keys), -1, dtype=np.int32)
        where = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[where] == keys, self._ids[where], np.int32(-1))

    def _store(self, keys: np.ndarray, ids: np.ndarray) -> None:
        if self._dense is not None:
            self._dense[keys] = ids
            return
        where = np.searchsorted(self._keys, keys)
        self._keys, self._ids = np.insert(self._keys, where, keys), np.insert(self._ids, where, ids)

    def _evaluate(self, keys: np.ndarray) -> np.ndarray:
        assert self.node is not None
        columns = self.projection.columns(keys)
        if self.terms is not None:
            terms = list(self.terms.values())
            numerators = self.tape.run(columns, terms, len(keys)).T
            return self.pool.intern(list(self.terms), [t.denominator for t in terms], numerators)
        return self.pool.intern_all([self._slow(state) for state in np.column_stack(columns).tolist()])

    def _slow(self, state: list[int]) -> Polynomial:
        assert self.node is not None
        try:
            value = evaluate(self.node, state)
        except PrismError as error:
            shown = ", ".join(f"{self.projection.variables[i].name}={state[i]}" for i in self.projection.indices)
            raise PrismError(f"{error.reason} at ({shown})", self.node.position) from None
        return self.pool.derived.named(value) if isinstance(value, Polynomial) else Polynomial.constant(value)


def polynomial_terms(node: Node, tape: Tape) -> dict[Monomial, Scaled]:
    """An expression compiled to one scaled integer per monomial of its parameters."""
    return _polynomial(node, tape, {})


def _polynomial(node: Node, tape: Tape, memo: dict[int, dict[Monomial, Scaled]]) -> dict[Monomial, Scaled]:
    if id(node) not in memo:
        memo[id(node)] = _terms(node, tape, memo)
        if len(memo[id(node)]) > MAX_TERMS:
            raise PrismError(f"polynomial with more than {MAX_TERMS} terms", node.position)
    return memo[id(node)]


def _terms(node: Node, tape: Tape, memo: dict[int, dict[Monomial, Scaled]]) -> dict[Monomial, Scaled]:
    if not node.parametric:
        return {ONE: tape.value(node)}
    if node.operator == "parameter":
        return {((str(node.value), 1),): tape.constant(1)}
    parts = [_polynomial(a, tape, memo) for a in node.arguments]
    if node.operator == "+":
        grouped: dict[Monomial, list[Scaled]] = {}
        for part in parts:
            for monomial, value in part.items():
                grouped.setdefault(monomial, []).append(value)
        return {m: tape.add(values) for m, values in grouped.items()}
    if node.operator == "neg":
        minus = tape.constant(-1)
        return {m: tape.multiply(minus, v) for m, v in parts[0].items()}
    if node.operator == "*":
        product = parts[0]
        for part in parts[1:]:
            product = _product(product, part, tape)
        return product
    if node.operator == "pow":
        if not node.arguments[1].is_literal:
            raise NotVectorisable  # which monomials occur depends on the state
        product = {ONE: tape.constant(1)}
        for _ in range(int(node.arguments[1].value)):
            product = _product(product, parts[0], tape)
        return product
    if node.operator == "/":
        divisor = node.arguments[1]
        if not divisor.is_literal or divisor.value == 0:
            raise NotVectorisable
        inverse = tape.constant(1 / Fraction(divisor.value))
        return {m: tape.multiply(v, inverse) for m, v in parts[0].items()}
    assert node.operator == "?:"
    zero = tape.constant(0)
    monomials = dict.fromkeys([*parts[1], *parts[2]])
    return {m: tape.choose(node.arguments[0], parts[1].get(m, zero), parts[2].get(m, zero)) for m in monomials}


def _product(left: dict[Monomial, Scaled], right: dict[Monomial, Scaled], tape: Tape) -> dict[Monomial, Scaled]:
    grouped: dict[Monomial, list[Scaled]] = {}
    for m1, v1 in left.items():
        for m2, v2 in right.items():
            grouped.setdefault(times(m1, m2), []).append(tape.multiply(v1, v2))
    if len(grouped) > MAX_TERMS:
        raise NotVectorisable
    return {m: tape.add(values) for m, values in grouped.items()}
