"""`ExpressionTable`: Λ, the distinct transition expressions of a model.

Every transition of a model carries an id into this table, so a new confidence set is two vectors of
length |Λ| and nothing of the size of the model is rebuilt when data arrive. Coefficients are exact
integers over one common denominator per monomial; floats are derived from them once.

Symbols: F = |Λ|, d parameters, M monomials (the first is 1), r = rank of the non-constant part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm
from typing import Any

import numpy as np
import scipy

from rpl_agent.core.errors import ModelError, listed
from rpl_agent.core.model.polynomial import ONE, Monomial, Polynomial, outward

INT64_SAFE = 2**62
#: Up to this degree floats evaluate probabilities accurately; beyond it monomials may cancel.
CANCELLING = 8
#: Above this many non-constant monomials the reduction stays sparse.
DENSE_COLUMNS = 65


@dataclass(frozen=True, eq=False)
class Reduction:
    """The identifiable coordinates x of a table: ``f = constant_f + weights_f · x``, exactly.

    x = matrix @ (non-constant monomials of θ), where ``matrix`` is the reduced row echelon form of the
    coefficients. Because pivots form an identity, ``weights`` are simply the pivot columns.
    """

    matrix: np.ndarray  # (r, M-1); sparse for models with many monomials
    pivots: tuple[int, ...]  # columns among the M-1 non-constant monomials
    weights: np.ndarray  # (F, r), C order; sparse for models with many monomials
    is_identity: bool  # affine and full rank: x = θ in the order of the parameters
    exponents: np.ndarray  # (M-1, d); sparse if the monomials are the parameters themselves

    @property
    def rank(self) -> int:
        return len(self.pivots)

    def dense(self, expressions: np.ndarray | slice = slice(None)) -> np.ndarray:
        """(n, r) the weights of some expressions, or of all, as a contiguous array."""
        part: Any = self.weights[expressions]
        return np.ascontiguousarray(part.toarray() if scipy.sparse.issparse(part) else part, dtype=float)

    def coordinates(self, theta: np.ndarray) -> np.ndarray:
        """x (n, r) of parameter vectors θ (n, d)."""
        theta = np.atleast_2d(np.asarray(theta, dtype=float))
        if self.is_identity:
            return theta.copy()
        monomials = _monomial_values(self.exponents, theta)
        return (self.matrix @ monomials.T).T


class ExpressionTable:
    """Λ: distinct polynomials with exact coefficients, evaluated in one matrix product."""

    def __init__(
        self,
        parameters: Sequence[str],
        monomials: np.ndarray | None,
        numerators: scipy.sparse.csr_array | tuple,
        denominators: Sequence[int],
    ):
        """Use `from_polynomials` or `from_integers`.

        monomials : (M, d) exponents, row 0 all zero. None for the constant and the parameters in order, each of
            them used, which needs no array of size d²: thousands of parameters fit.
        numerators : (indptr, indices, data) of exact integers (data int64, or object for huge ones).
        denominators : M positive integers.
        """
        self.parameters = tuple(parameters)
        self.is_plain = monomials is None
        self.indptr, self.indices, self.data = numerators
        self.denominators = tuple(int(q) for q in denominators)
        if min(self.denominators, default=1) < 1:
            raise ModelError(f"the denominator {min(self.denominators)} is not positive")
        if monomials is None:
            if len(self.denominators) != len(self.parameters) + 1:
                raise ModelError("one denominator per parameter, and one for the constant")
            return
        self.monomials = np.ascontiguousarray(monomials, dtype=np.int32)
        if self.monomials.shape != (len(self.denominators), len(self.parameters)) or self.monomials[0].any():
            raise ModelError("monomials must be (M, d) with the constant monomial first")
        if self.monomials.min(initial=0) < 0:
            raise ModelError("monomials must have exponents of at least 0")

    @cached_property
    def monomials(self) -> np.ndarray:
        """(M, d) exponents; built on demand if the monomials are the parameters themselves."""
        return np.eye(self.num_parameters + 1, self.num_parameters, k=-1, dtype=np.int32)

    @property
    def monomial_degrees(self) -> np.ndarray:
        """(M,) degree of every monomial."""
        if self.is_plain:
            return np.minimum(np.arange(self.num_monomials), 1)
        return self.monomials.sum(axis=1)

    # ------------------------------------------------------------------ construction
    @classmethod
    def from_polynomials(cls, polynomials: Sequence[Polynomial], parameters: Sequence[str]) -> ExpressionTable:
        known = set(parameters)
        seen: dict[Monomial, int] = {ONE: 0}
        for polynomial in polynomials:
            unknown = polynomial.parameters - known
            if unknown:
                raise ModelError(f"expression {polynomial} uses unknown parameters: {listed(sorted(unknown))}")
            for monomial in polynomial.terms:
                seen.setdefault(monomial, len(seen))
        # linear monomials in parameter order first, then by degree, so that the reduction prefers θ itself
        position = {name: i for i, name in enumerate(parameters)}
        ordered = sorted(seen, key=lambda m: (sum(p for _, p in m), [(position[name], -p) for name, p in m]))
        index = {m: i for i, m in enumerate(ordered)}
        exponents = None
        plain = len(ordered) == len(known) + 1 > DENSE_COLUMNS and all(sum(p for _, p in m) <= 1 for m in ordered)
        if not plain:
            exponents = np.zeros((len(ordered), len(known)), dtype=np.int32)
            for m, i in index.items():
                for name, power in m:
                    exponents[i, position[name]] = power
        denominators = [1] * len(ordered)
        for polynomial in polynomials:
            for m, c in polynomial.terms.items():
                denominators[index[m]] = lcm(denominators[index[m]], c.denominator)
        rows = [
            sorted((index[m], int(c * denominators[index[m]])) for m, c in polynomial.terms.items())
            for polynomial in polynomials
        ]
        return cls(parameters, exponents, _packed(rows), denominators)

    @classmethod
    def from_integers(
        cls, parameters: Sequence[str], monomials: np.ndarray, numerators: np.ndarray, denominators: Sequence[int]
    ) -> ExpressionTable:
        """From a dense (F, M) int64 array of numerators over one denominator per monomial."""
        numerators = np.asarray(numerators)
        rows, columns = np.nonzero(numerators)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(numerators)))])
        data = numerators[rows, columns]
        return cls(parameters, monomials, (indptr, columns.astype(np.int32), data), denominators)

    def sorted(self) -> tuple[ExpressionTable, np.ndarray]:
        """Λ in the order of its coefficients with the smallest denominators, and the (F,) new id of each old one.

        A canonical form: equal sets of polynomials give equal tables, however they were built.
        """
        if self.data.dtype != object and self.num_monomials <= DENSE_COLUMNS:
            return self._sorted_dense()
        columns: list[list[int]] = [[] for _ in range(self.num_monomials)]
        for i, v in zip(self.indices.tolist(), self.data.tolist()):
            columns[i].append(v)
        shrink = [gcd(q, *column) for q, column in zip(self.denominators, columns)]
        used = [i for i in range(self.num_monomials) if i == 0 or columns[i]]
        renumber = {i: k for k, i in enumerate(used)}
        keys = []
        for f in range(self.num_expressions):
            row = [0] * len(used)
            for i, v in self._key(f):
                row[renumber[i]] = v // shrink[i]
            keys.append(tuple(row) if len(used) <= DENSE_COLUMNS else self._key(f))
        order = sorted(range(len(keys)), key=keys.__getitem__)
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        numerators = _packed([[(renumber[i], v // shrink[i]) for i, v in self._key(f)] for f in order])
        denominators = [self.denominators[i] // shrink[i] for i in used]
        monomials = None if self.is_plain and len(used) == self.num_monomials else self.monomials[used]
        return ExpressionTable(self.parameters, monomials, numerators, denominators), rank

    def _sorted_dense(self) -> tuple[ExpressionTable, np.ndarray]:
        """`sorted` for few monomials: whole columns at a time."""
        dense = np.zeros((self.num_expressions, self.num_monomials), dtype=np.int64)
        dense[self.owner, self.indices] = self.data
        used = [i for i in range(self.num_monomials) if i == 0 or dense[:, i].any()]
        shrink = [gcd(self.denominators[i], *np.unique(dense[:, i]).tolist()) for i in used]
        dense = np.column_stack([dense[:, i] // g for i, g in zip(used, shrink)])
        order = np.lexsort(dense.T[::-1])
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        denominators = [self.denominators[i] // g for i, g in zip(used, shrink)]
        return self.from_integers(self.parameters, self.monomials[used], dense[order], denominators), rank

    # ------------------------------------------------------------------ sizes
    @property
    def num_expressions(self) -> int:
        return len(self.indptr) - 1

    def __len__(self) -> int:
        return self.num_expressions

    @property
    def num_parameters(self) -> int:
        return len(self.parameters)

    @property
    def num_monomials(self) -> int:
        return len(self.denominators)

    @cached_property
    def degrees(self) -> np.ndarray:
        """(F,) degree of every expression."""
        found = np.zeros(self.num_expressions, dtype=np.int64)
        np.maximum.at(found, self.owner, self.monomial_degrees[self.indices])
        return found

    @cached_property
    def degree(self) -> int:
        return int(self.degrees.max(initial=0))

    @property
    def is_affine(self) -> bool:
        return self.degree <= 1

    # ------------------------------------------------------------------ numbers
    @cached_property
    def coefficients(self) -> scipy.sparse.csr_array:
        """(F, M) float64, each entry the correctly rounded quotient."""
        if self.data.dtype == object or max(self.denominators) > 2**53 or np.abs(self.data).max(initial=0) > 2**53:
            values = np.array(
                [float(Fraction(int(v), self.denominators[i])) for v, i in zip(self.data, self.indices)], dtype=float
            )
        else:
            values = self.data / np.array(self.denominators, dtype=float)[self.indices]  # one rounding of exact numbers
        shape = (self.num_expressions, self.num_monomials)
        return scipy.sparse.csr_array((values, self.indices, self.indptr), shape=shape)

    @cached_property
    def constant(self) -> np.ndarray:
        """(F,) coefficient of the monomial 1."""
        return np.asarray(self.coefficients[:, [0]].todense()).ravel()

    @cached_property
    def is_constant(self) -> np.ndarray:
        """(F,) whether the expression uses no parameter."""
        return np.bincount(self.owner[self.indices != 0], minlength=self.num_expressions) == 0

    @property
    def owner(self) -> np.ndarray:
        """The expression of every coefficient."""
        return np.repeat(np.arange(self.num_expressions), np.diff(self.indptr))

    @cached_property
    def constant_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """(F,), (F,) the nearest floats on either side of every constant expression; else `constant`.

        1 - 1e-20 is less than 1: as a float it would be 1, and the rest of its row would seem impossible.
        """
        low, high = self.constant.copy(), self.constant.copy()
        row_of = self.owner
        for k in np.flatnonzero((self.indices == 0) & self.is_constant[row_of]):
            value = Fraction(int(self.data[k]), self.denominators[0])
            low[row_of[k]], high[row_of[k]] = outward(value, value)
        return low, high

    def monomial_values(self, theta: np.ndarray) -> np.ndarray:
        """(n, M) values of all monomials at θ (n, d)."""
        theta = np.atleast_2d(np.asarray(theta, dtype=float))
        if self.is_plain:
            return np.hstack([np.ones((len(theta), 1)), theta])
        return _monomial_values(self.monomials, theta)

    def at(self, theta: np.ndarray) -> np.ndarray:
        """All of Λ at θ (d,) or a batch (n, d): one matrix product over monomials."""
        theta = np.asarray(theta, dtype=float)
        if theta.shape[-1] != self.num_parameters:
            raise ModelError(f"θ has {theta.shape[-1]} entries, the model has {self.num_parameters} parameters")
        values = (self.coefficients @ self.monomial_values(theta).T).T
        return values[0] if theta.ndim == 1 else values

    def accurate(self, theta: np.ndarray) -> np.ndarray:
        """All of Λ at one θ (d,); in exact arithmetic if monomials cancel, as in binomials of many trials."""
        values = self.at(theta)
        if self.degree > CANCELLING:
            sizes = abs(self.coefficients) @ np.abs(self.monomial_values(theta))[0]
            given = dict(zip(self.parameters, theta.tolist()))
            for f in np.flatnonzero(sizes > 1e3):
                values[f] = self.polynomial(int(f)).at(given)
        return values

    def bounds_at(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(F,), (F,) the nearest floats on either side of all of Λ at θ (d,)."""
        low, high = (bound.copy() for bound in self.constant_bounds)
        values = dict(zip(self.parameters, np.asarray(theta, dtype=float).tolist()))
        for f in np.flatnonzero(~self.is_constant):
            value = self.polynomial(int(f)).at(values)
            low[f], high[f] = outward(value, value)
        return low, high

    def polynomial(self, f: int) -> Polynomial:
        """Expression f as an exact polynomial, for display."""
        terms = {}
        for k in range(self.indptr[f], self.indptr[f + 1]):
            i = self.indices[k]
            terms[self._monomial(i)] = Fraction(int(self.data[k]), self.denominators[i])
        return Polynomial(terms)

    def stored_parts(self) -> dict[str, Any]:
        """The constructor's arguments, for files; numerators beyond 64 bits are a list."""
        large = self.data.dtype == object
        return {
            "parameters": self.parameters,
            "monomials": None if self.is_plain else self.monomials,
            "indptr": np.asarray(self.indptr),
            "indices": self.indices,
            "data": None if large else self.data,
            "large": self.data.tolist() if large else None,
            "denominators": self.denominators,
        }

    def _monomial(self, i: int) -> Monomial:
        if self.is_plain:
            return ((self.parameters[i - 1], 1),) if i else ONE
        powers = zip(self.parameters, self.monomials[i].tolist())
        return tuple(sorted((name, p) for name, p in powers if p))

    def _key(self, f: int) -> tuple[tuple[int, int], ...]:
        span = slice(self.indptr[f], self.indptr[f + 1])
        return tuple(zip(self.indices[span].tolist(), self.data[span].tolist()))

    # ------------------------------------------------------------------ identifiable coordinates
    @cached_property
    def reduction(self) -> Reduction:
        """Reduced coordinates, determined in exact arithmetic."""
        if self.is_plain:
            columns = self.num_parameters
            weights = scipy.sparse.csr_array(self.coefficients[:, 1:])
            return Reduction(
                scipy.sparse.eye_array(columns, format="csr"),
                tuple(range(columns)),
                weights,
                True,
                scipy.sparse.eye_array(columns, format="csr"),
            )
        exponents = self.monomials[1:]
        if len(exponents) > DENSE_COLUMNS:
            # Untied models: every used monomial is its own coordinate. Not minimal if columns are
            # dependent, but always exact: the reduction is an optimisation.
            used = np.unique(self.indices[self.indices > 0]) - 1
            pivots = tuple(used.tolist())
            matrix = scipy.sparse.eye_array(len(exponents), format="csr")[used]
            weights = scipy.sparse.csr_array(self.coefficients[:, used + 1])
        else:
            matrix, pivots = np.eye(len(exponents)), tuple(range(len(exponents)))
            if not _is_full(self):
                rows, found = _rational_row_echelon(self)
                matrix, pivots = np.array(rows, dtype=float).reshape(-1, len(exponents)), tuple(found)
            weights = np.ascontiguousarray(self.coefficients[:, [p + 1 for p in pivots]].todense())
        identity = len(pivots) == len(exponents) and np.array_equal(exponents, np.eye(self.num_parameters))
        return Reduction(matrix, pivots, weights, identity, exponents)


def _packed(rows: Sequence[Sequence[tuple[int, int]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(indptr, indices, data) of rows of (monomial, numerator)."""
    data = [v for row in rows for _, v in row]
    kind = object if any(abs(v) > INT64_SAFE for v in data) else np.int64
    indptr = np.cumsum([0, *(len(row) for row in rows)])
    return indptr, np.array([i for row in rows for i, _ in row], dtype=np.int32), np.array(data, dtype=kind)


#: A prime below 2^31, so that products of residues fit into int64.
PRIME = 2**31 - 1


def _is_full(table: ExpressionTable) -> bool:
    """Whether the non-constant coefficients have full column rank modulo a prime, and hence over the rationals."""
    columns = table.num_monomials - 1
    dense = np.zeros((table.num_expressions, columns), dtype=np.int64)
    keep = table.indices != 0
    residues = np.array([int(v) % PRIME for v in table.data[keep].tolist()], dtype=np.int64)
    dense[table.owner[keep], table.indices[keep] - 1] = residues  # denominators only scale columns
    for j in range(columns):
        below = np.flatnonzero(dense[j:, j])
        if not len(below):
            return False
        dense[[j, j + below[0]]] = dense[[j + below[0], j]]
        dense[j] = dense[j] * pow(int(dense[j, j]), -1, PRIME) % PRIME
        rows = j + 1 + np.flatnonzero(dense[j + 1 :, j])
        dense[rows] = (dense[rows] - dense[rows, j][:, None] * dense[j] % PRIME) % PRIME
    return True


def _monomial_values(exponents: np.ndarray, theta: np.ndarray) -> np.ndarray:
    values = np.ones((len(theta), len(exponents)))
    for j, most in enumerate(exponents.max(axis=0, initial=0).tolist()):
        if most:
            values *= (theta[:, [j]] ** np.arange(most + 1.0))[:, exponents[:, j]]
    return values


def monomial_slopes(exponents: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """(M, d) derivatives of monomials (M, d) at θ (d,)."""
    slopes = exponents.astype(float)
    for j in range(exponents.shape[1]):
        lower = exponents.copy()
        lower[:, j] = np.maximum(lower[:, j] - 1, 0)
        slopes[:, j] *= np.prod(np.asarray(theta, dtype=float) ** lower, axis=1)
    return slopes


def _rational_row_echelon(table: ExpressionTable) -> tuple[list[list[Fraction]], list[int]]:
    """RREF of the non-constant coefficients: exact, and cheap because rank is found on few rows.

    Rows are inserted one at a time into an echelon basis; exact, vectorised integer products with a
    null-space basis detect rows that are already in the span, so each pass either ends or adds a row.
    """
    columns = table.num_monomials - 1
    dense = np.zeros((table.num_expressions, columns), dtype=object)
    keep = table.indices != 0
    scale = lcm(*table.denominators[1:])
    factors = np.array([1] + [scale // q for q in table.denominators[1:]], dtype=object)
    dense[table.owner[keep], table.indices[keep] - 1] = table.data[keep].astype(object) * factors[table.indices[keep]]
    largest = max((abs(int(v)) for v in table.data), default=0) * max((int(v) for v in factors), default=1)
    if largest < 2**40:
        dense = np.unique(dense.astype(np.int64), axis=0).astype(object)
    basis: list[list[Fraction]] = []
    pivots: list[int] = []
    candidate = next((i for i in range(len(dense)) if any(dense[i])), None)
    while candidate is not None and len(basis) < columns:
        basis, pivots = _insert(basis, pivots, [Fraction(int(v)) for v in dense[candidate]])
        null = _null_space(basis, pivots, columns)
        outside = np.zeros(len(dense), dtype=bool)
        for vector in null:
            outside |= (dense @ np.array(vector, dtype=object)) != 0
        candidate = int(np.argmax(outside)) if outside.any() else None
    return basis, pivots


def _insert(basis: list[list[Fraction]], pivots: list[int], row: list[Fraction]) -> tuple[list, list[int]]:
    for b, p in zip(basis, pivots):
        if row[p]:
            row = [x - row[p] * y for x, y in zip(row, b)]
    pivot = next(i for i, x in enumerate(row) if x)
    row = [x / row[pivot] for x in row]
    basis = [[x - b[pivot] * y for x, y in zip(b, row)] for b in basis] + [row]
    found = sorted(zip([*pivots, pivot], basis))
    return [b for _, b in found], [p for p, _ in found]


def _null_space(basis: list[list[Fraction]], pivots: list[int], columns: int) -> list[list[int]]:
    """Integer vectors spanning {n : basis @ n = 0}."""
    vectors = []
    for free in (c for c in range(columns) if c not in pivots):
        vector = [Fraction(0)] * columns
        vector[free] = Fraction(1)
        for b, p in zip(basis, pivots):
            vector[p] = -b[free]
        scale = lcm(*(x.denominator for x in vector))
        vectors.append([int(x * scale) for x in vector])
    return vectors
