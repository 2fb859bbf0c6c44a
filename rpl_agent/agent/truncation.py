"""Time limits: whether they can end a play before the objective is decided, and what a certificate says about it.

A certificate is about plays of the model, which know no time limit. Where an environment cuts episodes short, its
returns differ from what is certified, and that has to be said.
"""

from __future__ import annotations

import numpy as np

from rpl_agent.model.objective import Task
from rpl_agent.model.pmdp import ParametricMDP

#: Transitions looked at before a limit is taken to cut plays; one line too many is no harm.
MOST_WORK = 20_000_000


def can_cut(pmdp: ParametricMDP, task: Task, limit: int | None, horizon: int | None) -> bool:
    """Whether some play is undecided after ``limit`` steps (and the objective's horizon is not over by then)."""
    if limit is None or (horizon is not None and horizon <= limit):
        return False
    first = pmdp.row_ptr[pmdp.state_ptr]
    loops = np.ones(pmdp.num_states, dtype=bool)  # states that every action keeps: nothing happens there any more
    source = pmdp.row_state[pmdp.transition_row]
    loops[source[pmdp.arrives != source]] = False
    over = task.decided | loops
    here = np.array([pmdp.initial_state])
    work = 0
    for _ in range(limit + int(pmdp.has_random_start)):
        sizes = first[here + 1] - first[here]
        offsets = np.repeat(first[here] - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
        reached = np.unique(pmdp.arrives[offsets + np.arange(sizes.sum())])
        work += int(sizes.sum())
        here = reached[~over[reached]]
        if not len(here):
            return False
        if work > MOST_WORK:
            return True
    return True


def truncation_note(limit: int | None, cuts: bool, cut: int, episodes: int) -> str | None:
    """One line for whoever reads a certificate; None where no play can be cut and none was."""
    if not cuts and not cut:
        return None
    steps = "the time limit" if limit is None else f"the limit of {limit} steps"
    share = f" ({cut / episodes:.1%})" if episodes else ""
    return (
        f"the guarantee is for plays without {steps}; {cut:,} of {episodes:,} episodes{share} were cut before the "
        "objective was decided (horizon='env' makes the limit part of the objective)"
    )
