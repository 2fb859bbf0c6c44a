"""The compiled simulator: many episodes under a memoryless policy, returning transition counts.

Same law as stepping an environment, far faster. Its random state is four integers that can be stored,
so a resumed run draws exactly what an uninterrupted one would have drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent.errors import ModelError
from rpl_agent.model._random import cumulate, run_episodes, seed_state
from rpl_agent.model.pmdp import MDP
from rpl_agent.model.policy import Policy

NO_LIMIT = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Batch:
    """What a call of `Simulator.run` did."""

    episodes: int
    steps: int
    returns: np.ndarray  # (episodes,)
    lengths: np.ndarray  # (episodes,)
    stopped: bool  # a count reached its limit
    cut: int = 0  # episodes that ended by max_steps and in no stop state


class Simulator:
    """Draws episodes of an MDP from its initial state.

    Parameters
    ----------
    stop : (S,) bool, states where an episode ends (absorbing or decided).
    max_steps : an episode is cut after so many steps.
    reward : (R,) float, summed into returns (default: none).
    arrival : (S,) float, added to the return of an episode that ends in a stop state (default: none).

    The MDP is private: whoever learns from a simulator may call `run` and must not see the parameters.
    """

    def __init__(
        self,
        mdp: MDP,
        stop: np.ndarray,
        max_steps: int,
        seed: int = 0,
        reward: np.ndarray | None = None,
        arrival: np.ndarray | None = None,
    ):
        pmdp = mdp.pmdp
        if np.shape(stop) != (pmdp.num_states,):
            raise ModelError(f"stop has shape {np.shape(stop)}, the model {pmdp.num_states} states")
        if max_steps < 1:
            raise ModelError(f"max_steps {max_steps} must be at least 1")
        self._mdp = mdp
        self.pmdp = pmdp
        self.stop = np.asarray(stop, dtype=bool)
        self.max_steps = int(max_steps)
        self.reward = np.zeros(pmdp.num_rows) if reward is None else np.asarray(reward, dtype=float)
        self.arrival = np.zeros(pmdp.num_states) if arrival is None else np.asarray(arrival, dtype=float)
        self.state = seed_state(np.uint64(seed % 2**64))
        self._cumulative = np.empty(pmdp.num_transitions)
        cumulate(pmdp.row_ptr, mdp.probability, self._cumulative)
        self._policy: Policy | None = None
        self._policy_cumulative = np.empty(pmdp.num_rows)

    def run(
        self,
        policy: Policy,
        episodes: int,
        counts: np.ndarray | None = None,
        row_limit: np.ndarray | None = None,
        expression_limit: np.ndarray | None = None,
        row_count: np.ndarray | None = None,
        expression_count: np.ndarray | None = None,
    ) -> Batch:
        """Simulate, adding to ``counts`` (T,) int64 in place.

        ``row_limit`` (R,) / ``expression_limit`` (F,): stop after the episode in which some visit count reaches
        its limit; ``row_count`` / ``expression_count`` are running visit counts, updated in place.
        """
        pmdp = self.pmdp
        if policy is not self._policy:
            policy.check(pmdp)
            cumulate(pmdp.state_ptr, policy.as_weights(pmdp), self._policy_cumulative)
            self._policy = policy
        if counts is None:
            counts = np.zeros(pmdp.num_transitions, dtype=np.int64)
        if row_limit is not None and row_count is None:
            row_count = np.zeros(pmdp.num_rows, dtype=np.int64)
        if expression_limit is not None and expression_count is None:
            expression_count = np.zeros(pmdp.num_expressions, dtype=np.int64)
        returns, lengths = np.empty(episodes), np.empty(episodes, dtype=np.int64)
        done, stopped, cut = run_episodes(
            pmdp.state_ptr, pmdp.row_ptr, pmdp.successor, pmdp.expression, self._policy_cumulative, self._cumulative,
            self.reward, self.arrival, self.stop, pmdp.is_silent, pmdp.initial_state, self.max_steps, episodes,
            self.state, counts,
            NO_LIMIT if row_count is None else row_count, NO_LIMIT if row_limit is None else row_limit,
            NO_LIMIT if expression_count is None else expression_count,
            NO_LIMIT if expression_limit is None else expression_limit, returns, lengths,
        )  # fmt: skip
        lengths = lengths[:done]
        return Batch(done, int(lengths.sum()), returns[:done], lengths, stopped, cut)
