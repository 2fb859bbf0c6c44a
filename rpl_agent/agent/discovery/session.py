"""`OpenSession`: a run without a model. It explores where the bound on the best return is largest, and fixes a policy.

At marks, after an eighth of the budget and whenever the number of episodes has doubled, the policy that is best by
observed frequencies is considered, see `agent.sampling.incumbent`. Each policy has a share of δ of its own
(`evidence.ledger.OpenLedger`), fixed before its first episode. Bounds of earlier policies remain valid, so the best of
the run is returned, with its bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpl_agent.agent.discovery.source import OpenExperience, OpenSource
from rpl_agent.agent.discovery.world import OpenWorld, same_world
from rpl_agent.agent.sampling.experience import SampledBatch
from rpl_agent.agent.sampling.incumbent import MARK_GROWTH, Incumbent, coming_plays
from rpl_agent.agent.sampling.stream import Stream
from rpl_agent.agent.schedule import Limits
from rpl_agent.agent.session import RunRecord, RunSession
from rpl_agent.agent.world.when_attached import require
from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.evidence.ledger import OpenLedger
from rpl_agent.core.model import Objective
from rpl_agent.guarantee.open_world.assumptions import Assumptions
from rpl_agent.guarantee.open_world.certificate import OpenCertificate
from rpl_agent.guarantee.open_world.estimate import FrequencyModel
from rpl_agent.guarantee.open_world.played import OpenPolicy, PlayedPolicy
from rpl_agent.guarantee.open_world.ties import ProposedTie, propose_ties
from rpl_agent.guarantee.open_world.values import UpperValues
from rpl_agent.guarantee.pipeline import Config, timed
from rpl_agent.guarantee.proof.open_world import prove_open

#: Steps between two updates of the bounds: all steps so far divided by the first number, at least the second.
UPDATE_SHARE, FIRST_UPDATE = 8, 16
#: Least and largest share of the episodes that play the fixed policy: such episodes serve both bounds.
LEAST_SHARE, LARGEST_SHARE = 0.35, 0.9
#: The first policy is fixed after one such part of the budget: every policy that is fixed costs δ, and early ones are
#: soon replaced.
FIRST_PART = 8
#: Growth of the number of episodes after which they are divided anew: the bound of a policy takes time.
DIVIDE_GROWTH = 1.5
STAGES = ("sampling", "bounds", "policy", "logging")


def no_certificate(refuted: str) -> str:
    """Why a run whose assumptions are refuted has no certificate, and what to do."""
    return (
        f"no certificate: what was assumed is refuted ({refuted}). No data can change that: start a new run with facts "
        "that hold"
    )


@dataclass
class BestPolicy:
    """The policy with the best guarantee of a run."""

    played: PlayedPolicy
    lower: float
    plays: int
    mean: float

    @property
    def policy(self) -> OpenPolicy:
        return self.played.policy


@dataclass
class OpenRecord(RunRecord):
    """The part of a session without a model that checkpoints store."""

    certificate: OpenCertificate | None = None
    mark: int = 0  # episodes begun when the next policy is considered, whatever the counters say; 0: none is fixed yet
    fixed: int = 0  # policies fixed so far
    divide_at: int = 0  # episodes begun when the coming ones are divided anew
    lowest: float = math.inf  # bound on the best return, the least so far


class OpenSession(OpenRecord, RunSession):
    """What was learned about a world without a model."""

    world: OpenWorld
    experience: OpenExperience

    def __init__(self, seed: int, config: Config):
        super().__init__(seed)
        self._begin(config)
        self._seconds = dict.fromkeys(STAGES, 0.0)
        self.ledger = OpenLedger.of(config.delta)
        self.best: BestPolicy | None = None
        self._guess: OpenPolicy | None = None  # what looks best, until a policy is fixed and played

    # ------------------------------------------------------------------ the world
    def start(self, world: OpenWorld) -> None:
        """Enter a world; a second one must be the same."""
        if self.started:
            if not same_world(self.world, world):
                raise ModelError(f"{world.name} is not the world learned so far: its facts or actions differ")
        else:
            upper = UpperValues(world.assumptions, len(world.actions), self.ledger)
            self.experience = OpenExperience(world.assumptions, upper, len(world.actions))
        self.world = world
        self.limits = Limits() if self.limits is None else self.limits
        self.env_spec, self.time_limit = world.spec, world.limit

    @property
    def started(self) -> bool:
        return "experience" in vars(self)

    @property
    def assumptions(self) -> Assumptions:
        return self.world.assumptions

    @property
    def objective(self) -> Objective:  # type: ignore[override]
        return self.assumptions.objective

    @property
    def pmdp(self) -> Any:
        raise ModelError("this agent has no model: it was given returns=... or rewards=... in place of one")

    planner = pmdp

    # ------------------------------------------------------------------ what the loop asks
    @property
    def samples(self) -> int:
        return self.experience.data.total

    @property
    def seconds(self) -> dict[str, float]:
        return self._seconds

    def open_stream(self, world: OpenWorld) -> Stream:
        return Stream(
            world,  # type: ignore[arg-type]
            self.experience,  # type: ignore[arg-type]
            self.rng,
            self.fresh_seed,
            self.opening,
            self.source_state,
            opens=OpenSource,
        )

    def next_policy(self) -> tuple[None, int]:
        """No policy, because the experience decides who plays; and the episodes until the next mark."""
        return None, max(1, self._next_mark - self.experience.begun)

    @property
    def is_update_due(self) -> bool:
        return self.samples >= self.experience.update_at or self.experience.begun >= self._next_mark

    @property
    def _next_mark(self) -> int:
        """Episodes begun when the next policy is considered: the first one after a part of the budget."""
        return self.mark or max(1, math.ceil((self.experience.begun + self._left) / FIRST_PART))

    def plan(self, agent: Any) -> None:
        """New bounds for the explorer and, at a mark, perhaps a new policy."""
        self._bound()
        if self.experience.begun >= self._next_mark and self.samples:
            with timed(self.seconds, "policy"):
                self._consider()
            self.mark = MARK_GROWTH * max(self.mark, self.experience.begun)
        self._divide()
        played = self.experience.played
        if played is not None:
            played.expected = len(played.complete()) + self.experience.share * max(self._left, 0.0)
        self.updates += 1
        self.limits = Limits()

    def recount(self) -> None:
        """Nothing to do: no count is kept in two places."""

    def _bound(self) -> None:
        with timed(self.seconds, "bounds"):
            self.experience.upper.update(self.experience.data)
            self.experience.look_again()
        self.experience.update_at = self.samples + max(FIRST_UPDATE, self.samples // UPDATE_SHARE)

    def _divide(self) -> None:
        """Divide the coming episodes between exploring and the fixed policy in proportion to their parts of the gap."""
        played, begun = self.experience.played, self.experience.begun
        if played is None or not played.complete() or begun < self.divide_at:
            return
        self.divide_at = math.ceil(DIVIDE_GROWTH * begun)
        with timed(self.seconds, "policy"):
            present = self._incumbent(played)
            above = self.experience.upper.mean_start(self.experience.data) - present.mean
        self.experience.share = min(max(present.part_of_gap(above), LEAST_SHARE), LARGEST_SHARE)

    def _consider(self) -> None:
        """Fix the policy that looks best, unless the one that is played is about as good."""
        model = FrequencyModel(self.assumptions, self.experience.data)
        found = model.best()
        played = self.experience.played
        if played is not None and played.complete():
            coming = coming_plays(self.experience.share, self._left, max(self.episodes, 1))
            if not self._incumbent(played).gives_way(model.value(found), model.value(played.policy), coming):
                return
        self.fixed += 1
        counts = np.array(self.experience.data.counts, dtype=np.int64)
        self.experience.played = PlayedPolicy(found, self.fixed, self.ledger.take_policy(self.fixed), counts)

    def _incumbent(self, played: PlayedPolicy) -> Incumbent:
        return Incumbent.of(played.complete().earned, self._judge(played))

    @property
    def _left(self) -> float:
        """Episodes until the end of the budget."""
        target = require(self.target)
        if target.unit == "steps":
            return (target.goal - self.steps) * max(self.episodes, 1) / max(self.steps, 1)
        return float(target.goal - self.episodes)

    def _judge(self, played: PlayedPolicy) -> float:
        """The lower bound of the policy that is played; the best of the run is kept."""
        lower = played.lower(self.assumptions, self.experience.data)
        same = self.best is not None and self.best.played is played
        if self.best is None or same or lower > self.best.lower:
            kept = max(lower, self.best.lower) if same and self.best is not None else lower  # once true, always true
            self.best = BestPolicy(played, kept, len(played.complete()), played.mean)
        return lower

    def add(self, done: SampledBatch) -> None:
        super().add(done)
        if self.experience.refuted is not None:  # what earlier certificates assumed is false
            self.certificate = None

    @property
    def is_refuted(self) -> bool:
        return self.experience.refuted is not None

    def refuse_refuted(self) -> None:
        if self.experience.refuted is not None:
            raise DataError(no_certificate(self.experience.refuted))

    # ------------------------------------------------------------------ certificates
    def update_certificate(self, is_quick: bool = False) -> OpenCertificate:
        """The policy with the best guarantee, and the least bound on every policy, so far."""
        experience, (low, high) = self.experience, self.assumptions.overall
        self.refuse_refuted()
        data = experience.data
        self._bound()
        upper = experience.upper.start(data) if data.starts else high
        self.lowest = min(self.lowest, upper)
        with timed(self.seconds, "policy"):
            latest = low if experience.played is None else self._judge(experience.played)
            self._guess = None
            best, policy = self.best, self.policy
        if best is not None and best.lower > self.lowest:
            experience.refuted = (
                f"a policy returns at least {best.lower:.6g}, and none more than {self.lowest:.6g}, which has "
                "probability at most δ if it is true; observations may not be a Markov state"
            )
            self.certificate = None
            self.refuse_refuted()
        self.certificate = OpenCertificate(
            low if best is None else best.lower,
            self.lowest,
            self.config.delta,
            self.name,
            self.objective.describe(),
            tuple(self.assumptions.sentences()),
            samples=data.total,
            episodes=experience.begun,
            states=len(data.states),
            rows=len(data.visits),
            untried=len(data.visits) - data.tried,
            top=high,
            plays=0 if best is None else best.plays,
            policies=self.fixed,
            policy=self.listed(policy),
            elsewhere=self._command(policy.unseen),
            estimate=math.nan if best is None else best.mean,
            momentary_lower=latest,
            momentary_upper=upper,
        )
        return self.certificate

    def listed(self, policy: OpenPolicy) -> tuple[tuple[Any, Any], ...]:
        """(state, action) of the states that the policy knows; with a horizon, its actions by steps to go."""
        found = []
        for state, chosen in zip(self.experience.data.states, policy.actions.T.tolist()):
            commands = [self._command(action) for action in chosen]
            found.append((state, commands[0] if self.assumptions.horizon is None else commands))
        return tuple(found)

    def _command(self, action: int) -> Any:
        command = self.world.actions[action]
        return command.tolist() if isinstance(command, np.ndarray) else command

    @property
    def policy(self) -> OpenPolicy:
        """The policy with the best guarantee so far; before one was played, what looked best at the certificate."""
        if self.best is not None:
            return self.best.policy
        if self._guess is None:
            nothing = OpenPolicy(np.zeros((self.assumptions.layers, 0), dtype=np.int64))
            data = self.experience.data
            self._guess = FrequencyModel(self.assumptions, data).best() if data.total else nothing
        return self._guess

    def prove(self, certificate: OpenCertificate, most: float = math.inf) -> dict[str, Any]:
        """The proof of a certificate's kind from all data, for `rpl_agent.checker`."""
        played = None if self.best is None else self.best.played
        return prove_open(certificate, self.assumptions, self.experience.data, self.world.actions, played, most)

    def proposed_ties(self) -> list[ProposedTie]:
        """Rows whose outcomes look alike, with a forecast of the gap if they were tied; nothing is tied."""
        found = self.certificate or self.update_certificate()
        known = found.lower, found.upper
        return propose_ties(self.experience.data, self.assumptions, self.config.delta, self.policy, known)

    def require_anytime(self, why: str) -> None:
        """Every bound here holds at data-dependent times."""

    # ------------------------------------------------------------------ what the views and logs ask
    @property
    def name(self) -> str:
        return require(self.world).name

    @property
    def assumed(self) -> str:
        return self.certificate.assumptions if self.certificate is not None else ""

    def figures(self) -> dict[str, float]:
        data = self.experience.data
        return {
            "discovered/states": len(data.states),
            "discovered/rows_tried": data.tried,
            "discovered/rows_tried_share": data.tried / max(1, len(data.visits)),
            "discovered/rows_unbounded": self.experience.upper.unknown_rows,
            "discovered/policies": self.fixed,
        }

    def hyperparameters(self, agent: Any) -> dict[str, Any]:
        low, high = self.assumptions.overall
        return {
            "delta": self.config.delta,
            "discount": self.assumptions.discount,
            "model": f"none: {self.name}",
            "returns": f"[{low:g}, {high:g}]",
            "seed": self.seed,
        }
