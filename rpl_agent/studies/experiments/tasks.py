"""One run = one row: what each kind of task does, and the agents by name. Each function returns (result, timing).

``result`` depends on the task alone; everything that depends on the machine goes to ``timing``. A learning curve is
measured from outside (`worlds`): at given numbers of episodes, the value of the policy the agent would return then,
and its certified value where it has one.
"""

from __future__ import annotations

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
from rpl_agent.core.errors import ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Policy
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import Config
from rpl_agent.studies.baselines import PSRL, UCBVI, UCRL2, CertaintyEquivalence, IntervalLearning, QLearning, RMax
from rpl_agent.studies.baselines.base import Baseline
from rpl_agent.studies.experiments.suites import Task, checkpoints
from rpl_agent.studies.experiments.worlds import PRECISION, ComparedWorld, narrow_optimum, policy_in, world_of

#: The agent's own certificates while learning are switched off by an interval no budget reaches.
NO_LOGS = 1 << 60
#: Copies of the world that a deep agent learns from side by side.
SB3_ENVS = 8
#: Episodes by which a policy is measured where the true parameters are not known.
MEASURED = 1_000


#: A seed and the world -> an agent for it.
Maker = Callable[[int, ComparedWorld | None], Any]


def _sb3(algorithm: str) -> Maker:
    def make(seed: int, world: ComparedWorld | None) -> Any:
        from rpl_agent.studies.baselines.sb3 import SB3Agent  # torch is loaded only where it is used

        known: dict[str, Any] = {} if world is None else {"attachment": world.attachment, "make_env": world.make}
        return SB3Agent(algorithm, seed=seed, num_envs=SB3_ENVS, **known)

    return make


def _tabular(kind: type[Baseline], **settings: Any) -> Maker:
    return lambda seed, world: kind(seed=seed, attachment=None if world is None else world.attachment, **settings)


def rpl(
    confidence: str,
    relaxation: str,
    schedule: str = "state-action",
    delta: float = 1e-3,
    exploration: str = "optimistic",
) -> Maker:
    """Our agent with one set."""
    rule: Schedule = NAMED[schedule]  # type: ignore[assignment]  # a dictionary of several classes
    method = {"confidence": confidence, "relaxation": relaxation, "delta": delta}
    return _ours(schedule=rule, exploration=exploration, **method)


def _ours(**settings: Any) -> Maker:
    return lambda seed, world: RPLAgent(**settings, seed=seed, **({} if world is None else world.options))


#: name -> its maker.
AGENTS: dict[str, Maker] = {
    "rpl": _ours(delta=1e-3),
    "rpl-optimistic": rpl("likelihood", "coupled"),
    "rpl-rectangular": rpl("likelihood", "rectangular"),
    "rpl-pooled": rpl("likelihood", "rectangular", "expression"),
    "rpl-anytime": rpl("anytime", "rectangular"),
    "rpl-expression": rpl("likelihood", "expression"),
    "paper-tied": rpl("clopper-pearson", "tied"),
    "paper-expression": rpl("clopper-pearson", "expression"),
    "paper-rectangular": rpl("clopper-pearson", "rectangular"),
    "interval-tied": _tabular(IntervalLearning, tied=True),
    "interval-untied": _tabular(IntervalLearning, tied=False),
    "q-learning": _tabular(QLearning),
    "rmax": _tabular(RMax),
    "ucrl2": _tabular(UCRL2),
    "ucbvi": _tabular(UCBVI),
    "psrl": _tabular(PSRL),
    "ce": _tabular(CertaintyEquivalence),
    "ce-structured": _tabular(CertaintyEquivalence, structured=True),
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


def make(name: str, seed: int, world: ComparedWorld | None = None) -> Any:
    """An agent by name, for a world if that is not known by the environment alone."""
    if name not in AGENTS:
        raise ModelError(f"no agent {name!r}; there are {sorted(AGENTS)}")
    return AGENTS[name](seed, world)


class Curve:
    """Collects the points of a learning curve; time spent measuring is not the agent's.

    episodes : of each measurement, where values are not computed; ``seed`` is theirs
    """

    def __init__(self, world: ComparedWorld, episodes: int = MEASURED, seed: int = 0):
        self.world, self.episodes, self.seed = world, episodes, seed
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
        """The value of a policy, see `ComparedWorld.value`; an unchanged one is not measured again."""
        identity = policy.rows.tobytes() if policy.rows is not None else policy.as_weights(self.world.pmdp).tobytes()
        if self._known is None or self._known[0] != identity:
            self._known = (identity, self.world.value(policy, self.episodes, self.seed))
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


def learn(agent: Any, world: ComparedWorld, checkpoints: Sequence[int], curve: Curve) -> None:
    """Let an agent learn on a world up to the last checkpoint."""
    env = world.make()
    try:
        if isinstance(agent, RPLAgent):
            agent.learn(env, checkpoints[-1], callback=_Certified(curve, checkpoints), log_interval=NO_LOGS)
        else:
            agent.learn(env, checkpoints[-1], checkpoints=checkpoints, callback=curve.measure)
    finally:
        env.close()


Outcome = tuple[dict[str, Any], dict[str, float]]


class Truth(NamedTuple):
    """The optimum at the true parameters."""

    value: float
    policy: Policy
    seconds: float


@lru_cache(maxsize=2)
def truth(instance: str) -> Truth:
    """V* and an optimal policy of the true model."""
    world = rpl_envs.benchmark(instance)
    solution = narrow_optimum(instance, world.pmdp, np.asarray(world.theta), world.objective)
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
    world = world_of(task)
    return _learning(make_agent(task["seed"], world), world, task)


def compare(task: Task) -> Outcome:
    """One agent on one world, or a given policy."""
    world = world_of(task)
    if "policy" in task:
        return _given(policy_in(task["policy"], world), world, task)
    return _learning(make(task["agent"], task["seed"], world), world, task)


def _learning(agent: Any, world: ComparedWorld, task: Task) -> Outcome:
    curve = Curve(world, task.get("measured", MEASURED), task["seed"])
    learn(agent, world, checkpoints(task["episodes"]), curve)
    seconds = [point.pop("seconds") for point in curve.points]
    result = {**_truth(world, task), "curve": curve.points}
    return result, {"learning": seconds[-1], "measuring": curve.measuring, "curve": seconds}  # type: ignore[dict-item]


def _truth(world: ComparedWorld, task: Task) -> dict[str, Any]:
    """What a curve is compared with, and how it was measured."""
    exact = world.theta is not None
    measured = {} if exact else {"measured": task.get("measured", MEASURED)}
    return {"value": world.optimum(), "sense": world.objective.sense.value, **measured}


def _given(policy: Policy, world: ComparedWorld, task: Task) -> Outcome:
    """A policy that learns nothing, as a level line beside the curves of those that learn."""
    start = time.perf_counter()
    value = world.value(policy, task.get("measured", MEASURED), task["seed"])
    steps = world.steps(policy, task["seed"])
    nothing = dict.fromkeys(("certified", "lower", "upper", "updates"))
    points = [
        {"episodes": n, "steps": round(n * steps), "true": value, **nothing} for n in checkpoints(task["episodes"])
    ]
    seconds = time.perf_counter() - start
    timing = {"learning": 0.0, "measuring": seconds, "curve": [0.0] * len(points)}
    return {**_truth(world, task), "curve": points}, timing  # type: ignore[return-value]


KINDS: dict[str, Callable[[Task], Outcome]] = {
    "sizes": sizes,
    "uniform": uniform,
    "online": online,
    "compare": compare,
}
