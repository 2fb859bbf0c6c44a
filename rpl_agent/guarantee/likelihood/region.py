"""What the data leave of θ: the set that `rpl_agent.guarantee.checker` proves, as a `Region`.

δ is split once, before any data, by the checker's table: to bets on the value, to the joint likelihood's set C, and to
union-bounded anytime intervals. On the event that all hold, the truth lies in all of them, so a region is cut by each,
and every query may take the better bound of its outer approximations. Models of up to 64 coordinates in independent
blocks have a product of small sets, cut by the joint set's ball and by bets, which know of no blocks. Models without
joint coordinates are known by their intervals alone; for polynomials see `polynomial.parameters`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.intervals import confidence_intervals
from rpl_agent.core.evidence.ledger import check_delta, split_main
from rpl_agent.core.model import Objective, ParametricMDP
from rpl_agent.core.model.algebra.ranges import coordinate_box
from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.blocks import JointBlock, is_blockwise, product_region
from rpl_agent.core.regions.frame import use_own_frame
from rpl_agent.core.regions.intersection import Intersection
from rpl_agent.core.regions.lifting import build_region, lies_inside, linear_dimension
from rpl_agent.core.regions.parameter_region import interval_parameters
from rpl_agent.core.regions.polytope import GRAPH_DIMENSION, Polytope
from rpl_agent.core.regions.product import Hull, Product
from rpl_agent.core.regions.sliced import Sliced
from rpl_agent.guarantee.likelihood.bets.slabs import Slabs, basis_of, shares_of, slabs
from rpl_agent.guarantee.likelihood.block_set import block_set
from rpl_agent.guarantee.likelihood.chart import MAX_RANK, Observations, parameter_chart
from rpl_agent.guarantee.likelihood.checked_model import joint_coordinates
from rpl_agent.guarantee.likelihood.enclosure import Strips, enclosing_ball
from rpl_agent.guarantee.likelihood.joint_set import Ball, JointSet, Rows, ellipsoid_of, joint_set, tangent_points
from rpl_agent.guarantee.likelihood.polynomial.parameters import curved_region

#: Use the ball alone if no expression varies by more than this share over it, which makes it less than 2 % too wide,
#: and no row of the domain or of the intervals cuts off more than this share of its width.
GAUSSIAN_SPREAD, SHALLOW = 0.1, 0.01
#: Use a ball in slabs if the expressions vary over it, squared, by less than this share of what they do over the
#: likelihood's own: that is no more than a sign of narrower bounds (Engagement, 10^4 episodes: 0.89, and a wider gap).
CLEARLY = 0.85
#: The dimension in which tangents that are spread evenly leave corners far outside the joint set: in fewer they do not,
#: and in more there are so many corners that they cost more time than they gain.
CORNERED = 4
#: Rounds of tangents towards such corners, and how many in each.
FAR_ROUNDS, FAR_CORNERS = 2, 30


@dataclass(frozen=True, eq=False)
class Learned:
    """What the data tell about a model with joint coordinates."""

    pmdp: ParametricMDP
    lower: np.ndarray  # (F,) intervals of the expressions
    upper: np.ndarray
    joint: JointSet | None  # None without data, or where none is found for a model of blocks
    ball: Ball | None  # around the joint set
    tangents: np.ndarray  # (k, r) points near its boundary
    slabs: Slabs | None  # of bets

    def region(self) -> Region:
        """The set in reduced coordinates."""
        if is_blockwise(self.pmdp):
            return self._sliced()
        if self.joint is None:
            return build_region(self.pmdp, self.lower, self.upper)  # without data
        found = self._outer(self.joint)
        if self.ball is not None and self.joint.dimension > 1:
            use_own_frame(found)  # the only frame that the checker proves
        return found

    def _sliced(self) -> Region:
        """A product of blocks, with the ball of the joint set around it and the slabs of bets across."""
        if self.slabs is None or not len(self.slabs.b):
            return interval_region(self.pmdp, self.lower, self.upper)
        if self.ball is None:
            product = interval_region(self.pmdp, self.lower, self.upper)
            assert isinstance(product, Product)
            return Sliced(product, None, self.slabs.A, self.slabs.b)
        product = interval_region(self.pmdp, *self._inside(self.ball))
        assert isinstance(product, Product)
        found = Sliced(product, ellipsoid_of(self.ball), self.slabs.A, self.slabs.b)
        use_own_frame(found)
        return found

    def _inside(self, ball: Ball) -> tuple[np.ndarray, np.ndarray]:
        """(lower (F,), upper (F,)) of the expressions, by intervals and over the ball."""
        weights, constant = np.asarray(self.pmdp.table.reduction.weights), self.pmdp.table.constant
        middle, half = constant + weights @ ball.center, np.linalg.norm(weights @ ball.factor, axis=1)
        half = half * (1.0 + 1e-9) + 1e-12
        return np.maximum(self.lower, middle - half), np.minimum(self.upper, middle + half)

    def _outer(self, joint: JointSet) -> Region:
        """Outer approximations of C, the bets and the intervals."""
        bets = None if self.slabs is None else self.slabs.tightest(joint.center)
        around = None if self.ball is None or joint.dimension == 1 else ellipsoid_of(self.ball)
        if around is not None and self.is_gaussian and lies_inside(self.pmdp, self.lower, self.upper, around, SHALLOW):
            if bets is None or not len(bets[1]):
                return around
            return Intersection([Polytope(*bets, *around.box()), around])
        polytope = self._polytope(bets)
        return polytope if around is None else Intersection([polytope, around])

    def _polytope(self, bets: Rows | None) -> Polytope:
        """Rows of the domain and of intervals, tangents of C, bets: the cuts of a proof."""
        assert self.joint is not None
        line, (low, high) = self.joint.line, coordinate_box(self.pmdp.table, self.pmdp.domain)
        walls, terms = line.walls, line.floats
        reach = np.maximum(np.abs(low), np.abs(high))
        parts = [self.joint.tangents(self.tangents), (-walls[:, 1:], walls[:, 0])]
        parts.append((terms[:, 1:], np.minimum(self.upper[line.free], 1.0) - terms[:, 0]))
        parts.append((-terms[:, 1:], terms[:, 0] - np.maximum(self.lower[line.free], 0.0)))
        parts += [] if bets is None else [bets]
        A, b = np.vstack([rows for rows, _ in parts]), np.concatenate([ends for _, ends in parts])
        return Polytope(A, b + 8.0 * UNIT_ROUNDOFF * (np.abs(b) + np.abs(A) @ reach), low, high)

    @property
    def is_gaussian(self) -> bool:
        assert self.joint is not None
        return self.joint.dimension > 2 and self._spread <= GAUSSIAN_SPREAD

    @property
    def _spread(self) -> float:
        """The largest change of an observed expression over the ball, relative to its value at the centre."""
        assert self.joint is not None and self.ball is not None
        observed = self.joint.observed
        change = np.linalg.norm(observed.weights @ self.ball.factor, axis=1) / observed.values(self.ball.center)
        return float(change.max(initial=0.0))

    def smaller_ball(self) -> Ball | None:
        """The ball of the likelihood, or one around what intervals, domain and bets leave of it, if that is smaller."""
        assert self.joint is not None
        if self.ball is not None and self._spread <= GAUSSIAN_SPREAD:
            return self.ball
        found, often = enclosing_ball(self.joint, self._strips()), self.joint.observed
        if found is None or self.ball is None:
            return found or self.ball
        sizes = [float(often.counts @ np.square(often.weights @ one.factor).sum(axis=1)) for one in (found, self.ball)]
        return found if sizes[0] < CLEARLY * sizes[1] else self.ball

    def with_far_tangents(self) -> Learned:
        """The same with tangents that cut off the corners which lie farthest outside the joint set.

        With few data it is no ellipsoid: where a direction is left open, it reaches into corners of the domain.
        """
        assert self.joint is not None
        found, center = self, self.joint.center
        for _ in range(FAR_ROUNDS):
            corners = found._polytope(None).corners()
            if corners is None or not len(corners):
                break
            farthest = np.argsort(-self.joint.values(corners), kind="stable")[:FAR_CORNERS]
            touched = self.joint.on_rays(corners[farthest] - center)
            found = replace(found, tangents=np.vstack([found.tangents, touched]))
        return found

    def _strips(self) -> Strips:
        """The slabs of intervals of expressions, of bounds of the domain, and of bets."""
        assert self.joint is not None
        line = self.joint.line
        low, high = np.maximum(self.lower[line.free], 0.0), np.minimum(self.upper[line.free], 1.0)
        parts = [(line.weights, low - line.constant, high - line.constant)]
        names: list[tuple[Any, Any]] = [(f"low {f}", f"high {f}") for f in line.free.tolist()]
        for k, m in parallel_walls(line.walls):
            parts.append((line.walls[k : k + 1, 1:], -line.walls[k : k + 1, 0], line.walls[m : m + 1, 0]))
            names.append((f"domain {k}", f"domain {m}"))
        if self.slabs is not None:
            parts.append((self.slabs.A[::2], -self.slabs.b[1::2], self.slabs.b[::2]))
            names += [(k + 1, k) for k in range(0, len(self.slabs.b), 2)]
        A, below, above = (np.concatenate(part) for part in zip(*parts))
        return Strips.of(A, below, above, names)


def parallel_walls(walls: np.ndarray) -> list[tuple[int, int]]:
    """(k, m) of rows c + w·x ≥ 0 with opposite w."""
    places = {tuple(row): k for k, row in enumerate(walls[:, 1:].tolist())}
    opposite = [(k, places.get(tuple((-row).tolist()), -1)) for k, row in enumerate(walls[:, 1:])]
    return [(k, m) for k, m in opposite if m > k]


def learned(pmdp: ParametricMDP, counts: Counts, delta: float, objective: Objective | None) -> Learned:
    """What the data tell, except with probability delta, about a model that has joint coordinates.

    objective : whose value is to be bounded, chosen before the data; None places no bets.
    """
    line = joint_coordinates(pmdp)
    assert line is not None
    parts = split_main(delta, shares_of(pmdp, counts, objective))
    bounds = confidence_intervals(pmdp, counts, "anytime", parts.intervals)
    joint = (block_set if line.is_product else joint_set)(line, counts, parts.level_set)
    nothing = np.zeros((0, line.dimension))
    if joint is None and not line.is_product:
        return Learned(pmdp, *bounds, None, None, nothing, None)
    won = slabs(pmdp, counts, objective, parts.bets) if objective is not None and parts.bets else None
    if joint is None:  # slabs need no joint set to cut a product
        return Learned(pmdp, *bounds, None, None, nothing, won)
    own = joint.ball()
    tangents = nothing if line.is_product else tangent_points(joint, own)
    found = Learned(pmdp, *bounds, joint, own, tangents, won)
    if line.is_product or line.dimension == 1:
        return found
    found = replace(found, ball=found.smaller_ball())
    is_round = found.ball is not None and found.is_gaussian
    return found.with_far_tangents() if line.dimension == CORNERED and not is_round else found


def has_joint_set(pmdp: ParametricMDP, counts: Counts, objective: Objective | None) -> bool:
    """Whether data tell more than intervals do: for models of blocks only with bets, as they gain by nothing else."""
    line = joint_coordinates(pmdp)
    return line is not None and (not line.is_product or basis_of(pmdp, counts, objective) == "bets")


def likelihood_region(
    pmdp: ParametricMDP, counts: Counts, delta: float, *, objective: Objective | None = None
) -> Region:
    """The region that contains the truth at all times simultaneously with probability ≥ 1 − delta.

    objective : whose value is to be bounded, chosen before the data; None places no bets.
    """
    check_delta(delta)
    if joint_coordinates(pmdp) is None and not pmdp.table.is_affine and parameter_chart(pmdp).has_interior:
        return curved_region(pmdp, counts, delta)
    if not has_joint_set(pmdp, counts, objective):
        return interval_region(pmdp, *confidence_intervals(pmdp, counts, "anytime", delta))
    return learned(pmdp, counts, delta, objective).region()


def interval_region(pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray) -> Region:
    """U = D with lower_f ≤ f ≤ upper_f, in blocks if there are many; a huge block keeps only its bounds."""
    if not pmdp.table.is_affine and linear_dimension(pmdp.table) > GRAPH_DIMENSION:
        return interval_parameters(pmdp, lower, upper)
    if is_blockwise(pmdp):

        def joint(block: JointBlock) -> Region:
            return interval_region(block.model, lower[block.expressions], upper[block.expressions])

        return product_region(pmdp, lower, upper, joint)
    if pmdp.table.reduction.rank > MAX_RANK:  # bounds only: cuts would be dense
        used = np.flatnonzero(~pmdp.table.is_constant)
        observed = Observations.of(pmdp, used, np.zeros(len(used)))
        return Hull(
            observed.constant, observed.weights, lower[used], upper[used], coordinate_box(pmdp.table, pmdp.domain)
        )
    return build_region(pmdp, lower, upper)
