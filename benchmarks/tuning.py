"""A small search for the settings of the deep agents: `python -m benchmarks.tuning [--jobs N]`.

Every combination of the grid learns on three of the six worlds with one seed that the comparison does not use. The
score of a combination is the mean relative loss |V* − V^π| / |V*| of its final policy, at most 1 per world. The winners
are the defaults in baselines/sb3.py.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

from rpl_agent.studies.experiments.tasks import SB3_ENVS, truth
from rpl_agent.studies.experiments.worlds import compared_world

WORLDS = ("Aircraft-20x10", "Betting-25", "Glider-11x9")
EPISODES = 2_000
#: not among the seeds 0, 1, … of the comparison
SEED = 1000
_POLICY_GRADIENT = {"learning_rate": (3e-4, 1e-3), "rollout": (512, 2048), "ent_coef": (0.0, 0.02)}
GRID: dict[str, dict[str, tuple]] = {
    "ppo": _POLICY_GRADIENT,
    "maskable-ppo": _POLICY_GRADIENT,
    "dqn": {
        "learning_rate": (1e-4, 5e-4, 2e-3),
        "exploration_fraction": (0.1, 0.4),
        "target_update_interval": (250, 1000),
    },
}


def combinations(algorithm: str) -> Iterator[dict[str, Any]]:
    names = GRID[algorithm]
    for values in itertools.product(*names.values()):
        yield dict(zip(names, values))


def loss(algorithm: str, settings: dict[str, Any], world: str, episodes: int = EPISODES, seed: int = SEED) -> float:
    """Relative loss of the policy that one combination ends with, at most 1."""
    import gymnasium as gym

    from rpl_agent.studies.baselines.sb3 import SB3Agent

    agent = SB3Agent(algorithm, seed=seed, num_envs=SB3_ENVS, **settings).learn(gym.make(f"rpl/{world}-v0"), episodes)
    value, best = compared_world(world).value(agent.policy, 1, seed), truth(world).value
    return min(1.0, abs(best - value) / abs(best)) if math.isfinite(value) else 1.0


def search(jobs: int = 2, episodes: int = EPISODES) -> list[dict[str, Any]]:
    """One row per combination, best first within each algorithm."""
    from joblib import Parallel, delayed

    tasks = [(a, c, w) for a in GRID for c in combinations(a) for w in WORLDS]
    losses = Parallel(n_jobs=jobs)(delayed(loss)(a, c, w, episodes) for a, c, w in tasks)
    rows: dict[str, dict[str, Any]] = {}
    for (algorithm, settings, world), value in zip(tasks, losses):
        row = rows.setdefault(json.dumps([algorithm, settings]), {"algorithm": algorithm, **settings})
        row[world] = value
    for row in rows.values():
        row["loss"] = sum(row[world] for world in WORLDS) / len(WORLDS)
    return sorted(rows.values(), key=lambda row: (row["algorithm"], row["loss"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    arguments = parser.parse_args()
    for row in search(arguments.jobs, arguments.episodes):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
