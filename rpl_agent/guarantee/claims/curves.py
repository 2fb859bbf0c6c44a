"""`curve`: what two objectives cost each other, certified from one region.

For each of several weights one total (`combined`) is bounded over the region. No policy gains more than the bound, so
the pairs of values lie in a half plane; the robust policy of the total has certified bounds on both values, a box. All
boxes and half planes hold on one event, so they cost one δ. The true curve runs between the boxes and the edges of the
half planes.

Gains: an objective that minimises counts with its negative value, so that more is better for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rpl_agent.core.errors import ModelError, require_kind
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Objective, ParametricMDP, Policy, Sense
from rpl_agent.core.native.blas import one_blas_thread
from rpl_agent.core.printed import ceil_text, chance_text, interval_text
from rpl_agent.core.schema import jsonable
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.claims.combined import CombinedModel, WeightedSum
from rpl_agent.guarantee.claims.limits import SAME, bounded, hull_of
from rpl_agent.guarantee.pipeline import Config, certify_uncertainty, uncertainty_from

#: the fewest weights: each objective alone, and both
FEWEST = 3
#: weight of an objective, relative to the other one and to their ranges, where it should only decide ties
TIE = 1e-3


@dataclass(frozen=True, eq=False)
class CurvePoint:
    """A policy with certified bounds on both values."""

    policy: Policy
    lower: tuple[float, float]
    upper: tuple[float, float]
    estimate: tuple[float, float]  # at the point estimate; not a guarantee


@dataclass(frozen=True)
class HalfPlane:
    """For every policy, weights · gains ≤ most."""

    weights: tuple[float, float]
    most: float


@dataclass(frozen=True, eq=False)
class ObjectiveCurve:
    """With probability ≥ 1 − delta, all points and half planes at once."""

    objectives: tuple[Objective, Objective]
    points: tuple[CurvePoint, ...]
    half_planes: tuple[HalfPlane, ...]
    delta: float
    samples: int
    model: str = ""

    @property
    def signs(self) -> np.ndarray:
        """(2,) the signs that turn values into gains."""
        return np.array([1.0 if objective.sense is Sense.MAX else -1.0 for objective in self.objectives])

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, without the policies."""
        shown = jsonable(replace(self, points=()))
        points = [{name: jsonable(getattr(p, name)) for name in ("lower", "upper", "estimate")} for p in self.points]
        return {**shown, "objectives": [o.describe() for o in self.objectives], "points": points}

    def __str__(self) -> str:
        chance = f"with probability ≥ {chance_text(self.delta)}, all at once"
        return self.listed(f"{chance}, from {self.samples:,} transitions:")

    def listed(self, when: str) -> str:
        """The points and half planes as text; ``when`` they hold is said first."""
        first, second = (objective.describe() for objective in self.objectives)
        lines = [
            f"{first} against {second}  on {self.model}",
            f"  {when}",
            f"  {'policy':>6}  {first:>36}  {second:>36}",
        ]
        for k, point in enumerate(self.points):
            ends = [interval_text(low, high) for low, high in zip(point.lower, point.upper)]
            lines.append(f"  {k + 1:>6}  {ends[0]:>36}  {ends[1]:>36}")
        lines.append("  for every policy:")
        for plane in self.half_planes:
            # with all digits: the statement is not true of rounded weights
            terms = [f"{s * w:+} · V{k + 1}" for k, (s, w) in enumerate(zip(self.signs, plane.weights)) if w]
            lines.append(f"  {' '.join(terms)} ≤ {ceil_text(plane.most)}")
        return "\n".join(lines)


@one_blas_thread
def curve(
    pmdp: ParametricMDP,
    counts: Counts,
    objectives: Sequence[Objective | str],
    config: Config | None = None,
    *,
    points: int = 13,
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> ObjectiveCurve:
    """The certified curve of two objectives, at so many weights; ``progress`` is called with those done, and with all.

    >>> toss = lambda s: {"bold": {"won": "p", "lost": "1 - p"}, "safe": {"tie": 1}} if s == 0 else {"stay": {s: 1}}
    >>> labels = {name: (lambda s, name=name: s == name) for name in ("won", "lost")}
    >>> model = build(0, toss, domain={"p": (0.4, 0.6)}, labels=labels)
    >>> found = curve(model, Counts(model), ["maximise probability of won", "minimise probability of lost"], points=5)
    >>> [f"{point.upper[0]:.3f} {point.upper[1]:.3f}" for point in found.points]
    ['0.600 0.600', '0.000 0.000']
    """
    if isinstance(objectives, Objective | str):
        raise ModelError("a curve is about two objectives: pass a list of them")
    read = [Objective.parse(o) if isinstance(o, str) else o for o in objectives]
    for objective in read:
        require_kind("objective", objective, Objective)
    if len(read) != 2:
        raise ModelError(f"a curve is about two objectives, not {len(read)}")
    if points < FEWEST:
        raise ModelError(f"a curve has at least {FEWEST} points, not {points}")
    config = replace(config or Config(), **{**settings, "bets": False})
    combined = CombinedModel(pmdp, read)
    found = replace(uncertainty_from(pmdp, counts, config, None), is_quick=True)  # one certificate for every weight
    search = _CurveSearch(pmdp, counts, combined, found, config)
    angles = np.linspace(0.0, np.pi / 2, points)[1:-1]
    shares = [(1.0, TIE), *zip(np.cos(angles), np.sin(angles)), (TIE, 1.0)]
    scale = search.ranges()
    all_found = []
    for share in shares:
        all_found.append(search.at(np.array(share) / scale))
        if progress is not None:
            progress(len(all_found), points)
    seen: dict[tuple[float, ...], CurvePoint] = {}  # policies that differ only where they never are: equal bounds
    for point, _ in all_found:
        seen.setdefault((*point.lower, *point.upper), point)
    planes = [plane for _, plane in all_found if plane is not None]
    first, second = read
    return ObjectiveCurve((first, second), tuple(seen.values()), tuple(planes), config.delta, counts.total, pmdp.name)


class _CurveSearch:
    """Points and half planes of one region."""

    def __init__(
        self, pmdp: ParametricMDP, counts: Counts, combined: CombinedModel, found: Any, config: Config
    ) -> None:
        self.pmdp, self.counts, self.combined, self.found, self.config = pmdp, counts, combined, found, config
        self.sense, self.hull = combined.objectives[0].sense, hull_of(pmdp, found)
        turns = np.array([1.0 if o.sense is Sense.MAX else -1.0 for o in combined.objectives])
        self.turns = turns if self.sense is Sense.MAX else -turns  # of gains, in the direction of the total
        self._points: dict[bytes, CurvePoint] = {}  # many weights have the same policy

    def ranges(self) -> np.ndarray:
        """(2,) how far apart in each objective the policies are that are best for one alone; units then do not matter.

        1 for both where one of them is nothing, or infinite: then no exchange of one for the other sets a scale.
        """
        alone = [
            certify_uncertainty(self.pmdp, self.counts, self.found, objective, self.config, with_regret=False).policy
            for objective in self.combined.objectives
        ]
        one, other = (np.array(self._point(_rows_of(policy)).estimate) for policy in alone)
        if not (np.isfinite(one) & np.isfinite(other)).all():
            return np.ones(2)
        apart = np.abs(one - other)
        return apart if (apart > SAME * np.maximum(np.abs(one), np.abs(other))).all() else np.ones(2)

    def at(self, weights: np.ndarray) -> tuple[CurvePoint, HalfPlane | None]:
        """The policy and the half plane of weights (2,) ≥ 0 of gains; no half plane if the total has no bound."""
        total = self.combined.weighted(weights * self.turns, self.sense, self.hull)
        best = bounded(total.pmdp, total.objective, self.found, self.config)
        sign = 1.0 if self.sense is Sense.MAX else -1.0
        bound = best.upper if sign > 0 else -best.lower
        most = bound + sign * total.constant + total.rounding
        most += 8.0 * 2.0**-52 * (abs(bound) + abs(total.constant))
        plane = HalfPlane((float(weights[0]), float(weights[1])), float(most)) if np.isfinite(most) else None
        return self._point(self._rows(total, best)), plane

    def _rows(self, total: WeightedSum, best: Certificate) -> np.ndarray:
        """(S,) the rows of the total's policy in the model; where it ends the play, the first one."""
        own = total.origin[_rows_of(best.policy)[: self.pmdp.num_states]]
        return np.where(own >= 0, own, self.pmdp.state_ptr[:-1])

    def _point(self, rows: np.ndarray) -> CurvePoint:
        """The point of the policy with these rows (S,)."""
        key = rows.tobytes()
        if key not in self._points:
            policy = Policy.deterministic(rows)
            own = [
                certify_uncertainty(
                    self.pmdp, self.counts, self.found, objective, self.config, policy=policy, with_regret=False
                )
                for objective in self.combined.objectives
            ]
            lower, upper, estimate = ((getattr(own[0], n), getattr(own[1], n)) for n in ("lower", "upper", "estimate"))
            self._points[key] = CurvePoint(policy, lower, upper, estimate)
        return self._points[key]


def _rows_of(policy: Policy) -> np.ndarray:
    rows = policy.at(0).rows
    assert rows is not None  # synthesised without limits
    return rows
