"""The domain D: the possible parameters before any data. A polytope, not just a box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy

from rpl_agent.core.errors import ModelError, listed
from rpl_agent.core.highs import minimiser
from rpl_agent.core.model.expressions import DENSE_COLUMNS
from rpl_agent.core.schema import Matrix


class Simplex(NamedTuple):
    """The unknown probabilities of one draw with n outcomes; see `simplex`."""

    outcomes: int

    def parameters(self, name: str) -> list[str]:
        return [f"{name}{k}" for k in range(self.outcomes - 1)]

    def probabilities(self, name: str) -> list[str]:
        """The expressions of the outcomes."""
        free = self.parameters(name)
        return [*free, " - ".join(["1", *free])]


def simplex(outcomes: int) -> Simplex:
    """A domain for the probabilities of one draw: name0, name1, … of all outcomes but the last, which is the rest.

    >>> Domain.box({"d": simplex(4)}).parameters
    ('d0', 'd1', 'd2')
    >>> simplex(4).probabilities("d")
    ['d0', 'd1', 'd2', '1 - d0 - d1 - d2']
    """
    if not hasattr(outcomes, "__index__"):
        raise ModelError(f"simplex({outcomes!r}): the number of outcomes must be a whole number")
    if outcomes < 2:
        raise ModelError(f"a draw has at least 2 outcomes, not {outcomes}")
    return Simplex(outcomes)


def _with_simplices(parameters: Mapping[str, tuple[float, float] | Simplex]) -> Domain:
    """The box of all parameters, those of each draw with a sum of at most 1."""
    bounds: dict[str, tuple[float, float]] = {}
    groups = []
    for name, given in parameters.items():
        if isinstance(given, Simplex):
            groups.append(given.parameters(name))
            bounds |= dict.fromkeys(groups[-1], (0.0, 1.0))
        else:
            bounds[name] = given
    domain = Domain.box(bounds)
    for group in groups:
        domain = domain.with_simplex(group) if len(group) > 1 else domain
    return domain


@dataclass(frozen=True)
class Domain:
    """{θ : lower ≤ θ ≤ upper, A θ ≤ b}.

    >>> domain = Domain.box({"p": (0.1, 0.9), "q": (0.0, 0.5)})
    >>> domain.contains([0.2, 0.3]), domain.contains([0.2, 0.6])
    (True, False)
    """

    parameters: tuple[str, ...]
    lower: np.ndarray  # (d,)
    upper: np.ndarray  # (d,)
    A: Matrix = field(default_factory=lambda: np.zeros((0, 0)))  # (m, d); may be sparse for many parameters
    b: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (m,)

    def __post_init__(self) -> None:
        d = len(self.parameters)
        if len(set(self.parameters)) != d:
            raise ModelError(f"parameter names repeat: {listed(self.parameters)}")
        for name in ("lower", "upper", "A", "b"):
            if not scipy.sparse.issparse(getattr(self, name)):
                object.__setattr__(self, name, _numbers(name, getattr(self, name)))
        if not scipy.sparse.issparse(self.A) and self.A.size == 0:
            object.__setattr__(self, "A", np.zeros((0, d)))
        if self.lower.shape != (d,) or self.upper.shape != (d,) or self.A.shape[1:] != (d,):
            raise ModelError(f"domain arrays do not fit {d} parameters")
        A: Any = self.A
        entries = A.data if scipy.sparse.issparse(A) else A
        if len(self.b) != self.A.shape[0] or not (np.isfinite(entries).all() and np.isfinite(self.b).all()):
            raise ModelError("domain constraints A θ ≤ b must be finite and of one length")
        for i, name in enumerate(self.parameters):
            if not (np.isfinite(self.lower[i]) and np.isfinite(self.upper[i])):
                raise ModelError(f"parameter {name} is unbounded: give finite bounds")
            if self.lower[i] > self.upper[i]:
                raise ModelError(f"parameter {name} has lower bound {self.lower[i]} above upper bound {self.upper[i]}")
        for array in (self.lower, self.upper, entries, self.b):
            array.setflags(write=False)

    @classmethod
    def box(
        cls,
        parameters: Sequence[str] | Mapping[str, tuple[float, float] | Simplex],
        lower: float = 0.0,
        upper: float = 1.0,
    ) -> Domain:
        """Bounds only: names with common bounds, or a mapping name → (lower, upper) or `simplex(n)`."""
        names = tuple(parameters)
        if isinstance(parameters, Mapping):
            if any(isinstance(given, Simplex) for given in parameters.values()):
                return _with_simplices(parameters)
            ends = [_ends(name, given) for name, given in parameters.items()]
            return cls(names, np.array([low for low, _ in ends]), np.array([high for _, high in ends]))
        return cls(names, np.full(len(names), lower), np.full(len(names), upper))

    @property
    def dimension(self) -> int:
        return len(self.parameters)

    def with_constraints(self, A: np.ndarray, b: np.ndarray) -> Domain:
        """The domain with the rows A θ ≤ b as well, A (m, d) dense or sparse; sparse rows stay sparse."""
        if not scipy.sparse.issparse(A):
            A = np.atleast_2d(_numbers("A", A))
        if A.shape[1] != self.dimension:
            raise ModelError(f"constraints on {A.shape[1]} parameters for a domain of dimension {self.dimension}")
        if scipy.sparse.issparse(A) or scipy.sparse.issparse(self.A):
            rows = scipy.sparse.csr_array(scipy.sparse.vstack([scipy.sparse.csr_array(part) for part in (self.A, A)]))
            rows.sum_duplicates()  # sorted now: later it is read-only
        else:
            rows = np.vstack([self.A, A])
        return Domain(self.parameters, self.lower, self.upper, rows, np.append(self.b, b))

    def with_sums(self, group: np.ndarray) -> Domain:
        """The parameters of each group (d,) of two or more sum to at most 1; −1 for those in none."""
        label, size = np.unique(group[group >= 0], return_inverse=True, return_counts=True)[1:]
        own = np.flatnonzero(group >= 0)[size[label] > 1]
        rows = np.unique(group[own], return_inverse=True)[1]
        A = scipy.sparse.csr_array((np.ones(len(own)), (rows, own)), shape=((size > 1).sum(), len(group)))
        return self.with_constraints(A if len(group) > DENSE_COLUMNS else A.toarray(), np.ones(A.shape[0]))

    def with_simplex(self: Domain | Sequence[str], names: Sequence[str] | None = None) -> Domain:
        """Mixture weights: the named parameters sum to at most 1; ``Domain.with_simplex(["a", "b"])`` has no others."""
        if not isinstance(self, Domain):  # called on the class, as one does first: these are the names
            return Domain.box(self).with_simplex(names)
        names = self.parameters if names is None else names
        if unknown := sorted(set(names) - set(self.parameters)):
            raise ModelError(f"the domain has no parameter {unknown[0]!r}; it has {listed(self.parameters)}")
        return self.with_constraints(np.array([[float(p in set(names)) for p in self.parameters]]), np.ones(1))

    def constraints(self) -> tuple[np.ndarray, np.ndarray]:
        """All rows (A, b) with the bounds among them."""
        eye = np.eye(self.dimension)
        A: Any = self.A
        A = A.toarray() if scipy.sparse.issparse(A) else A
        return np.vstack([A, eye, -eye]), np.concatenate([self.b, self.upper, -self.lower])

    def part(self, parameters: np.ndarray) -> Domain:
        """The part about some parameters (k,); none of its rows involves any other."""
        A = scipy.sparse.csr_array(self.A)
        touched = np.flatnonzero(np.diff(A.indptr))
        own = touched[np.isin(A.indices[A.indptr[touched]], parameters)]
        rows = np.asarray(A[own][:, parameters].todense()).reshape(len(own), len(parameters))
        names = tuple(self.parameters[j] for j in parameters)
        return Domain(names, self.lower[parameters], self.upper[parameters], rows, self.b[own])

    @cached_property
    def linked(self) -> np.ndarray:
        """(d,) equal numbers for parameters that rows of A link, directly or through others."""
        A = scipy.sparse.csr_array(self.A != 0).astype(np.int64)
        return scipy.sparse.csgraph.connected_components(scipy.sparse.csr_array(A.T @ A), directed=False)[1]

    def contains(self, theta: np.ndarray, tol: float = 1e-9) -> np.ndarray | bool:
        """Whether θ (d,) or each of θ (n, d) lies in D up to tol."""
        points = np.atleast_2d(np.asarray(theta, dtype=float))
        if points.shape[1] != self.dimension:
            raise ModelError(f"θ has {points.shape[1]} entries, the model has {self.dimension} parameters")
        inside = ((points <= self.upper + tol) & (points >= self.lower - tol)).all(axis=1)
        inside &= ((self.A @ points.T).T <= self.b + tol).all(axis=1)
        return bool(inside[0]) if np.ndim(theta) == 1 else inside

    def center(self) -> np.ndarray:
        """An interior point: the centre of the largest inscribed ball (raises if D is empty)."""
        return self._center.copy()

    @cached_property
    def _center(self) -> np.ndarray:  # one LP per domain: every update of an online run needs it
        if not len(self.b):  # a box: its middle is such a centre
            return 0.5 * (self.lower + self.upper)
        A, b = self.constraints()
        rows = np.hstack([A, np.linalg.norm(A, axis=1)[:, None]])  # the ball of radius r around x satisfies A x ≤ b
        radius = np.append(np.zeros(self.dimension), 1.0)
        found = minimiser(-radius, np.vstack([rows, -radius]), np.append(b, 0.0))
        if found is None:
            raise ModelError(f"the domain of {listed(self.parameters)} is empty: its constraints contradict each other")
        return found[:-1]


def _ends(name: str, given: Any) -> tuple[float, float]:
    """The two bounds of a parameter."""
    if isinstance(given, str) or not hasattr(given, "__len__") or len(given) != 2:
        raise ModelError(f"parameter {name} needs two bounds, (lower, upper), not {given!r}")
    return given[0], given[1]


def _numbers(name: str, given: Any) -> np.ndarray:
    try:
        return np.array(given, dtype=float)
    except (TypeError, ValueError):
        raise ModelError(f"{name} of a domain must be numbers, not {given!r}") from None
