"""The compiled simulator: transition counts of many episodes under a memoryless policy, and expected visits.

It follows the law of the environment and is far faster. Its random state is four integers that can be stored,
so a resumed run draws exactly what an uninterrupted one would have drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model.csr import gather
from rpl_agent.core.model.pmdp import MDP, ParametricMDP
from rpl_agent.core.model.policy import Policy
from rpl_agent.core.native import Struct, core

#: stop following plays when the probability of continuing falls below this
NEGLIGIBLE = 1e-6
#: a number of steps that no episode reaches
NEVER = 2**62


def seed_state(seed: int) -> np.ndarray:
    """(4,) uint64, the random state of a seed."""
    state = np.empty(4, dtype=np.uint64)
    core.seed_state(seed % 2**64, state)
    return state


def running_sums(pointer: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Running sums of weights within each segment; the last positive one is exactly 1."""
    sums = np.empty(len(weights))
    core.cumulate(len(pointer) - 1, pointer, weights, sums)
    return sums


def sampling_world(
    pmdp: ParametricMDP, cumulative: np.ndarray, reward: np.ndarray, arrival: np.ndarray, stop: np.ndarray
) -> Struct:
    """The arrays for compiled sampling (`world` of core.h)."""
    return core.World(
        state_ptr=pmdp.state_ptr,
        row_ptr=pmdp.row_ptr,
        successor=pmdp.successor,
        cumulative=cumulative,
        reward=reward,
        arrival=arrival,
        stop=stop,
        silent=pmdp.is_silent,
        initial=pmdp.initial_state,
    )


@dataclass(frozen=True, eq=False)
class Batch:
    """The result of `Simulator.run`."""

    episodes: int
    steps: int
    returns: np.ndarray  # (episodes,) sums of rewards
    values: np.ndarray  # (episodes,) see `Simulator.set_worth`
    lengths: np.ndarray  # (episodes,)
    last: np.ndarray  # (episodes,) states in which they ended
    stopped: bool  # a count reached its limit


class Simulator:
    """Draws episodes of an MDP from its initial state.

    stop : (S,) bool, states where an episode ends (absorbing or decided).
    max_steps : an episode is cut after this many steps.
    reward : (R,) float, summed into returns (default: none).
    arrival : (S,) float, added to the return of an episode that ends in a stop state (default: none).

    The MDP is private: a learner may call `run` but must not see the parameters.

    >>> import numpy as np, rpl_envs
    >>> world = rpl_envs.benchmark("Betting-25")
    >>> stop = world.objective.resolve(world.pmdp).decided
    >>> simulator = Simulator(world.pmdp.instantiate(world.theta), stop, max_steps=100, seed=0)
    >>> counts = np.zeros(world.pmdp.num_transitions, dtype=np.int64)
    >>> simulator.run(Policy.uniform(world.pmdp), 10, counts).episodes
    10
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
            raise ModelError(f"stop has shape {np.shape(stop)}, not ({pmdp.num_states},): one boolean per state")
        if max_steps < 1:
            raise ModelError(f"max_steps {max_steps} must be at least 1")
        self._mdp = mdp
        self.pmdp = pmdp
        self.stop = np.asarray(stop, dtype=bool)
        self.max_steps = int(max_steps)
        self.state = seed_state(seed)
        self.cumulative = running_sums(pmdp.row_ptr, mdp.probability)
        self._world = sampling_world(
            pmdp,
            self.cumulative,
            _numbers("reward", reward, pmdp.num_rows),
            _numbers("arrival", arrival, pmdp.num_states),
            self.stop,
        )
        self.set_worth(None, 1.0, None)
        self._policy: Policy | None = None
        self._policy_sums = np.empty(pmdp.num_rows)

    def set_worth(self, gain: np.ndarray | None, discount: float, horizon: int | None) -> None:
        """Set what an episode is worth: discounted gains (T,) of transitions, or its rewards, in ``horizon`` steps."""
        gain = None if gain is None else _numbers("gain", gain, self.pmdp.num_transitions)
        self._worth = core.Worth(gain=gain, discount=discount, horizon=NEVER if horizon is None else horizon)

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
            policy.require_fit(pmdp)
            self._policy_sums = running_sums(pmdp.state_ptr, policy.as_weights(pmdp))
            self._policy = policy
        if counts is None:
            counts = np.zeros(pmdp.num_transitions, dtype=np.int64)
        if row_limit is not None and row_count is None:
            row_count = np.zeros(pmdp.num_rows, dtype=np.int64)
        if expression_limit is not None and expression_count is None:
            expression_count = np.zeros(pmdp.num_expressions, dtype=np.int64)
        limits = core.Limits(
            row_count=row_count,
            row_limit=row_limit,
            expression=pmdp.expression,
            expression_count=expression_count,
            expression_limit=expression_limit,
        )
        returns, values, stopped = np.empty(episodes), np.empty(episodes), np.zeros(1, dtype=bool)
        lengths, last = np.empty(episodes, dtype=np.int64), np.empty(episodes, dtype=np.int64)
        done = core.run_episodes(
            self._world,
            self._policy_sums,
            self.max_steps,
            episodes,
            self.state,
            counts,
            limits,
            self._worth,
            returns,
            values,
            lengths,
            last,
            stopped,
        )
        parts = returns[:done], values[:done], lengths[:done], last[:done]
        return Batch(done, int(lengths[:done].sum()), *parts, bool(stopped[0]))


def row_visits(mdp: MDP, policy: Policy, steps: int, stop: np.ndarray) -> np.ndarray:
    """(R,) expected number of times each row is taken in the first steps of a play.

    stop : (S,) bool, states where plays end; their rows count once.
    """
    pmdp = mdp.pmdp
    if policy.rows is None or policy.rows.ndim == 1:
        weights = policy.as_weights(pmdp)
        return _state_visits(mdp, weights, steps, stop)[pmdp.row_state] * weights
    size = (pmdp.num_rows, pmdp.num_states)
    move = scipy.sparse.csr_matrix((mdp.probability, pmdp.successor, pmdp.row_ptr), shape=size).T.tocsr()
    mass, visits, ends = np.zeros(pmdp.num_states), np.zeros(pmdp.num_rows), stop[pmdp.row_state]
    mass[pmdp.initial_state] = 1.0
    for step in range(steps):
        rows = mass[pmdp.row_state] * policy.at(step).as_weights(pmdp)
        visits += rows
        mass = move @ np.where(ends, 0.0, rows)
        if mass.sum() < NEGLIGIBLE:
            break
    return visits


def _state_visits(mdp: MDP, weights: np.ndarray, steps: int, stop: np.ndarray) -> np.ndarray:
    """(S,) expected number of visits in the first steps of a play by weights (R,), by the chain of its rows."""
    pmdp = mdp.pmdp
    played = np.flatnonzero((weights > 0.0) & ~stop[pmdp.row_state])
    each, _ = gather(pmdp.row_ptr, played)
    lengths = np.diff(pmdp.row_ptr)[played]
    chances = mdp.probability[each] * np.repeat(weights[played], lengths)
    places = pmdp.successor[each], np.repeat(pmdp.row_state[played], lengths)
    move = scipy.sparse.csr_matrix((chances, places), shape=(pmdp.num_states, pmdp.num_states))
    mass, visits = np.zeros(pmdp.num_states), np.zeros(pmdp.num_states)
    mass[pmdp.initial_state] = 1.0
    for _ in range(steps):
        visits += mass
        mass = move @ mass
        if mass.sum() < NEGLIGIBLE:
            break
    return visits


def absorbing_states(pmdp: ParametricMDP) -> np.ndarray:
    """(S,) whether every transition of a state leads back to it, possibly through a silent state."""
    source = pmdp.row_state[pmdp.transition_row]
    absorbing = np.ones(pmdp.num_states, dtype=bool)
    absorbing[source[pmdp.visible_successor != source]] = False
    return absorbing


def _numbers(name: str, values: np.ndarray | None, size: int) -> np.ndarray:
    if values is None:
        return np.zeros(size)
    if np.shape(values) != (size,):
        raise ModelError(f"{name} has shape {np.shape(values)}, not ({size},)")
    return np.ascontiguousarray(values, dtype=float)
