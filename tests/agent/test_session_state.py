"""The state of a session with a model: everything comes back, and nothing that does not fit the model is taken."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rpl_envs  # noqa: F401  (registers the worlds)
from rpl_agent.agent import Doubling, Never, RPLAgent, planner
from rpl_agent.agent.exploration.within_limits import WithinLimits
from rpl_agent.agent.sampling.experience import StreamState
from rpl_agent.agent.schedule import Limits
from rpl_agent.agent.storage.checkpoint import CheckpointError
from rpl_agent.agent.storage.state import SessionState, agent_arguments, capture, read_state, restore
from rpl_agent.core.errors import ModelError, RPLWarning
from rpl_agent.core.model import Policy, StateIndex
from tests.agent_worlds import CorridorEnv


@pytest.fixture(scope="module")
def learned():
    return RPLAgent(seed=0, compiled=False).learn(CorridorEnv(), budget=12)


def stored(agent, source: StreamState | None = None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    state, arrays = capture(agent.session, agent.schedule, agent.settings, source)
    return json.loads(json.dumps(state)), {name: array.copy() for name, array in arrays.items()}


def read(agent, source: StreamState | None = None) -> SessionState:
    state, arrays = stored(agent, source)
    return read_state(copy.deepcopy(state), arrays)


def fresh(agent) -> RPLAgent:
    made = RPLAgent(seed=0, compiled=False)
    made.session.start(agent.session.pmdp, agent.session.objective)
    return made


def restored(agent, parts: SessionState) -> RPLAgent:
    made = fresh(agent)
    restore(made.session, parts)
    return made


def comparable(state, arrays):
    """Without what a clock says."""
    plain = {name: value for name, value in state.items() if name not in ("elapsed", "settings", "schedule")}
    return plain, {name: (array.dtype.str, array.tolist()) for name, array in arrays.items()}


# ====================================================================== there and back
def test_what_is_stored_comes_back_and_is_stored_as_it_was(learned):
    state, arrays = stored(learned)
    assert state["solutions"].keys() == {"robust", "optimistic"} and state["counts"]["schedule"]
    again = restored(learned, read_state(copy.deepcopy(state), arrays))
    assert comparable(*stored(again)) == comparable(state, arrays) == comparable(*stored(again))  # and once more
    assert again.session.opening == [] and again.session.source_state is None
    assert again.session.stored_steps == learned.session.steps and again.session.clock.elapsed >= state["elapsed"]


def test_a_session_without_an_update_comes_back(learned):
    began = fresh(learned)
    state, arrays = stored(began)
    assert state["solutions"] == {} and state["session"]["certificate"] is None
    again = restored(learned, read_state(copy.deepcopy(state), arrays))
    assert comparable(*stored(again)) == comparable(state, arrays)


def test_a_stream_and_stages_that_are_missing_come_back(learned):
    source = StreamState([1, 2], [("reset", 0, "a")])
    again = restored(learned, read(learned, source))
    assert again.session.opening == source.opening and again.session.source_state == source
    parts = read(learned)
    parts.planner.seconds = {}
    assert set(restored(learned, parts).session.planner.seconds.values()) == {0.0}


def test_arguments_of_the_agent_are_the_stored_ones_but_for_a_schedule_that_is_given(learned):
    parts = read(learned)
    found = agent_arguments(parts, None)
    assert found["schedule"] == learned.schedule and found["end"] is None and found["seed"] == 0
    assert agent_arguments(parts, Never())["schedule"] == Never() != Doubling()
    parts.settings.end = 2
    assert agent_arguments(parts, None)["end"] == StateIndex(2)


def test_another_model_is_refused(learned):
    parts = read(learned)
    parts.model["hash"] = "0"
    with pytest.raises(CheckpointError, match="the checkpoint belongs to the model"):
        restored(learned, parts)


# ====================================================================== what does not fit
@pytest.mark.parametrize(
    "name, wrong",
    [
        ("transitions", lambda a: a.astype(float)),
        ("mark_totals", lambda a: a.astype(float)),
        ("mark_weights", lambda a: a.astype(np.int64)),
        ("mark_progress", lambda a: a.astype(np.int64)),
    ],
)
def test_counts_of_another_type_are_refused(learned, name, wrong):
    parts = read(learned)
    setattr(parts.counts, name, wrong(getattr(parts.counts, name)))
    with pytest.raises(CheckpointError, match=f"{name} of the counts contains"):
        restored(learned, parts)


def change(parts: SessionState, place: str, new: Any) -> None:
    *path, last = place.split(".")
    target: Any = parts
    for name in path:
        target = target[name] if isinstance(target, dict) else getattr(target, name)
    try:
        setattr(target, last, new)
    except AttributeError:  # frozen
        object.__setattr__(target, last, new)


POLICIES = ["session.sampling", "session.informative", "session.certificate.policy", "planner.optimistic.policy",
            "solutions.robust.policy", "solutions.optimistic.policy"]  # fmt: skip


@pytest.mark.parametrize("place", POLICIES)
def test_policies_of_another_model_are_refused(learned, place):
    parts = read(learned)
    change(parts, place, Policy.deterministic(np.zeros(2, np.int64)))
    with pytest.raises(ModelError, match="the policy has shape"):
        restored(learned, parts)


def test_a_policy_within_limits_fits_the_model_too(learned):
    parts = read(learned)
    parts.session.within = WithinLimits(None, None)
    assert restored(learned, parts).session.within == WithinLimits(None, None)
    parts = read(learned)
    parts.session.within = WithinLimits(Policy.deterministic(np.zeros(2, np.int64)), 3)
    with pytest.raises(ModelError, match="the policy has shape"):
        restored(learned, parts)


def arrays_of(agent) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Kinds and shapes of what is checked, by place."""
    pmdp = agent.session.pmdp
    states = ("f", (pmdp.num_states,))
    unknown = int((~pmdp.table.is_constant).sum())
    return {
        "solutions.robust.lower_values": states, "solutions.robust.upper_values": states,
        "solutions.optimistic.lower_values": states, "planner.optimistic.values": states,
        "planner.estimate": ("f", (pmdp.num_parameters,)), "planner.seen": ("i", (unknown,)),
        "session.limits.rows": ("i", (pmdp.num_rows,)), "session.limits.expressions": ("i", (pmdp.num_expressions,)),
    }  # fmt: skip


def test_arrays_have_the_type_and_the_shape_of_the_model(learned):
    for place, (kind, shape) in arrays_of(learned).items():
        for array, fits in (
            (np.zeros(shape, kind + "8"), True),
            (np.zeros(shape, "i8" if kind == "f" else "f8"), False),
            (np.zeros((*shape[:-1], shape[-1] + 1), kind + "8"), False),
            (np.zeros((*shape[:-1], shape[-1] + 1), "i8" if kind == "f" else "f8"), False),
        ):
            parts = read(learned)
            parts.session.limits = Limits(None, None)
            change(parts, place, array)
            if fits:
                restored(learned, parts)
            else:
                with pytest.raises(CheckpointError, match="the checkpoint holds"):
                    restored(learned, parts)
    with_steps = np.zeros((3, learned.session.pmdp.num_states))  # values by steps to go
    for place in ("solutions.robust.lower_values", "planner.optimistic.values"):
        parts = read(learned)
        change(parts, place, with_steps)
        restored(learned, parts)


def test_what_is_not_there_needs_no_check(learned):
    parts = read(learned)
    parts.session.limits, parts.session.certificate, parts.planner.optimistic = None, None, None
    parts.planner.estimate = parts.planner.seen = parts.session.informative = None
    found = restored(learned, replace(parts, solutions={}))
    assert found.session.certificate is None and found.session.planner.estimate is None


def test_a_set_that_was_empty_once_is_not_trusted_again(monkeypatch):
    """The next certificate took the set for the truth again, and said nothing."""
    env = gym.make("rpl/Betting-v0", n=3)
    agent = RPLAgent(seed=0).learn(env, budget=50)
    session = agent.session
    before, found = session.certificate, planner.uncertainty_from

    def empty(*given, **named):
        return replace(found(*given, **named), empty=True)

    with monkeypatch.context() as patch:
        patch.setattr(planner, "uncertainty_from", empty)
        session.update_certificate()
    with pytest.warns(RPLWarning, match="at one time in this run no parameter fitted the data"):
        after = session.update_certificate()
    assert not before.refuted and after.refuted and any("no parameter fitted" in note for note in after.notes)
