"""`VisitBets` fixes a policy at a mark of the data, and bounds its value from later visits of its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.marks import Mark
from rpl_agent.core.model import Objective, ParametricMDP, Policy, Sense, cached_on
from rpl_agent.core.schema import Whole
from rpl_agent.guarantee.untied.estimate import FrequencyEstimate
from rpl_agent.guarantee.untied.policy_rows import PolicyRows
from rpl_agent.guarantee.untied.visits import VisitBounds, VisitPlan

#: A policy is fixed at the last mark with at most this share of the data before it: the rest tests it.
BEFORE = 0.25
#: Fewest visits after the mark per row of the policy, on average: fewer gain nothing.
LEAST_VISITS = 100


@dataclass(frozen=True)
class Visited:
    """Visits of the policy's rows after it was fixed, which bound its value better than the model does.

    fixed : the number of transitions before the policy was fixed.
    given : True: the user says that no data chose the policy; False: the data before the mark chose it.
    """

    fixed: Whole
    visits: Whole
    given: bool = False

    @property
    def sentence(self) -> str:
        when = "it was fixed before the data" if self.given else f"the first {self.fixed:,} transitions chose it"
        return f"{self.visits:,} later visits of its rows, all tested together; {when}"


class AskedPolicy(NamedTuple):
    """The policy whose value is bounded: the given one, or else the best known one."""

    given: Policy | None
    is_fixed: bool  # whether the given one was fixed before the data
    chosen: Policy  # returned so far


@dataclass(frozen=True)
class VisitClaim:
    """Bounds on the value of a policy: on the agent's own side, or on both if the policy was given."""

    policy: Policy
    lower: float
    upper: float
    visited: Visited


@dataclass(eq=False)
class VisitBets:
    """Bets on later visits, for one objective: its claims hold at all times except with probability ``share``.

    Each mark gets its weight times the share. Weights are fixed no later than marks and sum to at most 1, so the claims
    of all marks hold simultaneously.
    """

    pmdp: ParametricMDP
    counts: Counts
    objective: Objective
    share: float

    @staticmethod
    def apply(pmdp: ParametricMDP, objective: Objective) -> bool:
        """Whether to bet on visits where rows are bet on: the model and the objective alone decide."""
        return objective.resolve(pmdp).objective.horizon is None and cached_on(pmdp, "told apart", _is_told_apart)

    @cached_property
    def own(self) -> VisitClaim | None:
        """The claim about the policy that the data before the mark choose: a bound on the agent's own side."""
        if (mark := self._mark) is None:
            return None
        policy = _on_mark(mark, self.objective, lambda: self._best_at(mark))
        return self._claim(mark, policy, is_given=False)

    def given(self, policy: Policy) -> VisitClaim | None:
        """The claim about a policy that was fixed before all data: bounds on both sides."""
        stationary = policy.rows is None or policy.rows.ndim == 1
        return self._claim(self._mark, policy, is_given=True) if self._mark is not None and stationary else None

    @cached_property
    def _mark(self) -> Mark | None:
        marks = [m for m in self.counts.marks if m.weight > 0.0 and 0 < m.total <= BEFORE * self.counts.total]
        return marks[-1] if marks else None

    def _before(self, mark: Mark) -> np.ndarray:
        """(T,) counts before a mark; 0 where the probability is known."""
        expression = self.pmdp.expression
        return np.where(self.pmdp.table.is_constant[expression], 0, mark.successes[expression])

    def _best_at(self, mark: Mark) -> Policy:
        return FrequencyEstimate(self.pmdp, self.objective, self._before(mark)).best()

    def _claim(self, mark: Mark, policy: Policy, is_given: bool) -> VisitClaim | None:
        rows = PolicyRows.of(self.pmdp, self.objective, policy)
        if rows.start not in rows.state:
            return None
        before = self._before(mark)
        plan = VisitPlan.at_mark(rows, before, self.share * mark.weight, 2 if is_given else 1, mark.progress)
        later = np.where(self.pmdp.table.is_constant[self.pmdp.expression], 0, self.counts.transitions) - before
        visits = int(later[rows.transition].sum())
        if visits < LEAST_VISITS * max(int(plan.is_played.sum()), 1):
            return None
        found, maximising = VisitBounds(plan, later), self.objective.sense is Sense.MAX
        lower = found.bound(-1.0) if is_given or maximising else -np.inf
        upper = found.bound(1.0) if is_given or not maximising else np.inf
        ends = self.objective.resolve(self.pmdp).outward(lower, upper)
        return VisitClaim(policy, float(ends[0]), float(ends[1]), Visited(mark.total, visits, is_given))

    def improve(self, known: tuple[float, float], asked: AskedPolicy) -> tuple[float, float, Policy, Visited | None]:
        """(lower, upper, their policy, the visits behind them): the bounds of visits where these are better."""
        (lower, upper), (policy, is_fixed, chosen) = known, asked
        found = self.own if policy is None or not is_fixed else self.given(policy)
        if found is None or not (policy is None or is_fixed or _is_same(policy, found.policy)):
            return lower, upper, chosen, None
        low, high = max(lower, found.lower), min(upper, found.upper)
        if (low, high) == known or low > high:  # crossed: the model is wrong, or one of the events has failed
            return lower, upper, chosen, None
        return low, high, found.policy, found.visited


def _is_same(one: Policy, other: Policy) -> bool:
    return one.rows is not None and other.rows is not None and np.array_equal(one.rows, other.rows)


def _is_told_apart(pmdp: ParametricMDP) -> bool:
    """Whether no two unknown probabilities share an expression: then a mark, which counts these, counts transitions."""
    open_ones = pmdp.expression[~pmdp.table.is_constant[pmdp.expression]]
    return len(np.unique(open_ones)) == len(open_ones)


def _on_mark(mark: Mark, objective: Objective, choose: Callable[[], Policy]) -> Policy:
    """The policy of a mark, chosen on the first call."""
    chosen: dict[Objective, Policy] = cached_on(mark, "policies", lambda _: {})
    if objective not in chosen:
        chosen[objective] = choose()
    return chosen[objective]
