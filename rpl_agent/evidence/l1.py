"""L1 balls around empirical row distributions (Weissman et al.), as linear rows in parameter space.

P(‖p̂ − p‖₁ ≥ ε) ≤ (2^k − 2) e^{−nε²/2} for n trials of a distribution over k outcomes, n fixed in advance.
Rows of the model that carry the same expressions are repetitions of one experiment and are pooled; successors
of a row that carry the same expression are one outcome. Since probabilities sum to 1, ‖p − p̂‖₁ ≤ ε says

    p(A) ≤ p̂(A) + ε/2   for every set A of outcomes:

2^k − 2 linear rows in x. Beyond MAX_FACETS outcomes only single outcomes and their complements are used, which
describes a larger set and is sound.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from rpl_agent.errors import ModelError
from rpl_agent.evidence import _kernels
from rpl_agent.evidence.counts import Counts
from rpl_agent.evidence.intervals import check_delta
from rpl_agent.model.pmdp import ParametricMDP

MAX_FACETS = 6


def row_types(pmdp: ParametricMDP) -> tuple[np.ndarray, np.ndarray]:
    """(type of each row (R,), one row of each type): rows are of one type if they carry the same expressions."""
    ordered = np.empty(pmdp.num_transitions, dtype=np.int64)
    _kernels.sort_rows(pmdp.row_ptr, pmdp.expression, ordered)
    rng = np.random.default_rng(7)
    salts = rng.integers(1, 2**63, size=(2, pmdp.num_expressions), dtype=np.uint64)
    length = np.diff(pmdp.row_ptr)
    keys = np.empty((pmdp.num_rows, 2), dtype=np.uint64)
    for k in range(2):  # sums of random numbers per expression tell multisets apart
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(salts[k][ordered], dtype=np.uint64)])
        keys[:, k] = sums[pmdp.row_ptr[1:]] - sums[pmdp.row_ptr[:-1]]
    _, first, kind = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    kind = np.ravel(kind)
    representative = first[kind]
    if (length[representative] != length).any():
        raise ModelError("row types collide")
    shift = np.repeat(pmdp.row_ptr[:-1][representative] - pmdp.row_ptr[:-1], length)
    if (ordered[np.arange(pmdp.num_transitions) + shift] != ordered).any():
        raise ModelError("row types collide")
    return kind, first


def l1_rows(pmdp: ParametricMDP, counts: Counts, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows (A (m, r), b (m,)) with A x ≤ b for the truth with probability ≥ 1 − δ, for N fixed in advance."""
    check_delta(delta)
    table = pmdp.table
    kind, first = row_types(pmdp)
    unknown = [r for r in range(len(first)) if not _is_constant(pmdp, int(first[r]))]
    gamma = delta / max(len(unknown), 1)
    visits = np.bincount(kind, weights=counts.row_totals, minlength=len(first))
    hits = _hits_per_type(pmdp, counts, kind)
    weights = table.reduction.weights
    rows, bounds = [], []
    for r in unknown:
        n = visits[r]
        if n == 0:
            continue
        span = slice(pmdp.row_ptr[first[r]], pmdp.row_ptr[first[r] + 1])
        expressions, multiplicity = np.unique(pmdp.expression[span], return_counts=True)
        outcomes = len(expressions)
        epsilon = np.sqrt(2.0 * (np.log(2.0**outcomes - 2.0) - np.log(gamma)) / n) if outcomes > 1 else 0.0
        share = np.array([hits[r].get(int(f), 0) for f in expressions]) / n
        b_f = weights[expressions]
        b_f = np.asarray(b_f.todense() if hasattr(b_f, "todense") else b_f) * multiplicity[:, None]
        c_f = table.constant[expressions] * multiplicity
        for chosen in _subsets(outcomes):
            index = np.array(chosen)
            rows.append(b_f[index].sum(axis=0))
            bounds.append(share[index].sum() + epsilon / 2.0 - c_f[index].sum() + 1e-12)
    if not rows:
        return np.zeros((0, table.reduction.rank)), np.zeros(0)
    return np.array(rows), np.array(bounds)


def _subsets(outcomes: int):
    """Proper subsets of outcomes whose constraints are kept."""
    sizes = range(1, outcomes) if outcomes <= MAX_FACETS else (1, outcomes - 1)
    for size in sizes:
        yield from combinations(range(outcomes), size)


def _is_constant(pmdp: ParametricMDP, row: int) -> bool:
    return bool(pmdp.table.is_constant[pmdp.expression[pmdp.row_ptr[row] : pmdp.row_ptr[row + 1]]].all())


def _hits_per_type(pmdp: ParametricMDP, counts: Counts, kind: np.ndarray) -> list[dict[int, int]]:
    """Per type: observed successes of each expression."""
    seen = np.flatnonzero(counts.transitions)
    key = kind[pmdp.transition_row[seen]].astype(np.int64) * pmdp.num_expressions + pmdp.expression[seen]
    keys, inverse = np.unique(key, return_inverse=True)
    sums = np.bincount(inverse, weights=counts.transitions[seen], minlength=len(keys))
    result: list[dict[int, int]] = [{} for _ in range(int(kind.max(initial=-1)) + 1)]
    for k, value in zip(keys.tolist(), sums.tolist()):
        result[k // pmdp.num_expressions][k % pmdp.num_expressions] = int(value)
    return result
