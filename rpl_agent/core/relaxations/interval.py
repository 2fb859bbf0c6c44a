"""Expressions between two bounds, with nature free within each row: interval MDPs, and known ones.

From a region or intervals: tied (P_I), parameter-wise (P_Theta) and expression-wise (P_Lambda). Theorem 2 of the paper:
P_I ⊇ P_Lambda(U) ⊇ P_R(U) ⊇ P_U and P_Theta(U) ⊇ P_Lambda(U), while P_I and P_Theta(U) are incomparable. Hence each
relaxation of a set that contains the truth (Theorem 1) contains it too. Each is a pair of vectors over the expressions.
Bounds are rounded outward, so inclusion of the truth survives floating point.

*Untied* intervals, one per transition, rely only on the model's graph: the classical interval MDP, which
remains sound when the data refute the model's expressions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import MDP, ExpressionTable, ParametricMDP, gather, range_on_box, without_unused
from rpl_agent.core.model.algebra.factors import factors
from rpl_agent.core.model.algebra.ranges import enclosure
from rpl_agent.core.model.unused import used_parameters
from rpl_agent.core.native import UNIT_ROUNDOFF, core, read_only
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.intersection import Image, Intersection
from rpl_agent.core.regions.lifting import checked_bounds, linear_chart
from rpl_agent.core.regions.lp import LinearProgram
from rpl_agent.core.regions.parameter_region import ParameterRegion, affine_slopes, least_eigenvalues
from rpl_agent.core.regions.polytope import Polytope
from rpl_agent.core.relaxations.base import INTERVAL, POINT, CompiledRelaxation, compiled_set, row_sums

FEASIBILITY_TOLERANCE = core.FEASIBILITY_TOLERANCE


class Intervals(CompiledRelaxation):
    """An interval MDP with bounds per expression, so nothing of size T is rebuilt when data arrive.

    lower, upper : (F,) bounds on every expression; 0 and 1 are allowed (a pair never sampled)

    Raises
    ------
    ModelError
        NaN, lower > upper, bounds outside [0, 1], or a row whose bounds admit no distribution.
    """

    def __init__(self, pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray, name: str = "interval") -> None:
        lower, upper = _checked(pmdp, lower, upper)
        super().__init__(pmdp, compiled_set(INTERVAL, lower, upper), name)
        self.lower, self.upper = lower, upper


def _checked(pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    lower, upper = checked_bounds(pmdp, lower, upper, FEASIBILITY_TOLERANCE)
    lower, upper = np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)
    least, most = row_sums(pmdp, lower), row_sums(pmdp, upper)
    for bad, total, what in (
        (least > 1 + FEASIBILITY_TOLERANCE, least, "lower bounds sum to more than 1"),
        (most < 1 - FEASIBILITY_TOLERANCE, most, "upper bounds sum to less than 1"),
    ):
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            names = [
                str(pmdp.table.polynomial(int(f))) for f in pmdp.expression[pmdp.row_ptr[row] : pmdp.row_ptr[row + 1]]
            ]
            raise ModelError(f"{what} ({total[row]:.12g}) at {pmdp.row_name(row)}, expressions {', '.join(names)}")
    return read_only(lower), read_only(upper)


def untied(pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray) -> Intervals:
    """Intervals (T,) per transition; the relaxation's model has one expression per transition."""
    return Intervals(untied_model(pmdp), lower, upper, "untied")


def untied_model(pmdp: ParametricMDP) -> ParametricMDP:
    """The same model with one copy of its expression per transition, so that bounds are per transition."""
    table = pmdp.table
    places, indptr = gather(table.indptr, pmdp.expression)
    numerators = (indptr, table.indices[places], table.data[places])
    monomials = None if table.is_plain else table.monomials
    repeated = ExpressionTable(table.parameters, monomials, numerators, table.denominators)
    return replace(pmdp, expression=np.arange(pmdp.num_transitions, dtype=np.int32), table=repeated)


class Point(CompiledRelaxation):
    """The MDP itself; robust and optimistic values coincide.

    Raises
    ------
    ModelError
        A row whose probabilities are not a distribution.
    """

    def __init__(self, mdp: MDP) -> None:
        pmdp, probability = mdp.pmdp, mdp.values
        if probability is None:
            probability = np.zeros(pmdp.num_expressions)
            probability[pmdp.expression] = mdp.probability
        if not (probability >= 0.0).all():
            t = int(np.flatnonzero(~(probability[pmdp.expression] >= 0.0))[0])
            raise ModelError(f"probability {mdp.probability[t]} at {pmdp.transition_name(t)}")
        total = row_sums(pmdp, probability)
        bad = ~(np.abs(total - 1.0) <= 1e-9)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ModelError(f"probabilities sum to {total[row]:.12g} at {pmdp.row_name(row)}")
        super().__init__(pmdp, compiled_set(POINT, probability, probability), "point")


#: support queries in one batch
BATCH = 100_000


def tied(pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray) -> Intervals:
    """P_I: the confidence intervals (F,) of the expressions, unchanged."""
    return Intervals(pmdp, *clip_bounds(pmdp, *checked_bounds(pmdp, lower, upper)), name="tied")


def expression_wise(region: Region, pmdp: ParametricMDP) -> Intervals:
    """P_Lambda: the range of every expression over the region (in reduced coordinates), two support queries each."""
    return Intervals(pmdp, *clip_bounds(pmdp, *expression_bounds(region, pmdp)), name="expression-wise")


def parameter_wise(region: Region, pmdp: ParametricMDP) -> Intervals:
    """P_Theta: the range of every expression over the smallest box of parameters around the region."""
    bounds = range_on_box(pmdp.table, *parameter_box(region, pmdp))
    return Intervals(pmdp, *clip_bounds(pmdp, *bounds), name="parameter-wise")


# ---------------------------------------------------------------------- ranges
def expression_bounds(region: Region, pmdp: ParametricMDP) -> tuple[np.ndarray, np.ndarray]:
    """(lower (F,), upper (F,)) of every expression over a region, in [0, 1].

    Raises
    ------
    ModelError
        The region is empty or of another dimension than the model's rank.
    """
    table = pmdp.table
    _check_region(region, pmdp)
    if isinstance(region, ParameterRegion):
        return curved_bounds(region, pmdp)
    weights, constant = table.reduction.weights, table.constant
    lower, upper = constant.copy(), constant.copy()
    used = np.flatnonzero(~table.is_constant)
    low, high = (np.asarray(a) for a in region.box())
    reach = np.maximum(np.abs(low), np.abs(high))
    for first in range(0, len(used), BATCH):
        batch = used[first : first + BATCH]
        w = weights[batch]
        slack = 8 * UNIT_ROUNDOFF * (1.0 + np.abs(constant[batch]) + abs(w) @ reach)
        lower[batch] += region.minimize(w) - slack
        upper[batch] -= region.minimize(-w) - slack
    if beyond_mccormick(region, pmdp):
        lower, upper = _meet(lower, upper, range_on_box(table, *parameter_box(region, pmdp)))
    return np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)


def curved_bounds(region: ParameterRegion, pmdp: ParametricMDP) -> tuple[np.ndarray, np.ndarray]:
    """`expression_bounds` over a region of the parameters: the best of three enclosures.

    Bernstein coefficients over the region's box; products of the ranges of factors over the region; with few
    parameters also the quadratic forms over the region.
    """
    low, high = _meet(*range_on_box(region.table, *region.box()), _product_ranges(region, pmdp))
    if region.is_expanded:
        forms, d = region.forms, region.dimension
        assert forms.curvature is not None
        bends = [least_eigenvalues(sign * forms.curvature, d) for sign in (1.0, -1.0)]
        ends = np.split(region.frame.least(region, np.concatenate([forms.slope, -forms.slope])), 2)
        least, most = forms.p + ends[0] + bends[0] - forms.error, forms.p - ends[1] - bends[1] + forms.error
        low, high = _meet(low, high, (least, most))
    known, (least, most) = pmdp.table.is_constant, pmdp.table.constant_bounds
    return np.where(known, least, np.clip(low, 0.0, 1.0)), np.where(known, most, np.clip(high, 0.0, 1.0))


def _product_ranges(region: ParameterRegion, pmdp: ParametricMDP) -> tuple[np.ndarray, np.ndarray]:
    """(F,), (F,) products of the ranges of every expression's factors, affine ones over the region."""
    found = factors(without_unused(pmdp))
    forms = found.forms
    lower, upper, slack = enclosure(forms, *region.box())
    lower, upper = np.maximum(lower - slack, 0.0), np.maximum(upper + slack, 0.0)
    affine = np.flatnonzero(forms.degrees == 1)
    weights = affine_slopes(forms)[1][affine]
    reach = np.max(np.abs(region.box()), axis=0)
    slack = 8 * UNIT_ROUNDOFF * (1.0 + np.abs(forms.constant[affine]) + np.abs(weights) @ reach)
    lower[affine] = np.maximum(lower[affine], forms.constant[affine] + region.minimize(weights) - slack)
    upper[affine] = np.minimum(upper[affine], forms.constant[affine] - region.minimize(-weights) + slack)
    ends, terms, scale = [], 16.0 + np.diff(found.powers.indptr), np.maximum(found.log_scale, -1e300)
    for sign, end in ((-1.0, lower), (1.0, upper)):
        impossible = found.powers @ (end <= 0.0) > 0
        logs = np.log(np.where(end > 0.0, end, 1.0))
        rounding = 4.0 * UNIT_ROUNDOFF * terms * (1.0 + np.abs(scale) + found.powers @ np.abs(logs))
        ends.append(np.where(impossible, 0.0, np.exp(scale + found.powers @ logs + sign * rounding)))
    return ends[0] * (1.0 - 1e-12), ends[1] * (1.0 + 1e-12)


def beyond_mccormick(region: Region, pmdp: ParametricMDP) -> bool:
    """Whether ranges over the parameter box may beat the region's linear relaxation.

    McCormick's inequalities are exact on their box for affine and bilinear expressions, not for higher degrees, nor on
    the smaller box of an intersection.
    """
    table = pmdp.table
    if table.is_affine:
        return False
    bilinear = table.degree <= 2 and table.monomials.max(initial=0) <= 1
    return not (bilinear and isinstance(region, Polytope | Image))


def parameter_box(region: Region, pmdp: ParametricMDP) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (lower (d,), upper (d,)) on every parameter over the region.

    A parameter that is a linear function of x is bounded by the region itself; any other by the domain cut
    with the region's constraints on x (which may be wide for unidentifiable parameters).
    """
    _check_region(region, pmdp)
    table, domain = pmdp.table, pmdp.domain
    if isinstance(region, ParameterRegion):
        lower, upper = domain.lower.copy(), domain.upper.copy()
        own = [table.parameters.index(name) for name in region.table.parameters]
        low, high = region.box()
        lower[own], upper[own] = np.maximum(lower[own], low), np.minimum(upper[own], high)
        return _crossing_undone(lower, upper, domain.lower, domain.upper)
    reduction = table.reduction
    lower, upper = domain.lower.copy(), domain.upper.copy()
    smaller = without_unused(pmdp)
    if smaller is not pmdp:  # the region's coordinates are those of the used parameters
        used = used_parameters(table)
        lower[used], upper[used] = parameter_box(region, smaller)
        if table.is_affine:
            units = np.eye(domain.dimension)[~used]
            least, most = np.split(affine_program(region, pmdp).minimize(np.vstack([units, -units])), 2)
            lower[~used], upper[~used] = np.maximum(lower[~used], least), np.minimum(upper[~used], -most)
        return _crossing_undone(lower, upper, domain.lower, domain.upper)
    d = domain.dimension
    direct = not table.is_affine and linear_chart(table).is_identity  # x begins with the parameters
    for member in region.members if isinstance(region, Intersection) else [region]:
        # McCormick rows are exact over the bounds they were made for.
        inner = member.inner if isinstance(member, Image) else member if direct else None
        if isinstance(inner, Polytope):
            lower, upper = np.maximum(lower, inner.lower[:d]), np.minimum(upper, inner.upper[:d])
    if direct and not beyond_mccormick(region, pmdp):
        return _crossing_undone(lower, upper, domain.lower, domain.upper)
    # the matrix is a row echelon form: a parameter that x determines is a coordinate of its own
    pivots = np.array(reduction.pivots, dtype=np.int64)
    alone = np.diff(scipy.sparse.csr_array(reduction.matrix).indptr) == 1
    alone &= reduction.exponents[pivots].sum(axis=1) == 1
    own, (low, high) = reduction.exponents[pivots[alone]].argmax(axis=1), region.box()
    lower[own], upper[own] = np.maximum(lower[own], low[alone]), np.minimum(upper[own], high[alone])
    if table.is_affine and len(own) < d:
        eye = np.eye(d)
        values = affine_program(region, pmdp).minimize(np.vstack([eye, -eye]))
        lower, upper = np.maximum(lower, values[:d]), np.minimum(upper, -values[d:])
    return _crossing_undone(lower, upper, domain.lower, domain.upper)


def affine_program(region: Region, pmdp: ParametricMDP) -> LinearProgram:
    """The domain of an affine model cut with a region's constraints on x = matrix theta: its box and polytope rows."""
    domain, reduction = pmdp.domain, pmdp.table.reduction
    columns = reduction.exponents.argmax(axis=1)
    embedding = np.zeros((reduction.rank, domain.dimension))
    embedding[:, columns] = scipy.sparse.csr_array(reduction.matrix).toarray()
    low, high = region.box()
    rows, rhs = [embedding, -embedding], [high, -low]
    for member in region.members if isinstance(region, Intersection) else [region]:
        if isinstance(member, Polytope):
            rows.append(member.A @ embedding)
            rhs.append(member.b)
    A, b = np.vstack(rows), np.concatenate(rhs)
    reach = np.maximum(np.abs(domain.lower), np.abs(domain.upper))
    b = b + 8 * UNIT_ROUNDOFF * (np.abs(b) + np.abs(A) @ reach)
    return LinearProgram(np.vstack([domain.A, A]), np.concatenate([domain.b, b]), domain.lower, domain.upper)


# ---------------------------------------------------------------------- small repairs
def _check_region(region: Region, pmdp: ParametricMDP) -> None:
    if not isinstance(region, ParameterRegion) and region.dimension != pmdp.table.reduction.rank:
        raise ModelError(f"the region has {region.dimension} coordinates, the model {pmdp.table.reduction.rank}")
    if region.is_empty:
        raise ModelError("the region is empty: no parameter vector satisfies all constraints")


def _meet(lower: np.ndarray, upper: np.ndarray, other: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.maximum(lower, other[0]), np.minimum(upper, other[1])


def _crossing_undone(
    lower: np.ndarray, upper: np.ndarray, widest_lower: np.ndarray, widest_upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Exchange bounds that cross by rounding; replace those that cross by more with the widest ones, which is sound."""
    crossed = lower > upper
    slight = crossed & (lower - upper <= 1e-8)
    low = np.where(slight, upper, np.where(crossed, widest_lower, lower))
    high = np.where(slight, lower, np.where(crossed, widest_upper, upper))
    return low, high


def clip_bounds(pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds in [0, 1] that do not cross; exact for constants."""
    lower, upper = np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)
    lower, upper = _crossing_undone(lower, upper, np.zeros_like(lower), np.ones_like(upper))
    constant, (least, most) = pmdp.table.is_constant, pmdp.table.constant_bounds
    return np.where(constant, least, lower), np.where(constant, most, upper)
