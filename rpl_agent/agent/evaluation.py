"""How good a policy is: by Monte Carlo in an environment, and exactly where the true parameters are given.

Nothing here is called by the agent while it learns: true parameters come from whoever owns the simulator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpl_agent.agent.sampling.experience import Experience, Request, SampledBatch
from rpl_agent.agent.sampling.stream import open_source
from rpl_agent.agent.schedule import Limits
from rpl_agent.agent.world.attach import attach
from rpl_agent.errors import ModelError
from rpl_agent.model.objective import Objective
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.policy import Policy
from rpl_agent.pipeline import true_value
from rpl_agent.solver import solve_at


@dataclass(frozen=True)
class Evaluation:
    """Episodes of a policy: what the environment paid (costs are negative), and what the objective counts.

    An episode that was cut before the objective was decided counts with what it had collected until then.
    """

    returns: np.ndarray  # (n,)
    lengths: np.ndarray  # (n,)
    values: np.ndarray  # (n,)
    cut: int = 0

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def standard_error(self) -> float:
        n = len(self.returns)
        return float(self.returns.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan

    @property
    def value_error(self) -> float:
        """Standard error of the mean value."""
        n = len(self.values)
        return float(self.values.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan

    def to_dict(self) -> dict[str, float]:
        return {
            "episodes": len(self.returns),
            "mean_return": self.mean,
            "standard_error": self.standard_error,
            "mean_length": float(self.lengths.mean()),
            "mean_value": float(self.values.mean()),
            "cut": self.cut,
        }


def monte_carlo(agent: Any, env: Any, episodes: int, *, seed: int = 0, policy: Policy | None = None) -> Evaluation:
    """Episodes of a policy (default: the agent's) in ``env``, which is not used for learning."""
    if episodes < 1:
        raise ModelError(f"episodes {episodes} must be at least 1")
    policy = policy if policy is not None else agent.policy
    objective = agent.objective
    compiled = objective.horizon is None and objective.discount == 1.0  # the simulator adds up plain returns
    attachment = attach(
        env, pmdp=agent.pmdp, objective=objective, state_of=getattr(agent, "observation_to_state", None),
        compiled=compiled and agent.compiled, check_rewards=getattr(agent, "check_rewards", None),
        action_to_env=getattr(agent, "action_to_env", None), end=getattr(agent, "end", None),
    )  # fmt: skip
    done = SampledBatch()
    seeds = np.random.SeedSequence([seed, 3])
    source = open_source(
        attachment, Experience(agent.pmdp), np.random.default_rng(seeds), int(seeds.generate_state(1)[0])
    )
    source.collect(Request(policy, Limits(), pause=episodes, episodes_left=episodes), done)
    return Evaluation(np.array(done.returns), np.array(done.lengths), np.array(done.values), done.cut)


def exact_value(pmdp: ParametricMDP, objective: Objective, policy: Policy, theta: np.ndarray) -> float:
    """The value of a policy at the true parameters."""
    return true_value(pmdp, objective, policy, theta)


def optimal_value(pmdp: ParametricMDP, objective: Objective, theta: np.ndarray) -> float:
    """V* at the true parameters."""
    return solve_at(pmdp, theta, objective).middle
