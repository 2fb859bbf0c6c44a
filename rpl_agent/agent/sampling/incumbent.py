"""`Incumbent`: the fixed policy that a run plays, held against one that looks better.

The bound of a policy comes from its own plays, so that of a new policy begins anew. A policy is therefore replaced only
if another one looks better by more than the new bound will lag behind at the end of the budget; and the episodes to
come are divided so that those that play it have the part of the gap that its bound leaves open.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

#: Growth of the number of episodes between two marks, at which another policy is considered.
MARK_GROWTH = 2
#: The slack of a policy's bound falls with its plays to this power: 1/2 by their spread, 1 by the range of returns.
FALLS = 0.75
#: If little is left of the budget, a policy is judged as if this share of the episodes so far were to come.
TO_COME = 0.25


def coming_plays(share: float, left: float, episodes: int) -> float:
    """Plays until the end of the budget: this share of the episodes that are left, or of some beyond the budget."""
    return max(share * max(left, TO_COME * episodes), 1.0)


@dataclass(frozen=True)
class Incumbent:
    """The policy that is played, in numbers of which more is better.

    plays : how many there are so far
    mean : what they were worth on average
    error : standard error of the mean; infinite for a single play, which says nothing of the spread
    bound : on the policy's value, from below
    """

    plays: int
    mean: float
    error: float
    bound: float

    @classmethod
    def of(cls, worth: np.ndarray, bound: float) -> Incumbent:
        """The policy whose plays were worth these numbers (n,), n ≥ 1."""
        error = float(worth.std(ddof=1)) / math.sqrt(len(worth)) if len(worth) > 1 else math.inf
        return cls(len(worth), float(worth.mean()), error, bound)

    @property
    def slack(self) -> float:
        return max(self.mean - self.bound, 0.0)

    def gives_way(self, challenger: float, own: float, coming: float) -> bool:
        """Whether a policy of value ``challenger`` replaces this one.

        challenger, own : values of the other policy and of this one, by observed frequencies
        coming : plays of either until the end of the budget
        """
        # plays know what the policy is worth, also where the frequencies have hardly seen its rows
        present = max(own, self.mean - self.error)
        # as a share of the present slack, what the other policy's bound will have more of it than this one's
        behind = (self.plays / coming) ** FALLS - (self.plays / (self.plays + coming)) ** FALLS
        return challenger - present > self.slack * behind

    def part_of_gap(self, rest: float) -> float:
        """The slack as a part of the whole gap, of which ``rest`` lies above the mean; in [0, 1]."""
        return self.slack / max(self.slack + max(rest, 0.0), 1e-300)
