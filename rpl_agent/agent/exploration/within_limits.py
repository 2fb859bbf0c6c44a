"""Exploration within limits: only with policies that are proved to keep them, once there is one.

The first comes from a certificate with a finite guarantee whose policy keeps its limits. It uses all that the limits
allow, so one that keeps half-way tighter limits is moved, state by state, towards the policy that exploration would
play, as far as bounds from the same region prove that the limits are kept. Sets that hold at all times make every
such proof of a run true on one event, so with probability ≥ 1 − δ none of the policies that are played from then on
breaks a limit. Before that nothing is promised. If the model is refuted later, the last proved policy is played on:
nothing is known to be better.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.model import Policy
from rpl_agent.core.schema import Whole
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.claims.limits import LimitSearch

#: Halvings of the share of the wanted policy.
HALVINGS = 5
#: The warning as long as no policy is proved to keep the limits.
MAY_BREAK = "no policy is proved to keep the limits yet: until one is, exploration may break them"


@dataclass
class WithinLimits:
    """The policy that exploration may play."""

    policy: Policy | None = None  # proved to keep the limits
    since: Whole | None = None  # number of episodes at the first proof

    @property
    def sentence(self) -> str:
        if self.policy is None:
            return MAY_BREAK
        return f"after {self.since:,} episodes only policies that are proved to keep the limits were played"

    def look(self, search: LimitSearch, certificate: Certificate, wanted: Policy | None, episodes: int) -> None:
        """Take over the policy of a certificate that keeps its limits, moved towards the wanted one.

        The guarantee must be finite: a policy that stands still forever keeps most limits, but teaches nothing.
        """
        if not (certificate.keeps_limits and math.isfinite(certificate.guarantee)):
            return
        roomy = None if wanted is None else search.with_room()
        self.policy = allowed_policy(search, roomy or certificate.policy, wanted)
        self.since = episodes if self.since is None else self.since

    def warn(self) -> None:
        """Warn if exploration may break the limits."""
        if self.policy is None:
            warnings.warn(MAY_BREAK, RPLWarning, stacklevel=2)


def allowed_policy(search: LimitSearch, safe: Policy, wanted: Policy | None) -> Policy:
    """The policy between ``safe``, which keeps the limits, and ``wanted``: the farthest that is proved to keep them."""
    if wanted is None:
        return safe
    ends = safe.as_weights(search.pmdp), wanted.as_weights(search.pmdp)
    allowed, low, high = safe, 0.0, 1.0
    for share in (1.0, *(None,) * HALVINGS):
        tried = (low + high) / 2.0 if share is None else share
        between = Policy.of_weights(search.pmdp, (1.0 - tried) * ends[0] + tried * ends[1])
        if (search.limits_of(between)[1] <= 0.0).all():
            allowed, low = between, tried
            if tried == 1.0:
                break
        else:
            high = tried
    return allowed
