"""Policies that may be better than the one in use; bounds decide which of them are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rpl_agent.core.coupled.regret import same_policy as same_policy
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Objective, ParametricMDP, Policy, Sense
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.pipeline import Config, Uncertainty, certify_uncertainty

#: Visits from which on a row counts as known, for policies that copy the baseline elsewhere.
KNOWN_VISITS = (10, 100)
#: Rounds of policy iteration of such a policy.
ROUNDS = 30


def candidates(
    pmdp: ParametricMDP,
    counts: Counts,
    objective: Objective,
    config: Config,
    found: Uncertainty,
    baseline: Policy | None,
) -> Iterator[tuple[str, Policy]]:
    """(name, policy): the robust one, the best at the estimate, and the baseline changed where rows are known."""
    seen: list[Policy] = []
    for name, policy in _all(pmdp, counts, objective, config, found, baseline):
        if not any(same_policy(policy, other) for other in seen):
            seen.append(policy)
            yield name, policy


def _all(
    pmdp: ParametricMDP,
    counts: Counts,
    objective: Objective,
    config: Config,
    found: Uncertainty,
    baseline: Policy | None,
) -> Iterator[tuple[str, Policy]]:
    yield "robust", certify_uncertainty(pmdp, counts, found, objective, config, with_regret=False).policy
    if found.estimate is None:
        return
    theta = np.asarray(found.estimate)
    yield "best at the estimate", solve_at(pmdp, theta, objective).policy
    if baseline is not None and objective.horizon is None:
        for visits in KNOWN_VISITS:
            changed = bootstrapped(pmdp, objective, theta, baseline, counts.row_totals >= visits)
            if changed is not None:
                yield f"the baseline, changed where it was tried {visits} times", changed


def bootstrapped(
    pmdp: ParametricMDP, objective: Objective, theta: np.ndarray, baseline: Policy, known: np.ndarray
) -> Policy | None:
    """The best policy at θ that plays the baseline's share of every row that is not known; None if it is the baseline.

    The rest of a state's probability goes to its best known row: policy iteration (`Laroche et al., 2019`, their Π_b).
    """
    p, task = pmdp.instantiate(theta).probability, objective.resolve(pmdp)
    sign = 1.0 if objective.sense is Sense.MAX else -1.0
    base = baseline.shares(pmdp)
    free = np.add.reduceat(np.where(known, base, 0.0), pmdp.state_ptr[:-1])
    if not known.any():
        return None
    weights = base
    for _ in range(ROUNDS):
        values = solve_at(pmdp, theta, objective, policy=Policy.randomised(weights)).lower_values
        if not np.isfinite(values).all():
            break
        ahead = np.add.reduceat(p * values[pmdp.successor], pmdp.row_ptr[:-1])
        q = sign * (task.reward + task.objective.discount * ahead)
        best = np.maximum.reduceat(np.where(known, q, -np.inf), pmdp.state_ptr[:-1])
        first = known & (q >= best[pmdp.row_state])
        first &= ~_repeated(first, pmdp.row_state)
        better = np.where(known, 0.0, base) + np.where(first, free[pmdp.row_state], 0.0)
        if np.array_equal(better, weights):
            break
        weights = better
    return None if np.array_equal(weights, base) else Policy.of_weights(pmdp, weights)


def _repeated(marked: np.ndarray, row_state: np.ndarray) -> np.ndarray:
    """(R,) marked rows whose state has a marked row before them."""
    rows = np.flatnonzero(marked)
    again = np.zeros(len(marked), bool)
    again[rows[1:][row_state[rows[1:]] == row_state[rows[:-1]]]] = True
    return again
