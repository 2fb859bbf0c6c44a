"""Small worlds for the agent's tests: a slippery corridor, and an environment that refuses to be read."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import Any

import gymnasium as gym
import numpy as np

from rpl_agent.core.model import MDP, Objective, ParametricMDP, Simulator, StateIndex, build

LENGTH = 5
TRUE_P = 0.7


@lru_cache
def corridor(length: int = LENGTH) -> tuple[ParametricMDP, Objective]:
    """Cells 0..length-1: `run` advances with p and else falls back; `walk` advances with p/2 and falls back with 0.1
    only; falling below 0 is a loss. Walking is better below p = 0.8."""

    def actions(cell: int) -> dict[str, dict[int, str]]:
        if cell in (-1, length):
            return {"run": {cell: "1"}, "walk": {cell: "1"}}
        return {
            "run": {cell + 1: "p", cell - 1: "1 - p"},
            "walk": {cell + 1: "0.5*p", cell: "0.9 - 0.5*p", cell - 1: "0.1"},
        }

    pmdp = build(
        1, actions, domain=["p"], labels={"goal": lambda c: c == length, "lost": lambda c: c == -1},
        rewards={"time": lambda c, a: 0.0 if c in (-1, length) else 1.0}, action_names=["run", "walk"], name="corridor",
    )  # fmt: skip
    return pmdp, Objective.reach("goal", avoid="lost")


@lru_cache
def corridor_law(p: float, length: int = LENGTH) -> tuple[MDP, list[list[float]]]:
    """The corridor at p, and the cumulated probabilities of each row: one random number draws a step."""
    pmdp, _ = corridor(length)
    mdp = pmdp.instantiate({"p": p})
    rows = (mdp.probability[lo:hi].cumsum() for lo, hi in zip(pmdp.row_ptr, pmdp.row_ptr[1:]))
    return mdp, [(row / row[-1]).tolist() for row in rows]


class Secret(dict):
    """An info or kernel that nobody may look into."""

    def __getitem__(self, key: Any) -> Any:
        raise AssertionError(f"the agent looked up the secret {key!r}")

    def get(self, key: Any, default: Any = None) -> Any:
        raise AssertionError(f"the agent looked up the secret {key!r}")


class CorridorEnv(gym.Env):
    """A plain Gymnasium environment: it tells neither its kernel nor its parameters, and numbers its states."""

    observation_to_state = StateIndex

    def __init__(self, p: float = TRUE_P, length: int = LENGTH, own_model: bool = True):
        self._pmdp, self._objective = corridor(length)
        if own_model:
            self.pmdp, self.objective = self._pmdp, self._objective
        self._p = p
        self._mdp, self._cumulated = corridor_law(p, length)
        self.observation_space = gym.spaces.Discrete(self._pmdp.num_states)
        self.action_space = gym.spaces.Discrete(2)
        self._over = self._objective.resolve(self._pmdp).decided
        self.state = 0

    @property
    def P(self) -> Any:
        raise AssertionError("the agent read the true kernel P")

    @property
    def theta(self) -> Any:
        raise AssertionError("the agent read the true parameters")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        self.state = self._pmdp.initial_state
        return self.state, Secret(prob=1.0)

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        pmdp = self._pmdp
        row = pmdp.find_row(self.state, int(action))
        chosen = pmdp.row_ptr[row] + bisect_right(self._cumulated[row], self.np_random.random())
        self.state = int(pmdp.successor[chosen])
        reward = float(pmdp.labels["goal"][self.state])
        return (
            self.state,
            reward,
            bool(self._over[self.state]),
            False,
            Secret(prob=float(self._mdp.probability[chosen])),
        )


class FastCorridorEnv(CorridorEnv):
    """The same with a compiled simulator."""

    def simulator(self, seed: int) -> Simulator:
        arrival = self._pmdp.labels["goal"].astype(float)
        return Simulator(self._mdp, self._over, 1000, seed, None, arrival)


def transition_frequencies(counts: Any) -> np.ndarray:
    """(T,) observed probability of each transition within its row."""
    pmdp = counts.pmdp
    return counts.transitions / np.maximum(counts.row_totals, 1)[pmdp.transition_row]
