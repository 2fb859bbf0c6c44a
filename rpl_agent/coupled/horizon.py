"""Finite horizons: affine functions with k steps to go, each derived from those with k − 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent._core import core
from rpl_agent.coupled.affine import AffineBound, Side, chances_of, rules_of
from rpl_agent.coupled.box_frame import BoxFrame
from rpl_agent.model import Policy, Sense
from rpl_agent.regions.frame import Frame
from rpl_agent.solver.problem import Problem
from rpl_agent.solver.solve import from_the_end

#: added per step to the excess, relative to the values
ROUNDING = 1e-14


def greedy_rules(problem: Problem, frame: Frame | BoxFrame) -> Policy:
    """The best policy at the centre of the frame, one decision rule per step."""
    pmdp, values = problem.pmdp, from_the_end(problem)
    rules = np.empty((len(values) - 1, pmdp.num_states), np.int64)
    sense = 1.0 if problem.objective.sense is Sense.MAX else -1.0
    core.greedy_steps(
        pmdp.num_states, len(rules), pmdp.state_ptr, problem.task.decided, chances_of(problem, frame), problem.reward,
        problem.gamma, sense, values, rules,
    )  # fmt: skip
    return Policy.deterministic(rules[::-1].copy())


@dataclass(frozen=True)
class StepExpansion:
    """Values (H + 1, S) and gradients (H + 1, S, r) of a policy at the centre of a frame, by steps to go."""

    problem: Problem
    frame: Frame | BoxFrame
    policy: Policy
    values: np.ndarray
    gradient: np.ndarray

    @classmethod
    def of(cls, problem: Problem, frame: Frame | BoxFrame, policy: Policy) -> StepExpansion:
        values = from_the_end(problem)
        gradient = np.zeros((*values.shape, frame.dimension))
        core.expand_steps(
            rules_of(problem, policy), problem.task.decided, chances_of(problem, frame),
            problem.reward, problem.gamma, values, gradient,
        )  # fmt: skip
        return cls(problem, frame, policy, values, gradient)

    def bound(self, side: Side, every_policy: bool) -> AffineBound:
        """A bound with these gradients, for the policy or for all, still to be checked."""
        problem, policy, r = self.problem, None if every_policy else self.policy, self.frame.dimension
        slack = np.empty_like(self.values)
        core.raise_steps(
            rules_of(problem, policy), problem.task.decided, chances_of(problem, self.frame), problem.reward,
            problem.gamma, side.value, ROUNDING, self.values, self.gradient, slack, np.empty_like(slack),
            np.empty(2 * r + 2 * r * r),
        )  # fmt: skip
        return AffineBound(side, policy, self.frame, self.values, self.gradient, slack, ~problem.task.decided)
