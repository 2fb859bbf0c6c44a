"""Online learning: 10^5 episodes, everything included, against stepping uniform episodes in Python.

For each of the paper's six learning instances: the time that ``env.step`` in Python needs for as many uniform episodes
(measured on a sample and scaled), then a whole online run for each relaxation and both doubling schedules: seconds,
the ratio to the former (≤ 1 meets the target), updates (of which skipped because the set had not changed), the share of
time per stage, and the certified gap at the end.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym

import rpl_envs
from rpl_agent.agent import Doubling, RPLAgent
from rpl_agent.guarantee.pipeline import RELAXATIONS

IDS = [instance.id for instance in rpl_envs.INSTANCES.values() if instance.online]
EPISODES = {"smoke": 300, "usual": 10_000, "full": 100_000}
#: Seconds of stepping that the uniform baseline is measured on.
SAMPLE_SECONDS = 1.0


def rows(smoke: bool = False, full: bool = False) -> list[dict]:
    """One row per instance, relaxation and schedule."""
    size = "smoke" if smoke else "full" if full else "usual"
    episodes, found = EPISODES[size], []
    for identifier in IDS[:2] if smoke else IDS:
        stepping = uniform_seconds(identifier, SAMPLE_SECONDS / 10 if smoke else SAMPLE_SECONDS) * episodes
        relaxations = ("rectangular",) if size != "full" else RELAXATIONS
        for relaxation in relaxations:
            for of in ("state-action", "expression"):
                found.append(online(identifier, episodes, relaxation, of, stepping))
    return found


def uniform_seconds(identifier: str, seconds: float) -> float:
    """Seconds per uniform episode stepped through ``env.step``."""
    env = gym.make(identifier)
    env.reset(seed=0)
    done, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        _, info = env.reset()
        over = False
        while not over:
            action = env.action_space.sample(info["action_mask"])
            _, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated
        done += 1
    return (time.perf_counter() - begin) / done


def online(identifier: str, episodes: int, relaxation: str, of: str, stepping: float) -> dict[str, Any]:
    def run(budget: int) -> RPLAgent:
        agent = RPLAgent(relaxation=relaxation, schedule=Doubling(of), seed=0)
        return agent.learn(gym.make(identifier), budget=budget)

    run(5)  # warm-up
    begin = time.perf_counter()
    agent = run(episodes)
    seconds = time.perf_counter() - begin
    spent, certificate = agent.session.planner.seconds, agent.certificate
    assert certificate is not None
    return {
        "instance": identifier.removeprefix("rpl/").removesuffix("-v0"), "relaxation": relaxation, "doubling": of,
        "episodes": episodes, "seconds": seconds, "stepping_seconds": stepping, "ratio": seconds / stepping,
        "updates": agent.num_updates, "skipped": agent.session.planner.skipped,
        "sampling_share": spent["sampling"] / seconds, "region_share": (spent["region"] + spent["intervals"]) / seconds,
        "relaxation_share": spent["relaxation"] / seconds, "solve_share": spent["solve"] / seconds,
        "lower": certificate.lower, "upper": certificate.upper, "gap": certificate.gap,
    }  # fmt: skip
