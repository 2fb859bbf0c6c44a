"""Polynomial models: the joint likelihood region in parameter space, block by block if there are many parameters.

The likelihood is a product over the forms of `algebra.factors`. Parameters that meet in a form or in a row of the
domain belong to one block; docs/guarantees.md ("Polynomial models") has the theorem on such blocks.

Up to `JOINT_DIMENSION` parameters there is one block, because the joint set is smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.intervals import anytime, confidence_intervals
from rpl_agent.core.evidence.ledger import per_event, split_main
from rpl_agent.core.model import Domain, ExpressionTable, Objective, ParametricMDP, cached_fact, without_unused
from rpl_agent.core.model.algebra.factors import Factors, factors
from rpl_agent.core.model.algebra.ranges import enclosure
from rpl_agent.core.model.unused import used_parameters
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.blocks import domain_of_block, parameters_of_expressions
from rpl_agent.core.regions.intersection import Ellipsoid, Intersection
from rpl_agent.core.regions.parameter_region import ParameterRegion, ParameterRows, affine_rows
from rpl_agent.core.regions.polytope import Polytope
from rpl_agent.core.regions.product import Product
from rpl_agent.guarantee.likelihood.bets.slabs import ValueSlab, curved_rows, shares_of, side_rows, tightest_slabs
from rpl_agent.guarantee.likelihood.chart import JOINT_DIMENSION, ParameterChart, forms_chart
from rpl_agent.guarantee.likelihood.level_set import EXACT_DIMENSION, SHALLOW, LevelSet, cut_directions, outer_region
from rpl_agent.guarantee.likelihood.polynomial.cover import around, cover
from rpl_agent.guarantee.likelihood.windows import likelihood_set


@dataclass(frozen=True, eq=False)
class ParameterBlock:
    """Parameters (k,) of a model without unused ones, with the forms that involve them."""

    parameters: np.ndarray
    chart: ParameterChart  # z = θ of the block; its factors are the forms of the block
    domain: Domain
    upper: np.ndarray  # (n,) bounds on its forms over the domain
    coin: tuple[int, int] | None  # for a block of one parameter p with the forms p and 1 − p, their ids


def curved_region(
    pmdp: ParametricMDP, counts: Counts, delta: float, warm: np.ndarray | None, objective: Objective | None = None
) -> ParameterRegion:
    """The region of the used parameters that contains the truth at all times with probability ≥ 1 − delta."""
    core = without_unused(pmdp)
    start = None if warm is None else np.asarray(warm, dtype=float)
    if start is not None and len(start) > core.num_parameters:
        start = start[used_parameters(pmdp.table)]
    amounts = split_main(delta, shares_of(pmdp, counts, objective))
    lower, upper = confidence_intervals(pmdp, counts, "anytime", amounts.intervals)
    rows = affine_rows(core, lower, upper)
    blocks = parameter_blocks(core)
    share = per_event(amounts.level_set, len(blocks))
    if len(blocks) == 1:
        inner = _block_region(blocks[0], rows, counts, share, start)
        slabs = tightest_slabs(pmdp, counts, objective, amounts.bets)
        return ParameterRegion(inner if slabs is None else _cut(inner, core.table, slabs), core.table)
    order = np.concatenate([block.parameters for block in blocks])
    low, high = core.domain.lower[order].copy(), core.domain.upper[order].copy()
    ends = np.concatenate([[0], np.cumsum([len(block.parameters) for block in blocks])])
    tossed = _tossed(blocks, counts, share)
    regions: dict[int, Region] = {}
    for k, block in enumerate(blocks):
        span = slice(ends[k], ends[k + 1])
        if k in tossed:
            low[span], high[span] = np.maximum(low[span], tossed[k][0]), np.minimum(high[span], tossed[k][1])
            continue
        own = None if start is None else start[block.parameters]
        regions[k] = _block_region(block, rows, counts, share, own)
        if not regions[k].is_empty:
            low[span], high[span] = regions[k].box()
    rest = np.zeros(len(blocks)), np.ones(len(blocks))
    return ParameterRegion(Product(ends, low, high, *rest, regions, order), core.table)


def _cut(region: Region, table: ExpressionTable, slabs: tuple[ValueSlab, ValueSlab]) -> Region:
    """The part of a region between the tighter sides of two slabs."""
    low, high = region.box()
    between = Polytope(*side_rows(*curved_rows(table, low, high, *slabs)), low, high)
    both = Intersection([*(region.members if isinstance(region, Intersection) else [region]), between])
    return both if len(both.members) > 1 else both.members[0]


def _tossed(blocks: Sequence[ParameterBlock], counts: Counts, share: float) -> dict[int, tuple[float, float]]:
    """The intervals of blocks that are a coin: the level set of the Beta(½, ½) mixture."""
    coins = {k: block.coin for k, block in enumerate(blocks) if block.coin is not None}
    if not coins:
        return {}
    seen = np.array([blocks[k].chart.form_counts(counts.successes)[list(coin)] for k, coin in coins.items()])
    low, high = anytime(seen[:, 0], seen.sum(axis=1), share)
    return {k: (float(a), float(b)) for k, a, b in zip(coins, low, high)}


def _block_region(
    block: ParameterBlock, rows: ParameterRows, counts: Counts, share: float, start: np.ndarray | None
) -> Region:
    """The level set of a block, within its domain and the intervals of affine expressions."""
    own = rows.of(block.parameters, block.domain)
    level_set = likelihood_set(counts, share, block.chart, start)
    if level_set is None:
        return own.polytope()
    if level_set.chart.reduction is not None:
        return _covered(level_set, own)
    diameter = float(np.linalg.norm(block.domain.upper - block.domain.lower))
    upper = block.upper[level_set.expressions]
    return outer_region(level_set, upper, diameter, own.polytope, lambda found: found.fits(*own, SHALLOW))


def _covered(level_set: LevelSet, rows: ParameterRows) -> Region:
    """The hull of a level set that is not convex."""
    d = level_set.chart.dimension
    normals = cut_directions(d) @ np.linalg.cholesky(level_set.center.precision).T
    normals = np.vstack([normals / np.linalg.norm(normals, axis=1)[:, None], np.eye(d), -np.eye(d)])
    polytope = rows.polytope((normals, np.minimum(cover(level_set, normals), 1e300)))
    if d <= EXACT_DIMENSION or polytope.is_empty:
        return polytope
    found = around(level_set, *polytope.box())
    return polytope if found is None else Intersection([polytope, Ellipsoid(*found)])


# ---------------------------------------------------------------------- finding the blocks
@cached_fact
def parameter_blocks(core: ParametricMDP) -> tuple[ParameterBlock, ...]:
    """The blocks of a polynomial model; a single one if there are few parameters."""
    found, d = factors(core), core.num_parameters
    label = np.zeros(d, dtype=np.int64)
    if d > JOINT_DIMENSION:
        rows = scipy.sparse.csr_array(core.domain.A != 0).astype(np.int64)
        meets = scipy.sparse.vstack([parameters_of_expressions(found.forms), rows], format="csr")
        label = scipy.sparse.csgraph.connected_components(scipy.sparse.csr_array(meets.T @ meets), directed=False)[1]
    groups = [np.flatnonzero(label == k) for k in range(int(label.max()) + 1)]
    return tuple(_block(core, found, group) for group in groups)


def _block(core: ParametricMDP, found: Factors, group: np.ndarray) -> ParameterBlock:
    names = [core.table.parameters[j] for j in group]
    mine = np.flatnonzero(parameters_of_expressions(found.forms)[:, group].sum(axis=1))
    forms = ExpressionTable.from_polynomials([found.forms.polynomial(int(i)) for i in mine], names)
    domain = domain_of_block(core.domain, group)
    chart = forms_chart(domain, Factors(forms, scipy.sparse.csr_array(found.powers[:, mine]), found.log_scale))
    bounds = enclosure(forms, domain.lower, domain.upper)
    texts = [str(forms.polynomial(i)) for i in range(len(forms))]
    is_coin = len(group) == 1 and sorted(texts) == sorted([names[0], f"1 - {names[0]}"])
    coin = (texts.index(names[0]), texts.index(f"1 - {names[0]}")) if is_coin else None
    return ParameterBlock(group, chart, domain, bounds.upper + bounds.slack, coin)
