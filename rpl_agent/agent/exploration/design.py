"""Sampling for the certificate: c-optimal design of episodes, which samples where the *value* is uncertain.

With the information I = Σ n_row I_row of the data, I_row = Σ_i b_i b_i' / p_i at the estimate, and G the gradient of
the value at the initial state, the variance of the value is G'I⁻¹G, and one visit of a row lowers it at the rate
c'I_row c with c = I⁻¹G. Frank–Wolfe: the policy that collects most of that rate, found in one backward pass over an
episode, is the next vertex; the weights of all vertices so far are reoptimised (their information has few
dimensions), until no policy collects more. The design is for as many episodes (steps) as there are data, so it
compensates for earlier oversampling. The result is the memoryless policy with the design's visits: exact if plays
run to their end, approximate if episodes are cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rpl_agent.agent.exploration.goal import SamplingGoal
from rpl_agent.core.coupled.affine import chances_of
from rpl_agent.core.coupled.attribution import MIN_PROBABILITY, fisher_information, point_frame, slopes
from rpl_agent.core.coupled.expansion import expand_without_cycles, expansion_of
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Kind, Nature, Objective, ParametricMDP, Policy, Sense, Task
from rpl_agent.core.model.simulate import absorbing_states
from rpl_agent.core.native import Struct, core
from rpl_agent.core.regions.frame import Frame
from rpl_agent.core.relaxations.base import Relaxation
from rpl_agent.core.solver.problem import Problem

#: The most vertices of a design, and the relative excess over the design that another policy may collect.
VERTICES, CLOSE = 8, 0.02
#: Optimisation steps for the weights of the vertices.
WEIGHT_STEPS = 24
#: The most transitions in a pass over an episode: longer episodes are planned for their end only.
WORK = 20_000_000
#: Gradients that differ by less than this share of their size are equal up to rounding.
NO_DIFFERENCE = 1e-6
#: The most numbers in the gradients of a horizon's values.
GRADIENTS = 50_000_000


@dataclass(frozen=True, eq=False)
class Episodes:
    """Episodes at one parameter vector: the best policy for a reward, and the visits of a policy."""

    problem: Problem
    frame: Frame
    chances: Struct
    order: np.ndarray | None
    stopped: np.ndarray
    steps: int  # solver steps in an episode; without cycles plays end by themselves, and one rule is best throughout

    @classmethod
    def of(cls, problem: Problem, frame: Frame, limit: int | None) -> Episodes | None:
        """Episodes of an environment that ends an episode after ``limit`` steps; None if they might never end."""
        pmdp, horizon = problem.pmdp, problem.objective.horizon
        order = problem.order
        if limit is not None:
            horizon = pmdp.solver_step(limit)
        if order is None and horizon is None:
            return None
        stopped = problem.task.decided | absorbing_states(pmdp)
        stopped[problem.structure.sinks] = True
        steps = min(horizon or pmdp.num_states, max(WORK // pmdp.num_transitions, 1))
        return cls(problem, frame, chances_of(problem, frame), order, stopped, steps)

    def best(self, reward: np.ndarray) -> np.ndarray:
        """(H, S), or (1, S): the rows that collect most of a reward (R,), by steps to go."""
        pmdp, decided = self.problem.pmdp, self.problem.task.decided
        if self.order is not None:
            goal = Objective(Kind.REWARD, Sense.MAX, "decided", reward_name="information")
            paid = np.where(self.stopped[pmdp.row_state], 0.0, reward)
            collecting = replace(self.problem, task=Task(goal, decided, np.zeros_like(decided), paid))
            found = expand_without_cycles(collecting, self.frame, self.order, None)
            if found is not None and found.policy.rows is not None:
                return found.policy.rows[None]
        values = np.zeros((self.steps + 1, pmdp.num_states))
        rules = np.empty((self.steps, pmdp.num_states), np.int64)
        core.greedy_steps(
            pmdp.num_states, self.steps, pmdp.state_ptr, self.stopped, self.chances, reward, 1.0, 1.0, values, rules
        )
        return rules

    def visits(self, rules: np.ndarray) -> np.ndarray:
        """(R,) expected number of visits to each row in an episode."""
        pmdp, found = self.problem.pmdp, np.zeros(self.problem.pmdp.num_rows)
        mass = np.zeros((2, pmdp.num_states))
        mass[0, pmdp.initial_state] = 1.0
        if self.order is not None and len(rules) == 1:
            core.visit_forward(len(self.order), self.order, self.stopped, self.chances, rules, mass, found)
        else:
            core.visit_steps(pmdp.num_states, len(rules), self.stopped, self.chances, rules, mass, found)
        return found


class RowInformation:
    """I_row at one parameter vector θ (d,), and the gradient G (n,) of the value there."""

    def __init__(self, pmdp: ParametricMDP, theta: np.ndarray, weights: np.ndarray, gradient: np.ndarray):
        self._pmdp, self._theta, self._weights, self._gradient = pmdp, theta, weights, gradient
        self._value = np.maximum(pmdp.table.at(theta), MIN_PROBABILITY)

    def of(self, visits: np.ndarray) -> np.ndarray:
        """(n, n) Σ visits_row I_row."""
        pmdp = self._pmdp
        amounts = np.bincount(pmdp.expression, visits[pmdp.transition_row], pmdp.num_expressions)
        return fisher_information(pmdp, amounts * self._value, self._theta)

    def wanted(self, matrix: np.ndarray) -> np.ndarray:
        """(n,) c = I⁻¹G: adding information J to I changes G'I⁻¹G by −c'Jc to first order."""
        return np.linalg.solve(matrix, self._gradient)

    def rates(self, c: np.ndarray) -> np.ndarray:
        """(R,) c'I_row c."""
        terms = (self._weights @ c) ** 2 / self._value
        return np.add.reduceat(terms[self._pmdp.expression], self._pmdp.row_ptr[:-1])


def informative_policy(
    relaxation: Relaxation,
    objective: Objective,
    counts: Counts,
    theta: np.ndarray,
    start: Policy,
    goal: SamplingGoal,
    against: bool = False,
) -> Policy | None:
    """The policy that lowers the variance of the value fastest; if ``against``, that of V* − V^start.

    None if there is no gradient, or if plays might never end: in a model with cycles whose
    environment has no time limit.

    theta : (d,) point estimate
    start : where policy iteration begins
    against : aim at V* − V^start at the estimate; at V* where they do not differ
    """
    pmdp = relaxation.pmdp
    weights = slopes(pmdp, theta)
    if start.rows is None or weights is None:
        return None
    problem, frame = Problem.of(relaxation, objective, Nature.COOPERATIVE, None), point_frame(pmdp, theta)
    plays = Episodes.of(problem, frame, goal.limit)
    gradient = None if plays is None else optimum_gradient(problem, frame, start)
    if against and gradient is not None:
        other = value_gradient(problem, frame, start, start)
        if other is not None and np.abs(gradient - other).max() > NO_DIFFERENCE * np.abs(gradient).max():
            gradient = gradient - other
    if plays is None or gradient is None:
        return None
    # One observation spread over all coordinates, in their own units: less than any data, but not zero.
    seen = fisher_information(pmdp, counts.successes, theta)
    seen += np.diag(np.maximum(np.diag(seen), 1.0)) / max(counts.total, 1.0)
    return design(plays, RowInformation(pmdp, theta, weights, gradient), seen, goal)


def optimum_gradient(problem: Problem, frame: Frame, start: Policy) -> np.ndarray | None:
    """(n,) gradient of the optimal value at a point, in the initial state; None if it takes too much memory."""
    return value_gradient(problem, frame, None, start)


def value_gradient(problem: Problem, frame: Frame, policy: Policy | None, start: Policy) -> np.ndarray | None:
    """(n,) gradient of a policy's value; without a policy that of the best one, searched from ``start``."""
    steps, first = problem.objective.horizon or 0, problem.pmdp.initial_state
    if steps * problem.pmdp.num_states * frame.dimension > GRADIENTS:
        return None
    found = expansion_of(problem, frame, policy, start)
    return None if found is None else found.gradient[..., first, :].reshape(-1, frame.dimension)[-1]


def design(plays: Episodes, information: RowInformation, seen: np.ndarray, goal: SamplingGoal) -> Policy | None:
    """The memoryless policy with the best visits given the information ``seen`` (n, n), by Frank–Wolfe."""
    pmdp = plays.problem.pmdp
    step = np.where(pmdp.is_silent[pmdp.row_state], 0.0, 1.0) if goal.per_step else np.zeros(pmdp.num_rows)
    c, price, rules, share = information.wanted(seen), 0.0, np.zeros((0, 0)), np.zeros(0)
    vertices: list[np.ndarray] = []
    matrices: list[np.ndarray] = []
    for _ in range(int(np.clip(WORK // pmdp.num_transitions, 2, VERTICES))):
        rate = information.rates(c)
        if not np.isfinite(rate).all() or rate.max(initial=0.0) <= 0.0:
            break
        if goal.per_step and vertices:
            price = max(float(rate @ v) for v in vertices)
        rules = plays.best(rate - price * step)
        visits = plays.visits(rules)
        visits /= max(visits @ step, 1e-300) if goal.per_step else 1.0
        gain = float(rate @ visits)
        if vertices and gain <= (1.0 + CLOSE) * float(share @ [rate @ v for v in vertices]):
            break
        vertices.append(visits)
        matrices.append(goal.amount * information.of(visits))
        share = np.append(share, 1.0 / len(vertices))
        share /= share.sum()
        c = information.wanted(seen + np.tensordot(share, matrices, 1))
        for _ in range(WEIGHT_STEPS if len(vertices) > 1 else 0):
            share *= np.sqrt(np.asarray(matrices) @ c @ c)
            share /= share.sum()
            c = information.wanted(seen + np.tensordot(share, matrices, 1))
    if not vertices:
        return None
    return _memoryless(pmdp, np.tensordot(share, vertices, 1), rules[-1])


def _memoryless(pmdp: ParametricMDP, visits: np.ndarray, rows: np.ndarray) -> Policy:
    """The policy with these visits (R,); it plays ``rows`` (S,) in states without visits."""
    total = np.add.reduceat(visits, pmdp.state_ptr[:-1])
    weights = visits / np.where(total > 0.0, total, 1.0)[pmdp.row_state]
    weights[rows[total <= 0.0]] = 1.0
    return Policy.randomised(weights)
