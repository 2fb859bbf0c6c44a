"""The point estimate of maximum likelihood, and edges of the domain that limit it.

An estimate at a bound that the user chose (not a bound of 0 or 1 on a probability) deserves a note long before the
data refute the domain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Domain, ParametricMDP, without_unused
from rpl_agent.core.model.unused import used_parameters
from rpl_agent.core.regions.blocks import blocks_pay, factorisation, is_blockwise
from rpl_agent.guarantee.likelihood.chart import BARRIER as PRIOR
from rpl_agent.guarantee.likelihood.chart import (
    MAX_RANK,
    ParameterChart,
    domain_chart,
    fit,
    not_probabilities,
    parameter_chart,
    wider_chart,
)
from rpl_agent.guarantee.likelihood.polynomial.parameters import parameter_blocks

MAX_PARAMETERS = 200
#: Small enough for the fit to touch an edge that the data push it against.
EDGE_BARRIER = 1e-3
#: Name an edge if crossing it gains the first number of nats (1 % likelier), or the last one for bounds of 0 and 1,
#: which nobody chose; warn from the second number on (20 times likelier).
GAIN, TELLING_GAIN, UNIT_GAIN = 0.01, 3.0, 3.0


def point_estimate(
    pmdp: ParametricMDP, counts: Counts, warm: np.ndarray | None = None, barrier: float = PRIOR
) -> np.ndarray | None:
    """θ (d,) of largest penalised likelihood, inside the domain; None for models with very many parameters.

    Where parameters are not identifiable one by one this is one of many equally likely points. ``barrier`` is the
    number of pseudo-observations per bound of the domain: near 0 gives the maximum-likelihood estimate.
    """
    if is_blockwise(pmdp):
        return _estimate_by_blocks(pmdp, counts, barrier)
    affine = pmdp.table.is_affine
    is_small = pmdp.num_parameters <= MAX_PARAMETERS and (not affine or pmdp.table.reduction.rank <= MAX_RANK)
    if not pmdp.num_parameters or (affine and not is_small):
        return None
    reduced = without_unused(pmdp)
    if reduced is not pmdp and not pmdp.domain.A[:, ~used_parameters(pmdp.table)].any():
        # The data carry no information about unused parameters: use the midpoint of their bounds.
        used, whole = used_parameters(pmdp.table), (pmdp.domain.lower + pmdp.domain.upper) / 2
        found = point_estimate(reduced, counts, None if warm is None else warm[used], barrier)
        assert found is not None
        whole[used] = found
        return whole
    if affine:
        found = _fitted(domain_chart(pmdp), counts, warm, barrier)
        if not pmdp.domain.contains(found):  # only in a model that was not validated
            raise not_probabilities(pmdp)
        return found
    theta = np.empty(pmdp.num_parameters)
    for block in parameter_blocks(pmdp):
        start = None if warm is None else warm[block.parameters]
        theta[block.parameters] = _fitted(block.chart, counts, start, barrier)
    return theta


def _fitted(chart: ParameterChart, counts: Counts, warm: np.ndarray | None, barrier: float) -> np.ndarray:
    """The parameters z (k,) of one chart."""
    if not chart.has_interior:
        return chart.start
    return fit(chart.seen(counts.successes), chart, warm, barrier).z


def _estimate_by_blocks(pmdp: ParametricMDP, counts: Counts, barrier: float) -> np.ndarray | None:
    """The estimate by blocks; for a single distribution, frequencies with ``barrier`` / 2 added to each count."""
    blocks, domain = factorisation(pmdp), pmdp.domain
    successes = counts.successes + 0.5 * barrier
    theta, place = (domain.lower + domain.upper) / 2, {name: j for j, name in enumerate(domain.parameters)}
    own = np.flatnonzero(blocks.block_of_expression >= 0)
    trials = np.bincount(blocks.block_of_expression[own], successes[own], blocks.num_blocks)
    known = np.flatnonzero(blocks.first >= 0)
    first = blocks.first[known]
    theta[_parameters_of(pmdp, known)] = successes[first] / trials[blocks.block_of_expression[first]]
    for block in blocks.others:
        found = point_estimate(block.model, block.counts(counts), barrier=barrier)
        if found is None:
            return None
        theta[[place[name] for name in block.model.table.parameters]] = found
    theta = np.clip(theta, domain.lower, domain.upper)
    unused = ~used_parameters(pmdp.table)
    if unused.any() and not domain.contains(theta):  # the chances of a die that no row throws may add up to too much
        theta[unused] = domain.center()[unused]
    return theta if domain.contains(theta) else None


def _parameters_of(pmdp: ParametricMDP, coordinates: np.ndarray) -> np.ndarray:
    """(n,) the parameter of the first monomial of each of these coordinates."""
    if pmdp.table.is_plain:
        return coordinates
    pivots = np.array(pmdp.table.reduction.pivots, dtype=np.int64)[coordinates]
    return (pmdp.table.monomials[1:][pivots] != 0).argmax(axis=1)


# ---------------------------------------------------------------------- edges
@dataclass(frozen=True)
class Edge:
    """Bounds of the domain that limit the likelihood."""

    about: str  # the parameters, with their bounds and most likely values
    gain: float  # nats gained beyond the bounds

    @property
    def note(self) -> str:
        """One line for readers of a certificate."""
        times = f"{np.exp(self.gain):.3g}" if self.gain < 20 else f"e^{self.gain:.0f}"
        return f"the estimate sits at the edge of the domain: {self.about} would be {times} times likelier"


def edge(pmdp: ParametricMDP, counts: Counts) -> Edge | None:
    """The edge of the domain that the estimate touches; None if the most likely parameters lie inside.

    Bounds of 0 and 1 on probabilities do not count: the alternatives are all parameters with expressions in [0, 1].
    """
    if counts.total == 0:
        return None
    if not blocks_pay(pmdp):
        return _edge_of(pmdp, counts)
    found = [_edge_of(block.model, block.counts(counts)) for block in factorisation(pmdp).others]
    found += _edges_of_distributions(pmdp, counts)
    return max((one for one in found if one is not None), key=lambda one: one.gain, default=None)


def _edge_of(pmdp: ParametricMDP, counts: Counts) -> Edge | None:
    if pmdp.table.is_affine and pmdp.table.reduction.rank > MAX_RANK:
        return None
    wider, chart = wider_chart(pmdp), parameter_chart(pmdp)
    seen = chart.seen(counts.successes)
    if not len(seen.counts) or wider is chart or not chart.has_interior:
        return None
    inside = fit(seen, chart, barrier=EDGE_BARRIER)
    beyond = fit(seen, wider, inside.z, barrier=EDGE_BARRIER)
    gain = float(seen.counts @ (np.log(seen.values(beyond.x)) - np.log(seen.values(inside.x))))
    pushed = chart.A @ beyond.z - chart.b
    is_unit = (pmdp.domain.lower == 0.0).all() and (pmdp.domain.upper == 1.0).all()
    if not gain >= (UNIT_GAIN if is_unit else GAIN) or not (pushed > 0.0).any():
        return None
    scale = np.sqrt(np.einsum("ij,jk,ik->i", chart.A, np.linalg.pinv(beyond.precision, hermitian=True), chart.A))
    return Edge(_named(without_unused(pmdp), chart, beyond.z, int(np.argmax(pushed / np.maximum(scale, 1e-300)))), gain)


def _named(pmdp: ParametricMDP, chart: ParameterChart, z: np.ndarray, row: int) -> str:
    """The parameters of one row of the domain's chart; z (k,) is where the likelihood is largest."""
    domain, a = pmdp.domain, chart.A[row]
    combined = pmdp.table.is_affine and chart.reduction is None and not pmdp.table.reduction.is_identity
    if combined:  # z are combinations of parameters
        a = a @ np.asarray(pmdp.table.reduction.matrix) @ np.asarray(pmdp.table.reduction.exponents)
        used = np.flatnonzero(np.abs(a) > 1e-12)
    else:
        used = np.flatnonzero(a)
        if len(used) == 1:
            return _outside(domain, int(used[0]), z[used[0]])
    shown = ", ".join(domain.parameters[j] for j in used[:4].tolist()) + (", …" if len(used) > 4 else "")
    return f"a combination of {shown} beyond their bounds"


def _edges_of_distributions(pmdp: ParametricMDP, counts: Counts) -> list[Edge | None]:
    """For blocks that are a single distribution: frequencies outside the bounds of their parameter."""
    share, gains, own = excess(pmdp, counts)
    found = zip(_parameters_of(pmdp, own).tolist(), share, gains)
    return [Edge(_outside(pmdp.domain, j, p), float(gain)) for j, p, gain in found if gain >= GAIN]


def _outside(domain: Domain, j: int, value: float) -> str:
    return f"{domain.parameters[j]} = {value:.4g}, outside [{domain.lower[j]:.6g}, {domain.upper[j]:.6g}],"


def excess(pmdp: ParametricMDP, counts: Counts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(frequency, nats gained over the nearest value in bounds, coordinate) per x_j of single-distribution blocks."""
    blocks = factorisation(pmdp)
    own = np.flatnonzero(blocks.first >= 0)
    first = blocks.first[own]
    label = blocks.block_of_expression
    trials = np.bincount(label[label >= 0], counts.successes[label >= 0], blocks.num_blocks)[label[first]]
    share = np.divide(counts.successes[first], trials, out=np.full(len(own), np.nan), where=trials > 0)
    columns = _parameters_of(pmdp, own)
    lower, upper = np.maximum(pmdp.domain.lower[columns], 1e-12), np.minimum(pmdp.domain.upper[columns], 1 - 1e-12)
    inside = np.clip(share, lower, upper)
    gains = trials * (scipy.special.rel_entr(share, inside) + scipy.special.rel_entr(1.0 - share, 1.0 - inside))
    return share, np.where(trials > 0, gains, 0.0), own
