"""One round of the fuzz of claims: improvements, limits and curves against exact rationals, where chances may be 0.

Random models have chances that are 0 or 1 at ends of the domain, plays that never end, and states behind the target of
a cost where plays go on. Without data every statement must hold at every parameter of the domain, corners included.
With data, drawn at one parameter, it must hold there; δ is so small that no failure is bad luck.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product
from random import Random
from typing import Any

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Domain, Kind, Objective, ParametricMDP, Policy, Sense, build
from rpl_agent.core.model.polynomial import Polynomial
from rpl_agent.guarantee.claims.curves import curve
from rpl_agent.guarantee.claims.improvement import improve
from rpl_agent.guarantee.claims.limits import certify
from tests.reference.coupled import exact_rows
from tests.reference.fuzz import Tally, above, below
from tests.reference.oracle import INF, Number, Question, Undefined, policy_values

DELTA = 1e-9
ENDS = ("goal", "bad", "out")
#: share of the rows with several successors that may stay where they are
STAYS = 0.4
#: what is optimised, and the limit
LIMITED = (
    ("maximise probability of goal", "probability of bad <= {}"),
    ("minimise probability of bad", "probability of goal >= {}"),
    ("minimise cost until done", "probability of bad <= {}"),
    ("minimise cost until done", "probability of goal >= {}"),
    ("minimise cost until end", "probability of goal >= {}"),
    ("maximise probability of goal", "cost until done <= {}"),
    ("minimise probability of bad", "cost until end <= {}"),
    ("maximise cost until end", "probability of bad <= {}"),
    ("maximise probability of goal", "cost until end >= {}"),
    ("maximise discounted cost until end, gamma 0.5", "discounted cost until done, gamma 0.5 <= {}"),
)
CURVES = (
    ("maximise probability of goal", "minimise probability of bad"),
    ("minimise cost until done", "minimise probability of bad"),
    ("maximise probability of goal", "minimise cost until end"),
    ("minimise cost until end", "minimise cost until done"),
)


def random_model(random: Random) -> ParametricMDP:
    """States before the target "done", states behind it, and three ends; rows may be certain at ends of the domain."""
    before, behind = range(random.choice([2, 2, 3])), range(10, 10 + random.choice([0, 1, 1]))
    p, q = Polynomial.parameter("p"), Polynomial.parameter("q")
    table: dict[tuple[Any, str], dict[Any, Polynomial]] = {}
    ends = ENDS[: random.choice([2, 3])]
    for s in (*before, *behind):
        others = [*behind, *ends] if s in behind else [*before, *behind, *ends]
        for action in ("a", "b")[: random.choice([1, 2, 2])]:
            x = random.choice([p, p, q, q, p * q, p * Fraction(1, 2), Polynomial.constant(Fraction(1, 2))])
            parts = random.choice(
                [[Polynomial.constant(1)], [x, 1 - x], [x, 1 - x], [x * Fraction(1, 2)] * 2 + [1 - x]]
            )
            after = random.sample(others, len(others))
            if len(parts) > 1 and random.random() < STAYS:  # for ever, if that is certain
                after = list(dict.fromkeys([s, random.choice(["goal", "bad", "bad"]), *after]))
            table[s, action] = dict(zip(after, parts))
    costs = {key: float(random.choice([0, 0, 1, 2])) for key in table}

    def actions(state: Any) -> dict[str, dict[Any, Any]]:
        if state in ENDS:
            return {"stay": {state: 1}}
        return {a: table[state, a] for a in ("a", "b") if (state, a) in table}

    ranges = [(0.0, 1.0), (0.0, 0.25), (0.75, 1.0), (0.25, 0.5), (0.0, 0.0625)]
    return build(
        0,
        actions,
        domain=Domain.box({"p": random.choice(ranges), "q": random.choice(ranges)}),
        labels={
            "goal": lambda s: s == "goal",
            "bad": lambda s: s == "bad",
            "done": lambda s: s not in before,
            "end": lambda s: s in ENDS,
        },
        rewards={"cost": lambda s, a: costs.get((s, a), 0.0)},
    )


@dataclass(frozen=True, eq=False)
class Exact:
    """A model at one rational parameter."""

    pmdp: ParametricMDP
    theta: tuple[Fraction, ...]

    @cached_property
    def rows(self) -> list[list[list[dict[int, Fraction]]]]:
        flat, ptr = exact_rows(self.pmdp, list(self.theta)), self.pmdp.state_ptr.tolist()
        return [[[row] for row in flat[first:last]] for first, last in pairwise(ptr)]

    @cached_property
    def _known(self) -> dict[tuple[str, bytes], Number]:
        return {}

    def value(self, objective: Objective, policy: Policy) -> Number:
        """Of the initial state; raises `Undefined`."""
        weights = policy.as_weights(self.pmdp)
        key = objective.describe(), weights.tobytes()
        if key not in self._known:
            self._known[key] = self._value(objective, [Fraction(float(w)) for w in weights])
        return self._known[key]

    def _value(self, objective: Objective, weights: list[Fraction]) -> Number:
        pmdp, task, ptr = self.pmdp, objective.resolve(self.pmdp), self.pmdp.state_ptr.tolist()
        paid = pmdp.rewards["cost"].row.tolist()
        pairs = list(pairwise(ptr))
        total = objective.kind is Kind.REWARD
        question = Question(
            "reach" if not total else "cost" if objective.must_reach else "reward",
            frozenset(np.flatnonzero(task.target).tolist()),
            frozenset(np.flatnonzero(task.avoid).tolist()),
            tuple(tuple(Fraction(r) for r in paid[first:last]) for first, last in pairs),
            Fraction(objective.discount),
            None,
            objective.sense is Sense.MAX,
            objective.sense is Sense.MAX,
        )
        shares = [tuple(w / sum(weights[first:last]) for w in weights[first:last]) for first, last in pairs]
        return policy_values(self.rows, question, shares)[pmdp.initial_state]


def policies_of(pmdp: ParametricMDP) -> list[Policy]:
    choices = product(*map(range, pmdp.state_ptr.tolist(), pmdp.state_ptr.tolist()[1:]))
    return [Policy.deterministic(np.array(rows)) for rows in choices]


@dataclass
class Claims:
    """Questions about one model, and what is false at parameters where all answers must hold."""

    random: Random
    pmdp: ParametricMDP
    counts: Counts
    points: list[Exact]

    @cached_property
    def policies(self) -> list[Policy]:
        return policies_of(self.pmdp)

    # ------------------------------------------------------------------ improvements
    def improvement(self) -> Iterator[str]:
        objective = Objective.parse(self.random.choice([text for pair in CURVES for text in pair]))
        policy, baseline = self.random.choice(self.policies), self.random.choice(self.policies)
        given = self.random.choice([policy, None])
        found = improve(self.pmdp, self.counts, objective, baseline, given, delta=DELTA)
        sign = 1 if objective.sense is Sense.MAX else -1
        for point in self.points:
            own, other = (point.value(objective, one) for one in (found.policy, baseline))
            name = f"{objective.describe()} at {told(point)}"
            yield from outside(f"{name}: the policy", found.value, own)
            yield from outside(f"{name}: the baseline", found.baseline_value, other)
            if not (own == other == INF):
                yield from outside(f"{name}: the improvement", (found.lower, found.upper), sign * (own - other))

    # ------------------------------------------------------------------ limits
    def limits(self) -> Iterator[str]:
        goal, text = self.random.choice(LIMITED)
        objective = Objective.parse(goal)
        bare = Objective.parse(f"{goal} subject to {text.format(0)}").limits[0].objective
        chosen = self.random.choice(self.points).value(bare, self.random.choice(self.policies))
        threshold = float(chosen) if chosen < INF else 1.0
        found = certify(self.pmdp, self.counts, objective, subject_to=[text.format(repr(threshold))], delta=DELTA)
        (claim,) = found.limits
        name = f"{goal} subject to {text.format(repr(threshold))}"
        sign = 1 if objective.sense is Sense.MIN else -1  # of what is optimised, as a cost
        turn = 1 if claim.limit.upward else -1  # of the limit, as one from above
        far = sign * (found.lower if sign > 0 else found.upper)
        for point in self.points:
            at = f"{name} at {told(point)}"
            pairs = [(turn * point.value(bare, one), sign * point.value(objective, one)) for one in self.policies]
            least = min(limit for limit, _ in pairs)
            if not below(turn * claim.best, least):
                yield f"{at}: a policy has {least}, {turn * claim.best} is called the least"
            best = least_within(pairs, turn * Fraction(threshold))
            if best is not None and not claim.possible:
                yield f"{at}: called impossible, and a policy keeps it"
            if best is not None and not below(far, best):
                yield f"{at}: a policy within the limit has {best}, {far} is called the least"
            own, value = point.value(bare, found.policy), point.value(objective, found.policy)
            yield from outside(f"{at}: the limit", (claim.lower, claim.upper), own)
            if claim.kept is not None and claim.kept is not (turn * own <= turn * Fraction(threshold)):
                yield f"{at}: kept is {claim.kept}, the value {own}"
            yield from outside(f"{at}: the policy", (-INF, found.upper) if sign > 0 else (found.lower, INF), value)

    # ------------------------------------------------------------------ curves
    def curve(self) -> Iterator[str]:
        pair = [Objective.parse(text) for text in self.random.choice(CURVES)]
        found = curve(self.pmdp, self.counts, pair, points=4, delta=DELTA)
        for point in self.points:
            at = f"{' and '.join(o.describe() for o in pair)} at {told(point)}"
            for one in found.points:
                for k, objective in enumerate(pair):
                    value = point.value(objective, one.policy)
                    yield from outside(f"{at}: a point", (one.lower[k], one.upper[k]), value)
            for policy in self.policies:
                gains = [int(s) * point.value(o, policy) for s, o in zip(found.signs.tolist(), pair)]
                for plane in found.half_planes:
                    terms = [Fraction(w) * g if abs(g) < INF else w * g for w, g in zip(plane.weights, gains) if w]
                    if not above(plane.most, sum(terms, Fraction(0))):
                        yield f"{at}: {gains} passes the half plane {plane}"


def least_within(pairs: list[tuple[Number, Number]], threshold: Fraction) -> Number | None:
    """The least second value of mixtures, drawn at the start, whose first is at most the threshold; None if none is.

    With one limit, no policy is better than the best mixture of two deterministic ones.
    """
    finite = [pair for pair in pairs if abs(pair[0]) < INF]
    kept = [pair for pair in finite if pair[0] <= threshold]
    kept += [pair for pair in pairs if pair[0] == -INF]
    if not kept:
        return None
    best = min(value for _, value in kept)
    for (a, v), (b, w) in product([pair for pair in kept if pair[0] > -INF], finite):
        if b > threshold and w < best:
            share = (threshold - a) / (b - a)
            best = min(best, share * w + (1 - share) * v if max(abs(v), abs(w)) < INF or 0 < share else v)
    return best


def outside(name: str, bounds: tuple[float, float], value: Number) -> Iterator[str]:
    if not (below(bounds[0], value) and above(bounds[1], value)):
        yield f"{name} has {float(value)!r}, not within {bounds}"


def told(point: Exact) -> str:
    return ", ".join(f"{name} = {x}" for name, x in zip(point.pmdp.table.parameters, point.theta))


def points_of(random: Random, pmdp: ParametricMDP) -> list[Exact]:
    """The corners of the domain and one parameter inside."""
    ends = [
        (Fraction(low), Fraction(high)) for low, high in zip(pmdp.domain.lower.tolist(), pmdp.domain.upper.tolist())
    ]
    inside = tuple(low + (high - low) * Fraction(random.randint(0, 8), 8) for low, high in ends)
    return [Exact(pmdp, theta) for theta in dict.fromkeys([*product(*ends), inside])]


def claims_of(seed: int) -> Claims:
    """The questions of a seed; those of odd seeds have data."""
    random = Random(seed)
    pmdp = random_model(random)
    points, counts = points_of(random, pmdp), Counts(pmdp)
    if seed % 2:
        points = [random.choice(points)]
        draw, mdp = np.random.default_rng(seed), pmdp.instantiate(np.array([float(x) for x in points[0].theta]))
        rows = [np.arange(*pmdp.row_ptr[row : row + 2]) for row in range(pmdp.num_rows)]
        drawn = [draw.choice(row, random.choice([5, 50, 500]), p=mdp.probability[row]) for row in rows]
        for part in drawn:
            counts.add_transitions(part)
    return Claims(random, pmdp, counts, points)


def round_of(seed: int) -> Tally:
    """One model with an improvement, limits and a curve."""
    tally, claims = Tally(), claims_of(seed)
    for kind in (claims.improvement, claims.limits, claims.limits, claims.curve):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                wrong = list(kind())
                tally.problems[kind.__name__] += 1
            except (ModelError, Undefined) as error:
                wrong = [str(error)] if "bug" in str(error) else []
                tally.problems["refused"] += 1
            except Exception as error:  # a crash is a failure like any other
                wrong = [f"{type(error).__name__}: {error}"]
        tally.failures += [f"seed {seed}, {kind.__name__}: {text}" for text in wrong]
    return tally
