"""The contents of a session's checkpoint, and how to restore a session from it.

It has everything that determines the rest of a run: counts with their marks, the sampling policy and its limits, random
states, and the warm starts (which affect the last digits of a solution, hence possibly a policy).

The model is stored as plain data and arrays, so that a run can be read without an environment. Numbers stay exact:
coefficients are integers, floats keep every bit. States and actions that are not plain data (numbers, strings, tuples,
named tuples) keep their text: such a model answers queries about itself, but cannot find the state of an observation.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal

import numpy as np

from rpl_agent.agent.planner import STAGES, Memory
from rpl_agent.agent.sampling.experience import Experience, StreamState
from rpl_agent.agent.sampling.stream import set_generator
from rpl_agent.agent.schedule import Limits, Schedule, schedule_from_dict, schedule_to_dict
from rpl_agent.agent.session import Clock, Session, SessionRecord
from rpl_agent.agent.storage.checkpoint import CheckpointError
from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import ExpressionTable, Objective, ParametricMDP, Policy, StateIndex
from rpl_agent.core.model.states import START, Paid
from rpl_agent.core.schema import UNREADABLE, Positive, Share, Whole, jsonable, read
from rpl_agent.guarantee.pipeline import Config, Solutions

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class OpaqueValue:
    """A state or an action of which only the text was stored."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, eq=False)
class StoredTable:
    """`ExpressionTable.stored_parts`."""

    parameters: tuple[str, ...]
    monomials: np.ndarray | None
    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray | None
    denominators: tuple[int, ...]
    large: list[int] | None  # numerators that do not fit 64 bits


def model_to_data(pmdp: ParametricMDP) -> tuple[dict[str, Any], Arrays]:
    """(plain data, arrays) of a model."""
    arrays: Arrays = {}
    parts = {f.name: getattr(pmdp, f.name) for f in fields(pmdp)}
    for name in ("state_values", "own_actions"):
        parts[name] = None if parts[name] is None else [plain(value) for value in parts[name]]
    order = list(pmdp.variables)  # objects in files have no order
    return jsonable(parts, arrays) | {"hash": pmdp.content_hash, "order": order}, arrays


def model_from_data(data: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> ParametricMDP:
    """Inverse of `model_to_data`; raises DataError for anything else."""
    place = "the stored model is not readable"

    def table(value: Any) -> ExpressionTable:
        found = read(value, StoredTable, place, arrays)
        numbers = found.data if found.large is None else np.array(found.large, dtype=object)
        return ExpressionTable(
            found.parameters, found.monomials, (found.indptr, found.indices, numbers), found.denominators
        )

    makers: dict[Any, Any] = {ExpressionTable: table, Hashable: from_plain}
    model = read(data, ParametricMDP, place, arrays, makers=makers)
    try:
        model = replace(model, variables={name: model.variables[name] for name in data["order"]})
        found, expected = model.content_hash, data["hash"]
    except UNREADABLE as error:
        raise DataError(f"{place}: {error!r}") from None
    if found != expected:
        raise DataError(f"the stored model {model.name!r} is damaged: its hash is {found}, not {expected}")
    return model


# ---------------------------------------------------------------------- values of states and keys of actions
def plain(value: Any) -> Any:
    """Plain data for a value: anything but a number or string becomes a list that starts with its kind."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is START:
        return ["start"]
    if isinstance(value, Paid):
        return ["paid", plain(value.successor), [[name, amount.hex()] for name, amount in value.extra]]
    if type(value) is float:
        return ["float", value.hex()]
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is tuple:
        return ["tuple", [plain(item) for item in value]]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ["named", type(value).__name__, list(value._fields), [plain(item) for item in value]]
    return ["shown", repr(value)]


def from_plain(key: Any) -> Hashable:
    if not isinstance(key, list):
        return key
    kind, *rest = key
    if kind == "start":
        return START
    if kind == "paid":
        return Paid(from_plain(rest[0]), tuple((name, float.fromhex(amount)) for name, amount in rest[1]))
    if kind == "float":
        return float.fromhex(rest[0])
    if kind == "tuple":
        return tuple(map(from_plain, rest[0]))
    if kind == "named":
        return _named(rest[0], tuple(rest[1]))(*map(from_plain, rest[2]))
    return OpaqueValue(rest[0])


@cache
def _named(name: str, fields: Sequence[str]) -> Any:
    return namedtuple(name, fields)


#: Prefix of the model's arrays.
MODEL = "model."
#: Arrays of counts that are not integers.
_FLOATS = ("mark_weights", "mark_progress")


@dataclass
class Settings:
    """The agent's own settings."""

    weight: Share
    compiled: bool
    check_rewards: bool | None
    mode: str
    exploration: str
    end: Whole | None


@dataclass
class StoredCounts:
    """`Counts.to_arrays`."""

    schedule: str
    planned: np.ndarray
    transitions: np.ndarray
    mark_totals: np.ndarray
    mark_weights: np.ndarray
    mark_progress: np.ndarray
    mark_successes: np.ndarray
    mark_trials: np.ndarray


@dataclass
class StoredSolution:
    """The part of a `Solution` that a warm start needs; it is not evidence (its problem is gone)."""

    lower: float
    upper: float
    lower_values: np.ndarray
    upper_values: np.ndarray
    policy: Policy
    iterations: Whole
    seconds: Positive
    converged: bool
    precision: float


@dataclass
class SessionState:
    """All of state.json; arrays are checked against the model where they are used."""

    model: dict[str, Any]
    objective: Objective
    config: Config
    schedule: dict[str, Any]
    settings: Settings
    session: SessionRecord
    planner: Memory
    rng: dict[str, Any]
    source: StreamState | None
    elapsed: Positive
    reward_error: Positive
    counts: StoredCounts
    earlier: dict[Literal["lower", "upper", "regret"], StoredCounts]
    solutions: dict[Literal["robust", "optimistic"], StoredSolution]


def capture(
    session: Session, schedule: Schedule, settings: Settings, source: StreamState | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """State as JSON and as arrays. ``source`` is the state of the agent's stream."""
    if session.stored_model is None:
        session.stored_model = model_to_data(session.pmdp)
    model, model_arrays = session.stored_model
    planner, arrays = session.planner, {f"{MODEL}{name}": array for name, array in model_arrays.items()}
    kept = {"robust": planner.solutions.robust, "optimistic": planner.solutions.optimistic}
    state = SessionState(
        model,
        session.objective,
        session.config,
        schedule_to_dict(schedule),
        settings,
        _taken(SessionRecord, session),
        _taken(Memory, planner),
        dict(session.rng.bit_generator.state),
        source,
        session.clock.elapsed,
        session.experience.reward_error,
        _counts(session.experience.counts),
        {side: _counts(counts) for side, counts in session.earlier.items()},  # type: ignore[misc]
        {name: _taken(StoredSolution, found) for name, found in kept.items() if found is not None},  # type: ignore[misc]
    )
    return jsonable(state, arrays), arrays


def _taken(kind: Any, source: Any) -> Any:
    """Copy attributes of an object into a dataclass that has some of them."""
    return kind(**{f.name: getattr(source, f.name) for f in fields(kind)})


def _counts(counts: Counts) -> StoredCounts:
    return StoredCounts(**{**counts.to_arrays(), "schedule": counts.schedule or ""})  # type: ignore[arg-type]


def read_state(state: dict[str, Any], arrays: dict[str, np.ndarray]) -> SessionState:
    """A stored state, checked before anything is built from it."""
    return read(state, SessionState, "the checkpoint", arrays, CheckpointError)


def stored_model(state: dict[str, Any], arrays: dict[str, np.ndarray]) -> ParametricMDP:
    """The model in a checkpoint."""
    data = state.get("model")
    if not isinstance(data, dict):
        raise CheckpointError("the checkpoint holds no model")
    return model_from_data(data, {k.removeprefix(MODEL): v for k, v in arrays.items() if k.startswith(MODEL)})


def agent_arguments(stored: SessionState, schedule: Schedule | None) -> dict[str, Any]:
    """Arguments of the agent's constructor."""
    settings = stored.settings
    return {
        "config": stored.config,
        "objective": stored.objective,
        "weight": settings.weight,
        "seed": stored.session.seed,
        "schedule": schedule if schedule is not None else schedule_from_dict(stored.schedule),
        "compiled": settings.compiled,
        "check_rewards": settings.check_rewards,
        "exploration": settings.exploration,
        "end": None if settings.end is None else StateIndex(settings.end),
    }


def restore(session: Session, stored: SessionState) -> None:
    """Load a stored state into a session whose model is fixed."""
    if stored.model.get("hash") != session.pmdp.content_hash:
        name = stored.model.get("name")
        raise CheckpointError(f"the checkpoint belongs to the model {name!r}, not to {session.pmdp!r}")
    try:
        _restore(session, stored)
    except (ModelError, DataError):
        raise
    except UNREADABLE as error:
        raise CheckpointError(f"the checkpoint's state is not readable: {error!r}") from None


def _restore(session: Session, stored: SessionState) -> None:
    pmdp, planner = session.pmdp, session.planner
    _check(stored, pmdp)
    session.experience = Experience(pmdp, _restored(stored.counts, pmdp))
    session.experience.reward_error = stored.reward_error
    session.earlier = {side: _restored(counts, pmdp) for side, counts in stored.earlier.items()}
    for target, part in ((session, stored.session), (planner, stored.planner)):
        for f in fields(part):  # type: ignore[arg-type]
            setattr(target, f.name, getattr(part, f.name))
    session.stored_steps, session.clock = session.steps, Clock(stored.elapsed)
    session.source_state = stored.source
    session.opening = [] if stored.source is None else stored.source.opening
    set_generator(session.rng, stored.rng)
    planner.seconds = {stage: planner.seconds.get(stage, 0.0) for stage in STAGES}
    planner.solutions = Solutions(**stored.solutions)


def _restored(stored: StoredCounts, pmdp: ParametricMDP) -> Counts:
    for name, array in vars(stored).items():
        if name != "schedule" and array.dtype.kind != ("f" if name in _FLOATS else "i"):
            raise CheckpointError(f"the checkpoint: {name} of the counts contains {array.dtype}")
    return Counts.from_arrays(pmdp, vars(stored))


def _check(stored: SessionState, pmdp: ParametricMDP) -> None:
    """Check that policies, values and limits fit the model."""
    session, planner, solutions = stored.session, stored.planner, stored.solutions.values()
    carriers = (session.certificate, planner.optimistic, *solutions)
    allowed = None if session.within is None else session.within.policy
    for policy in (session.sampling, session.informative, allowed, *(c.policy for c in carriers if c is not None)):
        if policy is not None:
            policy.require_fit(pmdp)
    values = [(v, "f", (*v.shape[:-1], pmdp.num_states)) for s in solutions for v in (s.lower_values, s.upper_values)]
    if planner.optimistic is not None:
        values.append((planner.optimistic.values, "f", (*planner.optimistic.values.shape[:-1], pmdp.num_states)))
    limits = session.limits or Limits()
    unknown = int((~pmdp.table.is_constant).sum())
    for array, kind, shape in (
        *values,
        (planner.estimate, "f", (pmdp.num_parameters,)),
        (planner.seen, "i", (unknown,)),
        (limits.rows, "i", (pmdp.num_rows,)),
        (limits.expressions, "i", (pmdp.num_expressions,)),
    ):
        if array is not None and (array.dtype.kind != kind or array.shape != shape):
            raise CheckpointError(f"the checkpoint holds {array.dtype} of shape {array.shape}, expected {shape}")
