"""The proof that no policy is better: rows that are beaten, and ties, for `checker.check_optimal`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from rpl_agent.core.coupled.affine import AffineBound, Side
from rpl_agent.core.coupled.bounds import find_bound
from rpl_agent.core.coupled.expansion import ValueExpansion, expansion_everywhere, expansion_of
from rpl_agent.core.coupled.ties import fate_classes
from rpl_agent.core.model import Nature, Objective, Policy
from rpl_agent.core.relaxations.base import Relaxation
from rpl_agent.core.solver.problem import Problem
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.proof.foundation import Foundation
from rpl_agent.guarantee.proof.functions import WIDENED, of_bound, prove_claim, shown, time_scale

Function = tuple[checker.Claim, dict[str, Any]]


def optimality(
    relaxation: Relaxation, base: Foundation, objective: Objective, policy: Policy, rules: checker.Policy
) -> dict[str, Any] | None:
    """Functions over the ball for every policy and for this one, with the fates of states; None if that proves nothing.

    policy : one row per state; ``rules`` is the same policy for the checker
    """
    assert base.frame is not None and policy.rows is not None
    problem = Problem.of(relaxation, objective, Nature.ADVERSARIAL, None)
    expansions = expansion_of(problem, base.frame, None, policy), expansion_everywhere(problem, base.frame, policy)
    own = Side.own(objective.sense)
    far = Side.LOWER if own is Side.UPPER else Side.UPPER
    if not isinstance(expansions[0], ValueExpansion) or expansions[1] is None:
        return None
    bounds = (
        find_bound(problem, expansions[0], far, True),
        find_bound(problem, expansions[1], own, False, everywhere=True),
    )
    if bounds[0] is None or bounds[1] is None:
        return None
    scale = time_scale(relaxation.pmdp, objective)
    best = _proved(problem, base, bounds[0], None, scale)
    mine = None if best is None else _proved(problem, base, bounds[1], rules, scale)
    if best is None or mine is None:
        return None
    found = fate_classes(problem, policy.rows, bounds[1].values, bounds[1].gradient)
    fates = [[s, 0] for s in range(relaxation.pmdp.num_states)]  # every state by itself
    if found is not None:
        fates = delays_of(problem, policy.rows, found.classes, found.delays)
    with suppress(checker.Refused):
        checker.check_optimal(best[0], mine[0], fates)
        pair = (best, mine) if own is Side.LOWER else (mine, best)
        return {"functions": [function for _, function in pair], "start": [], "fates": fates}
    return None


def _proved(
    problem: Problem, base: Foundation, bound: AffineBound, policy: checker.Policy | None, scale: np.ndarray
) -> Function | None:
    """The bound as a function that the checker accepts, with its claim."""
    upper = bound.side is Side.UPPER
    for slack in WIDENED:
        values = shown(of_bound(problem, bound), scale, bound.side.value * slack, None)
        with suppress(checker.Refused):
            claim = checker.Claim(base.region, policy, upper, values, base.objective)
            prove_claim(claim, values)
            claim.at_start()
            return claim, values
    return None


def delays_of(problem: Problem, policy: np.ndarray, classes: np.ndarray, delays: np.ndarray) -> list[list[int]]:
    """[class, the most times that the row of the policy leads to the same class before something happens] per state."""
    pmdp, number = problem.pmdp, np.zeros(len(classes), np.int64)
    states = np.flatnonzero(delays)
    for _ in range(len(states)):
        first, last = pmdp.row_ptr[policy[states]], pmdp.row_ptr[policy[states] + 1]
        longest = [int(number[pmdp.successor[a:b]].max()) + 1 for a, b in zip(first, last)]
        if np.array_equal(longest, number[states]):
            break
        number[states] = longest
    return [[int(c), int(n)] for c, n in zip(classes, number)]
