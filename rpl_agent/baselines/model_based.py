"""What R-MAX, UCRL2, UCBVI, PSRL and certainty equivalence share: count, replan on doubling, sample.

All of them know the support graph of the model (which successors a row has), its rewards and its objective;
none but structured certainty equivalence uses the expressions on the transitions. Knowing the support is more
than the original algorithms assume and only helps them: with S successors replaced by the few a row has, their
confidence sets shrink, and an unknown row is worth its best successor instead of a global maximum.

Symbols: N (R,) visits of a row, n (T,) visits of a transition, p̂ = n / N.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from rpl_agent._core import core
from rpl_agent.baselines.base import Baseline
from rpl_agent.errors import ModelError
from rpl_agent.model import Kind, ParametricMDP, Policy, Sense, Task

#: Planning stops when no value moves by more than this, relative to the largest value: far below sampling noise.
TOLERANCE = 1e-6
MAX_SWEEPS = 20_000


class Plan(NamedTuple):
    values: np.ndarray  # (S,)
    rows: np.ndarray  # (S,)
    sweeps: int


def sweep_order(pmdp: ParametricMDP) -> np.ndarray:
    """(S,) states in depth-first postorder: without cycles, values move from the end to the start in one sweep."""
    n, order = pmdp.num_states, np.empty(pmdp.num_states, dtype=np.int64)
    core.postorder(
        n, pmdp.state_ptr, pmdp.row_ptr, pmdp.successor, pmdp.initial_state, np.empty(2 * n, dtype=np.int64),
        np.zeros(n, dtype=bool), order,
    )  # fmt: skip
    return order


class TabularPlanner:
    """Value iteration over one skeleton and task, from given row distributions, L1 radii and bonuses.

    Undiscounted objectives are iterated from 0, which gives the least fixed point: the value, for
    rewards ≥ 0 and for costs > 0. Where the fixed point is unique (a discount, or costs > 0 everywhere) a plan may
    start from an earlier one's values.
    """

    def __init__(self, pmdp: ParametricMDP, task: Task):
        self.pmdp, self.task = pmdp, task
        self.maximise = task.objective.sense is Sense.MAX
        self._task = core.PlanningTask(
            states=pmdp.num_states, state_ptr=pmdp.state_ptr, row_ptr=pmdp.row_ptr, successor=pmdp.successor,
            order=sweep_order(pmdp), decided=task.decided, reward=task.reward, discount=task.objective.discount,
            maximise=self.maximise,
        )  # fmt: skip
        self._work = np.empty(int(np.diff(pmdp.row_ptr).max()))
        self.start = np.zeros(pmdp.num_states)
        if task.objective.kind is Kind.REACH:
            self.start[task.target] = 1.0
        self.zero = np.zeros(pmdp.num_rows)
        costs = task.reward[~task.decided[pmdp.row_state]]
        positive = task.objective.kind is Kind.REWARD and not self.maximise and bool((costs > 0).all())
        self.any_start = task.objective.discount < 1 or positive

    def plan(
        self,
        probability: np.ndarray,
        radius: np.ndarray | None = None,
        bonus: np.ndarray | None = None,
        warm: np.ndarray | None = None,
    ) -> Plan:
        """Optimistic values and the greedy policy; probability (T,), radius and bonus (R,), warm (S,)."""
        values = (warm if warm is not None and self.any_start else self.start).copy()
        rows = np.zeros(self.pmdp.num_states, dtype=np.int64)
        radius, bonus = self.zero if radius is None else radius, self.zero if bonus is None else bonus
        sweeps = core.plan_optimistically(
            self._task, probability, radius, bonus, TOLERANCE, MAX_SWEEPS, self._work, values, rows
        )
        return Plan(values, rows, sweeps)


class ModelBased(Baseline):
    """Count transitions under the current sampling policy until some row's count has doubled, then plan again.

    Parameters
    ----------
    recommend : what `policy` and `predict` give: ``"greedy"`` (default), the optimal policy of the
        estimated model, which is the better answer once sampling ends, or ``"sampling"``, the policy that explores.
    prior : pseudo-count spread evenly over a row's successors in the estimated model.
    """

    def __init__(self, *, recommend: str = "greedy", prior: float = 0.1, **common: Any):
        super().__init__(**common)
        if recommend not in ("greedy", "sampling"):
            raise ModelError(f"recommend {recommend!r} is neither 'greedy' nor 'sampling'")
        if prior <= 0:
            raise ModelError(f"prior {prior} must be positive: a row never tried still needs a distribution")
        self.recommend = recommend
        self.prior = prior

    def _reset(self) -> None:
        pmdp = self.world.pmdp
        self.planner = TabularPlanner(pmdp, self.world.objective.resolve(pmdp))
        self._limit = np.ones(pmdp.num_rows, dtype=np.int64)
        self._sampling: Policy | None = None
        self._values = self.planner.start.copy()  # of the last plan for sampling
        self._estimated = self.planner.start.copy()  # of the last plan in the estimated model
        self._until = 0  # number of episodes at which the sampling policy is renewed at the latest
        self._greedy: tuple[int, Policy] | None = None

    @property
    def transition_count(self) -> np.ndarray:
        """(T,) observations of every transition."""
        return self.experience.counts.transitions

    @property
    def row_count(self) -> np.ndarray:
        """(R,) visits of every state-action pair."""
        return self.experience.rows

    def _learn_until(self, episodes: int) -> None:
        while self.num_episodes < episodes:
            if self._sampling is None:
                self._sampling = self._explore()
                self.num_updates += 1
                self._limit = np.maximum(1, 2 * self.row_count)
                self._until = self.num_episodes + self._patience()
            self._sample(self._sampling, min(episodes, self._until) - self.num_episodes, self._limit)
            if self.num_episodes >= self._until or (self.row_count >= self._limit).any():
                self._sampling = None

    def _patience(self) -> int:
        """Episodes after which to renew the sampling policy even if no count has doubled."""
        return sys.maxsize // 2

    @abstractmethod
    def _explore(self) -> Policy:
        """The policy to sample with, from the counts so far."""

    @property
    def policy(self) -> Policy:
        if self._world is None:
            raise ModelError("no environment yet: call learn or set_env first")
        if self.recommend == "sampling" and self._sampling is not None:
            return self._sampling
        if self._greedy is None or self._greedy[0] != self.num_timesteps:
            plan = self.planner.plan(self.estimate(), warm=self._estimated)
            self._estimated = plan.values
            self._greedy = (self.num_timesteps, Policy.deterministic(plan.rows))
        return self._greedy[1]

    def _planned(
        self, probability: np.ndarray, radius: np.ndarray | None = None, bonus: np.ndarray | None = None
    ) -> Policy:
        """The policy of a plan for sampling, which starts from the one before."""
        plan = self.planner.plan(probability, radius, bonus, warm=self._values)
        self._values = plan.values
        return Policy.deterministic(plan.rows)

    def estimate(self) -> np.ndarray:
        """(T,) estimated probabilities: relative frequencies with a small even prior."""
        row_ptr, row = self.world.pmdp.row_ptr, self.world.pmdp.transition_row
        size = np.diff(row_ptr)[row]
        return (self.transition_count + self.prior / size) / (self.row_count[row] + self.prior)

    def frequencies(self) -> np.ndarray:
        """(T,) relative frequencies p̂; even over the successors where a row was never tried."""
        row_ptr, row = self.world.pmdp.row_ptr, self.world.pmdp.transition_row
        tried = self.row_count[row] > 0
        return np.where(tried, self.transition_count / np.maximum(1, self.row_count[row]), 1.0 / np.diff(row_ptr)[row])

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays: dict[str, np.ndarray] = {
            "limit": self._limit, "until": np.array(self._until), "values": self._values,
        }  # fmt: skip
        if self._sampling is not None:
            arrays["sampling"] = self._sampling.as_weights(self.world.pmdp)
        return arrays

    def _set_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        self._limit = arrays["limit"].copy()
        self._until = int(arrays["until"])
        self._values = arrays["values"].copy()
        self._sampling = Policy.randomised(arrays["sampling"]) if "sampling" in arrays else None
        self._greedy = None
