"""`attained`: how wide a certificate over a set must be, whatever the method.

A certificate holds at every parameter of its set, so it is at least as wide as the best value at one of them, minus the
policy's value at another. Both are looked for with L-BFGS from several starts, with an augmented Lagrangian for the
set: a larger pair may exist, so that the width is a lower bound. Where a certificate is much wider, its functions are
to blame; where this width is large, the set is. For models in blocks, with rewards, a discount or a horizon.

`foreseen` is that width if two bets had known all along which values end up farthest apart: what is left of the set in
two more slabs, along the gradients of these values. Where it is large too, no bets on values make the set much smaller.
`fixed` is the same if, beside that, it had been known how many data there would be: with Clopper–Pearson intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.intervals import confidence_intervals
from rpl_agent.core.evidence.ledger import MAIN_SHARE, split_main
from rpl_agent.core.model import Objective, ParametricMDP, Policy, Sense
from rpl_agent.guarantee.likelihood.bets.slabs import Slabs, shares_of
from rpl_agent.guarantee.likelihood.checked_model import joint_coordinates
from rpl_agent.guarantee.likelihood.joint_set import Ball
from rpl_agent.guarantee.likelihood.region import Learned, learned

#: Rounds of multipliers, steps in each; the weight of a violated row, and how much of it ends the search.
ROUNDS, STEPS, WEIGHT, VIOLATED = 10, 40, 30.0, 1e-3


class Pair(NamedTuple):
    """Two points of a set, in units of the ball's reach, whose values lie far apart."""

    width: float
    best: np.ndarray  # (r,) where a policy's value is large
    policy: Policy
    worst: np.ndarray  # (r,) where the given policy's value is small


class Values:
    """The value of a policy, or of the best one, at a point x of the reduced coordinates, with its gradient."""

    def __init__(self, pmdp: ParametricMDP, objective: Objective) -> None:
        assert objective.target is None and objective.reward_name is not None and not pmdp.is_silent.any()
        self.pmdp, self.objective, self.sign = pmdp, objective, 1.0 if objective.sense is Sense.MAX else -1.0
        paid = pmdp.rewards[objective.reward_name]
        self.reward = paid.state[pmdp.row_state] + paid.row
        self.weights, self.first = np.asarray(pmdp.table.reduction.weights), pmdp.state_ptr[:-1]
        self.last = self.first.copy()  # rows of the last best policy; for a horizon (H, S)

    def at(self, x: np.ndarray, policy: Policy | None) -> tuple[float, np.ndarray]:
        pmdp = self.pmdp
        chance = (pmdp.table.constant + self.weights @ x)[pmdp.expression]
        P = np.zeros((pmdp.num_rows, pmdp.num_states))
        np.add.at(P, (pmdp.transition_row, pmdp.successor), float(self.objective.discount) * chance)
        value, passed = self._endless(P, policy) if self.objective.horizon is None else self._steps(P, policy)
        per_expression = np.bincount(pmdp.expression, passed * float(self.objective.discount), len(self.weights))
        return value, self.weights.T @ per_expression

    def _endless(self, P: np.ndarray, policy: Policy | None) -> tuple[float, np.ndarray]:
        """(value, (T,) visits of each transition's row times the value behind it)."""
        pmdp, eye = self.pmdp, np.eye(self.pmdp.num_states)
        rows = self.last if policy is None else np.asarray(policy.rows)
        while True:
            v = np.linalg.solve(eye - P[rows], self.reward[rows])
            better = rows if policy is not None else self._greedy(P @ v, rows)
            if (better == rows).all():
                break
            rows = better
        self.last = rows if policy is None else self.last
        visits = np.zeros(pmdp.num_rows)
        visits[rows] = np.linalg.solve(eye - P[rows].T, eye[pmdp.initial_state])
        return float(v[pmdp.initial_state]), visits[pmdp.transition_row] * v[pmdp.successor]

    def _steps(self, P: np.ndarray, policy: Policy | None) -> tuple[float, np.ndarray]:
        """The same over a horizon."""
        pmdp, horizon = self.pmdp, self.objective.horizon
        assert horizon is not None
        v, plan = np.zeros(pmdp.num_states), []
        for step in reversed(range(horizon)):
            rules = None if policy is None else np.atleast_2d(np.asarray(policy.rows))
            rows = self._greedy(P @ v, self.first) if rules is None else rules[min(step, len(rules) - 1)]
            plan.append((rows, v))
            v = self.reward[rows] + P[rows] @ v
        self.last = np.array([rows for rows, _ in reversed(plan)]) if policy is None else self.last
        mass, passed = np.eye(pmdp.num_states)[pmdp.initial_state], np.zeros(pmdp.num_transitions)
        for rows, behind in reversed(plan):
            visits = np.zeros(pmdp.num_rows)
            visits[rows] = mass
            passed += visits[pmdp.transition_row] * behind[pmdp.successor]
            mass = P[rows].T @ mass
        return float(v[pmdp.initial_state]), passed

    def _greedy(self, behind: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """(S,) the best rows; those given where none is better."""
        q = self.sign * (self.reward + behind)
        found = rows.copy()
        for s in np.flatnonzero(np.maximum.reduceat(q, self.first) > q[rows] + 1e-10):
            found[s] = self.first[s] + int(np.argmax(q[self.first[s] : self.pmdp.state_ptr[s + 1]]))
        return found


class Search:
    """The set as A y ≤ b, y'H y ≤ 1 and y in a box: y = 0 is the ball's centre, units are the ball's reach."""

    def __init__(self, known: Learned, ball: Ball, slabs: Slabs, objective: Objective) -> None:
        pmdp = known.pmdp
        weights, constant = np.asarray(pmdp.table.reduction.weights), pmdp.table.constant
        self.values, self.center = Values(pmdp, objective), ball.center
        used = np.flatnonzero(np.abs(weights).sum(axis=1) > 0.0)
        line = joint_coordinates(pmdp)
        assert line is not None
        A = np.vstack([weights[used], -weights[used], slabs.A, -line.walls[:, 1:]])
        b = np.concatenate([known.upper[used], -known.lower[used], slabs.b, line.walls[:, 0]])
        b[: 2 * len(used)] -= np.concatenate([constant[used], -constant[used]])
        reach = np.sqrt(np.square(ball.factor).sum(axis=1))
        self.half, room = reach, b - A @ self.center
        self.box = np.array([-np.ones(len(reach)), np.ones(len(reach))])
        for k in np.flatnonzero((A != 0.0).sum(axis=1) == 1):  # intervals of single coordinates
            i = int(np.flatnonzero(A[k])[0])
            end = room[k] / A[k, i] / reach[i]
            if A[k, i] > 0.0:
                self.box[1, i] = min(self.box[1, i], end)
            else:
                self.box[0, i] = max(self.box[0, i], end)
        scaled = A * self.half
        length = np.maximum(np.linalg.norm(scaled, axis=1), 1e-300)
        self.A, self.b = scaled / length[:, None], (b - A @ self.center) / length
        R = np.linalg.inv(ball.factor) * self.half
        self.H = R.T @ R

    def pair(self, policy: Policy, unit: float) -> Pair:
        """The best value of any policy, and the worst of the given one, that were found."""
        value, best, rival = self.best(unit)
        low, worst = self.most(-self.values.sign, policy, unit)
        return Pair(value + low, best, rival, worst)

    def best(self, unit: float) -> tuple[float, np.ndarray, Policy]:
        """(the largest sign · value of any policy that was found, y there, the policy).

        Starts: the centre, and for every other action where it is best compared with the best one at the centre.
        """
        values, seen = self.values, set[bytes]()
        values.at(self.center, None)
        best = values.last.copy()
        found = (-np.inf, np.zeros(len(self.center)), Policy(rows=best))
        _, slope = values.at(self.center, Policy(rows=best))
        starts = [np.zeros(len(self.center))]
        for row, state in enumerate(values.pmdp.row_state):
            other = best.copy()
            other[..., state] = row
            gained = values.sign * (values.at(self.center, Policy(rows=other))[1] - slope) * self.half
            gained /= max(float(np.linalg.norm(gained)), 1e-300)
            starts.append(self._climbed(lambda y, g=gained: (float(g @ y), g)))
        for y in starts:
            while True:
                values.at(self.center + self.half * y, None)
                policy = Policy(rows=values.last.copy())
                if policy.rows.tobytes() in seen:
                    break
                seen.add(policy.rows.tobytes())
                value, y = self.most(values.sign, policy, unit)
                if value > found[0]:
                    found = value, y, policy
        return found

    def most(self, sign: float, policy: Policy, unit: float) -> tuple[float, np.ndarray]:
        """(the largest sign · value of a policy that was found, y there)."""

        def scaled(y: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = self.values.at(self.center + self.half * y, policy)
            return sign * value / unit, sign * slope * self.half / unit

        y = self._climbed(scaled)
        return unit * scaled(y)[0], y

    def _climbed(self, function: Callable[[np.ndarray], tuple[float, np.ndarray]]) -> np.ndarray:
        """y in the set where a function, given with its gradient, is large."""
        multipliers, of_ball, y = np.zeros(len(self.b)), 0.0, np.zeros(len(self.center))

        def loss(y: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = function(y)
            rows = np.maximum(multipliers / WEIGHT + self.A @ y - self.b, 0.0)
            ball = max(of_ball / WEIGHT + float(y @ self.H @ y) - 1.0, 0.0)
            total = -value + WEIGHT / 2 * float(rows @ rows + ball * ball)
            return total, WEIGHT * (self.A.T @ rows + 2.0 * ball * self.H @ y) - slope

        for _ in range(ROUNDS):
            y = minimize(
                loss, y, jac=True, method="L-BFGS-B", bounds=list(zip(*self.box)), options={"maxiter": STEPS}
            ).x
            left = max(float((self.A @ y - self.b).max()), float(y @ self.H @ y) - 1.0)
            if left < VIOLATED:
                break
            multipliers = np.maximum(multipliers + WEIGHT * (self.A @ y - self.b), 0.0)
            of_ball = max(of_ball + WEIGHT * (float(y @ self.H @ y) - 1.0), 0.0)
        return y * self._share_inside(y)

    def _share_inside(self, y: np.ndarray) -> float:
        """The largest t ≤ 1 with t y in the set."""
        along = self.A @ y
        ends = self.b[along > 0.0] / along[along > 0.0]
        return float(min([1.0, *ends, 1.0 / max(np.sqrt(y @ self.H @ y), 1e-300)]))


class Widths(NamedTuple):
    """Widths that no certificate of a policy over a set falls below; NaN if there is no such set."""

    attained: float = np.nan  # the set that the data leave
    foreseen: float = np.nan  # with bets that are foreseen
    fixed: float = np.nan  # and with intervals for a known number of data


def attained(
    pmdp: ParametricMDP, counts: Counts, objective: Objective, delta: float, policy: Policy, unit: float
) -> Widths:
    """Three widths for these data; unit: the scale of values.

    There are none with so few data that the set has no ball, or that the likeliest point after a mark is not in it.
    """
    known = learned(pmdp, counts, MAIN_SHARE * delta, objective)
    if known.ball is None or known.slabs is None:
        return Widths()
    search = Search(known, known.ball, known.slabs, objective)
    if (search.b < 0.0).any():
        return Widths()
    found = search.pair(policy, unit)
    shares = split_main(MAIN_SHARE * delta, shares_of(pmdp, counts, objective))
    deviations = np.sqrt(2.0 * np.log(4.0 / shares.bets))  # of the best stake at one look, for two series of two sides
    slabs = with_foreseen(search, found, policy, (known, counts), deviations)
    low, high = confidence_intervals(pmdp, counts, "clopper-pearson", shares.intervals)
    narrow = replace(known, lower=np.maximum(known.lower, low), upper=np.minimum(known.upper, high))
    rest = (Search(of, known.ball, slabs, objective).pair(policy, unit).width for of in (known, narrow))
    return Widths(found.width, *rest)


def with_foreseen(
    search: Search, found: Pair, policy: Policy, data: tuple[Learned, Counts], deviations: float
) -> Slabs:
    """Two more slabs: along the gradients of the values of a pair, some standard deviations from the ball's centre."""
    known, counts = data
    weights, center, slabs = np.asarray(known.pmdp.table.reduction.weights), search.center, known.slabs
    assert slabs is not None
    chances = known.pmdp.table.constant + weights @ center
    seen = counts.successes > 0
    information = (weights[seen].T * (counts.successes / np.square(chances))[seen]) @ weights[seen]
    covariance, sign = np.linalg.pinv(information, hermitian=True), search.values.sign
    A, b = slabs.A, slabs.b
    for y, of, way in ((found.best, found.policy, sign), (found.worst, policy, -sign)):
        ends = [search.values.at(point, of)[1] for point in (center, center + search.half * y)]
        normal = way * np.mean(ends, axis=0)
        reach = deviations * np.sqrt(normal @ covariance @ normal)
        A, b = np.vstack([A, normal]), np.append(b, normal @ center + reach)
    return slabs._replace(A=A, b=b)
