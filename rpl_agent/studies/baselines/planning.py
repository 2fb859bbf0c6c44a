"""Learners that plan in a model of their counts: R-MAX, UCRL2, UCBVI, PSRL and certainty equivalence.

All of them know the support graph of the model (which successors a row has), its rewards and its objective;
only structured certainty equivalence uses the expressions on the transitions. Knowing the support is more
than the original algorithms assume and only helps them: with S successors replaced by the few of a row, their
confidence sets shrink, and an unknown row is worth its best successor instead of a global maximum.

Symbols: N (R,) visits of a row, n (T,) visits of a transition, p̂ = n / N.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import ParametricMDP, Policy, Sense, Task
from rpl_agent.core.native import core
from rpl_agent.core.solver.graph import model_graph
from rpl_agent.guarantee.likelihood.estimate import point_estimate
from rpl_agent.studies.baselines.base import Baseline

#: Planning stops when no value moves by more than this, relative to the largest value: far below sampling noise.
TOLERANCE = 1e-6
MAX_SWEEPS = 20_000


def sweep_order(pmdp: ParametricMDP) -> np.ndarray:
    """(S,) states, successors first: without cycles, values move from the end to the start in one sweep."""
    return model_graph(pmdp).components(np.zeros(pmdp.num_states, dtype=bool))[0]


class TabularPlanner:
    """Value iteration over one skeleton and task, from given row distributions, L1 radii and bonuses.

    Undiscounted objectives are iterated from 0, which gives the least fixed point: the value, for
    rewards ≥ 0 and for costs > 0. If the fixed point is unique (a discount, or costs > 0 everywhere) a plan may
    start from the values of an earlier one.
    """

    def __init__(self, pmdp: ParametricMDP, task: Task):
        self.pmdp, self.task = pmdp, task
        self.maximise = task.objective.sense is Sense.MAX
        self._task = core.PlanningTask(
            states=pmdp.num_states,
            state_ptr=pmdp.state_ptr,
            row_ptr=pmdp.row_ptr,
            successor=pmdp.successor,
            order=sweep_order(pmdp),
            decided=task.decided,
            reward=task.reward,
            discount=task.objective.discount,
            maximise=self.maximise,
        )
        self._work = np.empty(int(np.diff(pmdp.row_ptr).max()))
        self.start = np.zeros(pmdp.num_states)
        self.start[task.target] = task.criterion.at_target
        self.zero = np.zeros(pmdp.num_rows)
        costs = task.reward[~task.decided[pmdp.row_state]]
        positive = task.criterion.pays and not self.maximise and bool((costs > 0).all())
        self.any_start = task.criterion.contracts or positive

    def plan(
        self,
        probability: np.ndarray,
        radius: np.ndarray | None = None,
        bonus: np.ndarray | None = None,
        warm: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Policy]:
        """Optimistic values (S,) and the greedy policy; probability (T,), radius and bonus (R,), warm (S,)."""
        values = (warm if warm is not None and self.any_start else self.start).copy()
        rows = np.zeros(self.pmdp.num_states, dtype=np.int64)
        radius, bonus = self.zero if radius is None else radius, self.zero if bonus is None else bonus
        core.plan_optimistically(
            self._task, probability, radius, bonus, TOLERANCE, MAX_SWEEPS, self._work, values, rows
        )
        return values, Policy.deterministic(rows)


class ModelBased(Baseline):
    """Count transitions under the current sampling policy until some row's count has doubled, then plan again.

    recommend : the result of `policy` and `predict`: ``"greedy"`` (default), the optimal policy of the
        estimated model, which is the better answer once sampling ends, or ``"sampling"``, the policy that explores.
    prior : pseudo-count spread evenly over a row's successors in the estimated model.
    """

    def __init__(self, *, recommend: str = "greedy", prior: float = 0.1, **common: Any):
        super().__init__(**common)
        if recommend not in ("greedy", "sampling"):
            raise ModelError(f"recommend {recommend!r} is neither 'greedy' nor 'sampling'")
        if prior <= 0:
            raise ModelError(f"prior {prior} must be positive: an untried row still needs a distribution")
        self.recommend = recommend
        self.prior = prior

    def _reset(self) -> None:
        pmdp = self.world.pmdp
        self.planner = TabularPlanner(pmdp, self.world.objective.resolve(pmdp))
        self._limit = np.ones(pmdp.num_rows, dtype=np.int64)
        self._sampling: Policy | None = None
        self._values = self.planner.start.copy()  # of the last plan for sampling
        self._estimated = self.planner.start.copy()  # of the last plan in the estimated model
        self._until = 0  # renew the sampling policy after at most this many episodes
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
            self._estimated, policy = self.planner.plan(self.estimate(), warm=self._estimated)
            self._greedy = (self.num_timesteps, policy)
        return self._greedy[1]

    def _planned(
        self, probability: np.ndarray, radius: np.ndarray | None = None, bonus: np.ndarray | None = None
    ) -> Policy:
        """The policy of a sampling plan, warm-started from the previous one."""
        self._values, policy = self.planner.plan(probability, radius, bonus, warm=self._values)
        return policy

    def estimate(self) -> np.ndarray:
        """(T,) estimated probabilities: relative frequencies with a small uniform prior."""
        row_ptr, row = self.world.pmdp.row_ptr, self.world.pmdp.transition_row
        size = np.diff(row_ptr)[row]
        return (self.transition_count + self.prior / size) / (self.row_count[row] + self.prior)

    def frequencies(self) -> np.ndarray:
        """(T,) relative frequencies p̂; uniform over the successors if a row was never tried."""
        row_ptr, row = self.world.pmdp.row_ptr, self.world.pmdp.transition_row
        tried = self.row_count[row] > 0
        return np.where(tried, self.transition_count / np.maximum(1, self.row_count[row]), 1.0 / np.diff(row_ptr)[row])

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays: dict[str, np.ndarray] = {
            "limit": self._limit,
            "until": np.array(self._until),
            "values": self._values,
        }
        if self._sampling is not None:
            arrays["sampling"] = self._sampling.as_weights(self.world.pmdp)
        return arrays

    def _set_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        self._limit = arrays["limit"].copy()
        self._until = int(arrays["until"])
        self._values = arrays["values"].copy()
        self._sampling = Policy.randomised(arrays["sampling"]) if "sampling" in arrays else None
        self._greedy = None


class RMax(ModelBased):
    """R-MAX (Brafman and Tennenholtz 2002) for total rewards and reachability.

    A row is known after ``known_after`` visits, then used at its frequencies; until then it is as good as possible.

    "As good as possible" is the value of the row's best successor: the support graph is known, so it can replace the
    original's global maximum. Replans when rows become known or double, not in between.
    """

    name: ClassVar[str] = "rmax"

    def __init__(self, *, known_after: int = 20, **common: Any):
        super().__init__(**common)
        if known_after < 1:
            raise ModelError(f"known_after {known_after} must be at least 1")
        self.known_after = known_after

    def _explore(self) -> Policy:
        unknown = self.row_count < self.known_after
        radius = np.where(unknown, 2.0, 0.0)  # radius 2 is the whole simplex over the support
        return self._planned(self.frequencies(), radius=radius)


class UCRL2(ModelBased):
    """UCRL2 (Jaksch, Ortner and Auer 2010): optimism over L1 balls, by extended value iteration.

    Plan in the best model within ‖p − p̂‖₁ ≤ sqrt(14 m ln(2 R t / δ) / N), until a row's count doubles.

    The radius is the original's with the number S of states replaced by the number m of successors of the
    row (the support graph is known), SA by the number R of rows, t the steps so far. Rewards are known. The
    objective is the episodes' total value instead of the average reward: extended value iteration is the same.
    """

    name: ClassVar[str] = "ucrl2"

    def __init__(self, *, delta: float = 0.05, **common: Any):
        super().__init__(**common)
        if not 0 < delta < 1:
            raise ModelError(f"delta {delta} is outside (0, 1)")
        self.delta = delta

    def radius(self) -> np.ndarray:
        """(R,) L1 radii; zero for a row with one successor."""
        pmdp = self.world.pmdp
        successors = np.diff(pmdp.row_ptr)
        log = np.log(2.0 * pmdp.num_rows * max(1, self.num_timesteps) / self.delta)
        return np.where(successors > 1, np.sqrt(14.0 * successors * log / np.maximum(1, self.row_count)), 0.0)

    def _explore(self) -> Policy:
        return self._planned(self.frequencies(), radius=self.radius())


class UCBVI(ModelBased):
    """UCBVI (Azar, Osband and Munos 2017) with Hoeffding bonuses, for total rewards and reachability.

    Plan in the empirical model with the bonus  c · range · sqrt(ln(2 R t / δ) / (2 N)),  until a row doubles.

    The total-reward analogue: the original's horizon H bounds every value of a successor; here the range of the
    current optimistic values over the row's successors takes its place (the support is known, so p̂·V cannot be
    further from p·V than Hoeffding allows on that range), and a bonus never exceeds the best successor.
    """

    name: ClassVar[str] = "ucbvi"

    def __init__(self, *, delta: float = 0.05, scale: float = 1.0, **common: Any):
        super().__init__(**common)
        if not 0 < delta < 1:
            raise ModelError(f"delta {delta} is outside (0, 1)")
        if scale <= 0:
            raise ModelError(f"scale {scale} must be positive")
        self.delta = delta
        self.scale = scale

    def bonus(self) -> np.ndarray:
        """(R,) bonuses per unit of range; an untried row gets the best successor."""
        log = np.log(2.0 * self.world.pmdp.num_rows * max(1, self.num_timesteps) / self.delta)
        width = self.scale * np.sqrt(log / (2.0 * np.maximum(1, self.row_count)))
        return np.where(self.row_count > 0, width, 1.0)

    def _explore(self) -> Policy:
        return self._planned(self.frequencies(), bonus=self.bonus())


class PSRL(ModelBased):
    """PSRL (Osband, Russo and Van Roy 2013): sample a model from the posterior, act optimally in it.

    An independent Dirichlet posterior per row over its (known) successors.

    Draws a new sample whenever a row's count doubles, and after at most k episodes for the k-th sample (the rule of
    Ouyang et al. 2017): far fewer plans than one per episode, but samples without end.

    ``concentration`` is the prior's pseudo-count per successor (1 is uniform over the simplex).
    """

    name: ClassVar[str] = "psrl"

    def __init__(self, *, concentration: float = 1.0, **common: Any):
        super().__init__(**common)
        if concentration <= 0:
            raise ModelError(f"concentration {concentration} must be positive")
        self.concentration = concentration

    def sample(self) -> np.ndarray:
        """(T,) probabilities drawn from the posterior: normalised gammas."""
        pmdp = self.world.pmdp
        draws = self._rng.standard_gamma(self.transition_count + self.concentration)
        draws = np.maximum(draws, 1e-300)  # a tiny concentration can underflow; a row must keep mass
        return draws / np.add.reduceat(draws, pmdp.row_ptr[:-1])[pmdp.transition_row]

    def _patience(self) -> int:
        return max(1, self.num_updates)

    def _explore(self) -> Policy:
        return self._planned(self.sample())


#: Pseudo-observations per bound of the domain: enough to stay inside, too few to matter.
FAINT_BARRIER = 1e-6


class CertaintyEquivalence(ModelBased):
    """Greedy in the estimated model, with the agent's own share of exploration.

    structured : estimate θ jointly from all transitions through the known expressions (maximum likelihood over
        the domain); otherwise one frequency per transition, over the known support.
    weight : probability of the greedy action while sampling; the rest is spread over the others.
    """

    name: ClassVar[str] = "certainty-equivalence"

    def __init__(self, *, structured: bool = False, weight: float = 0.9, **common: Any):
        super().__init__(**common)
        if not 0 <= weight <= 1:
            raise ModelError(f"weight {weight} is outside [0, 1]")
        self.structured = structured
        self.weight = weight
        self._theta: tuple[int, np.ndarray] | None = None

    @property
    def theta(self) -> np.ndarray:
        """(d,) maximum-likelihood parameters."""
        if self._theta is None or self._theta[0] != self.num_timesteps:
            start = None if self._theta is None else self._theta[1]
            pmdp, found = self.world.pmdp, None if self.world.pmdp.num_parameters else np.zeros(0)
            if pmdp.num_parameters:
                found = point_estimate(pmdp, self.experience.counts, start, FAINT_BARRIER)
            if found is None:
                raise ModelError(f"structured: {pmdp!r} has more parameters than can be estimated jointly")
            self._theta = (self.num_timesteps, found)
        return self._theta[1]

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays = super()._arrays()
        if self._theta is not None:
            arrays |= {"theta": self._theta[1], "theta_at": np.array(self._theta[0])}
        return arrays

    def _set_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        super()._set_arrays(arrays)
        self._theta = (int(arrays["theta_at"]), arrays["theta"]) if "theta" in arrays else None

    def estimate(self) -> np.ndarray:
        if not self.structured:
            return super().estimate()
        pmdp = self.world.pmdp
        probability = np.clip(pmdp.table.at(self.theta), 0.0, 1.0)[pmdp.expression]
        return probability / np.add.reduceat(probability, pmdp.row_ptr[:-1])[pmdp.transition_row]

    def _explore(self) -> Policy:
        return self._planned(self.estimate()).mixed(self.world.pmdp, self.weight)
