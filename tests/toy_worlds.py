"""Three tiny worlds with known optimal values, as plain Gymnasium environments with a compiled simulator."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from rpl_agent.core.model import Kind, Objective, Sense, Simulator, StateIndex, build


class ToyEnv(gym.Env):
    """A parametric MDP at a true θ; Discrete observations, masks in info, nothing else."""

    observation_to_state = StateIndex

    def __init__(self, pmdp, objective, theta, max_steps=50):
        self.pmdp, self.objective, self.max_steps = pmdp, objective, max_steps
        self._mdp = pmdp.instantiate(theta)
        self._task = objective.resolve(pmdp)
        self.observation_space = gym.spaces.Discrete(pmdp.num_states)
        self.action_space = gym.spaces.Discrete(pmdp.num_actions)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._state, self._steps = self.pmdp.initial_state, 0
        return self._state, {"action_mask": self.pmdp.action_mask(self._state)}

    def step(self, action):
        row = self.pmdp.find_row(self._state, int(action))
        assert row >= 0, "action not enabled"
        span = slice(self.pmdp.row_ptr[row], self.pmdp.row_ptr[row + 1])
        self._state = int(self.np_random.choice(self.pmdp.successor[span], p=self._mdp.probability[span]))
        self._steps += 1
        reward = float(self._task.reward[row])
        if self.objective.kind is Kind.REACH:
            reward = float(self._task.target[self._state])
        sign = 1.0 if self.objective.sense is Sense.MAX else -1.0
        over = bool(self._task.decided[self._state] or self.pmdp.labels["done"][self._state])
        info = {"action_mask": self.pmdp.action_mask(self._state)}
        return self._state, sign * reward, over, self._steps >= self.max_steps and not over, info

    def action_masks(self):
        return self.pmdp.action_mask(self._state).astype(bool)

    def simulator(self, seed):
        stop = self._task.decided | self.pmdp.labels["done"]
        return Simulator(self._mdp, stop, self.max_steps, seed, self._task.reward)


def risk():
    """Reach the goal: a sure-looking 0.6 against an unknown 0.8 after one more step. V* = 0.8."""

    def actions(s):
        if s == "start":
            return {"plain": {"goal": "q", "lost": "1-q"}, "detour": {"middle": 1}}
        if s == "middle":
            return {"try": {"goal": "p", "lost": "1-p"}}
        return {"stay": {s: 1}}

    pmdp = build(
        "start", actions, domain=("p", "q"),
        labels={"goal": lambda s: s == "goal", "done": lambda s: s in ("goal", "lost")}, name="risk",
    )  # fmt: skip
    return ToyEnv(pmdp, Objective.reach("goal"), {"p": 0.8, "q": 0.6}), 0.8


def retry():
    """Pay until success: 1 per try at 0.25, or 2.5 per try at 0.9. V* = 2.5 / 0.9."""

    def actions(s):
        if s == 0:
            return {"cheap": {1: "p", 0: "1-p"}, "good": {1: "q", 0: "1-q"}}
        return {"stay": {1: 1}}

    pmdp = build(
        0, actions, domain=("p", "q"), labels={"goal": lambda s: s == 1, "done": lambda s: s == 1},
        rewards={"cost": lambda s, a: {"cheap": 1.0, "good": 2.5, "stay": 0.0}[a]}, name="retry",
    )  # fmt: skip
    return ToyEnv(pmdp, Objective.cost("cost", target="goal"), {"p": 0.25, "q": 0.9}), 2.5 / 0.9


def ladder(rungs=4):
    """Quit for 1 at any time, or climb with 0.7 per rung (else nothing) to collect 10. V* = 10 · 0.7^4 = 2.401."""

    def actions(s):
        if s == "end":
            return {"stay": {"end": 1}}
        if s == rungs:
            return {"collect": {"end": 1}}
        return {"quit": {"end": 1}, "climb": {s + 1: "p", "end": "1-p"}}

    rewards = {"gold": lambda s, a: {"quit": 1.0, "collect": 10.0}.get(a, 0.0)}
    labels = {"end": lambda s: s == "end", "done": lambda s: s == "end"}
    pmdp = build(0, actions, domain=("p",), labels=labels, rewards=rewards, name="ladder")
    return ToyEnv(pmdp, Objective.reward("gold", target="end"), {"p": 0.7}), 10 * 0.7**rungs


WORLDS = {"risk": risk, "retry": retry, "ladder": ladder}


def exact_value(env, policy):
    """Value of a policy at the truth, by a linear solve: an independent check."""
    pmdp, task = env.pmdp, env.objective.resolve(env.pmdp)
    weights = policy.as_weights(pmdp)
    matrix, vector = np.eye(pmdp.num_states), np.zeros(pmdp.num_states)
    for s in range(pmdp.num_states):
        if task.decided[s] or pmdp.labels["done"][s]:
            vector[s] = float(task.target[s]) if env.objective.kind is Kind.REACH else 0.0
            continue
        for r in range(pmdp.state_ptr[s], pmdp.state_ptr[s + 1]):
            vector[s] += weights[r] * task.reward[r]
            for t in range(pmdp.row_ptr[r], pmdp.row_ptr[r + 1]):
                matrix[s, pmdp.successor[t]] -= weights[r] * env._mdp.probability[t]
    return float(np.linalg.solve(matrix, vector)[pmdp.initial_state])
