"""What a checkpoint of a session holds, and how a session is made from one.

Everything that decides the rest of a run is here: counts with their marks, the sampling policy and its limits, random
states, and the warm starts (which decide the last digits of a solution, hence possibly a policy).
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from typing import Any

import numpy as np

from rpl_agent.agent.exploration import Exploration
from rpl_agent.agent.planner import STAGES
from rpl_agent.agent.sampling.experience import Experience
from rpl_agent.agent.sampling.sources import plain_state, set_generator
from rpl_agent.agent.schedule import Limits, Schedule, Target, schedule_from_dict, schedule_to_dict
from rpl_agent.agent.session import Clock, Session
from rpl_agent.agent.storage.checkpoint import CheckpointError
from rpl_agent.agent.storage.stored_model import model_from_data, model_to_data
from rpl_agent.certificate import Certificate, versions
from rpl_agent.errors import DataError, ModelError
from rpl_agent.evidence.counts import Counts
from rpl_agent.likelihood.refutation.alternatives import Doubt
from rpl_agent.model.objective import Objective
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.policy import Policy
from rpl_agent.model.states import StateIndex
from rpl_agent.pipeline import Config
from rpl_agent.schema import Anything, Flag, Maybe, Number, Text, Whole, check, check_array
from rpl_agent.solver.solution import Solution

_SOLUTIONS = ("robust", "optimistic")
_SECONDS = Number(0.0, 1e18)
_NUMBERS = ("lower", "upper", "iterations", "seconds", "converged", "precision")  # of a solution
_CALL = [Anything()]
#: Arrays of the model have names that begin so.
MODEL = "model."
#: Arrays of whole numbers, by the last part of their name; the others hold floats.
_WHOLE = (
    "transitions", "planned", "mark_totals", "mark_successes", "mark_trials", "lengths", "seen", "rows", "expressions",
)  # fmt: skip
_OBJECTIVE = {
    "kind": Text(), "sense": Text(), "target": Maybe(Text()), "avoid": Maybe(Text()), "reward_name": Maybe(Text()),
    "unreached": Maybe(Text()),
    "discount": Maybe(Number(0.0, 1.0)), "horizon": Maybe(Whole(0)),
}  # fmt: skip
#: Of state.json; arrays are checked against the model where they are used.
SCHEMA = {
    "model": {"hash": Text(), "name": Text(), "data": Maybe({})}, "env": Maybe({}),
    "limit": Maybe({"steps": Maybe(Whole()), "cuts": Flag()}), "objective": _OBJECTIVE, "config": {}, "schedule": {},
    "settings": {
        "weight": Number(0.0, 1.0), "compiled": Flag(), "check_rewards": Maybe(Flag()), "seed": Whole(0, 2**128),
        "mode": Text(), "exploration": Maybe(Text()), "end": Maybe(Whole()),
    },
    "progress": {
        "episodes": Whole(), "steps": Whole(), "updates": Whole(), "elapsed": _SECONDS, "skipped": Whole(),
        "interrupted": Flag(), "sources": Whole(),
    },
    "target": Maybe({
        "unit": Text(), "goal": Whole(), "stop_when_gap": Maybe(Number(0.0)), "log_interval": Maybe(Whole(1)),
    }),
    "rng": {"agent": {}, "source": Maybe({"simulator": Maybe([Whole(0, 2**64 - 1)]), "opening": [_CALL]})},
    "evidence": Text(64, True), "doubt": Maybe({"kind": Text(), "number": Anything()}),
    "seconds": dict.fromkeys(STAGES, _SECONDS), "certificate": Maybe(Text(1 << 33)),
    "limits": Maybe({"episodes": Maybe(Whole()), "not_before": Whole()}),
    **{f"solution.{name}": Maybe(dict.fromkeys(_NUMBERS, Text(64, True))) for name in _SOLUTIONS},
}  # fmt: skip


def capture(
    session: Session, schedule: Schedule, settings: dict[str, Any], source: dict[str, Any] | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """State as JSON and as arrays. ``settings`` are the agent's own, ``source`` is the state of its stream."""
    planner = session.planner
    if session.stored_model is None:
        session.stored_model = model_to_data(session.pmdp)
    model, model_arrays = session.stored_model
    state: dict[str, Any] = {
        "model": {"hash": session.pmdp.content_hash, "name": session.pmdp.name, "data": model},
        "limit": {"steps": session.time_limit, "cuts": session.limit_cuts},
        "env": session.env_spec,
        "objective": session.objective.to_dict(),
        "config": asdict(session.config),
        "schedule": schedule_to_dict(schedule),
        "settings": {**settings, "seed": session.seed},
        "progress": {
            "episodes": session.episodes, "steps": session.steps, "updates": session.updates,
            "elapsed": session.clock.elapsed, "skipped": planner.skipped, "interrupted": session.interrupted,
            "sources": session.sources, "cut": session.cut, "reward_error": session.experience.reward_error,
        },
        "target": None if session.target is None else session.target.to_dict(),
        "rng": {"agent": plain_state(session.rng.bit_generator.state), "source": source},
        "evidence": float(planner.evidence.log_e_value).hex(),  # every bit, and minus infinity
        "doubt": {"kind": planner.evidence.kind, "number": planner.evidence.number},
        "seconds": planner.seconds,
        "certificate": None if session.certificate is None else session.certificate.to_json(),
        "versions": versions(),
    }  # fmt: skip
    arrays = {f"counts.{name}": array for name, array in session.experience.counts.to_arrays().items()}
    for side, earlier in session.earlier.items():
        arrays |= {f"{side}.{name}": array for name, array in earlier.to_arrays().items()}
    arrays |= {f"{MODEL}{name}": array for name, array in model_arrays.items()}
    arrays["returns"] = np.array(session.returns, dtype=float)
    arrays["lengths"] = np.array(session.lengths, dtype=np.int64)
    if planner.estimate is not None:
        arrays["estimate"] = planner.estimate
    if planner.seen is not None:
        arrays["seen"] = planner.seen
    if session.sampling is not None:
        arrays["sampling"] = session.sampling.as_weights(session.pmdp)
    if session.informative is not None:
        arrays["informative"] = session.informative.as_weights(session.pmdp)
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
    if session.limits is not None:
        limits = session.limits
        state["limits"] = {"episodes": limits.episodes, "not_before": limits.not_before}
        for name in ("rows", "expressions"):
            if getattr(limits, name) is not None:
                arrays[f"limits.{name}"] = getattr(limits, name)
    return state, arrays


def stored_model(state: dict[str, Any], arrays: dict[str, np.ndarray]) -> ParametricMDP | None:
    """The model that a checkpoint holds; None in files of versions that stored none."""
    check(state, SCHEMA, "the checkpoint", CheckpointError)
    data = state["model"].get("data")
    if data is None:
        return None
    return model_from_data(data, {k.removeprefix(MODEL): v for k, v in arrays.items() if k.startswith(MODEL)})


def settings_from_state(state: dict[str, Any], schedule: Schedule | None) -> dict[str, Any]:
    """Arguments of the agent's constructor; the state is checked here, before anything is made from it."""
    check(state, SCHEMA, "the checkpoint", CheckpointError)
    try:
        return {
            "config": Config(**state["config"]),
            "objective": Objective.from_dict(state["objective"]),
            "schedule": schedule if schedule is not None else schedule_from_dict(state["schedule"]),
            **{key: state["settings"][key] for key in ("weight", "compiled", "check_rewards", "seed")},
            "exploration": state["settings"].get("exploration") or "optimistic",
            "end": None if state["settings"].get("end") is None else StateIndex(state["settings"]["end"]),
        }
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        if isinstance(error, (ModelError, DataError)):
            raise
        raise CheckpointError(f"the checkpoint's settings are not readable: {error!r}") from None


def restore(session: Session, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Put a stored state into a session whose model is fixed."""
    try:
        stored = state["model"]
        if stored["hash"] != session.pmdp.content_hash:
            raise CheckpointError(
                f"the checkpoint belongs to the model {stored['name']!r} and not to this {session.pmdp!r}"
            )
        _restore(session, state, arrays)
    except (ModelError, DataError):
        raise
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError) as error:
        raise CheckpointError(f"the checkpoint's state is not readable: {error!r}") from None


def _restore(session: Session, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    pmdp, planner, progress = session.pmdp, session.planner, state["progress"]
    _check_arrays(arrays, pmdp)
    counts = Counts.from_arrays(
        pmdp, {k.removeprefix("counts."): v for k, v in arrays.items() if k.startswith("counts.")}
    )
    for side in ("lower", "upper"):
        stored = {k.removeprefix(f"{side}."): v for k, v in arrays.items() if k.startswith(f"{side}.")}
        if stored:
            session.earlier[side] = Counts.from_arrays(pmdp, stored)
    session.experience = Experience(pmdp, counts)
    session.experience.reward_error = float(progress.get("reward_error", 0.0))
    session.episodes, session.steps = int(progress["episodes"]), int(progress["steps"])
    session.stored_steps = session.steps
    session.updates, session.clock = int(progress["updates"]), Clock(float(progress["elapsed"]))
    session.interrupted, session.sources = bool(progress["interrupted"]), int(progress["sources"])
    session.cut = int(progress.get("cut", 0))
    limit = state.get("limit")
    if limit is not None:
        session.time_limit, session.limit_cuts = limit["steps"], limit["cuts"]
    session.target = None if state["target"] is None else Target(**state["target"])
    set_generator(session.rng, state["rng"]["agent"])
    session.env_spec, session.source_state = state["env"], state["rng"]["source"]
    session.opening = [] if session.source_state is None else session.source_state["opening"]
    session.returns = deque(arrays["returns"].tolist(), maxlen=session.returns.maxlen)
    session.lengths = deque(arrays["lengths"].tolist(), maxlen=session.lengths.maxlen)
    certificate = state["certificate"]
    if certificate is not None and not certificate.startswith("{"):  # anything else would be taken for a file's name
        raise CheckpointError("the checkpoint: certificate is not JSON")
    session.certificate = None if certificate is None else Certificate.from_json(certificate)
    if session.certificate is not None:
        session.certificate.policy.check(pmdp)
    planner.seconds = {stage: float(state["seconds"].get(stage, 0.0)) for stage in STAGES}  # logging came later
    planner.skipped, doubt = int(progress["skipped"]), state.get("doubt") or {"kind": "rows", "number": -1}
    planner.evidence = Doubt(float.fromhex(state["evidence"]), doubt["kind"], int(doubt["number"]))
    planner.estimate, planner.seen = arrays.get("estimate"), arrays.get("seen")
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
    session.sampling, session.informative = _sampling(arrays, "sampling", pmdp), _sampling(arrays, "informative", pmdp)
    session.limits = _limits(state.get("limits"), arrays, pmdp.num_rows, pmdp.num_expressions)


def _sampling(arrays: dict[str, np.ndarray], name: str, pmdp: ParametricMDP) -> Policy | None:
    if name not in arrays:
        return None
    policy = Policy.randomised(arrays[name])
    policy.check(pmdp)
    return policy


def _check_arrays(arrays: dict[str, np.ndarray], pmdp: ParametricMDP) -> None:
    """Kinds and shapes; policies and solutions check themselves."""
    unknown = int((~pmdp.table.is_constant).sum())
    for name, array in arrays.items():
        if name.startswith(MODEL):  # compared by its hash
            continue
        whole = name.rpartition(".")[2] in _WHOLE
        if not name.endswith(".schedule") and array.dtype.kind != ("i" if whole else "f"):
            raise CheckpointError(f"the checkpoint: {name} holds {array.dtype}")
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise CheckpointError(f"the checkpoint: {name} contains NaN")
    marks = len(np.atleast_1d(arrays.get("counts.mark_totals", np.zeros(0))))
    check_array(arrays.get("counts.mark_totals"), "i", (marks,), "the checkpoint: totals of the marks")
    check_array(arrays.get("counts.mark_weights"), "f", (marks,), "the checkpoint: weights of the marks")
    check_array(arrays.get("counts.mark_successes"), "i", (marks, pmdp.num_expressions), "the checkpoint: marks")
    if "counts.mark_progress" in arrays:
        progress = arrays["counts.mark_progress"]
        check_array(progress, "f", (marks,), "the checkpoint: progress of the marks")
        bets = int((progress > 0.0).sum())
        check_array(
            arrays.get("counts.mark_trials"), "i", (bets, pmdp.num_expressions), "the checkpoint: trials of the marks"
        )
    check_array(arrays.get("returns"), "v", (None,), "the checkpoint: returns")
    check_array(arrays.get("lengths"), "i", (None,), "the checkpoint: lengths")
    for name, kind, size in (("estimate", "f", pmdp.num_parameters), ("seen", "i", unknown)):
        if name in arrays:
            check_array(arrays[name], kind, (size,), f"the checkpoint: {name}")
    if "exploration.rows" in arrays:
        values = arrays.get("exploration.values")
        shape = (None,) * (1 if values is None else values.ndim - 1)
        check_array(values, "v", (*shape, pmdp.num_states), "the checkpoint: values")


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


# ---------------------------------------------------------------------- solutions: a warm start decides the last digits
def solution_to_arrays(solution: Solution) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(numbers as JSON, arrays)."""
    numbers = {name: float(getattr(solution, name)).hex() for name in _NUMBERS}  # hex keeps every bit, and infinities
    arrays = {"lower": solution.lower_values, "upper": solution.upper_values}
    if solution.policy.rows is not None:
        arrays["rows"] = solution.policy.rows
    else:
        arrays["weights"] = solution.policy.as_weights(solution.problem.relaxation.pmdp)
    return numbers, arrays


def solution_from_arrays(pmdp: ParametricMDP, numbers: dict[str, Any], arrays: dict[str, np.ndarray]) -> Solution:
    """A solution good for warm starts and for its policy; it carries no evidence (its problem is gone)."""
    lower, upper = arrays["lower"], arrays["upper"]
    if lower.shape[-1] != pmdp.num_states or upper.shape != lower.shape:
        raise CheckpointError(f"the checkpoint's values have shape {lower.shape}, the model {pmdp.num_states} states")
    policy = Policy.deterministic(arrays["rows"]) if "rows" in arrays else Policy.randomised(arrays["weights"])
    policy.check(pmdp)
    found = {name: float.fromhex(numbers[name]) for name in _NUMBERS}
    return Solution(
        problem=None,  # type: ignore[arg-type]
        lower=found["lower"], upper=found["upper"], lower_values=lower, upper_values=upper, policy=policy,
        iterations=int(found["iterations"]), seconds=found["seconds"], converged=bool(found["converged"]),
        precision=found["precision"],
    )  # fmt: skip
