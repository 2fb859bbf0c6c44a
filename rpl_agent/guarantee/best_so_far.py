"""The best certificate of a run so far: sets that hold at all times let earlier guarantees stand."""

from __future__ import annotations

from dataclasses import replace

from rpl_agent.core.coupled.regret import difference_above, same_policy
from rpl_agent.core.model import Sense
from rpl_agent.guarantee.certificate import Certificate


def best_so_far(previous: Certificate | None, momentary: Certificate) -> Certificate:
    """Combine an earlier certificate of the run with the one for all data so far: a guarantee once given remains.

    A set that contains the truth at *all* times simultaneously makes every certificate of a run true on one event. So
    the best guarantee so far, with its policy, and the tightest bound on the optimum so far may be
    combined.

    Certificates are not combined if they rest on different events: sets that are valid at one time only, other
    models, objectives, error budgets or divisions of them, and the fallback to untied intervals, which is used because
    the event of the set has failed or because the model is refuted.
    """
    alone = replace(momentary, momentary_lower=momentary.lower, momentary_upper=momentary.upper)
    if previous is None or not _same_event(previous, momentary) or contradict(previous, momentary):
        return alone
    lower, upper = max(previous.lower, momentary.lower), min(previous.upper, momentary.upper)
    maximising = momentary.objective.sense is Sense.MAX
    is_same = same_policy(previous.policy, momentary.policy)
    if momentary.prefer == "regret":
        kept = previous.regret < momentary.regret
        if not is_same:  # the bound of the agent's own side is that of the policy
            mine = previous if kept else momentary
            lower, upper = (mine.lower, upper) if maximising else (lower, mine.upper)
    else:
        kept = previous.lower > momentary.lower if maximising else previous.upper < momentary.upper
    shown = previous if kept else momentary
    least = min(previous, momentary, key=lambda one: one.regret) if is_same else shown
    return replace(
        alone,
        lower=lower,
        upper=upper,
        regret=min(least.regret, difference_above(upper, lower)),
        optimal=least.optimal,
        undecided=0 if least.optimal else momentary.undecided,
        policy=shown.policy,
        plays=shown.plays,
        visits=shown.visits,
        estimate=shown.estimate,
    )


#: Fields that certificates of one event share, and the rule by which their policies are chosen.
EVENT = ("model_hash", "objective", "delta", "confidence", "basis", "refuted", "empty", "reward_error", "prefer")


def contradict(previous: Certificate, momentary: Certificate) -> bool:
    """Whether two certificates of a run cannot both be true: the event that both rest on has failed.

    That has probability at most δ if the model is right, so it counts as a refutation.
    """
    crossed = max(previous.lower, momentary.lower) > min(previous.upper, momentary.upper)
    return crossed and _same_event(previous, momentary)


def _same_event(previous: Certificate, momentary: Certificate) -> bool:
    if not (previous.anytime and momentary.anytime) or previous.evaluated or momentary.evaluated:
        return False
    if previous.limits or momentary.limits:  # one policy has to keep all of them, with the bounds of one time
        return False
    same = all(getattr(previous, name) == getattr(momentary, name) for name in EVENT)
    return same and (previous.fallback is None) == (momentary.fallback is None)
