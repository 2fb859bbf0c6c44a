"""Sampling for the certificate: c-optimal design of episodes.

Any sampling is sound, so the agent may sample where the *value* is uncertain. With the information I = Σ n_row I_row of
the data, I_row = Σ_i b_i b_i' / p_i at the estimate, and G the gradient of the value at the initial state, the
variance of the value is G'I⁻¹G, and one visit of a row lowers it at the rate c'I_row c with c = I⁻¹G. The plan is the
policy that collects most of that rate: in an episode, or per step where the budget is in steps (a fractional
programme: the rate less λ per step, λ the best ratio found so far).

The domain counts as a little information of its own, so that directions in which nothing was seen are worth most.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rpl_agent.agent.exploration import SamplingGoal
from rpl_agent.coupled.attribution import MIN_PROBABILITY, fisher_information, point_frame, slopes
from rpl_agent.coupled.expansion import ValueExpansion, backward_order, expand, expand_without_cycles, improved
from rpl_agent.evidence.counts import Counts
from rpl_agent.model.objective import Kind, Nature, Objective, Sense, Task
from rpl_agent.model.policy import Policy
from rpl_agent.regions.frame import Frame
from rpl_agent.relaxations.base import Relaxation
from rpl_agent.solver.problem import Problem

#: policy iteration at the estimate
IMPROVEMENTS = 8
#: rounds of the fractional programme for budgets in steps
RATIO_ROUNDS = 2
#: cyclic models: plays are planned for this many mean episode lengths ahead
LOOK_AHEAD = 2.0


def informative_policy(
    relaxation: Relaxation, objective: Objective, counts: Counts, theta: np.ndarray, start: Policy,
    goal: SamplingGoal,
) -> Policy | None:  # fmt: skip
    """The policy that lowers the variance of the value fastest.

    None where there is no gradient to go by, and where it might play on forever: in a model with cycles whose
    environment has no time limit.

    Parameters
    ----------
    theta : (d,) point estimate
    start : Policy
        Where policy iteration begins.
    """
    pmdp = relaxation.pmdp
    weights = slopes(pmdp, theta)
    if objective.horizon is not None or start.rows is None or weights is None:
        return None
    problem = Problem.of(relaxation, objective, Nature.COOPERATIVE, None)
    cyclic = backward_order(problem) is None
    if cyclic and not goal.limited:
        return None
    frame = point_frame(pmdp, theta)
    best = _best(problem, frame, start)
    if best is None:
        return None
    gradient = best.gradient[pmdp.initial_state]
    rate = _rates(counts, theta, gradient, weights)
    if not np.isfinite(rate).all() or rate.max(initial=0.0) <= 0.0:
        return None
    discount = 1.0 - 1.0 / max(LOOK_AHEAD * goal.length, 2.0) if cyclic else 1.0
    price, plan = 0.0, None
    for _ in range(RATIO_ROUNDS if goal.per_step else 1):
        found = _best(_collecting(problem, rate - price, discount), frame, plan or start)
        if found is None:
            return plan
        plan = found.policy
        if goal.per_step:
            gain = _value(_collecting(problem, rate, discount), frame, plan)
            steps = _value(_collecting(problem, np.ones_like(rate), discount), frame, plan)
            price = gain / steps if steps > 0.0 else 0.0
    return plan


def _rates(counts: Counts, theta: np.ndarray, gradient: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(R,) c'I_row c of every row; ``weights`` (F, n) are the slopes of the expressions."""
    pmdp = counts.pmdp
    matrix = fisher_information(pmdp, counts.successes, theta)
    # One observation spread over all coordinates, in their own units: less than any data, more than nothing.
    scale = np.maximum(np.diag(matrix), 1.0)
    matrix = matrix + np.diag(scale) / max(counts.total, 1.0)
    c = np.linalg.solve(matrix, gradient)
    value = np.maximum(pmdp.table.evaluate(theta), MIN_PROBABILITY)
    terms = ((weights @ c) ** 2 / value)[pmdp.expression]
    return np.add.reduceat(terms, pmdp.row_ptr[:-1])


def _collecting(problem: Problem, reward: np.ndarray, discount: float) -> Problem:
    """The problem of collecting a reward per row until the play is decided or nothing happens any more."""
    decided = problem.task.decided
    over = decided.copy()
    over[problem.structure().sinks] = True
    aim = Objective(Kind.REWARD, Sense.MAX, "decided", reward_name="information", discount=discount)
    paid = np.where(over[problem.pmdp.row_state], 0.0, reward)
    return replace(problem, task=Task(aim, decided, np.zeros_like(decided), paid))


def _best(problem: Problem, frame: Frame, start: Policy) -> ValueExpansion | None:
    """The expansion of the best policy at the estimate."""
    order = backward_order(problem)
    if order is not None:
        return expand_without_cycles(problem, frame, order, None)
    expansion = expand(problem, frame, start)
    for _ in range(IMPROVEMENTS):
        if expansion is None:
            return None
        better = improved(problem, expansion)
        if better is None:
            break
        expansion = expand(problem, frame, better)
    return expansion


def _value(problem: Problem, frame: Frame, policy: Policy) -> float:
    order = backward_order(problem)
    found = expand(problem, frame, policy) if order is None else expand_without_cycles(problem, frame, order, policy)
    return 0.0 if found is None else float(found.values[problem.pmdp.initial_state])
