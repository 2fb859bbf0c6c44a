"""From an expansion to a bound: raise the slack until every inequality holds.

The expansion v + g·y misses its inequalities by the second order only, and by what other actions may gain. Without
cycles the slack is found state by state, successors first. With cycles an excess x(s) is paid for by the slack that x
earns along plays of the policy, e += (I − γ P)⁻¹ x; how e itself varies over the region is an excess of higher order,
paid for in the next round. For costs, where a free agent may loop at a positive excess, the function is divided by
1 + κ as well: if every row misses its inequality by at most κ times its cost, U / (1 + κ) misses none.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rpl_agent.coupled.affine import AffineBound, Side, excess, row_excess, sweep
from rpl_agent.coupled.expansion import ValueExpansion, known_chain
from rpl_agent.model.csr import best_rows
from rpl_agent.solver.problem import Problem

#: rounds of payments; each one is over-paid by this share, so that higher orders need no rounds of their own
ROUNDS, OVERPAID = 12, 0.05
#: a share that is left above this one is taken for this one
MOST_LEFT = 0.9
#: paid beside that, relative to the values: more than rounding can be off by in one step
ROUNDING = 1e-14
#: an excess below this share of the first one is left to the factor
SETTLED = 1e-6
#: a slack above this multiple of the values is of no use
MOST_SLACK = 4.0
#: a slack above this multiple of the first payment does not converge
DIVERGED = 30.0


def find_bound(problem: Problem, expansion: ValueExpansion, side: Side, every_policy: bool) -> AffineBound | None:
    """A bound with the gradient of the expansion; None if none was found. It is to be checked."""
    policy = None if every_policy else expansion.policy
    zero = np.zeros_like(expansion.values)
    scope = expansion.scope if every_policy else expansion.reached
    bound = AffineBound(side, policy, expansion.frame, expansion.values, expansion.gradient, zero, scope)
    margin = ROUNDING * float(np.abs(expansion.values).max())
    if expansion.order is not None:
        order, here = expansion.order[scope[expansion.order]], (bound.values.copy(), bound.gradient)  # it raises them
        return replace(bound, slack=sweep(problem, order, policy, expansion.chances, side, margin, here))
    if every_policy and expansion.policy.rows is not None:
        worst = _of_worst_rows(problem, expansion, bound, margin)
        if worst is not None:
            return worst
    if every_policy and problem.must_reach:
        paid = _with_slack(problem, expansion, bound, margin, leave_rest=True)
        return _with_factor(problem, expansion, bound if paid is None else paid)
    return _with_slack(problem, expansion, bound, margin, leave_rest=False)


def _of_worst_rows(
    problem: Problem, expansion: ValueExpansion, bound: AffineBound, margin: float
) -> AffineBound | None:
    """The slack that the worst choice of rows earns: policy iteration on what rows miss, at the centre of the frame."""
    pmdp, chances, open_states = problem.pmdp, expansion.chances, bound.scope & ~problem.task.decided
    assert expansion.policy.rows is not None
    p, rows, slack = chances.p[pmdp.expression], np.array(expansion.policy.rows), bound.slack
    for _ in range(ROUNDS):
        u = bound.values + bound.side.value * slack
        missed = row_excess(problem, chances, bound.side, (u, bound.gradient))
        worst = np.maximum.reduceat(missed, pmdp.state_ptr[:-1])
        if not (worst[open_states] > 0.0).any():
            return replace(bound, slack=slack)
        extra = np.where(missed > 0.0, (1.0 + OVERPAID) * missed + margin, missed)
        payment: np.ndarray | None = None
        for _ in range(ROUNDS):
            weights = np.zeros(pmdp.num_rows)
            weights[rows] = 1.0
            chain = known_chain(problem, weights, chances.p)
            factors = chain.factors(chain.weight * chances.p[chain.expression])
            if factors is None or (worst[open_states & chain.unsolved(pmdp.num_states)] > 0.0).any():
                return None
            payment = np.zeros(pmdp.num_states)
            payment[chain.solved] = factors.solve(np.maximum(extra[rows], 0.0)[chain.solved])
            if not np.isfinite(payment).all() or payment.min() < -margin:
                return None
            q = extra + problem.gamma * np.add.reduceat(p * payment[pmdp.successor], pmdp.row_ptr[:-1])
            best = best_rows(q, pmdp.state_ptr, pmdp.row_state)
            better = (q[best] > payment + OVERPAID * np.abs(payment) + margin) & open_states
            if not better.any():
                break
            rows = np.where(better, best, rows)
        assert payment is not None
        slack = slack + np.maximum(payment, 0.0)
        if not np.isfinite(slack).all() or slack.max() > MOST_SLACK * (1.0 + np.abs(bound.values).max()):
            return None
    return None


def _with_slack(
    problem: Problem, expansion: ValueExpansion, bound: AffineBound, margin: float, leave_rest: bool
) -> AffineBound | None:
    open_states = bound.scope & ~problem.task.decided
    slack, first, limit, before = bound.slack, 0.0, np.inf, np.inf
    for _ in range(ROUNDS):
        u = bound.values + bound.side.value * slack
        missed = excess(problem, bound.policy, expansion.chances, bound.side, (u, bound.gradient), open_states)
        missed = np.maximum(missed, 0.0)
        worst = float(missed.max())
        if worst == 0.0 or (leave_rest and worst < SETTLED * first):
            return replace(bound, slack=slack)
        # each payment leaves a share of itself to be paid: the sum of all the rest at once
        share = min(worst / before, MOST_LEFT)
        before = worst
        payment = expansion.spread(np.where(missed > 0.0, (1.0 + OVERPAID) / (1.0 - share) * missed + margin, 0.0))
        slack = np.maximum(slack + payment, 0.0)
        if first == 0.0:
            first, limit = worst, DIVERGED * float(slack.max())
        if not np.isfinite(slack).all() or slack.max() > limit:
            return None
    return None


def _with_factor(problem: Problem, expansion: ValueExpansion, bound: AffineBound) -> AffineBound | None:
    """The bound divided by 1 + κ, with every row costing something."""
    open_states = bound.scope & ~problem.task.decided
    least = np.minimum.reduceat(problem.reward, problem.pmdp.state_ptr[:-1])
    if not (least[open_states] > 0.0).all():
        return None
    factor = 1.0
    for _ in range(ROUNDS):
        scaled = replace(
            bound, values=bound.values / factor, gradient=bound.gradient / factor, slack=bound.slack / factor
        )
        missed = excess(problem, bound.policy, expansion.chances, bound.side, (scaled.moved, scaled.gradient))
        worst = float((np.maximum(missed[open_states], 0.0) / least[open_states]).max(initial=0.0))
        if worst <= 0.0:
            return scaled
        factor *= 1.0 + worst * (1.0 + OVERPAID) + ROUNDING
    return None
