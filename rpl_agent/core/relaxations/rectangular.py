"""P_R: nature picks a point of the region separately in every row; the tightest rectangular relaxation.

The extremum of a row over the region is one support query in the direction of its Bellman gradient
sum_i values[successor_i] * weights[f_i]. Rows with two successors f and 1 - f need none: there the relaxation equals
the expression-wise one.
"""

from __future__ import annotations

import numpy as np
import scipy

from rpl_agent.core.model import ParametricMDP, Sense, gather
from rpl_agent.core.model.algebra.ranges import bernstein, fits
from rpl_agent.core.native import UNIT_ROUNDOFF, core, read_only
from rpl_agent.core.regions.base import EllipsoidData, Region, RegionKernel
from rpl_agent.core.regions.blocks import factorisation
from rpl_agent.core.regions.intersection import Intersection
from rpl_agent.core.regions.parameter_region import ParameterRegion, curvature_sizes
from rpl_agent.core.regions.polytope_data import PolytopeData
from rpl_agent.core.regions.product import Product
from rpl_agent.core.relaxations.base import (
    BEST,
    CURVED,
    ELLIPSOID,
    INTERVAL,
    POLYTOPE,
    CompiledRelaxation,
    CompiledSet,
    RowForms,
    compiled_set,
    longest_row,
)
from rpl_agent.core.relaxations.interval import beyond_mccormick, clip_bounds, expression_bounds

#: how far below the exact minimum a support bound may lie, relative to the span of the row's values: if all entries of
#: the table are vertices, and if the table is incomplete or degenerate
TIGHTNESS, LOOSE_TIGHTNESS = 1e-12, 1e-9

#: a region is wide if some expression bends by more than this share of its slope
WIDE = 0.1
#: over a wide region, Bernstein coefficients of rows are used as well if there are at most this many
MOST_CORNERS = 48

#: Values from which the gradient of a row could overflow.
HUGE = 1e250


class Rectangular(CompiledRelaxation):
    """The rectangular relaxation of a region.

    region : in the reduced coordinates of ``pmdp.table``; not empty
    """

    def __init__(self, pmdp: ParametricMDP, region: Region) -> None:
        self.region = region
        self.lower, self.upper = map(read_only, clip_bounds(pmdp, *expression_bounds(region, pmdp)))
        compiled = _compile(pmdp, region, self.lower, self.upper)
        self._by_query = compiled is None  # then the compiled set is the interval hull
        super().__init__(pmdp, compiled or compiled_set(INTERVAL, self.lower, self.upper), "rectangular")

    @property
    def tightness(self) -> float:  # of `expectation`: walks clip multipliers, for which the core's own bounds pay
        return LOOSE_TIGHTNESS if self._by_query or self._set.polytope is not None else self._set.tightness

    def compiled(self) -> CompiledSet | None:
        return None if self._by_query else self._set

    def expectation(self, values: np.ndarray, extremum: Sense, out: np.ndarray, rows: np.ndarray | None = None) -> None:
        super().expectation(values, extremum, out, rows)
        if self._by_query:
            self._by_queries(values, extremum, out, rows)

    def _by_queries(self, values: np.ndarray, extremum: Sense, out: np.ndarray, rows: np.ndarray | None) -> None:
        """Query all rows as one batch, where that is better than the interval hull in ``out``."""
        pmdp, table = self.pmdp, self.pmdp.table
        chosen = np.arange(pmdp.num_rows) if rows is None else rows
        wide = np.flatnonzero(pmdp.row_ptr[chosen + 1] - pmdp.row_ptr[chosen] > 2)
        if not len(wide):
            return
        sign = -1.0 if extremum is Sense.MAX else 1.0
        part = _rows_of(pmdp, chosen[wide], sign * values)
        # rows with an infinite (or nearly) successor value keep the rule of the hull
        keep = np.flatnonzero(np.maximum.reduceat(np.abs(part.data), part.indptr[:-1]) < HUGE)
        if not len(keep):
            return
        wide, part = wide[keep], part[keep]
        low = np.minimum.reduceat(part.data, part.indptr[:-1])
        part.data -= np.repeat(low, np.diff(part.indptr))
        span = np.maximum.reduceat(part.data, part.indptr[:-1])
        weights = table.reduction.weights
        gradients = part @ weights
        box_low, box_high = self.region.box()
        reach = np.maximum(np.abs(box_low), np.abs(box_high))
        size = part @ (np.abs(table.constant) + abs(weights) @ reach)
        longest = int(np.diff(part.indptr).max(initial=1))
        slack = (4 * longest + 16) * UNIT_ROUNDOFF * (size + span) + (2 * UNIT_ROUNDOFF * np.abs(low) + 1e-300)
        bound = low + (part @ table.constant + self.region.minimize(gradients)) - slack
        best = np.minimum(np.maximum(sign * out[wide], bound), low + span)
        out[wide] = sign * best


def _rows_of(pmdp: ParametricMDP, rows: np.ndarray, values: np.ndarray) -> scipy.sparse.csr_array:
    """(k, F) matrix whose entry (i, f) is the value of the successors that row i reaches with probability f."""
    transitions, indptr = gather(pmdp.row_ptr, rows)
    data = values[pmdp.successor[transitions]].astype(np.float64)
    shape = (len(rows), pmdp.num_expressions)
    return scipy.sparse.csr_array((data, pmdp.expression[transitions], indptr), shape=shape)


def _rows_are_blocks(pmdp: ParametricMDP, region: Region) -> bool:
    """Whether a product says no more about each row than its interval hull.

    That holds for rows that are known or have two successors, and for those that are one interval block: a coordinate
    on every successor but one, which has the rest.
    """
    blocks = factorisation(pmdp) if isinstance(region, Product) else None
    if blocks is None or not blocks.describes(region):
        return False
    wide = blocks.block_of_row[(np.diff(pmdp.row_ptr) > 2) & (blocks.block_of_row >= 0)]
    return bool((blocks.single[wide] & region.is_interval_block(wide)).all())


def _tightness(data: PolytopeData) -> float:
    """Relative gap between the bounds of a vertex table and the exact minima over its polytope.

    A table is exact up to rounding if its bases, found with loosened right-hand sides, are vertices of the polytope.
    If degeneracy makes some of them miss it, the gap is of the order of the loosening.
    """
    count, n = int(data.counts[0]), len(data.lower)
    if count == 0:
        return TIGHTNESS
    if not data.counts[1]:
        return LOOSE_TIGHTNESS
    records = data.table.reshape(count, -1)
    inverse, rhs = records[:, : n * n].reshape(count, n, n), records[:, n * n : n * n + n]
    vertices = np.einsum("vkj,vk->vj", inverse, rhs)
    return TIGHTNESS if (vertices @ data.rows.T - data.rhs).max(initial=0.0) < 1e-13 else LOOSE_TIGHTNESS


def _compile(pmdp: ParametricMDP, region: Region, lower: np.ndarray, upper: np.ndarray) -> CompiledSet | None:
    """The rows for compiled sweeps; None if the region has no kernel for them."""
    if longest_row(pmdp) <= 2 or _rows_are_blocks(pmdp, region):
        return compiled_set(INTERVAL, lower, upper)
    kernel = region.kernel()
    if isinstance(region, ParameterRegion):
        return _compile_curved(pmdp, region, kernel, lower, upper)
    if kernel is None or scipy.sparse.issparse(pmdp.table.reduction.weights):
        return None
    polytope, ellipsoid, embedding = kernel
    weights, mass = _in_coordinates(pmdp, region, polytope, embedding)
    kind, tightness = ELLIPSOID, TIGHTNESS
    if polytope is not None:
        tightness, needs_hull = _tightness(polytope), _hull_is_tighter(pmdp, region, ellipsoid, embedding)
        ellipsoid = None if needs_hull else ellipsoid
        kind = BEST if needs_hull or ellipsoid is not None else POLYTOPE
    return compiled_set(
        kind,
        lower,
        upper,
        forms=RowForms(pmdp.table.constant, weights, mass),
        polytope=polytope,
        ellipsoid=ellipsoid,
        tightness=tightness,
        rows=max(pmdp.num_rows, 1),
    )


def _compile_curved(
    pmdp: ParametricMDP, region: ParameterRegion, kernel: RegionKernel | None, lower: np.ndarray, upper: np.ndarray
) -> CompiledSet:
    """Rows over a region of parameters; bounds per expression if there are very many parameters."""
    if kernel is None or not region.is_expanded:
        return compiled_set(INTERVAL, lower, upper)
    forms, frame = region.forms, region.frame
    assert forms.curvature is not None and (kernel.polytope is not None or kernel.ellipsoid is not None)
    factor, bent = frame.radius * frame.factor, curvature_sizes(forms.curvature, frame.dimension)
    B, rest = _corners(region, bool((bent + forms.error > WIDE * np.linalg.norm(forms.slope, axis=1)).any()))
    bend = core.Bend(
        M=forms.curvature,
        error=forms.error,
        center=np.ascontiguousarray(frame.center),
        factor=np.ascontiguousarray(factor),
        inverse=np.ascontiguousarray(np.linalg.inv(factor)),
        corners=B.shape[1],
        B=B,
        rest=rest,
    )
    mass = np.abs(forms.p) + np.abs(forms.slope).sum(axis=1) + bent
    return compiled_set(
        CURVED,
        lower,
        upper,
        forms=RowForms(forms.p, forms.slope, mass),
        polytope=kernel.polytope,
        ellipsoid=kernel.ellipsoid,
        tightness=LOOSE_TIGHTNESS,
        rows=max(pmdp.num_rows, 1),
        bend=bend,
    )


def _corners(region: ParameterRegion, is_wide: bool) -> tuple[np.ndarray, np.ndarray]:
    """Bernstein coefficients over the region's box (F, n), and their rounding (F,); empty if they would not help."""
    table = region.table
    if not is_wide or not fits(table.monomials, MOST_CORNERS):
        return np.zeros((len(table), 0)), np.zeros(len(table))
    B, rest = bernstein(table, *region.box())
    return np.ascontiguousarray(B), rest


def _in_coordinates(
    pmdp: ParametricMDP, region: Region, polytope: PolytopeData | None, embedding: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """(weights (F, n), mass (F,)) of the expressions in the coordinates of the region's kernel."""
    weights = pmdp.table.reduction.weights
    if embedding is None or polytope is None:
        reach = np.max(np.abs(region.box()), axis=0)
    else:
        reach = np.abs(embedding) @ polytope.reach
    mass = np.abs(pmdp.table.constant) + np.abs(weights) @ reach
    if embedding is not None and polytope is not None:
        weights = weights @ embedding
    return np.ascontiguousarray(weights), mass


def _hull_is_tighter(
    pmdp: ParametricMDP, region: Region, ellipsoid: EllipsoidData | None, embedding: np.ndarray | None
) -> bool:
    """Whether the hull is tighter than the polytope: through an ellipsoid in x, other members, the parameters' box."""
    members = len(region.members) if isinstance(region, Intersection) else 1
    partial = members > 1 + (ellipsoid is not None) or beyond_mccormick(region, pmdp)
    return (partial and ellipsoid is None) or (embedding is not None and ellipsoid is not None)
