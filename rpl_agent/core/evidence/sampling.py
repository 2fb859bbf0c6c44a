"""Uniform data from a known simulator: the paper's first experimental setting."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.marks import SPLIT_MARKS, SPLIT_WEIGHT, bet_shares
from rpl_agent.core.model import Objective, ParametricMDP, Policy, Simulator

#: Episodes between two reports of progress.
PIECE = 4_096


def uniform_counts(
    pmdp: ParametricMDP,
    objective: Objective,
    theta: np.ndarray,
    episodes: int,
    max_steps: int,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> Counts:
    """Counts of ``episodes`` under the uniform policy, marked for the likelihood region at shares of the episodes.

    Episodes end in decided states (target or avoid) and after ``max_steps``. The number of episodes is fixed
    in advance, so fixed-N intervals are valid too. ``progress`` is called with the episodes done, and with all.
    """
    simulator = Simulator(pmdp.instantiate(theta), objective.resolve(pmdp).decided, max_steps, seed)
    counts = Counts(pmdp, schedule="shares")
    policy = Policy.uniform(pmdp)
    done = 0
    windows = {max(1, round(share * episodes)) for share in SPLIT_MARKS}
    for end in sorted(windows | {max(1, round(share * episodes)) for share in bet_shares(pmdp)} | {episodes}):
        batch = np.zeros(pmdp.num_transitions, dtype=np.int64)
        while done < end:
            piece = min(PIECE, end - done)
            simulator.run(policy, piece, batch)
            done += piece
            if progress is not None:
                progress(done, episodes)
        counts.add_batch(batch)
        if done < episodes:
            counts.mark(SPLIT_WEIGHT if end in windows else 0.0, progress=end / episodes)
    return counts
