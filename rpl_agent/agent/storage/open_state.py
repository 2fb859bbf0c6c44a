"""The contents of a checkpoint without a model, and how to restore its session.

States are stored as plain data, so they must be numbers, strings or tuples of these. Functions (``returns`` or
``successors`` of a state) are code, which files do not store: loading needs them again. Episodes that were running are
stored as cut where they were: the next stream begins with a reset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from rpl_agent.agent.discovery.session import BestPolicy, OpenRecord, OpenSession
from rpl_agent.agent.sampling.experience import StreamState
from rpl_agent.agent.sampling.stream import set_generator
from rpl_agent.agent.session import Clock
from rpl_agent.agent.storage.checkpoint import CheckpointError
from rpl_agent.agent.storage.state import from_plain, plain
from rpl_agent.agent.world.observations import make_env
from rpl_agent.core.errors import ModelError
from rpl_agent.core.schema import UNREADABLE, Positive, Share, Whole, jsonable, read
from rpl_agent.guarantee.open_world.assumptions import Assumptions
from rpl_agent.guarantee.open_world.data import OpenData
from rpl_agent.guarantee.open_world.played import FinishedPlays, OpenPolicy, PlayedPolicy
from rpl_agent.guarantee.open_world.ties import ProposedTie, propose_ties
from rpl_agent.guarantee.open_world.values import known_states
from rpl_agent.guarantee.pipeline import Config
from rpl_agent.guarantee.proof.open_world import counts_since, grouped_plays, listed_plays

KIND = "open"
#: Stored in place of a fact that is a function.
FUNCTION = "function"
#: A fact that the environment's space says, not the user: the number of states, None if it is not known.
KNOWN = "known_states"
#: The columns of plays.
PLAYS = ("earned", "size", "steps", "cut_in", "stakes")


@dataclass
class StoredPlays:
    """A `PlayedPolicy`; episodes as columns."""

    actions: np.ndarray
    unseen: Whole
    number: Whole
    before: np.ndarray
    expected: Positive
    stake: Whole  # of the next episode
    earned: np.ndarray
    size: np.ndarray
    steps: np.ndarray
    cut_in: np.ndarray  # −1: it was not cut
    stakes: np.ndarray


@dataclass
class StoredBest:
    """A `BestPolicy`; without plays it is the one that is played now."""

    played: StoredPlays | None
    lower: float
    plays: Whole
    mean: float


@dataclass
class OpenState:
    """All of state.json."""

    kind: str
    session: OpenRecord
    config: Config
    facts: dict[str, Any]
    mode: str
    rng: dict[str, Any]
    source: StreamState | None
    elapsed: Positive
    seconds: dict[str, float]
    refuted: str | None
    begun: Whole
    share: Share
    credit: float
    update_at: Whole
    states: list[Any]
    starts: np.ndarray
    rows: np.ndarray
    rewards: np.ndarray
    successors: np.ndarray
    counts: np.ndarray
    upper_rows: np.ndarray
    upper_values: np.ndarray
    witness: StoredPlays | None  # the policy that is played now
    best: StoredBest | None
    commands: list[Any] | None = None  # what the environment takes, by number of our action; older runs have none


def is_open(state: Mapping[str, Any]) -> bool:
    return state.get("kind") == KIND


def capture_open(session: OpenSession, source: StreamState | None, mode: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """State as JSON and as arrays."""
    experience, arrays = session.experience, dict[str, np.ndarray]()
    data, best = experience.data, session.best
    experience.upper.grow(data)
    record = OpenRecord(**{f.name: getattr(session, f.name) for f in fields(OpenRecord)})
    if record.certificate is not None:  # its policy is stored as numbers
        record.certificate = replace(record.certificate, policy=())
    state = OpenState(
        kind=KIND,
        session=record,
        config=session.config,
        facts=_facts(session),
        mode=mode,
        rng=dict(session.rng.bit_generator.state),
        source=source,
        elapsed=session.clock.elapsed,
        seconds=session.seconds,
        refuted=experience.refuted,
        begun=experience.begun,
        share=experience.share,
        credit=experience.credit,
        update_at=experience.update_at,
        states=[plain(value) for value in data.states],
        starts=np.array(data.starts, dtype=np.int64),
        rows=np.array(data.rows, dtype=np.int64),
        rewards=np.array(data.rewards, dtype=float),
        successors=np.array(data.successors, dtype=np.int64),
        counts=np.array(data.counts, dtype=np.int64),
        upper_rows=experience.upper.rows,
        upper_values=experience.upper.values,
        witness=None if experience.played is None else _stored_plays(experience.played),
        best=None if best is None else _stored_best(best, experience.played),
        commands=session.world.actions,
    )
    return jsonable(state, arrays), arrays


def _facts(session: OpenSession) -> dict[str, Any]:
    found: dict[str, Any] = {"horizon": session.assumptions.horizon, KNOWN: known_states(session.assumptions)}
    for name in ("discount", "returns", "rewards", "deterministic", "successors"):
        value = getattr(session.assumptions, name)
        found[name] = FUNCTION if callable(value) else value
    return found


def _stored_best(best: BestPolicy, latest: PlayedPolicy | None) -> StoredBest:
    played = None if best.played is latest else _stored_plays(best.played)
    return StoredBest(played, best.lower, best.plays, best.mean)


def _stored_plays(played: PlayedPolicy) -> StoredPlays:
    plays = played.given_up()
    return StoredPlays(
        actions=played.policy.actions,
        unseen=played.policy.unseen,
        number=played.number,
        before=played.before,
        expected=played.expected,
        stake=played.stake,
        earned=plays.earned,
        size=plays.size,
        steps=plays.steps,
        cut_in=plays.cut_in,
        stakes=plays.stake,
    )


def read_open(state: dict[str, Any], arrays: dict[str, np.ndarray]) -> OpenState:
    """A stored state, checked before anything is built from it."""
    return read(state, OpenState, "the checkpoint", arrays, CheckpointError)


def open_arguments(stored: OpenState, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the agent's constructor; ``facts`` are the functions among them."""
    found = {name: value for name, value in stored.facts.items() if name != KNOWN}
    for name, value in found.items():
        if value == FUNCTION:
            if not callable(facts.get(name)):
                raise ModelError(
                    f"the run was given {name} as a function, which files do not store: pass facts={{{name!r}: …}} "
                    "(rpl: --env path/to/file.py:factory, which returns it beside the environment)"
                )
            found[name] = facts[name]
    if found["discount"] == 1.0:
        found["discount"] = None
    # older runs store a method that nothing used
    return {**found, "delta": stored.config.delta, "seed": stored.session.seed}


def load_open(
    kind: Any,
    state: dict[str, Any],
    arrays: dict[str, np.ndarray],
    env: Any,
    facts: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Any:
    """An agent of this class with a stored state; ``facts`` are functions, ``options`` are not stored."""
    stored = read_open(state, arrays)
    agent = kind(**open_arguments(stored, facts), **options)
    env = make_env(stored.session.env_spec) if env is None else env
    if env is None:
        raise ModelError("an agent without a model is about one environment: pass it, load(path, env)")
    agent.set_env(env)
    restore_open(agent.session, stored)
    agent.mode = stored.mode
    return agent


def stored_data(stored: OpenState) -> OpenData:
    """What a stored run has counted."""
    found = OpenData(_actions(stored))
    _fill(found, stored)
    return found


def _actions(stored: OpenState) -> int:
    return max(len(stored.upper_rows[-1]) // max(len(stored.states), 1), 1)


def foreign_parts(proof: dict[str, Any], stored: OpenState) -> list[str]:
    """The parts of an accepted proof that are not those of the stored run: the checker takes them as they are."""
    data, assumed, lower = proof["data"], proof["assumed"], proof["lower"]
    columns = (stored.rows, stored.rewards, stored.successors, stored.counts)
    facts = {name: value for name, value in stored.facts.items() if value != FUNCTION}
    parts: dict[str, tuple[Any, Any]] = {
        "delta": (proof["delta"], stored.config.delta),
        "facts": ({name: assumed[name] for name in facts}, facts),
        "facts about single states": (assumed["state_returns"] is not None, stored.facts["returns"] == FUNCTION),
        "names of states": (data["names"], jsonable([from_plain(value) for value in stored.states])),
        "states and actions": ([data["states"], data["actions"]], [len(stored.states), _actions(stored)]),
        "outcomes": (data["outcomes"], [list(entry) for entry in zip(*(column.tolist() for column in columns))]),
        "starts": (data["starts"], [[s, n] for s, n in enumerate(stored.starts.tolist()) if n]),
    }
    if stored.commands is not None:
        parts["names of actions"] = (data["commands"], stored.commands)
    if lower is not None:
        parts |= _parts_of_policy(lower, stored)
    return [f"the {name} of the proof are not those of the run" for name, (one, two) in parts.items() if one != two]


def _parts_of_policy(lower: dict[str, Any], stored: OpenState) -> dict[str, tuple[Any, Any]]:
    played = None if stored.best is None else stored.best.played or stored.witness
    if played is None:
        return {"plays": (lower["plays"], None)}
    number = sum(play[3] for play in lower["plays"])
    plays = FinishedPlays(*(getattr(played, name)[:number].tolist() for name in PLAYS))  # running ones come later
    since = counts_since(played.before, stored.counts.tolist())
    policy = OpenPolicy(played.actions, played.unseen)
    return {
        "number and rules of the policy": (
            [lower["policy_number"], lower["unseen"], lower["rules"]],
            [played.number, played.unseen, policy.table(len(stored.states)).tolist()],
        ),
        "plays": (sorted(lower["plays"]), sorted(listed_plays(grouped_plays(plays)))),
        "outcomes since the policy was fixed": (
            lower["since"] or None,
            [[k, n] for k, n in enumerate(since.tolist()) if n] if lower["rest"] is not None else None,
        ),
    }


def stored_ties(stored: OpenState) -> list[ProposedTie]:
    """Ties that a stored run suggests; with forecasts, unless facts are functions."""
    data, best, certificate = stored_data(stored), stored.best, stored.session.certificate
    played = None if best is None else best.played or stored.witness
    if FUNCTION in stored.facts.values() or played is None or certificate is None:
        return propose_ties(data)
    given: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v
        for name, v in stored.facts.items()
        if v is not None and name != KNOWN
    }
    policy = OpenPolicy(played.actions, played.unseen)
    known = certificate.lower, certificate.upper
    return propose_ties(data, Assumptions(**given), certificate.delta, policy, known)


def _fill(data: OpenData, stored: OpenState) -> None:
    """Count what is stored."""
    for value in stored.states:
        data.state(from_plain(value))
    if len(data.states) != len(stored.states):
        raise CheckpointError("the checkpoint is damaged: two of its states are equal")
    data.starts[:] = stored.starts.tolist()
    names = ("rows", "rewards", "successors", "counts")
    data.restore(zip(*(getattr(stored, name).tolist() for name in names)))


def restore_open(session: OpenSession, stored: OpenState) -> None:
    """Load a stored state into a session that has entered its world."""
    _require_same_world(session, stored)
    try:
        _restore(session, stored)
    except UNREADABLE as error:
        raise CheckpointError(f"the checkpoint's state is not readable: {error!r}") from None


def _require_same_world(session: OpenSession, stored: OpenState) -> None:
    """Raise if the world is another one than that of the run, as far as can be seen."""
    before, now = ((spec or {}).get("id") for spec in (stored.session.env_spec, session.env_spec))
    if before is not None and now is not None and before != now:
        raise ModelError(f"{now} is not the world of the run, {before}")
    if stored.commands is not None and stored.commands != jsonable(session.world.actions):
        raise ModelError(f"{session.world.name} is not the world of the run: its actions are others")
    states = known_states(session.assumptions)  # δ is divided by their number
    if stored.facts.get(KNOWN, states) != states:
        raise ModelError(f"{session.world.name} is not the world of the run: its observations are others")


def _restore(session: OpenSession, stored: OpenState) -> None:
    experience, limit, spec = session.experience, session.time_limit, session.env_spec
    data = experience.data
    _fill(data, stored)
    experience.upper.grow(data)
    experience.upper.restore(stored.upper_rows, stored.upper_values)
    for name in ("refuted", "begun", "share", "credit", "update_at"):
        setattr(experience, name, getattr(stored, name))
    for f in fields(stored.session):
        setattr(session, f.name, getattr(stored.session, f.name))
    session.time_limit, session.env_spec = limit, spec
    best = stored.best
    earlier = (
        None if best is None or best.played is None else _played_policy(best.played, session)
    )  # fixed before the latest
    if stored.witness is not None:
        experience.played = _played_policy(stored.witness, session)
    if best is not None:
        played = earlier or experience.played
        if played is None:
            raise CheckpointError("the checkpoint is damaged: the best policy has no plays")
        session.best = BestPolicy(played, best.lower, best.plays, best.mean)
    session.stored_steps, session.clock = session.steps, Clock(stored.elapsed)
    session.seconds.update(stored.seconds)
    session.source_state = stored.source
    session.opening = [] if stored.source is None else stored.source.opening
    set_generator(session.rng, stored.rng)
    if session.certificate is not None:
        session.certificate = replace(session.certificate, policy=session.listed(session.policy))


def _played_policy(stored: StoredPlays, session: OpenSession) -> PlayedPolicy:
    plays = FinishedPlays(*(getattr(stored, name).tolist() for name in PLAYS))
    policy, share = OpenPolicy(stored.actions, stored.unseen), session.ledger.take_policy(stored.number)
    return PlayedPolicy(policy, stored.number, share, stored.before, stored.expected, stored.stake, plays)
