"""Gymnasium's own worlds: learn FrozenLake and Taxi by stepping the originals, and certify what was learned.

    python examples/gymnasium_worlds.py [--episodes 500]

The structure of both models comes from the map that a player sees. The slipperiness of the ice, the rain and the
passenger's fickleness are unknown; the agent learns them from steps alone. At the end the truth, which Gymnasium
knows, is used once: to check the certificate and to see how close the policy is to the optimum.
"""

from __future__ import annotations

import argparse

import numpy as np

from rpl_agent import Nature, RPLAgent, solve
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.guarantee.shown import true_value
from rpl_envs.toy_text import BoundEnv, frozen_lake, taxi


def learn(name: str, env: BoundEnv, theta: list[float], episodes: int, seed: int = 0) -> dict[str, float]:
    """Learn from episodes of the original environment; compare with the optimum at the true parameters."""
    agent = RPLAgent(seed=seed).learn(env, budget=episodes)
    certificate = agent.certificate
    achieved = true_value(env.pmdp, env.objective, certificate.policy, np.array(theta))
    best = solve(Point(env.pmdp.instantiate(theta)), env.objective, Nature.COOPERATIVE)
    print(f"{name}: {env.pmdp.num_states} states, {env.pmdp.num_parameters} unknown parameter(s)")
    print(f"  {episodes} episodes, {agent.num_timesteps} steps")
    print(f"  certificate  {certificate.lower:.4f} .. {certificate.upper:.4f}")
    print(f"  true value of the policy {achieved:.4f}, optimum {best.upper:.4f}")
    return {"lower": certificate.lower, "upper": certificate.upper, "value": achieved, "optimum": best.upper}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=500)
    episodes = parser.parse_args().episodes
    learn("FrozenLake", frozen_lake(success_rate=0.7), [0.7], episodes)
    learn("Taxi", taxi(rainy_probability=0.8, fickle_probability=0.3), [0.8, 0.3], episodes)


if __name__ == "__main__":
    main()
