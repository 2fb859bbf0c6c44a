"""Checkpoints without a model: everything comes back, running episodes as cut ones, and damage is said."""

from __future__ import annotations

import copy
import json
from collections import deque
from dataclasses import replace

import numpy as np
import pytest

from rpl_agent import RPLAgent
from rpl_agent.agent.discovery.session import BestPolicy
from rpl_agent.agent.storage import open_state
from rpl_agent.agent.storage.checkpoint import CheckpointError
from rpl_agent.agent.storage.open_state import FUNCTION, capture_open, open_arguments, read_open, restore_open
from rpl_agent.core.errors import ModelError
from rpl_agent.guarantee.open_world.played import OpenEpisode, OpenPolicy, PlayedPolicy
from tests.agent.test_no_model import agent_of, corridor


def stored(agent, source=None):
    state, arrays = capture_open(agent.session, source, "optimistic")
    return json.loads(json.dumps(state)), {name: array.copy() for name, array in arrays.items()}


def comparable(state, arrays):
    """Without what a clock says."""
    plain = {name: value for name, value in state.items() if name not in ("elapsed", "seconds")}
    return plain, {name: (array.dtype.str, array.tolist()) for name, array in arrays.items()}


def restored(state, arrays, **facts):
    agent = agent_of(corridor(), **facts)
    restore_open(agent.session, read_open(copy.deepcopy(state), arrays))
    return agent


@pytest.fixture(scope="module")
def learned():
    return agent_of(corridor()).learn(120)


def policy(number: int, episodes: list[OpenEpisode], outcomes: int) -> PlayedPolicy:
    rule = OpenPolicy(np.array([[0, 1, 1]]), 1)
    return PlayedPolicy(rule, number, 0.01, np.arange(outcomes), _begun=deque(episodes))


@pytest.mark.parametrize("episodes", [1, 40, 120])
def test_what_is_stored_comes_back_and_is_stored_as_it_was(episodes, learned):
    agent = learned if episodes == 120 else agent_of(corridor()).learn(episodes)
    state, arrays = stored(agent)
    again = restored(state, arrays)
    assert comparable(*stored(again)) == comparable(state, arrays)
    assert replace(again.certificate, estimate=0.0) == replace(agent.certificate, estimate=0.0)  # it may be nan
    assert open_state.is_open(state) and not open_state.is_open({})
    assert again.session.clock.elapsed >= state["elapsed"] and again.session.seconds == agent.session.seconds
    played, other = (one.session.experience.played for one in (agent, again))
    assert (played is None) == (other is None)
    if episodes == 120:
        assert played is not None and agent.certificate is not None and agent.session.best is not None


def test_episodes_that_were_running_come_back_as_cut_where_they_were(learned):
    run = [
        OpenEpisode(last=None, earned=0.5, size=1.5, steps=7, cut_in=None, over=True),
        OpenEpisode(last=2, earned=0.25, size=0.25, steps=3, cut_in=0, over=True),
        OpenEpisode(last=1, earned=0.125, size=0.125, steps=2, cut_in=None, over=False),
        OpenEpisode(last=0, earned=0.0, size=0.0, steps=0, cut_in=None, over=False),
    ]
    kept = open_state._stored_plays(policy(2, run, 4))
    assert kept.cut_in.tolist() == [-1, 0, 1, 0] and kept.steps.tolist() == [7, 3, 2, 0]
    found = open_state._played_policy(kept, agent_of(corridor()).session)
    plays = found.complete()
    assert list(zip(plays.cut_in, plays.earned, plays.size, plays.steps)) == [
        (-1, 0.5, 1.5, 7), (0, 0.25, 0.25, 3), (1, 0.125, 0.125, 2), (0, 0.0, 0.0, 0),
    ]  # fmt: skip
    assert found.number == 2 and found.policy.unseen == 1 and found.policy.actions.tolist() == [[0, 1, 1]]
    assert found.before.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("is_latest", [True, False])
def test_the_best_policy_is_the_latest_or_an_earlier_one(learned, is_latest):
    state, arrays = stored(learned)
    agent = restored(state, arrays)
    session, outcomes = agent.session, len(agent.session.experience.data.counts)
    latest = policy(3, [OpenEpisode(earned=1.0, size=1.0, steps=2, over=True)], outcomes)
    earlier = policy(2, [OpenEpisode(earned=0.5, size=0.5, steps=1, cut_in=0, over=True)] * 2, outcomes)
    session.experience.played = latest
    session.best = BestPolicy(latest if is_latest else earlier, 0.25, 2, 0.5)
    state, arrays = stored(agent)
    assert (state["best"]["played"] is None) == is_latest
    found = restored(state, arrays).session
    assert (found.best.played is found.experience.played) == is_latest
    assert found.best.played.number == (3 if is_latest else 2) and found.experience.played.number == 3
    assert (found.best.lower, found.best.plays, found.best.mean) == (0.25, 2, 0.5)
    assert found.certificate.policy == found.listed(found.best.policy)
    without = {**state, "witness": None}
    if is_latest:
        with pytest.raises(CheckpointError, match="the best policy has no plays"):
            restored(without, arrays)
    else:
        assert restored(without, arrays).session.best.played.number == 2
        assert restored({**state, "best": None}, arrays).session.best is None
    bare = restored({**state, "best": None, "witness": None}, arrays).session
    assert bare.experience.played is None and bare.certificate.policy == bare.listed(bare.policy)


def test_two_states_that_are_equal_are_damage(learned):
    state, arrays = stored(learned)
    state["states"][1] = state["states"][0]
    with pytest.raises(CheckpointError, match="two of its states are equal"):
        restored(state, arrays)


# ====================================================================== facts
def test_functions_are_not_stored_and_asked_for(learned):
    given = agent_of(corridor(), returns=lambda s: (0, 1)).learn(1)
    found = read_open(*stored(given))
    assert found.facts["returns"] == FUNCTION and found.facts["discount"] == 0.9 and found.facts["rewards"] is None
    for facts in ({}, {"returns": (0, 1)}):
        with pytest.raises(ModelError, match="returns as a function"):
            open_arguments(found, facts)
    known = lambda s: (0, 1)  # noqa: E731
    assert open_arguments(found, {"returns": known})["returns"] is known
    plain = open_arguments(read_open(*stored(learned)), {"returns": known})
    assert list(plain["returns"]) == [0, 1] and plain["discount"] == 0.9 and plain["seed"] == 0


def test_a_discount_of_one_is_none(learned):
    found = read_open(*stored(learned))
    for discount, expected in ((1.0, None), (0.0, 0.0), (0.5, 0.5), (2.0, 2.0)):
        assert open_arguments(replace(found, facts={**found.facts, "discount": discount}), {})["discount"] == expected


def test_an_environment_is_given_or_made_again(learned, monkeypatch):
    state, arrays = stored(learned)
    assert open_state.load_open(RPLAgent, state, arrays, corridor(), {}, {}).mode == "optimistic"
    monkeypatch.setattr(open_state, "make_env", lambda spec: None)
    with pytest.raises(ModelError, match="pass it"):
        open_state.load_open(RPLAgent, state, arrays, None, {}, {})
    made = corridor()
    monkeypatch.setattr(open_state, "make_env", lambda spec: made)
    assert open_state.load_open(RPLAgent, state, arrays, None, {}, {}).certificate == learned.certificate


def test_a_method_that_an_older_run_stored_in_vain_does_not_stop_it(learned):
    state, arrays = stored(learned)
    state["config"]["confidence"] = "anytime"
    again = open_state.load_open(RPLAgent, state, arrays, corridor(), {}, {})
    assert again.certificate == learned.certificate and again.config.delta == learned.config.delta


# ====================================================================== what else is made of it
def test_counts_are_read_without_an_environment(learned):
    found, data = open_state.stored_data(read_open(*stored(learned))), learned.session.experience.data
    assert (found.actions, found.states, found.counts) == (data.actions, data.states, data.counts)
    assert found.rows == data.rows and found.starts == data.starts
    fresh = read_open(*stored(learned))
    empty = np.zeros((1, 0))
    fresh = replace(fresh, states=[], upper_rows=empty, starts=np.zeros(0, np.int64))
    none = np.zeros(0, np.int64)
    fresh = replace(fresh, rows=none, rewards=none.astype(float), successors=none, counts=none)
    assert open_state.stored_data(fresh).actions == 1
    alone = replace(fresh, states=[0], upper_rows=np.zeros((1, 2)), starts=np.ones(1, np.int64))
    assert open_state.stored_data(alone).actions == 2


def test_ties_are_proposed_with_a_forecast_where_facts_and_a_policy_are_known(learned, monkeypatch):
    monkeypatch.setattr(open_state, "propose_ties", lambda *given: given[1:])
    found = read_open(*stored(learned))
    assert found.best is not None
    assumed, delta, played, known = open_state.stored_ties(found)
    assert (assumed.discount, tuple(assumed.returns), assumed.rewards) == (0.9, (0, 1), None)
    assert delta == 0.1 and known == (learned.certificate.lower, learned.certificate.upper)
    assert played.actions.tolist() == learned.session.best.policy.actions.tolist()
    other = open_state._stored_plays(policy(2, [], 4))
    earlier = replace(found, best=replace(found.best, played=other))
    assert open_state.stored_ties(earlier)[2].actions.tolist() == [[0, 1, 1]]
    latest = replace(found, best=replace(found.best, played=None), witness=other)
    assert open_state.stored_ties(latest)[2].actions.tolist() == [[0, 1, 1]]
    for less in (
        replace(found, best=None),
        replace(found, facts={**found.facts, "successors": FUNCTION}),
        replace(found, session=replace(found.session, certificate=None)),
        replace(found, best=replace(found.best, played=None), witness=None),
    ):
        assert open_state.stored_ties(less) == ()
