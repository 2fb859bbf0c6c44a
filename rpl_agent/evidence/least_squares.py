"""The least-squares ellipsoid of the paper's App. E, with a noise constant that is large enough.

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

import numpy as np

from rpl_agent.errors import ModelError
from rpl_agent.evidence.coordinates import coordinate_box
from rpl_agent.evidence.counts import Counts
from rpl_agent.evidence.ledger import check_delta
from rpl_agent.model import ParametricMDP

NOISE = np.sqrt(0.5)
RIDGE = 1e-2
MAX_RANK = 512


def least_squares(
    pmdp: ParametricMDP, counts: Counts, delta: float, *, ridge: float = RIDGE
) -> tuple[np.ndarray, np.ndarray, float]:
    """(centre (r,), V (r, r), β) of the ellipsoid that holds the truth with probability ≥ 1 − δ."""
    check_delta(delta)
    table = pmdp.table
    rank = table.reduction.rank
    if not 0 < rank <= MAX_RANK:
        raise ModelError(f"the least-squares ellipsoid needs 1 to {MAX_RANK} reduced coordinates, the model has {rank}")
    if ridge <= 0:
        raise ModelError(f"ridge {ridge} must be positive")
    visits = counts.row_totals[pmdp.transition_row]
    trials = np.bincount(pmdp.expression, weights=visits, minlength=table.num_expressions)
    used = np.flatnonzero((trials > 0) & ~table.is_constant)
    weights = table.reduction.weights[used]
    weights = np.asarray(weights.todense() if hasattr(weights, "todense") else weights)
    V = ridge * np.eye(rank) + (weights * trials[used, None]).T @ weights
    center = np.linalg.solve(V, weights.T @ (counts.successes[used] - trials[used] * table.constant[used]))
    lower, upper = coordinate_box(pmdp.table, pmdp.domain)
    bound = float(np.linalg.norm(np.maximum(np.abs(lower), np.abs(upper))))
    log_ratio = float(np.linalg.slogdet(V)[1]) - rank * np.log(ridge)
    beta = NOISE * np.sqrt(log_ratio + 2.0 * np.log(1.0 / delta)) + np.sqrt(ridge) * bound
    return center, V, float(beta) * (1.0 + 1e-9)
