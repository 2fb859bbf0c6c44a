"""PPO, DQN, MaskablePPO and ours with the same lines: learn, evaluate, print.

    python examples/compare_with_sb3.py [--id rpl/Glider-11x9-v0] [--steps 20000]

Every agent sees the same environment; what differs is what it knows (ours knows the polynomials, not their
parameters) and what it ends with (ours ends with a bound that is valid with probability 0.999).
"""

from __future__ import annotations

import argparse

import gymnasium as gym
from sb3_contrib import MaskablePPO
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.evaluation import evaluate_policy

import rpl_envs  # noqa: F401  (registers the worlds)
from rpl_agent import RPLAgent


def make_agents(env: gym.Env, seed: int) -> dict:
    return {
        "PPO": PPO("MlpPolicy", env, n_steps=512, seed=seed, device="cpu"),
        "DQN": DQN("MlpPolicy", env, learning_starts=500, seed=seed, device="cpu"),
        "MaskablePPO": MaskablePPO("MlpPolicy", env, n_steps=512, seed=seed, device="cpu"),
        "RPL": RPLAgent(env=env, seed=seed),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--id", default="rpl/Glider-11x9-v0")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--episodes", type=int, default=100, help="of each evaluation")
    parser.add_argument("--agents", nargs="+", default=["PPO", "DQN", "MaskablePPO", "RPL"])
    arguments = parser.parse_args()
    env = gym.make(arguments.id)
    for name, agent in make_agents(env, seed=0).items():
        if name not in arguments.agents:
            continue
        agent.learn(total_timesteps=arguments.steps)
        mean, _ = evaluate_policy(agent, gym.make(arguments.id), n_eval_episodes=arguments.episodes, warn=False)
        certificate = getattr(agent, "certificate", None)
        promise = "no guarantee"
        if certificate is not None:
            promise = f"certified [{certificate.lower:.4g}, {certificate.upper:.4g}]"
        print(f"{name:12s} mean return {mean:9.4g}   {promise}")


if __name__ == "__main__":
    main()
