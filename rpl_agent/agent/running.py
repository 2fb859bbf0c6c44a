"""The running certificate: a guarantee that was once given does not get worse.

A set that holds the truth at *all* times together makes every certificate of a run true on one event. So the best
guarantee so far, with the policy that it is about, and the tightest bound on the optimum so far may be kept together.

Certificates are kept apart where they rest on different events: sets that are valid at one time only, other models,
objectives or error budgets, and the fallback to untied intervals, which is used because the event of the set has
failed or because the model is refuted.
"""

from __future__ import annotations

from dataclasses import replace

from rpl_agent.certificate import Certificate
from rpl_agent.model.objective import Sense


def running(previous: Certificate | None, momentary: Certificate) -> Certificate:
    """The best of an earlier running certificate and the one for all data so far."""
    alone = replace(momentary, momentary_lower=momentary.lower, momentary_upper=momentary.upper)
    if previous is None or not _same_event(previous, momentary):
        return alone
    lower, upper = max(previous.lower, momentary.lower), min(previous.upper, momentary.upper)
    if lower > upper:  # the event has failed; what the present data say is all there is
        return alone
    maximising = momentary.objective.sense is Sense.MAX
    kept = previous.lower > momentary.lower if maximising else previous.upper < momentary.upper
    policy, estimate = (previous.policy, previous.estimate) if kept else (momentary.policy, momentary.estimate)
    return replace(alone, lower=lower, upper=upper, policy=policy, estimate=estimate)


def _same_event(previous: Certificate, momentary: Certificate) -> bool:
    if not (previous.anytime and momentary.anytime) or previous.evaluated or momentary.evaluated:
        return False
    same = all(
        getattr(previous, name) == getattr(momentary, name)
        for name in ("model_hash", "objective", "delta", "confidence", "refuted", "empty")
    )
    return same and (previous.fallback is None) == (momentary.fallback is None)
