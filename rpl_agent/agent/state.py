"""What a checkpoint of the agent holds, and how an agent is made from one.

Everything that decides the rest of a run is here: counts with their marks, the sampling policy and its limits, random
states, and the warm starts (which decide the last digits of a solution, hence possibly a policy).
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from rpl_agent.agent.checkpoint import CheckpointError
from rpl_agent.agent.exploration import Exploration
from rpl_agent.agent.planner import STAGES
from rpl_agent.agent.sampling import Experience, plain_state, set_generator
from rpl_agent.agent.schedule import Limits, Schedule, schedule_from_dict, schedule_to_dict
from rpl_agent.agent.target import Target
from rpl_agent.agent.warm import solution_from_arrays, solution_to_arrays
from rpl_agent.certificate import Certificate
from rpl_agent.certify import Config, versions
from rpl_agent.errors import DataError, ModelError
from rpl_agent.evidence.counts import Counts
from rpl_agent.model.objective import Objective
from rpl_agent.model.policy import Policy

if TYPE_CHECKING:
    from rpl_agent.agent.rpl import RPLAgent

_SOLUTIONS = ("robust", "optimistic")


def capture(agent: RPLAgent) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """State as JSON and as arrays."""
    planner, world = agent.planner, agent.world
    source = agent._source.get_state() if agent._source is not None else agent._source_state
    state: dict[str, Any] = {
        "model": {"hash": agent.pmdp.content_hash, "name": agent.pmdp.name},
        "env": agent._env_spec if world is None else world.spec,
        "objective": agent.objective.to_dict(),
        "config": asdict(agent.config),
        "schedule": schedule_to_dict(agent.schedule),
        "settings": {
            "weight": agent.weight, "compiled": agent.compiled, "check_rewards": agent.check_rewards,
            "seed": agent.seed,
        },
        "mode": agent.mode,
        "progress": {
            "episodes": agent.num_episodes, "steps": agent.num_timesteps, "updates": agent.num_updates,
            "elapsed": agent.elapsed, "skipped": planner.skipped, "interrupted": agent.interrupted,
        },
        "target": None if agent.target is None else agent.target.to_dict(),
        "rng": {"agent": plain_state(agent.rng.bit_generator.state), "source": source},
        "seconds": planner.seconds,
        "certificate": None if agent.certificate is None else agent.certificate.to_json(),
        "versions": versions(),
    }  # fmt: skip
    arrays = {f"counts.{name}": array for name, array in agent.experience.counts.to_arrays().items()}
    arrays["returns"] = np.array(agent.returns, dtype=float)
    arrays["lengths"] = np.array(agent.lengths, dtype=np.int64)
    if planner.estimate is not None:
        arrays["estimate"] = planner.estimate
    if planner._seen is not None:
        arrays["seen"] = planner._seen
    if agent._sampling is not None:
        arrays["sampling"] = agent._sampling.as_weights(agent.pmdp)
    if planner.optimistic is not None:
        arrays["exploration.values"] = planner.optimistic.values
        assert planner.optimistic.policy.rows is not None  # optimism is deterministic
        arrays["exploration.rows"] = planner.optimistic.policy.rows
    for name in _SOLUTIONS:
        solution = getattr(planner.solutions, name)
        if solution is not None:
            extra, some = solution_to_arrays(solution)
            state[f"solution.{name}"] = extra
            arrays |= {f"solution.{name}.{key}": value for key, value in some.items()}
    if agent._limits is not None:
        limits = agent._limits
        state["limits"] = {"episodes": limits.episodes, "not_before": limits.not_before}
        for name in ("rows", "expressions"):
            if getattr(limits, name) is not None:
                arrays[f"limits.{name}"] = getattr(limits, name)
    return state, arrays


def settings_from_state(state: dict[str, Any], schedule: Schedule | None) -> dict[str, Any]:
    """Arguments of the agent's constructor."""
    try:
        return {
            "config": Config(**state["config"]),
            "objective": Objective.from_dict(state["objective"]),
            "schedule": schedule if schedule is not None else schedule_from_dict(state["schedule"]),
            **{key: state["settings"][key] for key in ("weight", "compiled", "check_rewards", "seed")},
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, (ModelError, DataError)):
            raise
        raise CheckpointError(f"the checkpoint's settings are not readable: {error!r}") from None


def restore(agent: RPLAgent, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Put a stored state into an agent whose model is attached."""
    try:
        stored = state["model"]
        if stored["hash"] != agent.pmdp.content_hash:
            raise CheckpointError(
                f"the checkpoint belongs to the model {stored['name']!r} and not to this {agent.pmdp!r}"
            )
        _restore(agent, state, arrays)
    except (ModelError, DataError):
        raise
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise CheckpointError(f"the checkpoint's state is not readable: {error!r}") from None


def _restore(agent: RPLAgent, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    pmdp, planner, progress = agent.pmdp, agent.planner, state["progress"]
    counts = Counts.from_arrays(
        pmdp, {k.removeprefix("counts."): v for k, v in arrays.items() if k.startswith("counts.")}
    )
    agent._experience = Experience(pmdp, counts)
    agent.num_episodes, agent.num_timesteps = int(progress["episodes"]), int(progress["steps"])
    agent.num_updates, agent.elapsed = int(progress["updates"]), float(progress["elapsed"])
    agent.interrupted = bool(progress["interrupted"])
    agent.mode = state["mode"]
    agent.target = None if state["target"] is None else Target(**state["target"])
    set_generator(agent.rng, state["rng"]["agent"])
    agent._env_spec, agent._source_state = state["env"], state["rng"]["source"]
    agent.returns = deque(arrays["returns"].tolist(), maxlen=agent.returns.maxlen)
    agent.lengths = deque(arrays["lengths"].tolist(), maxlen=agent.lengths.maxlen)
    certificate = state["certificate"]
    agent.certificate = None if certificate is None else Certificate.from_json(certificate)
    if agent.certificate is not None:
        agent.certificate.policy.check(pmdp)
    planner.seconds = {stage: float(state["seconds"][stage]) for stage in STAGES}
    planner.skipped = int(progress["skipped"])
    planner.estimate, planner._seen = arrays.get("estimate"), arrays.get("seen")
    planner.optimistic = None
    if "exploration.rows" in arrays:
        policy, values = Policy.deterministic(arrays["exploration.rows"]), arrays["exploration.values"]
        policy.check(pmdp)
        if values.shape[-1] != pmdp.num_states:
            raise CheckpointError(
                f"the checkpoint's values have shape {values.shape}, the model {pmdp.num_states} states"
            )
        planner.optimistic = Exploration(policy, values)
    for name in _SOLUTIONS:
        some = {k.removeprefix(f"solution.{name}."): v for k, v in arrays.items() if k.startswith(f"solution.{name}.")}
        setattr(planner.solutions, name, solution_from_arrays(pmdp, state[f"solution.{name}"], some) if some else None)
    agent._sampling = None
    if "sampling" in arrays:
        agent._sampling = Policy.randomised(arrays["sampling"])
        agent._sampling.check(pmdp)
    agent._limits = _limits(state.get("limits"), arrays, pmdp.num_rows, pmdp.num_expressions)


def _limits(stored: dict[str, Any] | None, arrays: dict[str, np.ndarray], rows: int, expressions: int) -> Limits | None:
    if stored is None:
        return None
    found = {}
    for name, size in (("rows", rows), ("expressions", expressions)):
        array = arrays.get(f"limits.{name}")
        if array is not None and (array.shape != (size,) or array.dtype.kind != "i"):
            raise CheckpointError(f"the checkpoint's limits of {name} do not fit the model")
        found[name] = array
    episodes = stored["episodes"]
    return Limits(**found, episodes=None if episodes is None else int(episodes), not_before=int(stored["not_before"]))
