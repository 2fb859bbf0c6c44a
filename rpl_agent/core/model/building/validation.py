"""`validate` collects every problem of a model; each message names the state, action and expression.

`normalised` scales rows that sum to nearly 1 because the numbers of a file are rounded; on request, and exactly.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import scipy

from rpl_agent.core.errors import ModelError, RPLWarning, require_kind
from rpl_agent.core.highs import minimiser
from rpl_agent.core.model.algebra import ranges
from rpl_agent.core.model.algebra.factors import factors
from rpl_agent.core.model.caching import cached_fact
from rpl_agent.core.model.csr import gather, reached
from rpl_agent.core.model.domain import Domain
from rpl_agent.core.model.expressions import INT64_SAFE, ExpressionTable
from rpl_agent.core.model.pmdp import ParametricMDP
from rpl_agent.core.model.polynomial import Polynomial

#: Tolerance for expressions outside [0, 1] on the domain (rounding of LP solutions, never of the model).
RANGE_TOLERANCE = 1e-9
#: Polytopes with at most this many candidate bases are handled by enumerating vertices.
MANY_BASES = 5_000
#: Number of problems of one kind listed in an error; the rest are counted.
LISTED = 8


@dataclass(frozen=True)
class Defect:
    """One defect: ``kind`` for programs, ``message`` for people."""

    kind: str
    message: str
    row: int | None = None  # the first row that has it


def validate(pmdp: ParametricMDP) -> list[Defect]:
    """All problems of a model; empty if it is well formed on its whole domain.

    >>> import rpl_envs
    >>> validate(rpl_envs.benchmark("Betting-25").pmdp)
    []
    """
    require_kind("pmdp", pmdp, ParametricMDP)
    sums = (_row_problem(pmdp, r) for r in rows_off(pmdp))
    return [*_structure(pmdp), *sums, *_ranges(pmdp)]


def require_valid(pmdp: ParametricMDP) -> None:
    """Raise one ModelError that lists all problems of a model."""
    raise_problems(pmdp.name, validate(pmdp))


def raise_problems(name: str, problems: list[Defect]) -> None:
    """Raise one ModelError that lists the problems, if there are any."""
    if problems:
        raise ModelError(f"model {name!r} has {len(problems)} problem(s):\n  " + "\n  ".join(messages(problems)))


def messages(problems: list[Defect]) -> list[str]:
    """One line per problem, of each kind the first few."""
    lines = []
    for kind in dict.fromkeys(p.kind for p in problems):
        same = [p.message for p in problems if p.kind == kind]
        lines += same[:LISTED]
        if len(same) > LISTED:
            lines.append(f"... and {len(same) - LISTED} more of this kind")
    return lines


def _structure(pmdp: ParametricMDP) -> list[Defect]:
    problems = []
    name = pmdp.state_name
    for s in np.flatnonzero(np.diff(pmdp.state_ptr) == 0).tolist():
        problems.append(Defect("actionless", f"state {s} = {name(s)} has no action"))
    for r in np.flatnonzero(np.diff(pmdp.row_ptr) == 0).tolist():
        problems.append(Defect("empty-row", f"{pmdp.row_name(r)} has no successor"))
    same_state = np.diff(pmdp.row_state) == 0
    for r in np.flatnonzero(same_state & (np.diff(pmdp.action) == 0)).tolist():
        problems.append(Defect("duplicate-action", f"{pmdp.row_name(r)} appears twice"))
    for t in np.flatnonzero((pmdp.successor < 0) | (pmdp.successor >= pmdp.num_states)):
        row = int(pmdp.transition_row[t])
        problems.append(Defect("unknown-successor", f"{pmdp.row_name(row)} leads to unknown state {pmdp.successor[t]}"))
    if not any(p.kind == "unknown-successor" for p in problems):
        for s in np.flatnonzero(~reachable(pmdp)).tolist():
            problems.append(Defect("unreachable", f"state {s} = {name(s)} is not reachable from the initial state"))
    return problems


def reachable(pmdp: ParametricMDP) -> np.ndarray:
    """(S,) bool, states reachable from the initial state (from all of label "init") through any transition."""
    start = np.zeros(pmdp.num_states, dtype=bool)
    start[pmdp.initial_state] = True
    if "init" in pmdp.labels:
        start |= np.asarray(pmdp.labels["init"], dtype=bool)
    source = pmdp.row_state[pmdp.transition_row]
    return reached(source, pmdp.successor, np.flatnonzero(start), pmdp.num_states)


def rows_off(pmdp: ParametricMDP) -> list[int]:
    """The rows that do not sum to 1 as polynomials: decided exactly, monomial by monomial."""
    table, rows = pmdp.table, pmdp.num_rows
    if not rows or (np.diff(pmdp.row_ptr) == 0).any():
        return []
    one, largest = table.denominators[0], max((abs(v) for v in table.data.tolist()), default=0)
    if int(np.diff(pmdp.row_ptr).max()) * largest + one < INT64_SAFE:
        ones = np.ones(pmdp.num_transitions, dtype=np.int64)
        weights = scipy.sparse.csr_array((table.data, table.indices, table.indptr), (len(table), table.num_monomials))
        totals = scipy.sparse.csr_array((ones, pmdp.expression, pmdp.row_ptr), shape=(rows, len(table))) @ weights
        unit = (np.full(rows, one), np.zeros(rows, dtype=int), np.arange(rows + 1))
        off = totals - scipy.sparse.csr_array(unit, shape=totals.shape)
        off.eliminate_zeros()
        return np.flatnonzero(np.diff(off.indptr)).tolist()
    entries, own = gather(table.indptr, pmdp.expression)
    places = np.repeat(pmdp.transition_row, np.diff(own)) * table.num_monomials + table.indices[entries]
    places = np.concatenate([places, np.arange(rows) * table.num_monomials])  # one −1 for each row
    numbers = np.concatenate([table.data[entries], np.full(rows, -one, dtype=object)])
    order = np.argsort(places, kind="stable")
    places, first = np.unique(places[order], return_index=True)
    return np.unique(places[np.add.reduceat(numbers[order], first) != 0] // table.num_monomials).tolist()


def _row_problem(pmdp: ParametricMDP, r: int) -> Defect:
    parts = [pmdp.table.polynomial(int(f)) for f in pmdp.expression[pmdp.row_ptr[r] : pmdp.row_ptr[r + 1]]]
    shown, total = _shown(*parts), _shown(row_sum(pmdp, r))
    return Defect("row-sum", f"{pmdp.row_name(r)}: expressions {shown} sum to {total}, not to 1", r)


def row_sum(pmdp: ParametricMDP, row: int) -> Polynomial:
    parts = (pmdp.table.polynomial(int(f)) for f in pmdp.expression[pmdp.row_ptr[row] : pmdp.row_ptr[row + 1]])
    return sum(parts, Polynomial.constant(0))


def _advice(polynomial: Polynomial) -> str:
    """How to correct an expression that leaves [0, 1]; the rest of a draw needs parameters that sum to at most 1."""
    rest = 1 - polynomial
    is_sum = rest.degree == 1 and len(rest.terms) > 1 and all(c == 1 for c in rest.terms.values())
    if is_sum and not rest.constant_value():
        names = sorted(rest.parameters)
        one = f"domain=Domain.box(…).with_simplex({names}), or rpl_agent.core.model.simplex(n)"
        return f"for the probabilities of one draw use {one}"
    return "restrict the domain or correct the expression"


def _shown(*polynomials: Polynomial) -> str:
    """The text of polynomials, truncated."""
    text = " ; ".join(map(str, polynomials[:LISTED]))
    return text if len(text) <= 200 and len(polynomials) <= LISTED else f"{text[:200]} …"


def _ranges(pmdp: ParametricMDP) -> list[Defect]:
    """Expressions must stay in [0, 1] on the domain (sound for polynomials: enclosures by monomials)."""
    low, high = expression_range(pmdp.table, pmdp.domain)
    outside = (low < -RANGE_TOLERANCE) | (high > 1 + RANGE_TOLERANCE)
    if outside.any() and not pmdp.table.is_affine:
        outside &= ~_proved(pmdp, low)
    problems = []
    for f in np.flatnonzero(outside):
        at = np.flatnonzero(pmdp.expression == f)
        row = int(pmdp.transition_row[at[0]]) if len(at) else None
        where = "no transition" if row is None else pmdp.row_name(row)
        shown = f"{_shown(pmdp.table.polynomial(int(f)))} ranges over [{low[f]:.6g}, {high[f]:.6g}]"
        text = f"{where}: expression {shown} on the domain; {_advice(pmdp.table.polynomial(int(f)))}"
        problems.append(Defect("range", text, row))
    return problems


def _proved(pmdp: ParametricMDP, low: np.ndarray) -> np.ndarray:
    """(F,) bool: expressions in [0, 1] although rounding hides it (large coefficients, powers above ten).

    Products of terms that are ≥ 0 on the domain are ≥ 0, and in a row without negative ones none exceeds the sum,
    which is 1. ``low`` (F,) are lower bounds.
    """
    found = factors(pmdp)
    unsure = expression_range(found.forms, pmdp.domain)[0] < -1e-15
    positive = (low >= -RANGE_TOLERANCE) | ((found.powers @ unsure == 0) & np.isfinite(found.log_scale))
    whole = np.logical_and.reduceat(positive[pmdp.expression], pmdp.row_ptr[:-1])
    proved = positive.copy()
    proved[pmdp.expression[~whole[pmdp.transition_row]]] = False
    return proved


def expression_range(table: ExpressionTable, domain: Domain) -> tuple[np.ndarray, np.ndarray]:
    """(F,), (F,) enclosures of every expression on the domain, up to rounding; callers compare with a tolerance.

    Exact at box corners for multilinear expressions; affine ones for which the box is too wide are optimised over
    the part of the polytope that concerns them: at its vertices if they are few, otherwise by LPs.
    """
    low, high, _ = ranges.enclosure(table, domain.lower, domain.upper)
    outside = (low < -RANGE_TOLERANCE) | (high > 1 + RANGE_TOLERANCE)
    if not table.is_affine and not ranges.fits(table.monomials):
        for f in np.flatnonzero(outside):
            low[f], high[f] = ranges.range_of_one(table, int(f), domain.lower, domain.upper) or (low[f], high[f])
        outside = (low < -RANGE_TOLERANCE) | (high > 1 + RANGE_TOLERANCE)
    if not len(domain.b) or not outside.any():
        return low, high
    affine = np.flatnonzero(outside & (table.degrees <= 1))
    for own, parameters in _by_parts(linear_part(table), affine, domain):
        part, B = domain.part(parameters), linear_part(table)[np.ix_(own, parameters)]
        low[own], high[own] = _affine_range(B, table.constant[own], part, (low[own], high[own]))
    return low, high


def _by_parts(B: np.ndarray, chosen: np.ndarray, domain: Domain) -> list[tuple[np.ndarray, np.ndarray]]:
    """The chosen expressions, rows of B (F, d), in groups, each with the parameters that constraints link to its own.

    Most rows of a model use few of its parameters: a group's range depends on these alone.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for f in chosen.tolist():
        groups.setdefault(tuple(np.unique(domain.linked[np.flatnonzero(B[f])]).tolist()), []).append(f)
    return [(np.array(own), np.flatnonzero(np.isin(domain.linked, links))) for links, own in groups.items()]


def _affine_range(
    B: np.ndarray, constant: np.ndarray, domain: Domain, known: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """(n,), (n,) least and largest values of constant + Bθ on a polytope; the known ones where it is empty."""
    vertices = _vertices(domain)
    if vertices is None:
        low, high = known
        A, b = domain.constraints()
        for k, direction in enumerate(B):
            for sign, out in ((1.0, low), (-1.0, high)):
                point = minimiser(sign * direction, A, b)
                if point is not None:
                    out[k] = constant[k] + float(direction @ point)
        return low, high
    if not len(vertices):
        return known
    values = constant[:, None] + B @ vertices.T
    return values.min(axis=1), values.max(axis=1)


@cached_fact
def linear_part(table: ExpressionTable) -> np.ndarray:
    """(F, d) coefficients of the parameters themselves."""
    columns = np.flatnonzero(table.monomials.sum(axis=1) == 1)
    B = np.zeros((table.num_expressions, table.num_parameters))
    B[:, np.argmax(table.monomials[columns], axis=1)] = np.asarray(table.coefficients[:, columns].todense())
    return B


def _vertices(domain: Domain) -> np.ndarray | None:
    """(k, d) vertices of a small polytope; None if there are too many bases or one is nearly singular."""
    A, b = domain.constraints()
    if comb(len(b), domain.dimension) > MANY_BASES:
        return None
    bases = np.array(list(combinations(range(len(b)), domain.dimension)))
    norms = np.linalg.norm(A, axis=1)
    A, b = A[norms > 0] / norms[norms > 0, None], b[norms > 0] / norms[norms > 0]
    if len(b) < len(norms):
        return None
    size = np.abs(np.linalg.det(A[bases]))
    if ((size > 1e-13) & (size < 1e-6)).any():
        return None
    bases = bases[size >= 1e-6]
    points = np.linalg.solve(A[bases], b[bases][..., None])[..., 0]
    return points[(points @ A.T <= b + RANGE_TOLERANCE).all(axis=1)]


def restrict_domain(table: ExpressionTable, domain: Domain) -> Domain:
    """The domain with "every expression in [0, 1]" added, for affine models (Betting needs it)."""
    if not table.is_affine:
        raise ModelError("only affine models can have their domain restricted; bound the parameters instead")
    low, high = expression_range(table, domain)
    B = linear_part(table)
    under, over = low < -RANGE_TOLERANCE, high > 1 + RANGE_TOLERANCE
    A = np.vstack([-B[under], B[over]])
    b = np.concatenate([table.constant[under], 1.0 - table.constant[over]])
    if domain.dimension == 1 and len(b):  # one parameter: constraints are bounds
        limits = b / A[:, 0]
        upper = min(domain.upper[0], limits[A[:, 0] > 0].min(initial=np.inf))
        lower = max(domain.lower[0], limits[A[:, 0] < 0].max(initial=-np.inf))
        return Domain(domain.parameters, np.array([lower]), np.array([upper]))
    return domain.with_constraints(A, b) if len(b) else domain


#: largest deviation of a sum from 1 that is attributed to rounding
TOLERANCE = Fraction(1, 10**5)


def normalised(pmdp: ParametricMDP, tolerance: Fraction = TOLERANCE) -> tuple[ParametricMDP, list[Fraction]]:
    """The model with every row that sums to a number within the tolerance of 1 divided by it, and those sums.

    Rows that deviate more, or whose sum depends on a parameter, stay unchanged: validation refuses them.
    """
    off = rows_off(pmdp)
    if not off:
        return pmdp, []
    expression, sums = np.array(pmdp.expression), []
    known = [pmdp.table.polynomial(f) for f in range(pmdp.num_expressions)]
    number = {polynomial: f for f, polynomial in enumerate(known)}
    for row in off:
        part = slice(pmdp.row_ptr[row], pmdp.row_ptr[row + 1])
        total = row_sum(pmdp, row)
        if total.is_constant and abs(total.constant_value() - 1) <= tolerance:
            sums.append(total.constant_value())
            scaled = [known[f] * (1 / sums[-1]) for f in pmdp.expression[part]]
            expression[part] = [number.setdefault(polynomial, len(number)) for polynomial in scaled]
    if not sums:
        return pmdp, sums
    used, expression = np.unique(expression, return_inverse=True)
    polynomials = list(number)
    table, rank = ExpressionTable.from_polynomials([polynomials[f] for f in used], pmdp.table.parameters).sorted()
    return replace(pmdp, expression=rank[expression.reshape(-1)], table=table), sums


def warn_of_scaling(source: str, sums: Sequence[Fraction]) -> None:
    """Warn how many rows were scaled, and the largest deviation."""
    if sums:
        worst = max(sums, key=lambda total: abs(total - 1))
        warnings.warn(
            f"{source}: {len(sums)} row(s) scaled to sum to 1; the worst summed to {float(worst):.15g}",
            RPLWarning,
            stacklevel=3,
        )


def scaling_hint(pmdp: ParametricMDP) -> str:
    """A suggestion if rounding may be why rows do not sum to 1; otherwise empty."""
    sums = [row_sum(pmdp, r) for r in rows_off(pmdp)[:100]]
    rounded = all(t.is_constant and abs(t.constant_value() - 1) <= TOLERANCE for t in sums)
    return "\nrounded in the file? --normalise scales rows within 1e-5 of 1" if sums and rounded else ""
