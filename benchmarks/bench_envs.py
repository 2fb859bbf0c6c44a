"""Worlds: the compiled simulator over `env.step`, lanes of a VectorEnv, building the largest models."""

from __future__ import annotations

import multiprocessing
import resource
import time
from typing import Any

import gymnasium as gym
import numpy as np

import rpl_envs
from rpl_agent.core.model import Policy

Row = dict[str, Any]


def rows(smoke: bool = False, full: bool = False) -> list[Row]:
    """One dictionary per measurement: what, value, unit, and what is asked for."""
    found = [
        *(simulator_against_steps(name, smoke) for name in ("Aircraft-20x10", "MarsRover-10x10", "Betting-25")),
        vector_transitions(smoke),
    ]
    large = ("MarsRover-10x10", "ParallelBetting-6") if smoke else ("MarsRover-125x125", "ParallelBetting-20")
    for name in large:
        found += build_time_and_memory(name)
    return found


def simulator_against_steps(name: str, smoke: bool) -> Row:
    """Steps per second of the compiled simulator over a Python loop of `env.step` under the same uniform policy."""
    env = gym.make(f"rpl/{name}-v0")
    pmdp = env.get_wrapper_attr("pmdp")
    policy, rng = Policy.uniform(pmdp), np.random.default_rng(0)
    budget = 0.1 if smoke else 1.0
    steps, (state, _) = 0, env.reset(seed=0)
    start = time.perf_counter()
    while time.perf_counter() - start < budget:
        for _ in range(100):
            state, _, terminated, truncated, _ = env.step(policy.action(pmdp, state, rng))
            steps += 1
            if terminated or truncated:
                state, _ = env.reset()
    loop = steps / (time.perf_counter() - start)
    simulator = env.get_wrapper_attr("simulator")(0)
    simulator.run(policy, 10)  # warm-up
    compiled, start = 0, time.perf_counter()
    while time.perf_counter() - start < budget:
        compiled += simulator.run(policy, 2_000).steps
    fast = compiled / (time.perf_counter() - start)
    return {
        "what": f"{name}: simulator over env.step loop ({fast / 1e6:.1f} M/s over {loop / 1e3:.0f} k/s)",
        "value": fast / loop, "unit": "x", "asked": ">= 100",
    }  # fmt: skip


def vector_transitions(smoke: bool, lanes: int = 1024) -> Row:
    """Transitions per second of a VectorEnv; the resets of NEXT_STEP are not transitions and are not counted."""
    envs = gym.make_vec("rpl/Aircraft-20x10-v0", num_envs=lanes)
    envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(3, size=(64, lanes))
    for k in range(64):
        envs.step(actions[k])
    best, k, over = 0.0, 0, 0
    for _ in range(1 if smoke else 5):  # the best of five rounds: other processes may share the cores
        transitions, start = 0, time.perf_counter()
        while time.perf_counter() - start < 0.2:
            for _ in range(32):
                _, _, terminated, truncated, _ = envs.step(actions[k % 64])
                transitions += lanes - over
                over = int(np.count_nonzero(terminated | truncated))
                k += 1
        best = max(best, transitions / (time.perf_counter() - start))
    return {"what": f"VectorEnv, {lanes} lanes", "value": best / 1e6, "unit": "M transitions/s", "asked": ">= 5"}


def _build(name: str, answer: Any) -> None:
    start = time.perf_counter()
    rpl_envs.benchmark(name)
    answer.put((time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20))


def build_time_and_memory(name: str) -> list[Row]:
    """In a process of its own, so that the peak of memory is the build's."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=_build, args=(name, answer))
    process.start()
    seconds, gigabytes = answer.get()
    process.join()
    return [
        {"what": f"{name}: build", "value": seconds, "unit": "s", "asked": "<= 60"},
        {"what": f"{name}: peak memory", "value": gigabytes, "unit": "GB", "asked": "<= 4"},
    ]
