"""One run = one row: what each kind of task does, and the agents by name. Each function returns (result, timing).

``result`` depends on the task alone; everything that depends on the machine goes to ``timing``. A learning curve is
measured from outside, with the true parameters that only the simulator knows: at given numbers of episodes, the exact
value of the policy the agent would return then, and its certified value where it has one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

import rpl_envs
from rpl_agent.agent.callbacks import BaseCallback
from rpl_agent.agent.rpl import RPLAgent
from rpl_agent.agent.schedule import NAMED, Schedule
from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Policy
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.pipeline import Config, certify
from rpl_agent.guarantee.shown import true_value
from rpl_agent.studies.baselines import PSRL, UCBVI, UCRL2, CertaintyEquivalence, IntervalLearning, QLearning, RMax
from rpl_agent.studies.experiments.suites import Task, checkpoints

#: The agent's own certificates while learning are switched off by an interval no budget reaches.
NO_LOGS = 1 << 60
#: Copies of the world that a deep agent learns from side by side.
SB3_ENVS = 8


def _sb3(algorithm: str) -> Callable[[int], Any]:
    def make(seed: int) -> Any:
        from rpl_agent.studies.baselines.sb3 import SB3Agent  # torch is loaded only where it is used

        return SB3Agent(algorithm, seed=seed, num_envs=SB3_ENVS)

    return make


def rpl(
    confidence: str,
    relaxation: str,
    schedule: str = "state-action",
    delta: float = 1e-3,
    exploration: str = "optimistic",
) -> Callable[[int], Any]:
    """Our agent with one set."""
    rule: Schedule = NAMED[schedule]  # type: ignore[assignment]  # a dictionary of several classes
    return lambda seed: RPLAgent(
        confidence=confidence, relaxation=relaxation, delta=delta, schedule=rule, exploration=exploration, seed=seed
    )


#: name -> seed -> agent.
AGENTS: dict[str, Callable[[int], Any]] = {
    "rpl": lambda seed: RPLAgent(delta=1e-3, seed=seed),
    "rpl-optimistic": rpl("likelihood", "coupled"),
    "rpl-rectangular": rpl("likelihood", "rectangular"),
    "rpl-pooled": rpl("likelihood", "rectangular", "expression"),
    "rpl-anytime": rpl("anytime", "rectangular"),
    "rpl-expression": rpl("likelihood", "expression"),
    "paper-tied": rpl("clopper-pearson", "tied"),
    "paper-expression": rpl("clopper-pearson", "expression"),
    "paper-rectangular": rpl("clopper-pearson", "rectangular"),
    "interval-tied": lambda seed: IntervalLearning(tied=True, seed=seed),
    "interval-untied": lambda seed: IntervalLearning(tied=False, seed=seed),
    "q-learning": lambda seed: QLearning(seed=seed),
    "rmax": lambda seed: RMax(seed=seed),
    "ucrl2": lambda seed: UCRL2(seed=seed),
    "ucbvi": lambda seed: UCBVI(seed=seed),
    "psrl": lambda seed: PSRL(seed=seed),
    "ce": lambda seed: CertaintyEquivalence(seed=seed),
    "ce-structured": lambda seed: CertaintyEquivalence(structured=True, seed=seed),
    "dqn": _sb3("dqn"),
    "ppo": _sb3("ppo"),
    "maskable-ppo": _sb3("maskable-ppo"),
}


#: Agents of Stable-Baselines3, and the package that each needs.
NEEDS = {"dqn": "stable_baselines3", "ppo": "stable_baselines3", "maskable-ppo": "sb3_contrib"}


def require_installed(names: Sequence[str]) -> None:
    """Raise unless every agent's package is there: before anything is run, not in the middle of a sweep."""
    missing = [name for name in names if name in NEEDS and find_spec(NEEDS[name]) is None]
    if missing:
        raise ModelError(f"{', '.join(missing)} needs Stable-Baselines3: pip install stable-baselines3")


def make(name: str, seed: int) -> Any:
    if name not in AGENTS:
        raise ModelError(f"no agent {name!r}; there are {sorted(AGENTS)}")
    return AGENTS[name](seed)


class Curve:
    """Collects the points of a learning curve; time spent measuring is not the agent's."""

    def __init__(self, instance: str):
        self.world = rpl_envs.benchmark(instance)
        self.points: list[dict[str, Any]] = []
        self.measuring = 0.0
        self._start = time.perf_counter()
        self._known: tuple[bytes, float] | None = None

    def measure(self, agent: Any, policy: Policy | None = None) -> None:
        now = time.perf_counter()
        learning = now - self._start - self.measuring
        certificate = agent.certificate
        self.points.append(
            {
                "episodes": agent.num_episodes,
                "steps": agent.num_timesteps,
                "seconds": learning,
                "true": self.value(policy or agent.policy),
                "certified": None if certificate is None else certificate.guarantee,
                "lower": None if certificate is None else certificate.lower,
                "upper": None if certificate is None else certificate.upper,
                "updates": getattr(agent, "num_updates", None),
            }
        )
        self.measuring += time.perf_counter() - now

    def value(self, policy: Policy) -> float:
        """Exact value of a policy at the truth; an unchanged policy is not solved again."""
        identity = policy.rows.tobytes() if policy.rows is not None else policy.as_weights(self.world.pmdp).tobytes()
        if self._known is None or self._known[0] != identity:
            world = self.world
            theta = np.asarray(world.theta)
            self._known = (identity, true_value(world.pmdp, world.objective, policy, theta))
        return self._known[1]


class _Certified(BaseCallback):
    """Certifies and measures at checkpoints of one run: an agent that knows its budget bets with a deadline."""

    def __init__(self, curve: Curve, checkpoints: Sequence[int]):
        super().__init__()
        self.curve, self.left = curve, list(checkpoints)
        self.every_episodes = self.left[0]

    def _on_step(self) -> bool:
        if self.agent.num_episodes >= self.left[0]:
            self.left.pop(0)
            self.curve.measure(self.agent, self.agent.certify().policy)
        self.every_episodes = self.left[0] - self.agent.num_episodes if self.left else None
        return True


def learn(agent: Any, instance: str, checkpoints: Sequence[int]) -> Curve:
    """Let an agent learn on a world of ours up to the last checkpoint."""
    import gymnasium as gym

    env = gym.make(f"rpl/{instance}-v0")
    curve = Curve(instance)
    try:
        if isinstance(agent, RPLAgent):
            agent.learn(env, checkpoints[-1], callback=_Certified(curve, checkpoints), log_interval=NO_LOGS)
        else:
            agent.learn(env, checkpoints[-1], checkpoints=checkpoints, callback=curve.measure)
    finally:
        env.close()
    return curve


#: Solver precision of the tables: far below what the paper prints.
PRECISION = 1e-6

Outcome = tuple[dict[str, Any], dict[str, float]]


def instance_name(name: str) -> str:
    """ "rpl/Aircraft-20x10-v0" and "Aircraft-20x10" are the same world."""
    return re.sub(r"^(rpl_envs:)?(rpl/)?|-v\d+$", "", name)


class Truth(NamedTuple):
    """The optimum at the true parameters."""

    value: float
    policy: Policy
    seconds: float


@lru_cache(maxsize=2)
def truth(instance: str) -> Truth:
    """V* and an optimal policy of the true model."""
    world = rpl_envs.benchmark(instance)
    solution = solve_at(world.pmdp, world.theta, world.objective, precision=PRECISION)
    if not solution.upper - solution.lower <= 1e-3 * abs(solution.upper):
        raise DataError(f"the optimum of {instance} is only known to lie in [{solution.lower}, {solution.upper}]")
    return Truth(solution.middle, solution.policy, solution.seconds)


@lru_cache(maxsize=1)
def data(instance: str, seed: int, episodes: int) -> tuple[Counts, float]:
    """Counts of uniform trajectories, drawn once for all sets; and the seconds it took."""
    world = rpl_envs.benchmark(instance)
    start = time.perf_counter()
    counts = uniform_counts(
        world.pmdp, world.objective, np.asarray(world.theta), episodes, world.max_episode_steps, seed
    )
    return counts, time.perf_counter() - start


def sizes(task: Task) -> Outcome:
    """Table 1: the model's sizes, and its optimal value."""
    start = time.perf_counter()
    world = rpl_envs.benchmark(task["instance"])
    build = time.perf_counter() - start
    pmdp, best = world.pmdp, truth(task["instance"])
    result = {
        "states": pmdp.num_states,
        "rows": pmdp.num_rows,
        "transitions": pmdp.num_transitions,
        "expressions": pmdp.num_expressions,
        "parameters": pmdp.num_parameters,
        "rank": pmdp.table.reduction.rank,
        "degree": pmdp.table.degree,
        "objective": world.objective.describe(),
        "value": best.value,
    }
    return result, {"build": build, "solve": best.seconds}


def uniform(task: Task) -> Outcome:
    """Tables 2, 3, 5: bounds on the value of the true-optimal policy from uniform data."""
    name = task["instance"]
    world, best = rpl_envs.benchmark(name), truth(name)
    counts, sampling = data(name, task["seed"], task["episodes"])
    config = Config(task["confidence"], task["relaxation"], task["delta"], PRECISION)
    found = certify(world.pmdp, counts, world.objective, config, policy=best.policy)
    result = {
        "lower": found.lower,
        "upper": found.upper,
        "value": best.value,
        "gap": found.gap,
        "relative_gap": found.gap / best.value,
        "covered": bool(found.lower <= best.value <= found.upper),
        "transitions": counts.total,
        "empty": found.empty,
        "refuted": found.refuted,
        "fallback": found.fallback,
        "slack": found.slack,
    }
    stages = {f"stage {k}": v for k, v in found.timings.items()}
    return result, {"build": found.build_seconds, "solve": found.solve_seconds, "sampling": sampling} | stages


def online(task: Task) -> Outcome:
    """Figures 2 and 4: value and guarantee of the robust policy along the way."""
    exploration = task.get("exploration", "optimistic")
    make_agent = rpl(task["confidence"], task["relaxation"], task["schedule"], task["delta"], exploration)
    return _learning(make_agent(task["seed"]), task)


def compare(task: Task) -> Outcome:
    """One agent on one world."""
    return _learning(make(task["agent"], task["seed"]), task)


def _learning(agent: Any, task: Task) -> Outcome:
    name = instance_name(task["instance"])
    best = truth(name)
    curve = learn(agent, name, checkpoints(task["episodes"]))
    seconds = [point.pop("seconds") for point in curve.points]
    result = {"value": best.value, "sense": curve.world.objective.sense.value, "curve": curve.points}
    return result, {"learning": seconds[-1], "measuring": curve.measuring, "curve": seconds}  # type: ignore[dict-item]


KINDS: dict[str, Callable[[Task], Outcome]] = {
    "sizes": sizes,
    "uniform": uniform,
    "online": online,
    "compare": compare,
}
