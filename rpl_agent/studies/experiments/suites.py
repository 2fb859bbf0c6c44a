"""The runs of the paper's evaluation, and of our own sets; each run is a plain, JSON-able task.

A task has everything that determines its result: kind, instance, method, budget, seed. Its key is a hash of that, so a
row found on disk is the result of its task, whoever computed it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

Task = dict[str, Any]

DELTA = 1e-3
UNIFORM_EPISODES = 100_000
ONLINE_EPISODES = 100_000
#: Steps of an episode that measures a policy, where the environment has no time limit of its own.
MEASURED_STEPS = 1000

#: The 18 rows of Table 2, by instance.
TABLE_2_INSTANCES = (
    "Aircraft-50x10",
    "Aircraft-100x20",
    "Aircraft-200x40",
    "Betting-50",
    "Betting-100",
    "Betting-140",
    "Engagement-100",
    "Engagement-300",
    "Engagement-1000",
    "MarsRover-50x50",
    "MarsRover-75x75",
    "MarsRover-125x125",
    "Glider-21x17",
    "Glider-51x47-region",
    "Glider-69x67",
    "ParallelBetting-5",
    "ParallelBetting-10",
    "ParallelBetting-20",
)
#: Instances for the same labels in the size and ellipsoid tables.
OTHER_INSTANCES = ("Betting-135", "Glider-51x47", "Glider-71x67")
ONLINE_INSTANCES = (
    "Aircraft-20x10",
    "Betting-25",
    "Engagement-50",
    "MarsRover-10x10",
    "Glider-11x9",
    "ParallelBetting-6",
)
QUICK_INSTANCES = ONLINE_INSTANCES[:-1] + ("ParallelBetting-5",)

#: (confidence, relaxation) of every set, and the sampler if not the optimistic one -> (its name, its
#: colour in every figure: safe for colour-blind readers, after Okabe and Ito). The first four are the paper's Table 2.
SETS: dict[tuple[str, ...], tuple[str, str]] = {
    ("clopper-pearson", "tied"): ("P_I", "#999999"),
    ("clopper-pearson", "parameter"): ("P_Θ(U)", "#E69F00"),
    ("clopper-pearson", "expression"): ("P_Λ(U)", "#56B4E9"),
    ("clopper-pearson", "rectangular"): ("P_R(U)", "#0072B2"),
    ("ellipsoid", "parameter"): ("P_Θ(E)", "#F0E442"),
    ("ellipsoid", "expression"): ("P_Λ(E)", "#CCBB44"),
    ("ellipsoid", "rectangular"): ("P_R(E)", "#AA8800"),
    ("l1", "rectangular"): ("P_R(L1)", "#CC79A7"),
    ("anytime", "rectangular"): ("anytime P_R", "#009E73"),
    ("likelihood", "expression"): ("likelihood P_Λ", "#F4A582"),
    ("likelihood", "rectangular"): ("likelihood P_R", "#D55E00"),
    ("clopper-pearson", "coupled"): ("P_U(U)", "#0b7285"),
    ("likelihood", "coupled"): ("likelihood P_U", "#c2255c"),
    ("likelihood", "coupled", "certificate"): ("likelihood P_U, sampled for it", "#5f3dc4"),
}
#: Sets for uniform samples; those for online learning are the paper's and the ones valid online.
UNIFORM_SETS: tuple[tuple[str, ...], ...] = tuple(chosen for chosen in SETS if len(chosen) == 2)
ONLINE_SETS = (*UNIFORM_SETS[:4], ("anytime", "rectangular"), ("likelihood", "rectangular"), *list(SETS)[-2:])

#: The parts of `reproduce`.
PARTS = ("sizes", "uniform", "online")


def set_name(*chosen: str) -> str:
    return SETS.get(chosen, (" ".join(chosen),))[0]


def set_of(task: Task) -> tuple[str, ...]:
    """(confidence, relaxation), and the sampler if not the optimistic one."""
    sampler = task.get("exploration", "optimistic")
    return (task["confidence"], task["relaxation"], *([sampler] if sampler != "optimistic" else []))


def agent_order(names: Iterable[str]) -> list[str]:
    """Ours first, then the paper's sets, then the others by name."""
    return sorted(set(names), key=lambda n: (not n.startswith("rpl"), not n.startswith("paper"), n))


def key(task: Task) -> str:
    """A short hash of everything that determines the result."""
    return hashlib.sha256(json.dumps(task, sort_keys=True).encode()).hexdigest()[:16]


def group(task: Task) -> str:
    """Tasks of one group share a model and its data, and run one after the other in one worker."""
    if task["kind"] == "uniform":
        return f"uniform {task['instance']} seed {task['seed']} episodes {task['episodes']}"
    return f"{task['kind']} {key(task)}"


# ---------------------------------------------------------------------- the paper
def sizes(instances: Iterable[str]) -> list[Task]:
    return [{"kind": "sizes", "instance": name} for name in instances]


def uniform(
    instances: Iterable[str],
    sets: Sequence[tuple[str, ...]] = UNIFORM_SETS,
    episodes: int = UNIFORM_EPISODES,
    seeds: int = 1,
    delta: float = DELTA,
) -> list[Task]:
    """Tables 2, 3 and 5: the true-optimal policy's bounds under sets learned from uniform trajectories."""
    return [
        {
            "kind": "uniform",
            "instance": name,
            "confidence": confidence,
            "relaxation": relaxation,
            "episodes": episodes,
            "seed": seed,
            "delta": delta,
        }
        for name in instances
        for seed in range(seeds)
        for confidence, relaxation in sets
    ]


def online(
    instances: Iterable[str],
    sets: Sequence[tuple[str, ...]] = ONLINE_SETS,
    episodes: int = ONLINE_EPISODES,
    seeds: int = 3,
    delta: float = DELTA,
    schedule: str = "state-action",
) -> list[Task]:
    """Figures 2 and 4: optimism with a doubling schedule; values and guarantees along the way."""
    return [
        {
            "kind": "online",
            "instance": name,
            "confidence": confidence,
            "relaxation": relaxation,
            "episodes": episodes,
            "seed": seed,
            "delta": delta,
            "schedule": schedule,
            **({"exploration": sampler[0]} if sampler else {}),
        }
        for seed in range(seeds)
        for name in instances
        for confidence, relaxation, *sampler in sets
    ]


def compare(worlds: Iterable[Task], agents: Sequence[Task], seeds: int, budget: int) -> list[Task]:
    """Agents on the same worlds with the same budget; ``worlds`` and ``agents`` are parts of tasks."""
    return [
        {"kind": "compare", **world, **agent, "episodes": budget, "seed": seed}
        for seed in range(seeds)
        for world in worlds
        for agent in agents
    ]


def paper(parts: Sequence[str] | None, quick: bool, seeds: int, budget: int | None) -> list[Task]:
    """The tasks of `reproduce`: all of the paper, or a smoke-size version of every part of it."""
    chosen = PARTS if parts is None else tuple(parts)
    instances = QUICK_INSTANCES if quick else TABLE_2_INSTANCES + OTHER_INSTANCES
    tasks: list[Task] = []
    if "sizes" in chosen:
        tasks += sizes(QUICK_INSTANCES if quick else instances + ONLINE_INSTANCES)
    if "uniform" in chosen:
        tasks += uniform(instances, episodes=budget or (2_000 if quick else UNIFORM_EPISODES))
    if "online" in chosen:
        worlds = QUICK_INSTANCES[:3] if quick else ONLINE_INSTANCES
        sets = (ONLINE_SETS[0], ONLINE_SETS[3], ONLINE_SETS[5]) if quick else ONLINE_SETS
        tasks += online(worlds, sets, budget or (500 if quick else ONLINE_EPISODES), 1 if quick else seeds)
    return tasks


def checkpoints(episodes: int, per_decade: int = 6) -> list[int]:
    """Numbers of episodes, evenly spaced on a log scale from 10, at which a learning curve is measured."""
    found, exponent = {episodes}, 1.0
    while 10**exponent < episodes:
        found.add(round(10**exponent))
        exponent += 1.0 / per_decade
    return sorted(found)
