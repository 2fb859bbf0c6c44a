"""Uniform data from a known simulator: the paper's first experimental setting."""

from __future__ import annotations

import numpy as np

from rpl_agent.core.evidence.counts import SPLIT_MARKS, SPLIT_WEIGHT, Counts, bet_shares
from rpl_agent.core.model import Objective, ParametricMDP, Policy, Simulator


def uniform_counts(
    pmdp: ParametricMDP, objective: Objective, theta: np.ndarray, episodes: int, max_steps: int, seed: int
) -> Counts:
    """Counts of ``episodes`` under the uniform policy, marked for the likelihood region at shares of the episodes.

    Episodes end in decided states (target or avoid) and after ``max_steps``. The number of episodes is fixed
    in advance, so fixed-N intervals are valid too.
    """
    simulator = Simulator(pmdp.instantiate(theta), objective.resolve(pmdp).decided, max_steps, seed)
    counts = Counts(pmdp, schedule="shares")
    policy = Policy.uniform(pmdp)
    done = 0
    windows = {max(1, round(share * episodes)) for share in SPLIT_MARKS}
    for end in sorted(windows | {max(1, round(share * episodes)) for share in bet_shares(pmdp)} | {episodes}):
        batch = np.zeros(pmdp.num_transitions, dtype=np.int64)
        if end > done:
            simulator.run(policy, end - done, batch)
        counts.add_batch(batch)
        done = end
        if done < episodes:
            counts.mark(SPLIT_WEIGHT if end in windows else 0.0, progress=end / episodes)
    return counts
