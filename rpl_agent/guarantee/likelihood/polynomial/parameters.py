"""Polynomial models of many monomials: what the data leave of θ, block by block.

The likelihood is a product over the forms of `algebra.factors`. Parameters that meet in a form or in a row of the
domain belong to one block; a model of up to `JOINT_DIMENSION` parameters is a single block. docs/guarantees.md
("Polynomial models") has the theorem. Where forms are affine in θ, their likelihood has a joint set, like that of
affine expressions; the checker does not know this set, so certificates of such models have no proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.intervals import anytime, confidence_intervals
from rpl_agent.core.evidence.ledger import per_event, split_main
from rpl_agent.core.model import Domain, ExpressionTable, ParametricMDP, cached_fact, without_unused
from rpl_agent.core.model.algebra.factors import Factors, factors
from rpl_agent.core.model.algebra.ranges import enclosure
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.blocks import parameters_of_expressions
from rpl_agent.core.regions.intersection import Intersection
from rpl_agent.core.regions.parameter_region import ParameterRegion, ParameterRows, affine_rows, interval_parameters
from rpl_agent.core.regions.product import Product
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.likelihood.chart import JOINT_DIMENSION, ParameterChart, forms_chart
from rpl_agent.guarantee.likelihood.joint_set import ellipsoid_of, joint_set, tangent_points
from rpl_agent.guarantee.likelihood.line import Line
from rpl_agent.guarantee.likelihood.shares import OF_A_TABLE, WITHOUT_BETS


@dataclass(frozen=True, eq=False)
class ParameterBlock:
    """Parameters (k,) of a model without unused ones, with the forms that involve them."""

    parameters: np.ndarray
    chart: ParameterChart  # z = θ of the block; its factors are the forms of the block
    domain: Domain
    upper: np.ndarray  # (n,) bounds on its forms over the domain
    coin: tuple[int, int] | None  # for a block of one parameter p with the forms p and 1 − p, their ids


def curved_region(pmdp: ParametricMDP, counts: Counts, delta: float) -> ParameterRegion:
    """The region of the used parameters that contains the truth at all times with probability ≥ 1 − delta."""
    core = without_unused(pmdp)
    blocks = parameter_blocks(core)
    if all(block.coin is None and _forms_line(block) is None for block in blocks):  # a fact of the model: no joint set
        return interval_parameters(pmdp, *confidence_intervals(pmdp, counts, "anytime", delta))
    amounts = split_main(delta, OF_A_TABLE if counts.schedule == "table" else WITHOUT_BETS)
    rows = affine_rows(core, *confidence_intervals(pmdp, counts, "anytime", amounts.intervals))
    share = per_event(amounts.level_set, len(blocks))
    if len(blocks) == 1:
        return ParameterRegion(_block_region(blocks[0], rows, counts, share), core.table)
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
        regions[k] = _block_region(block, rows, counts, share)
        if not regions[k].is_empty:
            low[span], high[span] = regions[k].box()
    rest = np.zeros(len(blocks)), np.ones(len(blocks))
    return ParameterRegion(Product(ends, low, high, *rest, regions, order), core.table)


def _tossed(blocks: Sequence[ParameterBlock], counts: Counts, share: float) -> dict[int, tuple[float, float]]:
    """The intervals of blocks that are a coin: the level set of the Beta(½, ½) mixture."""
    coins = {k: block.coin for k, block in enumerate(blocks) if block.coin is not None}
    if not coins:
        return {}
    seen = np.array([blocks[k].chart.form_counts(counts.successes)[list(coin)] for k, coin in coins.items()])
    low, high = anytime(seen[:, 0], seen.sum(axis=1), share)
    return {k: (float(a), float(b)) for k, a, b in zip(coins, low, high)}


def _block_region(block: ParameterBlock, rows: ParameterRows, counts: Counts, share: float) -> Region:
    """The joint set of a block, within its domain and the intervals of affine expressions."""
    own, line = rows.of(block.parameters, block.domain), _forms_line(block)
    joint = None if line is None else joint_set(line, counts, share, block.chart.form_counts)
    if joint is None:
        return own.polytope()
    ball = joint.ball()
    polytope = own.polytope(joint.tangents(tangent_points(joint, ball)))
    return polytope if ball is None or joint.dimension == 1 else Intersection([polytope, ellipsoid_of(ball)])


@cached_fact
def _forms_line(block: ParameterBlock) -> Line | None:
    """Coordinates for the forms of a block; None if they are not affine, too many, or have no room."""
    chart = block.chart
    if chart.reduction is not None or not chart.has_interior or chart.dimension > checker.MOST_COORDINATES:
        return None
    A, b = block.domain.constraints()
    line = Line.of(np.column_stack([chart.constant, chart.weights]), np.column_stack([b, -A]), chart.start)
    return line if len(line.free) and line.chances(line.start).min() > 0.0 else None


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
    domain = core.domain.part(group)
    chart = forms_chart(domain, Factors(forms, scipy.sparse.csr_array(found.powers[:, mine]), found.log_scale))
    bounds = enclosure(forms, domain.lower, domain.upper)
    texts = [str(forms.polynomial(i)) for i in range(len(forms))]
    is_coin = len(group) == 1 and sorted(texts) == sorted([names[0], f"1 - {names[0]}"])
    coin = (texts.index(names[0]), texts.index(f"1 - {names[0]}")) if is_coin else None
    return ParameterBlock(group, chart, domain, bounds.upper + bounds.slack, coin)
