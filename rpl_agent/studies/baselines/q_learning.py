"""Tabular Q-learning, ε-greedy with ε decaying over the budget: the model-free baseline."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rpl_agent.agent.world.plays import gains
from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Policy, Sense
from rpl_agent.core.model.simulate import sampling_world
from rpl_agent.core.native import core
from rpl_agent.studies.baselines.base import Baseline


class QLearning(Baseline):
    """Q(s,a) ← Q + α_n (r + max Q(s') − Q), with α_n = n^−ω for the n-th visit (Even-Dar and Mansour 2003).

    Knows only the enabled actions, not a transition model. Rewards are +1 on entering a target (reachability),
    the reward, or minus the cost. Episodes cut by the time limit bootstrap from their last state.

    epsilon_min : final exploration rate.
    exploration : share of the budget over which ε falls linearly from 1 to epsilon_min.
    omega : ω in (0.5, 1], the exponent of the learning rate; a smaller one forgets early targets faster.
    """

    name: ClassVar[str] = "q-learning"

    def __init__(
        self,
        *,
        epsilon_min: float = 0.05,
        exploration: float = 0.5,
        omega: float = 0.75,
        **common: Any,
    ):
        super().__init__(**common)
        if not 0 <= epsilon_min <= 1:
            raise ModelError(f"epsilon_min {epsilon_min} is outside [0, 1]")
        if not 0 < exploration <= 1:
            raise ModelError(f"exploration {exploration} is outside (0, 1]")
        if not 0.5 < omega <= 1:
            raise ModelError(f"omega {omega} is outside (0.5, 1]")
        self.epsilon_min, self.exploration, self.omega = epsilon_min, exploration, omega

    def _reset(self) -> None:
        pmdp = self.world.pmdp
        task = self._task = self.world.objective.resolve(pmdp)
        self.q = np.zeros(pmdp.num_rows)
        self.visits = np.zeros(pmdp.num_rows, dtype=np.int64)
        sign = 1.0 if task.objective.sense is Sense.MAX else -1.0
        self._reward = sign * task.reward
        self._bonus = sign * task.criterion.at_target * task.target
        self._discount = task.objective.discount  # for compiled episodes, in which silent states take a step
        self._gain = sign * gains(pmdp, task)

    @property
    def _decay(self) -> float:
        return max(1.0, self.exploration * self.planned_episodes)

    def _learn_until(self, episodes: int) -> None:
        simulator = self._stream.simulator
        if simulator is None:
            while self.num_episodes < episodes:
                self._step_episode()
            return
        world = sampling_world(self.world.pmdp, simulator.cumulative, self._reward, self._bonus, simulator.stop)
        how = core.Learning(decay=self._decay, epsilon_min=self.epsilon_min, omega=self.omega, discount=self._discount)
        new = episodes - self.num_episodes
        self.num_timesteps += core.q_episodes(
            world,
            how,
            self._task.decided,
            simulator.max_steps,
            self.num_episodes,
            new,
            simulator.state,
            self.q,
            self.visits,
        )
        self.num_episodes = episodes

    def _step_episode(self) -> None:
        """Play one episode through the environment's ``step``, then update Q in the order of the steps."""
        pmdp, decided, discount = self.world.pmdp, self._task.decided, self.world.objective.discount
        epsilon = max(self.epsilon_min, 1.0 - self.num_episodes / self._decay)
        trace = self.experience.record()
        self._sample(self._explore(epsilon), 1)
        for transition in trace:
            row, following = int(pmdp.transition_row[transition]), int(pmdp.visible_successor[transition])
            goal = self._gain[transition]
            if not decided[following]:
                low, high = pmdp.state_ptr[following], pmdp.state_ptr[following + 1]
                goal += discount * self.q[low:high].max()
            self.visits[row] += 1
            self.q[row] += float(self.visits[row]) ** -self.omega * (goal - self.q[row])

    def _explore(self, epsilon: float) -> Policy:
        """ε-greedy: uniform over the enabled actions with probability ε."""
        sizes = np.diff(self.world.pmdp.state_ptr)
        weights = np.repeat(epsilon / sizes, sizes)
        weights[self.policy.rows] += 1.0 - epsilon
        return Policy.randomised(weights)

    @property
    def policy(self) -> Policy:
        pmdp = self.world.pmdp
        best = np.maximum.reduceat(self.q, pmdp.state_ptr[:-1])
        is_best = self.q == best[pmdp.row_state]
        first = np.minimum.reduceat(np.where(is_best, np.arange(pmdp.num_rows), pmdp.num_rows), pmdp.state_ptr[:-1])
        return Policy.deterministic(first)

    def _arrays(self) -> dict[str, np.ndarray]:
        return {"q": self.q, "visits": self.visits}

    def _set_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        self.q[:] = arrays["q"]
        self.visits[:] = arrays["visits"]
