"""`PlayJudge`: a run with an untied model plays a fixed policy in some episodes, whose worth bounds the policy's value.

All rows of an untied model may err in their worst directions at once; whole plays do not (`guarantee.untied.plays`). At
marks, when the number of episodes has doubled, the policy that is best by observed frequencies is considered, see
`agent.sampling.incumbent`. Bounds of earlier policies remain valid: a run keeps its best guarantee (`best_so_far`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rpl_agent.agent.sampling.experience import SampledBatch
from rpl_agent.agent.sampling.incumbent import MARK_GROWTH, Incumbent, coming_plays
from rpl_agent.agent.sampling.worth import PathWorth
from rpl_agent.agent.schedule import NEVER, Target
from rpl_agent.core.coupled.regret import difference_above
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.ledger import Ledger
from rpl_agent.core.model import Objective, ParametricMDP, Policy, Sense
from rpl_agent.core.schema import Share, Signed, Whole
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.pipeline import Config
from rpl_agent.guarantee.untied.estimate import FrequencyEstimate
from rpl_agent.guarantee.untied.plays import PlayedBound, grouped
from rpl_agent.guarantee.untied.rows import RowBets

#: Episodes before the first policy is fixed.
FIRST_MARK = 32
#: Least and largest share of the episodes that play the fixed policy, and the share until bounds tell which to take.
LEAST_SHARE, FIRST_SHARE, LARGEST_SHARE = 0.25, 0.4, 0.75
#: Length of a block of plays: the episodes since the policy was fixed, divided by this.
BLOCK = 64


@dataclass
class JudgedPlays:
    """The policy that is fixed and what its plays were worth: the part that checkpoints store."""

    policy: Policy | None = None
    number: Whole = 0  # of policies fixed so far
    since: Signed = 0  # episodes of the run when it was fixed; negative if they were counted anew since
    mark: Whole = FIRST_MARK  # episodes of the run when the next policy is considered
    worth: list[float] = field(default_factory=list)  # of its plays, at least (at most, where costs are minimised)
    longest: Whole = 0  # steps of a play
    share: Share = FIRST_SHARE  # of episodes that play it

    def count_anew(self, episodes: int) -> None:
        """The run's counter of episodes goes from this number to 0."""
        self.since -= episodes
        self.mark = max(self.mark - episodes, 1)


class PlayJudge:
    """Plans and judges plays of a fixed policy; changes the record that it is given.

    plays : whether episodes of the run can play a policy from start to end.
    """

    def __init__(self, pmdp: ParametricMDP, objective: Objective, config: Config):
        self._pmdp, self._objective, self._config = pmdp, objective, config
        self._upward = objective.sense is Sense.MIN
        self.plays = False
        self._is_judging = False  # whether the latest request was for plays
        unknown = pmdp.transition_row[~pmdp.table.is_constant[pmdp.expression]]
        # if the start alone is unknown, every episode says the same of it, so all of them play the policy
        only_start = (pmdp.row_state[unknown] == pmdp.initial_state).all()
        self._shares = (1.0, 1.0) if only_start else (LEAST_SHARE, LARGEST_SHARE)  # the least and the largest
        self._worth: PathWorth | None = None
        if config.bets_on_rows and RowBets.apply(pmdp, objective):
            worth = PathWorth(pmdp, objective)
            self._worth = None if worth.reason else worth

    @property
    def applies(self) -> bool:
        """Whether plays are judged at all: decided by the model and the objective."""
        return self._worth is not None

    def turn(self, record: JudgedPlays, episodes: int) -> tuple[Policy | None, int]:
        """(the policy, for how many episodes) if it is its turn; else (None, how many other episodes come first)."""
        self._is_judging = False
        if self._worth is None or not self.plays or record.policy is None:
            return None, NEVER
        due = record.share * (episodes - record.since) - len(record.worth)
        block = max(1, (episodes - record.since) // BLOCK)
        if due < 0.0:
            return None, max(1, math.ceil(-due / record.share))
        self._is_judging = True
        return record.policy, block

    def pause(self) -> None:
        """The next episodes are not plays of the policy."""
        self._is_judging = False

    def add(self, record: JudgedPlays, done: SampledBatch) -> None:
        """Count the plays of a batch. An abandoned play counts as the worst: giving up may depend on its course."""
        if not self._is_judging or self._worth is None:
            return
        worth = self._worth.between(done)[1 if self._upward else 0]
        lost = self._worth.high if self._upward else self._worth.low
        record.worth += [*worth.tolist(), *[lost] * (done.begun - done.episodes)]
        record.longest = max(record.longest, *done.lengths, 0)

    def consider(self, record: JudgedPlays, counts: Counts, episodes: int, target: Target | None) -> None:
        """At a mark, fix the policy that looks best, unless the one that is played is about as good."""
        if self._worth is None or not self.plays or episodes < record.mark:
            return
        record.mark = MARK_GROWTH * episodes
        estimate = FrequencyEstimate(self._pmdp, self._objective, counts.transitions)
        policy = estimate.best()
        if record.policy is not None and record.worth:
            present = self._incumbent(record, self.bound(record).bound())
            challenger, own = (self._more_is_better(estimate.value(one)) for one in (policy, record.policy))
            if not present.gives_way(challenger, own, self._coming(record, episodes, target)):
                return
        record.policy, record.number, record.since = policy, record.number + 1, episodes
        record.worth, record.longest, record.share = [], 0, self._within(record.share)

    def _coming(self, record: JudgedPlays, episodes: int, target: Target | None) -> float:
        """Plays of the policy until the end of the budget."""
        left = 0.0
        if target is not None:
            left = float(target.goal - episodes) if target.unit == "episodes" else float(episodes)
        return coming_plays(record.share, left, episodes)

    def _incumbent(self, record: JudgedPlays, bound: float) -> Incumbent:
        return Incumbent.of(self._more_is_better(np.array(record.worth)), self._more_is_better(bound))

    def _more_is_better(self, value: Any) -> Any:
        """A value, or many: what is minimised changes its sign."""
        return -value if self._upward else value

    def bound(self, record: JudgedPlays, reward_error: float = 0.0) -> PlayedBound:
        """The bound that the plays so far give."""
        assert self._worth is not None
        low, high = self._worth.low, self._worth.high
        numbers, counts = grouped(np.array(record.worth), low, high, self._upward)
        share = Ledger.of_untied(self._config.delta).take("plays")
        loss = self._worth.loss(record.longest, reward_error)
        return PlayedBound(numbers, counts, low, high, record.number, self._upward, share, loss)

    def improved(self, record: JudgedPlays, certificate: Certificate, reward_error: float) -> Certificate:
        """The certificate with the bound of the plays and their policy, where that is better."""
        found = self._usable(record, certificate, reward_error)
        if found is None or record.policy is None:
            return certificate
        bound = found.bound()
        self._divide(record, certificate, bound)
        other = certificate.lower if self._upward else certificate.upper
        better = bound < certificate.upper if self._upward else bound > certificate.lower
        regret = difference_above(bound, other) if self._upward else difference_above(other, bound)
        if not better or regret < 0.0 or (certificate.prefer == "regret" and regret >= certificate.regret):
            return certificate
        mean = float(np.mean(record.worth))
        return replace(
            certificate,
            lower=other if self._upward else bound,
            upper=bound if self._upward else other,
            policy=record.policy,
            plays=found,
            visits=None,
            regret=regret,
            optimal=False,
            undecided=None,
            estimate=mean,
        )

    def contradicts(self, record: JudgedPlays, certificate: Certificate, reward_error: float) -> bool:
        """Whether plays exclude what the model says about every policy: then the model is wrong."""
        found = self._usable(record, certificate, reward_error)
        if found is None:
            return False
        return found.bound() < certificate.lower if self._upward else found.bound() > certificate.upper

    def _usable(self, record: JudgedPlays, certificate: Certificate, reward_error: float) -> PlayedBound | None:
        is_set = certificate.basis == "rows" and certificate.fallback is None and not certificate.limits
        if self._worth is None or not is_set or not record.worth:
            return None
        found = self.bound(record, reward_error)
        return found if math.isfinite(found.loss) else None

    def _divide(self, record: JudgedPlays, certificate: Certificate, bound: float) -> None:
        """Divide the coming episodes between exploring and plays, in proportion to their parts of the gap."""
        present = self._incumbent(record, bound)
        best = certificate.lower if self._upward else certificate.upper
        record.share = self._within(present.part_of_gap(abs(self._more_is_better(best) - present.mean)))

    def _within(self, share: float) -> float:
        """The share of episodes that play the policy, not too small and not too large."""
        least, most = self._shares
        return min(max(share, least), most)
