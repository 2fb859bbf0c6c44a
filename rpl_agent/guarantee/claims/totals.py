"""`PointTotals`: at known parameters, weighted sums of several objectives and the values of single policies.

Every objective is turned into a *cost*, which is to be small: one that maximises counts with its negative value.

A play that stays forever where nothing costs has no place in a total that has to end. There an action may end it: a
strategy that takes this action stays in the model, and costs no more there. All other plays without end cost infinity.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import scipy

from rpl_agent.core.errors import ModelError, PrecisionWarning
from rpl_agent.core.model import Kind, Nature, Objective, ParametricMDP, Policy, Reward, Sense, Unreached, reached
from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.core.solver import solve, solve_at
from rpl_agent.core.solver.graph import ANY_ROW, held_states, moves, played_rows, usable_rows
from rpl_agent.guarantee.claims.combined import END, CombinedModel
from rpl_agent.guarantee.claims.occupancy import STEP_COST, cheapest_occupancy, flow_of, policy_of

#: what the label of a target, of states to avoid and of settled states is called for objective number k
TARGET, AVOID, SETTLED = "target {}", "avoid {}", "settled {}"


class PointTotals:
    """Sums of objectives and values of policies of one model, in which plays may end where nothing costs."""

    def __init__(
        self, pmdp: ParametricMDP, theta: np.ndarray, objectives: Sequence[Objective], precision: float
    ) -> None:
        self.pmdp, self.theta, self.precision = pmdp, theta, precision
        self.objectives = tuple(objectives)
        self.combined = CombinedModel(pmdp, objectives)
        self.signs = np.array([1.0 if objective.sense is Sense.MIN else -1.0 for objective in objectives])
        self.costs = self._costs()
        gains_only = (self.costs <= 0.0).all() and (self.costs < 0.0).any()
        self.sense = Sense.MAX if gains_only and self.combined.discount == 1.0 else Sense.MIN
        self.held = self._stops()
        self.ended, self.origin = self.combined.ended(self.held)

    def bound(self, prices: np.ndarray, thresholds: np.ndarray) -> tuple[float, Policy | None]:
        """(a number that no strategy of finite cost falls below with Σ prices_k (cost_k − thresholds_k), a policy of
        the least sum).

        No bound and no policy if some play makes the sum better again and again.
        """
        turn = 1.0 if self.sense is Sense.MIN else -1.0
        weights = turn * self.signs * prices
        total = self.combined.total(weights, self.sense, self.ended, self.origin)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PrecisionWarning)
                found = solve_at(total.pmdp, self.theta, total.objective, precision=self.precision)
        except ModelError:
            return -np.inf, None
        bound = found.lower if self.sense is Sense.MIN else found.upper
        if not np.isfinite(bound):
            return turn * bound, found.policy
        return turn * total.less(bound, weights, self.signs * thresholds, self.sense), found.policy

    def values(self, policy: Policy) -> np.ndarray:
        """(K,) what each objective costs at most under a policy of `ended`."""
        return np.array([self._value(k, policy) for k in range(len(self.objectives))])

    # ------------------------------------------------------------------ gains that cost
    @property
    def gains_can_cost(self) -> bool:
        """Whether some objectives only gain and others only cost, so that the solver may refuse their sums."""
        gains, costs = (self.costs < 0.0).any(axis=1), (self.costs > 0.0).any(axis=1)
        return bool(gains.any() and costs.any() and not (gains & costs).any() and self.combined.discount == 1.0)

    def by_occupancy(self, thresholds: np.ndarray, with_goal: bool) -> tuple[float, Policy] | None:
        """(the same bound as `bound`, at the best prices, and a policy) for gains that cost, by one linear program.

        The bound is that of potentials y with y(s) ≤ Σ prices_k cost_k + Σ p y(s') in all rows. Plays of finite cost
        come to the end, where y = 0, so sums along them are at least y at the start.
        """
        rows = np.flatnonzero(self.ended.row_state < self.pmdp.num_states)
        asked = len(thresholds) + with_goal
        paid = (self.signs[:, None] * self.combined.rewards(self.ended, self.origin)[:, rows])[:asked]
        free, part = self._recurring(self.held, np.logical_and.reduce(self.costs == 0.0))
        is_free = (self.origin[rows] >= 0) & free[self.origin[rows]]
        margin = np.where(is_free, 0.0, STEP_COST * max(1.0, float(np.abs(paid).max())))
        flow = flow_of(self.ended, rows, self._points.bounds()[0], self.combined.discount)
        found = cheapest_occupancy(flow, self.pmdp.initial_state, paid, margin, thresholds)
        if found is None:  # plays that gain may last as long as they like: a policy then, and no bound
            found = cheapest_occupancy(flow, self.pmdp.initial_state, paid, -margin, thresholds)
        if found is None:
            return None
        x, potentials, prices = found
        least = np.full(part.max() + 1, np.inf)
        inside = np.unique(self.pmdp.row_state[free])
        np.minimum.at(least, part[inside], potentials[inside])
        potentials[inside] = least[part[inside]]
        bound = self._proved(potentials, prices, paid, flow, ~is_free, rows, thresholds)
        visits = np.zeros(self.ended.num_rows)
        visits[rows] = x
        first = np.arange(self.ended.num_rows) == self.ended.state_ptr[self.ended.row_state]
        return bound, policy_of(self.ended, visits, first)

    def _proved(
        self,
        potentials: np.ndarray,
        prices: np.ndarray,
        paid: np.ndarray,
        flow: scipy.sparse.csr_array,
        checked: np.ndarray,
        rows: np.ndarray,
        thresholds: np.ndarray,
    ) -> float:
        """The bound of potentials (S,); -inf unless their inequality holds in all ``checked`` rows, with rounding."""
        errors = [task.reward_error for task in self.combined.tasks][: len(prices)]
        amounts = np.array([one.amount for one in errors])[:, None] * (paid != 0.0)
        terms = np.abs(paid) + amounts
        sizes = prices @ terms + np.abs(flow).T @ np.abs(potentials)
        left = prices @ (paid - amounts) - flow.T @ potentials
        longest = int(np.diff(self.ended.row_ptr).max()) + len(prices)
        rounding = 4.0 * (longest + 4.0) * UNIT_ROUNDOFF * sizes
        if any(one.amount > 0.0 and not np.isfinite(one.share) for one in errors):
            return -np.inf
        if not (left[checked] >= rounding[checked]).all():
            return -np.inf
        start, ends = float(potentials[self.pmdp.initial_state]), prices * np.append(thresholds, 0.0)[: len(prices)]
        return start - float(ends.sum()) - 8.0 * len(prices) * UNIT_ROUNDOFF * (abs(start) + float(np.abs(ends).sum()))

    # ------------------------------------------------------------------ where plays may end
    def _costs(self) -> np.ndarray:
        """(K, R) what each row costs each objective that is not settled."""
        state, pairs = self.pmdp.row_state, zip(self.combined.tasks, self.combined.settled)
        paid = [np.where(settled[state], 0.0, task.reward) for task, settled in pairs]
        return self.signs[:, None] * np.array(paid)

    def _stops(self) -> np.ndarray:
        """(S,) the states in which a play can stay forever without a cost.

        Raises
        ------
        ModelError
            Without a cost some objective gains again and again, or one that maximises gets infinity for a missed
            target.
        """
        combined = self.combined
        if combined.discount < 1.0:
            return np.zeros_like(combined.over)
        needless, every_row = combined.over.copy(), np.ones(self.pmdp.num_rows, dtype=bool)
        for sign, task, settled in zip(self.signs, combined.tasks, combined.settled):
            if task.objective.must_reach and sign > 0.0:  # whoever stays before the target pays without end
                needless |= ~settled
            elif task.objective.must_reach and self._held(~settled, every_row).any():
                raise ModelError(f"{task.objective.describe()} is infinite for plays that miss the target, and some do")
        free = np.logical_and.reduce(self.costs <= 0.0)
        held = self._held(~needless, free)
        if self.sense is Sense.MIN:
            self._require_no_gain(held, free)
        return held

    def _held(self, start: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """(S,) the part of ``start`` in which a policy can stay forever by ``rows`` (R,)."""
        p = self._probability
        usable = usable_rows(played_rows(None, self.pmdp.num_rows), ~rows)
        return held_states(self.pmdp, usable, ANY_ROW, start, lambda: moves(p, p))

    @cached_property
    def _probability(self) -> np.ndarray:
        """(T,) of transitions; the only successor of a row has all of the mass."""
        single = np.diff(self.pmdp.row_ptr)[self.pmdp.transition_row] == 1
        return np.where(single, 1.0, self.pmdp.instantiate(self.theta).probability)

    def _require_no_gain(self, held: np.ndarray, rows: np.ndarray) -> None:
        """Raise if a play that stays in ``held`` (S,) by ``rows`` (R,) can take one that gains again and again."""
        gains = (self.costs < 0.0).any(axis=0)
        if not (gains & rows & held[self.pmdp.row_state]).any():
            return
        for row in np.flatnonzero(gains & self._recurring(held, rows)[0]).tolist():
            k = int(np.flatnonzero(self.costs[:, row] < 0.0)[0])
            raise ModelError(
                f"{self.objectives[k].describe()} gains at {self.pmdp.row_name(row)}, which plays can take again and "
                "again at no cost: a question about several objectives needs finite totals"
            )

    def _recurring(self, held: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(the rows (R,) that some play takes again and again while it stays in ``held`` by ``rows``, the part (S,) of
        the model in which it then stays)."""
        pmdp, possible = self.pmdp, self._probability > 0.0
        source = pmdp.row_state[pmdp.transition_row]
        kept = rows & held[pmdp.row_state] & self._all(held[pmdp.successor] | ~possible)
        while True:  # leave out rows that leave their component, until none does
            edges = possible & kept[pmdp.transition_row]
            links = (np.ones(edges.sum()), (source[edges], pmdp.successor[edges]))
            graph = scipy.sparse.csr_array(links, shape=(pmdp.num_states, pmdp.num_states))
            _, part = scipy.sparse.csgraph.connected_components(graph, connection="strong")
            fewer = kept & self._all((part[source] == part[pmdp.successor]) | ~possible)
            if (fewer == kept).all():
                return kept, part
            kept = fewer

    def _all(self, marked: np.ndarray) -> np.ndarray:
        """(R,) whether all transitions (T,) of a row are marked."""
        return np.logical_and.reduceat(marked, self.pmdp.row_ptr[:-1])

    # ------------------------------------------------------------------ values of policies
    @cached_property
    def _points(self) -> Point:
        """`ended` with the labels and rewards of all objectives."""
        labels, rewards = {END: self.ended.labels[END]}, {}
        paid = self.combined.rewards(self.ended, self.origin)
        for k, (task, settled) in enumerate(zip(self.combined.tasks, self.combined.settled)):
            labels[TARGET.format(k)] = np.append(task.target, False)
            labels[AVOID.format(k)] = np.append(task.avoid, False)
            labels[SETTLED.format(k)] = np.append(settled, True)
            size, error = np.abs(paid[k]), task.reward_error
            own = (self.origin >= 0) & ~labels[SETTLED.format(k)][self.ended.row_state]
            off = size * error.share if np.isfinite(error.share) else np.where(own, error.amount, 0.0)
            off = np.nextafter(off, np.inf) if error.amount > 0.0 else None
            rewards[str(k)] = Reward(np.zeros(self.ended.num_states), paid[k], row_error=off)
        return Point(replace(self.ended, labels=labels, rewards=rewards).instantiate(self.theta))

    def _alone(self, k: int) -> Objective:
        """Objective number k on `_points`."""
        given, target = self.objectives[k], SETTLED.format(k)
        if given.kind is Kind.REACH:
            avoid = None if given.avoid is None else AVOID.format(k)
            return Objective.reach(TARGET.format(k), avoid=avoid, sense=given.sense)
        if self.combined.discount < 1.0:
            return Objective.discounted(str(k), self.combined.discount, target=target, sense=given.sense)
        misses = Unreached.INFINITE if given.must_reach and given.sense is Sense.MIN else Unreached.ACCUMULATE
        return Objective(Kind.REWARD, given.sense, target, reward_name=str(k), unreached=misses)

    def _value(self, k: int, policy: Policy) -> float:
        objective, bounds = self._alone(k), []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for nature in (Nature.COOPERATIVE, Nature.ADVERSARIAL):
                found = solve(self._points, objective, nature, policy=policy, precision=self.precision)
                bounds.append((found.lower, found.upper))
                if not found.problem.task.must_play_errors():
                    break  # nature chooses nothing
            if objective.kind is Kind.REACH and objective.avoid is None and bounds[0][0] < 1.0 <= bounds[0][1]:
                bounds = [(1.0, 1.0)] if self._is_certain(k, policy) else bounds
        least, most = min(low for low, _ in bounds), max(high for _, high in bounds)
        if objective.kind is not Kind.REACH and np.isfinite((least, most)).all() and self._pays_nothing(k, policy):
            return 0.0
        return (most if self.signs[k] > 0.0 else -least) + self.combined.tasks[k].rounding

    def _pays_nothing(self, k: int, policy: Policy) -> bool:
        """Whether no play takes a row that pays: a bracket of an iteration may only come close to 0."""
        model, chances = self._points.pmdp, self._points.bounds()[1]
        played = (policy.shares(model) > 0.0)[model.transition_row] & (chances[model.expression] > 0.0)
        source = model.row_state[model.transition_row][played]
        seen = reached(source, model.successor[played], np.array([model.initial_state]), model.num_states)
        reward, error, _ = model.payments(str(k))
        pays = reward != 0.0 if error is None else (reward != 0.0) | (error > 0.0)
        return not pays[model.transition_row[played][seen[source]]].any()

    def _is_certain(self, k: int, policy: Policy) -> bool:
        """Whether the target is reached with probability 1, which no bracket of an iteration can show."""
        model = self._points.pmdp
        free = Reward(np.zeros(model.num_states), np.zeros(model.num_rows))
        point = Point(replace(model, rewards={"free": free}).instantiate(self.theta))
        question = Objective.cost("free", target=TARGET.format(k))
        return bool(np.isfinite(solve(point, question, Nature.COOPERATIVE, policy=policy).upper))
