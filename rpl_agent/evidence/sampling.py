"""Uniform data from a known simulator: the paper's first experimental setting."""

from __future__ import annotations

import numpy as np

from rpl_agent.evidence.counts import Counts
from rpl_agent.evidence.likelihood import split_fraction
from rpl_agent.model.objective import Objective
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.policy import Policy
from rpl_agent.model.simulate import Simulator


def uniform_counts(
    pmdp: ParametricMDP, objective: Objective, theta: np.ndarray, episodes: int, max_steps: int, seed: int
) -> Counts:
    """Counts of ``episodes`` under the uniform policy; a mark after the first window for the likelihood region.

    Episodes end in decided states (target or avoid) and after ``max_steps``. The number of episodes is fixed
    in advance, so fixed-N intervals are valid too.
    """
    simulator = Simulator(pmdp.instantiate(theta), objective.resolve(pmdp).decided, max_steps, seed)
    counts = Counts(pmdp, schedule="split")
    policy = Policy.uniform(pmdp)
    first = max(1, round(split_fraction(pmdp) * episodes)) if episodes > 1 else 0
    for size in (first, episodes - first):
        batch = np.zeros(pmdp.num_transitions, dtype=np.int64)
        if size:
            simulator.run(policy, size, batch)
        counts.add_batch(batch)
        if not counts.marks and first:
            counts.mark()
    return counts
