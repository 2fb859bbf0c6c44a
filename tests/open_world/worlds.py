"""Small worlds with exact values, and agents without a model that play them by the parts of `guarantee.open_world`."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from rpl_agent.core.evidence.ledger import OpenLedger
from rpl_agent.guarantee.open_world.assumptions import Assumptions
from rpl_agent.guarantee.open_world.data import END, OpenData
from rpl_agent.guarantee.open_world.estimate import FrequencyModel
from rpl_agent.guarantee.open_world.played import PlayedPolicy
from rpl_agent.guarantee.open_world.values import UpperValues

Row = list[tuple[float, float, int]]  # probability, reward, successor (END after an end)


class SmallWorld:
    """A table of rows with a random start, drawn from a seed."""

    def __init__(self, seed: int, states: int = 4, actions: int = 2):
        rng = np.random.default_rng(seed)
        self.actions = actions
        self.start = rng.dirichlet(np.ones(states))
        self.rows: list[list[Row]] = []
        for _ in range(states):
            self.rows.append([])
            for _ in range(actions):
                p = rng.dirichlet(np.full(3, 0.6))
                after = rng.choice([*range(states), END], 3)
                paid = np.where(after == END, rng.random(3) < 0.6, False)
                self.rows[-1].append([(q, float(r), int(s)) for q, r, s in zip(p, paid, after)])
        self.moves, self.paid = np.zeros((states, actions, states)), np.zeros((states, actions))
        for s, rows in enumerate(self.rows):
            for a, row in enumerate(rows):
                for q, reward, successor in row:
                    self.paid[s, a] += q * reward
                    if successor != END:
                        self.moves[s, a, successor] += q

    def values(self, discount: float, policy: np.ndarray | None = None) -> np.ndarray:
        """V* or the value of a policy (S,), up to 1e-12."""
        v = np.zeros(len(self.rows))
        while True:
            q = self.backup(discount, v)
            after = q.max(axis=1) if policy is None else q[np.arange(len(v)), policy]
            if np.abs(after - v).max() < 1e-13:
                return after
            v = after

    def backup(self, discount: float, v: np.ndarray) -> np.ndarray:
        """(S, A) reward and discounted value of what follows."""
        return self.paid + discount * self.moves @ v

    def draw_start(self, rng: np.random.Generator) -> int:
        return int(rng.choice(len(self.start), p=self.start))

    def draw(self, rng: np.random.Generator, state: int, action: int) -> tuple[float, int]:
        row = self.rows[state][action]
        _, reward, after = row[rng.choice(len(row), p=[p for p, _, _ in row])]
        return reward, after


class SmallAgent:
    """Explores greedily in U and plays a fixed policy in every second episode, cut after ``limit`` steps."""

    def __init__(self, world: SmallWorld, seed: int, discount: float = 0.9, delta: float = 0.1, limit: int = 6):
        self.world, self.discount, self.limit = world, discount, limit
        self.rng = np.random.default_rng([seed, 1])
        self.assumptions = Assumptions(discount=discount, returns=(0.0, 1.0))
        self.ledger = OpenLedger.of(delta)
        self.data = OpenData(world.actions)
        self.upper = UpperValues(self.assumptions, world.actions, self.ledger)
        self.played: PlayedPolicy | None = None
        self.fixed = self.episodes = 0

    def play(self, episodes: int) -> None:
        for _ in range(episodes):
            judged = None if self.played is None or self.episodes % 2 else self.played.begin((0.0, 1.0))
            self.episodes += 1
            state = self.data.state(self.world.draw_start(self.rng))
            self.data.starts[state] += 1
            for step in range(self.limit):
                action = self._explore(state) if judged is None else self.played.policy.action(state, 0)
                reward, after = self.world.draw(self.rng, int(self.data.states[state]), action)
                following = END if after == END else self.data.state(after)
                self.data.add(state * self.world.actions + action, reward, following)
                if judged is not None:
                    judged.add(reward, self.discount**step)
                if following == END:
                    break
                state = following
            if judged is not None:
                judged.over = True
                judged.cut_in = None if following == END else state

    def fix(self) -> None:
        """Fix the policy that looks best now."""
        self.fixed += 1
        policy = FrequencyModel(self.assumptions, self.data).best()
        self.played = PlayedPolicy(policy, self.fixed, self.ledger.take_policy(self.fixed), np.array(self.data.counts))

    def _explore(self, state: int) -> int:
        rows = slice(state * self.world.actions, (state + 1) * self.world.actions)
        bounds, visits = self.upper.rows[0][rows], self.data.visits[rows]
        known = bounds if len(bounds) else np.ones(self.world.actions)
        return min(range(len(known)), key=lambda a: (-known[a], visits[a]))

    def true_start(self, values: np.ndarray) -> float:
        return float(self.world.start @ values)

    def policy_table(self) -> np.ndarray:
        """The played policy's action in every state of the world."""
        found = (self.data.find(s) for s in range(len(self.world.rows)))
        return np.array([self.played.policy.action(k, 0) for k in found])


class Walk(gym.Env):
    """A small random world as an environment."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, seed: int = 0, known: bool = True, deterministic: bool = False):
        self.world = SmallWorld(seed)
        self.deterministic = deterministic
        self.observation_space = gym.spaces.Discrete(4) if known else gym.spaces.Text(9)
        self.known = known

    def _shown(self):
        return self.state if self.known else str(self.state)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.world.draw_start(self.np_random)
        return self._shown(), {}

    def step(self, action):
        if self.deterministic:
            _, reward, after = max(self.world.rows[self.state][action])
        else:
            reward, after = self.world.draw(self.np_random, self.state, action)
        self.state = self.state if after < 0 else after
        return self._shown(), reward, after < 0, False, {}
