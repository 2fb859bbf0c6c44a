"""`solve_region`: the values of an objective over a whole region of parameters, by branch and bound.

With v(θ) the optimum at θ, lower ≤ v(θ) ≤ upper for every θ of the region: boxes are halved, the one with the worst
bound first, until no bound is further from an attained value than the precision allows. Every box's
bound is proved separately (`boxes`), and the boxes cover the region. `partition` finds the boxes in which a comparison
holds, fails, or is undecided.
"""

from __future__ import annotations

import heapq
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from math import inf, isfinite

import numpy as np

from rpl_agent.core.coupled.affine import Side
from rpl_agent.core.coupled.boxes import BoxBounds, BoxPiece
from rpl_agent.core.errors import ModelError, PrecisionWarning, front_door, require_kind, require_positive
from rpl_agent.core.model import Domain, Objective, ParametricMDP, Policy
from rpl_agent.core.printed import interval_text

DEFAULT_PRECISION = 0.01
DEFAULT_BOXES = 2_000
#: a gap below this share of the values is rounding error of the search, not worth a box
FLOOR = 1e-9
#: how much closer than the precision a bound is brought to a threshold that it does not decide
CLOSER = 1e-3
EVERYWHERE, NOWHERE, SOMEWHERE, NOT_DECIDED = "everywhere", "nowhere", "in parts", "not decided at this precision"
YES, NO = "yes", "no"  # answers to a question about one model


@dataclass(frozen=True)
class RegionPoint:
    """A point of the region, and certified bounds on the value there."""

    theta: np.ndarray  # (d,)
    lower: float
    upper: float


@dataclass(frozen=True)
class RegionVerdict:
    """Where ``value comparison threshold`` holds.

    answer : "everywhere", "nowhere", "in parts" or "not decided at this precision"
    holds_at, fails_at : points where it is proved to hold, and to fail; None if none is known
    """

    answer: str
    holds_at: RegionPoint | None
    fails_at: RegionPoint | None


@dataclass(frozen=True)
class RegionSolution:
    """Bounds for all parameters of a region.

    >>> flip = lambda s: {"flip": {1: "p", 2: "1 - p"}} if s == 0 else {"stay": {s: 1}}
    >>> coin = build(0, flip, domain={"p": (0.2, 0.6)}, labels={"won": lambda s: s == 1})
    >>> isinstance(solve_region(coin, Objective.reach("won")), RegionSolution)
    True
    """

    pmdp: ParametricMDP
    objective: Objective
    region: Domain
    lower: float  # lower ≤ v(θ) ≤ upper for every θ of the region, v the optimum at θ
    upper: float
    least: RegionPoint  # where v is approximately least
    most: RegionPoint  # where v is approximately largest
    policy: Policy  # the best one found against its own worst parameter; for a chain, the only one
    guarantee: float  # a bound on that policy's value for every θ of the region, on the agent's side
    best_possible: float  # no policy has a better guarantee
    boxes: int  # how many were bounded
    seconds: float
    converged: bool  # whether the bounds are as close to attained values as requested

    def verdict(self, comparison: str, threshold: float | Fraction) -> RegionVerdict:
        """Where the value compares (">=", ">", "<=", "<") with a threshold."""
        limit = Fraction(threshold)
        holds, fails = (
            next((w for w in ends if compares(w.lower, w.upper, comparison, limit) is wanted), None)
            for wanted, ends in ((True, (self.most, self.least)), (False, (self.least, self.most)))
        )
        everywhere = compares(self.lower, self.upper, comparison, limit)
        if everywhere is None:
            return RegionVerdict(SOMEWHERE if holds is not None and fails is not None else NOT_DECIDED, holds, fails)
        return RegionVerdict(EVERYWHERE if everywhere else NOWHERE, holds, fails)


def compares(lower: float, upper: float, comparison: str, threshold: Fraction) -> bool | None:
    """Whether the comparison holds for a number between lower and upper; None if undecided."""
    least, most = (value if not isfinite(value) else Fraction(value) for value in (lower, upper))
    if comparison not in (">=", ">", "<=", "<"):
        raise ModelError(f"comparison {comparison!r} must be one of >=, >, <=, <")
    yes, no = {
        ">=": (least >= threshold, most < threshold),
        ">": (least > threshold, most <= threshold),
        "<=": (most <= threshold, least > threshold),
        "<": (most < threshold, least >= threshold),
    }[comparison]
    return True if yes else False if no else None


@front_door
def solve_region(
    pmdp: ParametricMDP,
    objective: Objective,
    region: Domain | Mapping[str, tuple[float, float]] | None = None,
    *,
    precision: float = DEFAULT_PRECISION,
    threshold: float | Fraction | None = None,
    max_boxes: int = DEFAULT_BOXES,
    time_limit: float = inf,
) -> RegionSolution:
    """Bounds on the optimum for all parameters of a region, and the best policy against the worst of them.

    Parameters
    ----------
    region : Domain or mapping name -> (lower, upper), optional
        A box or polytope in the model's domain; parameters that are not named keep their range. Default: the domain.
    precision : allowed distance of a bound from an attained value, as a share of the range of attained values
    threshold : a number to compare the values with: bounds that do not decide it are sharpened further
    max_boxes : the most boxes to bound on each side. A result that is wider because of it comes with a warning.
    time_limit : seconds after which only what the result needs is computed: a bound and a point on each side

    Raises
    ------
    ModelError
        The region is empty or leaves the model's domain; a bad precision.

    >>> flip = lambda s: {"flip": {1: "p", 2: "1 - p"}} if s == 0 else {"stay": {s: 1}}
    >>> coin = build(0, flip, domain={"p": (0.2, 0.6)}, labels={"won": lambda s: s == 1})
    >>> found = solve_region(coin, Objective.reach("won"), {"p": (0.3, 0.5)})
    >>> print(f"{found.lower:.6f} {found.upper:.6f}")
    0.300000 0.500000
    """
    began = time.perf_counter()
    if not 0.0 < precision < 1.0:
        raise ModelError(f"precision {precision} must be above 0 and below 1")
    require_kind("objective", objective, Objective)
    require_positive("time_limit", time_limit)
    if max_boxes < 1:
        raise ModelError(f"max_boxes {max_boxes} must be at least 1")
    chosen = region_in(pmdp, region)
    bounds = BoxBounds(pmdp, objective, chosen)
    bounds.deadline = began + time_limit
    search = RegionSearch(bounds, precision, max_boxes, None if threshold is None else float(threshold))
    search.run()
    least, most = search.attained(Side.LOWER), search.attained(Side.UPPER)
    own = Side.own(objective.sense)
    policy, guarantee, boxes = _robust_policy(search, own)
    lower, upper = search.result(Side.LOWER), search.result(Side.UPPER)
    if not search.converged:
        warnings.warn(
            f"the bounds {interval_text(lower, upper)} hold, but are further from attained values "
            f"[{least.upper:.6g}, {most.lower:.6g}] than the precision {precision:g} allows: allow more",
            PrecisionWarning,
            stacklevel=2,
        )
    return RegionSolution(
        pmdp,
        objective,
        chosen,
        lower,
        upper,
        least,
        most,
        policy,
        guarantee,
        least.upper if own is Side.LOWER else most.lower,
        bounds.boxes + boxes,
        time.perf_counter() - began,
        search.converged,
    )


def region_in(pmdp: ParametricMDP, region: Domain | Mapping[str, tuple[float, float]] | None) -> Domain:
    """A region of a model's parameters, in the model's order and within its domain."""
    domain = pmdp.domain
    if region is None:
        return domain
    names = region.parameters if isinstance(region, Domain) else tuple(region)
    unknown = sorted(set(names) - set(domain.parameters))
    if unknown:
        raise ModelError(f"the model has no parameter {unknown[0]!r}; it has {', '.join(domain.parameters)}")
    lower, upper = domain.lower.copy(), domain.upper.copy()
    place = {name: j for j, name in enumerate(domain.parameters)}
    for i, name in enumerate(names):
        low, high = (region.lower[i], region.upper[i]) if isinstance(region, Domain) else region[name]
        j = place[name]
        if not lower[j] <= low <= high <= upper[j]:
            raise ModelError(f"{name} = {low}:{high} is not a range in the model's domain, {lower[j]}:{upper[j]}")
        lower[j], upper[j] = low, high
    A, b = domain.A, domain.b
    if isinstance(region, Domain) and len(region.b):
        rows = np.zeros((len(region.b), domain.dimension))
        rows[:, [place[name] for name in names]] = region.A if isinstance(region.A, np.ndarray) else region.A.toarray()
        A = np.vstack([A if isinstance(A, np.ndarray) else A.toarray(), rows])
        b = np.concatenate([b, region.b])
    return Domain(domain.parameters, lower, upper, A, b)


class RegionSearch:
    """Branch and bound for the least and the largest value of a region, both at once."""

    def __init__(
        self, bounds: BoxBounds, precision: float, max_boxes: int, threshold: float | None, width: float = 0.0
    ) -> None:
        self.bounds, self.precision, self.max_boxes, self.threshold = bounds, precision, max_boxes, threshold
        self.converged, self._width = False, width  # a known range of values
        self._number = count()
        self._heaps: dict[Side, list[tuple[float, int, BoxPiece]]] = {}
        self._best: dict[Side, tuple[float, np.ndarray]] = {}
        self._spent: dict[Side, int] = {}

    def run(self, sides: tuple[Side, ...] = (Side.LOWER, Side.UPPER)) -> None:
        for side in sides:
            self._heaps[side], self._spent[side] = [], 0
        for side in sides:  # a point that is found for one side serves the other
            self._add(side, self.bounds.root(side, has_point=side in self._best))
        while True:
            open_sides = [side for side in sides if self._gap(side) > self._allowed(side)]
            if not open_sides:
                self.converged = True
                return
            open_sides = [s for s in open_sides if self._spent[s] < self.max_boxes and self._heaps[s][0][2].axis >= 0]
            if not open_sides or self.bounds.is_late:
                return
            self._split(max(open_sides, key=self._gap))

    def _add(self, side: Side, piece: BoxPiece) -> None:
        self._spent[side] += 1
        heapq.heappush(self._heaps[side], (-side.value * piece.bound, next(self._number), piece))
        if piece.point is None:
            return
        for other in self._heaps:
            if other not in self._best or other.value * piece.value > other.value * self._best[other][0]:
                self._best[other] = (piece.value, piece.point)

    def _split(self, side: Side) -> None:
        best, allowed = self._best[side][0] if side in self._best else None, self._allowed(side)
        piece = heapq.heappop(self._heaps[side])[2]
        for lower, upper in piece.halves():
            half = self.bounds.piece(side, lower, upper, piece, False, best, allowed)
            if half is not None:
                self._add(side, half)

    def result(self, side: Side) -> float:
        """The bound found for the region."""
        bound = self.bound(side)
        if isfinite(bound):
            return bound
        return self.bounds.interval_bound(side, self.bounds.region.lower, self.bounds.region.upper)

    def bound(self, side: Side) -> float:
        """The worst bound of a box, which bounds the region; infinite if a box has none yet."""
        return self._heaps[side][0][2].bound

    def _gap(self, side: Side) -> float:
        if not self._heaps[side]:
            raise ModelError("the region is empty: its constraints leave no parameters")
        if side not in self._best:
            return inf
        bound, best = self.bound(side), self._best[side][0]
        return 0.0 if bound == best else side.value * (bound - best)

    def _allowed(self, side: Side) -> float:
        """The allowed gap of a side."""
        values = [value for value, _ in self._best.values() if isfinite(value)]
        width = max([self._width, *(max(values) - value for value in values)])
        allowed = max(self.precision * width, FLOOR * max(map(abs, values), default=0.0), FLOOR)
        if self.threshold is not None and side in self._best:
            ends = sorted((self.bound(side), self._best[side][0]))
            if ends[0] <= self.threshold <= ends[1]:
                return max(CLOSER * allowed, FLOOR)
        return allowed

    @property
    def width(self) -> float:
        """The range of the attained values."""
        low, high = self._best[Side.LOWER][0], self._best[Side.UPPER][0]
        return high - low if isfinite(high) else 0.0

    def attained(self, side: Side) -> RegionPoint:
        """The point with the most extreme attained value."""
        if side not in self._best:
            raise ModelError("no point of the region was found: it may be empty")
        theta = self._best[side][1]
        return RegionPoint(theta, *self.bounds.certified_at(theta))

    def point(self, side: Side) -> np.ndarray:
        return self._best[side][1]


def _robust_policy(search: RegionSearch, own: Side) -> tuple[Policy, float, int]:
    """(policy, guarantee, boxes) of the best policy against the worst parameter, among a few candidates."""
    bounds = search.bounds
    if bounds.policy is not None:
        return bounds.policy, search.result(own), 0
    if bounds.is_late and bounds.objective.horizon is None and not bounds.robust.check((own is Side.UPPER,)):
        return bounds.robust.policy, bounds.robust.value, 0  # holds for every parameter: no search for a better one
    found, boxes = list[tuple[float, Policy]](), 0
    for policy in (bounds.solved_at(search.point(own)).policy, bounds.robust.policy):
        fixed = BoxBounds(bounds.pmdp, bounds.objective, bounds.region, policy)
        tried = RegionSearch(fixed, search.precision, search.max_boxes, None, search.width)
        fixed.deadline = bounds.deadline
        tried.run((own,))
        boxes += fixed.boxes
        found.append((tried.result(own), policy))
    guarantee, policy = min(found, key=lambda one: own.value * one[0])
    return policy, guarantee, boxes


DEFAULT_UNDECIDED = 0.05
PARTITION_BOXES = 1_000


@dataclass(frozen=True)
class Partition:
    """Boxes that cover a region."""

    lower: np.ndarray  # (n, d)
    upper: np.ndarray  # (n, d)
    holds: np.ndarray  # (n,) int8; 1: the comparison holds for every parameter of the box; -1: for none; 0: undecided
    shares: tuple[float, float] | None  # (holds, fails) of the region's volume, at least; None if it is not a box


def partition(
    pmdp: ParametricMDP,
    objective: Objective,
    comparison: str,
    threshold: float | Fraction,
    region: Domain | Mapping[str, tuple[float, float]] | None = None,
    *,
    undecided: float = DEFAULT_UNDECIDED,
    max_boxes: int = PARTITION_BOXES,
) -> Partition:
    """Halve boxes, the largest undecided one first, until at most a share of the region is undecided.

    region : as in `solve_region`
    undecided : the share of the volume that may be left undecided
    max_boxes : the most boxes to bound
    """
    if not 0.0 < undecided < 1.0:
        raise ModelError(f"undecided {undecided} must be above 0 and below 1")
    bounds = BoxBounds(pmdp, objective, region_in(pmdp, region))
    limit, number, upward = Fraction(threshold), count(), comparison in (">=", ">")
    root = bounds.root(Side.UPPER)
    free = root.upper > root.lower
    volume = {True: 0.0, False: 0.0}
    decided: list[tuple[BoxPiece, int]] = []
    waiting = [(-1.0, next(number), root)]
    while waiting and -sum(entry[0] for entry in waiting) > undecided and bounds.boxes < max_boxes:
        share, _, piece = heapq.heappop(waiting)
        for lower, upper in piece.halves(_axis(piece)) if piece.axis >= 0 else []:
            half, holds = _judged(bounds, lower, upper, comparison, limit, upward)
            if half is None:
                continue
            if holds is None and half.axis >= 0:
                heapq.heappush(waiting, (share / 2, next(number), half))
            else:
                decided.append((half, 0 if holds is None else 1 if holds else -1))
                if holds is not None:
                    volume[holds] -= share / 2
    pieces = decided + [(entry[2], 0) for entry in waiting]
    shares = (volume[True], volume[False]) if not len(bounds.region.b) and free.any() else None
    return Partition(
        np.array([p.lower for p, _ in pieces]),
        np.array([p.upper for p, _ in pieces]),
        np.array([holds for _, holds in pieces], dtype=np.int8),
        shares,
    )


def _axis(piece: BoxPiece) -> int:
    """The parameter along which the value changes most in the box."""
    if piece.slope is None or not np.abs(piece.slope).any():
        return piece.axis
    return int(np.abs(np.where(piece.upper > piece.lower, piece.slope, 0.0)).argmax())


def _judged(
    bounds: BoxBounds, lower: np.ndarray, upper: np.ndarray, comparison: str, limit: Fraction, upward: bool
) -> tuple[BoxPiece | None, bool | None]:
    """A box, and whether the comparison holds in all of it; None if undecided. Bounds only the side that may decide."""
    middle = bounds.value(0.5 * (lower + upper)) if bounds.region.contains(0.5 * (lower + upper)) else None
    likely = None if middle is None or np.isnan(middle) else compares(middle, middle, comparison, limit)
    piece = None
    for expected in (True, False) if likely is None else (likely,):
        side = Side.LOWER if upward == expected else Side.UPPER
        piece = bounds.piece(side, lower, upper)
        if piece is None:
            return None, None
        ends = (piece.bound, np.inf) if side is Side.LOWER else (-np.inf, piece.bound)
        if compares(*ends, comparison, limit) is expected:
            return piece, expected
    return piece, None
