"""Two more confidence sets of the paper, for its tables: L1 balls and the least-squares ellipsoid.

They are entry points of this package, as sets of other packages are of theirs (`core.registry`).

L1 balls around empirical row distributions (Weissman et al.), as linear rows in parameter space.

P(‖p̂ − p‖₁ ≥ ε) ≤ (2^k − 2) e^{−nε²/2} for n trials of a distribution over k outcomes, n fixed in advance.
Rows of the model that carry the same expressions are repetitions of one experiment and are pooled; successors
of a row that carry the same expression are one outcome. Since probabilities sum to 1, ‖p − p̂‖₁ ≤ ε means

    p(A) ≤ p̂(A) + ε/2   for every set A of outcomes:

2^k − 2 linear rows in x. Beyond MAX_FACETS outcomes only single outcomes and their complements are used, which
describes a larger set and is sound.

The ellipsoid of the paper's App. E, with a noise constant that is large enough:

    V = λI + Σ_f N_f b_f b_f',   x̂ = V⁻¹ Σ_f b_f (K_f − N_f c_f),   {x : (x−x̂)'V(x−x̂) ≤ β²},
    β = R √(ln det V/λ^r + 2 ln 1/δ) + √λ S.

Symbols: f = c_f + b_f·x in the reduced coordinates x (lifted monomials for polynomial models), N_f the
visits of rows that carry f, once per carrying successor, S ≥ |x|.

R: one visit of a row with successors i contributes Σ_i a_i (Y_i − p_i), a_i = λ'b_i, for a test direction λ.
That is a centred variable of range max a − min a, so by Hoeffding's lemma its log moment generating function
is at most (max a − min a)²/8 ≤ (max a)²/4 + (min a)²/4 ≤ Σ_i a_i²/4: R² = ½. The paper's R = ½ treats the successors
as independent and fails. The statement holds at all times under any sampling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, ClassVar

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.ledger import check_delta, per_event
from rpl_agent.core.model import ParametricMDP, gather
from rpl_agent.core.model.algebra.ranges import coordinate_box
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.intersection import Ellipsoid, Intersection
from rpl_agent.core.regions.lifting import build_region, domain_region
from rpl_agent.guarantee.confidence import Bounds

MAX_FACETS = 6


def row_types(pmdp: ParametricMDP) -> tuple[np.ndarray, np.ndarray]:
    """(type of each row (R,), one row of each type): rows are of one type if they carry the same expressions."""
    pair = pmdp.transition_row * np.int64(pmdp.num_expressions) + pmdp.expression
    ordered = np.sort(pair) % pmdp.num_expressions  # the expressions of every row in ascending order
    number: dict[bytes, int] = {}
    kind = [number.setdefault(ordered[a:b].tobytes(), len(number)) for a, b in pairwise(pmdp.row_ptr.tolist())]
    return np.array(kind), np.unique(kind, return_index=True)[1]


def l1_rows(pmdp: ParametricMDP, counts: Counts, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows (A (m, r), b (m,)) with A x ≤ b for the truth with probability ≥ 1 − δ, for N fixed in advance."""
    check_delta(delta)
    table = pmdp.table
    kind, first = row_types(pmdp)
    owner, expression, multiplicity = _outcomes(pmdp, first)
    free = np.zeros(len(first), dtype=bool)
    np.logical_or.at(free, owner, ~table.is_constant[expression])
    gamma = per_event(delta, int(free.sum()))
    visits = np.bincount(kind, weights=counts.row_totals, minlength=len(first))
    hits = _hits(pmdp, counts, kind, owner, expression)
    size = np.bincount(owner, minlength=len(first))
    begin = np.concatenate([[0], np.cumsum(size)])
    rows, bounds = [np.zeros((0, table.reduction.rank))], [np.zeros(0)]
    for outcomes in np.unique(size[free & (visits > 0)]).tolist():
        types = np.flatnonzero(free & (visits > 0) & (size == outcomes))
        member = begin[types][:, None] + np.arange(outcomes)  # (G, k) outcomes of every type of this size
        n = visits[types]
        # ln(2^k − 2), without overflow
        epsilon = np.sqrt(2.0 * (outcomes * np.log(2.0) + np.log1p(-(2.0 ** (1 - outcomes))) - np.log(gamma)) / n)
        share = hits[member] / n[:, None]
        constant = table.constant[expression[member]] * multiplicity[member]
        weights = table.reduction.dense(expression[member].ravel())
        weights = weights.reshape(len(types), outcomes, -1) * multiplicity[member][:, :, None]
        for chosen in _subsets(outcomes):
            index = np.array(chosen)
            rows.append(weights[:, index].sum(axis=1))
            bounds.append(share[:, index].sum(axis=1) + epsilon / 2.0 - constant[:, index].sum(axis=1) + 1e-12)
    return np.vstack(rows), np.concatenate(bounds)


def _subsets(outcomes: int) -> Iterator[tuple[int, ...]]:
    """Proper subsets of outcomes whose constraints are kept."""
    sizes = range(1, outcomes) if outcomes <= MAX_FACETS else (1, outcomes - 1)
    for size in sizes:
        yield from combinations(range(outcomes), size)


def _outcomes(pmdp: ParametricMDP, first: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(type, expression, multiplicity) of every outcome, sorted by type and expression."""
    places, own = gather(pmdp.row_ptr, first)
    owner = np.repeat(np.arange(len(first)), np.diff(own))
    key = owner * np.int64(pmdp.num_expressions) + pmdp.expression[places]
    keys, multiplicity = np.unique(key, return_counts=True)
    return keys // pmdp.num_expressions, keys % pmdp.num_expressions, multiplicity


def _hits(
    pmdp: ParametricMDP, counts: Counts, kind: np.ndarray, owner: np.ndarray, expression: np.ndarray
) -> np.ndarray:
    """Observations of every outcome, pooled over the rows of its type."""
    seen = np.flatnonzero(counts.transitions)
    key = kind[pmdp.transition_row[seen]] * np.int64(pmdp.num_expressions) + pmdp.expression[seen]
    place = np.searchsorted(owner * np.int64(pmdp.num_expressions) + expression, key)
    return np.bincount(place, weights=counts.transitions[seen], minlength=len(owner))


NOISE = np.sqrt(0.5)
RIDGE = 1e-2
LARGEST_ELLIPSOID = 512


def least_squares(pmdp: ParametricMDP, counts: Counts, delta: float) -> tuple[np.ndarray, np.ndarray, float]:
    """(centre (r,), V (r, r), β) of the ellipsoid that contains the truth with probability ≥ 1 − δ."""
    check_delta(delta)
    table = pmdp.table
    rank = table.reduction.rank
    if not 0 < rank <= LARGEST_ELLIPSOID:
        raise ModelError(
            f"the least-squares ellipsoid needs 1 to {LARGEST_ELLIPSOID} reduced coordinates, the model has {rank}"
        )
    visits = counts.row_totals[pmdp.transition_row]
    trials = np.bincount(pmdp.expression, weights=visits, minlength=table.num_expressions)
    used = np.flatnonzero((trials > 0) & ~table.is_constant)
    weights = table.reduction.dense(used)
    V = RIDGE * np.eye(rank) + (weights * trials[used, None]).T @ weights
    center = np.linalg.solve(V, weights.T @ (counts.successes[used] - trials[used] * table.constant[used]))
    lower, upper = coordinate_box(pmdp.table, pmdp.domain)
    bound = float(np.linalg.norm(np.maximum(np.abs(lower), np.abs(upper))))
    log_ratio = float(np.linalg.slogdet(V)[1]) - rank * np.log(RIDGE)
    beta = NOISE * np.sqrt(log_ratio + 2.0 * np.log(1.0 / delta)) + np.sqrt(RIDGE) * bound
    return center, V, float(beta) * (1.0 + 1e-9)


class _ParameterSet:
    """A set in parameter space that is built without intervals."""

    name: ClassVar[str]
    region_of_intervals: ClassVar[bool] = False
    untied: ClassVar[str] = "anytime"

    def intervals(self, pmdp: ParametricMDP, counts: Counts, delta: float) -> Bounds:
        raise ModelError(f"{self.name!r} is a set in parameter space without tied intervals; choose another relaxation")


@dataclass(frozen=True)
class L1(_ParameterSet):
    """The domain cut by one L1 ball per kind of row (the paper's Sec. 3.4)."""

    name: ClassVar[str] = "l1"
    anytime: ClassVar[bool] = False

    def region(self, pmdp: ParametricMDP, counts: Counts, delta: float, *_: Any, **__: Any) -> Region:
        ones = np.ones(pmdp.num_expressions)
        return build_region(pmdp, 0.0 * ones, ones, extra=l1_rows(pmdp, counts, delta))


@dataclass(frozen=True)
class LeastSquares(_ParameterSet):
    """The self-normalised ellipsoid, intersected with the domain (the paper's App. E)."""

    name: ClassVar[str] = "ellipsoid"
    anytime: ClassVar[bool] = True

    def region(self, pmdp: ParametricMDP, counts: Counts, delta: float, *_: Any, **__: Any) -> Region:
        center, V, beta = least_squares(pmdp, counts, delta)
        return Intersection([domain_region(pmdp), Ellipsoid(center, V, beta**2)])
