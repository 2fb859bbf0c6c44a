"""Where the gap comes from: the share of every parameter, and what halving the gap would cost; both estimates.

Locally the likelihood is Gaussian with the information I = Σ_f K_f b_f b_f' / f² of the data, so the value varies by
G'I⁻¹G, G its gradient. Parameter j carries the share G_j (I⁻¹G)_j of that. Widths shrink with the root of the
data, so half the gap takes three times as many episodes again, drawn as those before.
"""

from __future__ import annotations

import numpy as np

from rpl_agent.evidence.counts import Counts
from rpl_agent.model.pmdp import ParametricMDP

#: estimates of probabilities are not taken below this: a rare outcome is not all that matters
MIN_PROBABILITY = 1e-6


def fisher_information(pmdp: ParametricMDP, amounts: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """(r, r) Σ_f K_f b_f b_f' / f² in the reduced coordinates x, at an estimate (d,).

    amounts : (F,) the data K; negative where it is the difference of two data sets.
    """
    some = (amounts != 0) & ~pmdp.table.is_constant
    value = np.maximum(pmdp.table.evaluate(theta)[some], MIN_PROBABILITY)
    root = np.asarray(pmdp.table.reduction.weights)[some] * (np.sqrt(np.abs(amounts[some])) / value)[:, None]
    return root.T @ (np.sign(amounts[some])[:, None] * root if (amounts < 0).any() else root)


def attribution(pmdp: ParametricMDP, counts: Counts, theta: np.ndarray, gradient: np.ndarray) -> dict[str, float]:
    """Share of the value's variance that each parameter carries (sums to 1); empty where nothing is uncertain.

    Where parameters cannot be told apart, the shares are of the identifiable coordinates, named by their monomials.
    """
    reduction, table = pmdp.table.reduction, pmdp.table
    matrix = fisher_information(pmdp, counts.successes, theta)
    jacobian = coordinate_jacobian(pmdp, theta)
    names = list(table.parameters)
    inner = jacobian.T @ matrix @ jacobian
    slope = jacobian.T @ gradient
    if reduction.rank < len(names) or np.linalg.matrix_rank(inner) < len(names):
        names, inner, slope = _coordinate_names(pmdp), matrix, gradient
    parts = slope * (np.linalg.pinv(inner, hermitian=True) @ slope)
    parts = np.maximum(parts, 0.0)
    total = float(parts.sum())
    if not total > 0.0 or not np.isfinite(total):
        return {}
    return {name: float(part / total) for name, part in zip(names, parts)}


def coordinate_jacobian(pmdp: ParametricMDP, theta: np.ndarray) -> np.ndarray:
    """(r, d) derivatives of the reduced coordinates at θ."""
    reduction = pmdp.table.reduction
    exponents = reduction.exponents
    columns = []
    for j in range(exponents.shape[1]):
        lower = exponents.copy()
        lower[:, j] = np.maximum(lower[:, j] - 1, 0)
        columns.append(exponents[:, j] * np.prod(np.asarray(theta) ** lower, axis=1))
    return np.asarray(reduction.matrix @ np.stack(columns, axis=1))


def _coordinate_names(pmdp: ParametricMDP) -> list[str]:
    names = []
    for pivot in pmdp.table.reduction.pivots:
        powers = pmdp.table.reduction.exponents[pivot]
        factors = [f"{n}^{p}" if p > 1 else n for n, p in zip(pmdp.table.parameters, powers.tolist()) if p]
        names.append("*".join(factors))
    return names


def episodes_seen(pmdp: ParametricMDP, counts: Counts) -> int:
    """Episodes in the data: visits of the initial state that did not come from a transition into it."""
    start = pmdp.initial_state
    first, last = pmdp.row_ptr[pmdp.state_ptr[start]], pmdp.row_ptr[pmdp.state_ptr[start + 1]]
    visits = int(counts.transitions[first:last].sum())
    return max(visits - int(counts.transitions[pmdp.successor == start].sum()), 0)
