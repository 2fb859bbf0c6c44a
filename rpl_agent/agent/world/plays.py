"""Plays of the model: what they earn, when nothing more can happen, and whether a time limit ends them early.

A certificate is about plays of the model, which have no time limit. If an environment cuts episodes short, its
returns differ from the certified value, and a note says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Binding, Objective, ParametricMDP, Sense, Task, gather, reached
from rpl_agent.core.model.building.validation import reachable
from rpl_agent.core.model.simulate import absorbing_states

#: Transitions to examine before assuming that a limit cuts plays; a spurious note is harmless.
MOST_WORK = 20_000_000
#: Steps of an episode without a time limit: if it may end by itself, and if it never does.
LONGEST, LONGEST_ENDLESS = 100_000, 1_000
#: Relative tolerance for rewards, which are sums of a few floats, some in single precision.
REWARD_TOLERANCE = 1e-6
#: Relative error of a number in single precision.
SINGLE = 2.0**-24


def gains(pmdp: ParametricMDP, task: Task) -> np.ndarray:
    """(T,) what a transition adds to the objective: its reward, or 1 on entering the target."""
    if not task.criterion.pays:
        return (task.target[pmdp.visible_successor] & ~task.decided[pmdp.row_state[pmdp.transition_row]]).astype(float)
    return pmdp.on_transitions(task.paid(pmdp))


def model_rewards(pmdp: ParametricMDP, objective: Objective) -> np.ndarray:
    """(T,) what an environment pays per transition: the reward of the pair that was left (negative for costs), or,
    for reachability, ±1 on entering the target."""
    sign = 1.0 if objective.sense is Sense.MAX else -1.0
    return sign * gains(pmdp, objective.resolve(pmdp)) + 0.0


def reward_errors(pmdp: ParametricMDP, objective: Objective) -> np.ndarray:
    """(T,) how far `model_rewards` may be from the rewards that are meant, which need not be doubles."""
    known = None if not objective.criterion.pays else pmdp.row_reward_error(str(objective.reward_name))
    return np.zeros(pmdp.num_transitions) if known is None else pmdp.on_transitions(known)


def reward_tolerance(pmdp: ParametricMDP, objective: Objective, paid: np.ndarray) -> tuple[np.ndarray, float]:
    """((T,) tolerance of rewards ``paid`` (T,), what the bounds pay for it).

    See `Objective.with_reward_error`: a share of each reward, or the same share of the largest one in every step.
    Covers rounding to single precision; an open-ended objective's zero rewards must be zero.
    """
    size = np.abs(paid)
    if not objective.criterion.is_open_ended:
        most = REWARD_TOLERANCE * float(size.max(initial=0.0))
        return np.full(len(paid), most), most
    counted = np.abs(model_rewards(pmdp, objective))  # what the objective counts, if not what is paid
    return REWARD_TOLERANCE * np.minimum(size, counted), REWARD_TOLERANCE


def distinguishing_rewards(pmdp: ParametricMDP, objective: Objective) -> np.ndarray | None:
    """(T,) rewards if only they distinguish outcomes, and the objective is not about rewards; else None."""
    if objective.criterion.at_target == 0.0 or len(pmdp.rewards) != 1 or not pmdp.ambiguous_without_reward.any():
        return None
    return pmdp.on_transitions(pmdp.row_reward(next(iter(pmdp.rewards))))


def require_distinct_ways(pmdp: ParametricMDP, paid: np.ndarray) -> None:
    """Raise if ways of one row to one state pay the same (2, T), up to single precision: nothing tells them apart."""
    at = np.flatnonzero(pmdp.ambiguous_without_reward)
    order = at[np.lexsort((paid[0, at], pmdp.visible_successor[at], pmdp.transition_row[at]))]
    one, other = order[:-1], order[1:]
    same = (pmdp.transition_row[one] == pmdp.transition_row[other]) & (
        pmdp.visible_successor[one] == pmdp.visible_successor[other]
    )
    apart = paid[0, other] - paid[0, one]
    overlap = np.flatnonzero(same & (apart <= 2.0 * SINGLE * np.abs(paid[0, one] + paid[0, other])))
    if len(overlap):
        t, u = int(one[overlap[0]]), int(other[overlap[0]])
        row, after = pmdp.row_name(int(pmdp.transition_row[t])), pmdp.state_name(int(pmdp.visible_successor[t]))
        raise ModelError(
            f"{row} leads to {after} in two ways that pay {paid[0, t]:.9g} and {paid[0, u]:.9g}: the environment's "
            "reward cannot tell them apart; write one outcome for both, or let them lead to different states"
        )


def way_taken(
    paid: Sequence[Sequence[float]] | np.ndarray, ways: Sequence[int], reward: float
) -> tuple[int | None, float]:
    """(the way that pays a reward, by how much the reward misses the model's); (None, inf) if none does.

    paid : per transition what it pays, and the tolerance. Where several ways are within it, the
    reward must be one of theirs, or that in single precision.
    """
    found: list[tuple[int, float]] = []
    for t in ways:
        declared, tolerance = paid[t]
        if reward == declared:
            return t, 0.0
        missed = abs(reward - declared)
        if missed <= tolerance:
            found.append((t, missed))
    if len(found) > 1:
        found = [(t, missed) for t, missed in found if missed <= SINGLE * abs(paid[t][0])]
    return found[0] if len(found) == 1 else (None, np.inf)


def finished(pmdp: ParametricMDP, task: Task) -> np.ndarray:
    """(S,) bool, states from which neither the target nor any reward can be reached."""
    useful = task.target.copy()
    useful[pmdp.row_state[task.reward != 0.0]] = True
    source = pmdp.row_state[pmdp.transition_row]
    return ~reached(pmdp.successor, source, np.flatnonzero(useful), pmdp.num_states)


def over_at_once(pmdp: ParametricMDP, task: Task) -> np.ndarray:
    """(S,) bool, states in which a play with a random start may begin and is over before its first step."""
    if not pmdp.has_random_start:
        return np.zeros(pmdp.num_states, dtype=bool)
    return task.decided | (absorbing_states(pmdp) & finished(pmdp, task))


def longest_episode(pmdp: ParametricMDP, task: Task, horizon: int | None) -> int:
    """Steps after which we end an episode of an environment that has no time limit.

    The objective's horizon, if it has one; fewer if no play of the model ends.
    """
    if horizon is not None:
        return horizon
    return LONGEST if (task.decided | finished(pmdp, task))[reachable(pmdp)].any() else LONGEST_ENDLESS


def longest_play(pmdp: ParametricMDP, task: Task, most: int) -> int | None:
    """Steps after which every play is over: decided, or in a state where nothing more happens or is paid.

    None if some play lasts more than ``most`` steps (a play with more steps than states contains a cycle).
    """
    first = pmdp.row_ptr[pmdp.state_ptr]
    over = absorbing_states(pmdp)
    over[pmdp.row_state[pmdp.transition_row[pmdp.on_transitions(task.reward) != 0.0]]] = False
    over |= task.decided
    here = np.array([pmdp.initial_state])
    work, start = 0, int(pmdp.has_random_start)
    for step in range(most + start + 1):
        here = here[~over[here]]
        if not len(here):
            return max(0, step - start)
        leaving, _ = gather(first, here)
        here = np.unique(pmdp.visible_successor[leaving])
        work += len(leaving)
        if work > MOST_WORK:
            return None
    return None


def ends_elsewhere(pmdp: ParametricMDP, objective: Objective) -> bool:
    """Whether a play may get to where nothing more is paid, and a target that it must reach is out of reach.

    Such a play is worth infinity, whatever it paid.
    """
    if not objective.must_reach:
        return False
    task, source = objective.resolve(pmdp), pmdp.row_state[pmdp.transition_row]
    seen = reached(source, pmdp.successor, np.array([pmdp.initial_state]), pmdp.num_states)
    return bool((finished(pmdp, task) & ~task.target)[seen].any())


def never_ends(pmdp: ParametricMDP, objective: Objective) -> bool:
    """Whether a play that must reach a target may go on forever."""
    return objective.must_reach and longest_play(pmdp, objective.resolve(pmdp), pmdp.num_states) is None


def value_range(pmdp: ParametricMDP, objective: Objective, limit: int | None) -> tuple[float, float]:
    """The least and the most value of one play, under any policy and any outcomes.

    ``limit`` is the number of steps after which the environment ends plays. Infinite if plays may earn forever, or miss
    a target that they must reach.
    """
    if not objective.criterion.pays:
        return objective.criterion.exact_range
    low, high = _paid_range(pmdp, objective, limit)
    may_miss = ends_elsewhere(pmdp, objective) or (limit is None and never_ends(pmdp, objective))
    return low, math.inf if may_miss else high


def _paid_range(pmdp: ParametricMDP, objective: Objective, limit: int | None) -> tuple[float, float]:
    """The least and the most that is paid in one play."""
    sign = 1.0 if objective.sense is Sense.MAX else -1.0
    earned, off = sign * model_rewards(pmdp, objective), reward_errors(pmdp, objective)
    lowest, highest = earned - off, earned + off
    steps = min((n for n in (limit, objective.horizon) if n is not None), default=None)
    if steps is None and objective.discount < 1.0:
        least, most = (float(end) / (1.0 - objective.discount) for end in (lowest.min(), highest.max()))
        return min(least, 0.0), max(most, 0.0)
    decided, first = objective.resolve(pmdp).decided, pmdp.row_ptr[pmdp.state_ptr[:-1]]
    rounds = min(pmdp.num_states, MOST_WORK // len(pmdp.successor)) + 1 if steps is None else steps
    if rounds * len(pmdp.successor) > MOST_WORK and steps is not None:  # at most the best step again and again
        return steps * min(float(lowest.min()), 0.0), steps * max(float(highest.max()), 0.0)
    ends = []
    for best, paid in ((np.minimum, lowest), (np.maximum, highest)):
        worth = np.zeros(pmdp.num_states)
        for _ in range(rounds):
            after = best(best.reduceat(paid + objective.discount * worth[pmdp.visible_successor], first), 0.0)
            after[decided] = 0.0
            if np.array_equal(after, worth):
                break
            worth = after
        else:
            if steps is None:
                worth[:] = np.inf if best is np.maximum else -np.inf
        ends.append(float(best.reduce(worth[pmdp.first_states])))
    slack = 1e-12 * max(map(abs, ends), default=0.0)
    return ends[0] - slack if lowest.min() < 0.0 else 0.0, ends[1] + slack if highest.max() > 0.0 else 0.0


def with_certain_end(pmdp: ParametricMDP, objective: Objective, limit: int | None) -> Objective:
    """The objective, with a horizon if it is a total of gains and costs and every play is over after a number of steps.

    A horizon of that many steps changes nothing, unless a play that misses the target is worth infinity: then it gets
    none. If plays may outlast the environment's time limit, the limit is the horizon, which does change the objective.
    """
    if not objective.criterion.is_open_ended:
        return objective
    limited = replace(objective, horizon=limit or 0)
    task = limited.resolve(pmdp)
    if not (task.reward < 0.0).any() or ends_elsewhere(pmdp, objective):
        return objective
    steps = longest_play(pmdp, task, pmdp.num_states)
    if steps is not None and (limit is None or steps <= limit):
        return replace(objective, horizon=steps)
    return objective if limit is None else limited


def payments(model: ParametricMDP, goal: Objective, binding: Binding | None) -> tuple[np.ndarray, float]:
    """(2, T) what transitions pay, with the tolerance, and what that costs the bounds."""
    declared = distinguishing_rewards(model, goal) if binding is None else binding.paid
    asked = goal if binding is None else binding.objective or goal
    paid = model_rewards(model, asked) if declared is None else declared
    tolerance, error = reward_tolerance(model, goal, paid)
    return np.vstack([paid, tolerance]), error


def requested_horizon(horizon: Any, limit: int | None, name: str) -> int:
    """A horizon in steps; "env" takes the environment's time limit."""
    if isinstance(horizon, str) and horizon == "env":
        if limit is None:
            raise ModelError(f"horizon='env': {name} has no TimeLimit to take it from: give a number of steps")
        return limit
    if not hasattr(horizon, "__index__") or isinstance(horizon, bool) or horizon < 1:
        raise ModelError(f"horizon {horizon!r} is neither 'env' nor a whole number of steps, at least 1")
    return int(horizon)


def truncation_note(limit: int | None, cut: int, episodes: int) -> str | None:
    """One line for readers of a certificate; None if no play was cut."""
    if not cut:
        return None
    steps = "the time limit" if limit is None else f"the limit of {limit} steps"
    return (
        f"the guarantee is for plays without {steps}; {cut:,} of {episodes:,} episodes ({cut / max(1, episodes):.1%}) "
        "were cut before the objective was decided (horizon='env' makes the limit part of the objective)"
    )
