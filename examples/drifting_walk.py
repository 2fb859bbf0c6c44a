"""A walk in which one parameter pulls both ways: where a common parameter matters most.

A walker stands in the middle of a line of 2n + 1 places. In the right half a step goes right with probability p, in the
left half with probability 1 − p; the rightmost place is the goal, the leftmost ends the walk. Whatever p
is, it helps in one half and hurts in the other. Rectangular bounds let nature choose a different p in every
place, so they assume the worst in both halves at once; coupled bounds use the fact that there is only one p.

    python examples/drifting_walk.py
"""

from __future__ import annotations

import numpy as np

from rpl_agent import Config, Domain, Objective, build, certify
from rpl_agent.core.evidence.sampling import uniform_counts

PLACES, TRUE_P, EPISODES = 8, 0.5, 2_000
OBJECTIVE = Objective.reach("goal")


def drifting_walk(n: int = PLACES):
    """The model, with 2n + 1 places."""

    def actions(place):
        if place in (-n, n):
            return {"stay": {place: 1}}
        right = "p" if place >= 0 else "1-p"
        left = "1-p" if place >= 0 else "p"
        return {"walk": {place + 1: right, place - 1: left}}

    return build(
        0, actions, domain=Domain.box({"p": (0.2, 0.8)}), name="drifting walk",
        labels={"goal": lambda s: s == n, "end": lambda s: s == -n},
    )  # fmt: skip


def certificates(episodes: int = EPISODES, seed: int = 1):
    """(rectangular, coupled) from the same data."""
    model = drifting_walk()
    counts = uniform_counts(model, OBJECTIVE, np.array([TRUE_P]), episodes, 10_000, seed=seed)
    return [certify(model, counts, OBJECTIVE, Config(relaxation=name)) for name in ("rectangular", "coupled")]


if __name__ == "__main__":
    for certificate in certificates():
        bounds = f"[{certificate.lower:.4f}, {certificate.upper:.4f}]"
        print(f"{certificate.relaxation:12} {bounds}  gap {certificate.gap:.4f}")
