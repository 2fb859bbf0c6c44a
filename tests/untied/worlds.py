"""Untied models drawn from a seed, with their truth, and tables that environments of the agent play."""

from __future__ import annotations

from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np

from rpl_agent import Counts, Objective, ParametricMDP, Policy, Simulator, from_matrices, hide_parameters
from rpl_agent.core.model.building.unknown import Unknown

OBJECTIVES = {
    "discounted": Objective.discounted("reward", 0.9),
    "cost": Objective.parse("minimise discounted reward, gamma 0.8"),
    "reach": Objective.reach("goal", avoid="hole"),
    "steps": Objective.total("reward", horizon=5),
    "late": Objective.discounted("reward", 0.9, horizon=4),
}


@cache
def untied(seed: int, states: int = 6, actions: int = 2) -> Unknown:
    """Every row is an unknown distribution of its own; state 0 begins, the last is the goal, the one before a hole."""
    rng = np.random.default_rng(seed)
    P, R = np.zeros((actions, states, states)), np.zeros((states, actions))
    for s in range(states - 2):
        for a in range(actions):
            after = rng.choice(states, 3, replace=False)
            P[a, s, after] = np.round(rng.dirichlet(np.ones(3)) * 0.9 + 1 / 30, 3)
            P[a, s, after[0]] += 1.0 - P[a, s].sum()
        R[s] = np.round(rng.uniform(-1, 2, actions), 2)
    P[:, range(states - 2, states), range(states - 2, states)] = 1.0
    return hide_parameters(from_matrices(P, R, labels={"goal": [states - 1], "hole": [states - 2]}))


def sampled(world: Unknown, policy: Policy, episodes: int, seed: int, steps: int = 12) -> Counts:
    """Counts of plays, each cut after some steps."""
    pmdp = world.pmdp
    seen = np.zeros(pmdp.num_transitions, np.int64)
    ends = pmdp.labels["goal"] | pmdp.labels["hole"]
    Simulator(world.mdp, ends, steps, seed).run(policy, episodes, seen)
    counts = Counts(pmdp, schedule="split")
    counts.add_batch(seen)
    return counts


def random_policy(pmdp: ParametricMDP, seed: int) -> Policy:
    rng = np.random.default_rng(seed)
    sizes = np.diff(pmdp.state_ptr)
    return Policy.deterministic(pmdp.state_ptr[:-1] + (rng.random(len(sizes)) * sizes).astype(int))


class TableWorld(gym.Env):
    """An environment with a table P, whose model is untied (`rpl_envs.toy.table`)."""

    def __init__(self, seed: int = 0, states: int = 8, limit: int = 30):
        rng = np.random.default_rng(seed)
        self.observation_space, self.action_space = gym.spaces.Discrete(states), gym.spaces.Discrete(2)
        self.limit, self.P = limit, dict[int, Any]()
        for s in range(states):
            self.P[s] = {}
            for a in range(2):
                after = rng.choice(states, 3, replace=False).tolist()
                p = rng.dirichlet(np.ones(3)).tolist()
                over = [t == states - 1 for t in after]
                self.P[s][a] = [(q, t, float(o), o) for q, t, o in zip(p, after, over)]
        self.initial_state_distrib = np.eye(states)[0]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        self._state, self._steps = 0, 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        row = self.P[self._state][int(action)]
        k = int(self.np_random.choice(len(row), p=[p for p, *_ in row]))
        _, self._state, reward, over = row[k]
        self._steps += 1
        return self._state, reward, over, self._steps >= self.limit, {}
