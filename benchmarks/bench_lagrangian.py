"""A limit on FrozenLake: Lagrangian PPO, which learns a multiplier for falls, beside policies certified to keep it.

The fewest steps until the play is over with P(hole) ≤ 0.3, on slippery ice. PPO of Stable-Baselines3 gets −1 for each
step and −λ for a fall; after every rollout λ grows with the share of falls above the limit, or shrinks. The policy is
the last one, randomised, as the method has it. ``broken``: runs whose true probability of a fall, solved at the true
parameter, is above the limit. ``said``: runs that end with word that the limit is kept; of PPO, that at most that share
of its last 300 plays fell, of ours, that it is certified (δ = 0.001). ``false``: those of them that break it. ``fall``
and ``steps`` are true values of the last policies, median, least and most over the seeds; ``best`` has the fewest steps
within the limit.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np

from rpl_agent import Objective, Policy, RPLAgent
from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.claims.combined import CombinedModel
from rpl_agent.guarantee.claims.occupancy import OccupancyProgram
from rpl_agent.guarantee.shown import true_value
from rpl_envs.toy_text import BoundEnv, frozen_lake

RATE, LIMIT = 0.8, 0.3
TASK = Objective.parse(f"minimise return until over subject to probability of hole <= {LIMIT}")
FALL = TASK.limits[0].objective
#: episodes of ours
BUDGETS = (100, 1000)
#: steps of PPO, copies of the world, steps between two updates, and plays that say whether the limit is kept
STEPS, COPIES, ROLLOUT, LAST = 40_000, 8, 128, 300
#: the first multiplier, and what a share of falls of 1 above the limit adds to it after a rollout
FIRST, GAIN = 1.0, 2.0


def rows(smoke: bool = False, full: bool = False) -> list[dict[str, Any]]:
    seeds = 1 if smoke else 20 if full else 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RPLWarning)
        budgets = (10,) if smoke else BUDGETS
        found = [_row(f"ours, {n:,} episodes", [_ours(n, k) for k in range(seeds)]) for n in budgets]
    if importlib.util.find_spec("stable_baselines3") is None:
        return [*found, {"agent": "PPO", "note": "pip install stable-baselines3"}]
    steps = COPIES * ROLLOUT if smoke else STEPS
    return [*found, _row(f"Lagrangian PPO, {steps:,} steps", [_ppo(steps, k) for k in range(seeds)])]


Run = tuple[Policy, bool, int, float]


def _world() -> BoundEnv:
    return frozen_lake(success_rate=RATE, reward_schedule=(1.0, 1.0, 1.0))  # "return" counts steps


def _row(agent: str, runs: list[Run]) -> dict[str, Any]:
    pmdp, theta = _world().pmdp, np.array([RATE])
    falls = np.array([true_value(pmdp, FALL, policy, theta) for policy, *_ in runs])
    steps = np.array([true_value(pmdp, TASK.free, policy, theta) for policy, *_ in runs])
    program = OccupancyProgram(CombinedModel(pmdp, [TASK.free, FALL]), theta, TASK.sense, np.array([True]))
    best = program.solve(np.array([LIMIT]), solve_at(pmdp, theta, TASK.free).policy)
    assert best is not None
    said = np.array([kept for _, kept, *_ in runs])
    breaks = falls > LIMIT + 1e-9
    false = int((said & breaks).sum())
    row = {
        "agent": agent,
        "seeds": len(runs),
        "episodes": float(np.median([episodes for *_, episodes, _ in runs])),
        "broken": int(breaks.sum()),
        "said": int(said.sum()),
        "false": false,
        "fall": _spread(falls),
        "steps": _spread(steps),
        "best": float(best.values[0]),
        "CPU s": float(np.mean([seconds for *_, seconds in runs])),
    }
    return {**row, "failure": f"{false} false"} if false and agent.startswith("ours") else row


def _spread(values: np.ndarray) -> str:
    return f"{np.median(values):.4g} ({values.min():.4g} to {values.max():.4g})"


def _ours(episodes: int, seed: int) -> Run:
    began = time.process_time()
    agent = RPLAgent(_world(), objective=TASK, seed=seed, check_rewards=False)  # the world pays steps, not minus
    agent.learn(budget=episodes)
    certificate = agent.certificate
    return certificate.policy, bool(certificate.keeps_limits), episodes, time.process_time() - began


class _Penalised(gym.Wrapper):
    """FrozenLake that pays −λ for a fall, with a λ that many copies share; observes the number of the model's state."""

    def __init__(self, shared: dict[str, Any]) -> None:
        super().__init__(_world())
        self.shared = shared
        self.observation_space = gym.spaces.Discrete(self.env.observation_space.n)  # type: ignore[attr-defined]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        state, reward, terminated, truncated, _ = self.env.step(action)
        fell = terminated and bool(self.get_wrapper_attr("pmdp").labels["hole"][state])
        if terminated or truncated:
            self.shared["falls"].append(fell)
            self.shared["episodes"] += 1
        return state, -float(reward) - self.shared["multiplier"] * fell, terminated, truncated, {}


def _ppo(steps: int, seed: int) -> Run:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv

    began = time.process_time()
    torch.set_num_threads(1)
    shared: dict[str, Any] = {"multiplier": FIRST, "falls": deque(maxlen=LAST), "episodes": 0}

    class Adapt(BaseCallback):
        """Moves the multiplier by the share of falls above the limit, over the plays of a rollout."""

        before = 0

        def _on_rollout_end(self) -> None:
            new, self.before = shared["episodes"] - self.before, shared["episodes"]
            if new:
                share = float(np.mean(list(shared["falls"])[-new:]))
                shared["multiplier"] = max(0.0, shared["multiplier"] + GAIN * (share - LIMIT))

        def _on_step(self) -> bool:
            return True

    envs = DummyVecEnv([lambda: _Penalised(shared)] * COPIES)
    settings: dict[str, Any] = {"learning_rate": 1e-3, "batch_size": 128, "ent_coef": 0.01, "gamma": 0.999}
    model = PPO("MlpPolicy", envs, n_steps=ROLLOUT, seed=seed, device="cpu", **settings)
    model.learn(steps, callback=Adapt())
    pmdp = _world().pmdp
    with torch.no_grad():
        states = torch.arange(pmdp.num_states)
        chances = model.policy.get_distribution(states).distribution.probs.numpy().astype(float)  # type: ignore[attr-defined]
    weights = chances[pmdp.row_state, pmdp.action]
    weights /= np.add.reduceat(weights, pmdp.state_ptr[:-1])[pmdp.row_state]
    kept = float(np.mean(shared["falls"])) <= LIMIT
    return Policy.of_weights(pmdp, weights), kept, shared["episodes"], time.process_time() - began
