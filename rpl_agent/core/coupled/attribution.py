"""Where the gap comes from: the share of every parameter, and the cost of halving the gap; both are estimates.

Locally the likelihood is Gaussian with the information I = Σ_f K_f b_f b_f' / f² of the data, so the value varies by
G'I⁻¹G, G its gradient. Parameter j has the share G_j (I⁻¹G)_j of that. Widths shrink with the square root of the
data, so halving the gap takes three times as many additional episodes, drawn like those before.
"""

from __future__ import annotations

import numpy as np

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import ParametricMDP, cached_on, without_unused
from rpl_agent.core.model.algebra.ranges import taylor_table
from rpl_agent.core.model.expressions import monomial_slopes
from rpl_agent.core.model.unused import used_parameters
from rpl_agent.core.native import read_only
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.frame import Frame
from rpl_agent.core.regions.parameter_region import ParameterRegion

#: floor for estimated probabilities, so that a rare outcome does not dominate
MIN_PROBABILITY = 1e-6
#: polynomial models with more parameters have no dense derivatives
DENSE_PARAMETERS = 64


def slopes(pmdp: ParametricMDP, theta: np.ndarray) -> np.ndarray | None:
    """(F, n) the derivatives of the expressions in the coordinates of the model's regions, at an estimate (d,).

    Those are the reduced coordinates of affine models, and the used parameters of all others; None if there are
    too many for a dense array.
    """
    if pmdp.table.is_affine:
        weights = pmdp.table.reduction.weights
        return weights if isinstance(weights, np.ndarray) else None
    place = _in_use(pmdp, theta)
    if len(place) > DENSE_PARAMETERS:
        return None
    table, key = without_unused(pmdp).table, place.tobytes()
    known: dict[bytes, np.ndarray] = cached_on(table, "slopes", lambda _: {})
    if key not in known:  # the last estimate is used several times
        known.clear()
        known[key] = read_only(taylor_table(table, place, np.zeros(len(place))).slope)
    return known[key]


def point_frame(pmdp: ParametricMDP, theta: np.ndarray) -> Frame:
    """A frame at one parameter vector (d,), in the same coordinates, for expansions there."""
    if pmdp.table.is_affine:
        x = pmdp.table.reduction.coordinates(theta)[0]
        return Frame(x, np.eye(len(x)), 1.0)
    place = _in_use(pmdp, theta)
    return Frame(place, np.eye(len(place)), 1.0, without_unused(pmdp).table)


def _in_use(pmdp: ParametricMDP, theta: np.ndarray) -> np.ndarray:
    theta = np.asarray(theta, dtype=float)
    return theta if without_unused(pmdp) is pmdp else theta[used_parameters(pmdp.table)]


def own_gradient(
    pmdp: ParametricMDP, region: Region, theta: np.ndarray | None, gradient: np.ndarray
) -> np.ndarray | None:
    """(n,) a gradient in the coordinates of a region, converted to those of `slopes`, at an estimate θ (d,).

    The two differ if a polynomial model has a region of its reduced monomials; then None without an estimate.
    """
    if pmdp.table.is_affine or isinstance(region, ParameterRegion):
        return gradient
    if theta is None:
        return None
    place, reduction = _in_use(pmdp, theta), without_unused(pmdp).table.reduction
    slopes_of_monomials = monomial_slopes(np.asarray(reduction.exponents), place)
    return slopes_of_monomials.T @ np.asarray(reduction.matrix).T @ gradient


def coordinate_jacobian(pmdp: ParametricMDP) -> np.ndarray:
    """(n, d) derivatives of the coordinates of `slopes` by the parameters."""
    if pmdp.table.is_affine:
        return np.asarray(pmdp.table.reduction.matrix @ pmdp.table.reduction.exponents)
    every = np.eye(pmdp.num_parameters)
    return every if without_unused(pmdp) is pmdp else every[used_parameters(pmdp.table)]


def fisher_information(pmdp: ParametricMDP, amounts: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """(n, n) Σ_f K_f b_f b_f' / f² in the coordinates of `slopes`, at an estimate (d,).

    amounts : (F,) the data K; may be negative as the difference of two data sets.
    """
    some = (amounts != 0) & ~pmdp.table.is_constant
    value = np.maximum(pmdp.table.at(theta)[some], MIN_PROBABILITY)
    weights = slopes(pmdp, theta)
    assert weights is not None
    root = weights[some] * (np.sqrt(np.abs(amounts[some])) / value)[:, None]
    return root.T @ (np.sign(amounts[some])[:, None] * root if (amounts < 0).any() else root)


def attribution(pmdp: ParametricMDP, counts: Counts, theta: np.ndarray, gradient: np.ndarray) -> dict[str, float]:
    """Share of the value's variance due to each parameter (sums to 1); empty if nothing is uncertain.

    ``gradient`` (n,) is in the coordinates of `slopes`. If parameters of an affine model are not identifiable, the
    shares are those of the identifiable coordinates, named by the first parameter of each.
    """
    matrix = fisher_information(pmdp, counts.successes, theta)
    names = list(pmdp.table.parameters)
    if pmdp.table.is_affine:
        reduction, jacobian = pmdp.table.reduction, coordinate_jacobian(pmdp)
        inner = jacobian.T @ matrix @ jacobian
        if reduction.rank == len(names) and np.linalg.matrix_rank(inner) == len(names):
            matrix, gradient = inner, jacobian.T @ gradient
        else:
            names = [names[int(reduction.exponents[pivot].argmax())] for pivot in reduction.pivots]
    else:
        names = list(without_unused(pmdp).table.parameters)
    parts = gradient * (np.linalg.pinv(matrix, hermitian=True) @ gradient)
    parts = np.maximum(parts, 0.0)
    total = float(parts.sum())
    if not total > 0.0 or not np.isfinite(total):
        return {}
    return {name: float(part / total) for name, part in zip(names, parts)}
